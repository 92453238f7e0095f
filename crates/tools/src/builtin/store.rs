//! Atomic replacement of files.
//!
//! New content goes to a temporary file in the same directory, is synced, and is renamed over the old file; then the
//! directory is synced. Readers see the old file or the new one. Several files are all staged before the first
//! rename. If a rename fails, the earlier ones are undone. A crash between two renames can leave some files new and
//! some old, but each one complete.
//!
//! Permissions are kept. Other hard links to the same file keep the old content.

use std::{
    ffi::OsString,
    io::{self, Read, Write},
    sync::atomic::{AtomicU64, Ordering},
};

use budao_core::fault::{Fact, Fault, Kind, Operation};
use cap_std::fs::{Dir, OpenOptions, Permissions};
use rustix::fs::{Mode, OFlags, fsync, openat};

use super::{
    io_errors::{from_io, too_large},
    workspace::{FileLocation, reading, regular},
};
use crate::contract::content_hash;

/// Attempts to find an unused temporary name.
const NAMES_MAX: u32 = 16;

/// The current content of a file.
#[derive(Debug)]
pub(super) struct ExistingFile {
    pub(super) bytes: Vec<u8>,
    pub(super) digest: String,
    permissions: Permissions,
}

/// Reads the current content; `None` if the file does not exist. Fails if the file is not writable.
pub(super) fn load(
    location: &FileLocation,
    path: &str,
    bytes_max: usize,
    operation: Operation,
) -> Result<Option<ExistingFile>, Fault> {
    let to_fault = |error: &io::Error| from_io(error, path, operation);
    let file = match location.dir.open_with(&location.name, &reading()) {
        Ok(file) => regular(file, path, operation)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(to_fault(&error)),
    };
    let metadata = file.metadata().map_err(|error| to_fault(&error))?;
    let mut bytes = Vec::new();
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes).map_err(|error| to_fault(&error))?;
    if bytes.len() > bytes_max {
        return Err(too_large(operation, "output_bytes_kept", bytes_max, metadata.len())
            .with(Fact::Path, path.to_owned()));
    }
    // A rename only needs permission for the directory, so a read-only file is rejected here.
    location
        .dir
        .open_with(&location.name, OpenOptions::new().write(true))
        .map_err(|error| to_fault(&error))?;
    let digest = content_hash(&bytes);
    Ok(Some(ExistingFile { bytes, digest, permissions: metadata.permissions() }))
}

/// New content in a temporary file, ready to be renamed. Dropping it without a commit removes the file.
#[derive(Debug)]
pub(super) struct StagedFile<'a> {
    location: &'a FileLocation,
    temporary: Option<OsString>,
    /// A second name of the old file, kept until the commit is complete.
    backup: Option<OsString>,
}

/// Writes new content to a temporary file in the target directory and syncs it.
pub(super) fn stage<'a>(
    location: &'a FileLocation,
    bytes: &[u8],
    existing: Option<&ExistingFile>,
    nonce: u64,
) -> io::Result<StagedFile<'a>> {
    let (name, mut file) = create(&location.dir, nonce)?;
    let staged = StagedFile { location, temporary: Some(name), backup: None };
    file.write_all(bytes)?;
    if let Some(existing) = existing {
        file.set_permissions(existing.permissions.clone())?;
    }
    file.sync_all()?;
    Ok(staged)
}

