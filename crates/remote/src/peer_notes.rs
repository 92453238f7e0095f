//! The notes that servers write for each other, and where they are stored.
//!
//! A note has a numbered slot in the journal. A server takes the first slot that no living server has, so the notes of
//! dead servers are replaced, and there are never more of them than servers that lived at the same time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use budao_core::{
    event::SessionId,
    fault::Fault,
    message::CallId,
    remote::{ToolRoute, WorkerReport},
    time::Timestamp,
    trace::{SpanId, Trace, parent_of},
};
use budao_journal::Cluster;
use budao_tools::Reconciliation;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    calls::{CallKey, CallOffer, CallPurpose, CancelReason},
    offers::millis,
    roster::ProcessKey,
    workers::Workers,
};

/// Larger arguments are not shown to other servers; such a call waits for a process here.
const ARGUMENT_BYTES: usize = 16 * 1024;
/// The most slots for notes: servers that share a journal.
const NOTE_SLOTS_MAX: u64 = 1_024;

/// What one server tells the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PeerNote {
    /// The server that wrote the note; empty if it is gone.
    pub(crate) holder: String,
    pub(crate) waiting: Vec<PeerCall>,
    pub(crate) cancels: Vec<PeerCancel>,
    pub(crate) outputs: Vec<PeerOutput>,
    pub(crate) answers: Vec<PeerAnswer>,
    /// The connected processes.
    pub(crate) workers: BTreeSet<ProcessKey>,
    /// Open calls by tenant.
    pub(crate) open: BTreeMap<String, usize>,
}

/// A call that no process of its server takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PeerCall {
    pub(crate) tenant: String,
    session: SessionId,
    call: CallId,
    tool: String,
    route: ToolRoute,
    attempt: u32,
    /// Finds out what became of an earlier attempt.
    #[serde(default)]
    reconciles: bool,
    arguments: Value,
    idempotency_key: String,
    traceparent: String,
    deadline_ms: u64,
    #[serde(default)]
    pub(crate) opened: Timestamp,
}

/// A call that the process which claimed it should stop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PeerCancel {
    pub(crate) process: ProcessKey,
    session: SessionId,
    call: CallId,
    pub(crate) attempt: u32,
    reason: String,
}

/// Progress of a call, for the server that has its session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PeerOutput {
    session: SessionId,
    call: CallId,
    pub(crate) attempt: u32,
    pub(crate) process: ProcessKey,
    /// Counts the pieces of the call, from 1: a note is read many times.
    pub(crate) number: u64,
    pub(crate) text: String,
}

/// What a process found out about an earlier attempt, for the server that has the session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PeerAnswer {
    session: SessionId,
    call: CallId,
    pub(crate) attempt: u32,
    /// When the question was opened: an answer to an earlier one about the same call counts no more.
    #[serde(default)]
    pub(crate) opened: Timestamp,
    pub(crate) verdict: PeerVerdict,
}

/// The answer to the question what became of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PeerVerdict {
    /// The call did nothing.
    DidNotHappen,
    /// The call was done, with this result.
    Happened(Value),
    /// The call goes on outside of the process.
    StillRuns,
    /// The process cannot tell.
    CannotTell,
    /// The question failed.
    Failed(WorkerReport),
}

impl From<Reconciliation> for PeerVerdict {
    fn from(found: Reconciliation) -> Self {
        match found {
            Reconciliation::DidNotHappen => Self::DidNotHappen,
            Reconciliation::Happened(result) => Self::Happened(result),
            Reconciliation::StillRuns => Self::StillRuns,
            Reconciliation::CannotTell => Self::CannotTell,
        }
    }
}

impl PeerVerdict {
    /// The answer, or the failure of the question.
    pub(crate) fn into_result(self) -> Result<Reconciliation, Box<WorkerReport>> {
        match self {
            Self::DidNotHappen => Ok(Reconciliation::DidNotHappen),
            Self::Happened(result) => Ok(Reconciliation::Happened(result)),
            Self::StillRuns => Ok(Reconciliation::StillRuns),
            Self::CannotTell => Ok(Reconciliation::CannotTell),
            Self::Failed(report) => Err(Box::new(report)),
        }
    }
}

impl PeerCall {
    pub(crate) fn of(tenant: &str, offer: &CallOffer) -> Option<Self> {
        let is_small = offer.arguments.to_string().len() <= ARGUMENT_BYTES;
        is_small.then(|| Self {
            tenant: tenant.to_owned(),
            session: offer.key.session,
            call: offer.key.call.clone(),
            tool: offer.tool.to_string(),
            route: offer.route.clone(),
            attempt: offer.attempt,
            reconciles: offer.purpose == CallPurpose::Reconcile,
            arguments: Value::clone(&offer.arguments),
            idempotency_key: offer.idempotency_key.to_string(),
            traceparent: offer.trace.to_traceparent(offer.span),
            deadline_ms: millis(offer.deadline),
            opened: offer.opened,
        })
    }

    pub(crate) fn key(&self) -> CallKey {
        CallKey { session: self.session, call: self.call.clone() }
    }

