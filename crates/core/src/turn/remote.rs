//! Rules for calls that a worker's process runs: offer, claim, report, and a worker that went away.

use super::{CallId, CallState, Event, Fact, Fault, Kind, Operation, Outcome, Stepper};
use crate::{
    fault::Progress,
    remote::{RemoteCall, ToolOffer, WorkerReport},
    session::Call,
};

/// The most workers that offer tools to one session.
const SESSION_WORKERS: usize = 16;

impl Stepper<'_> {
    /// Replaces a worker's offers to this session. The model gets the changed tools at its next step.
    pub(super) fn offer_tools(&mut self, offer: ToolOffer) -> Result<(), Fault> {
        let mut settings = self.session.settings.clone();
        settings.offers.retain(|known| known.worker != offer.worker);
        if settings.offers.len() >= SESSION_WORKERS {
            return Err(Fault::new(Kind::LimitReached, Operation::SubmitCommand)
                .with(Fact::Limit, SESSION_WORKERS)
                .with(Fact::LimitName, "session_workers"));
        }
        if !offer.tools.is_empty() {
            settings.offers.push(offer);
        }
        self.change_settings(settings);
        Ok(())
    }

    /// Claims a call for a process. A repeated claim of the same process is accepted and has no effect.
    pub(super) fn claim_call(
        &mut self,
        call: CallId,
        attempt: u32,
        worker: String,
    ) -> Result<(), Fault> {
        let remote = self.open_remote_call(&call, attempt)?;
        match &remote.claim {
            Some(claim) if *claim == worker => return Ok(()),
            Some(_) => return Err(not_open(&call, "another worker has claimed it")),
            None if self.turn().cancelling => return Err(not_open(&call, "it is cancelled")),
            None => {}
        }
        self.emit(Event::ToolCallClaimed { call, attempt, worker });
        Ok(())
    }

    /// Takes the one report of a claimed call. The runtime turns it into the outcome.
    pub(super) fn report_call(
        &mut self,
        call: CallId,
        attempt: u32,
        worker: String,
        report: WorkerReport,
    ) -> Result<(), Fault> {
        let remote = self.open_remote_call(&call, attempt)?;
        if remote.claim.as_ref() != Some(&worker) {
            return Err(not_open(&call, "this worker has not claimed it"));
        }
        if remote.report.is_some() {
            return Err(not_open(&call, "it has its result"));
        }
        self.emit(Event::ToolCallReported { call, attempt, worker, report });
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

fn not_open(call: &CallId, reason: &'static str) -> Fault {
    Fault::new(Kind::CallNotOpen, Operation::ToolCall)
        .with(Fact::CallId, call.to_string())
        .with(Fact::Reason, reason)
}
