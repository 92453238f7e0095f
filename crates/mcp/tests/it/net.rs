//! Servers on the net that misbehave.

use std::sync::{Arc, Mutex};

use axum::{
    Json, Router,
    body::Body,
    extract::State as Extract,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Redirect, Response},
    routing::{any, get, post},
};
use budao_core::fault::{Fact, Kind};
use budao_mcp::{McpServerConfig, Transport};
use budao_testkit::port::Refusing;
use serde_json::{Value, json};

use crate::common::{call, connect, done, failed, quick, refused, within};

/// Serves on a port of its own; the address.
pub(crate) async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

fn http(url: String) -> McpServerConfig {
    let mut config = McpServerConfig::http("net", url);
    config.reconnect = quick();
    config
}

/// A server without sessions that answers every post with one JSON text.
async fn plain(message: Value) -> Response {
    let id = message["id"].clone();
    let result = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "plain", "version": "0" },
        }),
        Some("tools/list") => {
            let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
            let names = ["echo", "huge", "huge_event", "broken", "limited", "html", "cut"];
            json!({ "tools": names.map(tool) })
        }
        Some("tools/call") => return call_result(&id, &message["params"]),
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    Json(json!({ "jsonrpc": "2.0", "id": id, "result": result })).into_response()
}

fn call_result(id: &Value, params: &Value) -> Response {
    let text = |text: String| {
        let content = [json!({ "type": "text", "text": text })];
        Json(json!({ "jsonrpc": "2.0", "id": id, "result": { "content": content } }))
            .into_response()
    };
    let json = [(header::CONTENT_TYPE, "application/json")];
    match params["name"].as_str().unwrap_or_default() {
        "huge" => text("x".repeat(17 * 1024 * 1024)),
        "huge_event" => {
            let events = [(header::CONTENT_TYPE, "text/event-stream")];
            (events, format!("data: {}\n\n", "x".repeat(17 * 1024 * 1024))).into_response()
        }
        "broken" => (json, "{\"jsonrpc\":\"2.0\",").into_response(),
        "html" => axum::response::Html("<h1>hello</h1>").into_response(),
        "limited" => (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "9")]).into_response(),
        "cut" => {
            // An event stream that ends before the answer.
            let events = [(header::CONTENT_TYPE, "text/event-stream")];
            (events, Body::from(": nothing\n\n")).into_response()
        }
        _ => text("fine".into()),
    }
}

fn plain_router() -> Router {
    Router::new().route("/mcp", post(|Json(message): Json<Value>| plain(message)))
}

#[tokio::test]
async fn a_server_without_sessions_and_streams_works() {
    let server = connect(http(serve(plain_router()).await + "/mcp")).await;
    assert_eq!(done(call(&server, "echo", json!({})).await), json!("fine"));
    within(server.shutdown()).await;
}

#[tokio::test]
async fn an_answer_of_the_net_that_is_too_long_broken_or_foreign_fails_its_call_only() {
    let server = connect(http(serve(plain_router()).await + "/mcp")).await;
    let cases = [
        ("huge", Kind::OutputTooLarge),
        // Of a stream it is not known what else it would have brought.
        ("huge_event", Kind::OutcomeUnknown),
        ("broken", Kind::McpServerFailed),
        ("html", Kind::McpServerFailed),
    ];
    for (tool, kind) in cases {
        let fault = failed(call(&server, tool, json!({})).await).fault;
        assert_eq!(fault.kind(), kind, "{tool}: {fault}");
        assert_eq!(done(call(&server, "echo", json!({})).await), json!("fine"));
    }
    let fault = failed(call(&server, "limited", json!({})).await).fault;
    assert_eq!(fault.kind(), Kind::ServiceRateLimited, "{fault}");
    assert_eq!(fault.retry_hint().unwrap().as_secs(), 9);
    within(server.shutdown()).await;
}

