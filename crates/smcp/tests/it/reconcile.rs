//! What a rule finds out about an interrupted call of a computer's tool.
//!
//! Method: the tool `echo` of the computer answers with its arguments, so a rule chooses the answer that it reads.

use std::{collections::BTreeMap, sync::Arc};

use budao_core::{fault::Kind, retry::RetryPolicy, tool::ReconcileResult};
use budao_smcp::{
    MemberConfig,
    agent::{Agent, Config, RemoteTools},
};
use budao_tools::{CallContext, ReconcileRule, Toolbox, isolation};
use serde_json::{Value, json};

use crate::common::{Peer, RunningHub, config, peer, start, the_world, within};

/// A rule for calls of `flat`, whose question has these arguments.
fn rule(arguments: Value) -> ReconcileRule {
    let mut rule = json!({
        "ask": "echo",
        "about": { "/invoice": { "argument": "/n" } },
        "happened": { "at": "/state", "is": "paid" },
        "did_not_happen": { "at": "/state", "is": "none" },
        "result": "/receipt",
    });
    rule["arguments"] = arguments;
    serde_json::from_value(rule).unwrap()
}

/// The arguments of a question that is answered by themselves.
fn answer(state: &str) -> Value {
    json!({
        "state": { "value": state }, "invoice": { "argument": "/n" }, "receipt": "key",
    })
}

async fn tools_with(hub: &RunningHub, rule: ReconcileRule) -> RemoteTools {
    let settings = Config::new(MemberConfig {
        reconnect: RetryPolicy { tries: u32::MAX, ..RetryPolicy::default() },
        ..MemberConfig::new(&hub.url(), "a", "bot")
    });
    let agent = within(Agent::connect(settings, the_world())).await.unwrap();
    let rules = BTreeMap::from([("flat".to_owned(), rule)]);
    within(RemoteTools::open_with(agent, rules)).await.unwrap()
}

/// A hub with a computer, and the tools of its room under a rule.
async fn room(rule: ReconcileRule) -> (RunningHub, Peer, RemoteTools) {
    let hub = start(config()).await;
    let computer = peer(&hub).await;
    computer.join("computer", "pc", "a").await;
    let tools = tools_with(&hub, rule).await;
    (hub, computer, tools)
}

fn context() -> CallContext {
    CallContext { idempotency_key: Arc::from("session.call"), ..isolation::context() }
}

async fn ask(tools: &RemoteTools, arguments: Value) -> ReconcileResult {
    let toolbox = tools.offer(&Toolbox::builder().build()).unwrap();
    let context = context();
    let call = toolbox.check_value("pc__flat", arguments, &context.limits).unwrap();
    assert!(call.can_reconcile());
    within(call.reconcile(context)).await
}

#[tokio::test]
async fn the_same_computer_is_asked_and_its_answer_is_the_outcome() {
    let (_hub, mut computer, tools) = room(rule(answer("paid"))).await;
    let ReconcileResult::Happened(output) = ask(&tools, json!({ "n": 7 })).await else {
        panic!("the computer says that it was paid")
    };
    assert_eq!(output.data, json!("session.call"), "the receipt is the place `result`");
    let asked = computer.receive("client:tool_call").await;
    assert_eq!((&asked["tool_name"], &asked["computer"]), (&json!("echo"), &json!("pc")));
    assert_eq!(asked["params"]["invoice"], 7);
}

#[tokio::test]
async fn a_call_that_the_computer_does_not_know_did_not_happen() {
    let (_hub, _computer, tools) = room(rule(answer("none"))).await;
    assert_eq!(ask(&tools, json!({ "n": 7 })).await, ReconcileResult::DidNotHappen);
}

#[tokio::test]
async fn an_answer_that_fits_no_test_or_another_call_leaves_the_outcome_unknown() {
    let (hub, _computer, tools) = room(rule(answer("pending"))).await;
    assert_eq!(ask(&tools, json!({ "n": 7 })).await, ReconcileResult::CannotTell);
    drop(tools);
    let mut lie = answer("paid");
    lie["invoice"] = json!({ "value": 8 });
    let tools = tools_with(&hub, rule(lie)).await;
    assert_eq!(ask(&tools, json!({ "n": 7 })).await, ReconcileResult::CannotTell);
}

#[tokio::test]
async fn a_question_without_its_argument_is_not_asked() {
    let (_hub, mut computer, tools) = room(rule(answer("paid"))).await;
    assert_eq!(ask(&tools, json!({})).await, ReconcileResult::CannotTell);
    let heard = computer.received_so_far().await;
    assert!(heard.iter().all(|(event, _)| event != "client:tool_call"), "{heard:?}");
}

#[tokio::test]
async fn a_tool_without_a_rule_cannot_be_reconciled() {
    let (_hub, _computer, tools) = room(rule(answer("paid"))).await;
    let toolbox = tools.offer(&Toolbox::builder().build()).unwrap();
    let call = toolbox.check_value("pc__echo", json!({ "n": 7 }), &context().limits).unwrap();
    assert!(!call.can_reconcile());
}

#[tokio::test]
async fn a_disconnected_computer_fails_the_question_and_gives_no_verdict() {
    let (_hub, computer, tools) = room(rule(answer("none"))).await;
    let toolbox = tools.offer(&Toolbox::builder().build()).unwrap();
    let context = context();
    let call = toolbox.check_value("pc__flat", json!({ "n": 7 }), &context.limits).unwrap();
    let mut changes = tools.watch();
    computer.client.close();
    within(async {
        while !tools.tools().is_empty() {
            changes.changed().await.unwrap();
        }
    })
    .await;
    let ReconcileResult::Failed(fault) = within(call.reconcile(context)).await else {
        panic!("the question got no answer")
    };
    assert_eq!(fault.kind(), Kind::ComputerNotFound, "{fault}");
}
