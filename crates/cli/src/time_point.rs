//! A point in time on the command line: a time in UTC, or a span before now.

use std::{str::FromStr, time::Duration};

use budao_core::Timestamp;

/// `2026-11-16T08:00:00Z`, or `1h` for an hour ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimePoint {
    Time(Timestamp),
    Ago(Duration),
}

impl TimePoint {
    /// The point in time, seen from `now`.
    pub(crate) fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Time(time) => time,
            Self::Ago(span) => {
                let micros = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
                Timestamp::from_micros(now.as_micros().saturating_sub(micros))
            }
        }
    }
}

impl FromStr for TimePoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(time) = text.parse() {
            return Ok(Self::Time(time));
        }
        parse_span(text).map(Self::Ago).map_err(|_| {
            format!("`{text}` is neither a span like 90s, 15m, 1h or 2d nor a time like 2026-11-16T08:00:00Z")
        })
    }
}

/// Parses a time span: a whole number and one of `s`, `m`, `h`, `d`.
pub(crate) fn parse_span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time like 90s, 15m, 1h or 2d");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1_u64,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let digits = &text[..text.len() - unit.len_utf8()];
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| is_number).ok_or_else(wrong)?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}
