//! Assembles blocks from the events of the Responses API.
//!
//! `response.output_item.done` is the source of truth; deltas are only shown. Items are told apart by `output_index`,
//! because proxies change the ids of items from event to event, and blocks come out in that order. Unknown events and
//! items are skipped.

use std::collections::BTreeMap;

use budao_core::message::{Block, CallId, ModelStop, ToolUse, Usage};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::{
    answer::{Decode, DecodeError, PieceBuffer},
    sse::SseEvent,
    wire::{PHASE, REASONING},
};

/// Upper bound for items in one answer; the runtime's own limit on calls is lower.
const ITEMS: usize = 1_024;

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    output_index: Option<u64>,
    #[serde(default)]
    summary_index: Option<u64>,
    #[serde(default)]
    delta: Option<Value>,
    #[serde(borrow, default)]
    item: Option<&'a RawValue>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<Value>,
    /// Set in a whole answer, from a server that ignored `stream: true`.
    #[serde(default)]
    object: Option<Value>,
}

impl Envelope<'_> {
    fn index(&self) -> u64 {
        self.output_index.unwrap_or_default()
    }

    fn response(&self) -> Result<Response, DecodeError> {
        let missing = || DecodeError::Malformed("response is missing".into());
        Ok(serde_json::from_str(self.response.ok_or_else(missing)?.get())?)
    }
}

/// The parts of a response that are read at its end.
#[derive(Deserialize)]
struct Response {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    error: Option<Value>,
    #[serde(default)]
    incomplete_details: Option<Value>,
    #[serde(default)]
    usage: Option<Value>,
    #[serde(default)]
    output: Option<Vec<Box<RawValue>>>,
}

/// An item as `output_item.done` has it. Each type of item fills a different subset.
#[derive(Deserialize)]
struct WireItem {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    call_id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<Value>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    phase: Option<String>,
    #[serde(default)]
    content: Option<Vec<Value>>,
    #[serde(default)]
    summary: Option<Vec<Value>>,
    #[serde(default)]
    encrypted_content: Option<String>,
}

/// Assembles one answer from its events.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    items: BTreeMap<u64, Item>,
    called: bool,
    refused: bool,
    /// Number of messages in the history, used to generate ids for calls that came without one.
    history: usize,
    calls: usize,
}

/// An item of the answer: what was shown of it, and its blocks once it is done.
#[derive(Debug, Default)]
struct Item {
    text: String,
    thought: String,
    summary_index: u64,
    /// Bytes of arguments that were counted when their deltas arrived.
    counted: usize,
    blocks: Option<Vec<Block>>,
}

impl Decoder {
    /// Creates a decoder for a request with `history` messages.
    pub(crate) fn new(history: usize) -> Self {
        Self { history, ..Self::default() }
    }

    fn item(&mut self, index: u64) -> Result<&mut Item, DecodeError> {
        if self.items.len() >= ITEMS && !self.items.contains_key(&index) {
            return Err(DecodeError::Malformed("too many items".into()));
        }
        Ok(self.items.entry(index).or_default())
    }

    /// Completes an item and passes on the blocks of all items whose turn it is.
    fn item_done(
        &mut self,
        index: u64,
        item: &RawValue,
        out: &mut PieceBuffer,
    ) -> Result<(), DecodeError> {
        let done: WireItem = serde_json::from_str(item.get())?;
        let shown = std::mem::take(self.item(index)?);
        let blocks = match done.kind.as_str() {
            "message" => self.message(done, &shown, out),
            "reasoning" => reasoning(done, &shown, out),
            "function_call" => self.call(done, &shown, out),
            _ => Vec::new(),
        };
        self.item(index)?.blocks = Some(blocks);
        while let Some(first) = self.items.first_entry()
            && first.get().blocks.is_some()
        {
            let blocks = first.remove().blocks;
            blocks.into_iter().flatten().for_each(|block| out.block(block));
        }
        Ok(())
    }

