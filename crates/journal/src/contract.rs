//! What a journal promises, said once.
//!
//! **Order.** A session's records are numbered 1, 2, 3 … without gaps. A position is given once: after a
//! crash an unacknowledged record is there whole or not at all, and nothing acknowledged is missing.
//!
//! **Durable before answered.** When [`Journal::append`], [`Journal::submit`] or any other change returns
//! `Ok`, it survives the end of the process and of the machine (as far as the implementation can:
//! [`crate::Memory`] survives neither). When a change returns a fault it may still have happened; reading
//! tells. No reader and no follower sees a record before it is durable.
//!
//! **One writer per session.** Appends carry a lease's token and the expected position. A writer whose
//! lease was taken by another, released, or whose session was deleted is refused for ever
//! ([`AppendError::Fenced`]). A lease that has merely run out still works until somebody takes it:
//! fencing is by token, never by the clock. Tokens grow and are never given twice.
//!
//! **All or nothing.** The entries of one append, the answers to the commands that caused them and the
//! snapshot that comes with them become durable together.
//!
//! **Commands are idempotent.** Any process may submit a command; the lease holder takes it up. The same
//! id with the same ask never has a second effect and gets the same answer; with another ask it is
//! refused as `command_repeated`. Whoever no longer waits for an answer withdraws the command: from then on it has
//! the answer `rejected`, and no writer can take it up.
//!
//! **Readers never wait for writers**, and the run never waits for a reader. A follower goes from history
//! to live without a seam: every record after its position once, in order, in batches, also records that
//! other processes write. It is pulled, so a slow one costs no memory.
//!
//! **What is gone is said.** Retention removes only records that a snapshot covers, from the front, and
//! leaves an exact [`Gap`]. A position beyond the head means that the history was replaced and is answered
//! with `epoch_mismatch`. A damaged record is reported with its position; what stands before it can be read.

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

/// Durable, ordered records per session. See the module for what callers may rely on.
#[async_trait]
pub trait Journal: Send + Sync + fmt::Debug {
    /// Becomes the writer of a session.
    ///
    /// # Errors
    /// `session_busy` while another holder's lease runs, `unknown_session` when it does not exist and was
    /// not to be created. The same holder may take its own lease again; its older token is fenced.
    async fn take_lease(&self, request: LeaseRequest) -> Result<Lease, Fault>;

    /// Prolongs a lease, also one that has run out if nobody took it.
    ///
    /// # Errors
    /// `fenced` when it is no longer ours.
    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Lease, Fault>;

    /// Gives a lease back, so that the next writer need not wait. Releasing a lost lease does nothing.
    ///
    /// # Errors
    /// When the journal fails.
    async fn release(&self, lease: &Lease) -> Result<(), Fault>;

    /// Makes records durable and returns the position of the last one.
    ///
    /// # Errors
    /// See [`AppendError`].
    async fn append(&self, append: Append) -> Result<Seq, AppendError>;

    /// Makes a command durable, for the lease holder to take up.
    ///
    /// # Errors
    /// `unknown_session`; `command_repeated` when its id was used for something else; `limit_reached` when
    /// too many wait.
    async fn submit(&self, session: SessionId, command: Command) -> Result<SubmitOutcome, Fault>;

    /// Sees to it that a command never takes effect, whoever may have read it. If it has an answer, that one stands
    /// and is returned. Otherwise it is rejected with this fault, also if it was never submitted, and a writer that
    /// is about to take it up fails to append (`command_repeated`).
    ///
    /// # Errors
    /// `unknown_session`; `command_repeated` when its id was used for something else; when the journal fails.
    async fn withdraw(
        &self,
        session: SessionId,
        command: Command,
        fault: Fault,
    ) -> Result<Answer, Fault>;

    /// The commands that wait for an answer, in the order they came.
    ///
    /// # Errors
    /// `unknown_session`, or when the journal fails.
    async fn inbox(&self, session: SessionId) -> Result<Vec<Command>, Fault>;

