//! What the engine reports about itself reaches the editor: models, the size of the context, failed servers.

use std::sync::Arc;

use async_trait::async_trait;
use budao_acp::{Bridge, EditorServices, ToolServer};
use budao_core::{
    engine::Engine as _,
    event::{Command, CommandBody, CommandId, SessionId},
    fault::{Fact, Fault, Kind, Operation},
    trace::Trace,
};
use budao_testkit::claude::CliVersion;
use serde_json::{Value, json};

use super::Fixture;
use crate::{check::AgentKind, editor::Editor};

/// Another editor on the same engine, which takes the models from the CLI.
async fn editor(stage: &Fixture, capabilities: Value) -> (Editor, String) {
    let mut bridge: Bridge = stage.bridge.clone();
    bridge.settings.model = "default".to_owned();
    bridge.editor_options.models_from_engine = true;
    bridge.editor_options.thinking = true;
    bridge.editor_options.thinking_off = Some(("claude.thinking".to_owned(), "off".to_owned()));
    let mut editor = Editor::connect(bridge);
    editor.agent_kind = AgentKind::Claude;
    editor.initialize_with(capabilities).await;
    let session = editor.new_session().await;
    (editor, session)
}

/// Has the session's records say this, as the engine does.
async fn report(stage: &Fixture, session: &str, topic: &str, data: Value) {
    let body = CommandBody::Annotate { topic: topic.to_owned(), data };
    let id = CommandId::own(stage.bridge.world.uuid());
    let command = Command { id, by: "test".to_owned(), trace: Trace::NONE, body };
    stage.engine.submit(session.parse().unwrap(), command).await.unwrap();
}

fn option<'a>(options: &'a Value, id: &str) -> &'a Value {
    options.as_array().unwrap().iter().find(|option| option["id"] == id).unwrap()
}

fn values(option: &Value) -> Vec<&str> {
    let values = option["options"].as_array().unwrap().iter();
    values.map(|value| value["value"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_models_on_offer_are_those_that_the_cli_reports() {
    let stage = Fixture::open(CliVersion::Current).await;
    let (mut editor, session) = editor(&stage, json!({})).await;
    let models = json!({"models": [
        {"id": "default", "name": "Default (recommended)", "about": "The best", "thinking_off": false},
        {"id": "swift", "name": "Swift", "about": "Fast", "thinking_off": true},
    ]});
    report(&stage, &session, "claude.models", models).await;
    let update =
        |value: &Value| value["params"]["update"]["sessionUpdate"] == "config_option_update";
    let told = editor.until(update).await["params"]["update"]["configOptions"].clone();
    assert_eq!(values(option(&told, "model")), ["default", "swift"]);
    assert_eq!(option(&told, "model")["options"][0]["description"], "The best");
    let levels = ["default", "low", "medium", "high"];
    assert_eq!(values(option(&told, "thought_level")), levels, "this model always thinks");

    let set = |id: &str, value: &str| json!({"sessionId": session, "configId": id, "value": value});
    let refused = editor.ask("session/set_config_option", set("thought_level", "off")).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    editor.ask("session/set_config_option", set("model", "swift")).await;
    let answer = editor.ask("session/set_config_option", set("thought_level", "off")).await;
    let options = &answer["result"]["configOptions"];
    assert_eq!(option(options, "thought_level")["currentValue"], "off", "{answer}");
    editor.hang_up().await;

    // A session that is loaded begins with the models of its history.
    let mut bridge = stage.bridge.clone();
    bridge.editor_options.models_from_engine = true;
    let mut editor = Editor::connect(bridge);
    editor.initialize().await;
    let params = json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []});
    let loaded = editor.ask("session/load", params).await;
    let options = &loaded["result"]["configOptions"];
    assert_eq!(values(option(options, "model")), ["default", "swift"]);
    assert_eq!(option(options, "model")["currentValue"], "swift");
    editor.hang_up().await;
    stage.close().await;
}

#[tokio::test(start_paused = true)]
async fn usage_is_shown_against_the_size_that_the_cli_reports() {
    let stage = Fixture::open(CliVersion::Current).await;
    let (mut editor, session) = editor(&stage, json!({})).await;
    let first = editor.prompt(&session, "P1").await;
    editor.stop(first).await;
    assert_eq!(editor.updates("usage_update"), [] as [Value; 0], "nobody knows the size");
    report(&stage, &session, "claude.context", json!({"tokens": 1_000_000})).await;
    editor.until(|value| value["params"]["update"]["sessionUpdate"] == "usage_update").await;
    let second = editor.prompt(&session, "P2").await;
    editor.stop(second).await;
    let sizes: Vec<_> =
        editor.updates("usage_update").iter().map(|it| it["size"].clone()).collect();
    assert_eq!(sizes, [1_000_000, 1_000_000]);
    editor.hang_up().await;
    stage.close().await;
}

/// A host with a server that never starts.
#[derive(Debug)]
struct BrokenServer;

#[async_trait]
impl EditorServices for BrokenServer {
    async fn tool_servers(&self, _: SessionId, _: Vec<ToolServer>) -> Result<Vec<Fault>, Fault> {
        Ok(vec![
            Fault::new(Kind::McpServerFailed, Operation::StartMcpServer)
                .with(Fact::McpServer, "mine")
                .with(Fact::Reason, "no such program"),
        ])
    }

    async fn forget(&self, _: SessionId) {}

    async fn sign_in(&self, _: &str) -> Result<(), Fault> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_server_that_fails_is_reported_to_the_editor() {
    let stage = Fixture::open(CliVersion::Current).await;
    let mut bridge = stage.bridge.clone();
    bridge.services = Arc::new(BrokenServer);
    for (capabilities, kind, at) in [
        (json!({}), "agent_thought_chunk", "/content/text"),
        (json!({"session": {"notices": {}}}), "notice", "/title"),
    ] {
        let mut editor = Editor::connect(bridge.clone());
        editor.initialize_with(capabilities).await;
        editor.new_session().await;
        let told = editor.until(|it| it["params"]["update"]["sessionUpdate"] == kind).await;
        let text = told["params"]["update"].pointer(at).unwrap().as_str().unwrap().to_owned();
        assert!(text.contains("mine"), "{text}");
        editor.hang_up().await;
    }
    stage.close().await;
}
