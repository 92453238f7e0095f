//! Converts operating system errors into faults that a model can act on.

use std::io;

use budao_core::fault::{Advice, Detail, Fact, Fault, Kind, Mismatch, Operation};
use rustix::io::Errno;

/// The fault for a failed file operation. The system's error text becomes the cause, for the operator.
pub(super) fn from_io(error: &io::Error, path: &str, operation: Operation) -> Fault {
    let path = path.to_owned();
    let errno = Errno::from_io_error(error);
    let fault = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidInput => {
            Fault::new(Kind::FileNotFound, operation)
        }
        // `cap-std` refuses a path that leads outside with an error that has no errno.
        io::ErrorKind::PermissionDenied if errno.is_none() => {
            return outside(&path, operation).caused_by(error);
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Fault::new(Kind::FilePermission, operation)
        }
        io::ErrorKind::IsADirectory => {
            Fault::new(Kind::NotAFile, operation).with(Fact::Received, "directory")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            Fault::new(Kind::DiskFull, operation)
        }
        _ if matches!(errno, Some(Errno::LOOP | Errno::NAMETOOLONG)) => {
            Fault::new(Kind::FileNotFound, operation)
        }
        kind => Fault::new(Kind::ToolFailed, operation)
            .with(Fact::ToolName, tool_of(operation))
            .with(Fact::Reason, kind.to_string()),
    };
    fault.with(Fact::Path, path).caused_by(error)
}

/// The tool that performs an operation.
fn tool_of(operation: Operation) -> &'static str {
    match operation {
        Operation::ReadFile => "fs_read",
        Operation::WriteFile => "fs_write",
        Operation::EditFile => "fs_edit",
        Operation::ListFiles => "fs_glob",
        Operation::SearchFiles => "fs_grep",
        other => other.into(),
    }
}

/// The fault for a path that leads out of the workspace.
pub(super) fn outside(path: &str, operation: Operation) -> Fault {
    Fault::new(Kind::OutsideWorkspace, operation).with(Fact::Path, path.to_owned())
}

/// The fault for an argument that passed its schema but is invalid.
pub(super) fn invalid(
    operation: Operation,
    pointer: &str,
    rule: &'static str,
    expected: impl Into<String>,
    received: Option<String>,
) -> Fault {
    Fault::new(Kind::InvalidArguments, operation).mismatch(Mismatch {
        pointer: pointer.to_owned(),
        rule: rule.into(),
        expected: expected.into(),
        received,
        ..Mismatch::default()
    })
}

/// The fault for an input above a size limit.
pub(super) fn too_large(
    operation: Operation,
    name: &'static str,
    limit: usize,
    actual: u64,
) -> Fault {
    Fault::new(Kind::LimitReached, operation)
        .with(Fact::LimitName, name)
        .with(Fact::Limit, limit)
        .with(Fact::Actual, actual)
        .with(Fact::Unit, "bytes")
}

/// Advice from the catalog, with its variables.
pub(super) fn advice(id: &'static str, with: Detail) -> Advice {
    Advice::Known { advice: id.into(), with }
}
