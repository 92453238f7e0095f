//! The questions of a call: its permission, and the input that it asks for while it runs.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::call::{Call, CallState};
use crate::{
    elicitation::ElicitationAnswer,
    event::{Decision, QuestionId, QuestionPurpose},
    time::Timestamp,
};

/// A question for input that a call asked, with its answer. A later attempt that asks the same gets this answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallQuestion {
    /// The question that an answer must name.
    pub question: QuestionId,
    /// The question, as recorded.
    pub arguments: Value,
    /// Hash over the tool, the question and its place among the questions of an attempt.
    pub digest: String,
    /// The time at which the question expires.
    pub expires_at: Timestamp,
    /// The one answer; absent while the question is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<ElicitationAnswer>,
}

/// A question that waits for a person.
#[derive(Clone, Copy, Debug)]
pub struct OpenQuestion<'a> {
    /// The question that a decision must name.
    pub question: &'a QuestionId,
    /// The arguments of the call, or the [`crate::elicitation::Elicitation`].
    pub arguments: &'a Value,
    /// The hash that a decision is bound to.
    pub digest: &'a str,
    /// The time at which the question expires.
    pub expires_at: Timestamp,
    /// What the person is asked for.
    pub purpose: QuestionPurpose,
}

impl Call {
    /// The question of this call that waits for a person. A call has at most one.
    #[must_use]
    pub fn open_question(&self) -> Option<OpenQuestion<'_>> {
        match &self.state {
            CallState::AwaitingDecision { question, arguments, digest, expires_at, .. } => {
                let (expires_at, purpose) = (*expires_at, QuestionPurpose::Permission);
                Some(OpenQuestion { question, arguments, digest, expires_at, purpose })
            }
            CallState::Ended { .. } => None,
            _ => self.questions.iter().find(|it| it.answer.is_none()).map(|open| OpenQuestion {
                question: &open.question,
                arguments: &open.arguments,
                digest: &open.digest,
                expires_at: open.expires_at,
                purpose: QuestionPurpose::Elicitation,
            }),
        }
    }

    /// Records the answer to a question for input. Returns false if the call asked no such question.
    pub(super) fn close_question(
        &mut self,
        question: &QuestionId,
        answer: impl FnOnce() -> ElicitationAnswer,
    ) -> bool {
        let asked = self.questions.iter_mut().find(|asked| asked.question == *question);
        let Some(asked) = asked else { return false };
        if asked.answer.is_none() {
            asked.answer = Some(answer());
        }
        true
    }
}

/// What the server learns of a person's decision.
pub(super) fn answer_of(decision: Decision, content: Option<&Value>) -> ElicitationAnswer {
    match decision {
        Decision::Allow => ElicitationAnswer::Accepted(content.cloned().unwrap_or_default()),
        Decision::Deny => ElicitationAnswer::Declined,
    }
}
