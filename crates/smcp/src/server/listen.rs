//! The hub's own listener: requests must arrive in time, and connections end whose peer does not read or that the hub
//! cuts.
//!
//! A closed WebSocket still writes its queue. A peer that reads little or nothing would hold that memory forever.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    http::{Extensions, Request},
};
use budao_net::WriteTimeoutStream;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::OwnedSemaphorePermit,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;

use super::{Inner, SWEEP_PAUSE};

/// Time that open requests have to end after the hub has closed.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// TCP connections for each client: one that polls, one that posts, and one that is being replaced.
const SOCKETS_PER_CLIENT: usize = 3;

/// The token that ends a request's TCP connection, from this listener or from the server that the hub is mounted in.
pub(super) fn cut_of(extensions: &Extensions) -> Option<CancellationToken> {
    extensions.get::<CancellationToken>().cloned()
}

/// The address of a request's peer, if the listener tells it.
pub(super) fn address_of(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<SocketAddr>().map(SocketAddr::ip)
}

/// Serves until `ended` completes, then lets open requests end.
pub(super) async fn serve(
    hub: &Arc<Inner>,
    router: Router,
    listener: TcpListener,
    ended: impl Future<Output = ()> + Send,
) {
    let limits = hub.config.limits;
    let most = limits.connections_max.saturating_mul(SOCKETS_PER_CLIENT);
    let (running, stopping) = (TaskTracker::new(), CancellationToken::new());
    let start = |stream, address, permit| {
        let (hub, router, stopping) = (Arc::clone(hub), router.clone(), stopping.clone());
        running.spawn(serve_connection(hub, stream, address, router, stopping, permit));
    };
    budao_net::accept(&listener, most, &*hub.world.clock, ended, start).await;
    drop(listener);
    stopping.cancel();
    running.close();
    tokio::select! {
        biased;
        () = running.wait() => {}
        () = hub.world.clock.sleep(SHUTDOWN_GRACE) => tracing::warn!("some clients did not leave in time"),
    }
}

/// Serves the requests of one TCP connection. `_permit` is held until the connection is closed or upgraded.
async fn serve_connection(
    hub: Arc<Inner>,
    stream: TcpStream,
    address: SocketAddr,
    router: Router,
    stopping: CancellationToken,
    _permit: OwnedSemaphorePermit,
) {
    let limits = hub.config.limits;
    // Longer than the hub's own check of its queues, because only that check reports a reason.
    let (limit, token) = (limits.send + SWEEP_PAUSE * 5, CancellationToken::new());
    let stream = WriteTimeoutStream::new(stream, &hub.world.clock, limit, token.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(token.clone());
        request.extensions_mut().insert(address);
        router.clone().oneshot(request)
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.request_head)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = &mut connection => ended,
        () = stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
