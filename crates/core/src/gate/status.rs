//! The state of a gate, for operators and for the sessions that wait.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{fault::Fault, time::Timestamp};

/// Why a gate holds requests back.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::Display,
    strum::EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum HoldReason {
    /// The service refused a request and is left alone for a time.
    RateLimit,
    /// The service is down; one request at a time probes it.
    Outage,
    /// As many requests are under way as the service can take.
    Capacity,
}

/// A waiting request, as its session learns of it.
#[derive(Clone, Debug, PartialEq)]
pub struct HoldReport {
    /// Why the request waits.
    pub reason: HoldReason,
    /// When the next request is made, as far as the gate knows.
    pub until: Option<Timestamp>,
    /// When the service wants requests again by its own hint, however far away that is.
    pub hint_until: Option<Timestamp>,
    /// Requests that are served before this one.
    pub before: usize,
    /// The fault of the last request that the service failed; absent if none failed.
    pub fault: Option<Fault>,
}

/// The state of a gate, for operators.
#[derive(Clone, Debug, PartialEq)]
pub struct GateStatus {
    /// Why the gate is shut; absent while it is open. A gate that only limits its requests is open.
    pub held: Option<HoldReason>,
    /// When the gate shut.
    pub since: Option<Timestamp>,
    /// When the gate opens or probes, if it is shut and the time is known.
    pub until: Option<Timestamp>,
    /// Requests that wait.
    pub waiting: usize,
    /// Waiting requests of sessions without an observer.
    pub waiting_background: usize,
    /// Requests under way.
    pub in_flight: usize,
    /// The most requests that may be under way.
    pub limit: u32,
    /// The most requests in a second; absent while no limit is known.
    pub rate: Option<f64>,
    /// The last failure of the service, and when it was.
    pub last_error: Option<(Fault, Timestamp)>,
}

impl GateStatus {
    /// How long the gate is expected to stay shut: until the time that it or the service knows, and an outage as long
    /// again as it has lasted. Zero if a request can be made now, be it as a probe.
    #[must_use]
    pub fn expected_wait(&self, now: Timestamp) -> Duration {
        let Some(reason) = self.held else { return Duration::ZERO };
        if self.until.is_some_and(|until| until <= now) {
            return Duration::ZERO;
        }
        let hint_until =
            self.last_error.as_ref().and_then(|(fault, at)| Some(at.after(fault.retry_hint()?)));
        let known = self.until.max(hint_until).map_or(Duration::ZERO, |until| until.since(now));
        let lasted = self.since.map_or(Duration::ZERO, |since| now.since(since));
        if reason == HoldReason::Outage { known.max(lasted) } else { known }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(held: Option<HoldReason>, since: u64, until: Option<u64>) -> GateStatus {
        let at = |second: u64| Timestamp::default().after(Duration::from_secs(second));
        GateStatus {
            held,
            since: Some(at(since)),
            until: until.map(at),
            waiting: 0,
            waiting_background: 0,
            in_flight: 0,
            limit: 1,
            rate: None,
            last_error: None,
        }
    }

    #[test]
    fn a_gate_is_expected_to_open_at_its_time_and_an_outage_to_last_as_long_again() {
        let now = Timestamp::default().after(Duration::from_secs(100));
        let expected = |status: GateStatus| status.expected_wait(now).as_secs();
        let (limit, outage) = (Some(HoldReason::RateLimit), Some(HoldReason::Outage));
        assert_eq!(expected(status(None, 0, None)), 0);
        assert_eq!(expected(status(limit, 0, Some(130))), 30);
        assert_eq!(expected(status(outage, 99, Some(102))), 2, "it has just begun");
        assert_eq!(expected(status(outage, 60, Some(102))), 40);
        assert_eq!(expected(status(outage, 60, None)), 40, "a probe is under way");
        assert_eq!(expected(status(outage, 60, Some(99))), 0, "the next request is the probe");
    }
}
