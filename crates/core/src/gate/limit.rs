//! The adaptive limits of a gate: requests in flight, and requests per second.
//!
//! Both grow additively while requests succeed and shrink by a factor on trouble. The rate is unlimited until the
//! service refuses a request; then the share that it accepted, over the time that it asked for, is the first estimate.

use std::time::Duration;

use super::config::GateConfig;
use crate::time::Timestamp;

/// A rate that was paced for this long is a better estimate than a count over a short time.
const STEADY: Duration = Duration::from_secs(3);
/// A rate limit that is met again within this share of its last value makes the growth slower.
const SAME_RATE: std::ops::Range<f64> = 0.8..1.25;
/// The most by which a confirmed rate slows down its growth.
const SLOWEST_GROWTH: f64 = 8.0;
/// How far a request may be sent before its place in an even spacing, in microseconds.
const SLACK_MICROS: i64 = 20_000;
/// A higher rate counts as unlimited.
const RATE_MAX: f64 = 10_000.0;
/// The lowest rate, one request in ten minutes: a gate never shuts for ever.
const RATE_MIN: f64 = 1.0 / 600.0;

/// The limit on requests in flight.
#[derive(Debug)]
pub(super) struct InFlightLimit {
    limit: f64,
    /// Below it the limit grows with every success, above it once per limit's worth of successes.
    threshold: f64,
    reduced_at: Option<Timestamp>,
    /// Set until the first trouble: the limit also grows with time.
    ramp_at: Option<Timestamp>,
}

impl InFlightLimit {
    pub(super) fn new(config: &GateConfig) -> Self {
        let limit = f64::from(config.in_flight_start);
        Self { limit, threshold: f64::INFINITY, reduced_at: None, ramp_at: None }
    }

    /// The limit in whole requests, at least 1.
    pub(super) fn get(&self) -> u32 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1..=max")]
        let whole = self.limit as u32;
        whole.max(1)
    }

    /// When the limit grows by itself, if it does.
    pub(super) fn ramp_at(&self) -> Option<Timestamp> {
        self.ramp_at
    }

    /// Grows with time while nothing has failed; called while requests wait for the limit.
    pub(super) fn ramp(&mut self, now: Timestamp, config: &GateConfig) {
        if self.reduced_at.is_some() || self.limit >= f64::from(config.in_flight_max) {
            self.ramp_at = None;
            return;
        }
        let due = *self.ramp_at.get_or_insert(now.after(config.ramp));
        if due <= now {
            self.limit = (self.limit * 2.0).min(f64::from(config.in_flight_max));
            self.ramp_at = Some(now.after(config.ramp));
        }
    }

    /// Ends the growth with time until the next request waits.
    pub(super) fn stop_ramp(&mut self) {
        self.ramp_at = None;
    }

    pub(super) fn succeeded(&mut self, in_flight: usize, config: &GateConfig) {
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let is_used = (in_flight + 1) as f64 >= self.limit / 2.0;
        if is_used {
            let more = if self.limit < self.threshold { 1.0 } else { 1.0 / self.limit };
            self.limit = (self.limit + more).min(f64::from(config.in_flight_max));
        }
    }

    /// Shrinks after an overload; requests that were sent before the last decrease do not count again.
    pub(super) fn reduce(
        &mut self,
        sent: Timestamp,
        now: Timestamp,
        in_flight: usize,
        config: &GateConfig,
    ) {
        if self.reduced_at.is_some_and(|at| sent < at) {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let used = (in_flight + 1) as f64;
        self.limit = (self.limit.min(used) * config.in_flight_decrease).max(1.0);
        self.threshold = self.limit;
        self.trouble(now);
    }

    /// Keeps a failed request from making room for the next one, before anything has succeeded.
    pub(super) fn shrink_by_one(&mut self) {
        self.limit = (self.limit - 1.0).max(1.0);
    }

    /// Ends the growth with time: from now on only successes raise the limit.
    pub(super) fn trouble(&mut self, now: Timestamp) {
        self.reduced_at = Some(now);
        self.ramp_at = None;
    }

    /// Begins again with one request, doubling as requests succeed.
    pub(super) fn restart(&mut self, now: Timestamp) {
        self.limit = 1.0;
        self.threshold = f64::INFINITY;
        self.trouble(now);
    }
}

/// Accepted requests from which a first rate is estimated.
const RATE_EVIDENCE: u32 = 3;
/// Refusals in one cycle that show a limit: a service at its limit refuses all that is in flight.
const REFUSALS_OF_A_LIMIT: u32 = 2;

/// The limit on requests per second.
#[derive(Debug)]
pub(super) struct RateLimit {
    /// The rate right after the last refusal; absent while no limit is known.
    base: Option<f64>,
    /// When the base rate came into force.
    since: Timestamp,
    /// By how much the growth is slowed down, from 1.
    slowness: f64,
    next_at: Timestamp,
    current: Cycle,
    /// The cycle that the last refusal ended, if its count is the base rate.
    measured: Option<(Cycle, Duration)>,
}

