//! Types for searching sessions and counting fault codes.

use std::{collections::BTreeMap, time::Duration};

use budao_core::{
    event::{Seq, SessionId, TurnNumber},
    session::SessionState,
    tally::{FaultCounts, FaultTally},
    time::Timestamp,
    timer::Timers,
    trace::Trace,
};
use serde::{Deserialize, Serialize, Serializer};

use super::LeaseInfo;

/// Selects sessions for a list. A session must match every field that is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Sessions whose id lies in this range, both ends included.
    pub ids: Option<(SessionId, SessionId)>,
    /// Sessions in this state.
    pub state: Option<SessionState>,
    /// Sessions whose last record is at or after this time.
    pub since: Option<Timestamp>,
    /// Sessions whose last record is before this time.
    pub until: Option<Timestamp>,
    /// Sessions with this label; with this value, if one is given.
    pub label: Option<(String, Option<String>)>,
    /// Sessions with records of this trace.
    pub trace: Option<Trace>,
    /// Sessions that had a fault with this code.
    pub code: Option<String>,
    /// Sessions that called this tool.
    pub tool: Option<String>,
    /// The last entry of the previous page, as its time of change and id; `None` for the first page.
    pub after: Option<(Timestamp, SessionId)>,
    /// The longest list to return.
    pub limit: usize,
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            ids: None,
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

/// An entry in a list of sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSummary {
    /// The id of the session.
    pub session: SessionId,
    /// The activity after the last record that the views contain.
    pub state: SessionState,
    /// The time of the session's first record.
    pub opened_at: Timestamp,
    /// The time of the session's last record.
    pub updated_at: Timestamp,
    /// A short title for people; `None` until one is set.
    pub title: Option<String>,
    /// Labels by key; each key has one value.
    pub labels: BTreeMap<String, String>,
    /// The number of turns started.
    pub turns: TurnNumber,
    /// The turn that has not ended; `None` between turns.
    pub open_turn: Option<TurnNumber>,
    /// The code of the fault that ended its last turn, if one did.
    pub last_code: Option<String>,
    /// The position of the last record.
    pub head: Seq,
    /// The timers that are set.
    #[serde(default, skip_serializing_if = "TimerView::is_empty")]
    pub timers: TimerView,
    /// The faults of all turns, and their resolutions so far.
    #[serde(flatten, serialize_with = "serialize_counts")]
    pub faults: FaultTally,
}

fn serialize_counts<S: Serializer>(tally: &FaultTally, serializer: S) -> Result<S::Ok, S::Error> {
    tally.counts().serialize(serializer)
}

impl SessionSummary {
    /// The fault counts of all turns.
    #[must_use]
    pub fn fault_counts(&self) -> FaultCounts {
        self.faults.counts()
    }
}

/// A session with work left to do: an open turn or pending commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedSession {
    /// The id of the session.
    pub session: SessionId,
    /// The turn that has not ended; `None` if only commands are pending.
    pub turn: Option<TurnNumber>,
    /// The number of commands without an answer.
    pub pending: usize,
    /// The holder and expiry of the lease; `None` if no lease is valid.
    pub lease: Option<LeaseInfo>,
}

/// The timers of a session as the views have them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimerView {
    /// The timers that are set.
    pub timers: Timers,
    /// The position from which on records count; those up to it are in the snapshot that the view began with.
    #[serde(skip_serializing_if = "is_zero")]
    pub from: Seq,
}

impl TimerView {
    /// Whether no timer is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.timers.is_empty()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(seq: &Seq) -> bool {
    *seq == 0
}

/// Selects sessions with timers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerQuery {
    /// Sessions of this tenant, by the label [`budao_core::event::Settings::TENANT`]; empty for those without the label.
    pub tenant: Option<String>,
    /// The last entry of the previous page, as its time and id; `None` for the first page.
    pub after: Option<(Timestamp, SessionId)>,
    /// The longest list to return.
    pub limit: usize,
}

/// A session in which timers are set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedSession {
    /// The id of the session.
    pub session: SessionId,
    /// The earliest next time of its timers.
    pub wake_at: Timestamp,
    /// The timers that are set.
    pub timers: Timers,
    /// The labels of the session.
    pub labels: BTreeMap<String, String>,
    /// The holder and expiry of the lease; `None` if no lease is valid.
    pub lease: Option<LeaseInfo>,
}

/// Selects counts of fault codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateQuery {
    /// Start of the range, rounded down to a bucket.
    pub since: Timestamp,
    /// End of the range, exclusive.
    pub until: Timestamp,
    /// Length of a bucket, rounded up to whole minutes.
    pub bucket: Duration,
    /// Counts this code only; `None` counts every code.
    pub code: Option<String>,
}

/// The counts of one fault code in one bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultRate {
    /// The fault code, as in the catalog.
    pub code: String,
    /// The start of the bucket.
    pub at: Timestamp,
    /// Faults raised, including failed calls.
    pub raised: u64,
    /// Turns, tasks and sessions that ended with this code.
    pub ended: u64,
}
