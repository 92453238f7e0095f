//! Any bytes as what an MCP server writes: for the fuzz target, and for a share of it in every run.

use budao_core::{Lang, fault::Operation, tool::Outcome};
use budao_tools::child::{Line, Lines};
use futures::executor::block_on;
use rmcp::model::CallToolResult;

use crate::{
    answer::{self, Form},
    line::{self, Heard},
    trouble::About,
};

/// The longest line here.
const LINE_BYTES: usize = 8 * 1024;
/// The deepest answer here.
const DEPTH: usize = 64;

/// Reads lines, messages and answers. Panics if a promise does not hold.
///
/// # Panics
/// If a line is too long, or an answer cannot be told to a model.
pub fn everything(bytes: &[u8]) {
    let mut lines = Lines::new(bytes, LINE_BYTES);
    while let Some(line) = block_on(lines.next()) {
        if let Line::Whole(whole) = &line {
            assert!(whole.len() <= LINE_BYTES, "a line of {} bytes", whole.len());
            result(whole);
        }
        if let Heard::StandIn(message) = line::read(&line) {
            let told = serde_json::to_string(&message).expect("what stands in can be written");
            assert!(told.len() < 8 * LINE_BYTES, "what stands in for an answer is short");
        }
    }
}

fn result(text: &[u8]) {
    let Ok(result) = serde_json::from_slice::<CallToolResult>(text) else { return };
    let about = About {
        tool: Some("mcp__it"),
        called: "it",
        limit: LINE_BYTES,
        ..About::bare("server", Operation::ToolCall)
    };
    let _ = answer::of_result(result.clone(), Form::Whole, &about, DEPTH);
    if let Err(failure) = answer::of_result(result, Form::Data, &about, DEPTH) {
        for lang in [Lang::En, Lang::Zh] {
            let outcome = Outcome::Failed(failure.clone());
            assert!(outcome.told_to_model(lang).1, "a failure is told as one");
        }
    }
}
