//! Entry point for the fuzz target of server output; tests run a part of it too.

use budao_core::{Lang, fault::Operation, tool::Outcome};
use budao_tools::child::{BoundedLine, BoundedLines};
use futures::executor::block_on;
use rmcp::model::CallToolResult;

use crate::{
    answer::{self, ResultForm},
    error::FaultContext,
    line::{self, ParsedMessage},
};

/// The line limit in this test, in bytes.
const LINE_BYTES: usize = 8 * 1024;
/// The limit on the nesting of answers in this test.
const DEPTH: usize = 64;

/// Parses bytes as lines, messages and answers.
///
/// # Panics
/// If a line exceeds the limit, or an answer cannot be rendered for a model.
pub fn everything(bytes: &[u8]) {
    let mut lines = BoundedLines::new(bytes, LINE_BYTES);
    while let Some(line) = block_on(lines.next()) {
        if let BoundedLine::Whole(whole) = &line {
            assert!(whole.len() <= LINE_BYTES, "a line of {} bytes", whole.len());
            result(whole);
        }
        if let ParsedMessage::StandIn(message) = line::read(&line) {
            let encoded = serde_json::to_string(&message).expect("what stands in can be written");
            assert!(encoded.len() < 8 * LINE_BYTES, "what stands in for an answer is short");
        }
    }
}

fn result(text: &[u8]) {
    let Ok(result) = serde_json::from_slice::<CallToolResult>(text) else { return };
    let fault_context = FaultContext {
        tool: Some("mcp__it"),
        server_tool_name: "it",
        limit: LINE_BYTES,
        ..FaultContext::bare("server", Operation::ToolCall)
    };
    let _ = answer::of_result(result.clone(), ResultForm::Whole, &fault_context, DEPTH);
    if let Err(failure) = answer::of_result(result, ResultForm::Data, &fault_context, DEPTH) {
        for lang in [Lang::En, Lang::Zh] {
            let outcome = Outcome::Failed(failure.clone());
            assert!(outcome.render_for_model(lang).1, "a failure is told as one");
        }
    }
}
