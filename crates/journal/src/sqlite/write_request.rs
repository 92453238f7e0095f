//! The requests to the writer and its replies.

use std::time::Duration;

use budao_core::{
    event::{Answer, Command, CommandId, Seq, SessionId},
    fault::Operation,
};
use bytes::Bytes;

use super::rows;
use crate::{
    contract::{
        Append, AppendError, Digest, Lease, LeaseRequest, LeaseToken, NodeBeat, Note, OnceOwner,
        OnceSettlement, OnceState, Retention, RetentionReport, SubmitOutcome,
    },
    implement::encoded::{self, EncodedRecord},
    implement::transfer::{TransferredHistory, TransferredKey},
};

/// Every request to the writer. Deliberately a closed set.
#[derive(Debug)]
pub(super) enum WriteRequest {
    TakeLease(LeaseRequest),
    Renew(Lease, Duration),
    /// Releases a lease. With a duration, the session stays reserved for the holder that long.
    Release(Lease, Option<Duration>),
    Append(EncodedAppend),
    Submit(SessionId, Box<Command>),
    /// Gives a command this answer unless it already has one.
    Withdraw(SessionId, Box<Command>, Answer),
    PutBlob(SessionId, Digest, Bytes),
    ClaimOnce(Digest, OnceOwner, u32),
    SettleOnce(OnceOwner, u32, OnceSettlement),
    /// Forgets keys claimed before this time, in microseconds.
    ForgetOnce(i64),
    UpdateViews,
    RebuildViews,
    Retain(i64, Retention),
    Sweep,
    /// Returns some free pages to the file system.
    Shrink(FreeSpace),
    Delete(SessionId),
    /// Creates a session whose history may begin with a gap, and takes its lease. For imports.
    Adopt(TransferredHistory),
    /// Adds a command with its answer, regardless of the limit on pending commands. For imports.
    AdoptCommand(SessionId, Box<Command>, Option<Answer>),
    Beat(Box<NodeBeat>),
    /// Removes a node.
    Leave(String),
    /// Writes a note whose version is still the number.
    SetNote(String, u64, Vec<u8>),
    /// Adds a key of another journal.
    AdoptOnceKey(TransferredKey),
    /// Adds a note of another journal.
    AdoptNote(String, Note),
}

/// How much free space a shrunk file keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FreeSpace {
    /// A fraction of the pages in use, for the next sessions.
    Reusable,
    None,
}

/// The reply to one request, or its refusal.
pub(super) type WriteResult = Result<WriteReply, AppendError>;

/// The writer's reply; each request has its own variant.
#[derive(Debug)]
pub(super) enum WriteReply {
    Nothing,
    Lease(Lease),
    Head(Seq),
    Submitted(SubmitOutcome),
    Once(OnceState),
    /// Whether a repetition of the request would do more work.
    More(bool),
    Deleted(bool),
    /// The removed sessions and records, and the row key to continue after; `None` at the end.
    Retained(RetentionReport, Option<i64>),
    /// Whether the node was known before.
    WasKnown(bool),
    /// The new version of a note; `None` if its version was another one.
    NoteVersion(Option<u64>),
    /// Whether the request changed anything.
    Adopted(bool),
}

/// An append with its events encoded, so that the writer thread does not encode them.
#[derive(Debug)]
pub(super) struct EncodedAppend {
    pub(super) session: SessionId,
    pub(super) token: LeaseToken,
    pub(super) expected: Seq,
    pub(super) entries: Vec<EncodedRecord>,
    pub(super) answers: Vec<(CommandId, Vec<u8>)>,
    pub(super) direct_commands: Vec<(Command, Answer)>,
    pub(super) snapshot: Option<Vec<u8>>,
    pub(super) bytes: usize,
    pub(super) is_closing: bool,
}

impl EncodedAppend {
    pub(super) fn new(append: Append) -> Self {
        let is_closing = append.is_closing();
        let mut entries = encoded::encode(append.entries);
        entries.iter_mut().for_each(EncodedRecord::hash_content);
        let bytes = entries.iter().map(|entry| entry.body.len()).sum();
        let answers =
            append.answers.iter().map(|(id, answer)| (id.clone(), rows::encode(answer))).collect();
        Self {
            session: append.session,
            token: append.token,
            expected: append.expected,
            entries,
            answers,
            direct_commands: append.direct_commands,
            snapshot: append.snapshot,
            bytes,
            is_closing,
        }
    }

    /// An append of events that are already encoded.
    pub(super) fn from_encoded(
        lease: &Lease,
        expected: Seq,
        entries: Vec<EncodedRecord>,
        snapshot: Option<Vec<u8>>,
    ) -> Self {
        let bytes = entries.iter().map(|entry| entry.body.len()).sum();
        Self {
            session: lease.session,
            token: lease.token,
            expected,
            entries,
            answers: Vec::new(),
            direct_commands: Vec::new(),
            snapshot,
            bytes,
            is_closing: false,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.snapshot.as_ref().map_or(0, Vec::len)
    }
}

impl WriteRequest {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Append(append) => append.bytes(),
            Self::PutBlob(_, _, content) => content.len(),
            Self::SetNote(_, _, body) | Self::AdoptNote(_, Note { body, .. }) => body.len(),
            Self::AdoptOnceKey(key) => 256 + key.outcome.as_ref().map_or(0, Bytes::len),
            _ => 256,
        }
    }

    /// Whether this request may use the reserved disk space. Releasing a lease may, so that other writers need not
    /// wait.
    pub(super) fn is_closing(&self) -> bool {
        match self {
            Self::Append(append) => append.is_closing,
            Self::Release(..) | Self::Withdraw(..) | Self::Leave(_) | Self::SettleOnce(..) => true,
            Self::Delete(_) | Self::Retain(..) | Self::Sweep | Self::ForgetOnce(_) => true,
            _ => false,
        }
    }

    pub(super) fn operation(&self) -> Operation {
        match self {
            Self::TakeLease(_) | Self::Renew(..) | Self::Release(..) => Operation::TakeLease,
            Self::Append(_) | Self::UpdateViews | Self::RebuildViews => Operation::AppendRecords,
            Self::Submit(..) | Self::Withdraw(..) => Operation::SubmitCommand,
            Self::PutBlob(..) => Operation::WriteBlob,
            Self::ClaimOnce(..) | Self::SettleOnce(..) => Operation::AppendRecords,
            Self::ForgetOnce(_) => Operation::ApplyRetention,
            Self::Retain(..) | Self::Sweep | Self::Shrink(_) | Self::Delete(_) => {
                Operation::ApplyRetention
            }
            Self::Beat(_) | Self::Leave(_) | Self::SetNote(..) => Operation::TakeLease,
            Self::Adopt { .. } | Self::AdoptCommand(..) => Operation::ImportSession,
            Self::AdoptOnceKey(_) | Self::AdoptNote(..) => Operation::ImportSession,
        }
    }
}
