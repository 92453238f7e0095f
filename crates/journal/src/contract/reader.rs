//! The reading interface of a journal: histories, stored outputs, and the views that operators search by.

use std::fmt;

use async_trait::async_trait;
use budao_core::{
    event::{Seq, SessionId},
    fault::Fault,
};
use bytes::Bytes;
use futures::stream::BoxStream;

use super::{
    Digest, FaultRate, Filter, HistoryInfo, Page, PageLimits, RateQuery, SessionSummary, Snapshot,
    StoredRecord, TimedSession, TimerQuery, UnfinishedSession,
};

/// Reads a journal. Gateways get this interface and the engine; servers that share a journal also get `Cluster`.
#[async_trait]
pub trait Reader: Send + Sync + fmt::Debug {
    /// The epoch, positions and lease of a session; `None` if it does not exist.
    ///
    /// # Errors
    /// When the journal fails.
    async fn info(&self, session: SessionId) -> Result<Option<HistoryInfo>, Fault>;

    /// The records after a position, oldest first. A page has at least one record if there is one, even above the byte
    /// limit. Removed records are skipped and named in [`Page::gap`].
    ///
    /// # Errors
    /// `unknown_session`; `epoch_mismatch` for a position beyond the head; `journal_damaged` when the very next record
    /// is damaged (an earlier page ends before the damage).
    async fn read(&self, session: SessionId, after: Seq, limits: PageLimits)
    -> Result<Page, Fault>;

    /// Every record after a position, then new ones as they become durable. Batches are never empty.
    ///
    /// The stream ends only after an error: those of [`Reader::read`], and `history_gap` when retention has removed
    /// the next record. On a session without records the stream waits.
    fn follow(
        &self,
        session: SessionId,
        after: Seq,
    ) -> BoxStream<'static, Result<Vec<StoredRecord>, Fault>>;

    /// The newest snapshot; `None` if the session has none.
    ///
    /// # Errors
    /// When the journal fails, or the snapshot claims a position the history does not reach.
    async fn snapshot(&self, session: SessionId) -> Result<Option<Snapshot>, Fault>;

    /// The content of a stored output; `None` if it was removed.
    ///
    /// # Errors
    /// `journal_damaged` when the content no longer matches its hash.
    async fn blob(&self, digest: Digest) -> Result<Option<Bytes>, Fault>;

    /// Sessions that match the filter, the most recently changed first.
    ///
    /// # Errors
    /// When the journal fails.
    async fn sessions(&self, filter: Filter) -> Result<Vec<SessionSummary>, Fault>;

    /// Sessions with an open turn or pending commands, ordered by id, starting after `after`.
    ///
    /// # Errors
    /// When the journal fails.
    async fn unfinished(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<UnfinishedSession>, Fault>;

    /// Sessions in which timers are set, ordered by the earliest next time of their timers, then by id.
    ///
    /// # Errors
    /// When the journal fails.
    async fn sessions_with_timers(&self, query: TimerQuery) -> Result<Vec<TimedSession>, Fault>;

    /// Counts of fault codes per time bucket.
    ///
    /// # Errors
    /// When the journal fails.
    async fn rates(&self, query: RateQuery) -> Result<Vec<FaultRate>, Fault>;

    /// Queue depth and file size, for metrics. All 0 unless the implementation overrides it.
    fn load(&self) -> JournalLoad {
        JournalLoad::default()
    }
}

/// Queue depth, size and commits of a journal, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalLoad {
    /// Requests that wait for the writer.
    pub queued_requests: usize,
    /// Bytes of the journal's files; 0 for a journal without files.
    pub bytes: u64,
    /// Commits since the journal was opened, each with one sync; 0 for a journal without files.
    pub commits: u64,
}
