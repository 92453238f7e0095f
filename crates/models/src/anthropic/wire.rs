//! A request in Anthropic's words.
//!
//! Cache marks stand where the beginning of the next request will be the same as this one's: after the
//! instructions, after the tools, and after the last message.

use budao_core::{
    message::{Block, Message, Request, Role},
    tool::ToolSpec,
};
use serde::Serialize;
use serde_json::{Value, value::RawValue};

use crate::wire::{safe_arguments, safe_name};

/// The least a model may be given to think.
const THINKING_TOKENS_MIN: u32 = 1_024;

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<[Part<'a>; 1]>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking>,
    messages: Vec<Said<'a>>,
}

#[derive(Serialize)]
struct Said<'a> {
    role: Role,
    content: Vec<Part<'a>>,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Mark>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "enabled")]
struct Thinking {
    budget_tokens: u32,
}

#[derive(Clone, Copy, Serialize)]
#[serde(tag = "type", rename = "ephemeral")]
struct Mark {}

#[derive(Serialize)]
#[serde(untagged)]
enum Part<'a> {
    Known(Known<'a>),
    /// Sent back as it came.
    Raw(Box<RawValue>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Known<'a> {
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Mark>,
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
        cache_control: Option<Mark>,
    },
    Image {
        source: Picture<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Mark>,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "base64")]
struct Picture<'a> {
    media_type: &'a str,
    data: &'a str,
}

/// The bytes to send.
pub(super) fn body(model: &str, request: &Request) -> Vec<u8> {
    let thinking = request
        .thinking_tokens
        .map(|tokens| Thinking { budget_tokens: tokens.max(THINKING_TOKENS_MIN) });
    // Thinking counts as part of the answer, and must leave room for one.
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
        system: system
            .map(|text| [Part::Known(Known::Text { text, cache_control: Some(Mark {}) })]),
        tools: tools(&request.tools),
        thinking,
        messages: messages(&request.messages),
    };
    serde_json::to_vec(&body).expect("strings, numbers and JSON always serialise")
}

fn tools<'a>(specs: &'a [std::sync::Arc<ToolSpec>]) -> Vec<Tool<'a>> {
    let last = specs.len().saturating_sub(1);
    let tool = |(index, spec): (usize, &'a std::sync::Arc<ToolSpec>)| Tool {
        name: &spec.name,
        description: &spec.description,
        input_schema: &spec.schema,
        cache_control: (index == last).then_some(Mark {}),
    };
    specs.iter().enumerate().map(tool).collect()
}

/// The conversation: neighbours of one role joined, results first, nothing empty.
fn messages(history: &[Message]) -> Vec<Said<'_>> {
    let mut messages: Vec<Said<'_>> = Vec::with_capacity(history.len());
    for message in history {
        let content = message.content.iter().filter_map(part);
        match messages.last_mut() {
            Some(last) if last.role == message.role => last.content.extend(content),
            _ => {
                let content: Vec<_> = content.collect();
                if !content.is_empty() {
                    messages.push(Said { role: message.role, content });
                }
            }
        }
    }
    for message in &mut messages {
        // The results of calls must stand right behind the calls.
        message.content.sort_by_key(|part| !matches!(part, Part::Known(Known::ToolResult { .. })));
    }
    if let Some(last) = messages.last_mut().and_then(|message| message.content.last_mut()) {
        last.mark();
    }
    messages
}

fn part(block: &Block) -> Option<Part<'_>> {
    let known = match block {
        Block::Text(text) if text.trim().is_empty() => return None,
        Block::Text(text) => Known::Text { text, cache_control: None },
        // Without its seal the service would refuse it.
        Block::Thinking { text, signature } => {
            Known::Thinking { thinking: text, signature: signature.as_deref()? }
        }
        Block::ToolUse(call) => Known::ToolUse {
            id: safe_name(&call.id.0).into_owned(),
            name: safe_name(&call.name).into_owned(),
            input: safe_arguments(&call.arguments),
        },
        Block::ToolResult { call, is_error, content } => Known::ToolResult {
            tool_use_id: safe_name(&call.0).into_owned(),
            content,
            is_error: *is_error,
            cache_control: None,
        },
        Block::Image { media_type, data } => {
            Known::Image { source: Picture { media_type, data }, cache_control: None }
        }
        Block::Opaque(json) => return RawValue::from_string(json.clone()).ok().map(Part::Raw),
    };
    Some(Part::Known(known))
}

impl Part<'_> {
    /// Marks the end of what the next request will repeat. Some blocks cannot be marked.
    fn mark(&mut self) {
        match self {
            Self::Known(
                Known::Text { cache_control, .. }
                | Known::ToolResult { cache_control, .. }
                | Known::Image { cache_control, .. },
            ) => *cache_control = Some(Mark {}),
            Self::Known(Known::Thinking { .. } | Known::ToolUse { .. }) | Self::Raw(_) => {}
        }
    }
}
