//! Readers that take their time: nothing is lost, and the line does not wait for them longer than it must.

use std::time::Duration;

use budao_client::{Error, Event, Events, Kind};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::server::{Server, ServerConnection, failed, positions, soon};

/// A command under way.
type CommandTask = JoinHandle<Result<Event, Error>>;

#[tokio::test]
async fn an_answer_arrives_without_a_reader_and_all_events_are_read_in_order_later() {
    let server = Server::new().await;
    let (mut call, session, mut events) = server.attached(server.client().inbox(2)).await;
    let asking = tokio::spawn(async move { session.send("go").await });
    let request = call.receive().await;
    for seq in 1..=20 {
        call.frame(seq, seq - 1).await;
    }
    call.answer(&request, "system.notice", json!({})).await;
    soon(asking).await.unwrap().unwrap();
    assert_eq!(positions(&mut events, 20).await, (1..=20).collect::<Vec<u64>>());
}

#[tokio::test]
async fn a_reader_who_takes_long_is_no_silence_of_the_line() {
    let server = Server::new().await;
    let silence = Duration::from_secs(1);
    let client = server.client().inbox(2).silence(silence);
    let (mut call, _session, mut events) = server.attached(client).await;
    for seq in 1..=6 {
        call.frame(seq, seq - 1).await;
    }
    assert!(!server.is_called(silence * 3).await, "the line was given up");
    assert_eq!(positions(&mut events, 6).await, [1, 2, 3, 4, 5, 6]);
    call.frame(7, 6).await;
    assert_eq!(positions(&mut events, 1).await, [7]);
}

#[tokio::test]
async fn who_no_longer_reads_may_still_ask() {
    let server = Server::new().await;
    let (mut call, session, events) = server.attached(server.client().inbox(2)).await;
    drop(events);
    for seq in 1..=6 {
        call.frame(seq, seq - 1).await;
    }
    let asking = tokio::spawn(async move { session.send("go").await.map(|_| ()) });
    let request = call.receive().await;
    call.answer(&request, "system.notice", json!({})).await;
    soon(asking).await.unwrap().unwrap();
    assert_eq!(call.closed().await, Some(1000));
}

#[tokio::test]
async fn what_waits_for_a_slow_reader_is_handed_over_while_there_is_no_line() {
    let server = Server::new().await;
    let (mut call, session, mut events) = server.attached(server.client().inbox(2)).await;
    let asking = tokio::spawn(async move { session.send("go").await });
    let request = call.receive().await;
    for seq in 1..=9 {
        call.frame(seq, seq - 1).await;
    }
    // So that it is known that the frames were taken in.
    call.answer(&request, "system.notice", json!({})).await;
    soon(asking).await.unwrap().unwrap();
    drop((call, server));
    assert_eq!(positions(&mut events, 9).await, (1..=9).collect::<Vec<u64>>());
    // The notice, that the line is lost, and that it could not be had again.
    let mut rest = 0;
    while soon(events.next()).await.is_some() {
        rest += 1;
    }
    assert_eq!(rest, 3);
}

/// A client whose reader has fallen behind by nine frames, while a command of it waits for its answer.
async fn behind(server: &Server) -> (ServerConnection, serde_json::Value, CommandTask, Events) {
    let (mut call, session, events) = server.attached(server.client().inbox(2)).await;
    let asking = tokio::spawn(async move { session.send("go").await });
    let request = call.receive().await;
    for seq in 1..=9 {
        call.frame(seq, seq - 1).await;
    }
    call.is_read().await;
    (call, request, asking, events)
}

#[tokio::test]
async fn who_leaves_with_much_unread_still_gets_the_answer_to_a_command() {
    let server = Server::new().await;
    let (mut call, request, asking, events) = behind(&server).await;
    drop(events);
    call.answer(&request, "system.notice", json!({})).await;
    soon(asking).await.unwrap().unwrap();
    assert_eq!(call.closed().await, Some(1000));
}

#[tokio::test]
async fn a_line_that_ends_for_good_gives_a_slow_reader_everything_first() {
    let server = Server::new().await;
    let (call, _, asking, mut events) = behind(&server).await;
    call.bye(4403).await;
    assert!(soon(asking).await.unwrap().is_err());
    assert_eq!(positions(&mut events, 9).await, (1..=9).collect::<Vec<u64>>());
    assert_eq!(failed(&mut events).await.kind(), Kind::ConnectionLost);
    assert!(soon(events.next()).await.is_none());
    // Nobody who has left is waited for.
    let (call, _, asking, events) = behind(&server).await;
    call.bye(4403).await;
    assert!(soon(asking).await.unwrap().is_err());
    drop(events);
    for _ in 0..8 {
        // One thread runs this test: the line ends now.
        tokio::task::yield_now().await;
    }
}
