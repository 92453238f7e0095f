//! Questions to a person, and the replies to them.

use budao_core::{
    Timestamp,
    activity::QuestionDetails,
    event::{Decision, QuestionId, QuestionPurpose},
    session::Session,
};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// An open question with the exact call that would run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    /// Id of the question; serialized as `question`.
    #[serde(rename = "question")]
    pub id: QuestionId,
    /// The tool that would run, or `plan` when a plan must be confirmed.
    pub tool: String,
    /// The arguments of the call, or the plan.
    pub arguments: Value,
    /// Hash of tool and arguments. A decision applies only to this hash.
    pub digest: String,
    /// Whether a call waits for its permission, or a running call asks for input: then the arguments are an
    /// [`Elicitation`](budao_core::elicitation::Elicitation), and those of the reply are the values.
    #[serde(skip_serializing_if = "QuestionPurpose::is_permission")]
    pub purpose: QuestionPurpose,
    /// The question is denied if it is unanswered at this time. Serialized in milliseconds since 1970.
    #[serde(serialize_with = "millis")]
    pub expires_at: Timestamp,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn millis<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_i64(at.as_millis())
}

impl From<QuestionDetails<'_>> for Question {
    fn from(asked: QuestionDetails<'_>) -> Self {
        Self {
            id: asked.question.clone(),
            tool: asked.tool.to_owned(),
            arguments: asked.arguments.clone(),
            digest: asked.digest.to_owned(),
            purpose: asked.purpose,
            expires_at: asked.expires_at,
        }
    }
}

impl Question {
    /// Lists the open questions of a session, in the order of its calls.
    #[must_use]
    pub fn open_in(session: &Session) -> Vec<Self> {
        let calls = session.turn.iter().flat_map(|turn| &turn.calls);
        let asked = calls.filter_map(|call| {
            let open = call.open_question()?;
            Some(Self {
                id: open.question.clone(),
                tool: call.tool.clone(),
                arguments: open.arguments.clone(),
                digest: open.digest.to_owned(),
                purpose: open.purpose,
                expires_at: open.expires_at,
            })
        });
        let plan = session.turn.as_ref().and(session.pipeline.as_ref());
        let plan = plan.and_then(|pipeline| pipeline.confirmation.as_ref()).map(|open| Self {
            id: open.question.clone(),
            tool: budao_core::pipeline::PLAN.to_owned(),
            arguments: open.draft.to_arguments(),
            digest: open.digest.clone(),
            purpose: QuestionPurpose::Permission,
            expires_at: open.expires_at,
        });
        asked.chain(plan).collect()
    }
}

/// A person's reply to a question.
#[derive(Clone, Debug, PartialEq)]
pub struct QuestionReply {
    pub(crate) decision: Decision,
    pub(crate) note: Option<String>,
    pub(crate) arguments: Option<Value>,
}

impl QuestionReply {
    /// Allows the call, with the arguments that the question showed.
    #[must_use]
    pub fn allow() -> Self {
        Self { decision: Decision::Allow, note: None, arguments: None }
    }

    /// Denies the call; the model learns that.
    #[must_use]
    pub fn deny() -> Self {
        Self { decision: Decision::Deny, ..Self::allow() }
    }

    /// Adds a message to the model.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Replaces the call's arguments, or the plan. They are checked again.
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
