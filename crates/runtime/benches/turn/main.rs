//! What a turn costs: user text, one call of a trivial tool, final words; a fake model in this process.
//!
//! CPU time of the whole process, threads included. A conversation has twenty turns and keeps them all, as
//! in the peers under `xtask/peers`. Durable figures are on a file that is synced before anyone is told,
//! with the number of syncs beside them and what the same number of bare writes with a sync costs taken off.
//! What a start and a kept session cost is seen by processes of their own. With `--postgres`, turns on a PostgreSQL
//! server are measured instead, beside the peers that are named.

#![expect(clippy::print_stdout, reason = "a process that was started for one number says it")]

mod postgres;

use std::{
    io::{Seek, SeekFrom, Write},
    path::Path,
    sync::Arc,
    time::Duration,
};

use budao_core::{
    limits::Limits,
    message::{Block, CallId, ModelRequest, ModelStop, Piece, ToolUse, Usage},
    tool::{Mode, Permissions},
};
use budao_journal::{Journal, Memory, PageLimits, open};
use budao_models::{Model, PieceStream};
use budao_runtime::{Agent, AgentBuilderExt as _, AgentExt as _, Session, world};
use budao_testkit::bench::{Better, Measurement, cpu_time, emit, heap_use};
use budao_tools::{RawTool, pool::Pool};
use serde_json::json;

/// Turns of one conversation.
const TURNS: u32 = 20;
/// Conversations side by side, and how many turns each of them has.
const AT_ONCE: u32 = 128;
const TURNS_AT_ONCE: u32 = 5;
const SYNCS_OF_A_TURN: f64 = 4.0;

/// Asks for one call, then answers: as quick as a model can be.
#[derive(Debug)]
struct Fake;

#[async_trait::async_trait]
impl Model for Fake {
    fn provider(&self) -> &str {
        "fake"
    }

    fn name(&self) -> &str {
        "fake"
    }

    async fn stream(&self, request: ModelRequest) -> Result<PieceStream, budao_core::Fault> {
        let called = request.messages.last().is_some_and(|message| {
            message.content.iter().any(|block| matches!(block, Block::ToolResult { .. }))
        });
        let usage = Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() };
        let pieces = if called {
            vec![
                Piece::Text("5".into()),
                Piece::Block(Block::Text("5".into())),
                Piece::End { stop: ModelStop::EndTurn, usage },
            ]
        } else {
            let call = ToolUse {
                id: CallId::from("x"),
                name: "add".into(),
                arguments: r#"{"a":2,"b":3}"#.into(),
            };
            vec![Piece::Block(Block::ToolUse(call)), Piece::End { stop: ModelStop::ToolUse, usage }]
        };
        Ok(Box::pin(futures::stream::iter(pieces.into_iter().map(Ok))))
    }
}

fn add() -> RawTool {
    let schema = json!({
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": false,
    });
    RawTool::new("add", "Adds.", schema, |arguments, _| async move {
        let sum = arguments["a"].as_i64().unwrap_or(0) + arguments["b"].as_i64().unwrap_or(0);
        Ok(json!(sum))
    })
}

fn agent(journal: Arc<dyn Journal>) -> Agent {
    let limits = Limits { context_tokens: u64::MAX, ..Limits::default() };
    let permissions = Permissions { mode: Mode::Auto, ..Permissions::default() };
    Agent::builder(Fake)
        .tool(add())
        .permissions(permissions)
        .limits(limits)
        .journal(journal)
        .pool(Arc::new(Pool::tasks()))
        .build()
        .expect("an agent")
}

async fn turns(session: &Session, count: u32) {
    for _ in 0..count {
        let result = session.run("What is 2 + 3?").await.expect("accepted");
        assert_eq!(result.text, "5");
    }
}

async fn cpu_per(count: u32, work: impl Future<Output = ()>) -> f64 {
    let before = cpu_time();
    work.await;
    (cpu_time() - before).as_secs_f64() * 1e6 / f64::from(count)
}

