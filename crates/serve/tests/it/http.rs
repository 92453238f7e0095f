//! The same over HTTP and SSE.

use std::time::Duration;

use budao_core::Kind;
use budao_models::Script;
use budao_serve::Auth;
use futures::StreamExt as _;
use reqwest::Client;
use serde_json::{Value, json};

use crate::fixture::{Fixture, Setup, TEST_TIMEOUT, assert_whole, seqs, words};

pub(crate) fn client() -> Client {
    // No TLS is spoken here, but the library wants to know how.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::new()
}

pub(crate) async fn post(stage: &Fixture, path: &str, body: Value) -> (u16, Value) {
    let response = client()
        .post(stage.url(path))
        .header("content-type", "application/json")
        .body(body.to_string())
        .send()
        .await
        .unwrap();
    let status = response.status().as_u16();
    (status, serde_json::from_slice(&response.bytes().await.unwrap()).unwrap_or_default())
}

pub(crate) async fn get(stage: &Fixture, path: &str) -> (u16, Value) {
    let response = client().get(stage.url(path)).send().await.unwrap();
    let status = response.status().as_u16();
    (status, serde_json::from_slice(&response.bytes().await.unwrap()).unwrap_or_default())
}

/// The events of a session after an id, up to the first with this name, and the last id.
pub(crate) async fn events(
    stage: &Fixture,
    session: &str,
    after: Option<&str>,
    until: &str,
) -> (Vec<Value>, String) {
    read(stage, session, after, |frame| frame["event"] == until).await
}

/// The events of a session after an id, up to the first that `is_last`, and the last id.
async fn read(
    stage: &Fixture,
    session: &str,
    after: Option<&str>,
    mut is_last: impl FnMut(&Value) -> bool,
) -> (Vec<Value>, String) {
    let mut request = client().get(stage.url(&format!("/v1/sessions/{session}/events")));
    if let Some(after) = after {
        request = request.header("last-event-id", after);
    }
    let response = request.send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.bytes_stream();
    let (mut text, mut frames, mut last) = (String::new(), Vec::new(), String::new());
    loop {
        let chunk =
            tokio::time::timeout(TEST_TIMEOUT, body.next()).await.unwrap().unwrap().unwrap();
        text.push_str(std::str::from_utf8(&chunk).unwrap());
        while let Some(end) = text.find("\n\n") {
            let event: String = text.drain(..end + 2).collect();
            for line in event.lines() {
                if let Some(id) = line.strip_prefix("id: ") {
                    id.clone_into(&mut last);
                } else if let Some(data) = line.strip_prefix("data: ") {
                    let frame: Value = serde_json::from_str(data).unwrap();
                    let is_it = is_last(&frame);
                    frames.push(frame);
                    if is_it {
                        return (frames, last);
                    }
                }
            }
        }
    }
}

