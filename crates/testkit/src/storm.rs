//! Storms: services in scripted weather, against which the same turns of different programs are compared.
//!
//! A turn is one question with the text `turn-17`. Its answer is a word, or a tool call and then a word. [`StormService`]
//! plays the model, [`Weather`] decides which requests fail, [`ServiceLog`] counts what a client needed.

mod service;
mod weather;

use std::{ops::Range, time::Duration};

pub use service::{ServiceLog, StormService, tool_effect};
pub use weather::{
    ANSWER_TIME, DealtFailures, Failure, NEWS_DELAY, RESPONSE_DELAY, ServiceState, Verdict, Weather,
};

/// Halves of events in the answer with a call; a stream can be cut before each of them.
pub const CALL_POSITIONS: usize = 14;
/// Halves of events in the answer without one.
pub const WORD_POSITIONS: usize = 20;

/// How long the storms may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// A few seconds each: for trying a change, not for figures.
    Quick,
    /// At most 90 s each: the outage of five minutes lasts 75 s.
    #[default]
    Usual,
    /// The full length.
    Full,
}

impl Pace {
    fn pick<T>(self, quick: T, usual: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Usual => usual,
            Self::Full => full,
        }
    }
}

/// One scenario: turns that all begin at once, and the weather they meet.
#[derive(Clone, Debug)]
pub struct Storm {
    /// Lower case with hyphens.
    pub name: &'static str,
    /// The scenario in one line.
    pub about: String,
    /// Sessions, with one turn each.
    pub turns: usize,
    /// Requests of one turn without failures: 2 if its first answer is a tool call.
    pub steps: usize,
    /// The weather at the first endpoint.
    pub weather: Weather,
    /// Requests per needed request that a client may send.
    pub requests_bar: f64,
    /// True if there is a second endpoint that works.
    pub has_second: bool,
    /// When the client's process is killed and started again, after the first request.
    pub kill_at: Option<Duration>,
}

impl Storm {
    /// Every storm, in the order of the tables.
    #[must_use]
    pub fn all(pace: Pace) -> Vec<Self> {
        vec![
            one_in_four(),
            coin_toss(),
            outage("outage", pace.pick(8, 45, 45), vec![Failure::Status(503, None)]),
            rate_limit("rate-limit", pace.pick(20, 100, 100), 5, Some(1)),
            rate_limit("silent-limit", pace.pick(20, 100, 100), 5, None),
            brown_outs(pace.pick(2, 5, 5)),
            rate_limit("thousand", pace.pick(100, 1000, 1000), 20, Some(1)),
            hint(pace.pick(6, 60, 60)),
            outage(
                "long-outage",
                pace.pick(12, 75, 300),
                vec![Failure::Page, Failure::Status(529, None)],
            ),
            fallback(),
            cuts(),
            killed(pace.pick(10, 60, 60)),
        ]
    }

    /// The best possible time from the first request to the end of the last answer.
    #[must_use]
    pub fn best_time(&self) -> Duration {
        if self.has_second {
            return FALLBACK_BOUND + ANSWER_TIME * u32::try_from(self.steps).unwrap_or(1);
        }
        self.weather.best_time(self.turns, self.steps)
    }

    /// Probes that an ideal client needs in each outage that it meets.
    #[must_use]
    pub fn probes(&self) -> Vec<usize> {
        let best = self.best_time();
        let met = self.weather.outages.iter().take_while(|outage| outage.start < best);
        met.map(|outage| self.weather.probes(&(outage.start..outage.end.min(best)))).collect()
    }

    /// The formula of the needed requests and of the best time, with the numbers of this storm.
    #[must_use]
    pub fn formula(&self) -> String {
        let dealt = self.weather.dealt.map_or(0, |dealt| {
            let pairs =
                (0..self.turns).flat_map(|turn| (0..self.steps).map(move |step| (turn, step)));
            pairs.map(|(turn, step)| dealt(turn, step).len()).sum::<usize>()
        });
        let probes: usize = self.probes().iter().sum();
        format!(
            "needed = {} answers + {dealt} failures dealt to single requests + refusals of requests sent within {} ms \
             of the first refusal + at most {probes} probes; best time = {:.2} s",
            self.turns * self.steps,
            NEWS_DELAY.as_millis(),
            self.best_time().as_secs_f64()
        )
    }

    fn new(name: &'static str, about: impl Into<String>, turns: usize, weather: Weather) -> Self {
        Self {
            name,
            about: about.into(),
            turns,
            steps: 1,
            weather,
            requests_bar: 1.3,
            has_second: false,
            kill_at: None,
        }
    }

    fn with_call(self) -> Self {
        Self { steps: 2, ..self }
    }
}

/// After this long a gate that stays shut moves its requests to the next model.
const FALLBACK_BOUND: Duration = Duration::from_secs(10);
/// Longer than any storm.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

fn seconds(from: u64, to: u64) -> Range<Duration> {
    Duration::from_secs(from)..Duration::from_secs(to)
}

