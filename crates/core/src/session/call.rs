//! A call of the current step and its progress.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{questions::CallQuestion, turn::OngoingFailure};
use crate::{
    event::{CallStart, QuestionId},
    fault::Kind,
    message::CallId,
    remote::RemoteCall,
    time::Timestamp,
    tool::{Outcome, Repair},
};

/// A call of the current step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Unique in the session.
    pub id: CallId,
    /// The tool's name, as the model wrote it.
    pub tool: String,
    /// The arguments as the model wrote them; possibly invalid JSON.
    pub written: String,
    /// The call's progress, from requested to ended.
    pub state: CallState,
    /// Set if a worker's process runs the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<Box<RemoteCall>>,
    /// The questions for input that the call asked while it ran, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<CallQuestion>,
}

/// The progress of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// The model requested the call; it is not checked yet.
    Requested {
        /// Set after a person allowed the call; it is checked again all the same.
        approved: Option<ApprovedCall>,
    },
    /// The call waits for a person's decision.
    AwaitingDecision {
        /// The question that the decision must name.
        question: QuestionId,
        /// The exact arguments the person sees.
        arguments: Value,
        /// Repairs that turned the model's arguments into these.
        repairs: Vec<Repair>,
        /// Hash over tool and arguments; the decision is bound to it.
        digest: String,
        /// Whether the call may run again after a crash.
        idempotent: bool,
        /// The time at which an unanswered question counts as denied.
        expires_at: Timestamp,
    },
    /// The call may run and waits for a slot. It has not begun.
    Queued {
        /// The attempt that waits, from 1.
        attempt: u32,
        /// The arguments the tool is to receive.
        arguments: Value,
        /// Repairs that turned the model's arguments into these.
        repairs: Vec<Repair>,
        /// Whether the call may run again after a crash.
        idempotent: bool,
        /// Whether the tool can find out if an interrupted call was done.
        reconcile: bool,
        /// The first failure, if this is not the first attempt.
        failing: Option<OngoingFailure>,
        /// A remark for the model, added to the outcome.
        remark: Option<String>,
        /// A person's approval; a check after a restart needs it.
        approved: Option<ApprovedCall>,
    },
    /// The call runs, or a crash interrupted it.
    Started {
        /// The current attempt, from 1.
        attempt: u32,
        /// The arguments the tool received.
        arguments: Value,
        /// Whether the call may run again after a crash.
        idempotent: bool,
        /// Whether the tool can find out if an interrupted call was done.
        #[serde(default)]
        reconcile: bool,
        /// When the attempt started.
        at: Timestamp,
        /// The first failure, while the call is being retried.
        failing: Option<OngoingFailure>,
        /// A remark for the model, added to the outcome.
        remark: Option<String>,
    },
    /// A crash interrupted the call, and its tool is asked whether it was done.
    Reconciling {
        /// The current attempt to find out, from 1.
        attempt: u32,
        /// The attempt at the call that was interrupted.
        of_attempt: u32,
        /// The arguments the tool received.
        arguments: Value,
        /// When the next attempt to find out starts; absent while one runs.
        until: Option<Timestamp>,
        /// The first failure to find out.
        trouble: Option<OngoingFailure>,
        /// The first failure of the call, while it is being retried.
        failing: Option<OngoingFailure>,
        /// A remark for the model, added to the outcome.
        remark: Option<String>,
    },
    /// The call failed and waits for its next attempt.
    Waiting {
        /// The attempt that follows.
        attempt: u32,
        /// The arguments of the next attempt.
        arguments: Value,
        /// Whether the call may run again after a crash.
        #[serde(default)]
        idempotent: bool,
        /// Whether the tool can find out if an interrupted call was done.
        #[serde(default)]
        reconcile: bool,
        /// When the next attempt starts.
        until: Timestamp,
        /// The first failure.
        failing: OngoingFailure,
        /// A remark for the model, added to the outcome.
        remark: Option<String>,
    },
    /// The call ended.
    Ended {
        /// Done or failed; recorded once.
        outcome: Outcome,
        /// True if the call was refused before it ran because its arguments do not fit.
        invalid: bool,
    },
}

/// A person's approval of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovedCall {
    /// The arguments to run with.
    pub arguments: Value,
    /// Whether the person changed the arguments.
    pub edited: bool,
    /// The person's remark for the model.
    pub note: Option<String>,
}

impl ApprovedCall {
    /// The remark for the model: the note, and that the arguments were changed. None if neither applies.
    pub(super) fn remark(&self) -> Option<String> {
        let edited = self
            .edited
            .then(|| format!("A person changed the arguments; it ran with {}.", self.arguments));
        let note = self.note.as_ref().map(|note| format!("A person allowed it and wrote: {note}"));
        match (edited, note) {
            (Some(edited), Some(note)) => Some(format!("{edited} {note}")),
            (edited, note) => edited.or(note),
        }
    }
}

