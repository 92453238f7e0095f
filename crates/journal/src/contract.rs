//! The journal contract: six traits over the same records, their requests and their errors.
//!
//! The documentation of [`Journal`] lists the promises that callers may rely on. The feature
//! `conformance` tests an implementation against them.

mod admin;
mod cluster;
mod evidence;
mod inbox;
mod once;
mod reader;
mod search;
mod stored;
mod writer;

use budao_core::{event::Epoch, world::World};

pub use self::{
    admin::{
        Admin, CheckReport, CompactReport, Damage, ExportReport, ImportReport, JournalStats,
        partial_copy, unsupported,
    },
    cluster::{
        Census, Cluster, NODE_BEAT, NODE_ROW_TTL, NODE_TIMEOUT, NodeBeat, NodeInfo, NodeStatus,
        Note,
    },
    evidence::{Anchor, BatchLink, ChainPage},
    inbox::{ChangeWatch, Inbox, SubmitOutcome},
    once::{OnceKeys, OnceOwner, OnceSettlement, OnceState},
    reader::{JournalLoad, Reader},
    search::{
        FaultRate, Filter, RateQuery, SessionSummary, TimedSession, TimerQuery, TimerView,
        UnfinishedSession,
    },
    stored::{
        CachedEvent, Digest, Gap, GapReason, HistoryInfo, LeaseInfo, Page, PageLimits, Snapshot,
        StoredRecord,
    },
    writer::{Append, AppendError, IfMissing, Lease, LeaseRequest, LeaseToken, Writer},
};
pub use budao_core::{
    event::Entry,
    retention::{Retention, RetentionReport},
    session::SessionState,
};

/// Durable, ordered records per session.
///
/// **Order.** A session's records are numbered 1, 2, 3 … without gaps. A position is used once. After a crash an
/// unacknowledged record is present whole or not at all, and no acknowledged record is missing.
///
/// **Durable before answered.** When [`Writer::append`], [`Inbox::submit`] or any other change returns `Ok`, the
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
/// **A key is claimed once.** Of all calls of all sessions that claim a key, one gets it ([`OnceKeys`]). The key and the
/// outcome of its call outlive the session; only [`Retention::once_age`] removes them.
///
/// **Readers never wait for writers**, and a turn never waits for a reader. A follower gets every record after its
/// position once, in order, in batches, including records of other processes. It pulls, so a slow follower costs no
/// memory.
///
/// **Removal is visible.** Retention removes only records that a snapshot covers, from the front, and leaves an exact
/// [`Gap`]. It makes the snapshot itself where the writer made none, and removes the content of commands with their
/// records; a digest still recognises a repetition. A position beyond the head means that the history was replaced; the
/// answer is `epoch_mismatch`. A damaged record is reported with its position; the records before it stay readable.
///
/// **Records are evidence.** The digest at a position depends on every record up to it ([`crate::implement::chain`]).
/// Each batch carries the digest before and after it, and removed records leave the digest of the last one.
/// [`crate::verify`] computes the chain again from the records.
///
/// **A session with timers is found.** [`Reader::sessions_with_timers`] lists it from the record that sets its first timer to the one
/// that ends its last, and [`Retention::session_age`] does not remove it meanwhile.
///
/// **Servers know each other.** A node that beats is listed by every other node; a note changes only from the version
/// that its writer has read.
pub trait Journal: Reader + Inbox + Writer + OnceKeys + Admin + Cluster {}

impl<T: Reader + Inbox + Writer + OnceKeys + Admin + Cluster + ?Sized> Journal for T {}

/// A random epoch. Never 0, so that an uninitialised epoch is noticed.
#[must_use]
pub fn new_epoch(world: &World) -> Epoch {
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is as random as the whole")]
    Epoch((world.entropy.bits() as u32).max(1))
}
