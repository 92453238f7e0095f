//! Event streams in the format of model services, built from [`ModelOutput`] values.
//!
//! [`anthropic`], [`openai`], [`responses`] and [`gemini`] return whole, valid answers as lists of events. A test cuts, delays or corrupts them.

mod gemini;
mod responses;

use serde_json::{Value, json};

pub use gemini::gemini;
pub use responses::{response_event, responses};

/// One event with a name, in the format of Anthropic's API.
#[must_use]
pub fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// One event without a name, in the format of chat completions.
#[must_use]
pub fn data(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// A part of a model's answer, independent of the wire format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelOutput {
    /// Text; each item is one delta.
    Text(Vec<String>),
    /// Thinking, each item one delta, and its signature.
    Thinking(Vec<String>, String),
    /// A tool call: id, name, and the argument deltas.
    Call(String, String, Vec<String>),
}

impl ModelOutput {
    /// Text with one delta per word.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::Text(text.split_inclusive(' ').map(Into::into).collect())
    }

    /// A call with its arguments in two deltas.
    #[must_use]
    pub fn call(id: &str, name: &str, arguments: &Value) -> Self {
        let text = arguments.to_string();
        let mut half = text.len() / 2;
        while !text.is_char_boundary(half) {
            half += 1;
        }
        let (first, second) = text.split_at(half);
        Self::Call(id.into(), name.into(), vec![first.into(), second.into()])
    }
}

/// A whole answer of Anthropic's Messages API, one string per event.
#[must_use]
pub fn anthropic(sayings: &[ModelOutput]) -> Vec<String> {
    let usage = json!({
        "input_tokens": 25, "cache_creation_input_tokens": 10, "cache_read_input_tokens": 100, "output_tokens": 1,
    });
    let mut events = vec![
        event(
            "message_start",
            &json!({"type": "message_start", "message": {
                "id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m",
                "stop_reason": null, "stop_sequence": null, "usage": usage,
            }}),
        ),
        event("ping", &json!({"type": "ping"})),
    ];
    for (index, saying) in sayings.iter().enumerate() {
        let (block, deltas) = anthropic_block(saying);
        let start = json!({"type": "content_block_start", "index": index, "content_block": block});
        events.push(event("content_block_start", &start));
        for delta in deltas {
            let delta = json!({"type": "content_block_delta", "index": index, "delta": delta});
            events.push(event("content_block_delta", &delta));
        }
        let stop = json!({"type": "content_block_stop", "index": index});
        events.push(event("content_block_stop", &stop));
    }
    let called = sayings.iter().any(|saying| matches!(saying, ModelOutput::Call(..)));
    let reason = if called { "tool_use" } else { "end_turn" };
    events.push(event(
        "message_delta",
        &json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
            "usage": {"output_tokens": 15}}),
    ));
    events.push(event("message_stop", &json!({"type": "message_stop"})));
    events
}

fn anthropic_block(saying: &ModelOutput) -> (Value, Vec<Value>) {
    match saying {
        ModelOutput::Text(parts) => (
            json!({"type": "text", "text": ""}),
            parts.iter().map(|text| json!({"type": "text_delta", "text": text})).collect(),
        ),
        ModelOutput::Thinking(parts, signature) => {
            let mut deltas: Vec<_> = parts
                .iter()
                .map(|text| json!({"type": "thinking_delta", "thinking": text}))
                .collect();
            deltas.push(json!({"type": "signature_delta", "signature": signature}));
            (json!({"type": "thinking", "thinking": "", "signature": ""}), deltas)
        }
        ModelOutput::Call(id, name, parts) => (
            json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
            parts
                .iter()
                .map(|text| json!({"type": "input_json_delta", "partial_json": text}))
                .collect(),
        ),
    }
}

/// A whole chat completion, one string per event, ending with `[DONE]`.
#[must_use]
pub fn openai(sayings: &[ModelOutput]) -> Vec<String> {
    let chunk = |delta: Value, reason: Value| {
        data(
            &json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}),
        )
    };
    let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), Value::Null)];
    let mut calls = 0;
    for saying in sayings {
        match saying {
            ModelOutput::Text(parts) => {
                events
                    .extend(parts.iter().map(|text| chunk(json!({"content": text}), Value::Null)));
            }
            ModelOutput::Thinking(parts, _) => events.extend(
                parts.iter().map(|text| chunk(json!({"reasoning_content": text}), Value::Null)),
            ),
            ModelOutput::Call(id, name, parts) => {
                let first = json!({"index": calls, "id": id, "type": "function",
                    "function": {"name": name, "arguments": ""}});
                events.push(chunk(json!({"tool_calls": [first]}), Value::Null));
                for part in parts {
                    let more = json!({"index": calls, "function": {"arguments": part}});
                    events.push(chunk(json!({"tool_calls": [more]}), Value::Null));
                }
                calls += 1;
            }
        }
    }
    events.push(chunk(json!({}), if calls > 0 { "tool_calls" } else { "stop" }.into()));
    events.push(data(
        &json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [],
        "usage": {"prompt_tokens": 12, "completion_tokens": 7, "total_tokens": 19,
            "prompt_tokens_details": {"cached_tokens": 4}}}),
    ));
    events.push("data: [DONE]\n\n".into());
    events
}
