//! The HTTP API: routes, middleware and the WebSocket upgrade.

mod fault_renderings;
mod fork;
mod frames;
mod health;
mod middleware;
mod nodes;
mod openapi;
mod sessions;
mod stats;
mod tools;
mod traces;
mod views;

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::{State, WebSocketUpgrade, ws::rejection::WebSocketUpgradeRejection},
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
    routing::{any, get, post},
};
use budao_core::{
    Fault, Kind,
    fault::{Fact, Operation},
};
use http::{HeaderName, HeaderValue, Method, header};
use tokio::sync::OwnedSemaphorePermit;
use tower_http::{catch_panic::CatchPanicLayer, cors::CorsLayer};

pub(crate) use self::middleware::{Caller, fault_response};
pub use self::openapi::openapi;
use crate::{
    ag_ui, auth::PROTOCOL, connection::Connection, front_end, mcp, outbox::BATCH_BYTES, page,
    problem::REQUEST_ID, server::Server, socket, sse, ui_stream,
};

/// Read buffer of a WebSocket; small because most connections are idle.
const READ_BUFFER: usize = 1024;

/// A TCP connection's permit. It is kept across an upgrade.
#[derive(Clone, Debug)]
pub(crate) struct SocketPermit(
    #[expect(dead_code, reason = "held, not read")] Arc<OwnedSemaphorePermit>,
);

impl SocketPermit {
    pub(crate) fn new(permit: OwnedSemaphorePermit) -> Self {
        Self(Arc::new(permit))
    }
}

/// All routes. Every request passes the check of its origin; private routes also authenticate.
pub(crate) fn router(server: &Arc<Server>) -> Router {
    let private = Router::new()
        .route("/ws", any(web_socket))
        .route("/v1/sessions", get(sessions::list).post(sessions::create))
        .route("/v1/sessions/{session}", get(sessions::get).delete(sessions::delete))
        .route("/v1/sessions/{session}/messages", post(sessions::message))
        .route("/v1/sessions/{session}/answers", post(sessions::answer))
        .route("/v1/sessions/{session}/cancel", post(sessions::cancel))
        .route("/v1/sessions/{session}/commands", post(sessions::command))
        .route("/v1/sessions/{session}/fork", post(fork::fork))
        .route("/v1/sessions/{session}/events", get(sse::events))
        .route("/v1/sessions/{session}/frames", get(frames::frames))
        .route("/v1/sessions/{session}/export", get(sessions::export))
        .route("/v1/sessions/{session}/faults/{seq}", get(fault_renderings::fault_renderings))
        .route("/v1/tools", get(tools::tools))
        .route("/ag-ui", post(ag_ui::run))
        .route("/ag-ui/{thread}", get(ag_ui::join))
        .route("/ag-ui/{thread}/cancel", post(ag_ui::cancel))
        .route("/api/copilotkit/info", get(ag_ui::info))
        .route("/api/copilotkit/agent/{agent}/run", post(ag_ui::runtime_run))
        .route("/api/copilotkit/agent/{agent}/connect", post(ag_ui::runtime_connect))
        .route("/api/copilotkit/agent/{agent}/stop/{thread}", post(ag_ui::runtime_stop))
        .route("/mcp", post(mcp::message))
        .route("/api/chat", post(ui_stream::send))
        .route("/api/chat/{id}/stream", get(ui_stream::resume))
        .route("/api/chat/{id}/cancel", post(ui_stream::cancel))
        .route("/api/stats", get(stats::stats))
        .route("/api/nodes", get(nodes::nodes))
        .route("/api/traces/{trace}", get(traces::trace))
        .route("/metrics", get(health::metrics))
        .fallback(unknown_route)
        .layer(from_fn_with_state(Arc::clone(server), middleware::authenticate));
    let public = Router::new()
        .route("/healthz", get(health::report_liveness))
        .route("/readyz", get(health::report_readiness))
        .route("/openapi.json", get(serve_description));
    let router = public
        .merge(page::routes())
        .merge(private)
        .merge(server.config.extra_routes.clone().with_state(()))
        .layer(from_fn_with_state(Arc::clone(server), page::serve_missing))
        .layer(from_fn_with_state(Arc::clone(server), middleware::check_origin))
        .layer(CatchPanicLayer::new())
        .with_state(Arc::clone(server));
    match cors(&server.config.origins) {
        Some(cors) => router.layer(cors),
        None => router,
    }
}

/// The CORS layer for the listed origins; `None` without any.
fn cors(origins: &[String]) -> Option<CorsLayer> {
    let listed: Vec<HeaderValue> =
        origins.iter().filter_map(|origin| origin.parse().ok()).collect();
    (!listed.is_empty()).then(|| {
        CorsLayer::new()
            .allow_origin(listed)
            .allow_methods([Method::GET, Method::POST, Method::DELETE])
            .allow_headers([
                header::AUTHORIZATION,
                header::CONTENT_TYPE,
                HeaderName::from_static("idempotency-key"),
                HeaderName::from_static("last-event-id"),
                HeaderName::from_static("mcp-method"),
                HeaderName::from_static("mcp-name"),
                HeaderName::from_static("mcp-protocol-version"),
                HeaderName::from_static("traceparent"),
            ])
            .expose_headers([
                REQUEST_ID,
                front_end::RESUME,
                HeaderName::from_static("x-workflow-run-id"),
                HeaderName::from_static("x-workflow-stream-tail-index"),
            ])
    })
}

async fn web_socket(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Extension(socket_permit): Extension<SocketPermit>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(rejection) => {
            let fault = Fault::new(Kind::BadRequest, Operation::AcceptFrame)
                .with(Fact::Expected, "a WebSocket handshake")
                .with(Fact::Received, rejection.body_text());
            return fault_response(&server, fault, &caller);
        }
    };
    let permit = match server.admission.admit(&caller.identity.tenant) {
        Ok(permit) => permit,
        Err(fault) => return fault_response(&server, fault, &caller),
    };
    let hard = server.config.shared_limits.frame_bytes_hard;
    let upgrade = upgrade
        .protocols([PROTOCOL])
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(BATCH_BYTES)
        .max_write_buffer_size(usize::MAX)
        .max_message_size(hard)
        .max_frame_size(hard);
    let running = server.running.token();
    upgrade.on_upgrade(move |web_socket| async move {
        let connection = Connection::new(server, caller.identity, caller.lang, permit);
        socket::serve_socket(connection, web_socket).await;
        drop((socket_permit, running));
    })
}

async fn serve_description() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], openapi())
}

async fn unknown_route(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    uri: http::Uri,
) -> Response {
    let path: String = uri.path().chars().take(120).collect();
    let fault =
        Fault::new(Kind::UnsupportedOperation, Operation::ServeRequest).with(Fact::EventName, path);
    let mut response = fault_response(&server, fault, &caller);
    *response.status_mut() = http::StatusCode::NOT_FOUND;
    response.into_response()
}
