//! Durable, ordered records per session: append, read, follow.
//!
//! The only truth of a session is the sequence of its records; state, replay, resume, metrics and audit
//! are read from it. [`Journal`] is the contract and says once what callers may rely on. [`Memory`] keeps
//! everything in memory and forgets it; [`Sqlite`] keeps it in one file, safe against crashes, for several
//! processes at once. [`conformance`] is the suite every implementation passes.

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