    /// The answer to a command, if it has one.
    ///
    /// # Errors
    /// `unknown_session`, or when the journal fails.
    async fn answer(&self, session: SessionId, id: &CommandId) -> Result<Option<Answer>, Fault>;

    /// Waits for the answer to a command, whoever gives it. Bound the wait at the call.
    ///
    /// # Errors
    /// `unknown_session`, or when the journal fails.
    async fn await_answer(&self, session: SessionId, id: &CommandId) -> Result<Answer, Fault>;

    /// Wakes whoever holds it when a command may have come, from this or another process.
    fn watch(&self, session: SessionId) -> ChangeWatch;

    /// Where a session stands; none if it does not exist.
    ///
    /// # Errors
    /// When the journal fails.
    async fn info(&self, session: SessionId) -> Result<Option<HistoryInfo>, Fault>;

    /// The records after a position, oldest first: at least one if there is one, even above the byte limit.
    /// Records before the first one kept are skipped and named in [`Page::gap`].
    ///
    /// # Errors
    /// `unknown_session`; `epoch_mismatch` for a position beyond the head; `journal_damaged` when the very
    /// next record is damaged (a page before it ends at the damage).
    async fn read(&self, session: SessionId, after: Seq, limits: PageLimits)
    -> Result<Page, Fault>;

    /// Every record after a position, then new ones as they become durable. Batches are never empty.
    ///
    /// The stream ends only after an error: those of [`Journal::read`], and `history_gap` when retention
    /// has removed the next record. A session without records is waited for.
    fn follow(
        &self,
        session: SessionId,
        after: Seq,
    ) -> BoxStream<'static, Result<Vec<StoredRecord>, Fault>>;

    /// The newest snapshot.
    ///
    /// # Errors
    /// When the journal fails, or the snapshot claims a position the history does not reach.
    async fn snapshot(&self, session: SessionId) -> Result<Option<Snapshot>, Fault>;

    /// Keeps a large output aside. It lives as long as a session that put it.
    ///
    /// # Errors
    /// `unknown_session`; `limit_reached` above the limit for kept outputs.
    async fn put_blob(&self, session: SessionId, content: Bytes) -> Result<Digest, Fault>;

    /// What was kept aside; none if it is gone.
    ///
    /// # Errors
    /// `journal_damaged` when the content no longer has its hash.
    async fn blob(&self, digest: Digest) -> Result<Option<Bytes>, Fault>;

    /// Sessions that fit, the most recently changed first.
    ///
    /// # Errors
    /// When the journal fails.
    async fn sessions(&self, filter: Filter) -> Result<Vec<SessionSummary>, Fault>;

    /// Sessions with a turn that has not ended or commands that wait, by id, after `after`.
    ///
    /// # Errors
    /// When the journal fails.
    async fn unfinished(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<UnfinishedSession>, Fault>;

    /// How often each code came, over time.
    ///
    /// # Errors
    /// When the journal fails.
    async fn rates(&self, query: RateQuery) -> Result<Vec<Rate>, Fault>;

    /// Throws the views away and makes them again from the records.
    ///
    /// # Errors
    /// When the journal fails.
    async fn rebuild_views(&self) -> Result<(), Fault>;

    /// Removes what is past its time. Safe to stop at any moment and to run again.
    ///
    /// # Errors
    /// When the journal fails.
    async fn retain(&self, retention: Retention) -> Result<RetentionReport, Fault>;

    /// Removes a session entirely. Its writer is fenced, its followers are told. Was there one?
    ///
    /// # Errors
    /// When the journal fails.
    async fn delete(&self, session: SessionId) -> Result<bool, Fault>;

    /// What it has to do and how large it is, for whoever watches it.
    fn load(&self) -> Load {
        Load::default()
    }
}

/// What a journal has to do and how large it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests that wait to be made durable.
    pub waiting: usize,
    /// Bytes of its files.
    pub bytes: u64,
}

