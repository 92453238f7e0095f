//! Retry budget and circuit breaker of each provider, shared by all sessions.
//!
//! Both take the time as an argument, so that a simulation can run them.

use std::{
    collections::{HashMap, VecDeque},
    sync::Mutex,
    time::Duration,
};

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    time::Timestamp,
};

use crate::work::WorkContext;

/// Length of the sliding window of the retry budget.
const WINDOW: Duration = Duration::from_secs(60);
/// Retries allowed per window, however few requests there are.
const RETRIES_MIN: usize = 3;
/// Beyond the minimum, one retry is allowed per this many requests.
const REQUESTS_PER_RETRY: usize = 10;
/// Failures in a row that open the breaker.
const FAILURES_TO_OPEN: u32 = 5;
/// An open breaker admits one probe request after this time.
const PROBE_AFTER: Duration = Duration::from_secs(30);
/// Upper bound of entries in a window; further ones replace the oldest.
const ENTRIES_MAX: usize = 100_000;

/// Budget and breaker of every provider, by the provider's name.
#[derive(Debug, Default)]
pub struct Providers(Mutex<HashMap<String, Provider>>);

#[derive(Debug, Default)]
struct Provider {
    requests: VecDeque<Timestamp>,
    retries: VecDeque<Timestamp>,
    failures: u32,
    open_since: Option<Timestamp>,
    probing: bool,
}

impl Providers {
    /// Admits a request, or refuses it while the breaker is open.
    ///
    /// # Errors
    /// `breaker_open`, with the time until the next probe.
    pub fn admit(&self, provider: &str, now: Timestamp) -> Result<(), Fault> {
        self.with(provider, |state| {
            if let Some(since) = state.open_since {
                let closed_for = now.since(since);
                if closed_for < PROBE_AFTER || state.probing {
                    let wait = PROBE_AFTER.saturating_sub(closed_for).max(Duration::from_secs(1));
                    return Err(Fault::new(Kind::BreakerOpen, Operation::ModelRequest)
                        .with(Fact::Service, provider.to_owned())
                        .with(Fact::WaitMs, wait)
                        .retry_after(wait));
                }
                state.probing = true;
            }
            remember(&mut state.requests, now);
            Ok(())
        })
    }

    /// Reports a successful request; closes the breaker.
    pub fn succeeded(&self, provider: &str) {
        self.with(provider, |state| {
            state.failures = 0;
            state.open_since = None;
            state.probing = false;
        });
    }

    /// Reports a failed request. Only faults with automatic retry count against the provider.
    pub fn failed(&self, provider: &str, fault: &Fault, now: Timestamp) {
        if fault.kind() == Kind::BreakerOpen {
            return;
        }
        self.with(provider, |state| {
            if !fault.row().auto_retry {
                state.probing = false;
                return;
            }
            state.failures = state.failures.saturating_add(1);
            if state.probing || state.failures >= FAILURES_TO_OPEN {
                state.open_since = Some(now);
                state.probing = false;
            }
        });
    }

    /// Reports a request that was dropped before it had an outcome; frees its probe slot.
    pub fn abandoned(&self, provider: &str) {
        self.with(provider, |state| state.probing = false);
    }

    /// Takes one retry from the budget; false if the budget is exhausted.
    pub fn take_retry(&self, provider: &str, now: Timestamp) -> bool {
        self.with(provider, |state| {
            forget(&mut state.requests, now);
            forget(&mut state.retries, now);
            let allowed = RETRIES_MIN.max(state.requests.len() / REQUESTS_PER_RETRY);
            let may = state.retries.len() < allowed;
            if may {
                remember(&mut state.retries, now);
            }
            may
        })
    }

    fn with<T>(&self, provider: &str, act: impl FnOnce(&mut Provider) -> T) -> T {
        let mut providers = self.0.lock().expect("no code panics while holding this");
        match providers.get_mut(provider) {
            Some(state) => act(state),
            None => act(providers.entry(provider.to_owned()).or_default()),
        }
    }
}

