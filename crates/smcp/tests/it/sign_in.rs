//! Sign-ins that MCP servers of others want: told for what they are, at once, before and during calls.
//!
//! The server is a real one on the net that answers as it is told to: with a status, at the handshake or at a call.

use budao_smcp::codes::smcp_code;
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use budao_core::fault::Fault;
use budao_smcp::{
    agent::Agent,
    computer::{Computer, Config, Settings},
    wire::event::RequestEvent,
};
use serde_json::{Map, Value, json};

use crate::{
    common::{RunningHub, config, start, the_world, within},
    computer::{FixedValues, agent, call, member_config},
};

/// What it answers with, if not with what was asked for.
#[derive(Clone, Debug, Default)]
struct ServerBehaviour {
    /// To everything.
    always: Option<u16>,
    /// To calls.
    calls: Option<u16>,
    /// To calls, as an error of the protocol.
    code: Option<i32>,
    /// A folder it says a skill is in.
    mounted: Option<std::path::PathBuf>,
}

type SharedBehaviour = Arc<Mutex<ServerBehaviour>>;

fn refusal(status: u16) -> Response {
    let challenge = r#"Bearer realm="secret-realm", error="invalid_token", client_id="c1""#;
    let status = StatusCode::from_u16(status).unwrap();
    (status, [(header::WWW_AUTHENTICATE, challenge)]).into_response()
}

/// How the older protocol begins.
async fn greet(State(behaviour): State<SharedBehaviour>) -> Response {
    refusal(behaviour.lock().unwrap().always.unwrap_or(405))
}

async fn answer(State(behaviour): State<SharedBehaviour>, Json(message): Json<Value>) -> Response {
    let behaviour = behaviour.lock().unwrap().clone();
    let method = message["method"].as_str().unwrap_or_default();
    let is_call = method == "tools/call";
    if let Some(status) = behaviour.always.or(behaviour.calls.filter(|_| is_call)) {
        return refusal(status);
    }
    let id = &message["id"];
    if let Some(code) = behaviour.code.filter(|_| is_call) {
        let url = "https://login.example/authorize?client_id=c1&state=secret-state";
        let data = json!({ "elicitations": [{ "mode": "url", "url": url, "elicitationId": "1", "message": "m" }] });
        let error = json!({ "code": code, "message": "sign in", "data": data });
        return Json(json!({ "jsonrpc": "2.0", "id": id, "error": error })).into_response();
    }
    let result = match method {
        "initialize" => json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": { "tools": {}, "resources": {} },
            "serverInfo": { "name": "moody", "version": "0" },
        }),
        "tools/list" => json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }] }),
        "resources/list" => {
            let skill = |folder| json!({ "uri": "skill://moody/theirs", "name": "theirs", "_meta": { "source": "mounted", "mount_dir": folder } });
            json!({ "resources": behaviour.mounted.map(skill).into_iter().collect::<Vec<_>>() })
        }
        "tools/call" => json!({ "content": [{ "type": "text", "text": "fine" }] }),
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    Json(json!({ "jsonrpc": "2.0", "id": id, "result": result })).into_response()
}

