//! Crowds: readers that stand still, requests that never end, clients that ask for everything again and again. What they
//! cost other clients is bounded. Suites T13 and T14 of `docs/security.md`; `BUDAO_FULL` makes the crowds large.
//!
//! How long others had to wait is printed and not judged: crowd, clients and server are one process here. The bench
//! `serve/beside_*` judges it, with processes of their own. What is judged here is that they heard everything, that who
//! does not read is let go, that who replays for ever is served slowly, and what is kept for them.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use budao_client::{Event, Events, Session};
use budao_models::script::{Script, StepOrder};
use budao_serve::Rate;
use futures::{SinkExt as _, StreamExt as _, future::join_all};
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    time::{ClockId, clock_gettime},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    sync::Notify,
    task::JoinSet,
};
use tokio_tungstenite::{WebSocketStream, client_async, tungstenite::Message};

use crate::fixture::{Fixture, Peer, Setup, TEST_TIMEOUT, replay, texts_by_event, until};

/// The kernel keeps so little on either side that a reader stands still after a few frames.
const SMALL: u32 = 8 * 1024;
/// What may wait for a reader that stands still.
const EACH: usize = 64 * 1024;
/// What a line costs by itself, in a build without optimisation: its tasks, and the copy its transport keeps.
const LINE: usize = 32 * 1024;
/// Warming up, and what an allocator keeps.
const SLACK: usize = 32 << 20;

fn is_full() -> bool {
    std::env::var_os("BUDAO_FULL").is_some()
}

/// How many sockets this process may open, as many as it can have.
fn sockets() -> usize {
    let wanted = Rlimit { current: Some(65_536), maximum: Some(65_536) };
    let _ = setrlimit(Resource::Nofile, wanted);
    let now = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, ..now });
    let now = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(now).unwrap_or(usize::MAX)
}

/// An answer of some kilobytes to every message.
fn talkative() -> Script {
    let answer = "a word or two ".repeat(600);
    (0..200).fold(Script::new(), |script, _| script.say(answer.clone())).order(StepOrder::History)
}

fn back(session: &str, seq: u64) -> Message {
    let frame =
        json!({"event": "user.reconnect", "session_id": session, "content": {"last_seq": seq}});
    Message::text(frame.to_string())
}

/// A line with small buffers that has been greeted.
async fn line(address: SocketAddr) -> WebSocketStream<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(SMALL).unwrap();
    let stream = socket.connect(address).await.unwrap();
    let (mut line, _) = client_async(format!("ws://{address}/ws"), stream).await.unwrap();
    let greeting = tokio::time::timeout(TEST_TIMEOUT, line.next()).await.expect("in time");
    assert!(greeting.unwrap().unwrap().to_text().unwrap().contains("system.connected"));
    line
}

/// Asks for a session and never reads again.
async fn stalled(address: SocketAddr, session: &str, seq: u64) -> TcpStream {
    let mut line = line(address).await;
    line.send(back(session, seq)).await.unwrap();
    line.into_inner()
}

/// A number of this process, from `/proc/self/status`, in bytes.
fn memory(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    let kilobytes: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes * 1024
}

fn processor() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
}

/// A number the server tells.
async fn meter(address: SocketAddr, name: &str) -> usize {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let ask = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).await.unwrap();
    let mut received_text = String::new();
    stream.read_to_string(&mut received_text).await.unwrap();
    let value = received_text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name} in {received_text}")).parse::<f64>().unwrap() as usize
}

