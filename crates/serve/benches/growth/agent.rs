//! Turns of one session, tools of an agent, and bytes of a tool's result. The journal is in memory, the model is quick.

use std::sync::Arc;

use budao_core::{
    Fault,
    limits::Limits,
    message::{Block, CallId, ModelRequest, ModelStop, Piece, ToolUse, Usage},
    tool::{Mode, Permissions},
};
use budao_journal::Memory;
use budao_models::{Model, PieceStream};
use budao_runtime::{Agent, AgentBuilderExt as _, Session, world};
use budao_testkit::bench::cpu_time;
use budao_tools::{RawTool, Tool, pool::Pool};
use futures::stream;
use serde_json::json;

use crate::report;

/// Up to which turn, and in how many sessions. The second half of the turns counts.
const TURNS: [(u32, u32); 5] = [(1, 200), (10, 40), (100, 5), (1_000, 1), (10_000, 1)];
const TOOLS: [usize; 4] = [10, 100, 1_000, 5_000];
/// Bytes of a result, as people write them, and how many turns have one.
const RESULTS: [(usize, u32); 5] =
    [(1_000, 200), (10_000, 100), (100_000, 40), (1_000_000, 10), (10_000_000, 3)];
const ROUNDS: u32 = 5;

/// Calls the first tool, then answers.
#[derive(Debug)]
struct QuickModel;

#[async_trait::async_trait]
impl Model for QuickModel {
    fn provider(&self) -> &str {
        "quick"
    }

    fn name(&self) -> &str {
        "quick"
    }

    async fn stream(&self, request: ModelRequest) -> Result<PieceStream, Fault> {
        let usage = Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() };
        let last = request.messages.last().and_then(|message| message.content.first());
        let (block, stop) = if let Some(Block::ToolResult { .. }) = last {
            (Block::Text("done".into()), ModelStop::EndTurn)
        } else {
            let name = "read_0".into();
            let call = ToolUse { id: CallId::from("x"), name, arguments: r#"{"path":"a"}"#.into() };
            (Block::ToolUse(call), ModelStop::ToolUse)
        };
        let pieces = [Piece::Block(block), Piece::End { stop, usage }];
        Ok(Box::pin(stream::iter(pieces.map(Ok))))
    }
}

/// A tool whose result is a text of so many bytes.
fn read(number: usize, text: &Arc<str>) -> Arc<dyn Tool> {
    let schema = json!({
        "type": "object",
        "properties": {"path": {"type": "string", "description": "A path in the project"}},
        "required": ["path"],
        "additionalProperties": false,
    });
    let text = Arc::clone(text);
    Arc::new(RawTool::new(format!("read_{number}"), "Reads a file.", schema, move |_, _| {
        let text = Arc::clone(&text);
        async move { Ok(json!(&*text)) }
    }))
}

fn agent(tools: usize, result_bytes: usize) -> Agent {
    const LINE: &str = "a line of a log, with words and 12 numbers\n";
    let limits = Limits { context_tokens: u64::MAX, ..Limits::default() };
    let mut text = LINE.repeat(result_bytes.div_ceil(LINE.len()));
    text.truncate(result_bytes);
    let text = Arc::from(text);
    Agent::builder(QuickModel)
        .tools((0..tools).map(|number| read(number, &text)))
        .permissions(Permissions { mode: Mode::Auto, ..Permissions::default() })
        .journal(Arc::new(Memory::new(world::system(), limits.clone())))
        .limits(limits)
        .pool(Arc::new(Pool::tasks()))
        .build()
        .expect("an agent")
}

async fn run(session: &Session, turns: u32) {
    for _ in 0..turns {
        let result = session.run("What does it say?").await.expect("accepted");
        assert_eq!(result.text, "done");
    }
}

/// CPU time of a turn, in microseconds.
async fn cpu_of(session: &Session, turns: u32) -> f64 {
    let before = cpu_time();
    run(session, turns).await;
    (cpu_time() - before).as_secs_f64() * 1e6 / f64::from(turns)
}

pub(crate) async fn turns() {
    // Caches and the allocator are warm before the first figure.
    run(&agent(1, 10).session().await.expect("opens"), 200).await;
    for (until, sessions) in TURNS {
        let agent = agent(1, 10);
        let counted = until.div_ceil(2).min(500);
        let mut rounds = Vec::new();
        let rounds_here = if until > 1_000 { 1 } else { ROUNDS };
        for _ in 0..rounds_here {
            let mut total = 0.0;
            for _ in 0..sessions {
                let session = agent.session().await.expect("opens");
                run(&session, until - counted).await;
                total += cpu_of(&session, counted).await;
            }
            rounds.push(total / f64::from(sessions));
        }
        let note = format!("a turn, the last {counted} of {until} in one session");
        report(&format!("growth/turns_{until}"), rounds, "µs CPU", &note);
    }
}

pub(crate) async fn tools() {
    const TURNS: u32 = 20;
    for count in TOOLS {
        let agent = agent(count, 10);
        run(&agent.session().await.expect("opens"), TURNS).await;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let session = agent.session().await.expect("opens");
            rounds.push(cpu_of(&session, TURNS).await);
        }
        let note = "a turn of twenty, with so many tools offered; the model is in the process";
        report(&format!("growth/tools_{count}"), rounds, "µs CPU", note);
    }
}

pub(crate) async fn results() {
    for (bytes, turns) in RESULTS {
        let agent = agent(1, bytes);
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let session = agent.session().await.expect("opens");
            rounds.push(cpu_of(&session, turns).await);
        }
        let note = "a turn whose tool returns a text of so many bytes, of which the model sees at most 64 KiB";
        report(&format!("growth/results_{bytes}"), rounds, "µs CPU", note);
    }
}
