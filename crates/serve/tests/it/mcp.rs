//! Sessions as MCP tools: both eras, repetition, tasks, other users, bad input.

use std::time::Duration;

use budao_models::Script;
use budao_serve::Auth;
use serde_json::{Map, Value, json};

use crate::{
    fixture::{Fixture, Setup, TEST_TIMEOUT, sqlite},
    http::client,
};

const VERSION: &str = "2026-07-28";

async fn post(stage: &Fixture, headers: &[(&str, &str)], body: impl Into<String>) -> (u16, Value) {
    let mut request = client().post(stage.url("/mcp")).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let sending = request.body(body.into()).send();
    let response = tokio::time::timeout(TEST_TIMEOUT, sending).await.expect("it hangs").unwrap();
    let status = response.status().as_u16();
    (status, response.json().await.unwrap_or_default())
}

/// A request of a client with the handshake.
async fn old(stage: &Fixture, method: &str, params: Value) -> Value {
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    let (status, answer) =
        post(stage, &[("mcp-protocol-version", "2025-06-18")], body.to_string()).await;
    assert_eq!((status, &answer["id"]), (200, &json!(7)), "{answer}");
    answer
}

/// A request of a client without a handshake.
async fn new(
    stage: &Fixture,
    token: &str,
    method: &str,
    mut params: Value,
    tasks: bool,
) -> (u16, Value) {
    let name = params.get("name").or_else(|| params.get("taskId")).and_then(Value::as_str);
    let name = name.unwrap_or_default().to_owned();
    let extensions = if tasks { json!({ "io.modelcontextprotocol/tasks": {} }) } else { json!({}) };
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = VERSION.into();
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
        json!({ "extensions": extensions });
    let body = json!({ "jsonrpc": "2.0", "id": "a", "method": method, "params": params });
    let token = format!("Bearer {token}");
    let mut headers =
        vec![("mcp-protocol-version", VERSION), ("mcp-method", method), ("authorization", &token)];
    if !name.is_empty() {
        headers.push(("mcp-name", &name));
    }
    post(stage, &headers, body.to_string()).await
}

#[expect(clippy::needless_pass_by_value, reason = "callers build the value in place")]
fn ask(arguments: Value) -> Value {
    json!({ "name": "ask", "arguments": arguments })
}

fn data(answer: &Value) -> &Value {
    &answer["result"]["structuredContent"]
}

async fn fine() -> Fixture {
    Setup::new(Script::new().say("fine").forever()).open().await
}

