//! A server that speaks the older HTTP protocol, behind our computer: events one way, posts the other.

use budao_smcp::codes::smcp_code;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    body::Body,
    extract::{Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use budao_smcp::{
    agent::RoomEvent,
    computer::{Computer, Config, Settings},
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{
    common::{config, start, the_world, within},
    computer::{FixedValues, agent, call, member_config, tools},
};

/// The streams that are open, by their number; what is told on them is text.
#[derive(Clone, Default)]
struct LegacySseServer {
    streams: Arc<Mutex<HashMap<u64, mpsc::UnboundedSender<String>>>>,
    opened: Arc<AtomicU64>,
    /// Tools besides the first two.
    more: Arc<AtomicU64>,
}

impl LegacySseServer {
    fn send(&self, stream: u64, message: &Value) {
        let streams = self.streams.lock().unwrap();
        let _ = streams[&stream].send(format!("event: message\ndata: {message}\n\n"));
    }

    /// Ends every stream, as a server does that is started anew.
    fn cut(&self) {
        self.streams.lock().unwrap().clear();
    }

    fn change_tools(&self) {
        self.more.fetch_add(1, Ordering::SeqCst);
        let notification =
            json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
        let streams: Vec<u64> = self.streams.lock().unwrap().keys().copied().collect();
        streams.into_iter().for_each(|stream| self.send(stream, &notification));
    }
}

async fn open(State(older): State<LegacySseServer>, headers: HeaderMap) -> Response {
    if headers.get("x-key").is_none_or(|key| key != "open-sesame") {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let number = older.opened.fetch_add(1, Ordering::SeqCst);
    let (sender, echoed) = mpsc::unbounded_channel();
    let _ = sender.send(format!("event: endpoint\ndata: /message?stream={number}\n\n"));
    older.streams.lock().unwrap().insert(number, sender);
    let events = futures::stream::unfold(echoed, async |mut echoed| {
        echoed.recv().await.map(|text| (Ok::<_, std::io::Error>(text), echoed))
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response()
}

async fn take(
    State(older): State<LegacySseServer>,
    Query(query): Query<HashMap<String, u64>>,
    Json(message): Json<Value>,
) -> StatusCode {
    let params = &message["params"];
    let result = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": params["protocolVersion"],
            "capabilities": { "tools": { "listChanged": true } },
            "serverInfo": { "name": "older", "version": "0" },
        }),
        Some("tools/list") => {
            let tool = |name: String| json!({ "name": name, "inputSchema": { "type": "object" } });
            let more = (0..older.more.load(Ordering::SeqCst)).map(|n| format!("more{n}"));
            let names = ["echo".to_owned(), "no".to_owned()].into_iter().chain(more);
            json!({ "tools": names.map(tool).collect::<Vec<_>>() })
        }
        Some("tools/call") if params["name"] == "no" => {
            json!({ "isError": true, "content": [{ "type": "text", "text": "not today" }] })
        }
        Some("tools/call") => {
            json!({ "content": [{ "type": "text", "text": params["arguments"]["text"] }] })
        }
        _ => return StatusCode::ACCEPTED,
    };
    let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
    older.send(query["stream"], &answer);
    StatusCode::ACCEPTED
}

async fn serve() -> (LegacySseServer, String) {
    let older = LegacySseServer::default();
    let router = Router::new().route("/sse", get(open)).route("/message", post(take));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/sse", listener.local_addr().unwrap());
    let router = router.with_state(older.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (older, url)
}

#[tokio::test]
async fn a_server_of_the_older_protocol_behind_a_computer_answers_changes_and_comes_back() {
    let hub = start(config()).await;
    let (older, url) = serve().await;
    let file = json!({ "servers": [{
        "name": "older", "type": "sse", "default_tool_meta": { "auto_apply": true },
        "server_parameters": { "url": url, "timeout": 10.0, "headers": { "x-key": "open-sesame" } },
    }] });
    let settings = Settings::read(&file.to_string()).unwrap();
    let starting = Computer::start(
        Config::new(member_config(&hub, "pc")),
        settings,
        &FixedValues,
        the_world(),
    );
    let computer = within(starting).await.unwrap();
    let agent = agent(&hub).await;
    assert_eq!(tools(&agent).await, ["older__echo", "older__no"]);
    let echoed = call(&agent, "older__echo", json!({ "text": "你好" }), 10).await.unwrap();
    assert_eq!(echoed["content"][0]["text"], "你好");
    let no = call(&agent, "older__no", json!({}), 10).await.unwrap_err();
    assert_eq!(smcp_code(no.kind()), 4003, "{no}");

    let mut room_events = agent.events();
    older.change_tools();
    within(async {
        while room_events.recv().await.unwrap() != RoomEvent::ToolsChanged("pc".into()) {}
    })
    .await;
    assert_eq!(tools(&agent).await, ["older__echo", "older__no", "older__more0"]);

    older.cut();
    within(async {
        while call(&agent, "older__echo", json!({ "text": "again" }), 10).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(older.opened.load(Ordering::SeqCst) >= 2, "on a stream of its own");
    computer.shutdown().await;
}
