//! Recognises an outage from the latest requests, and decides when it is probed.

use std::{collections::VecDeque, time::Duration};

use super::{HoldReason, Ticket, config::GateConfig};
use crate::time::Timestamp;

/// The latest requests: whether the service failed them.
#[derive(Debug, Default)]
pub(super) struct RecentRequests(VecDeque<(Timestamp, bool)>);

impl RecentRequests {
    pub(super) fn add(&mut self, now: Timestamp, has_failed: bool, config: &GateConfig) {
        let window = usize::try_from(config.outage_window).unwrap_or(usize::MAX);
        while self.0.len() >= window {
            self.0.pop_front();
        }
        self.0.push_back((now, has_failed));
        while self.0.front().is_some_and(|(at, _)| now.since(*at) > config.outage_window_time) {
            self.0.pop_front();
        }
    }

    /// Whether so many of them failed that the service counts as down.
    pub(super) fn show_outage(&self, config: &GateConfig) -> bool {
        let failed = self.0.iter().filter(|(_, has_failed)| *has_failed).count();
        let needed = usize::try_from(config.outage_requests).unwrap_or(usize::MAX);
        #[expect(clippy::cast_precision_loss, reason = "at most the window")]
        let share = failed as f64 / self.0.len().max(1) as f64;
        self.0.len() >= needed && share >= config.outage_share
    }

    pub(super) fn has_success(&self) -> bool {
        self.0.iter().any(|(_, has_failed)| !has_failed)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
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
