//! A real process killed while a tool of an MCP server runs, and a rule of the configuration that finds out what became
//! of the call.
//!
//! The server is a shell script: `pay` writes a line and waits at a pipe that nobody writes to, `find` reads the lines.

use std::path::Path;

use budao_testkit::{
    program::{self, command_in, until},
    provider::{Provider, Reply},
    sse::{ModelOutput, openai},
};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

pub(crate) const SERVER: &str = r#"
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
text() { reply "{\"content\":[{\"type\":\"text\",\"text\":\"$1\"}]}"; }
while IFS= read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9][0-9]*\).*/\1/p')
    version=$(printf '%s' "$line" | sed -n 's/.*"protocolVersion":"\([^"]*\)".*/\1/p')
    case "$line" in
    *'"method":"initialize"'*)
        reply "{\"protocolVersion\":\"$version\",\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"bank\",\"version\":\"1\"}}" ;;
    *'"method":"tools/list"'*)
        schema='{"type":"object","properties":{"invoice":{"type":"integer"}},"required":["invoice"]}'
        reply "{\"tools\":[{\"name\":\"pay\",\"inputSchema\":$schema},{\"name\":\"find\",\"inputSchema\":$schema,\"annotations\":{\"readOnlyHint\":true}}]}" ;;
    *'"method":"tools/call"'*'"find"'*)
        echo asked >> asked.txt
        if [ -e lie ]; then text '{\"invoice\":8,\"state\":\"paid\",\"receipt\":\"R8\"}'
        elif [ -s paid.txt ]; then text '{\"invoice\":7,\"state\":\"paid\",\"receipt\":\"R7\"}'
        else text '{\"state\":\"none\"}'; fi ;;
    *'"method":"tools/call"'*'"pay"'*)
        echo begun >> begun.txt
        if [ -e early ]; then rm early; cat pipe; fi
        echo paid >> paid.txt
        if [ -e late ]; then rm late; cat pipe; fi
        text R7 ;;
    esac
done
"#;

const CONFIG: &str = r#"
[[mcp]]
name = "bank"
transport = { type = "stdio", command = "sh", args = ["server.sh"] }

[mcp.reconcile.pay]
ask = "find"
arguments = { invoice = { argument = "/invoice" } }
about = { "/invoice" = { argument = "/invoice" } }
happened = { at = "/state", is = "paid" }
did_not_happen = { at = "/state", is = "none" }
result = "/receipt"
"#;

fn budao(directory: &Path, args: &[&str]) -> Command {
    program::killed_with_handle(command_in(env!("CARGO_BIN_EXE_budao"), directory, args))
}

/// Runs a command that succeeds; returns its output.
async fn run(directory: &Path, args: &[&str]) -> String {
    let command = command_in(env!("CARGO_BIN_EXE_budao"), directory, args);
    let (code, output, errors) = program::run(command).await;
    assert_eq!(code, Some(0), "{errors}");
    output
}

fn lines(directory: &Path, file: &str) -> usize {
    std::fs::read_to_string(directory.join(file)).unwrap_or_default().lines().count()
}

/// A turn that pays, killed when `file` has a line, and then resumed. Returns what the model reads of the call, and the
/// open doubts.
async fn kill_and_resume(directory: &Path, wait: &str, file: &str) -> (String, String) {
    std::fs::write(directory.join("server.sh"), SERVER).unwrap();
    std::fs::write(directory.join("budao.toml"), CONFIG).unwrap();
    std::fs::write(directory.join(wait), "").unwrap();
    assert!(Command::new("mkfifo").arg(directory.join("pipe")).status().await.unwrap().success());
    let pay = ModelOutput::call("c1", "mcp__bank__pay", &json!({ "invoice": 7 }));
    let done = Reply::events(openai(&[ModelOutput::text("Done.")]));
    let service = Provider::start([Reply::events(openai(&[pay])), done]).await;
    let model = format!("openai:m@{}/v1", service.url());
    let args = ["run", "--config", "budao.toml", "--permission", "auto", "--model", &model, "pay"];
    let mut child = budao(directory, &args).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = said.next_line().await.unwrap().unwrap();
    until("the call begins", || lines(directory, file) > 0).await;
    child.kill().await.unwrap();
    let session = first.rsplit(' ').next().unwrap();
    run(directory, &["resume", "--config", "budao.toml", session]).await;
    let doubts = run(directory, &["doubts", "--json"]).await;
    let asked = service.asked();
    let last = asked.last().unwrap();
    (format!("{last:?}"), doubts)
}

#[tokio::test]
async fn a_call_of_an_mcp_server_that_was_done_before_the_kill_is_found_and_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let (read, doubts) = kill_and_resume(folder.path(), "late", "paid.txt").await;
    assert!(read.contains("R7"), "the model reads the receipt: {read}");
    assert_eq!((doubts.as_str(), lines(folder.path(), "paid.txt")), ("", 1));
    assert_eq!(lines(folder.path(), "asked.txt"), 1);
}

#[tokio::test]
async fn a_call_of_an_mcp_server_that_was_not_done_runs_again() {
    let folder = tempfile::tempdir().unwrap();
    let (read, doubts) = kill_and_resume(folder.path(), "early", "begun.txt").await;
    assert!(read.contains("R7"), "{read}");
    assert_eq!((doubts.as_str(), lines(folder.path(), "paid.txt")), ("", 1));
    assert_eq!(lines(folder.path(), "begun.txt"), 2);
}

#[tokio::test]
async fn an_answer_about_another_call_leaves_the_outcome_unknown() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("lie"), "").unwrap();
    let (read, doubts) = kill_and_resume(folder.path(), "late", "paid.txt").await;
    assert!(!read.contains("R8"), "{read}");
    assert!(doubts.contains("mcp__bank__pay"), "{doubts}");
    assert_eq!(lines(folder.path(), "paid.txt"), 1, "nothing is repeated");
}
