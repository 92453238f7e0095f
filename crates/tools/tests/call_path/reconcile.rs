//! Finding out what became of an interrupted call.

use std::time::Duration;

use budao_core::{
    fault::{Fault, Kind, Operation},
    limits::Limits,
    tool::{Failure, ReconcileResult},
};
use budao_tools::{CallContext, RawTool, Reconciliation, ToolError, Toolbox, isolation, tool};
use serde_json::{Value, json};

use crate::support::{any, quick, quietly};

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
async fn a_second_function_gets_arguments_and_key_and_says_what_became_of_the_call() {
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

#[tokio::test]
async fn a_tool_without_such_a_function_cannot_tell() {
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
async fn a_function_that_panics_hangs_or_says_too_much_harms_nothing() {
    quietly();
    let build = |tool: RawTool| Toolbox::builder().add(tool).unwrap().build();
    let panics = build(odd(|_| panic!("at 10.1.2.3")));
    let ReconcileResult::Failed(fault) = ask(&panics, "odd", json!({}), quick()).await else {
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
