//! Request bodies for chat completions.

use budao_core::message::{Block, Message, ModelRequest, Role, text_of};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    shape::{NativeShape, ShapeForm, split_shape},
    wire::{safe_arguments, safe_id, safe_name},
};

/// The server family. The official service renamed `max_tokens`; not all compatible servers know the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Official,
    Compatible,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    messages: Vec<WireMessage<'a>>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "function")]
struct WireTool<'a> {
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum WireMessage<'a> {
    System {
        content: &'a str,
    },
    User {
        content: Content,
    },
    Assistant {
        content: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<WireCall>,
    },
    Tool {
        tool_call_id: String,
        content: &'a str,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Value>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "function")]
struct WireCall {
    id: String,
    function: WireFunction,
}

#[derive(Serialize)]
struct WireFunction {
    name: String,
    arguments: String,
}

/// Serializes the request body. `no_reasoning` turns the model's reasoning off for a request with tools.
pub(super) fn body(
    model: &str,
    request: &ModelRequest,
    dialect: Dialect,
    no_reasoning: bool,
    form: ShapeForm,
) -> Vec<u8> {
    let tokens = Some(request.max_tokens.max(1));
    let (max_tokens, max_completion_tokens) = match dialect {
        Dialect::Official => (None, tokens),
        Dialect::Compatible => (tokens, None),
    };
    let system = request.system.as_deref().filter(|text| !text.trim().is_empty());
    let mut messages: Vec<_> =
        system.map(|content| WireMessage::System { content }).into_iter().collect();
    for message in request.messages.iter() {
        match message.role {
            Role::User => push_user_message(message, &mut messages),
            Role::Assistant => messages.extend(assistant_message(message)),
        }
    }
    let (tools, shape) = split_shape(request, form);
    let tools = tools.map(|spec| WireTool {
        function: Function {
            name: &spec.name,
            description: &spec.description,
            parameters: &spec.schema,
        },
    });
    let tools: Vec<_> = tools.collect();
    let body = Body {
        model,
        stream: true,
        stream_options: StreamOptions { include_usage: true },
        prompt_cache_key: match dialect {
            Dialect::Official => request.cache_key.as_deref(),
            Dialect::Compatible => None,
        },
        max_tokens,
        max_completion_tokens,
        reasoning_effort: (no_reasoning && !tools.is_empty()).then_some("none"),
        response_format: shape.map(response_format),
        tools,
        messages,
    };
    serde_json::to_vec(&body).expect("strings, numbers and JSON always serialise")
}

fn response_format(shape: NativeShape<'_>) -> Value {
    let NativeShape { name, schema, is_strict } = shape;
    let json_schema = json!({"name": name, "schema": schema, "strict": is_strict});
    json!({"type": "json_schema", "json_schema": json_schema})
}

/// Pushes tool results as messages of their own first, then the user's text.
fn push_user_message<'a>(message: &'a Message, messages: &mut Vec<WireMessage<'a>>) {
    for block in &message.content {
        if let Block::ToolResult { call, content, .. } = block {
            let tool_call_id = safe_id(call).into_owned();
            messages.push(WireMessage::Tool { tool_call_id, content });
        }
    }
    let has_images = message.content.iter().any(|block| matches!(block, Block::Image { .. }));
    let text = text_of(&message.content);
    if has_images {
        let parts = message.content.iter().filter_map(part).collect();
        messages.push(WireMessage::User { content: Content::Parts(parts) });
    } else if !text.is_empty() {
        messages.push(WireMessage::User { content: Content::Text(text) });
    }
}

fn part(block: &Block) -> Option<Value> {
    match block {
        Block::Text(text) => Some(json!({"type": "text", "text": text})),
        Block::Image { media_type, data } => {
            let url = format!("data:{media_type};base64,{data}");
            Some(json!({"type": "image_url", "image_url": {"url": url}}))
        }
        Block::Thinking { .. }
        | Block::ToolUse(_)
        | Block::ToolResult { .. }
        | Block::Opaque(_) => None,
    }
}

/// The assistant's text and calls. Thinking is omitted, because most servers refuse the field.
fn assistant_message<'a>(message: &Message) -> Option<WireMessage<'a>> {
    let tool_calls: Vec<_> = message
        .content
        .iter()
        .filter_map(|block| match block {
            Block::ToolUse(call) => Some(WireCall {
                id: safe_id(&call.id).into_owned(),
                function: WireFunction {
                    name: safe_name(&call.name).into_owned(),
                    arguments: safe_arguments(&call.arguments).get().to_owned(),
                },
            }),
            _ => None,
        })
        .collect();
    let content = Some(text_of(&message.content)).filter(|text| !text.is_empty());
    (content.is_some() || !tool_calls.is_empty())
        .then_some(WireMessage::Assistant { content, tool_calls })
}
