//! Converts the server's answer to a call into a tool result.
//!
//! Structured content is preferred. Text blocks alone are joined. Content with images, audio or resources stays a list
//! of blocks.

use budao_core::{
    fault::{Fact, Fault, Kind},
    tool::Failure,
};
use budao_tools::ToolResult;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

use crate::error::{FaultContext, bounded};

/// The form of a successful result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResultForm {
    /// The data for a model.
    Data,
    /// The data as the server wrote it, for a program.
    PlainData,
    /// The server's result unchanged.
    Whole,
}

/// Converts the result of a call.
pub(crate) fn of_result(
    result: CallToolResult,
    form: ResultForm,
    fault_context: &FaultContext<'_>,
    depth_max: usize,
) -> ToolResult {
    let is_error = result.is_error == Some(true);
    let text = joined(&result.content);
    let whole = (form == ResultForm::Whole && !is_error).then(|| serde_json::to_value(&result));
    let data = match whole {
        Some(whole) => whole.unwrap_or_default(),
        None => data(result, &text),
    };
    if !is_within_depth(&data, depth_max) {
        let fault = fault_context
            .fault(Kind::JsonTooDeep)
            .with(Fact::LimitName, "json_depth")
            .with(Fact::Limit, depth_max);
        return Err(plain(fault.via("mcp_server", fault_context.server)));
    }
    if !is_error {
        return Ok(if form == ResultForm::Data { unambiguous(data) } else { data });
    }
    let reason = if text.trim().is_empty() { "it gave no reason" } else { &text };
    let fault = fault_context.fault(Kind::ToolSaidNo).with(Fact::Reason, bounded(reason));
    let data = Some(data).filter(|data| !data.is_null());
    Err(Failure { fault: fault.via("mcp_server", fault_context.server), data, note: None })
}

/// A failure without data or a note.
pub(crate) fn plain(fault: Fault) -> Failure {
    Failure { fault, data: None, note: None }
}

fn joined(content: &[ContentBlock]) -> String {
    let texts = content.iter().filter_map(|block| match block {
        ContentBlock::Text(text) => Some(text.text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn data(result: CallToolResult, text: &str) -> Value {
    let is_text = |block: &ContentBlock| matches!(block, ContentBlock::Text(_));
    let others = || {
        let blocks = result.content.iter().filter(|block| !is_text(block));
        blocks.map(block).collect::<Vec<Value>>()
    };
    match result.structured_content {
        Some(structured) if result.content.iter().all(is_text) => structured,
        Some(structured) => json!({ "structuredContent": structured, "content": others() }),
        None if result.content.is_empty() => Value::Null,
        None if result.content.iter().all(is_text) => text.into(),
        None => json!({ "content": result.content.iter().map(block).collect::<Vec<Value>>() }),
    }
}

fn block(block: &ContentBlock) -> Value {
    serde_json::to_value(block).unwrap_or_default()
}

/// Wraps a value that looks like `{"ok": …}`, since MCP reports errors in another way.
fn unambiguous(data: Value) -> Value {
    let speaks = |key| data.get(key).is_some();
    if speaks("ok") || speaks("_validationError") || speaks("_thrownError") {
        return json!({ "ok": true, "data": data });
    }
    data
}

fn is_within_depth(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => {
            depth > 0 && items.iter().all(|item| is_within_depth(item, depth - 1))
        }
        Value::Object(map) => {
            depth > 0 && map.values().all(|item| is_within_depth(item, depth - 1))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use budao_core::fault::Operation;

    use super::*;

    fn answer_as(form: ResultForm, result: Value) -> ToolResult {
        let fault_context = FaultContext {
            operation: Operation::ToolCall,
            server: "s",
            tool: Some("mcp__s__t"),
            server_tool_name: "t",
            idempotent: false,
            limit: 0,
        };
        of_result(serde_json::from_value(result).unwrap(), form, &fault_context, 8)
    }

    fn answer(result: Value) -> ToolResult {
        answer_as(ResultForm::Data, result)
    }

    fn text(text: &str) -> Value {
        json!({ "type": "text", "text": text })
    }

    #[test]
    fn texts_are_joined_and_structure_is_preferred() {
        let two = json!({ "content": [text("a"), text("b")] });
        assert_eq!(answer(two).unwrap(), json!("a\nb"));
        let both = json!({ "content": [text("{\"x\":1}")], "structuredContent": { "x": 1 } });
        assert_eq!(answer(both).unwrap(), json!({ "x": 1 }));
        assert_eq!(answer(json!({ "content": [] })).unwrap(), Value::Null);
    }

    #[test]
    fn a_result_is_available_unchanged_for_forwarding() {
        let whole = json!({
            "content": [text("a"), text("b")], "structuredContent": { "ok": false }, "isError": false,
            "_meta": { "m": 1 },
        });
        assert_eq!(answer_as(ResultForm::Whole, whole.clone()).unwrap(), whole);
        let no = json!({ "content": [text("no such city")], "isError": true });
        assert_eq!(answer_as(ResultForm::Whole, no).unwrap_err().fault.kind(), Kind::ToolSaidNo);
    }

    #[test]
    fn pictures_and_resources_are_kept_as_blocks() {
        let image = json!({ "type": "image", "data": "AAAA", "mimeType": "image/png" });
        let link = json!({ "type": "resource_link", "uri": "file:///a", "name": "a" });
        let mixed = json!({ "content": [text("see"), image, link] });
        assert_eq!(answer(mixed.clone()).unwrap(), mixed);
        let both = json!({ "content": [text("see"), image], "structuredContent": 7 });
        let kept = json!({ "structuredContent": 7, "content": [image] });
        assert_eq!(answer(both).unwrap(), kept);
    }

    #[test]
    fn an_error_result_is_a_no_with_its_content_kept() {
        let no = json!({ "content": [text("no such city")], "isError": true });
        let failure = answer(no).unwrap_err();
        assert_eq!(failure.fault.kind(), Kind::ToolSaidNo);
        assert_eq!(failure.fault.detail().text(Fact::Reason), Some("no such city"));
        assert_eq!(failure.data, Some(json!("no such city")));
        let silent = answer(json!({ "content": [], "isError": true })).unwrap_err();
        assert_eq!(silent.fault.kind(), Kind::ToolSaidNo);
        assert_eq!(silent.data, None);
    }

    #[test]
    fn a_value_that_looks_like_a_no_is_a_value() {
        let health = json!({ "content": [], "structuredContent": { "ok": false, "down": 3 } });
        let kept = json!({ "ok": true, "data": { "ok": false, "down": 3 } });
        assert_eq!(answer(health).unwrap(), kept);
    }

    #[test]
    fn an_answer_that_is_too_deep_is_refused() {
        let deep = (0..9).fold(json!(1), |inner, _| json!([inner]));
        let failure = answer(json!({ "content": [], "structuredContent": deep })).unwrap_err();
        assert_eq!(failure.fault.kind(), Kind::JsonTooDeep);
    }
}
