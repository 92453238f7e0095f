//! Forks of a session, and permissions that a session remembers, over HTTP.

use std::sync::Arc;

use budao_core::{Kind, world::World};
use budao_journal::{Journal, Memory};
use budao_models::Script;
use budao_runtime::world;
use serde_json::{Value, json};

use crate::{
    fixture::{Fixture, Setup, sqlite},
    http::{client, create, events, get, post},
};

/// Sends a message and waits for its answer. Returns the position of the message.
async fn send(stage: &Fixture, session: &str, text: &str) -> u64 {
    let path = format!("/v1/sessions/{session}/messages");
    assert_eq!(post(stage, &path, json!({ "content": text })).await.0, 202);
    let is_answered = |frames: &[Value]| {
        let at =
            frames.iter().position(|it| it["event"] == "user.message" && it["content"] == text);
        at.filter(|at| frames[*at..].iter().any(|it| it["event"] == "agent.final_answer"))
    };
    loop {
        let frames = frames(stage, session).await;
        if let Some(at) = is_answered(&frames) {
            return frames[at]["seq"].as_u64().unwrap();
        }
        tokio::task::yield_now().await;
    }
}

async fn frames(stage: &Fixture, session: &str) -> Vec<Value> {
    let url = stage.url(&format!("/v1/sessions/{session}/frames"));
    let text = client().get(url).send().await.unwrap().text().await.unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The messages and the answers of a session, in order.
async fn conversation(stage: &Fixture, session: &str) -> Vec<String> {
    let told = ["user.message", "agent.final_answer"];
    let frames = frames(stage, session).await;
    let told = frames.iter().filter(|it| told.iter().any(|event| it["event"] == *event));
    told.map(|it| it["content"].as_str().unwrap().to_owned()).collect()
}

async fn journals(directory: &tempfile::TempDir) -> [Arc<dyn Journal>; 2] {
    let world: World = world::system();
    [Arc::new(Memory::new(world, budao_core::limits::Limits::default())), sqlite(directory).await]
}

#[tokio::test]
async fn a_fork_has_the_conversation_before_a_message_and_the_old_one_stays() {
    let directory = tempfile::tempdir().unwrap();
    for journal in journals(&directory).await {
        let script = Script::new().say("one").fail(Kind::ModelRateLimited).say("two").say("three");
        let stage = Setup::new(script).on(&journal).open().await;
        let parent = create(&stage).await;
        send(&stage, &parent, "first").await;
        let second = send(&stage, &parent, "second").await;
        let before = get(&stage, &format!("/v1/sessions/{parent}")).await.1;
        assert_eq!(before["faults"], 1);

        let path = format!("/v1/sessions/{parent}/fork");
        let wish = json!({ "before": second, "command_id": "edit-1" });
        let (status, forked) = post(&stage, &path, wish.clone()).await;
        assert_eq!((status, &forked["existed"]), (201, &json!(false)), "{forked}");
        let fork = forked["session_id"].as_str().unwrap().to_owned();
        let (status, again) = post(&stage, &path, wish).await;
        assert_eq!(
            (status, &again["session_id"]),
            (200, &forked["session_id"]),
            "one fork for one id"
        );

        assert_eq!(conversation(&stage, &fork).await, ["first", "one"]);
        send(&stage, &fork, "second, changed").await;
        assert_eq!(conversation(&stage, &fork).await, ["first", "one", "second, changed", "three"]);
        let view = get(&stage, &format!("/v1/sessions/{fork}")).await.1;
        assert_eq!((&view["turns"], &view["forked_from"]), (&json!(2), &json!(parent)));
        assert_eq!(get(&stage, &format!("/v1/sessions/{parent}")).await.1, before);

        // All of it, and what happened on the way counts once.
        let (status, whole) = post(&stage, &path, json!({})).await;
        assert_eq!(status, 201, "{whole}");
        let whole = whole["session_id"].as_str().unwrap();
        assert_eq!(conversation(&stage, whole).await, ["first", "one", "second", "two"]);
        let view = get(&stage, &format!("/v1/sessions/{whole}")).await.1;
        assert_eq!((&view["turns"], &view["faults"]), (&json!(2), &json!(0)));
        let stats = get(&stage, "/api/stats?window=1h").await.1;
        assert_eq!((&stats["turns"], &stats["faults"]), (&json!(3), &json!(1)), "{stats}");
    }
}

#[tokio::test]
async fn a_fork_that_makes_no_sense_is_refused() {
    let stage = Setup::new(Script::new().say("one")).open().await;
    let parent = create(&stage).await;
    let message = send(&stage, &parent, "first").await;
    let path = format!("/v1/sessions/{parent}/fork");
    for (before, rule) in [
        (json!(message + 1), "a message that a turn has begun to answer"),
        (json!(9_000), "a message that a turn has begun to answer"),
        (json!("soon"), "the `seq` of a message"),
        (json!(-1), "the `seq` of a message"),
    ] {
        let (status, problem) = post(&stage, &path, json!({ "before": before })).await;
        assert_eq!(status, 422, "{before}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(rule), "{before}: {problem}");
    }
    let unknown = "/v1/sessions/01900000-0000-7000-8000-000000000001/fork";
    assert_eq!(post(&stage, unknown, json!({})).await.0, 404);
    let listed = get(&stage, "/v1/sessions").await.1;
    assert_eq!(
        listed["sessions"].as_array().unwrap().len(),
        1,
        "nothing is left of a refused fork"
    );
}

#[tokio::test]
async fn a_message_that_waited_is_no_part_of_a_fork() {
    let script = Script::new().call("write", json!({})).say("one").say("two");
    let stage = Setup::new(script).open().await;
    let parent = create(&stage).await;
    let messages = format!("/v1/sessions/{parent}/messages");
    post(&stage, &messages, json!({ "content": "first" })).await;
    events(&stage, &parent, None, "agent.user_confirm").await;
    post(&stage, &messages, json!({ "content": "second" })).await;
    let is_second = |it: &&Value| it["content"] == "second";
    let waiting = frames(&stage, &parent).await.iter().find(is_second).unwrap()["seq"].clone();
    let path = format!("/v1/sessions/{parent}/fork");
    let (status, problem) = post(&stage, &path, json!({ "before": waiting })).await;
    assert_eq!(status, 422, "it waits: {problem}");
    let answer = json!({ "step_id": question(&stage, &parent).await, "confirmed": true });
    assert_eq!(post(&stage, &format!("/v1/sessions/{parent}/answers"), answer).await.0, 202);
    while conversation(&stage, &parent).await.len() < 4 {
        tokio::task::yield_now().await;
    }
    let (_, forked) = post(&stage, &path, json!({ "before": waiting })).await;
    let fork = forked["session_id"].as_str().unwrap();
    assert_eq!(conversation(&stage, fork).await, ["first", "one"]);
    let view = get(&stage, &format!("/v1/sessions/{fork}")).await.1;
    assert_eq!((&view["status"], &view["queued"]), (&json!("idle"), &json!(0)));
}

async fn question(stage: &Fixture, session: &str) -> Value {
    get(stage, &format!("/v1/sessions/{session}")).await.1["questions"][0]["step_id"].clone()
}

#[tokio::test]
async fn a_permission_is_remembered_for_the_session_until_it_is_revoked() {
    let mut script = Script::new();
    for _ in 0..3 {
        script = script.call("write", json!({})).say("written");
    }
    let stage = Setup::new(script).open().await;
    let session = create(&stage).await;
    let base = format!("/v1/sessions/{session}");
    post(&stage, &format!("{base}/messages"), json!({ "content": "a" })).await;
    let (asked, _) = events(&stage, &session, None, "agent.user_confirm").await;
    assert_eq!(asked.last().unwrap()["metadata"]["remember"], "session");
    let step = question(&stage, &session).await;
    let denied = json!({ "step_id": step, "confirmed": false, "remember": "session" });
    assert_eq!(post(&stage, &format!("{base}/answers"), denied).await.0, 422);
    let wrong = json!({ "step_id": step, "confirmed": true, "remember": "for ever" });
    assert_eq!(post(&stage, &format!("{base}/answers"), wrong).await.0, 422);
    let answer = json!({ "step_id": step, "confirmed": true, "remember": "session" });
    assert_eq!(post(&stage, &format!("{base}/answers"), answer).await.0, 202);
    let view = get(&stage, &base).await.1;
    assert_eq!(view["remembered_tools"], json!(["write"]));

    send(&stage, &session, "b").await;
    let questions =
        |frames: &[Value]| frames.iter().filter(|it| it["event"] == "agent.user_confirm").count();
    assert_eq!(questions(&frames(&stage, &session).await), 1, "the second call is not asked about");

    // A fork is another session: it remembers nothing.
    let forked = post(&stage, &format!("{base}/fork"), json!({})).await.1;
    let fork = forked["session_id"].as_str().unwrap();
    assert_eq!(get(&stage, &format!("/v1/sessions/{fork}")).await.1["remembered_tools"], json!([]));

    let revoke = json!({ "event": "user.revoke_permission", "content": { "tool_name": "write" } });
    assert_eq!(post(&stage, &format!("{base}/commands"), revoke).await.0, 202);
    assert_eq!(get(&stage, &base).await.1["remembered_tools"], json!([]));
    post(&stage, &format!("{base}/messages"), json!({ "content": "c" })).await;
    while get(&stage, &base).await.1["status"] != "waiting_for_decision" {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_repeated_fork_is_answered_when_no_further_session_is_allowed() {
    let setup = Setup::new(Script::new().say("one"));
    let stage = setup.with(|config| config.limits.tenant_sessions = 2).open().await;
    let parent = create(&stage).await;
    let path = format!("/v1/sessions/{parent}/fork");
    let (status, forked) = post(&stage, &path, json!({ "command_id": "edit-1" })).await;
    assert_eq!(status, 201, "{forked}");
    assert_eq!(post(&stage, &path, json!({ "command_id": "edit-2" })).await.0, 503);
    let (status, again) = post(&stage, &path, json!({ "command_id": "edit-1" })).await;
    assert_eq!((status, &again["session_id"]), (200, &forked["session_id"]), "{again}");
}
