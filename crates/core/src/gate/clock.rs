//! The time within a gate, which never runs back.

use crate::time::Timestamp;

/// Follows the caller's clock. When that is set back, time within the gate goes on from where it was.
#[derive(Debug, Default)]
pub(super) struct GateClock {
    latest: Timestamp,
    /// By how many microseconds time within the gate is ahead of the caller's clock.
    ahead: i64,
}

impl GateClock {
    /// The time within the gate, for a call that changes it.
    pub(super) fn read(&mut self, now: Timestamp) -> Timestamp {
        let inside = self.inside(now);
        if inside < self.latest {
            let back = self.latest.as_micros().saturating_sub(inside.as_micros());
            self.ahead = self.ahead.saturating_add(back);
        }
        self.latest = self.latest.max(inside);
        self.latest
    }

    /// The time within the gate, for a call that only looks.
    pub(super) fn peek(&self, now: Timestamp) -> Timestamp {
        self.inside(now).max(self.latest)
    }

    /// A time within the gate by the caller's clock.
    pub(super) fn outside(&self, at: Timestamp) -> Timestamp {
        Timestamp::from_micros(at.as_micros().saturating_sub(self.ahead))
    }

    fn inside(&self, now: Timestamp) -> Timestamp {
        Timestamp::from_micros(now.as_micros().saturating_add(self.ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_from_where_it_was_when_the_clock_is_set_back() {
        let at = Timestamp::from_micros;
        let mut clock = GateClock::default();
        assert_eq!(clock.read(at(1_000)), at(1_000));
        assert_eq!(clock.read(at(100)), at(1_000), "set back");
        assert_eq!(clock.read(at(150)), at(1_050), "and running on");
        assert_eq!(clock.outside(at(1_100)), at(200), "by the caller's clock");
        assert_eq!(clock.peek(at(50)), at(1_050));
        assert_eq!(clock.read(at(5_000)), at(5_900), "a jump ahead is time that has passed");
    }
}
