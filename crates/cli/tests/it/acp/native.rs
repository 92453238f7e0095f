//! Our own loop behind the bridge.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::acp::editor::{Editor, budao, running};

fn workspace() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("README.md"), "# One\n\n## Two\n").unwrap();
    directory
}

/// A script for the model, and the argument that names it.
fn script(directory: &Path, text: &str) -> String {
    let path = directory.join("script.toml");
    std::fs::write(&path, text).unwrap();
    format!("script:{}", path.display())
}

#[test]
fn the_log_of_an_editor_is_written_where_the_configuration_names() {
    let directory = workspace();
    let config = "[log]\nformat = \"json\"\nfile = \"logs/editor.log\"\nrotation = \"never\"\n";
    std::fs::write(directory.path().join("budao.toml"), config).unwrap();
    let args = ["--config", "budao.toml", "--model", "demo:fast"];
    let mut editor = Editor::start(directory.path(), &args);
    let session = editor.new_session(directory.path());
    let id = editor.prompt(&session, "count the headings in README.md");
    editor.answer(id);
    editor.hang_up();
    let log = std::fs::read_to_string(directory.path().join("logs/editor.log")).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["stop"] == "end_turn"), "{log}");
    assert!(!directory.path().join("state/budao/acp.log").exists(), "one place, not two");
}

#[test]
fn a_conversation_is_logged_and_seen_live_by_another_process() {
    let directory = workspace();
    let mut editor = Editor::start(directory.path(), &["--model", "demo:fast"]);
    let session = editor.new_session(directory.path());
    let mut follower = budao(directory.path())
        .args(["replay", &session, "--follow", "--json"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let mut records = BufReader::new(follower.stdout.take().unwrap()).lines();
    // It follows before anything is answer_text.
    let opened: Value = serde_json::from_str(&records.next().unwrap().unwrap()).unwrap();
    assert!(opened.to_string().contains("session_opened"), "{opened}");

    let id = editor.prompt(&session, "count the headings in README.md");
    let answer = editor.answer(id);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let ended = records.map(Result::unwrap).find(|line| line.contains("turn_ended"));
    assert!(ended.is_some());
    follower.kill().unwrap();
    follower.wait().unwrap();
    editor.hang_up();

    let log = std::fs::read_to_string(directory.path().join("state/budao/acp.log")).unwrap();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("prompt ")).collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert!(lines[0].contains("prompt started"), "{log}");
    for field in ["turn=1", "stop=\"end_turn\"", "total_elapsed_ms=", "updates=", "text_bytes="] {
        assert!(lines[1].contains(field), "{field} in {log}");
    }
}

#[test]
fn no_process_remains_after_an_editor_hangs_up() {
    let directory = workspace();
    let marker = format!("{}.5", 31_000 + std::process::id() % 1000);
    let model = script(
        directory.path(),
        &format!(
            "[[step]]\n[[step.call]]\ntool = \"bash_run\"\narguments = {{ cmd = \"sleep {marker}\" }}\n"
        ),
    );
    let mut editor = Editor::start(directory.path(), &["--model", &model, "--permission", "auto"]);
    let session = editor.new_session(directory.path());
    editor.prompt(&session, "sleep");
    while editor.read()["params"]["update"]["status"] != "in_progress" {}
    editor.hang_up();
    let until = Instant::now() + Duration::from_secs(60);
    while running(&marker) {
        assert!(Instant::now() < until, "the command still runs");
        std::thread::yield_now();
    }
}

#[test]
fn a_session_survives_the_death_of_the_bridge() {
    let directory = workspace();
    let model =
        script(directory.path(), "[[step]]\ntext = \"first\"\n\n[[step]]\ntext = \"second\"\n");
    let model = model.as_str();
    let mut editor = Editor::start(directory.path(), &["--model", model]);
    let session = editor.new_session(directory.path());
    let id = editor.prompt(&session, "one");
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    editor.child.kill().unwrap();
    editor.child.wait().unwrap();

    let mut editor = Editor::start(directory.path(), &["--model", model]);
    let params = json!({"sessionId": session, "cwd": directory.path(), "mcpServers": []});
    assert!(editor.ask("session/load", params)["error"].is_null());
    let printed: Vec<&str> =
        editor.updates.iter().filter_map(|update| update["content"]["text"].as_str()).collect();
    assert_eq!(printed, ["one", "first"]);
    let id = editor.prompt(&session, "two");
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    editor.hang_up();
}

#[test]
fn the_doctor_reports_problems_and_writes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let fine = budao(directory.path()).args(["acp", "doctor", "--model", "demo"]).output().unwrap();
    assert!(fine.status.success(), "{}", String::from_utf8_lossy(&fine.stdout));
    let wrong = budao(directory.path())
        .args(["acp", "doctor", "--model", "anthropic:some-model"])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&wrong.stdout).into_owned();
    assert_eq!(wrong.status.code(), Some(1), "{printed}");
    assert!(printed.contains("FAILED") && printed.contains("budao explain"), "{printed}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_missing_claude_cli_is_a_fault_and_no_other_engine_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let missing = "/nonexistent/claude";
    for is_variable in [false, true] {
        let run = |action: &[&str]| {
            let mut command = budao(directory.path());
            command.arg("acp").args(action).stderr(Stdio::piped());
            match is_variable {
                true => command.env("CLAUDE_CODE_EXECUTABLE", missing),
                false => command.args(["--claude", missing]),
            };
            let output = command.output().unwrap();
            let printed = [output.stdout, output.stderr].concat();
            (output.status.code(), String::from_utf8(printed).unwrap())
        };
        let (code, printed) = run(&["doctor"]);
        assert_eq!(code, Some(1), "{printed}");
        assert!(printed.contains("FAILED") && printed.contains(missing), "{printed}");
        assert!(!printed.contains("demo"), "no other engine is checked: {printed}");
        let (code, printed) = run(&[]);
        assert_ne!(code, Some(0), "{printed}");
        assert!(printed.contains(missing), "{printed}");
    }
}

