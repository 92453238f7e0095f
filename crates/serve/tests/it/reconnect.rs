//! Coming back: with a cursor, with a signed state, after a restart, past what is kept.

use std::time::Duration;

use budao_journal::Retention;
use budao_models::Script;
use budao_serve::Keyring;
use serde_json::{Value, json};

use crate::fixture::{Client, Fixture, Setup, assert_whole, memory, seqs, sqlite, words};

/// The answer, the frames that were missed, and the summary.
async fn missed(client: &mut Client) -> (Value, Vec<Value>, Value) {
    let answer = client.next().await;
    let mut frames = Vec::new();
    loop {
        let frame = client.next().await;
        if frame["metadata"]["action"] == "replay" && frame["seq"].is_null() {
            return (answer, frames, frame);
        }
        frames.push(frame);
    }
}

/// A session whose one turn is over, and its frames.
async fn finished(stage: &Fixture) -> (String, Vec<Value>) {
    let mut client = stage.client().await;
    let session = client.create(json!({})).await;
    client.ask(&session, "go on").await;
    client.until("agent.final_answer").await;
    let mut observer = stage.client().await;
    observer.reconnect(&session, 0).await;
    let (_, frames, _) = missed(&mut observer).await;
    (session, frames)
}

/// Goal: a client that reconnects misses nothing and gets nothing twice, wherever it was cut.
/// Method: come back once with the position of every frame of a finished run.
#[tokio::test]
async fn every_cursor_gets_exactly_what_follows_it() {
    let stage = Setup::new(words(60, Duration::from_millis(1))).open().await;
    let (session, frames) = finished(&stage).await;
    assert_whole(&frames, 0);
    let all = seqs(&frames);
    for cut in std::iter::once(0).chain(all.clone()) {
        let mut client = stage.client().await;
        client.reconnect(&session, cut).await;
        let (answer, frames, summary) = missed(&mut client).await;
        assert_eq!(answer["metadata"]["status"], "complete", "cut at {cut}");
        let expected: Vec<u64> = all.iter().copied().filter(|seq| *seq > cut).collect();
        let got: Vec<u64> =
            seqs(&frames).into_iter().filter(|seq| expected.contains(seq)).collect();
        assert_eq!(got, expected, "cut at {cut}");
        assert_whole(&frames, cut);
        assert_eq!(summary["metadata"]["replayed"], frames.len());
    }
}

#[tokio::test]
async fn a_run_continues_without_observers_and_is_replayed_completely() {
    let directory = tempfile::tempdir().unwrap();
    let journal = sqlite(&directory).await;
    let stage = Setup::new(words(100, Duration::from_millis(3))).on(&journal).open().await;
    let mut client = stage.client().await;
    let session = client.create(json!({})).await;
    client.ask(&session, "go on").await;
    let before = client.until("agent.partial_answer").await;
    drop(client);
    let last = *seqs(&before).last().unwrap();
    let mut client = stage.client().await;
    client.reconnect(&session, last).await;
    let mut frames = client.until("agent.final_answer").await;
    frames.retain(|frame| frame["seq"].is_u64());
    assert_whole(&frames, last);
    assert!(
        frames.iter().any(|frame| frame["event"] == "error.connection_lost"),
        "it was recorded"
    );
}

#[tokio::test]
async fn two_and_three_times_with_the_same_cursor_is_the_same_each_time() {
    let stage = Setup::new(words(30, Duration::from_millis(1))).open().await;
    let (session, _) = finished(&stage).await;
    let mut client = stage.client().await;
    client.reconnect(&session, 2).await;
    let (_, first, _) = missed(&mut client).await;
    for _ in 0..2 {
        client.reconnect(&session, 2).await;
        let (answer, again, _) = missed(&mut client).await;
        assert_eq!(answer["metadata"]["status"], "complete");
        assert_eq!(again, first);
    }
}

#[tokio::test]
async fn a_cursor_beyond_the_head_is_of_another_history() {
    let stage = Setup::new(Script::new().say("fine")).open().await;
    let (session, frames) = finished(&stage).await;
    let mut client = stage.client().await;
    client.reconnect(&session, 9_999).await;
    let (answer, again, _) = missed(&mut client).await;
    assert_eq!(answer["metadata"]["status"], "epoch_mismatch");
    assert_eq!(seqs(&again)[..frames.len()], seqs(&frames)[..]);
    let id = format!("{session}.00000000.2");
    client.send(json!({"event": "user.reconnect", "last_event_id": id})).await;
    let (answer, _, _) = missed(&mut client).await;
    assert_eq!(answer["metadata"]["status"], "epoch_mismatch");
}

