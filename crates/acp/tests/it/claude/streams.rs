//! Streams that break, stall or never end: each character is shown once.

use std::time::Duration;

use budao_acp::ExecutionError;
use budao_testkit::claude::{CliVersion, answer};

use super::{AGES, Fixture};

#[tokio::test(start_paused = true)]
async fn each_character_is_shown_once_whatever_happens_to_the_stream() {
    for age in AGES {
        let mut stage = Fixture::open(age).await;
        for word in
            ["@cut", "@whole", "@unstreamed", "@quiet", "@junk", "@early @cut", "@slow @cut"]
        {
            stage.runs_well(&format!("P1 {word}")).await;
        }
        stage.runs_well("P2").await;
        stage.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn retries_of_the_cli_are_shown() {
    let mut stage = Fixture::open(CliVersion::Current).await;
    stage.runs_well("P1 @cut").await;
    let thoughts = stage.editor.updates("agent_thought_chunk");
    let shown_before = thoughts[0]["content"]["text"].as_str().unwrap();
    assert!(shown_before.contains("retrying in"), "{shown_before}");
    stage.close().await;
}

/// Goal: 20 000 deltas arrive in order and whole at an editor that does not read for ten minutes, and what
/// waits for it is joined instead of queued.
#[tokio::test(start_paused = true)]
async fn twenty_thousand_deltas_reach_a_slow_reader_whole_and_in_order() {
    let mut stage = Fixture::with(CliVersion::Current, 1, ExecutionError::Error, 4 * 1024).await;
    let id = stage.prompt("P1 @many").await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(stage.editor.stop(id).await, "end_turn");
    assert_eq!(stage.editor.text(), answer("P1 @many"));
    let updates = stage.editor.updates("agent_message_chunk").len();
    assert!(updates < 4_000, "{updates} updates: nothing was joined");
    stage.runs_well("P2").await;
    stage.close().await;
}

#[tokio::test(start_paused = true)]
async fn tools_are_shown_to_their_end_however_it_comes() {
    for age in AGES {
        let mut stage = Fixture::open(age).await;
        for word in ["@tool", "@free", "@early", "@withdraw", "@tool @cut", "@tool @slow"] {
            stage.runs_well(&format!("P1 {word}")).await;
        }
        stage.editor.behaviour = crate::editor::UserBehaviour::Option("reject");
        stage.runs_well("P2 @tool").await;
        let calls = stage.editor.updates("tool_call_update");
        let last = calls.iter().rev().find_map(|call| call["status"].as_str());
        assert_eq!(last, Some("failed"), "what was refused did not run");
        stage.close().await;
    }
}
