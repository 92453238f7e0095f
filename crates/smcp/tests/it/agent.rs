//! Our agent: what it asks, what it is told, and that it comes back.

use budao_smcp::codes::smcp_code;
use std::time::Duration;

use budao_core::{
    fault::{Fact, Kind},
    retry::RetryPolicy,
    tool::{Outcome, ToolOrigin},
};
use budao_smcp::{
    MemberConfig,
    agent::{Agent, Call, Config, RemoteTools, RoomEvent},
    server::{self, Access, Token},
    wire::{Dialect, Role, trace_of},
};
use budao_tools::{Toolbox, isolation};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::common::{RunningHub, config, peer, start, start_on, the_world, within};

fn settings(hub: &RunningHub) -> Config {
    let base = Duration::from_millis(5);
    let reconnect = RetryPolicy { tries: u32::MAX, base, max: base * 8, ..RetryPolicy::default() };
    Config::new(MemberConfig { reconnect, ..MemberConfig::new(&hub.url(), "a", "bot") })
}

async fn agent(hub: &RunningHub) -> Agent {
    within(Agent::connect(settings(hub), the_world())).await.unwrap()
}

fn call(tool: &str, timeout: u64) -> Call {
    Call {
        computer: "pc".into(),
        tool: tool.into(),
        params: json!({ "n": 1 }),
        timeout: Duration::from_secs(timeout),
        req_id: Some(format!("id-of-{tool}")),
    }
}

#[tokio::test]
async fn answers_are_answers_and_errors_are_faults_with_their_codes() {
    let hub = start(config()).await;
    let (agent, computer) = (agent(&hub).await, peer(&hub).await);
    computer.join("computer", "pc", "a").await;
    let cancel = CancellationToken::new();
    let echoed = within(agent.call(call("echo", 5), &cancel)).await.unwrap();
    assert_eq!(echoed["content"][0]["text"], r#"{"n":1}"#);
    for (tool, kind, code) in [
        ("flat", Kind::UnknownTool, 4001),
        ("null", Kind::PeerFailed, 500),
        ("huge", Kind::OutputTooLarge, 4003),
        ("leak", Kind::ToolSaidNo, 4003),
    ] {
        let fault = within(agent.call(call(tool, 5), &cancel)).await.unwrap_err();
        assert_eq!((fault.kind(), smcp_code(fault.kind())), (kind, code), "{tool}: {fault}");
        assert_eq!(fault.trace(), trace_of(&format!("id-of-{tool}")));
        assert_eq!(&*fault.hops().last().unwrap().role, "agent");
        assert!(!fault.to_string().contains("hunter2"), "{fault}");
    }
    let nobody = Call { computer: "nobody".into(), ..call("echo", 5) };
    let fault = within(agent.call(nobody, &cancel)).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::ComputerNotFound);
    assert_eq!(fault.detail().text(Fact::Computer), Some("nobody"));
    assert_eq!(&*fault.hops()[0].role, "server");
}

#[tokio::test]
async fn a_call_past_its_deadline_is_cancelled_at_its_computer() {
    let hub = start(config()).await;
    let config = Config { grace: Duration::from_secs(600), ..settings(&hub) };
    let agent = within(Agent::connect(config, the_world())).await.unwrap();
    let mut computer = peer(&hub).await;
    computer.join("computer", "pc", "a").await;
    let fault = within(agent.call(call("slow", 1), &CancellationToken::new())).await.unwrap_err();
    assert_eq!((fault.kind(), smcp_code(fault.kind())), (Kind::DeadlinePassed, 4004), "{fault}");
    // `within` ends long before the agent's grace: the hub's answer to the cancellation came.
    let received = computer.receive("notify:tool_call_cancel").await;
    assert_eq!(received, json!({ "agent": "bot", "req_id": "id-of-slow" }));
    assert_eq!(hub.hub.stats().calls_under_way, 0);
}

#[tokio::test]
async fn a_cancelled_call_is_cancelled_at_its_computer() {
    let hub = start(config()).await;
    let (agent, mut computer) = (agent(&hub).await, peer(&hub).await);
    computer.join("computer", "pc", "a").await;
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let calling = tokio::spawn(async move { agent.call(call("slow", 50), &stop).await });
    computer.receive("client:tool_call").await;
    cancel.cancel();
    let fault = within(calling).await.unwrap().unwrap_err();
    assert_eq!(fault.kind(), Kind::Cancelled);
    computer.receive("notify:tool_call_cancel").await;
}

