//! What happens before Socket.IO: the version of a handshake is judged. And the counters, beside it.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
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
    version::{self, HEADER, QUERY},
};

/// Where Socket.IO lives.
pub(super) const PATH: &str = "/socket.io";

/// The code a connection is closed with when its version does not fit; the protocol's own.
const CLOSE_VERSION: u16 = 4900;

/// How long a closed connection's other side may take to say so.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// Lets a handshake pass if its version fits. Requests of a session that has one pass: they were judged before.
pub(super) async fn gate(State(hub): State<Arc<Inner>>, request: Request, next: Next) -> Response {
    let is_socket = request.uri().path().trim_end_matches('/') == PATH;
    let query = request.uri().query().unwrap_or_default();
    if let Some(sid) = value(query, "sid").filter(|_| is_socket) {
        return of_session(hub, &sid, request, next).await;
    }
    if !is_socket || hub.config.dialect == Dialect::V02 {
        return next.run(request).await;
    }
    match version::judge(value(query, QUERY).as_deref()) {
        Ok(_) => next.run(request).await,
        Err(fault) => {
            let body = version::refusal(&fault);
            let code = u16::try_from(body["code"].as_u64().unwrap_or_default()).unwrap_or(400);
            hub.stats.count(|all| *all.handshakes_refused.entry(code).or_default() += 1);
            tracing::warn!(error_code = code, error_message = %fault, "a handshake was refused");
            if hub.config.refusal == VersionRejection::Close
                && let Some(closed) = closed(request).await
            {
                return closed;
            }
            refused(body, code)
        }
    }
}

/// A request of a session: an answer to a poll counts as waiting until it is written, and an upgrade brings the connection that
/// is to be cut if nobody reads.
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

/// What a poll is answered with, and what it is charged with.
struct Counted {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The same answer, charged to its connection until it is written. A client that asks again and again and reads no answer is
/// closed like any other.
async fn counted(hub: &Arc<Inner>, key: Key, response: Response) -> Response {
    let (parts, body) = response.into_parts();
    // All of it is in memory already.
    let Ok(bytes) = axum::body::to_bytes(body, usize::MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let line = hub.state().lines.get(&key).cloned();
    if let Some(line) = &line {
        line.sweep();
    }
    match make_room(hub, key, bytes.len(), Share::Whole) {
        Ok(_charge) => {
            let body = Body::from(Bytes::from_owner(Counted { bytes, _charge }));
            Response::from_parts(parts, body)
        }
        Err(over) => {
            if let Some(line) = &line {
                cut(hub, key, line, over);
            }
            let why = error::flat(&hub.finish(over.too_slow(), ""), hub.config.dialect);
            (StatusCode::BAD_REQUEST, Json(why)).into_response()
        }
    }
}

/// The answer that says why.
fn refused(body: serde_json::Value, code: u16) -> Response {
    // The body is sent with its length: otherwise a close can overtake it.
    let mut response = (StatusCode::BAD_REQUEST, Json(body)).into_response();
    if code != 400 {
        response.headers_mut().insert(HEADER, HeaderValue::from(code));
    }
    response
}

/// Takes the upgrade, if it is one, and closes it with the code that stands for a refused handshake.
async fn closed(request: Request) -> Option<Response> {
    let (mut parts, _) = request.into_parts();
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await.ok()?;
    Some(upgrade.on_upgrade(async |mut socket| {
        let reason = "the version does not fit; ask by polling".into();
        let frame = CloseFrame { code: CLOSE_VERSION, reason };
        let _ = socket.send(Message::Close(Some(frame))).await;
        // Until the other side has closed, too: otherwise the code may be lost with the connection.
        let answered = async { while let Some(Ok(_)) = socket.recv().await {} };
        let _ = tokio::time::timeout(SHUTDOWN_GRACE, answered).await;
    }))
}

/// The first value of a name in a query.
pub(super) fn value(query: &str, name: &str) -> Option<String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let found = pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value);
    found.map(|value| value.replace('+', " ").replace("%2E", ".").replace("%2e", "."))
}

/// Every route: Socket.IO and the counters. They are routes and not a fallback, so that the hub can be mounted beside others.
pub(super) fn routes(hub: Arc<Inner>, socket: EngineIoService<Handler>) -> Router {
    Router::new()
        .route_service(PATH, socket.clone())
        .route_service(&format!("{PATH}/"), socket)
        .route("/smcp/stats", get(stats))
        .route("/smcp/metrics", get(metrics))
        .with_state(hub)
}

fn may_see(hub: &Inner, headers: &HeaderMap) -> bool {
    let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    hub.config.access.admits_to_counters(shown.and_then(|shown| shown.strip_prefix("Bearer ")))
}

/// The counters, for people; whoever asks for text gets what Prometheus reads.
async fn stats(State(hub): State<Arc<Inner>>, headers: HeaderMap) -> Response {
    let wanted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    if wanted.is_some_and(|wanted| wanted.contains("text/plain")) {
        return metrics(State(hub), headers).await;
    }
    if !may_see(&hub, &headers) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    Json(hub.snapshot()).into_response()
}

async fn metrics(State(hub): State<Arc<Inner>>, headers: HeaderMap) -> Response {
    if !may_see(&hub, &headers) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let plain = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (plain, hub.snapshot().to_prometheus()).into_response()
}