/// What happens when a lease is asked for a session that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfMissing {
    /// It is a fault.
    Refuse,
    /// It is created, with a new epoch.
    Create,
}

/// Who wants to write what.
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    /// The session.
    pub session: SessionId,
    /// Who asks; unique for each run of a program.
    pub holder: String,
    /// How long it is good for unless renewed.
    pub ttl: Duration,
    /// What if there is no such session.
    pub missing: IfMissing,
    /// A holder known to be gone: its lease is taken although it still runs.
    pub instead_of: Option<String>,
}

/// Proof of being the writer. Grows; never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseToken(pub u64);

/// The right to write a session, until somebody else has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The session.
    pub session: SessionId,
    /// Proof.
    pub token: LeaseToken,
    /// The history's incarnation.
    pub epoch: Epoch,
    /// The last position when the lease was taken or renewed.
    pub head: Seq,
    /// From then on others may take it.
    pub expires: Timestamp,
}

/// An event to be recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// When it happened.
    pub at: Timestamp,
    /// The trace it belongs to.
    pub trace: Trace,
    /// The turn it belongs to, 0 for none.
    pub turn: TurnNumber,
    /// What happened. Shared with whoever is told of it in this process.
    pub event: Arc<Event>,
}

/// What one append makes durable, all or nothing.
#[derive(Clone, Debug)]
pub struct Append {
    /// The session.
    pub session: SessionId,
    /// Proof of being its writer.
    pub token: LeaseToken,
    /// The last position the writer knows of.
    pub expected: Seq,
    /// What happened, in order. May be empty when only answers are recorded.
    pub entries: Vec<Entry>,
    /// Answers to commands of the inbox that this takes up. One for a command that does not wait, because it was
    /// withdrawn meanwhile, fails the whole append with `command_repeated`.
    pub answers: Vec<(CommandId, Answer)>,
    /// Commands the writer took up without their having waited in the inbox, with their answers: recorded
    /// so that a repeated id gets the same answer. One whose id is known already fails the whole append
    /// with `command_repeated`.
    pub taken: Vec<(Command, Answer)>,
    /// The session's state after these entries, as its owner writes it.
    pub snapshot: Option<Vec<u8>>,
}

impl Append {
    /// Entries at a position, nothing else.
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

    /// May this use the room that is reserved for a full disk? Only what reports a failure or brings
    /// something to its end may.
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

/// Why an append was not made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AppendError {
    /// The head is not where the writer thinks; nothing was written. Read on from there.
    #[error("the session's head is {head}")]
    Conflict {
        /// Where it is.
        head: Seq,
    },
    /// Another writer has the session, or it is gone. Stop.
    #[error("another writer has the session")]
    Fenced,
    /// The journal failed. It may or may not have been written; reading tells.
    #[error(transparent)]
    Failed(#[from] Fault),
}

impl AppendError {
    /// The fault that tells of it.
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

/// What became of a submitted command.
#[derive(Clone, Debug, PartialEq)]
pub enum SubmitOutcome {
    /// It is durable and waits to be taken up.
    New,
    /// It was submitted before and still waits.
    Pending,
    /// It was submitted before; this is its one answer.
    Answered(Answer),
}

/// Wakes its holder when a command may have come. Waking for nothing is allowed, missing one is not.
#[derive(Debug)]
pub struct ChangeWatch(pub(crate) crate::notifier::Subscription);

impl ChangeWatch {
    /// Waits until something may have come since the last call (or since the watch was made).
    pub async fn changed(&mut self) {
        self.0.inbox_changed().await;
    }
}

/// A new incarnation. Never 0, so that a forgotten epoch is noticed.
pub(crate) fn new_epoch(world: &World) -> Epoch {
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is as random as the whole")]
    Epoch((world.entropy.bits() as u32).max(1))
}
