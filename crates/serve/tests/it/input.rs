//! Bad input: each is answered once, naming what is wrong, and the server goes on.

use std::time::Duration;

use budao_models::Script;
use budao_serve::Rate;
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::fixture::{Setup, seq, seqs};

#[tokio::test]
async fn any_message_is_answered_once_and_the_connection_stays_open() {
    let stage = Setup::new(Script::new().say("fine")).open().await;
    let mut client = stage.client().await;
    let deep = "[".repeat(100_000);
    let unknown = json!({
        "event": "user.message",
        "session_id": "0190aaaa-0000-7000-8000-000000000000",
        "content": "hello",
    });
    let mut answers = Vec::new();
    for text in [
        "not json",
        "",
        "[]",
        "{}",
        r#"{"event":7}"#,
        r#"{"event":"agent.final_answer"}"#,
        r#"{"event":"user.mesage"}"#,
        r#"{"event":"user.message","content":"hello"}"#,
        r#"{"event":"user.message","session_id":"nobody","content":"hello"}"#,
        &unknown.to_string(),
        r#"{"event":"user.create_session","command_id":"own-1"}"#,
        &deep,
    ] {
        client.say(text).await;
        let answer = client.next().await;
        let shown: String = text.chars().take(70).collect();
        assert_eq!(answer["event"], "error.validation", "{shown}");
        let metadata_text =
            |name: &str| answer["metadata"][name].as_str().unwrap_or("-").to_owned();
        answers.push(format!(
            "{shown} → {} ({}: {})",
            metadata_text("kind"),
            metadata_text("field"),
            metadata_text("constraint")
        ));
    }
    insta::assert_snapshot!(answers.join("\n"));
    client.create(json!({})).await;
}

#[tokio::test]
async fn a_binary_frame_is_refused_and_the_connection_goes_on() {
    let stage = Setup::new(Script::new().say("fine")).open().await;
    let mut client = stage.client().await;
    client.socket.send(Message::binary(vec![0, 1, 2])).await.unwrap();
    let answer = client.next().await;
    assert_eq!(answer["event"], "error.validation");
    client.create(json!({})).await;
}

#[tokio::test]
async fn a_large_frame_is_refused_and_a_huge_one_ends_the_connection_with_a_reason() {
    let stage = Setup::new(Script::new().say("fine")).open().await;
    let mut client = stage.client().await;
    client.say("x".repeat((1 << 20) + 1)).await;
    let answer = client.next().await;
    assert_eq!(answer["metadata"]["kind"], "frame_too_large");
    assert_eq!(answer["metadata"]["limit_name"], "frame_bytes");
    let huge = client.socket.send(Message::text("x".repeat(17 << 20)));
    let _ = tokio::time::timeout(Duration::from_secs(10), huge).await;
    assert_eq!(client.closed().await, 1009);
    stage.client().await;
}

#[tokio::test]
async fn ten_thousand_commands_at_once_are_all_answered() {
    let stage = Setup::new(Script::new().say("fine").forever()).open().await;
    let mut client = stage.client().await;
    let session = client.create(json!({})).await;
    let (mut sink, stream) = futures::StreamExt::split(client.socket);
    let sending = async {
        for number in 0..10_000 {
            let frame = json!({
                "event": "user.cancel",
                "session_id": session,
                "command_id": format!("c{number}"),
            });
            sink.send(Message::text(frame.to_string())).await.unwrap();
        }
    };
    let receiving = async {
        let (mut accepted, mut limited) = (0, 0);
        let mut stream = stream;
        while accepted + limited < 10_000 {
            let message = futures::StreamExt::next(&mut stream).await.unwrap().unwrap();
            let Message::Text(text) = message else { continue };
            let frame: serde_json::Value = serde_json::from_str(&text).unwrap();
            if frame["metadata"]["context"]["limit_name"] == "commands" {
                limited += 1;
            } else if frame["metadata"]["command_id"].is_string() {
                accepted += 1;
            }
        }
        (accepted, limited)
    };
    let ((), (accepted, limited)) = tokio::join!(sending, receiving);
    assert!(accepted >= 200 && limited > 5_000, "{accepted} accepted, {limited} refused");
}

#[tokio::test]
async fn an_acknowledgement_beyond_the_head_is_refused() {
    let stage = Setup::new(Script::new().say("fine")).open().await;
    let mut client = stage.client().await;
    let session = client.create(json!({})).await;
    client
        .send(json!({"event": "user.ack", "session_id": session, "content": {"last_seq": 1}}))
        .await;
    client
        .send(json!({"event": "user.ack", "session_id": session, "content": 1_000_000_000}))
        .await;
    let answer = client.next().await;
    assert_eq!(answer["event"], "error.validation");
    assert_eq!(answer["metadata"]["action"], "ack");
}

/// Goal: an observer that stops reading delays no other observer, and loses nothing.
/// Method: one observer reads nothing of far more than fits; another one reads all of it.
#[tokio::test]
async fn a_slow_observer_is_disconnected_and_others_are_not_affected() {
    let setup = Setup::new(Script::new().say("fine").forever()).with(|config| {
        config.limits.observer_bytes = 512 * 1024;
        config.limits.close_timeout = Duration::from_millis(200);
        config.limits.commands = Rate { per_second: 10_000, burst: 10_000 };
    });
    let stage = setup.open().await;
    let mut fast = stage.client().await;
    let session = fast.create(json!({})).await;
    let mut slow = stage.client().await;
    slow.reconnect(&session, 1).await;
    slow.until("system.notice").await;
    slow.until("system.notice").await;
    let mut all = Vec::new();
    for _ in 0..100 {
        fast.ask(&session, &"x".repeat(100_000)).await;
        all.extend(seqs(&fast.until("agent.final_answer").await));
    }
    let mut got = Vec::new();
    while let Some(Ok(message)) = slow.socket.next().await {
        let frame: Value =
            serde_json::from_str(message.to_text().unwrap_or("")).unwrap_or_default();
        got.extend(seq(&frame));
    }
    assert!(got.len() < all.len(), "it was let go");
    let last = got.last().copied().unwrap_or(1);
    let mut slow = stage.client().await;
    slow.reconnect(&session, last).await;
    while got.last() < all.last() {
        got.extend(seq(&slow.next().await));
    }
    assert_eq!(got[..all.len()], all[..]);
}
