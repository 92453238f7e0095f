//! Inspects a path before it is opened as a journal. A path that leads to anything else is refused with a fault
//! that names it; its mode, its content and its directory stay as they are.
//!
//! A journal is a regular file that is empty or begins with a journal's header. Symbolic links are followed only if they
//! belong to this user or to root.

use std::{
    io::{Error, ErrorKind},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use budao_core::fault::{Fact, Fault, Kind, Operation};
use rustix::{io::Errno, process::geteuid};

use super::{
    errors::{damage_fault, io_fault},
    files::{self, OpenFile},
    pages,
    schema::APPLICATION_ID,
    watermark,
};

/// The longest chain of symbolic links; the same limit as in Linux.
const LINKS_MAX: usize = 40;
/// Attempts to open a path that other processes create and remove meanwhile.
const ATTEMPTS_MAX: usize = 8;
/// The header of a database and the beginning of its first page.
const HEADER_BYTES: usize = 108;

/// The content of a path given as a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathContent {
    /// Nothing yet; the directory exists.
    Absent,
    /// An empty file, or a database without tables: a journal whose creation was interrupted.
    Empty,
    /// A file with the journal's application id in its header.
    Journal,
}

/// A path that was inspected and may hold a journal.
#[derive(Debug)]
pub(super) struct InspectedPath {
    /// The file itself, behind any links.
    pub(super) path: PathBuf,
    pub(super) content: PathContent,
    /// The user who owns the file.
    owner: u32,
    /// `None` if the file is absent. Must outlive every connection to the file.
    pub(super) file: Option<OpenFile>,
}

impl InspectedPath {
    /// Refuses a path that has no journal yet.
    pub(super) fn require_journal(self, operation: Operation) -> Result<Self, Fault> {
        match self.content {
            PathContent::Journal => Ok(self),
            PathContent::Absent | PathContent::Empty => Err(no_journal(&self.path, operation)),
        }
    }

    /// Splits into the path and its open file. `no_journal` if the file is absent.
    pub(super) fn into_file(self, operation: Operation) -> Result<(PathBuf, Arc<OpenFile>), Fault> {
        match self.file {
            Some(file) => Ok((self.path, Arc::new(file))),
            None => Err(no_journal(&self.path, operation)),
        }
    }

    /// Refuses a file of another user.
    pub(super) fn require_owner(&self, operation: Operation) -> Result<(), Fault> {
        if self.file.is_none() || self.owner == geteuid().as_raw() {
            return Ok(());
        }
        Err(foreign_owner_fault(&self.path, self.owner, operation))
    }
}

/// Inspects a path and changes nothing.
///
/// # Errors
/// `no_journal` if its directory does not exist, `not_a_journal`, `journal_of_other_user`, `file_permission`, and
/// `journal_damaged` for a journal whose header is lost.
pub(super) fn inspect(named: &Path, operation: Operation) -> Result<InspectedPath, Fault> {
    let path = follow_links(named, operation)?;
    let found = match std::fs::symlink_metadata(&path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return inspect_absent(named, path, operation);
        }
        Err(error) => return Err(unreachable_fault(&error, &path, operation)),
    };
    if let Some(cause) = describe_irregular(found.file_type()) {
        return Err(not_a_journal(&path, cause, operation));
    }
    let file = OpenFile::open(&path).map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied if found.uid() != geteuid().as_raw() => {
            foreign_owner_fault(&path, found.uid(), operation)
        }
        _ => unreachable_fault(&error, &path, operation),
    })?;
    let unreadable = |error: Error| io_fault(&error, &path, operation);
    // Read from the descriptor, since another file may have taken the path meanwhile.
    let owner = file.owner().map_err(unreadable)?;
    let header = file.header().map_err(unreadable)?;
    let content = classify_content(&path, &header, operation)?;
    Ok(InspectedPath { path, content, owner, file: Some(file) })
}

