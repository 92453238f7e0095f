//! Request bodies for the Responses API.
//!
//! Calls and texts go back without the ids of their items: the service stores nothing, so it would look for the ids in
//! vain. A reasoning item goes back only in front of the text or call that it led to.

use std::{ops::Range, sync::Arc};

use budao_core::message::{Block, Message, ModelRequest, Role, text_of};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

use crate::{
    request_body::{WireFormat, json_bytes, write_item},
    shape::{NativeShape, ShapeForm, split_shape},
    wire::{OpaqueOwner, PHASE, safe_arguments, safe_id, safe_name},
};

/// The parts of a request that are about reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReasoningParts {
    pub(crate) earlier: Reasoning,
    /// Whether the request says how much the model reasons, if the session does.
    pub(crate) has_effort: bool,
}

/// How much a model reasons. The numbers are bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Effort {
    Low = 1,
    Medium = 2,
    High = 4,
}

impl Effort {
    /// The effort that is nearest to a thinking budget.
    pub(crate) fn of(tokens: u32) -> Self {
        match tokens {
            ..4_096 => Self::Low,
            4_096..16_384 => Self::Medium,
            _ => Self::High,
        }
    }

    pub(crate) fn bit(self) -> u8 {
        self as u8
    }
}

/// What a request has of the reasoning in earlier answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reasoning {
    /// All of it, and new reasoning is asked for encrypted.
    Sent,
    /// None of it, because the service refused it. New reasoning is asked for encrypted.
    Dropped,
    /// None of it, and none is asked for: the service cannot encrypt this model's reasoning.
    Unsupported,
}

#[derive(Serialize)]
struct Options<'a> {
    model: &'a str,
    stream: bool,
    store: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    include: Option<[&'static str; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
    max_output_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<ReasoningOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Value>,
}

#[derive(Serialize)]
struct ReasoningOptions {
    effort: Effort,
    summary: &'static str,
}

/// `strict` is always said: without it the service assumes true and refuses schemas that are not written for it.
#[derive(Serialize)]
#[serde(tag = "type", rename = "function")]
struct WireTool<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
    strict: bool,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Item<'a> {
    Known(KnownItem<'a>),
    /// A reasoning item as the service wrote it.
    Reasoning(Box<RawValue>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum KnownItem<'a> {
    Message {
        role: Role,
        content: Content<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<String>,
    },
    FunctionCall {
        call_id: String,
        name: String,
        arguments: String,
    },
    FunctionCallOutput {
        call_id: String,
        output: &'a str,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(&'a str),
    Joined(String),
    Parts(Vec<Value>),
}

/// The format of requests to a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponsesFormat<'a> {
    pub(crate) model: &'a str,
    pub(crate) parts: ReasoningParts,
    /// The official service is asked to leave out the padding of its events; other servers may not know this option.
    pub(crate) is_official: bool,
    /// Whether the request names its session for the service's cache.
    pub(crate) has_cache_key: bool,
    pub(crate) form: ShapeForm,
}

impl WireFormat for ResponsesFormat<'_> {
    const LIST: &'static str = "input";

    fn variant(&self) -> u8 {
        let sends_reasoning = self.parts.earlier == Reasoning::Sent;
        u8::from(self.form == ShapeForm::Native) + 2 * u8::from(sends_reasoning)
    }

    fn options(&self, request: &ModelRequest) -> Vec<u8> {
        // Reasoning counts towards the limit, so it comes on top of the answer's tokens.
        let ReasoningParts { earlier, has_effort } = self.parts;
        let thinking = request.thinking_tokens.filter(|_| has_effort);
        let (mut tools, shape) = split_shape(request, self.form);
        let encrypted = ["reasoning.encrypted_content"];
        json_bytes(&Options {
            model: self.model,
            stream: true,
            store: false,
            stream_options: self.is_official.then(|| json!({"include_obfuscation": false})),
            prompt_cache_key: request.cache_key.as_deref().filter(|_| self.has_cache_key),
            include: (earlier != Reasoning::Unsupported).then_some(encrypted),
            instructions: request.system.as_deref().filter(|text| !text.trim().is_empty()),
            max_output_tokens: request
                .max_tokens
                .max(1)
                .saturating_add(thinking.unwrap_or_default()),
            reasoning: thinking
                .map(|tokens| ReasoningOptions { effort: Effort::of(tokens), summary: "auto" }),
            parallel_tool_calls: tools.next().map(|_| true),
            text: shape.map(text_format),
        })
    }

    fn tools(&self, request: &ModelRequest) -> Option<Vec<u8>> {
        let tools = split_shape(request, self.form).0.map(|spec| WireTool {
            name: &spec.name,
            description: &spec.description,
            parameters: &spec.schema,
            strict: false,
        });
        let tools: Vec<_> = tools.collect();
        (!tools.is_empty()).then(|| json_bytes(&tools))
    }

    fn write_run(&self, history: &[Arc<Message>], run: Range<usize>, _: bool, out: &mut Vec<u8>) {
        for message in &history[run] {
            let mut items = Vec::with_capacity(message.content.len());
            match message.role {
                Role::User => push_user_items(message, &mut items),
                Role::Assistant => push_answer(message, self.parts.earlier, &mut items),
            }
            items.iter().for_each(|item| write_item(item, out));
        }
    }
}