#[tokio::test]
async fn a_client_with_the_handshake_asks_and_gets_the_answer() {
    let stage = fine().await;
    let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "0" } });
    let answer = old(&stage, "initialize", hello).await;
    assert_eq!(answer["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(answer["result"]["serverInfo"]["name"], "budao");
    let newer = old(&stage, "initialize", json!({ "protocolVersion": "2031-01-01" })).await;
    assert_eq!(newer["result"]["protocolVersion"], "2025-11-25");
    let tools = old(&stage, "tools/list", json!({})).await;
    let names: Vec<&Value> =
        tools["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["ask", "status", "cancel"]);
    assert_eq!(old(&stage, "ping", json!({})).await["result"], json!({}));
    let answer = old(&stage, "tools/call", ask(json!({ "message": "hello" }))).await;
    assert_eq!(answer["result"]["content"][0]["text"], "fine", "{answer}");
    assert_eq!(
        (&data(&answer)["state"], &answer["result"]["isError"]),
        (&json!("completed"), &json!(false))
    );
    let run = data(&answer)["run"].clone();
    let status =
        old(&stage, "tools/call", json!({ "name": "status", "arguments": { "run": run } })).await;
    assert_eq!(data(&status), data(&answer));
    let session = &data(&answer)["session"];
    let next =
        old(&stage, "tools/call", ask(json!({ "message": "and now?", "session": session }))).await;
    assert_eq!(&data(&next)["session"], session);
    assert_ne!(data(&next)["run"], run);
}

#[tokio::test]
async fn a_client_without_a_handshake_asks_and_follows_a_task() {
    let stage = fine().await;
    let (status, discovered) = new(&stage, "", "server/discover", json!({}), true).await;
    assert_eq!((status, &discovered["result"]["supportedVersions"][0]), (200, &json!(VERSION)));
    let (_, answer) =
        new(&stage, "", "tools/call", ask(json!({ "message": "hello" })), false).await;
    assert_eq!(
        (&answer["result"]["resultType"], &data(&answer)["answer"]),
        (&json!("complete"), &json!("fine"))
    );
    let (_, task) =
        new(&stage, "", "tools/call", ask(json!({ "message": "hello", "id": "one" })), true).await;
    let task = &task["result"];
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")));
    let id = task["taskId"].clone();
    let done = until(&stage, &id, "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "fine");
    assert!(done["createdAt"].is_string() && done["pollIntervalMs"].is_number());
    // The task is the run: a repeated question is the same task.
    let (_, again) =
        new(&stage, "", "tools/call", ask(json!({ "message": "hello", "id": "one" })), true).await;
    assert_eq!(again["result"]["taskId"], id);
}

#[tokio::test]
async fn a_client_with_a_progress_token_gets_notifications_before_the_answer() {
    let stage = fine().await;
    let events = "application/json, text/event-stream";
    for (accept, token, has_progress) in [
        (events, json!("p1"), true),
        (events, json!(7), true),
        (events, json!(null), false),
        (events, json!({ "a": 1 }), false),
        (events, json!("p".repeat(1024)), true),
        (events, json!("p".repeat(1025)), false),
        ("application/json", json!("p1"), false),
    ] {
        let mut params = ask(json!({ "message": "hello" }));
        params["_meta"] = json!({ "progressToken": token });
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
        let request = client().post(stage.url("/mcp")).header("accept", accept).json(&body);
        let response = request.send().await.unwrap();
        let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
        let text =
            tokio::time::timeout(TEST_TIMEOUT, response.text()).await.expect("it hangs").unwrap();
        assert_eq!(kind.contains("event-stream"), has_progress, "{kind} {text}");
        let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect::<Vec<_>>();
        let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let (answer, before) = match data.split_last() {
            Some((last, before)) => (parse(last), before),
            None => (parse(&text), [].as_slice()),
        };
        assert_eq!(answer["result"]["content"][0]["text"], "fine", "{text}");
        assert_eq!(before.is_empty(), !has_progress, "{text}");
        for (place, note) in before.iter().enumerate() {
            let note = parse(note);
            assert_eq!(note["method"], "notifications/progress");
            assert_eq!(note["params"]["progressToken"], token);
            assert_eq!(note["params"]["progress"], place + 1);
        }
    }
}

/// Asks for a task until it is in this state.
async fn until(stage: &Fixture, id: &Value, state: &str) -> Value {
    let asking = async {
        loop {
            let (status, answer) = new(stage, "", "tasks/get", json!({ "taskId": id }), true).await;
            assert_eq!(status, 200, "{answer}");
            if answer["result"]["status"] == state {
                return answer["result"].clone();
            }
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, asking).await.expect("it hangs")
}

#[tokio::test]
async fn a_question_that_is_asked_again_is_answered_once_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let journal = sqlite(&directory).await;
    let question = || ask(json!({ "message": "hello", "id": "q1" }));
    let stage = Setup::new(Script::new().say("fine").say("twice")).on(&journal).open().await;
    let first = old(&stage, "tools/call", question()).await;
    let again = old(&stage, "tools/call", question()).await;
    assert_eq!((data(&first), &data(&first)["answer"]), (data(&again), &json!("fine")));
    drop(stage);
    let stage = Setup::new(Script::new().say("after the restart")).on(&journal).open().await;
    let later = old(&stage, "tools/call", question()).await;
    assert_eq!(data(&later), data(&first));
    let run = &data(&first)["run"];
    let status =
        old(&stage, "tools/call", json!({ "name": "status", "arguments": { "run": run } })).await;
    assert_eq!(data(&status)["answer"], "fine");
    let other =
        old(&stage, "tools/call", ask(json!({ "message": "something else", "id": "q1" }))).await;
    assert_eq!(other["result"]["isError"], true, "{other}");
    // Budao's own client sends its key beside the arguments.
    let with_key = json!({ "name": "ask", "arguments": { "message": "hello" }, "_meta": { "budao/idempotencyKey": "q1" } });
    assert_eq!(data(&old(&stage, "tools/call", with_key).await), data(&first));
}

#[tokio::test]
async fn a_client_that_does_not_wait_finds_the_answer_and_can_cancel() {
    let stage =
        Setup::new(Script::new().call("slow", json!({})).say("fine").forever()).open().await;
    let answer =
        old(&stage, "tools/call", ask(json!({ "message": "go", "wait_seconds": 0 }))).await;
    assert_eq!(data(&answer)["state"], "working", "{answer}");
    assert!(data(&answer).get("answer").is_none());
    let run = json!({ "run": data(&answer)["run"] });
    let call = |name: &str| json!({ "name": name, "arguments": run });
    old(&stage, "tools/call", call("cancel")).await;
    let ended = async {
        loop {
            let status = old(&stage, "tools/call", call("status")).await;
            if data(&status)["state"] != "working" {
                return status;
            }
        }
    };
    let status = tokio::time::timeout(TEST_TIMEOUT, ended).await.expect("it hangs");
    assert_eq!(data(&status)["state"], "cancelled", "{status}");
    let again = old(&stage, "tools/call", call("cancel")).await;
    assert_eq!(data(&again)["state"], "cancelled");
}

#[tokio::test]
async fn a_question_of_a_run_is_shown_and_answered_through_its_task() {
    for (decision, expected) in [("allow", "completed"), ("deny", "completed")] {
        let stage = Setup::new(Script::new().call("write", json!({})).say("fine")).open().await;
        let (_, task) = new(&stage, "", "tools/call", ask(json!({ "message": "go" })), true).await;
        let id = task["result"]["taskId"].clone();
        let waiting = until(&stage, &id, "input_required").await;
        let requests = waiting["inputRequests"].as_object().unwrap();
        let (question, request) = requests.iter().next().unwrap();
        assert!(request["params"]["message"].as_str().unwrap().contains("write"), "{request}");
        let response = json!({ "action": "accept", "content": { "decision": decision } });
        let responses = Map::from_iter([(question.clone(), response)]);
        let update = json!({ "taskId": id, "inputResponses": responses });
        let (status, answer) = new(&stage, "", "tasks/update", update.clone(), true).await;
        assert_eq!(status, 200, "{answer}");
        let done = until(&stage, &id, expected).await;
        assert_eq!(done["result"]["content"][0]["text"], "fine");
        // A late repetition changes nothing.
        assert_eq!(new(&stage, "", "tasks/update", update, true).await.0, 200);
    }
}

#[tokio::test]
async fn a_run_of_another_user_does_not_exist_and_a_token_is_needed() {
    let mut auth = Auth::default();
    auth.add_tokens("token-of-ann acme ann\ntoken-of-bob acme bob\n").unwrap();
    let script = Script::new().say("my secret").forever();
    let stage = Setup::new(script).with(|config| config.auth = auth).open().await;
    assert_eq!(new(&stage, "wrong", "tools/list", json!({}), false).await.0, 401);
    let question = || ask(json!({ "message": "hello", "id": "same" }));
    let (_, answer) = new(&stage, "token-of-ann", "tools/call", question(), false).await;
    let run = data(&answer)["run"].clone();
    assert_eq!(data(&answer)["answer"], "my secret");
    for name in ["status", "cancel"] {
        let call = json!({ "name": name, "arguments": { "run": run } });
        let (_, seen) = new(&stage, "token-of-bob", "tools/call", call, false).await;
        assert_eq!(seen["result"]["isError"], true, "{seen}");
        assert!(!seen.to_string().contains("secret"), "{seen}");
    }
    let (status, seen) =
        new(&stage, "token-of-bob", "tasks/get", json!({ "taskId": run }), true).await;
    assert_eq!((status, &seen["error"]["code"]), (400, &json!(-32_602)), "{seen}");
    let session = &data(&answer)["session"];
    let join = ask(json!({ "message": "hello", "session": session }));
    assert_eq!(
        new(&stage, "token-of-bob", "tools/call", join, false).await.1["result"]["isError"],
        true
    );
    let (_, own) = new(&stage, "token-of-bob", "tools/call", question(), false).await;
    assert_ne!(data(&own)["run"], run, "the same id is another run");
}

#[tokio::test]
async fn the_tenant_limits_hold_here_too() {
    let stage = Setup::new(Script::new().say("fine").forever())
        .with(|config| config.limits.tenant_sessions = 1);
    let stage = stage.open().await;
    assert_eq!(
        data(&old(&stage, "tools/call", ask(json!({ "message": "a" }))).await)["state"],
        "completed"
    );
    let refused = old(&stage, "tools/call", ask(json!({ "message": "b" }))).await;
    assert!(data(&refused)["fault"]["code"].as_str().unwrap().starts_with("ERR_"), "{refused}");
}

#[tokio::test]
async fn bad_input_is_refused_and_the_server_goes_on() {
    let stage = fine().await;
    let deep = "[".repeat(5_000);
    let plain = [
        ("{", 400),
        ("", 400),
        ("[]", 400),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\"}", 200),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"shell\"}}",
            200,
        ),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"nothing/here\"}", 200),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tasks/get\",\"params\":{\"taskId\":\"x\"}}",
            200,
        ),
        (deep.as_str(), 400),
    ];
    for (body, expected) in plain {
        let (status, answer) = post(&stage, &[], body).await;
        assert_eq!(status, expected, "{body:.80}: {answer}");
        assert!(answer["error"].is_object() || answer["code"].is_string(), "{body:.80}: {answer}");
    }
    for run in ["", "x", "00000000-0000-0000-0000-000000000000.00000000.1", "../../etc"] {
        let call = json!({ "name": "status", "arguments": { "run": run } });
        let answer = old(&stage, "tools/call", call).await;
        assert_eq!(answer["result"]["isError"], true, "{run}: {answer}");
    }
    let (status, unknown) = new(&stage, "", "nothing/here", json!({}), false).await;
    assert_eq!((status, &unknown["error"]["code"]), (404, &json!(-32_601)));
    let get =
        client().get(stage.url("/mcp")).timeout(Duration::from_secs(10)).send().await.unwrap();
    assert_eq!(get.status().as_u16(), 405);
    let notification = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}";
    assert_eq!(post(&stage, &[], notification).await.0, 202);
    assert_eq!(
        data(&old(&stage, "tools/call", ask(json!({ "message": "a" }))).await)["state"],
        "completed"
    );
}
