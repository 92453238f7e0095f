//! Against a server of others: the MCP project's own test server, over every transport it has.
//!
//! It is fetched by `cargo xtask peers mcp-everything`. Where it is missing these tests say so and pass; with
//! `CI=true` they fail.

use std::{process::Stdio as Pipe, time::Duration};

use budao_core::{
    elicitation::ElicitationAnswer,
    fault::{ErrorType, Kind},
    tool::Effect,
};
use budao_mcp::{McpServerConfig, ServerHandle, ServerSet};
use budao_testkit::port;
use budao_tools::{CallContext, Toolbox, isolation};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::{
    common::{
        call, call_with, connect, done, exists, failed, limits, names, peer, quick, variables,
        within, world,
    },
    questions::Person,
};

const ENTRY: &str = "node_modules/@modelcontextprotocol/server-everything/dist/index.js";

/// The server's program, if it was fetched.
fn fetched() -> Option<String> {
    peer("mcp-everything")?.join(ENTRY).to_str().map(str::to_owned)
}

fn over_stdio(entry: String) -> McpServerConfig {
    let mut config = McpServerConfig::stdio("everything", "node", [entry, "stdio".into()]);
    config.reconnect = quick();
    config
}

/// The server listening on a port of its own choice would be nicest; it takes one from `PORT`.
struct Listening {
    child: Child,
    port: u16,
}

async fn listening(entry: &str, kind: &str) -> Listening {
    loop {
        let port = port::free();
        let mut child = Command::new("node")
            .args([entry, kind])
            .env("PORT", port.to_string())
            .stdin(Pipe::null())
            .stdout(Pipe::null())
            .stderr(Pipe::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let ready = within(async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.contains("running on port") || line.contains("listening on port") {
                    return true;
                }
            }
            false
        })
        .await;
        // Read on, or it would stop at a full pipe one day.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        // Somebody else may have taken the port in between.
        if ready {
            return Listening { child, port };
        }
    }
}

/// What every transport must give.
async fn lists_and_calls(server: &ServerHandle) {
    let names = names(server);
    for tool in ["echo", "get-sum", "get-structured-content", "trigger-long-running-operation"] {
        assert!(names.contains(&format!("mcp__everything__{tool}")), "{tool} in {names:?}");
    }
    let echo = done(call(server, "echo", json!({ "message": "不倒" })).await);
    assert_eq!(echo, json!("Echo: 不倒"));
    let sum = done(call(server, "get-sum", json!({ "a": 2, "b": 40 })).await);
    assert!(sum.as_str().unwrap().contains("42"), "{sum}");
    let weather = json!({ "location": "Chicago" });
    let weather = done(call(server, "get-structured-content", weather).await);
    assert!(weather["temperature"].is_number(), "{weather}");
    let image = done(call(server, "get-tiny-image", json!({})).await);
    let blocks = image["content"].as_array().unwrap();
    assert!(blocks.iter().any(|block| block["type"] == "image"), "{image}");
}

/// A long operation is stopped long before its end, and the connection is as good as before.
async fn cancels(server: &ServerHandle) {
    let context = isolation::context();
    let cancel = context.cancel.clone();
    let long = json!({ "duration": 60, "steps": 600 });
    let long = call_with(server, "trigger-long-running-operation", long, context);
    let stop = async {
        done(call(server, "echo", json!({ "message": "x" })).await);
        cancel.cancel();
    };
    let began = std::time::Instant::now();
    let (outcome, ()) = tokio::join!(long, stop);
    assert_eq!(failed(outcome).fault.kind(), Kind::Cancelled);
    assert!(began.elapsed() < Duration::from_secs(20));
    lists_and_calls(server).await;
}

#[tokio::test]
async fn everything_over_stdio() {
    let Some(entry) = fetched() else { return };
    let server = connect(over_stdio(entry)).await;
    lists_and_calls(&server).await;
    cancels(&server).await;
    let id = server.process_id().unwrap();
    within(server.shutdown()).await;
    assert!(!exists(id));
}

