//! The messages of a `MESSAGES_SNAPSHOT` and the shared state, folded from the records. The ids of messages equal those
//! of the streamed events.

use std::collections::HashMap;

use budao_core::{
    Fault, Lang, Record,
    activity::{Activity, ControlRequest, MessageContent, StageEnd},
    ag_ui::{self, EVENT_TOPIC},
    event::{CommandId, Seq, SessionId, Stage, TurnNumber},
    json_patch,
    message::{Block, CallId, text_of},
    session::ENGINE_STATE,
    spending::RAISE_CAP,
};
use serde_json::{Value, json};

use super::{
    projector::{answer_id, message_id, outcome_text, result_id},
    upstream::forwardable,
};
use crate::front_end::{PagedReader, RunAnnotation, message_command, run_of};

/// The most messages of a snapshot; the newest are kept.
const MESSAGES_MAX: usize = 2_000;
/// The most bytes of a snapshot. The AG-UI client refuses events above 10 MB.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// Reads the conversation up to a position and encodes it.
pub(super) async fn read(
    reader: &PagedReader<'_>,
    session: SessionId,
    until: Seq,
    lang: Lang,
) -> Result<Vec<String>, Fault> {
    let mut conversation = Conversation::new(lang);
    let info = reader.server.journal.info(session).await?;
    let from = info.map_or(0, |info| info.first_available.saturating_sub(1));
    reader
        .visit(session, (from, until), |stored| {
            conversation.apply(&stored.record()?);
            Ok(true)
        })
        .await?;
    Ok(conversation.events())
}

/// The conversation of a thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Conversation {
    lang: Lang,
    messages: Vec<ThreadMessage>,
    /// Accepted messages whose turn has not started.
    queue: Vec<(CommandId, ThreadMessage)>,
    /// The front ends' ids of messages, by run.
    ids: HashMap<String, String>,
    /// The front ends' ids of messages with results, by call.
    result_ids: HashMap<CallId, String>,
    turn: TurnNumber,
    attempt: u32,
    /// Reasoning messages of the attempt.
    thoughts: u32,
    is_thinking: bool,
    /// The state that a relayed agent shares with its front ends.
    state: Option<Value>,
    /// Patches of the state since it was set. They are applied when the state is read, because each copies the state.
    state_deltas: Vec<Value>,
    /// The to-do list, once there was one.
    todos: Option<Value>,
}

#[derive(Clone, Debug)]
struct ThreadMessage {
    id: String,
    content: MessageParts,
}

#[derive(Clone, Debug)]
enum MessageParts {
    User(Vec<Block>),
    Assistant { text: String, calls: Vec<Value> },
    Reasoning(String),
    Tool { call: String, content: String, error: Option<&'static str> },
    Activity { activity: String, content: Value },
}

impl Conversation {
    pub(super) fn new(lang: Lang) -> Self {
        Self { lang, ..Self::default() }
    }

    pub(super) fn apply(&mut self, record: &Record) {
        let Some(activity) = Activity::of(&record.event) else { return };
        match activity {
            Activity::Annotated { topic, data } => self.apply_annotation(topic, data),
            Activity::TodosChanged { todos } => self.todos = Some(json!(todos)),
            Activity::MessageAccepted { command, content } => {
                self.add_accepted_message(command, content);
            }
            Activity::ControlRequested { request: ControlRequest::Withdraw(command), .. } => {
                self.queue.retain(|(queued, _)| queued != command);
            }
            Activity::TurnStarted { message } => {
                (self.turn, self.attempt, self.thoughts) = (record.turn, 1, 0);
                if let Some(index) = self.queue.iter().position(|(queued, _)| queued == message) {
                    let (_, message) = self.queue.remove(index);
                    self.messages.push(message);
                }
            }
            Activity::StepStarted { attempt, .. } => (self.attempt, self.thoughts) = (attempt, 0),
            Activity::Text { step, text } if !text.is_empty() => {
                self.is_thinking = false;
                if let MessageParts::Assistant { text: known, .. } = self.assistant_message(step) {
                    known.push_str(text);
                }
            }
            Activity::Thought { step, text } => self.add_thought(step, text),
            Activity::AnswerAbandoned { step, attempt } => {
                self.is_thinking = false;
                let void = message_id(self.turn, step, attempt);
                let thought = format!("{void}.thought-");
                self.messages.retain(|known| known.id != void && !known.id.starts_with(&thought));
            }
            Activity::Answered { step, content, .. } => self.add_answer(step, content),
            Activity::CallEnded { call, tool, outcome, .. } if tool != RAISE_CAP => {
                let (content, error) = outcome_text(outcome, self.lang);
                let parts = MessageParts::Tool { call: call.to_string(), content, error };
                let id = self.result_ids.remove(call).unwrap_or_else(|| result_id(call));
                self.messages.push(ThreadMessage { id, content: parts });
            }
            Activity::StageEnded {
                stage: Stage::Aggregation,
                end: StageEnd::Completed(text),
                ..
            } if !text.is_empty() => {
                let content = MessageParts::Assistant { text: text.to_owned(), calls: Vec::new() };
                self.messages.push(ThreadMessage { id: answer_id(self.turn), content });
            }
            _ => {}
        }
    }

