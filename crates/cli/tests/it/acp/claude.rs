//! The Claude CLI behind the bridge: played as a program, and the real ones against a model service on loopback.
//!
//! `cargo xtask peers claude-cli claude-cli-old acp-sdk` fetches them. Without them the tests say so and pass;
//! where nobody watches (`CI=true`) they fail.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use budao_testkit::{claude::answer, claude_api::ClaudeApi};
use serde_json::{Value, json};

use crate::acp::{
    editor::{Editor, answer_text, budao, running, stop},
    gateways::with_fake,
    native::library,
};

#[test]
fn the_played_cli_has_a_conversation_and_no_process_remains() {
    let directory = tempfile::tempdir().unwrap();
    let mut editor = Editor::start_as(with_fake(directory.path(), "acp"));
    let session = editor.new_session(directory.path());
    for prompt in ["P1", "P2 @tool", "P3 @cut", "P4 @stray-before", "P5 @stray-mid-stamped"] {
        let (stop, answered) = editor.run(&session, prompt);
        assert_eq!((stop.as_str(), answered), ("end_turn", answer(prompt)), "{prompt}");
    }
    let (stop, _) = editor.run(&session, "P6 @die-mid");
    assert_eq!(stop, "-32603");
    let (stop, answered) = editor.run(&session, "P7");
    assert_eq!((stop.as_str(), answered), ("end_turn", answer("P7")));
    editor.prompt(&session, "P8 @silent");
    editor.prompt(&session, "P9");
    editor.hang_up();
    is_gone(&session);
}

/// Waits until no process has this on its command line.
fn is_gone(marker: &str) {
    let until = Instant::now() + Duration::from_secs(60);
    while running(marker) {
        assert!(Instant::now() < until, "the CLI still runs");
        std::thread::yield_now();
    }
}

#[test]
fn modes_of_the_clis_own_are_offered_set_and_shown() {
    let directory = tempfile::tempdir().unwrap();
    let mut editor = Editor::start_as(with_fake(directory.path(), "acp"));
    let opened = editor.ask("session/new", json!({"cwd": directory.path(), "mcpServers": []}));
    let modes = opened["result"]["modes"]["availableModes"].as_array().unwrap();
    let ids: Vec<&str> = modes.iter().filter_map(|mode| mode["id"].as_str()).collect();
    assert_eq!(ids, ["default", "plan", "auto", "acceptEdits", "dontAsk"]);
    let session = opened["result"]["sessionId"].as_str().unwrap().to_owned();
    let model = opened["result"]["configOptions"].as_array().unwrap().iter();
    let model = model.clone().find(|option| option["id"] == "model").unwrap();
    assert_eq!(model["currentValue"], "default", "{model}");
    for mode in ["dontAsk", "acceptEdits", "plan", "default"] {
        let before = editor.updates.len();
        let set = editor.ask("session/set_mode", json!({"sessionId": session, "modeId": mode}));
        assert!(set["error"].is_null(), "{set}");
        // It is told before the answer or after it, with the options beside it.
        while !editor.updates[before..].iter().any(|update| update["currentModeId"] == mode) {
            editor.read();
        }
    }
    let params = json!({"sessionId": session, "modeId": "dontAsk"});
    editor.ask("session/set_mode", params);
    let id = editor.prompt(&session, "P1 @tool");
    // Nobody is asked: whoever reads this editor's lines would have answer_text yes.
    let denied = loop {
        let value = editor.read();
        assert_ne!(value["method"], "session/request_permission", "{value}");
        if value["id"] == id {
            break value;
        }
    };
    assert_eq!(stop(&denied), "end_turn");
    let last = editor.updates.iter().rev().find_map(|update| update["status"].as_str());
    assert_eq!(last, Some("failed"), "what would have had to be asked did not run");
    editor.hang_up();
}

#[test]
fn further_directories_reach_the_cli() {
    let directory = tempfile::tempdir().unwrap();
    let other = directory.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let mut editor = Editor::start_as(with_fake(directory.path(), "acp"));
    let hello = editor.ask("initialize", json!({"protocolVersion": 1}));
    let able = &hello["result"]["agentCapabilities"]["sessionCapabilities"];
    assert!(able["additionalDirectories"].is_object(), "{hello}");
    let params =
        json!({"cwd": directory.path(), "mcpServers": [], "additionalDirectories": [other]});
    let opened = editor.ask("session/new", params.clone());
    let session = opened["result"]["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(editor.run(&session, "P1").0, "end_turn");
    assert!(running(other.to_str().unwrap()), "`--add-dir` is on its command line");
    let mut wrong = params;
    wrong["additionalDirectories"] = json!(["relative"]);
    assert_eq!(editor.ask("session/new", wrong)["error"]["code"], -32602);
    editor.hang_up();
}

/// The `--mcp-config` of the process that runs the session.
fn servers_of(session: &str) -> Value {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let file = processes
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok())
        .filter(|line| line.contains(session))
        .find_map(|line| {
            let mut words = line.split('\0').skip_while(|word| *word != "--mcp-config");
            words.nth(1).map(str::to_owned)
        });
    serde_json::from_slice(&std::fs::read(file.unwrap()).unwrap()).unwrap()
}

