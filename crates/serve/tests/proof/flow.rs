//! The flow of frames: deltas complete and in order, no client delays another, closed sessions free their memory.

use std::time::{Duration, Instant};

use budao_client::{Event, SessionRequest};
use budao_models::script::{Script, StepOrder};
use budao_testkit::proxy::{ConnectionPlan, Ending, Lane, Proxy};
use serde_json::json;

use crate::fixture::{
    Setup, TEST_TIMEOUT, client_at, hundred_pieces, long_run, next, runs, texts_by_event, until,
};

/// The words of an answer as they came.
fn streamed(events: &[Event]) -> String {
    let pieces = events.iter().filter(|event| event.event == "agent.partial_answer");
    pieces.map(|event| event.content.as_str().unwrap_or_default()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_deltas_reassemble_exactly_and_nothing_follows_the_final_answer() {
    let (script, text) = hundred_pieces();
    let stage = Setup::new(script).start().await;
    let (session, mut events) = stage.session().await;
    session.send("go").await.unwrap();
    let received = until(&mut events, "agent.final_answer").await;
    assert_eq!(streamed(&received), text);
    assert_eq!(received.last().unwrap().text(), text);
    let late = tokio::time::timeout(Duration::from_millis(500), events.next()).await;
    assert!(late.is_err(), "{late:?}");
    let seqs: Vec<u64> = received.iter().filter_map(|event| event.seq).collect();
    assert!(seqs.is_sorted_by(|one, other| one < other), "{seqs:?}");
    assert_eq!(texts_by_event(&received), texts_by_event(&stage.history(session.id()).await));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_observer_is_disconnected_and_reconnects_while_fast_ones_never_wait() {
    let stage =
        Setup::new(runs(60)).gateway(|limits| limits.observer_bytes = 16 * 1024).start().await;
    let (session, mut fast) = stage.session().await;
    // The slow one is not read at all from its second kilobyte on, then the connection is dropped.
    let proxy = Proxy::start(stage.address, 1).await.unwrap();
    proxy.plan(|number| match number {
        0 => ConnectionPlan::down(Lane::default().cut(2500, Ending::Stall)),
        _ => ConnectionPlan::clean(),
    });
    let slow = client_at(proxy.address()).silence(Duration::from_secs(2));
    let (_slow_session, mut slow) = slow.attach(session.id(), None).await.unwrap();
    let began = Instant::now();
    let mut received = Vec::new();
    for _ in 0..20 {
        session.send("go").await.unwrap();
        received.extend(until(&mut fast, "agent.final_answer").await);
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(60), "the fast one took {took:?}");
    let mut late = Vec::new();
    while texts_by_event(&late).len() < texts_by_event(&received).len() {
        late.push(next(&mut slow).await);
    }
    assert_eq!(
        texts_by_event(&late)[..texts_by_event(&received).len()],
        texts_by_event(&received)[..]
    );
    assert!(proxy.accepted() > 1, "the slow one had to come back");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_that_does_not_read_is_closed_with_4408_and_resumes_where_it_was() {
    // Goal: the close code itself. Method: a plain client that reads nothing while more is said than the line and its
    // outbox hold, and then everything that is left of its connection.
    let large = "large ".repeat(20_000);
    let script = (0..60).fold(Script::new(), |script, _| script.say(large.clone()));
    let setup = Setup::new(script.order(StepOrder::History)).gateway(|limits| {
        limits.observer_bytes = 512 * 1024;
        // The close frame waits behind what the line holds, until that is read.
        limits.close_timeout = Duration::from_secs(60);
    });
    let stage = setup.start().await;
    let (session, mut fast) = stage.session().await;
    let mut slow = stage.peer().await;
    let reconnect = |seq: u64| json!({"event": "user.reconnect", "session_id": session.id(), "content": {"last_seq": seq}});
    slow.send(&reconnect(0)).await;
    slow.until("system.notice").await;
    for _ in 0..60 {
        session.send("go").await.unwrap();
        until(&mut fast, "agent.final_answer").await;
    }
    let mut last = 0;
    let close = loop {
        match slow.receive().await {
            Ok(event) => last = event["seq"].as_u64().unwrap_or(last),
            Err(close) => break close.expect("a close frame"),
        }
    };
    assert_eq!(u16::from(close.code), 4408, "{close:?}");
    assert!(budao_serve::frame::close::is_resumable(close.code.into()));
    let head = texts_by_event(&stage.history(session.id()).await).len();
    let mut back = stage.peer().await;
    back.send(&reconnect(last)).await;
    let resumed = back.until("system.notice").await;
    assert_eq!(resumed["metadata"]["status"], "complete", "{resumed}");
    let next = back.next().await;
    assert_eq!(next["prev"], last, "it goes on after the last frame that came of {head}");
    drop((slow, back));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_are_punctual_beside_a_stuck_peer() {
    let heartbeat = Duration::from_millis(500);
    let setup = Setup::new(runs(60)).gateway(|limits| {
        limits.heartbeat = heartbeat;
        limits.idle_timeout = Duration::from_secs(30);
    });
    let stage = setup.start().await;
    let proxy = Proxy::start(stage.address, 1).await.unwrap();
    proxy.plan(|_| ConnectionPlan::down(Lane::default().cut(1500, Ending::Stall)));
    let (busy, _events) = stage.session().await;
    busy.send("go").await.unwrap();
    let stuck = client_at(proxy.address());
    let stuck = tokio::spawn(async move { stuck.attach(busy.id(), None).await.map(|_| busy) });
    let mut peer = crate::fixture::Peer::connect(stage.address).await;
    let session = peer.create().await;
    let mut gaps = Vec::new();
    let mut last = Instant::now();
    while gaps.len() < 8 {
        peer.heartbeat().await;
        gaps.push(last.elapsed());
        last = Instant::now();
    }
    let longest = gaps[1..].iter().max().unwrap();
    assert!(*longest < heartbeat * 5, "{gaps:?} for {session}");
    stuck.abort();
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_names_the_head_of_every_session_on_the_line() {
    let setup =
        Setup::new(long_run()).gateway(|limits| limits.heartbeat = Duration::from_millis(100));
    let stage = setup.start().await;
    let mut peer = stage.peer().await;
    let session = peer.create().await;
    peer.send(&json!({"event": "user.message", "session_id": session, "content": "go"})).await;
    let last = peer.until("agent.final_answer").await;
    let heartbeat = peer.heartbeat().await;
    let head = &heartbeat["metadata"]["heads"][0];
    assert_eq!(head["session_id"], session.as_str());
    assert_eq!(head["last_frame_seq"], last["seq"]);
    assert!(heartbeat.get("seq").is_none());
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_sessions_come_and_go_and_memory_returns() {
    // Goal: what a session needs goes with it. Method: two thousand sessions' worth of work again and again;
    // after the first rounds, which warm everything up, the process grows no more.
    let rounds = 5;
    let setup = Setup::new(runs(1)).gateway(|limits| {
        limits.retention = Duration::from_millis(1);
        limits.retention_interval = Duration::from_millis(200);
    });
    let stage = setup.start().await;
    let mut sizes = Vec::new();
    for _ in 0..rounds {
        let lines = (0..40).map(|_| async {
            let mut peer = stage.peer().await;
            for _ in 0..50 {
                let session = peer.create().await;
                peer.send(&json!({"event": "user.close_session", "session_id": session})).await;
                peer.until("agent.session_end").await;
            }
        });
        futures::future::join_all(lines).await;
        sizes.push(settled(&stage).await);
    }
    let (warm, end) = (sizes[1], sizes[rounds - 1]);
    let grown = end.saturating_sub(warm);
    // Two thousand sessions of 12 KiB would be 24 MiB a round.
    assert!(grown < 16 << 20, "grew by {} KiB: {sizes:?}", grown >> 10);
    stage.stop().await;
}

/// The resident bytes of this process once the journal has let go of what is over.
async fn settled(stage: &crate::fixture::Fixture) -> usize {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        let left = stage.journal.sessions(budao_journal::Filter::default()).await.unwrap().len();
        if left < 100 {
            break;
        }
        assert!(Instant::now() < deadline, "{left} sessions are still kept");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_reconnects_at_the_time_that_a_stopping_server_gave() {
    let journal = budao_journal::Memory::new(
        budao_runtime::world::system(),
        budao_core::limits::Limits::default(),
    );
    let journal: std::sync::Arc<dyn budao_journal::Journal> = std::sync::Arc::new(journal);
    let start = || {
        let setup = Setup::new(runs(2)).gateway(|limits| {
            limits.reconnect_delay = Duration::from_millis(50);
            limits.close_timeout = Duration::from_millis(500);
        });
        Setup { journal: Some(std::sync::Arc::clone(&journal)), ..setup }.start()
    };
    let first = start().await;
    let proxy = Proxy::start(first.address, 1).await.unwrap();
    let (session, mut events) =
        client_at(proxy.address()).create(SessionRequest::default()).await.unwrap();
    session.send("one").await.unwrap();
    let mut received = until(&mut events, "agent.final_answer").await;
    first.stop().await;
    let second = start().await;
    proxy.redirect(second.address);
    session.send("two").await.unwrap();
    received.extend(until(&mut events, "agent.final_answer").await);
    let notice = received.iter().find(|event| event.meta("action") == "shutdown").unwrap();
    assert_eq!(notice.meta("retry_after_ms"), 50);
    assert_eq!(texts_by_event(&received), texts_by_event(&second.history(session.id()).await));
    second.stop().await;
}
