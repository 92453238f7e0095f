//! A real process killed with SIGKILL in a batch of three commands, and a person who settles what is in doubt.
//!
//! Each command writes its line and then waits at a pipe that nobody writes to.

use std::path::Path;

use budao_testkit::{
    program::{self, command_in, until},
    provider::{Provider, Reply},
    sse::{ModelOutput, openai},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

fn budao(directory: &Path, args: &[&str]) -> Command {
    program::killed_with_handle(command_in(env!("CARGO_BIN_EXE_budao"), directory, args))
}

async fn run(directory: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    program::run(command_in(env!("CARGO_BIN_EXE_budao"), directory, args)).await
}

fn three_commands() -> Reply {
    let call = |number: u32| {
        let command = format!("echo {number} >> done.txt; [ -e go ] || cat pipe");
        ModelOutput::call(&format!("c{number}"), "bash_run", &json!({ "cmd": command }))
    };
    Reply::events(openai(&[call(1), call(2), call(3)]))
}

fn says(text: &str) -> Reply {
    Reply::events(openai(&[ModelOutput::text(text)]))
}

fn lines(directory: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(directory.join("done.txt")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Runs the batch, kills the process when this many commands have begun, and returns the session.
async fn kill_in_batch(directory: &Path, service: &Provider, slots: usize) -> String {
    let config = format!("[limits]\nparallel_calls = {slots}\n");
    std::fs::write(directory.join("budao.toml"), config).unwrap();
    assert!(Command::new("mkfifo").arg(directory.join("pipe")).status().await.unwrap().success());
    let model = format!("openai:m@{}/v1", service.url());
    let args = ["run", "--config", "budao.toml", "--permission", "auto", "--model", &model, "go"];
    let mut child: Child = budao(directory, &args).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = said.next_line().await.unwrap().unwrap();
    until("the commands begin", || lines(directory).len() == slots).await;
    child.kill().await.unwrap();
    std::fs::write(directory.join("go"), "").unwrap();
    first.rsplit(' ').next().unwrap().to_owned()
}

async fn resume(directory: &Path, session: &str, more: &[&str]) {
    let args = [&["resume", "--config", "budao.toml", session], more].concat();
    let (code, _, errors) = run(directory, &args).await;
    assert_eq!(code, Some(0), "{errors}");
}

async fn doubts(directory: &Path) -> Vec<Value> {
    let (code, listed, errors) = run(directory, &["doubts", "--json"]).await;
    assert_eq!(code, Some(0), "{errors}");
    listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn with_one_slot_a_kill_leaves_one_call_in_doubt_and_a_person_settles_it() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path();
    let service = Provider::start([three_commands(), says("One is unknown.")]).await;
    let session = kill_in_batch(directory, &service, 1).await;
    assert_eq!(lines(directory), ["1"], "the others have not begun");
    resume(directory, &session, &[]).await;
    assert_eq!(lines(directory), ["1", "2", "3"], "nothing was repeated and nothing left out");

    let open = doubts(directory).await;
    assert_eq!(open.len(), 1, "{open:?}");
    let call = open[0]["call"].as_str().unwrap();
    assert_eq!((&open[0]["tool"], &open[0]["session"]), (&json!("bash_run"), &json!(session)));
    assert!(open[0]["arguments"]["cmd"].as_str().unwrap().contains("echo 1"), "{open:?}");
    assert_eq!(open[0]["key"], json!(format!("{session}.{call}")));
    assert!(open[0]["age_s"].as_u64().is_some_and(|age| age < 600), "{open:?}");

    let settle = ["doubts", "settle", &session, call, "--happened", r#"{"line": "seen"}"#];
    let (code, _, errors) = run(directory, &settle).await;
    assert_eq!(code, Some(0), "{errors}");
    assert!(doubts(directory).await.is_empty());
    let (code, _, errors) = run(directory, &settle).await;
    assert_ne!(code, Some(0), "it is settled once");
    assert!(errors.contains("settled it before"), "{errors}");

    service.push(says("I see."));
    resume(directory, &session, &["go on"]).await;
    let asked = service.asked();
    let last = format!("{:?}", asked.last().unwrap());
    assert!(last.contains("seen"), "the model reads the settlement: {last}");
}

#[tokio::test]
async fn with_three_slots_a_kill_leaves_the_three_that_ran_in_doubt() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path();
    let service = Provider::start([three_commands(), says("All are unknown.")]).await;
    let session = kill_in_batch(directory, &service, 3).await;
    resume(directory, &session, &[]).await;
    let mut done = lines(directory);
    done.sort();
    assert_eq!(done, ["1", "2", "3"], "nothing was repeated");
    assert_eq!(doubts(directory).await.len(), 3);
    let (code, listed, errors) = run(directory, &["doubts", "--session", &session]).await;
    assert_eq!((code, listed.lines().count()), (Some(0), 3), "{listed} {errors}");
    let has_key = |line: &str| line.contains(&format!("  {session}.call_1_1_"));
    assert!(listed.lines().all(has_key), "a service that got the key can be asked: {listed}");
}