fn tell(bench: &str, value: f64, unit: &str, bar: Option<f64>, note: &str) {
    tell_all(bench, vec![value], unit, bar, note);
}

/// The median of rounds, with the middle half beside it.
fn tell_all(bench: &str, mut rounds: Vec<f64>, unit: &str, bar: Option<f64>, note: &str) {
    rounds.sort_by(f64::total_cmp);
    let at = |quarter: usize| rounds[(rounds.len() - 1) * quarter / 4];
    emit(&Measurement {
        bench: bench.into(),
        value: at(2),
        unit: unit.into(),
        bar,
        better: Better::Lower,
        note: Some(note.into()),
        low: (rounds.len() > 1).then(|| at(1)),
        high: (rounds.len() > 1).then(|| at(3)),
    });
}

/// CPU time of a turn in conversations one after the other; opening them does not count.
async fn alone(agent: &Agent, conversations: u32) -> f64 {
    let mut spent = 0.0;
    for _ in 0..conversations {
        let session = agent.session().await.expect("opens");
        spent += cpu_per(TURNS, turns(&session, TURNS)).await;
    }
    spent / f64::from(conversations)
}

/// CPU time of a turn in conversations side by side.
async fn at_once(agent: &Agent) -> f64 {
    let mut sessions = Vec::new();
    for _ in 0..AT_ONCE {
        sessions.push(agent.session().await.expect("opens"));
    }
    let together = async {
        let each = sessions.iter().map(|session| turns(session, TURNS_AT_ONCE));
        futures::future::join_all(each).await;
    };
    cpu_per(AT_ONCE * TURNS_AT_ONCE, together).await
}

async fn in_memory() {
    let memory = Arc::new(Memory::new(world::system(), Limits::default()));
    let agent = agent(memory);
    alone(&agent, 10).await;
    let (mut one, mut many) = (Vec::new(), Vec::new());
    for _ in 0..15 {
        one.push(alone(&agent, 20).await);
        many.push(at_once(&agent).await);
    }
    let note = "one turn, one call, journal in memory";
    tell_all("turn/memory", one, "µs CPU", None, note);
    tell_all("turn/memory_128", many, "µs CPU", None, "128 sessions at once");
}

async fn flat() {
    let memory = Arc::new(Memory::new(world::system(), Limits::default()));
    let session = agent(memory).session().await.expect("opens");
    turns(&session, 500).await;
    let first = cpu_per(500, turns(&session, 500)).await;
    turns(&session, 8_500).await;
    let last = cpu_per(500, turns(&session, 500)).await;
    tell("turn/flat", last / first, "x", Some(1.25), "turns 9 500 to 10 000 over 500 to 1 000");
}

async fn durable() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("journal.db");
    let journal = open(&file.display().to_string(), world::system()).await.expect("opens");
    let agent = agent(Arc::clone(&journal));
    alone(&agent, 3).await;
    let (mut one, mut bare, mut beyond, mut many) = (vec![], vec![], vec![], vec![]);
    for _ in 0..5 {
        let turn = alone(&agent, 5).await;
        let sync = bare_sync(directory.path());
        one.push(turn);
        bare.push(sync);
        beyond.push((turn - SYNCS_OF_A_TURN * sync).max(0.0));
        many.push(at_once(&agent).await);
    }
    let session = agent.session().await.expect("opens");
    turns(&session, 1).await;
    let before = journal.load().commits;
    turns(&session, 100).await;
    let syncs = (journal.load().commits - before) as f64 / 100.0;
    tell("turn/durable_syncs", syncs, "syncs", Some(SYNCS_OF_A_TURN), "for each turn");
    tell_all("turn/durable_alone", one, "µs CPU", None, "one session, synced before the answer");
    tell_all("turn/bare_sync", bare, "µs CPU", None, "two pages written and synced, nothing else");
    let note = "one session, beyond four bare syncs";
    tell_all("turn/durable_beyond", beyond, "µs CPU", Some(60.0), note);
    tell_all("turn/durable_128", many, "µs CPU", None, "128 sessions at once");
}

