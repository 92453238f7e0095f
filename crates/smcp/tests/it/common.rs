//! What the tests share: a hub, and members of its rooms.

use std::{path::PathBuf, time::Duration};

use budao_core::{retry::RetryPolicy, world::World};
use budao_smcp::{
    server::{Access, Config, Hub, Limits},
    wire::{NAMESPACE, PROTOCOL},
};
use budao_socketio::{Client, Config as Dial, Event, Events, Payload};
use budao_testkit::world;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// Nothing here takes this long unless it hangs.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, future).await.expect("hangs")
}

pub(crate) fn the_world() -> World {
    world::seeded(11)
}

/// A hub that listens.
pub(crate) struct RunningHub {
    pub(crate) hub: Hub,
    pub(crate) port: u16,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

pub(crate) fn config() -> Config {
    let limits = Limits { grace: Duration::from_millis(200), ..Limits::default() };
    Config { limits, ..Config::new(Access::Any) }
}

pub(crate) async fn start(config: Config) -> RunningHub {
    start_on(config, budao_testkit::port::free()).await
}

pub(crate) async fn start_on(config: Config, port: u16) -> RunningHub {
    let hub = Hub::new(config, the_world());
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let stop = CancellationToken::new();
    let serving = hub.clone().serve(listener, stop.clone().cancelled_owned());
    let task = tokio::spawn(serving);
    RunningHub { hub, port, stop, task }
}

impl RunningHub {
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn dial(&self) -> Dial {
        let base = Duration::from_millis(5);
        let policy = RetryPolicy { tries: u32::MAX, base, max: base * 8, ..RetryPolicy::default() };
        Dial::new(&self.url())
            .unwrap()
            .query("a2c_version", &PROTOCOL.to_string())
            .namespace(NAMESPACE)
            .reconnect(policy)
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        within(self.task).await.unwrap();
    }
}

/// A connection, and what it heard.
pub(crate) struct Peer {
    pub(crate) client: Client,
    pub(crate) events_received: mpsc::UnboundedReceiver<(String, Value)>,
}

pub(crate) async fn peer(hub: &RunningHub) -> Peer {
    let (client, events) = within(Client::connect(hub.dial(), the_world())).await.unwrap();
    let (sender, events_received) = mpsc::unbounded_channel();
    tokio::spawn(live(client.clone(), events, sender));
    Peer { client, events_received }
}

/// Answers as the tools below say, and notes everything that is not a question.
async fn live(
    _client: Client,
    mut events: Events,
    events_received: mpsc::UnboundedSender<(String, Value)>,
) {
    let mut slow = Vec::new();
    while let Some(event) = events.next().await {
        let Event::Message { name, payload, reply, .. } = event else { continue };
        let _ = events_received.send((name.clone(), payload.first().clone()));
        if name == "notify:tool_call_cancel" {
            let id = payload.first()["req_id"].clone();
            let found = slow.iter().position(|(req_id, _)| *req_id == id);
            if let Some(index) = found {
                let (_, reply): (Value, budao_socketio::Reply) = slow.remove(index);
                let meta = json!({ "a2c_cancelled": true, "a2c_cancel_reason": "agent_requested" });
                let _ = reply.send(Payload::of(failed("cancelled", &meta))).await;
            }
        }
        let Some(reply) = reply else { continue };
        if payload.first()["tool_name"] == "late" {
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(1400)).await;
                let _ = reply.send(Payload::of(text("too late"))).await;
            });
            continue;
        }
        match answer(&name, payload.first()) {
            Some(answer) => drop(reply.send(Payload::of(answer)).await),
            None => slow.push((payload.first()["req_id"].clone(), reply)),
        }
    }
}

pub(crate) fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }], "isError": false })
}

fn failed(text: &str, meta: &Value) -> Value {
    json!({ "content": [{ "type": "text", "text": text }], "isError": true, "meta": meta })
}