#[test]
fn servers_of_the_configuration_reach_the_cli_beside_those_of_the_editor() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = with_fake(directory.path(), "acp");
    command.args(["--mcp", "mine=/opt/mine"]);
    let mut editor = Editor::start_as(command);
    let yours = json!({"name": "yours", "command": "/opt/yours", "args": [], "env": []});
    let params = json!({"cwd": directory.path(), "mcpServers": [yours]});
    let opened = editor.ask("session/new", params);
    let session = opened["result"]["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(editor.run(&session, "P1").0, "end_turn");
    let servers = &servers_of(&session)["mcpServers"];
    assert_eq!(servers["mine"]["command"], "/opt/mine", "{servers}");
    assert_eq!(servers["yours"]["command"], "/opt/yours", "{servers}");
    editor.hang_up();
}

/// The program, or nothing and a loud word.
fn fetched(peer: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("BUDAO_PEERS")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/budao/peers")));
    let path = folder?.join(peer).join("node_modules/.bin/claude");
    if path.exists() {
        return Some(path);
    }
    let advice = format!("NOT TESTED: the Claude CLI is missing; `cargo xtask peers {peer}`");
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{advice}");
    eprintln!("\n*** {advice} ***\n");
    None
}

/// Lets the CLI talk to our model service alone, and leaves the user's files alone.
fn quietly(command: &mut Command, api: &ClaudeApi, directory: &Path) {
    command
        .env("HOME", directory)
        .env("CLAUDE_CONFIG_DIR", directory.join("config"))
        .env("ANTHROPIC_BASE_URL", api.url())
        .env("ANTHROPIC_API_KEY", "sk-ant-test-only")
        .env("CLAUDE_CODE_MAX_RETRIES", "1")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("DISABLE_AUTOUPDATER", "1")
        .env("DISABLE_TELEMETRY", "1")
        .env("DISABLE_ERROR_REPORTING", "1");
}

/// A service that runs beside the test.
fn service() -> (tokio::runtime::Runtime, ClaudeApi) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build().unwrap();
    let api = runtime.block_on(ClaudeApi::start());
    (runtime, api)
}

