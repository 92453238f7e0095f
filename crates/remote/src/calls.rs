//! Open calls, and what workers are told of them.

use std::{sync::Arc, time::Duration};

use budao_core::{
    event::SessionId,
    message::CallId,
    remote::{ToolRoute, WorkerReport},
    time::Timestamp,
    trace::{SpanId, Trace},
};
use budao_tools::Reconciliation;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::roster::ProcessKey;

/// Names a call across all sessions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallKey {
    /// The session that made the call.
    pub session: SessionId,
    /// The id of the call in its session.
    pub call: CallId,
}

/// What a worker is asked to do with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPurpose {
    /// Run the function.
    Run,
    /// Find out what became of an interrupted call. Changes nothing.
    Reconcile,
}

impl CallPurpose {
    /// The word on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Reconcile => "reconcile",
        }
    }
}

/// A call as a worker sees it.
#[derive(Clone, Debug)]
pub struct CallOffer {
    /// The session and the id of the call.
    pub key: CallKey,
    /// The name of the tool.
    pub tool: Arc<str>,
    /// The worker, and the version of the tool that the arguments fit.
    pub route: ToolRoute,
    /// The attempt, from 1; a claim and a result repeat it.
    pub attempt: u32,
    /// Whether to run the function, or to find out what became of an earlier attempt.
    pub purpose: CallPurpose,
    /// The arguments, validated and repaired.
    pub arguments: Arc<Value>,
    /// Equal for all attempts of the call and different for every other call.
    pub idempotency_key: Arc<str>,
    /// The trace of the turn.
    pub trace: Trace,
    /// The span of this attempt.
    pub span: SpanId,
    /// The longest time from the claim to the result.
    pub deadline: Duration,
    /// When the call was opened. Two questions about one call differ in nothing else.
    pub opened: Timestamp,
}

/// Why a worker should stop a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReason {
    /// A person cancelled the turn. A result is still accepted for a moment.
    Cancelled,
    /// The deadline passed; the call has ended.
    Deadline,
    /// The call has ended for another reason.
    Over,
}

impl CancelReason {
    /// The word on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Deadline => "deadline",
            Self::Over => "over",
        }
    }
}

/// A message to a connected worker.
#[derive(Clone, Debug)]
pub enum WorkerMessage {
    /// A call that the process may claim.
    Call {
        /// The id of the process.
        worker_id: Arc<str>,
        /// The call on offer.
        offer: Arc<CallOffer>,
    },
    /// A claimed call that should stop.
    Cancel {
        /// The id of the process.
        worker_id: Arc<str>,
        /// The call to stop.
        key: CallKey,
        /// The attempt that the process claimed.
        attempt: u32,
        /// Why it should stop.
        reason: CancelReason,
    },
}

/// How far an open call got, for the task that waits for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallStatus {
    /// The process that claimed it.
    pub(crate) claim: Option<ProcessKey>,
    /// The end that the process reported, durable.
    pub(crate) report: Option<WorkerReport>,
    /// The answer to the question what became of the call.
    pub(crate) reconciliation: Option<Reconciliation>,
    /// Whether the process that claimed it is gone for good.
    pub(crate) is_lost: bool,
}

/// An open call.
#[derive(Debug)]
pub(crate) struct OpenCall {
    /// Distinguishes the openings of one call: its work may start anew.
    pub(crate) serial: u64,
    pub(crate) tenant: Arc<str>,
    pub(crate) offer: Arc<CallOffer>,
    pub(crate) status: watch::Sender<CallStatus>,
    pub(crate) output: mpsc::Sender<String>,
    /// The last piece of progress that came from another server.
    pub(crate) shown: u64,
    /// Bytes of progress output so far.
    pub(crate) output_bytes: usize,
    /// The processes that were offered the call.
    pub(crate) offered_to: Vec<ProcessKey>,
}

impl OpenCall {
    pub(crate) fn claim(&self) -> Option<ProcessKey> {
        self.status.borrow().claim.clone()
    }
}
