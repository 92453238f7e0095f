//! Coming back to a session: list, load, resume, close, delete.

use budao_core::{
    engine::{Engine, SessionOptions},
    event::{CommandBody, Origin, SessionId},
    message::Block,
};
use serde_json::{Value, json};

use crate::{
    editor::{Editor, Party, UserBehaviour},
    fixture::{Fixture, words},
};

/// The updates between a request and its answer.
fn updates_before(editor: &Editor, id: u64) -> Vec<Value> {
    let lines = &editor.transcript;
    let questions =
        lines.iter().position(|line| line.from == Party::Editor && line.value["id"] == id);
    let answered = lines.iter().position(|line| {
        line.from == Party::Agent && line.value["id"] == id && line.value.get("method").is_none()
    });
    lines[questions.unwrap()..answered.unwrap()]
        .iter()
        .filter(|line| line.from == Party::Agent)
        .map(|line| line.value["params"]["update"].clone())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_loaded_session_sends_its_history_first() {
    let stage = Fixture::new(1);
    let (mut editor, session) = Editor::open(stage.bridge.clone()).await;
    for prompt in ["P1 say 3", "P2 touch", "P3 break 4", "P4 fail"] {
        let id = editor.prompt(&session, prompt).await;
        editor.stop(id).await;
    }
    editor.hang_up().await;

    let mut editor = Editor::connect(stage.bridge);
    editor.initialize().await;
    let params = json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []});
    let id = editor.send("session/load", params).await;
    let answer = editor.answer(id).await;
    assert_eq!(answer["result"]["modes"]["currentModeId"], "default");
    let shown_before = updates_before(&editor, id);
    insta::assert_json_snapshot!(shown_before);
    let next = editor.prompt(&session, "P5 say 2").await;
    assert_eq!(editor.stop(next).await, "end_turn");
    editor.transcript.clear();
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn a_resumed_session_sends_no_history() {
    let stage = Fixture::new(2);
    let (mut editor, session) = Editor::open(stage.bridge.clone()).await;
    let id = editor.prompt(&session, "P1 say 3").await;
    editor.stop(id).await;
    editor.hang_up().await;

    let mut editor = Editor::connect(stage.bridge);
    editor.initialize().await;
    let params = json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []});
    let id = editor.send("session/resume", params).await;
    assert!(editor.answer(id).await["error"].is_null());
    assert_eq!(updates_before(&editor, id), Vec::<Value>::new());
    let next = editor.prompt(&session, "P2 say 3").await;
    assert_eq!(editor.stop(next).await, "end_turn");
    assert_eq!(editor.text(), words("P2", 3));
    editor.hang_up().await;
}

/// Goal: a question that was open when the editor died is asked again of the next editor; here the
/// editor died without saying so, as a killed process does.
#[tokio::test(start_paused = true)]
async fn an_open_question_is_asked_again() {
    let stage = Fixture::new(3);
    let (mut editor, session) = Editor::open(stage.bridge.clone()).await;
    editor.behaviour = UserBehaviour::Silent;
    editor.prompt(&session, "P1 touch").await;
    editor.until(|value| value["method"] == "session/request_permission").await;
    editor.serving.abort();

    let mut second = Editor::connect(stage.bridge);
    second.initialize().await;
    let params = json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []});
    let id = second.send("session/load", params).await;
    second.answer(id).await;
    second.until(|value| value["params"]["update"]["sessionUpdate"] == "usage_update").await;
    let next = second.prompt(&session, "P2 say 2").await;
    assert_eq!(second.stop(next).await, "end_turn");
    drop(editor);
}

#[tokio::test(start_paused = true)]
async fn commands_of_other_clients_are_shown_with_their_text() {
    let stage = Fixture::new(4);
    let (mut editor, session) = Editor::open(stage.bridge).await;
    let content = vec![Block::Text("Pother say 3".to_owned())];
    let command = stage.runtime.command("terminal", CommandBody::Message { content });
    let id: SessionId = session.parse().unwrap();
    stage.runtime.submit(id, command).await.unwrap();
    let mine = editor.prompt(&session, "P1 say 2").await;
    assert_eq!(editor.stop(mine).await, "end_turn");
    assert_eq!(editor.text(), words("Pother", 3) + &words("P1", 2));
    let users = editor.updates("user_message_chunk");
    assert_eq!(users.len(), 1);
    assert_eq!(users[0]["content"]["text"], "Pother say 3");
}

