//! What a turn had received when its process ended, read back from its records.

use std::collections::BTreeSet;

use budao_core::event::Event;
use serde_json::Value;

use crate::{
    TOPIC,
    draft::{Draft, DraftCall, UpstreamIds},
    shared_state,
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
            Event::StepStarted { .. } | Event::AnswerAbandoned { .. } => self.draft.forget_text(),
            Event::ModelAnswered { content, .. } => {
                let ids = UpstreamIds::of(content);
                self.recorded.extend(ids.calls.into_iter().map(|(_, theirs)| theirs));
                self.draft.forget_text();
                self.draft.forget_calls(|theirs| self.recorded.contains(theirs));
            }
            Event::TextDelta { text, .. } => self.draft.push_text(ItemKind::Text, text),
            Event::ThinkingDelta { text, .. } => self.draft.push_text(ItemKind::Thought, text),
            Event::Annotated { topic, data } if topic == TOPIC => self.upstream(data, state_bytes),
            _ => {}
        }
    }

    fn upstream(&mut self, event: &Value, state_bytes: usize) {
        match wire::parse(event) {
            Some(UpstreamEvent::StateSnapshot(state)) => self.state = Some(state),
            Some(UpstreamEvent::StateDelta(operations)) => {
                let before = self.state.take().or_else(|| self.before.clone());
                let mut state = before.unwrap_or_else(|| serde_json::json!({}));
                let _ = shared_state::patch(&mut state, &operations, state_bytes);
                self.state = Some(state);
            }
            Some(UpstreamEvent::Stream { item: ItemKind::Call, id, change }) => {
                self.call(id, change);
            }
            Some(UpstreamEvent::Stream { item: ItemKind::Text, id, change: Change::Start(_) }) => {
                self.draft.message = Some(id);
            }
            _ => {}
        }
    }

    fn call(&mut self, theirs: String, change: Change) {
        if self.recorded.contains(&theirs) {
            return;
        }
        match change {
            Change::Start(name) | Change::Chunk { name: name @ Some(_), .. } => {
                let name = name.unwrap_or_default();
                let (arguments, is_complete) = (String::new(), false);
                let call = DraftCall { theirs, name, arguments, is_complete, is_synthetic: false };
                self.draft.add_call(call);
            }
            Change::Delta(delta) | Change::Chunk { delta, .. } => {
                if let Some(call) = self.draft.call(&theirs) {
                    call.arguments.push_str(&delta);
                }
            }
            Change::End => {
                if let Some(call) = self.draft.call(&theirs) {
                    call.is_complete = true;
                }
            }
        }
    }
}
