//! Frames about calls: which process may claim, report and show progress.

use std::sync::{Arc, atomic::Ordering};

use budao_core::{
    event::SessionId,
    fault::{Fact, Fault, Kind, Operation},
    message::CallId,
    remote::{RemoteCall, ToolRoute, WorkerReport},
};
use budao_tools::Reconciliation;
use tokio::sync::{mpsc, watch};

use super::{CallHandle, ProcessRef, Workers};
use crate::{
    calls::{CallKey, CallOffer, CallPurpose, CallStatus, CancelReason, OpenCall},
    limits::limit_reached,
    offers::violation_fault,
    peer_notes::PeerVerdict,
    peers::ForeignCall,
    roster::{ProcessKey, Roster},
};

/// Pieces of progress output of one call that may wait for its task.
const OUTPUTS: usize = 16;

/// Who decides about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimCheck {
    /// The call is open. The session decides about a run; a reconciliation is not recorded and needs no decision.
    Open(CallPurpose),
    /// The process declared the call when it connected, and no offer of it to this process is open on this server: the
    /// server restarts, or the session is on another one. The session decides, after [`Workers::check_route`].
    Declared,
}

impl Workers {
    /// Checks that no newer connection of a process has offered. A lost connection may deliver its offer late; then the
    /// process is on the next one, and would lose its calls.
    ///
    /// # Errors
    /// The connection with this number is not the newest of the process.
    pub fn check_newest(&self, process: ProcessRef<'_>, number: u64) -> Result<(), Fault> {
        match self.roster().processes.get(&process.key()) {
            Some(worker) if worker.newest > number => {
                let rule = "no newer connection has offered tools with this id";
                Err(violation_fault("content.worker_id", rule, process.worker_id))
            }
            _ => Ok(()),
        }
    }

    /// Checks that this process may claim this call, and says who decides about the claim.
    ///
    /// # Errors
    /// The process has no such connection, or the call is not open for it.
    pub fn check_claim(
        &self,
        process: ProcessRef<'_>,
        key: &CallKey,
        attempt: u32,
    ) -> Result<ClaimCheck, Fault> {
        let mut roster = self.roster();
        let id = check_process(&roster, process)?;
        let check = roster.check_claim(&id, key, attempt)?;
        // The claim may become durable while the work of the call starts anew.
        if let Some(worker) = roster.processes.get_mut(&id) {
            worker.declared.insert((key.clone(), attempt));
        }
        Ok(check)
    }

    /// Checks that this process runs the tool of a call that is not open here, in the version that the call needs.
    ///
    /// # Errors
    /// The process has no such connection, or could not have been offered the call.
    pub fn check_route(
        &self,
        process: ProcessRef<'_>,
        key: &CallKey,
        (tool, route): (&str, &ToolRoute),
    ) -> Result<(), Fault> {
        let roster = self.roster();
        let id = check_process(&roster, process)?;
        match roster.processes.get(&id) {
            Some(worker) if worker.runs(key.session, tool, route) => Ok(()),
            _ => Err(not_open(key, "it was not offered to this worker")),
        }
    }

    /// Whether a connection was offered this call, or holds it. Such frames are bounded by the open calls.
    #[must_use]
    pub fn is_expected(&self, connection: &str, key: &CallKey) -> bool {
        let roster = self.roster();
        let uses = |id: &ProcessKey| {
            let worker = roster.processes.get(id);
            worker.and_then(|it| it.link.as_ref()).is_some_and(|(known, _)| known == connection)
        };
        if roster.foreign.get(key).is_some_and(|foreign| uses(&foreign.process)) {
            return true;
        }
        let Some(call) = roster.calls.get(key) else {
            return roster.declares(connection, key);
        };
        call.offered_to.iter().chain(&call.claim()).any(uses)
    }