/// A conversation, a call that is asked about, a cancel with a prompt behind it, and the end.
fn works_in_an_editor(peer: &str) {
    let Some(program) = fetched(peer) else { return };
    let (_runtime, api) = service();
    let directory = tempfile::tempdir().unwrap();
    let mut command = budao(directory.path());
    command.args(["acp", "--engine", "claude", "--claude"]).arg(program);
    quietly(&mut command, &api, directory.path());
    let mut editor = Editor::start_as(command);
    let session = editor.new_session(directory.path());
    assert_eq!(editor.run(&session, "first"), ("end_turn".into(), "hello world".into()));

    let file = directory.path().join("allowed");
    let (stopped, answered) = editor.run(&session, &format!("second %write:{}", file.display()));
    assert_eq!((stopped.as_str(), answered.as_str()), ("end_turn", "let me after the tool"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "written");
    let calls = editor.updates.iter().filter(|it| it["toolCallId"].is_string());
    let last = calls.rev().find_map(|it| it["status"].as_str());
    assert_eq!(last, Some("completed"));

    let slow = editor.prompt(&session, "third %slow");
    editor.until("agent_message_chunk");
    editor.notify("session/cancel", &json!({"sessionId": session}));
    let next = editor.prompt(&session, "fourth %plain");
    assert_eq!(stop(&editor.answer(slow)), "cancelled");
    let before = editor.updates.len();
    assert_eq!(stop(&editor.answer(next)), "end_turn");
    assert_eq!(answer_text(&editor.updates[before..]), "hello world", "its own answer, whole");

    editor.hang_up();
    is_gone(&session);
}

/// The mode the editor shows: the last one it was told, by both of the ways it is told.
fn mode_shown(editor: &Editor) -> &str {
    let mut modes = editor.updates.iter().rev().filter_map(|it| it["currentModeId"].as_str());
    let mode = modes.next().expect("a mode was told");
    let mut options = editor.updates.iter().rev().filter_map(|it| it["configOptions"].as_array());
    let option = options.next().and_then(|it| it.iter().find(|option| option["id"] == "mode"));
    assert_eq!(option.expect("options were told")["currentValue"], mode);
    mode
}

/// A plan is made, shown in the question about it, approved, and carried out where it was asked for.
fn plans_in_an_editor(peer: &str) {
    let Some(program) = fetched(peer) else { return };
    let (_runtime, api) = service();
    let directory = tempfile::tempdir().unwrap();
    let mut command = budao(directory.path());
    command.args(["acp", "--engine", "claude", "--claude"]).arg(program);
    quietly(&mut command, &api, directory.path());
    let mut editor = Editor::start_as(command);
    let session = editor.new_session(directory.path());
    let write = |editor: &mut Editor, name: &str| {
        let file = directory.path().join(name);
        let (stopped, _) = editor.run(&session, &format!("write %write:{}", file.display()));
        assert_eq!(stopped, "end_turn");
        file.exists()
    };
    let set = |editor: &mut Editor, mode: &str| {
        let set = editor.ask("session/set_mode", json!({"sessionId": session, "modeId": mode}));
        assert!(set["error"].is_null(), "{set}");
    };
    // Set, and set back: with a turn between, so that the CLI's conversation was left in plan mode.
    set(&mut editor, "plan");
    assert!(!write(&mut editor, "in-plan-mode"), "nothing is written");
    set(&mut editor, "default");
    assert!(write(&mut editor, "in-default-mode"), "it is asked about, and written");
    assert_eq!((mode_shown(&editor), editor.questions.len()), ("default", 1));
    // Ended by a plan.
    set(&mut editor, "plan");
    let (stopped, answered) = editor.run(&session, "plan it %plan");
    assert_eq!((stopped.as_str(), answered.as_str()), ("end_turn", "let me after the plan"));
    let question = editor.questions.last().unwrap();
    assert_eq!(editor.questions.len(), 2, "only the plan is asked about");
    let content = question["toolCall"]["content"].to_string();
    assert!(content.contains("1. Do it."), "the plan is in the question: {question}");
    let options = question["options"].as_array().unwrap();
    assert_eq!(options.len(), 2, "a plan is approved once: {options:?}");
    assert_eq!(mode_shown(&editor), "default", "told before the prompt was answered");
    assert!(write(&mut editor, "after-the-plan"));
    assert_eq!((mode_shown(&editor), editor.questions.len()), ("default", 3));
    editor.hang_up();
    is_gone(&session);
}

#[test]
fn the_current_cli_plans_in_an_editor_and_its_mode_is_the_one_shown() {
    plans_in_an_editor("claude-cli");
}

#[test]
fn the_old_cli_plans_in_an_editor_and_its_mode_is_the_one_shown() {
    plans_in_an_editor("claude-cli-old");
}

#[test]
fn the_current_cli_works_in_an_editor() {
    works_in_an_editor("claude-cli");
}

#[test]
fn the_old_cli_works_in_an_editor() {
    works_in_an_editor("claude-cli-old");
}

/// An editor of others and a CLI of others, with us between them.
#[test]
fn an_editor_of_others_has_a_whole_conversation_with_the_real_cli() {
    let (Some(library), Some(program)) = (library(), fetched("claude-cli")) else { return };
    let (_runtime, api) = service();
    let directory = tempfile::tempdir().unwrap();
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/acp/client.mjs");
    let file = directory.path().join("written-by-it");
    let mut node = Command::new("node");
    quietly(&mut node, &api, directory.path());
    let output = node
        .current_dir(directory.path())
        .env("XDG_STATE_HOME", directory.path().join("state"))
        .env("BUDAO_JOURNAL", directory.path().join("journal.db"))
        .arg(client)
        .arg(library)
        .arg(format!("write it %write:{}", file.display()))
        .args([env!("CARGO_BIN_EXE_budao"), "acp", "--engine", "claude", "--claude"])
        .arg(program)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let printed: Value = serde_json::from_str(&printed)
        .unwrap_or_else(|_| panic!("{printed}\n{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(
        (&printed["agent"], &printed["stop"]),
        (&"budao".into(), &"end_turn".into()),
        "{printed}"
    );
    assert_eq!(printed["text"], "let me after the tool", "{printed}");
    assert_eq!((&printed["late"], &printed["asked"]), (&0.into(), &1.into()), "{printed}");
    assert_eq!((&printed["same"], &printed["exit"]), (&true.into(), &0.into()), "{printed}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "written");
}
