//! Answers of OpenAI's Responses API, with what real services and their proxies do: padding in deltas, item ids that
//! change from event to event, unknown events, and an empty `output` at the end.

use serde_json::{Value, json};

use super::{ModelOutput, event};

/// A whole answer of the Responses API, one string per event. Its last event is `response.completed`.
#[must_use]
pub fn responses(sayings: &[ModelOutput]) -> Vec<String> {
    let mut events = ResponseEvents::default();
    let begun =
        json!({"id": "resp_1", "object": "response", "status": "in_progress", "model": "m"});
    events.push("response.created", json!({"response": begun}));
    events.push("response.in_progress", json!({"response": begun}));
    for (index, saying) in sayings.iter().enumerate() {
        events.saying(index, saying);
    }
    events.push("response.metadata", json!({"metadata": {"new": true}, "response": "resp_1"}));
    events.push("response.rate_limits.updated", json!({"rate_limits": [{"name": "tokens"}]}));
    events.push(
        "response.completed",
        json!({"response": {"id": "resp_1", "object": "response", "status": "completed", "output": [],
            "usage": {"input_tokens": 90, "input_tokens_details": {"cached_tokens": 64},
                "output_tokens": 30, "output_tokens_details": {"reasoning_tokens": 12}, "total_tokens": 120}}}),
    );
    events.0
}

/// One event of the Responses API.
#[must_use]
pub fn response_event(kind: &str, data: Value) -> String {
    let mut events = ResponseEvents::default();
    events.push(kind, data);
    events.0.concat()
}

#[derive(Default)]
struct ResponseEvents(Vec<String>);

impl ResponseEvents {
    /// Adds an event with the next sequence number.
    fn push(&mut self, kind: &str, mut data: Value) {
        data["type"] = kind.into();
        data["sequence_number"] = self.0.len().into();
        self.0.push(event(kind, &data));
    }

    /// Adds an event of an item. Its id differs in every event, as behind some proxies.
    fn of_item(&mut self, kind: &str, index: usize, mut data: Value) {
        data["output_index"] = index.into();
        data["item_id"] = format!("item_{}", self.0.len()).into();
        self.push(kind, data);
    }

    fn saying(&mut self, index: usize, saying: &ModelOutput) {
        match saying {
            ModelOutput::Text(parts) => self.text(index, parts),
            ModelOutput::Thinking(parts, seal) => self.reasoning(index, parts, seal),
            ModelOutput::Call(id, name, parts) => self.call(index, (id, name), parts),
        }
    }

    fn text(&mut self, index: usize, parts: &[String]) {
        let item = |status: &str, content: Value| {
            json!({"item": {"id": "msg_1", "type": "message",
            "role": "assistant", "status": status, "content": content}})
        };
        let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
        self.of_item("response.output_item.added", index, item("in_progress", json!([])));
        let begun = json!({"content_index": 0, "part": part("")});
        self.of_item("response.content_part.added", index, begun);
        for text in parts {
            let delta =
                json!({"content_index": 0, "delta": text, "obfuscation": "x9Kq", "logprobs": []});
            self.of_item("response.output_text.delta", index, delta);
        }
        let whole = parts.concat();
        let done = json!({"content_index": 0, "text": whole});
        self.of_item("response.output_text.done", index, done);
        let done = item("completed", json!([part(&whole)]));
        self.of_item("response.output_item.done", index, done);
    }

    fn reasoning(&mut self, index: usize, parts: &[String], seal: &str) {
        let item = |summary: Value, seal: &str| {
            json!({"item": {"id": format!("rs_{index}"), "type": "reasoning",
            "summary": summary, "encrypted_content": seal, "status": null}})
        };
        // What is said of the seal at first is only a part of it.
        let partial = seal.get(..seal.len() / 2).unwrap_or_default();
        self.of_item("response.output_item.added", index, item(json!([]), partial));
        for text in parts {
            let delta = json!({"summary_index": 0, "delta": text, "obfuscation": "p"});
            self.of_item("response.reasoning_summary_text.delta", index, delta);
        }
        let summary = json!([{"type": "summary_text", "text": parts.concat()}]);
        self.of_item("response.output_item.done", index, item(summary, seal));
    }

    fn call(&mut self, index: usize, (id, name): (&str, &str), parts: &[String]) {
        let item = |status: &str, arguments: &str| {
            json!({"item": {"id": "fc_1", "type": "function_call",
            "call_id": id, "name": name, "arguments": arguments, "status": status}})
        };
        self.of_item("response.output_item.added", index, item("in_progress", ""));
        for text in parts {
            let delta = json!({"delta": text, "obfuscation": "zz"});
            self.of_item("response.function_call_arguments.delta", index, delta);
        }
        let done = json!({"arguments": parts.concat()});
        self.of_item("response.function_call_arguments.done", index, done);
        self.of_item("response.output_item.done", index, item("completed", &parts.concat()));
    }
}
