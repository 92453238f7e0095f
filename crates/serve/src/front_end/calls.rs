//! The calls of the running turn, and whether each of them waits for the server or for the front end.

use budao_core::{
    Timestamp,
    activity::Activity,
    elicitation::Elicitation,
    event::{QuestionId, QuestionPurpose},
    message::{Block, CallId},
};
use serde_json::Value;

use super::WORKER;

/// The calls of the running step and the open questions.
#[derive(Clone, Debug, Default)]
pub(crate) struct TurnCalls {
    calls: Vec<(CallId, CallProgress)>,
    questions: Vec<PendingQuestion>,
}

/// The progress of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallProgress {
    /// The server has the next move.
    AtServer,
    /// The front end will run the call once it starts.
    Offered,
    /// The front end runs the call.
    AtFrontEnd,
}

/// A question that waits for a person.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PendingQuestion {
    pub(crate) question: QuestionId,
    pub(crate) call: CallId,
    pub(crate) tool: String,
    pub(crate) arguments: Value,
    pub(crate) digest: String,
    pub(crate) reason: String,
    pub(crate) purpose: QuestionPurpose,
    pub(crate) expires_at: Timestamp,
}

impl PendingQuestion {
    /// The input that a tool server asks the person for; `None` if the question is about a permission.
    pub(crate) fn elicitation(&self) -> Option<Elicitation> {
        match self.purpose {
            QuestionPurpose::Permission => None,
            QuestionPurpose::Elicitation => Elicitation::of_arguments(&self.arguments),
        }
    }
}

/// The reason for which a turn waits for the front end alone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Pause<'a> {
    /// Answers to these questions.
    Questions(&'a [PendingQuestion]),
    /// Results of these calls.
    Results(Vec<&'a CallId>),
}

impl TurnCalls {
    /// Applies a fact of the running turn.
    pub(crate) fn apply(&mut self, activity: &Activity<'_>) {
        match *activity {
            Activity::TurnStarted { .. } | Activity::TurnEnded { .. } => *self = Self::default(),
            Activity::Answered { content, .. } => {
                self.calls = content.iter().filter_map(requested_call).collect();
            }
            Activity::CallOffered { call, worker } if worker == WORKER => {
                self.set(call, CallProgress::Offered);
            }
            Activity::CallStarted { call, .. } => {
                let is_offered = self.progress(call) == Some(CallProgress::Offered);
                if is_offered {
                    self.set(call, CallProgress::AtFrontEnd);
                }
            }
            Activity::CallEnded { call, .. } => {
                self.calls.retain(|(known, _)| known != call);
                self.questions.retain(|question| question.call != *call);
            }
            Activity::QuestionAsked(asked) => self.questions.push(PendingQuestion {
                question: asked.question.clone(),
                call: asked.call.clone(),
                tool: asked.tool.to_owned(),
                arguments: asked.arguments.clone(),
                digest: asked.digest.to_owned(),
                reason: asked.reason.to_owned(),
                purpose: asked.purpose,
                expires_at: asked.expires_at,
            }),
            Activity::QuestionClosed { question, .. } => {
                self.questions.retain(|open| open.question != *question);
            }
            _ => {}
        }
    }

    /// The pause of the turn; `None` while the server has work to do. Questions take precedence over results.
    pub(crate) fn pause(&self) -> Option<Pause<'_>> {
        let waits = |call: &CallId| self.questions.iter().any(|open| open.call == *call);
        let at_front_end = |progress| progress == CallProgress::AtFrontEnd;
        let is_running =
            self.calls.iter().any(|(call, progress)| !at_front_end(*progress) && !waits(call));
        if is_running {
            return None;
        }
        if !self.questions.is_empty() {
            return Some(Pause::Questions(&self.questions));
        }
        let results = self.calls.iter().filter(|(_, progress)| at_front_end(*progress));
        let results: Vec<&CallId> = results.map(|(call, _)| call).collect();
        (!results.is_empty()).then_some(Pause::Results(results))
    }

    /// Whether this is an open call of the model.
    pub(crate) fn has(&self, call: &CallId) -> bool {
        self.progress(call).is_some()
    }

    fn progress(&self, call: &CallId) -> Option<CallProgress> {
        self.calls.iter().find(|(known, _)| known == call).map(|(_, progress)| *progress)
    }

    fn set(&mut self, call: &CallId, progress: CallProgress) {
        match self.calls.iter_mut().find(|(known, _)| known == call) {
            Some(known) => known.1 = progress,
            None => self.calls.push((call.clone(), progress)),
        }
    }
}

fn requested_call(block: &Block) -> Option<(CallId, CallProgress)> {
    match block {
        Block::ToolUse(call) => Some((call.id.clone(), CallProgress::AtServer)),
        _ => None,
    }
}
