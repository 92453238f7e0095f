//! Timers on real processes: one firing each, though the server is killed before, at or after it, and though two servers
//! share the journal.

use std::time::Duration;

use budao_testkit::provider::Provider;
use serde_json::{Value, json};

use super::{
    fixture::{Server, SharedJournal, answer, bounded, until},
    model,
};

/// How long after a timer was set it fires, in milliseconds.
const DUE_MS: u64 = 700;

async fn service() -> Provider {
    Provider::answering(|_| answer()).await
}

/// Sets a timer of a new session.
async fn set(server: &Server, after_ms: u64) -> String {
    let session = server.open().await;
    let content = json!({ "timer_id": "check", "after_ms": after_ms, "message": "look again" });
    let command = json!({ "event": "user.set_timer", "content": content });
    server.post(&format!("/v1/sessions/{session}/commands"), command).await;
    session
}

/// The frames of a session's firings.
async fn firings(server: &Server, session: &str) -> Vec<Value> {
    let text = server.get(&format!("/v1/sessions/{session}/frames")).await;
    let frames = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    frames
        .filter(|frame| {
            frame["metadata"]["timer_id"] == "check" && frame["event"] == "user.message"
        })
        .collect()
}

/// Waits for the turn of the timer, sends one more message, and checks that the timer has fired once until its answer.
async fn fires_once(server: &Server, session: &str) {
    assert_eq!(server.answers(session, 1).await, ["done"]);
    server.say(session, "and now").await;
    assert_eq!(server.answers(session, 2).await, ["done", "done"]);
    let fired = firings(server, session).await;
    assert_eq!(fired.len(), 1, "{fired:#?}");
    assert!(fired[0]["content"].as_str().unwrap().ends_with("look again"), "{fired:?}");
}

/// The moment of the kill is the input of this test: before, at and after the firing.
async fn killed_around_the_firing(journal: SharedJournal) {
    let provider = service().await;
    for wait in
        [0, DUE_MS - 30, DUE_MS - 2, DUE_MS, DUE_MS + 3, DUE_MS + 10, DUE_MS + 40, 2 * DUE_MS]
    {
        let mut server = Server::start(&journal, &model(&provider));
        let session = set(&server, DUE_MS).await;
        tokio::time::sleep(Duration::from_millis(wait)).await;
        server.kill();
        let server = Server::start(&journal, &model(&provider));
        fires_once(&server, &session).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_fires_once_though_its_server_is_killed_before_at_or_after_it() {
    killed_around_the_firing(SharedJournal::file()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_on_postgres_fires_once_though_its_server_is_killed_before_at_or_after_it() {
    let Some(journal) = SharedJournal::postgres() else { return };
    killed_around_the_firing(journal).await;
}

async fn of_two_servers_one_fires(journal: SharedJournal) {
    let provider = service().await;
    let mut first = Server::start(&journal, &model(&provider));
    let second = Server::start(&journal, &model(&provider));
    let mut sessions = Vec::new();
    for number in 0..12 {
        let server = if number % 2 == 0 { &first } else { &second };
        sessions.push(set(server, DUE_MS).await);
    }
    first.kill();
    for session in &sessions {
        bounded("one firing", fires_once(&second, session)).await;
    }
    until("no timer is left", async || {
        let left = second.get(&format!("/v1/sessions/{}", sessions[0])).await;
        serde_json::from_str::<Value>(&left).unwrap()["timers"] == json!([])
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_servers_on_a_file_one_fires_a_timer_also_when_the_other_dies() {
    of_two_servers_one_fires(SharedJournal::file()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_servers_on_postgres_one_fires_a_timer_also_when_the_other_dies() {
    let Some(journal) = SharedJournal::postgres() else { return };
    of_two_servers_one_fires(journal).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_timers_are_refused_with_the_rule_they_break() {
    let (journal, provider) = (SharedJournal::file(), service().await);
    let server = Server::start(&journal, &model(&provider));
    let session = server.open().await;
    for (content, rule) in [
        (json!({ "message": "m", "at": "2001-01-01T00:00:00Z" }), "ERR_VAL_015"),
        (json!({ "message": "m", "cron": "* * * * * *" }), "ERR_VAL_016"),
        (json!({ "message": "m", "cron": "0 0 30 2 *" }), "ERR_VAL_016"),
        (json!({ "message": "m", "cron": "@daily", "zone": "Moon" }), "ERR_VAL_016"),
        (json!({ "message": "m" }), "ERR_VAL_006"),
        (json!({ "message": "m", "at": "soon" }), "ERR_VAL_001"),
        (json!({ "message": "m", "after_ms": 9, "cron": "@daily" }), "ERR_VAL_001"),
        (json!({ "message": "m", "after_ms": 9, "zone": "UTC" }), "ERR_VAL_001"),
        (json!({ "message": "", "after_ms": 9 }), "ERR_VAL_001"),
    ] {
        let command = json!({ "event": "user.set_timer", "content": content });
        let refused = server.try_post(&format!("/v1/sessions/{session}/commands"), command).await;
        assert!(refused.as_ref().is_err_and(|text| text.contains(rule)), "{content}: {refused:?}");
    }
    let cancel = json!({ "event": "user.cancel_timer", "content": { "timer_id": "none" } });
    let refused = server.try_post(&format!("/v1/sessions/{session}/commands"), cancel).await;
    assert!(refused.is_err_and(|text| text.contains("ERR_SESS_006")));
}
