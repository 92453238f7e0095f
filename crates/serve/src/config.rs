//! What a server is set to. Everything has a default that is safe on one's own machine.

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use axum::Router;
use budao_core::{
    event::Settings,
    fault::{Fact, Fault, Kind, Operation},
    limits::{Limits as CoreLimits, millis},
    scrub::Scrubber,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    alerts::Alerts, auth::Auth, inbound::OnDisconnect, metrics::Metrics, signed_state::Keyring,
};

/// What a server is set to.
#[derive(Debug)]
pub struct Config {
    /// How it introduces itself.
    pub name: String,
    /// Who may come in.
    pub auth: Auth,
    /// Web pages of other origins that may connect, as `https://host[:port]`. Its own origin always may.
    pub origins: Vec<String>,
    /// Names it is reached by, besides those of the loopback interface. Empty on another interface: any.
    pub hosts: Vec<String>,
    /// What new sessions are set to, unless their creator says otherwise.
    pub settings: Settings,
    /// Models a creator may name besides that of `settings`.
    pub models: Vec<String>,
    /// Keys that sign states: the first signs, all verify.
    pub keys: Keyring,
    /// What happens to a run when its last observer is gone, unless its creator says otherwise.
    pub on_disconnect: OnDisconnect,
    /// Bounds of the gateway.
    pub limits: Limits,
    /// Bounds it shares with the engine: sizes of frames, depth of JSON.
    pub core: CoreLimits,
    /// Takes secrets out of what peers are told.
    pub scrubber: Scrubber,
    /// Where numbers are gathered.
    pub meters: Metrics,
    /// Who is told of faults that need somebody.
    pub alerts: Option<Alerts>,
    /// Routes of others on the same address. They pass the same check of origins and host names, and admit whom
    /// they want by themselves.
    pub beside: Router,
    /// What the hub among those routes counted, to be told with our own numbers.
    pub hub: Option<CounterSource>,
}

/// Numbers that somebody else has, and tells when asked.
#[derive(Clone)]
pub struct CounterSource(Arc<dyn Fn() -> Value + Send + Sync>);

impl CounterSource {
    /// Asked anew each time; must answer at once.
    pub fn new(now: impl Fn() -> Value + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub(crate) fn now(&self) -> Value {
        (self.0)()
    }
}

impl fmt::Debug for CounterSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counters")
    }
}

impl Config {
    /// A server for this authentication and these keys; the rest as usual.
    #[must_use]
    pub fn new(auth: Auth, keys: Keyring) -> Self {
        Self {
            name: "budao".to_owned(),
            auth,
            origins: Vec::new(),
            hosts: Vec::new(),
            settings: Settings::default(),
            models: Vec::new(),
            keys,
            on_disconnect: OnDisconnect::Continue,
            limits: Limits::default(),
            core: CoreLimits::default(),
            scrubber: Scrubber::new(),
            meters: Metrics::new(),
            alerts: None,
            beside: Router::new(),
            hub: None,
        }
    }

    /// May it listen there? Without authentication only where nobody else can reach it.
    ///
    /// # Errors
    /// `configuration_wrong` when others could.
    pub fn check_address(&self, address: IpAddr) -> Result<(), Fault> {
        if address.is_loopback() || !self.auth.is_open() {
            return Ok(());
        }
        Err(Fault::new(Kind::ConfigurationWrong, Operation::StartServer)
            .with(Fact::ConfigKey, "--listen")
            .with(Fact::Expected, "a loopback address, or authentication")
            .with(Fact::Received, address.to_string()))
    }
}

