//! Retry decisions: the fault decides whether, the schedule decides when. Nothing here waits.
//!
//! The delay before attempt *n + 1* is `base · multiplier^(n − 1)`, jittered by up to ±10 %, then clamped to
//! `[base, max]`. A service's own hint is a lower bound and may exceed `max`, up to `hint_ceiling`. A longer hint fails
//! the operation at once, and the fault says when to come back. `tries` counts every attempt, the first included.

use std::{fmt, time::Duration};

use backon::BackoffBuilder;
use serde::{Deserialize, Serialize};

use crate::{
    fault::{Fact, Fault, Kind},
    limits::millis,
};

/// How often and at which intervals to retry.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryPolicy {
    /// The most attempts, the first included.
    pub tries: u32,
    /// The first delay, and the shortest.
    #[serde(with = "millis")]
    pub base: Duration,
    /// The longest delay without a hint from the service.
    #[serde(with = "millis")]
    pub max: Duration,
    /// The growth factor from delay to delay.
    pub multiplier: f64,
    /// The longest hint that is followed; a longer one ends the retries. Not a setting of its own: the runtime's is
    /// `models.gate.hint_ceiling`.
    #[serde(skip)]
    pub hint_ceiling: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            tries: 3,
            base: Duration::from_secs(1),
            max: Duration::from_secs(60),
            multiplier: 2.0,
            hint_ceiling: Duration::from_secs(600),
        }
    }
}

/// The largest share of a delay that jitter may add or subtract.
const JITTER: f64 = 0.1;

/// The decision after a failed attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum RetryDecision {
    /// Retry after this delay.
    Retry(Duration),
    /// No retry; the fault says why.
    GiveUp(Fault),
}

impl RetryPolicy {
    /// The delay after failed attempt `attempt` (from 1), for a jitter in −1..=1.
    #[must_use]
    pub fn delay(&self, attempt: u32, jitter: f64) -> Duration {
        let plain = self.plain_delay(attempt);
        let jittered = plain.mul_add(JITTER * jitter.clamp(-1.0, 1.0), plain);
        let ceiling = self.max.max(self.base);
        Duration::try_from_secs_f64(jittered).unwrap_or(ceiling).clamp(self.base, ceiling)
    }

    /// The delay in seconds before jitter and clamping; grows with every attempt.
    fn plain_delay(&self, attempt: u32) -> f64 {
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        (self.base.as_secs_f64() * self.multiplier.max(1.0).powi(exponent)).min(f64::MAX)
    }

    /// Decides after failed attempt `attempt`. A kind that must not be repeated wins over remaining attempts.
    #[must_use]
    pub fn after(&self, fault: Fault, attempt: u32, jitter: f64) -> RetryDecision {
        let may_repeat = fault.may_auto_retry();
        let fault = fault.attempt(attempt, self.tries);
        if !may_repeat || attempt >= self.tries {
            return RetryDecision::GiveUp(fault);
        }
        let delay = self.delay(attempt, jitter);
        let named = |fact| fault.detail().text(fact).map(str::to_owned);
        let service = named(Fact::Service).or_else(|| named(Fact::ToolName));
        match fault.retry_hint() {
            Some(hint) if hint > self.hint_ceiling => RetryDecision::GiveUp(
                Fault::new(Kind::RetryAfterTooLong, fault.operation())
                    .with(Fact::Service, service.unwrap_or_else(|| "the service".to_owned()))
                    .with(Fact::WaitMs, hint)
                    .with(Fact::LimitMs, self.hint_ceiling)
                    .with_cause(fault.to_string())
                    .attempt(attempt, attempt)
                    .retry_after(hint)
                    .with_trace(fault.trace()),
            ),
            Some(hint) => RetryDecision::Retry(delay.max(hint)),
            None => RetryDecision::Retry(delay),
        }
    }

    /// The delays in order, with jitter drawn from `seed`.
    #[must_use]
    pub fn schedule(self, seed: u64) -> Schedule {
        Schedule { policy: self, attempt: 0, state: seed }
    }
}

/// The delays between attempts, one fewer than there are attempts. Also a backoff for `backon`.
#[derive(Clone)]
pub struct Schedule {
    policy: RetryPolicy,
    attempt: u32,
    state: u64,
}

impl Iterator for Schedule {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.attempt += 1;
        (self.attempt < self.policy.tries).then(|| {
            let jitter = next_jitter(&mut self.state);
            self.policy.delay(self.attempt, jitter)
        })
    }
}