fn create(dir: &Dir, nonce: u64) -> io::Result<(OsString, cap_std::fs::File)> {
    let mut tries = 0;
    loop {
        let name = temporary_name(nonce);
        match dir.open_with(&name, OpenOptions::new().write(true).create_new(true)) {
            Ok(file) => return Ok((name, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < NAMES_MAX => {
                tries += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// A unique temporary name, from a random number and a process-wide counter.
fn temporary_name(nonce: u64) -> OsString {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!(".budao-{:x}-{nonce:016x}-{count:x}.tmp", std::process::id()).into()
}

impl StagedFile<'_> {
    /// Renames the temporary file over the target.
    fn put(&mut self) -> io::Result<()> {
        let FileLocation { dir, name, .. } = self.location;
        if let Some(temporary) = &self.temporary {
            dir.rename(temporary, dir, name)?;
            self.temporary = None;
        }
        Ok(())
    }

    /// Gives the old file a second name, so that it can be restored.
    fn keep_old(&mut self, nonce: u64) -> io::Result<()> {
        let FileLocation { dir, name, .. } = self.location;
        let backup = temporary_name(nonce);
        if dir.hard_link(name, dir, &backup).is_err() {
            // Not every file system supports hard links.
            dir.copy(name, dir, &backup)?;
        }
        self.backup = Some(backup);
        Ok(())
    }

    /// Restores the old file from its second name.
    fn undo(&mut self) -> io::Result<()> {
        let FileLocation { dir, name, .. } = self.location;
        if let Some(backup) = &self.backup {
            dir.rename(backup, dir, name)?;
            self.backup = None;
        }
        Ok(())
    }

    /// Syncs the directory. The content is in place already, so a failed sync is logged and does not fail the write.
    fn sync(&self) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let synced = openat(&self.location.dir, ".", flags, Mode::empty()).and_then(fsync);
        if let Err(error) = synced {
            tracing::warn!(path = self.location.key, %error, "directory sync failed");
        }
    }
}

impl Drop for StagedFile<'_> {
    fn drop(&mut self) {
        for name in [self.temporary.take(), self.backup.take()].into_iter().flatten() {
            // A file that cannot be removed stays behind; it is hidden and has a recognizable name.
            drop(self.location.dir.remove_file(name));
        }
    }
}

/// Renames one staged file over its target.
pub(super) fn commit(mut staged: StagedFile<'_>) -> io::Result<()> {
    staged.put()?;
    staged.sync();
    Ok(())
}

/// The failure of a commit of several files.
#[derive(Debug)]
pub(super) struct CommitFailure {
    /// Index of the file whose rename failed.
    pub(super) index: usize,
    pub(super) error: io::Error,
    /// Indices of the files that could not be restored.
    pub(super) stuck: Vec<usize>,
}

/// Renames all staged files over their targets, or none of them.
pub(super) fn commit_all(staged: Vec<StagedFile<'_>>, nonce: u64) -> Result<(), CommitFailure> {
    commit_each(staged, nonce, |_| {})
}

/// Calls `before` ahead of each rename, so that a test can make one fail.
fn commit_each(
    mut staged: Vec<StagedFile<'_>>,
    nonce: u64,
    mut before: impl FnMut(usize),
) -> Result<(), CommitFailure> {
    for index in 0..staged.len() {
        before(index);
        let next = &mut staged[index];
        if let Err(error) = next.keep_old(nonce).and_then(|()| next.put()) {
            let stuck = (0..index).rev().filter(|at| staged[*at].undo().is_err()).collect();
            return Err(CommitFailure { index, error, stuck });
        }
    }
    staged.iter().for_each(StagedFile::sync);
    Ok(())
}

/// The fault for a failed write.
pub(super) fn write_fault(
    error: &io::Error,
    path: &str,
    needed: usize,
    operation: Operation,
) -> Fault {
    let fault = from_io(error, path, operation);
    if fault.kind() == Kind::DiskFull { fault.with(Fact::NeededBytes, needed) } else { fault }
}

#[cfg(test)]
mod tests {
    use cap_std::ambient_authority;

    use super::*;

    fn locate(dir: &Dir, name: &str) -> FileLocation {
        FileLocation { dir: dir.try_clone().unwrap(), name: name.into(), key: name.to_owned() }
    }

    fn names(dir: &Dir) -> Vec<String> {
        let mut names: Vec<_> = dir
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_rename_that_fails_takes_back_those_before_it() {
        // Goal: all or nothing. Method: between the second and the third rename the third file is replaced
        // by a directory that is not empty, which no file can be renamed over.
        let temporary = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(temporary.path(), ambient_authority()).unwrap();
        let places: Vec<_> =
            ["one", "two", "three"].iter().map(|name| locate(&dir, name)).collect();
        for location in &places {
            dir.write(&location.name, "old").unwrap();
        }
        let staged: Vec<_> =
            places.iter().map(|location| stage(location, b"new", None, 7).unwrap()).collect();
        let undone = commit_each(staged, 7, |index| {
            if index == 2 {
                dir.remove_file("three").unwrap();
                dir.create_dir_all("three/full").unwrap();
            }
        })
        .unwrap_err();
        assert_eq!((undone.index, undone.stuck.len()), (2, 0));
        assert_eq!(dir.read_to_string("one").unwrap(), "old");
        assert_eq!(dir.read_to_string("two").unwrap(), "old");
        assert_eq!(names(&dir), ["one", "three", "two"], "no temporary file stays behind");
    }

    #[test]
    fn all_are_replaced_and_nothing_else_is_left() {
        let temporary = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(temporary.path(), ambient_authority()).unwrap();
        let places: Vec<_> = ["one", "two"].iter().map(|name| locate(&dir, name)).collect();
        for location in &places {
            dir.write(&location.name, "old").unwrap();
        }
        let staged =
            places.iter().map(|location| stage(location, b"new", None, 7).unwrap()).collect();
        commit_all(staged, 7).unwrap();
        assert_eq!(dir.read_to_string("two").unwrap(), "new");
        assert_eq!(names(&dir), ["one", "two"]);
    }
}
