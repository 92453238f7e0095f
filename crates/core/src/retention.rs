//! Bounds on what is kept of sessions, and what one run of retention removed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Bounds on what the journal keeps. `None` means no bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Age of the last record after which a finished session without pending commands is deleted.
    pub session_age: Option<Duration>,
    /// Age after which a record is removed.
    pub record_age: Option<Duration>,
    /// The number of records kept per session.
    pub records: Option<u64>,
    /// The bytes of events kept per session.
    pub bytes: Option<u64>,
    /// Age after which the key of a call that is done once is forgotten.
    pub once_age: Option<Duration>,
}

/// Counts of what one run of retention removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetentionReport {
    /// Sessions deleted because of their age.
    pub sessions: u64,
    /// Records removed from sessions that remain.
    pub records: u64,
    /// Stored outputs that no session used any more.
    pub blobs: u64,
}