/// The regular file that a path leads to, with any content.
pub(super) fn regular_file(named: &Path, operation: Operation) -> Result<PathBuf, Fault> {
    let path = follow_links(named, operation)?;
    match std::fs::symlink_metadata(&path) {
        Ok(found) => match describe_irregular(found.file_type()) {
            None => Ok(path),
            Some(cause) => Err(not_a_journal(&path, cause, operation)),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(no_journal(&inspect_absent(named, path, operation)?.path, operation))
        }
        Err(error) => Err(unreachable_fault(&error, &path, operation)),
    }
}

/// Inspects a path for writing and makes the file private to its owner. With `creates`, an absent file is created.
pub(super) fn inspect_to_write(named: &Path, creates: bool) -> Result<InspectedPath, Fault> {
    let operation = Operation::OpenJournal;
    for _ in 0..ATTEMPTS_MAX {
        let found = inspect(named, operation)?;
        found.require_owner(operation)?;
        if found.content != PathContent::Journal {
            if !creates {
                return Err(no_journal(&found.path, operation));
            }
            refuse_foreign_side_files(&found.path)?;
        }
        if let Some(file) = &found.file {
            let private = file.make_private();
            private.map_err(|error| io_fault(&error, &found.path, operation))?;
            return Ok(found);
        }
        // If another process creates the file first, the next iteration inspects it.
        match files::create_new(&found.path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(unreachable_fault(&error, &found.path, operation));
            }
            _ => {}
        }
    }
    let unstable = Error::from(ErrorKind::NotFound);
    Err(io_fault(&unstable, named, operation))
}

/// The file that the last part of a path leads to.
fn follow_links(named: &Path, operation: Operation) -> Result<PathBuf, Fault> {
    let mut path = named.to_owned();
    for _ in 0..LINKS_MAX {
        let found = match std::fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => found,
            // The caller decides about anything that is not a link.
            _ => return Ok(path),
        };
        if found.uid() != 0 && found.uid() != geteuid().as_raw() {
            return Err(not_a_journal(&path, "link_of_other_user", operation));
        }
        let target = std::fs::read_link(&path)
            .map_err(|error| unreachable_fault(&error, &path, operation))?;
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    Err(not_a_journal(named, "link_loop", operation))
}

fn inspect_absent(
    named: &Path,
    path: PathBuf,
    operation: Operation,
) -> Result<InspectedPath, Fault> {
    if path != named {
        return Err(not_a_journal(named, "dangling_link", operation));
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if path.as_os_str().is_empty() || parent.is_some_and(|parent| !parent.is_dir()) {
        return Err(no_journal(&path, operation).with(Fact::Cause, "no_directory"));
    }
    Ok(InspectedPath { path, content: PathContent::Absent, owner: 0, file: None })
}

/// Describes a file that is not a regular one; `None` for a regular file.
fn describe_irregular(found: std::fs::FileType) -> Option<&'static str> {
    if found.is_file() {
        None
    } else if found.is_dir() {
        Some("directory")
    } else if found.is_fifo() {
        Some("pipe")
    } else if found.is_socket() {
        Some("socket")
    } else {
        Some("device")
    }
}

/// The beginning of a file: its first bytes and how many of them are there.
pub(super) type Header = Vec<u8>;

/// Reads the beginning of a file.
pub(super) fn read_header(file: &std::fs::File, start: u64) -> std::io::Result<Header> {
    let mut header = vec![0; HEADER_BYTES];
    let length = std::os::unix::fs::FileExt::read_at(file, &mut header, start)?;
    header.truncate(length);
    Ok(header)
}