    /// Checks that a frame about a claimed call comes from the connection of its process.
    ///
    /// # Errors
    /// The connection has offered nothing with this id.
    pub fn check_report(
        &self,
        process: ProcessRef<'_>,
        key: &CallKey,
    ) -> Result<Option<CallPurpose>, Fault> {
        let roster = self.roster();
        check_process(&roster, process)?;
        match roster.calls.get(key) {
            Some(call) if *call.tenant != *process.tenant => Err(not_open(key, "it is over")),
            Some(call) => Ok(Some(call.offer.purpose)),
            None => Ok(roster.foreign.get(key).map(|call| call.offer.purpose)),
        }
    }

    /// Takes the answer to a claim. A process whose claim was refused does not hold the call.
    pub fn claim_answered(
        &self,
        process: ProcessRef<'_>,
        key: &CallKey,
        attempt: u32,
        is_accepted: bool,
    ) {
        let mut roster = self.roster();
        let Ok(id) = check_process(&roster, process) else { return };
        if let (false, Some(worker)) = (is_accepted, roster.processes.get_mut(&id)) {
            worker.declared.remove(&(key.clone(), attempt));
        }
        let is_ours = |call: &ForeignCall| call.process == id && call.offer.attempt == attempt;
        if !roster.foreign.get(key).is_some_and(is_ours) {
            return;
        }
        if !is_accepted {
            return roster.forget_foreign(key);
        }
        if let Some(foreign) = roster.foreign.get_mut(key) {
            foreign.is_claimed = true;
        }
        if let Some(worker) = roster.processes.get_mut(&id) {
            worker.offered.remove(key);
            worker.held.insert(key.clone());
        }
    }

    /// Forgets a call whose session is on another server: its result has an answer.
    pub fn result_answered(&self, process: ProcessRef<'_>, key: &CallKey) {
        let mut roster = self.roster();
        let Ok(id) = check_process(&roster, process) else { return };
        if roster.foreign.get(key).is_some_and(|call| call.process == id) {
            roster.forget_foreign(key);
        }
    }

    /// Claims a call that finds out what became of another. It changes nothing, so its claim needs no record.
    pub fn claim_reconcile(&self, process: ProcessRef<'_>, key: &CallKey) {
        let mut roster = self.roster();
        // For a call of another server, `claim_answered` follows.
        let Some(call) = roster.calls.get(key) else { return };
        let id = process.key();
        call.status.send_modify(|status| status.claim = Some(id.clone()));
        if let Some(worker) = roster.processes.get_mut(&id) {
            worker.offered.remove(key);
            worker.held.insert(key.clone());
        }
    }

    /// Takes the answer to the question what became of a call.
    ///
    /// # Errors
    /// The call is not open for this process.
    pub fn reconcile(
        &self,
        process: ProcessRef<'_>,
        key: &CallKey,
        found: Reconciliation,
    ) -> Result<(), Fault> {
        let now = self.now();
        let mut roster = self.roster();
        let id = check_process(&roster, process)?;
        if let Some(call) = asked_call(&roster, &id, key) {
            call.status.send_modify(|status| status.reconciliation = Some(found));
            return Ok(());
        }
        match roster.answer_elsewhere(key, &id, found.into(), now) {
            true => Ok(()),
            false => Err(not_open(key, "this worker has not claimed it")),
        }
    }

    /// Takes the failure of the question what became of a call.
    ///
    /// # Errors
    /// The call is not open for this process.
    pub fn fail_reconcile(
        &self,
        process: ProcessRef<'_>,
        key: &CallKey,
        report: WorkerReport,
    ) -> Result<(), Fault> {
        let now = self.now();
        let mut roster = self.roster();
        let id = check_process(&roster, process)?;
        if let Some(call) = asked_call(&roster, &id, key) {
            call.status.send_modify(|status| status.report = Some(report));
            return Ok(());
        }
        match roster.answer_elsewhere(key, &id, PeerVerdict::Failed(report), now) {
            true => Ok(()),
            false => Err(not_open(key, "this worker has not claimed it")),
        }
    }

