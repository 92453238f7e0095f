//! Assembles blocks from the events of Anthropic's Messages API.
//!
//! Unknown events are skipped. An unknown block becomes [`Block::Opaque`] with the service's own JSON.

use std::collections::BTreeMap;

use budao_core::message::{Block, CallId, ModelStop, ToolUse, Usage};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::{
    answer::{Decode, DecodeError, PieceBuffer},
    sse::SseEvent,
};

/// Upper bound for blocks open at once; the service opens one at a time.
const OPEN_BLOCKS: usize = 64;

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    index: u64,
    #[serde(borrow, default)]
    content_block: Option<&'a RawValue>,
    #[serde(default)]
    delta: Option<Value>,
    #[serde(default)]
    message: Option<Value>,
    #[serde(default)]
    usage: Option<Value>,
}

/// A complete answer from a server that ignored `stream: true`.
#[derive(Deserialize)]
struct WholeAnswer<'a> {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    model: Option<String>,
    #[serde(borrow, default)]
    content: Vec<&'a RawValue>,
    #[serde(default)]
    stop_reason: Option<String>,
    #[serde(default)]
    usage: Option<Value>,
}

/// Assembles one answer from its events.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    open: BTreeMap<u64, OpenBlock>,
    stop: Option<ModelStop>,
    usage: TokenCounts,
    called: bool,
}

/// A block whose `content_block_stop` has not arrived yet.
#[derive(Debug)]
enum OpenBlock {
    Text(String),
    Thinking {
        text: String,
        signature: Option<String>,
    },
    Tool {
        id: String,
        name: String,
        arguments: String,
        given: String,
    },
    /// An unknown block: the service's own JSON, and the changed value if a delta has modified it.
    Other {
        raw: String,
        changed: Option<Value>,
        input: String,
    },
}

/// Token counts as the service reports them, with cached tokens counted separately.
#[derive(Debug, Default)]
struct TokenCounts {
    input: u64,
    output: u64,
    cache_written: u64,
    cache_read: u64,
}

impl Decode for Decoder {
    fn event(&mut self, event: SseEvent, out: &mut PieceBuffer) -> Result<(), DecodeError> {
        let Envelope { kind, index, content_block, delta, message, usage } =
            serde_json::from_str(&event.data)?;
        match kind.as_str() {
            "message_start" => {
                let message = message.unwrap_or_default();
                self.usage.read(message.get("usage"));
                out.identify(message["id"].as_str(), message["model"].as_str());
            }
            "content_block_start" => {
                let block = content_block.ok_or_else(|| missing("content_block"))?;
                if self.open.len() >= OPEN_BLOCKS {
                    return Err(DecodeError::Malformed("too many open blocks".into()));
                }
                self.open.insert(index, OpenBlock::start(block, out)?);
            }
            "content_block_delta" => {
                let delta = delta.ok_or_else(|| missing("delta"))?;
                if let Some(open) = self.open.get_mut(&index) {
                    open.grow(&delta, out);
                }
            }
            "content_block_stop" => {
                if let Some(open) = self.open.remove(&index) {
                    self.close(open, out);
                }
            }
            "message_delta" => {
                self.usage.read(usage.as_ref());
                let reason = delta.as_ref().and_then(|delta| delta["stop_reason"].as_str());
                self.stop = reason.map(stop).or(self.stop);
            }
            "message_stop" => self.end(out),
            "error" => return Err(DecodeError::ServiceError(serde_json::from_str(&event.data)?)),
            "message" => self.take_message(&event.data, out)?,
            // `ping`, and event types this version does not know.
            _ => {}
        }
        Ok(())
    }

    /// Does nothing: only `message_stop` ends an answer of this API.
    fn finish(&mut self, _: &mut PieceBuffer) {}
}

fn missing(name: &str) -> DecodeError {
    DecodeError::Malformed(format!("{name} is missing"))
}

fn stop(reason: &str) -> ModelStop {
    match reason {
        "end_turn" => ModelStop::EndTurn,
        "tool_use" => ModelStop::ToolUse,
        "max_tokens" | "model_context_window_exceeded" => ModelStop::MaxTokens,
        "refusal" => ModelStop::Refusal,
        _ => ModelStop::Other,
    }
}

impl Decoder {
    /// Decodes an answer that a gateway sent whole although streaming was requested.
    fn take_message(&mut self, data: &str, out: &mut PieceBuffer) -> Result<(), DecodeError> {
        let WholeAnswer { id, model, content, stop_reason, usage } = serde_json::from_str(data)?;
        out.identify(id.as_deref(), model.as_deref());
        for block in content {
            let open = OpenBlock::start(block, out)?;
            self.close(open, out);
        }
        self.usage.read(usage.as_ref());
        self.stop = stop_reason.as_deref().map(stop);
        self.end(out);
        Ok(())
    }

    fn close(&mut self, open: OpenBlock, out: &mut PieceBuffer) {
        self.called |= matches!(open, OpenBlock::Tool { .. });
        if let Some(block) = open.close() {
            out.block(block);
        }
    }

