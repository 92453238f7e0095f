//! JSON nested without bound, from everyone who hands a value to the call path. An overflow of the stack ends the
//! process, so each case runs in a process of its own.

use std::{process::Command, time::Duration};

use async_trait::async_trait;
use budao_core::{
    fault::{Fact, FactValue, Fault, Kind, Operation},
    limits::Limits,
    tool::{Failure, Outcome},
};
use budao_tools::{
    CallContext, CheckedCall, Note, RawTool, ToolError, ToolResult, Toolbox, TypedTool,
    hooks::{Hook, HookVerdict, Hooks},
    isolation,
};
use serde_json::{Value, json};

const CASES: &[&str] = &[
    "error",
    "recommendations",
    "recommendation",
    "note",
    "data",
    "fact",
    "plain",
    "ok data",
    "failure data",
    "fault fact",
    "tool error",
    "topic",
    "supplied",
    "replaced",
    "edited",
    "unknown tool",
    "late",
    "typed value",
    "typed struct",
    "schema",
];

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!("x"), |inside, level| match level % 2 {
        0 => Value::Array(vec![inside]),
        _ => Value::Object([("a".to_owned(), inside)].into_iter().collect()),
    })
}

/// An object with one key. The `json!` macro would copy the value, which recurses.
fn holding(key: &str, value: Value) -> Value {
    Value::Object([(key.to_owned(), value)].into_iter().collect())
}

/// Goal: whatever is nested how deep, the process lives and the call has its one outcome.
#[test]
fn no_value_is_too_deep_for_the_process() {
    let program = std::env::current_exe().unwrap();
    let mut died = Vec::new();
    for (levels, cases) in [(3_000, &["error", "recommendations"][..]), (1_000_000, CASES)] {
        for case in cases {
            let child = Command::new(&program)
                .args(["--exact", "call_path::deep::child", "--nocapture"])
                .env("DEEP_CASE", case)
                .env("DEEP_LEVELS", levels.to_string())
                .env_remove("RUST_MIN_STACK")
                .output()
                .unwrap();
            let stdout = String::from_utf8_lossy(&child.stdout);
            if !child.status.success() || !stdout.contains("one outcome") {
                let why = String::from_utf8_lossy(&child.stderr);
                died.push(format!("{case} at {levels}: {} {why}", child.status));
            }
        }
    }
    assert!(died.is_empty(), "{}", died.join("\n"));
}

/// One case, in the process of its own that the test above starts.
#[test]
fn child() {
    let Ok(case) = std::env::var("DEEP_CASE") else { return };
    let levels = std::env::var("DEEP_LEVELS").unwrap().parse().unwrap();
    // A worker thread with the default stack, as in a server.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let done = runtime.spawn(async move { play(&case, levels).await });
    runtime.block_on(done).unwrap();
    println!("one outcome");
}

async fn play(case: &str, levels: usize) {
    match case {
        "supplied" => hooked(levels, false).await,
        "replaced" => hooked(levels, true).await,
        "edited" | "unknown tool" => edited(case, levels),
        "late" => late(levels).await,
        "topic" => topic(levels).await,
        "typed value" => ran(&Toolbox::builder().add(Tree(levels)).unwrap().build(), "tree").await,
        "typed struct" => {
            ran(&Toolbox::builder().add(DeepTool(levels)).unwrap().build(), "leaf").await;
        }
        "schema" => {
            let schema = holding("properties", nested(levels));
            let tool = RawTool::new("t", "", schema, |_, _| async { Ok(json!(1)) });
            assert!(Toolbox::builder().add(tool).is_err());
        }
        case => {
            let case = case.to_owned();
            let answering = move |_, _| {
                let case = case.clone();
                async move { answer(&case, levels) }
            };
            ran(&offering(answering), "t").await;
        }
    }
}

fn answer(case: &str, levels: usize) -> ToolResult {
    let deep = nested(levels);
    let (key, deep, ok) = match case {
        "recommendation" => ("recommendations", Value::Array(vec![deep]), false),
        "ok data" => ("data", deep, true),
        "plain" => return Ok(deep),
        "failure data" => {
            let fault = Fault::new(Kind::ToolFailed, Operation::ToolCall);
            return Err(Failure { fault, data: Some(deep), note: None });
        }
        "fault fact" => {
            let fault = Fault::new(Kind::ToolFailed, Operation::ToolCall)
                .with(Fact::ProvidedValue, FactValue::Json(deep));
            return Err(Failure { fault, data: None, note: None });
        }
        "tool error" => return Err(ToolError::new("no").data(deep).into_failure("t")),
        key => (key, deep, false),
    };
    let mut answer = holding(key, deep);
    answer.as_object_mut().unwrap().insert("ok".to_owned(), json!(ok));
    Ok(answer)
}

