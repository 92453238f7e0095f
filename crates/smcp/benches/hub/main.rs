//! What the hub costs, beside the published hubs in Python and in Rust.
//!
//! Each hub is a process of its own and only its CPU time counts: the load is made by this program, the same for all. What
//! a peer needs is fetched by `cargo xtask peers a2c-smcp smcp-rust`; without it its numbers are left out, and said so.
//! `BUDAO_FULL=1` adds a million calls.
#![allow(clippy::print_stderr, reason = "what is left out is said")]
#![allow(clippy::print_stdout, reason = "the parts say that they are ready")]
#![allow(clippy::cast_precision_loss, reason = "numbers for people")]

mod load;
mod matrix;
mod process;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use budao_core::world::World;
use budao_smcp::{
    MemberConfig,
    agent::{Agent, Call, Config as AgentConfig},
    computer::{Computer, Config as ComputerConfig, Input, Settings, ValueSource},
    server::{Access, Config, Hub, Token},
};
use budao_testkit::bench::{Better, Measurement, cpu_time, emit};
use load::Rooms;
use process::{Process, peer};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio_util::sync::CancellationToken;

fn world() -> World {
    budao_testkit::world::seeded(1)
}

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--part-hub"] => part_hub().await,
        ["--part-computer", url] => part_computer(url).await,
        ["--part-mcp"] => {
            budao_testkit::mcp::serve(budao_testkit::mcp::Behaviour::default()).expect("it serves");
        }
        _ => measure(args.iter().find(|arg| !arg.starts_with('-')).map(String::as_str)).await,
    }
}

/// Lives until its input ends.
async fn until_told() {
    let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
}

async fn part_hub() {
    let config = Config::new(Access::Tokens(vec![Token::shared("right")]));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!("listening {}", listener.local_addr().expect("it is bound").port());
    Hub::new(config, world()).serve(listener, until_told()).await;
}

#[derive(Debug)]
struct Nothing;

#[async_trait::async_trait]
impl ValueSource for Nothing {
    fn variable(&self, _: &str) -> Option<String> {
        None
    }

    async fn ask(&self, _: &Input) -> Option<String> {
        None
    }
}

async fn part_computer(url: &str) {
    let ourselves = std::env::current_exe().expect("we are a program");
    let settings = json!({ "servers": [{
        "name": "tools", "type": "stdio", "default_tool_meta": { "auto_apply": true },
        "tool_meta": { "env": { "auto_apply": false } }, "forbidden_tools": ["add"],
        "server_parameters": { "command": ourselves, "args": ["--part-mcp"] },
    }] });
    let settings = Settings::read(&settings.to_string()).expect("they are right");
    let config = ComputerConfig::new(member_config(url, "pc"));
    let computer = Computer::start(config, settings, &Nothing, world()).await.expect("it joins");
    println!("joined");
    until_told().await;
    computer.shutdown().await;
}

/// Room `a`, with the right token.
fn member_config(url: &str, name: &str) -> MemberConfig {
    let mut member = MemberConfig::new(url, "a", name);
    member.token = Some("right".to_owned().into());
    member
}

fn report(bench: &str, value: f64, unit: &str, bar: Option<f64>, better: Better, note: &str) {
    emit(&Measurement {
        bench: bench.to_owned(),
        value,
        unit: unit.to_owned(),
        bar,
        better,
        low: None,
        high: None,
        note: Some(note.to_owned()).filter(|note| !note.is_empty()),
    });
}

async fn measure(filter: Option<&str>) {
    let wants =
        |name: &str| filter.is_none_or(|filter| name.contains(filter) || filter.contains(name));
    if wants("smcp/relay") {
        relay().await;
    }
    if wants("smcp/rooms") {
        rooms().await;
    }
    if wants("smcp/matrix") {
        errors().await;
    }
    if wants("smcp/chain") {
        chain().await;
    }
    if std::env::var_os("BUDAO_FULL").is_some() && wants("smcp/million") {
        million().await;
    }
}

