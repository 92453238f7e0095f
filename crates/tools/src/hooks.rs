//! Hooks and guards: code of others before and after a call, kept from doing harm.
//!
//! Each runs apart, within its time. A *hook* that fails is reported and the flow goes on; a *guard* was
//! registered to decide, so one that fails denies the call. Neither can change a finished outcome: what
//! runs after a call is shown the outcome and may add a remark.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    nesting,
    tool::Outcome,
};
use serde_json::Value;

use crate::{call::CheckedCall, contract::CallContext, outcome, output};

/// Characters of a hook's words that are kept.
const WORDS_MAX: usize = 1_000;

/// Code that is asked before a call and told after it.
#[async_trait]
pub trait Hook: Send + Sync + fmt::Debug + 'static {
    /// What it is called in faults.
    fn name(&self) -> &str;

    /// Before a call that fits. The first answer that is not [`HookVerdict::Pass`] decides.
    async fn before(&self, call: &CheckedCall, context: &CallContext) -> HookVerdict {
        let _ = (call, context);
        HookVerdict::Pass
    }

    /// After a call. A remark is added to the outcome's note; the outcome itself stands.
    async fn after(
        &self,
        call: &CheckedCall,
        outcome: &Outcome,
        context: &CallContext,
    ) -> Option<String> {
        let _ = (call, outcome, context);
        None
    }
}

/// What a hook says before a call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum HookVerdict {
    /// Nothing: the next one is asked, then the permissions.
    Pass,
    /// It may run without a question.
    Allow,
    /// A person is to be asked; why.
    Ask(String),
    /// It must not run; why.
    Deny(String),
    /// This is the result; the tool does not run.
    Supply(Value),
    /// It is to run with these arguments, which are checked again; the next one is asked about them.
    Replace(Value),
}

impl HookVerdict {
    /// The verdict, with JSON no deeper than recursive code may meet.
    fn bounded(mut self) -> Self {
        if let Self::Supply(value) | Self::Replace(value) = &mut self {
            nesting::bound(value);
        }
        self
    }
}

/// What becomes of a call after every hook was asked.
#[derive(Debug)]
pub enum HookDecision {
    /// Nobody objects; the permissions decide.
    Pass(CheckedCall),
    /// It may run whatever the permissions' mode says.
    Allow(CheckedCall),
    /// A person is to be asked.
    Ask {
        /// The call.
        call: CheckedCall,
        /// Which hook asks.
        hook: String,
        /// Why.
        reason: String,
    },
    /// It ended without running: denied, supplied, or its new arguments do not fit.
    Ended(Box<Outcome>),
}

/// The hooks of a session, in the order they are asked.
#[derive(Clone, Debug, Default)]
pub struct Hooks(Vec<RegisteredHook>);

#[derive(Clone, Debug)]
struct RegisteredHook {
    hook: Arc<dyn Hook>,
    guards: bool,
}

impl Hooks {
    /// No hooks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a hook: when it fails, the flow goes on.
    #[must_use]
    pub fn hook(mut self, hook: impl Hook) -> Self {
        self.0.push(RegisteredHook { hook: Arc::new(hook), guards: false });
        self
    }

    /// Adds a guard: when it fails, the call is denied.
    #[must_use]
    pub fn guard(mut self, hook: impl Hook) -> Self {
        self.0.push(RegisteredHook { hook: Arc::new(hook), guards: true });
        self
    }