/// CPU of one write and sync without us: what the kernel takes.
fn bare_sync(directory: &Path) -> f64 {
    const SYNCS: u32 = 200;
    const PAGES: [u8; 8_192] = [7; 8_192];
    let mut file = std::fs::File::create(directory.join("bare")).expect("a file");
    let before = cpu_time();
    for index in 0..SYNCS {
        // Around in four megabytes, as a write-ahead log does.
        file.seek(SeekFrom::Start(u64::from(index % 512) * 8_192)).expect("seeks");
        file.write_all(&PAGES).expect("writes");
        file.sync_data().expect("syncs");
    }
    (cpu_time() - before).as_secs_f64() * 1e6 / f64::from(SYNCS)
}

async fn idle_sessions() {
    const WAVE: usize = 10_000;
    const WAVES: usize = 10;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("journal.db");
    let journal = open(&file.display().to_string(), world::system()).await.expect("opens");
    let agent = agent(journal);
    let open = |count: usize| {
        let agent = agent.clone();
        async move {
            for _ in 0..count / 500 {
                let opened = (0..500).map(|_| agent.session());
                for session in futures::future::join_all(opened).await {
                    session.expect("opens");
                }
            }
            while agent.runtime().loaded() > 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    };
    open(WAVE).await;
    let before = resident();
    // In equal waves: the room the loaded ones take at a time is not growth.
    for _ in 0..WAVES {
        open(WAVE).await;
    }
    let grown = resident().saturating_sub(before) as f64 / (WAVE * WAVES) as f64;
    tell(
        "turn/idle_session",
        grown,
        "bytes",
        Some(1024.0),
        "growth per evicted session over 100 000",
    );
}

/// What a loaded session takes, against the bytes its records have in the journal.
async fn loaded_sessions() {
    const LOADED: usize = 128;
    const GROUP: usize = 16;
    const LONG: u32 = 40;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("journal.db");
    let journal = open(&file.display().to_string(), world::system()).await.expect("opens");
    let agent = agent(Arc::clone(&journal));
    // What everything needs once, whoever is loaded.
    at_once(&agent).await;
    while agent.runtime().loaded() > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let before = resident();
    let opened = futures::future::join_all((0..LOADED).map(|_| agent.session())).await;
    let sessions: Vec<Session> =
        opened.into_iter().map(|session| session.expect("opens")).collect();
    // In groups, so that what turns need while they run does not count for every session.
    for count in [LONG, 1] {
        // The second time in case some were evicted meanwhile.
        for group in sessions.chunks(GROUP) {
            futures::future::join_all(group.iter().map(|session| turns(session, count))).await;
        }
    }
    assert_eq!(agent.runtime().loaded(), LOADED, "too slow: sessions were evicted");
    let grown = resident().saturating_sub(before) as f64 / LOADED as f64;
    let page = PageLimits { records: usize::MAX, ..PageLimits::default() };
    let page = journal.read(sessions[0].id(), 0, page).await.expect("reads");
    let packed: usize = page.records.iter().map(|record| record.body.len()).sum();
    let note = format!("forty turns, {packed} bytes of events, {grown:.0} resident");
    tell("turn/loaded_session", grown / packed as f64, "x packed", Some(2.0), &note);
}

/// Resident bytes of this process.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    pages * 4096
}

