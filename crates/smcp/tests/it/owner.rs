//! What whoever has the computer can do while it runs, and what is remembered for them; a server of others behind it.

use budao_smcp::codes::smcp_code;
use std::{sync::Arc, time::Duration};

use budao_core::{
    fault::{Fact, Kind},
    trace::Trace,
};
use budao_mcp::ServerState;
use budao_smcp::{
    agent::{Call, RoomEvent},
    computer::{Computer, Config, Confirmation, Confirmer, Question, Settings},
    wire::trace_of,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    common::{config, fetched, start, the_world, within},
    computer::{FixedValues, agent, call, computer, fake, member_config, person, settings, tools},
};

fn server(name: &str) -> Value {
    json!({
        "name": name, "type": "stdio", "default_tool_meta": { "auto_apply": true },
        "server_parameters": { "command": fake() },
    })
}

fn state(computer: &Computer, id: &str) -> Option<ServerState> {
    computer.states().into_iter().find(|(it, _)| it == id).map(|(_, state)| state)
}

/// Waits for a state that is so.
async fn until(computer: &Computer, id: &str, is_so: impl Fn(&ServerState) -> bool) {
    within(async {
        while !state(computer, id).as_ref().is_some_and(&is_so) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn servers_added_and_removed_at_run_time_are_announced_to_the_room() {
    let hub = start(config()).await;
    let computer = computer(&hub, person(0), settings(|_| {})).await;
    let agent = agent(&hub).await;
    tools(&agent).await;
    let mut events = agent.events();
    let changed = RoomEvent::ToolsChanged("pc".into());
    let mut rendered =
        async || within(async { while events.recv().await.as_ref() != Ok(&changed) {} }).await;

    assert_eq!(computer.add(&server("second"), &FixedValues).await.unwrap(), "second");
    rendered().await;
    until(&computer, "second", |state| matches!(state, ServerState::Ready { .. })).await;
    assert!(call(&agent, "second__echo", json!({ "text": "x" }), 10).await.is_ok());

    computer.stop_server("second").await.unwrap();
    rendered().await;
    assert_eq!(state(&computer, "second"), Some(ServerState::Stopped));
    let stopped = call(&agent, "second__echo", json!({ "text": "x" }), 10).await.unwrap_err();
    assert_eq!(smcp_code(stopped.kind()), 4003, "{stopped}");

    computer.start_server("second", &FixedValues).await.unwrap();
    until(&computer, "second", |state| matches!(state, ServerState::Ready { .. })).await;
    assert!(call(&agent, "second__echo", json!({ "text": "x" }), 10).await.is_ok());

    computer.remove("second").await.unwrap();
    let gone = call(&agent, "second__echo", json!({ "text": "x" }), 10).await.unwrap_err();
    assert_eq!(smcp_code(gone.kind()), 4001, "{gone}");
    for missing in [computer.remove("second").await, computer.stop_server("nobody").await] {
        assert_eq!(missing.unwrap_err().kind(), Kind::McpServerNotFound);
    }
    assert!(computer.add(&json!({ "name": "x" }), &FixedValues).await.is_err());
    assert!(computer.add(&json!("x"), &FixedValues).await.is_err());
    computer.shutdown().await;
}

#[tokio::test]
async fn a_server_that_is_added_again_takes_the_place_of_the_old_one() {
    let hub = start(config()).await;
    let computer = computer(&hub, person(0), settings(|_| {})).await;
    let agent = agent(&hub).await;
    computer.add(&server("second"), &FixedValues).await.unwrap();
    let mut other = server("second");
    other["tool_meta"] = json!({ "echo": { "alias": "again" } });
    computer.add(&other, &FixedValues).await.unwrap();
    until(&computer, "second", |state| matches!(state, ServerState::Ready { .. })).await;
    assert!(call(&agent, "second__again", json!({ "text": "x" }), 10).await.is_ok());
    assert_eq!(computer.states().len(), 3);
    computer.shutdown().await;
}

#[tokio::test]
async fn it_leaves_a_room_and_joins_another() {
    let hub = start(config()).await;
    let computer = computer(&hub, person(0), settings(|_| {})).await;
    let agent = agent(&hub).await;
    tools(&agent).await;
    computer.leave().await.unwrap();
    assert_eq!((agent.computers().await.unwrap(), computer.room()), (Vec::new(), None));
    computer.leave().await.unwrap();
    computer.join("elsewhere").await.unwrap();
    assert_eq!(computer.room().as_deref(), Some("elsewhere"));
    assert!(agent.computers().await.unwrap().is_empty());
    computer.join("a").await.unwrap();
    assert!(call(&agent, "my_tools__echo", json!({ "text": "x" }), 10).await.is_ok());
    let refused = computer.join("").await.unwrap_err();
    assert_eq!(smcp_code(refused.kind()), 400, "{refused}");
    assert_eq!(computer.room().as_deref(), Some("a"), "a refusal changes nothing");
    computer.shutdown().await;
}

#[tokio::test]
async fn calls_are_remembered_without_secrets_and_not_for_ever() {
    let hub = start(config()).await;
    let config = Config { history_max: 3, ..Config::new(member_config(&hub, "pc")) };
    let computer =
        within(Computer::start(config, settings(|_| {}), &FixedValues, the_world())).await.unwrap();
    let agent = agent(&hub).await;
    tools(&agent).await;
    for _ in 0..3 {
        call(&agent, "my_tools__echo", json!({ "text": "old" }), 10).await.unwrap();
    }
    let secret =
        json!({ "text": "hunter2-long-enough and sk-ant-api03-abcdefghijklmnopqrstuvwxyz" });
    call(&agent, "my_tools__echo", secret, 10).await.unwrap();
    call(&agent, "my_tools__no", json!({ "password": "p4ss" }), 10).await.unwrap_err();
    let history = computer.history();
    assert_eq!(history.len(), 3);
    let last = &history[2];
    assert_eq!(
        (last.server.as_str(), last.tool.as_str(), last.error),
        ("my_tools", "no", Some(4003))
    );
    let kept = format!("{history:?}");
    for secret in ["hunter2", "sk-ant", "p4ss"] {
        assert!(!kept.contains(secret), "{secret}: {kept}");
    }
    // Whoever has the computer calls without being asked.
    let own = computer.call("my_tools__env", json!({ "name": "NONE" }), Duration::from_secs(10));
    assert_eq!(own.await.unwrap()["content"][0]["text"], "(not set)");
    let none = computer.call("none", json!({}), Duration::from_secs(10)).await.unwrap_err();
    assert_eq!(smcp_code(none.kind()), 4001);
    computer.shutdown().await;
}

#[tokio::test]
async fn output_above_the_limit_does_not_leave_the_computer() {
    let hub = start(config()).await;
    let computer = computer(&hub, person(0), settings(|_| {})).await;
    let agent = agent(&hub).await;
    tools(&agent).await;
    let message = "postgres://admin:hunter2@10.0.0.7:5432/db refused hunter2-long-enough";
    let request = json!({ "code": -32603, "message": message });
    // Past no hub that could have helped.
    let failed =
        computer.call("my_tools__error", request, Duration::from_secs(10)).await.unwrap_err();
    assert_eq!(smcp_code(failed.kind()), 4003);
    let rendered = format!("{failed:?}");
    assert!(!rendered.contains("hunter2") && !rendered.contains("10.0.0.7"), "{rendered}");
    assert!(rendered.contains("refused"), "the reason is told: {rendered}");
    computer.shutdown().await;
}

/// Says no with words, or hangs.
#[derive(Debug)]
struct StrictConfirmer(Option<&'static str>);

#[async_trait::async_trait]
impl Confirmer for StrictConfirmer {
    async fn confirm(&self, _: &Question<'_>) -> Confirmation {
        match self.0 {
            Some(words) => Confirmation::No(Some(words.into())),
            None => std::future::pending().await,
        }
    }
}

#[tokio::test]
async fn a_refusal_comes_with_its_reason_and_a_question_that_hangs_ends_with_the_call() {
    let hub = start(config()).await;
    let agent = agent(&hub).await;
    for (words, code) in [(Some("not on a Sunday"), 4005), (None, 4004)] {
        let confirm = Arc::new(StrictConfirmer(words));
        let config = Config { confirm, ..Config::new(member_config(&hub, "pc")) };
        let computer = within(Computer::start(config, settings(|_| {}), &FixedValues, the_world()))
            .await
            .unwrap();
        tools(&agent).await;
        let refused = call(&agent, "my_tools__env", json!({ "name": "KEY" }), 1).await.unwrap_err();
        assert_eq!(smcp_code(refused.kind()), code, "{refused}");
        if let Some(words) = words {
            let reason = refused.detail().text(Fact::Reason).unwrap();
            assert!(reason.ends_with(words), "{reason}");
        }
        computer.shutdown().await;
        within(async {
            while !agent.computers().await.unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn the_trace_of_a_request_reaches_the_mcp_server() {
    let hub = start(config()).await;
    let computer = computer(&hub, person(0), settings(|_| {})).await;
    let agent = agent(&hub).await;
    tools(&agent).await;
    let seen = async |req_id: &str| -> Trace {
        let call = Call {
            computer: "pc".into(),
            tool: "my_tools__seen".into(),
            params: json!({}),
            timeout: Duration::from_secs(10),
            req_id: Some(req_id.to_owned()),
        };
        let answer = within(agent.call(call, &CancellationToken::new())).await.unwrap();
        let seen: Vec<Value> =
            serde_json::from_str(answer["content"][0]["text"].as_str().unwrap()).unwrap();
        let parent = seen.last().unwrap()["params"]["_meta"]["traceparent"].clone();
        Trace::from_traceparent(parent.as_str().unwrap()).unwrap()
    };
    assert_eq!(seen("r-1").await, trace_of("r-1"));
    let own = "0af7651916cd43dd8448eb211c80319c";
    assert_eq!(seen(own).await.to_string(), own);
    computer.shutdown().await;
}

/// The MCP project's own server behind our computer.
#[tokio::test]
async fn a_server_of_others_works_behind_our_computer() {
    let Some(folder) = fetched("mcp-everything") else { return };
    let entry = folder.join("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    let hub = start(config()).await;
    let file = json!({ "servers": [{
        "name": "everything", "type": "stdio", "default_tool_meta": { "auto_apply": true },
        "server_parameters": { "command": "node", "args": [entry, "stdio"] },
    }] });
    let settings = Settings::read(&file.to_string()).unwrap();
    let starting = Computer::start(
        Config::new(member_config(&hub, "pc")),
        settings,
        &FixedValues,
        the_world(),
    );
    let computer = within(starting).await.unwrap();
    let agent = agent(&hub).await;
    let names = tools(&agent).await;
    assert!(names.contains(&"everything__echo".to_owned()), "{names:?}");
    let echoed = call(&agent, "everything__echo", json!({ "message": "不倒" }), 20).await.unwrap();
    assert_eq!(echoed["content"][0]["text"], "Echo: 不倒");
    let image = call(&agent, "everything__get-tiny-image", json!({}), 20).await.unwrap();
    assert!(image["content"].as_array().unwrap().iter().any(|it| it["type"] == "image"));
    let wrong = call(&agent, "everything__get-sum", json!({ "a": "x" }), 20).await.unwrap_err();
    assert_eq!(smcp_code(wrong.kind()), 400, "{wrong}");
    let more = json!({ "mcp_server": "everything" }).as_object().unwrap().clone();
    let pending_answer =
        within(agent.ask(budao_smcp::wire::event::RequestEvent::GetResources, "pc", more));
    let resources = pending_answer.await.unwrap();
    assert!(!resources["resources"].as_array().unwrap().is_empty(), "{resources}");
    let long = json!({ "duration": 60, "steps": 60 });
    let late =
        call(&agent, "everything__trigger-long-running-operation", long, 1).await.unwrap_err();
    assert_eq!(smcp_code(late.kind()), 4004, "{late}");
    computer.shutdown().await;
}