#[tokio::test]
async fn a_stream_that_ends_before_the_answer_fails_its_call_soon() {
    let server = connect(http(serve(plain_router()).await + "/mcp")).await;
    let fault = failed(call(&server, "cut", json!({})).await).fault;
    assert!(matches!(fault.kind(), Kind::McpServerFailed | Kind::OutcomeUnknown), "{fault}");
    within(server.shutdown()).await;
}

#[tokio::test]
async fn an_address_without_a_listener_is_unreachable() {
    let nobody = Refusing::take();
    let url = format!("http://{}/mcp", nobody.address());
    for config in [McpServerConfig::http("net", &url), McpServerConfig::sse("net", &url)] {
        let fault = refused(config).await;
        assert_eq!(fault.kind(), Kind::McpServerFailed);
        assert_eq!(fault.detail().text(Fact::Reason), Some("it cannot be reached"), "{fault:?}");
    }
}

#[tokio::test]
async fn a_needed_and_a_refused_login_have_faults_of_their_own() {
    let url = serve(
        Router::new()
            .route("/401", any(StatusCode::UNAUTHORIZED))
            .route("/403", any(StatusCode::FORBIDDEN)),
    )
    .await;
    let cases = [("401", Kind::UpstreamSignInNeeded), ("403", Kind::UpstreamSignInRefused)];
    for (path, kind) in cases {
        let url = format!("{url}/{path}");
        assert_eq!(refused(McpServerConfig::http("net", &url)).await.kind(), kind);
        assert_eq!(refused(McpServerConfig::sse("net", &url)).await.kind(), kind);
    }
}

/// What requests a place has seen.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<HeaderMap>>>);

#[tokio::test]
async fn configured_headers_go_to_the_server_and_never_to_another_origin() {
    let elsewhere = Seen::default();
    let other = Router::new()
        .fallback(any(|Extract(seen): Extract<Seen>, headers: HeaderMap| async move {
            seen.0.lock().unwrap().push(headers);
            StatusCode::OK
        }))
        .with_state(elsewhere.clone());
    let other = serve(other).await;
    let seen = Seen::default();
    let router =
        Router::new()
            .route(
                "/mcp",
                post(
                    |Extract(seen): Extract<Seen>,
                     headers: HeaderMap,
                     Json(message): Json<Value>| async move {
                        seen.0.lock().unwrap().push(headers);
                        plain(message).await
                    },
                ),
            )
            .route("/moved", any(|| async { Redirect::temporary("/mcp") }))
            .route(
                "/away",
                any(move || async move { Redirect::temporary(&format!("{other}/mcp")) }),
            )
            .with_state(seen.clone());
    let url = serve(router).await;
    let with_key = |path: &str| {
        let mut config = http(format!("{url}{path}"));
        if let Transport::Http(address) = &mut config.transport {
            address.headers.insert("x-api-key".into(), "correct-horse-battery".to_owned().into());
        }
        config
    };
    let server = connect(with_key("/moved")).await;
    assert_eq!(done(call(&server, "echo", json!({})).await), json!("fine"));
    within(server.shutdown()).await;
    assert!(seen.0.lock().unwrap().iter().all(|it| it["x-api-key"] == "correct-horse-battery"));
    let fault = refused(with_key("/away")).await;
    assert_eq!(fault.kind(), Kind::McpServerFailed);
    assert!(!format!("{fault:?}").contains("correct-horse"));
    assert!(elsewhere.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_older_server_that_sends_us_elsewhere_is_refused() {
    let events = |text: &'static str| {
        get(move || async move { ([(header::CONTENT_TYPE, "text/event-stream")], text) })
    };
    let router = Router::new()
        .route("/away", events("event: endpoint\ndata: http://evil.example/post\n\n"))
        .route("/none", events(": nothing\n\n"))
        .route("/html", get(|| async { axum::response::Html("<h1>hello</h1>") }));
    let url = serve(router).await;
    for path in ["/away", "/none", "/html"] {
        let fault = refused(McpServerConfig::sse("net", format!("{url}{path}"))).await;
        assert_eq!(fault.kind(), Kind::McpServerFailed, "{path}: {fault}");
    }
}
