//! Front ends over HTTP: whose threads they are, and what another user sees of them.

use budao_models::Script;
use budao_serve::Auth;
use serde_json::{Value, json};

use crate::{
    fixture::{Fixture, Setup},
    http::client,
};

async fn stage() -> Fixture {
    let mut auth = Auth::default();
    auth.add_tokens("token-of-ann acme ann\ntoken-of-bob acme bob\n").unwrap();
    Setup::new(Script::new().say("fine").forever()).with(|config| config.auth = auth).open().await
}

async fn post(stage: &Fixture, token: &str, path: &str, body: Value) -> (u16, String) {
    let request = client().post(stage.url(path)).bearer_auth(token).json(&body);
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

async fn get(stage: &Fixture, token: &str, path: &str) -> (u16, String) {
    let response = client().get(stage.url(path)).bearer_auth(token).send().await;
    let response = response.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

/// The session of the first event with an id.
fn session_of(stream: &str) -> String {
    let id = stream.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    id.split('.').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_thread_of_another_user_does_not_exist() {
    let stage = stage().await;
    let secret = json!({ "id": "m1", "role": "user", "content": "my secret" });
    let run =
        |messages: Value, run: &str| json!({ "threadId": "t", "runId": run, "messages": messages });
    let (status, stream) = post(&stage, "token-of-ann", "/ag-ui", run(json!([secret]), "r1")).await;
    assert_eq!(status, 200);
    assert!(stream.contains("RUN_FINISHED"), "{stream}");
    let session = session_of(&stream);
    let cursor = stream.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    for path in [
        "/ag-ui/t".to_owned(),
        format!("/ag-ui/{session}"),
        format!("/ag-ui/t?after={cursor}"),
        "/api/chat/t/stream".to_owned(),
        format!("/api/chat/{session}/stream"),
        format!("/api/chat/{}/stream?startIndex=0", cursor.rsplit_once('.').unwrap().0),
    ] {
        let (status, body) = get(&stage, "token-of-bob", &path).await;
        assert_eq!(status, 404, "{path}: {body}");
        assert!(!body.contains("secret"), "{body}");
    }
    let (status, _) = post(&stage, "token-of-bob", "/ag-ui/t/cancel", json!({})).await;
    assert_eq!(status, 404);
    for thread in ["t", &session] {
        let body = json!({ "threadId": thread, "runId": "r1", "messages": [{ "id": "m1", "role": "user", "content": "hello" }] });
        let (status, stream) = post(&stage, "token-of-bob", "/ag-ui", body).await;
        assert_eq!(status, 200);
        assert!(!stream.contains("secret"), "{stream}");
        assert_ne!(session_of(&stream), session, "the same name is another thread");
    }
    let (status, joined) = get(&stage, "token-of-ann", &format!("/ag-ui/{session}")).await;
    assert_eq!(status, 200, "a session is a thread of its owner");
    assert!(joined.contains("my secret") && joined.contains("fine"), "{joined}");
}

#[tokio::test]
async fn a_message_for_a_busy_thread_shows_the_running_turn_first_and_then_its_own() {
    let stage = Setup::new(Script::new().say("fine").forever()).open().await;
    let message = |id: &str| json!({ "id": id, "role": "user", "content": "go" });
    let body = |run: &str, id: &str| json!({ "threadId": "busy", "runId": run, "messages": [message(id)] });
    let one = post(&stage, "", "/ag-ui", body("r1", "m1"));
    let two = post(&stage, "", "/ag-ui", body("r2", "m2"));
    let ((_, one), (_, two)) = tokio::join!(one, two);
    for (stream, run) in [(one, "r1"), (two, "r2")] {
        let events: Vec<Value> = stream
            .lines()
            .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
            .collect();
        let last = events.last().unwrap();
        assert_eq!((&last["type"], &last["runId"]), (&json!("RUN_FINISHED"), &json!(run)));
        let kinds = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
        assert_eq!(kinds("RUN_STARTED"), kinds("RUN_FINISHED"), "{stream}");
    }
}
