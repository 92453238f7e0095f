//! The numbers of a gate, their defaults and their checks.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    fault::{Fact, Fault, Kind, Operation},
    limits::millis,
};

/// The configuration of all gates and of the patience of turns. Durations are configured in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GateConfig {
    /// Requests in flight that a gate allows before the service has answered anything.
    pub in_flight_start: u32,
    /// The most requests in flight, however well the service answers.
    pub in_flight_max: u32,
    /// While nothing failed yet, the limit on requests in flight doubles after this time.
    #[serde(with = "millis")]
    pub ramp: Duration,
    /// The factor on the limit of requests in flight after an overload or a time-out.
    pub in_flight_decrease: f64,
    /// The factor on the rate after a rate limit that was reached at a steady rate.
    pub rate_decrease: f64,
    /// The time after which a reduced rate has doubled, if nothing is refused.
    #[serde(with = "millis")]
    pub rate_growth: Duration,
    /// The first wait after a rate limit without a usable hint; it doubles while nothing is answered.
    #[serde(with = "millis")]
    pub backoff: Duration,
    /// The longest time that a hint of the service holds requests back; then one probe is made.
    #[serde(with = "millis")]
    pub hint_ceiling: Duration,
    /// The number of sessions whose latest requests decide whether the service is down.
    pub outage_window: u32,
    /// Requests older than this do not count for the decision.
    #[serde(with = "millis")]
    pub outage_window_time: Duration,
    /// The fewest failures that can show an outage.
    pub outage_requests: u32,
    /// The share of sessions whose latest request failed, above which the service counts as down.
    pub outage_share: f64,
    /// The shortest wait between two probes of a service that is down.
    #[serde(with = "millis")]
    pub probe_min: Duration,
    /// The wait between two probes, as a share of the time since the outage began.
    pub probe_share: f64,
    /// The longest wait between two probes.
    #[serde(with = "millis")]
    pub probe_max: Duration,
    /// The most requests that may wait at one gate; a further one fails.
    pub waiting: u32,
    /// Background work gets at least one of this many grants while it waits.
    pub background_share: u32,
    /// A request that waits longer than this is reported to its session.
    #[serde(with = "millis")]
    pub visible_after: Duration,
    /// How long a turn waits for its service while its session has an observer; 0 for not at all.
    #[serde(with = "millis")]
    pub patience_watched: Duration,
    /// How long a turn waits for its service while its session has no observer; 0 for not at all.
    #[serde(with = "millis")]
    pub patience_background: Duration,
}

impl Default for GateConfig {
    fn default() -> Self {
        Self {
            in_flight_start: 8,
            in_flight_max: 10_000,
            ramp: Duration::from_millis(100),
            in_flight_decrease: 0.7,
            rate_decrease: 0.93,
            rate_growth: Duration::from_secs(14),
            backoff: Duration::from_secs(1),
            hint_ceiling: Duration::from_secs(600),
            outage_window: 50,
            outage_window_time: Duration::from_secs(30),
            outage_requests: 4,
            outage_share: 0.9,
            probe_min: Duration::from_secs(1),
            probe_share: 0.25,
            probe_max: Duration::from_secs(30),
            waiting: 100_000,
            background_share: 10,
            visible_after: Duration::from_secs(1),
            patience_watched: Duration::from_secs(15 * 60),
            patience_background: Duration::from_secs(24 * 3600),
        }
    }
}

impl GateConfig {
    /// Checks that a gate with this configuration opens again after every trouble.
    ///
    /// # Errors
    /// `configuration_wrong`, with the key of the first wrong value.
    pub fn check(&self) -> Result<(), Fault> {
        for (key, value) in self.counts() {
            if value == 0 {
                return Err(wrong(key, "at least 1", value.to_string()));
            }
        }
        for (key, value) in self.durations() {
            if value.is_zero() {
                return Err(wrong(key, "more than 0 ms", "0".to_owned()));
            }
        }
        for (key, value) in self.shares() {
            if !(value > 0.0 && value < 1.0) {
                return Err(wrong(key, "a number between 0 and 1", value.to_string()));
            }
        }
        self.check_order()
    }

