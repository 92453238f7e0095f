//! Where to connect, as whom, and how patiently.

use std::time::Duration;

use budao_core::retry::{RetryPolicy, Schedule};
use serde_json::{Map, Value};

use crate::{
    event::Cursor,
    session::{Error, Events, Session},
};

/// A server and how to talk to it. Cheap to clone; every session has a connection of its own.
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

/// What a new session is asked to be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionRequest {
    /// The language of what people read: `en`, `zh`.
    pub language: Option<String>,
    /// More of `user.create_session`'s content, as the protocol has it.
    pub more: Map<String, Value>,
}

impl Client {
    /// A server by its address: `ws://127.0.0.1:7333/ws`.
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

    /// Signs in with this.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// How often and how patiently to come back, 1000 tries with waits of 250 ms to 30 s unless told. A connection
    /// that was made starts the count anew.
    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// How long a line may be silent before it counts as lost, 40 s unless told: heartbeats come every 15 s.
    #[must_use]
    pub fn silence(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }

    /// How long to wait for the answer to a command over all reconnects, 120 s unless told.
    #[must_use]
    pub fn reply(mut self, reply: Duration) -> Self {
        self.reply = reply;
        self
    }

    /// How many events may wait for their reader, 256 unless told, at least 2; then the line is not read either.
    #[must_use]
    pub fn inbox(mut self, events: usize) -> Self {
        self.inbox = events.max(2);
        self
    }

    /// Draws the jitter of the waits from this seed and not from chance.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Opens a new session. When this returns, it is durable on the server.
    ///
    /// # Errors
    /// When the server cannot be reached, does not let us in, or refuses the session.
    pub async fn create(&self, create: SessionRequest) -> Result<(Session, Events), Error> {
        Session::create(self.clone(), create).await
    }

    /// Takes up a session where `cursor` left it, or from its beginning.
    ///
    /// # Errors
    /// When the server cannot be reached, does not let us in, or has no such session for us.
    pub async fn attach(
        &self,
        session_id: &str,
        cursor: Option<Cursor>,
    ) -> Result<(Session, Events), Error> {
        Session::attach(self.clone(), session_id.to_owned(), cursor.unwrap_or_default()).await
    }

    /// The waits between tries, from the first again.
    pub(crate) fn waits(&self) -> Schedule {
        let seed = self.seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().1);
        self.retry.schedule(seed)
    }
}

impl std::fmt::Debug for Client {
    /// Without the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("url", &self.url).finish_non_exhaustive()
    }
}
