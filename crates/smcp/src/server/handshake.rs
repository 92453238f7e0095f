//! The HTTP side of the hub: checks the version of a handshake before Socket.IO, and serves the counters.

use crate::codes::smcp_code;
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::{
    Extension, Json, Router,
    body::Body,
    extract::{
        FromRequestParts as _, Request, State, WebSocketUpgrade,
        ws::{CloseFrame, Message},
    },
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
    routing::get,
};
use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    trace::Trace,
};
use bytes::Bytes;
use engineioxide::service::EngineIoService;

use super::{
    Inner, VersionRejection,
    budget::{Charge, Share},
    listen::cut_of,
    rooms::Key,
    send::{cut, make_room},
    socket::Handler,
};
use crate::wire::{
    Dialect, error,
    version::{self, HEADER, QUERY, TRACE_HEADER},
};

/// The path of the Socket.IO endpoint.
pub(super) const PATH: &str = "/socket.io";

/// The protocol's WebSocket close code for an incompatible version.
const CLOSE_VERSION: u16 = 4900;

/// Time that a client has to confirm the close of its connection.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// Checks the version of a handshake. Requests with a session id pass, because their handshake was checked.
pub(super) async fn gate(State(hub): State<Arc<Inner>>, request: Request, next: Next) -> Response {
    let is_socket = request.uri().path().trim_end_matches('/') == PATH;
    let query = request.uri().query().unwrap_or_default();
    if let Some(sid) = value(query, "sid").filter(|_| is_socket) {
        let request = match whole(&hub, request).await {
            Ok(request) => request,
            Err(refusal) => return refusal,
        };
        return of_session(hub, &sid, request, next).await;
    }
    if !is_socket || hub.config.dialect == Dialect::V02 {
        return next.run(request).await;
    }
    match version::judge(value(query, QUERY).as_deref()) {
        Ok(_) => next.run(request).await,
        Err(fault) => {
            let fault = hub.finish(fault, "");
            let body = version::refusal(&fault, hub.config.lang);
            let code = u16::try_from(body["code"].as_u64().unwrap_or_default()).unwrap_or(400);
            hub.stats.count(|all| *all.handshakes_refused.entry(code).or_default() += 1);
            tracing::warn!(
                error_code = code, error_message = %fault, trace_id = %fault.trace(),
                "handshake refused"
            );
            if hub.config.refusal == VersionRejection::Close
                && let Some(closed) = closed(request).await
            {
                return closed;
            }
            refused(body, code, fault.trace())
        }
    }
}

/// Reads the body of a request. It must arrive in time and be no larger than the transport takes.
async fn whole(hub: &Inner, request: Request) -> Result<Request, Response> {
    if request.method() != Method::POST {
        return Ok(request);
    }
    let (limits, (parts, body)) = (hub.config.limits, request.into_parts());
    let limit = limits.frame_bytes_max * 2;
    let read = tokio::select! {
        biased;
        read = axum::body::to_bytes(body, limit) => read,
        () = hub.world.clock.sleep(limits.request_body) => {
            let fault = Fault::new(Kind::RequestTimedOut, Operation::AcceptFrame)
                .with(Fact::LimitName, "request_body")
                .with(Fact::TimeoutMs, limits.request_body);
            return Err(refused_body(hub, StatusCode::REQUEST_TIMEOUT, fault));
        }
    };
    match read {
        Ok(bytes) => Ok(Request::from_parts(parts, Body::from(bytes))),
        Err(error) => {
            let bytes = i64::try_from(limit).unwrap_or(i64::MAX);
            let fault = Fault::new(Kind::FrameTooLarge, Operation::AcceptFrame)
                .with(Fact::Limit, bytes)
                .caused_by(&error);
            Err(refused_body(hub, StatusCode::PAYLOAD_TOO_LARGE, fault))
        }
    }
}

