//! Request bodies for the Gemini API.

use std::collections::HashMap;

use budao_core::message::{Block, CallId, Message, ModelRequest, Role};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

use crate::{
    shape::{ShapeForm, split_shape},
    wire::{OpaqueOwner, safe_arguments, safe_id, safe_name},
};

/// The value that the service accepts in place of the signature of a call that another model made.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Value>,
    generation_config: Value,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tools<'a>>,
    contents: Vec<Content<'a>>,
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

/// Serializes the request body. With `substitute`, the first call of a message that has no signature carries the value
/// that the service accepts instead.
pub(crate) fn body(request: &ModelRequest, substitute: bool, form: ShapeForm) -> Vec<u8> {
    let system = request.system.as_deref().filter(|text| !text.trim().is_empty());
    let (tools, shape) = split_shape(request, form);
    let declarations = tools.map(|spec| Declaration {
        name: &spec.name,
        description: &spec.description,
        parameters_json_schema: &spec.schema,
    });
    let function_declarations: Vec<_> = declarations.collect();
    let tools = (!function_declarations.is_empty()).then_some(Tools { function_declarations });
    let body = Body {
        system_instruction: system.map(|text| json!({"parts": [{"text": text}]})),
        generation_config: generation_config(request, shape.map(|shape| shape.schema)),
        tools: tools.into_iter().collect(),
        contents: contents(&request.messages, substitute),
    };
    serde_json::to_vec(&body).expect("strings, numbers and JSON always serialise")
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

/// Converts the history: joins neighbours of the same role and puts results of calls first.
fn contents(history: &[Message], substitute: bool) -> Vec<Content<'_>> {
    let mut names = HashMap::new();
    let mut contents: Vec<Content<'_>> = Vec::with_capacity(history.len());
    for message in history {
        let (role, parts) = match message.role {
            Role::User => ("user", user_parts(message, &names)),
            Role::Assistant => ("model", answer_parts(message, substitute, &mut names)),
        };
        match contents.last_mut() {
            _ if parts.is_empty() => {}
            Some(last) if last.role == role => last.parts.extend(parts),
            _ => contents.push(Content { role, parts }),
        }
    }
    for content in &mut contents {
        // The service requires the results directly after the calls.
        content.parts.sort_by_key(|part| !matches!(part.data, Data::FunctionResponse { .. }));
    }
    contents
}

fn user_parts<'a>(message: &'a Message, names: &HashMap<&CallId, &'a str>) -> Vec<Part<'a>> {
    let part = |block: &'a Block| {
        let data = match block {
            Block::Text(text) if !text.is_empty() => Data::Text(text),
            Block::Image { media_type, data } => Data::Inline { mime_type: media_type, data },
            Block::ToolResult { call, content, .. } => Data::FunctionResponse {
                id: safe_id(call).into_owned(),
                name: safe_name(names.get(call).copied().unwrap_or_default()).into_owned(),
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

fn answer_parts<'a>(
    message: &'a Message,
    substitute: bool,
    names: &mut HashMap<&'a CallId, &'a str>,
) -> Vec<Part<'a>> {
    let mut parts: Vec<Part<'a>> = Vec::with_capacity(message.content.len());
    let (mut signature, mut called) = (None, false);
    for block in &message.content {
        match block {
            Block::Text(text) if !text.is_empty() => {
                parts.push(Part { data: Data::Text(text), signature: signature.take() });
            }
            Block::ToolUse(call) => {
                names.insert(&call.id, &call.name);
                let missing = substitute && !std::mem::replace(&mut called, true);
                let substitute = missing.then(|| NO_SIGNATURE.to_owned());
                let data = Data::FunctionCall {
                    id: safe_id(&call.id).into_owned(),
                    name: safe_name(&call.name).into_owned(),
                    args: arguments(&safe_arguments(&call.arguments)),
                };
                parts.push(Part { data, signature: signature.take().or(substitute) });
            }
            Block::Opaque(json) if OpaqueOwner::of(json) == OpaqueOwner::Gemini => {
                match serde_json::from_str::<Signature>(json) {
                    Ok(Signature { on: SignedPart::Empty, signature }) => {
                        parts.push(Part { data: Data::Text(""), signature: Some(signature) });
                    }
                    Ok(Signature { on: SignedPart::Next, signature: next }) => {
                        signature = Some(next);
                    }
                    Err(_) => {}
                }
            }
            _ => {}
        }
    }
    parts
}

fn arguments(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap_or_else(|_| json!({}))
}
