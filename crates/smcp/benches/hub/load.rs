//! Rooms with an agent that asks and a computer that answers at once, each on a connection of its own.

use std::time::{Duration, Instant};

use budao_core::world::World;
use budao_smcp::wire::{NAMESPACE, PROTOCOL};
use budao_socketio::{Client, Config, Event, Events, Payload, Transports};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// An answer that takes longer is a lost one.
const LOST: Duration = Duration::from_secs(10);

/// What a run came to.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) calls: u64,
    pub(crate) lost: u64,
    pub(crate) wall: Duration,
    /// Every call's time, sorted.
    pub(crate) times: Vec<Duration>,
}

impl Run {
    pub(crate) fn quantile(&self, part: f64) -> Duration {
        let last = self.times.len().saturating_sub(1);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index"
        )]
        let index = (last as f64 * part) as usize;
        self.times.get(index).copied().unwrap_or_default()
    }
}

/// Agents and computers in their rooms.
pub(crate) struct Rooms {
    agents: Vec<Client>,
    _computers: Vec<Client>,
}

pub(crate) async fn connect(url: &str, world: &World) -> (Client, Events) {
    let dial = Config::new(url)
        .expect("an address")
        .query("a2c_version", &PROTOCOL.to_string())
        .namespace(NAMESPACE)
        .auth(json!({ "token": "right" }))
        .transports(Transports::WebSocket);
    Client::connect(dial, world.clone()).await.expect("the hub lets us in")
}

pub(crate) async fn join(client: &Client, role: &str, name: &str, room: &str) {
    let join_request = json!({ "role": role, "name": name, "office_id": room });
    // The published Rust hub may miss what is said right after the connection.
    for _ in 0..10 {
        let join_request = Payload::of(join_request.clone());
        let joined = client.call("server:join_office", join_request, Duration::from_secs(2)).await;
        if joined.is_ok_and(|answer| answer.first() == &Value::Bool(true)) {
            return;
        }
    }
    panic!("{name} may not join");
}

/// Answers every question at once.
async fn echo(mut events: Events) {
    while let Some(event) = events.next().await {
        let Event::Message { payload, reply: Some(reply), .. } = event else { continue };
        let text = payload.first()["params"]["n"].to_string();
        let answer = json!({ "content": [{ "type": "text", "text": text }], "isError": false });
        let _ = reply.send(Payload::of(answer)).await;
    }
}

impl Rooms {
    pub(crate) async fn open(url: &str, count: usize, world: &World) -> Self {
        let (mut agents, mut computers) = (Vec::new(), Vec::new());
        for number in 0..count {
            // Names are one for all rooms on the Python hub.
            let room = format!("room{number}");
            let (computer, requests) = connect(url, world).await;
            tokio::spawn(echo(requests));
            join(&computer, "computer", &format!("pc{number}"), &room).await;
            let (agent, mut room_events) = connect(url, world).await;
            tokio::spawn(async move { while room_events.next().await.is_some() {} });
            join(&agent, "agent", &format!("bot{number}"), &room).await;
            agents.push(agent);
            computers.push(computer);
        }
        Self { agents, _computers: computers }
    }

    /// Every agent asks, one question after the other.
    pub(crate) async fn run(&self, calls_each: u64) -> Run {
        let began = Instant::now();
        let mut tasks = JoinSet::new();
        for (number, agent) in self.agents.iter().enumerate() {
            tasks.spawn(ask(agent.clone(), number, calls_each));
        }
        let mut run = Run::default();
        while let Some(done) = tasks.join_next().await {
            let (times, lost) = done.expect("an agent goes on");
            run.calls += times.len() as u64;
            run.lost += lost;
            run.times.extend(times);
        }
        run.wall = began.elapsed();
        run.times.sort_unstable();
        run
    }
}

async fn ask(agent: Client, number: usize, calls: u64) -> (Vec<Duration>, u64) {
    let mut times = Vec::with_capacity(usize::try_from(calls).unwrap_or_default());
    let mut lost = 0;
    for call in 0..calls {
        let request = json!({
            "agent": format!("bot{number}"), "req_id": format!("{number}-{call}"),
            "computer": format!("pc{number}"), "tool_name": "echo", "params": { "n": call }, "timeout": 30,
        });
        let began = Instant::now();
        match agent.call("client:tool_call", Payload::of(request), LOST).await {
            Ok(answer) => {
                assert_eq!(
                    answer.first()["content"][0]["text"],
                    call.to_string(),
                    "its own answer"
                );
                times.push(began.elapsed());
            }
            Err(_) => lost += 1,
        }
    }
    (times, lost)
}