fn one_in_four() -> Storm {
    let dealt: DealtFailures = |turn, _| {
        let failures = [Failure::Status(429, Some(1)), Failure::Status(500, None), Failure::Cut(7)];
        if turn % 4 == 0 { vec![failures[turn / 4 % 3]] } else { vec![] }
    };
    let about = "every fourth request fails once: 429 with Retry-After: 1, 500, stream cut";
    Storm::new("one-in-four", about, 50, Weather { dealt: Some(dealt), ..Weather::default() })
}

fn coin_toss() -> Storm {
    let dealt: DealtFailures = |turn, _| {
        let failures = [Failure::Status(500, None), Failure::Status(529, None)];
        (0..12)
            .take_while(|tries| is_heads(turn, *tries))
            .map(|tries| failures[tries % 2])
            .collect()
    };
    let about = "every request fails with chance 1/2: 500, 529";
    Storm::new("coin-toss", about, 50, Weather { dealt: Some(dealt), ..Weather::default() })
}

/// A fair coin, the same in every run (SplitMix64).
fn is_heads(turn: usize, tries: usize) -> bool {
    let mut bits = (turn as u64 * 64 + tries as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (bits ^ (bits >> 31)) & 1 == 1
}

fn outage(name: &'static str, length: u64, failures: Vec<Failure>) -> Storm {
    let kinds = if failures.contains(&Failure::Page) { "502 with a web page, 529" } else { "503" };
    let about = format!("the service answers {kinds} for {length} s, then works");
    let outages = vec![seconds(0, length)];
    let weather = Weather { outages, outage_failures: failures, ..Weather::default() };
    Storm::new(name, about, 50, weather)
}

fn rate_limit(name: &'static str, turns: usize, capacity: u32, hint: Option<u64>) -> Storm {
    let refusal = if hint.is_some() { "429 with Retry-After: 1" } else { "429 without a hint" };
    let about = format!("{capacity} requests a second, else {refusal}; {turns} sessions");
    let weather = Weather { capacity: Some(capacity), capacity_hint: hint, ..Weather::default() };
    Storm { requests_bar: 1.15, ..Storm::new(name, about, turns, weather) }
}

fn brown_outs(length: u64) -> Storm {
    let about = format!("{length} s of 503 and 529, {length} s of 6 requests a second, and so on");
    let outages = (0..50).map(|n| seconds(2 * length * n, 2 * length * n + length)).collect();
    let outage_failures = vec![Failure::Status(503, None), Failure::Status(529, None)];
    let weather = Weather {
        outages,
        outage_failures,
        capacity: Some(6),
        capacity_hint: Some(1),
        ..Weather::default()
    };
    Storm::new("brown-outs", about, 60, weather).with_call()
}

fn hint(length: u64) -> Storm {
    let about = format!("429 with Retry-After: {length} at the start, and until then");
    let weather = Weather {
        outages: vec![seconds(0, length)],
        outage_failures: vec![Failure::Status(429, None)],
        has_hint: true,
        ..Weather::default()
    };
    let storm = Storm::new("hint", about, 50, weather).with_call();
    Storm { requests_bar: 1.15, ..storm }
}

fn fallback() -> Storm {
    let weather = Weather {
        outages: vec![Duration::ZERO..FOR_EVER],
        outage_failures: vec![Failure::Status(503, None)],
        ..Weather::default()
    };
    let about = "the first of two endpoints answers 503 for ever, the second works";
    Storm { has_second: true, ..Storm::new("fallback", about, 50, weather).with_call() }
}

fn cuts() -> Storm {
    let dealt: DealtFailures = |turn, step| match (turn.checked_sub(CALL_POSITIONS), step) {
        (None, 0) => vec![Failure::Cut(turn)],
        (Some(position), 1) => vec![Failure::Cut(position)],
        _ => vec![],
    };
    let about =
        "each stream is cut once: in every event and between any two, of calls and of words";
    let weather = Weather { dealt: Some(dealt), ..Weather::default() };
    Storm::new("cuts", about, CALL_POSITIONS + WORD_POSITIONS, weather).with_call()
}

fn killed(length: u64) -> Storm {
    let storm = outage("killed", length, vec![Failure::Status(503, None)]).with_call();
    let about =
        format!("{}; the client is killed (SIGKILL) in the middle and started again", storm.about);
    Storm { about, kill_at: Some(Duration::from_secs(length / 2)), ..storm }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storms_have_unique_names_and_a_best_time_below_ninety_seconds() {
        let storms = Storm::all(Pace::Usual);
        assert!(storms.len() >= 10);
        for storm in &storms {
            assert_eq!(storms.iter().filter(|other| other.name == storm.name).count(), 1);
            assert!(storm.best_time() < Duration::from_secs(90), "{}", storm.name);
        }
    }

    #[test]
    fn the_coin_is_fair_enough_and_its_formula_counts_the_failures() {
        let heads = (0..1000).filter(|turn| is_heads(*turn, 0)).count();
        assert!((450..550).contains(&heads), "{heads}");
        let dealt = one_in_four().formula();
        assert!(dealt.starts_with("needed = 50 answers + 13 failures dealt"), "{dealt}");
    }
}
