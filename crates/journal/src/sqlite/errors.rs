//! Converts errors of SQLite and the file system to faults.

use std::path::Path;

use budao_core::fault::{Fact, Fault, Kind, Operation};
use rusqlite::{ErrorCode, ffi};

/// An error that stops a step: one of SQLite, or a fault of this crate.
#[derive(Debug)]
pub(crate) enum SqliteError {
    Sql(rusqlite::Error),
    Fault(Fault),
}

impl From<rusqlite::Error> for SqliteError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Fault> for SqliteError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl SqliteError {
    pub(crate) fn into_fault(self, path: &Path, operation: Operation) -> Fault {
        match self {
            Self::Fault(fault) => fault,
            Self::Sql(error) => to_fault(&error, path, operation),
        }
    }

    pub(crate) fn as_fault(&self, path: &Path, operation: Operation) -> Fault {
        match self {
            Self::Fault(fault) => fault.clone(),
            Self::Sql(error) => to_fault(error, path, operation),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Sql(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull))
    }

    /// Whether another process holds the lock.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, Self::Sql(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy))
    }

    /// Whether the connection is still usable. A timeout while waiting for a lock leaves it intact.
    pub(crate) fn keeps_connection_usable(&self) -> bool {
        match self {
            Self::Fault(_) => true,
            Self::Sql(error) => matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
            ),
        }
    }
}

fn classify(error: &rusqlite::Error) -> Kind {
    let extended = error.sqlite_error().map_or(0, |error| error.extended_code);
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Kind::DiskFull,
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Kind::JournalReadOnly,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Kind::JournalBusy,
        Some(ErrorCode::CannotOpen) => Kind::JournalGone,
        Some(ErrorCode::OutOfMemory) => Kind::OutOfMemory,
        Some(ErrorCode::SystemIoFailure) => match extended {
            ffi::SQLITE_IOERR_READ
            | ffi::SQLITE_IOERR_SHORT_READ
            | ffi::SQLITE_IOERR_CORRUPTFS
            | ffi::SQLITE_IOERR_DATA => Kind::JournalDamaged,
            ffi::SQLITE_IOERR_NOMEM => Kind::OutOfMemory,
            _ => Kind::SyncFailed,
        },
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Kind::JournalDamaged,
        // A column has another type than the writer stores.
        None | Some(ErrorCode::TypeMismatch | ErrorCode::ConstraintViolation) => {
            Kind::JournalDamaged
        }
        Some(_) => Kind::Bug,
    }
}

fn to_fault(error: &rusqlite::Error, path: &Path, operation: Operation) -> Fault {
    let kind = match classify(error) {
        // SQLite reports a missing file and a side file that cannot be created with the same error.
        Kind::JournalGone if path.exists() => Kind::JournalReadOnly,
        kind => kind,
    };
    let fault = Fault::new(kind, operation).with(Fact::Path, path.display().to_string());
    let fault = if kind == Kind::DiskFull { with_free_bytes(fault, path) } else { fault };
    fault.caused_by(error)
}

fn with_free_bytes(fault: Fault, path: &Path) -> Fault {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match rustix::fs::statvfs(directory.unwrap_or(Path::new("."))) {
        Ok(stat) => fault.with(Fact::FreeBytes, stat.f_bavail.saturating_mul(stat.f_frsize)),
        Err(_) => fault,
    }
}

/// Converts an error of the file system to a fault.
pub(crate) fn io_fault(error: &std::io::Error, path: &Path, operation: Operation) -> Fault {
    use std::io::ErrorKind;
    let kind = match error.kind() {
        ErrorKind::NotFound => Kind::JournalGone,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Kind::JournalReadOnly,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Kind::DiskFull,
        ErrorKind::AlreadyExists => Kind::FileExists,
        _ => Kind::SyncFailed,
    };
    Fault::new(kind, operation).with(Fact::Path, path.display().to_string()).caused_by(error)
}

pub(crate) fn damage_fault(path: &Path, operation: Operation, cause: impl Into<String>) -> Fault {
    Fault::new(Kind::JournalDamaged, operation)
        .with(Fact::Path, path.display().to_string())
        .with_cause(cause)
}
