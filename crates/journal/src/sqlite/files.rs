//! Opens files beside SQLite safely: never pipes or devices, never through links, and without losing SQLite's locks.
//!
//! Closing any descriptor of a file drops the locks that the same process holds on it. So this process keeps one
//! descriptor per journal open while it uses the journal, and every inspection reads through it.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions, Permissions},
    io::{Error, ErrorKind, Result},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
    sync::Mutex,
};

use rustix::fs::OFlags;

use super::inspect::{Header, read_header};
use crate::implement::notifier::lock;

/// The device and inode of a file.
pub(super) type FileIdentity = (u64, u64);

/// The journals that this process has open, with the number of users of each descriptor.
static OPEN_FILES: Mutex<BTreeMap<FileIdentity, (usize, File)>> = Mutex::new(BTreeMap::new());

/// A file in use as a journal. It must outlive every connection to the file.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) identity: FileIdentity,
}

impl OpenFile {
    /// Opens a regular file, or shares the descriptor that this process already has.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let mut open = lock(&OPEN_FILES);
        let identity = identity(path)?;
        if let Some((users, _)) = open.get_mut(&identity) {
            *users += 1;
            return Ok(Self { identity });
        }
        let file = open_regular(path)?;
        let found = file.metadata()?;
        if (found.dev(), found.ino()) != identity {
            return Err(Error::new(ErrorKind::Interrupted, "the file was replaced meanwhile"));
        }
        open.insert(identity, (1, file));
        Ok(Self { identity })
    }

    /// The user id of the file's owner.
    pub(super) fn owner(&self) -> Result<u32> {
        self.with_file(|file| Ok(file.metadata()?.uid()))
    }

    /// Reads the beginning of the file.
    pub(super) fn header(&self) -> Result<Header> {
        self.with_file(|file| read_header(file, 0))
    }

    /// Removes the permissions of all users except the owner.
    pub(super) fn make_private(&self) -> Result<()> {
        self.with_file(|file| {
            let mode = file.metadata()?.permissions().mode();
            if mode & 0o077 == 0 {
                return Ok(());
            }
            file.set_permissions(Permissions::from_mode(mode & 0o700))
        })
    }

    fn with_file<T>(&self, work: impl FnOnce(&File) -> Result<T>) -> Result<T> {
        match lock(&OPEN_FILES).get(&self.identity) {
            Some((_, file)) => work(file),
            None => Err(ErrorKind::NotFound.into()),
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let mut open = lock(&OPEN_FILES);
        if let Some((users, _)) = open.get_mut(&self.identity) {
            *users -= 1;
            if *users == 0 {
                open.remove(&self.identity);
            }
        }
    }
}

/// Creates an empty file with mode 0600 from the start. SQLite gives its side files the same mode.
pub(super) fn create_new(path: &Path) -> Result<()> {
    // The lock stops this process from opening the file before this descriptor is closed.
    let _open = lock(&OPEN_FILES);
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop)
}

/// The device and inode that a path leads to.
pub(super) fn identity(path: &Path) -> Result<FileIdentity> {
    let found = std::fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Opens a regular file for reading. Never follows a link, and never blocks as opening a pipe would.
pub(super) fn open_regular(path: &Path) -> Result<File> {
    open_regular_with(path, OpenOptions::new().read(true))
}

/// Opens a regular file with these options, which may create it.
pub(super) fn open_regular_with(path: &Path, options: &mut OpenOptions) -> Result<File> {
    let irregular = || Error::new(ErrorKind::InvalidInput, "it is not a regular file");
    // The type is checked first, because merely opening a device can have an effect.
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => return Err(irregular()),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(irregular()) }
}
