//! Servers with the handshake and without it: each works at the first try, and its era is remembered.

use std::sync::{Arc, Mutex};

use axum::{
    Json, Router,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use budao_core::fault::Kind;
use budao_mcp::{
    Era, McpServerConfig, ServerEnvironment, ServerHandle, ServerSet, ServerStore, Transport,
};
use budao_testkit::mcp::STATELESS;
use serde_json::{Value, json};

use crate::{
    common::{
        call, connect, done, failed, fake, is_ready, limits, names, quick, refused, seen, until,
        variables, within, world,
    },
    net::serve,
};

/// The methods of the requests that the fake has seen, before its tools were listed.
async fn beginning(server: &ServerHandle) -> Vec<String> {
    let all = done(call(server, "seen", json!({})).await);
    let all: Vec<Value> = serde_json::from_str(all.as_str().unwrap()).unwrap();
    let methods = all.iter().map(|message| message["method"].as_str().unwrap_or_default());
    methods.take_while(|method| *method != "tools/list").map(str::to_owned).collect()
}

/// A server of a set that remembers in `store`.
async fn with_store(config: McpServerConfig, store: &Arc<ServerStore>) -> ServerSet {
    let mut environment = ServerEnvironment::new(&variables(), &world(), &limits());
    environment.store = Arc::clone(store);
    let set = ServerSet::open_in([config], &environment).unwrap();
    within(set.iter().next().unwrap().ready()).await.unwrap();
    set
}

#[tokio::test]
async fn a_server_that_refuses_the_handshake_works_at_the_first_try() {
    let server = connect(fake(&["--stateless"])).await;
    assert_eq!(server.era(), Some(Era::Stateless));
    assert_eq!(server.about().unwrap().protocol, "2026-07-28");
    assert_eq!(done(call(&server, "echo", json!({ "text": "new" })).await), json!("new"));
    assert_eq!(beginning(&server).await, ["server/discover"]);
    within(server.shutdown()).await;
}

#[tokio::test]
async fn a_server_that_knows_only_the_handshake_works_at_the_first_try() {
    let server = connect(fake(&[])).await;
    assert_eq!(server.era(), Some(Era::Handshake));
    assert_eq!(done(call(&server, "echo", json!({ "text": "old" })).await), json!("old"));
    let began = ["server/discover", "initialize", "notifications/initialized"];
    assert_eq!(beginning(&server).await, began);
    within(server.shutdown()).await;
}

#[tokio::test]
async fn a_server_that_dies_of_the_probe_works_at_the_first_try_and_is_not_asked_again() {
    let store = Arc::default();
    for _ in 0..2 {
        let set = with_store(fake(&["--dies-at-probe"]), &store).await;
        let server = set.get("fake").unwrap();
        assert_eq!(server.era(), Some(Era::Handshake));
        assert_eq!(beginning(server).await, ["initialize", "notifications/initialized"]);
        within(set.shutdown()).await;
    }
}

#[tokio::test]
async fn a_server_that_ignores_the_probe_costs_its_wait_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("servers.json");
    let began = [
        vec!["server/discover", "initialize", "notifications/initialized"],
        vec!["initialize", "notifications/initialized"],
    ];
    for began in began {
        let store = Arc::new(ServerStore::open(&file).unwrap());
        let set = with_store(fake(&["--mute-probe"]), &store).await;
        let server = set.get("fake").unwrap();
        assert_eq!(beginning(server).await, began);
        within(set.shutdown()).await;
    }
}

#[tokio::test]
async fn a_server_that_changed_its_era_since_the_last_run_works_at_the_first_try() {
    let store = Arc::default();
    let old = || fake(&["--lingers"]);
    let new = || {
        let mut config = old();
        let Transport::Stdio(stdio) = &mut config.transport else { unreachable!() };
        stdio.env.insert(STATELESS.into(), "1".to_owned().into());
        config
    };
    for (config, era) in [
        (old(), Era::Handshake),
        (new(), Era::Stateless),
        (new(), Era::Stateless),
        (old(), Era::Handshake),
    ] {
        let set = with_store(config, &store).await;
        let server = set.get("fake").unwrap();
        assert_eq!(server.era(), Some(era));
        assert_eq!(done(call(server, "echo", json!({ "text": "x" })).await), json!("x"));
        within(set.shutdown()).await;
    }
}

