//! The workspace: one directory handle, beneath which every path is resolved.
//!
//! A path is never checked first and opened later. It is opened relative to the handle and must stay beneath it, so
//! `..`, links and components swapped during the operation fail instead of causing a race. An absolute path is
//! accepted if it starts with the workspace's own path; the rest is resolved like a relative one.

use std::{
    collections::HashMap,
    ffi::OsString,
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use budao_core::{
    event::SessionId,
    fault::{Fact, Fault, Kind, Operation},
};
use cap_std::{
    ambient_authority,
    fs::{Dir, File, OpenOptions, OpenOptionsExt},
};
use rustix::fs::OFlags;

use super::{
    documents::EditorDocuments,
    io_errors::{from_io, outside},
    nearest,
};
use crate::contract::CallContext;

/// Maximum number of remembered file states, over all sessions; a full map is cleared.
const WRITTEN_MAX: usize = 4096;

/// A directory as the root of all file access. Cheap to clone.
#[derive(Clone)]
pub struct Workspace(Arc<WorkspaceInner>, Option<Arc<dyn EditorDocuments>>);

struct WorkspaceInner {
    /// The path as configured.
    given: PathBuf,
    /// The canonical path, with links resolved.
    real: PathBuf,
    dir: Dir,
    /// Held from reading a file to replacing it, so that two calls cannot overwrite each other's changes.
    writing: Mutex<()>,
    /// Digests of files that calls wrote, until the session's memory contains them.
    written: Mutex<HashMap<(SessionId, String), String>>,
}

/// The location of a file: a handle of its directory and its name there.
#[derive(Debug)]
pub(super) struct FileLocation {
    pub(super) dir: Dir,
    pub(super) name: OsString,
    /// The path inside the workspace with links resolved, so that the same file always has the same key.
    pub(super) key: String,
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Workspace").field(&self.0.given).finish()
    }
}

impl Workspace {
    /// Opens a directory as a workspace.
    ///
    /// # Errors
    /// When the path is not a directory or cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Fault> {
        let given = path.as_ref().to_path_buf();
        let open = || -> io::Result<WorkspaceInner> {
            let dir = Dir::open_ambient_dir(&given, ambient_authority())?;
            let real = std::fs::canonicalize(&given)?;
            let given = std::path::absolute(&given)?;
            Ok(WorkspaceInner {
                given,
                real,
                dir,
                writing: Mutex::default(),
                written: Mutex::default(),
            })
        };
        match open() {
            Ok(inner) => Ok(Self(Arc::new(inner), None)),
            Err(error) => {
                Err(from_io(&error, &given.display().to_string(), Operation::OpenSession))
            }
        }
    }

    /// Reads and writes text files through an editor, where it can.
    #[must_use]
    pub fn with_documents(self, documents: Option<Arc<dyn EditorDocuments>>) -> Self {
        Self(self.0, documents)
    }

    pub(super) fn documents(&self) -> Option<&Arc<dyn EditorDocuments>> {
        self.1.as_ref()
    }

    /// The canonical path of the workspace.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.real
    }

    pub(super) fn dir(&self) -> &Dir {
        &self.0.dir
    }

    /// Converts a path to one relative to the handle. Does not access the file system.
    pub(super) fn relative(&self, path: &str, operation: Operation) -> Result<PathBuf, Fault> {
        let requested = Path::new(path);
        let inside = if requested.is_absolute() {
            requested
                .strip_prefix(&self.0.real)
                .or_else(|_| requested.strip_prefix(&self.0.given))
                .map_err(|_| outside(path, operation))?
        } else {
            requested
        };
        Ok(if inside.as_os_str().is_empty() { ".".into() } else { inside.to_path_buf() })
    }

    /// Opens a regular file for reading; other file types are a fault.
    pub(super) fn open_file(&self, path: &str, operation: Operation) -> Result<File, Fault> {
        let inside = self.relative(path, operation)?;
        let file = self
            .0
            .dir
            .open_with(&inside, &reading())
            .map_err(|error| self.explain(&error, path, operation))?;
        regular(file, path, operation)
    }

    /// Opens a directory inside the workspace.
    pub(super) fn open_dir(&self, path: &str, operation: Operation) -> Result<Dir, Fault> {
        let inside = self.relative(path, operation)?;
        self.0.dir.open_dir(&inside).map_err(|error| self.explain(&error, path, operation))
    }

    /// Locates a file that exists or is to be created. Its directory must exist.
    pub(super) fn locate(&self, path: &str, operation: Operation) -> Result<FileLocation, Fault> {
        let inside = self.relative(path, operation)?;
        let resolved = match self.0.dir.canonicalize(&inside) {
            Ok(resolved) => resolved,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.locate_new(&inside).map_err(|error| self.explain(&error, path, operation))?
            }
            Err(error) => return Err(self.explain(&error, path, operation)),
        };
        let Some(name) = resolved.file_name().map(ToOwned::to_owned) else {
            return Err(Fault::new(Kind::NotAFile, operation)
                .with(Fact::Path, path.to_owned())
                .with(Fact::Received, "directory"));
        };
        let parent = match resolved.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => self.0.dir.open_dir(parent),
            _ => self.0.dir.try_clone(),
        };
        let dir = parent.map_err(|error| self.explain(&error, path, operation))?;
        Ok(FileLocation { dir, name, key: resolved.to_string_lossy().into_owned() })
    }

    fn locate_new(&self, inside: &Path) -> io::Result<PathBuf> {
        let (Some(parent), Some(name)) = (inside.parent(), inside.file_name()) else {
            return Err(io::ErrorKind::IsADirectory.into());
        };
        if parent.as_os_str().is_empty() {
            return Ok(name.into());
        }
        let parent = self.0.dir.canonicalize(parent)?;
        Ok(if parent == Path::new(".") { name.into() } else { parent.join(name) })
    }

    /// Like [`Workspace::location`], but creates missing directories.
    pub(super) fn locate_or_create(
        &self,
        path: &str,
        operation: Operation,
    ) -> Result<FileLocation, Fault> {
        let first = self.locate(path, operation);
        match &first {
            Err(fault) if fault.kind() == Kind::FileNotFound => {
                let inside = self.relative(path, operation)?;
                let Some(parent) = inside.parent() else { return first };
                self.0
                    .dir
                    .create_dir_all(parent)
                    .map_err(|error| from_io(&error, path, operation))?;
                self.locate(path, operation)
            }
            _ => first,
        }
    }

    /// The key of an existing file; see `FileLocation`.
    pub(super) fn key(&self, path: &str, operation: Operation) -> Result<String, Fault> {
        let inside = self.relative(path, operation)?;
        let resolved = self
            .0
            .dir
            .canonicalize(&inside)
            .map_err(|error| self.explain(&error, path, operation))?;
        Ok(resolved.to_string_lossy().into_owned())
    }

    /// Converts an error to a fault; `file_not_found` includes the nearest existing path.
    pub(super) fn explain(&self, error: &io::Error, path: &str, operation: Operation) -> Fault {
        let fault = from_io(error, path, operation);
        if fault.kind() != Kind::FileNotFound {
            return fault;
        }
        match self.relative(path, operation).ok().and_then(|inside| nearest::find(self, &inside)) {
            Some(found) => fault.with(Fact::NearestPath, found),
            None => fault,
        }
    }

    /// Locks out other writing calls of this workspace.
    pub(super) fn lock_writing(&self) -> MutexGuard<'_, ()> {
        self.0.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the state a call has just written, until the session's memory contains it.
    pub(super) fn wrote(&self, session: SessionId, key: &str, digest: &str) {
        let mut written = self.0.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.len() >= WRITTEN_MAX {
            written.clear();
        }
        written.insert((session, key.to_owned()), digest.to_owned());
    }

    /// True if the session has seen the file in this state, false if in another one, `None` if never.
    pub(super) fn knows(&self, context: &CallContext, key: &str, digest: &str) -> Option<bool> {
        let written = self.0.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.get(&(context.session, key.to_owned())).is_some_and(|known| known == digest) {
            return Some(true);
        }
        context.memory.seen_digest(key).map(|seen| seen.as_deref() == Some(digest))
    }
}