/// Waits until the server has no more connections than these.
async fn alone(address: SocketAddr, connections: usize) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        let now = meter(address, "budao_connections").await;
        if now <= connections {
            return;
        }
        assert!(Instant::now() < deadline, "{now} are connected, not {connections}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Somebody who reads: the session, its events, and what was heard.
struct HealthyReader {
    session: Session,
    events: Events,
    received: Vec<Event>,
}

impl HealthyReader {
    async fn new(stage: &Fixture) -> Self {
        let (session, events) = stage.session().await;
        Self { session, events, received: Vec::new() }
    }

    /// One turn, from the message to its answer.
    async fn turn(&mut self) -> Duration {
        let began = Instant::now();
        self.session.send("go").await.unwrap();
        self.received.extend(until(&mut self.events, "agent.final_answer").await);
        began.elapsed()
    }

    fn last(&self) -> u64 {
        self.received.iter().rev().find_map(|event| event.seq).unwrap_or(0)
    }
}

/// How long turns took.
struct TurnLatencies {
    middle: Duration,
    slowest: Duration,
    processor: Duration,
}

/// Everybody has so many turns, at the same time.
async fn turns(healthy: &mut [HealthyReader], count: usize) -> TurnLatencies {
    let began = processor();
    let each = healthy.iter_mut().map(|one| async move {
        let mut waits = Vec::new();
        for _ in 0..count {
            waits.push(one.turn().await);
        }
        waits
    });
    let mut waits: Vec<Duration> = join_all(each).await.concat();
    waits.sort_unstable();
    TurnLatencies {
        middle: waits[waits.len() / 2],
        slowest: waits[waits.len() * 99 / 100],
        processor: (processor() - began) / waits.len() as u32,
    }
}

/// Nothing was missed, nothing heard twice.
async fn heard_everything(stage: &Fixture, healthy: &HealthyReader) {
    let (_session, mut events) = stage.client().attach(healthy.session.id(), None).await.unwrap();
    let whole = texts_by_event(&replay(&mut events).await);
    let received = texts_by_event(&healthy.received);
    assert!(
        received.len() > 10 && whole.starts_with(&received),
        "{} of {}",
        received.len(),
        whole.len()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_stop_reading_are_disconnected_and_others_get_everything() {
    // Goal: T13. Method: half of the crowd comes live and falls behind, half asks for all of the history and takes
    // none of it; neither answers a ping. The healthy ones have the same turns before and beside them.
    let (sessions, each, count) = if is_full() { (100, 100, 10) } else { (4, 25, 10) };
    let each = each.min((sockets() - 500) / (2 * sessions) - 2);
    let setup = Setup::new(talkative()).gateway(|limits| {
        limits.connections = 20_000;
        limits.tenant_connections = 20_000;
        limits.observers = each + 8;
        limits.observer_bytes = EACH;
        limits.heartbeat = Duration::from_secs(1);
        limits.idle_timeout = Duration::from_secs(if is_full() { 20 } else { 4 });
    });
    let stage = Setup { send_buffer: Some(SMALL), ..setup }.start().await;
    let mut healthy = join_all((0..sessions).map(|_| HealthyReader::new(&stage))).await;
    let before = turns(&mut healthy, count).await;
    let from = memory("VmRSS");
    let mut crowd = Vec::new();
    for one in &healthy {
        let (id, head) = (one.session.id(), one.last());
        for number in 0..each {
            crowd.push(stalled(stage.address, id, if number % 2 == 0 { head } else { 0 }).await);
        }
    }
    let beside = turns(&mut healthy, count).await;
    let grown = memory("VmHWM").saturating_sub(from);
    alone(stage.address, sessions).await;
    for one in &healthy {
        heard_everything(&stage, one).await;
    }
    let TurnLatencies { middle, slowest, processor } = before;
    eprintln!(
        "security T13: {} readers that stand still beside {sessions} healthy ones, all let go; a turn took {middle:?} \
         (p99 {slowest:?}, processor {processor:?}) alone, {:?} (p99 {:?}, processor {:?}) beside them; memory grew by \
         {} KiB a reader at most",
        crowd.len(),
        beside.middle,
        beside.slowest,
        beside.processor,
        grown / crowd.len() / 1024
    );
    assert!(grown < crowd.len() * (EACH + LINE) + SLACK, "memory grew by {} KiB", grown / 1024);
    drop((crowd, healthy));
    stage.stop().await;
}

/// Ways to hold a line for ever. The last one has a connection of its own at the server, which is counted.
const SLOW: [fn(SocketAddr, &str) -> String; 5] = [
    |_, _| String::new(),
    |address, _| format!("GET /ws HTTP/1.1\r\nHost: {address}\r\nX-Slow: "),
    |address, session| {
        let path = format!("/v1/sessions/{session}/messages");
        format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 9000\r\n\r\n{{")
    },
    |address, session| {
        format!("GET /v1/sessions/{session}/frames HTTP/1.1\r\nHost: {address}\r\n\r\n")
    },
    |address, session| {
        format!("GET /v1/sessions/{session}/events HTTP/1.1\r\nHost: {address}\r\n\r\n")
    },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_drops_requests_that_never_end_and_answers_that_are_not_read() {
    // Goal: T13 for HTTP. Method: requests that are not finished, and answers larger than both kernels keep that are not
    // read. When those that are counted are gone, the rest of each line is read: it ends, and an answer that nobody
    // took is not whole.
    let each = if is_full() { 400 } else { 12 };
    let setup = Setup::new(talkative()).gateway(|limits| {
        limits.observers = each + 8;
        limits.request_head_timeout = Duration::from_millis(300);
        limits.idle_timeout = Duration::from_secs(1);
        limits.heartbeat = Duration::from_millis(200);
    });
    let stage = Setup { send_buffer: Some(SMALL), ..setup }.start().await;
    let mut owner = HealthyReader::new(&stage).await;
    for _ in 0..20 {
        owner.turn().await;
    }
    let mut lines = Vec::new();
    for ask in SLOW {
        for _ in 0..each {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(SMALL).unwrap();
            let mut line = socket.connect(stage.address).await.unwrap();
            let ask = ask(stage.address, owner.session.id());
            line.write_all(ask.as_bytes()).await.unwrap();
            if ask.starts_with("GET /v1") {
                // The answer has begun; no more of it is read.
                let begun = tokio::time::timeout(TEST_TIMEOUT, line.read_exact(&mut [0; 12])).await;
                begun.expect("in time").unwrap();
            }
            lines.push(line);
        }
    }
    let count = lines.len();
    alone(stage.address, 1).await;
    for mut line in lines {
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(TEST_TIMEOUT, line.read_to_end(&mut rest)).await;
        // An error is a reset: the server has dropped the connection as well.
        let _ = ended.expect("the server hung up");
        assert!(!rest.ends_with(b"\r\n0\r\n\r\n"), "an answer nobody took was waited for");
    }
    owner.turn().await;
    heard_everything(&stage, &owner).await;
    eprintln!(
        "security T13: {count} requests of {} sorts that never end, all given up",
        SLOW.len()
    );
    drop(owner);
    stage.stop().await;
}

/// What a crowd that replays shares.
#[derive(Default)]
struct CrowdState {
    /// How often a client has read the whole history.
    done: AtomicUsize,
    /// Everybody did once.
    begun: Notify,
}

/// Asks for all of the history, reads it, and asks again, until it is stopped. A client that is disconnected meanwhile reconnects.
async fn again_and_again(
    address: SocketAddr,
    session: String,
    crowd: usize,
    abuse: Arc<CrowdState>,
) {
    loop {
        let mut line = line(address).await;
        while line.send(back(&session, 0)).await.is_ok() && is_replayed(&mut line).await {
            if abuse.done.fetch_add(1, Ordering::Relaxed) + 1 == crowd {
                abuse.begun.notify_one();
            }
        }
    }
}

/// Reads to the end of the history, or until it is refused because there were too many; false when the line is over.
async fn is_replayed(line: &mut WebSocketStream<TcpStream>) -> bool {
    loop {
        let message = tokio::time::timeout(TEST_TIMEOUT, line.next()).await.expect("in time");
        let Some(Ok(message)) = message else { return false };
        let text = message.to_text().unwrap_or_default();
        if text.contains("\"action\":\"replay\"") || text.contains("\"limit_name\"") {
            return true;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_replay_for_ever_take_turns_and_other_sessions_go_on() {
    // Goal: T14. Method: a crowd reads the history of one session again and again while other sessions have turns. Each
    // has an allowance for about two histories; afterwards its replays are slow, and those of a new client are not.
    let (crowd, sessions, count) = if is_full() { (1000, 10, 10) } else { (40, 4, 5) };
    let crowd = crowd.min(sockets() / 2 - 200);
    let all = 4 << 20;
    let setup = Setup::new(talkative()).gateway(|limits| {
        limits.observers = crowd + 8;
        limits.total_observer_bytes = all;
        limits.replays = Rate { per_second: 1, burst: 2_000 };
    });
    let stage = setup.start().await;
    let mut owner = HealthyReader::new(&stage).await;
    for _ in 0..20 {
        owner.turn().await;
    }
    let mut healthy = join_all((0..sessions).map(|_| HealthyReader::new(&stage))).await;
    let before = turns(&mut healthy, count).await;
    let shared = Arc::new(CrowdState::default());
    let mut abuse = JoinSet::new();
    for _ in 0..crowd {
        let id = owner.session.id().to_owned();
        abuse.spawn(again_and_again(stage.address, id, crowd, Arc::clone(&shared)));
    }
    shared.begun.notified().await;
    let beside = turns(&mut healthy, count).await;
    let waiting = meter(stage.address, "budao_observers_waiting_bytes").await;
    let before_fresh = shared.done.load(Ordering::Relaxed);
    let began = Instant::now();
    for one in &healthy {
        heard_everything(&stage, one).await;
    }
    heard_everything(&stage, &owner).await;
    let fresh = began.elapsed();
    let meanwhile = shared.done.load(Ordering::Relaxed) - before_fresh;
    assert!(abuse.try_join_next().is_none(), "everybody in the crowd is still served");
    abuse.shutdown().await;
    let TurnLatencies { middle, slowest, .. } = before;
    eprintln!(
        "security T14: {crowd} clients replayed a history {} times beside {sessions} other sessions; a turn of these \
         took {middle:?} (p99 {slowest:?}) alone, {:?} (p99 {:?}) beside them; {} KiB waited; {} who were new had their \
         histories in {fresh:?}, the crowd {meanwhile} more meanwhile",
        shared.done.load(Ordering::Relaxed),
        beside.middle,
        beside.slowest,
        waiting / 1024,
        sessions + 1
    );
    // A frame each may come on top.
    assert!(waiting < all + crowd * 16 * 1024, "{waiting} bytes wait");
    drop((owner, healthy));
    let mut fresh = Peer::connect(stage.address).await;
    fresh.create().await;
    drop(fresh);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replays_beyond_the_allowance_are_slow_and_those_of_new_clients_are_not() {
    // Goal: an allowance of a connection is its own, and what goes beyond it costs others next to nothing. Method: one
    // client, alone, before and after it has had its allowance, beside one that has it still. Times are compared with each
    // other: a place that rests makes nothing faster, however busy the machine is.
    let setup = Setup::new(talkative()).gateway(|limits| {
        limits.replays = Rate { per_second: 1, burst: 3_000 };
    });
    let stage = setup.start().await;
    let mut owner = HealthyReader::new(&stage).await;
    for _ in 0..20 {
        owner.turn().await;
    }
    let id = owner.session.id().to_owned();
    let quickest = async |line: &mut WebSocketStream<TcpStream>, times: usize| {
        let mut all = Vec::new();
        for _ in 0..times {
            let began = Instant::now();
            line.send(back(&id, 0)).await.unwrap();
            assert!(is_replayed(line).await);
            all.push(began.elapsed());
        }
        all.into_iter().min().unwrap()
    };
    // Other tests may slow the quick ones down; they do so at most twice.
    let mut times = Vec::new();
    for _ in 0..3 {
        let mut greedy = line(stage.address).await;
        let first = quickest(&mut greedy, 3).await;
        quickest(&mut greedy, 3).await;
        let later = quickest(&mut greedy, 1).await;
        let mut fresh = line(stage.address).await;
        let new = quickest(&mut fresh, 3).await;
        times.push((first, later, new));
        if later > first * 3 && later > new * 3 {
            break;
        }
    }
    let (first, later, new) = times[times.len() - 1];
    assert!(later > first * 3 && later > new * 3, "before, after, and for who is new: {times:?}");
    drop(owner);
    stage.stop().await;
}
