//! The reference package in Python as agent and as computer, with our hub between them.

use budao_smcp::codes::smcp_code;
use std::time::{Duration, Instant};

use budao_smcp::server::{Access, Config, Token};
use serde_json::json;

use crate::{
    common::{RunningHub, config, start, within},
    peers::{Agent, Computer, Kit},
};

pub(crate) async fn hub() -> RunningHub {
    let access = Access::Tokens(vec![Token::shared("right")]);
    start(Config { access, ..config() }).await
}

#[tokio::test]
async fn the_reference_agent_and_computer_work_through_our_hub() {
    let Some(python) = Kit::python() else { return };
    let hub = hub().await;
    let mut agent = Agent::start(&python, &hub.url()).await;
    let mut computer = Computer::start(&python, &hub.url(), "pc").await;

    // Join and list.
    let tools = agent.ask(json!({ "do": "tools", "computer": "pc" })).await;
    assert_eq!(tools, json!(["tools__echo", "tools__fail", "tools__slow"]));
    let members = agent.ask(json!({ "do": "list" })).await;
    assert_eq!(members[0]["name"], "pc", "{members}");

    // Call, and the error of a tool: scrubbed on its way.
    let answer = agent.call("tools__echo", json!({ "text": "你好" }), 20).await;
    assert_eq!(answer["isError"], false, "{answer}");
    assert_eq!(answer["content"][0]["text"], "你好");
    let failed = agent.call("tools__fail", json!({}), 20).await;
    assert_eq!(failed["isError"], true);
    assert!(!failed.to_string().contains("hunter2"), "{failed}");

    // An unknown computer, told in words the agent understands; and an unknown tool.
    let nobody =
        json!({ "do": "call", "computer": "nobody", "tool": "t", "params": {}, "timeout": 5 });
    let nobody = agent.ask(nobody).await;
    assert_eq!(nobody["isError"], true);
    assert!(nobody.to_string().contains("nobody"), "{nobody}");
    assert_eq!(agent.call("tools__none", json!({}), 10).await["isError"], true);

    // A timeout: the computer's own answer comes, because the hub waits longer than it.
    let raw = json!({
        "agent": "bot", "req_id": "slow-1", "computer": "pc", "tool_name": "tools__slow",
        "params": { "seconds": 30 }, "timeout": 1,
    });
    let late = agent
        .ask(json!({ "do": "raw", "event": "client:tool_call", "data": raw, "timeout": 20 }))
        .await;
    assert_eq!(late["meta"]["a2c_timeout"], true, "{late}");

    // A cancel: the original call is answered.
    let raw = json!({
        "agent": "bot", "req_id": "slow-2", "computer": "pc", "tool_name": "tools__slow",
        "params": { "seconds": 30 }, "timeout": 40,
    });
    let began = Instant::now();
    let slow = agent
        .begin(json!({ "do": "raw", "event": "client:tool_call", "data": raw, "timeout": 40 }))
        .await;
    within(async {
        while hub.hub.stats().calls_under_way == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let cancel = json!({ "agent": "bot", "req_id": "slow-2" });
    agent.ask(json!({ "do": "emit", "event": "server:tool_call_cancel", "data": cancel })).await;
    let cancelled = within(slow).await.unwrap();
    assert_eq!(cancelled["ok"]["meta"]["a2c_cancelled"], true, "{cancelled}");
    assert!(began.elapsed() < Duration::from_secs(25));

    // Leaving and coming back, heard by the agent.
    computer.send("leave").await;
    computer.says("left").await;
    let gone = agent.call("tools__echo", json!({ "text": "x" }), 5).await;
    assert_eq!(gone["isError"], true);
    computer.send("join").await;
    computer.says("joined").await;
    let again = agent.call("tools__echo", json!({ "text": "again" }), 20).await;
    assert_eq!(again["content"][0]["text"], "again", "{again}");
    let received = agent.ask(json!({ "do": "heard" })).await;
    let names: Vec<&str> =
        received.as_array().unwrap().iter().map(|e| e[0].as_str().unwrap()).collect();
    assert!(
        names.contains(&"enter") && names.contains(&"leave") && names.contains(&"tools"),
        "{received}"
    );

    // A computer that is killed is gone at once.
    let raw = json!({
        "agent": "bot", "req_id": "slow-3", "computer": "pc", "tool_name": "tools__slow",
        "params": { "seconds": 30 }, "timeout": 40,
    });
    let slow = agent
        .begin(json!({ "do": "raw", "event": "client:tool_call", "data": raw, "timeout": 40 }))
        .await;
    within(async {
        while hub.hub.stats().calls_under_way == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    computer.child.start_kill().unwrap();
    let gone = within(slow).await.unwrap();
    assert_eq!(gone["ok"]["code"], 404, "{gone}");
}

#[tokio::test]
async fn the_reference_agent_gets_the_refusals() {
    let Some(python) = Kit::python() else { return };
    let hub = hub().await;
    // Without a computer, and with the room's agent being somebody else.
    let first = {
        let dial = hub.dial().auth(json!({ "token": "right" }));
        let (client, _events) =
            budao_socketio::Client::connect(dial, crate::common::the_world()).await.unwrap();
        let request = json!({ "role": "agent", "name": "first", "office_id": "a" });
        let joined = client.call(
            "server:join_office",
            budao_socketio::Payload::of(request),
            Duration::from_secs(10),
        );
        assert_eq!(within(joined).await.unwrap().first(), true);
        client
    };
    let mut agent = Agent::start(&python, &hub.url()).await;
    let call = json!({ "do": "call", "computer": "pc", "tool": "t", "params": {}, "timeout": 5 });
    let refused = agent.ask(call).await;
    // Its library knows neither 4103 nor 403 as an error of the protocol: it reads the result beside it.
    assert_eq!(refused["isError"], true);
    assert_eq!(
        refused["meta"]["error_code"].as_u64().or(refused["_meta"]["error_code"].as_u64()),
        Some(4103),
        "{refused}"
    );
    first.close();
}

#[tokio::test]
async fn the_reference_agent_calls_our_computer() {
    let Some(python) = Kit::python() else { return };
    let hub = hub().await;
    let computer = crate::computer::start_computer(right(&hub.url(), "pc")).await;
    let mut agent = Agent::start(&python, &hub.url()).await;
    let tools = within(async {
        loop {
            let tools = agent.ask(json!({ "do": "tools", "computer": "pc" })).await;
            if tools != json!([]) {
                return tools;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(tools.as_array().unwrap().contains(&json!("my_tools__echo")), "{tools}");
    let answer = agent.call("my_tools__echo", json!({ "text": "你好" }), 20).await;
    assert_eq!(
        (&answer["isError"], &answer["content"][0]["text"]),
        (&json!(false), &json!("你好"))
    );
    for (tool, code) in [
        ("my_tools__none", 4001),
        ("my_tools__add", 4002),
        ("my_tools__no", 4003),
        ("my_tools__env", 4005),
    ] {
        let failed = agent.call(tool, json!({ "name": "KEY" }), 20).await;
        assert_eq!(failed["isError"], true, "{failed}");
        let meta = failed.get("_meta").filter(|meta| !meta.is_null()).unwrap_or(&failed["meta"]);
        assert_eq!(meta["error_code"], code, "{failed}");
    }
    // The model behind their agent reads the result's text, and finds the whole correction in it.
    let wrong = agent.call("my_tools__echo", json!({ "text": 5 }), 20).await;
    let rendered: serde_json::Value =
        serde_json::from_str(wrong["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(rendered["mismatches"][0]["pointer"], "/text", "{rendered}");
    assert_eq!(rendered["mismatches"][0]["received"], "5", "{rendered}");
    assert!(rendered["example"]["text"].is_string(), "{rendered}");
    computer.shutdown().await;
}

pub(crate) fn right(url: &str, name: &str) -> budao_smcp::MemberConfig {
    let mut member = budao_smcp::MemberConfig::new(url, "a", name);
    member.token = Some("right".to_owned().into());
    member
}

async fn our_agent(url: &str) -> budao_smcp::agent::Agent {
    let config = budao_smcp::agent::Config::new(right(url, "bot"));
    let connecting = budao_smcp::agent::Agent::connect(config, crate::common::the_world());
    within(connecting).await.unwrap()
}

#[tokio::test]
async fn our_agent_calls_the_reference_computer() {
    let Some(python) = Kit::python() else { return };
    let hub = hub().await;
    let agent = our_agent(&hub.url()).await;
    let _computer = Computer::start(&python, &hub.url(), "pc").await;
    let tools = within(agent.tools("pc")).await.unwrap();
    assert_eq!(tools.len(), 3, "{tools:?}");
    let echoed = crate::computer::call(&agent, "tools__echo", json!({ "text": "hi" }), 20).await;
    assert_eq!(echoed.unwrap()["content"][0]["text"], "hi");
    let failed = crate::computer::call(&agent, "tools__fail", json!({}), 20).await.unwrap_err();
    assert_eq!(smcp_code(failed.kind()), 4003, "{failed}");
    assert!(!failed.to_string().contains("hunter2"), "{failed}");
    let late = crate::computer::call(&agent, "tools__slow", json!({ "seconds": 30 }), 1).await;
    assert_eq!(smcp_code(late.unwrap_err().kind()), 4004);
}

#[tokio::test]
async fn our_agent_and_computer_meet_in_the_reference_hub() {
    let Some(python) = Kit::python() else { return };
    let (_hub, url) = python.hub().await;
    let computer = crate::computer::start_computer(right(&url, "pc")).await;
    let agent = our_agent(&url).await;
    let tools = crate::computer::tools(&agent).await;
    assert!(tools.contains(&"my_tools__echo".to_owned()), "{tools:?}");
    let echoed = crate::computer::call(&agent, "my_tools__echo", json!({ "text": "hi" }), 20).await;
    assert_eq!(echoed.unwrap()["content"][0]["text"], "hi");
    // A tool's own failure passes their hub with its code.
    let unknown = crate::computer::call(&agent, "my_tools__none", json!({}), 20).await.unwrap_err();
    assert_eq!(smcp_code(unknown.kind()), 4001, "{unknown}");
    let late = crate::computer::call(&agent, "my_tools__slow", json!({}), 1).await.unwrap_err();
    assert_eq!(smcp_code(late.kind()), 4004, "{late}");
    crate::computer::assert_mismatches_arrive(&agent).await;
    computer.shutdown().await;
}
