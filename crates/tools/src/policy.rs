//! The embedding program's own rules for who may call what.
//!
//! A policy decides on each call, with its arguments, that the session's permissions would allow or ask about. It
//! cannot lift a denial, so a child session never gets more than its parent. If a policy fails, the call is denied.

use std::{borrow::Cow, fmt, sync::Arc};

use async_trait::async_trait;
use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    tool::Permission,
};

use crate::{call::CheckedCall, contract::CallContext};

/// Decides whether a call may run.
#[async_trait]
pub trait Policy: Send + Sync + fmt::Debug + 'static {
    /// The name used in faults.
    fn name(&self) -> &str;

    /// Decides on a call. `usual` is the result of the session's mode and lists; calls that they deny do not reach
    /// the policy.
    async fn permit(
        &self,
        call: &CheckedCall,
        usual: &Permission,
        context: &CallContext,
    ) -> PolicyDecision;
}

/// The decision of a policy on a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyDecision {
    /// The call may run without a question.
    Allow,
    /// The call may run if a person agrees; the text is the reason for asking.
    Ask(Cow<'static, str>),
    /// The call must not run; the text is the reason.
    Deny(Cow<'static, str>),
}

impl From<Permission> for PolicyDecision {
    fn from(permit: Permission) -> Self {
        match permit {
            Permission::Allow => Self::Allow,
            Permission::Ask(reason) => Self::Ask(reason.into()),
            Permission::Deny(reason) => Self::Deny(reason.into()),
        }
    }
}

/// Runs a policy on the pool, within the time limit of a guard.
///
/// # Errors
/// `guard_failed` if the policy panics or times out; the call is then denied.
pub async fn ask(
    policy: &Arc<dyn Policy>,
    call: &CheckedCall,
    usual: Permission,
    context: &CallContext,
) -> Result<PolicyDecision, Fault> {
    let limit = context.limits.hook;
    let (policy_clone, shown, inside) = (Arc::clone(policy), call.clone(), context.clone());
    let work = async move { policy_clone.permit(&shown, &usual, &inside).await };
    call.shared.pool.within(&context.world, limit, work).await.map_err(|why| {
        let fault = Fault::new(Kind::GuardFailed, Operation::RunHook)
            .with(Fact::Hook, policy.name().to_owned())
            .with(Fact::ToolName, call.spec().name.to_string())
            .with_trace(context.trace);
        why.explain(fault, limit)
    })
}
