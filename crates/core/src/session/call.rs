//! A call of the current step and its progress.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::turn::OngoingFailure;
use crate::{
    event::QuestionId,
    fault::Kind,
    message::CallId,
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
        /// When the attempt started.
        at: Timestamp,
        /// The first failure, while the call is being retried.
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

    pub(super) fn approve(&mut self, other: Option<Value>, note: Option<String>) {
        if let CallState::AwaitingDecision { arguments, .. } = &self.state {
            let edited = other.is_some();
            let arguments = other.unwrap_or_else(|| arguments.clone());
            self.state =
                CallState::Requested { approved: Some(ApprovedCall { arguments, edited, note }) };
        }
    }

    pub(super) fn start(
        &mut self,
        attempt: u32,
        arguments: &Value,
        idempotent: bool,
        at: Timestamp,
    ) {
        let (failing, remark) = self.carried();
        let arguments = arguments.clone();
        self.state = CallState::Started { attempt, arguments, idempotent, at, failing, remark };
    }

    /// Waits for a slot.
    pub(super) fn queue(
        &mut self,
        attempt: u32,
        arguments: &Value,
        repairs: &[Repair],
        idempotent: bool,
    ) {
        let (failing, remark) = self.carried();
        let approved = match &mut self.state {
            CallState::Requested { approved } => approved.take(),
            _ => None,
        };
        let (arguments, repairs) = (arguments.clone(), repairs.to_vec());
        self.state = CallState::Queued {
            attempt,
            arguments,
            repairs,
            idempotent,
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
            | CallState::Queued { failing, remark, .. } => (failing.clone(), remark.clone()),
            CallState::Requested { approved: Some(approved) } => (None, approved.remark()),
            _ => (None, None),
        }
    }

    pub(super) fn failed_once(&mut self, kind: Kind, at: Timestamp) {
        if let CallState::Started { failing, .. } = &mut self.state {
            failing.get_or_insert(OngoingFailure { kind, since: at });
        }
    }

    pub(super) fn wait(&mut self, attempt: u32, until: Timestamp) {
        if let CallState::Started { arguments, failing: Some(failing), remark, .. } = &self.state {
            let (arguments, failing) = (arguments.clone(), failing.clone());
            let remark = remark.clone();
            self.state = CallState::Waiting { attempt, arguments, until, failing, remark };
        }
    }
}

/// Whether faults of this kind mean that the call was refused before it ran.
pub(crate) fn is_invalid(kind: Kind) -> bool {
    kind.row().error_type == crate::fault::ErrorType::Validation
        || matches!(kind, Kind::UnknownTool | Kind::RepeatedCallStopped)
}
