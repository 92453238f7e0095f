//! `budao sessions retry` as a real process, against a model service that fails for good and then works.

use std::{path::Path, process::Stdio};

use budao_client::{Client, Events, SessionRequest};
use budao_testkit::{
    program::{self, Process, command_in},
    provider::{Provider, Reply},
    sse::{ModelOutput, openai},
};
use serde_json::json;

async fn run(directory: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    program::run(command_in(env!("CARGO_BIN_EXE_budao"), directory, args)).await
}

/// The model appends a line to a file, the second request is refused with 401.
fn fails_after_a_call() -> [Reply; 2] {
    let arguments = json!({"cmd": "echo once >> done.txt"});
    let call = ModelOutput::call("c1", "bash_run", &arguments);
    [Reply::events(openai(&[call])), refused()]
}

fn refused() -> Reply {
    Reply::refuse(401, &json!({"error": {"message": "invalid api key"}}))
}

fn says(text: &str) -> Reply {
    Reply::events(openai(&[ModelOutput::text(text)]))
}

fn model_of(service: &Provider) -> String {
    format!("openai:m@{}/v1", service.url())
}

/// Runs a task that fails; returns its session.
async fn fail(directory: &Path, service: &Provider, task: &str) -> String {
    let model = model_of(service);
    let args = ["run", "--permission", "auto", "--model", &model, task];
    let (code, _, errors) = run(directory, &args).await;
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("ERR_AUTH_001"), "{errors}");
    errors.lines().next().unwrap().rsplit(' ').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_turn_that_failed_for_good_is_retried_without_repeating_its_call() {
    let directory = tempfile::tempdir().unwrap();
    let service = Provider::start(fails_after_a_call()).await;
    let id = fail(directory.path(), &service, "write it once").await;

    let (code, listed, errors) = run(directory.path(), &["sessions", "retry", &id]).await;
    assert_eq!(code, Some(0), "{errors}");
    for part in [id.as_str(), "ERR_AUTH_001", "write it once"] {
        assert!(listed.contains(part), "{listed}");
    }
    assert!(errors.contains("--yes"), "{errors}");
    assert_eq!(service.asked().len(), 2, "the list asks nobody");

    service.push(says("It is written."));
    let (code, answer, errors) = run(directory.path(), &["sessions", "retry", &id, "--yes"]).await;
    assert_eq!(code, Some(0), "{errors}");
    assert!(answer.contains("It is written."), "{answer} {errors}");
    let done = std::fs::read_to_string(directory.path().join("done.txt")).unwrap();
    assert_eq!(done, "once\n", "the call was not done again");
    let asked = service.asked();
    assert_eq!(asked.len(), 3);
    assert_eq!(asked[1].body["messages"], asked[2].body["messages"], "the same request");

    let (code, _, errors) = run(directory.path(), &["sessions", "retry", &id, "--yes"]).await;
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("turn 2 ended as end_turn"), "{errors}");
}

#[tokio::test]
async fn all_failed_turns_are_retried_at_once_by_code_and_age() {
    let directory = tempfile::tempdir().unwrap();
    let service = Provider::start([says("fine"), refused(), refused()]).await;
    let model = model_of(&service);
    let (code, ..) = run(directory.path(), &["run", "--model", &model, "works"]).await;
    assert_eq!(code, Some(0));
    let one = fail(directory.path(), &service, "first").await;
    let two = fail(directory.path(), &service, "second").await;

    let others = ["sessions", "retry", "--failed", "--code", "ERR_NET_001", "--yes"];
    let (code, listed, errors) = run(directory.path(), &others).await;
    assert_eq!((code, listed.as_str()), (Some(0), ""), "{errors}");
    assert!(errors.contains("no failed turn"), "{errors}");

    service.push(says("after all"));
    service.push(refused());
    let failed =
        ["sessions", "retry", "--failed", "--since", "1h", "--code", "ERR_AUTH_001", "--yes"];
    let (code, listed, errors) = run(directory.path(), &failed).await;
    assert_eq!(code, Some(1), "one of them failed again: {errors}");
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(listed.contains(&one) && listed.contains(&two), "{listed}");
    assert!(errors.contains('✓') && errors.contains('✗') && errors.contains("1/2"), "{errors}");

    service.push(says("at last"));
    let (code, listed, errors) =
        run(directory.path(), &["sessions", "retry", "--failed", "--yes"]).await;
    assert_eq!((code, listed.lines().count()), (Some(0), 1), "{errors}");
    let (_, listed, _) = run(directory.path(), &["sessions", "retry", "--failed"]).await;
    assert_eq!(listed, "");
}

#[tokio::test]
async fn a_server_that_holds_the_session_continues_its_turn() {
    let directory = tempfile::tempdir().unwrap();
    let service = Provider::start(fails_after_a_call()).await;
    let model = model_of(&service);
    let args = ["serve", "--listen", "127.0.0.1:0", "--no-auth", "--permission", "auto"];
    let mut command = command_in(env!("CARGO_BIN_EXE_budao"), directory.path(), &args);
    command.args(["--model", &model]).stderr(Stdio::null());
    let mut server = Process::start(command);
    let line = server.first_line();
    let address = line.trim().strip_prefix("http://").unwrap().trim_end_matches('/');
    let client = Client::new(format!("ws://{address}/ws"));
    let (session, mut events) = client.create(SessionRequest::default()).await.unwrap();
    session.send("write it once").await.unwrap();
    until(&mut events, "agent.session_end").await;

    service.push(says("It is written."));
    let args = ["sessions", "retry", session.id(), "--yes"];
    let (code, _, errors) = run(directory.path(), &args).await;
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(until(&mut events, "agent.final_answer").await, "It is written.");
    let done = std::fs::read_to_string(directory.path().join("done.txt")).unwrap();
    assert_eq!(done, "once\n");
}

/// Waits for an event; returns its text.
async fn until(events: &mut Events, name: &str) -> String {
    loop {
        let event = events.next().await.unwrap().unwrap();
        if event.event == name {
            return event.text().to_owned();
        }
    }
}

#[tokio::test]
async fn a_session_that_cannot_be_retried_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let service = Provider::start([says("fine")]).await;
    let model = model_of(&service);
    let (_, _, errors) = run(directory.path(), &["run", "--model", &model, "works"]).await;
    let id = errors.lines().next().unwrap().rsplit(' ').next().unwrap();
    let unknown = "01900000-0000-7000-8000-000000000001";
    let cases: [(&[&str], i32, &str); 6] = [
        (&[id], 1, "turn 1 ended as end_turn"),
        (&[unknown], 2, unknown),
        (&[], 2, "--failed"),
        (&["--failed", "--since", "soon"], 2, "`soon` is no time"),
        (&["--failed", "--code", "ERR_NOPE"], 2, "--code"),
        (&[id, "--failed"], 2, "--failed"),
    ];
    for (args, expected, part) in cases {
        let args: Vec<&str> =
            ["sessions", "retry"].into_iter().chain(args.iter().copied()).collect();
        let (code, _, errors) = run(directory.path(), &args).await;
        assert_eq!(code, Some(expected), "{args:?}: {errors}");
        assert!(errors.contains(part), "{args:?}: {errors}");
    }
}
