//! Rate-limit hints from response headers: when to retry, and how much of the quota is left.

use std::time::Duration;

use budao_core::{
    fault::{Fact, Fault, Kind},
    time::Timestamp,
};
use http::HeaderMap;
use jiff::{civil, fmt::rfc2822, tz::TimeZone};

/// The longest wait passed on: a hundred years. The runtime applies its own, lower ceiling; texts state this one.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// What rate limits count, as the names of their headers say.
const COUNTED: [&str; 4] = ["requests", "tokens", "input-tokens", "output-tokens"];

/// The hints in the headers of an error response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseHints {
    pub(crate) request_id: Option<String>,
    pub(crate) retry_after: Option<Duration>,
    /// Whether the service wants the same request again; absent if it does not say.
    pub(crate) should_retry: Option<bool>,
    limit_per_minute: Option<u64>,
    requests_made: Option<u64>,
    reset: Option<Timestamp>,
    /// The time until the latest reset of a limit that has nothing left.
    exhausted: Option<Duration>,
}

impl ResponseHints {
    /// Reads the headers. The service's own `Date` converts its dates to waits, because its clock may differ from ours;
    /// `now` does so if the response has no date.
    pub(crate) fn read(headers: &HeaderMap, now: Timestamp) -> Self {
        let text = |names: &[&str]| {
            names.iter().find_map(|name| headers.get(*name)?.to_str().ok()).map(str::trim)
        };
        let clocks = Clocks { ours: now, theirs: text(&["date"]).and_then(http_date) };
        let number = |names: &[&str]| text(names).and_then(|text| text.parse::<u64>().ok());
        // Azure sends -1 or 0 for a limit that it does not know.
        let limit = number(&["anthropic-ratelimit-requests-limit", "x-ratelimit-limit-requests"])
            .filter(|limit| *limit > 0);
        let remaining =
            number(&["anthropic-ratelimit-requests-remaining", "x-ratelimit-remaining-requests"]);
        let reset = text(&["anthropic-ratelimit-requests-reset", "x-ratelimit-reset-requests"]);
        Self {
            request_id: text(&["request-id", "x-request-id"]).map(str::to_owned),
            should_retry: text(&["x-should-retry"]).and_then(|text| text.parse().ok()),
            retry_after: retry_after(text(&["retry-after-ms"]), text(&["retry-after"]), clocks),
            limit_per_minute: limit,
            requests_made: limit.zip(remaining).map(|(limit, left)| limit.saturating_sub(left)),
            reset: reset.and_then(|reset| parse_reset(reset, clocks)),
            exhausted: exhausted(text, clocks),
        }
    }

    /// The same hints, with this wait if the headers have none.
    pub(crate) fn or_retry_after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = self.retry_after.or(wait.map(|wait| wait.min(LONGEST)));
        self
    }

    /// Adds the known hints to a fault, as facts and as its retry time.
    pub(crate) fn add_to_fault(&self, mut fault: Fault) -> Fault {
        // What the service asks for comes before what can be computed from its limits.
        let reset = self.exhausted.filter(|_| fault.kind() == Kind::ModelRateLimited);
        if let Some(wait) = self.retry_after.or(reset) {
            fault = fault.retry_after(wait).with(Fact::WaitMs, wait);
        }
        if let Some(limit) = self.limit_per_minute {
            fault = fault.with(Fact::LimitPerMinute, limit);
        }
        if let Some(made) = self.requests_made {
            fault = fault.with(Fact::RequestsMade, made);
        }
        if let Some(reset) = self.reset {
            fault = fault.with(Fact::RateLimitReset, reset.to_string());
        }
        fault
    }
}

/// The time of a response by our clock, and by that of the service if it says so.
#[derive(Clone, Copy)]
struct Clocks {
    ours: Timestamp,
    theirs: Option<Timestamp>,
}

impl Clocks {
    /// The time until a date of the service; zero if it has passed.
    fn wait_until(self, date: Timestamp) -> Duration {
        date.since(self.theirs.unwrap_or(self.ours))
    }
}

