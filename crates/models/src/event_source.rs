//! One POST that a service answers with an event stream, for services that are not models.
//!
//! It shares the client and the parser of the model providers: no redirect is followed, nothing is sent twice, and an
//! event has a size limit. No proxy is used: the request and its token go to the address alone. The caller sets the time limits and says what an error means.

use std::{fmt, sync::Arc, time::Duration};

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    trace::{SpanId, Trace},
    world::World,
};
use http::header;
use reqwest::{Client, Url};
use secrecy::{ExposeSecret as _, SecretString};

use crate::{
    endpoint::{self, ProxyUse},
    sse::{self, EventStreamError, SseEvents},
};

/// Maximum bytes of an error response that are kept for the operator.
const EXCERPT_BYTES: usize = 2_048;
/// Longest wait for the body of an error response.
const EXCERPT_WAIT: Duration = Duration::from_secs(5);

/// The address of a service and the client for it.
#[derive(Clone)]
pub struct EventSource {
    client: Client,
    url: Url,
    token: Option<Arc<SecretString>>,
    world: World,
}

impl fmt::Debug for EventSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EventSource").field(&self.url.as_str()).finish()
    }
}

/// Why a POST got no event stream.
#[derive(Debug)]
pub enum PostError {
    /// No byte of the request left: the connection was not made. The kind says why.
    Unsent {
        /// A kind of the network area, or `request_timed_out`.
        kind: Kind,
        /// The transport's own words, for the operator.
        cause: String,
    },
    /// The connection broke after the request had left, perhaps in part.
    Broken {
        /// The transport's own words, for the operator.
        cause: String,
    },
    /// The service answered with another status than success.
    Refused {
        /// The HTTP status.
        status: u16,
        /// The beginning of the body, for the operator.
        body: String,
    },
    /// The service answered with another media type than an event stream.
    NotEvents {
        /// The media type, shortened.
        media: String,
    },
}

/// Why an event stream ended early.
#[derive(Debug)]
pub enum StreamError {
    /// The connection broke; with the transport's own words.
    Broken(String),
    /// The bytes are no event stream; with the reason.
    Malformed(String),
    /// One event exceeds the limit.
    TooLong,
}

/// The events of an answer, without their names.
#[derive(Debug)]
pub struct EventStream(SseEvents);

impl EventStream {
    /// True once the body has ended. An event read after that may be incomplete.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.0.ended()
    }

    /// The data of the next event; `None` when the service ended the stream. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<String, StreamError>> {
        let event = self.0.next().await?;
        Some(event.map(|event| event.data).map_err(|error| match error {
            EventStreamError::Body(error) => StreamError::Broken(error.to_string()),
            EventStreamError::Malformed { position, reason } => {
                StreamError::Malformed(format!("{reason} at byte {position}"))
            }
            EventStreamError::TooLong => StreamError::TooLong,
        }))
    }
}

impl EventSource {
    /// Checks the address and builds its client. `key` names the setting that holds the address.
    ///
    /// # Errors
    /// `configuration_wrong` for anything but an http or https URL without user, password and fragment.
    pub fn new(
        key: &str,
        address: &str,
        token: Option<SecretString>,
        world: &World,
        limits: &Limits,
    ) -> Result<Self, Fault> {
        let wrong = || {
            Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
                .with(Fact::ConfigKey, key.to_owned())
                .with(Fact::Expected, "an address such as http://127.0.0.1:8000/agent")
                .with(Fact::Received, address.chars().take(80).collect::<String>())
        };
        let url = Url::parse(address).map_err(|error| wrong().caused_by(&error))?;
        let is_plain = url.username().is_empty() && url.password().is_none();
        let is_http = matches!(url.scheme(), "http" | "https") && url.host_str().is_some();
        if !is_plain || !is_http || url.fragment().is_some() {
            return Err(wrong());
        }
        // No idle connection is kept: a request on one that the service closes at that moment is lost.
        let client = endpoint::client(ProxyUse::Never, &world.clock, limits, 0)
            .map_err(|error| wrong().caused_by(&error.without_url()))?;
        Ok(Self { client, url, token: token.map(Arc::new), world: world.clone() })
    }

    /// The configured address.
    #[must_use]
    pub fn address(&self) -> &str {
        self.url.as_str()
    }

    /// Posts a JSON body and waits for the head of the answer. Dropping the future or the stream ends the connection.
    ///
    /// # Errors
    /// The reason why there is no event stream.
    pub async fn post(
        &self,
        body: Vec<u8>,
        trace: Trace,
        event_bytes: usize,
    ) -> Result<EventStream, PostError> {
        let mut request = self
            .client
            .post(self.url.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "text/event-stream")
            .body(body);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose_secret());
        }
        if trace.is_some() {
            let span = SpanId::from_random(self.world.entropy.bits());
            request = request.header("traceparent", trace.to_traceparent(span));
        }
        let response = request.send().await.map_err(|error| unsent(&error.without_url()))?;
        let status = response.status();
        if !status.is_success() {
            let status = status.as_u16();
            let head = sse::read_head(endpoint::bytes(response), EXCERPT_BYTES);
            let late = self.world.clock.sleep(EXCERPT_WAIT);
            let body = tokio::select! {
                biased;
                head = head => String::from_utf8_lossy(&head).into_owned(),
                () = late => String::new(),
            };
            return Err(PostError::Refused { status, body });
        }
        let media = response.headers().get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok());
        let media = media.unwrap_or_default().to_ascii_lowercase();
        if !media.is_empty() && !media.starts_with("text/event-stream") {
            return Err(PostError::NotEvents { media: media.chars().take(80).collect() });
        }
        Ok(EventStream(SseEvents::new(endpoint::bytes(response), event_bytes)))
    }
}

fn unsent(error: &reqwest::Error) -> PostError {
    let cause = endpoint::chain(error);
    match endpoint::classify(error) {
        Kind::ModelConnectTimeout => PostError::Unsent { kind: Kind::RequestTimedOut, cause },
        kind @ (Kind::ConnectionRefused
        | Kind::NameNotResolved
        | Kind::NetworkUnavailable
        | Kind::TlsFailed)
            if error.is_connect() =>
        {
            PostError::Unsent { kind, cause }
        }
        _ => PostError::Broken { cause },
    }
}
