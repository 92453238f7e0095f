//! Hooks and guards: third-party code that runs before and after a call, in isolation.
//!
//! Each runs on the pool with a time limit. If a *hook* fails, the fault is reported and the call goes on. If a
//! *guard* fails, the call is denied. Neither can change a finished outcome: after a call, a hook sees the outcome
//! and may add a remark.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    nesting,
    tool::Outcome,
};
use serde_json::Value;

use crate::{
    call::CheckedCall,
    contract::CallContext,
    outcome::{self, CallAnswer},
    output,
};

/// Maximum characters kept of a hook's text.
const WORDS_MAX: usize = 1_000;

/// Code that decides on a call before it runs and sees its outcome afterwards.
#[async_trait]
pub trait Hook: Send + Sync + fmt::Debug + 'static {
    /// The name used in faults.
    fn name(&self) -> &str;

    /// Called before a valid call runs. [`HookVerdict::Pass`], `Allow` and `Replace` let the next hook decide too;
    /// any other verdict is final. If the hook cancels `context.cancel`, the call is cancelled and does not run,
    /// whatever the verdict says.
    async fn before(&self, call: &CheckedCall, context: &CallContext) -> HookVerdict {
        let _ = (call, context);
        HookVerdict::Pass
    }

    /// Called after a call. A returned remark is added to the outcome's note; the outcome does not change.
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

/// The verdict of a hook on a call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum HookVerdict {
    /// No opinion: the next hook decides, then the permissions.
    Pass,
    /// The call may run without a question, unless a later hook objects.
    Allow,
    /// A person must be asked; the text is the reason.
    Ask(String),
    /// The call must not run; the text is the reason.
    Deny(String),
    /// The result of the call; the tool does not run.
    Supply(Value),
    /// New arguments for the call. They are validated again, and the next hook sees them.
    Replace(Value),
}

impl HookVerdict {
    /// Limits the nesting of the JSON in a verdict, to protect recursive code.
    fn bounded(mut self) -> Self {
        if let Self::Supply(value) | Self::Replace(value) = &mut self {
            nesting::bound(value);
        }
        self
    }
}

/// The combined decision of all hooks on a call.
#[derive(Debug)]
pub enum HookDecision {
    /// No hook objects; the permissions decide.
    Pass(CheckedCall),
    /// The call may run regardless of the permission mode.
    Allow(CheckedCall),
    /// A person must be asked whether the call may run.
    Ask {
        /// The call in question, with its final arguments.
        call: CheckedCall,
        /// The name of the hook that asks.
        hook: String,
        /// The hook's reason, at most 1 000 characters.
        reason: String,
    },
    /// The call ended without running: denied, supplied, or its new arguments are invalid.
    Ended(Box<Outcome>),
}

/// The hooks of a session, in the order they are called.
#[derive(Clone, Debug, Default)]
pub struct Hooks(Vec<RegisteredHook>);

#[derive(Clone, Debug)]
struct RegisteredHook {
    hook: Arc<dyn Hook>,
    guards: bool,
}

impl Hooks {
    /// An empty list of hooks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a hook. If it fails, the call goes on.
    #[must_use]
    pub fn hook(mut self, hook: impl Hook) -> Self {
        self.0.push(RegisteredHook { hook: Arc::new(hook), guards: false });
        self
    }

    /// Adds a guard. If it fails, the call is denied.
    #[must_use]
    pub fn guard(mut self, hook: impl Hook) -> Self {
        self.0.push(RegisteredHook { hook: Arc::new(hook), guards: true });
        self
    }

    /// True if there are neither hooks nor guards.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Runs every hook before a call. Returns the decision and the faults of failed hooks, which are to be recorded.
    pub async fn before(
        &self,
        mut call: CheckedCall,
        context: &CallContext,
    ) -> (HookDecision, Vec<Fault>) {
        let mut faults = Vec::new();
        let mut allowed = false;
        for registered in &self.0 {
            let verdict = match registered.ask(&call, context).await {
                Ok(Some(verdict)) => verdict,
                Ok(None) => {
                    let fault = outcome::fault(Kind::Cancelled, call.spec()).not_started();
                    return (ended(fault.with_trace(context.trace), &call), faults);
                }
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

    /// Runs every hook after a call. Remarks are added to the outcome's note; the outcome does not change.
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
        let mut annotated = outcome;
        for registered in &self.0 {
            match registered.notify(call, &shown, context).await {
                Ok(Some(remark)) => annotate(&mut annotated, &bounded(remark)),
                Ok(None) => {}
                Err(fault) => faults.push(fault),
            }
        }
        (annotated, faults)
    }
}

impl RegisteredHook {
    /// The verdict; `None` if the hook cancelled its context. The hook gets a token of its own, because the caller's
    /// may end the work that waits for the verdict.
    async fn ask(
        &self,
        call: &CheckedCall,
        context: &CallContext,
    ) -> Result<Option<HookVerdict>, Fault> {
        let (hook, hooked_call) = (self.hook.clone(), call.clone());
        let cancel = context.cancel.child_token();
        let inside = CallContext { cancel: cancel.clone(), ..context.clone() };
        let work = async move { hook.before(&hooked_call, &inside).await.bounded() };
        let verdict = self.run_isolated(call, context, work).await;
        if cancel.is_cancelled() && !context.cancel.is_cancelled() {
            return Ok(None);
        }
        verdict.map(Some)
    }

    async fn notify(
        &self,
        call: &CheckedCall,
        outcome: &Arc<Outcome>,
        context: &CallContext,
    ) -> Result<Option<String>, Fault> {
        let (hook, hooked_call) = (self.hook.clone(), call.clone());
        let inside = CallContext { cancel: context.cancel.child_token(), ..context.clone() };
        let outcome = outcome.clone();
        self.run_isolated(call, context, async move {
            hook.after(&hooked_call, &outcome, &inside).await
        })
        .await
    }

    /// Runs one method of the hook on the pool, within the time limit.
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
    /// The outcome from a supplied value, interpreted like a tool's own result.
    async fn supplied(&self, value: Value, context: &CallContext) -> Outcome {
        let CallAnswer { result, excess } = CallAnswer::of(Ok(value), self.spec(), &context.limits);
        match result {
            Ok(given) => {
                let bytes_max = self.spec().output_bytes.unwrap_or(context.limits.output_bytes);
                Outcome::Done(output::finish(given, excess, bytes_max, context).await)
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