#[tokio::test]
async fn refusals_have_their_reason() {
    let access = Access::Tokens(vec![Token::shared("right")]);
    let hub = start(server::Config { access, ..config() }).await;
    let refused =
        |config: Config| async { within(Agent::connect(config, the_world())).await.unwrap_err() };
    let with = |change: &dyn Fn(&mut MemberConfig)| {
        let mut config = settings(&hub);
        change(&mut config.member);
        config
    };
    let show = |member: &mut MemberConfig| member.token = Some("right".to_owned().into());
    assert_eq!(refused(settings(&hub)).await.kind(), Kind::NotAuthenticated);
    let _first = within(Agent::connect(with(&show), the_world())).await.unwrap();
    let second = with(&|member| {
        show(member);
        member.name = "second".into();
    });
    assert_eq!(refused(second).await.kind(), Kind::RoomFull);
    let bad_name = with(&|member| {
        show(member);
        (member.room, member.name) = ("b".into(), String::new());
    });
    assert_eq!(refused(bad_name).await.kind(), Kind::BadRequest);
    let old = with(&|member| member.dialect = Dialect::V02);
    assert_eq!(refused(old).await.kind(), Kind::PeerFailed, "without a version there is no way in");
    let nowhere = with(&|member| member.url = "http://127.0.0.1:1".into());
    assert_eq!(refused(nowhere).await.kind(), Kind::ConnectionRefused);
}

#[tokio::test]
async fn the_first_draft_is_understood_as_well() {
    let hub = start(server::Config { dialect: Dialect::V02, ..config() }).await;
    let mut config = settings(&hub);
    config.member.dialect = Dialect::V02;
    let agent = within(Agent::connect(config, the_world())).await.unwrap();
    let fault = within(agent.call(call("echo", 5), &CancellationToken::new())).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::ComputerNotFound);
}

#[tokio::test]
async fn after_a_restart_of_the_hub_the_agent_is_back_in_its_room() {
    let hub = start(config()).await;
    let port = hub.port;
    let agent = agent(&hub).await;
    let mut events = agent.events();
    hub.stop().await;
    within(async { while !matches!(events.recv().await, Ok(RoomEvent::Disconnected(_))) {} }).await;
    // Asked while nobody is there: waits, and is answered when somebody is.
    let asking = tokio::spawn({
        let agent = agent.clone();
        async move { agent.members().await }
    });
    let hub = start_on(config(), port).await;
    within(async { while events.recv().await != Ok(RoomEvent::Joined) {} }).await;
    let members = within(asking).await.unwrap().unwrap();
    assert_eq!((members.len(), members[0].role), (1, Role::Agent));
    assert_eq!(hub.hub.stats().rooms, 1);
}

/// A computer that says its tools.
async fn computer_with_tools(hub: &RunningHub, name: &str) -> crate::common::Peer {
    let computer = peer(hub).await;
    computer.join("computer", name, "a").await;
    computer
}

#[tokio::test]
async fn tools_come_and_go_with_their_computers_and_are_called_like_any_other() {
    let hub = start(config()).await;
    let agent = agent(&hub).await;
    let tools = within(RemoteTools::open(agent)).await.unwrap();
    assert!(tools.tools().is_empty());
    let mut changes = tools.watch();
    let computer = computer_with_tools(&hub, "pc").await;
    let names = |tools: &RemoteTools| -> Vec<String> {
        tools.tools().iter().map(|tool| tool.spec().name.to_string()).collect()
    };
    within(async {
        while tools.tools().is_empty() {
            changes.changed().await.unwrap();
        }
    })
    .await;
    assert_eq!(names(&tools), ["pc__echo", "pc__flat"]);
    let toolbox = tools.offer(&Toolbox::builder().build()).unwrap();
    let spec = toolbox.specs().iter().find(|spec| &*spec.name == "pc__echo").unwrap().clone();
    assert_eq!(spec.source, ToolOrigin::Computer { computer: "pc".into() });
    let context = isolation::context();
    let run = |name: &'static str, arguments: Value| {
        let ready = toolbox.check_value(name, arguments, &context.limits);
        let context = context.clone();
        async move { within(ready.unwrap().run(context)).await }
    };
    let done = run("pc__echo", json!({ "n": 3 })).await;
    assert!(matches!(&done, Outcome::Done(_)), "{done:?}");
    let failed = run("pc__flat", json!({})).await;
    assert_eq!(failed.fault().unwrap().kind(), Kind::UnknownTool);
    let wrong = toolbox.check_value("pc__echo", json!({ "n": "three" }), &context.limits);
    assert_eq!(wrong.unwrap_err().kind(), Kind::InvalidArguments, "checked before it is sent");
    computer.client.close();
    within(async {
        while !tools.tools().is_empty() {
            changes.changed().await.unwrap();
        }
    })
    .await;
}
