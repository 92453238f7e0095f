//! What the tests share.

use std::{path::PathBuf, sync::Arc, time::Duration};

use budao_core::{
    fault::Fault,
    limits::Limits,
    retry::RetryPolicy,
    tool::{Outcome, Output},
    world::World,
};
use budao_mcp::{McpServerConfig, ProcessVariables, ServerHandle, ServerState};
use budao_testkit::world;
use budao_tools::{CallContext, Toolbox, isolation};
use serde_json::Value;

/// Nothing here takes this long unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The fake server with these behaviours.
pub(crate) fn fake(args: &[&str]) -> McpServerConfig {
    let mut config =
        McpServerConfig::stdio("fake", fake_path().to_str().unwrap(), args.iter().copied());
    config.reconnect = quick();
    config
}

/// The fake server's program: an example, so it is built with the tests.
pub(crate) fn fake_path() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.push("examples/fake_mcp_server");
    assert!(path.exists(), "not built: cargo build -p budao-mcp --example fake_mcp_server");
    path
}

/// The folder of a program of others, or nothing and a loud word. It is fetched by `cargo xtask peers NAME`.
pub(crate) fn peer(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("BUDAO_PEERS")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/budao/peers")));
    let found = folder?.join(name);
    if !found.exists() {
        let advice = format!("NOT TESTED: `{name}` is missing; `cargo xtask peers {name}`");
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{advice}");
        eprintln!("\n*** {advice} ***\n");
        return None;
    }
    Some(found)
}

/// Tries again soon.
pub(crate) fn quick() -> RetryPolicy {
    let base = Duration::from_millis(10);
    RetryPolicy { tries: u32::MAX, base, max: Duration::from_millis(40), ..RetryPolicy::default() }
}

pub(crate) fn world() -> World {
    world::seeded(7)
}

pub(crate) fn limits() -> Arc<Limits> {
    Arc::new(Limits { kill_grace: Duration::from_millis(300), ..Limits::default() })
}

/// The variables of the test, which Cargo has extended.
pub(crate) fn variables() -> ProcessVariables {
    std::env::vars_os().collect()
}

pub(crate) async fn connect(config: McpServerConfig) -> ServerHandle {
    within(ServerHandle::connect(config, &variables(), &world(), &limits())).await.unwrap()
}

pub(crate) async fn refused(config: McpServerConfig) -> Fault {
    within(ServerHandle::connect(config, &variables(), &world(), &limits())).await.unwrap_err()
}

pub(crate) fn names(server: &ServerHandle) -> Vec<String> {
    server.tools().iter().map(|tool| tool.spec().name.to_string()).collect()
}

pub(crate) fn toolbox(server: &ServerHandle) -> Toolbox {
    Toolbox::builder().build().with_all(server.tools()).unwrap()
}

/// Calls a tool of the fake the way the runtime does.
pub(crate) async fn call(server: &ServerHandle, tool: &str, arguments: Value) -> Outcome {
    call_with(server, tool, arguments, isolation::context()).await
}

pub(crate) async fn call_with(
    server: &ServerHandle,
    tool: &str,
    arguments: Value,
    context: CallContext,
) -> Outcome {
    let name = budao_mcp::tool_name(server.name(), tool);
    let ready = toolbox(server).check_value(&name, arguments, &context.limits).unwrap();
    within(ready.run(context)).await
}

/// The messages the fake has seen of one method.
pub(crate) async fn seen(server: &ServerHandle, method: &str) -> Vec<Value> {
    let seen = done(call(server, "seen", serde_json::json!({})).await);
    let seen: Vec<Value> = serde_json::from_str(seen.as_str().unwrap()).unwrap();
    seen.into_iter().filter(|message| message["method"] == method).collect()
}

/// Waits until the fake has this many calls of `slow`.
pub(crate) async fn has_slow(server: &ServerHandle, count: usize) {
    let is_slow = |call: &&Value| call["params"]["name"] == "slow";
    within(async {
        while seen(server, "tools/call").await.iter().filter(is_slow).count() < count {}
    })
    .await;
}

pub(crate) fn done(outcome: Outcome) -> Value {
    match outcome {
        Outcome::Done(Output { data, .. }) => data,
        Outcome::Failed(failure) => panic!("failed: {:#?}", failure.fault),
    }
}

pub(crate) fn failed(outcome: Outcome) -> budao_core::tool::Failure {
    match outcome {
        Outcome::Failed(failure) => failure,
        Outcome::Done(output) => panic!("done: {output:?}"),
    }
}

/// Waits for something that must come soon.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it hangs")
}

/// Waits until the server is in such a state.
pub(crate) async fn until(
    server: &ServerHandle,
    wanted: impl FnMut(&ServerState) -> bool,
) -> ServerState {
    let mut state = server.watch_state();
    within(state.wait_for(wanted)).await.unwrap().clone()
}

pub(crate) fn is_ready(state: &ServerState) -> bool {
    matches!(state, ServerState::Ready { .. })
}

/// Waits until a process is dead: gone, or a zombie that its new parent has not seen yet.
pub(crate) async fn dead(id: u32) {
    let lives = || {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    within(async {
        while lives() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Is there anything of this process, if only a zombie of ours?
pub(crate) fn exists(id: u32) -> bool {
    std::path::Path::new(&format!("/proc/{id}")).exists()
}
