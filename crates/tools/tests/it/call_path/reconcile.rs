//! Finding out what became of an interrupted call.

use std::{collections::BTreeMap, time::Duration};

use budao_core::{
    fault::{Fault, Kind, Operation},
    limits::Limits,
    tool::{Failure, ReconcileResult},
};
use budao_tools::{
    CallContext, RawTool, ReconcileRule, Reconciliation, RuleValue, ToolError, ToolOptions,
    Toolbox, isolation, tool,
};
use serde_json::{Value, json};

use crate::call_path::support::{any, quick, quietly};

/// Pays a claim.
#[tool(reconcile = find_payment)]
async fn pay(
    /// The claim.
    claim: u32,
    /// In cents.
    amount: u32,
) -> Result<Value, ToolError> {
    Ok(json!({ "claim": claim, "amount": amount }))
}

async fn find_payment(
    claim: u32,
    amount: u32,
    context: &CallContext,
) -> Result<Reconciliation, ToolError> {
    match claim {
        1 => Ok(Reconciliation::happened(
            json!({"amount": amount, "key": &*context.idempotency_key}),
        )),
        2 => Ok(Reconciliation::DidNotHappen),
        3 => Ok(Reconciliation::CannotTell),
        _ => Err(ToolError::from(Fault::new(Kind::NetworkUnavailable, Operation::ToolCall))),
    }
}

/// Does something nobody can check.
#[tool]
async fn blind() {}

async fn ask(toolbox: &Toolbox, name: &str, arguments: Value, limits: Limits) -> ReconcileResult {
    let context = CallContext { limits: limits.clone().into(), ..isolation::context() };
    let call = toolbox.check_value(name, arguments, &limits).expect("it fits");
    call.reconcile(context).await
}

fn toolbox() -> Toolbox {
    let builder = Toolbox::builder().add(pay).and_then(|builder| builder.add(blind));
    builder.expect("both register").build()
}

#[tokio::test]
async fn a_reconcile_function_gets_arguments_and_key_and_returns_the_outcome() {
    let toolbox = toolbox();
    let of =
        |claim: u32| ask(&toolbox, "pay", json!({"claim": claim, "amount": 5}), Limits::default());
    let ReconcileResult::Happened(output) = of(1).await else { panic!("it happened") };
    assert_eq!(output.data["amount"], 5);
    assert!(output.data["key"].as_str().is_some_and(|key| !key.is_empty()), "{output:?}");
    assert_eq!(of(2).await, ReconcileResult::DidNotHappen);
    assert_eq!(of(3).await, ReconcileResult::CannotTell);
    let ReconcileResult::Failed(fault) = of(4).await else { panic!("it failed") };
    assert!(fault.may_auto_retry(), "{fault:?}");
}

/// A call that happened is not reported as one without a result because JSON has no word for its number.
#[test]
fn a_result_that_json_cannot_express_has_a_fault_of_its_own() {
    let of = |mean: f64| Reconciliation::happened(BTreeMap::from([("mean", mean)]));
    let reason = "its result has NaN at /mean, which JSON cannot express";
    assert_eq!(of(f64::NAN), Reconciliation::Happened(reason.into()));
    assert_eq!(of(1.5), Reconciliation::Happened(json!({ "mean": 1.5 })));
    let unnamed = Reconciliation::happened(BTreeMap::from([(vec![1], 2)]));
    let reason = "its result cannot be written as JSON";
    assert_eq!(unnamed, Reconciliation::Happened(reason.into()));
}

#[tokio::test]
async fn a_tool_without_a_reconcile_function_leaves_the_call_in_doubt() {
    let toolbox = toolbox();
    let check = |name: &str, arguments| {
        toolbox.check_value(name, arguments, &Limits::default()).unwrap().can_reconcile()
    };
    assert!(check("pay", json!({"claim": 1, "amount": 1})) && !check("blind", json!({})));
    let answer = ask(&toolbox, "blind", json!({}), Limits::default()).await;
    assert_eq!(answer, ReconcileResult::CannotTell);
}

fn odd(find: fn(Value) -> Result<Reconciliation, Failure>) -> RawTool {
    any("odd", |_, _| async { Ok(Value::Null) })
        .reconcile(move |arguments, _| async move { find(arguments) })
}

#[tokio::test]
async fn a_reconcile_function_that_panics_hangs_or_returns_too_much_leaves_the_call_in_doubt() {
    quietly();
    let build = |tool: RawTool| Toolbox::builder().add(tool).unwrap().build();
    let panics = build(odd(|_| panic!("at 10.1.2.3")));
    let ReconcileResult::Failed(fault) = ask(&panics, "odd", json!({}), Limits::default()).await
    else {
        panic!("a panic is a failure")
    };
    assert_eq!(fault.kind(), Kind::ToolPanicked);
    assert!(!fault.may_auto_retry(), "it would panic again");

    let hangs = any("odd", |_, _| async { Ok(Value::Null) }).reconcile(|_, _| async {
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        Ok(Reconciliation::DidNotHappen)
    });
    let ReconcileResult::Failed(fault) = ask(&build(hangs), "odd", json!({}), quick()).await else {
        panic!("a hang is a failure")
    };
    assert_eq!(fault.kind(), Kind::RequestTimedOut);

    let talks = build(odd(|_| Ok(Reconciliation::happened("x".repeat(10_000_000)))));
    let ReconcileResult::Happened(output) = ask(&talks, "odd", json!({}), Limits::default()).await
    else {
        panic!("it happened")
    };
    assert!(output.cut.is_some() && output.data.to_string().len() < 1_000_000);
}