fn classify_content(
    path: &Path,
    header: &[u8],
    operation: Operation,
) -> Result<PathContent, Fault> {
    if header.is_empty() {
        return Ok(PathContent::Empty);
    }
    if read_application_id(header) == Some(APPLICATION_ID) {
        return Ok(PathContent::Journal);
    }
    // Until the first checkpoint the tables are in the write-ahead log only, and a header that is damaged in the
    // file may be whole there.
    let logged = pages::first_page_in_wal(path);
    let newest = logged.as_deref().unwrap_or(header);
    match read_application_id(newest) {
        Some(APPLICATION_ID) => Ok(PathContent::Journal),
        Some(0) if has_no_tables(newest) => Ok(PathContent::Empty),
        _ if watermark::exists_beside(path) => {
            Err(damage_fault(path, operation, "the header of the file is not that of a journal"))
        }
        Some(_) => Err(not_a_journal(path, "database", operation)),
        None => Err(not_a_journal(path, "file", operation)),
    }
}

/// The application id in a database header; `None` if the file is not a database.
fn read_application_id(header: &[u8]) -> Option<i32> {
    if !header.starts_with(b"SQLite format 3\0") {
        return None;
    }
    Some(i32::from_be_bytes(header.get(68..72)?.try_into().ok()?))
}

/// Whether the first page of a database, which lists the tables, has no entry.
fn has_no_tables(header: &[u8]) -> bool {
    header.get(100..105).is_some_and(|page| page[0] == 0x0d && page[3..] == [0, 0])
}

/// Refuses foreign files under the names of SQLite's side files: creating a database would delete or overwrite them.
fn refuse_foreign_side_files(journal: &Path) -> Result<(), Fault> {
    const WAL: [&[u8]; 2] = [&[0x37, 0x7f, 0x06, 0x82], &[0x37, 0x7f, 0x06, 0x83]];
    const ROLLBACK: [&[u8]; 1] = [&[0xd9, 0xd5, 0x05, 0xf9]];
    let index = 3_007_000_u32.to_ne_bytes();
    let kinds: [(&str, &[&[u8]]); 3] =
        [("-wal", &WAL), ("-journal", &ROLLBACK), ("-shm", &[&index])];
    for (suffix, beginnings) in kinds {
        let path = watermark::with_suffix(journal, suffix);
        let is_absent = |error: &Error| error.kind() == ErrorKind::NotFound;
        let is_ours = match files::open_regular(&path).and_then(|file| read_header(&file, 0)) {
            Ok(header) => {
                let begin = header.get(..4).unwrap_or_default();
                // A process killed while creating a side file may leave only zeros in it.
                begin.iter().all(|byte| *byte == 0) || beginnings.contains(&begin)
            }
            Err(error) => is_absent(&error),
        };
        if !is_ours {
            return Err(not_a_journal(&path, "side_file", Operation::OpenJournal));
        }
    }
    Ok(())
}

fn with_path(kind: Kind, path: &Path, operation: Operation) -> Fault {
    Fault::new(kind, operation).with(Fact::Path, path.display().to_string())
}

fn no_journal(path: &Path, operation: Operation) -> Fault {
    with_path(Kind::NoJournal, path, operation)
}

pub(super) fn not_a_journal(path: &Path, cause: &'static str, operation: Operation) -> Fault {
    with_path(Kind::NotAJournal, path, operation).with(Fact::Cause, cause)
}

fn foreign_owner_fault(path: &Path, owner: u32, operation: Operation) -> Fault {
    with_path(Kind::JournalOfOtherUser, path, operation).with(Fact::Holder, format!("uid {owner}"))
}

/// The fault for a path that cannot be inspected.
fn unreachable_fault(error: &Error, path: &Path, operation: Operation) -> Fault {
    let fault = match error.kind() {
        ErrorKind::PermissionDenied => with_path(Kind::FilePermission, path, operation),
        ErrorKind::NotADirectory => not_a_journal(path, "parent_not_directory", operation),
        _ if Errno::from_io_error(error) == Some(Errno::LOOP) => {
            not_a_journal(path, "link_loop", operation)
        }
        _ => return io_fault(error, path, operation),
    };
    fault.caused_by(error)
}
