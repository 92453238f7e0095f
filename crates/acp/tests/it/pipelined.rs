//! Requests of one session that an editor sends without waiting for answers: they take effect in order.

use serde_json::{Value, json};

use crate::{
    editor::{Editor, Party},
    fixture::{Fixture, words},
};

fn opening(session: &str) -> Value {
    json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []})
}

/// The text that the agent showed between two answers.
fn text_between(editor: &Editor, after: Option<u64>, until: u64) -> String {
    let answer = |id: u64| {
        editor.transcript.iter().position(|line| {
            line.from == Party::Agent
                && line.value["id"] == id
                && line.value.get("method").is_none()
        })
    };
    let (from, to) = (after.and_then(answer).unwrap_or(0), answer(until).unwrap());
    editor.transcript[from..to]
        .iter()
        .filter(|line| line.from == Party::Agent)
        .filter(|line| line.value["params"]["update"]["sessionUpdate"] == "agent_message_chunk")
        .filter_map(|line| line.value["params"]["update"]["content"]["text"].as_str())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_close_and_a_load_take_effect_in_this_order() {
    let (mut editor, session) = Editor::open(Fixture::new(1).bridge).await;
    let first = editor.prompt(&session, "P1 say 2").await;
    editor.stop(first).await;
    for method in ["session/load", "session/resume"] {
        for round in 0..10 {
            let closed = editor.send("session/close", json!({"sessionId": session})).await;
            let opened = editor.send(method, opening(&session)).await;
            let prompt = editor.prompt(&session, &format!("P{}0 say 2", round + 2)).await;
            assert!(editor.answer(closed).await["error"].is_null(), "{method} {round}");
            let answer = editor.answer(opened).await;
            assert!(answer["error"].is_null(), "{method} {round}: {answer}");
            assert_eq!(editor.stop(prompt).await, "end_turn", "{method} {round}");
        }
    }
    editor.transcript.clear();
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn a_running_turn_is_cancelled_by_a_close_and_the_load_after_it_shows_that() {
    let (mut editor, session) = Editor::open(Fixture::new(2).bridge).await;
    let running = editor.prompt(&session, "P1 stall").await;
    let closed = editor.send("session/close", json!({"sessionId": session})).await;
    let loaded = editor.send("session/load", opening(&session)).await;
    let next = editor.prompt(&session, "P2 say 2").await;
    assert_eq!(editor.stop(running).await, "cancelled");
    assert!(editor.answer(closed).await["error"].is_null());
    assert!(editor.answer(loaded).await["error"].is_null());
    assert_eq!(editor.stop(next).await, "end_turn");
    editor.transcript.clear();
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn every_one_of_several_loads_shows_the_whole_history_before_its_answer() {
    let stage = Fixture::new(3);
    let (mut editor, session) = Editor::open(stage.bridge.clone()).await;
    for prompt in ["P1 say 5", "P2 touch", "P3 say 5"] {
        let id = editor.prompt(&session, prompt).await;
        editor.stop(id).await;
    }
    editor.hang_up().await;

    let history = words("P1", 5) + &words("P2", 3) + &words("P3", 5);
    let mut editor = Editor::connect(stage.bridge);
    editor.initialize().await;
    for _ in 0..10 {
        let mut loads = Vec::new();
        for _ in 0..3 {
            loads.push(editor.send("session/load", opening(&session)).await);
        }
        let mut before = None;
        for load in loads {
            let answer = editor.answer(load).await;
            assert!(answer["error"].is_null(), "{answer}");
            assert_eq!(text_between(&editor, before, load), history);
            before = Some(load);
        }
        editor.transcript.clear();
    }
    let next = editor.prompt(&session, "P4 say 2").await;
    assert_eq!(editor.stop(next).await, "end_turn");
}

#[tokio::test(start_paused = true)]
async fn nothing_sent_after_a_delete_reaches_the_session() {
    for is_open in [true, false] {
        let stage = Fixture::new(4);
        let (mut editor, session) = Editor::open(stage.bridge).await;
        let first = editor.prompt(&session, "P1 say 2").await;
        editor.stop(first).await;
        if !is_open {
            editor.ask("session/close", json!({"sessionId": session})).await;
        }
        let deleted = editor.send("session/delete", json!({"sessionId": session})).await;
        let prompt = editor.prompt(&session, "P2 touch").await;
        let mode = json!({"sessionId": session, "modeId": "auto"});
        let mode = editor.send("session/set_mode", mode).await;
        let loaded = editor.send("session/load", opening(&session)).await;
        let late = editor.prompt(&session, "P3 touch").await;
        assert!(editor.answer(deleted).await["error"].is_null());
        for refused in [prompt, mode, loaded, late] {
            assert_eq!(editor.answer(refused).await["error"]["code"], -32002, "{refused}");
        }
        assert_eq!(stage.tool_runs.load(std::sync::atomic::Ordering::SeqCst), 0);
        editor.hang_up().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_after_a_load_stops_the_prompts_before_it_and_none_after_it() {
    let (mut editor, session) = Editor::open(Fixture::new(5).bridge).await;
    let first = editor.prompt(&session, "P1 say 2").await;
    editor.stop(first).await;
    let closed = editor.send("session/close", json!({"sessionId": session})).await;
    let loaded = editor.send("session/load", opening(&session)).await;
    let before = editor.prompt(&session, "P2 stall").await;
    editor.cancel(&session).await;
    let after = editor.prompt(&session, "P3 say 2").await;
    assert!(editor.answer(closed).await["error"].is_null());
    assert!(editor.answer(loaded).await["error"].is_null());
    assert_eq!(editor.stop(before).await, "cancelled");
    assert_eq!(editor.stop(after).await, "end_turn");
    editor.transcript.clear();
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn a_load_during_a_turn_leaves_the_turn_its_prompt() {
    let (mut editor, session) = Editor::open(Fixture::new(6).bridge).await;
    let running = editor.prompt(&session, "P1 say 30").await;
    let loaded = editor.send("session/load", opening(&session)).await;
    assert!(editor.answer(loaded).await["error"].is_null());
    assert_eq!(editor.stop(running).await, "end_turn");
    assert_eq!(text_between(&editor, None, running), words("P1", 30));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_cannot_be_loaded_leaves_no_request_without_an_answer() {
    let mut editor = Editor::connect(Fixture::new(7).bridge);
    editor.initialize().await;
    let nobody = "00000000-0000-4000-8000-000000000000";
    let loaded = editor.send("session/load", opening(nobody)).await;
    let prompt = editor.prompt(nobody, "P1 say 2").await;
    let closed = editor.send("session/close", json!({"sessionId": nobody})).await;
    for refused in [loaded, prompt, closed] {
        assert_eq!(editor.answer(refused).await["error"]["code"], -32002);
    }
    editor.hang_up().await;
}
