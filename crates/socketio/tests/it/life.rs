//! Losing a server and finding it again.

use std::time::Duration;

use budao_core::retry::RetryPolicy;
use budao_socketio::{Client, Error, Event, Limits, Payload};
use budao_testkit::port::Refusing;
use serde_json::json;

use crate::{
    common::{SHORT, config, connect, connected, disconnected, within, world},
    hub::Hub,
};

async fn hub() -> (Hub, String) {
    let hub = Hub::start(0).await;
    let url = format!("http://127.0.0.1:{}", hub.port());
    (hub, url)
}

#[tokio::test]
async fn after_a_restart_sent_calls_fail_and_queued_calls_arrive() {
    let (hub, url) = hub().await;
    let port = hub.port();
    let (client, mut events) = connect(config(&url)).await;
    let under_way = tokio::spawn({
        let client = client.clone();
        async move { client.call("silent", Payload::none(), SHORT).await }
    });
    within(client.call("echo", Payload::of("sent before"), SHORT)).await.unwrap();
    hub.stop().await;
    disconnected(&mut events).await;
    let lost = within(under_way).await.unwrap();
    assert!(matches!(lost, Err(Error::Lost(_) | Error::Kicked { .. })), "{lost:?}");

    let queued: Vec<_> = (0..100)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move { client.call("echo", Payload::of(number), SHORT).await })
        })
        .collect();
    within(async {
        while client.waiting() < 100 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let _hub = Hub::start(port).await;
    for (number, call) in queued.into_iter().enumerate() {
        let answer = within(call).await.unwrap();
        assert_eq!(answer, Ok(Payload::of(number)));
    }
    connected(&mut events).await;
    assert_eq!((client.waiting(), client.stats().connections), (0, 2));
}

#[tokio::test]
async fn a_full_queue_without_a_connection_is_an_error_that_names_its_limit() {
    let limits = Limits { queue_max: 3, ..Limits::default() };
    let nobody = Refusing::take();
    let url = format!("http://{}", nobody.address());
    let (client, _events) = Client::start(config(&url).limits(limits), world());
    for _ in 0..3 {
        within(client.emit("later", Payload::none())).await.unwrap();
    }
    let full = Error::Full { name: "queue_max", limit: 3 };
    assert_eq!(within(client.emit("later", Payload::none())).await, Err(full.clone()));
    assert_eq!(within(client.call("echo", Payload::none(), SHORT)).await, Err(full));
    assert_eq!(client.waiting(), 0);
}

#[tokio::test]
async fn a_caller_that_gave_up_while_offline_is_not_sent_for() {
    let (hub, url) = hub().await;
    let port = hub.port();
    let (client, mut events) = connect(config(&url)).await;
    hub.stop().await;
    disconnected(&mut events).await;
    let limit = Duration::from_millis(20);
    let gone = within(client.call("tell", Payload::of("nobody asks"), limit)).await;
    assert_eq!(gone, Err(Error::TimedOut(limit)));
    within(client.emit("tell", Payload::of("somebody does"))).await.unwrap();
    let _hub = Hub::start(port).await;
    let reconnected = within(async {
        loop {
            if let Some(Event::Message { payload, .. }) = events.next().await {
                return payload;
            }
        }
    });
    assert_eq!(reconnected.await.first(), &json!("somebody does"));
}

#[tokio::test]
async fn an_answer_to_a_lost_connection_is_not_sent_to_the_next_one() {
    let (hub, url) = hub().await;
    let port = hub.port();
    let (client, mut events) = connect(config(&url)).await;
    let asking = tokio::spawn({
        let client = client.clone();
        async move { client.call("ask", Payload::of(1), SHORT).await }
    });
    let reply = within(async {
        loop {
            if let Some(Event::Message { reply: Some(reply), .. }) = events.next().await {
                return reply;
            }
        }
    })
    .await;
    hub.stop().await;
    let _hub = Hub::start(port).await;
    connected(&mut events).await;
    assert!(matches!(within(reply.send(Payload::of(2))).await, Err(Error::Lost(_))));
    assert!(within(asking).await.unwrap().is_err());
    assert_eq!(client.stats().dropped_replies, 1);
}

#[tokio::test]
async fn exhausted_reconnects_end_the_session_with_the_reason() {
    let (hub, url) = hub().await;
    let policy = RetryPolicy { tries: 3, base: Duration::from_millis(2), ..RetryPolicy::default() };
    let policy = RetryPolicy { max: Duration::from_millis(4), ..policy };
    let (client, mut events) = connect(config(&url).reconnect(policy)).await;
    hub.stop().await;
    assert!(disconnected(&mut events).await.1);
    assert!(disconnected(&mut events).await.1);
    let (error, goes_on) = disconnected(&mut events).await;
    assert!(!goes_on);
    assert_eq!(client.ended(), Some(error));
    assert!(within(events.next()).await.is_none());
}

#[tokio::test]
async fn a_hundred_losses_are_a_hundred_reconnections_and_every_call_ends_once() {
    let (mut hub, url) = hub().await;
    let port = hub.port();
    let (client, mut events) = connect(config(&url)).await;
    connected(&mut events).await;
    let mut answered = 0;
    for round in 0..100_u64 {
        let begin = |number: u64| {
            let client = client.clone();
            tokio::spawn(async move {
                let sent = Payload::of(round * 100 + number);
                (client.call("echo", sent.clone(), SHORT).await, sent)
            })
        };
        // Some are answered, some are cut off, and nobody knows which.
        let mut calls: Vec<_> = (0..10).map(begin).collect();
        within(client.call("echo", Payload::none(), SHORT)).await.unwrap();
        calls.extend((10..20).map(begin));
        hub.stop().await;
        hub = Hub::start(port).await;
        for call in calls {
            match within(call).await.unwrap() {
                (Ok(answer), sent) => {
                    assert_eq!(answer, sent);
                    answered += 1;
                }
                (Err(Error::Lost(_)), _) => {}
                (other, _) => panic!("{other:?}"),
            }
        }
        connected(&mut events).await;
    }
    assert!(answered > 0);
    assert_eq!((client.waiting(), client.stats().connections), (0, 101));
}

#[tokio::test]
async fn dropping_the_last_handle_ends_the_session() {
    let (_hub, url) = hub().await;
    let (client, mut events) = connect(config(&url)).await;
    drop(client);
    within(async { while events.next().await.is_some() {} }).await;
}