/// What everyone who keeps sessions in memory keeps: sessions of one turn, at rest.
async fn kept_sessions() -> f64 {
    const KEPT: u32 = 10_000;
    let agent = agent(Arc::new(Memory::new(world::system(), Limits::default())));
    let keep = |count: u32| {
        let agent = agent.clone();
        async move {
            for _ in 0..count {
                turns(&agent.session().await.expect("opens"), 1).await;
            }
            while agent.runtime().loaded() > 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    };
    keep(KEPT / 10).await;
    let before = resident();
    keep(KEPT).await;
    resident().saturating_sub(before) as f64 / f64::from(KEPT) / 1024.0
}

/// Everything a program does to its first answer.
async fn first_turn(file: Option<&Path>) {
    let journal: Arc<dyn Journal> = match file {
        Some(file) => {
            let journal = open(&file.display().to_string(), world::system()).await;
            journal.expect("opens")
        }
        None => Arc::new(Memory::new(world::system(), Limits::default())),
    };
    turns(&agent(journal).session().await.expect("opens"), 1).await;
}

/// This program once more, to say one number.
fn afresh(mode: &str) -> f64 {
    let program = std::env::current_exe().expect("this program");
    let output = std::process::Command::new(program).arg(mode).output().expect("it runs");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
}

/// So many turns of one session in memory, and nothing else: `--turns 60`.
async fn only_turns(count: u32) {
    let memory = Arc::new(Memory::new(world::system(), Limits::default()));
    turns(&agent(memory).session().await.expect("opens"), count).await;
}

/// What a turn takes from the heap: the difference between two runs, without what start and end take.
fn heap_of_a_turn() {
    const FEW: u32 = 20;
    const MANY: u32 = 120;
    let program = std::env::current_exe().expect("this program");
    let run = |count: u32| heap_use(&program, &["--turns", &count.to_string()]);
    let Some((few, many)) = run(FEW).zip(run(MANY)) else { return };
    let each = |few: u64, many: u64| many.saturating_sub(few) as f64 / f64::from(MANY - FEW);
    let note = "one turn, one call, journal in memory; reallocations included";
    tell("turn/allocations", each(few.allocations, many.allocations), "allocations", None, note);
    tell("turn/allocated", each(few.bytes, many.bytes), "bytes", None, "by the same turn, in all");
}

/// What a process is asked for that was started for one number alone.
async fn one_number(mode: &str) -> Option<f64> {
    let directory = tempfile::tempdir().expect("a directory");
    match mode {
        "--first-turn" => first_turn(None).await,
        "--first-durable-turn" => first_turn(Some(&directory.path().join("journal.db"))).await,
        "--sessions" => return Some(kept_sessions().await),
        _ => return None,
    }
    Some(cpu_time().as_secs_f64() * 1e3)
}

fn processes_of_their_own(wants: impl Fn(&str) -> bool) {
    let cases = [
        (
            "turn/start",
            "--first-turn",
            5,
            "ms CPU",
            "from the start of a process to its first answer",
        ),
        (
            "turn/start_durable",
            "--first-durable-turn",
            5,
            "ms CPU",
            "the same, a new journal on disk",
        ),
        ("turn/session", "--sessions", 1, "kB", "growth per kept session of one turn, over 10 000"),
    ];
    for (bench, mode, rounds, unit, note) in cases {
        if wants(bench) {
            let values = (0..=rounds).map(|_| afresh(mode)).skip(1).collect();
            tell_all(bench, values, unit, None, note);
        }
    }
}

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("tokio");
    if runtime.block_on(postgres::main()) {
        return;
    }
    let mode = std::env::args().nth(1).unwrap_or_default();
    if mode == "--turns" {
        let count = std::env::args().nth(2).and_then(|count| count.parse().ok());
        return runtime.block_on(only_turns(count.expect("a number of turns")));
    }
    if let Some(number) = runtime.block_on(one_number(&mode)) {
        println!("{number}");
        return;
    }
    processes_of_their_own(wants);
    if wants("turn/allocations") || wants("turn/allocated") {
        heap_of_a_turn();
    }
    runtime.block_on(async {
        if wants("turn/memory") {
            in_memory().await;
        }
        if wants("turn/durable") {
            durable().await;
        }
        if wants("turn/flat") {
            flat().await;
        }
        if wants("turn/loaded_session") {
            loaded_sessions().await;
        }
        if wants("turn/idle_session") {
            idle_sessions().await;
        }
    });
}
