//! The interrupts with which a run pauses: calls to confirm, and input that a running call asks for.

use budao_core::{elicitation::Elicitation, fault::text};
use serde_json::{Value, json};

use super::AgUiProjector;
use crate::{
    front_end::{Pause, PendingQuestion},
    project::{elicitation_text, permission_text},
    texts::translate_with,
};

impl AgUiProjector {
    /// The outcome of a run that pauses.
    pub(super) fn pause_outcome(&self, pause: &Pause<'_>) -> Value {
        match pause {
            Pause::Results(calls) => json!({ "type": "success", "pendingToolCallIds": calls }),
            Pause::Questions(questions) => {
                let interrupts: Vec<Value> =
                    questions.iter().map(|open| self.render_interrupt(open)).collect();
                json!({ "type": "interrupt", "interrupts": interrupts })
            }
        }
    }

    /// The interrupt for input that a running call asks for. The answer's `editedArgs` are the values.
    fn render_input_interrupt(&self, open: &PendingQuestion, asked: &Elicitation) -> Value {
        let (id, args) = elicitation_text(asked);
        json!({
            "id": open.question,
            "reason": "input_required",
            "message": translate_with(id, &args, self.notices.language()),
            "expiresAt": open.expires_at.to_string(),
            "responseSchema": {
                "type": "object",
                "properties": {
                    "approved": { "type": "boolean" },
                    "editedArgs": asked.to_schema(),
                },
                "required": ["approved"],
            },
            "metadata": {
                "tool": open.tool, "elicitation": asked, "digest": open.digest,
            },
            "toolCallId": open.call,
        })
    }

    fn render_interrupt(&self, open: &PendingQuestion) -> Value {
        if let Some(asked) = open.elicitation() {
            return self.render_input_interrupt(open, &asked);
        }
        let lang = self.notices.language();
        let (id, args) = permission_text(&open.tool, &open.arguments);
        let mut interrupt = json!({
            "id": open.question,
            "reason": "tool_call",
            "message": translate_with(id, &args, lang),
            "expiresAt": open.expires_at.to_string(),
            "responseSchema": {
                "type": "object",
                "properties": {
                    "approved": { "type": "boolean" },
                    "editedArgs": { "type": "object" },
                    "note": { "type": "string" },
                },
                "required": ["approved"],
            },
            "metadata": {
                "tool": open.tool,
                "arguments": open.arguments,
                "digest": open.digest,
                "reason": text::reason(&open.reason, lang),
            },
        });
        // A plan that waits for a confirmation has no call of the model.
        if self.calls.has(&open.call) {
            interrupt["toolCallId"] = json!(open.call);
        }
        interrupt
    }
}
