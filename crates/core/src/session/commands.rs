//! What every engine decides alike about a command: whether a message may be queued or withdrawn, and which turn and
//! trace a record carries.

use super::Session;
use crate::{
    event::{CommandId, Event, TurnNumber},
    fault::{Fact, FactValue, Fault, Kind, Operation},
    limits::Limits,
    message::Block,
    trace::Trace,
};

impl Session {
    /// The turn and the trace of an event's record: those of the running turn, none without one. The start of a turn has
    /// the trace of its message, or `fresh` if that brought none.
    #[must_use]
    pub fn attribute(&self, event: &Event, fresh: Trace) -> (TurnNumber, Trace) {
        match (event, &self.turn) {
            (Event::TurnStarted { message }, _) => {
                let queued = self.queue.iter().find(|queued| queued.command == *message);
                let brought = queued.map_or(Trace::NONE, |queued| queued.trace);
                (self.turns.saturating_add(1), brought.or(fresh))
            }
            (_, Some(turn)) => (turn.number, turn.trace),
            (_, None) => (0, Trace::NONE),
        }
    }

    /// Checks that a message has content and that the queue has room for it.
    ///
    /// # Errors
    /// Names the rule or the limit.
    pub fn check_message(&self, content: &[Block], limits: &Limits) -> Result<(), Fault> {
        if content.is_empty() {
            return Err(violated(
                "content",
                "content is not empty",
                FactValue::Json(serde_json::json!([])),
            ));
        }
        self.check_queue(limits)
    }

    /// Checks that one more turn may wait.
    ///
    /// # Errors
    /// The queue is full.
    pub fn check_queue(&self, limits: &Limits) -> Result<(), Fault> {
        let limit = limits.queued_messages;
        if self.queue.len() < limit {
            return Ok(());
        }
        Err(Fault::new(Kind::LimitReached, Operation::SubmitCommand)
            .with(Fact::Limit, limit)
            .with(Fact::LimitName, "queued_messages"))
    }

    /// Checks that a message waits for its turn.
    ///
    /// # Errors
    /// When the message is unknown, is being answered or was answered.
    pub fn check_waiting(&self, message: &CommandId) -> Result<(), Fault> {
        if self.queue.iter().any(|queued| queued.command == *message) {
            return Ok(());
        }
        let provided = FactValue::Json(message.to_string().into());
        Err(violated("message", "the message waits for its turn", provided))
    }
}

fn violated(field: &'static str, constraint: &'static str, provided: FactValue) -> Fault {
    Fault::new(Kind::ConstraintViolated, Operation::SubmitCommand)
        .with(Fact::Field, field)
        .with(Fact::Constraint, constraint)
        .with(Fact::ProvidedValue, provided)
}
