//! Identifiers: the commands of a run, the annotation that a run leaves in the session, and the cursor of a stream.

use std::collections::BTreeMap;

use budao_core::{
    Fault, Kind,
    event::{CommandBody, CommandId, Epoch, Seq, SessionId},
    fault::{Fact, FactValue, Operation},
    message::CallId,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Thread;
use crate::inbound;

/// The longest id that a front end may choose, in characters.
const ID_CHARS: usize = 200;
/// The prefix of the commands that runs submit.
const RUN_PREFIX: &str = "run:";
/// The topic of the annotation of a run.
const RUN_TOPIC: &str = "serve.run";

/// Checks an id that a front end chose.
///
/// # Errors
/// `constraint_violated` if the id is empty or too long.
pub(crate) fn check_id(field: &str, id: &str) -> Result<(), Fault> {
    if !id.is_empty() && id.chars().nth(ID_CHARS).is_none() {
        return Ok(());
    }
    Err(constraint_fault(field, format!("1 to {ID_CHARS} characters"), id))
}

/// The fault of a field that breaks a rule.
pub(crate) fn constraint_fault(field: &str, rule: impl Into<String>, provided: &str) -> Fault {
    let shown: String = provided.chars().take(120).collect();
    Fault::new(Kind::ConstraintViolated, Operation::ServeRequest)
        .with(Fact::Field, field.to_owned())
        .with(Fact::Constraint, rule.into())
        .with(Fact::ProvidedValue, FactValue::Json(Value::String(shown)))
}

/// The command that carries the message of a run.
pub(crate) fn message_command(run: &str) -> CommandId {
    format!("{RUN_PREFIX}{run}").into()
}

/// Another command of a run.
pub(super) fn run_command(run: &str, effect: &str) -> CommandId {
    format!("{RUN_PREFIX}{run}:{effect}").into()
}

/// The run whose message a command carried. Other commands name a run by themselves.
pub(crate) fn run_of(command: &CommandId) -> &str {
    command.0.strip_prefix(RUN_PREFIX).unwrap_or(&command.0)
}

/// The annotation that precedes the effects of a run. It makes the ids that the front end chose durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunAnnotation {
    /// The front end's id of the run.
    pub(crate) run: String,
    /// The front end's id of the message; absent if the run brings answers to questions or results of calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// The front end's ids of its messages with the results of calls, by call.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) results: BTreeMap<CallId, String>,
}

impl RunAnnotation {
    /// The annotation of a run with a message, or without one.
    pub(crate) fn new(run: impl Into<String>, message: Option<String>) -> Self {
        Self { run: run.into(), message, results: BTreeMap::new() }
    }

    /// The command that writes the annotation.
    pub(super) fn command(&self) -> (CommandId, CommandBody) {
        let data = serde_json::json!(self);
        let body = CommandBody::Annotate { topic: RUN_TOPIC.to_owned(), data };
        (run_command(&self.run, "note"), body)
    }

    /// Reads the annotation of a run; `None` for other annotations.
    pub(crate) fn read(topic: &str, data: &Value) -> Option<Self> {
        (topic == RUN_TOPIC).then(|| Self::deserialize(data).ok()).flatten()
    }
}

/// A position in a stream: after the event `index` of the record `seq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamCursor {
    pub(crate) session: SessionId,
    pub(crate) epoch: Epoch,
    pub(crate) seq: Seq,
    /// From 0; the last one if the cursor names none.
    pub(crate) index: usize,
}

impl StreamCursor {
    /// Reads a cursor of this thread.
    ///
    /// # Errors
    /// `constraint_violated` if the text is not a cursor of this thread; `epoch_mismatch` if it is beyond the end, or
    /// from a replaced history.
    pub(crate) fn of(thread: &Thread, field: &str, text: &str) -> Result<Self, Fault> {
        let cursor = Self::parse(text).filter(|cursor| cursor.session == thread.session);
        let cursor = cursor
            .ok_or_else(|| constraint_fault(field, "the id of an event of this thread", text))?;
        if cursor.epoch != thread.epoch || cursor.seq > thread.state.head {
            return Err(Fault::new(Kind::EpochMismatch, Operation::ReplayEvents)
                .with(Fact::Session, thread.session.to_string())
                .with(Fact::HeadSeq, thread.state.head));
        }
        Ok(cursor)
    }

    /// Reads `session.epoch.seq` or `session.epoch.seq.index`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (cursor, index) = match inbound::read_event_id(text) {
            Some(cursor) => (cursor, usize::MAX),
            None => {
                let (position, index) = text.rsplit_once('.')?;
                (inbound::read_event_id(position)?, index.parse().ok()?)
            }
        };
        Some(Self { session: cursor.session?, epoch: cursor.epoch?, seq: cursor.seq, index })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_names_a_record_or_an_event_of_it() {
        let position = "01890000-0000-7000-8000-000000000000.0000002a.7";
        let record = StreamCursor::parse(position).unwrap();
        assert_eq!((record.epoch, record.seq, record.index), (Epoch(42), 7, usize::MAX));
        let third = StreamCursor::parse(&format!("{position}.2")).unwrap();
        assert_eq!(third, StreamCursor { index: 2, ..record });
        for wrong in ["", ".", "7", &position[..40], &format!("{position}.x")] {
            assert_eq!(StreamCursor::parse(wrong), None, "{wrong}");
        }
    }
}
