//! What a turn costs: user text, one call of a trivial tool, final words; a fake model in this process.
//!
//! CPU time of the whole process, threads included. Durable figures are on a file that is synced before
//! anyone is told, with the number of syncs beside them and what the same number of bare writes with a
//! sync costs taken off.

use std::{
    io::{Seek, SeekFrom, Write},
    path::Path,
    sync::Arc,
    time::Duration,
};

use budao_core::{
    limits::Limits,
    message::{Block, CallId, ModelStop, Piece, Request, ToolUse, Usage},
    tool::{Mode, Permissions},
};
use budao_journal::{Journal, Memory, Options, Sqlite};
use budao_models::{Model, PieceStream};
use budao_runtime::{Agent, Session, world};
use budao_testkit::bench::{Better, Measurement, cpu_time, emit};
use budao_tools::{RawTool, pool::Pool};
use serde_json::json;

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

    async fn stream(&self, request: Request) -> Result<PieceStream, budao_core::Fault> {
        let called = request.messages.last().is_some_and(|message| {
            message.content.iter().any(|block| matches!(block, Block::ToolResult { .. }))
        });
        let usage = Usage { input_tokens: 10, output_tokens: 5, cached_tokens: 0 };
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
    emit(&Measurement {
        bench: bench.into(),
        value,
        unit: unit.into(),
        bar,
        better: Better::Lower,
        note: Some(note.into()),
        low: None,
        high: None,
    });
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

async fn in_memory() {
    let memory = Arc::new(Memory::new(world::real(), Limits::default()));
    let agent = agent(memory);
    let mut rounds = Vec::new();
    for _ in 0..5 {
        let session = agent.session().await.expect("opens");
        turns(&session, 50).await;
        rounds.push(cpu_per(300, turns(&session, 300)).await);
    }
    let note = "one turn, one call, journal in memory; was 37 where about 15 is wanted: see docs/benchmarks.md";
    tell("turn/memory", median(rounds), "µs CPU", None, note);
}

async fn flat() {
    let memory = Arc::new(Memory::new(world::real(), Limits::default()));
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
    let journal = Sqlite::open(&file, world::real(), Options::default()).await.expect("opens");
    let journal = Arc::new(journal);
    let agent = agent(Arc::clone(&journal) as _);
    let session = agent.session().await.expect("opens");
    turns(&session, 50).await;
    let before = journal.counters().transactions;
    let alone = cpu_per(300, turns(&session, 300)).await;
    let syncs = (journal.counters().transactions - before) as f64 / 300.0;
    tell("turn/durable_alone", alone, "µs CPU", None, "one session, synced before told");
    tell("turn/durable_syncs", syncs, "syncs", Some(4.0), "for each turn");
    let bare = bare_sync(directory.path());
    tell("turn/bare_sync", bare, "µs CPU", None, "two pages written and synced, by themselves");
    let beyond = (alone - syncs * bare).max(0.0);
    let note =
        "one session, beyond bare syncs; was 357 on a loaded machine: see docs/benchmarks.md";
    tell("turn/durable_beyond", beyond, "µs CPU", Some(60.0), note);
    let mut sessions = Vec::new();
    for _ in 0..128 {
        sessions.push(agent.session().await.expect("opens"));
    }
    let together = async {
        futures::future::join_all(sessions.iter().map(|session| turns(session, 20))).await;
    };
    let many = cpu_per(128 * 20, together).await;
    tell("turn/durable_128", many, "µs CPU", None, "128 sessions at once");
}

/// CPU of one write and sync without us: what the kernel takes.
fn bare_sync(directory: &Path) -> f64 {
    const SYNCS: u32 = 1_000;
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
    let journal = Sqlite::open(&file, world::real(), Options::default()).await.expect("opens");
    let agent = agent(Arc::new(journal));
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

/// Resident bytes of this process.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    pages * 4096
}

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("tokio");
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
        if wants("turn/idle_session") {
            idle_sessions().await;
        }
    });
}
