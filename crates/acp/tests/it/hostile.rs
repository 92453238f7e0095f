//! Malformed and excessive requests: answered with the protocol's own codes, and the agent stays.

use serde_json::{Value, json};

use crate::{
    editor::{Editor, Party},
    fixture::{Fixture, words},
};

/// Sends a line as it is, and returns the next answer.
async fn answer_to(editor: &mut Editor, line: &str) -> Value {
    editor.raw(line).await;
    editor.until(|value| value.get("method").is_none()).await
}

#[tokio::test(start_paused = true)]
async fn a_malformed_request_is_answered_and_has_no_effect() {
    let (mut editor, session) = Editor::open(Fixture::new(1).bridge).await;
    for (line, code) in [
        ("not json", -32700),
        ("{\"jsonrpc\":\"2.0\",", -32700),
        ("17", -32600),
        ("[]", -32600),
        (r#"[{"jsonrpc":"2.0","id":900,"method":"initialize"}]"#, -32600),
        (r#"{"id":901}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":902,"method":"session/no_such_method","params":{}}"#, -32601),
        (r#"{"jsonrpc":"2.0","id":903,"method":"session/prompt"}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":904,"method":"session/prompt","params":[1,2]}"#, -32602),
        (
            r#"{"jsonrpc":"2.0","id":905,"method":"session/prompt","params":{"sessionId":5}}"#,
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":906,"method":"session/new","params":{"cwd":"/tmp","mcpServers":{}}}"#,
            -32602,
        ),
    ] {
        let answer = answer_to(&mut editor, line).await;
        assert_eq!(answer["error"]["code"], code, "{line} → {answer}");
    }
    // A reader who forgets all that was wrong sees a whole conversation.
    editor.transcript.retain(|line| line.from == Party::Editor || line.value["error"].is_null());
    let id = editor.prompt(&session, "P1 say 3").await;
    assert_eq!(editor.stop(id).await, "end_turn");
    assert_eq!(editor.text(), words("P1", 3));
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_done_before_initialize() {
    let mut editor = Editor::connect(Fixture::new(2).bridge);
    for (method, params) in [
        ("session/prompt", json!({"sessionId": "x", "prompt": []})),
        ("session/new", json!({"cwd": "/tmp", "mcpServers": []})),
        ("session/list", json!({})),
    ] {
        let answer = editor.ask(method, params).await;
        assert_eq!(answer["error"]["code"], -32600, "{method}: {answer}");
    }
    let answer = editor.initialize().await;
    assert_eq!(answer["result"]["protocolVersion"], 1);
    editor.new_session().await;
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn a_newer_editor_gets_the_version_of_the_bridge() {
    let mut editor = Editor::connect(Fixture::new(3).bridge);
    let answer = editor.ask("initialize", json!({"protocolVersion": 7})).await;
    assert_eq!(answer["result"]["protocolVersion"], 1);
    let mut result = answer["result"].clone();
    result["agentInfo"]["version"] = "[version]".into();
    insta::assert_json_snapshot!(result);
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn an_unknown_session_is_not_found() {
    let mut editor = Editor::connect(Fixture::new(4).bridge);
    editor.initialize().await;
    let text = json!([{"type": "text", "text": "hello"}]);
    for session in ["", "nonsense", "00000000-0000-7000-8000-000000000000"] {
        for (method, params) in [
            ("session/prompt", json!({"sessionId": session, "prompt": text})),
            ("session/set_mode", json!({"sessionId": session, "modeId": "auto"})),
            ("session/close", json!({"sessionId": session})),
            ("session/load", json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []})),
            ("session/resume", json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []})),
        ] {
            let answer = editor.ask(method, params).await;
            assert_eq!(answer["error"]["code"], -32002, "{method} {session}: {answer}");
        }
        editor.cancel(session).await;
    }
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn paths_are_absolute() {
    let (mut editor, session) = Editor::open(Fixture::new(5).bridge).await;
    for (method, params) in [
        ("session/new", json!({"cwd": "src", "mcpServers": []})),
        ("session/load", json!({"cwd": "./src", "sessionId": session, "mcpServers": []})),
        ("session/list", json!({"cwd": "src"})),
        ("session/list", json!({"cursor": "nonsense"})),
        ("session/new", json!({"cwd": "/a", "additionalDirectories": ["/b"], "mcpServers": []})),
    ] {
        let answer = editor.ask(method, params).await;
        assert_eq!(answer["error"]["code"], -32602, "{method}: {answer}");
    }
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn a_giant_prompt_is_refused_by_name_and_the_next_one_works() {
    let mut stage = Fixture::new(6);
    stage.bridge.limits.frame_bytes_hard = 64 * 1024;
    let (mut editor, session) = Editor::open(stage.bridge).await;
    let giant = editor.prompt(&session, &"x".repeat(200 * 1024)).await;
    let answer = editor.answer(giant).await;
    assert_eq!(answer["error"]["data"]["kind"], "frame_too_large", "{answer}");
    let id = editor.prompt(&session, "P1 say 3").await;
    assert_eq!(editor.stop(id).await, "end_turn");
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn more_prompts_than_may_wait_are_refused() {
    let mut stage = Fixture::new(7);
    stage.bridge.limits.queued_messages = 3;
    let (mut editor, session) = Editor::open(stage.bridge).await;
    let mut ids = Vec::new();
    for number in 0..6 {
        ids.push(editor.prompt(&session, &format!("P{number} say 9")).await);
    }
    let mut refused = 0;
    for id in ids {
        let answer = editor.answer(id).await;
        if answer["error"]["data"]["kind"] == "limit_reached" {
            refused += 1;
        } else {
            assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        }
    }
    assert_eq!(refused, 2);
    editor.hang_up().await;
}

#[tokio::test(start_paused = true)]
async fn tool_servers_without_a_host_are_refused() {
    let mut editor = Editor::connect(Fixture::new(8).bridge);
    editor.initialize().await;
    let server = json!({"name": "x", "command": "/bin/x", "args": [], "env": []});
    let answer = editor.ask("session/new", json!({"cwd": "/tmp", "mcpServers": [server]})).await;
    assert_eq!(answer["error"]["code"], -32002, "{answer}");
    editor.hang_up().await;
}
