//! The operator's interface of a journal: retention, deletion, statistics, copies.

use std::{
    fmt,
    io::{BufRead, Write},
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use budao_core::{
    event::{Seq, SessionId},
    fault::{Fact, Fault, Kind, Operation},
    retention::{Retention, RetentionReport},
};
use serde::Serialize;

use super::ChainPage;
use crate::implement::transfer::{self, Transfer};

/// Maintains a journal. A method that a backend does not support returns
/// `journal_unsupported` by default.
#[async_trait]
pub trait Admin: Send + Sync + fmt::Debug {
    /// The kind of journal, for people: `sqlite`.
    fn kind(&self) -> &'static str;

    /// Removes records, sessions and stored outputs that exceed the bounds. It may be interrupted at any moment and
    /// repeated.
    ///
    /// # Errors
    /// When the journal fails.
    async fn retain(&self, retention: Retention) -> Result<RetentionReport, Fault>;

    /// Removes a session entirely and fences its writer; its followers end with a fault. Returns whether the session
    /// existed.
    ///
    /// # Errors
    /// When the journal fails.
    async fn delete(&self, session: SessionId) -> Result<bool, Fault>;

    /// Deletes the views and derives them again from the records.
    ///
    /// # Errors
    /// When the journal fails.
    async fn rebuild_views(&self) -> Result<(), Fault>;

    /// Reads the stored digests of a session: its start and head, and at most `limit` batches that end after `after`.
    ///
    /// # Errors
    /// `unknown_session`; when the journal fails; `journal_unsupported` if the backend stores none.
    async fn chain(
        &self,
        _session: SessionId,
        _after: Seq,
        _limit: usize,
    ) -> Result<ChainPage, Fault> {
        Err(unsupported(Operation::CheckJournal, self.kind()))
    }

    /// Counts sessions, records, commands and outputs, and measures the files.
    ///
    /// # Errors
    /// When the journal fails; `journal_unsupported` if the backend has no such figures.
    async fn stats(&self) -> Result<JournalStats, Fault> {
        Err(unsupported(Operation::CheckJournal, self.kind()))
    }

    /// Returns the space of removed records to the file system, also while the journal is in use. Retention does the same,
    /// but leaves some for new records.
    ///
    /// # Errors
    /// When the journal fails; `journal_unsupported` if the backend has its own tools for it.
    async fn compact(&self) -> Result<CompactReport, Fault> {
        Err(unsupported(Operation::ApplyRetention, self.kind()))
    }

    /// Gives every session a new epoch when its lease is next taken: for a restored copy that the journal cannot tell
    /// from its original.
    ///
    /// # Errors
    /// When the journal fails; `journal_unsupported` if the backend notices every restored copy by itself.
    async fn renew_epochs(&self) -> Result<(), Fault> {
        Err(unsupported(Operation::BackUpJournal, self.kind()))
    }

    /// Copies the current state to a new file while the journal is in use. The first process that opens the copy for
    /// writing gives its sessions new epochs. The copy has the name of [`partial_copy`] until it is complete.
    ///
    /// # Errors
    /// When the target exists or cannot be written, or the journal fails; `journal_unsupported` if the backend has its
    /// own tools for backups.
    async fn backup(&self, _target: &Path) -> Result<(), Fault> {
        Err(unsupported(Operation::BackUpJournal, self.kind()))
    }

    /// Writes sessions as JSON lines: all, or those in `only`. An event's JSON is copied from the journal byte for
    /// byte. A damaged session is cut at the damage and counted in [`ExportReport::cut`].
    ///
    /// # Errors
    /// When a named session does not exist, or writing fails; `journal_unsupported`.
    async fn export(
        &self,
        only: Option<&[SessionId]>,
        out: &mut (dyn Write + Send),
    ) -> Result<ExportReport, Fault> {
        match self.transfer() {
            Some(source) => transfer::export(source, only, out).await,
            None => Err(unsupported(Operation::BackUpJournal, self.kind())),
        }
    }

    /// Adds sessions from JSON lines, each with a new epoch. Existing sessions are left unchanged.
    ///
    /// # Errors
    /// When a line is invalid or the input is incomplete. Complete sessions before that line stay; the incomplete one
    /// is removed again. `journal_unsupported`.
    async fn import(&self, input: &mut (dyn BufRead + Send)) -> Result<ImportReport, Fault> {
        match self.transfer() {
            Some(target) => transfer::import(target, input).await,
            None => Err(unsupported(Operation::ImportSession, self.kind())),
        }
    }

    /// The interface that moves sessions into and out of the journal; `None` if unsupported.
    fn transfer(&self) -> Option<&dyn Transfer> {
        None
    }

    /// Finishes the queued requests and closes the journal. Later requests are refused as `shutting_down`.
    async fn close(&self) {}
}

/// The temporary path of a backup until it is complete. Its size shows the progress.
#[must_use]
pub fn partial_copy(target: &Path) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// The fault for a task that a kind of journal leaves to the tools of its own storage.
#[must_use]
pub fn unsupported(operation: Operation, kind: &'static str) -> Fault {
    Fault::new(Kind::JournalUnsupported, operation).with(Fact::Service, kind)
}

/// The size of a journal and the number of rows in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JournalStats {
    /// Size of the database file, without the write-ahead log.
    pub file_bytes: u64,
    /// Size of the write-ahead log.
    pub wal_bytes: u64,
    /// Bytes that the storage can reuse; 0 if unknown.
    pub free_bytes: u64,
    /// The number of sessions.
    pub sessions: u64,
    /// Batches: the rows that hold records.
    pub batches: u64,
    /// Records in all batches.
    pub records: u64,
    /// Bytes of encoded events, with their headers and checksums.
    pub record_bytes: u64,
    /// Commands, answered or pending.
    pub commands: u64,
    /// Commands without an answer.
    pub pending_commands: u64,
    /// Snapshots; at most one per session.
    pub snapshots: u64,
    /// Stored outputs; each content counts once.
    pub blobs: u64,
    /// Bytes of stored outputs.
    pub blob_bytes: u64,
    /// Batches not yet in the views.
    pub views_behind: u64,
    /// A description of data that an earlier opening found missing; `None` if nothing was.
    pub lost: Option<String>,
}

