//! Lives of sessions: questions, cancels, runs without observers, a server that stops.

use std::time::Duration;

use budao_core::{Fault, Kind, event::Event, fault::Operation};
use budao_journal::{PageLimits, SessionState};
use budao_models::{
    Script,
    script::{Ending, ScriptStep},
};
use budao_serve::OnDisconnect;
use serde_json::{Value, json};

use crate::fixture::{Client, Fixture, Setup, memory, sqlite};

fn asking() -> Script {
    Script::new().call("write", json!({})).say("it is written").forever()
}

async fn question(client: &mut Client) -> Value {
    client.until("agent.user_confirm").await.pop().unwrap()
}

#[tokio::test]
async fn a_question_survives_a_cut_is_asked_again_and_counts_once() {
    let stage = Setup::new(asking()).open().await;
    let mut client = stage.client().await;
    let session = client.create(json!({})).await;
    client.ask(&session, "write it").await;
    let open_question = question(&mut client).await;
    let last = open_question["seq"].as_u64().unwrap();
    drop(client);
    let mut client = stage.client().await;
    client.reconnect(&session, last).await;
    let again = question(&mut client).await;
    assert_eq!(
        (&again["step_id"], &again["metadata"]["resent"]),
        (&open_question["step_id"], &json!(true))
    );
    let answer = json!({
        "event": "user.response",
        "session_id": session,
        "step_id": open_question["step_id"],
        "content": {"approved": true, "digest": open_question["metadata"]["digest"]},
    });
    client.send(answer.clone()).await;
    let frames = client.until("agent.final_answer").await;
    assert_eq!(frames.last().unwrap()["content"], "it is written");
    client.send(answer).await;
    let late = client.until("error.validation").await.pop().unwrap();
    assert_eq!(late["metadata"]["kind"], "question_not_open");
}

#[tokio::test]
async fn a_question_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let journal = sqlite(&directory).await;
    let script = || asking().order(budao_models::script::StepOrder::History);
    let stage = Setup::new(script()).on(&journal).open().await;
    let mut client = stage.client().await;
    let session = client.create(json!({})).await;
    client.ask(&session, "write it").await;
    let open_question = question(&mut client).await;
    stage.stop().await;
    let stage = Setup::new(script()).on(&journal).open().await;
    let mut client = stage.client().await;
    client.reconnect(&session, open_question["seq"].as_u64().unwrap()).await;
    let again = question(&mut client).await;
    assert_eq!(again["step_id"], open_question["step_id"]);
    client
        .send(json!({
            "event": "user.response",
            "session_id": session,
            "step_id": open_question["step_id"],
            "content": {"confirmed": true},
        }))
        .await;
    client.until("agent.final_answer").await;
}

#[tokio::test]
async fn an_answer_for_other_arguments_is_refused() {
    let stage = Setup::new(asking()).open().await;
    let mut client = stage.client().await;
    let session = client.create(json!({})).await;
    client.ask(&session, "write it").await;
    let open_question = question(&mut client).await;
    client
        .send(json!({
            "event": "user.response",
            "session_id": session,
            "step_id": open_question["step_id"],
            "content": {"confirmed": true, "digest": "of something else"},
        }))
        .await;
    let refused = client.until("error.validation").await.pop().unwrap();
    assert_eq!(refused["metadata"]["kind"], "question_not_open");
}

#[tokio::test]
async fn a_cancel_ends_the_turn_and_the_session_goes_on() {
    let script = Script::new().call("slow", json!({})).say("fine").forever();
    let stage = Setup::new(script).open().await;
    let mut client = stage.client().await;
    let session = client.create(json!({})).await;
    client.ask(&session, "take your time").await;
    client.until("agent.tool_call").await;
    client.send(json!({"event": "user.cancel", "session_id": session})).await;
    client.until("agent.interrupted").await;
    client.ask(&session, "again").await;
    client.until("agent.final_answer").await;
}

async fn until_cancelled(stage: &Fixture, session: &str) {
    let mut records = stage.journal.follow(session.parse().unwrap(), 0);
    while let Some(batch) = futures::StreamExt::next(&mut records).await {
        let ended = |stored: &budao_journal::StoredRecord| {
            matches!(stored.event().unwrap(), Event::TurnEnded { .. })
        };
        if batch.unwrap().iter().any(ended) {
            return;
        }
    }
}

#[tokio::test]
async fn a_run_with_on_disconnect_cancel_ends_with_its_last_observer() {
    let script = Script::new().call("slow", json!({})).say("fine").forever();
    let stage = Setup::new(script).open().await;
    let mut client = stage.client().await;
    let session = client.create(json!({"config": {"on_disconnect": "cancel"}})).await;
    client.ask(&session, "take your time").await;
    client.until("agent.tool_call").await;
    drop(client);
    until_cancelled(&stage, &session).await;
}