    fn message(&mut self, done: WireItem, shown: &Item, out: &mut PieceBuffer) -> Vec<Block> {
        let part = |part: &Value| {
            let text = part["text"].as_str().or_else(|| part["refusal"].as_str());
            text.unwrap_or_default().to_owned()
        };
        let content = done.content.unwrap_or_default();
        self.refused |= content.iter().any(|part| part["type"] == "refusal");
        let whole: String = content.iter().map(part).collect();
        let text = if whole.is_empty() { shown.text.clone() } else { whole };
        out.text(unseen(&text, &shown.text));
        if text.is_empty() {
            return Vec::new();
        }
        let phase = done.phase.map(|phase| {
            out.grow(phase.len());
            Block::Opaque(json!({"type": PHASE, "phase": phase}).to_string())
        });
        phase.into_iter().chain([Block::Text(text)]).collect()
    }

    /// A call. One that the service did not finish is left out.
    fn call(&mut self, done: WireItem, shown: &Item, out: &mut PieceBuffer) -> Vec<Block> {
        if done.status.as_deref() == Some("incomplete") {
            return Vec::new();
        }
        self.called = true;
        self.calls += 1;
        let arguments = match done.arguments {
            Some(Value::String(text)) if !text.trim().is_empty() => text,
            None | Some(Value::Null | Value::String(_)) => "{}".into(),
            Some(value) => value.to_string(),
        };
        let id = done.call_id.filter(|id| !id.is_empty());
        let id = id.unwrap_or_else(|| format!("call_{}_{}", self.history, self.calls));
        let name = done.name.unwrap_or_default();
        out.grow((id.len() + name.len() + arguments.len()).saturating_sub(shown.counted));
        vec![Block::ToolUse(ToolUse { id: CallId(id.into()), name, arguments })]
    }

    /// Ends the answer as the service says. Text that was shown is kept; a call that never was complete is not.
    fn end(&mut self, response: &Response, out: &mut PieceBuffer) {
        for item in std::mem::take(&mut self.items).into_values() {
            let text = Some(item.text).filter(|text| !text.is_empty()).map(Block::Text);
            item.blocks
                .unwrap_or_else(|| text.into_iter().collect())
                .into_iter()
                .for_each(|block| out.block(block));
        }
        let reason = response.incomplete_details.as_ref().and_then(|it| it["reason"].as_str());
        let stop = match (response.status.as_deref(), reason) {
            (Some("incomplete"), Some("max_output_tokens" | "max_messages")) => {
                ModelStop::MaxTokens
            }
            (Some("incomplete"), Some("content_filter")) => ModelStop::Refusal,
            (Some("incomplete"), _) => ModelStop::Other,
            _ if self.refused => ModelStop::Refusal,
            _ if self.called => ModelStop::ToolUse,
            _ => ModelStop::EndTurn,
        };
        out.identify(response.id.as_deref(), response.model.as_deref());
        out.end(stop, response.usage.as_ref().map(usage).unwrap_or_default());
    }

    /// Decodes an answer that a server sent whole although streaming was requested.
    fn take_response(&mut self, data: &str, out: &mut PieceBuffer) -> Result<(), DecodeError> {
        let mut response: Response = serde_json::from_str(data)?;
        if response.status.as_deref() == Some("failed") {
            return Err(failed(response));
        }
        for (index, item) in response.output.take().unwrap_or_default().iter().enumerate() {
            self.item_done(index as u64, item, out)?;
        }
        self.end(&response, out);
        Ok(())
    }

    fn delta(&mut self, event: &Envelope<'_>, out: &mut PieceBuffer) -> Result<(), DecodeError> {
        let Some(delta) = event.delta.as_ref().and_then(Value::as_str) else { return Ok(()) };
        let summary_index = event.summary_index.unwrap_or_default();
        let item = self.item(event.index())?;
        match event.kind.as_str() {
            "response.output_text.delta" | "response.refusal.delta" => {
                item.text.push_str(delta);
                out.text(delta);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                if item.summary_index != summary_index && !item.thought.is_empty() {
                    item.thought.push_str("\n\n");
                    out.thought("\n\n");
                }
                item.summary_index = summary_index;
                item.thought.push_str(delta);
                out.thought(delta);
            }
            "response.function_call_arguments.delta" => {
                item.counted = item.counted.saturating_add(delta.len());
                out.grow(delta.len());
            }
            _ => {}
        }
        Ok(())
    }
}

