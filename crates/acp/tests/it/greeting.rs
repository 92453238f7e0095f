//! What an editor hears before anything is open.

use std::time::Duration;

use budao_core::fault::{Fault, Kind, Operation};
use serde_json::json;
use tokio::sync::oneshot;

use super::{editor::Editor, fixture::Fixture};

const LINE: usize = 64 * 1024;

#[tokio::test(start_paused = true)]
async fn an_editor_is_greeted_while_the_journal_is_still_being_opened() {
    let bridge = Fixture::new(1).bridge;
    let (open, opened) = oneshot::channel();
    let initialize_context = bridge.initialize_context();
    let opening = async move {
        opened.await.expect("the test opens it");
        Ok(bridge)
    };
    let mut editor = Editor::connect_while(initialize_context, opening, LINE);
    assert_eq!(editor.initialize().await["result"]["protocolVersion"], 1);
    let questions = editor.send("session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
    open.send(()).expect("it is waited for");
    let answer = editor.answer(questions).await;
    let session = answer["result"]["sessionId"].as_str().expect("a session").to_owned();
    let prompt = editor.prompt(&session, "say hello").await;
    assert_eq!(editor.stop(prompt).await, "end_turn");
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn an_editor_whose_bridge_cannot_be_opened_gets_the_reason_with_every_answer() {
    let initialize_context = Fixture::new(2).bridge.initialize_context();
    let opening = async { Err(Fault::new(Kind::JournalReadOnly, Operation::OpenJournal)) };
    let mut editor = Editor::connect_while(initialize_context, opening, LINE);
    assert_eq!(editor.initialize().await["result"]["protocolVersion"], 1);
    for method in ["session/new", "session/list"] {
        let answer = editor.ask(method, json!({"cwd": "/tmp", "mcpServers": []})).await;
        let code = Fault::new(Kind::JournalReadOnly, Operation::OpenJournal).row().code;
        assert_eq!(answer["error"]["data"]["code"], code, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_the_bridge_opens_is_reported_and_leaves_no_request_open() {
    let initialize_context = Fixture::new(3).bridge.initialize_context();
    let opening = async { panic!("while opening") };
    let mut editor = Editor::connect_while(initialize_context, opening, LINE);
    editor.initialize().await;
    let asking = editor.ask("session/list", json!({}));
    let answer = tokio::time::timeout(Duration::from_secs(60), asking).await.expect("an answer");
    let code = Fault::new(Kind::Bug, Operation::TalkToEditor).row().code;
    assert_eq!(answer["error"]["data"]["code"], code, "{answer}");
}
