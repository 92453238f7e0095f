//! Tools that misbehave, and short ways to call them.

use std::{future::Future, sync::Arc, time::Duration};

use budao_core::{
    fault::{Fault, Kind},
    limits::Limits,
    message::ToolUse,
    tool::{Failure, Outcome, Output},
};
use budao_tools::{CallContext, CheckedCall, RawTool, ToolOptions, ToolResult, Toolbox, isolation};
use serde_json::{Value, json};

/// Panics without a backtrace: printing one takes longer than the waits of these tests.
pub(crate) fn quietly() {
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
}

/// Limits that make waiting short.
pub(crate) fn quick() -> Limits {
    Limits {
        tool_deadline: Duration::from_millis(60),
        kill_grace: Duration::from_millis(40),
        hook: Duration::from_millis(500),
        ..Limits::default()
    }
}

/// A tool that takes anything.
pub(crate) fn any<F, R>(name: &str, run: F) -> RawTool
where
    F: Fn(Value, CallContext) -> R + Send + Sync + 'static,
    R: Future<Output = ToolResult> + Send + 'static,
{
    RawTool::new(name, "Takes anything.", json!({ "type": "object" }), run)
}

/// The reference's multi-edit: nested, strict.
pub(crate) fn multi_edit() -> RawTool {
    let schema = json!({
        "type": "object",
        "properties": {
            "edits": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "properties": {
                        "path": { "type": "string", "description": "File path" },
                        "find": { "type": "string" },
                        "replace": { "type": "string" },
                        "replace_all": { "type": "boolean", "default": false },
                    },
                    "required": ["path", "find", "replace"],
                    "additionalProperties": false,
                },
            },
        },
        "required": ["edits"],
        "additionalProperties": false,
    });
    RawTool::new("fs_multi_edit", "Edits files.", schema, |arguments, _| async move {
        Ok(json!({ "edited": arguments["edits"].as_array().map_or(0, Vec::len) }))
    })
}

/// A tool with a parameter of every sort, which repairs slips.
pub(crate) fn search() -> RawTool {
    let schema = json!({
        "type": "object",
        "properties": {
            "query": { "type": "string", "minLength": 1 },
            "limit": { "type": "integer", "minimum": 1, "maximum": 50, "default": 10 },
            "sort": { "enum": ["relevance", "date"] },
            "since": { "type": "string", "format": "date" },
            "tags": { "type": "array", "items": { "type": "string" } },
            "exact": { "type": "boolean" },
        },
        "required": ["query"],
        "additionalProperties": false,
    });
    RawTool::new("search", "Searches.", schema, |arguments, _| async move { Ok(arguments) })
        .options(ToolOptions::read_only())
}

pub(crate) fn toolbox() -> Toolbox {
    let add = |builder: budao_tools::Builder, tool| builder.add(tool).expect("registers");
    [multi_edit(), search()].into_iter().fold(Toolbox::builder(), add).build()
}

pub(crate) fn of(tool: RawTool) -> Toolbox {
    Toolbox::builder().add(tool).expect("registers").build()
}

pub(crate) fn call(name: &str, arguments: impl Into<String>) -> ToolUse {
    ToolUse { id: "call-1".into(), name: name.into(), arguments: arguments.into() }
}

pub(crate) fn refused(toolbox: &Toolbox, name: &str, arguments: impl Into<String>) -> Fault {
    toolbox.check(&call(name, arguments), &Limits::default()).expect_err("does not fit")
}

pub(crate) fn ready(toolbox: &Toolbox, name: &str) -> CheckedCall {
    toolbox.check(&call(name, "{}"), &Limits::default()).expect("fits")
}

/// Runs the only tool of a toolbox with short limits.
pub(crate) async fn run(tool: RawTool) -> Outcome {
    run_in(&of(tool), isolation::context_with(quick())).await
}

pub(crate) async fn run_in(toolbox: &Toolbox, context: CallContext) -> Outcome {
    let name = toolbox.specs()[0].name.clone();
    ready(toolbox, &name).run(context).await
}

pub(crate) fn done(outcome: Outcome) -> Output {
    match outcome {
        Outcome::Done(output) => output,
        Outcome::Failed(failure) => panic!("failed: {:?}", failure.fault),
    }
}

pub(crate) fn failed(outcome: Outcome) -> Failure {
    match outcome {
        Outcome::Failed(failure) => failure,
        Outcome::Done(output) => panic!("worked: {output:?}"),
    }
}

pub(crate) fn kind(outcome: &Outcome) -> Option<Kind> {
    outcome.fault().map(Fault::kind)
}

/// What the model reads, as a value.
pub(crate) fn read(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.render_for_model(budao_core::Lang::En).0).expect("JSON")
}

/// Proves that a toolbox still answers.
pub(crate) async fn still_works(toolbox: &Toolbox) {
    let more = toolbox.with(any("fine", |_, _| async { Ok(json!("fine")) })).expect("registers");
    let outcome = ready(&more, "fine").run(isolation::context()).await;
    assert_eq!(done(outcome).data, json!("fine"));
}

/// Waits until something is so, and fails if that takes too long.
pub(crate) async fn until(mut so: impl FnMut() -> bool) {
    for _ in 0..500 {
        if so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came to that");
}

pub(crate) type Shared<T> = Arc<std::sync::Mutex<T>>;