#[tokio::test]
async fn a_server_without_a_handshake_notifies_subscribers_of_changed_tools() {
    let server = connect(fake(&["--stateless"])).await;
    within(async { while seen(&server, "subscriptions/listen").await.is_empty() {} }).await;
    done(call(&server, "grow", json!({})).await);
    let has_extra = |_: &u64| names(&server).contains(&"mcp__fake__extra".to_owned());
    within(server.watch().wait_for(has_extra)).await.unwrap();
    done(call(&server, "shrink", json!({})).await);
    within(server.watch().wait_for(|generation| !has_extra(generation))).await.unwrap();
    within(server.shutdown()).await;
}

#[tokio::test]
async fn a_dead_server_without_a_handshake_comes_back_as_one() {
    let server = connect(fake(&["--stateless"])).await;
    let before = server.generation();
    let fault = failed(call(&server, "die_reading", json!({})).await).fault;
    assert_eq!(fault.kind(), Kind::McpServerFailed, "{fault}");
    within(server.watch().wait_for(|generation| *generation >= before + 2)).await.unwrap();
    until(&server, is_ready).await;
    assert_eq!(done(call(&server, "echo", json!({ "text": "back" })).await), json!("back"));
    assert_eq!(server.era(), Some(Era::Stateless));
    within(server.shutdown()).await;
}

/// A server on the net of one era; it keeps the headers and methods that it saw.
#[derive(Clone, Default)]
struct NetServer {
    seen: Arc<Mutex<Vec<(String, HeaderMap)>>>,
    is_stateless: bool,
    /// What a server with sessions answers to a request outside of one.
    rejection: Option<(StatusCode, &'static str)>,
}

impl NetServer {
    async fn answer(self, headers: HeaderMap, message: Value) -> Response {
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        self.seen.lock().unwrap().push((method.clone(), headers.clone()));
        let id = message["id"].clone();
        let rpc = |result: Value| {
            Json(json!({ "jsonrpc": "2.0", "id": id, "result": result })).into_response()
        };
        let error = |status: StatusCode, code: i64, id: &Value| {
            let error = json!({ "code": code, "message": "no" });
            (status, Json(json!({ "jsonrpc": "2.0", "id": id, "error": error }))).into_response()
        };
        if let (Some((status, body)), None) = (self.rejection, headers.get("mcp-session-id"))
            && method != "initialize"
        {
            return (status, body).into_response();
        }
        match (method.as_str(), self.is_stateless) {
            ("initialize", true) => error(StatusCode::BAD_REQUEST, -32022, &id),
            ("server/discover", false) => error(StatusCode::NOT_FOUND, -32601, &Value::Null),
            ("server/discover", true) => rpc(json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": { "tools": {} }, "ttlMs": 0, "cacheScope": "private",
            })),
            ("initialize", false) => {
                let result = json!({
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": { "tools": {} },
                    "serverInfo": { "name": "net", "version": "0" },
                });
                let body = Json(json!({ "jsonrpc": "2.0", "id": id, "result": result }));
                ([("mcp-session-id", "s1")], body).into_response()
            }
            ("tools/list", _) => {
                let tool = json!({ "name": "echo", "inputSchema": { "type": "object" } });
                rpc(
                    json!({ "resultType": "complete", "tools": [tool], "ttlMs": 0, "cacheScope": "private" }),
                )
            }
            ("tools/call", _) => {
                let content = [json!({ "type": "text", "text": "fine" })];
                rpc(json!({ "resultType": "complete", "content": content }))
            }
            _ => StatusCode::ACCEPTED.into_response(),
        }
    }

    fn router(&self) -> Router {
        let server = self.clone();
        Router::new().route(
            "/mcp",
            post(move |headers: HeaderMap, Json(message): Json<Value>| {
                server.clone().answer(headers, message)
            }),
        )
    }

    fn methods(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|(method, _)| method.clone()).collect()
    }
}

fn http(url: &str) -> McpServerConfig {
    let mut config = McpServerConfig::http("net", url);
    config.reconnect = quick();
    config
}

#[tokio::test]
async fn a_server_on_the_net_without_a_handshake_gets_its_headers_and_no_session() {
    let net = NetServer { is_stateless: true, ..NetServer::default() };
    let url = serve(net.router()).await + "/mcp";
    let server = connect(http(&url)).await;
    assert_eq!(server.era(), Some(Era::Stateless));
    assert_eq!(done(call(&server, "echo", json!({})).await), json!("fine"));
    within(server.shutdown()).await;
    assert_eq!(net.methods()[..3], ["server/discover", "tools/list", "tools/call"]);
    for (method, headers) in net.seen.lock().unwrap().iter() {
        assert_eq!(headers["mcp-protocol-version"], "2026-07-28", "{method}");
        assert_eq!(headers["mcp-method"].to_str().unwrap(), method);
        assert!(!headers.contains_key("mcp-session-id"), "{method}");
    }
}