    fn apply_annotation(&mut self, topic: &str, data: &Value) {
        match topic {
            EVENT_TOPIC => self.apply_upstream(data),
            ENGINE_STATE => self.set_state(ag_ui::shared_state(data).cloned()),
            _ => {
                if let Some(annotation) = RunAnnotation::read(topic, data) {
                    self.apply_run(annotation);
                }
            }
        }
    }

    fn apply_run(&mut self, annotation: RunAnnotation) {
        let RunAnnotation { run, message, results } = annotation;
        for (call, id) in results {
            self.result_ids.entry(call).or_insert(id);
        }
        let Some(message) = message else { return };
        // The annotation may follow its message, if another process writes the session.
        let provisional = format!("{}.message", message_command(&run));
        let queued = self.queue.iter_mut().map(|(_, message)| message);
        if let Some(known) =
            queued.chain(self.messages.last_mut()).find(|known| known.id == provisional)
        {
            known.id.clone_from(&message);
        }
        self.ids.insert(run, message);
    }

    fn set_state(&mut self, state: Option<Value>) {
        self.state = state;
        self.state_deltas.clear();
    }

    /// The state that a relayed agent shares with its front ends; `None` if there is none.
    fn shared_state(&self) -> Option<Value> {
        let empty = || (!self.state_deltas.is_empty()).then(|| json!({}));
        let mut state = self.state.clone().or_else(empty)?;
        for delta in &self.state_deltas {
            patch(&mut state, delta);
        }
        Some(state)
    }

    /// Applies an event of a relayed agent, as the AG-UI client does.
    fn apply_upstream(&mut self, event: &Value) {
        let Some(mut event) = forwardable(event) else { return };
        let id = event["messageId"].as_str().unwrap_or_default().to_owned();
        match event["type"].as_str() {
            Some("STATE_SNAPSHOT") => self.set_state(Some(event["snapshot"].take())),
            Some("STATE_DELTA") => self.state_deltas.push(event["delta"].take()),
            Some("ACTIVITY_SNAPSHOT") => {
                let known = self.messages.iter_mut().rfind(|message| message.id == id);
                let activity = event["activityType"].as_str().unwrap_or_default().to_owned();
                let content = MessageParts::Activity { activity, content: event["content"].take() };
                match known {
                    Some(known) if event["replace"] == true => known.content = content,
                    Some(_) => {}
                    None => self.messages.push(ThreadMessage { id, content }),
                }
            }
            Some("ACTIVITY_DELTA") => {
                let known = self.messages.iter_mut().rfind(|message| message.id == id);
                if let Some(ThreadMessage {
                    content: MessageParts::Activity { activity, content },
                    ..
                }) = known
                    && patch(content, &event["patch"])
                {
                    *activity = event["activityType"].as_str().unwrap_or_default().to_owned();
                }
            }
            _ => {}
        }
    }

    fn add_accepted_message(&mut self, command: &CommandId, content: MessageContent<'_>) {
        let blocks = match content {
            MessageContent::Blocks(blocks) | MessageContent::Timer { content: blocks, .. } => {
                blocks.to_vec()
            }
            MessageContent::Pipeline { question, .. } => vec![Block::Text(question.to_owned())],
            MessageContent::Retry { .. } => return,
        };
        let named = self.ids.get(run_of(command)).cloned();
        let id = named.unwrap_or_else(|| format!("{command}.message"));
        let message = ThreadMessage { id, content: MessageParts::User(blocks) };
        self.queue.push((command.clone(), message));
    }

    /// The message of the current attempt at a step.
    fn assistant_message(&mut self, step: u32) -> &mut MessageParts {
        let id = message_id(self.turn, step, self.attempt);
        let known = self.messages.iter().rposition(|known| known.id == id);
        let index = known.unwrap_or_else(|| {
            let content = MessageParts::Assistant { text: String::new(), calls: Vec::new() };
            self.messages.push(ThreadMessage { id, content });
            self.messages.len() - 1
        });
        &mut self.messages[index].content
    }