/// A count of requests from one resumption to the next refusal.
#[derive(Clone, Copy, Debug, Default)]
struct Cycle {
    number: u32,
    start: Timestamp,
    sent: u32,
    failed: u32,
}

impl Cycle {
    fn accepted(self) -> u32 {
        self.sent.saturating_sub(self.failed)
    }

    fn rate(self, duration: Duration) -> Option<f64> {
        let accepted = self.accepted();
        (accepted > 0).then(|| f64::from(accepted) / duration.as_secs_f64().max(0.001))
    }
}

impl RateLimit {
    pub(super) fn new() -> Self {
        Self {
            base: None,
            since: Timestamp::default(),
            slowness: 1.0,
            next_at: Timestamp::from_micros(i64::MIN),
            current: Cycle::default(),
            measured: None,
        }
    }

    /// The rate in force, in requests per second; absent while unlimited.
    pub(super) fn get(&self, now: Timestamp, config: &GateConfig) -> Option<f64> {
        let base = self.base?;
        let growth = config.rate_growth.as_secs_f64() * self.slowness;
        let grown = base * (1.0 + (now.since(self.since).as_secs_f64() / growth).powi(3));
        (grown <= RATE_MAX).then_some(grown)
    }

    /// When the next request may be sent; absent if at once.
    pub(super) fn next_at(&self, now: Timestamp, config: &GateConfig) -> Option<Timestamp> {
        let rate = self.get(now, config)?;
        // A clock that was set back does not lengthen the wait.
        let next_at = self.next_at.min(now.after(Duration::from_secs_f64(1.0 / rate)));
        (next_at > now).then_some(next_at)
    }

    /// Counts a request that is sent now and returns the number of its cycle.
    pub(super) fn sent(&mut self, now: Timestamp, was_idle: bool, config: &GateConfig) -> u32 {
        if was_idle && now.since(self.current.start) > STEADY {
            let number = self.current.number;
            self.current = Cycle { number, start: now, ..Cycle::default() };
        }
        self.current.sent = self.current.sent.saturating_add(1);
        match self.get(now, config) {
            // A little is made up for, because timers fire late.
            Some(rate) => {
                let slack = Timestamp::from_micros(now.as_micros().saturating_sub(SLACK_MICROS));
                self.next_at = self.next_at.max(slack).after(Duration::from_secs_f64(1.0 / rate));
            }
            None => self.base = None,
        }
        self.current.number
    }

    /// Counts a failure of a request. One of an earlier cycle corrects the rate that was estimated from it. Returns
    /// true if by now nothing of that cycle counts as accepted.
    pub(super) fn failed(&mut self, cycle: u32) -> bool {
        if cycle == self.current.number {
            self.current.failed = self.current.failed.saturating_add(1);
        } else if let Some((measured, duration)) = &mut self.measured
            && measured.number == cycle
        {
            measured.failed = measured.failed.saturating_add(1);
            if measured.failed < REFUSALS_OF_A_LIMIT || measured.accepted() < RATE_EVIDENCE {
                return measured.accepted() == 0;
            }
            self.base = measured.rate(*duration).map(|rate| rate.max(RATE_MIN));
            return self.base.is_none();
        }
        false
    }

    /// Shrinks after a refusal that holds requests until `resume`. Returns false if nothing was accepted before it.
    pub(super) fn refused(
        &mut self,
        now: Timestamp,
        resume: Timestamp,
        config: &GateConfig,
    ) -> bool {
        let duration = resume.since(self.current.start);
        let counted = self.current.rate(duration);
        let accepted_any = counted.is_some();
        let before = self.get(now, config);
        let is_steady = now.since(self.since) >= STEADY;
        self.measured = None;
        self.base = match (before, counted) {
            (Some(rate), _) if is_steady => Some(self.confirmed(rate, config)),
            // A single refusal among accepted requests is chance, not a limit.
            (Some(rate), Some(_)) if self.current.failed < REFUSALS_OF_A_LIMIT => Some(rate),
            (Some(rate), Some(counted)) => {
                Some(counted.clamp(rate * 0.5, rate * config.rate_decrease))
            }
            (Some(rate), None) => Some(rate * 0.5),
            // A lone refusal, or one or two accepted requests, say nothing about the rate of a service.
            (None, counted) => {
                self.measured = Some((self.current, duration));
                counted.filter(|_| {
                    self.current.failed >= REFUSALS_OF_A_LIMIT
                        && self.current.accepted() >= RATE_EVIDENCE
                })
            }
        }
        .map(|rate| rate.max(RATE_MIN));
        self.since = resume;
        self.next_at = resume;
        let number = self.current.number.wrapping_add(1);
        self.current = Cycle { number, start: resume, ..Cycle::default() };
        accepted_any
    }

    /// The rate after a limit that was met at a steady pace; a limit that is met again makes the growth slower.
    fn confirmed(&mut self, rate: f64, config: &GateConfig) -> f64 {
        let is_same = self.base.is_some_and(|base| SAME_RATE.contains(&(rate / base)));
        self.slowness = if is_same { (self.slowness * 2.0).min(SLOWEST_GROWTH) } else { 1.0 };
        rate * config.rate_decrease
    }
}
