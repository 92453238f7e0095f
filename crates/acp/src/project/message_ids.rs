//! Ids of the messages to which text and thinking belong.

use agent_client_protocol::v1::schema::MessageId;
use budao_core::event::TurnNumber;

/// Message ids: one per step and part, and the same in every projection.
#[derive(Debug, Default)]
pub(super) struct MessageIds {
    turn: TurnNumber,
    step: u32,
    part: u32,
    text: Option<MessageId>,
    thought: Option<MessageId>,
}

impl MessageIds {
    pub(super) fn step(&mut self, turn: TurnNumber, step: u32) {
        if (self.turn, self.step) != (turn, step) {
            *self = Self { turn, step, ..Self::default() };
        }
    }

    pub(super) fn next_part(&mut self) {
        self.part += 1;
        (self.text, self.thought) = (None, None);
    }

    pub(super) fn text(&mut self) -> MessageId {
        let Self { turn, step, part, .. } = *self;
        let make = || MessageId::new(format!("{turn}.{step}.{part}"));
        self.text.get_or_insert_with(make).clone()
    }

    pub(super) fn thought(&mut self) -> MessageId {
        let Self { turn, step, part, .. } = *self;
        let make = || MessageId::new(format!("{turn}.{step}.{part}.thought"));
        self.thought.get_or_insert_with(make).clone()
    }
}
