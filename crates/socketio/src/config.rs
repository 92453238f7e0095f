//! How to reach a server, and the bounds of everything.

use std::{fmt, sync::Arc, time::Duration};

use budao_core::retry::RetryPolicy;
use futures::future::BoxFuture;
use http::{HeaderName, HeaderValue};
use reqwest::Url;
use serde_json::Value;

use crate::Error;

/// How to reach a server.
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

/// What a namespace is shown when it is connected to.
#[derive(Clone, Default)]
pub enum Auth {
    /// Nothing.
    #[default]
    None,
    /// The same each time.
    Fixed(Value),
    /// Asked for at every connection, so that a token can be a fresh one.
    Fresh(Arc<dyn Fn() -> BoxFuture<'static, Value> + Send + Sync>),
}

/// Which transports are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transports {
    /// Polling for the handshake, then a WebSocket if one gets through.
    #[default]
    PollingThenWebSocket,
    /// A WebSocket from the beginning.
    WebSocket,
    /// Polling only.
    Polling,
}

/// Bounds. A bound that is reached names itself in [`Error::Full`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Packets that wait to be sent, with or without a connection.
    pub queue_max: usize,
    /// Their bytes together.
    pub queue_bytes_max: usize,
    /// Calls that wait for an answer.
    pub calls_max: usize,
    /// Events that wait to be taken.
    pub inbox_max: usize,
    /// Bytes of one packet from the server.
    pub frame_bytes_max: usize,
    /// Attachments of one packet from the server.
    pub attachments_max: usize,
    /// Time for a handshake with all its namespaces.
    pub handshake: Duration,
    /// Time an event without an answer waits for room in the queue.
    pub send: Duration,
    /// Hold packets to the size the server says it takes? A server closes the connection on a larger one.
    /// Some say less than they take.
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
    /// A server, on its usual path `/socket.io/`. Without a namespace the root is connected to.
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

    /// Another path than `/socket.io/`.
    #[must_use]
    pub fn path(mut self, path: &str) -> Self {
        self.path = format!("/{}/", path.trim_matches('/'));
        self
    }

    /// Adds a namespace. The first one is the client's own.
    #[must_use]
    pub fn namespace(mut self, name: &str) -> Self {
        self.namespaces.push((name.into(), Auth::None));
        self
    }

    /// What the namespace added last is shown, the same each time.
    #[must_use]
    pub fn auth(self, auth: Value) -> Self {
        self.with_auth(Auth::Fixed(auth))
    }

    /// What the namespace added last is shown.
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

    /// Adds to the query of every request.
    #[must_use]
    pub fn query(mut self, name: &str, value: &str) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    /// Adds a header to every request.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Which transports are used.
    #[must_use]
    pub fn transports(mut self, transports: Transports) -> Self {
        self.transports = transports;
        self
    }

    /// How often and how patiently to connect again. One try means never.
    #[must_use]
    pub fn reconnect(mut self, policy: RetryPolicy) -> Self {
        self.reconnect = policy;
        self
    }

    /// Connect again when the server takes a namespace away, too.
    #[must_use]
    pub fn reconnect_after_kick(mut self) -> Self {
        self.is_kick_final = false;
        self
    }

    /// Other bounds.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The address of a request.
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
    /// Without what may be secret: headers, query and what namespaces are shown.
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
