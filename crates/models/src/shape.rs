//! Answers with a shape on the wire: the service's own option if it has one, else a tool whose arguments are the answer.
//!
//! A service that refuses the schema as its own option is asked once more with the tool; the refused request cost
//! nothing. So is one that ignored the option: the answer before was refused.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    message::{Block, ModelRequest, Role},
    tool::ToolSpec,
};
use serde_json::Value;

use crate::{endpoint::RequestError, failure::ErrorResponse};

/// Remembers the schema that a service refused as its own option last.
#[derive(Clone, Debug, Default)]
pub(crate) struct RefusedShape(Arc<AtomicU64>);

impl RefusedShape {
    /// Sends a request in the form that suits it, and once more with the tool if the service refuses the schema.
    pub(crate) async fn send<T, R>(
        &self,
        request: &ModelRequest,
        preferred: ShapeForm,
        post: impl Fn(ShapeForm) -> R,
    ) -> Result<T, RequestError>
    where
        R: Future<Output = Result<T, RequestError>>,
    {
        let Some(answer) = &request.answer else { return post(ShapeForm::Tool).await };
        let hash = hash(&answer.schema);
        let is_refused = self.0.load(Ordering::Relaxed) == hash || was_rejected(request, answer);
        if preferred == ShapeForm::Native && !is_refused {
            match post(ShapeForm::Native).await {
                Err(error) if refuses_shape(&error) => {
                    tracing::warn!(refusal = %error.fault, "the service refuses the schema of the answer; asking for a tool call instead");
                    self.0.store(hash, Ordering::Relaxed);
                }
                sent => return sent,
            }
        }
        match post(ShapeForm::Tool).await {
            Err(error) if refuses_shape(&error) => Err(shape_refused(error)),
            sent => sent,
        }
    }
}

fn hash(schema: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    schema.to_string().hash(&mut hasher);
    hasher.finish()
}

/// Whether the last answer was a final one that did not fit.
fn was_rejected(request: &ModelRequest, answer: &ToolSpec) -> bool {
    let last = request.messages.iter().rev().find(|message| message.role == Role::Assistant);
    let is_answer =
        |block: &Block| matches!(block, Block::ToolUse(call) if *call.name == *answer.name);
    last.is_some_and(|message| message.content.iter().any(is_answer))
}

/// The schema of the final answer as a service's own option.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NativeShape<'a> {
    pub(crate) name: &'a str,
    pub(crate) schema: &'a Value,
    /// Whether the schema follows the rules of services that enforce it while the model writes.
    pub(crate) is_strict: bool,
}

/// How a request asks for an answer with a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShapeForm {
    /// By the service's own option; the tool is not offered.
    Native,
    /// By the tool whose arguments are the answer.
    Tool,
}

/// The tools of a request and, in the native form, the schema in place of the tool for the final answer.
pub(crate) fn split_shape(
    request: &ModelRequest,
    form: ShapeForm,
) -> (impl Iterator<Item = &Arc<ToolSpec>>, Option<NativeShape<'_>>) {
    let answer = request.answer.as_ref().filter(|_| form == ShapeForm::Native);
    let tools = request.tools.iter();
    let tools = tools.filter(move |tool| answer.is_none_or(|answer| answer.name != tool.name));
    let shape = answer.map(|spec| NativeShape {
        name: &spec.name,
        schema: &spec.schema,
        is_strict: is_strict(&spec.schema),
    });
    (tools, shape)
}

/// Whether every object of a schema names all its properties as required and admits no others, and no keyword is used
/// that services do not enforce.
fn is_strict(schema: &Value) -> bool {
    const KNOWN: [&str; 12] = [
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "const",
        "anyOf",
        "description",
        "title",
        "minimum",
        "maximum",
    ];
    let Some(map) = schema.as_object() else { return false };
    let parts = |key: &str| map.get(key).and_then(Value::as_array).into_iter().flatten();
    let properties = map.get("properties").and_then(Value::as_object);
    let is_closed = properties.is_none_or(|properties| {
        let required: Vec<_> = parts("required").filter_map(Value::as_str).collect();
        map.get("additionalProperties") == Some(&Value::Bool(false))
            && properties.keys().all(|name| required.contains(&name.as_str()))
    });
    let is_open_object = properties.is_none() && schema["type"] == "object";
    is_closed
        && !is_open_object
        && map.keys().all(|key| KNOWN.contains(&key.as_str()))
        && properties.into_iter().flat_map(|all| all.values()).all(is_strict)
        && parts("anyOf").all(is_strict)
        && map.get("items").is_none_or(is_strict)
}

/// The fault for a service that refuses the schema of the answer in every form.
pub(crate) fn shape_refused(error: RequestError) -> RequestError {
    let reason = error.fault.causes().first().cloned().unwrap_or_default();
    let detail = error.fault.detail();
    let named = |fact| detail.text(fact).unwrap_or_default().to_owned();
    let fault = Fault::new(Kind::AnswerSchemaRefused, Operation::ModelRequest)
        .with(Fact::Service, named(Fact::Service))
        .with(Fact::Model, named(Fact::Model))
        .with(Fact::Reason, "it does not take this schema, also not as the schema of a tool")
        .with_cause(reason);
    RequestError { fault, ..error }
}

/// Whether a refusal is about the schema of the answer.
pub(crate) fn refuses_shape(error: &RequestError) -> bool {
    let complains = |response: &ErrorResponse| {
        ["response_format", "text.format", "text.format.schema"]
            .iter()
            .any(|param| response.is_complaint(param, &[]))
            || response.is_complaint("invalid_json_schema", &[])
            || [
                &["response_format"][..],
                &["input_schema"],
                &["function parameters"],
                &["text.format"],
                &["json_schema"],
                &["invalid schema"],
                &["responsejsonschema"],
                &["response_json_schema"],
                &["responseschema"],
                &["response schema"],
                &["response mime type"],
                &["structured output"],
            ]
            .iter()
            .any(|phrases| response.is_complaint("", phrases))
    };
    error.response.as_ref().is_some_and(complains)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_strict_if_every_object_is_closed_and_complete() {
        for (schema, expected) in [
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false}),
                true,
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
                false,
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": [], "additionalProperties": false}),
                false,
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "object"}}, "required": ["a"], "additionalProperties": false}),
                false,
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}, "required": ["a"], "additionalProperties": false}),
                false,
            ),
            (
                json!({"type": "array", "items": {"type": "object", "properties": {}, "required": [], "additionalProperties": false}}),
                true,
            ),
        ] {
            assert_eq!(is_strict(&schema), expected, "{schema}");
        }
    }
}