/// Options for reading that do not block when the path is a pipe.
pub(super) fn reading() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    options
}

/// Returns the file if it is a regular one; directories, pipes, sockets and devices are a fault.
pub(super) fn regular(file: File, path: &str, operation: Operation) -> Result<File, Fault> {
    let metadata = file.metadata().map_err(|error| from_io(&error, path, operation))?;
    if metadata.is_file() {
        return Ok(file);
    }
    let found = if metadata.is_dir() { "directory" } else { "special file" };
    Err(Fault::new(Kind::NotAFile, operation)
        .with(Fact::Path, path.to_owned())
        .with(Fact::Received, found))
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        sync::atomic::{AtomicBool, AtomicU64, Ordering},
    };

    use rustix::fs::{CWD, RenameFlags, renameat_with};

    use super::*;

    #[test]
    fn a_link_swapped_in_during_an_open_never_leads_out() {
        // Goal: no race between checking and opening a path. Method: one thread swaps a directory and a link to the
        // outside as fast as it can, while others open files through it for reading and for writing.
        const OPENS: usize = 120_000;
        let parent_folder = tempfile::tempdir().unwrap();
        let (inner_folder, outside) =
            (parent_folder.path().join("room"), parent_folder.path().join("outside"));
        std::fs::create_dir_all(inner_folder.join("door/deep")).unwrap();
        std::fs::create_dir_all(outside.join("deep")).unwrap();
        std::fs::write(inner_folder.join("door/deep/a.txt"), "inside").unwrap();
        std::fs::write(outside.join("deep/a.txt"), "OUTSIDE").unwrap();
        std::os::unix::fs::symlink(&outside, inner_folder.join("spare")).unwrap();
        let workspace = Workspace::open(&inner_folder).unwrap();
        let (over, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
        let (inside, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        let open = |turn: usize| {
            let path = "door/deep/a.txt";
            let opened = if turn.is_multiple_of(4) {
                workspace.locate(path, Operation::WriteFile).and_then(|location| {
                    let file = location.dir.open_with(&location.name, &reading());
                    file.map_err(|error| from_io(&error, path, Operation::WriteFile))
                })
            } else {
                workspace.open_file(path, Operation::ReadFile)
            };
            match opened {
                Ok(mut file) => {
                    let mut text = String::new();
                    file.read_to_string(&mut text).unwrap();
                    assert_eq!(text, "inside");
                    inside.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) => {
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (door, spare) = (inner_folder.join("door"), inner_folder.join("spare"));
                while !over.load(Ordering::Relaxed) {
                    renameat_with(CWD, &door, CWD, &spare, RenameFlags::EXCHANGE).unwrap();
                    swaps.fetch_add(1, Ordering::Relaxed);
                }
            });
            (0..OPENS).for_each(open);
            over.store(true, Ordering::Relaxed);
        });
        let count = |number: &AtomicU64| number.load(Ordering::Relaxed);
        eprintln!(
            "{} opens, {} swaps: {} inside, {} refused",
            OPENS,
            count(&swaps),
            count(&inside),
            count(&refused)
        );
        assert!(count(&inside) > 100 && count(&refused) > 100, "the race took place");
    }
}
