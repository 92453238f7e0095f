//! The faults that every implementation raises, so that their facts are the same.

use budao_core::{
    event::{CommandId, Epoch, Seq, SessionId},
    fault::{Fact, Fault, Kind, Operation},
    time::Timestamp,
};

/// The session does not exist.
#[must_use]
pub fn unknown_session(session: SessionId, operation: Operation) -> Fault {
    Fault::new(Kind::UnknownSession, operation).with(Fact::Session, session.to_string())
}

/// Another holder has the lease until `expires`.
#[must_use]
pub fn session_busy(session: SessionId, holder: &str, now: Timestamp, expires: Timestamp) -> Fault {
    Fault::new(Kind::SessionBusy, Operation::TakeLease)
        .with(Fact::Session, session.to_string())
        .with(Fact::Holder, holder.to_owned())
        .retry_after(expires.since(now))
}

/// Another holder took the lease, or the session was deleted.
#[must_use]
pub fn fenced(session: SessionId, operation: Operation) -> Fault {
    Fault::new(Kind::Fenced, operation).with(Fact::Session, session.to_string())
}

/// A cursor is beyond the head: the history was replaced.
#[must_use]
pub fn beyond_head(session: SessionId, after: Seq, head: Seq, epoch: Epoch) -> Fault {
    Fault::new(Kind::EpochMismatch, Operation::ReadRecords)
        .with(Fact::Session, session.to_string())
        .with(Fact::LastEventSeq, after)
        .with(Fact::HeadSeq, head)
        .with(Fact::ExpectedEpoch, epoch.to_string())
}

/// The id was used for another command.
#[must_use]
pub fn command_repeated(session: SessionId, id: &CommandId) -> Fault {
    Fault::new(Kind::CommandRepeated, Operation::SubmitCommand)
        .with(Fact::Session, session.to_string())
        .with(Fact::CommandId, id.to_string())
}

/// A limit of the journal is exceeded.
#[must_use]
pub fn limit_reached(
    operation: Operation,
    name: &'static str,
    unit: &'static str,
    limit: usize,
    actual: usize,
) -> Fault {
    Fault::new(Kind::LimitReached, operation)
        .with(Fact::LimitName, name)
        .with(Fact::Unit, unit)
        .with(Fact::Limit, limit)
        .with(Fact::Actual, actual)
}

/// The writer answered a command that already has an answer or was never submitted. Usually the command was withdrawn
/// after the writer read it. The writer's decision is void.
#[must_use]
pub fn command_not_pending(session: SessionId, id: &CommandId) -> Fault {
    Fault::new(Kind::CommandRepeated, Operation::AppendRecords)
        .with(Fact::Session, session.to_string())
        .with(Fact::CommandId, id.to_string())
        .with_cause(format!("command {id} does not wait for an answer"))
}

/// No command with this id was submitted.
#[must_use]
pub fn unknown_command(session: SessionId, id: &CommandId) -> Fault {
    Fault::new(Kind::BadRequest, Operation::SubmitCommand)
        .with(Fact::Session, session.to_string())
        .with(Fact::CommandId, id.to_string())
        .with_cause("no command with this id was submitted")
}
