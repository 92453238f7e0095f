//! A gateway that serves the sessions of any engine over WebSocket, SSE and HTTP.
//!
//! A session has one writer and many observers. A hub (`hub`) follows a session once for each format and language; a
//! record becomes at most one frame ([`project`]), encoded once and shared by all observers of the hub. A returning
//! observer gets the missed frames from the journal and then continues live (`observe`). The gateway decides nothing
//! about a session: requests of clients become commands of the engine, and frames are projections of its records.

mod admission;
mod ag_ui;
pub mod alerts;
pub mod auth;
mod codes;
mod commands;
pub mod config;
mod connection;
pub mod frame;
mod front_end;
mod http_api;
mod hub;
pub mod in_process;
pub mod inbound;
mod jwt_crypto;
pub mod mcp;
mod metrics;
mod nodes;
mod observe;
mod observer_format;
mod origin;
mod outbox;
mod page;
mod permissions;
pub mod problem;
pub mod project;
mod replay_scheduler;
pub mod schema;
mod server;
mod session_meta;
pub mod signed_state;
mod socket;
mod sse;
mod stats;
mod sweep;
pub mod texts;
mod trace_lookup;
mod ui_stream;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use budao_core::{Fault, Kind, engine::Engine, fault::Operation, world::World};
use budao_journal::Reader;
use budao_net::WriteTimeoutStream;
use futures::future::{self, Either};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::OwnedSemaphorePermit,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

pub use auth::{Auth, Identity};
pub use codes::http_status;
pub use config::{Config, CounterSource, Limits, Rate};
pub use http_api::openapi;
pub use inbound::OnDisconnect;
pub use metrics::Metrics;
pub use nodes::{LocalLiveness, Node, NodeCensus, NodeLoad, NodeView};
pub use signed_state::Keyring;
pub use stats::{ModelLoad, Report, Stats, Window};
pub use trace_lookup::{LogFiles, TraceViewer};

use crate::server::Server;

/// TCP connections allowed beyond `Limits::connections`, for plain HTTP requests.
const SPARE_SOCKETS: usize = 256;

/// Serves an engine's sessions on a listener until `shutdown` completes, then tells clients when to reconnect. Turns
/// continue, or resume when an engine is next started on the same journal.
///
/// # Errors
/// If the configuration does not allow the listener's address.
pub async fn serve(
    listener: TcpListener,
    config: Config,
    engine: Arc<dyn Engine>,
    journal: Arc<dyn Reader>,
    world: World,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Fault> {
    let address = listener
        .local_addr()
        .map_err(|error| Fault::new(Kind::Bug, Operation::StartServer).caused_by(&error))?;
    config.check_address(address.ip())?;
    let close_timeout = config.limits.close_timeout;
    let server = Server::new(config, engine, journal, world, address.ip().is_loopback());
    server.world.spawn.spawn(Box::pin(sweep::run(Arc::clone(&server))));
    nodes::report_load(&server);
    server.world.spawn.spawn(Box::pin(nodes::exchange_calls(Arc::clone(&server))));
    if let Some((alerts, watch)) = alerts::begin(&server).await {
        let alert_task = alerts::run(Arc::clone(&server), alerts, watch);
        server.world.spawn.spawn(Box::pin(alert_task));
    }
    accept(&server, &listener, shutdown).await;
    drop(listener);
    server.stopping.cancel();
    server.running.close();
    let bound = close_timeout * 2 + Duration::from_secs(1);
    let grace = server.world.clock.sleep(bound);
    let all_closed = Box::pin(server.running.wait());
    if let Either::Right(_) = future::select(all_closed, grace).await {
        let clients = server.running.len();
        tracing::warn!(clients, ?bound, "clients did not disconnect in time");
    }
    Ok(())
}

async fn accept(
    server: &Arc<Server>,
    listener: &TcpListener,
    shutdown: impl Future<Output = ()> + Send,
) {
    let router = http_api::router(server);
    let most = server.config.limits.connections + SPARE_SOCKETS;
    let start = |stream, address, permit| {
        let connection =
            serve_connection(Arc::clone(server), (stream, address), router.clone(), permit);
        server.running.spawn(connection);
    };
    budao_net::accept(listener, most, &*server.world.clock, shutdown, start).await;
}

/// Serves the requests of one TCP connection. An upgraded connection continues in another task, which keeps the permit.
async fn serve_connection(
    server: Arc<Server>,
    (stream, address): (TcpStream, SocketAddr),
    router: Router,
    permit: OwnedSemaphorePermit,
) {
    let permit = http_api::SocketPermit::new(permit);
    // Not a tower layer: a layer would rebuild every route for every connection.
    let cut = CancellationToken::new();
    let token = cut.clone();
    let service = service_fn(move |mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(permit.clone());
        // Lets a mounted route end a connection whose peer does not read.
        request.extensions_mut().insert(token.clone());
        request.extensions_mut().insert(address);
        router.clone().oneshot(request)
    });
    let limits = &server.config.limits;
    let stream = WriteTimeoutStream::new(stream, &server.world.clock, limits.idle_timeout, cut);
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.request_head_timeout)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = &mut connection => ended,
        () = server.stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
    }
}