#[tokio::test]
async fn a_call_that_its_deadline_cut_off_may_have_happened_unless_its_tool_knows_better() {
    let hangs = || {
        any("odd", |_, _| async {
            tokio::time::sleep(Duration::from_secs(3_600)).await;
            Ok(Value::Null)
        })
    };
    let fails_when_stopped = |happened: bool| {
        any("odd", move |_, context: CallContext| async move {
            context.cancel.cancelled().await;
            let error = ToolError::new("stopped");
            let error = if happened { error } else { error.did_not_happen() };
            Err(error.into_failure("odd"))
        })
    };
    let patient = || Limits { kill_grace: Duration::from_secs(60), ..quick() };
    let cases = [
        (hangs(), quick(), true),
        (fails_when_stopped(true), patient(), true),
        (fails_when_stopped(false), patient(), false),
        (hangs().options(ToolOptions::default().idempotent(true)), quick(), false),
        (hangs().options(ToolOptions::read_only()), quick(), false),
    ];
    for (number, (tool, limits, expected)) in cases.into_iter().enumerate() {
        let toolbox = Toolbox::builder().add(tool).unwrap().build();
        let call = toolbox.check_value("odd", json!({}), &quick()).unwrap();
        let outcome = call.run(isolation::context_with(limits)).await;
        assert_eq!(outcome.fault().unwrap().kind(), Kind::DeadlinePassed, "{number}");
        assert_eq!(outcome.is_in_doubt(), expected, "{number}");
    }
}

/// A rule for a tool `pay {invoice}` that asks by invoice and key.
fn rule() -> ReconcileRule {
    serde_json::from_value(json!({
        "ask": "find",
        "arguments": {"invoice": {"argument": "/invoice"}, "key": "key", "limit": {"value": 1}},
        "about": {"/invoice": {"argument": "/invoice"}},
        "happened": {"at": "/state", "is": "paid"},
        "did_not_happen": {"at": "/state", "is": "none"},
        "result": "/receipt",
    }))
    .expect("a rule")
}

#[test]
fn a_rule_maps_arguments_and_reads_answers() {
    let (rule, context, call) = (rule(), isolation::context(), json!({"invoice": 7}));
    assert_eq!(rule.problem(), None);
    let question = rule.question(&call, &context).unwrap();
    let expected = json!({"invoice": 7, "key": &*context.idempotency_key, "limit": 1});
    assert_eq!(Value::Object(question), expected);
    assert_eq!(rule.question(&json!({}), &context), None, "the call has no such argument");
    let read = |answer: Value| rule.read(answer, &call, &context);
    let paid = json!({"invoice": 7, "state": "paid", "receipt": "R7"});
    assert_eq!(read(paid.clone()), Reconciliation::happened("R7"));
    assert_eq!(read(paid.to_string().into()), Reconciliation::happened("R7"), "JSON as text");
    assert_eq!(read(json!({"state": "none"})), Reconciliation::DidNotHappen);
    let unclear = [
        json!({"invoice": 8, "state": "paid", "receipt": "R8"}), // another call
        json!({"invoice": 8, "state": "none"}),                  // another call
        json!({"state": "paid", "receipt": "R?"}),               // which call?
        json!({"invoice": 7, "state": "pending"}),
        json!("no idea"),
        json!(null),
    ];
    for answer in unclear {
        assert_eq!(read(answer.clone()), Reconciliation::CannotTell, "{answer}");
    }
}

#[test]
fn a_rule_tests_for_something_or_nothing_and_what_cannot_work_is_named() {
    let by_presence = ReconcileRule {
        happened: serde_json::from_value(json!({"at": "/payment"})).unwrap(),
        did_not_happen: serde_json::from_value(json!({"at": "/payment", "empty": true})).unwrap(),
        about: Default::default(),
        result: String::new(),
        ..rule()
    };
    let (context, call) = (isolation::context(), json!({"invoice": 7}));
    let found = json!({"payment": {"id": 1}});
    let read = |answer: Value| by_presence.read(answer, &call, &context);
    assert_eq!(read(found.clone()), Reconciliation::Happened(found));
    for nothing in [json!({}), json!({"payment": null}), json!({"payment": []})] {
        assert_eq!(read(nothing), Reconciliation::DidNotHappen);
    }
    let problem = |change: fn(&mut ReconcileRule)| {
        let mut rule = rule();
        change(&mut rule);
        rule.problem().map(|(setting, _)| setting)
    };
    assert_eq!(problem(|rule| rule.ask.clear()).as_deref(), Some("ask"));
    assert_eq!(problem(|rule| rule.result = "receipt".into()).as_deref(), Some("result"));
    assert_eq!(problem(|rule| rule.happened.empty = true).as_deref(), Some("happened"));
    assert_eq!(problem(|rule| rule.happened.at = "x".into()).as_deref(), Some("happened.at"));
    let wrong = |rule: &mut ReconcileRule| {
        rule.arguments.insert("a".into(), RuleValue::Argument("b".into()));
    };
    assert_eq!(problem(wrong).as_deref(), Some("arguments.a"));
}
