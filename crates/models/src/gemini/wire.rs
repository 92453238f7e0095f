//! Request bodies for the Gemini API.

use std::{ops::Range, sync::Arc};

use budao_core::message::{Block, CallId, Message, ModelRequest, Role};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

use crate::{
    request_body::{WireFormat, json_bytes, role_run_end, write_item},
    shape::{ShapeForm, split_shape},
    wire::{OpaqueOwner, safe_arguments, safe_id, safe_name},
};

/// The value that the service accepts in place of the signature of a call that another model made.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Options {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Value>,
    generation_config: Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'a> {
    function_declarations: Vec<Declaration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'a> {
    name: &'a str,
    description: &'a str,
    parameters_json_schema: &'a Value,
}

#[derive(Serialize)]
struct Content<'a> {
    role: &'static str,
    parts: Vec<Part<'a>>,
}

#[derive(Serialize)]
struct Part<'a> {
    #[serde(flatten)]
    data: Data<'a>,
    #[serde(rename = "thoughtSignature", skip_serializing_if = "Option::is_none")]
    signature: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Data<'a> {
    Text(&'a str),
    FunctionCall {
        id: String,
        name: String,
        args: Value,
    },
    FunctionResponse {
        id: String,
        name: String,
        response: Value,
    },
    #[serde(rename = "inlineData", rename_all = "camelCase")]
    Inline {
        mime_type: &'a str,
        data: &'a str,
    },
}

/// What a signature signs, as the opaque block has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SignedPart {
    /// The next call or text of the answer.
    Next,
    /// An empty text of its own.
    Empty,
}

#[derive(Deserialize)]
struct Signature {
    on: SignedPart,
    signature: String,
}

/// The format of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GeminiFormat {
    /// The first call of a message that has no signature carries the value that the service accepts instead.
    pub(crate) substitute: bool,
    pub(crate) form: ShapeForm,
}

impl WireFormat for GeminiFormat {
    const LIST: &'static str = "contents";

    fn variant(&self) -> u8 {
        u8::from(self.form == ShapeForm::Native) + 2 * u8::from(self.substitute)
    }

    fn options(&self, request: &ModelRequest) -> Vec<u8> {
        let system = request.system.as_deref().filter(|text| !text.trim().is_empty());
        let shape = split_shape(request, self.form).1;
        json_bytes(&Options {
            system_instruction: system.map(|text| json!({"parts": [{"text": text}]})),
            generation_config: generation_config(request, shape.map(|shape| shape.schema)),
        })
    }

    fn tools(&self, request: &ModelRequest) -> Option<Vec<u8>> {
        let declarations = split_shape(request, self.form).0.map(|spec| Declaration {
            name: &spec.name,
            description: &spec.description,
            parameters_json_schema: &spec.schema,
        });
        let function_declarations: Vec<_> = declarations.collect();
        (!function_declarations.is_empty()).then(|| json_bytes(&[Tools { function_declarations }]))
    }

    fn run_end(&self, history: &[Arc<Message>], from: usize) -> usize {
        role_run_end(history, from, |message| {
            message.content.iter().any(|block| is_sent(message.role, block))
        })
    }

    fn write_run(&self, history: &[Arc<Message>], run: Range<usize>, _: bool, out: &mut Vec<u8>) {
        if let Some(content) = joined(history, run, self.substitute) {
            write_item(&content, out);
        }
    }
}

/// Thinking counts towards the limit, so it comes on top of the answer's tokens.
fn generation_config(request: &ModelRequest, schema: Option<&Value>) -> Value {
    let thinking = request.thinking_tokens.unwrap_or_default();
    let tokens = request.max_tokens.max(1).saturating_add(thinking);
    let mut config = match request.thinking_tokens {
        Some(budget) => json!({
            "maxOutputTokens": tokens,
            "thinkingConfig": {"includeThoughts": true, "thinkingBudget": budget},
        }),
        None => json!({"maxOutputTokens": tokens}),
    };
    if let Some(schema) = schema {
        config["responseMimeType"] = "application/json".into();
        config["responseJsonSchema"] = schema.clone();
    }
    config
}