/// The time until the latest reset of a limit with nothing left. Without a count of what is left, the limit on
/// requests is taken to be the one that was reached.
fn exhausted<'a>(text: impl Fn(&[&str]) -> Option<&'a str>, clocks: Clocks) -> Option<Duration> {
    let resets = COUNTED.iter().filter_map(|counted| {
        let header = |part: &str| {
            let (ours, theirs) = (
                format!("anthropic-ratelimit-{counted}-{part}"),
                format!("x-ratelimit-{part}-{counted}"),
            );
            text(&[ours.as_str(), theirs.as_str()])
        };
        let left = header("remaining")
            .map_or(u64::from(*counted != "requests"), |left| left.parse().unwrap_or(1));
        let reset = header("reset").and_then(|reset| parse_reset(reset, clocks));
        reset.filter(|_| left == 0).map(|reset| reset.since(clocks.ours))
    });
    resets.max().map(|wait| wait.min(LONGEST))
}

/// Precedence: milliseconds, then seconds, then a date. A date in the past means no wait.
fn retry_after(millis: Option<&str>, after: Option<&str>, clocks: Clocks) -> Option<Duration> {
    let wait = |number: f64| Duration::try_from_secs_f64(number.max(0.0)).unwrap_or(LONGEST);
    let finite = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
    let wait = match (millis.and_then(finite), after) {
        (Some(millis), _) => wait(millis / 1000.0),
        (None, Some(after)) => match finite(after) {
            Some(seconds) => wait(seconds),
            None => clocks.wait_until(http_date(after)?),
        },
        (None, None) => return None,
    };
    Some(wait.min(LONGEST))
}

/// Parses the three date formats that HTTP allows.
fn http_date(text: &str) -> Option<Timestamp> {
    let zoned = rfc2822::parse(text).ok().or_else(|| {
        ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"]
            .iter()
            .find_map(|format| civil::DateTime::strptime(format, text).ok())
            .and_then(|date| date.to_zoned(TimeZone::UTC).ok())
    })?;
    Some(Timestamp::from_micros(zoned.timestamp().as_microsecond()))
}

/// Parses a reset time: RFC 3339, or the time until then (`6m0s`, `120ms`). Returns it by our clock.
fn parse_reset(text: &str, clocks: Clocks) -> Option<Timestamp> {
    let wait = match text.parse() {
        Ok(date) => clocks.wait_until(date),
        Err(_) => Duration::try_from(text.parse::<jiff::SignedDuration>().ok()?).ok()?,
    };
    Some(clocks.ours.after(wait.min(LONGEST)))
}

#[cfg(test)]
mod tests {
    use budao_core::fault::Operation;

    use super::*;

    /// The instant 2026-11-15T08:00:00Z.
    const NOW: Timestamp = Timestamp::from_micros(1_794_729_600_000_000);

    fn hints(headers: &[(&'static str, &'static str)]) -> ResponseHints {
        let headers = headers.iter().map(|(name, value)| {
            ((*name).parse::<http::HeaderName>().unwrap(), http::HeaderValue::from_static(value))
        });
        ResponseHints::read(&headers.collect(), NOW)
    }

    #[test]
    fn retry_after_is_read_in_all_its_forms() {
        let after = |value| hints(&[("retry-after", value)]).retry_after;
        let secs = |secs| Some(Duration::from_secs(secs));
        assert_eq!(after("7"), secs(7));
        assert_eq!(after("0.5"), Some(Duration::from_millis(500)));
        assert_eq!(after("-3"), secs(0));
        assert_eq!(after("Sun, 15 Nov 2026 08:00:30 GMT"), secs(30));
        assert_eq!(after("Sunday, 15-Nov-26 08:00:30 GMT"), secs(30));
        assert_eq!(after("Sun Nov 15 08:00:30 2026"), secs(30));
        assert_eq!(after("Sun, 15 Nov 2026 07:00:00 GMT"), secs(0), "a date that has passed");
        assert_eq!(after("99999"), secs(99_999), "more than a day is told as it is");
        let fault = Fault::new(Kind::ModelRateLimited, Operation::ModelRequest);
        let fault = hints(&[("retry-after", "99999")]).add_to_fault(fault);
        assert_eq!(fault.retry_hint(), secs(99_999));
        assert_eq!(fault.detail().number(Fact::WaitMs), Some(99_999_000));
        assert_eq!(after("99999999999999"), Some(LONGEST));
        assert_eq!(after("NaN"), None);
        assert_eq!(after("soon"), None);
    }

