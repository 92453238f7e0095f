//! The body that `useChat` posts: reads it and finds the new parts.

use budao_core::{
    Fault, Kind,
    event::{Decision, QuestionId, StopReason},
    fault::{Fact, Operation},
    message::{Block, CallId},
    remote::{WorkerError, WorkerReport},
};
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::front_end::{
    FrontEndTool, RunAction, RunAnnotation, Submission, Thread, check_id, constraint_fault,
    turn_of_answer,
};

/// The body of `POST /api/chat`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChatInput {
    pub(super) id: String,
    pub(super) messages: Vec<UiMessage>,
    #[serde(default)]
    trigger: Option<String>,
    /// Tools that the page runs; `useChat` sends them if its `body` option has them.
    #[serde(default)]
    pub(super) tools: Option<Vec<FrontEndTool>>,
}

/// A message as the client has it.
#[derive(Debug, Deserialize)]
pub(super) struct UiMessage {
    id: String,
    role: String,
    #[serde(default)]
    parts: Vec<Value>,
}

impl ChatInput {
    /// Reads the body.
    ///
    /// # Errors
    /// `bad_request` if a field is missing or has another type.
    pub(super) fn read(body: Map<String, Value>) -> Result<Self, Fault> {
        if !body.contains_key("id") {
            let rule =
                "the chat's id; WorkflowChatTransport sends it with prepareSendMessagesRequest";
            return Err(constraint_fault("id", rule, ""));
        }
        let input: Self = serde_json::from_value(body.into()).map_err(|error| {
            Fault::new(Kind::BadRequest, Operation::ServeRequest)
                .with(Fact::Field, "body")
                .with(Fact::Expected, "the body that useChat sends: id, messages, trigger")
                .with(Fact::Received, error.to_string())
        })?;
        check_id("id", &input.id)?;
        for message in &input.messages {
            check_id("messages.id", &message.id)?;
        }
        Ok(input)
    }

    /// The text of the leading system message.
    pub(super) fn system(&self) -> Option<String> {
        let first = self.messages.first().filter(|message| message.role == "system")?;
        let texts = first.parts.iter().filter_map(|part| part.get("text")?.as_str());
        Some(texts.collect())
    }

    /// The new parts as a run. The run's id is the id of the user's message, or is derived from the answers.
    ///
    /// # Errors
    /// `constraint_violated` for messages that do not extend the chat.
    pub(super) fn submission(&self, thread: &Thread) -> Result<Submission, Fault> {
        let last = self
            .messages
            .last()
            .ok_or_else(|| constraint_fault("messages", "at least one", "[]"))?;
        if self.trigger.as_deref() == Some("regenerate-message") {
            return regenerate(thread);
        }
        match last.role.as_str() {
            "user" => {
                let blocks = last
                    .parts
                    .iter()
                    .filter_map(read_block)
                    .collect::<Result<Vec<Block>, Fault>>()?;
                if blocks.is_empty() {
                    return Err(constraint_fault("messages.parts", "text or pictures", &last.id));
                }
                let annotation = RunAnnotation::new(&last.id, Some(last.id.clone()));
                let actions =
                    thread.complete_actions(&last.id, vec![RunAction::Message(blocks)])?;
                Ok(Submission { annotation, actions })
            }
            "assistant" => last.read_answers(thread),
            role => Err(constraint_fault("messages.role", "user or assistant", role)),
        }
    }

    /// Checks that the messages extend a chat of so many turns: every answer of the model is one of its own.
    ///
    /// # Errors
    /// `constraint_violated` for an answer that the chat does not have.
    pub(super) fn check_history(&self, turns: u64) -> Result<(), Fault> {
        for (index, message) in self.messages.iter().enumerate() {
            let is_known = turn_of_answer(&message.id).is_some_and(|turn| turn <= turns);
            if message.role == "assistant" && !is_known {
                let rule = "an answer of this chat, with its id; the chat keeps the history";
                return Err(constraint_fault(&format!("messages[{index}].id"), rule, &message.id));
            }
        }
        Ok(())
    }
}

