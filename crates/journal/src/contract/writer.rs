//! The writing interface of a journal: leases, appends and stored outputs.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use budao_core::{
    event::{Answer, Command, CommandId, Entry, Epoch, Event, Seq, SessionId},
    fault::{Fact, Fault, Kind, Operation},
    time::Timestamp,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::Digest;

/// Writes a journal. An append needs the lease of its session.
#[async_trait]
pub trait Writer: Send + Sync + fmt::Debug {
    /// Makes the caller the writer of a session.
    ///
    /// # Errors
    /// `session_busy` while another holder's lease is valid; `unknown_session` when the session does not exist and
    /// [`IfMissing::Refuse`] is set. A holder may take its own lease again; its older token is then fenced.
    async fn take_lease(&self, request: LeaseRequest) -> Result<Lease, Fault>;

    /// Extends a lease by `ttl` from now, even an expired one that no other holder has taken.
    ///
    /// # Errors
    /// `fenced` when another holder has the lease, or it was released.
    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Lease, Fault>;

    /// Releases a lease, so that the next writer need not wait. Releasing a lost lease does nothing.
    ///
    /// # Errors
    /// When the journal fails.
    async fn release(&self, lease: &Lease) -> Result<(), Fault>;

    /// Releases the lease of a session whose turn waits, and reserves the session for its holder for `time`: any
    /// writer may take the lease, for a command. But as long as the holder is a listed node, the session counts as its
    /// own and not as orphaned. Reserving a lost lease does nothing.
    ///
    /// # Errors
    /// When the journal fails.
    async fn reserve(&self, lease: &Lease, time: Duration) -> Result<(), Fault>;

    /// Makes records durable and returns the position of the last one.
    ///
    /// # Errors
    /// See [`AppendError`].
    async fn append(&self, append: Append) -> Result<Seq, AppendError>;

    /// Stores a large output by its content. It is kept until every session that put it is deleted.
    ///
    /// # Errors
    /// `unknown_session`; `limit_reached` above the size limit for stored outputs.
    async fn put_blob(&self, session: SessionId, content: Bytes) -> Result<Digest, Fault>;
}

/// Behaviour of [`Writer::take_lease`] for a session that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfMissing {
    /// Returns the fault `unknown_session`.
    Refuse,
    /// Creates the session, with a new epoch.
    Create,
}

/// A request to become the writer of a session.
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    /// The session to write.
    pub session: SessionId,
    /// Identifies the caller; unique for each run of a program.
    pub holder: String,
    /// Validity of the lease unless it is renewed.
    pub ttl: Duration,
    /// Whether to create a session that does not exist.
    pub if_missing: IfMissing,
    /// A holder known to have ended: its lease is taken even before it expires.
    pub dead_holder: Option<String>,
}

/// Fencing token: proves that its bearer is the writer. Tokens grow and are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseToken(pub u64);

/// The right to write a session, until another holder takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The session this lease is for.
    pub session: SessionId,
    /// Goes with every append; a later token fences this one.
    pub token: LeaseToken,
    /// The epoch of the history; changes when a session is deleted and created again.
    pub epoch: Epoch,
    /// The last position when the lease was taken or renewed.
    pub head: Seq,
    /// From this time on another holder may take the lease.
    pub expires: Timestamp,
}

/// The content of one append: becomes durable all or nothing.
#[derive(Clone, Debug)]
pub struct Append {
    /// The session to append to.
    pub session: SessionId,
    /// The token of the writer's lease.
    pub token: LeaseToken,
    /// The last position that the writer knows of; any other head is a conflict.
    pub expected: Seq,
    /// Events in order. May be empty when the append only records answers.
    pub entries: Vec<Entry>,
    /// Answers to pending commands of the inbox. An answer to a command that is no longer pending, because it was
    /// withdrawn meanwhile, fails the whole append with `command_repeated`.
    pub answers: Vec<(CommandId, Answer)>,
    /// Commands that the writer handled without the inbox, with their answers. They are recorded so that a repeated id
    /// gets the same answer. A known id fails the whole append with `command_repeated`.
    pub direct_commands: Vec<(Command, Answer)>,
    /// The session's state after these entries: a `Session` as JSON.
    pub snapshot: Option<Vec<u8>>,
}

impl Append {
    /// An append of entries alone, without answers or snapshot.
    #[must_use]
    pub fn new(lease: &Lease, expected: Seq, entries: Vec<Entry>) -> Self {
        Self {
            session: lease.session,
            token: lease.token,
            expected,
            entries,
            answers: Vec::new(),
            direct_commands: Vec::new(),
            snapshot: None,
        }
    }

    /// Whether this append may use the disk space reserved for a full disk: true if all of its events report a failure
    /// or end something.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.snapshot.is_none()
            && self.entries.iter().all(|entry| {
                matches!(
                    *entry.event,
                    Event::FaultRaised { .. }
                        | Event::RecoveryFailed { .. }
                        | Event::AnswerAbandoned { .. }
                        | Event::CancelRequested { .. }
                        | Event::CloseRequested { .. }
                        | Event::ToolCallEnded { .. }
                        | Event::QuestionExpired { .. }
                        | Event::TaskEnded { .. }
                        | Event::PlanRefused { .. }
                        | Event::PlanCancelled { .. }
                        | Event::AggregateEnded { .. }
                        | Event::PipelineEnded { .. }
                        | Event::TurnEnded { .. }
                        | Event::SessionEnded { .. }
                )
            })
    }
}

/// The reason why an append failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AppendError {
    /// The head differs from the expected position; nothing was written. The writer reads on from the head.
    #[error("the session's head is {head}")]
    Conflict {
        /// The actual last position of the session.
        head: Seq,
    },
    /// Another writer has the session, or the session is deleted. The caller must stop writing.
    #[error("another writer has the session")]
    Fenced,
    /// The journal failed. The append may or may not be durable; the caller reads to find out.
    #[error(transparent)]
    Failed(#[from] Fault),
}

impl AppendError {
    /// Converts to a fault. A conflict becomes `fenced` too, with the head as a fact.
    #[must_use]
    pub fn into_fault(self, session: SessionId) -> Fault {
        let fault = |kind| {
            Fault::new(kind, Operation::AppendRecords).with(Fact::Session, session.to_string())
        };
        match self {
            Self::Failed(fault) => fault,
            Self::Fenced => fault(Kind::Fenced),
            Self::Conflict { head } => fault(Kind::Fenced).with(Fact::HeadSeq, head),
        }
    }
}
