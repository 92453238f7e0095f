//! Assembles blocks from the chunks of a chat completion.
//!
//! The decoder accepts common deviations: a missing `index`, numbers written as text, an id only in the first delta
//! or in none, a call sent whole or in fragments, no usage, no `[DONE]`. An answer is complete once a `finish_reason`
//! or `[DONE]` has arrived. Chunks that only add text take the short way of [`PlainChunk`].

use budao_core::message::{Block, CallId, ModelStop, ToolUse, Usage};
use serde_json::{Value, value::RawValue};

use super::plain::PlainChunk;
use crate::{
    answer::{Decode, DecodeError, PieceBuffer},
    sse::SseEvent,
};

/// Upper bound for calls in one answer; the runtime's own limit is lower.
const CALLS: usize = 1_024;

/// Assembles one answer from its chunks.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    thought: String,
    text: String,
    calls: Vec<PartialCall>,
    stop: Option<ModelStop>,
    done: bool,
    usage: Usage,
    /// Number of messages in the history, used to generate ids for calls that came without one.
    history: usize,
}

#[derive(Debug, Default)]
struct PartialCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl PartialCall {
    fn is_open(&self, name: &str) -> bool {
        self.name == name && serde_json::from_str::<&RawValue>(&self.arguments).is_err()
    }
}

impl Decoder {
    /// Creates a decoder for a request with `history` messages.
    pub(crate) fn new(history: usize) -> Self {
        Self { history, ..Self::default() }
    }

    fn plain_chunk(&mut self, chunk: &PlainChunk<'_>, out: &mut PieceBuffer) {
        let (id, model) = chunk.names();
        out.identify(id, model);
        self.push_thought(chunk.thought(), out);
        self.push_text(chunk.text(), out);
    }

    /// Reads a chunk in any of its forms.
    fn chunk(
        &mut self,
        data: &str,
        is_error: bool,
        out: &mut PieceBuffer,
    ) -> Result<(), DecodeError> {
        let chunk: Value = serde_json::from_str(data)?;
        let failed = chunk.get("error").is_some_and(|error| !error.is_null())
            || chunk.get("object").is_some_and(|object| object == "error")
            || is_error;
        if failed {
            return Err(DecodeError::ServiceError(chunk));
        }
        if !chunk.is_object() {
            return Err(DecodeError::Malformed("a chunk is not an object".into()));
        }
        let text = |key| chunk.get(key).and_then(Value::as_str);
        out.identify(text("id"), text("model"));
        if let Some(Value::Array(choices)) = chunk.get("choices") {
            choices.iter().try_for_each(|choice| self.choice(choice, out))?;
        }
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            self.count(usage);
        }
        Ok(())
    }

    fn choice(&mut self, choice: &Value, out: &mut PieceBuffer) -> Result<(), DecodeError> {
        if number(choice.get("index")).unwrap_or(0) != 0 {
            return Ok(());
        }
        // A server that does not stream sends `message` instead of `delta`.
        let delta = ["delta", "message"].iter().find_map(|name| choice.get(*name));
        if let Some(delta) = delta {
            self.delta(delta, out)?;
        } else if let Some(text) = choice.get("text") {
            self.push_text(&words(text), out);
        }
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str)
            && !reason.is_empty()
        {
            self.stop = Some(match reason {
                "stop" | "eos" | "end_turn" => ModelStop::EndTurn,
                "tool_calls" | "function_call" | "tool_use" => ModelStop::ToolUse,
                "length" | "max_tokens" => ModelStop::MaxTokens,
                "content_filter" | "refusal" => ModelStop::Refusal,
                _ => ModelStop::Other,
            });
        }
        Ok(())
    }

    fn delta(&mut self, delta: &Value, out: &mut PieceBuffer) -> Result<(), DecodeError> {
        for name in ["reasoning_content", "reasoning"] {
            let thought = delta.get(name).map(words).unwrap_or_default();
            if !thought.is_empty() {
                self.push_thought(&thought, out);
                break;
            }
        }
        self.push_text(&delta.get("content").map(words).unwrap_or_default(), out);
        if let Some(refusal) = delta.get("refusal").and_then(Value::as_str)
            && !refusal.is_empty()
        {
            self.push_text(refusal, out);
            self.stop = Some(ModelStop::Refusal);
        }
        match delta.get("tool_calls") {
            Some(Value::Array(calls)) => calls.iter().try_for_each(|call| self.call(call, out)),
            Some(call @ Value::Object(_)) => self.call(call, out),
            _ => Ok(()),
        }?;
        // The older form, from before an answer could contain several calls.
        match delta.get("function_call") {
            Some(call @ Value::Object(_)) => self.call(call, out),
            _ => Ok(()),
        }
    }

    fn push_thought(&mut self, thought: &str, out: &mut PieceBuffer) {
        self.thought.push_str(thought);
        out.thought(thought);
    }

    fn push_text(&mut self, text: &str, out: &mut PieceBuffer) {
        self.text.push_str(text);
        out.text(text);
    }

    fn call(&mut self, delta: &Value, out: &mut PieceBuffer) -> Result<(), DecodeError> {
        let function = delta.get("function").unwrap_or(delta);
        let word = |value: Option<&Value>| match value {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        let (id, name) = (word(delta.get("id")), word(function.get("name")));
        let arguments = match function.get("arguments") {
            Some(Value::String(text)) => text.clone(),
            None | Some(Value::Null) => String::new(),
            Some(value) => value.to_string(),
        };
        out.grow(id.len() + name.len() + arguments.len());
        let call = self.find_call(number(delta.get("index")), &id, &name)?;
        if call.id.is_empty() {
            call.id = id;
        }
        if call.name != name && call.arguments.is_empty() {
            call.name.push_str(&name);
        }
        call.arguments.push_str(&arguments);
        Ok(())
    }

    /// Finds the call a delta belongs to: by index, by id, otherwise the last one unless a new name starts.
    fn find_call(
        &mut self,
        index: Option<u64>,
        id: &str,
        name: &str,
    ) -> Result<&mut PartialCall, DecodeError> {
        let same_id = |call: &PartialCall| id.is_empty() || call.id.is_empty() || call.id == id;
        let known = match index {
            Some(_) => self
                .calls
                .iter()
                .rposition(|call| call.index == index)
                .filter(|&at| same_id(&self.calls[at])),
            None if !id.is_empty() => self.calls.iter().position(|call| call.id == id),
            None if name.is_empty() => self.calls.len().checked_sub(1),
            // A repeated name continues the same call until its arguments are complete.
            None => self.calls.len().checked_sub(1).filter(|&at| self.calls[at].is_open(name)),
        };
        let at = match known {
            Some(at) => at,
            None if self.calls.len() >= CALLS => {
                return Err(DecodeError::Malformed("too many calls".into()));
            }
            None => {
                self.calls.push(PartialCall { index, ..PartialCall::default() });
                self.calls.len() - 1
            }
        };
        Ok(&mut self.calls[at])
    }

    fn count(&mut self, usage: &Value) {
        let count = |names: &[&str]| names.iter().find_map(|name| number(usage.get(*name)));
        let cached = usage.pointer("/prompt_tokens_details/cached_tokens");
        let written = usage.pointer("/prompt_tokens_details/cache_write_tokens");
        let reasoning = usage.pointer("/completion_tokens_details/reasoning_tokens");
        self.usage = Usage {
            input_tokens: count(&["prompt_tokens", "input_tokens"])
                .unwrap_or(self.usage.input_tokens),
            output_tokens: count(&["completion_tokens", "output_tokens"])
                .unwrap_or(self.usage.output_tokens),
            cached_tokens: number(cached)
                .or_else(|| count(&["prompt_cache_hit_tokens"]))
                .unwrap_or(self.usage.cached_tokens),
            cache_write_tokens: number(written).unwrap_or(self.usage.cache_write_tokens),
            reasoning_tokens: number(reasoning).unwrap_or(self.usage.reasoning_tokens),
            ..Usage::default()
        };
    }
}