#[tokio::test]
async fn everything_over_streamable_http() {
    let Some(entry) = fetched() else { return };
    let listening = listening(&entry, "streamableHttp").await;
    let url = format!("http://127.0.0.1:{}/mcp", listening.port);
    let server = connect(McpServerConfig::http("everything", url)).await;
    lists_and_calls(&server).await;
    cancels(&server).await;
    within(server.shutdown()).await;
}

#[tokio::test]
async fn everything_over_the_older_protocol() {
    let Some(entry) = fetched() else { return };
    let listening = listening(&entry, "sse").await;
    let url = format!("http://127.0.0.1:{}/sse", listening.port);
    let server = connect(McpServerConfig::sse("everything", url)).await;
    lists_and_calls(&server).await;
    cancels(&server).await;
    within(server.shutdown()).await;
}

#[tokio::test]
async fn an_error_of_the_server_fails_its_call_and_the_next_call_works() {
    let Some(entry) = fetched() else { return };
    let server = connect(over_stdio(entry)).await;
    // Fits the schema and not the server: the resource does not exist.
    let arguments = json!({ "resourceType": "Text", "resourceId": -1 });
    let failure = failed(call(&server, "get-resource-reference", arguments).await);
    assert_eq!(failure.fault.row().error_type, ErrorType::Logical, "{:?}", failure.fault);
    assert!(failure.data.is_some());
    assert_eq!(failure.fault.hops()[0].name, "everything");
    lists_and_calls(&server).await;
    within(server.shutdown()).await;
}

#[tokio::test]
async fn a_server_of_others_is_believed_about_its_tools() {
    let Some(entry) = fetched() else { return };
    let server = connect(over_stdio(entry)).await;
    let refused: Vec<String> = server.refused().iter().map(ToString::to_string).collect();
    assert!(refused.is_empty(), "{refused:?}");
    let tools = server.tools();
    let echo = tools.iter().find(|tool| &*tool.spec().name == "mcp__everything__echo").unwrap();
    assert_eq!((echo.spec().effect, echo.spec().idempotent), (Effect::Reads, true));
    assert!(!echo.spec().description.is_empty());
    within(server.shutdown()).await;
}

/// Goal: a server on the net that dies and comes back is found again, and a call in between fails soon.
#[tokio::test]
async fn a_server_on_the_net_that_dies_loses_its_tools_and_a_call_fails_at_once() {
    let Some(entry) = fetched() else { return };
    for kind in ["streamableHttp", "sse"] {
        let mut listening = listening(&entry, kind).await;
        let url = format!("http://127.0.0.1:{}", listening.port);
        let mut config = match kind {
            "sse" => McpServerConfig::sse("everything", format!("{url}/sse")),
            _ => McpServerConfig::http("everything", format!("{url}/mcp")),
        };
        config.reconnect = quick();
        let server = connect(config).await;
        let long = json!({ "duration": 60, "steps": 600 });
        let long = call(&server, "trigger-long-running-operation", long);
        let kill = async {
            done(call(&server, "echo", json!({ "message": "x" })).await);
            listening.child.kill().await.unwrap();
        };
        let began = std::time::Instant::now();
        let (outcome, ()) = tokio::join!(long, kill);
        let fault = failed(outcome).fault;
        assert!(
            matches!(fault.kind(), Kind::McpServerFailed | Kind::OutcomeUnknown),
            "{kind}: {fault}"
        );
        assert!(began.elapsed() < Duration::from_secs(20), "{kind}: {:?}", began.elapsed());
        within(server.watch().wait_for(|_| server.tools().is_empty())).await.unwrap();
        within(server.shutdown()).await;
    }
}

