//! What a server costs this process: a call over standard input and output, 500 tools in a request, 50 servers at a start.
//!
//! CPU time is that of this process alone, so the server's own work does not count.

use std::{
    env,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use budao_core::{limits::Limits, tool::Outcome, world::World};
use budao_mcp::{McpServerConfig, ProcessVariables, ServerSet};
use budao_testkit::bench::{Suite, Unit};
use budao_tools::{Toolbox, isolation};
use serde_json::json;
use tokio::runtime::Runtime;

/// How many tools one server has in the second case.
const TOOLS: usize = 500;

/// How many servers start at once in the last case.
const SERVERS: usize = 50;

/// Longest wait for servers.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() {
    let runtime = Runtime::new().expect("a runtime starts");
    let many = open(&runtime, [fake("fake", &["--more", &TOOLS.to_string()])]);
    let toolbox = many.offer(&Toolbox::builder().build()).expect("the tools are usable");
    let limits = Limits::default();
    let base = Toolbox::builder().build();
    let mut suite = Suite::from_args(15);
    suite.case("mcp/call over stdio", Unit::MicrosCpu, Some(120.0), || {
        let call = toolbox.check_value("mcp__fake__echo", json!({ "text": "hello" }), &limits);
        let outcome = runtime.block_on(call.expect("it fits").run(isolation::context()));
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    });
    suite.case("mcp/500 tools of a request", Unit::MicrosCpu, Some(50.0), || toolbox.specs().len());
    suite.case("mcp/500 tools after a change", Unit::MicrosCpu, None, || many.add_to(&base));
    suite.run();
    runtime.block_on(many.shutdown());
    start_many(&runtime);
}

/// Starts many servers, one of which is wanted, and one of which never answers.
#[expect(clippy::print_stdout, reason = "a bench prints what it measures")]
fn start_many(runtime: &Runtime) {
    let named = |number: usize| format!("s{number}");
    let servers = (0..SERVERS).map(|number| match number {
        0 => fake(&named(number), &["--mute", "--mute-probe"]),
        _ => fake(&named(number), &[]),
    });
    let (world, _inside) = (world(), runtime.enter());
    let began = Instant::now();
    let set = ServerSet::open(servers, &variables(), &world, &Arc::new(Limits::default()))
        .expect("the configuration is valid");
    runtime.block_on(set.ready_for(&world, PATIENCE, |name| name == "s7"));
    let wanted = began.elapsed();
    runtime.block_on(set.ready_for(&world, PATIENCE, |name| name != "s0"));
    println!(
        "mcp/{SERVERS} servers: one that is wanted after {wanted:?}, all that answer after {:?}",
        began.elapsed()
    );
    runtime.block_on(set.shutdown());
}

fn world() -> World {
    isolation::context().world
}

fn variables() -> ProcessVariables {
    env::vars_os().collect()
}

fn open(runtime: &Runtime, servers: impl IntoIterator<Item = McpServerConfig>) -> ServerSet {
    let world = world();
    let _inside = runtime.enter();
    let set = ServerSet::open(servers, &variables(), &world, &Arc::new(Limits::default()))
        .expect("the configuration is valid");
    let failed = runtime.block_on(set.ready(&world, PATIENCE));
    assert!(failed.is_empty(), "{failed:?}");
    set
}

/// The fake server, which is an example and so is built with the benches.
fn fake(name: &str, args: &[&str]) -> McpServerConfig {
    let mut path: PathBuf = env::current_exe().expect("a program has a path");
    path.pop();
    path.pop();
    path.push("examples/fake_mcp_server");
    assert!(path.exists(), "not built: cargo build -p budao-mcp --example fake_mcp_server");
    McpServerConfig::stdio(name, path.to_str().expect("a plain path"), args.iter().copied())
}