impl Decode for Decoder {
    fn event(&mut self, event: SseEvent, out: &mut PieceBuffer) -> Result<(), DecodeError> {
        let data = event.data.trim();
        if data == "[DONE]" {
            self.done = true;
            self.finish(out);
            return Ok(());
        }
        if data.is_empty() {
            return Ok(());
        }
        let is_error = event.name.as_deref() == Some("error");
        match PlainChunk::read(data).filter(|_| !is_error) {
            Some(chunk) => {
                self.plain_chunk(&chunk, out);
                Ok(())
            }
            None => self.chunk(data, is_error, out),
        }
    }

    fn finish(&mut self, out: &mut PieceBuffer) {
        if self.stop.is_none() && !self.done {
            return;
        }
        if !self.thought.is_empty() {
            let text = std::mem::take(&mut self.thought);
            out.block(Block::Thinking { text, signature: None });
        }
        if !self.text.is_empty() {
            out.block(Block::Text(std::mem::take(&mut self.text)));
        }
        let called = !self.calls.is_empty();
        for (at, call) in std::mem::take(&mut self.calls).into_iter().enumerate() {
            let id = match call.id {
                id if id.is_empty() => format!("call_{}_{}", self.history, at + 1),
                id => id,
            };
            let arguments = Some(call.arguments).filter(|it| !it.trim().is_empty());
            out.block(Block::ToolUse(ToolUse {
                id: CallId(id.into()),
                name: call.name,
                arguments: arguments.unwrap_or_else(|| "{}".into()),
            }));
        }
        // Servers may report `stop` although there are calls, or no reason at all.
        let stop = match self.stop {
            Some(ModelStop::EndTurn | ModelStop::Other) | None if called => ModelStop::ToolUse,
            Some(stop) => stop,
            None => ModelStop::EndTurn,
        };
        out.end(stop, self.usage);
    }
}

/// Reads a number, also if it is written as text.
fn number(value: Option<&Value>) -> Option<u64> {
    match value? {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// Reads text, also if it is a list of parts.
fn words(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => String::new(),
    }
}