/// SplitMix64; sufficient to spread clients that failed at the same time.
fn next_jitter(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    #[expect(clippy::cast_precision_loss, reason = "53 bits are plenty for jitter")]
    let unit = (bits >> 11) as f64 / (1_u64 << 53) as f64;
    unit.mul_add(2.0, -1.0)
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedule").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl BackoffBuilder for RetryPolicy {
    type Backoff = Schedule;

    /// Uses a fixed seed for the jitter; [`RetryPolicy::schedule`] takes a seed and is a builder too.
    fn build(self) -> Schedule {
        self.schedule(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fault::Operation;

    fn policies() -> impl Strategy<Value = RetryPolicy> {
        (1..20_u32, 1..5_000_u64, 1..200_000_u64, 1.0..10.0_f64).prop_map(
            |(tries, base, max, multiplier)| RetryPolicy {
                tries,
                base: Duration::from_millis(base),
                max: Duration::from_millis(base + max),
                multiplier,
                ..RetryPolicy::default()
            },
        )
    }

    proptest! {
        #[test]
        fn a_delay_stays_between_base_and_max(
            policy in policies(), attempt in 0..u32::MAX, jitter in -1.0..=1.0_f64,
        ) {
            let delay = policy.delay(attempt, jitter);
            prop_assert!(policy.base <= delay && delay <= policy.max, "{delay:?}");
        }

        #[test]
        fn jitter_moves_a_delay_by_at_most_a_tenth(
            policy in policies(), attempt in 1..12_u32, jitter in -1.0..=1.0_f64,
        ) {
            let plain = policy.delay(attempt, 0.0).as_secs_f64();
            let moved = policy.delay(attempt, jitter).as_secs_f64();
            prop_assert!((moved - plain).abs() <= plain * 0.100_001 + 1e-6);
        }

        #[test]
        fn delays_grow_before_jitter(policy in policies(), attempt in 1..40_u32) {
            prop_assert!(policy.plain_delay(attempt) <= policy.plain_delay(attempt + 1));
            prop_assert!(policy.delay(attempt, 0.0) <= policy.delay(attempt + 1, 0.0));
        }

        #[test]
        fn there_are_never_more_tries_than_allowed(policy in policies(), seed: u64) {
            prop_assert_eq!(policy.schedule(seed).count() as u32, policy.tries - 1);
        }

        #[test]
        fn inner_retries_never_multiply_outer_ones(inner in 1..6_u32, outer in 1..6_u32) {
            // Goal: `outer` attempts around `inner` attempts make at most `inner` requests. Method: run both loops
            // against a service that always fails, and count its requests.
            let policy = |tries| RetryPolicy { tries, ..RetryPolicy::default() };
            let mut requests = 0;
            let mut run_inner = || {
                let mut attempt = 0;
                loop {
                    attempt += 1;
                    requests += 1;
                    let fault = Fault::new(Kind::ModelOverloaded, Operation::ModelRequest);
                    match policy(inner).after(fault, attempt, 0.0) {
                        RetryDecision::Retry(_) => {}
                        RetryDecision::GiveUp(fault) => return fault,
                    }
                }
            };
            let mut attempt = 0;
            loop {
                attempt += 1;
                let fault = run_inner();
                if let RetryDecision::GiveUp(_) = policy(outer).after(fault, attempt, 0.0) {
                    break;
                }
            }
            prop_assert_eq!(requests, inner);
        }
    }

    fn overloaded() -> Fault {
        Fault::new(Kind::ModelOverloaded, Operation::ModelRequest)
    }

    #[test]
    fn the_first_delays_are_one_two_four_seconds() {
        let policy = RetryPolicy { tries: 8, ..RetryPolicy::default() };
        let delays: Vec<_> = (1..8).map(|attempt| policy.delay(attempt, 0.0).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60]);
    }

    #[test]
    fn a_hint_is_a_floor_that_may_exceed_the_maximum() {
        let policy = RetryPolicy::default();
        let hinted = |secs| overloaded().retry_after(Duration::from_secs(secs));
        assert_eq!(
            policy.after(hinted(120), 1, 0.0),
            RetryDecision::Retry(Duration::from_secs(120))
        );
        assert_eq!(policy.after(hinted(0), 2, 0.0), RetryDecision::Retry(Duration::from_secs(2)));
    }

    #[test]
    fn a_retry_hint_above_the_limit_fails_at_once_and_names_the_time() {
        let fault = overloaded().retry_after(Duration::from_secs(3600));
        let RetryDecision::GiveUp(fault) = RetryPolicy::default().after(fault, 1, 0.0) else {
            panic!("must give up")
        };
        assert_eq!(fault.kind(), Kind::RetryAfterTooLong);
        assert_eq!(fault.retry_hint(), Some(Duration::from_secs(3600)));
        assert!(!fault.may_auto_retry());
    }

    #[test]
    fn skip_wins_over_retry() {
        let fault = Fault::new(Kind::ModelAuthentication, Operation::ModelRequest)
            .retry_after(Duration::from_secs(1));
        assert!(matches!(RetryPolicy::default().after(fault, 1, 0.0), RetryDecision::GiveUp(_)));
    }

    #[test]
    fn the_last_failed_attempt_gives_up_with_the_count_of_attempts() {
        let RetryDecision::GiveUp(fault) = RetryPolicy::default().after(overloaded(), 3, 0.0)
        else {
            panic!("must give up")
        };
        assert_eq!(fault, overloaded().attempt(3, 3));
    }
}