/// What servers of others answer to a request that does not belong to a session.
#[tokio::test]
async fn a_server_on_the_net_with_sessions_works_at_the_first_try_however_it_rejects_the_probe() {
    let rejections = [
        None,
        Some((StatusCode::BAD_REQUEST, "")),
        Some((StatusCode::BAD_REQUEST, "Bad Request: No valid session ID provided")),
        Some((StatusCode::NOT_FOUND, "<html>not found</html>")),
        Some((
            StatusCode::BAD_REQUEST,
            r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Missing session ID"}}"#,
        )),
        Some((StatusCode::UNPROCESSABLE_ENTITY, "{\"detail\":\"no\"}")),
    ];
    for rejection in rejections {
        let net = NetServer { rejection, ..NetServer::default() };
        let url = serve(net.router()).await + "/mcp";
        let server = connect(http(&url)).await;
        assert_eq!(server.era(), Some(Era::Handshake), "{rejection:?}");
        assert_eq!(done(call(&server, "echo", json!({})).await), json!("fine"), "{rejection:?}");
        within(server.shutdown()).await;
        assert_eq!(net.methods()[..2], ["server/discover", "initialize"], "{rejection:?}");
    }
}

#[tokio::test]
async fn a_server_that_keeps_the_probe_waiting_is_reached_by_the_handshake() {
    let net = NetServer::default();
    let server = net.clone();
    let router = Router::new().route(
        "/mcp",
        post(move |headers: HeaderMap, Json(message): Json<Value>| async move {
            if message["method"] == "server/discover" {
                std::future::pending::<()>().await;
            }
            server.answer(headers, message).await
        }),
    );
    let server = connect(http(&(serve(router).await + "/mcp"))).await;
    assert_eq!(server.era(), Some(Era::Handshake));
    within(server.shutdown()).await;
}

#[tokio::test]
async fn a_url_of_the_older_transport_is_found_out_although_it_was_configured_as_the_newer_one() {
    // The stream stays open; answers to posted messages go to it.
    let sender = tokio::sync::broadcast::Sender::<String>::new(64);
    let (net, subscribed) = (NetServer::default(), sender.clone());
    let stream = move || {
        let receiver = subscribed.subscribe();
        async move {
            let first = "event: endpoint\ndata: /messages\n\n".to_owned();
            let events =
                futures::stream::unfold((Some(first), receiver), |(first, mut receiver)| async {
                    let event = match first {
                        Some(first) => first,
                        None => receiver.recv().await.ok()?,
                    };
                    Some((Ok::<_, std::io::Error>(event), (None, receiver)))
                });
            ([(header::CONTENT_TYPE, "text/event-stream")], axum::body::Body::from_stream(events))
        }
    };
    let posted = move |Json(message): Json<Value>| {
        let (net, sender) = (net.clone(), sender.clone());
        async move {
            let response = net.answer(HeaderMap::new(), message).await;
            let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
            if !body.is_empty() {
                let text = String::from_utf8(body.to_vec()).unwrap();
                sender.send(format!("event: message\ndata: {text}\n\n")).unwrap();
            }
            StatusCode::ACCEPTED
        }
    };
    let router = Router::new().route("/sse", get(stream)).route("/messages", post(posted));
    let server = connect(http(&(serve(router).await + "/sse"))).await;
    assert_eq!(server.era(), Some(Era::EventStream));
    assert_eq!(done(call(&server, "echo", json!({})).await), json!("fine"));
    within(server.shutdown()).await;
}

#[tokio::test]
async fn a_server_that_wants_a_sign_in_is_not_asked_in_other_ways() {
    let count = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&count);
    let router = Router::new().route(
        "/mcp",
        post(move || async move {
            *counted.lock().unwrap() += 1;
            StatusCode::UNAUTHORIZED
        }),
    );
    let fault = refused(McpServerConfig::http("net", serve(router).await + "/mcp")).await;
    assert_eq!(fault.kind(), Kind::UpstreamSignInNeeded);
    assert_eq!(*count.lock().unwrap(), 1);
}
