//! Questions to a person, and what can be replied.

use budao_core::{
    Timestamp,
    event::{Decision, Event, QuestionId},
    session::{CallState, Session},
};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// A question that waits for a person: what would happen, exactly.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    /// Names it.
    #[serde(rename = "question")]
    pub id: QuestionId,
    /// The tool that would run, or `plan` when a plan must be confirmed.
    pub tool: String,
    /// What it would run with.
    pub arguments: Value,
    /// Hash over tool and arguments. The answer is bound to it.
    pub digest: String,
    /// Unanswered by then, it is denied. Written in milliseconds since 1970, as all times of the channels.
    #[serde(serialize_with = "millis")]
    pub expires_at: Timestamp,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn millis<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_i64(at.as_millis())
}

impl Question {
    /// The question an event asks.
    #[must_use]
    pub fn of(event: &Event) -> Option<Self> {
        let Event::QuestionAsked { question, tool, arguments, digest, expires_at, .. } = event
        else {
            return None;
        };
        Some(Self {
            id: question.clone(),
            tool: tool.clone(),
            arguments: arguments.clone(),
            digest: digest.clone(),
            expires_at: *expires_at,
        })
    }

    /// The questions that are open in a session, in the order of its calls.
    #[must_use]
    pub fn open_in(session: &Session) -> Vec<Self> {
        let calls = session.turn.iter().flat_map(|turn| &turn.calls);
        let asked = calls.filter_map(|call| match &call.state {
            CallState::AwaitingDecision { question, arguments, digest, expires_at, .. } => {
                Some(Self {
                    id: question.clone(),
                    tool: call.tool.clone(),
                    arguments: arguments.clone(),
                    digest: digest.clone(),
                    expires_at: *expires_at,
                })
            }
            _ => None,
        });
        let plan = session.turn.as_ref().and(session.pipeline.as_ref());
        let plan = plan.and_then(|pipeline| pipeline.confirmation.as_ref()).map(|open| Self {
            id: open.question.clone(),
            tool: budao_core::pipeline::PLAN.to_owned(),
            arguments: open.draft.to_arguments(),
            digest: open.digest.clone(),
            expires_at: open.expires_at,
        });
        asked.chain(plan).collect()
    }
}

/// What a person replies to a question.
#[derive(Clone, Debug, PartialEq)]
pub struct QuestionReply {
    pub(crate) decision: Decision,
    pub(crate) note: Option<String>,
    pub(crate) arguments: Option<Value>,
}

impl QuestionReply {
    /// Go on.
    #[must_use]
    pub fn allow() -> Self {
        Self { decision: Decision::Allow, note: None, arguments: None }
    }

    /// Do not.
    #[must_use]
    pub fn deny() -> Self {
        Self { decision: Decision::Deny, ..Self::allow() }
    }

    /// A word for the model.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Other arguments to run with, or another plan. They are checked again.
    #[must_use]
    pub fn arguments(mut self, arguments: Value) -> Self {
        self.arguments = Some(arguments);
        self
    }
}

impl From<Decision> for QuestionReply {
    fn from(decision: Decision) -> Self {
        Self { decision, ..Self::allow() }
    }
}
