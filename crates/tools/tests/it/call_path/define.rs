//! The three ways to write a tool.

use std::{path::PathBuf, time::Duration};

use budao_core::{
    fault::{Fact, Kind},
    limits::Limits,
    tool::{Effect, Outcome},
};
use budao_tools::{CallContext, ToolError, ToolOptions, Toolbox, TypedTool, isolation, tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::call_path::support::{done, failed, read};

/// Adds two numbers.
///
/// Both must be whole.
#[tool(read_only, deadline = "90s", output = "4k")]
async fn add(
    /// The first.
    a: i64,
    /// The second.
    #[serde(default)]
    b: i64,
) -> i64 {
    a + b
}

/// Sends a message.
#[tool(name = "send-message", executes, confirm, idempotent, repair)]
async fn send(
    /// To whom.
    to: Vec<String>,
    priority: Option<Priority>,
    context: &CallContext,
) -> Result<Value, ToolError> {
    if to.is_empty() {
        return Err(ToolError::new("nobody to send to").advise_model("name at least one person"));
    }
    Ok(json!({ "to": to, "urgent": priority.is_some(), "attempt": context.attempt }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Priority {
    High,
    Low,
}

/// Reads a number from a file that is not there.
#[tool]
async fn broken() -> Result<u32, std::io::Error> {
    Err(std::io::Error::other("at 10.1.2.3:5432"))
}

/// Does nothing.
#[tool]
async fn nothing() {}

/// Gives a path that is no text.
#[tool]
async fn odd_path() -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    PathBuf::from(std::ffi::OsString::from_vec(vec![0xff, 0xfe]))
}

/// Gives a number that is none.
#[tool]
async fn not_a_number() -> Vec<f64> {
    vec![1.5, f64::NAN, f64::INFINITY]
}

/// Counts the words of a text.
#[derive(Debug, Deserialize, JsonSchema)]
struct Words {
    /// The text.
    text: String,
    /// Words shorter than this are not counted.
    #[serde(default)]
    at_least: u32,
}

#[derive(Debug, Serialize)]
struct Counted {
    words: usize,
}

#[derive(Debug)]
struct CountWords;

impl TypedTool for CountWords {
    type Args = Words;
    type Output = Counted;

    const NAME: &'static str = "count_words";

    fn options(&self) -> ToolOptions {
        ToolOptions::read_only().deadline(Duration::from_secs(5))
    }

    async fn call(&self, args: Words, _: &CallContext) -> Result<Counted, ToolError> {
        let long = args.text.split_whitespace().filter(|word| word.len() >= args.at_least as usize);
        Ok(Counted { words: long.count() })
    }
}

fn toolbox() -> Toolbox {
    Toolbox::builder()
        .add(add)
        .and_then(|builder| builder.add(send))
        .and_then(|builder| builder.add(broken))
        .and_then(|builder| builder.add(nothing))
        .and_then(|builder| builder.add(odd_path))
        .and_then(|builder| builder.add(not_a_number))
        .and_then(|builder| builder.add(CountWords))
        .expect("all register")
        .build()
}

async fn call(name: &str, arguments: Value) -> Outcome {
    let ready = toolbox().check_value(name, arguments, &Limits::default()).expect("fits");
    ready.run(isolation::context()).await
}

#[test]
fn comments_and_options_become_the_specification() {
    let toolbox = toolbox();
    let shown: Vec<Value> = ["add", "send-message", "nothing", "count_words"]
        .iter()
        .map(|name| {
            let spec = toolbox.spec(name).unwrap();
            json!({
                "name": *spec.name, "description": *spec.description, "schema": *spec.schema,
                "effect": spec.effect, "idempotent": spec.idempotent, "confirm": spec.confirm,
                "repair": spec.repair, "deadline": spec.deadline.map(|it| it.as_secs()),
                "output_bytes": spec.output_bytes,
            })
        })
        .collect();
    insta::assert_json_snapshot!(shown);
    assert_eq!(toolbox.spec("send-message").unwrap().effect, Effect::Executes);
}

#[tokio::test]
async fn a_function_is_called_with_its_arguments() {
    assert_eq!(done(call("add", json!({ "a": 2, "b": 3 })).await).data, json!(5));
    assert_eq!(done(call("add", json!({ "a": 2 })).await).data, json!(2));
    assert_eq!(done(call("nothing", json!({})).await).data, json!(null));
    let sent = done(call("send-message", json!({ "to": ["a"], "priority": "high" })).await);
    assert_eq!(sent.data, json!({ "to": ["a"], "urgent": true, "attempt": 1 }));
}

#[tokio::test]
async fn a_struct_is_called_with_its_arguments() {
    let outcome = call("count_words", json!({ "text": "a bb ccc", "at_least": 2 })).await;
    assert_eq!(done(outcome).data, json!({ "words": 2 }));
}

#[tokio::test]
async fn a_no_on_purpose_is_logical_and_a_foreign_error_keeps_its_text() {
    let no = failed(call("send-message", json!({ "to": [] })).await);
    assert_eq!(no.fault.kind(), Kind::ToolSaidNo);
    let rendered = read(&Outcome::Failed(no));
    assert_eq!(rendered["recommendations"][0], "name at least one person");
    let foreign = failed(call("broken", json!({})).await);
    assert_eq!(foreign.fault.kind(), Kind::ToolFailed);
    assert_eq!(foreign.fault.detail().text(Fact::ToolName), Some("broken"));
    let rendered = read(&Outcome::Failed(foreign)).to_string();
    assert!(!rendered.contains("10.1.2.3"), "{rendered}");
}

#[tokio::test]
async fn a_result_that_is_no_json_is_the_tools_failure() {
    let failure = failed(call("odd_path", json!({})).await);
    assert_eq!(failure.fault.kind(), Kind::ToolFailed);
    assert!(failure.fault.detail().text(Fact::Reason).unwrap().contains("JSON"));
    // JSON has no such numbers, and null would look like a result.
    let numbers = failed(call("not_a_number", json!({})).await);
    let reason = numbers.fault.detail().text(Fact::Reason);
    assert_eq!(reason, Some("its result has NaN at /1, which JSON cannot express"));
}

#[tokio::test]
async fn whole_floats_are_integers_to_a_schema_and_to_us() {
    assert_eq!(done(call("add", json!({ "a": 2.0, "b": 3 })).await).data, json!(5));
}

#[test]
fn bounds_of_integers_are_sent_and_enforced() {
    let toolbox = toolbox();
    assert!(!toolbox.fits("count_words", &json!({ "text": "", "at_least": 5_000_000_000_u64 })));
    assert!(!toolbox.fits("count_words", &json!({ "text": "", "at_least": -1 })));
    let schema = &toolbox.spec("count_words").unwrap().schema;
    assert_eq!(schema["properties"]["at_least"]["maximum"], json!(u32::MAX));
}

/// The mean of no numbers.
#[tool(read_only)]
async fn mean() -> Value {
    Value::Null
}

#[derive(Serialize)]
struct Statistics {
    count: u32,
    mean: f64,
}

/// Statistics over nothing.
#[tool(read_only)]
async fn statistics() -> Statistics {
    Statistics { count: 0, mean: f64::NAN }
}

#[tokio::test]
async fn a_number_that_json_cannot_express_is_a_failure_that_names_it() {
    let toolbox = Toolbox::builder().add(statistics).unwrap().add(mean).unwrap().build();
    let run = async |name| {
        let call = toolbox.check_value(name, json!({}), &Limits::default()).unwrap();
        call.run(isolation::context()).await
    };
    let failure = failed(run("statistics").await);
    assert_eq!(failure.fault.kind(), Kind::ToolFailed);
    let reason = failure.fault.detail().text(Fact::Reason).unwrap();
    assert_eq!(reason, "its result has NaN at /mean, which JSON cannot express");
    assert_eq!(done(run("mean").await).data, Value::Null, "a null of the tool's own is a result");
}
