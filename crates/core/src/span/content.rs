//! What operations read and wrote, as the JSON of the GenAI conventions. Built only if the exporter wants content.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::{
    message::{Block, ToolUse, text_of},
    tool::Outcome,
};

/// Upper bound of the messages of one span, in bytes of JSON; the oldest are left out.
const CONTENT_BYTES: usize = 64 * 1024;

/// What an operation read and wrote, as JSON text. Configured secrets are removed, as in the records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanContent {
    /// Messages, or the arguments of a call.
    pub input: String,
    /// Messages, or the result of a call.
    pub output: String,
}

/// The messages of the running turn.
#[derive(Debug, Default)]
pub(super) struct TurnMessages {
    messages: VecDeque<Value>,
    bytes: usize,
    /// The message of the user, for the span of the turn.
    question: Option<Value>,
    /// The last answer.
    answer: Option<Value>,
}

impl TurnMessages {
    pub(super) fn asked(&mut self, content: &[Block]) {
        let message = message("user", content);
        self.question = Some(message.clone());
        self.push(message);
    }

    /// Adds an answer; returns the content of its request.
    pub(super) fn answered(&mut self, content: &[Block]) -> SpanContent {
        let answer = message("assistant", content);
        let input = Value::from(Vec::from(self.messages.clone())).to_string();
        let output = cut(&json!([answer]));
        self.answer = Some(answer.clone());
        self.push(answer);
        SpanContent { input, output }
    }

    /// The arguments of a call in the last answer, as the model wrote them.
    pub(super) fn arguments(&self, call: &str) -> Option<Value> {
        let parts = self.answer.as_ref()?["parts"].as_array()?;
        let part = parts.iter().find(|part| part["type"] == "tool_call" && part["id"] == call)?;
        Some(part["arguments"].clone())
    }

    pub(super) fn called(&mut self, call: &str, outcome: &Outcome) {
        let part = json!({"type": "tool_call_response", "id": call, "response": result(outcome)});
        self.push(json!({"role": "tool", "parts": [part]}));
    }

    /// The content of the whole turn.
    pub(super) fn turn(self) -> SpanContent {
        let list = |message: Option<Value>| cut(&Value::from(Vec::from_iter(message)));
        SpanContent { input: list(self.question), output: list(self.answer) }
    }

    fn push(&mut self, message: Value) {
        self.bytes += message.to_string().len();
        self.messages.push_back(message);
        while self.bytes > CONTENT_BYTES {
            let Some(oldest) = self.messages.pop_front() else { break };
            self.bytes = self.bytes.saturating_sub(oldest.to_string().len());
        }
    }
}

/// The arguments and the result of a call.
pub(super) fn of_call(arguments: &Value, outcome: Option<&Outcome>) -> SpanContent {
    SpanContent {
        input: cut(arguments),
        output: outcome.map(|it| cut(&result(it))).unwrap_or_default(),
    }
}

fn result(outcome: &Outcome) -> Value {
    match outcome {
        Outcome::Done(output) => output.data.clone(),
        Outcome::Failed(failure) => json!({"error": failure.fault.row().code}),
    }
}

fn message(role: &str, content: &[Block]) -> Value {
    let text = text_of(content);
    let text = (!text.is_empty()).then(|| json!({"type": "text", "content": text}));
    let calls = content.iter().filter_map(|block| match block {
        Block::ToolUse(ToolUse { id, name, arguments }) => {
            let arguments =
                serde_json::from_str(arguments).unwrap_or_else(|_| Value::from(arguments.as_str()));
            Some(json!({"type": "tool_call", "id": id, "name": name, "arguments": arguments}))
        }
        _ => None,
    });
    json!({"role": role, "parts": text.into_iter().chain(calls).collect::<Vec<_>>()})
}

/// JSON text within the bound; a longer value is replaced by its size.
fn cut(value: &Value) -> String {
    let text = value.to_string();
    if text.len() <= CONTENT_BYTES { text } else { json!({"bytes": text.len()}).to_string() }
}