    fn add_thought(&mut self, step: u32, text: &str) {
        if text.is_empty() {
            return;
        }
        // An activity of a relayed agent may stand between two parts of it.
        let mut newest = self.messages.iter_mut().rev().map(|message| &mut message.content);
        let last = newest.find(|content| !matches!(content, MessageParts::Activity { .. }));
        if let (true, Some(MessageParts::Reasoning(known))) = (self.is_thinking, last) {
            known.push_str(text);
            return;
        }
        self.is_thinking = true;
        self.thoughts += 1;
        let message = message_id(self.turn, step, self.attempt);
        let id = format!("{message}.thought-{}", self.thoughts);
        let content = MessageParts::Reasoning(text.to_owned());
        self.messages.push(ThreadMessage { id, content });
    }

    fn add_answer(&mut self, step: u32, blocks: &[Block]) {
        if self.thoughts == 0 {
            for block in blocks {
                if let Block::Thinking { text, .. } = block {
                    self.add_thought(step, text);
                }
            }
        }
        self.is_thinking = false;
        let calls: Vec<Value> = blocks.iter().filter_map(tool_call).collect();
        let text = text_of(blocks);
        if text.is_empty() && calls.is_empty() {
            return;
        }
        *self.assistant_message(step) = MessageParts::Assistant { text, calls };
    }

    /// The events that bring a client to this point: the state, if there is one, and then the messages.
    pub(super) fn events(&self) -> Vec<String> {
        let state = self.shared_state().filter(|state| json_patch::size(state) <= BYTES_MAX);
        let state = state.map(|state| json!({ "type": "STATE_SNAPSHOT", "snapshot": state }));
        let todos = self.todos.as_ref().map(|todos| {
            let delta = json!([{ "op": "add", "path": "/todos", "value": todos }]);
            json!({ "type": "STATE_DELTA", "delta": delta })
        });
        let state = state.into_iter().chain(todos).map(|event| event.to_string());
        state.chain([self.encode()]).collect()
    }

    /// `MESSAGES_SNAPSHOT` with the newest messages that fit.
    pub(super) fn encode(&self) -> String {
        let queued = self.queue.iter().map(|(_, message)| message);
        let all: Vec<&ThreadMessage> = self.messages.iter().chain(queued).collect();
        let mut bytes = 0;
        let mut messages: Vec<Value> = Vec::new();
        for message in all.iter().rev().take(MESSAGES_MAX) {
            let json = message.encode();
            bytes += json.to_string().len();
            if bytes > BYTES_MAX {
                break;
            }
            messages.push(json);
        }
        messages.reverse();
        json!({ "type": "MESSAGES_SNAPSHOT", "messages": messages }).to_string()
    }
}

impl ThreadMessage {
    fn encode(&self) -> Value {
        let id = &self.id;
        match &self.content {
            MessageParts::User(blocks) => {
                json!({ "id": id, "role": "user", "content": user_content(blocks) })
            }
            MessageParts::Activity { activity, content } => json!({
                "id": id, "role": "activity", "activityType": activity, "content": content,
            }),
            MessageParts::Reasoning(text) => {
                json!({ "id": id, "role": "reasoning", "content": text })
            }
            MessageParts::Assistant { text, calls } => {
                let mut message = json!({ "id": id, "role": "assistant" });
                if !text.is_empty() {
                    message["content"] = text.as_str().into();
                }
                if !calls.is_empty() {
                    message["toolCalls"] = calls.clone().into();
                }
                message
            }
            MessageParts::Tool { call, content, error } => {
                let mut message =
                    json!({ "id": id, "role": "tool", "toolCallId": call, "content": content });
                if let Some(error) = error {
                    message["error"] = (*error).into();
                }
                message
            }
        }
    }
}

/// Applies a patch, if it fits. Returns whether it does.
fn patch(value: &mut Value, operations: &Value) -> bool {
    let operations = operations.as_array().map_or(&[][..], Vec::as_slice);
    json_patch::patch(value, operations, BYTES_MAX).is_ok()
}

fn user_content(blocks: &[Block]) -> Value {
    let is_text = |block: &Block| matches!(block, Block::Text(_));
    if blocks.iter().all(is_text) {
        return text_of(blocks).into();
    }
    let part = |block: &Block| match block {
        Block::Text(text) => Some(json!({ "type": "text", "text": text })),
        Block::Image { media_type, data } => Some(json!({
            "type": "image",
            "source": { "type": "data", "value": data, "mimeType": media_type },
        })),
        _ => None,
    };
    blocks.iter().filter_map(part).collect::<Vec<Value>>().into()
}

fn tool_call(block: &Block) -> Option<Value> {
    let Block::ToolUse(call) = block else { return None };
    Some(json!({
        "id": call.id,
        "type": "function",
        "function": { "name": call.name, "arguments": call.arguments },
    }))
}
