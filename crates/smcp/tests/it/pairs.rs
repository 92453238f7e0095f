//! Every agent with every computer through our hub: ours, Python's and Rust's. And ours through their hubs.
//!
//! A run takes a share: each kit as agent and as computer once, beside ours. `cargo xtask test --only pairs` takes all nine.

use std::time::{Duration, Instant};

use budao_smcp::{
    MemberConfig,
    agent::{Agent as Ours, Call, Config as AgentConfig},
    computer::{Computer as OurComputer, Config as ComputerConfig, Settings},
    server::{Access, Config, Token},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    common::{RunningHub, config, start, the_world, within},
    peers::{Agent, Computer, Kit, RUST_TIMEOUT, script},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Implementation {
    Us,
    Python,
    Rust,
}

fn kit(by: Implementation) -> Option<Kit> {
    match by {
        Implementation::Us => None,
        Implementation::Python => Kit::python(),
        Implementation::Rust => Kit::rust(),
    }
}

fn member_config(url: &str, name: &str) -> MemberConfig {
    let mut member = MemberConfig::new(url, "a", name);
    member.token = Some("right".to_owned().into());
    member
}

enum AnyAgent {
    Ours(Ours),
    Theirs(Implementation, Box<Agent>),
}

enum AnyComputer {
    Ours(OurComputer),
    Theirs(Box<Computer>),
}

/// Our computer with Python's tools behind it, the same as behind the others.
async fn our_computer(url: &str) -> OurComputer {
    let Some(Kit::Python(python)) = Kit::python() else { panic!("it was there a moment ago") };
    let settings = json!({ "servers": [{
        "name": "tools", "type": "stdio", "default_tool_meta": { "auto_apply": true },
        "server_parameters": { "command": python.join("bin/python"), "args": [script("tools.py")] },
    }] });
    let settings = Settings::read(&settings.to_string()).unwrap();
    let config = ComputerConfig::new(member_config(url, "pc"));
    let starting = OurComputer::start(config, settings, &crate::computer::FixedValues, the_world());
    within(starting).await.unwrap()
}

impl AnyComputer {
    async fn start(by: Implementation, url: &str) -> Self {
        match kit(by) {
            None => Self::Ours(our_computer(url).await),
            Some(kit) => Self::Theirs(Box::new(Computer::start(&kit, url, "pc").await)),
        }
    }

    /// Leaves the room.
    async fn leave(&mut self) {
        match self {
            Self::Ours(computer) => computer.shutdown().await,
            Self::Theirs(computer) => {
                computer.send("leave").await;
                computer.says("left").await;
            }
        }
    }

    /// And is there again.
    async fn join(&mut self, url: &str) {
        match self {
            Self::Ours(computer) => *computer = our_computer(url).await,
            Self::Theirs(computer) => {
                computer.send("join").await;
                computer.says("joined").await;
            }
        }
    }
}

impl AnyAgent {
    async fn start(by: Implementation, url: &str) -> Self {
        match kit(by) {
            None => {
                let connecting =
                    Ours::connect(AgentConfig::new(member_config(url, "bot")), the_world());
                Self::Ours(within(connecting).await.unwrap())
            }
            Some(kit) => Self::Theirs(by, Box::new(Agent::start(&kit, url).await)),
        }
    }

    async fn tools(&mut self) -> Vec<String> {
        match self {
            Self::Ours(agent) => {
                let tools = agent.tools("pc").await.unwrap_or_default();
                tools.into_iter().map(|tool| tool.name).collect()
            }
            Self::Theirs(_, agent) => {
                let pending_answer = agent.begin(json!({ "do": "tools", "computer": "pc" })).await;
                let answer = within(pending_answer).await.unwrap();
                serde_json::from_value(answer["ok"].clone()).unwrap_or_default()
            }
        }
    }

    async fn members(&mut self) -> String {
        match self {
            Self::Ours(agent) => format!("{:?}", agent.members().await.unwrap()),
            Self::Theirs(_, agent) => agent.ask(json!({ "do": "list" })).await.to_string(),
        }
    }

    /// The words of an answer, or of a failure.
    async fn call(&mut self, tool: &str, params: Value, timeout: u64) -> Result<String, String> {
        match self {
            Self::Ours(agent) => {
                let call = Call {
                    computer: "pc".into(),
                    tool: tool.into(),
                    params,
                    timeout: Duration::from_secs(timeout),
                    req_id: None,
                };
                let called = agent.call(call, &CancellationToken::new()).await;
                called.map(|answer| answer.to_string()).map_err(|fault| format!("{fault:?}"))
            }
            Self::Theirs(_, agent) => match agent.tried(tool, params, timeout).await {
                Ok(answer) if answer["isError"] == true => Err(answer.to_string()),
                other => other.map(|answer| answer.to_string()),
            },
        }
    }
}

async fn hub() -> RunningHub {
    let access = Access::Tokens(vec![Token::shared("right")]);
    start(Config { access, ..config() }).await
}

async fn listed(agent: &mut AnyAgent) {
    let expected = ["tools__echo", "tools__fail", "tools__slow"];
    within(async {
        loop {
            let mut tools = agent.tools().await;
            tools.sort();
            if tools == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
}

/// Join, list, call, error, timeout, cancel, leave, and back again.
async fn a_whole_life(agent_by: Implementation, computer_by: Implementation) {
    let needs = [Implementation::Python, agent_by, computer_by];
    if needs.into_iter().any(|by| by != Implementation::Us && kit(by).is_none()) {
        return;
    }
    let who = format!("{agent_by:?} with {computer_by:?}");
    let hub = hub().await;
    let url = hub.url();
    let mut computer = AnyComputer::start(computer_by, &url).await;
    let mut agent = AnyAgent::start(agent_by, &url).await;

    // Under our hub both are in the room before either is told so.
    listed(&mut agent).await;
    let members = agent.members().await;
    assert!(members.contains("pc"), "{who}: {members}");

    let echoed = agent.call("tools__echo", json!({ "text": "你好" }), 20).await;
    assert!(echoed.as_ref().is_ok_and(|echoed| echoed.contains("你好")), "{who}: {echoed:?}");
    let failed = agent.call("tools__fail", json!({}), 20).await.unwrap_err();
    assert!(!failed.contains("hunter2"), "{who}: {failed}");
    agent.call("tools__none", json!({}), 10).await.unwrap_err();

    // A call that takes too long ends at its time, and whoever gives it up says so to the computer.
    let timeout = if agent_by == Implementation::Rust { RUST_TIMEOUT } else { 1 };
    let began = Instant::now();
    let late = agent.call("tools__slow", json!({ "seconds": 50 }), timeout).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(40), "{who}: {late}");
    within(async {
        while hub.hub.stats().calls_under_way > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    cancel(&mut agent, &hub, &who).await;

    computer.leave().await;
    let gone = agent.call("tools__echo", json!({ "text": "x" }), 5).await.unwrap_err();
    assert!(
        gone.contains("404") || gone.contains("Computer") || gone.contains("pc"),
        "{who}: {gone}"
    );
    computer.join(&url).await;
    listed(&mut agent).await;
    let again = agent.call("tools__echo", json!({ "text": "again" }), 20).await;
    assert!(again.as_ref().is_ok_and(|echoed| echoed.contains("again")), "{who}: {again:?}");
    if let AnyComputer::Ours(computer) = computer {
        computer.shutdown().await;
    }
}

/// A cancel ends the call it is for.
async fn cancel(agent: &mut AnyAgent, hub: &RunningHub, who: &str) {
    match agent {
        AnyAgent::Ours(agent) => {
            let call = Call {
                computer: "pc".into(),
                tool: "tools__slow".into(),
                params: json!({ "seconds": 50 }),
                timeout: Duration::from_secs(50),
                req_id: None,
            };
            let stop = CancellationToken::new();
            let (stopping, stats) = (stop.clone(), hub.hub.clone());
            tokio::spawn(async move {
                while stats.stats().calls_under_way == 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                stopping.cancel();
            });
            let fault = within(agent.call(call, &stop)).await.unwrap_err();
            assert_eq!(fault.kind(), budao_core::fault::Kind::Cancelled, "{who}: {fault}");
        }
        AnyAgent::Theirs(Implementation::Python, agent) => {
            let request = json!({
                "agent": "bot", "req_id": "slow-2", "computer": "pc", "tool_name": "tools__slow",
                "params": { "seconds": 50 }, "timeout": 50,
            });
            let raw =
                json!({ "do": "raw", "event": "client:tool_call", "data": request, "timeout": 50 });
            let slow = agent.begin(raw).await;
            within(async {
                while hub.hub.stats().calls_under_way == 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
            .await;
            let cancel = json!({ "agent": "bot", "req_id": "slow-2" });
            agent
                .ask(json!({ "do": "emit", "event": "server:tool_call_cancel", "data": cancel }))
                .await;
            let cancelled = within(slow).await.unwrap();
            assert_eq!(cancelled["ok"]["meta"]["a2c_cancelled"], true, "{who}: {cancelled}");
        }
        // The crate keeps the ids of its calls to itself, and cancels by itself when it gives one up.
        AnyAgent::Theirs(..) => {
            within(async {
                while hub.hub.stats().cancels.passed_on + hub.hub.stats().cancels.unknown == 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
            .await;
        }
    }
}

#[tokio::test]
async fn the_rust_agent_calls_our_computer() {
    a_whole_life(Implementation::Rust, Implementation::Us).await;
}

#[tokio::test]
async fn our_agent_calls_the_rust_computer() {
    a_whole_life(Implementation::Us, Implementation::Rust).await;
}

#[tokio::test]
async fn every_agent_implementation_works_with_every_computer_implementation() {
    if std::env::var_os("BUDAO_FULL").is_none() {
        eprintln!("all nine pairs: `cargo xtask test --only pairs`");
        return;
    }
    for agent in [Implementation::Us, Implementation::Python, Implementation::Rust] {
        for computer in [Implementation::Us, Implementation::Python, Implementation::Rust] {
            let began = Instant::now();
            a_whole_life(agent, computer).await;
            eprintln!("{agent:?} with {computer:?}: {:?}", began.elapsed());
        }
    }
}

#[tokio::test]
async fn our_agent_and_computer_meet_in_the_rust_hub() {
    let Some(rust) = Kit::rust() else { return };
    let (_hub, url) = rust.hub().await;
    let computer = our_computer(&url).await;
    let mut agent = AnyAgent::start(Implementation::Us, &url).await;
    listed(&mut agent).await;
    let echoed = agent.call("tools__echo", json!({ "text": "hi" }), 20).await.unwrap();
    assert!(echoed.contains("hi"), "{echoed}");
    let unknown = agent.call("tools__none", json!({}), 20).await.unwrap_err();
    assert!(unknown.contains("UnknownTool"), "{unknown}");
    let late = agent.call("tools__slow", json!({ "seconds": 50 }), 1).await.unwrap_err();
    assert!(late.contains("DeadlinePassed") || late.contains("Cancelled"), "{late}");
    computer.shutdown().await;
}
