//! Converts errors of the database and of connections to faults.

use std::error::Error as _;

use budao_core::fault::{Fact, Fault, Kind, Operation};
use tokio_postgres::error::{DbError, SqlState};

use crate::address::Address;

/// How a statement failed.
#[derive(Debug)]
pub(crate) enum StatementError {
    /// The server refused the statement and changed nothing.
    Refused(Box<tokio_postgres::Error>),
    /// The connection ended, or no answer came in time: the statement may have taken effect.
    Unknown(String),
    /// No connection came about, so the statement was not sent.
    NotSent(Fault),
}

impl From<tokio_postgres::Error> for StatementError {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(refusal) if !ends_connection(refusal) => Self::Refused(Box::new(error)),
            _ => Self::Unknown(describe(&error)),
        }
    }
}

/// Whether the server ends the connection with this error: a shutdown, a crash, a failed connection.
fn ends_connection(refusal: &DbError) -> bool {
    let code = refusal.code().code();
    code.starts_with("08") || code.starts_with("57P") || refusal.severity() != "ERROR"
}

impl StatementError {
    /// The SQLSTATE of a refusal.
    pub(crate) fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Refused(error) => error.code(),
            Self::Unknown(_) | Self::NotSent(_) => None,
        }
    }

    /// Whether the same statement may succeed at once: a deadlock, or a conflict with another transaction.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(
            self.code(),
            Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED)
        )
    }

    /// Whether another transaction holds the lock of a row for longer than the connection waits.
    pub(crate) fn is_locked(&self) -> bool {
        self.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
    }

    /// Whether another connection may succeed: this one leads to a server that cannot write any more.
    pub(crate) fn needs_other_server(&self) -> bool {
        self.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
    }

    pub(crate) fn into_fault(self, address: &Address, operation: Operation) -> Fault {
        match self {
            Self::Refused(error) => refusal_fault(address, operation, &error),
            Self::Unknown(cause) => busy(address, operation, cause),
            Self::NotSent(fault) => fault,
        }
    }
}

/// The error with its causes. The driver's own text says only that there was an error.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    match error.source() {
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}

/// A fault about the database at this address.
pub(crate) fn fault(address: &Address, kind: Kind, operation: Operation) -> Fault {
    Fault::new(kind, operation).with(Fact::Path, address.label.clone())
}

/// The database cannot be used for now.
pub(crate) fn busy(address: &Address, operation: Operation, cause: impl Into<String>) -> Fault {
    fault(address, Kind::JournalBusy, operation).with_cause(cause)
}

/// What was read from the database is not what was written.
pub(crate) fn damage_fault(
    address: &Address,
    operation: Operation,
    cause: impl Into<String>,
) -> Fault {
    fault(address, Kind::JournalDamaged, operation).with_cause(cause)
}

fn kind_of(code: &str) -> Kind {
    match code {
        "28P01" | "28000" => Kind::JournalLoginRefused,
        "3D000" => Kind::JournalNoDatabase,
        "42501" => Kind::JournalNoRights,
        "53300" => Kind::JournalConnectionsFull,
        "53100" => Kind::DiskFull,
        "53200" => Kind::OutOfMemory,
        "25006" => Kind::JournalReadOnly,
        "3F000" | "42P01" => Kind::JournalGone,
        "26000" | "42P05" => Kind::JournalSettingUnsafe,
        "XX001" | "XX002" => Kind::JournalDamaged,
        "55P03" | "40001" | "40P01" | "57014" | "53400" | "55006" => Kind::JournalBusy,
        code if code.starts_with("58") => Kind::SyncFailed,
        code if code.starts_with("08") || code.starts_with("57P") => Kind::JournalBusy,
        _ => Kind::Bug,
    }
}

/// The fault for an error that the server reported.
pub(crate) fn refusal_fault(
    address: &Address,
    operation: Operation,
    error: &tokio_postgres::Error,
) -> Fault {
    let Some(refusal) = error.as_db_error() else {
        return busy(address, operation, describe(error));
    };
    let kind = kind_of(refusal.code().code());
    let fault = fault(address, kind, operation);
    let fault = match kind {
        Kind::JournalLoginRefused | Kind::JournalNoRights => {
            fault.with(Fact::Holder, address.user.clone())
        }
        // Prepared statements vanish only behind a pooler that gives each transaction another server.
        Kind::JournalSettingUnsafe => fault
            .with(Fact::ConfigKey, "pool_mode")
            .with(Fact::Received, "transaction")
            .with(Fact::Expected, "session, or PgBouncer 1.21 with max_prepared_statements"),
        _ => fault,
    };
    fault.with_cause(format!("{} ({})", refusal.message(), refusal.code().code()))
}

/// The fault for a connection that did not come about.
pub(crate) fn not_connected(address: &Address, error: &tokio_postgres::Error) -> Fault {
    let operation = Operation::OpenJournal;
    if error.as_db_error().is_some() {
        return refusal_fault(address, operation, error);
    }
    let (text, cause) = (error.to_string(), describe(error));
    if text.contains("TLS") {
        return fault(address, Kind::JournalNotTrusted, operation)
            .with(Fact::Host, address.hosts())
            .with_cause(cause);
    }
    if cause.contains("does not allow writes") {
        return fault(address, Kind::JournalReadOnly, operation).with_cause(cause);
    }
    if cause.contains("password missing") {
        return fault(address, Kind::JournalLoginRefused, operation)
            .with(Fact::Holder, address.user.clone())
            .with_cause("the server asks for a password and none was given");
    }
    fault(address, Kind::JournalUnreachable, operation)
        .with(Fact::Host, address.hosts())
        .with_cause(cause)
}