/// Joins the messages of a run, with results first, because the service requires them directly after the calls. `None`
/// if nothing of the run is sent.
fn joined(history: &[Arc<Message>], run: Range<usize>, substitute: bool) -> Option<Content<'_>> {
    let (mut role, mut parts) = ("user", Vec::new());
    for index in run {
        let message = &history[index];
        let (of_message, name) = match message.role {
            Role::User => (user_parts(message, &history[..index]), "user"),
            Role::Assistant => (answer_parts(message, substitute), "model"),
        };
        if !of_message.is_empty() {
            role = name;
            parts.extend(of_message);
        }
    }
    parts.sort_by_key(|part| !matches!(part.data, Data::FunctionResponse { .. }));
    (!parts.is_empty()).then_some(Content { role, parts })
}

fn is_sent(role: Role, block: &Block) -> bool {
    match (role, block) {
        (_, Block::Text(text)) => !text.is_empty(),
        (Role::User, Block::Image { .. } | Block::ToolResult { .. })
        | (Role::Assistant, Block::ToolUse(_)) => true,
        (Role::Assistant, Block::Opaque(json)) => {
            matches!(signature(json), Some(Signature { on: SignedPart::Empty, .. }))
        }
        _ => false,
    }
}

/// The signature that an opaque block holds; `None` if the block is another service's.
fn signature(json: &str) -> Option<Signature> {
    let is_own = OpaqueOwner::of(json) == OpaqueOwner::Gemini;
    is_own.then(|| serde_json::from_str(json).ok()).flatten()
}

/// The name of the tool that a call before this message used.
fn name_of<'a>(call: &CallId, before: &'a [Arc<Message>]) -> &'a str {
    let blocks = before.iter().rev().flat_map(|message| message.content.iter().rev());
    let mut names = blocks.filter_map(|block| match block {
        Block::ToolUse(made) if made.id == *call => Some(&*made.name),
        _ => None,
    });
    names.next().unwrap_or_default()
}

fn user_parts<'a>(message: &'a Message, before: &[Arc<Message>]) -> Vec<Part<'a>> {
    let part = |block: &'a Block| {
        let data = match block {
            Block::Text(text) if !text.is_empty() => Data::Text(text),
            Block::Image { media_type, data } => Data::Inline { mime_type: media_type, data },
            Block::ToolResult { call, content, .. } => Data::FunctionResponse {
                id: safe_id(call).into_owned(),
                name: safe_name(name_of(call, before)).into_owned(),
                response: object(content),
            },
            _ => return None,
        };
        Some(Part { data, signature: None })
    };
    message.content.iter().filter_map(part).collect()
}

/// The content of a result as the object that the service requires.
fn object(content: &str) -> Value {
    let value = serde_json::from_str(content).ok().filter(Value::is_object);
    value.unwrap_or_else(|| json!({"output": content}))
}

fn answer_parts(message: &Message, substitute: bool) -> Vec<Part<'_>> {
    let mut parts: Vec<Part<'_>> = Vec::with_capacity(message.content.len());
    let (mut signature, mut called) = (None, false);
    for block in &message.content {
        match block {
            Block::Text(text) if !text.is_empty() => {
                parts.push(Part { data: Data::Text(text), signature: signature.take() });
            }
            Block::ToolUse(call) => {
                let missing = substitute && !std::mem::replace(&mut called, true);
                let substitute = missing.then(|| NO_SIGNATURE.to_owned());
                let data = Data::FunctionCall {
                    id: safe_id(&call.id).into_owned(),
                    name: safe_name(&call.name).into_owned(),
                    args: arguments(&safe_arguments(&call.arguments)),
                };
                parts.push(Part { data, signature: signature.take().or(substitute) });
            }
            Block::Opaque(json) => match self::signature(json) {
                Some(Signature { on: SignedPart::Empty, signature }) => {
                    parts.push(Part { data: Data::Text(""), signature: Some(signature) });
                }
                Some(Signature { on: SignedPart::Next, signature: next }) => signature = Some(next),
                None => {}
            },
            _ => {}
        }
    }
    parts
}

fn arguments(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap_or_else(|_| json!({}))
}
