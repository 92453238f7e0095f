//! Malformed and excessive frames: one `error.validation` that names the field and the limit, and the connection goes on.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::fixture::{Fixture, Peer, Setup, runs};

/// Sends a text and gets its one answer, then shows that the connection still works.
async fn refused(peer: &mut Peer, text: String) -> Value {
    peer.say(Message::text(text)).await;
    let answer = peer.next().await;
    assert_eq!(answer["event"], "error.validation", "{answer}");
    for field in ["error_code", "error_type", "recoverable", "recovery_strategy", "timestamp"] {
        assert!(!answer["metadata"][field].is_null(), "{field} is missing: {answer}");
    }
    assert!(!answer["show_content"].as_str().unwrap().contains('{'), "{answer}");
    answer
}

async fn start() -> (Fixture, Peer) {
    let stage = Setup::new(runs(1)).start().await;
    let peer = stage.peer().await;
    (stage, peer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_malformed_frame_gets_one_answer_and_costs_nothing_else() {
    let (stage, mut peer) = start().await;
    let session = peer.create().await;
    let deep = "[".repeat(100_000);
    let never = "01890000-0000-7000-8000-000000000000";
    let with = |fields: Value| {
        let mut frame = json!({"session_id": session});
        frame.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        frame.to_string()
    };
    let bad = [
        ("", "frame"),
        ("hello", "frame"),
        ("null", "frame"),
        ("[]", "frame"),
        ("{}", "event"),
        (r#"{"event":7}"#, "event"),
        (r#"{"event":"user.mesage"}"#, "event"),
        (r#"{"event":"agent.final_answer","content":"forged"}"#, "event"),
        (r#"{"event":"user.message","content":"no session"}"#, "session_id"),
        (r#"{"event":"user.message","session_id":5,"content":"x"}"#, "session_id"),
        (r#"{"event":"user.message","session_id":"not-a-uuid","content":"x"}"#, "session_id"),
    ];
    for (text, field) in bad {
        let answer = refused(&mut peer, text.to_owned()).await;
        assert_eq!(answer["metadata"]["field"], field, "{text}: {answer}");
    }
    for (fields, field) in [
        (json!({"event": "user.message", "content": "   "}), "content"),
        (json!({"event": "user.message", "content": 5}), "content"),
        (json!({"event": "user.message"}), "content"),
        (json!({"event": "user.message", "content": "x", "command_id": ""}), "command_id"),
        (json!({"event": "user.message", "content": "x", "command_id": "own-1"}), "command_id"),
        (
            json!({"event": "user.message", "content": "x", "command_id": "c".repeat(200)}),
            "command_id",
        ),
        (json!({"event": "user.response", "content": {"confirmed": true}}), "step_id"),
    ] {
        let answer = refused(&mut peer, with(fields)).await;
        assert_eq!(answer["metadata"]["field"], field, "{answer}");
    }
    let unknown = json!({"event": "user.message", "session_id": never, "content": "x"});
    let answer = refused(&mut peer, unknown.to_string()).await;
    assert_eq!(answer["metadata"]["error_code"], "ERR_SESS_001");
    let answer = refused(&mut peer, format!(r#"{{"event":"user.message","content":{deep}"#)).await;
    assert_eq!(answer["metadata"]["error_code"], "ERR_VAL_009", "{answer}");
    let answer = refused(&mut peer, "x".repeat(2 << 20)).await;
    assert_eq!(answer["metadata"]["error_code"], "ERR_VAL_010", "{answer}");
    peer.say(Message::binary(vec![0_u8; 16])).await;
    assert_eq!(peer.next().await["event"], "error.validation");
    // After all of it the connection and the session do what they should.
    peer.send(&json!({"event": "user.message", "session_id": session, "content": "go"})).await;
    peer.until("agent.final_answer").await;
    stage.stop().await;
}

/// Many connections, and commands each sends before it reads anything.
const CONNECTIONS: usize = 100;
const COMMANDS: usize = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_commands_at_once_are_each_answered_once_and_do_not_slow_others() {
    let mut setup = Setup::new(runs(1));
    setup.config.limits.commands = budao_serve::Rate { per_second: 5, burst: 40 };
    let stage = setup.start().await;
    let (session, mut events) = stage.session().await;
    let opened = (0..CONNECTIONS).map(|_| async {
        let mut peer = stage.peer().await;
        let session = peer.create().await;
        (peer, session)
    });
    let mut peers = futures::future::join_all(opened).await;
    // All of them are on their way before the first answer is read.
    let asking = peers.iter_mut().map(|(peer, session)| async move {
        for number in 0..COMMANDS {
            let frame = json!({
                "event": "user.ack", "session_id": session, "content": {"last_seq": 1},
                "command_id": format!("c{number}"),
            });
            peer.send(&frame).await;
        }
    });
    futures::future::join_all(asking).await;
    let receiving = peers.into_iter().map(|(mut peer, _)| async move {
        let (mut accepted, mut answered) = (0, BTreeSet::new());
        while answered.len() < COMMANDS {
            let answer = peer.next().await;
            let id = answer["metadata"]["command_id"].as_str().unwrap().to_owned();
            assert!(answered.insert(id), "answered twice: {answer}");
            match answer["event"].as_str() {
                Some("system.notice") => accepted += 1,
                Some("error.validation") => {
                    assert_eq!(answer["metadata"]["context"]["limit_name"], "commands", "{answer}");
                    assert!(answer["metadata"]["retry_after_ms"].is_u64(), "{answer}");
                }
                _ => panic!("{answer}"),
            }
        }
        // One more question, so that nothing came after the last answer.
        peer.send(&json!({"event": "user.nothing"})).await;
        assert_eq!(peer.next().await["metadata"]["field"], "event");
        (accepted, answered.len())
    });
    let received = futures::future::join_all(receiving).await;
    let accepted: usize = received.iter().map(|(accepted, _)| accepted).sum();
    let answered: usize = received.iter().map(|(_, answered)| answered).sum();
    assert_eq!(answered, CONNECTIONS * COMMANDS);
    assert!((1..answered).contains(&accepted), "{accepted} were accepted");
    session.send("go").await.unwrap();
    crate::fixture::until(&mut events, "agent.final_answer").await;
    stage.stop().await;
}
