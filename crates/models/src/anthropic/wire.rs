//! Request bodies for Anthropic's Messages API.
//!
//! Cache marks go where the next request will share its prefix with this one: after the instructions, after the
//! tools, and after the last message.

use std::{ops::Range, sync::Arc};

use budao_core::{
    message::{Block, Message, ModelRequest, Role},
    tool::ToolSpec,
};
use serde::Serialize;
use serde_json::{Value, value::RawValue};

use crate::{
    request_body::{WireFormat, json_bytes, role_run_end, write_item},
    wire::{OpaqueOwner, safe_arguments, safe_id, safe_name},
};

/// The smallest thinking budget the service accepts, in tokens.
const THINKING_TOKENS_MIN: u32 = 1_024;

#[derive(Serialize)]
struct Options<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<[ContentPart<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking>,
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

/// The format of requests to a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnthropicFormat<'a> {
    pub(crate) model: &'a str,
}

impl WireFormat for AnthropicFormat<'_> {
    const LIST: &'static str = "messages";

    fn variant(&self) -> u8 {
        0
    }

    fn options(&self, request: &ModelRequest) -> Vec<u8> {
        json_bytes(&options(self.model, request))
    }

    fn tools(&self, request: &ModelRequest) -> Option<Vec<u8>> {
        (!request.tools.is_empty()).then(|| json_bytes(&tools(&request.tools)))
    }

    fn run_end(&self, history: &[Arc<Message>], from: usize) -> usize {
        role_run_end(history, from, |message| message.content.iter().any(is_sent))
    }

    fn write_run(
        &self,
        history: &[Arc<Message>],
        run: Range<usize>,
        is_last: bool,
        out: &mut Vec<u8>,
    ) {
        if let Some(message) = joined(&history[run], is_last) {
            write_item(&message, out);
        }
    }
}

fn options<'a>(model: &'a str, request: &'a ModelRequest) -> Options<'a> {
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
    Options {
        model,
        max_tokens,
        stream: true,
        system: system.map(|text| {
            [ContentPart::Known(KnownPart::Text { text, cache_control: Some(CacheControl {}) })]
        }),
        thinking,
    }
}

/// Whether the request may ask for thinking. The service refuses that in the middle of calls that began without
/// thinking, for example those of another model.
fn may_think(history: &[Arc<Message>]) -> bool {
    let is_result = |block: &Block| matches!(block, Block::ToolResult { .. });
    let asked = |message: &Arc<Message>| {
        message.role == Role::User && !message.content.iter().any(is_result)
    };
    let since_asked = history.iter().rev().take_while(|message| !asked(message));
    let mut blocks = since_asked.flat_map(|message| &message.content).peekable();
    blocks.peek().is_none()
        || blocks.any(|block| match block {
            Block::Thinking { signature, .. } => signature.is_some(),
            Block::Opaque(json) => OpaqueOwner::of(json) == OpaqueOwner::Anthropic,
            _ => false,
        })
}

fn tools<'a>(specs: &'a [Arc<ToolSpec>]) -> Vec<WireTool<'a>> {
    let last = specs.len().saturating_sub(1);
    let tool = |(index, spec): (usize, &'a Arc<ToolSpec>)| WireTool {
        name: &spec.name,
        description: &spec.description,
        input_schema: &spec.schema,
        cache_control: (index == last).then_some(CacheControl {}),
    };
    specs.iter().enumerate().map(tool).collect()
}

/// Joins the messages of a run, with tool results first, because the service requires them directly after the calls.
/// The last one of a request gets the cache mark. `None` if nothing of the run is sent.
fn joined(run: &[Arc<Message>], is_last: bool) -> Option<WireMessage<'_>> {
    let role = run.iter().find(|message| message.content.iter().any(is_sent))?.role;
    let blocks = run.iter().flat_map(|message| &message.content);
    let mut content: Vec<_> = blocks.filter_map(part).collect();
    content.sort_by_key(|part| !matches!(part, ContentPart::Known(KnownPart::ToolResult { .. })));
    if let Some(last) = content.last_mut().filter(|_| is_last) {
        last.mark();
    }
    Some(WireMessage { role, content })
}

fn is_sent(block: &Block) -> bool {
    match block {
        Block::Text(text) => !text.trim().is_empty(),
        Block::Thinking { signature, .. } => signature.is_some(),
        Block::ToolUse(_) | Block::ToolResult { .. } | Block::Image { .. } => true,
        Block::Opaque(_) => part(block).is_some(),
    }
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