fn offering<R>(run: impl Fn(Value, CallContext) -> R + Send + Sync + 'static) -> Toolbox
where
    R: Future<Output = ToolResult> + Send + 'static,
{
    Toolbox::builder().add(RawTool::new("t", "", json!({}), run)).unwrap().build()
}

/// Runs a call to its end and reads it as a model and a journal would.
async fn ran(toolbox: &Toolbox, tool: &str) {
    let ready = toolbox.check_text(tool, b"{}", &Limits::default()).unwrap();
    let outcome = ready.run(isolation::context()).await;
    read(&outcome);
}

fn read(outcome: &Outcome) {
    let text = serde_json::to_string(&outcome.clone()).unwrap();
    assert!(text.len() < 1 << 20, "{} bytes", text.len());
    let again: Outcome = serde_json::from_str(&text).unwrap();
    assert_eq!(&again, outcome, "what is recorded can be read again");
}

#[derive(Debug)]
struct Decides {
    levels: usize,
    replaces: bool,
}

#[async_trait]
impl Hook for Decides {
    fn name(&self) -> &str {
        "decides"
    }

    async fn before(&self, _: &CheckedCall, _: &CallContext) -> HookVerdict {
        let mut answer = holding("error", nested(self.levels));
        answer.as_object_mut().unwrap().insert("ok".into(), json!(false));
        if self.replaces { HookVerdict::Replace(answer) } else { HookVerdict::Supply(answer) }
    }
}

async fn hooked(levels: usize, replaces: bool) {
    let toolbox = offering(|_, _| async { Ok(json!(1)) });
    let ready = toolbox.check_text("t", b"{}", &Limits::default()).unwrap();
    let hooks = Hooks::new().hook(Decides { levels, replaces });
    let (decision, _) = hooks.before(ready, &isolation::context()).await;
    let text = format!("{decision:?}");
    assert!(text.len() < 1 << 20);
}

fn edited(case: &str, levels: usize) {
    let toolbox = offering(|_, _| async { Ok(json!(1)) });
    let name = if case == "edited" { "t" } else { "none" };
    let limits = Limits::default();
    assert!(toolbox.check_value(name, holding("a", nested(levels)), &limits).is_err());
    let arguments = holding("a", nested(levels));
    assert!(!toolbox.fits("t", &arguments));
    budao_core::nesting::dismantle(arguments);
    let ready = toolbox.check_text("t", b"{}", &limits).unwrap();
    assert!(ready.with_arguments(holding("a", nested(levels)), &limits).is_err());
}

/// The answer comes when nobody waits for it any more.
async fn late(levels: usize) {
    let toolbox = offering(move |_, _| async move {
        std::thread::sleep(Duration::from_millis(900));
        Ok(nested(levels))
    });
    let limits = Limits {
        tool_deadline: Duration::from_millis(10),
        kill_grace: Duration::from_millis(10),
        ..Limits::default()
    };
    let ready = toolbox.check_text("t", b"{}", &limits).unwrap();
    read(&ready.run(isolation::context_with(limits)).await);
    let late = tokio::time::timeout(Duration::from_secs(120), async {
        while toolbox.counts().late == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    late.await.unwrap();
}

/// What a call has to say while it runs, with nobody left to hear it.
async fn topic(levels: usize) {
    let toolbox = offering(move |_, context: CallContext| async move {
        context.notes.record(Note::Topic { topic: "t".into(), data: nested(levels) }).await;
        Ok(json!(1))
    });
    ran(&toolbox, "t").await;
}

#[derive(Debug)]
struct Tree(usize);

impl TypedTool for Tree {
    type Args = ();
    type Output = Value;

    const NAME: &'static str = "tree";

    async fn call(&self, (): (), _: &CallContext) -> Result<Value, ToolError> {
        Ok(nested(self.0))
    }
}

#[derive(Debug)]
struct DeepTool(usize);

#[derive(serde::Serialize)]
struct Answer {
    tree: Value,
}

impl TypedTool for DeepTool {
    type Args = ();
    type Output = Answer;

    const NAME: &'static str = "leaf";

    async fn call(&self, (): (), _: &CallContext) -> Result<Answer, ToolError> {
        Ok(Answer { tree: nested(self.0) })
    }
}
