//! Runs the given number of turns, one call each, in one session of a journal in memory: `turns 60`.
//!
//! `cargo xtask instructions` counts its instructions and allocations under valgrind. One thread, no network, a quick model
//! and a quick tool. The cost of a turn is the difference between two runs, so that start and end do not matter. It uses
//! the public interface alone, so that the same file measures an earlier commit.

use std::{sync::Arc, time::Duration};

use budao_core::{
    Fault,
    limits::Limits,
    message::{Block, CallId, ModelRequest, ModelStop, Piece, ToolUse, Usage},
    tool::{Mode, Permissions},
};
use budao_journal::Memory;
use budao_models::{Model, PieceStream};
use budao_runtime::{Agent, AgentBuilderExt as _, world};
use budao_tools::{RawTool, pool::Pool};
use futures::stream;
use serde_json::json;

fn main() {
    let count = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(turns(count));
}

async fn turns(count: u32) {
    let limits =
        Limits { delta_window: Duration::ZERO, context_tokens: u64::MAX, ..Limits::default() };
    let agent = Agent::builder(QuickModel)
        .tool(add())
        .permissions(Permissions { mode: Mode::Auto, ..Permissions::default() })
        .limits(limits.clone())
        .journal(Arc::new(Memory::new(world::system(), limits)))
        .pool(Arc::new(Pool::tasks()))
        .build()
        .expect("an agent");
    let session = agent.session().await.expect("a session");
    for _ in 0..count {
        let result = session.run("What is 2 + 3?").await.expect("accepted");
        assert_eq!(result.text, "5", "the model answers");
    }
}

/// Asks for one call, then answers.
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
        let pieces = if let Some(Block::ToolResult { .. }) = last {
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
        Ok(Box::pin(stream::iter(pieces.into_iter().map(Ok))))
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
        Ok(json!(arguments["a"].as_i64().unwrap_or(0) + arguments["b"].as_i64().unwrap_or(0)))
    })
}
