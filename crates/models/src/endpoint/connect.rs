//! Connecting: a deadline on the injected clock, and an own error type for failed name resolution.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use budao_core::world::Clock;
use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tower_layer::Layer;
use tower_service::Service;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The connection was not established within the deadline.
#[derive(Debug)]
pub(super) struct ConnectTimeout;

impl fmt::Display for ConnectTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no connection in time")
    }
}

impl std::error::Error for ConnectTimeout {}

/// The host name could not be resolved.
#[derive(Debug)]
pub(super) struct NameNotFound(std::io::Error);

impl fmt::Display for NameNotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot resolve the name: {}", self.0)
    }
}

impl std::error::Error for NameNotFound {}

/// The system resolver, with failures wrapped in [`NameNotFound`] so that they can be classified.
#[derive(Debug)]
pub(super) struct Resolver;

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<_> = match tokio::net::lookup_host((name.as_str(), 0)).await {
                Ok(found) => found.collect(),
                Err(error) => return Err(NameNotFound(error).into()),
            };
            let addresses: Addrs = Box::new(found.into_iter());
            Ok(addresses)
        })
    }
}

/// Adds one deadline over name resolution, connection and TLS handshake.
#[derive(Clone, Debug)]
pub(super) struct DeadlineLayer {
    clock: Arc<dyn Clock>,
    limit: Duration,
}

impl DeadlineLayer {
    pub(super) fn new(clock: Arc<dyn Clock>, limit: Duration) -> Self {
        Self { clock, limit }
    }
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = DeadlineConnector<S>;

    fn layer(&self, connector: S) -> DeadlineConnector<S> {
        DeadlineConnector { connector, deadline: self.clone() }
    }
}

/// A connector whose attempts fail with [`ConnectTimeout`] after the deadline.
#[derive(Clone, Debug)]
pub(super) struct DeadlineConnector<S> {
    connector: S,
    deadline: DeadlineLayer,
}

impl<S, R> Service<R> for DeadlineConnector<S>
where
    S: Service<R, Error = BoxError>,
    S::Future: Send + 'static,
    S::Response: 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(cx)
    }

    fn call(&mut self, to: R) -> Self::Future {
        let connecting = self.connector.call(to);
        let late: BoxFuture<'static, ()> = self.deadline.clock.sleep(self.deadline.limit);
        Box::pin(async move {
            tokio::select! {
                biased;
                connected = connecting => connected,
                () = late => Err(ConnectTimeout.into()),
            }
        })
    }
}