#[test]
fn the_doctor_and_the_editor_report_a_tool_server_that_does_not_start() {
    let directory = workspace();
    let mcp = "mine=/nonexistent/server";
    let doctor = budao(directory.path())
        .args(["acp", "doctor", "--model", "demo", "--mcp", mcp])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert_eq!(doctor.status.code(), Some(1), "{printed}");
    let line = printed.lines().find(|line| line.contains("tool server")).unwrap();
    assert!(line.starts_with("FAILED") && line.contains("mine"), "{printed}");

    let mut editor = Editor::start(directory.path(), &["--model", "demo", "--mcp", mcp]);
    let yours = json!({"name": "yours", "command": "/nonexistent/other", "args": [], "env": []});
    let params = json!({"cwd": directory.path(), "mcpServers": [yours]});
    let opened = editor.ask("session/new", params);
    assert!(opened["error"].is_null(), "{opened}");
    let told = |editor: &Editor| -> String {
        let texts = editor.updates.iter().filter(|it| it["sessionUpdate"] == "agent_thought_chunk");
        texts.filter_map(|it| it["content"]["text"].as_str()).collect()
    };
    while !(told(&editor).contains("mine") && told(&editor).contains("yours")) {
        editor.read();
    }
    editor.hang_up();
}

#[test]
fn file_tools_see_what_the_editor_has_not_saved_and_write_through_it() {
    let directory = workspace();
    let root = directory.path().canonicalize().unwrap();
    let readme = root.join("README.md").to_str().unwrap().to_owned();
    let call = |tool: &str, arguments: &str| {
        format!("[[step]]\n[[step.call]]\ntool = \"{tool}\"\narguments = {{ {arguments} }}\n\n")
    };
    let edit = "path = \"README.md\", old_string = \"unsaved\", new_string = \"edited\"";
    let several = "edits = [{ path = \"README.md\", find = \"edited\", replace = \"done\" }]";
    let steps = [
        call("fs_read", "path = \"README.md\""),
        call("fs_edit", edit),
        call("fs_multi_edit", several),
        call("fs_write", "path = \"new/file.txt\", content = \"fresh\""),
        "[[step]]\ntext = \"done\"\n".to_owned(),
    ];
    let model = script(directory.path(), &steps.concat());
    let mut editor = Editor::start(directory.path(), &["--model", &model, "--permission", "auto"]);
    editor.offer_files();
    editor.documents.insert(readme.clone(), "# One\n\nunsaved words\n".to_owned());
    let session = editor.new_session(&root);
    let (stop, text) = editor.run(&session, "go");
    assert_eq!((stop.as_str(), text.as_str()), ("end_turn", "done"));
    let shown: String = editor.updates.iter().map(Value::to_string).collect();
    assert!(shown.contains("unsaved words"), "the model read the unsaved text: {shown}");
    assert_eq!(std::fs::read_to_string(&readme).unwrap(), "# One\n\ndone words\n");
    let new = root.join("new/file.txt");
    assert_eq!(std::fs::read_to_string(&new).unwrap(), "fresh");
    let written: Vec<&str> = editor
        .file_requests
        .iter()
        .filter(|(method, _)| method == "fs/write_text_file")
        .map(|(_, path)| path.as_str())
        .collect();
    assert_eq!(written, [readme.as_str(), readme.as_str(), new.to_str().unwrap()]);
    assert!(editor.file_requests.iter().all(|(_, path)| path.starts_with(root.to_str().unwrap())));
    editor.hang_up();
}

#[test]
fn a_missing_key_is_an_invitation_to_sign_in() {
    let directory = workspace();
    let mut editor = Editor::start(directory.path(), &["--model", "anthropic:some-model"]);
    let opened = editor.ask("session/new", json!({"cwd": directory.path(), "mcpServers": []}));
    assert_eq!(opened["error"]["code"], -32000, "{opened}");
    let tried = editor.ask("authenticate", json!({"methodId": "environment"}));
    assert_eq!(tried["error"]["code"], -32000, "{tried}");
    editor.hang_up();
}

