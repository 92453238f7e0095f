//! Moving sessions between journals: as JSON lines, or straight from one journal to another.

mod copy;
pub(crate) mod lines;

use async_trait::async_trait;
use budao_core::{
    event::{Answer, Command, Epoch, Seq, SessionId},
    fault::Fault,
};
use bytes::Bytes;

pub use self::{
    copy::{CopyReport, copy},
    lines::{export, import},
};
use super::encoded::EncodedRecord;
use crate::contract::{Admin, Digest, GapReason, Lease, Reader, Writer};

/// The beginning of a history that comes from another journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferredHistory {
    /// The session, which must not exist yet.
    pub session: SessionId,
    /// The epoch to keep; `None` for a new one.
    pub epoch: Option<Epoch>,
    /// The last record that retention removed, 0 for none.
    pub removed_to: Seq,
    /// The bound that removed it.
    pub removed_reason: Option<GapReason>,
}

/// What a journal offers beside its interfaces so that sessions can be moved into and out of it.
#[async_trait]
pub trait Transfer: Reader + Writer + Admin {
    /// Ids of sessions in order, starting after `after`.
    ///
    /// # Errors
    /// When the journal fails.
    async fn session_ids(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<SessionId>, Fault>;

    /// Every command of a session with its answer, in order of submission.
    ///
    /// # Errors
    /// `unknown_session`, or when the journal fails.
    async fn commands(&self, session: SessionId) -> Result<Vec<(Command, Option<Answer>)>, Fault>;

    /// The stored outputs that a session references.
    ///
    /// # Errors
    /// `unknown_session`, or when the journal fails.
    async fn blobs_of(&self, session: SessionId) -> Result<Vec<Digest>, Fault>;

    /// Creates a session whose history may begin with a gap, and takes its lease.
    ///
    /// # Errors
    /// `session_busy` if the session exists.
    async fn adopt(&self, history: TransferredHistory) -> Result<Lease, Fault>;

    /// Adds a command with its answer, regardless of the limit on pending commands.
    ///
    /// # Errors
    /// `command_repeated` if the session has a command with this id.
    async fn adopt_command(
        &self,
        session: SessionId,
        command: Command,
        answer: Option<Answer>,
    ) -> Result<(), Fault>;

    /// Appends records as they were encoded elsewhere, and a snapshot that covers them.
    ///
    /// # Errors
    /// `fenced`, also for another position than `expected`.
    async fn adopt_records(
        &self,
        lease: &Lease,
        expected: Seq,
        records: Vec<EncodedRecord>,
        snapshot: Option<Vec<u8>>,
    ) -> Result<Seq, Fault>;

    /// Stores an output, regardless of the size limit.
    ///
    /// # Errors
    /// `unknown_session`, or when the journal fails.
    async fn adopt_blob(&self, session: SessionId, content: Bytes) -> Result<(), Fault>;
}
