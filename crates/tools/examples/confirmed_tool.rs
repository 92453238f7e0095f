//! A tool with side effects: a person confirms each call, and a guard watches over all of them.

use async_trait::async_trait;
use budao_core::{
    Lang,
    limits::Limits,
    message::ToolUse,
    tool::{Outcome, Permission, Permissions},
};
use budao_tools::{
    CallContext, CheckedCall, ToolError, Toolbox,
    hooks::{Hook, HookDecision, HookVerdict, Hooks},
    isolation, tool,
};

/// Pays an invoice. Money moves at once.
#[tool(confirm, deadline = "20s")]
async fn pay(
    /// Who gets it.
    to: String,
    /// How much, in cents.
    cents: u32,
    context: &CallContext,
) -> Result<String, ToolError> {
    if cents > 100_000 {
        return Err(
            ToolError::new("more than the account holds").advise_model("pay at most 1000.00")
        );
    }
    // The key is the same for every try of this call, so the bank can see a repetition.
    Ok(format!("paid {cents} to {to} ({})", context.idempotency_key))
}

/// Nobody pays on behalf of the boss by e-mail.
#[derive(Debug)]
struct NoBossFraud;

#[async_trait]
impl Hook for NoBossFraud {
    fn name(&self) -> &str {
        "no_boss_fraud"
    }

    async fn before(&self, call: &CheckedCall, _: &CallContext) -> HookVerdict {
        match call.arguments()["to"].as_str() {
            Some("the boss") => {
                HookVerdict::Deny("urgent payments to the boss are never urgent".into())
            }
            _ => HookVerdict::Pass,
        }
    }
}

/// What an engine does between check and run; a person who always says yes stands in for the question.
async fn perform(toolbox: &Toolbox, hooks: &Hooks, call: &ToolUse) -> Outcome {
    let context = isolation::context();
    let ready = match toolbox.check(call, &Limits::default()) {
        Ok(ready) => ready,
        Err(fault) => return fault.into(),
    };
    let ready = match hooks.before(ready, &context).await.0 {
        HookDecision::Pass(ready) | HookDecision::Allow(ready) => ready,
        HookDecision::Ask { call, .. } => call,
        HookDecision::Ended(outcome) => return *outcome,
    };
    let permit = Permissions::default().permit(ready.spec());
    assert!(matches!(permit, Permission::Ask(_)), "a tool with `confirm` is always asked about");
    ready.run(context).await
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example shows what it does")]
async fn main() -> Result<(), budao_core::Fault> {
    let toolbox = Toolbox::builder().add(pay)?.build();
    let hooks = Hooks::new().guard(NoBossFraud);
    for arguments in [
        r#"{"to": "the printer", "cents": 1999}"#,
        r#"{"to": "the printer", "cents": 1999999}"#,
        r#"{"to": "the boss", "cents": 5}"#,
        r#"{"to": "the printer", "cents": "1999"}"#,
    ] {
        let call = ToolUse { id: "call-1".into(), name: "pay".into(), arguments: arguments.into() };
        let outcome = perform(&toolbox, &hooks, &call).await;
        println!("{arguments}\n  {}\n", outcome.render_for_model(Lang::En).0);
    }
    Ok(())
}
