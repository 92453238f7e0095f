//! A call of the current step, and how far it is.

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
    /// Which.
    pub id: CallId,
    /// The tool the model named.
    pub tool: String,
    /// The arguments as the model wrote them.
    pub written: String,
    /// How far it is.
    pub state: CallState,
}

/// How far a call is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// The model asked for it; it has not been checked.
    Requested {
        /// A person allowed it; it is checked once more all the same.
        approved: Option<ApprovedCall>,
    },
    /// A person must decide.
    AwaitingDecision {
        /// The question.
        question: QuestionId,
        /// The exact arguments.
        arguments: Value,
        /// Repairs made to get them.
        repairs: Vec<Repair>,
        /// What the answer is bound to.
        digest: String,
        /// May it run again after a crash?
        idempotent: bool,
        /// Unanswered by then, it is denied.
        expires_at: Timestamp,
    },
    /// It runs, or a crash interrupted it.
    Started {
        /// Which try.
        attempt: u32,
        /// What with.
        arguments: Value,
        /// May it run again?
        idempotent: bool,
        /// Since when.
        at: Timestamp,
        /// What failed first, while we try again.
        failing: Option<OngoingFailure>,
        /// For the model, beside the outcome.
        remark: Option<String>,
    },
    /// It failed and will be tried again.
    Waiting {
        /// The try that comes.
        attempt: u32,
        /// What with.
        arguments: Value,
        /// When.
        until: Timestamp,
        /// What failed first.
        failing: OngoingFailure,
        /// For the model, beside the outcome.
        remark: Option<String>,
    },
    /// It is over.
    Ended {
        /// How.
        outcome: Outcome,
        /// It never ran, because it does not fit.
        invalid: bool,
    },
}

/// What a person allowed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovedCall {
    /// The arguments to run with.
    pub arguments: Value,
    /// Are they other ones than were asked about?
    pub edited: bool,
    /// A word for the model.
    pub note: Option<String>,
}

impl ApprovedCall {
    /// What the model is told about it, if it is worth telling.
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
    /// Has it no outcome yet?
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
        let (failing, remark) = match &self.state {
            CallState::Waiting { failing, remark, .. } => (Some(failing.clone()), remark.clone()),
            CallState::Started { failing, remark, .. } => (failing.clone(), remark.clone()),
            CallState::Requested { approved: Some(approved) } => (None, approved.remark()),
            _ => (None, None),
        };
        let arguments = arguments.clone();
        self.state = CallState::Started { attempt, arguments, idempotent, at, failing, remark };
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

/// Refused before it ran, because it does not fit.
pub(crate) fn is_invalid(kind: Kind) -> bool {
    kind.row().error_type == crate::fault::ErrorType::Validation
        || matches!(kind, Kind::UnknownTool | Kind::RepeatedCallStopped)
}
