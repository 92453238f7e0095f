//! Points in time. Core never reads a clock; callers pass the time in.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// Microseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From microseconds since the Unix epoch.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// This time plus `wait`, saturating.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(wait.as_micros()).unwrap_or(i64::MAX)))
    }

    /// The time since `earlier`; zero if `earlier` is later, because clocks jump.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with milliseconds: `2026-11-15T08:00:00.000Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.as_millis()) {
            Ok(at) => write!(f, "{at:.3}"),
            Err(_) => write!(f, "{}µs", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Timestamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<jiff::Timestamp>().map(|at| Self(at.as_microsecond()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_written_in_utc_with_a_z() {
        let at = Timestamp::from_micros(1_700_000_000_123_456);
        assert_eq!(at.to_string(), "2023-11-14T22:13:20.123Z");
        assert_eq!(at.to_string().parse::<Timestamp>().unwrap().as_millis(), at.as_millis());
    }

    #[test]
    fn a_clock_that_jumps_back_gives_zero_not_nonsense() {
        let (early, late) = (Timestamp::from_micros(5), Timestamp::from_micros(9));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(
            Timestamp::from_micros(i64::MAX).after(Duration::from_secs(1)).as_micros(),
            i64::MAX
        );
    }
}
