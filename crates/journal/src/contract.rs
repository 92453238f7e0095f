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
//! refused as `command_repeated`.
//!
//! **Readers never wait for writers**, and the run never waits for a reader. A follower goes from history
//! to live without a seam: every record after its position once, in order, in batches, also records that
//! other processes write. It is pulled, so a slow one costs no memory.
//!
//! **What is gone is said.** Retention removes only records that a snapshot covers, from the front, and
//! leaves an exact [`Gap`]. A position beyond the head means that the history was replaced and is answered
//! with `epoch_mismatch`. A damaged record is reported with its position; what stands before it can be read.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use async_trait::async_trait;
use budao_core::{
    event::{
        Answer, Command, CommandId, Epoch, Event, Record, Seq, SessionEnd, SessionId, TurnNumber,
    },
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    seams::World,
    time::Timestamp,
    trace::Trace,
};
use bytes::Bytes;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

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
    async fn submit(&self, session: SessionId, command: Command) -> Result<Submitted, Fault>;

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
    fn watch(&self, session: SessionId) -> Watch;

    /// Where a session stands; none if it does not exist.
    ///
    /// # Errors
    /// When the journal fails.
    async fn info(&self, session: SessionId) -> Result<Option<Info>, Fault>;

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
    ) -> BoxStream<'static, Result<Vec<Stored>, Fault>>;

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
    async fn sessions(&self, filter: Filter) -> Result<Vec<Summary>, Fault>;

    /// Sessions with a turn that has not ended or commands that wait, by id, after `after`.
    ///
    /// # Errors
    /// When the journal fails.
    async fn unfinished(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<Unfinished>, Fault>;

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
    async fn retain(&self, retention: Retention) -> Result<Retained, Fault>;

    /// Removes a session entirely. Its writer is fenced, its followers are told. Was there one?
    ///
    /// # Errors
    /// When the journal fails.
    async fn delete(&self, session: SessionId) -> Result<bool, Fault>;
}

/// What happens when a lease is asked for a session that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
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
    pub missing: Missing,
    /// A holder known to be gone: its lease is taken although it still runs.
    pub instead_of: Option<String>,
}

/// Proof of being the writer. Grows; never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub u64);

/// The right to write a session, until somebody else has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The session.
    pub session: SessionId,
    /// Proof.
    pub token: Token,
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
    /// What happened.
    pub event: Event,
}

/// What one append makes durable, all or nothing.
#[derive(Clone, Debug)]
pub struct Append {
    /// The session.
    pub session: SessionId,
    /// Proof of being its writer.
    pub token: Token,
    /// The last position the writer knows of.
    pub expected: Seq,
    /// What happened, in order. May be empty when only answers are recorded.
    pub entries: Vec<Entry>,
    /// Answers to commands of the inbox that this takes up.
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
                    entry.event,
                    Event::FaultRaised { .. }
                        | Event::RecoveryFailed { .. }
                        | Event::AnswerAbandoned { .. }
                        | Event::CancelRequested { .. }
                        | Event::CallEnded { .. }
                        | Event::QuestionExpired { .. }
                        | Event::TaskEnded { .. }
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
pub enum Submitted {
    /// It is durable and waits to be taken up.
    New,
    /// It was submitted before and still waits.
    Pending,
    /// It was submitted before; this is its one answer.
    Answered(Answer),
}

/// A record as it is kept. Its event can be forwarded without being decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Whose.
    pub session: SessionId,
    /// Of which incarnation.
    pub epoch: Epoch,
    /// Where.
    pub seq: Seq,
    /// When.
    pub at: Timestamp,
    /// The trace it belongs to.
    pub trace: Trace,
    /// The turn it belongs to, 0 for none.
    pub turn: TurnNumber,
    /// The event, encoded.
    pub body: Bytes,
}

impl Stored {
    /// What happened.
    ///
    /// # Errors
    /// `journal_damaged` when the bytes are no event this version knows.
    pub fn event(&self) -> Result<Event, Fault> {
        Event::decode(&self.body).map_err(|error| {
            Fault::new(Kind::JournalDamaged, Operation::ReadRecords)
                .with(Fact::Session, self.session.to_string())
                .with(Fact::FromSeq, self.seq)
                .caused_by(&error)
        })
    }

    /// The record.
    ///
    /// # Errors
    /// `journal_damaged` when the bytes are no event this version knows.
    pub fn record(&self) -> Result<Record, Fault> {
        Ok(Record {
            session: self.session,
            epoch: self.epoch,
            seq: self.seq,
            at: self.at,
            trace: self.trace,
            turn: self.turn,
            event: self.event()?,
        })
    }
}

/// How much one page may hold. One record is always allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimits {
    /// Records.
    pub records: usize,
    /// Bytes of their events.
    pub bytes: usize,
}

impl Default for PageLimits {
    fn default() -> Self {
        Self { records: Limits::default().page_records, bytes: 8 << 20 }
    }
}

/// Part of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Consecutive, oldest first.
    pub records: Vec<Stored>,
    /// The history's incarnation.
    pub epoch: Epoch,
    /// The last position there is.
    pub head: Seq,
    /// The first position still kept; one more than the head when none is.
    pub first_available: Seq,
    /// What was asked for and is gone.
    pub gap: Option<Gap>,
}

/// Records that were removed, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The first missing position.
    pub from: Seq,
    /// The last missing position.
    pub to: Seq,
    /// Which bound removed the last of them.
    pub reason: GapReason,
}

