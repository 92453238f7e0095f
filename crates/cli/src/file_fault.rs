//! The fault of a file that a person named and that cannot be read: what is wrong with it, not only that it is.

use std::{io, path::Path};

use budao_core::{
    Fault,
    fault::{Fact, Kind, Operation},
};

/// The fault of a file that could not be opened or read as text.
pub(crate) fn unreadable(path: &Path, operation: Operation, error: &io::Error) -> Fault {
    let kind = match error.kind() {
        io::ErrorKind::IsADirectory => Kind::NotAFile,
        io::ErrorKind::InvalidData => Kind::FileNotText,
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Kind::FileNotFound,
        _ if path.is_dir() => Kind::NotAFile,
        _ => Kind::FilePermission,
    };
    Fault::new(kind, operation).with(Fact::Path, path.display().to_string()).caused_by(error)
}
