//! A real agent killed while a tool of a room's computer runs, and a rule of `[[smcp]]` that finds out what became of the
//! call.
//!
//! The hub and the computer live on. The computer's server is the shell script of `mcp_doubts`, which waits at a pipe
//! before or after its effect; the test opens the pipe when the agent is dead.

use std::{path::Path, process::Command};

use budao_testkit::{
    program::{self, Process, command_in, until},
    provider::{Provider, Reply},
    sse::{ModelOutput, openai},
};
use serde_json::json;

use crate::mcp_doubts::SERVER;

const PROGRAM: &str = env!("CARGO_BIN_EXE_budao");

fn config(url: &str) -> String {
    format!(
        r#"
[[smcp]]
url = "{url}"
room = "room"
token = "${{env:ROOM_TOKEN}}"

[smcp.reconcile.bank__pay]
ask = "bank__find"
arguments = {{ invoice = {{ argument = "/invoice" }} }}
about = {{ "/invoice" = {{ argument = "/invoice" }} }}
happened = {{ at = "/state", is = "paid" }}
did_not_happen = {{ at = "/state", is = "none" }}
result = "/receipt"
"#
    )
}

fn lines(directory: &Path, file: &str) -> usize {
    std::fs::read_to_string(directory.join(file)).unwrap_or_default().lines().count()
}

/// The program with what the configuration refers to.
fn agent(directory: &Path, args: &[&str]) -> Command {
    let mut command = command_in(PROGRAM, directory, args);
    command.env("ROOM_TOKEN", "right");
    command
}

/// A hub, and a computer whose server works in `directory`.
fn room(directory: &Path) -> (Process, Process, String) {
    let mut hub = program::command(PROGRAM, &["smcp", "server", "--listen", "127.0.0.1:0"]);
    hub.env("BUDAO_SMCP_TOKEN", "right");
    let (hub, line) = Process::start_until(hub, "listening on");
    let url = line.split_whitespace().last().unwrap().to_owned();
    std::fs::write(directory.join("server.sh"), SERVER).unwrap();
    let script = format!("cd '{}' && exec sh server.sh", directory.display());
    let servers = json!({ "servers": [{
        "name": "bank", "type": "stdio", "default_tool_meta": { "auto_apply": true },
        "server_parameters": { "command": "sh", "args": ["-c", script] },
    }] });
    std::fs::write(directory.join("computer.json"), servers.to_string()).unwrap();
    let file = directory.join("computer.json");
    let args = ["smcp", "computer", "--url", &url, "--name", "pc", "--config"];
    let mut computer =
        program::command(PROGRAM, &[&args[..], &[file.to_str().unwrap(), "room"]].concat());
    computer.env("BUDAO_SMCP_TOKEN", "right");
    let (computer, _) = Process::start_until(computer, "joined");
    // The list waits for the server of the computer, so that the agent is offered its tools.
    let mut list = program::command(PROGRAM, &["smcp", "tools", "room"]);
    list.env("BUDAO_SMCP_TOKEN", "right").env("BUDAO_SMCP_URL", &url);
    let listed = String::from_utf8(list.output().unwrap().stdout).unwrap();
    assert!(listed.contains("bank__pay"), "{listed}");
    (hub, computer, url)
}

/// A turn that pays, killed when `file` has a line, and then resumed. Returns what the model reads of the call, and the
/// open doubts.
async fn kill_and_resume(directory: &Path, wait: &str, file: &str) -> (String, String) {
    let (_hub, _computer, url) = room(directory);
    std::fs::write(directory.join("budao.toml"), config(&url)).unwrap();
    std::fs::write(directory.join(wait), "").unwrap();
    let pipe = directory.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let pay = ModelOutput::call("c1", "pc__bank__pay", &json!({ "invoice": 7 }));
    let done = Reply::events(openai(&[ModelOutput::text("Done.")]));
    let service = Provider::start([Reply::events(openai(&[pay])), done]).await;
    let model = format!("openai:m@{}/v1", service.url());
    let args = ["run", "--config", "budao.toml", "--permission", "auto", "--model", &model, "pay"];
    let run = agent(directory, &args);
    let (mut first_life, first) = Process::start_until(run, "session");
    until("the call begins", || lines(directory, file) > 0).await;
    first_life.kill();
    let opened = std::fs::OpenOptions::new().write(true).open(&pipe);
    drop(opened.unwrap());
    let session = first.rsplit(' ').next().unwrap();
    let resume = ["resume", "--config", "budao.toml", session];
    let (code, _, errors) = program::run(agent(directory, &resume)).await;
    assert_eq!(code, Some(0), "{errors}");
    let list = command_in(PROGRAM, directory, &["doubts", "--json"]);
    let (_, doubts, _) = program::run(list).await;
    let asked = service.asked();
    (format!("{:?}", asked.last().unwrap()), doubts)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_a_computer_that_was_done_before_the_kill_is_found_and_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let (read, doubts) = kill_and_resume(folder.path(), "late", "paid.txt").await;
    assert!(read.contains("R7"), "the model reads the receipt: {read}");
    assert_eq!((doubts.as_str(), lines(folder.path(), "paid.txt")), ("", 1));
    assert_eq!(lines(folder.path(), "asked.txt"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_a_computer_about_another_call_leaves_the_outcome_unknown() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("lie"), "").unwrap();
    let (read, doubts) = kill_and_resume(folder.path(), "late", "paid.txt").await;
    assert!(!read.contains("R8"), "{read}");
    assert!(doubts.contains("pc__bank__pay"), "{doubts}");
    assert_eq!(lines(folder.path(), "paid.txt"), 1, "nothing is repeated");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_cannot_work_is_named_by_its_setting() {
    let folder = tempfile::tempdir().unwrap();
    let (_hub, _computer, url) = room(folder.path());
    let wrong = config(&url).replace("at = \"/state\", is = \"paid\"", "at = \"state\"");
    std::fs::write(folder.path().join("budao.toml"), wrong).unwrap();
    let args = ["run", "--config", "budao.toml", "--model", "demo:fast", "say hello"];
    let (_, _, errors) = program::run(agent(folder.path(), &args)).await;
    assert!(errors.contains("smcp.reconcile.bank__pay.happened.at"), "{errors}");
}