    #[test]
    fn dates_are_judged_by_the_clock_of_the_service() {
        let ahead = ("date", "Mon, 16 Nov 2026 08:00:00 GMT");
        let after = |value| hints(&[ahead, ("retry-after", value)]).retry_after;
        assert_eq!(after("Mon, 16 Nov 2026 08:00:30 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(after("7"), Some(Duration::from_secs(7)), "seconds need no clock");
        let behind = ("date", "Sat, 14 Nov 2026 08:00:00 GMT");
        let reset = [behind, ("anthropic-ratelimit-requests-reset", "2026-11-14T08:01:00Z")];
        assert_eq!(hints(&reset).exhausted, Some(Duration::from_secs(60)));
        assert_eq!(hints(&reset).reset, Some(NOW.after(Duration::from_secs(60))), "by our clock");
        let nonsense = [("date", "soon"), ("retry-after", "Sun, 15 Nov 2026 08:00:30 GMT")];
        assert_eq!(hints(&nonsense).retry_after, Some(Duration::from_secs(30)));
    }

    #[test]
    fn milliseconds_win_over_seconds() {
        let both = hints(&[("retry-after", "7"), ("retry-after-ms", "1500")]);
        assert_eq!(both.retry_after, Some(Duration::from_millis(1500)));
    }

    #[test]
    fn the_reset_of_an_exhausted_limit_is_a_hint_unless_the_service_gives_one() {
        let limited = |headers: &[_]| {
            let fault = Fault::new(Kind::ModelRateLimited, Operation::ModelRequest);
            hints(headers).add_to_fault(fault).retry_hint()
        };
        let secs = |secs| Some(Duration::from_secs(secs));
        assert_eq!(limited(&[("x-ratelimit-reset-requests", "20s")]), secs(20));
        let tokens = [
            ("x-ratelimit-remaining-requests", "3"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "90s"),
        ];
        assert_eq!(limited(&tokens), secs(90), "the limit on tokens is the one that was reached");
        let both = [("retry-after", "2"), ("x-ratelimit-reset-requests", "6m0s")];
        assert_eq!(limited(&both), secs(2), "headers that disagree");
        let past = [("anthropic-ratelimit-requests-reset", "1970-01-01T00:00:00Z")];
        assert_eq!(limited(&past), secs(0));
        let broken = Fault::new(Kind::ModelServerError, Operation::ModelRequest);
        let hints = hints(&[("x-ratelimit-reset-requests", "20s")]);
        assert_eq!(hints.add_to_fault(broken).retry_hint(), None);
    }

    #[test]
    fn counts_that_azure_does_not_know_are_no_hints() {
        for unknown in ["-1", "0"] {
            let headers = [
                ("x-ratelimit-limit-requests", unknown),
                ("x-ratelimit-remaining-requests", unknown),
                ("x-ratelimit-reset-requests", unknown),
                ("x-ratelimit-limit-tokens", unknown),
                ("x-ratelimit-remaining-tokens", unknown),
                ("x-ratelimit-reset-tokens", unknown),
            ];
            assert_eq!(hints(&headers), ResponseHints::default(), "{unknown}");
        }
    }

    #[test]
    fn limits_are_read_from_both_families_of_headers() {
        let ours = |limit, made, reset: &str| ResponseHints {
            limit_per_minute: Some(limit),
            requests_made: Some(made),
            reset: Some(reset.parse().unwrap()),
            exhausted: (limit == made).then_some(Duration::from_secs(60)),
            ..ResponseHints::default()
        };
        assert_eq!(
            hints(&[
                ("anthropic-ratelimit-requests-limit", "50"),
                ("anthropic-ratelimit-requests-remaining", "0"),
                ("anthropic-ratelimit-requests-reset", "2026-11-15T08:01:00Z"),
            ]),
            ours(50, 50, "2026-11-15T08:01:00Z")
        );
        assert_eq!(
            hints(&[
                ("x-ratelimit-limit-requests", "60"),
                ("x-ratelimit-remaining-requests", "1"),
                ("x-ratelimit-reset-requests", "6m0s"),
            ]),
            ours(60, 59, "2026-11-15T08:06:00Z")
        );
    }
}