    /// Shows progress of a claimed call. Beyond the bound, it is dropped.
    ///
    /// # Errors
    /// The call is not open for this process.
    pub fn show_output(
        &self,
        process: ProcessRef<'_>,
        key: &CallKey,
        text: String,
    ) -> Result<(), Fault> {
        let (limit, now) = (self.limits().output_bytes, self.now());
        let mut roster = self.roster();
        let id = check_process(&roster, process)?;
        if roster.foreign.contains_key(key) {
            return match roster.show_elsewhere(key, &id, (text, limit), now) {
                true => Ok(()),
                false => Err(not_open(key, "this worker has not claimed it")),
            };
        }
        let call = roster.calls.get_mut(key).filter(|call| call.claim().as_ref() == Some(&id));
        let Some(call) = call else {
            return Err(not_open(key, "this worker has not claimed it"));
        };
        if call.output_bytes.saturating_add(text.len()) <= limit {
            call.output_bytes += text.len();
            // A full channel drops the piece: progress is best effort.
            drop(call.output.try_send(text));
        }
        Ok(())
    }

    /// Opens a call and offers it to a process.
    pub(crate) fn open_call(
        &self,
        tenant: Arc<str>,
        offer: CallOffer,
    ) -> Result<CallHandle, Fault> {
        let limit = self.limits().open_calls;
        let (status, changes) = watch::channel(CallStatus::default());
        let (output, pieces) = mpsc::channel(OUTPUTS);
        let key = offer.key.clone();
        let mut roster = self.roster();
        if roster.open_calls(&tenant) >= limit {
            return Err(limit_reached("tenant_open_calls", limit));
        }
        let serial = self.0.calls.fetch_add(1, Ordering::Relaxed);
        let (offer, offered_to) = (Arc::new(offer), Vec::new());
        let (shown, output_bytes) = (0, 0);
        let call =
            OpenCall { serial, tenant, offer, status, output, shown, output_bytes, offered_to };
        let now = self.now();
        let (out, awaited) = roster.open(call, now);
        drop(roster);
        Self::send(out);
        if let Some(id) = awaited {
            self.expire_later(id, now);
        }
        let reason = CancelReason::Over;
        Ok(CallHandle { workers: self.clone(), key, serial, changes, pieces, reason })
    }

    /// Takes the durable state of a call, as the session recorded it.
    pub fn call_changed(
        &self,
        session: SessionId,
        call: &CallId,
        attempt: u32,
        remote: &RemoteCall,
    ) {
        let key = CallKey { session, call: call.clone() };
        let now = self.now();
        let awaited = self.roster().record(&key, attempt, remote, now);
        if let Some(id) = awaited {
            self.expire_later(id, now);
        }
    }
}

/// The process of a frame: its connection must be the one that offered with this id.
pub(super) fn check_process(roster: &Roster, process: ProcessRef<'_>) -> Result<ProcessKey, Fault> {
    let id = process.key();
    let link = roster.processes.get(&id).and_then(|worker| worker.link.as_ref());
    if link.is_some_and(|(connection, _)| connection == process.connection) {
        return Ok(id);
    }
    let rule = "this connection has offered tools with this id";
    Err(violation_fault("content.worker_id", rule, process.worker_id))
}

/// A call that asks this process what became of another.
fn asked_call<'a>(roster: &'a Roster, id: &ProcessKey, key: &CallKey) -> Option<&'a OpenCall> {
    roster.calls.get(key).filter(|call| {
        call.offer.purpose == CallPurpose::Reconcile && call.claim().as_ref() == Some(id)
    })
}

pub(crate) fn not_open(key: &CallKey, reason: &'static str) -> Fault {
    Fault::new(Kind::CallNotOpen, Operation::ToolCall)
        .with(Fact::CallId, key.call.to_string())
        .with(Fact::Session, key.session.to_string())
        .with(Fact::Reason, reason)
}
