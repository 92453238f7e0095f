//! What an idle relayed session costs: no bytes beyond its records, as every idle session. In a process of its own,
//! because the figure is that of the whole process.
//!
//! Method: two groups of sessions are opened. The records of one relayed turn are copied into the first group: that is
//! what the journal in memory needs for them. The sessions of the second group have a turn each, and are unloaded.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "the test prints its figure")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::Arc,
    time::Duration,
};

use budao_core::{
    engine::{Engine as _, SessionOptions},
    event::{Answer, Command, CommandBody, Entry, Event, SessionId},
    limits::Limits,
    message::Block,
    trace::Trace,
};
use budao_journal::{Append, IfMissing, Journal, LeaseRequest, Memory};
use budao_relay::{Relay, RelayConfig, RelayParts};
use budao_testkit::{sse, world};
use futures::StreamExt as _;
use serde_json::json;

/// Sessions of each group.
const SESSIONS: usize = 2_000;
/// The most bytes of an idle session beyond its records. The connections of the requests are in the figure, too.
const BAR: f64 = 1536.0;

/// Resident bytes of this process; absent where the system does not tell.
fn resident() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse::<f64>().ok().map(|kib| kib * 1024.0)
}

/// Starts an agent that remembers nothing: it reads a request, answers it and ends the connection.
fn start_agent() -> String {
    let events = [
        json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r"}),
        json!({"type": "TEXT_MESSAGE_START", "messageId": "m"}),
        json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "fine"}),
        json!({"type": "TEXT_MESSAGE_END", "messageId": "m"}),
        json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}),
    ];
    let body: String = events.iter().map(sse::data).collect();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
            while !is_whole(&request) {
                let count = connection.read(&mut buffer).unwrap();
                assert!(count > 0, "half a request");
                request.extend_from_slice(&buffer[..count]);
            }
            connection.write_all(head.as_bytes()).unwrap();
            connection.write_all(body.as_bytes()).unwrap();
        }
    });
    format!("http://{address}/agent")
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    body.len() >= length.parse::<usize>().unwrap()
}

async fn open(relay: &Relay, count: usize) -> Vec<SessionId> {
    let mut sessions = Vec::new();
    for _ in 0..count {
        sessions.push(relay.open(SessionOptions::default()).await.unwrap());
    }
    sessions
}

/// Runs one turn and returns its records.
async fn run_turn(relay: &Relay, session: SessionId) -> Vec<Entry> {
    let content = vec![Block::Text("go".to_owned())];
    let body = CommandBody::Message { content };
    let command = Command { id: "go".into(), by: "ada".into(), trace: Trace::NONE, body };
    let accepted = relay.submit(session, command).await.unwrap();
    assert!(matches!(accepted, Answer::Accepted { .. }), "{accepted:?}");
    let mut records = relay.follow(session, 1).await.unwrap();
    let mut entries: Vec<Entry> = Vec::new();
    while !matches!(entries.last().map(|entry| &*entry.event), Some(Event::TurnEnded { .. })) {
        let record = records.next().await.unwrap().unwrap();
        let (at, trace, turn) = (record.at, record.trace, record.turn);
        entries.push(Entry { at, trace, turn, event: record.event.into() });
    }
    entries
}

/// Waits until every session is unloaded.
async fn unload(relay: &Relay) {
    while relay.loaded() > 0 {
        tokio::task::yield_now().await;
    }
}

/// A copy that shares no event: the journal keeps shared ones once.
fn deep_copy(entry: &Entry) -> Entry {
    Entry { event: (*entry.event).clone().into(), ..entry.clone() }
}

async fn copy(journal: &Arc<dyn Journal>, sessions: &[SessionId], entries: &[Entry]) {
    for session in sessions {
        let request = LeaseRequest {
            session: *session,
            holder: "copy".into(),
            ttl: Duration::from_secs(15),
            if_missing: IfMissing::Refuse,
            dead_holder: None,
        };
        let lease = journal.take_lease(request).await.unwrap();
        let content = vec![Block::Text("go".to_owned())];
        let body = CommandBody::Message { content };
        let command = Command { id: "go".into(), by: "ada".into(), trace: Trace::NONE, body };
        let answer = Answer::Accepted { at: lease.head };
        // In the batches of a turn: what precedes the request, the first text, and the end.
        let mut head = lease.head;
        for (index, batch) in [&entries[..3], &entries[3..7], &entries[7..]].iter().enumerate() {
            let command = (index == 0).then(|| (command.clone(), answer.clone()));
            let append = Append {
                direct_commands: command.into_iter().collect(),
                ..Append::new(&lease, head, batch.iter().map(deep_copy).collect())
            };
            journal.append(append).await.unwrap();
            head += batch.len() as u64;
        }
        journal.release(&lease).await.unwrap();
    }
}

#[tokio::test]
async fn an_idle_relayed_session_costs_nothing_beyond_its_records() {
    let world = world::seeded(1);
    let journal: Arc<dyn Journal> = Arc::new(Memory::new(world.clone(), Limits::default()));
    let config = RelayConfig { url: Some(start_agent()), ..RelayConfig::default() };
    let mut parts = RelayParts::new(Arc::clone(&journal), world, config);
    parts.idle_keep = Duration::from_millis(20);
    let relay = parts.into_engine().unwrap();
    // The first sessions warm up the connections and the allocator.
    let mut entries = Vec::new();
    for session in open(&relay, 200).await {
        entries = run_turn(&relay, session).await;
    }
    let (filling, copies) = (open(&relay, SESSIONS).await, open(&relay, SESSIONS).await);
    let relayed = open(&relay, SESSIONS).await;
    unload(&relay).await;
    // Memory that is free by now would hide what the first group needs.
    copy(&journal, &filling, &entries).await;
    let Some(before) = resident() else { return };
    copy(&journal, &copies, &entries).await;
    let records = resident().unwrap() - before;
    let before = resident().unwrap();
    for session in &relayed {
        run_turn(&relay, *session).await;
    }
    unload(&relay).await;
    let grown = resident().unwrap() - before;
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let count = SESSIONS as f64;
    println!("records {:.0} bytes, relayed and idle {:.0} bytes", records / count, grown / count);
    assert!((grown - records) / count <= BAR, "{:.0} bytes more", (grown - records) / count);
}
