//! What is searched, counted and removed.

use std::{collections::BTreeMap, str::FromStr, time::Duration};

use budao_core::{
    event::{Seq, SessionEnd, SessionId, TurnNumber},
    fault::{Fact, Fault, Kind, Operation},
    time::Timestamp,
    trace::Trace,
};
use serde::{Deserialize, Serialize};

use super::LeaseInfo;

/// What a session is doing.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
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

impl SessionState {
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

impl From<SessionEnd> for SessionState {
    fn from(end: SessionEnd) -> Self {
        match end {
            SessionEnd::Closed => Self::Closed,
            SessionEnd::Error => Self::Failed,
        }
    }
}

impl FromStr for SessionState {
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
    pub state: Option<SessionState>,
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
pub struct SessionSummary {
    /// Which.
    pub session: SessionId,
    /// What it is doing.
    pub state: SessionState,
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
pub struct UnfinishedSession {
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
pub struct RetentionReport {
    /// Sessions deleted.
    pub sessions: u64,
    /// Records removed from sessions that stay.
    pub records: u64,
    /// Kept outputs that no session needed any more.
    pub blobs: u64,
}
