//! Answers with a shape, by `budao run --schema` and over HTTP, as real processes.

use std::{path::Path, process::Output};

use budao_testkit::program::{ServerProcess, command_in};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_budao");
const SCHEMA: &str =
    r#"{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}"#;

/// A directory with a schema, and a script that says these texts, one a step.
fn workspace(schema: &str, texts: &[&str]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("schema.json"), schema).unwrap();
    let steps: String = texts.iter().map(|text| format!("[[step]]\ntext = {text:?}\n")).collect();
    std::fs::write(directory.path().join("script.toml"), steps).unwrap();
    directory
}

fn run(directory: &Path) -> Output {
    let args = ["run", "--schema", "schema.json", "--model", "script:script.toml", "Which city?"];
    command_in(PROGRAM, directory, &args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_answer_on_stdout_is_json_that_fits() {
    let workspace =
        workspace(SCHEMA, &["It is Paris.", r#"{"town": "Paris"}"#, r#"{"city": "Paris"}"#]);
    let output = run(workspace.path());
    let last = text(&output.stdout).lines().last().unwrap_or_default().to_owned();
    assert_eq!(
        serde_json::from_str::<Value>(&last).unwrap(),
        json!({"city": "Paris"}),
        "{}",
        text(&output.stderr)
    );
    assert!(output.status.success());
}

#[test]
fn a_model_that_ignores_the_schema_ends_with_a_fault_and_a_schema_for_nothing_does_not_begin() {
    let stubborn = workspace(SCHEMA, &["It is Paris."; 20]);
    let output = run(stubborn.path());
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("ERR_TOOL_009"), "{}", text(&output.stderr));
    let unknown = "at `/type`: there is no type `strnig`; did you mean `string`?";
    for (schema, reason) in [
        (r#"{"enum": []}"#, "no value fits it"),
        (r#"{"type": "strnig"}"#, unknown),
        ("not JSON", "expected"),
    ] {
        let output = run(workspace(schema, &["It is Paris."]).path());
        assert!(!output.status.success(), "{schema}");
        let errors = text(&output.stderr);
        assert!(errors.contains("ERR_VAL_014") && errors.contains(reason), "{schema}: {errors}");
    }
}

fn serve(directory: &Path) -> ServerProcess {
    ServerProcess::start(PROGRAM, directory, &["--model", "script:script.toml"])
}

/// The frames of a session's first `count` final answers.
async fn answers(server: &ServerProcess, session: &str, count: usize) -> Vec<Value> {
    let mut found = Vec::new();
    let read = server.read_frames(session, |frame| {
        if frame["event"] == "agent.final_answer" {
            found.push(frame.clone());
        }
        found.len() == count
    });
    assert!(read.await, "the stream ended: {found:?}");
    found
}

/// Goal: a schema belongs to a message and can be taken back by the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_brings_its_schema_and_a_later_one_takes_it_back() {
    let workspace = workspace(SCHEMA, &[r#"{"city": "Paris"}"#, "You are welcome."]);
    let server = serve(workspace.path());
    let (_, opened) = server.try_post("/v1/sessions", &json!({})).await;
    let session = opened["session_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/sessions/{session}/messages");
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let content = json!({"text": "Which city?", "config": {"answer_schema": schema}});
    assert_eq!(server.try_post(&path, &json!({ "content": content })).await.0, 202);
    let answer = answers(&server, &session, 1).await.remove(0);
    assert_eq!(
        (&answer["content"], &answer["metadata"]["answer_type"]),
        (&json!(r#"{"city":"Paris"}"#), &json!("json"))
    );
    let content = json!({"text": "Thanks.", "config": {"answer_schema": null}});
    assert_eq!(server.try_post(&path, &json!({ "content": content })).await.0, 202);
    let answer = answers(&server, &session, 2).await.remove(1);
    assert_eq!(
        (&answer["content"], &answer["metadata"]["answer_type"]),
        (&json!("You are welcome."), &json!("text"))
    );
    let content = json!({"text": "Hm.", "config": {"answer_schema": {"enum": []}}});
    let (status, problem) = server.try_post(&path, &json!({ "content": content })).await;
    assert_eq!((status, &problem["code"]), (422, &json!("ERR_VAL_014")), "{problem}");
    let content = json!({"text": "Hm.", "config": {"model": "openai:unknown"}});
    let (status, problem) = server.try_post(&path, &json!({ "content": content })).await;
    assert!(status >= 400, "{problem}");
}