#[tokio::test]
async fn a_snapshot_that_replaces_removed_records_names_its_range() {
    let journal = memory();
    let mut setup = Setup::new(words(200, Duration::from_millis(1))).on(&journal);
    setup.limits.snapshot_records = 5;
    setup.limits.delta_window = Duration::from_millis(1);
    let stage = setup.open().await;
    let (session, frames) = finished(&stage).await;
    // Another server: this one still remembers everything.
    stage.stop().await;
    let stage = Setup::new(Script::new()).on(&journal).open().await;
    journal.retain(Retention { records: Some(3), ..Retention::default() }).await.unwrap();
    let info = journal.info(session.parse().unwrap()).await.unwrap().unwrap();
    assert!(info.first_available > 2, "something was removed");
    let mut client = stage.client().await;
    client.reconnect(&session, 1).await;
    let (answer, rest, _) = missed(&mut client).await;
    let metadata = &answer["metadata"];
    assert_eq!((&metadata["status"], &metadata["reason"]), (&json!("gap"), &json!("count")));
    let lost = [metadata["lost"][0].as_u64().unwrap(), metadata["lost"][1].as_u64().unwrap()];
    assert_eq!(lost[0], 2);
    assert_eq!(rest[0]["event"], "system.snapshot");
    assert_eq!(rest[0]["metadata"]["covers_seq"], lost[1]);
    let tail: Vec<u64> = seqs(&frames).into_iter().filter(|seq| *seq > lost[1]).collect();
    assert_eq!(seqs(&rest)[..tail.len()], tail[..]);
}

#[tokio::test]
async fn after_a_restart_the_run_finishes_and_the_cursor_still_counts() {
    let directory = tempfile::tempdir().unwrap();
    let journal = sqlite(&directory).await;
    let script =
        || words(300, Duration::from_millis(4)).order(budao_models::script::StepOrder::History);
    let stage = Setup::new(script()).on(&journal).open().await;
    let mut client = stage.client().await;
    let session = client.create(json!({})).await;
    client.ask(&session, "go on").await;
    let before = client.until("agent.partial_answer").await;
    let last = *seqs(&before).last().unwrap();
    stage.stop().await;
    assert_eq!(client.closed().await, 1012);
    let stage = Setup::new(script()).on(&journal).open().await;
    let mut client = stage.client().await;
    client.reconnect(&session, last).await;
    let mut frames = client.until("agent.final_answer").await;
    frames.retain(|frame| frame["seq"].is_u64());
    assert_whole(&frames, last);
}

async fn export(client: &mut Client, session: &str) -> String {
    client.send(json!({"event": "user.request_state", "session_id": session})).await;
    let frames = client.until("agent.state_exported").await;
    frames.last().unwrap()["metadata"]["signed_state"].as_str().unwrap().to_owned()
}

fn restore(state: &str, command: &str) -> Value {
    json!({"event": "user.reconnect_with_state", "command_id": command, "signed_state": state})
}

#[tokio::test]
async fn a_signed_state_is_good_once_and_again_for_the_same_command() {
    let stage = Setup::new(Script::new().say("fine").forever()).open().await;
    let mut client = stage.client().await;
    let session = client.create(json!({})).await;
    let state = export(&mut client, &session).await;
    client.ask(&session, "how are you?").await;
    client.until("agent.final_answer").await;
    let mut other = stage.client().await;
    for _ in 0..2 {
        other.send(restore(&state, "back")).await;
        let (answer, frames, _) = missed(&mut other).await;
        assert_eq!(answer["event"], "agent.state_restored");
        assert_eq!(answer["metadata"]["status"], "complete");
        assert_eq!(answer["metadata"]["command_id"], "back");
        assert!(frames.iter().any(|frame| frame["event"] == "agent.final_answer"));
    }
    other.send(restore(&state, "another")).await;
    let refused = other.next().await;
    assert_eq!(refused["event"], "error.validation");
    assert_eq!(refused["metadata"]["kind"], "state_reused");
    other.send(json!({"event": "user.reconnect_with_state", "signed_state": state})).await;
    assert_eq!(other.next().await["metadata"]["kind"], "state_reused");
}

