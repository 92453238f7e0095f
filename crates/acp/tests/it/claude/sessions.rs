//! Sessions of the CLI, left and found again.

use budao_claude::Launch;
use budao_core::engine::Engine as _;
use budao_testkit::claude::{CliVersion, answer};
use serde_json::json;

use super::{AGES, Fixture};
use crate::{check::AgentKind, editor::Editor};

#[tokio::test(start_paused = true)]
async fn a_session_is_loaded_with_its_history_and_goes_on_with_its_conversation() {
    for age in AGES {
        let mut stage = Fixture::open(age).await;
        stage.runs_well("P1 @tool").await;
        stage.runs_well("P2 @cut").await;
        let Fixture { editor, session, bridge, engine, played, journal } = stage;
        editor.hang_up().await;
        engine.shutdown(std::time::Duration::ZERO).await;

        let mut editor = Editor::connect(bridge.clone());
        editor.agent_kind = AgentKind::Claude;
        editor.initialize().await;
        let params = json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []});
        let loaded = editor.ask("session/load", params).await;
        assert!(loaded["error"].is_null(), "{loaded}");
        assert_eq!(editor.text(), answer("P1") + &answer("P2"));
        let mut stage = Fixture { editor, session, bridge, engine, played, journal };
        stage.runs_well("P3").await;
        assert_eq!(stage.played.launches(), [Launch::Fresh, Launch::Resume], "{age:?}");
        stage.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_is_resumed_listed_closed_and_deleted() {
    let mut stage = Fixture::open(CliVersion::Current).await;
    stage.runs_well("P1").await;
    let params = json!({"sessionId": stage.session, "cwd": "/tmp", "mcpServers": []});
    stage.editor.ask("session/close", json!({"sessionId": stage.session})).await;
    assert_eq!(stage.played.running(), 0, "closing ends the CLI");
    let resumed = stage.editor.ask("session/resume", params.clone()).await;
    assert!(resumed["error"].is_null(), "{resumed}");
    stage.runs_well("P2").await;
    let listed = stage.editor.ask("session/list", json!({})).await;
    assert_eq!(listed["result"]["sessions"].as_array().unwrap().len(), 1, "{listed}");
    stage.editor.ask("session/delete", json!({"sessionId": stage.session})).await;
    let gone = stage.editor.ask("session/load", params).await;
    assert_eq!(gone["error"]["code"], -32002, "{gone}");
    stage.close().await;
}

#[tokio::test(start_paused = true)]
async fn unknown_sessions_are_refused_as_unknown() {
    let mut stage = Fixture::open(CliVersion::Current).await;
    let nobody = "00000000-0000-4000-8000-000000000000";
    for method in ["session/load", "session/resume"] {
        for session in [nobody, "no id at all"] {
            let params = json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []});
            let answer = stage.editor.ask(method, params).await;
            assert_eq!(answer["error"]["code"], -32002, "{method} {session}: {answer}");
        }
    }
    let prompt = json!([{"type": "text", "text": "hello"}]);
    let params = json!({"sessionId": nobody, "prompt": prompt});
    let answer = stage.editor.ask("session/prompt", params).await;
    assert_eq!(answer["error"]["code"], -32002, "{answer}");
    stage.runs_well("P1").await;
    stage.close().await;
}