    fn counts(&self) -> [(&'static str, u32); 6] {
        [
            ("in_flight_start", self.in_flight_start),
            ("in_flight_max", self.in_flight_max),
            ("outage_window", self.outage_window),
            ("outage_requests", self.outage_requests),
            ("waiting", self.waiting),
            ("background_share", self.background_share),
        ]
    }

    fn durations(&self) -> [(&'static str, Duration); 7] {
        [
            ("ramp", self.ramp),
            ("rate_growth", self.rate_growth),
            ("backoff", self.backoff),
            ("hint_ceiling", self.hint_ceiling),
            ("outage_window_time", self.outage_window_time),
            ("probe_min", self.probe_min),
            ("probe_max", self.probe_max),
        ]
    }

    fn shares(&self) -> [(&'static str, f64); 4] {
        [
            ("in_flight_decrease", self.in_flight_decrease),
            ("rate_decrease", self.rate_decrease),
            ("outage_share", self.outage_share),
            ("probe_share", self.probe_share),
        ]
    }

    fn check_order(&self) -> Result<(), Fault> {
        let of = |value: u32| value.to_string();
        let in_ms = |value: Duration| format!("{} ms", value.as_millis());
        if self.in_flight_start > self.in_flight_max {
            let most = format!("at most in_flight_max, {}", self.in_flight_max);
            return Err(wrong("in_flight_start", most, of(self.in_flight_start)));
        }
        if self.outage_requests > self.outage_window {
            let most = format!("at most outage_window, {}", self.outage_window);
            return Err(wrong("outage_requests", most, of(self.outage_requests)));
        }
        if self.probe_min > self.probe_max {
            let most = format!("at most probe_max, {}", in_ms(self.probe_max));
            return Err(wrong("probe_min", most, in_ms(self.probe_min)));
        }
        Ok(())
    }
}

fn wrong(key: &str, expected: impl Into<String>, received: String) -> Fault {
    Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
        .with(Fact::ConfigKey, format!("models.gate.{key}"))
        .with(Fact::Expected, expected.into())
        .with(Fact::Received, received)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_configuration_is_valid() {
        GateConfig::default().check().unwrap();
    }

    #[test]
    fn a_configuration_that_can_never_open_is_refused_by_its_key() {
        let refused = |change: fn(&mut GateConfig)| {
            let mut config = GateConfig::default();
            change(&mut config);
            let fault = config.check().unwrap_err();
            fault.detail().text(Fact::ConfigKey).unwrap().to_owned()
        };
        assert_eq!(refused(|config| config.in_flight_start = 0), "models.gate.in_flight_start");
        assert_eq!(refused(|config| config.in_flight_max = 2), "models.gate.in_flight_start");
        assert_eq!(refused(|config| config.waiting = 0), "models.gate.waiting");
        assert_eq!(
            refused(|config| config.rate_growth = Duration::ZERO),
            "models.gate.rate_growth"
        );
        assert_eq!(refused(|config| config.rate_decrease = 0.0), "models.gate.rate_decrease");
        assert_eq!(refused(|config| config.outage_share = f64::NAN), "models.gate.outage_share");
        assert_eq!(refused(|config| config.outage_requests = 99), "models.gate.outage_requests");
        assert_eq!(
            refused(|config| config.probe_max = Duration::from_millis(500)),
            "models.gate.probe_min"
        );
    }

    #[test]
    fn a_configuration_survives_being_written_and_names_unknown_keys() {
        let config = GateConfig { waiting: 7, ..GateConfig::default() };
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<GateConfig>(&text).unwrap(), config);
        let error = serde_json::from_str::<GateConfig>(r#"{"wating": 7}"#).unwrap_err();
        assert!(error.to_string().contains("wating"), "{error}");
    }
}
