//! Prompts, their answers, and how they are stopped.

use std::time::Duration;

use budao_acp::ExecutionError;
use serde_json::json;

use crate::{
    editor::{Editor, UserBehaviour},
    fixture::{Fixture, words},
};

#[tokio::test(start_paused = true)]
async fn a_prompt_is_answered_after_all_of_its_text() {
    let (mut editor, session) = Editor::open(Fixture::new(1).bridge).await;
    let id = editor.prompt(&session, "P1 say 5").await;
    assert_eq!(editor.stop(id).await, "end_turn");
    assert_eq!(editor.text(), words("P1", 5));
    let usage = editor.updates("usage_update");
    assert_eq!((&usage[0]["used"], &usage[0]["size"]), (&json!(15), &json!(1000)));
    let info = editor.updates("session_info_update");
    assert_eq!(info[0]["title"], "P1 say 5");
    let commands = editor.updates("available_commands_update");
    assert_eq!(commands[0]["availableCommands"][0]["name"], "plan");
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn prompts_that_come_at_once_are_answered_in_order() {
    let (mut editor, session) = Editor::open(Fixture::new(2).bridge).await;
    let first = editor.prompt(&session, "P1 say 9").await;
    let second = editor.prompt(&session, "P2 say 4").await;
    let third = editor.prompt(&session, "P3 touch").await;
    for id in [first, second, third] {
        assert_eq!(editor.stop(id).await, "end_turn");
    }
    editor.hang_up().await;
}

/// Goal: a prompt sent after a cancel is never touched by it, busy or idle, however close they are.
#[tokio::test(start_paused = true)]
async fn a_cancel_never_reaches_the_prompt_behind_it() {
    for gap in [0, 1, 5, 20, 100] {
        for is_busy in [true, false] {
            let (mut editor, session) = Editor::open(Fixture::new(gap).bridge).await;
            let first = editor.prompt(&session, "P1 say 50").await;
            if is_busy {
                editor.read_for(Duration::from_millis(60)).await;
            } else {
                editor.stop(first).await;
            }
            editor.cancel(&session).await;
            editor.read_for(Duration::from_millis(gap)).await;
            let second = editor.prompt(&session, "P2 say 3").await;
            let third = editor.prompt(&session, "P3 say 3").await;
            let expected = if is_busy { "cancelled" } else { "end_turn" };
            assert_eq!(editor.stop(first).await, expected, "gap {gap}, busy {is_busy}");
            assert_eq!(editor.stop(second).await, "end_turn", "gap {gap}, busy {is_busy}");
            assert_eq!(editor.stop(third).await, "end_turn", "gap {gap}, busy {is_busy}");
            editor.hang_up().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_prompt_is_cancelled_before_it_began_and_twice() {
    let (mut editor, session) = Editor::open(Fixture::new(3).bridge).await;
    let first = editor.prompt(&session, "P1 say 50").await;
    editor.cancel(&session).await;
    editor.cancel(&session).await;
    let second = editor.prompt(&session, "P2 say 2").await;
    assert_eq!(editor.stop(first).await, "cancelled");
    assert_eq!(editor.stop(second).await, "end_turn");
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn of_three_prompts_the_middle_one_can_be_taken_back() {
    let (mut editor, session) = Editor::open(Fixture::new(4).bridge).await;
    let first = editor.prompt(&session, "P1 say 20").await;
    let second = editor.prompt(&session, "P2 say 20").await;
    let third = editor.prompt(&session, "P3 say 2").await;
    editor.notify("$/cancel_request", json!({"requestId": second})).await;
    assert_eq!(editor.stop(second).await, "cancelled");
    assert_eq!(editor.stop(first).await, "end_turn");
    assert_eq!(editor.stop(third).await, "end_turn");
    assert!(!editor.text().contains("P2"));
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn taking_back_the_prompt_that_runs_stops_it_alone() {
    let (mut editor, session) = Editor::open(Fixture::new(5).bridge).await;
    let first = editor.prompt(&session, "P1 stall").await;
    let second = editor.prompt(&session, "P2 say 2").await;
    editor.read_for(Duration::from_millis(200)).await;
    editor.notify("$/cancel_request", json!({"requestId": first})).await;
    assert_eq!(editor.stop(first).await, "cancelled");
    assert_eq!(editor.stop(second).await, "end_turn");
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn a_running_tool_is_stopped_and_shown_as_failed() {
    let (mut editor, session) = Editor::open(Fixture::new(6).bridge).await;
    let id = editor.prompt(&session, "P1 wait").await;
    editor.until(|value| value["params"]["update"]["status"] == "in_progress").await;
    editor.cancel(&session).await;
    assert_eq!(editor.stop(id).await, "cancelled");
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_broke_off_is_shown_once() {
    let (mut editor, session) = Editor::open(Fixture::new(7).bridge).await;
    let id = editor.prompt(&session, "P1 break 6").await;
    assert_eq!(editor.stop(id).await, "end_turn");
    assert_eq!(editor.text(), words("P1", 6));
    let thoughts = editor.updates("agent_thought_chunk");
    let shown_before = thoughts[0]["content"]["text"].as_str().unwrap();
    assert!(shown_before.contains("retrying in"), "{shown_before}");
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn an_editor_with_notices_gets_retries_as_notices() {
    let mut editor = Editor::connect(Fixture::new(8).bridge);
    let session = json!({"notices": {}, "compaction": {}});
    let params = json!({"protocolVersion": 1, "clientCapabilities": {"session": session}});
    editor.ask("initialize", params).await;
    let session = editor.new_session().await;
    let id = editor.prompt(&session, "P1 break 6").await;
    assert_eq!(editor.stop(id).await, "end_turn");
    assert_eq!(editor.updates("notice")[0]["severity"], "warning");
    assert!(editor.updates("agent_thought_chunk").is_empty());
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn no_failure_looks_like_a_finished_turn() {
    let (mut editor, session) = Editor::open(Fixture::new(9).bridge).await;
    for (verb, expected) in [
        ("fail", "-32603"),
        ("login", "-32000"),
        ("refuse", "refusal"),
        ("long", "max_tokens"),
        ("say", "end_turn"),
    ] {
        let id = editor.prompt(&session, &format!("P{verb} {verb}")).await;
        assert_eq!(editor.stop(id).await, expected, "{verb}");
        if expected.starts_with('-') {
            let error = editor.answer(id).await["error"].clone();
            for field in ["kind", "code", "retryable", "advice", "trace", "turn"] {
                assert!(!error["data"][field].is_null(), "{field} of {error}");
            }
        }
    }
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_may_be_shown_as_a_refusal_after_a_sentence() {
    let stage = Fixture::with(10, ExecutionError::Refusal);
    let (mut editor, session) = Editor::open(stage.bridge).await;
    let failed = editor.prompt(&session, "P1 fail").await;
    assert_eq!(editor.stop(failed).await, "refusal");
    assert!(!editor.text().is_empty());
    let login = editor.prompt(&session, "P2 login").await;
    assert_eq!(editor.stop(login).await, "-32000");
    editor.hang_up().await;
}

/// Goal: 20 000 deltas arrive in order and whole, at an editor that reads slowly, without a queue that
/// grows: what waits is joined.
#[tokio::test(start_paused = true)]
async fn a_long_answer_reaches_a_slow_reader_whole() {
    let stage = Fixture::new(11);
    let mut editor = Editor::connect_with(stage.bridge, 4 * 1024);
    editor.initialize().await;
    let session = editor.new_session().await;
    let id = editor.prompt(&session, "P1 say 20000").await;
    // It says nothing for as long as the model takes, and only then begins to read.
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(editor.stop(id).await, "end_turn");
    assert_eq!(editor.text(), words("P1", 20_000));
    let updates = editor.updates("agent_message_chunk").len();
    assert!(updates < 4_000, "{updates} updates: nothing was joined");
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn sessions_do_not_wait_for_each_other() {
    let mut editor = Editor::connect(Fixture::new(12).bridge);
    editor.initialize().await;
    let (one, two) = (editor.new_session().await, editor.new_session().await);
    let stalled = editor.prompt(&one, "P1 stall").await;
    let quick = editor.prompt(&two, "P2 say 3").await;
    assert_eq!(editor.stop(quick).await, "end_turn");
    editor.cancel(&one).await;
    assert_eq!(editor.stop(stalled).await, "cancelled");
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn an_editor_that_hangs_up_is_gone_within_a_second() {
    let (mut editor, session) = Editor::open(Fixture::new(13).bridge).await;
    editor.behaviour = UserBehaviour::Silent;
    editor.prompt(&session, "P1 wait").await;
    editor.read_for(Duration::from_millis(300)).await;
    let began = tokio::time::Instant::now();
    editor.prompt(&session, "P2 touch").await;
    editor.vanish().await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_plan_is_asked_for_with_a_slash() {
    let (mut editor, session) = Editor::open(Fixture::new(14).bridge).await;
    let id = editor.prompt(&session, "/plan what is there to do").await;
    // The model of these tests makes no plans; what matters is that the turn is a pipeline's and ends.
    assert_eq!(editor.stop(id).await.parse::<i32>().map(|code| code < 0), Ok(true));
    editor.hang_up().await;
}
