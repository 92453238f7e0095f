//! Events at their position in a history, and before they have one.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Epoch, Event, Seq, SessionId, TurnNumber};
use crate::{time::Timestamp, trace::Trace};

/// An event at its position in a session's history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The session whose history holds this record.
    pub session: SessionId,
    /// The incarnation of the history; changes only when the history was replaced.
    pub epoch: Epoch,
    /// The position, from 1, without gaps.
    pub seq: Seq,
    /// When the event happened: UTC, microseconds.
    pub at: Timestamp,
    /// All zeros when the event belongs to no trace.
    pub trace: Trace,
    /// The turn the event belongs to, from 1; 0 for none. A late event carries the number of its own turn.
    pub turn: TurnNumber,
    /// Stored as JSON, for example `{"tool_call_ended":{…}}`.
    pub event: Event,
}

impl Record {
    /// The stable id `{session}.{epoch}.{seq}`; a replay yields the same one.
    #[must_use]
    pub fn event_id(&self) -> String {
        format!("{}.{}.{}", self.session, self.epoch, self.seq)
    }
}

/// An event before its append; the journal assigns its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// When the event happened: UTC, microseconds.
    pub at: Timestamp,
    /// All zeros when the event belongs to no trace.
    pub trace: Trace,
    /// The turn the event belongs to, from 1; 0 for none.
    pub turn: TurnNumber,
    /// The event to append. Followers in the same process share it without a copy.
    pub event: Arc<Event>,
}
