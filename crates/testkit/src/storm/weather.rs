//! The weather of a storm: which request the service answers and which it refuses, by the time since the first one.
//!
//! It has no clock and no I/O. [`ServiceState`] decides request by request; [`Weather::best_time`] and
//! [`Weather::probes`] say what an ideal client would need in the same weather.

use std::{collections::HashMap, ops::Range, time::Duration};

/// From the arrival of a request to the status of its response.
pub const RESPONSE_DELAY: Duration = Duration::from_millis(50);
/// From the arrival of a request to the end of its answer.
pub const ANSWER_TIME: Duration = Duration::from_millis(100);
/// A refusal is known to an ideal client this long after the request that met it has arrived.
pub const NEWS_DELAY: Duration = Duration::from_millis(100);
/// The waits of an ideal client after failures without a hint, in turn: those of a round of three tries.
const WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];
/// Shortest and longest wait between two probes of an ideal client during an outage.
const PROBE_WAITS: Range<f64> = 1.0..30.0;

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A JSON error with this status, and `Retry-After` in whole seconds if there is a hint.
    Status(u16, Option<u64>),
    /// The page of a proxy: 502, HTML.
    Page,
    /// The answer breaks off after this many halves of its events.
    Cut(usize),
}

/// The failures that a turn meets at one of its steps, whatever the time.
pub type DealtFailures = fn(turn: usize, step: usize) -> Vec<Failure>;

/// What a service does to requests. The default answers all of them.
#[derive(Clone, Debug, Default)]
pub struct Weather {
    /// Failures of single requests, dealt by turn and step.
    pub dealt: Option<DealtFailures>,
    /// Times without any answer, since the first request; sorted.
    pub outages: Vec<Range<Duration>>,
    /// How requests fail during an outage; one after the other in turn.
    pub outage_failures: Vec<Failure>,
    /// True if a refusal during an outage says when it ends.
    pub has_hint: bool,
    /// Requests that it takes a second, and at once; the others get a 429.
    pub capacity: Option<u32>,
    /// `Retry-After` of those, in seconds.
    pub capacity_hint: Option<u64>,
}

/// What the service does with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A whole answer.
    Answer,
    /// A failure dealt to the turn: every client meets it.
    Dealt(Failure),
    /// A refusal that a client can foresee once it has met one; with the number of its outage, if it is one.
    Refused(Failure, Option<usize>),
}

/// The state of one service: the requests it has seen.
#[derive(Clone, Debug)]
pub struct ServiceState {
    weather: Weather,
    tries: HashMap<(usize, usize), usize>,
    bucket: TokenBucket,
    refusals: usize,
}

#[derive(Clone, Debug)]
struct TokenBucket {
    tokens: f64,
    at: Duration,
}

impl TokenBucket {
    fn refill(&mut self, now: Duration, rate: f64) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * rate).min(rate);
        self.at = now.max(self.at);
    }
}

impl Weather {
    fn outage_at(&self, now: Duration) -> Option<usize> {
        self.outages.iter().position(|outage| outage.contains(&now))
    }

    /// Failed probes of an ideal client in one outage. It waits for a quarter of the time the outage has lasted, at
    /// least 1 s and at most 30 s: the longest waits that find the end within 1.25 of the outage. A hint needs none.
    #[must_use]
    pub fn probes(&self, outage: &Range<Duration>) -> usize {
        if self.has_hint {
            return 0;
        }
        let length = outage.end.saturating_sub(outage.start).as_secs_f64();
        let next = |at: &f64| Some(at + (at / 4.0).clamp(PROBE_WAITS.start, PROBE_WAITS.end));
        std::iter::successors(next(&0.0), next).take_while(|at| *at < length).count()
    }

    /// The time from the first request to the end of the last answer, for an ideal client: it obeys hints, waits 1 s
    /// and 2 s in turn after failures without one, knows capacity and outages, and loses no time.
    #[must_use]
    pub fn best_time(&self, turns: usize, steps: usize) -> Duration {
        let dealt = (0..turns).map(|turn| self.longest_turn(turn, steps)).max().unwrap_or_default();
        let last = self.last_admission(turns * steps);
        dealt.max(last + ANSWER_TIME * u32::try_from(steps).unwrap_or(u32::MAX))
    }

    fn longest_turn(&self, turn: usize, steps: usize) -> Duration {
        let mut time = Duration::ZERO;
        for step in 0..steps {
            let failures = self.dealt.map(|dealt| dealt(turn, step)).unwrap_or_default();
            for (index, failure) in failures.iter().enumerate() {
                time += RESPONSE_DELAY
                    + match failure {
                        Failure::Status(_, Some(hint)) => Duration::from_secs(*hint),
                        _ => WAITS[index % WAITS.len()],
                    };
            }
            time += ANSWER_TIME;
        }
        time
    }

    /// When a client that knows everything has its last request admitted.
    fn last_admission(&self, requests: usize) -> Duration {
        let mut now = Duration::ZERO;
        let mut bucket = TokenBucket { tokens: self.burst(), at: now };
        for _ in 0..requests {
            loop {
                if let Some(outage) = self.outage_at(now) {
                    now = self.outages[outage].end;
                    continue;
                }
                let Some(rate) = self.capacity.map(f64::from) else { break };
                bucket.refill(now, rate);
                if bucket.tokens >= 1.0 {
                    bucket.tokens -= 1.0;
                    break;
                }
                now += Duration::from_secs_f64((1.0 - bucket.tokens) / rate)
                    + Duration::from_nanos(100);
            }
        }
        now
    }

    fn burst(&self) -> f64 {
        self.capacity.map_or(0.0, f64::from)
    }
}