async fn start_server(behaviour: ServerBehaviour) -> (String, SharedBehaviour) {
    let behaviour = Arc::new(Mutex::new(behaviour));
    let router = Router::new().route("/mcp", post(answer).get(greet)).with_state(behaviour.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp?key=secret-query", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, behaviour)
}

async fn computer(hub: &RunningHub, kind: &str, url: &str) -> Computer {
    let file = json!({ "servers": [{
        "name": "moody", "type": kind, "default_tool_meta": { "auto_apply": true },
        "server_parameters": { "url": url, "headers": { "Authorization": "Bearer secret-token" } },
    }] });
    let settings = Settings::read(&file.to_string()).unwrap();
    let config = Config::new(member_config(hub, "pc"));
    within(Computer::start(config, settings, &FixedValues, the_world())).await.unwrap()
}

/// Waits until the server's state is known, one way or the other.
async fn settled(computer: &Computer) {
    within(async {
        while matches!(computer.states()[0].1, budao_mcp::ServerState::Starting) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// The raw answer's marks, and that nothing secret is in it.
fn check_marks(fault: &Fault, code: u16) {
    assert_eq!(smcp_code(fault.kind()), code, "{fault}");
    let rendered = format!("{fault:?} {fault}");
    for secret in ["secret-token", "secret-realm", "secret-query", "secret-state", "client_id"] {
        assert!(!rendered.contains(secret), "{secret}: {rendered}");
    }
}

async fn called(agent: &Agent) -> Result<Value, Fault> {
    let began = Instant::now();
    let answer = call(agent, "moody__t", json!({}), 50).await;
    assert!(began.elapsed() < Duration::from_secs(20), "it must not wait for its deadline");
    answer
}

#[tokio::test]
async fn a_missing_or_refused_login_ends_a_call_at_once() {
    for (behaviour, code) in [
        (ServerBehaviour { calls: Some(401), ..ServerBehaviour::default() }, 4006),
        (ServerBehaviour { calls: Some(403), ..ServerBehaviour::default() }, 4007),
        (ServerBehaviour { code: Some(-32042), ..ServerBehaviour::default() }, 4006),
        (ServerBehaviour { calls: Some(500), ..ServerBehaviour::default() }, 4003),
        (ServerBehaviour { calls: Some(503), ..ServerBehaviour::default() }, 4003),
    ] {
        let hub = start(config()).await;
        let (url, now) = start_server(behaviour).await;
        let computer = computer(&hub, "streamable", &url).await;
        let agent = agent(&hub).await;
        settled(&computer).await;
        let fault = called(&agent).await.unwrap_err();
        check_marks(&fault, code);
        // When it is put right, the next call works.
        *now.lock().unwrap() = ServerBehaviour::default();
        within(async {
            while called(&agent).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        computer.shutdown().await;
    }
}

#[tokio::test]
async fn a_server_that_needs_a_login_to_connect_reports_the_login_and_not_a_failure() {
    for kind in ["streamable", "sse"] {
        for (status, code) in [(401, 4006), (403, 4007), (500, 4003)] {
            let hub = start(config()).await;
            let (url, _) = start_server(ServerBehaviour {
                always: Some(status),
                ..ServerBehaviour::default()
            })
            .await;
            let computer = computer(&hub, kind, &url).await;
            let agent = agent(&hub).await;
            settled(&computer).await;
            let fault = called(&agent).await.unwrap_err();
            check_marks(&fault, code);
            let more: Map<String, Value> =
                json!({ "mcp_server": "moody" }).as_object().unwrap().clone();
            let send = within(agent.ask(RequestEvent::GetResources, "pc", more)).await.unwrap_err();
            let expected = if code == 4003 { 4014 } else { code };
            assert_eq!(smcp_code(send.kind()), expected, "{send}");
            computer.shutdown().await;
        }
    }
}

#[tokio::test]
async fn the_marks_are_those_of_the_protocol() {
    let hub = start(config()).await;
    let (url, _) =
        start_server(ServerBehaviour { calls: Some(403), ..ServerBehaviour::default() }).await;
    let computer = computer(&hub, "streamable", &url).await;
    settled(&computer).await;
    let raw = crate::common::peer(&hub).await;
    assert_eq!(raw.join("agent", "bot", "a").await[0], true);
    let answer = raw.call("pc", "moody__t", "r-1", 20).await;
    assert_eq!(answer["isError"], true);
    let meta = &answer["meta"];
    assert_eq!((&meta["error_code"], &meta["mcp_server"]), (&json!(4007), &json!("moody")));
    assert_eq!(meta["auth_hint"]["action"], "token_refresh_required");
    assert!(!answer.to_string().contains("secret"), "{answer}");
    computer.shutdown().await;
}

#[tokio::test]
async fn an_unreachable_server_is_4003_and_not_a_login_fault() {
    let hub = start(config()).await;
    let computer = computer(&hub, "streamable", "http://127.0.0.1:1/mcp").await;
    let agent = agent(&hub).await;
    settled(&computer).await;
    assert_eq!(smcp_code(called(&agent).await.unwrap_err().kind()), 4003);
    computer.shutdown().await;
}

#[tokio::test]
async fn a_server_on_the_net_cannot_have_folders_of_this_machine_read() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("SKILL.md"), "---\ndescription: d\n---\nmine").unwrap();
    let hub = start(config()).await;
    let mounted = Some(folder.path().to_owned());
    let (url, _) = start_server(ServerBehaviour { mounted, ..ServerBehaviour::default() }).await;
    let computer = computer(&hub, "streamable", &url).await;
    let agent = agent(&hub).await;
    settled(&computer).await;
    let send = |ask: RequestEvent, more: Value| {
        let agent = agent.clone();
        async move { within(agent.ask(ask, "pc", more.as_object().unwrap().clone())).await }
    };
    let listed = send(RequestEvent::GetResources, json!({ "mcp_server": "moody" })).await.unwrap();
    assert_eq!(listed["resources"][0]["uri"], "skill://moody/theirs", "it does say so");
    assert_eq!(send(RequestEvent::GetSkills, json!({})).await.unwrap()["skills"], json!([]));
    let named = json!({ "name": "mcp:moody:theirs" });
    assert_eq!(smcp_code(send(RequestEvent::GetSkill, named).await.unwrap_err().kind()), 4014);
    computer.shutdown().await;
}