fn text_format(shape: NativeShape<'_>) -> Value {
    let NativeShape { name, schema, is_strict } = shape;
    json!({"format": {"type": "json_schema", "name": name, "schema": schema, "strict": is_strict}})
}

/// Pushes the results of calls first, then the user's text and images as one message.
fn push_user_items<'a>(message: &'a Message, items: &mut Vec<Item<'a>>) {
    for block in &message.content {
        if let Block::ToolResult { call, content, .. } = block {
            let call_id = safe_id(call).into_owned();
            items.push(Item::Known(KnownItem::FunctionCallOutput { call_id, output: content }));
        }
    }
    let has_images = message.content.iter().any(|block| matches!(block, Block::Image { .. }));
    let content = if has_images {
        Content::Parts(message.content.iter().filter_map(part).collect())
    } else {
        Content::Joined(text_of(&message.content))
    };
    if !matches!(&content, Content::Joined(text) if text.is_empty()) {
        items.push(Item::Known(KnownItem::Message { role: Role::User, content, phase: None }));
    }
}

fn part(block: &Block) -> Option<Value> {
    match block {
        Block::Text(text) if text.is_empty() => None,
        Block::Text(text) => Some(json!({"type": "input_text", "text": text})),
        Block::Image { media_type, data } => {
            let url = format!("data:{media_type};base64,{data}");
            Some(json!({"type": "input_image", "image_url": url, "detail": "auto"}))
        }
        Block::Thinking { .. }
        | Block::ToolUse(_)
        | Block::ToolResult { .. }
        | Block::Opaque(_) => None,
    }
}

/// Pushes an answer in its order. Reasoning that nothing follows, as in an interrupted answer, is left out.
fn push_answer<'a>(message: &'a Message, reasoning: Reasoning, items: &mut Vec<Item<'a>>) {
    let mut phase = None;
    let mut pending = Vec::new();
    for block in &message.content {
        let item = match block {
            Block::Text(text) if !text.is_empty() => KnownItem::Message {
                role: Role::Assistant,
                content: Content::Text(text),
                phase: phase.take(),
            },
            Block::ToolUse(call) => KnownItem::FunctionCall {
                call_id: safe_id(&call.id).into_owned(),
                name: safe_name(&call.name).into_owned(),
                arguments: safe_arguments(&call.arguments).get().to_owned(),
            },
            Block::Opaque(json) if OpaqueOwner::of(json) == OpaqueOwner::OpenAi => {
                match phase_of(json) {
                    Some(found) => phase = Some(found),
                    None => pending.extend(RawValue::from_string(json.clone()).ok()),
                }
                continue;
            }
            _ => continue,
        };
        let reasons = pending.drain(..).filter(|_| reasoning == Reasoning::Sent);
        items.extend(reasons.map(Item::Reasoning));
        items.push(Item::Known(item));
    }
}

/// The phase that a block keeps for the next text; `None` for a reasoning item.
fn phase_of(json: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Phase {
        #[serde(rename = "type")]
        kind: String,
        phase: String,
    }
    let phase: Phase = serde_json::from_str(json).ok()?;
    (phase.kind == PHASE).then_some(phase.phase)
}
