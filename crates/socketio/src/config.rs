//! The configuration of a session: address, namespaces, transports, reconnection and limits.

use std::{fmt, sync::Arc, time::Duration};

use budao_core::retry::RetryPolicy;
use futures::future::BoxFuture;
use http::{HeaderName, HeaderValue};
use reqwest::Url;
use serde_json::Value;

use crate::Error;

/// The configuration of a session. Its `Debug` output leaves out headers, query and credentials.
#[derive(Clone)]
pub struct Config {
    pub(crate) url: Url,
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) namespaces: Vec<(Arc<str>, Auth)>,
    pub(crate) transports: Transports,
    pub(crate) reconnect: RetryPolicy,
    pub(crate) is_kick_final: bool,
    pub(crate) limits: Limits,
}

/// The `auth` value that is sent when a namespace is connected.
#[derive(Clone, Default)]
pub enum Auth {
    /// The connect packet carries no value.
    #[default]
    None,
    /// The same value for every connection.
    Fixed(Value),
    /// A function that is called for every connection, so that a token can be renewed.
    Fresh(Arc<dyn Fn() -> BoxFuture<'static, Value> + Send + Sync>),
}

/// The transports that a session may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transports {
    /// Polling for the handshake, then an upgrade to a WebSocket. Polling stays if the upgrade fails.
    #[default]
    PollingThenWebSocket,
    /// A WebSocket from the start, without a polling request before it.
    WebSocket,
    /// Polling only, for networks that block WebSockets.
    Polling,
}

/// The limits of a session. [`Error::Full`] names the limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Packets in the send queue, with or without a connection. Default 4096.
    pub queue_max: usize,
    /// Total bytes in the send queue. Default 64 MiB.
    pub queue_bytes_max: usize,
    /// Calls of one namespace that wait for an answer. Default 100,000.
    pub calls_max: usize,
    /// Events that the program has not yet taken from [`Events`](crate::Events). Default 1024.
    pub inbox_max: usize,
    /// Bytes of one packet from the server. Default 16 MiB.
    pub frame_bytes_max: usize,
    /// Attachments of one packet from the server. Default 256.
    pub attachments_max: usize,
    /// Time for one connection attempt, including all namespaces. Default 20 s.
    pub handshake: Duration,
    /// Time that an event without an answer waits for room in the queue. Default 30 s.
    pub send: Duration,
    /// Whether to refuse packets above the server's advertised `maxPayload`. Default true: a server closes the
    /// connection on a larger one. Set it to false for servers that accept more than they advertise.
    pub heed_advertised_size: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            queue_max: 4096,
            queue_bytes_max: 64 << 20,
            calls_max: 100_000,
            inbox_max: 1024,
            frame_bytes_max: 16 << 20,
            attachments_max: 256,
            handshake: Duration::from_secs(20),
            send: Duration::from_secs(30),
            heed_advertised_size: true,
        }
    }
}

impl Config {
    /// A configuration for the path `/socket.io/`. Without a namespace, the session connects to the root namespace.
    ///
    /// # Errors
    /// If `url` is not an `http`, `https`, `ws` or `wss` address.
    pub fn new(url: &str) -> Result<Self, Error> {
        let mut url = Url::parse(url).map_err(|error| Error::Address(error.to_string()))?;
        let scheme = match url.scheme() {
            "http" | "ws" => "http",
            "https" | "wss" => "https",
            other => {
                return Err(Error::Address(format!("`{other}` is not http, https, ws or wss")));
            }
        };
        let cannot = || Error::Address("it has no host".into());
        url.set_scheme(scheme).map_err(|()| cannot())?;
        if !url.has_host() {
            return Err(cannot());
        }
        Ok(Self {
            url,
            path: "/socket.io/".into(),
            query: Vec::new(),
            headers: Vec::new(),
            namespaces: Vec::new(),
            transports: Transports::default(),
            reconnect: RetryPolicy {
                tries: u32::MAX,
                max: Duration::from_secs(30),
                ..RetryPolicy::default()
            },
            is_kick_final: true,
            limits: Limits::default(),
        })
    }

