//! Against servers on the MCP project's Python package, which speaks both eras, over every transport it has.
//!
//! It is fetched by `cargo xtask peers mcp-python`. Where it is missing these tests say so and pass; with `CI=true` they
//! fail.

use std::process::Stdio as Pipe;

use budao_core::fault::Kind;
use budao_mcp::{Era, McpServerConfig, ServerHandle};
use budao_testkit::port;
use budao_tools::isolation;
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::common::{call, call_with, connect, done, failed, peer, within};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/python_server.py");

/// The Python with the package, or nothing and a loud word.
fn python() -> Option<String> {
    let found = peer("mcp-python")?.join("bin/python");
    found.to_str().map(str::to_owned)
}

/// What every transport must give.
async fn works(server: &ServerHandle) {
    assert_eq!(done(call(server, "add", json!({ "a": 2, "b": 40 })).await)["result"], 42);
    assert_eq!(server.instructions().as_deref(), Some("Add before you subtract."));
    let failure = failed(call(server, "fail", json!({})).await);
    assert_eq!(failure.fault.kind(), Kind::ToolSaidNo, "{}", failure.fault);
    assert!(failure.fault.to_string().contains("Error executing tool fail"), "{}", failure.fault);
    let context = isolation::context();
    let cancel = context.cancel.clone();
    let wait = call_with(server, "wait", json!({}), context);
    let stop = async {
        done(call(server, "add", json!({ "a": 1, "b": 1 })).await);
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(wait, stop);
    assert_eq!(failed(outcome).fault.kind(), Kind::Cancelled);
    assert_eq!(done(call(server, "add", json!({ "a": 1, "b": 2 })).await)["result"], 3);
}

async fn listening(python: &str, kind: &str) -> (Child, u16) {
    loop {
        let port = port::free();
        let mut child = Command::new(python)
            .args([SERVER, kind, &port.to_string()])
            .stdin(Pipe::null())
            .stdout(Pipe::null())
            .stderr(Pipe::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let ready = within(async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.contains("running on http") {
                    return true;
                }
            }
            false
        })
        .await;
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        // Another process may have taken the port in between.
        if ready {
            return (child, port);
        }
    }
}

#[tokio::test]
async fn python_over_stdio() {
    let Some(python) = python() else { return };
    let server = connect(McpServerConfig::stdio("python", python, [SERVER, "stdio"])).await;
    works(&server).await;
    within(server.shutdown()).await;
}

#[tokio::test]
async fn python_over_streamable_http_without_a_handshake() {
    let Some(python) = python() else { return };
    let (_child, port) = listening(&python, "streamable-http").await;
    let server =
        connect(McpServerConfig::http("python", format!("http://127.0.0.1:{port}/mcp"))).await;
    assert_eq!(server.era(), Some(Era::Stateless));
    works(&server).await;
    within(server.shutdown()).await;
}

#[tokio::test]
async fn a_python_server_with_the_older_protocol_works_at_a_url_without_a_hint_of_it() {
    let Some(python) = python() else { return };
    let (_child, port) = listening(&python, "sse").await;
    let server =
        connect(McpServerConfig::http("python", format!("http://127.0.0.1:{port}/sse"))).await;
    assert_eq!(server.era(), Some(Era::EventStream));
    works(&server).await;
    within(server.shutdown()).await;
}
