//! Timers of a session: when they fire, and the fold of those that are set.
//!
//! A timer is a fact of its session. Setting, firing and cancelling are events; [`Timers`] folds them, for the state of the
//! session and for the journal's view of sessions that must wake. A firing queues a message, as a person's message is
//! queued, in the record that moves the timer to its next time: so each time fires once, also after a crash.
//!
//! Core reads no clock and no files: time zones come from the database inside the program.

mod cron;
mod schedule;

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    event::{CommandId, Event, NewTimer, SessionEnd},
    time::Timestamp,
};

pub use schedule::{Schedule, TimerRequest};

/// The longest id of a timer, in bytes.
pub const TIMER_ID_MAX: usize = 128;

/// The longest message of a timer, in bytes.
pub const TIMER_MESSAGE_MAX: usize = 4_096;

/// The most missed times that a firing counts; the number itself stands for this many or more.
pub const MISSED_MAX: u64 = 1_000;

/// Identifies a timer, unique in its session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TimerId(pub Arc<str>);

impl fmt::Display for TimerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for TimerId {
    fn from(id: &str) -> Self {
        Self(id.into())
    }
}

impl From<String> for TimerId {
    fn from(id: String) -> Self {
        Self(id.into())
    }
}

/// A timer that is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timer {
    /// Unique in its session.
    pub timer: TimerId,
    /// When it fires.
    pub schedule: Schedule,
    /// What the session is told when it fires.
    pub message: String,
    /// The next time at which it fires.
    pub next: Timestamp,
    /// The sender that set it.
    pub by: String,
    /// When it was set.
    pub set_at: Timestamp,
    /// How often it has fired.
    #[serde(default)]
    pub fired: u64,
    /// The message of its last firing, while no turn has started for it. The timer does not fire again until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued: Option<CommandId>,
}

/// The timers of a session that are set, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timers(BTreeMap<TimerId, Timer>);

impl Timers {
    /// Whether no timer is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of timers that are set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The timers that are set, by id.
    pub fn all(&self) -> impl Iterator<Item = &Timer> {
        self.0.values()
    }

    /// The timer with this id, if it is set.
    #[must_use]
    pub fn get(&self, timer: &TimerId) -> Option<&Timer> {
        self.0.get(timer)
    }

    /// The next time at which a timer can fire. A timer whose last firing still waits for its turn does not count.
    #[must_use]
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.all().filter(|timer| timer.queued.is_none()).map(|timer| timer.next).min()
    }

    /// The earliest next time of all timers.
    #[must_use]
    pub fn first_time(&self) -> Option<Timestamp> {
        self.all().map(|timer| timer.next).min()
    }

    /// The timers that fire now, the longest due first.
    #[must_use]
    pub fn due(&self, now: Timestamp) -> Vec<Timer> {
        let is_due = |timer: &&Timer| timer.queued.is_none() && timer.next <= now;
        let mut due: Vec<Timer> = self.all().filter(is_due).cloned().collect();
        due.sort_by(|a, b| (a.next, &a.timer).cmp(&(b.next, &b.timer)));
        due
    }

    /// Applies one event of the session. Events that concern no timer change nothing.
    pub fn apply(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::TimerSet(NewTimer { timer, schedule, message, next, by }) => {
                let set = Timer {
                    timer: timer.clone(),
                    schedule: schedule.clone(),
                    message: message.clone(),
                    next: *next,
                    by: by.clone(),
                    set_at: at,
                    fired: 0,
                    queued: None,
                };
                self.0.insert(timer.clone(), set);
            }
            Event::TimerFired { timer, command, next, .. } => match next {
                None => drop(self.0.remove(timer)),
                Some(next) => {
                    if let Some(fired) = self.0.get_mut(timer) {
                        fired.next = *next;
                        fired.fired = fired.fired.saturating_add(1);
                        fired.queued = Some(command.clone());
                    }
                }
            },
            Event::TimerCancelled { timer, .. } => drop(self.0.remove(timer)),
            Event::TurnStarted { message: command } | Event::MessageWithdrawn { command, .. } => {
                let fired = self.0.values_mut();
                fired
                    .filter(|timer| timer.queued.as_ref() == Some(command))
                    .for_each(|timer| timer.queued = None);
            }
            Event::SessionEnded { end: SessionEnd::Closed, .. } => self.0.clear(),
            _ => {}
        }
    }
}
