//! A line that is lost is taken up again: with its cursor, with what was not answered, and nothing twice.

use std::time::{Duration, Instant};

use budao_client::{Cursor, SessionRequest};
use budao_core::{fault::Kind, retry::RetryPolicy};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::server::{Server, facts, failed, next_event, positions, soon};

fn complete() -> serde_json::Value {
    json!({"status": "complete", "epoch": "e1"})
}

#[tokio::test]
async fn a_lost_connection_is_reported_and_resumes_with_its_cursor_and_unanswered_commands() {
    let server = Server::new().await;
    let (mut call, session, mut events) = server.attached(server.client()).await;
    call.frame(1, 0).await;
    call.frame(3, 1).await;
    assert_eq!(positions(&mut events, 2).await, [1, 3]);
    let sending = tokio::spawn(async move { session.send("go").await });
    let first = call.receive().await;
    assert_eq!((&first["event"], &first["content"]), (&json!("user.message"), &json!("go")));
    drop(call);
    let mut call = server.accept().await;
    let lost = next_event(&mut events).await;
    assert!(lost.is_local() && lost.event == "error.connection_lost", "{lost:?}");
    assert_eq!(lost.meta("last_event_seq"), 3);
    let request = call.resume(3, complete()).await;
    assert_eq!(request["content"]["epoch"], "e1");
    assert_eq!(call.receive().await, first, "the same command under the same id");
    call.answer(&first, "system.notice", json!({"status": "accepted"})).await;
    let answer = soon(sending).await.unwrap().unwrap();
    assert_eq!(answer.meta("status"), "accepted");
    assert_eq!(events.cursor(), &Cursor { epoch: "e1".into(), seq: 3 });
}

#[tokio::test]
async fn commands_given_while_there_is_no_line_go_out_after_the_resume_and_in_order() {
    let server = Server::new().await;
    let pause = Duration::from_millis(300);
    let retry = RetryPolicy { tries: 4, base: pause, max: pause, ..RetryPolicy::default() };
    let (call, session, mut events) = server.attached(server.client().retry(retry)).await;
    drop(call);
    assert!(next_event(&mut events).await.is_local());
    let asks: Vec<_> = (0..3)
        .map(|number| {
            let session = session.clone();
            async move { session.ask_as(&format!("c{number}"), "user.message", json!({})).await }
        })
        .collect();
    let asking = tokio::spawn(futures::future::join_all(asks));
    let mut call = server.accept().await;
    let resume = call.receive().await;
    // Comes between the resume and its answer, and must not overtake it.
    let late = session.clone();
    let late = tokio::spawn(async move { late.ask_as("late", "user.cancel", json!({})).await });
    tokio::task::yield_now().await;
    call.answer(&resume, "system.notice", complete()).await;
    for id in ["c0", "c1", "c2", "late"] {
        let request = call.receive().await;
        assert_eq!(request["command_id"], id);
        call.answer(&request, "system.notice", json!({})).await;
    }
    assert!(soon(asking).await.unwrap().iter().all(Result::is_ok));
    assert!(soon(late).await.unwrap().is_ok());
}

#[tokio::test]
async fn a_missing_frame_is_asked_for_once_and_then_it_is_a_gap() {
    let server = Server::new().await;
    let (mut call, _session, mut events) = server.attached(server.client()).await;
    call.frame(1, 0).await;
    call.frame(4, 3).await;
    let mut again = server.accept().await;
    again.resume(1, complete()).await;
    again.frame(4, 3).await;
    assert_eq!(positions(&mut events, 1).await, [1]);
    assert!(next_event(&mut events).await.is_local());
    assert_eq!(next_event(&mut events).await.meta("status"), "complete");
    let gap = failed(&mut events).await;
    assert_eq!(gap.kind(), Kind::HistoryGap);
    assert_eq!((&facts(&gap)["from_seq"], &facts(&gap)["to_seq"]), (&json!(2), &json!(3)));
    assert_eq!(positions(&mut events, 1).await, [4]);
    // Another place is another chance.
    again.frame(9, 8).await;
    let mut third = server.accept().await;
    third.resume(4, complete()).await;
    third.frame(5, 4).await;
    third.frame(9, 5).await;
    assert_eq!(positions(&mut events, 2).await, [5, 9]);
}

#[tokio::test]
async fn another_history_is_reported_and_never_mixed_in() {
    let server = Server::new().await;
    let (mut call, _session, mut events) = server.attached(server.client()).await;
    call.frame(1, 0).await;
    call.frame_of("e2", 2, 1).await;
    let mut call = server.accept().await;
    let metadata = json!({"status": "epoch_mismatch", "epoch": "e2", "head": 7});
    call.resume(1, metadata).await;
    call.frame_of("e2", 1, 0).await;
    assert_eq!(positions(&mut events, 1).await, [1]);
    let lost = next_event(&mut events).await;
    assert!(lost.is_local() && lost.event.starts_with("error."), "{lost:?}");
    let other = failed(&mut events).await;
    assert_eq!((other.kind(), &facts(&other)["head_seq"]), (Kind::EpochMismatch, &json!(7)));
    assert_eq!(positions(&mut events, 1).await, [1]);
    assert_eq!(events.cursor(), &Cursor { epoch: "e2".into(), seq: 1 });
}