pub(crate) async fn create(stage: &Fixture) -> String {
    let (status, body) = post(stage, "/v1/sessions", json!({})).await;
    assert_eq!(status, 201, "{body}");
    body["session_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_session_is_led_over_http_and_resumed_by_last_event_id() {
    let stage = Setup::new(words(40, Duration::from_millis(2))).open().await;
    let session = create(&stage).await;
    let (status, body) =
        post(&stage, &format!("/v1/sessions/{session}/messages"), json!({"content": "go on"}))
            .await;
    assert_eq!((status, &body["status"]), (202, &json!("accepted")));
    let (first, id) = events(&stage, &session, None, "agent.partial_answer").await;
    let last = *seqs(&first).last().unwrap();
    let (rest, _) = events(&stage, &session, Some(&id), "agent.final_answer").await;
    let rest: Vec<Value> = rest.into_iter().filter(|frame| frame["seq"].is_u64()).collect();
    assert_whole(&rest, last);
    let (status, view) = get(&stage, &format!("/v1/sessions/{session}")).await;
    assert_eq!((status, &view["status"]), (200, &json!("idle")));
}

#[tokio::test]
async fn a_question_is_answered_over_http() {
    let script = Script::new().call("write", json!({})).say("it is written");
    let stage = Setup::new(script).open().await;
    let session = create(&stage).await;
    post(&stage, &format!("/v1/sessions/{session}/messages"), json!({"content": "write"})).await;
    events(&stage, &session, None, "agent.user_confirm").await;
    let (_, view) = get(&stage, &format!("/v1/sessions/{session}")).await;
    let question = &view["questions"][0];
    let answer =
        json!({"step_id": question["step_id"], "confirmed": true, "digest": question["digest"]});
    let path = format!("/v1/sessions/{session}/answers");
    assert_eq!(post(&stage, &path, answer.clone()).await.0, 202);
    events(&stage, &session, None, "agent.final_answer").await;
    let (status, problem) = post(&stage, &path, answer).await;
    assert_eq!((status, &problem["code"]), (409, &json!("ERR_PERM_007")));
}

#[tokio::test]
async fn a_turn_is_cancelled_over_http() {
    let stage = Setup::new(Script::new().call("slow", json!({})).say("x")).open().await;
    let session = create(&stage).await;
    post(&stage, &format!("/v1/sessions/{session}/messages"), json!({"content": "wait"})).await;
    events(&stage, &session, None, "agent.tool_call").await;
    assert_eq!(post(&stage, &format!("/v1/sessions/{session}/cancel"), json!({})).await.0, 202);
    events(&stage, &session, None, "agent.interrupted").await;
}

#[tokio::test]
async fn a_failed_turn_is_retried_over_http() {
    let stage = Setup::new(Script::new().fail(Kind::ModelAuthentication).say("fine")).open().await;
    let session = create(&stage).await;
    post(&stage, &format!("/v1/sessions/{session}/messages"), json!({"content": "go"})).await;
    events(&stage, &session, None, "agent.session_end").await;
    let path = format!("/v1/sessions/{session}/commands");
    let retry = json!({"event": "user.retry", "command_id": "again"});
    assert_eq!(post(&stage, &path, retry.clone()).await.0, 202);
    events(&stage, &session, None, "agent.final_answer").await;
    assert_eq!(post(&stage, &path, retry).await.0, 202, "the same command has the same answer");
    let (status, problem) = post(&stage, &path, json!({"event": "user.retry"})).await;
    assert_eq!((status, &problem["code"]), (422, &json!("ERR_VAL_001")), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("turn 2 ended as end_turn"), "{problem}");
}

#[tokio::test]
async fn sessions_are_listed_exported_and_deleted() {
    let stage = Setup::new(Script::new().say("fine")).open().await;
    let (one, two) = (create(&stage).await, create(&stage).await);
    let (_, page) = get(&stage, "/v1/sessions?limit=1").await;
    let next = page["next"].as_str().unwrap();
    let (_, rest) = get(&stage, &format!("/v1/sessions?limit=1&after={next}")).await;
    let listed = [&page["sessions"][0]["session_id"], &rest["sessions"][0]["session_id"]];
    assert!(listed.contains(&&json!(one)) && listed.contains(&&json!(two)));
    let export =
        client().get(stage.url(&format!("/v1/sessions/{one}/export"))).send().await.unwrap();
    let export = export.text().await.unwrap();
    let lines: Vec<Value> =
        export.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["journal"], 1);
    assert_eq!(lines[2]["seq"], 1);
    assert_eq!(lines.last().unwrap()["done"], 1);
    let path = stage.url(&format!("/v1/sessions/{one}"));
    assert_eq!(client().delete(&path).send().await.unwrap().status(), 204);
    assert_eq!(client().delete(&path).send().await.unwrap().status(), 404);
    assert_eq!(get(&stage, &format!("/v1/sessions/{one}")).await.0, 404);
}

/// Also what no record causes: the greeting, the answer to the cursor, and the notice of the deletion.
#[tokio::test]
async fn an_sse_observer_gets_the_language_of_the_session_and_its_deletion() {
    let stage = Setup::new(Script::new().say("四")).open().await;
    let (_, created) =
        post(&stage, "/v1/sessions", json!({ "preferences": { "language": "zh-CN" } })).await;
    let session = created["session_id"].as_str().unwrap();
    let (ready, told) = tokio::sync::oneshot::channel();
    let observer = async {
        let mut ready = Some(ready);
        read(&stage, session, None, |frame| {
            if frame["metadata"]["action"] == "replay" {
                ready.take().into_iter().for_each(|ready| ready.send(()).unwrap());
            }
            frame["event"] == "system.error"
        })
        .await
        .0
    };
    let delete = async {
        told.await.unwrap();
        let path = stage.url(&format!("/v1/sessions/{session}"));
        assert_eq!(client().delete(&path).send().await.unwrap().status(), 204);
    };
    let (frames, ()) = tokio::join!(observer, delete);
    assert_eq!(frames.last().unwrap()["metadata"]["error_code"], "ERR_SESS_001");
    for frame in frames {
        let shown = frame["show_content"].as_str().unwrap_or_default();
        let is_chinese = shown.chars().any(|char| ('\u{4e00}'..='\u{9fff}').contains(&char));
        assert!(is_chinese || shown.is_empty(), "{frame}");
    }
}

