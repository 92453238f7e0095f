//! Request bodies for chat completions.

use std::{ops::Range, sync::Arc};

use budao_core::message::{Block, Message, ModelRequest, Role, text_of};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    request_body::{WireFormat, json_bytes, write_item},
    shape::{NativeShape, ShapeForm, split_shape},
    wire::{safe_arguments, safe_id, safe_name},
};

/// The server family. The official service renamed `max_tokens`; not all compatible servers know the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Official,
    Compatible,
}

#[derive(Serialize)]
struct Options<'a> {
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

/// The format of requests to a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChatFormat<'a> {
    pub(crate) model: &'a str,
    pub(crate) dialect: Dialect,
    /// Whether the request names its session for the service's cache.
    pub(crate) has_cache_key: bool,
    /// Turns the model's reasoning off for a request with tools.
    pub(crate) no_reasoning: bool,
    pub(crate) form: ShapeForm,
}

impl WireFormat for ChatFormat<'_> {
    const LIST: &'static str = "messages";

    fn variant(&self) -> u8 {
        u8::from(self.form == ShapeForm::Native)
    }

    fn options(&self, request: &ModelRequest) -> Vec<u8> {
        let tokens = Some(request.max_tokens.max(1));
        let (max_tokens, max_completion_tokens) = match self.dialect {
            Dialect::Official => (None, tokens),
            Dialect::Compatible => (tokens, None),
        };
        let (mut tools, shape) = split_shape(request, self.form);
        json_bytes(&Options {
            model: self.model,
            stream: true,
            stream_options: StreamOptions { include_usage: true },
            prompt_cache_key: request.cache_key.as_deref().filter(|_| self.has_cache_key),
            max_tokens,
            max_completion_tokens,
            reasoning_effort: (self.no_reasoning && tools.next().is_some()).then_some("none"),
            response_format: shape.map(response_format),
        })
    }

    fn tools(&self, request: &ModelRequest) -> Option<Vec<u8>> {
        let tools = split_shape(request, self.form).0.map(|spec| WireTool {
            function: Function {
                name: &spec.name,
                description: &spec.description,
                parameters: &spec.schema,
            },
        });
        let tools: Vec<_> = tools.collect();
        (!tools.is_empty()).then(|| json_bytes(&tools))
    }

    fn write_first(&self, request: &ModelRequest, out: &mut Vec<u8>) {
        if let Some(content) = request.system.as_deref().filter(|text| !text.trim().is_empty()) {
            write_item(&WireMessage::System { content }, out);
        }
    }

    fn write_run(&self, history: &[Arc<Message>], run: Range<usize>, _: bool, out: &mut Vec<u8>) {
        for message in &history[run] {
            match message.role {
                Role::User => write_user_message(message, out),
                Role::Assistant => {
                    if let Some(message) = assistant_message(message) {
                        write_item(&message, out);
                    }
                }
            }
        }
    }
}

fn response_format(shape: NativeShape<'_>) -> Value {
    let NativeShape { name, schema, is_strict } = shape;
    let json_schema = json!({"name": name, "schema": schema, "strict": is_strict});
    json!({"type": "json_schema", "json_schema": json_schema})
}

/// Writes tool results as messages of their own first, then the user's text.
fn write_user_message(message: &Message, out: &mut Vec<u8>) {
    for block in &message.content {
        if let Block::ToolResult { call, content, .. } = block {
            let tool_call_id = safe_id(call).into_owned();
            write_item(&WireMessage::Tool { tool_call_id, content }, out);
        }
    }
    let has_images = message.content.iter().any(|block| matches!(block, Block::Image { .. }));
    let text = text_of(&message.content);
    if has_images {
        let parts = message.content.iter().filter_map(part).collect();
        write_item(&WireMessage::User { content: Content::Parts(parts) }, out);
    } else if !text.is_empty() {
        write_item(&WireMessage::User { content: Content::Text(text) }, out);
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
