//! Streams of front ends and their ends: a run that is over, a session that is deleted, and requests that are refused.

use budao_core::Kind;
use budao_models::Script;
use budao_serve::Rate;
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::{
    fixture::{Fixture, Setup, TEST_TIMEOUT, words},
    http::client,
};

fn message(id: &str) -> Value {
    json!({ "id": id, "role": "user", "content": "go" })
}

/// The ids and events of a stream.
fn events_of(stream: &str) -> Vec<(String, Value)> {
    let mut id = String::new();
    let mut events = Vec::new();
    for line in stream.lines() {
        if let Some(new) = line.strip_prefix("id: ") {
            new.clone_into(&mut id);
        } else if let Some(data) = line.strip_prefix("data: ") {
            events.push((id.clone(), serde_json::from_str(data).unwrap()));
        }
    }
    events
}

async fn run(stage: &Fixture, run: &str) -> Vec<(String, Value)> {
    let body = json!({ "threadId": "t", "runId": run, "messages": [message(&format!("{run}-m"))] });
    let response = client().post(stage.url("/ag-ui")).json(&body).send().await.unwrap();
    events_of(&response.text().await.unwrap())
}

async fn get(stage: &Fixture, path: &str) -> (u16, Vec<(String, Value)>) {
    let response = client().get(stage.url(path)).send();
    let response = tokio::time::timeout(TEST_TIMEOUT, response).await.unwrap().unwrap();
    let status = response.status().as_u16();
    let body = tokio::time::timeout(TEST_TIMEOUT, response.text()).await.unwrap();
    (status, events_of(&body.unwrap()))
}

