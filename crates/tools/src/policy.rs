//! A program's own rules for who may call what.
//!
//! A policy decides call by call, with the arguments in its hands, where the session's own permissions
//! would allow or ask. It cannot lift a denial, so a child session gets no more than its parent. A policy
//! that fails denies.

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
    /// What it is called in faults.
    fn name(&self) -> &str;

    /// May this call run? `usual` is what the session's mode and lists say; what they deny is not asked
    /// about.
    async fn permit(
        &self,
        call: &CheckedCall,
        usual: &Permission,
        context: &CallContext,
    ) -> PolicyDecision;
}

/// What a policy says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyDecision {
    /// It may run.
    Allow,
    /// If a person says so; why it is asked.
    Ask(Cow<'static, str>),
    /// It must not; why.
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

/// Asks a policy, apart from everything and within the time a guard has.
///
/// # Errors
/// `guard_failed` when it gives no answer; the call is denied with it.
pub async fn ask(
    policy: &Arc<dyn Policy>,
    call: &CheckedCall,
    usual: Permission,
    context: &CallContext,
) -> Result<PolicyDecision, Fault> {
    let limit = context.limits.hook;
    let (asked, shown, inside) = (Arc::clone(policy), call.clone(), context.clone());
    let work = async move { asked.permit(&shown, &usual, &inside).await };
    call.shared.pool.within(&context.world, limit, work).await.map_err(|why| {
        let fault = Fault::new(Kind::GuardFailed, Operation::RunHook)
            .with(Fact::Hook, policy.name().to_owned())
            .with(Fact::ToolName, call.spec().name.to_string())
            .with_trace(context.trace);
        why.explain(fault, limit)
    })
}
