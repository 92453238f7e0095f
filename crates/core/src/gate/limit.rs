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
#[derive(Clone, Debug)]
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
        self.end_ramp(now);
    }

    /// Keeps a failed request from making room for the next one, before anything has succeeded.
    pub(super) fn shrink_by_one(&mut self) {
        self.limit = (self.limit - 1.0).max(1.0);
    }

    /// Lowers the limit to that of a service that accepts so few requests at once.
    pub(super) fn cap(&mut self, accepted: u32) {
        self.limit = self.limit.min(f64::from(accepted.saturating_mul(2).max(1)));
    }

    /// Ends the growth with time: from now on only successes raise the limit.
    pub(super) fn end_ramp(&mut self, now: Timestamp) {
        self.reduced_at = Some(now);
        self.ramp_at = None;
    }

    /// Begins again with one request, doubling as requests succeed.
    pub(super) fn restart(&mut self, now: Timestamp) {
        self.limit = 1.0;
        self.threshold = f64::INFINITY;
        self.end_ramp(now);
    }
}

/// Accepted requests from which a first rate is estimated.
const RATE_EVIDENCE: u32 = 3;
/// Refusals in one cycle that show a limit: a service at its limit refuses all that is in flight.
const REFUSALS_OF_A_LIMIT: u32 = 2;
/// Accepted requests after the last refusal of a burst that show that there was no limit. Requests overtake each other
/// on their way, so a few prove nothing.
const ACCEPTED_LATER: u32 = 4;

/// The limit on requests per second.
#[derive(Clone, Debug)]
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
    /// Requests accepted in the cycles before that one, while no rate was known, and their time.
    earlier: (u32, Duration),
    /// The latest grant that was refused.
    refused_grant: u64,
    /// Requests of the measured cycle that were granted after it and accepted.
    accepted_later: u32,
}

/// A count of requests from one resumption to the next refusal.
#[derive(Clone, Copy, Debug, Default)]
struct Cycle {
    number: u32,
    start: Timestamp,
    sent: u32,
    failed: u32,
    /// Of the failed ones, those that a rate limit refused.
    refused: u32,
}

impl Cycle {
    fn shows_limit(self) -> bool {
        self.refused >= REFUSALS_OF_A_LIMIT
    }

    fn add_failure(&mut self, is_refused: bool) {
        self.failed = self.failed.saturating_add(1);
        self.refused = self.refused.saturating_add(u32::from(is_refused));
    }

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
            earlier: (0, Duration::ZERO),
            refused_grant: 0,
            accepted_later: 0,
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
            self.measured = None;
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
    pub(super) fn failed(&mut self, cycle: u32, is_refused: bool) -> bool {
        if cycle == self.current.number {
            self.current.add_failure(is_refused);
        } else if let Some((measured, _)) = &mut self.measured
            && measured.number == cycle
        {
            measured.add_failure(is_refused);
            let has_none = measured.accepted() == 0;
            self.base = self.estimate();
            return has_none;
        }
        false
    }

    /// Remembers that a rate limit refused the request of this grant.
    pub(super) fn refused_grant(&mut self, grant: u64) {
        if grant > self.refused_grant {
            (self.refused_grant, self.accepted_later) = (grant, 0);
        }
    }

    /// Counts an accepted request. A service at its limit refuses what comes later; one that accepts several requests
    /// of the same burst after its last refusal has no limit there, and the rate that was estimated from it is dropped.
    pub(super) fn accepted(&mut self, cycle: u32, grant: u64) {
        let is_measured = self.measured.is_some_and(|(measured, _)| measured.number == cycle);
        if !is_measured || grant <= self.refused_grant {
            return;
        }
        self.accepted_later = self.accepted_later.saturating_add(1);
        if self.accepted_later >= ACCEPTED_LATER {
            (self.base, self.measured) = (None, None);
            self.earlier = (0, Duration::ZERO);
        }
    }

    /// Requests that a service at its limit accepted in the last cycle, if they are too few to show a rate.
    pub(super) fn too_few_accepted(&self) -> Option<u32> {
        let (measured, _) = self.measured.filter(|(cycle, _)| cycle.shows_limit())?;
        self.base.is_none().then(|| measured.accepted())
    }

    /// The rate that the last cycle shows. If the service accepted too few requests in it, the cycles before it count,
    /// too: a service that takes one request a second is known after three of them.
    fn estimate(&self) -> Option<f64> {
        let (measured, duration) = self.measured.filter(|(cycle, _)| cycle.shows_limit())?;
        let accepted = measured.accepted();
        let rate = match accepted >= RATE_EVIDENCE {
            true => measured.rate(duration),
            false => {
                let (before, time) = self.earlier;
                let all = f64::from(accepted + before) / (duration + time).as_secs_f64().max(0.001);
                (accepted + before >= RATE_EVIDENCE).then_some(all)
            }
        };
        rate.map(|rate| rate.max(RATE_MIN))
    }

    /// Begins to count anew after an outage that lasted this long, whose time says nothing about the rate.
    pub(super) fn resume(&mut self, now: Timestamp, lasted: Duration) {
        self.since = self.since.after(lasted).min(now);
        self.measured = None;
        let number = self.current.number.wrapping_add(1);
        self.current = Cycle { number, start: now, sent: 1, ..Cycle::default() };
    }

    /// Takes a refusal back that turned out to be no sign of a limit.
    pub(super) fn forgive(&mut self) {
        self.current.refused = self.current.refused.saturating_sub(1);
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
        let (accepted, time) = self.earlier;
        self.earlier = match self.measured.take().filter(|_| before.is_none()) {
            Some((cycle, lasted)) => (accepted.saturating_add(cycle.accepted()), time + lasted),
            None => (0, Duration::ZERO),
        };
        self.base = match (before, counted) {
            (Some(rate), _) if is_steady => Some(self.confirmed(rate, config)),
            // A single refusal among accepted requests is chance, not a limit.
            (Some(rate), Some(_)) if !self.current.shows_limit() => Some(rate),
            (Some(rate), Some(counted)) => {
                Some(counted.clamp(rate * 0.5, rate * config.rate_decrease))
            }
            (Some(rate), None) => Some(rate * 0.5),
            // A lone refusal, or one or two accepted requests, say nothing about the rate of a service.
            (None, _) => {
                self.measured = Some((self.current, duration));
                self.estimate()
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
