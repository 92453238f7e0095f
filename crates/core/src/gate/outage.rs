//! Recognises an outage from the latest requests, and decides when it is probed.

use std::{collections::VecDeque, time::Duration};

use super::{HoldReason, Ticket, config::GateConfig};
use crate::{event::SessionId, time::Timestamp};

/// So many times the fewest requests of an outage show one by themselves, if they are of different sessions.
const NEW_FAILURES: u32 = 2;

/// The latest request of each session: whether the service failed it. A session that fails again and again counts once,
/// because the requests that a flaky service answers are not repeated and those that it fails are.
#[derive(Debug, Default)]
pub(super) struct RecentRequests {
    latest: VecDeque<RecentRequest>,
    /// Sessions whose request failed after an answer, or as their first one, with no answer to any session since.
    new_failures: u32,
}

#[derive(Debug)]
struct RecentRequest {
    session: SessionId,
    at: Timestamp,
    /// Failures in a row; 0 after an answer.
    failures: u32,
}

impl RecentRequests {
    pub(super) fn add(
        &mut self,
        session: SessionId,
        now: Timestamp,
        has_failed: bool,
        config: &GateConfig,
    ) {
        let known = self.latest.iter().position(|recent| recent.session == session);
        let known = known.and_then(|index| self.latest.remove(index));
        let failures = match (has_failed, known.map_or(0, |known| known.failures)) {
            (true, before) => before.saturating_add(1),
            (false, _) => 0,
        };
        self.new_failures = match failures {
            0 => 0,
            1 => self.new_failures.saturating_add(1),
            _ => self.new_failures,
        };
        let window = usize::try_from(config.outage_window).unwrap_or(usize::MAX);
        while self.latest.len() >= window {
            self.latest.pop_front();
        }
        self.latest.push_back(RecentRequest { session, at: now, failures });
        let is_old = |recent: &RecentRequest| now.since(recent.at) > config.outage_window_time;
        while self.latest.front().is_some_and(is_old) {
            self.latest.pop_front();
        }
    }

    /// Whether so many of them failed that the service counts as down.
    pub(super) fn show_outage(&self, config: &GateConfig) -> bool {
        let failed = self.latest.iter().filter(|recent| recent.failures > 0).count();
        let failures: u32 = self.latest.iter().map(|recent| recent.failures).sum();
        #[expect(clippy::cast_precision_loss, reason = "at most the window")]
        let share = failed as f64 / self.latest.len().max(1) as f64;
        let is_most = failures >= config.outage_requests && share >= config.outage_share;
        is_most || self.new_failures >= config.outage_requests.saturating_mul(NEW_FAILURES)
    }

    pub(super) fn has_success(&self) -> bool {
        self.latest.iter().any(|recent| recent.failures == 0)
    }

    /// Forgets the failures of an outage that is over.
    pub(super) fn forget_failures(&mut self) {
        self.latest.retain(|recent| recent.failures == 0);
        self.new_failures = 0;
    }
}

/// A service that is down, or whose hint was too long to be followed: one request at a time probes it.
#[derive(Debug)]
pub(super) struct Outage {
    pub(super) since: Timestamp,
    pub(super) next_probe: Timestamp,
    pub(super) probe: Option<Ticket>,
    /// What sessions and operators are told.
    pub(super) reason: HoldReason,
}

impl Outage {
    /// Begins an outage; the first probe follows after `wait`.
    pub(super) fn new(now: Timestamp, wait: Duration, reason: HoldReason) -> Self {
        Self { since: now, next_probe: now.after(wait), probe: None, reason }
    }

    /// Plans the next probe after a failed one, `hint` after now at the earliest.
    pub(super) fn probe_failed(&mut self, now: Timestamp, hint: Duration, config: &GateConfig) {
        self.probe = None;
        let elapsed = now.since(self.since).mul_f64(config.probe_share);
        let wait = elapsed.clamp(config.probe_min, config.probe_max).max(hint);
        self.next_probe = now.after(wait);
    }
}