fn refused_body(hub: &Inner, status: StatusCode, fault: Fault) -> Response {
    let fault = hub.finish(fault, "");
    hub.stats.refused(smcp_code(fault.kind()));
    tracing::warn!(error_message = %fault, trace_id = %fault.trace(), "a request was refused");
    let mut response = traced((status, Json(error::flat(&fault, hub.rendering()))), fault.trace());
    // The rest of the body is still on its way, so the connection is of no more use.
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Serves a request with a session id. Charges the answer to a poll until it is written, and gives an upgrade the
/// token that ends its TCP connection.
async fn of_session(hub: Arc<Inner>, sid: &str, request: Request, next: Next) -> Response {
    let engine = hub.engines().get(sid).and_then(std::sync::Weak::upgrade);
    let Some(engine) = engine else { return next.run(request).await };
    let transport = value(request.uri().query().unwrap_or_default(), "transport");
    if transport.as_deref() == Some("websocket") {
        if let Some(token) = cut_of(request.extensions()) {
            engine.data.cut_with(token);
        }
        return next.run(request).await;
    }
    let is_poll = request.method() == Method::GET;
    let response = next.run(request).await;
    match engine.data.session().filter(|_| is_poll) {
        Some(session) => counted(&hub, session.key(), response).await,
        None => response,
    }
}

/// A poll answer with its charge.
struct ChargedBytes {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for ChargedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Charges the answer to its connection until it is written. A client that does not read is closed at its limit.
async fn counted(hub: &Arc<Inner>, key: Key, response: Response) -> Response {
    let (parts, body) = response.into_parts();
    // The body is already in memory, so reading it needs no limit.
    let Ok(bytes) = axum::body::to_bytes(body, usize::MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let connection = hub.state().connections.get(&key).cloned();
    if let Some(connection) = &connection {
        connection.sweep();
    }
    match make_room(hub, key, bytes.len(), Share::Whole) {
        Ok(_charge) => {
            let body = Body::from(Bytes::from_owner(ChargedBytes { bytes, _charge }));
            Response::from_parts(parts, body)
        }
        Err(over) => {
            if let Some(connection) = &connection {
                cut(hub, key, connection, over);
            }
            let fault = hub.finish(over.too_slow(), "");
            let why = error::flat(&fault, hub.rendering());
            traced((StatusCode::BAD_REQUEST, Json(why)), fault.trace())
        }
    }
}

/// The response to a refused handshake.
fn refused(body: serde_json::Value, code: u16, trace: Trace) -> Response {
    // `Json` sets the content length; without it a close could overtake the body.
    let mut response = traced((StatusCode::BAD_REQUEST, Json(body)), trace);
    if code != 400 {
        response.headers_mut().insert(HEADER, HeaderValue::from(code));
    }
    response
}

/// A refusal with its trace in a header: some bodies are prescribed to the last field.
fn traced(response: impl IntoResponse, trace: Trace) -> Response {
    let mut response = response.into_response();
    if let Ok(value) = HeaderValue::from_str(&trace.to_string()) {
        response.headers_mut().insert(TRACE_HEADER, value);
    }
    response
}

/// Accepts an upgrade and closes it with [`CLOSE_VERSION`]; `None` if the request is not an upgrade.
async fn closed(request: Request) -> Option<Response> {
    let (mut parts, _) = request.into_parts();
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await.ok()?;
    Some(upgrade.on_upgrade(async |mut socket| {
        let reason = "the version does not fit; ask by polling".into();
        let frame = CloseFrame { code: CLOSE_VERSION, reason };
        let _ = socket.send(Message::Close(Some(frame))).await;
        // Waits for the client's close frame; otherwise the code may be lost with the connection.
        let answered = async { while let Some(Ok(_)) = socket.recv().await {} };
        let _ = tokio::time::timeout(SHUTDOWN_GRACE, answered).await;
    }))
}

/// The first value of a query parameter.
pub(super) fn value(query: &str, name: &str) -> Option<String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let found = pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value);
    found.map(|value| value.replace('+', " ").replace("%2E", ".").replace("%2e", "."))
}

/// All routes: Socket.IO and the counters. There is no fallback route, so the hub can be mounted beside other routes.
pub(super) fn routes(hub: Arc<Inner>, socket: EngineIoService<Handler>) -> Router {
    Router::new()
        .route_service(PATH, socket.clone())
        .route_service(&format!("{PATH}/"), socket)
        .route("/smcp/stats", get(stats))
        .route("/smcp/metrics", get(metrics))
        .with_state(hub)
}

fn may_see(hub: &Inner, headers: &HeaderMap) -> bool {
    let presented = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    hub.config
        .access
        .admits_to_counters(presented.and_then(|presented| presented.strip_prefix("Bearer ")))
}

async fn not_admitted(hub: &Inner, address: Option<IpAddr>) -> Response {
    let delay = hub.guess_delay(address);
    hub.world.clock.sleep(delay).await;
    let trace = hub.world.trace();
    hub.stats.refused(StatusCode::UNAUTHORIZED.as_u16());
    tracing::warn!(error_code = 401, trace_id = %trace, "the counters were refused");
    traced(StatusCode::UNAUTHORIZED, trace)
}

/// Serves the counters as JSON, or in the Prometheus format if the client accepts `text/plain`.
async fn stats(
    State(hub): State<Arc<Inner>>,
    address: Option<Extension<SocketAddr>>,
    headers: HeaderMap,
) -> Response {
    let wanted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    if wanted.is_some_and(|wanted| wanted.contains("text/plain")) {
        return metrics(State(hub), address, headers).await;
    }
    if !may_see(&hub, &headers) {
        return not_admitted(&hub, address.map(|Extension(address)| address.ip())).await;
    }
    Json(hub.snapshot()).into_response()
}

async fn metrics(
    State(hub): State<Arc<Inner>>,
    address: Option<Extension<SocketAddr>>,
    headers: HeaderMap,
) -> Response {
    if !may_see(&hub, &headers) {
        return not_admitted(&hub, address.map(|Extension(address)| address.ip())).await;
    }
    let plain = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (plain, hub.snapshot().to_prometheus()).into_response()
}
