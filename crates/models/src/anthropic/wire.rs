//! Request bodies for Anthropic's Messages API.
//!
//! Cache marks go where the next request will share its prefix with this one: after the instructions, after the
//! tools, and after the last message.

use budao_core::{
    message::{Block, Message, ModelRequest, Role},
    tool::ToolSpec,
};
use serde::Serialize;
use serde_json::{Value, value::RawValue};

use crate::wire::{OpaqueOwner, safe_arguments, safe_id, safe_name};

/// The smallest thinking budget the service accepts, in tokens.
const THINKING_TOKENS_MIN: u32 = 1_024;

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<[ContentPart<'a>; 1]>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking>,
    messages: Vec<WireMessage<'a>>,
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: Role,
    content: Vec<ContentPart<'a>>,
}

#[derive(Serialize)]
struct WireTool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "enabled")]
struct Thinking {
    budget_tokens: u32,
}

#[derive(Clone, Copy, Serialize)]
#[serde(tag = "type", rename = "ephemeral")]
struct CacheControl {}

#[derive(Serialize)]
#[serde(untagged)]
enum ContentPart<'a> {
    Known(KnownPart<'a>),
    /// An opaque block, sent back as the service's own JSON.
    Raw(Box<RawValue>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum KnownPart<'a> {
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    ToolUse {
        id: String,
        name: String,
        input: Box<RawValue>,
    },
    ToolResult {
        tool_use_id: String,
        content: &'a str,
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Image {
        source: ImageSource<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "base64")]
struct ImageSource<'a> {
    media_type: &'a str,
    data: &'a str,
}

/// Serializes the request body.
pub(crate) fn body(model: &str, request: &ModelRequest) -> Vec<u8> {
    let thinking = request
        .thinking_tokens
        .filter(|_| may_think(&request.messages))
        .map(|tokens| Thinking { budget_tokens: tokens.max(THINKING_TOKENS_MIN) });
    // Thinking counts towards `max_tokens`, so the limit must exceed the thinking budget.
    let asked = request.max_tokens.max(1);
    let max_tokens = match &thinking {
        Some(thinking) if thinking.budget_tokens >= asked => {
            thinking.budget_tokens.saturating_add(asked)
        }
        _ => asked,
    };
    let system = request.system.as_deref().filter(|text| !text.trim().is_empty());
    let body = Body {
        model,
        max_tokens,
        stream: true,
        system: system.map(|text| {
            [ContentPart::Known(KnownPart::Text { text, cache_control: Some(CacheControl {}) })]
        }),
        tools: tools(&request.tools),
        thinking,
        messages: messages(&request.messages),
    };
    serde_json::to_vec(&body).expect("strings, numbers and JSON always serialise")
}

/// Whether the request may ask for thinking. The service refuses that in the middle of calls that began without
/// thinking, for example those of another model.
fn may_think(history: &[Message]) -> bool {
    let is_result = |block: &Block| matches!(block, Block::ToolResult { .. });
    let asked =
        |message: &Message| message.role == Role::User && !message.content.iter().any(is_result);
    let since_asked = history.iter().rev().take_while(|message| !asked(message));
    let mut blocks = since_asked.flat_map(|message| &message.content).peekable();
    blocks.peek().is_none()
        || blocks.any(|block| match block {
            Block::Thinking { signature, .. } => signature.is_some(),
            Block::Opaque(json) => OpaqueOwner::of(json) == OpaqueOwner::Anthropic,
            _ => false,
        })
}

fn tools<'a>(specs: &'a [std::sync::Arc<ToolSpec>]) -> Vec<WireTool<'a>> {
    let last = specs.len().saturating_sub(1);
    let tool = |(index, spec): (usize, &'a std::sync::Arc<ToolSpec>)| WireTool {
        name: &spec.name,
        description: &spec.description,
        input_schema: &spec.schema,
        cache_control: (index == last).then_some(CacheControl {}),
    };
    specs.iter().enumerate().map(tool).collect()
}

/// Converts the history: joins neighbours of the same role, puts tool results first and drops empty messages.
fn messages(history: &[Message]) -> Vec<WireMessage<'_>> {
    let mut messages: Vec<WireMessage<'_>> = Vec::with_capacity(history.len());
    for message in history {
        let content = message.content.iter().filter_map(part);
        match messages.last_mut() {
            Some(last) if last.role == message.role => last.content.extend(content),
            _ => {
                let content: Vec<_> = content.collect();
                if !content.is_empty() {
                    messages.push(WireMessage { role: message.role, content });
                }
            }
        }
    }
    for message in &mut messages {
        // The service requires tool results directly after the calls.
        message
            .content
            .sort_by_key(|part| !matches!(part, ContentPart::Known(KnownPart::ToolResult { .. })));
    }
    if let Some(last) = messages.last_mut().and_then(|message| message.content.last_mut()) {
        last.mark();
    }
    messages
}

fn part(block: &Block) -> Option<ContentPart<'_>> {
    let known = match block {
        Block::Text(text) if text.trim().is_empty() => return None,
        Block::Text(text) => KnownPart::Text { text, cache_control: None },
        // The service refuses a thinking block without its signature.
        Block::Thinking { text, signature } => {
            KnownPart::Thinking { thinking: text, signature: signature.as_deref()? }
        }
        Block::ToolUse(call) => KnownPart::ToolUse {
            id: safe_id(&call.id).into_owned(),
            name: safe_name(&call.name).into_owned(),
            input: safe_arguments(&call.arguments),
        },
        Block::ToolResult { call, is_error, content } => KnownPart::ToolResult {
            tool_use_id: safe_id(call).into_owned(),
            content,
            is_error: *is_error,
            cache_control: None,
        },
        Block::Image { media_type, data } => {
            KnownPart::Image { source: ImageSource { media_type, data }, cache_control: None }
        }
        Block::Opaque(json) if OpaqueOwner::of(json) != OpaqueOwner::Anthropic => return None,
        Block::Opaque(json) => {
            return RawValue::from_string(json.clone()).ok().map(ContentPart::Raw);
        }
    };
    Some(ContentPart::Known(known))
}

impl ContentPart<'_> {
    /// Sets the cache mark at the end of the shared prefix. Some blocks cannot carry a mark.
    fn mark(&mut self) {
        match self {
            Self::Known(
                KnownPart::Text { cache_control, .. }
                | KnownPart::ToolResult { cache_control, .. }
                | KnownPart::Image { cache_control, .. },
            ) => *cache_control = Some(CacheControl {}),
            Self::Known(KnownPart::Thinking { .. } | KnownPart::ToolUse { .. }) | Self::Raw(_) => {}
        }
    }
}