/// What the tools answer; nothing means not yet.
fn answer(event: &str, request: &Value) -> Option<Value> {
    if request["odd"] == true {
        return Some(json!({ "code": "E_DISK", "message": "disk full" }));
    }
    if event != "client:tool_call" {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
        let tool = |name: &str| json!({ "name": name, "bundle_id": "b", "description": name, "params_schema": schema, "return_schema": null });
        let tools = [tool("echo"), tool("flat"), json!({ "name": 5 })];
        return Some(json!({ "tools": tools, "seen": request, "req_id": request["req_id"] }));
    }
    Some(match request["tool_name"].as_str().unwrap() {
        "echo" => text(&request["params"].to_string()),
        "slow" => return None,
        "null" => Value::Null,
        "garbage" => json!("no result"),
        "object" => json!({ "neither": "nor" }),
        "odd code" => json!({ "code": "E_DISK", "message": "disk full, password=hunter2" }),
        "odd nested" => json!({ "error": { "code": 1.5, "message": "disk full" } }),
        "odd result" => {
            json!({ "code": -7, "content": [{ "type": "text", "text": "disk full" }], "isError": true })
        }
        "claims error" => json!({ "error": "it went wrong" }),
        "claims message" => json!({ "message": "it went wrong", "x": 1 }),
        "flat" => json!({ "code": 4001, "message": "no such tool", "trace_id": "kept" }),
        "leak" => failed("postgres://admin:hunter2@10.0.0.7:5432/db refused", &Value::Null),
        "big" => text(&"x".repeat(2_000_000)),
        "huge" => text(&"x".repeat(4_000_000)),
        other => panic!("no tool {other}"),
    })
}

impl Peer {
    pub(crate) async fn ask(&self, event: &str, payload: Value) -> Value {
        let pending_answer = self.client.call(event, Payload::of(payload), TEST_TIMEOUT);
        within(pending_answer).await.unwrap().into_first()
    }

    pub(crate) async fn ask_all(&self, event: &str, payload: Value) -> Vec<Value> {
        let pending_answer = self.client.call(event, Payload::of(payload), TEST_TIMEOUT);
        within(pending_answer).await.unwrap().args().to_vec()
    }

    pub(crate) async fn join(&self, role: &str, name: &str, room: &str) -> Vec<Value> {
        let join_request = json!({ "role": role, "name": name, "office_id": room });
        self.ask_all("server:join_office", join_request).await
    }

    pub(crate) async fn call(
        &self,
        computer: &str,
        tool: &str,
        req_id: &str,
        timeout: u64,
    ) -> Value {
        self.ask("client:tool_call", tool_call(computer, tool, req_id, timeout)).await
    }

    /// The next thing it hears by this name.
    pub(crate) async fn receive(&mut self, name: &str) -> Value {
        within(async {
            loop {
                let (events_received, payload) = self.events_received.recv().await.unwrap();
                if events_received == name {
                    return payload;
                }
            }
        })
        .await
    }

    /// Everything it heard so far, after a question that came and went.
    pub(crate) async fn received_so_far(&mut self) -> Vec<(String, Value)> {
        self.ask("anything", Value::Null).await;
        let mut all = Vec::new();
        while let Ok(events_received) = self.events_received.try_recv() {
            all.push(events_received);
        }
        all
    }
}

pub(crate) fn tool_call(computer: &str, tool: &str, req_id: &str, timeout: u64) -> Value {
    json!({
        "agent": "bot", "req_id": req_id, "computer": computer, "tool_name": tool,
        "params": { "n": 1 }, "timeout": timeout,
    })
}

/// Agent `bot` and computer `pc` in room `a`.
pub(crate) async fn pair(hub: &RunningHub) -> (Peer, Peer) {
    let (agent, computer) = (peer(hub).await, peer(hub).await);
    assert_eq!(computer.join("computer", "pc", "a").await, [json!(true), Value::Null]);
    assert_eq!(agent.join("agent", "bot", "a").await, [json!(true), Value::Null]);
    (agent, computer)
}

/// The peer's folder, or nothing and a loud word.
pub(crate) fn fetched(name: &str) -> Option<PathBuf> {
    fetched_if(name, std::env::var("CI").as_deref() == Ok("true"))
}

/// The same, of a peer that only the full check insists on.
pub(crate) fn fetched_for_full(name: &str) -> Option<PathBuf> {
    fetched_if(name, std::env::var_os("BUDAO_FULL").is_some())
}

fn fetched_if(name: &str, must: bool) -> Option<PathBuf> {
    let folder = std::env::var_os("BUDAO_PEERS")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/budao/peers")));
    let found = folder.map(|folder| folder.join(name)).filter(|path| path.exists());
    if found.is_none() {
        let advice = format!("NOT TESTED: a peer is missing; `cargo xtask peers {name}`");
        assert!(!must, "{advice}");
        eprintln!("\n*** {advice} ***\n");
    }
    found
}
