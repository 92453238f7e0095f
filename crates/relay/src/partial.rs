//! What a turn had received when its process ended, read back from its records.

use std::collections::BTreeSet;

use budao_core::{ag_ui, event::Event, json_patch, session::ENGINE_STATE};
use serde_json::Value;

use crate::{
    TOPIC,
    draft::{Draft, DraftCall, UpstreamIds},
    wire::{self, Change, ItemKind, UpstreamEvent},
};

/// The unfinished answer and the shared state of a turn, folded from its records.
#[derive(Clone, Debug, Default)]
pub struct PartialTurn {
    pub(crate) draft: Draft,
    /// The shared state after the turn's last change of it; absent if the turn changed nothing.
    pub(crate) state: Option<Value>,
    /// The state before the turn.
    before: Option<Value>,
    /// The agent's ids of calls that a recorded answer has.
    recorded: BTreeSet<String>,
    /// The item that a chunk opened; the next chunk may leave its id out.
    chunk: Option<(ItemKind, String)>,
    /// The agent's id of a message that ended the answer before it; it is recorded before that answer.
    next_message: Option<String>,
}

impl PartialTurn {
    /// Begins with the shared state before the turn.
    #[must_use]
    pub fn new(before: Option<Value>) -> Self {
        Self { before, ..Self::default() }
    }

    /// Adds the next record's event of the turn.
    pub fn apply(&mut self, event: &Event, state_bytes: usize) {
        match event {
            // The turn was posted again: nothing of the earlier run counts.
            Event::StepStarted { attempt, .. } if *attempt > 1 => {
                (self.draft, self.chunk) = (Draft::default(), None);
            }
            Event::AnswerAbandoned { .. } => self.draft.forget_text(),
            Event::ModelAnswered { content, .. } => {
                let ids = UpstreamIds::of(content);
                self.recorded.extend(ids.calls.into_iter().map(|(_, theirs)| theirs));
                self.draft.forget_text();
                self.draft.forget_calls(|theirs| self.recorded.contains(theirs));
                self.draft.message = self.next_message.take();
            }
            Event::TextDelta { text, .. } => {
                self.next_message = None;
                self.draft.push_text(ItemKind::Text, text);
            }
            Event::ThinkingDelta { text, .. } => self.draft.push_text(ItemKind::Thought, text),
            Event::Annotated { topic, data } if topic == TOPIC => self.upstream(data, state_bytes),
            // The relay's own state already has the changes of the records before it.
            Event::Annotated { topic, data } if topic == ENGINE_STATE => {
                (self.before, self.state) = (ag_ui::shared_state(data).cloned(), None);
            }
            _ => {}
        }
    }

    fn upstream(&mut self, event: &Value, state_bytes: usize) {
        let Some(parsed) = wire::parse(event) else { return };
        let is_chunk = matches!(parsed, UpstreamEvent::Stream { change: Change::Chunk { .. }, .. });
        if !is_chunk {
            self.close_chunk();
        }
        match parsed {
            UpstreamEvent::StateSnapshot(state) => self.state = Some(state),
            UpstreamEvent::StateDelta(operations) => {
                let before = self.state.take().or_else(|| self.before.clone());
                let mut state = before.unwrap_or_else(|| serde_json::json!({}));
                let _ = json_patch::patch(&mut state, &operations, state_bytes);
                self.state = Some(state);
            }
            UpstreamEvent::Stream { item, id, change } => {
                let parent = event["parentMessageId"].as_str();
                self.stream(item, id, change, parent);
            }
            _ => {}
        }
    }

    fn stream(&mut self, item: ItemKind, id: String, change: Change, parent: Option<&str>) {
        match change {
            Change::Start(name) => self.open(item, id, name, parent),
            Change::Delta(delta) => self.grow(item, &id, &delta),
            Change::End => self.close(item, &id),
            Change::Chunk { name, delta } => {
                let open = self.chunk.as_ref().filter(|(kind, _)| *kind == item);
                let id = match open {
                    Some((_, open)) if id.is_empty() || *open == id => open.clone(),
                    _ => {
                        self.close_chunk();
                        self.open(item, id.clone(), name, parent);
                        self.chunk = Some((item, id.clone()));
                        id
                    }
                };
                self.grow(item, &id, &delta);
            }
        }
    }

    /// Opens an item. The text of a message is read from the text events, which exclude what was not shown.
    fn open(&mut self, item: ItemKind, id: String, name: Option<String>, parent: Option<&str>) {
        let is_answer = matches!(name.as_deref(), None | Some("assistant"));
        match item {
            ItemKind::Text if is_answer => {
                let is_other = self.draft.message.as_ref().is_some_and(|message| *message != id);
                if is_other && self.draft.has_text() && !self.draft.has_calls() {
                    self.next_message = Some(id);
                } else {
                    self.draft.message.get_or_insert(id);
                }
            }
            ItemKind::Call if !self.recorded.contains(&id) => {
                if self.draft.message.is_none() {
                    self.draft.message = parent.map(str::to_owned);
                }
                self.draft.add_call(DraftCall::begin(id, name));
            }
            ItemKind::Text | ItemKind::Thought | ItemKind::Call => {}
        }
    }

    fn grow(&mut self, item: ItemKind, id: &str, delta: &str) {
        if item == ItemKind::Call
            && let Some(call) = self.draft.call(id)
        {
            call.arguments.push_str(delta);
        }
    }

    fn close(&mut self, item: ItemKind, id: &str) {
        if item == ItemKind::Call
            && let Some(call) = self.draft.call(id)
        {
            call.is_complete = true;
        }
    }

    fn close_chunk(&mut self) {
        if let Some((item, id)) = self.chunk.take() {
            self.close(item, &id);
        }
    }
}