#[tokio::test]
async fn a_run_without_observers_is_cancelled_after_the_timeout() {
    let script = Script::new().call("slow", json!({})).say("fine").forever();
    let setup = Setup::new(script).with(|config| {
        config.limits.unobserved_timeout = Duration::from_millis(300);
        config.on_disconnect = OnDisconnect::Continue;
    });
    let stage = setup.open().await;
    let mut client = stage.client().await;
    let session = client.create(json!({})).await;
    client.ask(&session, "take your time").await;
    client.until("agent.tool_call").await;
    drop(client);
    until_cancelled(&stage, &session).await;
}

#[tokio::test]
async fn a_run_that_waits_for_its_service_is_not_cancelled_without_observers() {
    let limited = Fault::new(Kind::ModelRateLimited, Operation::ModelRequest);
    let limited = limited.retry_after(Duration::from_millis(1200));
    let limited = ScriptStep::new().end(Ending::Fault(Box::new(limited)));
    let script = Script::new().step(limited).say("fine").forever();
    let setup = Setup::new(script).with(|config| {
        config.limits.unobserved_timeout = Duration::from_millis(300);
        config.on_disconnect = OnDisconnect::Continue;
    });
    let stage = setup.open().await;
    let mut client = stage.client().await;
    let session = client.create(json!({})).await;
    client.ask(&session, "take your time").await;
    client.until("error.rate_limited").await;
    drop(client);
    until_cancelled(&stage, &session).await;
    let mut client = stage.client().await;
    client.reconnect(&session, 0).await;
    client.until("agent.final_answer").await;
}

#[tokio::test]
async fn a_cut_connection_is_recorded_as_lost_and_a_closed_one_is_not() {
    let stage = Setup::new(Script::new().say("fine")).open().await;
    let mut client = stage.client().await;
    let session = client.create(json!({})).await;
    let mut other = stage.client().await;
    other.reconnect(&session, 0).await;
    other.until("system.notice").await;
    other.until("system.notice").await;
    client.socket.close(None).await.unwrap();
    drop(client);
    let mut cut = stage.client().await;
    cut.reconnect(&session, 0).await;
    cut.until("system.notice").await;
    cut.until("system.notice").await;
    drop(cut);
    let lost = other.until("error.connection_lost").await.pop().unwrap();
    assert_eq!(lost["metadata"]["close_code"], 1006, "{lost}");
    let page =
        stage.journal.read(session.parse().unwrap(), 0, PageLimits::default()).await.unwrap();
    let losses = page
        .records
        .iter()
        .filter(|stored| matches!(stored.event().unwrap(), Event::ObserverLost(_)));
    assert_eq!(losses.count(), 1);
}

#[tokio::test]
async fn a_stopping_server_gives_clients_a_retry_time() {
    let stage = Setup::new(Script::new().say("fine")).open().await;
    let mut client = stage.client().await;
    client.create(json!({})).await;
    let stopping = tokio::spawn(stage.stop());
    let notice = client.until("system.notice").await.pop().unwrap();
    assert_eq!(notice["metadata"]["action"], "shutdown");
    assert!(notice["metadata"]["retry_after_ms"].is_u64());
    assert_eq!(client.closed().await, 1012);
    stopping.await.unwrap();
}

#[tokio::test]
async fn a_stopping_server_waits_five_seconds_for_a_client_that_does_not_answer_its_close() {
    let limit = budao_serve::Limits::default().close_timeout;
    let setup = Setup::new(Script::new().say("fine"));
    let stage = setup.with(|config| config.limits.close_timeout = limit).open().await;
    let _silent = stage.client().await;
    let began = std::time::Instant::now();
    stage.stop().await;
    assert_eq!(limit, Duration::from_secs(5));
    assert!(began.elapsed() >= limit, "{:?}", began.elapsed());
}

#[tokio::test]
async fn sessions_past_their_time_are_removed() {
    let journal = memory();
    let setup = Setup::new(Script::new().say("fine")).on(&journal).with(|config| {
        config.limits.retention = Duration::from_millis(1);
        config.limits.retention_interval = Duration::from_millis(100);
    });
    let stage = setup.open().await;
    let mut client = stage.client().await;
    let session = client.create(json!({})).await;
    client.until("system.error").await;
    let found = journal.sessions(budao_journal::Filter::default()).await.unwrap();
    assert!(found.iter().all(|summary| summary.session.to_string() != session));
    assert!(found.iter().all(|summary| summary.state == SessionState::Idle));
}

#[tokio::test]
async fn a_heartbeat_names_the_head() {
    let setup = Setup::new(Script::new().say("fine"))
        .with(|config| config.limits.heartbeat = Duration::from_millis(50));
    let stage = setup.open().await;
    let mut client = stage.client().await;
    let session = client.create(json!({})).await;
    loop {
        use futures::StreamExt as _;
        let message = client.socket.next().await.unwrap().unwrap();
        let Ok(frame) = serde_json::from_str::<Value>(message.to_text().unwrap_or_default()) else {
            continue;
        };
        if frame["event"] == "system.heartbeat" && frame["metadata"]["head"].is_u64() {
            assert!(frame["seq"].is_null());
            assert_eq!(frame["metadata"]["heads"][0]["session_id"], *session);
            assert_eq!(frame["metadata"]["head"], 1);
            break;
        }
    }
}