    /// Are there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Asks every hook about a call. Beside the decision comes what failed on the way, to be recorded.
    pub async fn before(
        &self,
        mut call: CheckedCall,
        context: &CallContext,
    ) -> (HookDecision, Vec<Fault>) {
        let mut faults = Vec::new();
        let mut allowed = false;
        for registered in &self.0 {
            let verdict = match registered.ask(&call, context).await {
                Ok(verdict) => verdict,
                Err(fault) if registered.guards => {
                    return (ended(fault, &call), faults);
                }
                Err(fault) => {
                    faults.push(fault);
                    continue;
                }
            };
            let hook = || registered.hook.name().to_owned();
            match verdict {
                HookVerdict::Pass => {}
                HookVerdict::Allow => allowed = true,
                HookVerdict::Ask(reason) => {
                    let reason = bounded(reason);
                    return (HookDecision::Ask { call, hook: hook(), reason }, faults);
                }
                HookVerdict::Deny(reason) => {
                    let fault = outcome::fault(Kind::DeniedByHook, call.spec())
                        .with(Fact::Hook, hook())
                        .with(Fact::Reason, bounded(reason))
                        .with_trace(context.trace);
                    return (ended(fault, &call), faults);
                }
                HookVerdict::Supply(value) => {
                    return (
                        HookDecision::Ended(Box::new(call.supplied(value, context).await)),
                        faults,
                    );
                }
                HookVerdict::Replace(arguments) => {
                    match call.with_arguments(arguments, &context.limits) {
                        Ok(replaced) => call = replaced,
                        Err(fault) => return (HookDecision::Ended(Box::new(fault.into())), faults),
                    }
                }
            }
        }
        (if allowed { HookDecision::Allow(call) } else { HookDecision::Pass(call) }, faults)
    }

    /// Tells every hook about an outcome. Remarks are added to its note; it stays what it is.
    pub async fn after(
        &self,
        call: &CheckedCall,
        outcome: Outcome,
        context: &CallContext,
    ) -> (Outcome, Vec<Fault>) {
        let mut faults = Vec::new();
        if self.0.is_empty() {
            return (outcome, faults);
        }
        let shown = Arc::new(outcome.clone());
        let mut told = outcome;
        for registered in &self.0 {
            match registered.notify(call, &shown, context).await {
                Ok(Some(remark)) => annotate(&mut told, &bounded(remark)),
                Ok(None) => {}
                Err(fault) => faults.push(fault),
            }
        }
        (told, faults)
    }
}

impl RegisteredHook {
    async fn ask(&self, call: &CheckedCall, context: &CallContext) -> Result<HookVerdict, Fault> {
        let (hook, asked, inside) = (self.hook.clone(), call.clone(), context.clone());
        let work = async move { hook.before(&asked, &inside).await.bounded() };
        self.run_isolated(call, context, work).await
    }

    async fn notify(
        &self,
        call: &CheckedCall,
        outcome: &Arc<Outcome>,
        context: &CallContext,
    ) -> Result<Option<String>, Fault> {
        let (hook, asked, inside) = (self.hook.clone(), call.clone(), context.clone());
        let outcome = outcome.clone();
        self.run_isolated(call, context, async move { hook.after(&asked, &outcome, &inside).await })
            .await
    }

    /// Runs a piece of the hook apart from us and within its time.
    async fn run_isolated<T: Send + 'static>(
        &self,
        call: &CheckedCall,
        context: &CallContext,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Fault> {
        let limit = context.limits.hook;
        let answer = call.shared.pool.within(&context.world, limit, work).await;
        answer.map_err(|why| why.explain(self.failed(call, context), limit))
    }

    fn failed(&self, call: &CheckedCall, context: &CallContext) -> Fault {
        let kind = if self.guards { Kind::GuardFailed } else { Kind::HookFailed };
        Fault::new(kind, Operation::RunHook)
            .with(Fact::Hook, self.hook.name().to_owned())
            .with(Fact::ToolName, call.spec().name.to_string())
            .with_trace(context.trace)
    }
}

impl CheckedCall {
    /// The outcome a hook supplied: read like a tool's own answer.
    async fn supplied(&self, value: Value, context: &CallContext) -> Outcome {
        match outcome::of_answer(Ok(value), self.spec()) {
            Ok(given) => {
                let most = self.spec().output_bytes.unwrap_or(context.limits.output_bytes);
                Outcome::Done(output::capped(given, most, context).await)
            }
            Err(failure) => Outcome::Failed(failure),
        }
    }
}

fn ended(fault: Fault, call: &CheckedCall) -> HookDecision {
    HookDecision::Ended(Box::new(fault.scrub(&call.shared.scrubber).into()))
}

fn annotate(outcome: &mut Outcome, remark: &str) {
    let note = match outcome {
        Outcome::Done(output) => &mut output.note,
        Outcome::Failed(failure) => &mut failure.note,
    };
    *note = output::joined(note.take(), remark);
}

fn bounded(text: String) -> String {
    match text.char_indices().nth(WORDS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
