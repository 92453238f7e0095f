//! Observers and refused clients get their own language.

use budao_models::script::Script;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::fixture::{Peer, Setup, runs};

fn watch(session: &str, language: Option<&str>) -> Value {
    let mut frame = json!({"event": "user.reconnect", "session_id": session, "content": {}});
    if let Some(language) = language {
        frame["content"]["preferences"] = json!({"language": language});
    }
    frame
}

/// Everything up to the final answer, as event, position and words for people.
async fn received(peer: &mut Peer) -> Vec<(Value, Value, Value, Value)> {
    let mut received = Vec::new();
    loop {
        let event = peer.next().await;
        if event["seq"].is_null() {
            continue;
        }
        let is_last = event["event"] == "agent.final_answer";
        let field = |name: &str| event[name].clone();
        received.push((field("event"), field("event_id"), field("prev"), field("show_content")));
        if is_last {
            return received;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_observer_reads_the_same_events_in_its_own_language() {
    let stage = Setup::new(runs(2)).start().await;
    let mut one = stage.peer().await;
    let session = one.create().await;
    let mut two = stage.peer().await;
    two.send(&watch(&session, Some("zh-CN"))).await;
    let answer = two.until("system.notice").await;
    assert!(answer["show_content"].as_str().unwrap().chars().any(|c| c > '\u{4e00}'), "{answer}");
    let mut three = stage.peer().await;
    three.send(&watch(&session, None)).await;
    one.send(&json!({"event": "user.message", "session_id": session, "content": "go"})).await;
    let (one, two, three) =
        (received(&mut one).await, received(&mut two).await, received(&mut three).await);
    // The first made it and saw its opening as the answer.
    assert_eq!(one[..], three[three.len() - one.len()..]);
    let placed = |all: &[(Value, Value, Value, Value)]| -> Vec<_> {
        all.iter().map(|(event, id, prev, _)| (event.clone(), id.clone(), prev.clone())).collect()
    };
    assert_eq!(placed(&two), placed(&three), "the same events at the same places");
    let thinking = |all: &[(Value, Value, Value, Value)]| {
        all.iter().find(|(event, ..)| event == "agent.thinking").unwrap().3.clone()
    };
    assert_ne!(thinking(&two), thinking(&three));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_client_gets_the_reason_in_its_language() {
    let stage = Setup::new(Script::new()).start().await;
    let shown = |answer: Value| answer["show_content"].as_str().unwrap().to_owned();
    let is_chinese = |text: &str| text.chars().any(|c| c > '\u{4e00}');
    let mut plain = stage.peer().await;
    plain.send(&json!({"event": "user.nothing"})).await;
    assert!(!is_chinese(&shown(plain.next().await)));
    // Said with the connection, as browsers do.
    let mut request = format!("ws://{}/ws", stage.address).into_client_request().unwrap();
    request.headers_mut().insert("accept-language", "zh-CN,zh;q=0.9".parse().unwrap());
    let mut chinese = Peer::connect_with(request).await;
    chinese.send(&json!({"event": "user.nothing"})).await;
    assert!(is_chinese(&shown(chinese.next().await)));
    // Said in a command, which is stronger.
    let english = json!({
        "event": "user.message", "content": {"text": "no session", "preferences": {"language": "en"}},
    });
    chinese.send(&english).await;
    assert!(!is_chinese(&shown(chinese.next().await)));
    chinese.send(&json!({"event": "user.nothing"})).await;
    assert!(!is_chinese(&shown(chinese.next().await)), "from then on");
    stage.stop().await;
}