#[tokio::test]
async fn removed_events_are_reported_and_later_events_follow() {
    let server = Server::new().await;
    for (metadata, kind, next) in [
        (json!({"status": "gap", "lost": [2, 5], "reason": "count"}), Kind::HistoryGap, 6),
        (json!({"status": "expired", "head": 9}), Kind::HistoryExpired, 10),
    ] {
        let (mut call, _session, mut events) = server.attached(server.client()).await;
        call.frame(1, 0).await;
        drop(call);
        let mut call = server.accept().await;
        call.resume(1, metadata).await;
        call.frame(next, next - 1).await;
        assert_eq!(positions(&mut events, 1).await, [1]);
        assert!(next_event(&mut events).await.is_local());
        assert_eq!(failed(&mut events).await.kind(), kind);
        assert_eq!(positions(&mut events, 1).await, [next]);
    }
}

#[tokio::test]
async fn a_new_session_is_asked_for_until_it_is_there_and_resumed_by_its_id() {
    let server = Server::new().await;
    let client = server.client();
    let create = SessionRequest { language: Some("zh".into()), ..SessionRequest::default() };
    let creating = tokio::spawn(async move { client.create(create).await });
    let first = server.accept().await.receive().await;
    assert_eq!(first["event"], "user.create_session");
    assert_eq!(first["content"]["preferences"]["language"], "zh");
    // The line was cut before the answer came: there is no session to resume yet.
    let mut call = server.accept().await;
    assert_eq!(call.receive().await, first);
    let created = json!({
        "event": "agent.session_created", "command_id": first["command_id"], "session_id": "s",
        "seq": 1, "prev": 0, "epoch": "e1",
    });
    call.send(&created).await;
    let (session, mut events) = soon(creating).await.unwrap().unwrap();
    assert_eq!(session.id(), "s");
    assert_eq!(positions(&mut events, 1).await, [1]);
    call.send(&created).await;
    drop(call);
    let mut call = server.accept().await;
    call.resume(1, complete()).await;
    assert!(next_event(&mut events).await.is_local(), "what came twice is told once");
}

#[tokio::test]
async fn a_server_that_stops_says_when_to_come_back_and_is_taken_at_its_word_within_a_bound() {
    let server = Server::new().await;
    let wait = Duration::from_millis(400);
    for (ceiling, least) in [(Duration::from_secs(600), wait), (Duration::ZERO, Duration::ZERO)] {
        let retry = RetryPolicy {
            tries: 4,
            base: Duration::from_millis(1),
            max: Duration::from_millis(1),
            hint_ceiling: ceiling,
            ..RetryPolicy::default()
        };
        let (mut call, _session, _events) = server.attached(server.client().retry(retry)).await;
        let stop = json!({"action": "shutdown", "retry_after_ms": 400});
        call.send(&json!({"event": "system.notice", "metadata": stop})).await;
        let began = Instant::now();
        call.bye(1012).await;
        server.accept().await;
        assert!(began.elapsed() >= least, "it came back after {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_silent_line_is_lost_and_what_is_no_event_is_skipped() {
    let server = Server::new().await;
    let client = server.client().silence(Duration::from_secs(2));
    let (mut call, _session, mut events) = server.attached(client).await;
    call.say_raw(Message::text("not an event")).await;
    call.say_raw(Message::binary(vec![1, 2, 3])).await;
    call.say_raw(Message::Ping(Vec::new().into())).await;
    call.frame(1, 0).await;
    assert_eq!(positions(&mut events, 1).await, [1]);
    // The first line stays open and says nothing more.
    let mut again = server.accept().await;
    again.resume(1, complete()).await;
    let lost = next_event(&mut events).await;
    assert!(lost.is_local(), "{lost:?}");
    drop(call);
}

#[tokio::test]
async fn a_line_that_was_made_starts_the_count_of_tries_anew() {
    let server = Server::new().await;
    let (call, _session, mut events) = server.attached(server.client()).await;
    drop(call);
    // Four tries in all, and three lost lines each time.
    for _ in 0..3 {
        for _ in 0..2 {
            drop(server.accept().await);
        }
        let mut call = server.accept().await;
        call.resume(0, complete()).await;
        while next_event(&mut events).await.meta("status") != "complete" {}
    }
}

#[tokio::test]
async fn a_command_that_finds_the_line_broken_is_sent_again_on_the_next_one() {
    let server = Server::new().await;
    let (call, session, _events) = server.attached(server.client()).await;
    call.reset();
    let sending = tokio::spawn(async move { session.send("go").await });
    // This one breaks before its first word, the resume.
    server.accept().await.reset();
    let mut call = server.accept().await;
    call.resume(0, complete()).await;
    let request = call.receive().await;
    assert_eq!(request["content"], "go");
    call.answer(&request, "system.notice", json!({})).await;
    assert!(soon(sending).await.unwrap().is_ok());
}
