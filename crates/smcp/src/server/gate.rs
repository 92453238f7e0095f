//! What happens before Socket.IO: the version of a handshake is judged. And the counters, beside it.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{
        FromRequestParts as _, Request, State, WebSocketUpgrade,
        ws::{CloseFrame, Message},
    },
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
    routing::{any, get},
};

use super::{Inner, Refusal};
use crate::wire::{
    Dialect,
    version::{self, HEADER, QUERY},
};

/// Where Socket.IO lives.
const PATH: &str = "/socket.io";

/// The code a connection is closed with when its version does not fit; the protocol's own.
const CLOSE_VERSION: u16 = 4900;

/// How long a closed connection's other side may take to say so.
const FAREWELL: Duration = Duration::from_secs(5);

/// Lets a handshake pass if its version fits. Requests of a session that has one pass: they were judged before.
pub(super) async fn gate(State(hub): State<Arc<Inner>>, request: Request, next: Next) -> Response {
    let is_socket = request.uri().path().trim_end_matches('/') == PATH;
    let query = request.uri().query().unwrap_or_default();
    if !is_socket || hub.config.dialect == Dialect::V02 || value(query, "sid").is_some() {
        return next.run(request).await;
    }
    match version::judge(value(query, QUERY).as_deref()) {
        Ok(_) => next.run(request).await,
        Err(fault) => {
            let body = version::refusal(&fault);
            let code = u16::try_from(body["code"].as_u64().unwrap_or_default()).unwrap_or(400);
            hub.stats.count(|all| *all.handshakes_refused.entry(code).or_default() += 1);
            tracing::warn!(error_code = code, error_message = %fault, "a handshake was refused");
            if hub.config.refusal == Refusal::Close
                && let Some(closed) = closed(request).await
            {
                return closed;
            }
            refused(body, code)
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
        let _ = tokio::time::timeout(FAREWELL, answered).await;
    }))
}

/// The first value of a name in a query.
pub(super) fn value(query: &str, name: &str) -> Option<String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let found = pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value);
    found.map(|value| value.replace('+', " ").replace("%2E", ".").replace("%2e", "."))
}

/// Every route: Socket.IO, which its layer answers before the route is reached, and the counters.
///
/// They are routes and not a fallback, so that the hub can be mounted beside others.
pub(super) fn routes(hub: Arc<Inner>) -> Router {
    let unreached = || any(async || StatusCode::NOT_FOUND);
    Router::new()
        .route(PATH, unreached())
        .route(&format!("{PATH}/"), unreached())
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
