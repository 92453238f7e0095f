//! The snapshot frame: a session's state at a position, for a client whose missed records are gone.

use budao_core::{
    Lang, Timestamp,
    event::{Epoch, SessionId},
    message::{Block, Message, Role, text_of},
    session::Session,
};
use serde_json::{Value, json};

use super::pipeline::task_json;
use crate::{frame::Frame, texts::translate};

/// Upper bound of messages in a snapshot; the newest are kept.
const MESSAGES_MAX: usize = 100;
/// Maximum length of a message in characters.
const MESSAGE_CHARS_MAX: usize = 4_000;

/// `system.snapshot`: the session's state at its head. Later frames continue after it.
#[must_use]
pub fn snapshot(
    at: Timestamp,
    id: SessionId,
    epoch: Epoch,
    session: &Session,
    language: Option<Lang>,
) -> Frame {
    let lang = language.unwrap_or(session.settings.language);
    let messages: Vec<Value> = session.history.iter().filter_map(|one| message_json(one)).collect();
    let left_out = messages.len().saturating_sub(MESSAGES_MAX);
    let plan = session.pipeline.as_ref().filter(|_| session.turn.is_some()).map(|pipeline| {
        let tasks: Vec<Value> = pipeline.tasks.iter().map(|state| task_json(&state.task)).collect();
        json!({
            "question": pipeline.question,
            "stage": pipeline.stage.map(<&str>::from),
            "plan_summary": pipeline.summary,
            "tasks": tasks,
        })
    });
    let content = json!({
        "status": session.state(),
        "fault_counts": session.faults.counts(),
        "messages": &messages[left_out..],
        "messages_left_out": left_out,
        "todos": session.todos,
        "pipeline": plan,
    });
    Frame::new("system.snapshot", at)
        .about(id)
        .object(content)
        .show(translate("snapshot", lang))
        .with("epoch", epoch.to_string())
        .with("covers_seq", session.head)
        .with("event_id", format!("{id}.{epoch}.{}", session.head))
        .with("turns", session.turns)
        .with("language", <&str>::from(lang))
}

/// A message with text or calls; `None` for tool results.
fn message_json(message: &Message) -> Option<Value> {
    let text = text_of(&message.content);
    let calls: Vec<Value> = message
        .content
        .iter()
        .filter_map(|block| match block {
            Block::ToolUse(call) => Some(json!({ "id": call.id, "name": call.name })),
            _ => None,
        })
        .collect();
    if text.is_empty() && calls.is_empty() {
        return None;
    }
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    let text = crate::texts::cut(&text, MESSAGE_CHARS_MAX);
    Some(match calls.is_empty() {
        true => json!({ "role": role, "content": text }),
        false => json!({ "role": role, "content": text, "tool_calls": calls }),
    })
}