/// Only a failed turn can be asked again: the history is never rewritten.
fn regenerate(thread: &Thread) -> Result<Submission, Fault> {
    let failed = thread.state.last.as_ref().filter(|last| last.stop == StopReason::Failed);
    match (failed, thread.is_idle()) {
        (Some(last), true) => {
            let annotation = RunAnnotation::new(format!("retry-{}", last.number), None);
            Ok(Submission { annotation, actions: vec![RunAction::Retry] })
        }
        _ => {
            let rule = "submit-message; regenerate-message continues a failed turn only";
            Err(constraint_fault("trigger", rule, "regenerate-message"))
        }
    }
}

impl UiMessage {
    /// The answers and results that the client added to a message of the model.
    fn read_answers(&self, thread: &Thread) -> Result<Submission, Fault> {
        let mut answers = Vec::new();
        for part in &self.parts {
            answers.extend(read_answer(part, thread)?);
        }
        if answers.is_empty() {
            let rule = "a new message, an answer to a question or the result of a call";
            return Err(constraint_fault("messages", rule, &self.id));
        }
        let digest = Sha256::digest(format!("{answers:?}"));
        let name: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        let annotation = RunAnnotation::new(format!("{}-{name}", self.id), None);
        Ok(Submission { annotation, actions: answers })
    }
}

/// The answer or the result in a part of a message; `None` if the chat has it.
fn read_answer(part: &Value, thread: &Thread) -> Result<Option<RunAction>, Fault> {
    let text = |name: &str| part.get(name).and_then(Value::as_str);
    let (Some(state), Some(call)) = (text("state"), text("toolCallId")) else { return Ok(None) };
    let is_of_server = part.get("providerExecuted").and_then(Value::as_bool).unwrap_or(false);
    match state {
        "approval-responded" => {
            let approval = part.get("approval").cloned().unwrap_or_default();
            let approved = approval.get("approved").and_then(Value::as_bool);
            let (Some(id), Some(approved)) = (approval.get("id").and_then(Value::as_str), approved)
            else {
                let rule = "an object with id and approved";
                return Err(constraint_fault(
                    "messages.parts.approval",
                    rule,
                    &approval.to_string(),
                ));
            };
            Ok(Some(RunAction::Answer {
                question: QuestionId(id.into()),
                decision: if approved { Decision::Allow } else { Decision::Deny },
                note: approval.get("reason").and_then(Value::as_str).map(str::to_owned),
                arguments: None,
            }))
        }
        "output-available" if !is_of_server => {
            let result = part.get("output").cloned().unwrap_or_default();
            let report = WorkerReport::Done { result };
            thread.result_of("messages.parts.toolCallId", CallId::from(call), report)
        }
        "output-error" if !is_of_server => {
            let message = text("errorText").map(str::to_owned);
            let report = WorkerReport::Failed(WorkerError { message, ..WorkerError::default() });
            thread.result_of("messages.parts.toolCallId", CallId::from(call), report)
        }
        _ => Ok(None),
    }
}

/// A part of the user's message as a block; `None` for parts without content for the model.
fn read_block(part: &Value) -> Option<Result<Block, Fault>> {
    let text = |name: &str| part.get(name).and_then(Value::as_str);
    match text("type")? {
        "text" => Some(Ok(Block::Text(text("text").unwrap_or_default().to_owned()))),
        "file" => Some(read_image(text("mediaType"), text("url"))),
        _ => None,
    }
}

fn read_image(media_type: Option<&str>, url: Option<&str>) -> Result<Block, Fault> {
    let media_type = media_type.filter(|kind| kind.starts_with("image/"));
    let data = url.and_then(|url| url.strip_prefix("data:")?.split_once(";base64,"));
    match (media_type, data) {
        (Some(media_type), Some((_, data))) => {
            Ok(Block::Image { media_type: media_type.to_owned(), data: data.to_owned() })
        }
        _ => {
            let rule = "pictures as data URLs";
            Err(constraint_fault("messages.parts.url", rule, url.unwrap_or_default()))
        }
    }
}
