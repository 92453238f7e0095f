//! The journal contract: the [`Journal`] trait, its requests and its errors.
//!
//! The documentation of [`Journal`] lists the promises that callers may rely on. The suite in
//! [`crate::conformance`] tests an implementation against them.

mod search;
mod stored;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    event::{Answer, Command, CommandId, Epoch, Event, Seq, SessionId, TurnNumber},
    fault::{Fact, Fault, Kind, Operation},
    time::Timestamp,
    trace::Trace,
    world::World,
};
use bytes::Bytes;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

pub(crate) use self::stored::CachedEvent;
pub use self::{
    search::{
        Filter, Rate, RateQuery, Retention, RetentionReport, SessionState, SessionSummary,
        UnfinishedSession,
    },
    stored::{
        Digest, Gap, GapReason, HistoryInfo, LeaseInfo, Page, PageLimits, Snapshot, StoredRecord,
    },
};

/// Durable, ordered records per session.
///
/// **Order.** A session's records are numbered 1, 2, 3 … without gaps. A position is used once. After a crash an
/// unacknowledged record is present whole or not at all, and no acknowledged record is missing.
///
/// **Durable before answered.** When [`Journal::append`], [`Journal::submit`] or any other change returns `Ok`, the
/// change survives the end of the process and of the machine ([`crate::Memory`] survives neither). A change that
/// returns a fault may still have happened; the caller reads to find out. Readers and followers see only durable
/// records.
///
/// **One writer per session.** An append carries the token of a lease and the expected position. The journal refuses a
/// writer for ever ([`AppendError::Fenced`]) once its lease is released or taken by another holder, or its session is
/// deleted. An expired lease still works until another holder takes it: fencing is by token, never by the clock. Tokens
/// grow and are never reused.
///
/// **All or nothing.** The entries of one append, the answers to the commands that caused them and the snapshot become
/// durable together.
///
/// **Commands are idempotent.** Any process may submit a command; the lease holder handles it. A repeated id with the
/// same content has no second effect and gets the same answer; with other content it is refused as `command_repeated`.
/// A withdrawn command has the answer `rejected` from then on, and no writer can handle it.
///
/// **Readers never wait for writers**, and a turn never waits for a reader. A follower gets every record after its
/// position once, in order, in batches, including records of other processes. It pulls, so a slow follower costs no
/// memory.
///
/// **Removal is visible.** Retention removes only records that a snapshot covers, from the front, and leaves an exact
/// [`Gap`]. A position beyond the head means that the history was replaced; the answer is `epoch_mismatch`. A damaged
/// record is reported with its position; the records before it stay readable.
#[async_trait]
pub trait Journal: Send + Sync + fmt::Debug {
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

    /// Makes records durable and returns the position of the last one.
    ///
    /// # Errors
    /// See [`AppendError`].
    async fn append(&self, append: Append) -> Result<Seq, AppendError>;

    /// Makes a command durable and wakes the lease holder.
    ///
    /// # Errors
    /// `unknown_session`; `command_repeated` when the id was used for another command; `limit_reached` when too many
    /// commands are pending.
    async fn submit(&self, session: SessionId, command: Command) -> Result<SubmitOutcome, Fault>;

    /// Ensures that a command never takes effect, even if a writer has already read it. An existing answer stands and
    /// is returned. Otherwise the command is rejected with `fault`, even if it was never submitted; a writer that then
    /// tries to handle it fails to append (`command_repeated`).
    ///
    /// # Errors
    /// `unknown_session`; `command_repeated` when the id was used for another command; when the journal fails.
    async fn withdraw(
        &self,
        session: SessionId,
        command: Command,
        fault: Fault,
    ) -> Result<Answer, Fault>;

    /// The commands without an answer, in order of submission.
    ///
    /// # Errors
    /// `unknown_session`, or when the journal fails.
    async fn inbox(&self, session: SessionId) -> Result<Vec<Command>, Fault>;

    /// The answer to a command; `None` if it is pending or was never submitted.
    ///
    /// # Errors
    /// `unknown_session`, or when the journal fails.
    async fn answer(&self, session: SessionId, id: &CommandId) -> Result<Option<Answer>, Fault>;

    /// Waits for the answer to a command, from this or another process. There is no timeout: the caller sets one.
    ///
    /// # Errors
    /// `unknown_session`; `bad_request` if the command was never submitted; when the journal fails.
    async fn await_answer(&self, session: SessionId, id: &CommandId) -> Result<Answer, Fault>;

    /// Subscribes to the inbox of a session: wakes when this or another process may have submitted a command.
    fn watch(&self, session: SessionId) -> ChangeWatch;

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
    /// The stream ends only after an error: those of [`Journal::read`], and `history_gap` when retention has removed
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

    /// Stores a large output by its content. It is kept until every session that put it is deleted.
    ///
    /// # Errors
    /// `unknown_session`; `limit_reached` above the size limit for stored outputs.
    async fn put_blob(&self, session: SessionId, content: Bytes) -> Result<Digest, Fault>;

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

    /// Counts of fault codes per time bucket.
    ///
    /// # Errors
    /// When the journal fails.
    async fn rates(&self, query: RateQuery) -> Result<Vec<Rate>, Fault>;

    /// Deletes the views and derives them again from the records.
    ///
    /// # Errors
    /// When the journal fails.
    async fn rebuild_views(&self) -> Result<(), Fault>;

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

    /// Queue depth and file size, for metrics. All 0 unless the implementation overrides it.
    fn load(&self) -> Load {
        Load::default()
    }
}

/// Queue depth and size of a journal, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests that wait for the writer.
    pub waiting: usize,
    /// Bytes of the journal's files; 0 for a journal without files.
    pub bytes: u64,
}

/// Behaviour of [`Journal::take_lease`] for a session that does not exist.
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
    pub missing: IfMissing,
    /// A holder known to have ended: its lease is taken even before it expires.
    pub instead_of: Option<String>,
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

/// An event to append.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// When the event happened, by the writer's clock.
    pub at: Timestamp,
    /// The trace of the turn that the event belongs to.
    pub trace: Trace,
    /// The turn that the event belongs to, 0 for none.
    pub turn: TurnNumber,
    /// The event. Followers in this process share it without a copy.
    pub event: Arc<Event>,
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
    pub taken: Vec<(Command, Answer)>,
    /// The session's state after these entries, in the writer's own encoding.
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
            taken: Vec::new(),
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

/// The state of a command after [`Journal::submit`].
#[derive(Clone, Debug, PartialEq)]
pub enum SubmitOutcome {
    /// The command is durable and pending.
    New,
    /// The command was submitted before and is still pending.
    Pending,
    /// The command was submitted before and has this answer.
    Answered(Answer),
}

/// Wakes its owner when a command may have arrived. It may wake without a command, but never misses one.
#[derive(Debug)]
pub struct ChangeWatch(pub(crate) crate::notifier::Subscription);

impl ChangeWatch {
    /// Waits until a command may have arrived since the last call, or since the watch was created.
    pub async fn changed(&mut self) {
        self.0.inbox_changed().await;
    }
}

/// A random epoch. Never 0, so that an uninitialised epoch is noticed.
pub(crate) fn new_epoch(world: &World) -> Epoch {
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is as random as the whole")]
    Epoch((world.entropy.bits() as u32).max(1))
}