#[tokio::test]
async fn errors_are_problems_with_code_trace_and_advice() {
    let stage = Setup::new(Script::new().say("fine")).open().await;
    let session = create(&stage).await;
    let response = client()
        .post(stage.url(&format!("/v1/sessions/{session}/messages")))
        .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .header("accept-language", "zh-CN,en;q=0.5")
        .body("{")
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 400);
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    assert_eq!(response.headers()["x-request-id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    let problem: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    insta::assert_json_snapshot!(problem);
}

#[tokio::test]
async fn bad_requests_have_different_codes() {
    let stage = Setup::new(Script::new().say("fine")).open().await;
    let session = create(&stage).await;
    let messages = format!("/v1/sessions/{session}/messages");
    for (path, body, status) in [
        (messages.as_str(), json!({}), 400),
        (&messages, json!({"content": 7}), 400),
        (&messages, json!({"content": "  "}), 422),
        ("/v1/sessions/nobody/messages", json!({"content": "hi"}), 404),
        ("/v1/nowhere", json!({}), 404),
        ("/v1/sessions", json!({"config": {"model": "other"}}), 422),
    ] {
        let (got, problem) = post(&stage, path, body.clone()).await;
        assert_eq!(got, status, "{path} {body}: {problem}");
        assert!(problem["code"].is_string() && problem["trace_id"].is_string(), "{problem}");
    }
    let (status, problem) = post(&stage, &messages, json!({"content": "x".repeat(2 << 20)})).await;
    assert_eq!((status, &problem["facts"]["limit_name"]), (413, &json!("frame_bytes")));
}

#[tokio::test]
async fn the_same_key_is_the_same_command() {
    let stage = Setup::new(Script::new().say("fine").forever()).open().await;
    let key = |path: String| {
        client().post(stage.url(&path)).header("idempotency-key", "k1").body(r#"{"content":"hi"}"#)
    };
    let opened = || async {
        let made = client().post(stage.url("/v1/sessions")).header("idempotency-key", "s1");
        let made = made.send().await.unwrap();
        let status = made.status().as_u16();
        let body: Value = serde_json::from_slice(&made.bytes().await.unwrap()).unwrap();
        (status, body["session_id"].as_str().unwrap().to_owned())
    };
    let (first, again) = (opened().await, opened().await);
    assert_eq!((first.0, again.0), (201, 200));
    assert_eq!(first.1, again.1);
    for _ in 0..2 {
        let sent = key(format!("/v1/sessions/{}/messages", first.1)).send().await.unwrap();
        let body: Value = serde_json::from_slice(&sent.bytes().await.unwrap()).unwrap();
        assert_eq!((&body["command_id"], &body["after"]), (&json!("k1"), &json!(1)));
    }
}

#[tokio::test]
async fn without_a_token_only_the_page_and_the_health_check_answer() {
    let setup =
        Setup::new(Script::new().say("fine")).with(|config| config.auth = Auth::token("letmein"));
    let stage = setup.open().await;
    for path in ["/v1/sessions", "/v1/sessions/x", "/v1/nowhere"] {
        let (status, problem) = get(&stage, path).await;
        assert_eq!((status, &problem["code"]), (401, &json!("ERR_AUTH_002")), "{path}");
    }
    for path in ["/", "/healthz"] {
        assert_eq!(get(&stage, path).await.0, 200, "{path}");
    }
    let response =
        client().get(stage.url("/v1/sessions")).bearer_auth("letmein").send().await.unwrap();
    assert_eq!(response.status(), 200);
}

/// After a change: `BUDAO_UPDATE=1 cargo nextest run -p budao-serve openapi` writes the page anew.
#[tokio::test]
async fn the_openapi_page_is_what_is_served() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    if std::env::var_os("BUDAO_UPDATE").is_some() {
        std::fs::write(&page, budao_serve::openapi()).unwrap();
    }
    let stage = Setup::new(Script::new()).open().await;
    let served = client().get(stage.url("/openapi.json")).send().await.unwrap();
    let served = served.text().await.unwrap();
    assert!(served == std::fs::read_to_string(page).unwrap(), "docs/openapi.json is stale");
}

#[tokio::test]
async fn a_lost_reader_of_the_event_stream_is_announced_to_other_observers() {
    let stage = Setup::new(Script::new().say("four")).open().await;
    let mut other = stage.client().await;
    let session = other.create(json!({})).await;
    let (read, id) = events(&stage, &session, None, "agent.session_created").await;
    assert_eq!(read.last().unwrap()["event_id"], id);
    let frames = other.until("error.connection_lost").await;
    let lost = frames.last().unwrap();
    assert_eq!(lost["metadata"]["close_code"], 1006, "{lost}");
    assert_eq!(lost["metadata"]["last_event_seq"], 1, "{lost}");
}