/// Goal: stopping while the turn of another client runs stops that one, and the prompt that waits behind it.
#[tokio::test(start_paused = true)]
async fn a_prompt_behind_another_turn_can_be_stopped() {
    let stage = Fixture::new(5);
    let (mut editor, session) = Editor::open(stage.bridge).await;
    let content = vec![Block::Text("Pother stall".to_owned())];
    let command = stage.runtime.command("terminal", CommandBody::Message { content });
    stage.runtime.submit(session.parse().unwrap(), command).await.unwrap();
    let mine = editor.prompt(&session, "P1 stall").await;
    editor.cancel(&session).await;
    let next = editor.prompt(&session, "P2 say 2").await;
    assert_eq!(editor.stop(mine).await, "cancelled");
    assert_eq!(editor.stop(next).await, "end_turn");
}

#[tokio::test(start_paused = true)]
async fn sessions_are_listed_by_directory_page_by_page() {
    let mut editor = Editor::connect(Fixture::new(6).bridge);
    editor.initialize().await;
    let (even, odd) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for number in 0..60 {
        let cwd = if number % 2 == 0 { even.path() } else { odd.path() };
        editor.ask("session/new", json!({"cwd": cwd, "mcpServers": []})).await;
    }
    let even = editor.ask("session/list", json!({"cwd": even.path()})).await;
    assert_eq!(even["result"]["sessions"].as_array().unwrap().len(), 30);
    assert!(even["result"].get("nextCursor").is_none_or(Value::is_null));
    let first = editor.ask("session/list", json!({})).await;
    assert_eq!(first["result"]["sessions"].as_array().unwrap().len(), 50);
    let cursor = first["result"]["nextCursor"].clone();
    let second = editor.ask("session/list", json!({"cursor": cursor})).await;
    assert_eq!(second["result"]["sessions"].as_array().unwrap().len(), 10);
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn a_closed_session_stops_and_is_no_longer_open() {
    let (mut editor, session) = Editor::open(Fixture::new(7).bridge).await;
    let running = editor.prompt(&session, "P1 stall").await;
    let waiting = editor.prompt(&session, "P2 say 2").await;
    let closed = editor.send("session/close", json!({"sessionId": session})).await;
    assert!(editor.answer(closed).await["error"].is_null());
    assert_eq!(editor.stop(running).await, "cancelled");
    assert_eq!(editor.stop(waiting).await, "cancelled");
    let again = editor.prompt(&session, "P3 say 2").await;
    assert_eq!(editor.stop(again).await, "-32002");
    let params = json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []});
    assert!(editor.ask("session/resume", params).await["error"].is_null());
    let id = editor.prompt(&session, "P4 say 2").await;
    assert_eq!(editor.stop(id).await, "end_turn");
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_session_is_gone_open_or_not() {
    let (mut editor, session) = Editor::open(Fixture::new(8).bridge).await;
    let other = editor.new_session().await;
    assert!(editor.ask("session/close", json!({"sessionId": other})).await["error"].is_null());
    for session in [session, other] {
        let answer = editor.ask("session/delete", json!({"sessionId": session})).await;
        assert!(answer["error"].is_null(), "{answer}");
        let params = json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []});
        assert_eq!(editor.ask("session/load", params).await["error"]["code"], -32002);
    }
    let left = editor.ask("session/list", json!({})).await;
    assert_eq!(left["result"]["sessions"], json!([]));
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_does_not_exist_is_refused_when_the_session_is_opened() {
    let mut editor = Editor::connect(Fixture::new(9).bridge);
    editor.initialize().await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    for name in ["missing", "file"] {
        let cwd = folder.path().join(name);
        let refused = editor.ask("session/new", json!({"cwd": cwd, "mcpServers": []})).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains("cwd") && message.contains(cwd.to_str().unwrap()), "{message}");
    }
    let listed = editor.ask("session/list", json!({})).await;
    assert_eq!(listed["result"]["sessions"], json!([]), "nothing was opened");
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn sessions_of_sub_tasks_are_not_listed() {
    let stage = Fixture::new(10);
    let (mut editor, session) = Editor::open(stage.bridge.clone()).await;
    let parent: SessionId = session.parse().unwrap();
    let settings = budao_core::event::Settings {
        labels: [("cwd".to_owned(), "/tmp".to_owned())].into(),
        ..stage.bridge.settings.clone()
    };
    let call = Origin::Call { parent, call: "call_1_1_1".into(), depth: 1 };
    let fork = Origin::Fork { parent, at: 1, copied: 1 };
    let mut opened = Vec::new();
    for origin in [call, fork] {
        let options =
            SessionOptions { session: None, settings: settings.clone(), origin: Some(origin) };
        opened.push(stage.runtime.open(options).await.unwrap().to_string());
    }
    let listed = editor.ask("session/list", json!({})).await;
    let mut ids: Vec<_> = listed["result"]["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["sessionId"].as_str().unwrap().to_owned())
        .collect();
    ids.sort();
    let mut wanted = vec![session, opened[1].clone()];
    wanted.sort();
    assert_eq!(ids, wanted, "a fork belongs to a user, a sub-task does not");
    editor.hang_up().await;
}
