//! A turn with patience left does not fail on trouble of its service, and a held request is released or its turn ends.

use std::time::Duration;

use budao_core::{Fault, Record, Timestamp, event::Event, fault::Operation};

use super::{OpenTurn, Reader};

/// The time that a turn has waited for its service, from its records.
#[derive(Default)]
pub(super) struct WaitTime {
    since: Option<Timestamp>,
    asked: Option<Timestamp>,
    ended: Duration,
    is_held: bool,
}

impl WaitTime {
    fn so_far(&self, now: Timestamp) -> Duration {
        self.ended + self.since.map_or(Duration::ZERO, |since| now.since(since))
    }
}

impl Reader<'_> {
    pub(super) fn waits(&self, turn: &mut OpenTurn, record: &Record) {
        let wait = &mut turn.wait;
        match &record.event {
            Event::RequestHeld { .. } => {
                wait.since.get_or_insert(record.at);
                wait.is_held = true;
            }
            Event::StepStarted { .. } => wait.asked = Some(record.at),
            // The held request is withdrawn; another model is asked.
            Event::ModelChanged { .. } => wait.is_held = false,
            Event::RetryScheduled { scope, .. } if scope.call.is_none() => {
                wait.since.get_or_insert(record.at);
            }
            Event::RequestReleased { .. } => {
                let was_held = std::mem::take(&mut wait.is_held);
                self.law(was_held, "only a held request is released");
                wait.asked = Some(record.at);
            }
            Event::ModelAnswered { .. } => {
                self.law(!wait.is_held, "a held request is released before it is answered");
                let asked = wait.asked.map_or(record.at, |asked| asked.min(record.at));
                *wait = WaitTime { ended: wait.so_far(asked), ..WaitTime::default() };
            }
            Event::RecoveryFailed { fault, scope }
                if scope.step.is_some() && scope.call.is_none() && is_transient(fault) =>
            {
                let waited = wait.so_far(record.at);
                self.law(self.may_fail(fault, waited), "a turn with patience does not fail");
            }
            _ => {}
        }
    }

    /// Whether the patience is over, or would be before the next request.
    fn may_fail(&self, fault: &Fault, waited: Duration) -> bool {
        let (gate, retry) = (&self.limits.gate, &self.limits.retry);
        let next = gate.probe_max.max(retry.max).max(fault.retry_hint().unwrap_or_default());
        waited + next >= gate.patience_watched
    }
}

fn is_transient(fault: &Fault) -> bool {
    fault.operation() == Operation::ModelRequest && fault.row().auto_retry
}
