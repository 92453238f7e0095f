//! Hooks and guards: they decide before a call and comment after it, and their own failures stay theirs.

use std::time::Duration;

use async_trait::async_trait;
use budao_core::{fault::Kind, limits::Limits, tool::Outcome};
use budao_tools::{
    CallContext, CheckedCall,
    hooks::{Hook, HookDecision, HookVerdict, Hooks},
    isolation,
};
use serde_json::json;

use crate::call_path::support::{any, call, done, of, quick, quietly, ready, search, toolbox};

/// Says one thing before and one thing after.
#[derive(Debug)]
struct Says(HookVerdict, Option<&'static str>);

#[async_trait]
impl Hook for Says {
    fn name(&self) -> &str {
        "says"
    }

    async fn before(&self, _: &CheckedCall, _: &CallContext) -> HookVerdict {
        self.0.clone()
    }

    async fn after(&self, _: &CheckedCall, _: &Outcome, _: &CallContext) -> Option<String> {
        self.1.map(str::to_owned)
    }
}

#[derive(Debug, Clone, Copy)]
enum Breaks {
    Panics,
    Hangs,
    Blocks,
}

#[async_trait]
impl Hook for Breaks {
    fn name(&self) -> &str {
        "breaks"
    }

    async fn before(&self, _: &CheckedCall, _: &CallContext) -> HookVerdict {
        self.fall().await;
        HookVerdict::Pass
    }

    async fn after(&self, _: &CheckedCall, _: &Outcome, _: &CallContext) -> Option<String> {
        self.fall().await;
        None
    }
}

impl Breaks {
    async fn fall(self) {
        match self {
            Self::Panics => panic!("broken"),
            Self::Hangs => std::future::pending().await,
            Self::Blocks => std::thread::sleep(Duration::from_millis(1_500)),
        }
    }
}

fn a_call() -> CheckedCall {
    toolbox().check(&call("search", r#"{"query": "x"}"#), &quick()).unwrap()
}

async fn decide(hooks: &Hooks) -> (HookDecision, Vec<budao_core::Fault>) {
    hooks.before(a_call(), &isolation::context_with(quick())).await
}

fn ended(decision: HookDecision) -> Outcome {
    match decision {
        HookDecision::Ended(outcome) => *outcome,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn each_verdict_has_its_effect() {
    let one = |verdict| Hooks::new().hook(Says(verdict, None));
    assert!(matches!(decide(&one(HookVerdict::Pass)).await.0, HookDecision::Pass(_)));
    assert!(matches!(decide(&one(HookVerdict::Allow)).await.0, HookDecision::Allow(_)));
    let (asked, _) = decide(&one(HookVerdict::Ask("costs money".into()))).await;
    assert!(matches!(asked, HookDecision::Ask { reason, .. } if reason == "costs money"));
    let denied = ended(decide(&one(HookVerdict::Deny("not on Sundays".into()))).await.0);
    assert_eq!(denied.fault().unwrap().kind(), Kind::DeniedByHook);
    let supplied = ended(decide(&one(HookVerdict::Supply(json!({ "hits": 0 })))).await.0);
    assert_eq!(done(supplied).data, json!({ "hits": 0 }));
    let no =
        ended(decide(&one(HookVerdict::Supply(json!({ "ok": false, "error": "no" })))).await.0);
    assert_eq!(no.fault().unwrap().kind(), Kind::ToolSaidNo);
}

#[tokio::test]
async fn replaced_arguments_are_checked_again_and_shown_to_the_next() {
    let fits = Hooks::new()
        .hook(Says(HookVerdict::Replace(json!({ "query": "y" })), None))
        .hook(Says(HookVerdict::Allow, None));
    let HookDecision::Allow(call) = decide(&fits).await.0 else { panic!("not allowed") };
    assert_eq!(call.arguments()["query"], "y");
    let wrong = Hooks::new().hook(Says(HookVerdict::Replace(json!({ "query": 7 })), None));
    let outcome = ended(decide(&wrong).await.0);
    assert_eq!(outcome.fault().unwrap().kind(), Kind::InvalidArguments);
}

#[tokio::test]
async fn the_first_decision_is_final() {
    let hooks = Hooks::new()
        .hook(Says(HookVerdict::Pass, None))
        .hook(Says(HookVerdict::Deny("first".into()), None))
        .hook(Says(HookVerdict::Supply(json!(1)), None));
    let outcome = ended(decide(&hooks).await.0);
    assert_eq!(outcome.fault().unwrap().kind(), Kind::DeniedByHook);
    // An allowance is not the last word: a later guard may still deny.
    let hooks = Hooks::new()
        .hook(Says(HookVerdict::Allow, None))
        .guard(Says(HookVerdict::Deny("no".into()), None));
    assert!(matches!(decide(&hooks).await.0, HookDecision::Ended(_)));
}

#[tokio::test]
async fn a_hook_that_fails_is_reported_and_the_flow_goes_on() {
    quietly();
    for breaks in [Breaks::Panics, Breaks::Hangs, Breaks::Blocks] {
        let hooks = Hooks::new().hook(breaks);
        let (decision, faults) = decide(&hooks).await;
        assert!(matches!(decision, HookDecision::Pass(_)), "{breaks:?}");
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].kind(), Kind::HookFailed);
    }
}

#[tokio::test]
async fn a_guard_that_fails_denies_the_call() {
    quietly();
    for breaks in [Breaks::Panics, Breaks::Hangs, Breaks::Blocks] {
        let hooks = Hooks::new().guard(breaks);
        let outcome = ended(decide(&hooks).await.0);
        assert_eq!(outcome.fault().unwrap().kind(), Kind::GuardFailed, "{breaks:?}");
    }
}

#[tokio::test]
async fn no_hook_changes_a_finished_outcome() {
    quietly();
    let toolbox = of(any("works", |_, _| async { Ok(json!({ "written": 3 })) }));
    let limits = Limits { tool_deadline: Duration::from_secs(60), ..quick() };
    let context = isolation::context_with(limits);
    let call = ready(&toolbox, "works");
    let outcome = call.clone().run(context.clone()).await;
    let hooks = Hooks::new()
        .hook(Breaks::Panics)
        .guard(Breaks::Hangs)
        .hook(Says(HookVerdict::Pass, Some("seen by the auditor")));
    let (rendered, faults) = hooks.after(&call, outcome, &context).await;
    let output = done(rendered);
    assert_eq!(output.data, json!({ "written": 3 }));
    assert_eq!(output.note.as_deref(), Some("seen by the auditor"));
    assert_eq!(faults.len(), 2);
    let failed = Outcome::from(budao_core::Fault::new(
        Kind::ToolFailed,
        budao_core::fault::Operation::ToolCall,
    ));
    let (rendered, _) = hooks.after(&call, failed, &context).await;
    assert_eq!(rendered.fault().unwrap().kind(), Kind::ToolFailed);
}

/// Cancels the context it is given.
#[derive(Debug)]
struct Cancels;

#[async_trait]
impl Hook for Cancels {
    fn name(&self) -> &str {
        "cancels"
    }

    async fn before(&self, _: &CheckedCall, context: &CallContext) -> HookVerdict {
        context.cancel.cancel();
        HookVerdict::Allow
    }

    async fn after(&self, _: &CheckedCall, _: &Outcome, context: &CallContext) -> Option<String> {
        context.cancel.cancel();
        None
    }
}

#[tokio::test]
async fn a_hook_that_cancels_the_context_cancels_its_call_and_nothing_else() {
    let context = isolation::context_with(quick());
    let hooks = Hooks::new().hook(Cancels);
    let (decision, faults) = hooks.before(a_call(), &context).await;
    let outcome = ended(decision);
    let fault = outcome.fault().unwrap();
    assert_eq!(fault.kind(), Kind::Cancelled);
    assert_eq!(fault.progress(), budao_core::fault::Progress::NotBegun);
    assert!(faults.is_empty());
    assert!(!context.cancel.is_cancelled(), "the caller's token ends the caller's work");
    let done_before = Outcome::Done(budao_core::tool::Output::default());
    drop(hooks.after(&a_call(), done_before, &context).await);
    assert!(!context.cancel.is_cancelled());
}

#[tokio::test]
async fn hooks_are_counted_like_calls() {
    quietly();
    let toolbox = of(search());
    let call = toolbox.check(&call("search", r#"{"query": "x"}"#), &quick()).unwrap();
    let hooks = Hooks::new().hook(Breaks::Panics);
    drop(hooks.before(call, &isolation::context_with(quick())).await);
    assert_eq!(toolbox.counts().panics, 1);
}