impl Call {
    /// Whether the call has no outcome yet.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(self.state, CallState::Ended { .. })
    }

    /// Whether a worker's process was to run the call and none has claimed it: the call has not begun.
    #[must_use]
    pub fn is_unclaimed(&self) -> bool {
        self.remote.as_ref().is_some_and(|remote| remote.claim.is_none())
    }

    pub(super) fn approve(&mut self, other: Option<Value>, note: Option<String>) {
        if let CallState::AwaitingDecision { arguments, .. } = &self.state {
            let edited = other.is_some();
            let arguments = other.unwrap_or_else(|| arguments.clone());
            self.state =
                CallState::Requested { approved: Some(ApprovedCall { arguments, edited, note }) };
        }
    }

    pub(super) fn start(&mut self, start: &CallStart, at: Timestamp) {
        let (failing, remark) = self.carried();
        let CallStart { attempt, idempotent, reconcile, .. } = *start;
        let arguments = start.arguments.clone();
        // Claim and report belong to an attempt.
        if let Some(remote) = &mut self.remote {
            (remote.claim, remote.report) = (None, None);
        }
        self.state =
            CallState::Started { attempt, arguments, idempotent, reconcile, at, failing, remark };
    }

    /// Asks the tool whether an interrupted call was done.
    pub(super) fn reconcile(&mut self, attempt: u32) {
        let (of_attempt, arguments, trouble) = match &self.state {
            CallState::Started { attempt: of, arguments, .. } => (*of, arguments.clone(), None),
            CallState::Reconciling { of_attempt, arguments, trouble, .. } => {
                (*of_attempt, arguments.clone(), trouble.clone())
            }
            _ => return,
        };
        let (failing, remark) = self.carried();
        self.state = CallState::Reconciling {
            attempt,
            of_attempt,
            arguments,
            until: None,
            trouble,
            failing,
            remark,
        };
    }

    /// The arguments the call began with; before its start, those that the model wrote.
    pub(super) fn arguments(&self) -> Value {
        match &self.state {
            CallState::Started { arguments, .. } | CallState::Reconciling { arguments, .. } => {
                arguments.clone()
            }
            _ => serde_json::from_str(&self.written)
                .unwrap_or_else(|_| Value::from(self.written.as_str())),
        }
    }

    /// Waits for a slot.
    pub(super) fn queue(&mut self, start: &CallStart) {
        let (failing, remark) = self.carried();
        let approved = match &mut self.state {
            CallState::Requested { approved } => approved.take(),
            _ => None,
        };
        let CallStart { attempt, idempotent, reconcile, .. } = *start;
        let (arguments, repairs) = (start.arguments.clone(), start.repairs.clone());
        self.state = CallState::Queued {
            attempt,
            arguments,
            repairs,
            idempotent,
            reconcile,
            failing,
            remark,
            approved,
        };
    }

    /// Returns a call that never began to its check: what is permitted may have changed since.
    pub(super) fn check_again(&mut self) {
        if let CallState::Queued { attempt: 1, approved, .. } = &mut self.state {
            self.state = CallState::Requested { approved: approved.take() };
        }
    }

    /// The failure and the remark that the next state takes over.
    fn carried(&self) -> (Option<OngoingFailure>, Option<String>) {
        match &self.state {
            CallState::Waiting { failing, remark, .. } => (Some(failing.clone()), remark.clone()),
            CallState::Started { failing, remark, .. }
            | CallState::Reconciling { failing, remark, .. }
            | CallState::Queued { failing, remark, .. } => (failing.clone(), remark.clone()),
            CallState::Requested { approved: Some(approved) } => (None, approved.remark()),
            _ => (None, None),
        }
    }

    pub(super) fn failed_once(&mut self, kind: Kind, at: Timestamp) {
        if let CallState::Started { failing: first, .. }
        | CallState::Reconciling { trouble: first, .. } = &mut self.state
        {
            first.get_or_insert(OngoingFailure { kind, since: at });
        }
    }

    pub(super) fn wait(&mut self, attempt: u32, due: Timestamp) {
        match &mut self.state {
            CallState::Started { arguments, idempotent, reconcile, failing, remark, .. } => {
                let Some(failing) = failing.take() else { return };
                self.state = CallState::Waiting {
                    attempt,
                    arguments: std::mem::take(arguments),
                    idempotent: *idempotent,
                    reconcile: *reconcile,
                    until: due,
                    failing,
                    remark: remark.take(),
                };
            }
            CallState::Reconciling { attempt: next, until, .. } => {
                (*next, *until) = (attempt, Some(due));
            }
            _ => {}
        }
    }
}

/// Whether faults of this kind mean that the call was refused before it ran.
pub(crate) fn is_invalid(kind: Kind) -> bool {
    kind.row().error_type == crate::fault::ErrorType::Validation
        || matches!(kind, Kind::UnknownTool | Kind::RepeatedCallStopped)
}