impl Decode for Decoder {
    fn event(&mut self, event: SseEvent, out: &mut PieceBuffer) -> Result<(), DecodeError> {
        let data = event.data.trim();
        if data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        let envelope: Envelope<'_> = serde_json::from_str(data)?;
        match envelope.kind.as_str() {
            "response.created" => {
                if let Ok(Response { id, model, .. }) = envelope.response() {
                    out.identify(id.as_deref(), model.as_deref());
                }
            }
            "response.output_item.added" => drop(self.item(envelope.index())?),
            "response.output_item.done" => {
                let missing = || DecodeError::Malformed("item is missing".into());
                let item = envelope.item.ok_or_else(missing)?;
                self.item_done(envelope.index(), item, out)?;
            }
            "response.completed" | "response.incomplete" => {
                let mut response = envelope.response()?;
                // The name of the event is what a proxy is least likely to change.
                response.status = envelope.kind.strip_prefix("response.").map(str::to_owned);
                self.end(&response, out);
            }
            "response.failed" => return Err(failed(envelope.response()?)),
            "error" => return Err(DecodeError::ServiceError(serde_json::from_str(data)?)),
            "" if envelope.object.as_ref().is_some_and(|object| object == "response") => {
                self.take_response(data, out)?;
            }
            "" if event.name.as_deref() == Some("error") || envelope.error.is_some() => {
                return Err(DecodeError::ServiceError(serde_json::from_str(data)?));
            }
            _ => self.delta(&envelope, out)?,
        }
        Ok(())
    }

    /// Does nothing: only a terminal event ends an answer of this API.
    fn finish(&mut self, _: &mut PieceBuffer) {}
}

/// The error of a response that failed.
fn failed(response: Response) -> DecodeError {
    response
        .error
        .filter(|error| !error.is_null())
        .map_or_else(no_error, |error| DecodeError::ServiceError(json!({"error": error})))
}

fn no_error() -> DecodeError {
    DecodeError::ServiceError(json!({"error": {"message": "the response failed without an error"}}))
}

/// The reasoning: its summary as thinking, and the item itself if it can be sent back.
fn reasoning(done: WireItem, shown: &Item, out: &mut PieceBuffer) -> Vec<Block> {
    let texts = |parts: &[Value]| {
        let texts: Vec<_> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        texts.join("\n\n")
    };
    let summary = done.summary.unwrap_or_default();
    let content = done.content.as_deref().map(texts).unwrap_or_default();
    let whole = [texts(&summary), content, shown.thought.clone()];
    let text = whole.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
    out.thought(unseen(&text, &shown.thought));
    let thinking = (!text.is_empty()).then_some(Block::Thinking { text, signature: None });
    let encrypted = done.encrypted_content.filter(|content| !content.is_empty());
    let item = encrypted.map(|encrypted| {
        let item = json!({"type": REASONING, "id": done.id, "summary": summary, "encrypted_content": encrypted});
        let item = item.to_string();
        out.grow(item.len());
        Block::Opaque(item)
    });
    thinking.into_iter().chain(item).collect()
}

/// The part of a text that its deltas have not shown. Nothing if they showed something else.
fn unseen<'a>(whole: &'a str, shown: &str) -> &'a str {
    whole.strip_prefix(shown).unwrap_or_default()
}

fn usage(usage: &Value) -> Usage {
    let count = |path: &str| usage.pointer(path).and_then(Value::as_u64).unwrap_or_default();
    Usage {
        input_tokens: count("/input_tokens"),
        output_tokens: count("/output_tokens"),
        cached_tokens: count("/input_tokens_details/cached_tokens"),
        cache_write_tokens: count("/input_tokens_details/cache_write_tokens"),
        reasoning_tokens: count("/output_tokens_details/reasoning_tokens"),
        ..Usage::default()
    }
}
