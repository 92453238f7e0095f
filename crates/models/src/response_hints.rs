//! Rate-limit hints from response headers: when to retry, and how much of the quota is left.

use std::time::Duration;

use budao_core::{
    fault::{Fact, Fault},
    time::Timestamp,
};
use http::HeaderMap;
use jiff::{civil, fmt::rfc2822, tz::TimeZone};

/// The longest wait passed on: one day. The runtime applies its own, lower ceiling.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The hints in the headers of an error response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseHints {
    pub(crate) request_id: Option<String>,
    pub(crate) retry_after: Option<Duration>,
    limit_per_minute: Option<u64>,
    requests_made: Option<u64>,
    reset: Option<Timestamp>,
}

impl ResponseHints {
    /// Reads the headers; `now` converts dates to waits.
    pub(crate) fn read(headers: &HeaderMap, now: Timestamp) -> Self {
        let text = |names: &[&str]| {
            names.iter().find_map(|name| headers.get(*name)?.to_str().ok()).map(str::trim)
        };
        let number = |names: &[&str]| text(names).and_then(|text| text.parse::<u64>().ok());
        let limit = number(&["anthropic-ratelimit-requests-limit", "x-ratelimit-limit-requests"]);
        let remaining =
            number(&["anthropic-ratelimit-requests-remaining", "x-ratelimit-remaining-requests"]);
        let reset = text(&["anthropic-ratelimit-requests-reset", "x-ratelimit-reset-requests"]);
        Self {
            request_id: text(&["request-id", "x-request-id"]).map(str::to_owned),
            retry_after: retry_after(text(&["retry-after-ms"]), text(&["retry-after"]), now),
            limit_per_minute: limit,
            requests_made: limit.zip(remaining).map(|(limit, left)| limit.saturating_sub(left)),
            reset: reset.and_then(|reset| parse_reset(reset, now)),
        }
    }

    /// Adds the known hints to a fault, as facts and as its retry time.
    pub(crate) fn add_to_fault(&self, mut fault: Fault) -> Fault {
        if let Some(wait) = self.retry_after {
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

/// Precedence: milliseconds, then seconds, then a date. A date in the past means no wait.
fn retry_after(millis: Option<&str>, after: Option<&str>, now: Timestamp) -> Option<Duration> {
    let wait = |number: f64| Duration::try_from_secs_f64(number.max(0.0)).unwrap_or(LONGEST);
    let finite = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
    let wait = match (millis.and_then(finite), after) {
        (Some(millis), _) => wait(millis / 1000.0),
        (None, Some(after)) => match finite(after) {
            Some(seconds) => wait(seconds),
            None => http_date(after)?.since(now),
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

/// Parses a reset time: RFC 3339, or the time until then (`6m0s`, `120ms`).
fn parse_reset(text: &str, now: Timestamp) -> Option<Timestamp> {
    text.parse().ok().or_else(|| {
        let span: jiff::SignedDuration = text.parse().ok()?;
        Some(now.after(Duration::try_from(span).ok()?.min(LONGEST)))
    })
}

#[cfg(test)]
mod tests {
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
        assert_eq!(after("99999999999999"), Some(LONGEST));
        assert_eq!(after("NaN"), None);
        assert_eq!(after("soon"), None);
    }

    #[test]
    fn milliseconds_win_over_seconds() {
        let both = hints(&[("retry-after", "7"), ("retry-after-ms", "1500")]);
        assert_eq!(both.retry_after, Some(Duration::from_millis(1500)));
    }

    #[test]
    fn limits_are_read_from_both_families_of_headers() {
        let ours = |limit, made, reset: &str| ResponseHints {
            limit_per_minute: Some(limit),
            requests_made: Some(made),
            reset: Some(reset.parse().unwrap()),
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
