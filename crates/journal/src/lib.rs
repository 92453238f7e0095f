//! Durable, ordered records per session: append, read, follow.
//!
//! A session is the sequence of its records; state, replay, resume, metrics and audit are derived from it. [`Journal`]
//! is the contract and lists its promises. [`Memory`] keeps records in memory only. [`Sqlite`] keeps them in one
//! crash-safe file that several processes can use at once. [`conformance`] is the test suite for every implementation.

pub mod conformance;
mod contract;
mod encoded;
mod faults;
mod fold;
mod follow;
mod memory;
mod notifier;
#[doc(hidden)]
pub mod probe;
mod retention;
mod sqlite;
mod views;

pub use contract::{
    Append, AppendError, ChangeWatch, Digest, Entry, Filter, Gap, GapReason, HistoryInfo,
    IfMissing, Journal, Lease, LeaseInfo, LeaseRequest, LeaseToken, Load, Page, PageLimits, Rate,
    RateQuery, Retention, RetentionReport, SessionState, SessionSummary, Snapshot, StoredRecord,
    SubmitOutcome, UnfinishedSession,
};
pub use fold::{fold, fold_at};
pub use memory::Memory;
pub use sqlite::{
    CheckReport, Damage, ExportReport, ImportReport, JournalCounters, JournalStats, PathContent,
    SalvagedSession, Sqlite, SqliteOptions, salvage,
};