/// Makes a request if the breaker admits it, and reports its outcome to the breaker.
pub(crate) async fn asking<T>(
    work_context: &WorkContext,
    provider: &str,
    request: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    let (providers, clock) = (&work_context.shared.providers, &work_context.shared.world.clock);
    providers.admit(provider, clock.now())?;
    let mut guard = BreakerGuard { providers, provider, settled: false };
    let answered = request.await;
    guard.settled = true;
    match &answered {
        Ok(_) => providers.succeeded(provider),
        Err(fault) => providers.failed(provider, fault, clock.now()),
    }
    answered
}

/// Reports a request to the breaker as abandoned if it is dropped without an outcome.
struct BreakerGuard<'a> {
    providers: &'a Providers,
    provider: &'a str,
    settled: bool,
}

impl Drop for BreakerGuard<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.providers.abandoned(self.provider);
        }
    }
}

fn remember(times: &mut VecDeque<Timestamp>, now: Timestamp) {
    forget(times, now);
    if times.len() >= ENTRIES_MAX {
        times.pop_front();
    }
    times.push_back(now);
}

fn forget(times: &mut VecDeque<Timestamp>, now: Timestamp) {
    while times.front().is_some_and(|at| now.since(*at) > WINDOW) {
        times.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn overloaded() -> Fault {
        Fault::new(Kind::ModelOverloaded, Operation::ModelRequest)
    }

    #[test]
    fn many_sessions_cannot_storm_one_provider() {
        // Goal: total requests stay near the useful ones, however many sessions fail at once.
        let providers = Providers::default();
        let mut retries = 0;
        for session in 0..1000 {
            providers.admit("p", at(session / 100)).unwrap();
            retries += u32::from(providers.take_retry("p", at(session / 100)));
        }
        assert!((3..=100).contains(&retries), "{retries}");
    }

    #[test]
    fn a_lone_session_has_its_three_retries_and_gets_them_back() {
        let providers = Providers::default();
        let took = |time| (0..10).filter(|_| providers.take_retry("p", at(time))).count();
        assert_eq!(took(0), 3);
        assert_eq!(took(30), 0);
        assert_eq!(took(61), 3);
    }

    #[test]
    fn five_failures_in_a_row_open_the_breaker_and_one_probe_closes_it() {
        let providers = Providers::default();
        for _ in 0..5 {
            providers.admit("p", at(0)).unwrap();
            providers.failed("p", &overloaded(), at(0));
        }
        let fault = providers.admit("p", at(10)).unwrap_err();
        assert_eq!(fault.kind(), Kind::BreakerOpen);
        assert_eq!(fault.retry_hint(), Some(Duration::from_secs(20)));
        providers.admit("p", at(30)).expect("one probe");
        assert!(providers.admit("p", at(30)).is_err(), "and only one");
        providers.failed("p", &overloaded(), at(31));
        assert!(providers.admit("p", at(60)).is_err(), "it stays open after a failed probe");
        providers.admit("p", at(61)).expect("the next probe");
        providers.succeeded("p");
        providers.admit("p", at(61)).expect("closed");
    }

    #[test]
    fn a_refusal_that_is_our_fault_does_not_open_the_breaker() {
        let providers = Providers::default();
        let fault = Fault::new(Kind::ModelBadRequest, Operation::ModelRequest);
        for _ in 0..50 {
            providers.admit("p", at(0)).unwrap();
            providers.failed("p", &fault, at(0));
        }
        providers.admit("p", at(0)).unwrap();
    }

    #[test]
    fn a_probe_that_is_cancelled_lets_the_next_one_through() {
        let providers = Providers::default();
        for _ in 0..5 {
            providers.failed("p", &overloaded(), at(0));
        }
        providers.admit("p", at(31)).unwrap();
        providers.abandoned("p");
        providers.admit("p", at(31)).unwrap();
    }
}
