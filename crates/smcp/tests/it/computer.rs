//! Our computer with a scripted MCP server behind it, asked by our agent through our hub.

use budao_smcp::codes::smcp_code;
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use budao_core::fault::{Fact, Fault, Kind};
use budao_smcp::{
    MemberConfig,
    agent::{Agent, Call, Config as AgentConfig, RoomEvent},
    computer::{Computer, Config, Confirmation, Confirmer, Input, Question, Settings, ValueSource},
    wire::event::RequestEvent,
};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::common::{RunningHub, config, start, start_on, the_world, within};

/// The scripted server's program: an example, so it is built with the tests.
pub(crate) fn fake() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.push("examples/fake_mcp");
    assert!(path.exists(), "not built: cargo build -p budao-smcp --example fake_mcp");
    path
}

pub(crate) fn settings(change: impl FnOnce(&mut Value)) -> Settings {
    let mut file = json!({
        "inputs": [{ "type": "promptString", "id": "secret", "password": true }],
        "servers": [{
            "name": "my tools", "type": "stdio",
            "default_tool_meta": { "auto_apply": true },
            "forbidden_tools": ["add"],
            "tool_meta": { "picture": { "alias": "photo" }, "env": { "auto_apply": false } },
            "server_parameters": { "command": fake(), "args": [], "env": { "KEY": "${input:secret}" } },
        }, {
            "name": "off", "type": "stdio", "disabled": true,
            "server_parameters": { "command": "false" },
        }],
    });
    change(&mut file);
    Settings::read(&file.to_string()).unwrap()
}

#[derive(Debug)]
pub(crate) struct FixedValues;

#[async_trait]
impl ValueSource for FixedValues {
    fn variable(&self, name: &str) -> Option<String> {
        (name == "A2C_SMCP_secret").then(|| "hunter2-long-enough".to_owned())
    }

    async fn ask(&self, _: &Input) -> Option<String> {
        None
    }
}

/// 0 is nobody there, 1 is no, 2 is yes.
#[derive(Debug)]
pub(crate) struct ScriptedConfirmer(AtomicU8);

#[async_trait]
impl Confirmer for ScriptedConfirmer {
    async fn confirm(&self, question: &Question<'_>) -> Confirmation {
        assert_eq!((question.bundle_id, question.tool), ("my_tools", "env"));
        match self.0.load(Ordering::SeqCst) {
            0 => Confirmation::Unanswered("nobody is there".into()),
            1 => Confirmation::No(None),
            _ => Confirmation::Yes,
        }
    }
}

pub(crate) fn member_config(hub: &RunningHub, name: &str) -> MemberConfig {
    let mut member = MemberConfig::new(&hub.url(), "a", name);
    let base = Duration::from_millis(5);
    (member.reconnect.base, member.reconnect.max) = (base, base * 8);
    member
}

pub(crate) async fn computer(
    hub: &RunningHub,
    confirm: Arc<ScriptedConfirmer>,
    settings: Settings,
) -> Computer {
    let config = Config { confirm, ..Config::new(member_config(hub, "pc")) };
    within(Computer::start(config, settings, &FixedValues, the_world())).await.unwrap()
}

/// A computer with the scripted server, wherever it is to go, and nobody to ask.
pub(crate) async fn start_computer(member: MemberConfig) -> Computer {
    let starting =
        Computer::start(Config::new(member), settings(|_| {}), &FixedValues, the_world());
    within(starting).await.unwrap()
}

pub(crate) async fn agent(hub: &RunningHub) -> Agent {
    within(Agent::connect(AgentConfig::new(member_config(hub, "bot")), the_world())).await.unwrap()
}

