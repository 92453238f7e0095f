//! Durable, ordered records per session: append, read, follow.
//!
//! The only truth of a session is the sequence of its records; state, replay, resume, metrics and audit
//! are read from it. [`Journal`] is the contract and says once what callers may rely on. [`Memory`] keeps
//! everything in memory and forgets it; [`Sqlite`] keeps it in one file, safe against crashes, for several
//! processes at once. [`conformance`] is the suite every implementation passes.

mod bell;
pub mod conformance;
mod contract;
mod encoded;
mod faults;
mod fold;
mod follow;
mod keep;
mod memory;
#[doc(hidden)]
pub mod probe;
mod sqlite;
mod views;

pub use contract::{
    Append, AppendError, Digest, Entry, Filter, Gap, GapReason, Info, Journal, Lease, LeaseInfo,
    LeaseRequest, Load, Missing, Page, PageLimits, Rate, RateQuery, Retained, Retention, Snapshot,
    State, Stored, Submitted, Summary, Token, Unfinished, Watch,
};
pub use fold::{fold, fold_at};
pub use memory::Memory;
pub use sqlite::{
    Check, Counters, Damage, ExportReport, ImportReport, Options, PathContent, Salvage, Sqlite,
    Stats, salvage,
};