/// The bound that removed records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GapReason {
    /// They were too old.
    Age,
    /// There were too many.
    Count,
    /// They took too much room.
    Bytes,
}

impl GapReason {
    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Count => "count",
            Self::Bytes => "bytes",
        }
    }
}

/// A session's state, as its owner wrote it, and the position it covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// It holds everything up to and including this record.
    pub seq: Seq,
    /// The state.
    pub body: Bytes,
}

/// Where a session stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// The history's incarnation.
    pub epoch: Epoch,
    /// The last position.
    pub head: Seq,
    /// The first position still kept; one more than the head when none is.
    pub first_available: Seq,
    /// Who writes it.
    pub lease: Option<LeaseInfo>,
}

/// Who writes a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseInfo {
    /// Who.
    pub holder: String,
    /// From then on others may take it.
    pub expires: Timestamp,
}

/// Names content by its SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of this content.
    #[must_use]
    pub fn of(content: &[u8]) -> Self {
        use sha2::Digest as _;
        Self(sha2::Sha256::digest(content).into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let wrong = || {
            Fault::new(Kind::BadRequest, Operation::ReadBlob)
                .with(Fact::Blob, text.chars().take(80).collect::<String>())
                .with(Fact::Expected, "64 hex digits")
        };
        if text.len() != 64 || !text.is_ascii() {
            return Err(wrong());
        }
        let mut digest = [0; 32];
        for (byte, at) in digest.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(digest))
    }
}

/// What a session is doing.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing; it waits for a message.
    #[default]
    Idle,
    /// A turn runs, or was running when its writer was lost.
    Running,
    /// A turn waits for a person.
    Asking,
    /// It was closed.
    Closed,
    /// It ended because nothing could go on.
    Failed,
}

impl State {
    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running => "running",
            Self::Asking => "asking",
            Self::Closed => "closed",
            Self::Failed => "failed",
        }
    }
}

impl From<SessionEnd> for State {
    fn from(end: SessionEnd) -> Self {
        match end {
            SessionEnd::Closed => Self::Closed,
            SessionEnd::Error => Self::Failed,
        }
    }
}

impl FromStr for State {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let all = [Self::Idle, Self::Running, Self::Asking, Self::Closed, Self::Failed];
        all.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            Fault::new(Kind::BadRequest, Operation::ReadRecords)
                .with(Fact::Received, text.chars().take(80).collect::<String>())
                .with(Fact::Expected, "idle, running, asking, closed or failed")
        })
    }
}

/// Which sessions to list. All that is set must fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// What it is doing.
    pub state: Option<State>,
    /// Changed at or after.
    pub since: Option<Timestamp>,
    /// Changed before.
    pub until: Option<Timestamp>,
    /// Has this label, with this value if one is given.
    pub label: Option<(String, Option<String>)>,
    /// Has records of this trace.
    pub trace: Option<Trace>,
    /// Met a fault with this code.
    pub code: Option<String>,
    /// Called this tool.
    pub tool: Option<String>,
    /// Comes after this one in the list; for the next page.
    pub after: Option<(Timestamp, SessionId)>,
    /// At most this many.
    pub limit: usize,
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            state: None,
            since: None,
            until: None,
            label: None,
            trace: None,
            code: None,
            tool: None,
            after: None,
            limit: 100,
        }
    }
}

/// A session in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Which.
    pub session: SessionId,
    /// What it is doing.
    pub state: State,
    /// When its first record was made.
    pub opened_at: Timestamp,
    /// When its last record was made.
    pub updated_at: Timestamp,
    /// Its short name.
    pub title: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Turns begun.
    pub turns: TurnNumber,
    /// The turn that has not ended.
    pub open_turn: Option<TurnNumber>,
    /// The code of the fault that ended its last turn, if one did.
    pub last_code: Option<String>,
    /// The last position.
    pub head: Seq,
}

/// A session somebody should take up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Which.
    pub session: SessionId,
    /// The turn that has not ended.
    pub turn: Option<TurnNumber>,
    /// Commands that wait.
    pub pending: usize,
    /// Who writes it, if the lease still runs.
    pub lease: Option<LeaseInfo>,
}

/// Which counts to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateQuery {
    /// From this time on, rounded down to a bucket.
    pub since: Timestamp,
    /// Before this time.
    pub until: Timestamp,
    /// Length of a bucket, rounded up to whole minutes.
    pub bucket: Duration,
    /// Only this code.
    pub code: Option<String>,
}

/// How often a code came in a stretch of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// The code.
    pub code: String,
    /// Where the bucket begins.
    pub at: Timestamp,
    /// Faults raised, failed calls counted.
    pub raised: u64,
    /// Turns, tasks and sessions it ended.
    pub ended: u64,
}

/// How much is kept. `None` is no bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Sessions that finished, with nothing waiting, are deleted this long after their last record.
    pub session_age: Option<Duration>,
    /// Records of a session older than this are removed.
    pub record_age: Option<Duration>,
    /// Records kept of each session.
    pub records: Option<u64>,
    /// Bytes of events kept of each session.
    pub bytes: Option<u64>,
}

/// What retention removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retained {
    /// Sessions deleted.
    pub sessions: u64,
    /// Records removed from sessions that stay.
    pub records: u64,
    /// Kept outputs that no session needed any more.
    pub blobs: u64,
}

/// Wakes its holder when a command may have come. Waking for nothing is allowed, missing one is not.
#[derive(Debug)]
pub struct Watch(pub(crate) crate::bell::Ear);

impl Watch {
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