/// Waits until the computer's server has told its tools.
pub(crate) async fn tools(agent: &Agent) -> Vec<String> {
    within(async {
        loop {
            let tools = agent.tools("pc").await.unwrap();
            if !tools.is_empty() {
                return tools.into_iter().map(|tool| tool.name).collect();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

pub(crate) async fn call(
    agent: &Agent,
    tool: &str,
    params: Value,
    seconds: u64,
) -> Result<Value, Fault> {
    let call = Call {
        computer: "pc".into(),
        tool: tool.into(),
        params,
        timeout: Duration::from_secs(seconds),
        req_id: None,
    };
    within(agent.call(call, &CancellationToken::new())).await
}

pub(crate) fn person(answer: u8) -> Arc<ScriptedConfirmer> {
    Arc::new(ScriptedConfirmer(AtomicU8::new(answer)))
}

#[tokio::test]
async fn tools_are_listed_under_their_names_and_called_by_them() {
    let hub = start(config()).await;
    let computer = computer(&hub, person(0), settings(|_| {})).await;
    let agent = agent(&hub).await;
    let names = tools(&agent).await;
    assert!(names.contains(&"my_tools__echo".into()) && names.contains(&"my_tools__photo".into()));
    assert!(!names.iter().any(|name| name.ends_with("__add") || name.ends_with("__picture")));
    let echoed = call(&agent, "my_tools__echo", json!({ "text": "你好" }), 10).await.unwrap();
    assert_eq!(
        echoed,
        json!({ "content": [{ "type": "text", "text": "你好" }], "isError": false })
    );
    let photo = call(&agent, "my_tools__photo", json!({}), 10).await.unwrap();
    assert_eq!(photo["content"][0]["type"], "image");
    computer.shutdown().await;
}

/// Arguments that do not fit: the caller learns the place, what fits, what it sent, and a call that would fit.
pub(crate) async fn assert_mismatches_arrive(agent: &Agent) {
    let wrong = call(agent, "my_tools__echo", json!({ "text": 5 }), 20).await.unwrap_err();
    assert_eq!(wrong.kind(), Kind::InvalidArguments, "{wrong}");
    let [mismatch] = wrong.mismatches() else { panic!("{wrong:?}") };
    assert_eq!((mismatch.pointer.as_str(), &*mismatch.rule), ("/text", "type"));
    assert!(mismatch.expected.contains("string"), "{mismatch:?}");
    assert_eq!(mismatch.received.as_deref(), Some("5"));
    let example = wrong.detail().get(Fact::Example).expect("an example");
    assert!(example.to_string().contains("text"), "{example}");
    let none = call(agent, "my_tools__echo", json!({}), 20).await.unwrap_err();
    assert_eq!(none.mismatches()[0].rule, "required", "{none:?}");
}

#[tokio::test]
async fn mismatches_of_the_arguments_reach_the_caller_through_our_hub() {
    let hub = start(config()).await;
    let computer = computer(&hub, person(0), settings(|_| {})).await;
    let agent = agent(&hub).await;
    tools(&agent).await;
    assert_mismatches_arrive(&agent).await;
    computer.shutdown().await;
}

#[tokio::test]
async fn every_failure_has_its_code() {
    let hub = start(config()).await;
    let computer = computer(&hub, person(0), settings(|_| {})).await;
    let agent = agent(&hub).await;
    tools(&agent).await;
    for (tool, params, kind, code) in [
        ("my_tools__none", json!({}), Kind::UnknownTool, 4001),
        ("echo", json!({}), Kind::UnknownTool, 4001),
        ("my_tools__add", json!({}), Kind::ToolDisabled, 4002),
        ("off__anything", json!({}), Kind::ToolDisabled, 4002),
        ("my_tools__no", json!({}), Kind::ToolSaidNo, 4003),
        ("my_tools__echo", json!({ "text": 5 }), Kind::InvalidArguments, 400),
        ("my_tools__env", json!({ "name": "KEY" }), Kind::NeedsConfirmation, 4005),
    ] {
        let fault = call(&agent, tool, params, 10).await.unwrap_err();
        assert_eq!((fault.kind(), smcp_code(fault.kind())), (kind, code), "{tool}: {fault}");
        assert_eq!(fault.detail().text(Fact::ToolName), Some(tool), "{fault}");
        let roles: Vec<&str> = fault.hops().iter().map(|hop| &*hop.role).collect();
        assert!(roles.ends_with(&["computer", "agent"]), "{roles:?}");
    }
    let near = call(&agent, "echo", json!({}), 10).await.unwrap_err();
    let nearest = near.detail().get(Fact::Nearest).map(ToString::to_string).unwrap_or_default();
    assert!(nearest.contains("my_tools__echo"), "{near}: {nearest}");
    let no = call(&agent, "my_tools__no", json!({}), 10).await.unwrap_err();
    assert_eq!(no.detail().text(Fact::Reason), Some("the city is not on the map"));
    assert_eq!(&*no.hops()[0].role, "mcp_server");
    computer.shutdown().await;
}

#[tokio::test]
async fn a_call_is_ended_at_its_deadline_and_when_it_is_cancelled() {
    let hub = start(config()).await;
    let computer = computer(&hub, person(0), settings(|_| {})).await;
    let agent = agent(&hub).await;
    tools(&agent).await;
    let began = Instant::now();
    let late = call(&agent, "my_tools__slow", json!({}), 1).await.unwrap_err();
    assert_eq!((late.kind(), smcp_code(late.kind())), (Kind::DeadlinePassed, 4004), "{late}");
    assert!(began.elapsed() < Duration::from_secs(20));
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let asking = agent.clone();
    let slow = tokio::spawn(async move {
        let call = Call {
            computer: "pc".into(),
            tool: "my_tools__slow".into(),
            params: json!({}),
            timeout: Duration::from_secs(60),
            req_id: None,
        };
        asking.call(call, &stop).await
    });
    within(async {
        while hub.hub.stats().calls_under_way == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    cancel.cancel();
    let fault = within(slow).await.unwrap().unwrap_err();
    assert_eq!(fault.kind(), Kind::Cancelled);
    // The MCP server was told, each time.
    let seen = call(&agent, "my_tools__seen", json!({}), 10).await.unwrap();
    let seen = seen["content"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!(seen.matches("notifications/cancelled").count(), 2, "{seen}");
    computer.shutdown().await;
}

#[tokio::test]
async fn a_refusal_is_a_refusal_and_a_yes_is_a_yes() {
    let hub = start(config()).await;
    let person = person(1);
    let computer = computer(&hub, person.clone(), settings(|_| {})).await;
    let agent = agent(&hub).await;
    tools(&agent).await;
    let no = call(&agent, "my_tools__env", json!({ "name": "KEY" }), 10).await.unwrap_err();
    assert_eq!((no.kind(), smcp_code(no.kind())), (Kind::NeedsConfirmation, 4005));
    person.0.store(2, Ordering::SeqCst);
    let yes = call(&agent, "my_tools__env", json!({ "name": "KEY" }), 10).await.unwrap();
    assert_eq!(yes["content"][0]["text"], "hunter2-long-enough", "the input was filled in");
    computer.shutdown().await;
}

#[tokio::test]
async fn missing_features_are_answered_in_the_terms_of_the_protocol() {
    let hub = start(config()).await;
    let computer = computer(&hub, person(0), settings(|_| {})).await;
    let agent = agent(&hub).await;
    let ask = |ask: RequestEvent, more: Value| {
        let more: Map<String, Value> = more.as_object().unwrap().clone();
        let agent = agent.clone();
        async move { within(agent.ask(ask, "pc", more)).await }
    };
    let shown = ask(RequestEvent::GetConfig, json!({})).await.unwrap();
    let env = &shown["servers"]["my_tools"]["server_parameters"]["env"]["KEY"];
    assert_eq!(env, "${input:secret}", "a placeholder stays one");
    assert!(!shown.to_string().contains("hunter2"));
    assert_eq!(ask(RequestEvent::GetDesktop, json!({})).await.unwrap()["desktops"], json!([]));
    assert_eq!(ask(RequestEvent::GetSkills, json!({})).await.unwrap()["skills"], json!([]));
    for (question, more, code) in [
        (RequestEvent::GetResources, json!({ "mcp_server": "my_tools" }), 4015),
        (RequestEvent::GetResources, json!({ "mcp_server": "off" }), 4014),
        (RequestEvent::GetDesktop, json!({ "desktop_size": "all" }), 400),
        (RequestEvent::GetResources, json!({ "mcp_server": "nobody" }), 4014),
        (RequestEvent::GetResources, json!({}), 400),
        (RequestEvent::GetSkill, json!({ "name": "Not Kebab" }), 4016),
        (RequestEvent::GetSkill, json!({ "name": "a:b:c:d" }), 4016),
        (RequestEvent::GetSkill, json!({ "name": "not-here" }), 4014),
        (RequestEvent::GetBlob, json!({ "blob_handle": "h" }), 4018),
        (RequestEvent::GetBlob, json!({ "blob_handle": 5 }), 400),
        (RequestEvent::GetBlob, json!({ "blob_handle": "h", "chunk_offset": -1 }), 400),
        (RequestEvent::GetBlob, json!({ "blob_handle": "h", "max_chunk_bytes": 0 }), 400),
        (RequestEvent::PutBlob, json!({ "chunk_offset": 0, "eof": true, "blob": "" }), 4019),
    ] {
        let fault = ask(question, more).await.unwrap_err();
        assert_eq!(smcp_code(fault.kind()), code, "{question:?} {fault}");
    }
    computer.shutdown().await;
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_is_4003_and_comes_back() {
    let hub = start(config()).await;
    let computer = computer(&hub, person(0), settings(|_| {})).await;
    let agent = agent(&hub).await;
    tools(&agent).await;
    let mut events = agent.events();
    let died = call(&agent, "my_tools__die", json!({}), 10).await.unwrap_err();
    assert_eq!(smcp_code(died.kind()), 4003, "{died}");
    let changed = RoomEvent::ToolsChanged("pc".into());
    within(async { while events.recv().await.as_ref() != Ok(&changed) {} }).await;
    tools(&agent).await;
    assert!(call(&agent, "my_tools__echo", json!({ "text": "back" }), 10).await.is_ok());
    computer.shutdown().await;
}

#[tokio::test]
async fn after_a_restart_of_the_hub_the_computer_is_back_in_its_room() {
    let hub = start(config()).await;
    let port = hub.port;
    let computer = computer(&hub, person(0), settings(|_| {})).await;
    hub.stop().await;
    let hub = start_on(config(), port).await;
    let agent = agent(&hub).await;
    within(async {
        while agent.computers().await.unwrap() != ["pc"] {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert!(call(&agent, "my_tools__echo", json!({ "text": "back" }), 10).await.is_ok());
    computer.shutdown().await;
    within(async {
        while !agent.computers().await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_unknown_input_fails_its_server_and_no_other() {
    let hub = start(config()).await;
    let settings = settings(|file| {
        let broken = json!({
            "name": "broken", "type": "stdio",
            "server_parameters": { "command": "x", "args": ["${input:unknown}"] },
        });
        file["servers"].as_array_mut().unwrap().push(broken);
    });
    let computer = computer(&hub, person(0), settings).await;
    let agent = agent(&hub).await;
    tools(&agent).await;
    let fault = call(&agent, "broken__tool", json!({}), 10).await.unwrap_err();
    assert_eq!((fault.kind(), smcp_code(fault.kind())), (Kind::McpServerFailed, 4003));
    assert_eq!(computer.states().len(), 3);
    computer.shutdown().await;
}
