//! The activity of a session: one enum, with one spelling in every list, filter and API.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Session;
use crate::{
    event::{SessionEnd, StopReason},
    fault::{Fact, Fault, Kind, Operation},
};

/// The activity of a session, derived from its records.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// The session waits for a message, and its last turn did not fail.
    #[default]
    Idle,
    /// A turn is open, or a message waits for its turn. The writer may have ended without closing the turn.
    Running,
    /// A turn waits for a person's decision.
    WaitingForDecision,
    /// The session was closed on request; a message re-opens it.
    Closed,
    /// The last turn failed, or the session ended because of a fault. A message or a retry continues it.
    Failed,
}

impl SessionState {
    /// Every state, in the order of the declaration.
    pub const ALL: [Self; 5] =
        [Self::Idle, Self::Running, Self::WaitingForDecision, Self::Closed, Self::Failed];

    /// The name on disk and on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running => "running",
            Self::WaitingForDecision => "waiting_for_decision",
            Self::Closed => "closed",
            Self::Failed => "failed",
        }
    }

    /// The state between two turns, after a turn that ended like this.
    #[must_use]
    pub const fn after_turn(stop: StopReason) -> Self {
        match stop {
            StopReason::Failed => Self::Failed,
            _ => Self::Idle,
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
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            Fault::new(Kind::ConstraintViolated, Operation::ReadRecords)
                .with(Fact::Field, "state")
                .with(Fact::ProvidedValue, text.chars().take(80).collect::<String>())
                .with(Fact::Constraint, "idle, running, waiting_for_decision, closed or failed")
        })
    }
}

impl Session {
    /// The session's activity, derived from its turn, queue and end.
    #[must_use]
    pub fn state(&self) -> SessionState {
        match &self.turn {
            Some(turn) if turn.is_waiting_for_person() => SessionState::WaitingForDecision,
            Some(_) => SessionState::Running,
            None if !self.queue.is_empty() => SessionState::Running,
            None => match (self.ended, &self.last) {
                (Some(end), _) => end.into(),
                (None, Some(last)) => SessionState::after_turn(last.stop),
                (None, None) => SessionState::Idle,
            },
        }
    }
}
