//! Moving sessions between journals: as JSON lines, or straight from one journal to another.

mod copy;
pub(crate) mod lines;

use async_trait::async_trait;
use budao_core::{
    event::{Answer, Command, Epoch, Seq, SessionId},
    fault::Fault,
    time::Timestamp,
};
use bytes::Bytes;

pub use self::{
    copy::{CopyReport, copy},
    lines::{export, import},
};
use super::encoded::EncodedRecord;
use crate::contract::{Admin, Digest, GapReason, Lease, Note, OnceOwner, Reader, Writer};

/// The holder of the leases that [`Transfer::adopt`] takes.
pub const IMPORTER: &str = "import";

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
    /// The digest at `removed_to`; `None` if the chain begins with the first record that comes.
    pub removed_digest: Option<Digest>,
}

/// A key of work that is done once, as another journal has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferredKey {
    /// The digest of tenant, tool and value.
    pub key: Digest,
    /// The call that has the key.
    pub owner: OnceOwner,
    /// The attempt of that call.
    pub attempt: u32,
    /// When the key was claimed; its retention counts from here.
    pub claimed: Timestamp,
    /// The outcome of the call, if it is known.
    pub outcome: Option<Bytes>,
}

/// Moves sessions, keys and notes into and out of a journal, with their positions and digests.
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

    /// Creates a session whose history may begin with a gap, and takes its lease as [`IMPORTER`].
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

    /// Keys of work that is done once, in their order, starting after `after`.
    ///
    /// # Errors
    /// When the journal fails.
    async fn once_keys(
        &self,
        after: Option<Digest>,
        limit: usize,
    ) -> Result<Vec<TransferredKey>, Fault>;

    /// Adds a key. One that exists stays if it has an outcome or was claimed later. Returns whether anything changed.
    ///
    /// # Errors
    /// When the journal fails.
    async fn adopt_once_key(&self, key: TransferredKey) -> Result<bool, Fault>;

    /// All notes, ordered by name. They are few.
    ///
    /// # Errors
    /// When the journal fails.
    async fn notes(&self) -> Result<Vec<(String, Note)>, Fault>;

    /// Adds a note with its version. One with the same or a later version stays. Returns whether anything changed.
    ///
    /// # Errors
    /// When the journal fails.
    async fn adopt_note(&self, name: String, note: Note) -> Result<bool, Fault>;
}