#[tokio::test]
async fn progress_of_a_server_of_others_is_shown() {
    let Some(entry) = fetched() else { return };
    let server = connect(over_stdio(entry)).await;
    let (notes, mut shown) = budao_tools::NoteSender::channel(64);
    let mut context = isolation::context();
    context.notes = notes;
    let arguments = json!({ "duration": 1, "steps": 4 });
    done(call_with(&server, "trigger-long-running-operation", arguments, context).await);
    assert!(within(shown.recv()).await.is_some());
    within(server.shutdown()).await;
}

#[tokio::test]
async fn the_death_of_an_idle_remote_server_is_noticed() {
    let Some(entry) = fetched() else { return };
    for kind in ["streamableHttp", "sse"] {
        let mut listening = listening(&entry, kind).await;
        let mut config = match kind {
            "sse" => McpServerConfig::sse(
                "everything",
                format!("http://127.0.0.1:{}/sse", listening.port),
            ),
            _ => McpServerConfig::http(
                "everything",
                format!("http://127.0.0.1:{}/mcp", listening.port),
            ),
        };
        config.reconnect = quick();
        config.timeouts.refresh = Some(Duration::from_millis(100));
        let server = connect(config).await;
        listening.child.kill().await.unwrap();
        within(server.watch().wait_for(|_| server.tools().is_empty())).await.unwrap();
        within(server.shutdown()).await;
    }
}

/// A question over HTTP belongs to the call in whose answer it arrives, however many calls run.
#[tokio::test]
async fn a_question_on_the_net_reaches_the_person_behind_its_own_call() {
    let Some(entry) = fetched() else { return };
    let listening = listening(&entry, "streamableHttp").await;
    let url = format!("http://127.0.0.1:{}/mcp", listening.port);
    let server = connect(McpServerConfig::http("everything", url)).await;
    let stranger = Person::new(ElicitationAnswer::Accepted(json!({ "name": "Eve" })));
    let other = CallContext { idempotency_key: "other".into(), ..stranger.context() };
    let cancel = other.cancel.clone();
    let long = json!({ "duration": 60, "steps": 600 });
    let long = call_with(&server, "trigger-long-running-operation", long, other);
    let ann = Person::new(ElicitationAnswer::Accepted(json!({ "name": "Ann" })));
    let asks = async {
        let own = CallContext { idempotency_key: "own".into(), ..ann.context() };
        let said = done(call_with(&server, "trigger-elicitation-request", json!({}), own).await);
        cancel.cancel();
        said
    };
    let (_, said) = tokio::join!(long, asks);
    assert!(said.to_string().contains("Ann"), "{said}");
    let asked = &ann.questions()[0];
    assert!(asked.fields.iter().any(|field| field.name == "name"), "{asked:?}");
    assert!(stranger.questions().is_empty());
    within(server.shutdown()).await;
}

#[tokio::test]
async fn a_prompt_of_a_server_of_others_is_listed_and_filled_in() {
    let Some(entry) = fetched() else { return };
    let set = ServerSet::open([over_stdio(entry)], &variables(), &world(), &limits()).unwrap();
    assert!(within(set.ready(&world(), Duration::from_secs(20))).await.is_empty());
    let toolbox = set.offer(&Toolbox::builder().build()).unwrap();
    let run = async |tool: &str, arguments| {
        let context = isolation::context();
        let checked = toolbox.check_value(tool, arguments, &context.limits).unwrap();
        within(checked.run(context)).await
    };
    let listed = done(run("mcp_list_prompts", json!({})).await);
    assert!(listed.to_string().contains("args-prompt"), "{listed}");
    let wanted = json!({
        "server": "everything", "name": "args-prompt", "arguments": { "city": "Ulm" },
    });
    let prompt = done(run("mcp_get_prompt", wanted).await);
    assert!(prompt["messages"].to_string().contains("Ulm"), "{prompt}");
    let missing = json!({ "server": "everything", "name": "none" });
    let fault = failed(run("mcp_get_prompt", missing).await).fault;
    assert_eq!(fault.hops()[0].name, "everything", "{fault}");
    within(set.shutdown()).await;
}