/// Calls that ten agents get through a hub for a second of its CPU time.
async fn per_cpu_second(hub: &Process, calls_each: u64, name: &str) -> f64 {
    let rooms = Rooms::open(&hub.url(), 10, &world()).await;
    rooms.run(calls_each / 10 + 1).await;
    let before = hub.cpu();
    let run = rooms.run(calls_each).await;
    let cpu = (hub.cpu() - before).as_secs_f64();
    eprintln!(
        "  {name}: {} calls, {} lost, {:.0} a second on the clock, p50 {:?}, p99 {:?}, {:.4} ms of CPU each",
        run.calls,
        run.lost,
        run.calls as f64 / run.wall.as_secs_f64(),
        run.quantile(0.5),
        run.quantile(0.99),
        cpu * 1e3 / run.calls as f64,
    );
    if name == "ours" {
        report(
            "smcp/relay_lost",
            run.lost as f64,
            "answers",
            Some(0.0),
            Better::Lower,
            "ten agents",
        );
    }
    run.calls as f64 / cpu.max(0.01)
}

fn our_hub() -> Process {
    Process::of_ourselves(&["--part-hub"], "listening ")
}

fn python_hub(python: &Path) -> Process {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/hub.py");
    Process::start(&python.join("bin/python"), &[script], "listening ")
}

async fn relay() {
    let ours = per_cpu_second(&our_hub(), 5_000, "ours").await;
    let unit = "calls/s CPU";
    report(
        "smcp/relay",
        ours,
        unit,
        None,
        Better::Higher,
        "ten agents, an echo each; CPU of the hub alone",
    );
    if let Some(python) = peer("a2c-smcp") {
        let theirs = per_cpu_second(&python_hub(&python), 300, "Python").await;
        report("peer/a2c-smcp/relay", theirs, unit, None, Better::Higher, "");
        report(
            "smcp/relay_vs_python",
            ours / theirs,
            "x",
            Some(20.0),
            Better::Higher,
            "a2c-smcp 0.4.2 on uvicorn",
        );
    }
    if let Some(rust) = peer("smcp-rust") {
        let hub = Process::start(&rust.join("target/release/smcp-rust"), &["hub"], "listening ");
        let theirs = per_cpu_second(&hub, 5_000, "Rust").await;
        report("peer/smcp-rust/relay", theirs, unit, None, Better::Higher, "");
        report(
            "smcp/relay_vs_rust",
            ours / theirs,
            "x",
            Some(1.5),
            Better::Higher,
            "smcp-server-hyper 0.4.1",
        );
    }
}

/// Fifty rooms: the slow ones against the usual ones, and what the hub holds for them.
async fn rooms() {
    let hub = our_hub();
    let rooms = Rooms::open(&hub.url(), 50, &world()).await;
    rooms.run(20).await;
    let run = rooms.run(400).await;
    let (usual, slow) = (run.quantile(0.5), run.quantile(0.99));
    let note = format!("p50 {usual:?}, p99 {slow:?}");
    report(
        "smcp/rooms_p99_over_p50",
        slow.as_secs_f64() / usual.as_secs_f64(),
        "x",
        Some(5.0),
        Better::Lower,
        &note,
    );
    let resident = hub.resident() as f64 / f64::from(1 << 20);
    report(
        "smcp/rooms_resident",
        resident,
        "MiB",
        Some(12.0),
        Better::Lower,
        "fifty agents and fifty computers; this program as the hub",
    );
    report("smcp/rooms_lost", run.lost as f64, "answers", Some(0.0), Better::Lower, "");
}