/// The size of a journal before and after its free space was returned. The file has the new size after its next
/// checkpoint, at the latest when no process uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CompactReport {
    /// Bytes of all pages before, free ones included.
    pub before_bytes: u64,
    /// Bytes of the pages that are left.
    pub after_bytes: u64,
}

/// The numbers of sessions and records that an export wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExportReport {
    /// Sessions written, whole or in part.
    pub sessions: u64,
    /// Records written in all sessions.
    pub records: u64,
    /// Sessions cut at a damaged record.
    pub cut: u64,
}

/// The numbers of sessions and records that an import added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImportReport {
    /// Sessions added, each complete.
    pub sessions: u64,
    /// Records added in all sessions.
    pub records: u64,
    /// Sessions that already existed and were left unchanged.
    pub skipped: u64,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Sessions whose own row is intact.
    pub sessions: u64,
    /// Records without damage.
    pub records: u64,
    /// Commands without damage.
    pub commands: u64,
    /// Stored outputs without damage.
    pub blobs: u64,
    /// All findings; empty if the journal is intact.
    pub findings: Vec<Damage>,
    /// A description of data that an earlier opening found missing and dealt with; `None` if nothing was.
    pub lost: Option<String>,
}

/// One finding of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// The affected session; `None` if the finding concerns the whole file.
    pub session: Option<SessionId>,
    /// The first unreadable record; `None` if the finding concerns no record.
    pub seq: Option<Seq>,
    /// A description of the damage.
    pub description: String,
    /// A description of the data that is still readable.
    pub readable: String,
}
