//! Files opened beside SQLite, in ways that do no harm: pipes and devices are not opened, links are not followed,
//! and SQLite's locks stay.
//!
//! Closing any descriptor of a file drops the locks that the same process holds on it elsewhere. So one descriptor
//! of each journal is kept while this process uses the journal, and every inspection reads through it.

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
use crate::notifier::lock;

/// Device and inode.
pub(super) type Identity = (u64, u64);

/// The files that this process has open as journals, with the number of their users.
static OPEN: Mutex<BTreeMap<Identity, (usize, File)>> = Mutex::new(BTreeMap::new());

/// A file in use as a journal. Must outlive every connection to the file.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) identity: Identity,
}

impl OpenFile {
    /// Opens a regular file, or shares the descriptor that this process has of it.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let mut open = lock(&OPEN);
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

    /// The user who owns the file.
    pub(super) fn owner(&self) -> Result<u32> {
        self.with(|file| Ok(file.metadata()?.uid()))
    }

    /// The beginning of the file.
    pub(super) fn header(&self) -> Result<Header> {
        self.with(|file| read_header(file, 0))
    }

    /// Takes the permissions of everybody but the owner away.
    pub(super) fn make_private(&self) -> Result<()> {
        self.with(|file| {
            let mode = file.metadata()?.permissions().mode();
            if mode & 0o077 == 0 {
                return Ok(());
            }
            file.set_permissions(Permissions::from_mode(mode & 0o700))
        })
    }

    fn with<T>(&self, work: impl FnOnce(&File) -> Result<T>) -> Result<T> {
        match lock(&OPEN).get(&self.identity) {
            Some((_, file)) => work(file),
            None => Err(ErrorKind::NotFound.into()),
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let mut open = lock(&OPEN);
        if let Some((users, _)) = open.get_mut(&self.identity) {
            *users -= 1;
            if *users == 0 {
                open.remove(&self.identity);
            }
        }
    }
}

/// Creates an empty file, private from its first byte. SQLite gives its side files the same mode.
pub(super) fn create_new(path: &Path) -> Result<()> {
    // Nobody in this process may open it before this descriptor is closed.
    let _open = lock(&OPEN);
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop)
}

/// Which file a path leads to.
pub(super) fn identity(path: &Path) -> Result<Identity> {
    let found = std::fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Opens a regular file for reading. Never waits, which opening a pipe would, and never follows a link.
pub(super) fn open_regular(path: &Path) -> Result<File> {
    open_regular_with(path, OpenOptions::new().read(true))
}

/// The same with these options, which may create the file.
pub(super) fn open_regular_with(path: &Path, options: &mut OpenOptions) -> Result<File> {
    let irregular = || Error::new(ErrorKind::InvalidInput, "it is not a regular file");
    // Even opening a device can have an effect.
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => return Err(irregular()),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(irregular()) }
}
