//! The configuration of a server. Every default is safe on a single-user machine.

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use axum::Router;
use budao_core::{
    event::Settings,
    fault::{Fact, Fault, Kind, Operation},
    limits::{Limits as CoreLimits, millis},
};
use budao_remote::Workers;
use budao_scrub::Scrubber;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    alerts::Alerts,
    auth::Auth,
    inbound::OnDisconnect,
    metrics::Metrics,
    nodes::Node,
    signed_state::Keyring,
    trace_lookup::{LogFiles, TraceViewer},
};

/// The configuration of a server. It is fixed once the server has started.
#[derive(Debug)]
pub struct Config {
    /// The server's name, `budao` by default.
    pub name: String,
    /// The accepted tokens and keys.
    pub auth: Auth,
    /// Origins of web pages that may connect, as `https://host[:port]`. The server's own origin is always allowed.
    pub origins: Vec<String>,
    /// Host names of the server besides those of the loopback interface. If empty on another interface, any name is
    /// accepted.
    pub hosts: Vec<String>,
    /// Defaults for new sessions; the request that creates a session may override them.
    pub settings: Settings,
    /// Models that a session may request besides the one in `settings`.
    pub models: Vec<String>,
    /// Keys for signed states. The first key signs, all keys verify.
    pub keys: Keyring,
    /// Default for a turn whose last observer has left; a session may override it.
    pub on_disconnect: OnDisconnect,
    /// The limits of the gateway.
    pub limits: Limits,
    /// Limits shared with the engine, such as frame sizes and JSON depth.
    pub shared_limits: CoreLimits,
    /// Removes secrets from faults before they are sent to clients.
    pub scrubber: Scrubber,
    /// The recorder for Prometheus metrics.
    pub metrics: Metrics,
    /// The receivers of fault alerts; `None` disables alerts.
    pub alerts: Option<Alerts>,
    /// Additional routes on the same address. The server checks origin and host name for them; they authenticate by
    /// themselves.
    pub extra_routes: Router,
    /// Counters of the SMCP hub among those routes, included in this server's statistics.
    pub smcp_counters: Option<CounterSource>,
    /// The state of the MCP servers whose tools the sessions use, as a list; `None` if the engine has none of its own.
    pub mcp_servers: Option<CounterSource>,
    /// The workers that offer tools; `None` refuses their offers.
    pub workers: Option<Workers>,
    /// This server among others on the same journal; `None` if it is the only one.
    pub node: Option<Arc<Node>>,
    /// Shows traces; `None` without a link to one.
    pub trace_viewer: Option<TraceViewer>,
    /// The files of the log, for the lines of a trace; `None` if the log is not written to files.
    pub log_files: Option<LogFiles>,
}

/// The source of another component's counters: a callback that returns them as JSON.
#[derive(Clone)]
pub struct CounterSource(Arc<dyn Fn() -> Value + Send + Sync>);

impl CounterSource {
    /// Wraps a callback. The server calls it for every report, so it must not block.
    pub fn new(now: impl Fn() -> Value + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub(crate) fn now(&self) -> Value {
        (self.0)()
    }
}

impl fmt::Debug for CounterSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CounterSource")
    }
}

impl Config {
    /// Creates a configuration with this authentication and these keys; all other fields have their defaults.
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
            shared_limits: CoreLimits::default(),
            scrubber: Scrubber::new(),
            metrics: Metrics::new(),
            alerts: None,
            extra_routes: Router::new(),
            smcp_counters: None,
            mcp_servers: None,
            workers: None,
            node: None,
            trace_viewer: None,
            log_files: None,
        }
    }

    /// Checks the listening address. Without authentication, only loopback addresses are allowed.
    ///
    /// # Errors
    /// `configuration_wrong` if the address is not loopback and authentication is off.
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

/// The limits of the gateway. Each one is configurable and enforced, and its fault names it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Observers per session.
    pub observers: usize,
    /// Bytes queued for one observer.
    pub observer_bytes: usize,
    /// Bytes queued for all observers together.
    pub total_observer_bytes: usize,
    /// Sessions that one connection may observe.
    pub sessions_per_connection: usize,
    /// Concurrent connections of the whole server.
    pub connections: usize,
    /// Concurrent connections per tenant.
    pub tenant_connections: usize,
    /// Stored sessions per tenant.
    pub tenant_sessions: usize,
    /// Commands per connection: rate and burst.
    pub commands: Rate,
    /// Commands per tenant.
    pub tenant_commands: Rate,
    /// Commands of all tenants together.
    pub all_commands: Rate,
    /// Records of history replayed at full speed per connection. Beyond this rate, the connection shares slow replay
    /// slots with others.
    pub replays: Rate,
    /// Records of history replayed at full speed per tenant.
    pub tenant_replays: Rate,
    /// Bytes received per tenant.
    pub tenant_bytes: Rate,
    /// Interval between heartbeats.
    #[serde(with = "millis")]
    pub heartbeat: Duration,
    /// A peer that sends nothing for this long, not even a pong, counts as disconnected.
    #[serde(with = "millis")]
    pub idle_timeout: Duration,
    /// Time limit for the head of an HTTP request.
    #[serde(with = "millis")]
    pub request_head_timeout: Duration,
    /// Time limit for the closing handshake before the connection is dropped.
    #[serde(with = "millis")]
    pub close_timeout: Duration,
    /// The reconnect delay that a shutdown announces to clients.
    #[serde(with = "millis")]
    pub reconnect_delay: Duration,
    /// How long a turn may continue without any observer. Waits for a service that is busy or down are not counted.
    #[serde(with = "millis")]
    pub unobserved_timeout: Duration,
    /// How long a session is kept after its last event.
    #[serde(with = "millis")]
    pub retention: Duration,
    /// Records kept per session; 0 means no limit.
    pub retention_records: u64,
    /// Bytes of records kept per session; 0 means no limit.
    pub retention_bytes: u64,
    /// Maximum age of a session's records; 0 means no limit.
    #[serde(with = "millis")]
    pub retention_age: Duration,
    /// How long the key of a call that is done once is kept; 0 means for ever.
    #[serde(with = "millis")]
    pub retention_once: Duration,
    /// Interval between retention sweeps.
    #[serde(with = "millis")]
    pub retention_interval: Duration,
    /// Validity of a signed state.
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
            total_observer_bytes: 256 * MIB,
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
            idle_timeout: Duration::from_secs(40),
            request_head_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(5),
            reconnect_delay: Duration::from_secs(2),
            unobserved_timeout: 24 * HOUR,
            retention: 30 * 24 * HOUR,
            retention_records: 0,
            retention_bytes: 0,
            retention_age: Duration::ZERO,
            retention_once: 400 * 24 * HOUR,
            retention_interval: HOUR,
            signed_state: 24 * HOUR,
        }
    }
}

/// A token bucket: sustained rate and burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Tokens added per second.
    pub per_second: u32,
    /// Capacity of the bucket.
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
