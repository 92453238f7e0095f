//! Any gateway, any engine: a session of a front end, gone on with in an editor, on the same journal.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command},
    time::Duration,
};

use budao_client::{Client, Events, SessionRequest};
use serde_json::json;

use crate::acp::editor::{Editor, answer_text, budao};

/// The played CLI as a program.
pub(crate) fn fake_claude() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.push("examples/fake_claude");
    assert!(path.exists(), "not built: cargo build -p budao-claude --example fake_claude");
    path
}

/// A command that works with the played CLI, whose conversations are in a folder.
pub(crate) fn with_fake(directory: &Path, command: &str) -> Command {
    let conversations = directory.join("conversations");
    std::fs::create_dir_all(&conversations).unwrap();
    let mut budao = budao(directory);
    budao.env("FAKE_CLAUDE_DIR", conversations).arg(command);
    budao.args(["--engine", "claude", "--claude"]).arg(fake_claude());
    budao
}

/// A server, ended with the test.
struct Server {
    child: Child,
    client: Client,
}

impl Server {
    fn start(mut command: Command) -> Self {
        let mut child =
            command.args(["--listen", "127.0.0.1:0", "--permission", "auto"]).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let (url, token) = line.trim().split_once("/#token=").unwrap();
        let socket = format!("{}/ws", url.replace("http://", "ws://"));
        Self { child, client: Client::new(socket).token(token) }
    }

    fn stop(mut self) {
        let printed = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(printed.unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn final_answer(events: &mut Events) -> String {
    let answer = async {
        loop {
            let event = events.next().await.unwrap().unwrap();
            if event.event == "agent.final_answer" {
                return event.text().to_owned();
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), answer).await.unwrap()
}

/// Talks over WebSocket, goes on in an editor while the server runs it, and after the server is gone.
async fn goes_on_in_an_editor(
    directory: &Path,
    server: Command,
    editor: Command,
    answer: impl Fn(&str) -> String,
) {
    let server = Server::start(server);
    let (session, mut events) = server.client.create(SessionRequest::default()).await.unwrap();
    session.send("P1 over the socket @tool").await.unwrap();
    let first = final_answer(&mut events).await;
    assert_eq!(first, answer("P1 over the socket @tool"));

    let mut editor = Editor::start_as(editor);
    let params = json!({"sessionId": session.id(), "cwd": directory, "mcpServers": []});
    let loaded = editor.ask("session/load", params);
    assert!(loaded["error"].is_null(), "{loaded}");
    assert!(answer_text(&editor.updates).ends_with(&first), "{:?}", editor.updates);

    // The server has the session: the editor's prompt is answered there, and both see it.
    let (stop, answered) = editor.run(session.id(), "P2 from the editor");
    assert_eq!((stop.as_str(), answered), ("end_turn", answer("P2 from the editor")));
    assert_eq!(final_answer(&mut events).await, answer("P2 from the editor"));
    let printed = budao(directory).args(["replay", session.id()]).output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.contains(&answer("P2 from the editor")), "{printed}");

    server.stop();
    let (stop, answered) = editor.run(session.id(), "P3 without the server");
    assert_eq!((stop.as_str(), answered), ("end_turn", answer("P3 without the server")));
    editor.hang_up();
}

#[tokio::test]
async fn a_session_of_the_cli_begins_over_websocket_and_goes_on_in_an_editor() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let (server, editor) = (with_fake(directory, "serve"), with_fake(directory, "acp"));
    goes_on_in_an_editor(directory, server, editor, budao_testkit::claude::answer).await;
}

#[tokio::test]
async fn a_session_of_our_own_loop_begins_over_websocket_and_goes_on_in_an_editor() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let script = directory.join("script.toml");
    std::fs::write(&script, "[[step]]\ntext = \"as ever\"\nrepeat = \"forever\"\n").unwrap();
    let command = |name: &str| {
        let mut command = budao(directory);
        command.args([name, "--engine", "native", "--model"]);
        command.arg(format!("script:{}", script.display()));
        command
    };
    let answer = |_: &str| "as ever".to_owned();
    goes_on_in_an_editor(directory, command("serve"), command("acp"), answer).await;
}

#[test]
fn a_session_of_the_cli_is_refused_by_our_own_loop_and_goes_on_with_the_cli() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let mut editor = Editor::start_as(with_fake(directory, "acp"));
    let session = editor.new_session(directory);
    let answer = budao_testkit::claude::answer;
    assert_eq!(editor.run(&session, "P1"), ("end_turn".into(), answer("P1")));
    editor.hang_up();

    let mut native = Editor::start(directory, &["--engine", "native", "--model", "demo"]);
    let listed = native.ask("session/list", json!({}));
    assert_eq!(listed["result"]["sessions"], json!([]), "it is not offered");
    let params = json!({"sessionId": session, "cwd": directory, "mcpServers": []});
    let refused = native.ask("session/load", params.clone());
    let reason = refused["error"]["message"].as_str().unwrap();
    assert!(reason.contains("--engine claude"), "{refused}");
    assert!(native.run(&session, "P2").0.starts_with('-'), "nor is it prompted");
    native.hang_up();

    let mut editor = Editor::start_as(with_fake(directory, "acp"));
    assert!(editor.ask("session/load", params)["error"].is_null());
    assert_eq!(editor.run(&session, "P3"), ("end_turn".into(), answer("P3")), "and nothing else");
    editor.hang_up();
}

#[test]
fn an_unknown_engine_is_refused_with_the_known_ones() {
    let directory = tempfile::tempdir().unwrap();
    for command in ["serve", "acp"] {
        let refused = budao(directory.path())
            .args([command, "--engine", "steam"])
            .stdin(std::process::Stdio::null())
            .output();
        assert_eq!(refused.unwrap().status.code(), Some(2), "{command}");
    }
}