    fn end(&mut self, out: &mut PieceBuffer) {
        for open in std::mem::take(&mut self.open).into_values() {
            self.close(open, out);
        }
        let usual = if self.called { ModelStop::ToolUse } else { ModelStop::EndTurn };
        out.end(self.stop.unwrap_or(usual), self.usage.total());
    }
}

impl OpenBlock {
    fn start(raw: &RawValue, out: &mut PieceBuffer) -> Result<Self, DecodeError> {
        let block: Value = serde_json::from_str(raw.get())?;
        let text = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
        Ok(match text("type").as_str() {
            "text" => {
                let text = text("text");
                out.text(&text);
                Self::Text(text)
            }
            "thinking" => {
                let thought = text("thinking");
                out.thought(&thought);
                let signature = Some(text("signature")).filter(|it| !it.is_empty());
                Self::Thinking { text: thought, signature }
            }
            "tool_use" => {
                let given =
                    block.get("input").filter(|it| it.as_object().is_some_and(|it| !it.is_empty()));
                let given = given.map(ToString::to_string).unwrap_or_default();
                let (id, name) = (text("id"), text("name"));
                out.grow(id.len() + name.len() + given.len());
                Self::Tool { id, name, arguments: String::new(), given }
            }
            _ => {
                out.grow(raw.get().len());
                Self::Other { raw: raw.get().to_owned(), changed: None, input: String::new() }
            }
        })
    }

    fn grow(&mut self, delta: &Value, out: &mut PieceBuffer) {
        let said = |name: &str| delta[name].as_str().unwrap_or_default();
        match (self, delta["type"].as_str().unwrap_or_default()) {
            (Self::Text(text), "text_delta") => {
                text.push_str(said("text"));
                out.text(said("text"));
            }
            (Self::Thinking { text, .. }, "thinking_delta") => {
                text.push_str(said("thinking"));
                out.thought(said("thinking"));
            }
            (Self::Thinking { signature, .. }, "signature_delta") => {
                signature.get_or_insert_default().push_str(said("signature"));
                out.grow(said("signature").len());
            }
            (Self::Tool { arguments, .. }, "input_json_delta") => {
                arguments.push_str(said("partial_json"));
                out.grow(said("partial_json").len());
            }
            (Self::Other { raw, changed, input }, kind) => {
                grow_other(raw, changed, input, kind, delta);
                out.grow(delta.to_string().len());
            }
            // Citations, and other deltas that known blocks do not keep.
            _ => {}
        }
    }

    fn close(self) -> Option<Block> {
        Some(match self {
            Self::Text(text) if text.is_empty() => return None,
            Self::Text(text) => Block::Text(text),
            Self::Thinking { text, signature } => Block::Thinking { text, signature },
            Self::Tool { id, name, arguments, given } => {
                let arguments =
                    [arguments, given, "{}".into()].into_iter().find(|it| !it.is_empty());
                let arguments = arguments.unwrap_or_default();
                Block::ToolUse(ToolUse { id: CallId(id.into()), name, arguments })
            }
            Self::Other { raw, changed, input } => {
                Block::Opaque(closed_other(raw, changed, &input))
            }
        })
    }
}

/// Applies a delta to an unknown block: strings and arrays are appended to, other fields are replaced.
fn grow_other(
    raw: &str,
    changed: &mut Option<Value>,
    input: &mut String,
    kind: &str,
    delta: &Value,
) {
    if kind == "input_json_delta" {
        input.push_str(delta["partial_json"].as_str().unwrap_or_default());
        return;
    }
    let block = changed.get_or_insert_with(|| serde_json::from_str(raw).unwrap_or_default());
    let (Some(block), Some(delta)) = (block.as_object_mut(), delta.as_object()) else { return };
    for (name, value) in delta.iter().filter(|(name, _)| *name != "type") {
        match (block.get_mut(name), value) {
            (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
            (Some(Value::Array(items)), Value::Array(more)) => items.extend(more.iter().cloned()),
            _ => drop(block.insert(name.clone(), value.clone())),
        }
    }
}

fn closed_other(raw: String, mut changed: Option<Value>, input: &str) -> String {
    if !input.is_empty()
        && let Ok(input) = serde_json::from_str::<Value>(input)
    {
        let block = changed.get_or_insert_with(|| serde_json::from_str(&raw).unwrap_or_default());
        if let Some(block) = block.as_object_mut() {
            block.insert("input".into(), input);
        }
    }
    changed.map_or(raw, |block| block.to_string())
}

impl TokenCounts {
    /// Reads the counts that are present; a later event repeats or corrects an earlier one.
    fn read(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage else { return };
        let take = |count: &mut u64, name: &str| {
            if let Some(number) = usage.get(name).and_then(Value::as_u64) {
                *count = number;
            }
        };
        take(&mut self.input, "input_tokens");
        take(&mut self.output, "output_tokens");
        take(&mut self.cache_written, "cache_creation_input_tokens");
        take(&mut self.cache_read, "cache_read_input_tokens");
    }

    fn total(&self) -> Usage {
        Usage {
            input_tokens: self
                .input
                .saturating_add(self.cache_written)
                .saturating_add(self.cache_read),
            output_tokens: self.output,
            cached_tokens: self.cache_read,
            cache_write_tokens: self.cache_written,
            ..Usage::default()
        }
    }
}
