//! Every situation other hubs were measured in, answered by ours: how long each answer takes on the clock.
//!
//! What is refused by the hub, by a computer of ours with an MCP server behind it, and by a computer that answers nonsense.
//! Of calls that end by their time, what they took beyond it.

use std::time::{Duration, Instant};

use budao_core::world::World;
use budao_smcp::wire::{NAMESPACE, PROTOCOL};
use budao_socketio::{Client, Config, Event, Events, Payload, Transports};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    load::{connect, join},
    process::Process,
};

/// An answer that takes longer never comes.
const NEVER: Duration = Duration::from_secs(30);

/// A situation, and how long its answer took.
type Row = (&'static str, Duration);

/// Agent `bot` in room `a`, with our computer `pc` and an odd one, `odd`.
struct Fixture {
    url: String,
    world: World,
    agent: Client,
    odd: Option<Client>,
    /// What the odd computer was asked and does not answer.
    held: mpsc::Receiver<Value>,
    rows: Vec<Row>,
    requests: u64,
}

/// Measures every row. `hub` admits whoever shows the right token.
pub(super) async fn measure(hub: &Process, world: World) -> Vec<Row> {
    let url = hub.url();
    let (odd, requests) = connect(&url, &world).await;
    let (sender, held) = mpsc::channel(16);
    tokio::spawn(be_odd(requests, sender));
    join(&odd, "computer", "odd", "a").await;
    let agent = silent(&url, &world).await;
    let mut stage =
        Fixture { url, world, agent, odd: Some(odd), held, rows: Vec::new(), requests: 0 };
    stage.before().await;
    join(&stage.agent, "agent", "bot", "a").await;
    stage.until_ready().await;
    stage.rooms().await;
    stage.fields().await;
    stage.tools().await;
    stage.nonsense().await;
    stage.sizes().await;
    stage.ends().await;
    stage.rows
}

/// A connection whose news nobody reads.
async fn silent(url: &str, world: &World) -> Client {
    let (client, mut room_events) = connect(url, world).await;
    tokio::spawn(async move { while room_events.next().await.is_some() {} });
    client
}

/// Answers as no computer should; what it is to be slow at is held.
async fn be_odd(mut events: Events, held: mpsc::Sender<Value>) {
    let mut waiting = Vec::new();
    while let Some(event) = events.next().await {
        let Event::Message { payload, reply: Some(reply), .. } = event else { continue };
        let request = payload.into_first();
        let flat = json!({ "code": 4001, "message": "no such tool", "trace_id": "kept" });
        let answer = match request["tool_name"].as_str() {
            Some("null") => Value::Null,
            Some("garbage") => json!("no result"),
            Some("big") => {
                json!({ "isError": false, "content": [{ "type": "text", "text": "x".repeat(2_000_000) }] })
            }
            Some("hold") => {
                waiting.push(reply);
                let _ = held.send(request).await;
                continue;
            }
            _ => flat,
        };
        let _ = reply.send(Payload::of(answer)).await;
    }
}

impl Fixture {
    #[expect(clippy::needless_pass_by_value, reason = "parameters are written where they are sent")]
    fn call(&mut self, computer: &str, tool: &str, params: Value) -> Value {
        self.requests += 1;
        json!({
            "agent": "bot", "req_id": format!("r{}", self.requests), "computer": computer,
            "tool_name": tool, "params": params, "timeout": 20,
        })
    }

    /// Asks, and notes how long the answer took; `words` must be in it.
    async fn row(&mut self, name: &'static str, event: &str, request: Value, words: &str) {
        let began = Instant::now();
        let answer = self.agent.call(event, Payload::of(request), NEVER).await;
        let took = began.elapsed();
        let answer = answer.unwrap_or_else(|error| panic!("{name}: no answer: {error}"));
        let text: String = answer.args().iter().map(Value::to_string).collect();
        assert!(text.contains(words), "{name}: {words} is not in {text:.300}");
        self.rows.push((name, took));
    }

    async fn called(
        &mut self,
        name: &'static str,
        computer: &str,
        tool: &str,
        params: Value,
        words: &str,
    ) {
        let request = self.call(computer, tool, params);
        self.row(name, "client:tool_call", request, words).await;
    }

    /// Before the agent is in a room.
    async fn before(&mut self) {
        let began = Instant::now();
        let config = Config::new(&self.url).expect("an address");
        let config = config.query("a2c_version", &PROTOCOL.to_string()).namespace(NAMESPACE);
        let config = config.auth(json!({ "token": "wrong" })).transports(Transports::WebSocket);
        let refused =
            Client::connect(config, self.world.clone()).await.map(drop).expect_err("it is refused");
        self.rows.push(("wrong token", began.elapsed()));
        assert!(refused.to_string().contains("401"), "{refused}");
        self.called("call outside of rooms", "pc", "t", json!({}), "4103").await;
        let tools = json!({ "agent": "bot", "req_id": "t", "computer": "pc" });
        self.row("list of tools outside of rooms", "client:get_tools", tools, "4103").await;
        let king = json!({ "role": "king", "name": "x", "office_id": "a" });
        self.row("join in no role", "server:join_office", king, "400").await;
    }

    /// Until the computer's MCP server has told its tools.
    async fn until_ready(&self) {
        let ask = json!({ "agent": "bot", "req_id": "t", "computer": "pc" });
        loop {
            let answer = self.agent.call("client:get_tools", Payload::of(ask.clone()), NEVER).await;
            let answer = answer.expect("it is answered").into_first();
            if answer["tools"].as_array().is_some_and(|tools| !tools.is_empty()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn rooms(&mut self) {
        let join = |role: &str, name: &str, room: &str| json!({ "role": role, "name": name, "office_id": room });
        let event = "server:join_office";
        self.row("join again", event, join("agent", "bot", "a"), "true").await;
        self.row("second room", event, join("agent", "bot", "b"), "403").await;
        self.row("other role", event, join("computer", "bot", "a"), "403").await;
        let list = json!({ "agent": "bot", "req_id": "l", "office_id": "b" });
        self.row("list of another room", "server:list_room", list, "4102").await;
        let other = silent(&self.url, &self.world).await;
        super::load::join(&other, "computer", "far", "b").await;
        self.called("call across rooms", "far", "t", json!({}), "4104").await;
        self.called("unknown computer", "nobody", "t", json!({}), "404").await;
        self.called("an agent as target", "bot", "t", json!({}), "404").await;
        // As somebody else: a second agent, and a computer that asks.
        let own = std::mem::replace(&mut self.agent, other);
        self.called("a computer that calls", "pc", "t", json!({}), "403").await;
        self.agent = silent(&self.url, &self.world).await;
        self.row("full room", event, join("agent", "late", "a"), "4101").await;
        self.agent = own;
    }

    async fn fields(&mut self) {
        for (name, field, value) in [
            ("missing field", "tool_name", Value::Null),
            ("ill-typed field", "params", json!(1)),
            ("timeout 0", "timeout", json!(0)),
            ("timeout -5", "timeout", json!(-5)),
        ] {
            let mut request = self.call("pc", "tools__echo", json!({}));
            request[field] = value;
            self.row(name, "client:tool_call", request, "\"code\":400").await;
        }
        let mut request = self.call("pc", "tools__echo", json!({}));
        request["agent"] = "somebody else".into();
        self.row("false name of the agent", "client:tool_call", request, "403").await;
        self.row("unknown event", "no:such_event", json!({}), "400").await;
        let cancel = json!({ "agent": "bot", "req_id": "none" });
        self.row("cancel of nothing", "server:tool_call_cancel", cancel, "null").await;
        let cancel = json!({ "agent": "other", "req_id": "none" });
        self.row("cancel by a false name", "server:tool_call_cancel", cancel, "403").await;
    }

    async fn tools(&mut self) {
        self.called("an answer", "pc", "tools__echo", json!({ "text": "hi" }), "hi").await;
        self.called("unknown tool", "pc", "tools__none", json!({}), "4001").await;
        self.called("forbidden tool", "pc", "tools__add", json!({}), "4002").await;
        self.called("a tool that says no", "pc", "tools__no", json!({}), "4003").await;
        self.called("wrong arguments", "pc", "tools__echo", json!({ "text": 5 }), "400").await;
        self.called("nobody confirms", "pc", "tools__env", json!({ "name": "A" }), "4005").await;
        self.called("an error of the MCP server", "pc", "tools__error", json!({}), "4003").await;
    }

    async fn nonsense(&mut self) {
        self.called("a computer answers null", "odd", "null", json!({}), "500").await;
        self.called("a computer answers nonsense", "odd", "garbage", json!({}), "500").await;
        self.called("a computer answers an error", "odd", "flat", json!({}), "kept").await;
        let tools = json!({ "agent": "bot", "req_id": "t", "computer": "odd" });
        self.row("an error instead of tools", "client:get_tools", tools, "4001").await;
    }

    async fn sizes(&mut self) {
        self.called("2 MB of text, passed on", "odd", "big", json!({}), "xxxx").await;
        let text = json!({ "text": "x".repeat(2_000_000) });
        self.called("2 MB of arguments", "pc", "tools__echo", text, "400").await;
        let (huge, picture) = (json!({ "bytes": 2_000_000 }), json!({ "base64": 2_000_000 }));
        self.called("2 MB of text, stored as a blob", "pc", "tools__huge", huge, "a2c_blob_handle")
            .await;
        self.called("a picture of 1.5 MB", "pc", "tools__picture", picture, "a2c_blob_handle")
            .await;
        let blob = json!({ "agent": "bot", "req_id": "b", "computer": "pc", "blob_handle": "x" });
        self.row("data that is not there", "client:get_blob", blob, "4018").await;
    }

    /// Calls that are ended: by a cancel, by their time, with their computer or with its MCP server.
    async fn ends(&mut self) {
        let mut late = self.call("pc", "tools__slow", json!({}));
        late["timeout"] = 1.into();
        self.row("beyond its time", "client:tool_call", late, "4004").await;
        if let Some((_, took)) = self.rows.last_mut() {
            *took = took.saturating_sub(Duration::from_secs(1));
        }
        let slow = self.call("pc", "tools__slow", json!({}));
        let requests = self.start(slow.clone()).await;
        self.row("the same id again", "client:tool_call", slow.clone(), "400").await;
        let began = Instant::now();
        let cancel = json!({ "agent": "bot", "req_id": slow["req_id"] });
        let _ = self.agent.emit("server:tool_call_cancel", Payload::of(cancel)).await;
        self.ended("cancel", began, requests, "a2c_cancelled").await;
        self.called("an MCP server that dies", "pc", "tools__die", json!({}), "4003").await;
        let held = self.call("odd", "hold", json!({}));
        let requests = self.start(held).await;
        self.held.recv().await.expect("it was asked");
        let began = Instant::now();
        self.odd.take().expect("it is there").close();
        self.ended("a computer that goes", began, requests, "404").await;
    }

    /// Puts a call on its way: what is asked next comes after it.
    async fn start(&self, request: Value) -> tokio::task::JoinHandle<Value> {
        let agent = self.agent.clone();
        let mut requests = Box::pin(async move {
            let answer = agent.call("client:tool_call", Payload::of(request), NEVER).await;
            answer.expect("it is answered").into_first()
        });
        let early = futures::poll!(&mut requests);
        assert!(early.is_pending(), "nobody answers before being asked");
        tokio::spawn(requests)
    }

    async fn ended(
        &mut self,
        name: &'static str,
        began: Instant,
        requests: tokio::task::JoinHandle<Value>,
        words: &str,
    ) {
        let answer = requests.await.expect("it goes on").to_string();
        self.rows.push((name, began.elapsed()));
        assert!(answer.contains(words), "{name}: {answer}");
    }
}
