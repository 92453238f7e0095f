//! Room set aside, given up when the disk is full so that a fault and a turn's end can still be written.

use std::{
    fs::OpenOptions,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rustix::fs::{FallocateFlags, fallocate};

use super::witness::with_suffix;

/// Tries to set the room aside again after this many commits that worked.
const PATIENCE: u32 = 64;

#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    bytes: u64,
    is_set: bool,
    patience: u32,
}

impl Reserve {
    pub(super) fn new(journal: &Path, bytes: u64) -> Self {
        let path = with_suffix(journal, "-reserve");
        let mut reserve = Self { path, bytes, is_set: false, patience: 0 };
        reserve.set_aside();
        reserve
    }

    /// Gives the room up. False if it was already.
    pub(super) fn release(&mut self) -> bool {
        let was_set = self.is_set && std::fs::remove_file(&self.path).is_ok();
        if was_set {
            tracing::warn!(path = %self.path.display(), "the disk is full: using the reserved room");
        }
        self.is_set = false;
        self.patience = PATIENCE;
        was_set
    }

    /// Ordinary work goes well again; now and then tries to set the room aside anew.
    pub(super) fn restore(&mut self) {
        if self.is_set || self.bytes == 0 {
            return;
        }
        self.patience = self.patience.saturating_sub(1);
        if self.patience == 0 {
            self.patience = PATIENCE;
            self.set_aside();
        }
    }

    fn set_aside(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.path);
        let set = file.and_then(|file| {
            if file.metadata()?.len() >= self.bytes {
                return Ok(());
            }
            fallocate(&file, FallocateFlags::empty(), 0, self.bytes).map_err(std::io::Error::from)
        });
        self.is_set = match set {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(%error, "no room could be set aside");
                // Half a reserve would only make a full disk fuller.
                let _ = std::fs::remove_file(&self.path);
                false
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_is_given_up_once_and_set_aside_again_after_enough_good_work() {
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join("journal.db");
        let is_there = || with_suffix(&journal, "-reserve").exists();
        let mut reserve = Reserve::new(&journal, 4096);
        assert!(is_there());
        reserve.restore();
        assert!(reserve.release(), "it was there to be given up");
        assert!(!is_there());
        assert!(!reserve.release(), "it cannot be given up twice");
        for _ in 1..PATIENCE {
            reserve.restore();
            assert!(!is_there());
        }
        reserve.restore();
        assert!(is_there());
        // The next opening finds it and needs no more.
        assert!(Reserve::new(&journal, 4096).release());
    }

    #[test]
    fn no_room_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join("journal.db");
        let mut reserve = Reserve::new(&journal, 0);
        reserve.restore();
        assert!(!reserve.release());
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    }
}