#[tokio::test]
async fn a_state_that_was_used_is_known_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let journal = sqlite(&directory).await;
    let stage = Setup::new(Script::new().say("fine")).on(&journal).open().await;
    let mut client = stage.client().await;
    let session = client.create(json!({})).await;
    let state = export(&mut client, &session).await;
    client.send(restore(&state, "back")).await;
    missed(&mut client).await;
    stage.stop().await;
    let stage = Setup::new(Script::new().say("fine")).on(&journal).open().await;
    let mut client = stage.client().await;
    client.send(restore(&state, "another")).await;
    assert_eq!(client.next().await["metadata"]["kind"], "state_reused");
    client.send(restore(&state, "back")).await;
    assert_eq!(client.next().await["event"], "agent.state_restored");
}

#[tokio::test]
async fn forged_states_are_refused_with_a_reason() {
    let journal = memory();
    let stage = Setup::new(Script::new().say("fine")).on(&journal).open().await;
    let mut client = stage.client().await;
    let session = client.create(json!({})).await;
    let state = export(&mut client, &session).await;
    let mut altered = state.clone();
    altered.replace_range(40..41, if &state[40..41] == "A" { "B" } else { "A" });
    for (state, kind) in [
        (altered.as_str(), "state_forged"),
        (&state[..state.len() - 8], "state_forged"),
        ("", "state_forged"),
        ("!!!", "state_forged"),
    ] {
        client.send(restore(state, "x")).await;
        let refused = client.next().await;
        assert_eq!(refused["metadata"]["kind"], kind, "{state}");
        assert_eq!(refused["metadata"]["command_id"], "x");
    }
    let other_key = Setup::new(Script::new().say("fine")).on(&journal).with(|config| {
        config.keys = Keyring::new(["another secret, just as long as the first"]).unwrap();
    });
    let other = other_key.open().await;
    let mut client = other.client().await;
    client.send(restore(&state, "y")).await;
    assert_eq!(client.next().await["metadata"]["kind"], "state_forged");
    let short = Setup::new(Script::new().say("fine")).on(&journal).with(|config| {
        config.limits.signed_state = Duration::ZERO;
    });
    let stage = short.open().await;
    let mut client = stage.client().await;
    let state = export(&mut client, &session).await;
    client.send(restore(&state, "z")).await;
    assert_eq!(client.next().await["metadata"]["kind"], "state_expired");
}

#[tokio::test]
async fn the_owner_may_come_back_with_state_and_no_state() {
    let stage = Setup::new(Script::new().say("fine")).open().await;
    let (session, frames) = finished(&stage).await;
    let mut client = stage.client().await;
    client
        .send(json!({
            "event": "user.reconnect_with_state",
            "session_id": session,
            "content": {"last_seq": 1},
        }))
        .await;
    let (answer, again, _) = missed(&mut client).await;
    assert_eq!(answer["metadata"]["status"], "complete");
    assert_eq!(seqs(&again)[..frames.len() - 1], seqs(&frames)[1..]);
}

#[tokio::test]
async fn a_command_is_accepted_even_if_its_client_cannot_become_an_observer() {
    let setup = Setup::new(Script::new().say("fine").forever());
    let stage = setup.with(|config| config.limits.observers = 1).open().await;
    let mut first = stage.client().await;
    let session = first.create(json!({})).await;
    let mut second = stage.client().await;
    second.ask(&session, "hello").await;
    let (mut accepted, mut refused) = (None, None);
    while accepted.is_none() || refused.is_none() {
        let frame = second.next().await;
        match frame["event"].as_str() {
            Some("error.validation") => refused = Some(frame),
            Some("system.notice") => accepted = Some(frame),
            _ => {}
        }
    }
    assert_eq!(accepted.unwrap()["metadata"]["action"], "message");
    let refused = refused.unwrap();
    assert_eq!(refused["metadata"]["kind"], "limit_reached");
    assert_eq!(refused["metadata"]["action"], "reconnect", "no session was to be created");
}
