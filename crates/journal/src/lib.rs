//! Durable, ordered records per session: append, read, follow.
//!
//! A session is the sequence of its records; state, replay, resume, metrics and audit are derived from it. A journal
//! has six interfaces: [`Reader`] for gateways, [`Inbox`] for commands, [`Writer`] for the lease holder, [`OnceKeys`] for
//! work that is done once, [`Admin`] for operators, [`Cluster`] for servers that share it. [`Journal`] is all of them
//! and lists the promises. [`open`] opens one from a URL. [`Memory`] keeps records in memory only; the SQLite journal
//! keeps them in one crash-safe file that several processes can use at once.
//! `conformance`, a feature, is the test suite for every implementation; [`implement`] has their common building blocks.

mod backend;
#[cfg(feature = "conformance")]
pub mod conformance;
mod contract;
mod fold;
pub mod implement;
mod memory;
#[cfg(feature = "probe")]
#[doc(hidden)]
pub mod probe;
#[doc(hidden)]
pub mod sqlite;
pub mod verify;

pub use backend::{Access, Backend, Backends, Inspection, OutputFactory, Progress, open};
pub use contract::{
    Admin, Anchor, Append, AppendError, BatchLink, Census, ChainPage, ChangeWatch, CheckReport,
    Cluster, CompactReport, Damage, Digest, Entry, ExportReport, FaultRate, Filter, Gap, GapReason,
    HistoryInfo, IfMissing, ImportReport, Inbox, Journal, JournalLoad, JournalStats, Lease,
    LeaseInfo, LeaseRequest, LeaseToken, NODE_BEAT, NODE_ROW_TTL, NODE_TIMEOUT, NodeBeat, NodeInfo,
    NodeStatus, Note, OnceKeys, OnceOwner, OnceSettlement, OnceState, Page, PageLimits, RateQuery,
    Reader, Retention, RetentionReport, SessionState, SessionSummary, Snapshot, StoredRecord,
    SubmitOutcome, TimedSession, TimerQuery, TimerView, UnfinishedSession, Writer, partial_copy,
};
pub use fold::{fold, fold_at};
pub use memory::Memory;
