//! What happens before Socket.IO: the version of a handshake is judged. And the counters, beside it.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
    routing::get,
};

use super::Inner;
use crate::wire::{
    Dialect,
    version::{self, HEADER, QUERY},
};

/// Lets a handshake pass if its version fits. Requests of a session that has one pass: they were judged before.
pub(super) async fn gate(State(hub): State<Arc<Inner>>, request: Request, next: Next) -> Response {
    let is_socket = request.uri().path().trim_end_matches('/') == "/socket.io";
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
            // The body is sent with its length: otherwise a close can overtake it.
            let mut response = (StatusCode::BAD_REQUEST, Json(body)).into_response();
            if code != 400 {
                response.headers_mut().insert(HEADER, HeaderValue::from(code));
            }
            response
        }
    }
}

/// The first value of a name in a query.
pub(super) fn value(query: &str, name: &str) -> Option<String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let found = pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value);
    found.map(|value| value.replace('+', " ").replace("%2E", ".").replace("%2e", "."))
}

/// `/smcp/stats` for people, `/smcp/metrics` for Prometheus.
pub(super) fn counters(hub: Arc<Inner>) -> Router {
    Router::new()
        .route("/smcp/stats", get(stats))
        .route("/smcp/metrics", get(metrics))
        .with_state(hub)
}

fn may_see(hub: &Inner, headers: &HeaderMap) -> bool {
    let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    hub.config.access.admits_to_counters(shown.and_then(|shown| shown.strip_prefix("Bearer ")))
}

async fn stats(State(hub): State<Arc<Inner>>, headers: HeaderMap) -> Response {
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
