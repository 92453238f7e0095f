//! A session over WebSocket: asked, answered, observed by several.

use std::time::Duration;

use budao_models::Script;
use serde_json::json;

use crate::fixture::{Setup, assert_whole, seq, words};

#[tokio::test]
async fn a_message_is_accepted_once_and_answered() {
    let stage = Setup::new(Script::new().say("four")).open().await;
    let mut client = stage.client().await;
    let session = client.create(json!({})).await;
    client
        .send(json!({
            "event": "user.message",
            "session_id": session,
            "command_id": "q1",
            "content": "two and two?",
        }))
        .await;
    let frames = client.until("agent.final_answer").await;
    let accepted: Vec<_> = frames
        .iter()
        .filter(|frame| frame["metadata"]["command_id"] == "q1" && frame["seq"].is_null())
        .collect();
    assert_eq!(accepted.len(), 1, "{frames:#?}");
    assert_eq!(accepted[0]["event"], "system.notice");
    let answer = frames.last().unwrap();
    assert_eq!(answer["content"], "four");
    assert!(answer["timestamp"].as_str().unwrap().ends_with('Z'));
    assert_whole(&frames, 1);
}

#[tokio::test]
async fn the_same_command_id_gives_the_first_answer_and_no_second_effect() {
    let stage = Setup::new(Script::new().say("four").say("five")).open().await;
    let mut client = stage.client().await;
    let session = client.create(json!({})).await;
    let message = json!({
        "event": "user.message",
        "session_id": session,
        "command_id": "q1",
        "content": "two and two?",
    });
    client.send(message.clone()).await;
    client.until("agent.final_answer").await;
    client.send(message).await;
    let again = client.next().await;
    assert_eq!(
        (&again["event"], &again["metadata"]["command_id"]),
        (&json!("system.notice"), &json!("q1"))
    );
    let mut other = stage.client().await;
    other.reconnect(&session, 0).await;
    let frames = other.until("system.notice").await;
    assert_eq!(frames[0]["metadata"]["status"], "complete");
    let frames = other.until("system.notice").await;
    let answers = frames.iter().filter(|frame| frame["event"] == "agent.final_answer").count();
    assert_eq!(answers, 1);
}

#[tokio::test]
async fn the_same_creation_gives_the_same_session() {
    let stage = Setup::new(Script::new().say("four")).open().await;
    let create = json!({"event": "user.create_session", "command_id": "mine", "content": {}});
    let (mut one, mut two) = (stage.client().await, stage.client().await);
    one.send(create.clone()).await;
    two.send(create).await;
    let (first, second) = (one.next().await, two.next().await);
    assert_eq!(first["event_id"], second["event_id"]);
    assert_eq!(first["metadata"]["command_id"], "mine");
}

#[tokio::test]
async fn all_observers_get_the_same_bytes() {
    let stage = Setup::new(words(50, Duration::from_millis(2))).open().await;
    let mut asking = stage.client().await;
    let session = asking.create(json!({})).await;
    let mut watching = Vec::new();
    for _ in 0..3 {
        let mut client = stage.client().await;
        client.reconnect(&session, 0).await;
        client.until("system.notice").await;
        watching.push(client);
    }
    asking.ask(&session, "go on").await;
    let placed = |frames: Vec<serde_json::Value>| -> Vec<serde_json::Value> {
        frames.into_iter().filter(|frame| seq(frame).is_some_and(|seq| seq > 1)).collect()
    };
    let expected = placed(asking.until("agent.final_answer").await);
    assert_whole(&expected, 1);
    for mut client in watching {
        assert_eq!(placed(client.until("agent.final_answer").await), expected);
    }
}

#[tokio::test]
async fn a_hundred_words_arrive_whole_and_nothing_follows_the_answer() {
    let stage = Setup::new(words(100, Duration::from_millis(2))).open().await;
    let mut client = stage.client().await;
    let session = client.create(json!({})).await;
    client.ask(&session, "go on").await;
    let frames = client.until("agent.final_answer").await;
    let deltas: String = frames
        .iter()
        .filter(|frame| frame["event"] == "agent.partial_answer")
        .filter_map(|frame| frame["content"].as_str())
        .collect();
    assert_eq!(deltas, frames.last().unwrap()["content"].as_str().unwrap());
}

