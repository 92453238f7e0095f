//! Answers with a shape: a tool whose arguments are the final answer of a turn.
//!
//! One check serves every way an answer can come: as a call of the tool, as a text that the service shaped itself, or as
//! a text of a model that ignores the tool. So an answer is parsed, repaired, validated and explained like any call.

mod admits;

use std::sync::Arc;

use async_trait::async_trait;
use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    message::{Block, CallId, ModelStop, ToolUse, text_of},
    tool::ToolSpec,
};
use serde_json::{Value, json};

use crate::{
    contract::{CallContext, Tool, ToolResult},
    error::ToolError,
    schema,
    toolbox::Toolbox,
    typed::ToolOptions,
};

/// The name of the tool.
pub const FINAL_ANSWER: &str = "final_answer";

/// The property that holds an answer which is not an object: arguments always are.
const WRAPPED: &str = "answer";

const DESCRIPTION: &str = "Gives the final answer. The arguments are the answer itself. Call this tool alone, once, when \
                           the task is done; do not write the answer as text.";

/// The tool whose arguments are the final answer.
#[derive(Debug)]
pub struct FinalAnswer(Arc<ToolSpec>);

impl FinalAnswer {
    /// Creates the tool for a schema of the answer.
    ///
    /// # Errors
    /// `answer_schema_refused` if the schema is not one, or admits no value.
    pub fn new(schema: &Value) -> Result<Self, Fault> {
        let refused = |reason: String| {
            Fault::new(Kind::AnswerSchemaRefused, Operation::OpenSession).with(Fact::Reason, reason)
        };
        schema::check_shape(schema).map_err(refused)?;
        if admits::admits_nothing(schema) {
            return Err(refused("no value fits it".to_owned()));
        }
        let is_wrapped = !is_object(schema);
        let arguments = if is_wrapped { wrap(schema) } else { schema.clone() };
        let spec = ToolOptions::read_only().quick(true).spec(FINAL_ANSWER, DESCRIPTION, arguments);
        let tool = Self(Arc::new(spec));
        // Compiles the schema.
        let of_answer = |reason: &str| match is_wrapped {
            true => {
                let place = format!("`/properties/{WRAPPED}");
                reason.replacen(&format!("{place}`"), "`/`", 1).replacen(&place, "`", 1)
            }
            false => reason.to_owned(),
        };
        let reason = |fault: &Fault| fault.detail().text(Fact::Reason).map(of_answer);
        let compiled = Toolbox::builder().add_shared(Arc::new(Self(Arc::clone(&tool.0))));
        compiled
            .map(|_| tool)
            .map_err(|fault| refused(reason(&fault).unwrap_or_else(|| fault.to_string())))
    }
}

/// Whether the schema describes objects only.
fn is_object(schema: &Value) -> bool {
    schema["type"] == "object" || (schema.get("type").is_none() && schema["properties"].is_object())
}

/// The schema of an object with the answer as its only property. References still lead to the same places.
fn wrap(schema: &Value) -> Value {
    let mut inner = schema.clone();
    rebase(&mut inner);
    json!({
        "type": "object",
        "properties": { WRAPPED: inner },
        "required": [WRAPPED],
        "additionalProperties": false,
    })
}

fn rebase(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::String(to)) = map.get_mut("$ref")
                && (to == "#" || to.starts_with("#/"))
            {
                *to = format!("#/properties/{WRAPPED}{}", &to[1..]);
            }
            map.values_mut().for_each(rebase);
        }
        Value::Array(items) => items.iter_mut().for_each(rebase),
        _ => {}
    }
}

#[async_trait]
impl Tool for FinalAnswer {
    fn spec(&self) -> Arc<ToolSpec> {
        Arc::clone(&self.0)
    }

    fn quick(&self) -> bool {
        true
    }

    /// Runs only beside other calls: an answer that stands alone ends the turn.
    async fn call(&self, _arguments: Value, _context: &CallContext) -> ToolResult {
        let error = ToolError::new("The final answer was given together with other calls.")
            .advise_model("Read the results of the other calls, then call final_answer alone.");
        Err(error.into_failure(FINAL_ANSWER))
    }
}

/// What the check of an answer found.
#[derive(Debug, PartialEq)]
pub enum ShapedAnswer {
    /// Not the final answer: it has other calls, is empty or is a refusal. The turn goes on as with any answer.
    Unfinished(Vec<Block>),
    /// The final answer. Its only text is the JSON.
    Complete(Vec<Block>),
    /// A final answer that does not fit. Its only call is the one that the fault is about.
    Rejected(Vec<Block>, Fault),
}

impl Toolbox {
    /// Checks an answer against the schema of the tool [`FINAL_ANSWER`], which the toolbox has.
    #[must_use]
    pub fn check_answer(
        &self,
        content: Vec<Block>,
        stop: ModelStop,
        limits: &Limits,
    ) -> ShapedAnswer {
        let mut calls = content.iter().filter_map(|block| match block {
            Block::ToolUse(call) => Some(call),
            _ => None,
        });
        let (text, given) = match (calls.next(), calls.next()) {
            (None, _) if stop == ModelStop::Refusal => return ShapedAnswer::Unfinished(content),
            (None, _) => (text_of(&content), None),
            (Some(call), None) if call.name == FINAL_ANSWER => {
                (call.arguments.clone(), Some(call.id.clone()))
            }
            (Some(_), _) => return ShapedAnswer::Unfinished(content),
        };
        if given.is_none() && text.trim().is_empty() {
            return ShapedAnswer::Unfinished(Vec::new());
        }
        match self.answer_of(&text, limits) {
            Ok(answer) => {
                ShapedAnswer::Complete(with_only(content, Block::Text(answer.to_string())))
            }
            Err(fault) => {
                let id = given.unwrap_or_else(|| CallId::from(FINAL_ANSWER));
                let call = ToolUse { id, name: FINAL_ANSWER.to_owned(), arguments: text };
                ShapedAnswer::Rejected(with_only(content, Block::ToolUse(call)), fault)
            }
        }
    }

    /// The answer in a text, or the fault for the model.
    fn answer_of(&self, text: &str, limits: &Limits) -> Result<Value, Fault> {
        let is_wrapped = self.spec(FINAL_ANSWER).is_some_and(|spec| is_wrapper(&spec.schema));
        let text = without_fence(text);
        let mut checked = self.check_text(FINAL_ANSWER, text.as_bytes(), limits);
        if is_wrapped && checked.is_err() {
            let bare = format!(r#"{{"{WRAPPED}":{text}}}"#);
            checked = self.check_text(FINAL_ANSWER, bare.as_bytes(), limits).or(checked);
        }
        let mut arguments = checked?.arguments().clone();
        Ok(if is_wrapped { arguments[WRAPPED].take() } else { arguments })
    }
}

fn is_wrapper(schema: &Value) -> bool {
    schema["required"] == json!([WRAPPED])
        && schema["properties"].as_object().is_some_and(|it| it.len() == 1)
}

/// The text inside a Markdown fence, if the whole text is one.
fn without_fence(text: &str) -> &str {
    let text = text.trim();
    let inside = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    match inside.and_then(|inside| inside.split_once('\n')) {
        Some((_, inside)) => inside.trim(),
        None => text,
    }
}

/// The answer with `block` in place of its texts and calls. Thinking and the service's own blocks stay in front.
fn with_only(content: Vec<Block>, block: Block) -> Vec<Block> {
    let keeps = |block: &Block| matches!(block, Block::Thinking { .. } | Block::Opaque(_));
    content.into_iter().filter(keeps).chain([block]).collect()
}

#[cfg(test)]
mod tests;