/// The library's entry, if it was fetched.
pub(crate) fn library() -> Option<PathBuf> {
    let folder = std::env::var_os("BUDAO_PEERS")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/budao/peers")));
    let entry = "acp-sdk/node_modules/@agentclientprotocol/sdk/dist/v1/stable/acp.js";
    let found = folder.map(|folder| folder.join(entry)).filter(|path| path.exists());
    if found.is_none() {
        let advice = "NOT TESTED: the ACP library is missing; `cargo xtask peers acp-sdk`";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{advice}");
        eprintln!("\n*** {advice} ***\n");
    }
    found
}

#[test]
fn an_editor_of_others_has_a_whole_conversation() {
    let Some(library) = library() else { return };
    let directory = workspace();
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/acp/client.mjs");
    let prompt = "count the headings in README.md and write the number to count.txt";
    let output = Command::new("node")
        .current_dir(directory.path())
        .env("XDG_STATE_HOME", directory.path().join("state"))
        .env("BUDAO_JOURNAL", directory.path().join("journal.db"))
        .arg(client)
        .arg(library)
        .arg(prompt)
        .args([env!("CARGO_BIN_EXE_budao"), "acp", "--model", "demo:fast"])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let printed: Value = serde_json::from_str(&printed)
        .unwrap_or_else(|_| panic!("{printed}\n{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(printed["agent"], "budao");
    assert_eq!(printed["mode"], "default");
    assert_eq!(printed["stop"], "end_turn", "{printed}");
    assert_eq!(printed["late"], 0, "{printed}");
    assert_eq!(printed["same"], true, "{printed}");
    assert_eq!(printed["exit"], 0, "{printed}");
    assert!(!printed["text"].as_str().unwrap().is_empty(), "{printed}");
    assert_eq!(printed["listed"].as_array().unwrap().len(), 1, "{printed}");
    let calls = printed["calls"].as_object().unwrap();
    assert!(!calls.is_empty(), "{printed}");
    assert!(calls.values().all(|status| status == "completed" || status == "failed"), "{printed}");
}

/// The MCP server of the tests, as a program.
fn tool_server() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.push("examples/fake_mcp_server");
    assert!(path.exists(), "not built: cargo build -p budao-mcp --example fake_mcp_server");
    path
}

#[test]
fn tool_servers_the_editor_hands_over_are_there_for_its_session_alone() {
    let directory = workspace();
    let step =
        "[[step]]\n[[step.call]]\ntool = \"mcp__handed__echo\"\narguments = { text = \"heard\" }\n";
    let model = script(
        directory.path(),
        &format!("{step}\n[[step]]\ntext = \"done\"\n\n{step}\n[[step]]\ntext = \"done\"\n"),
    );
    let mut editor = Editor::start(directory.path(), &["--model", &model]);
    let server = json!({"name": "handed", "command": tool_server(), "args": [], "env": []});
    let params = json!({"cwd": directory.path(), "mcpServers": [server]});
    let opened = editor.ask("session/new", params);
    let with = opened["result"]["sessionId"].as_str().unwrap().to_owned();
    let without = editor.new_session(directory.path());
    assert_eq!(editor.run(&with, "call it"), ("end_turn".into(), "done".into()));
    let calls = |editor: &Editor| -> Vec<(String, String)> {
        let ended = editor.updates.iter().filter(|it| it["sessionUpdate"] == "tool_call_update");
        ended
            .filter(|it| it["status"] == "completed" || it["status"] == "failed")
            .map(|it| (it["status"].as_str().unwrap().to_owned(), it.to_string()))
            .collect()
    };
    let seen = calls(&editor);
    assert_eq!((seen.len(), seen[0].0.as_str()), (1, "completed"), "{seen:?}");
    assert!(seen[0].1.contains("heard"), "{seen:?}");
    editor.run(&without, "call it");
    let seen = calls(&editor);
    assert_eq!((seen.len(), seen[1].0.as_str()), (2, "failed"), "another session has no such tool");
    editor.ask("session/close", json!({"sessionId": with}));
    let until = Instant::now() + Duration::from_secs(60);
    while running(tool_server().to_str().unwrap()) {
        assert!(Instant::now() < until, "the server outlives the session it was for");
        std::thread::yield_now();
    }
    editor.hang_up();
}

#[test]
fn messages_of_an_editor_are_shortened_in_the_log() {
    let directory = workspace();
    let mut editor = Editor::start(directory.path(), &["--model", "demo:fast"]);
    let secret = format!("sk-ant-api03-{}", "Ab3dEf6hIj".repeat(9));
    editor.raw(&format!("{{ this is no JSON, and has {secret} {}", "x".repeat(100_000)));
    editor.new_session(directory.path());
    editor.hang_up();
    let log = std::fs::read_to_string(directory.path().join("state/budao/acp.log")).unwrap();
    assert!(!log.contains(&secret), "a key is in the log");
    assert!(log.lines().all(|line| line.len() < 8 * 1024), "a line as long as what was sent");
}