#[tokio::test]
async fn a_client_that_asks_for_chinese_gets_chinese() {
    let stage = Setup::new(Script::new().say("四")).open().await;
    let mut client = stage.client().await;
    client
        .send(json!({
            "event": "user.create_session",
            "content": {"preferences": {"language": "zh-CN"}},
        }))
        .await;
    let created = client.next().await;
    let shown = created["show_content"].as_str().unwrap();
    assert!(shown.chars().any(|char| ('\u{4e00}'..='\u{9fff}').contains(&char)), "{shown}");
}

#[tokio::test]
async fn one_connection_may_observe_several_sessions() {
    let stage = Setup::new(Script::new().say("fine").forever()).open().await;
    let mut client = stage.client().await;
    let (one, two) = (client.create(json!({})).await, client.create(json!({})).await);
    client.ask(&one, "how are you?").await;
    client.ask(&two, "how are you?").await;
    let mut frames = client.until("agent.final_answer").await;
    frames.extend(client.until("agent.final_answer").await);
    for session in [one, two] {
        let own: Vec<_> =
            frames.iter().filter(|frame| frame["session_id"] == *session).cloned().collect();
        assert_whole(&own, 1);
        assert!(own.iter().any(|frame| frame["event"] == "agent.final_answer"));
    }
}

#[tokio::test]
async fn a_session_that_was_sent_something_is_observed_from_there() {
    let stage = Setup::new(Script::new().say("fine").forever()).open().await;
    let session = stage.client().await.create(json!({})).await;
    let mut later = stage.client().await;
    later.ask(&session, "how are you?").await;
    let frames = later.until("agent.final_answer").await;
    assert_eq!(frames.last().unwrap()["content"], "fine");
}

#[tokio::test]
async fn a_client_names_several_of_the_servers_models_and_no_others() {
    let own = |config: &mut budao_serve::Config| {
        config.settings.model = "a".to_owned();
        config.settings.fallbacks = vec!["b".to_owned()];
        config.models = vec!["c".to_owned()];
    };
    let stage = Setup::new(Script::new()).with(own).open().await;
    let mut client = stage.client().await;
    let list_of = async |session: String| {
        let state = stage.runtime.state(session.parse().unwrap()).await.unwrap();
        state.settings.models().collect::<Vec<_>>().join(",")
    };
    let session = client.create(json!({})).await;
    assert_eq!(list_of(session).await, "a,b", "the server's own list");
    let session = client.create(json!({"config": {"model": "c,b"}})).await;
    assert_eq!(list_of(session).await, "c,b");
    let session = client.create(json!({"config": {"model": ["a"]}})).await;
    assert_eq!(list_of(session).await, "a", "one model has no fallbacks");
    let content = json!({"config": {"model": "a,x"}});
    client.send(json!({"event": "user.create_session", "content": content})).await;
    let refused = client.next().await;
    assert_eq!(refused["metadata"]["kind"], "unknown_model", "{refused}");
}

#[tokio::test]
async fn a_message_names_another_model_which_is_asked_from_then_on() {
    let own = |config: &mut budao_serve::Config| {
        config.settings.model = "a".to_owned();
        config.models = vec!["b".to_owned()];
    };
    let mut setup = Setup::new(Script::new().named("a").say("I am a.")).with(own);
    setup.other = Some(Script::new().named("b").say("I am b.").say("I am still b."));
    let stage = setup.open().await;
    let mut client = stage.client().await;
    let session = client.create(json!({})).await;
    client.ask(&session, "who are you?").await;
    assert_eq!(client.until("agent.final_answer").await.last().unwrap()["content"], "I am a.");
    let content = json!({"text": "and now?", "config": {"model": "b"}});
    client.send(json!({"event": "user.message", "session_id": session, "content": content})).await;
    let frames = client.until("agent.final_answer").await;
    assert_eq!(frames.last().unwrap()["content"], "I am b.");
    let changed = |frame: &&serde_json::Value| frame["metadata"]["action"] == "settings_changed";
    assert_eq!(frames.iter().find(changed).unwrap()["metadata"]["model"], "b");
    client.ask(&session, "and now?").await;
    assert_eq!(
        client.until("agent.final_answer").await.last().unwrap()["content"],
        "I am still b."
    );
    let content = json!({"text": "and now?", "config": {"model": "c"}});
    client.send(json!({"event": "user.message", "session_id": session, "content": content})).await;
    let refused = client.next().await;
    assert_eq!(refused["metadata"]["kind"], "unknown_model", "{refused}");
}
