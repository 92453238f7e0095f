//! The messages of a `MESSAGES_SNAPSHOT`, folded from the records. Their ids equal those of the streamed events.

use std::collections::HashMap;

use budao_core::{
    Fault, Lang, Record,
    activity::{Activity, ControlRequest, MessageContent, StageEnd},
    event::{CommandId, Seq, SessionId, Stage, TurnNumber},
    message::{Block, text_of},
    spending::RAISE_CAP,
};
use serde_json::{Value, json};

use super::projector::{answer_id, message_id, outcome_text, result_id};
use crate::front_end::{PagedReader, RunAnnotation, run_of};

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
) -> Result<String, Fault> {
    let mut conversation = Conversation::new(lang);
    let info = reader.server.journal.info(session).await?;
    let from = info.map_or(0, |info| info.first_available.saturating_sub(1));
    reader
        .visit(session, (from, until), |stored| {
            conversation.apply(&stored.record()?);
            Ok(true)
        })
        .await?;
    Ok(conversation.encode())
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
    turn: TurnNumber,
    attempt: u32,
    /// Reasoning messages of the attempt.
    thoughts: u32,
    is_thinking: bool,
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
}

impl Conversation {
    pub(super) fn new(lang: Lang) -> Self {
        Self { lang, ..Self::default() }
    }

    pub(super) fn apply(&mut self, record: &Record) {
        let Some(activity) = Activity::of(&record.event) else { return };
        match activity {
            Activity::Annotated { topic, data } => {
                if let Some(RunAnnotation { run, message: Some(message) }) =
                    RunAnnotation::read(topic, data)
                {
                    self.ids.insert(run, message);
                }
            }
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
                self.messages.push(ThreadMessage { id: result_id(call), content: parts });
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
        if let (true, Some(ThreadMessage { content: MessageParts::Reasoning(known), .. })) =
            (self.is_thinking, self.messages.last_mut())
        {
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