fn kinds(events: &[(String, Value)]) -> Vec<&str> {
    events.iter().map(|(_, event)| event["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_client_that_joins_a_thread_gets_the_end_of_its_last_run() {
    let script = Script::new().fail(Kind::ModelAuthentication).say("fine").forever();
    let stage = Setup::new(script).open().await;
    for (name, end) in [("r1", "RUN_ERROR"), ("r2", "RUN_FINISHED")] {
        let live = run(&stage, name).await;
        let joined = get(&stage, "/ag-ui/t").await.1;
        assert_eq!(kinds(&joined), ["RUN_STARTED", "MESSAGES_SNAPSHOT", end]);
        assert_eq!(joined[0].1["runId"], name);
        let (last, last_joined) = (&live.last().unwrap().1, &joined[2].1);
        assert_eq!(last["type"], end);
        assert_eq!(last_joined, last, "the end is that of the run");
    }
}

#[tokio::test]
async fn a_run_that_is_over_continues_after_each_of_its_events_and_has_nothing_after_its_end() {
    let stage = Setup::new(Script::new().say("fine").forever()).open().await;
    let first = run(&stage, "r1").await;
    let (last, before) = first.split_last().unwrap();
    for (index, (id, _)) in before.iter().enumerate() {
        for query in ["", "&run=r1"] {
            let (status, rest) = get(&stage, &format!("/ag-ui/t?after={id}{query}")).await;
            assert_eq!((status, &*rest), (200, &first[index + 1..]), "after {index}");
        }
    }
    for query in ["", "&run=r1"] {
        let (status, rest) = get(&stage, &format!("/ag-ui/t?after={}{query}", last.0)).await;
        assert_eq!((status, rest.len()), (204, 0), "{query}");
    }
    let second = run(&stage, "r2").await;
    let (status, rest) = get(&stage, &format!("/ag-ui/t?after={}", last.0)).await;
    assert_eq!((status, rest.last()), (200, second.last()), "the next run is new for this cursor");
    let (status, _) = get(&stage, &format!("/ag-ui/t?after={}&run=r1", last.0)).await;
    assert_eq!(status, 204, "the run itself is");
}

/// Reads a stream to its end and deletes the session when the first text has come.
async fn read_and_delete(stage: &Fixture, response: reqwest::Response) -> String {
    let (mut text, mut is_deleted) = (String::new(), false);
    let mut body = response.bytes_stream();
    while let Some(chunk) = tokio::time::timeout(TEST_TIMEOUT, body.next()).await.unwrap() {
        text.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
        if !is_deleted && text.contains("w1") {
            is_deleted = true;
            let id = text.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
            let session = id.split('.').next().unwrap();
            let path = stage.url(&format!("/v1/sessions/{session}"));
            assert_eq!(client().delete(path).send().await.unwrap().status(), 204);
        }
    }
    text
}

#[tokio::test]
async fn a_stream_whose_session_is_deleted_ends_with_an_error() {
    let script = words(2_000, std::time::Duration::from_millis(5));
    let stage = Setup::new(script).open().await;
    let body = json!({ "threadId": "t", "runId": "r", "messages": [message("m")] });
    let response = client().post(stage.url("/ag-ui")).json(&body).send().await.unwrap();
    let events = events_of(&read_and_delete(&stage, response).await);
    let last = &events.last().unwrap().1;
    assert_eq!((&last["type"], &last["code"]), (&json!("RUN_ERROR"), &json!("ERR_SESS_001")));

    let parts = json!([{ "type": "text", "text": "go" }]);
    let message = json!({ "id": "m", "role": "user", "parts": parts });
    let body = json!({ "id": "c", "messages": [message], "trigger": "submit-message" });
    let response = client().post(stage.url("/api/chat")).json(&body).send().await.unwrap();
    let text = read_and_delete(&stage, response).await;
    let events = events_of(text.trim_end().strip_suffix("data: [DONE]").unwrap());
    let [.., error, finish] = &events[..] else { panic!("{events:?}") };
    assert_eq!(error.1["type"], "error");
    assert!(error.1["errorText"].as_str().unwrap().contains("ERR_SESS_001"), "{}", error.1);
    assert_eq!(finish.1["finishReason"], "error");

    let run = crate::http::post(&stage, "/v1/sessions", json!({})).await.1;
    let session = run["session_id"].as_str().unwrap();
    let path = format!("/v1/sessions/{session}/messages");
    crate::http::post(&stage, &path, json!({ "content": "go" })).await;
    let events = stage.url(&format!("/v1/sessions/{session}/events"));
    let response = client().get(events).send().await.unwrap();
    let text = read_and_delete(&stage, response).await;
    assert_eq!(events_of(&text).last().unwrap().1["metadata"]["error_code"], "ERR_SESS_001");
}

#[tokio::test]
async fn failures_and_refusals_are_in_the_language_of_the_request() {
    let stage = Setup::new(Script::new().fail(Kind::ModelAuthentication)).open().await;
    let is_chinese = |text: &str| text.chars().any(|it| ('\u{4e00}'..='\u{9fff}').contains(&it));
    let post = |path: &str, body: Value| {
        let request = client().post(stage.url(path)).header("accept-language", "zh-CN,en;q=0.5");
        async move { request.json(&body).send().await.unwrap().text().await.unwrap() }
    };
    let ran = post("/ag-ui", json!({ "threadId": "z", "runId": "r", "messages": [message("m")] }));
    let end = events_of(&ran.await).last().unwrap().1.clone();
    assert_eq!(end["type"], "RUN_ERROR");
    assert!(is_chinese(end["message"].as_str().unwrap()), "{end}");
    let refused = post("/ag-ui", json!({ "threadId": "z" })).await;
    assert!(is_chinese(&refused) && refused.contains("ERR_"), "{refused}");
    let parts = json!([{ "type": "text", "text": "go" }]);
    let message = json!({ "id": "m", "role": "user", "parts": parts });
    let body = json!({ "id": "c", "messages": [message], "trigger": "submit-message" });
    let chat = post("/api/chat", body).await;
    let error = chat.lines().find(|line| line.contains(r#""type":"error""#)).unwrap();
    assert!(is_chinese(error), "{chat}");
    let refused = client().get(stage.url("/api/chat/nobody/stream"));
    let refused = refused.header("accept-language", "zh").send().await.unwrap();
    assert!(is_chinese(&refused.text().await.unwrap()));
}

#[tokio::test]
async fn a_tenant_above_its_rate_is_refused_with_the_time_to_wait() {
    let rate = Rate { per_second: 1, burst: 2 };
    let limited = Setup::new(Script::new().say("fine").forever());
    let stage = limited.with(|config| config.limits.tenant_commands = rate).open().await;
    for path in ["/ag-ui", "/api/chat"] {
        let response = client().post(stage.url(path)).body("{}").send().await.unwrap();
        assert_ne!(response.status(), 429, "{path}");
    }
    for path in ["/ag-ui", "/api/chat", "/api/copilotkit/agent/default/run"] {
        let response = client().post(stage.url(path)).body("{}").send().await.unwrap();
        assert_eq!(response.status(), 429, "{path}");
        assert!(response.headers().contains_key("retry-after"), "{path}");
    }
}