/// How long each answer takes on the clock, in every situation others were measured in. The best of three counts: what
/// else happens on the machine is not the hub's.
async fn errors() {
    let mut best: Vec<(&str, Duration)> = Vec::new();
    for round in 0..3 {
        let hub = our_hub();
        let computer = Process::of_ourselves(&["--part-computer", &hub.url()], "joined");
        let rows = matrix::measure(&hub, world()).await;
        drop(computer);
        for (index, (name, took)) in rows.into_iter().enumerate() {
            if round == 0 {
                best.push((name, took));
            } else {
                best[index].1 = best[index].1.min(took);
            }
        }
    }
    for (name, took) in &best {
        eprintln!("  {:8.2} ms  {name}", took.as_secs_f64() * 1e3);
    }
    let (name, took) = best.iter().max_by_key(|(_, took)| *took).expect("there are some");
    let note = format!("of {} situations; the slowest: {name}", best.len());
    report("smcp/matrix_slowest", took.as_secs_f64() * 1e3, "ms", Some(50.0), Better::Lower, &note);
}

/// Agent, hub, computer, and an MCP server behind it, one call after the other: all of it ours, and all of it theirs.
async fn chain() {
    let (calls, unit) = (2_000_u32, "calls/s CPU");
    let hub = our_hub();
    let computer = Process::of_ourselves(&["--part-computer", &hub.url()], "joined");
    let agent = Agent::connect(AgentConfig::new(member_config(&hub.url(), "bot")), world());
    let agent = agent.await.expect("it joins");
    while agent.tools("pc").await.is_ok_and(|tools| tools.is_empty()) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (own, others, began) = (cpu_time(), hub.cpu() + computer.cpu(), Instant::now());
    for number in 0..calls {
        let text = number.to_string();
        let call = Call {
            computer: "pc".into(),
            tool: "tools__echo".into(),
            params: json!({ "text": text }),
            timeout: Duration::from_secs(20),
            req_id: None,
        };
        let answer = agent.call(call, &CancellationToken::new()).await.expect("it answers");
        assert_eq!(answer["content"][0]["text"], text);
    }
    let wall = began.elapsed().as_secs_f64();
    let cpu = (cpu_time() - own + hub.cpu() + computer.cpu() - others).as_secs_f64();
    let ours = (f64::from(calls) / cpu, f64::from(calls) / wall);
    report(
        "smcp/chain",
        ours.0,
        unit,
        None,
        Better::Higher,
        &format!("{:.0} a second of wall time", ours.1),
    );
    let Some(python) = peer("a2c-smcp") else { return };
    let theirs = python_chain(&python, 300);
    let note = format!("{:.0} a second of wall time", theirs.1);
    report("peer/a2c-smcp/chain", theirs.0, unit, None, Better::Higher, &note);
    let note = format!("{:.1}x in wall time", ours.1 / theirs.1);
    report("smcp/chain_vs_python", ours.0 / theirs.0, "x", Some(10.0), Better::Higher, &note);
}

/// Calls a second of CPU time, and on the clock.
fn python_chain(python: &Path, calls: u32) -> (f64, f64) {
    let program = python.join("bin/python");
    let file = |path: &str| format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    let hub = python_hub(python);
    let (script, tools) = (file("tests/peers/computer.py"), file("tests/peers/tools.py"));
    let computer = Process::start(&program, &[&script, &hub.url(), "a", "pc", &tools], "joined");
    let before = hub.cpu() + computer.cpu();
    let (script, calls_text) = (file("benches/peers/chain.py"), calls.to_string());
    let agent = Process::start(&program, &[&script, &hub.url(), &calls_text], "{\"wall\":");
    let took: Value =
        serde_json::from_str(&format!("{{\"wall\":{}", agent.first_line)).expect("it is JSON");
    let seconds = |name: &str| took[name].as_f64().expect("it says so");
    let cpu = seconds("cpu") + (hub.cpu() + computer.cpu() - before).as_secs_f64();
    (f64::from(calls) / cpu, f64::from(calls) / seconds("wall"))
}

/// A million calls, none of them lost.
async fn million() {
    let hub = our_hub();
    let rooms = Rooms::open(&hub.url(), 20, &world()).await;
    let run = rooms.run(50_000).await;
    let note = format!("{} answered in {:?}", run.calls, run.wall);
    report("smcp/million_lost", run.lost as f64, "answers", Some(0.0), Better::Lower, &note);
}
