//! Interrupts: the questions of an agent to people, and the answers that its next request carries.

use budao_core::{ag_ui::AgentInput, message::CallId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// State of a session that its records' fold does not have; recorded whenever it changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RelayState {
    /// The shared state that the agent last reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<Value>,
    /// The interrupts of the running turn, answered or open.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) interrupts: Vec<Interrupt>,
    /// How often the running turn was posted again after a cut.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) resubmits: u32,
    /// What a front end gave the agent beside the message of the running turn, or of the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) input: Option<AgentInput>,
    /// The same for messages that wait for their turns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) waiting: Vec<AgentInput>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A question of the agent, asked as a question about one of its calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Interrupt {
    /// The agent's id of the interrupt; absent for LangGraph's older form, which has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    /// Our id of the call that waits.
    pub(crate) call: CallId,
    /// Whether the agent makes the call when it is allowed; otherwise the call only carries the question.
    pub(crate) is_call: bool,
    /// The person's answer; absent while the question is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<InterruptAnswer>,
}

/// The answer to an interrupt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InterruptAnswer {
    /// A person decided; the payload for the agent.
    Resolved(Value),
    /// The question expired without a decision.
    Cancelled,
}

impl Interrupt {
    /// The payload of a decision. Edited arguments replace those of a call; for another question they are the answer.
    pub(crate) fn payload(
        &self,
        is_allowed: bool,
        note: Option<&str>,
        edited: Option<Value>,
    ) -> Value {
        if let (true, false, Some(edited)) = (is_allowed, self.is_call, &edited) {
            return edited.clone();
        }
        let mut payload = json!({ "approved": is_allowed });
        if let (true, Some(edited)) = (is_allowed, edited) {
            payload["editedArgs"] = edited;
        }
        if let Some(note) = note {
            payload["reason"] = note.into();
        }
        payload
    }

    /// The entry of the request's `resume` list; absent for the older form.
    pub(crate) fn resume_entry(&self) -> Option<Value> {
        let id = self.id.as_ref()?;
        Some(match self.answer.as_ref()? {
            InterruptAnswer::Resolved(payload) => {
                json!({ "interruptId": id, "status": "resolved", "payload": payload })
            }
            InterruptAnswer::Cancelled => json!({ "interruptId": id, "status": "cancelled" }),
        })
    }

    /// The value that LangGraph's older form takes in `forwardedProps.command.resume`.
    pub(crate) fn command_value(&self) -> Option<Value> {
        match (&self.id, self.answer.as_ref()?) {
            (Some(_), _) => None,
            (None, InterruptAnswer::Resolved(payload)) => Some(payload.clone()),
            (None, InterruptAnswer::Cancelled) => Some(json!({ "approved": false })),
        }
    }
}
