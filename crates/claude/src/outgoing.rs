//! The lines we write to the CLI. A line that is not JSON makes it exit, so a serialiser makes them all.

use budao_core::message::Block;
use serde_json::{Value, json};

/// A prompt with its own id.
#[must_use]
pub fn prompt(uuid: &str, session: &str, content: &[Block]) -> Value {
    let content: Vec<Value> = content.iter().filter_map(block).collect();
    json!({
        "type": "user",
        "message": {"role": "user", "content": content},
        "uuid": uuid,
        "session_id": session,
        "parent_tool_use_id": null,
    })
}

fn block(block: &Block) -> Option<Value> {
    match block {
        Block::Text(text) => Some(json!({"type": "text", "text": text})),
        Block::Image { media_type, data } => Some(json!({
            "type": "image",
            "source": {"type": "base64", "media_type": media_type, "data": data},
        })),
        Block::Opaque(text) => serde_json::from_str(text).ok(),
        Block::Thinking { .. } | Block::ToolUse(_) | Block::ToolResult { .. } => None,
    }
}

/// A request of ours.
#[must_use]
pub fn request(id: &str, request: &Value) -> Value {
    json!({"type": "control_request", "request_id": id, "request": request})
}

/// The answer to a request of the CLI's.
#[must_use]
pub fn answer(id: &str, response: &Value) -> Value {
    json!({
        "type": "control_response",
        "response": {"subtype": "success", "request_id": id, "response": response},
    })
}

/// The answer to a request we do not know.
#[must_use]
pub fn refuse(id: &str, error: &str) -> Value {
    json!({
        "type": "control_response",
        "response": {"subtype": "error", "request_id": id, "error": error},
    })
}

/// A tool may be used, with these arguments.
#[must_use]
pub fn allow(arguments: &Value) -> Value {
    json!({"behavior": "allow", "updatedInput": arguments})
}

/// The plan is approved: the call may run, and the CLI leaves plan mode for this one.
#[must_use]
pub fn approve_plan(arguments: &Value, mode: &str) -> Value {
    json!({
        "behavior": "allow",
        "updatedInput": arguments,
        "updatedPermissions": [{"type": "setMode", "mode": mode, "destination": "session"}],
    })
}

/// A tool may not be used; the model reads why.
#[must_use]
pub fn deny(message: &str) -> Value {
    json!({"behavior": "deny", "message": message})
}
