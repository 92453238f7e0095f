//! Client configuration: the server's address, the credentials, the timeouts and the retry policy.

use std::time::Duration;

use budao_core::retry::{RetryPolicy, Schedule};
use serde_json::{Map, Value};

use crate::{
    event::Cursor,
    session::{Error, Events, Session},
};

/// A server's address and connection settings. Cheap to clone; every session opens its own connection.
#[derive(Clone)]
pub struct Client {
    pub(crate) url: String,
    pub(crate) token: Option<String>,
    pub(crate) retry: RetryPolicy,
    pub(crate) silence: Duration,
    pub(crate) reply: Duration,
    pub(crate) inbox: usize,
    pub(crate) seed: Option<u64>,
}

/// The content of `user.create_session`. The server may refuse any of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionRequest {
    /// The language of texts for people: `en` or `zh`. If `None`, the server's default applies.
    pub language: Option<String>,
    /// Further fields of the content, sent unchanged. `preferences` is replaced if `language` is set.
    pub more: Map<String, Value>,
}

impl Client {
    /// Creates a client for a WebSocket URL such as `ws://127.0.0.1:7333/ws`. Nothing is sent until a session is
    /// opened.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            token: None,
            retry: RetryPolicy {
                tries: 1000,
                base: Duration::from_millis(250),
                max: Duration::from_secs(30),
                ..RetryPolicy::default()
            },
            silence: Duration::from_secs(40),
            reply: Duration::from_secs(120),
            inbox: 256,
            seed: None,
        }
    }

    /// Sends this token as `Authorization: Bearer …` on every connection.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Sets how often and how fast the client reconnects. Default: 1000 tries with waits of 250 ms to 30 s. An
    /// established connection resets the count.
    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// Sets how long a connection may be silent before it counts as lost. Default: 40 s; the server sends a heartbeat
    /// every 15 s.
    #[must_use]
    pub fn silence(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }

    /// Sets how long a command waits for its answer, across all reconnects. Default: 120 s.
    #[must_use]
    pub fn reply(mut self, reply: Duration) -> Self {
        self.reply = reply;
        self
    }

    /// Sets how many events may wait to be read: 256 by default, at least 2. Once they are full, the client stops
    /// reading from the connection.
    #[must_use]
    pub fn inbox(mut self, events: usize) -> Self {
        self.inbox = events.max(2);
        self
    }

    /// Derives the jitter of the waits from this seed, for reproducible tests. Default: a random seed.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Opens a new session. The session is durable on the server when this returns.
    ///
    /// # Errors
    /// If the server is unreachable, rejects the credentials, or refuses the session.
    pub async fn create(&self, create: SessionRequest) -> Result<(Session, Events), Error> {
        Session::create(self.clone(), create).await
    }

    /// Attaches to an existing session and delivers the events after `cursor`; without a cursor, all events.
    ///
    /// # Errors
    /// If the server is unreachable, rejects the credentials, or has no such session for this identity.
    pub async fn attach(
        &self,
        session_id: &str,
        cursor: Option<Cursor>,
    ) -> Result<(Session, Events), Error> {
        Session::attach(self.clone(), session_id.to_owned(), cursor.unwrap_or_default()).await
    }

    /// Returns the waits between tries, starting with the first.
    pub(crate) fn waits(&self) -> Schedule {
        let seed = self.seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().1);
        self.retry.schedule(seed)
    }
}

impl std::fmt::Debug for Client {
    /// Omits the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("url", &self.url).finish_non_exhaustive()
    }
}