impl ServiceState {
    /// A service that has seen no request.
    #[must_use]
    pub fn new(weather: Weather) -> Self {
        let bucket = TokenBucket { tokens: weather.burst(), at: Duration::ZERO };
        Self { weather, tries: HashMap::new(), bucket, refusals: 0 }
    }

    /// Decides about a request that arrives `now`, measured from the first request.
    pub fn decide(&mut self, now: Duration, turn: usize, step: usize) -> Verdict {
        if let Some(outage) = self.weather.outage_at(now) {
            let failure = self.outage_failure(now, outage);
            self.refusals += 1;
            return Verdict::Refused(failure, Some(outage));
        }
        if let Some(rate) = self.weather.capacity.map(f64::from) {
            self.bucket.refill(now, rate);
            if self.bucket.tokens < 1.0 {
                return Verdict::Refused(Failure::Status(429, self.weather.capacity_hint), None);
            }
            self.bucket.tokens -= 1.0;
        }
        let dealt = self.weather.dealt.map(|dealt| dealt(turn, step)).unwrap_or_default();
        let tries = self.tries.entry((turn, step)).or_default();
        *tries += 1;
        dealt.get(*tries - 1).map_or(Verdict::Answer, |failure| Verdict::Dealt(*failure))
    }

    fn outage_failure(&self, now: Duration, outage: usize) -> Failure {
        let left = (self.weather.outages[outage].end.saturating_sub(now)).as_secs_f64().ceil();
        let hint = self.weather.has_hint.then_some(left as u64);
        let failures = &self.weather.outage_failures;
        match failures.get(self.refusals % failures.len().max(1)) {
            Some(Failure::Status(status, _)) => Failure::Status(*status, hint),
            Some(other) => *other,
            None => Failure::Status(503, hint),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_dealt_failure_is_met_once_and_the_hint_is_part_of_the_best_time() {
        let dealt = |turn: usize, _| match turn {
            1 => vec![Failure::Status(429, Some(3)), Failure::Status(500, None)],
            _ => vec![],
        };
        let weather = Weather { dealt: Some(dealt), ..Weather::default() };
        let mut state = ServiceState::new(weather.clone());
        assert_eq!(state.decide(seconds(0), 0, 0), Verdict::Answer);
        assert_eq!(state.decide(seconds(0), 1, 0), Verdict::Dealt(Failure::Status(429, Some(3))));
        assert_eq!(state.decide(seconds(3), 1, 0), Verdict::Dealt(Failure::Status(500, None)));
        assert_eq!(state.decide(seconds(5), 1, 0), Verdict::Answer);
        assert_eq!(weather.best_time(2, 1), seconds(5) + 2 * RESPONSE_DELAY + ANSWER_TIME);
    }

    #[test]
    fn an_outage_refuses_everything_and_ends_on_time() {
        let weather = Weather {
            outages: vec![seconds(0)..seconds(45)],
            outage_failures: vec![Failure::Status(503, None), Failure::Page],
            ..Weather::default()
        };
        let mut state = ServiceState::new(weather.clone());
        let refused = |failure| Verdict::Refused(failure, Some(0));
        assert_eq!(state.decide(seconds(0), 0, 0), refused(Failure::Status(503, None)));
        assert_eq!(state.decide(seconds(44), 0, 0), refused(Failure::Page));
        assert_eq!(state.decide(seconds(45), 0, 0), Verdict::Answer);
        assert_eq!(weather.best_time(50, 1), seconds(45) + ANSWER_TIME);
        // 1, 2, 3, 4, 5, 6.25, 7.8, 9.8, 12.2, 15.3, 19.1, 23.8, 29.8, 37.3 s.
        assert_eq!(weather.probes(&weather.outages[0]), 14);
        let hinted = Weather { has_hint: true, ..weather };
        assert_eq!(hinted.probes(&hinted.outages[0]), 0);
    }

    #[test]
    fn a_hint_names_the_rest_of_the_outage() {
        let weather = Weather {
            outages: vec![seconds(0)..seconds(60)],
            outage_failures: vec![Failure::Status(429, None)],
            has_hint: true,
            ..Weather::default()
        };
        let mut state = ServiceState::new(weather);
        let wanted = Verdict::Refused(Failure::Status(429, Some(50)), Some(0));
        assert_eq!(state.decide(Duration::from_millis(10_500), 0, 0), wanted);
    }

    #[test]
    fn capacity_is_a_burst_and_a_rate() {
        let weather = Weather { capacity: Some(5), ..Weather::default() };
        let mut state = ServiceState::new(weather.clone());
        let taken = |state: &mut ServiceState, at| {
            (0..20).filter(|turn| state.decide(at, *turn, 0) == Verdict::Answer).count()
        };
        assert_eq!(taken(&mut state, seconds(0)), 5);
        assert_eq!(taken(&mut state, seconds(1)), 5);
        assert_eq!(taken(&mut state, Duration::from_millis(1400)), 2);
        let best = weather.best_time(100, 1);
        assert!(best >= seconds(19) && best < seconds(20), "{best:?}");
    }

    #[test]
    fn between_brown_outs_only_the_capacity_of_the_good_times_counts() {
        let weather = Weather {
            outages: (0..4).map(|n| seconds(10 * n)..seconds(10 * n + 5)).collect(),
            capacity: Some(6),
            ..Weather::default()
        };
        // A good time takes the burst of 6 and 6 a second for 5 s: 36 of 120 requests.
        let best = weather.best_time(60, 2).as_secs_f64();
        assert!((36.0..37.0).contains(&best), "{best}");
    }
}
