//! The settings of the relay: the address of the agent, and the bounds of its runs.

use std::time::Duration;

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    limits::millis,
};
use serde::{Deserialize, Serialize};

/// The settings for one AG-UI agent: the table `[engines.agui]` of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RelayConfig {
    /// The address that each turn is posted to. `--engine agui:ADDRESS` replaces it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The bearer token of the agent, given as a reference. It is never written.
    #[serde(skip_serializing)]
    pub token: Option<String>,
    /// Whether a run that was cut may be posted again by itself: only for an agent that may be asked twice.
    pub resubmit: bool,
    /// The bounds of a run.
    pub limits: RelayLimits,
}

/// The bounds of one run of a foreign agent. Durations are configured in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RelayLimits {
    /// The largest event, in bytes.
    pub event_bytes: usize,
    /// The most bytes of events in one turn.
    pub turn_bytes: u64,
    /// The largest shared state, and the largest input of a front end beside its message, in bytes.
    pub state_bytes: usize,
    /// The largest request, in bytes: history and shared state.
    pub request_bytes: usize,
    /// The most messages and calls that are open at the same time.
    pub open_ids: usize,
    /// The time from the request to the first event.
    #[serde(with = "millis")]
    pub first_event: Duration,
    /// The longest time between two events.
    #[serde(with = "millis")]
    pub between_events: Duration,
    /// The longest time of one run.
    #[serde(with = "millis")]
    pub run: Duration,
}

impl Default for RelayLimits {
    fn default() -> Self {
        const MIB: usize = 1024 * 1024;
        Self {
            event_bytes: 4 * MIB,
            turn_bytes: 32 * MIB as u64,
            state_bytes: MIB,
            request_bytes: 32 * MIB,
            open_ids: 256,
            first_event: Duration::from_secs(120),
            between_events: Duration::from_secs(10 * 60),
            run: Duration::from_secs(24 * 3600),
        }
    }
}

impl RelayConfig {
    /// Checks that every bound is above zero.
    ///
    /// # Errors
    /// `configuration_wrong` with the key.
    pub fn check(&self) -> Result<(), Fault> {
        let limits = &self.limits;
        let bounds = [
            ("event_bytes", limits.event_bytes == 0),
            ("turn_bytes", limits.turn_bytes == 0),
            ("state_bytes", limits.state_bytes == 0),
            ("request_bytes", limits.request_bytes == 0),
            ("open_ids", limits.open_ids == 0),
            ("first_event", limits.first_event.is_zero()),
            ("between_events", limits.between_events.is_zero()),
            ("run", limits.run.is_zero()),
        ];
        let Some((name, _)) = bounds.iter().find(|(_, is_zero)| *is_zero) else { return Ok(()) };
        Err(Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
            .with(Fact::ConfigKey, format!("engines.agui.limits.{name}"))
            .with(Fact::Expected, "a number above 0")
            .with(Fact::Received, "0"))
    }
}
