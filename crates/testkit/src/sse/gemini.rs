//! Answers of Google's Gemini API: every event is a whole response with the next parts.

use serde_json::{Value, json};

use super::{ModelOutput, data};

/// A whole answer of the Gemini API, one string per event. A signature comes with the part after the thought.
#[must_use]
pub fn gemini(sayings: &[ModelOutput]) -> Vec<String> {
    let chunk = |part: Value| {
        data(&json!({"candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}}],
            "modelVersion": "m", "responseId": "r1"}))
    };
    let mut events = vec![data(&json!({"candidates": [], "responseId": "r1"}))];
    let mut signature: Option<&str> = None;
    let sign = |mut part: Value, signature: &mut Option<&str>| {
        if let Some(signature) = signature.take() {
            part["thoughtSignature"] = signature.into();
        }
        chunk(part)
    };
    for saying in sayings {
        match saying {
            ModelOutput::Text(parts) => {
                let parts = parts.iter().filter(|text| !text.is_empty());
                events.extend(parts.map(|text| sign(json!({"text": text}), &mut signature)));
            }
            ModelOutput::Thinking(parts, seal) => {
                let thought = |text| chunk(json!({"text": text, "thought": true}));
                events.extend(parts.iter().map(thought));
                signature = Some(seal).filter(|seal| !seal.is_empty()).map(String::as_str);
            }
            ModelOutput::Call(id, name, parts) => {
                let text = parts.concat();
                let args: Value =
                    serde_json::from_str(&text).unwrap_or_else(|_| json!({"text": text}));
                let call = json!({"functionCall": {"id": id, "name": name, "args": args}});
                events.push(sign(call, &mut signature));
            }
        }
    }
    events.push(data(&json!({"candidates": [{"index": 0, "finishReason": "STOP"}]})));
    events
        .push(data(&json!({"usageMetadata": {"promptTokenCount": 90, "candidatesTokenCount": 18,
        "thoughtsTokenCount": 12, "cachedContentTokenCount": 64, "totalTokenCount": 120}})));
    events
}