    /// Replaces the path `/socket.io/`. Slashes at both ends are added.
    #[must_use]
    pub fn path(mut self, path: &str) -> Self {
        self.path = format!("/{}/", path.trim_matches('/'));
        self
    }

    /// Adds a namespace. [`Client::connect`](crate::Client::connect) returns the handle of the first one.
    #[must_use]
    pub fn namespace(mut self, name: &str) -> Self {
        self.namespaces.push((name.into(), Auth::None));
        self
    }

    /// Sets a fixed `auth` value for the namespace that was added last.
    #[must_use]
    pub fn auth(self, auth: Value) -> Self {
        self.with_auth(Auth::Fixed(auth))
    }

    /// Sets the `auth` value for the namespace that was added last, or for the root namespace if there is none.
    #[must_use]
    pub fn with_auth(mut self, auth: Auth) -> Self {
        if self.namespaces.is_empty() {
            self = self.namespace("/");
        }
        if let Some(last) = self.namespaces.last_mut() {
            last.1 = auth;
        }
        self
    }

    /// Adds a query parameter to every request.
    #[must_use]
    pub fn query(mut self, name: &str, value: &str) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    /// Adds a header to every HTTP request, including the WebSocket upgrade.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Replaces the default, [`Transports::PollingThenWebSocket`].
    #[must_use]
    pub fn transports(mut self, transports: Transports) -> Self {
        self.transports = transports;
        self
    }

    /// Sets the number of connection attempts and the backoff between them. One try disables reconnection.
    #[must_use]
    pub fn reconnect(mut self, policy: RetryPolicy) -> Self {
        self.reconnect = policy;
        self
    }

    /// Reconnects after the server has disconnected a namespace. By default that ends the session.
    #[must_use]
    pub fn reconnect_after_kick(mut self) -> Self {
        self.is_kick_final = false;
        self
    }

    /// Replaces the default limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The URL of a request; `sid` is `None` for the handshake.
    pub(crate) fn address(&self, transport: &str, sid: Option<&str>) -> Url {
        let mut url = self.url.clone();
        url.set_path(&self.path);
        url.set_fragment(None);
        let mut pairs = url.query_pairs_mut();
        pairs.append_pair("EIO", "4").append_pair("transport", transport);
        for (name, value) in &self.query {
            pairs.append_pair(name, value);
        }
        if let Some(sid) = sid {
            pairs.append_pair("sid", sid);
        }
        drop(pairs);
        url
    }
}

impl fmt::Debug for Config {
    /// Leaves out headers, query and `auth` values, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespaces: Vec<&str> = self.namespaces.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("Config")
            .field("host", &self.url.host_str())
            .field("path", &self.path)
            .field("namespaces", &namespaces)
            .field("transports", &self.transports)
            .field("reconnect", &self.reconnect)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Fixed(_) => "Fixed(..)",
            Self::Fresh(_) => "Fresh(..)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_carries_its_query_and_the_session() {
        let config = Config::new("ws://example.test:81/?room=1").unwrap().query("v", "0.4.0 x");
        let url = config.address("polling", Some("abc"));
        assert_eq!(
            url.as_str(),
            "http://example.test:81/socket.io/?room=1&EIO=4&transport=polling&v=0.4.0+x&sid=abc"
        );
    }

    #[test]
    fn an_address_without_use_is_refused() {
        for bad in ["", "nonsense", "ftp://example.test", "mailto:a@b"] {
            assert!(matches!(Config::new(bad), Err(Error::Address(_))), "{bad}");
        }
    }

    #[test]
    fn debugging_shows_no_secret() {
        let config = Config::new("https://example.test").unwrap();
        let config = config.auth(serde_json::json!({ "token": "hunter2" })).query("key", "hunter2");
        let config =
            config.header(http::header::AUTHORIZATION, HeaderValue::from_static("Bearer hunter2"));
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
