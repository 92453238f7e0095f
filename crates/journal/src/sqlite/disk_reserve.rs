//! Reserved disk space, released on a full disk so that a fault and the end of a turn can still be written.

use std::{
    fs::{File, OpenOptions},
    io::{Error, ErrorKind},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::{FallocateFlags, fallocate};

use super::{
    files::{open_regular, open_regular_with},
    watermark::with_suffix,
};

/// The number of successful commits between attempts to restore the reserve.
const RESTORE_INTERVAL: u32 = 64;

#[derive(Debug)]
pub(super) struct DiskReserve {
    path: PathBuf,
    bytes: u64,
    is_reserved: bool,
    commits_left: u32,
}

impl DiskReserve {
    pub(super) fn new(journal: &Path, bytes: u64) -> Self {
        let path = with_suffix(journal, "-reserve");
        let mut reserve = Self { path, bytes, is_reserved: false, commits_left: 0 };
        reserve.allocate_reserve();
        reserve
    }

    /// Releases the space. Returns false if it was not reserved.
    pub(super) fn release(&mut self) -> bool {
        let is_ours = || {
            open_regular(&self.path)
                .is_ok_and(|file| is_zeroed(&file, self.bytes).is_ok_and(|it| it))
        };
        let was_set = self.is_reserved && is_ours() && std::fs::remove_file(&self.path).is_ok();
        if was_set {
            tracing::warn!(path = %self.path.display(), "disk full, using reserved space");
        }
        self.is_reserved = false;
        self.commits_left = RESTORE_INTERVAL;
        was_set
    }

    /// Called after each successful commit; every [`RESTORE_INTERVAL`] commits it tries to allocate the reserve again.
    pub(super) fn restore(&mut self) {
        if self.is_reserved || self.bytes == 0 {
            return;
        }
        self.commits_left = self.commits_left.saturating_sub(1);
        if self.commits_left == 0 {
            self.commits_left = RESTORE_INTERVAL;
            self.allocate_reserve();
        }
    }

    fn allocate_reserve(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = open_regular_with(&self.path, &mut options).and_then(|file| {
            let is_ours = is_zeroed(&file, self.bytes)?;
            let foreign = || Error::new(ErrorKind::AlreadyExists, "a file of another program");
            is_ours.then_some(file).ok_or_else(foreign)
        });
        let file = match file {
            Ok(file) => file,
            Err(error) => {
                tracing::debug!(
                    %error, path = %self.path.display(),
                    "opening disk space reserve failed"
                );
                self.is_reserved = false;
                return;
            }
        };
        self.is_reserved = match allocate(&file, self.bytes) {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(%error, "reserving disk space failed");
                // A partial reserve would only take space on a disk that is almost full.
                let _ = std::fs::remove_file(&self.path);
                false
            }
        };
    }
}

fn allocate(file: &File, bytes: u64) -> std::io::Result<()> {
    if file.metadata()?.len() >= bytes {
        return Ok(());
    }
    fallocate(file, FallocateFlags::empty(), 0, bytes).map_err(Error::from)
}

/// Whether the first `bytes` bytes of the file are all zero, as in a reserve.
fn is_zeroed(file: &File, bytes: u64) -> std::io::Result<bool> {
    let mut piece = [0; 64 * 1024];
    let mut start = 0;
    while start < bytes {
        let length = file.read_at(&mut piece, start)?;
        if length == 0 {
            return Ok(true);
        }
        if piece[..length].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        start += length as u64;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_released_once_and_restored_after_enough_writes() {
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join("journal.db");
        let is_there = || with_suffix(&journal, "-reserve").exists();
        let mut reserve = DiskReserve::new(&journal, 4096);
        assert!(is_there());
        reserve.restore();
        assert!(reserve.release(), "it was there to be given up");
        assert!(!is_there());
        assert!(!reserve.release(), "it cannot be given up twice");
        for _ in 1..RESTORE_INTERVAL {
            reserve.restore();
            assert!(!is_there());
        }
        reserve.restore();
        assert!(is_there());
        // The next opening finds the reserve and allocates nothing.
        assert!(DiskReserve::new(&journal, 4096).release());
    }

    #[test]
    fn a_reserve_of_zero_bytes_makes_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join("journal.db");
        let mut reserve = DiskReserve::new(&journal, 0);
        reserve.restore();
        assert!(!reserve.release());
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    }
}
