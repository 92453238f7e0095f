//! What the writer can be asked, and what it answers.

use std::time::Duration;

use budao_core::{
    event::{Answer, Command, CommandId, Seq, SessionId},
    fault::Operation,
};
use bytes::Bytes;

use super::rows;
use crate::{
    contract::{
        Append, Digest, GapReason, Lease, LeaseRequest, LeaseToken, Retention, RetentionReport,
        SubmitOutcome,
    },
    encoded::{self, EncodedRecord},
};

/// Everything the writer can be asked. Closed on purpose.
#[derive(Debug)]
pub(super) enum WriteRequest {
    TakeLease(LeaseRequest),
    Renew(Lease, Duration),
    Release(Lease),
    Append(EncodedAppend),
    Submit(SessionId, Box<Command>),
    /// Gives a command this answer unless it has one.
    Withdraw(SessionId, Box<Command>, Answer),
    PutBlob(SessionId, Digest, Bytes),
    Project,
    RebuildViews,
    Retain(i64, Retention),
    Sweep,
    Delete(SessionId),
    /// Makes a session whose history may begin with a gap, and takes its lease.
    Adopt {
        session: SessionId,
        removed_to: Seq,
        removed_reason: Option<GapReason>,
    },
    /// Takes a command in with its answer, whatever the limit.
    AdoptCommand(SessionId, Box<Command>, Option<Answer>),
}

/// What the writer answers.
#[derive(Debug)]
pub(super) enum WriteReply {
    Nothing,
    Lease(Lease),
    Head(Seq),
    Submitted(SubmitOutcome),
    /// Is there more to do?
    More(bool),
    Deleted(bool),
    /// What was removed, and where to go on.
    Retained(RetentionReport, Option<i64>),
}

/// An append with its events encoded, so that the writer thread need not.
#[derive(Debug)]
pub(super) struct EncodedAppend {
    pub(super) session: SessionId,
    pub(super) token: LeaseToken,
    pub(super) expected: Seq,
    pub(super) entries: Vec<EncodedRecord>,
    pub(super) answers: Vec<(CommandId, Vec<u8>)>,
    pub(super) taken: Vec<(Command, Answer)>,
    pub(super) snapshot: Option<Vec<u8>>,
    pub(super) bytes: usize,
    pub(super) is_closing: bool,
}

impl EncodedAppend {
    pub(super) fn new(append: Append) -> Self {
        let is_closing = append.is_closing();
        let entries = encoded::encode(append.entries);
        let bytes = entries.iter().map(|entry| entry.body.len()).sum();
        let answers =
            append.answers.iter().map(|(id, answer)| (id.clone(), rows::encode(answer))).collect();
        Self {
            session: append.session,
            token: append.token,
            expected: append.expected,
            entries,
            answers,
            taken: append.taken,
            snapshot: append.snapshot,
            bytes,
            is_closing,
        }
    }

    /// Events that are encoded already.
    pub(super) fn encoded(
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
            taken: Vec::new(),
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
            _ => 256,
        }
    }

    /// May this use the reserved room? Giving a lease back may, so that others need not wait.
    pub(super) fn is_closing(&self) -> bool {
        match self {
            Self::Append(append) => append.is_closing,
            Self::Release(_) | Self::Withdraw(..) => true,
            Self::Delete(_) | Self::Retain(..) | Self::Sweep => true,
            _ => false,
        }
    }

    pub(super) fn operation(&self) -> Operation {
        match self {
            Self::TakeLease(_) | Self::Renew(..) | Self::Release(_) => Operation::TakeLease,
            Self::Append(_) | Self::Project | Self::RebuildViews => Operation::AppendRecords,
            Self::Submit(..) | Self::Withdraw(..) => Operation::SubmitCommand,
            Self::PutBlob(..) => Operation::WriteBlob,
            Self::Retain(..) | Self::Sweep | Self::Delete(_) => Operation::ApplyRetention,
            Self::Adopt { .. } | Self::AdoptCommand(..) => Operation::ImportSession,
        }
    }
}
