//! What every engine decides alike about a command: whether a message may be queued or withdrawn, what a
//! settlement records, and which turn and trace a record carries.

use super::{Session, doubts};
use crate::{
    event::{CommandId, Event, Settlement, TurnNumber},
    fault::{Advice, Fact, FactValue, Fault, Kind, Operation},
    limits::Limits,
    message::{Block, CallId},
    nesting,
    trace::Trace,
};

/// The longest text of a settlement, in bytes: its result as JSON, or its note.
const SETTLEMENT_MAX: usize = 16 * 1024;

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
    /// The queue is full, or too many calls are in doubt.
    pub fn check_queue(&self, limits: &Limits) -> Result<(), Fault> {
        if self.doubts.all_open().len() >= doubts::OPEN_MAX {
            return Err(Fault::new(Kind::LimitReached, Operation::SubmitCommand)
                .with(Fact::Limit, doubts::OPEN_MAX)
                .with(Fact::LimitName, "open_doubts")
                .advise_user([Advice::known("settle-doubts")]));
        }
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

    /// The event that settles the unknown outcome of a call. The first settlement counts, and nothing runs because of
    /// it: a call that did not happen is made again by the model, if at all.
    ///
    /// # Errors
    /// The call is not in doubt, the result is nested too deeply, or the result or the note is too long.
    pub fn settle_doubt(
        &self,
        call: CallId,
        settlement: Settlement,
        note: Option<String>,
        by: String,
        limits: &Limits,
    ) -> Result<Event, Fault> {
        let Some(doubt) = self.doubts.about(&call) else {
            return Err(self.not_in_doubt_fault(&call));
        };
        let tool = doubt.tool.clone();
        let result = match &settlement {
            Settlement::Happened { result } if nesting::is_deeper(result, limits.json_depth) => {
                return Err(Fault::new(Kind::LimitReached, Operation::SettleDoubt)
                    .with(Fact::Limit, limits.json_depth)
                    .with(Fact::LimitName, "json_depth"));
            }
            Settlement::Happened { result } => result.to_string().len(),
            Settlement::DidNotHappen | Settlement::LeftToModel => 0,
        };
        if result.max(note.as_ref().map_or(0, String::len)) > SETTLEMENT_MAX {
            return Err(Fault::new(Kind::LimitReached, Operation::SettleDoubt)
                .with(Fact::Limit, SETTLEMENT_MAX)
                .with(Fact::Unit, "bytes")
                .with(Fact::LimitName, "settlement"));
        }
        Ok(Event::DoubtSettled { call, tool, settlement, by, note })
    }

    fn not_in_doubt_fault(&self, call: &CallId) -> Fault {
        let constraint = match self.doubts.settled(call) {
            Some(settled) => format!("the call is in doubt; {} settled it before", settled.by),
            None => "the call is in doubt".to_owned(),
        };
        Fault::new(Kind::ConstraintViolated, Operation::SettleDoubt)
            .with(Fact::Field, "call")
            .with(Fact::Constraint, constraint)
            .with(Fact::ProvidedValue, FactValue::Json(call.to_string().into()))
    }
}

fn violated(field: &'static str, constraint: &'static str, provided: FactValue) -> Fault {
    Fault::new(Kind::ConstraintViolated, Operation::SubmitCommand)
        .with(Fact::Field, field)
        .with(Fact::Constraint, constraint)
        .with(Fact::ProvidedValue, provided)
}
