//! Builds the lines to the CLI. The CLI exits on invalid JSON, so every line comes from a serializer.

use budao_core::message::Block;
use serde_json::{Value, json};

/// A prompt. `uuid` is the id by which the CLI's lines are attributed to its turn.
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

/// A control request; the CLI answers it with the same id.
#[must_use]
pub fn request(id: &str, request: &Value) -> Value {
    json!({"type": "control_request", "request_id": id, "request": request})
}

/// A successful answer to a control request of the CLI.
#[must_use]
pub fn answer(id: &str, response: &Value) -> Value {
    json!({
        "type": "control_response",
        "response": {"subtype": "success", "request_id": id, "response": response},
    })
}

/// An error answer to a control request that is not supported.
#[must_use]
pub fn refuse(id: &str, error: &str) -> Value {
    json!({
        "type": "control_response",
        "response": {"subtype": "error", "request_id": id, "error": error},
    })
}

/// Allows a tool, with these arguments.
#[must_use]
pub fn allow(arguments: &Value) -> Value {
    json!({"behavior": "allow", "updatedInput": arguments})
}

/// Approves a plan: the call may run, and the CLI changes from plan mode to `mode`.
#[must_use]
pub fn approve_plan(arguments: &Value, mode: &str) -> Value {
    json!({
        "behavior": "allow",
        "updatedInput": arguments,
        "updatedPermissions": [{"type": "setMode", "mode": mode, "destination": "session"}],
    })
}

/// Denies a tool; the model reads `message`.
#[must_use]
pub fn deny(message: &str) -> Value {
    json!({"behavior": "deny", "message": message})
}