    pub(crate) fn offer(&self) -> CallOffer {
        let (trace, span) = parent_of(&self.traceparent).unwrap_or((Trace::NONE, SpanId::NONE));
        CallOffer {
            key: self.key(),
            tool: self.tool.as_str().into(),
            route: self.route.clone(),
            attempt: self.attempt,
            purpose: if self.reconciles { CallPurpose::Reconcile } else { CallPurpose::Run },
            arguments: self.arguments.clone().into(),
            idempotency_key: self.idempotency_key.as_str().into(),
            trace,
            span,
            deadline: Duration::from_millis(self.deadline_ms),
            opened: self.opened,
        }
    }
}

impl PeerCancel {
    pub(crate) fn new(
        process: &ProcessKey,
        key: &CallKey,
        attempt: u32,
        reason: CancelReason,
    ) -> Self {
        Self {
            process: process.clone(),
            session: key.session,
            call: key.call.clone(),
            attempt,
            reason: reason.name().to_owned(),
        }
    }

    pub(crate) fn key(&self) -> CallKey {
        CallKey { session: self.session, call: self.call.clone() }
    }

    pub(crate) fn reason(&self) -> CancelReason {
        match self.reason.as_str() {
            "cancelled" => CancelReason::Cancelled,
            "deadline" => CancelReason::Deadline,
            _ => CancelReason::Over,
        }
    }
}

impl PeerOutput {
    pub(crate) fn new(
        key: &CallKey,
        attempt: u32,
        process: &ProcessKey,
        (number, text): (u64, String),
    ) -> Self {
        let (session, call) = (key.session, key.call.clone());
        Self { session, call, attempt, process: process.clone(), number, text }
    }

    pub(crate) fn key(&self) -> CallKey {
        CallKey { session: self.session, call: self.call.clone() }
    }
}

impl PeerAnswer {
    pub(crate) fn new(offer: &CallOffer, verdict: PeerVerdict) -> Self {
        let CallKey { session, call } = offer.key.clone();
        Self { session, call, attempt: offer.attempt, opened: offer.opened, verdict }
    }

    pub(crate) fn key(&self) -> CallKey {
        CallKey { session: self.session, call: self.call.clone() }
    }
}

/// The own note as it was last written.
#[derive(Debug, Default)]
pub(crate) struct OwnNote {
    /// The number of its slot; `None` before it was written.
    slot: Option<u64>,
    version: u64,
    body: Vec<u8>,
}

impl Workers {
    /// Writes the own note if it has changed, at the first slot that no living server has.
    ///
    /// # Errors
    /// When the journal fails. The next exchange tries again.
    pub(crate) async fn write_note(&self, note: &PeerNote, peers: &[String]) -> Result<(), Fault> {
        let Some(store) = self.store_of_notes() else { return Ok(()) };
        let body = serde_json::to_vec(note).unwrap_or_default();
        let mut own = self.own_note().lock().await;
        if own.slot.is_some() && own.body == body {
            return Ok(());
        }
        if let Some(slot) = own.slot {
            if let Some(version) = store.set_note(&name(slot), own.version, body.clone()).await? {
                *own = OwnNote { slot: Some(slot), version, body };
                return Ok(());
            }
            // Another server took the slot: this one seemed to be dead.
            own.slot = None;
        }
        for slot in 0..NOTE_SLOTS_MAX {
            let found = read(&**store, slot).await?;
            let is_free = |holder: &str| holder == note.holder || !is_living(holder, peers);
            let known = match &found {
                Some((_, there)) if !is_free(&there.holder) => continue,
                Some((version, _)) => *version,
                None => 0,
            };
            if let Some(version) = store.set_note(&name(slot), known, body.clone()).await? {
                *own = OwnNote { slot: Some(slot), version, body };
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads the notes of the living servers, and empties those of dead ones.
    ///
    /// # Errors
    /// When the journal fails.
    pub(crate) async fn read_notes(
        &self,
        holder: &str,
        peers: &[String],
    ) -> Result<Vec<PeerNote>, Fault> {
        let Some(store) = self.store_of_notes() else { return Ok(Vec::new()) };
        let mut notes = Vec::new();
        for slot in 0..NOTE_SLOTS_MAX {
            let Some((version, note)) = read(&**store, slot).await? else { break };
            if note.holder == holder {
                continue;
            }
            let mut own = self.own_note().lock().await;
            if own.slot == Some(slot) {
                own.slot = None;
            }
            drop(own);
            if is_living(&note.holder, peers) {
                notes.push(note);
            } else if !note.holder.is_empty() {
                let empty = serde_json::to_vec(&PeerNote::default()).unwrap_or_default();
                // A server that is faster has done the same, or has taken the slot.
                store.set_note(&name(slot), version, empty).await?;
            }
        }
        Ok(notes)
    }
}

fn is_living(holder: &str, peers: &[String]) -> bool {
    peers.iter().any(|peer| peer == holder)
}

async fn read(store: &dyn Cluster, slot: u64) -> Result<Option<(u64, PeerNote)>, Fault> {
    let note = store.note(&name(slot)).await?;
    // A note that another version of the program wrote has no holder here, and is replaced.
    Ok(note.map(|note| (note.version, serde_json::from_slice(&note.body).unwrap_or_default())))
}

fn name(slot: u64) -> String {
    format!("worker_calls/{slot}")
}
