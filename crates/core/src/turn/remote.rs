//! Rules for calls that a worker's process runs: offer, claim, report, and a worker that went away.

use super::{CallId, CallState, Event, Fact, Fault, Kind, Operation, Outcome, Stepper};
use crate::{
    fault::{FactValue, Progress},
    remote::{OfferBounds, RemoteCall, ToolOffer, WorkerClaim, WorkerReport},
    session::Call,
};

/// The most workers that offer tools to one session.
const SESSION_WORKERS: usize = 16;

impl Stepper<'_> {
    /// Replaces a worker's offer to this session. The model gets the changed tools at its next step.
    pub(super) fn offer_tools(
        &mut self,
        offer: ToolOffer,
        bounds: OfferBounds,
    ) -> Result<(), Fault> {
        let mut settings = self.session.settings.clone();
        let offers = &mut settings.offers;
        let at = offers.iter().position(|known| is_same_worker(known, &offer));
        match at {
            Some(at) if offer.tools.is_empty() => drop(offers.remove(at)),
            None if offer.tools.is_empty() => {}
            _ => {
                check_names(&offer, offers)?;
                match at {
                    Some(at) => offers[at] = offer,
                    None => offers.push(offer),
                }
                check_bounds(offers, bounds)?;
            }
        }
        self.change_settings(settings);
        Ok(())
    }

    /// Claims a call for a process. A repeated claim of the same process is accepted and has no effect.
    pub(super) fn claim_call(
        &mut self,
        call: CallId,
        attempt: u32,
        process: WorkerClaim,
    ) -> Result<(), Fault> {
        let remote = self.open_remote_call(&call, attempt)?;
        match &remote.claim {
            Some(claim) if *claim == process => return Ok(()),
            Some(_) => return Err(not_open(&call, "another worker has claimed it")),
            None if self.turn().cancelling => return Err(not_open(&call, "it is cancelled")),
            None => {}
        }
        let WorkerClaim { worker, by } = process;
        self.emit(Event::ToolCallClaimed { call, attempt, worker, by });
        Ok(())
    }

    /// Takes the one report of a claimed call. The runtime turns it into the outcome.
    pub(super) fn report_call(
        &mut self,
        call: CallId,
        attempt: u32,
        process: WorkerClaim,
        report: WorkerReport,
    ) -> Result<(), Fault> {
        let remote = self.open_remote_call(&call, attempt)?;
        if remote.claim.as_ref() != Some(&process) {
            return Err(not_open(&call, "this worker has not claimed it"));
        }
        if remote.report.is_some() {
            return Err(not_open(&call, "it has its result"));
        }
        let WorkerClaim { worker, by } = process;
        self.emit(Event::ToolCallReported { call, attempt, worker, by, report });
        Ok(())
    }

    /// A running call of a worker, if this is its current attempt.
    fn open_remote_call(&self, id: &CallId, attempt: u32) -> Result<&RemoteCall, Fault> {
        let call = self.session.turn.as_ref().and_then(|turn| turn.call(id));
        let Some(Call { state, remote: Some(remote), .. }) = call else {
            return Err(not_open(id, "it is over"));
        };
        match state {
            CallState::Started { attempt: now, .. } if *now == attempt => Ok(remote),
            CallState::Ended { .. } => Err(not_open(id, "it is over")),
            _ => Err(not_open(id, "it is another attempt")),
        }
    }

    /// Whether a process claimed the call while its work ended it as not begun. The work is due again then.
    pub(super) fn was_claimed_meanwhile(&self, id: &CallId, outcome: &Outcome) -> bool {
        let Some(remote) = self.turn().call(id).and_then(|call| call.remote.as_ref()) else {
            return false;
        };
        let Some(fault) = outcome.fault().filter(|fault| fault.progress() == Progress::NotBegun)
        else {
            return false;
        };
        let is_stale = match &remote.report {
            None => true,
            // The process itself may say that the call did nothing.
            Some(WorkerReport::Failed(_)) => false,
            Some(_) => matches!(fault.kind(), Kind::WorkerMissing | Kind::Cancelled),
        };
        remote.claim.is_some() && is_stale
    }

    /// Lets the worker reconcile a call whose process is gone, if its tool supports that.
    pub(super) fn asks_worker(&mut self, id: &CallId, outcome: &Outcome) -> bool {
        let Some(call) = self.turn().call(id).filter(|call| call.remote.is_some()) else {
            return false;
        };
        let can_ask =
            matches!(call.state, CallState::Started { reconcile: true, idempotent: false, .. });
        let is_lost = outcome.fault().is_some_and(|fault| fault.kind() == Kind::WorkerLost);
        if !can_ask || !is_lost || self.turn().cancelling {
            return false;
        }
        let (call, tool) = (id.clone(), call.tool.clone());
        self.emit(Event::ReconcileStarted { call, tool, attempt: 1 });
        true
    }
}

fn is_same_worker(one: &ToolOffer, other: &ToolOffer) -> bool {
    one.worker == other.worker && one.by == other.by
}

/// Checks that no other worker offers one of these names to the session.
fn check_names(offer: &ToolOffer, offers: &[ToolOffer]) -> Result<(), Fault> {
    for (index, tool) in offer.tools.iter().enumerate() {
        let has_name = |known: &&ToolOffer| known.tools.iter().any(|it| it.name == tool.name);
        let others = offers.iter().filter(|known| !is_same_worker(known, offer));
        if let Some(other) = others.into_iter().find(has_name) {
            let rule = format!("the worker `{}` offers this name", other.worker);
            return Err(Fault::new(Kind::ConstraintViolated, Operation::RegisterTool)
                .with(Fact::Field, format!("content.tools[{index}].name"))
                .with(Fact::Constraint, rule)
                .with(Fact::ProvidedValue, FactValue::Json(tool.name.as_str().into())));
        }
    }
    Ok(())
}

/// Checks the bounds on all offers to one session.
fn check_bounds(offers: &[ToolOffer], bounds: OfferBounds) -> Result<(), Fault> {
    let tools = || offers.iter().flat_map(|offer| &offer.tools);
    let bytes = tools().fold(0_usize, |sum, tool| sum.saturating_add(tool.bytes()));
    for (name, actual, limit) in [
        ("session_workers", offers.len(), SESSION_WORKERS),
        ("session_tools", tools().count(), bounds.tools),
        ("session_tool_bytes", bytes, bounds.bytes),
    ] {
        if actual > limit {
            return Err(Fault::new(Kind::LimitReached, Operation::RegisterTool)
                .with(Fact::Limit, limit)
                .with(Fact::LimitName, name));
        }
    }
    Ok(())
}

fn not_open(call: &CallId, reason: &'static str) -> Fault {
    Fault::new(Kind::CallNotOpen, Operation::ToolCall)
        .with(Fact::CallId, call.to_string())
        .with(Fact::Reason, reason)
}
