//! `RunAgentInput`: checks a client's version of a thread, and finds the new parts of it.

use budao_core::{
    Fault, Kind,
    ag_ui::AgentInput,
    event::{CommandId, Decision, QuestionId},
    fault::{Fact, Operation},
    message::{Block, CallId},
    remote::{WorkerError, WorkerReport},
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::projector::result_id;
use crate::front_end::{
    FrontEndTool, RunAction, RunAnnotation, Thread, check_id, constraint_fault, turn_of_answer,
};

/// The body of `POST /ag-ui`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunInput {
    pub(super) thread_id: String,
    pub(super) run_id: String,
    pub(super) messages: Vec<InputMessage>,
    #[serde(default)]
    pub(super) tools: Vec<FrontEndTool>,
    #[serde(default)]
    resume: Vec<ResumeEntry>,
    /// For a relayed agent, as `context` and `forwarded_props`.
    #[serde(default)]
    state: Value,
    #[serde(default)]
    context: Value,
    #[serde(default)]
    forwarded_props: Value,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InputMessage {
    id: String,
    role: String,
    #[serde(default)]
    content: Value,
    #[serde(default)]
    tool_call_id: Option<String>,
    #[serde(default)]
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResumeEntry {
    interrupt_id: String,
    status: String,
    #[serde(default)]
    payload: Value,
}

impl RunInput {
    /// Reads the body.
    ///
    /// # Errors
    /// `bad_request` if a field is missing or has another type; `constraint_violated` for ids that are empty or too long.
    pub(super) fn read(body: Map<String, Value>) -> Result<Self, Fault> {
        let input: Self = serde_json::from_value(body.into()).map_err(|error| {
            Fault::new(Kind::BadRequest, Operation::ServeRequest)
                .with(Fact::Field, "body")
                .with(Fact::Expected, "a RunAgentInput of AG-UI 1.0")
                .with(Fact::Received, error.to_string())
        })?;
        check_id("threadId", &input.thread_id)?;
        check_id("runId", &input.run_id)?;
        for message in &input.messages {
            check_id("messages.id", &message.id)?;
        }
        Ok(input)
    }

    /// What the front end gives a relayed agent beside its message; `None` if it gives nothing.
    pub(super) fn agent_input(&self, message: Option<CommandId>) -> Option<AgentInput> {
        let is_empty = |value: &Value| match value {
            Value::Object(map) => map.is_empty(),
            other => other.is_null(),
        };
        let input = AgentInput {
            message,
            state: Some(self.state.clone()).filter(|state| !is_empty(state)),
            context: self.context.as_array().cloned().unwrap_or_default(),
            forwarded_props: self.forwarded_props.as_object().cloned().unwrap_or_default(),
        };
        (!input.is_empty()).then_some(input)
    }

    /// The standing instructions that precede the conversation.
    pub(super) fn system(&self) -> Option<String> {
        let leading = self.messages.iter().take_while(|message| message.is_instruction());
        let texts: Vec<&str> = leading.filter_map(|message| message.content.as_str()).collect();
        (!texts.is_empty()).then(|| texts.join("\n\n"))
    }

    /// Checks that the messages extend a thread of so many turns: every answer of the model is one of its own. Returns
    /// the last turn that the client has seen.
    ///
    /// # Errors
    /// `constraint_violated` for an answer that the thread does not have.
    pub(super) fn check_history(&self, turns: u64) -> Result<u64, Fault> {
        let mut seen = 0;
        for (index, message) in self.messages.iter().enumerate() {
            if message.role != "assistant" {
                continue;
            }
            let turn = turn_of_answer(&message.id).filter(|turn| *turn <= turns);
            seen = turn.ok_or_else(|| {
                let rule = "an answer of this thread, with its id; the thread keeps the history";
                constraint_fault(&format!("messages[{index}].id"), rule, &message.id)
            })?;
        }
        Ok(seen)
    }

    /// The new parts: answers to interrupts, results of calls, and a message, with the annotation of their run.
    ///
    /// # Errors
    /// `constraint_violated` for content that cannot be read; `call_not_open` for a result of a call that was never made.
    pub(super) fn find_new_parts(
        &self,
        thread: &Thread,
    ) -> Result<(Vec<RunAction>, RunAnnotation), Fault> {
        let mut actions = Vec::new();
        let mut annotation = RunAnnotation::new(&self.run_id, None);
        for (index, entry) in self.resume.iter().enumerate() {
            actions.push(entry.to_action(index)?);
        }
        let last_answer = self.messages.iter().rposition(|message| message.role == "assistant");
        let tail = last_answer.map_or(0, |index| index + 1);
        let mut blocks = Vec::new();
        for (index, message) in self.messages.iter().enumerate().skip(tail) {
            match message.role.as_str() {
                "user" => {
                    blocks.extend(message.read_blocks(index)?);
                    annotation.message = Some(message.id.clone());
                }
                "tool" => {
                    let result = message.result(index, thread)?;
                    if let Some(RunAction::Result { call, .. }) = &result {
                        annotation.results.insert(call.clone(), message.id.clone());
                    }
                    actions.extend(result);
                }
                _ => {}
            }
        }
        if !blocks.is_empty() {
            actions.push(RunAction::Message(blocks));
        }
        Ok((actions, annotation))
    }
}

impl ResumeEntry {
    fn to_action(&self, index: usize) -> Result<RunAction, Fault> {
        let field = |name: &str| format!("resume[{index}].{name}");
        let text = |name: &str| self.payload.get(name).and_then(Value::as_str).map(str::to_owned);
        let approved = match (self.status.as_str(), &self.payload) {
            ("cancelled", _) => false,
            ("resolved", Value::Bool(approved)) => *approved,
            ("resolved", payload) => {
                payload.get("approved").and_then(Value::as_bool).ok_or_else(|| {
                    let rule = "an object with `approved`, true or false";
                    constraint_fault(&field("payload"), rule, &payload.to_string())
                })?
            }
            (status, _) => {
                return Err(constraint_fault(&field("status"), "resolved or cancelled", status));
            }
        };
        Ok(RunAction::Answer {
            question: QuestionId(self.interrupt_id.as_str().into()),
            decision: if approved { Decision::Allow } else { Decision::Deny },
            note: text("note").or_else(|| text("reason")),
            arguments: self.payload.get("editedArgs").filter(|edited| edited.is_object()).cloned(),
        })
    }
}

impl InputMessage {
    fn is_instruction(&self) -> bool {
        matches!(self.role.as_str(), "system" | "developer")
    }

    fn read_blocks(&self, index: usize) -> Result<Vec<Block>, Fault> {
        let field = format!("messages[{index}].content");
        match &self.content {
            Value::String(text) => Ok(vec![Block::Text(text.clone())]),
            Value::Array(parts) => parts.iter().map(|part| read_block(&field, part)).collect(),
            other => Err(constraint_fault(&field, "a text or a list of parts", &other.to_string())),
        }
    }

    /// The result of a call that the front end ran; `None` if the thread has it.
    fn result(&self, index: usize, thread: &Thread) -> Result<Option<RunAction>, Fault> {
        let field = format!("messages[{index}].toolCallId");
        let call = self.tool_call_id.as_deref().unwrap_or_default();
        let call = CallId::from(call);
        if self.id == result_id(&call) {
            return Ok(None);
        }
        let result = match &self.content {
            Value::String(text) => {
                serde_json::from_str(text).unwrap_or_else(|_| Value::from(text.as_str()))
            }
            other => other.clone(),
        };
        let report = match &self.error {
            None => WorkerReport::Done { result },
            Some(error) => {
                let message = Some(error.clone());
                WorkerReport::Failed(WorkerError { message, ..WorkerError::default() })
            }
        };
        thread.result_of(&field, call, report)
    }
}

fn read_block(field: &str, part: &Value) -> Result<Block, Fault> {
    let text =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let refused = || {
        constraint_fault(field, "parts of type text, or images with their data", &part.to_string())
    };
    match part.get("type").and_then(Value::as_str) {
        Some("text") => text(part, "text").map(Block::Text).ok_or_else(refused),
        Some("image") => {
            let source = part.get("source").filter(|source| source["type"] == "data");
            let source = source.ok_or_else(refused)?;
            let (data, media_type) = (text(source, "value"), text(source, "mimeType"));
            let (Some(data), Some(media_type)) = (data, media_type) else { return Err(refused()) };
            Ok(Block::Image { media_type, data })
        }
        _ => Err(refused()),
    }
}