/// The bounds of the gateway. All configurable, all enforced, all named in the fault that reports them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Observers of one session.
    pub observers: usize,
    /// Bytes waiting for one observer.
    pub observer_bytes: usize,
    /// Bytes waiting for all observers.
    pub all_observer_bytes: usize,
    /// Sessions one connection may observe.
    pub sessions_per_connection: usize,
    /// Connections at once.
    pub connections: usize,
    /// Connections of one tenant at once.
    pub tenant_connections: usize,
    /// Sessions of one tenant that are kept.
    pub tenant_sessions: usize,
    /// Commands a second of one connection, and how many at once.
    pub commands: Rate,
    /// Commands a second of one tenant.
    pub tenant_commands: Rate,
    /// Commands a second of everybody.
    pub all_commands: Rate,
    /// Records of history a second that one connection is read at once; what it asks for beyond that is read in its turn
    /// with others who do, slowly.
    pub replays: Rate,
    /// The same of all connections of one tenant.
    pub tenant_replays: Rate,
    /// Bytes a second that one tenant sends.
    pub tenant_bytes: Rate,
    /// Time between heartbeats.
    #[serde(with = "millis")]
    pub heartbeat: Duration,
    /// A peer that said nothing for this long, not even to a ping, is gone.
    #[serde(with = "millis")]
    pub silence: Duration,
    /// To send the head of a request.
    #[serde(with = "millis")]
    pub request_head: Duration,
    /// To say good-bye before the line is cut.
    #[serde(with = "millis")]
    pub farewell: Duration,
    /// When clients are asked to come back after a shutdown.
    #[serde(with = "millis")]
    pub come_back: Duration,
    /// A run without any observer.
    #[serde(with = "millis")]
    pub unobserved: Duration,
    /// Sessions are kept this long after their last event.
    #[serde(with = "millis")]
    pub retention: Duration,
    /// Records kept of each session; 0 is no bound.
    pub retention_records: u64,
    /// Bytes of records kept of each session; 0 is no bound.
    pub retention_bytes: u64,
    /// Records of a session are kept this long; 0 is no bound.
    #[serde(with = "millis")]
    pub retention_age: Duration,
    /// Time between rounds of retention.
    #[serde(with = "millis")]
    pub retention_round: Duration,
    /// How long a signed state is good for.
    #[serde(with = "millis")]
    pub signed_state: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: usize = 1 << 20;
        const HOUR: Duration = Duration::from_secs(3600);
        Self {
            observers: 64,
            observer_bytes: MIB,
            all_observer_bytes: 256 * MIB,
            sessions_per_connection: 64,
            connections: 10_000,
            tenant_connections: 10_000,
            tenant_sessions: 1_000_000,
            commands: Rate { per_second: 50, burst: 200 },
            tenant_commands: Rate { per_second: 5_000, burst: 10_000 },
            all_commands: Rate { per_second: 50_000, burst: 50_000 },
            replays: Rate { per_second: 1_024, burst: 16_384 },
            tenant_replays: Rate { per_second: 16_384, burst: 1_000_000 },
            tenant_bytes: Rate { per_second: 32 << 20, burst: 64 << 20 },
            heartbeat: Duration::from_secs(15),
            silence: Duration::from_secs(40),
            request_head: Duration::from_secs(10),
            farewell: Duration::from_secs(5),
            come_back: Duration::from_secs(2),
            unobserved: 24 * HOUR,
            retention: 30 * 24 * HOUR,
            retention_records: 0,
            retention_bytes: 0,
            retention_age: Duration::ZERO,
            retention_round: HOUR,
            signed_state: 24 * HOUR,
        }
    }
}

/// How often something may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// In a second, in the long run.
    pub per_second: u32,
    /// At once.
    pub burst: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_authentication_only_loopback_is_listened_on() {
        let config = Config::new(Auth::open(), Keyring::random(1, 2));
        for address in ["127.0.0.1", "127.8.9.1", "::1"] {
            config.check_address(address.parse().unwrap()).unwrap();
        }
        for address in ["0.0.0.0", "::", "192.0.2.7"] {
            let fault = config.check_address(address.parse().unwrap()).unwrap_err();
            assert_eq!(fault.kind(), Kind::ConfigurationWrong, "{address}");
        }
        let config = Config::new(Auth::token("secret"), Keyring::random(1, 2));
        config.check_address("0.0.0.0".parse().unwrap()).unwrap();
    }
}
