//! The workspace: one directory handle, and every path resolved beneath it by the kernel.
//!
//! A path is never checked and then opened. It is opened relative to the handle with "stay beneath" in
//! force, so `..`, links and a component that is swapped in the middle all end in a refusal, not in a
//! race. An absolute path is accepted when it begins with the workspace's own path; what follows is
//! resolved like any other.

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
    io_errors::{from_io, outside},
    nearest,
};
use crate::contract::CallContext;

/// Files that one session wrote and we still know the state of.
const WRITTEN_MAX: usize = 4096;

/// A directory, and nothing outside it. Cheap to clone.
#[derive(Clone)]
pub struct Workspace(Arc<WorkspaceInner>);

struct WorkspaceInner {
    /// As it was named.
    given: PathBuf,
    /// As the kernel names it.
    real: PathBuf,
    dir: Dir,
    /// Held from the look at a file to its replacement, so that two of our own calls cannot cross.
    writing: Mutex<()>,
    /// What calls of ours wrote and the session's memory may not say yet.
    written: Mutex<HashMap<(SessionId, String), String>>,
}

/// A file's place: the directory it is in, as a handle, and its name there.
#[derive(Debug)]
pub(super) struct FileLocation {
    pub(super) dir: Dir,
    pub(super) name: OsString,
    /// Its path inside the workspace with all links resolved: the same file has the same key.
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
    /// When it is no directory or cannot be opened.
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
            Ok(inner) => Ok(Self(Arc::new(inner))),
            Err(error) => {
                Err(from_io(&error, &given.display().to_string(), Operation::OpenSession))
            }
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.real
    }

    pub(super) fn dir(&self) -> &Dir {
        &self.0.dir
    }

    /// The path as the handle wants it: relative. Nothing is looked at.
    pub(super) fn relative(&self, path: &str, operation: Operation) -> Result<PathBuf, Fault> {
        let asked = Path::new(path);
        let inside = if asked.is_absolute() {
            asked
                .strip_prefix(&self.0.real)
                .or_else(|_| asked.strip_prefix(&self.0.given))
                .map_err(|_| outside(path, operation))?
        } else {
            asked
        };
        Ok(if inside.as_os_str().is_empty() { ".".into() } else { inside.to_path_buf() })
    }

    /// Opens a regular file for reading.
    pub(super) fn open_file(&self, path: &str, operation: Operation) -> Result<File, Fault> {
        let inside = self.relative(path, operation)?;
        let file = self
            .0
            .dir
            .open_with(&inside, &reading())
            .map_err(|error| self.explain(&error, path, operation))?;
        regular(file, path, operation)
    }

    /// Opens a directory.
    pub(super) fn open_dir(&self, path: &str, operation: Operation) -> Result<Dir, Fault> {
        let inside = self.relative(path, operation)?;
        self.0.dir.open_dir(&inside).map_err(|error| self.explain(&error, path, operation))
    }

    /// Where a file is, or would be. Its directory must exist.
    pub(super) fn place(&self, path: &str, operation: Operation) -> Result<FileLocation, Fault> {
        let inside = self.relative(path, operation)?;
        let resolved = match self.0.dir.canonicalize(&inside) {
            Ok(resolved) => resolved,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.place_of_new(&inside).map_err(|error| self.explain(&error, path, operation))?
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

    fn place_of_new(&self, inside: &Path) -> io::Result<PathBuf> {
        let (Some(parent), Some(name)) = (inside.parent(), inside.file_name()) else {
            return Err(io::ErrorKind::IsADirectory.into());
        };
        if parent.as_os_str().is_empty() {
            return Ok(name.into());
        }
        let parent = self.0.dir.canonicalize(parent)?;
        Ok(if parent == Path::new(".") { name.into() } else { parent.join(name) })
    }

    /// Like [`Workspace::place`], making the directories on the way.
    pub(super) fn make_place(
        &self,
        path: &str,
        operation: Operation,
    ) -> Result<FileLocation, Fault> {
        let first = self.place(path, operation);
        match &first {
            Err(fault) if fault.kind() == Kind::FileNotFound => {
                let inside = self.relative(path, operation)?;
                let Some(parent) = inside.parent() else { return first };
                self.0
                    .dir
                    .create_dir_all(parent)
                    .map_err(|error| from_io(&error, path, operation))?;
                self.place(path, operation)
            }
            _ => first,
        }
    }

    /// The key of an existing file.
    pub(super) fn key(&self, path: &str, operation: Operation) -> Result<String, Fault> {
        let inside = self.relative(path, operation)?;
        let resolved = self
            .0
            .dir
            .canonicalize(&inside)
            .map_err(|error| self.explain(&error, path, operation))?;
        Ok(resolved.to_string_lossy().into_owned())
    }

    /// The fault of an error, with the nearest existing path when there is none at the one asked for.
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

    /// One writer of ours at a time.
    pub(super) fn lock_writing(&self) -> MutexGuard<'_, ()> {
        self.0.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers what a call has just written, until the session's own memory says so.
    pub(super) fn wrote(&self, session: SessionId, key: &str, digest: &str) {
        let mut written = self.0.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.len() >= WRITTEN_MAX {
            written.clear();
        }
        written.insert((session, key.to_owned()), digest.to_owned());
    }

    /// Does the session know the file in this state? None: it has never seen it.
    pub(super) fn knows(&self, context: &CallContext, key: &str, digest: &str) -> Option<bool> {
        let written = self.0.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.get(&(context.session, key.to_owned())).is_some_and(|known| known == digest) {
            return Some(true);
        }
        context.memory.seen(key).map(|seen| seen.as_deref() == Some(digest))
    }
}

/// Read-only, and without waiting for the other end of a pipe.
pub(super) fn reading() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    options
}

/// The file, if it is one: directories, pipes, sockets and devices are not.
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
        // Goal: no race between looking and opening, because there is no looking. Method: one thread swaps a
        // directory and a link to the outside in place, as fast as it can; the others open through it, to
        // read and to find a place to write.
        const OPENS: usize = 120_000;
        let around = tempfile::tempdir().unwrap();
        let (room, outside) = (around.path().join("room"), around.path().join("outside"));
        std::fs::create_dir_all(room.join("door/deep")).unwrap();
        std::fs::create_dir_all(outside.join("deep")).unwrap();
        std::fs::write(room.join("door/deep/a.txt"), "inside").unwrap();
        std::fs::write(outside.join("deep/a.txt"), "OUTSIDE").unwrap();
        std::os::unix::fs::symlink(&outside, room.join("spare")).unwrap();
        let workspace = Workspace::open(&room).unwrap();
        let (over, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
        let (inside, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        let open = |turn: usize| {
            let path = "door/deep/a.txt";
            let opened = if turn.is_multiple_of(4) {
                workspace.place(path, Operation::WriteFile).and_then(|place| {
                    let file = place.dir.open_with(&place.name, &reading());
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
                let (door, spare) = (room.join("door"), room.join("spare"));
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
