//! Assembles blocks from the chunks of a Gemini answer.
//!
//! Every event is a whole response with the next parts. Calls come whole; each is a new one, whatever its position. No
//! event ends an answer: it is complete if a `finishReason` was seen when the stream ends. Chunks that only add text
//! take the short way of [`PlainChunk`].

use budao_core::message::{Block, CallId, ModelStop, ToolUse, Usage};
use serde_json::{Value, json};

use super::{
    plain::{PlainChunk, TokenCounts},
    wire::SignedPart,
};
use crate::{
    answer::{Decode, DecodeError, PieceBuffer},
    sse::SseEvent,
    wire::SIGNATURE,
};

/// Upper bound for calls in one answer; the runtime's own limit is lower.
const CALLS: usize = 1_024;

/// Assembles one answer from its chunks.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    thought: String,
    text: String,
    calls: usize,
    stop: Option<ModelStop>,
    usage: Usage,
    /// Number of messages in the history, used to generate ids for calls that came without one.
    history: usize,
}

impl Decoder {
    /// Creates a decoder for a request with `history` messages.
    pub(crate) fn new(history: usize) -> Self {
        Self { history, ..Self::default() }
    }

    fn chunk(&mut self, chunk: &Value, out: &mut PieceBuffer) -> Result<(), DecodeError> {
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(DecodeError::ServiceError(chunk.clone()));
        }
        if !chunk.is_object() {
            return Err(DecodeError::Malformed("a chunk is not an object".into()));
        }
        out.identify(chunk["responseId"].as_str(), chunk["modelVersion"].as_str());
        let candidate = &chunk["candidates"][0];
        for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
            self.part(part, out)?;
        }
        if let Some(usage) = chunk.get("usageMetadata") {
            self.count(&TokenCounts::of(usage));
        }
        if let Some(reason) = candidate["finishReason"].as_str() {
            self.stop = Some(stop(reason)?);
        } else if chunk["promptFeedback"]["blockReason"].is_string() {
            self.stop = Some(ModelStop::Refusal);
        }
        Ok(())
    }

    fn plain_chunk(&mut self, chunk: &PlainChunk<'_>, out: &mut PieceBuffer) {
        let (id, model) = chunk.names();
        out.identify(id, model);
        let (text, is_thought) = chunk.text();
        self.unsigned_text(text, is_thought, out);
        if let Some(usage) = &chunk.usage_metadata {
            self.count(usage);
        }
    }

    fn unsigned_text(&mut self, text: &str, is_thought: bool, out: &mut PieceBuffer) {
        if is_thought {
            self.thought.push_str(text);
            return out.thought(text);
        }
        self.flush_thought(out);
        self.text.push_str(text);
        out.text(text);
    }

    fn part(&mut self, part: &Value, out: &mut PieceBuffer) -> Result<(), DecodeError> {
        let signature = part["thoughtSignature"].as_str();
        if let Some(call) = part.get("functionCall").filter(|call| call.is_object()) {
            self.flush(out);
            sign(signature, SignedPart::Next, out);
            return self.call(call, out);
        }
        let Some(text) = part["text"].as_str() else { return Ok(()) };
        let is_thought = part["thought"] == true;
        if is_thought || signature.is_none() {
            self.unsigned_text(text, is_thought, out);
            return Ok(());
        }
        // A signed text stays a part of its own.
        self.flush(out);
        let signed = if text.is_empty() { SignedPart::Empty } else { SignedPart::Next };
        sign(signature, signed, out);
        self.text.push_str(text);
        out.text(text);
        self.flush(out);
        Ok(())
    }

    fn call(&mut self, call: &Value, out: &mut PieceBuffer) -> Result<(), DecodeError> {
        self.calls += 1;
        if self.calls > CALLS {
            return Err(DecodeError::Malformed("too many calls".into()));
        }
        let id = call["id"].as_str().filter(|id| !id.is_empty()).map(str::to_owned);
        let id = id.unwrap_or_else(|| format!("call_{}_{}", self.history, self.calls));
        let name = call["name"].as_str().unwrap_or_default().to_owned();
        let arguments = match &call["args"] {
            Value::Null => "{}".to_owned(),
            arguments => arguments.to_string(),
        };
        out.grow(id.len() + name.len() + arguments.len());
        out.block(Block::ToolUse(ToolUse { id: CallId(id.into()), name, arguments }));
        Ok(())
    }

    fn flush_thought(&mut self, out: &mut PieceBuffer) {
        if !self.thought.is_empty() {
            let text = std::mem::take(&mut self.thought);
            out.block(Block::Thinking { text, signature: None });
        }
    }

    fn flush(&mut self, out: &mut PieceBuffer) {
        self.flush_thought(out);
        if !self.text.is_empty() {
            out.block(Block::Text(std::mem::take(&mut self.text)));
        }
    }

    /// Takes over the counts so far.
    fn count(&mut self, counts: &TokenCounts) {
        if let Some(input) = counts.prompt_token_count {
            self.usage.input_tokens = input;
        }
        let output = [counts.candidates_token_count, counts.thoughts_token_count];
        if output.iter().any(Option::is_some) {
            let sum = output.into_iter().flatten().fold(0, u64::saturating_add);
            self.usage.output_tokens = sum;
        }
        if let Some(cached) = counts.cached_content_token_count {
            self.usage.cached_tokens = cached;
        }
        if let Some(reasoning) = counts.thoughts_token_count {
            self.usage.reasoning_tokens = reasoning;
        }
    }
}

/// Appends a signature as an opaque block.
fn sign(signature: Option<&str>, on: SignedPart, out: &mut PieceBuffer) {
    if let Some(signature) = signature {
        let block = json!({"type": SIGNATURE, "on": on, "signature": signature}).to_string();
        out.grow(block.len());
        out.block(Block::Opaque(block));
    }
}

/// The stop of a finish reason. A malformed call is no answer: the turn asks again.
fn stop(reason: &str) -> Result<ModelStop, DecodeError> {
    Ok(match reason {
        "STOP" => ModelStop::EndTurn,
        "MAX_TOKENS" => ModelStop::MaxTokens,
        "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" => ModelStop::Refusal,
        image if image.starts_with("IMAGE_") => ModelStop::Refusal,
        "MALFORMED_FUNCTION_CALL" | "MALFORMED_RESPONSE" | "UNEXPECTED_TOOL_CALL" => {
            return Err(DecodeError::Malformed(format!("the service ended with {reason}")));
        }
        _ => ModelStop::Other,
    })
}

impl Decode for Decoder {
    fn event(&mut self, event: SseEvent, out: &mut PieceBuffer) -> Result<(), DecodeError> {
        let data = event.data.trim();
        if data.is_empty() {
            return Ok(());
        }
        if let Some(chunk) = PlainChunk::read(data) {
            self.plain_chunk(&chunk, out);
            return Ok(());
        }
        let chunk: Value = serde_json::from_str(data)?;
        match &chunk {
            // A whole answer is a list of chunks, and an error may be a list of one.
            Value::Array(chunks) => chunks.iter().try_for_each(|chunk| self.chunk(chunk, out)),
            chunk => self.chunk(chunk, out),
        }
    }

    fn finish(&mut self, out: &mut PieceBuffer) {
        let Some(stop) = self.stop else { return };
        self.flush(out);
        let called = self.calls > 0 && matches!(stop, ModelStop::EndTurn | ModelStop::Other);
        out.end(if called { ModelStop::ToolUse } else { stop }, self.usage);
    }
}
