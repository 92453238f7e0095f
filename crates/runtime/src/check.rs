//! Checks calls before they run: look-up, parse, repair, validate, hooks and guards, permission.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use budao_core::{
    event::{Event, Scope, Settings, TurnNumber},
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    message::{CallId, ToolUse},
    session::{ApprovedCall, Session},
    tool::{self, Permission, ToolOrigin, ToolSpec},
    trace::Trace,
    turn::{CallVerdict, Input},
};
use budao_tools::{
    CallContext, FinalAnswer, Toolbox,
    call::CheckedCall,
    hooks::HookDecision,
    policy::{self, PolicyDecision},
    pool::NoAnswer,
};

use crate::{
    runtime::RuntimeShared,
    subagent,
    work::{SessionTools, WorkContext, find_unchecked_calls},
};

/// A call to check.
pub(crate) struct UncheckedCall {
    /// The call as the model wrote it.
    pub(crate) written: ToolUse,
    /// The arguments that a person allowed; `None` before a decision.
    pub(crate) approved: Option<ApprovedCall>,
}

/// The reason of the question about a worker's tool that changed.
const CHANGED: &str = "the worker changed the tool since it last ran in this session";

/// The reason of the question about an MCP server's tool that changed.
const CHANGED_BY_SERVER: &str = "the MCP server changed the tool since it was approved";

/// Requires a decision for a worker's tool that changed since its last run in the session, and for an MCP server's tool
/// that changed since its approval, regardless of the rules.
fn permit_version(
    usual: Permission,
    spec: &ToolSpec,
    versions: &BTreeMap<String, String>,
) -> Permission {
    let route = match &spec.source {
        ToolOrigin::Worker(route) => route,
        ToolOrigin::Mcp { is_changed: true, .. } if !matches!(usual, Permission::Deny(_)) => {
            return Permission::Ask(CHANGED_BY_SERVER);
        }
        _ => return usual,
    };
    let is_changed = versions.get(&*spec.name).is_some_and(|known| *known != route.version);
    match usual {
        Permission::Allow if is_changed => Permission::Ask(CHANGED),
        usual => usual,
    }
}

/// Checks the calls of one step.
pub(crate) struct Checker {
    pub(crate) work_context: WorkContext,
    pub(crate) settings: Arc<Settings>,
    pub(crate) toolbox: Arc<tokio::sync::Mutex<Option<(u64, Toolbox)>>>,
    pub(crate) ready: Arc<Mutex<BTreeMap<CallId, CheckedCall>>>,
    pub(crate) context: CallContext,
    /// The versions of workers' tools that last ran in the session.
    pub(crate) versions: BTreeMap<String, String>,
}

/// Returns the session's toolbox. It is cached and loaded again when the source's generation changes.
pub(crate) async fn toolbox(
    work_context: &WorkContext,
    settings: &Settings,
    kept: &tokio::sync::Mutex<Option<(u64, Toolbox)>>,
) -> Result<Toolbox, Fault> {
    let source = &work_context.shared.tools;
    let generation = source.generation();
    let mut kept = kept.lock().await;
    if let Some((at, toolbox)) = &*kept
        && *at == generation
    {
        return Ok(toolbox.clone());
    }
    let mut toolbox = match source.is_quick() {
        true => source.toolbox(work_context.session, settings).await?,
        false => load_toolbox_isolated(work_context, settings).await?,
    };
    if let Some(task_run) = subagent::tool(work_context, settings) {
        toolbox = toolbox.with(task_run)?;
    }
    if let Some(offered) = &settings.tools {
        let named = |name: &str| offered.iter().any(|pattern| tool::matches(pattern, name));
        toolbox = toolbox.without(|spec| !named(&spec.name));
    }
    if let Some(schema) = &settings.answer_schema {
        toolbox = toolbox.with(FinalAnswer::new(schema)?)?;
    }
    *kept = Some((generation, toolbox.clone()));
    Ok(toolbox)
}

/// Loads the toolbox on the pool. A source that hangs, blocks its thread or panics fails only the turn.
async fn load_toolbox_isolated(
    work_context: &WorkContext,
    settings: &Settings,
) -> Result<Toolbox, Fault> {
    let RuntimeShared { tools, pool, world, limits, .. } = &*work_context.shared;
    let (source, session, settings) = (Arc::clone(tools), work_context.session, settings.clone());
    let limit = limits.tool_deadline;
    let work = async move { source.toolbox(session, &settings).await };
    let about =
        |kind| Fault::new(kind, Operation::StartTool).with(Fact::Service, "the source of tools");
    match pool.within(world, limit, work).await {
        Ok(found) => found,
        Err(NoAnswer::TookTooLong) => Err(about(Kind::RequestTimedOut)
            .with(Fact::TimeoutMs, limit)
            .with(Fact::ElapsedMs, limit)),
        Err(why) => Err(why.explain(about(Kind::Bug), limit)),
    }
}

/// Records faults that occurred around a call. They do not change the call's outcome.
pub(crate) async fn report_faults(
    work_context: &WorkContext,
    turn: TurnNumber,
    call: Option<&CallId>,
    tool: &str,
    faults: Vec<Fault>,
) {
    for fault in faults {
        tracing::warn!(session = %work_context.session, %fault, "hook failed");
        let scope = Scope { call: call.cloned(), tool: Some(tool.to_owned()), ..Scope::default() };
        work_context
            .report(Input::RecordOnly { turn, event: Event::FaultRaised { fault, scope } })
            .await;
    }
}

impl Checker {
    /// Returns a verdict for each call. An invalid call does not affect the others.
    pub(crate) async fn check(
        &self,
        wanted: Vec<UncheckedCall>,
        trace: Trace,
    ) -> Vec<(CallId, CallVerdict)> {
        let toolbox = match toolbox(&self.work_context, &self.settings, &self.toolbox).await {
            Ok(toolbox) => toolbox,
            Err(fault) => return refuse_all(&wanted, &fault.with_trace(trace)),
        };
        let mut verdicts = Vec::with_capacity(wanted.len());
        for wanted in wanted {
            let id = wanted.written.id.clone();
            let verdict = self
                .check_one(&toolbox, wanted)
                .await
                .unwrap_or_else(|fault| CallVerdict::Settled(fault.with_trace(trace).into()));
            verdicts.push((id, verdict));
        }
        verdicts
    }

    async fn check_one(
        &self,
        toolbox: &Toolbox,
        wanted: UncheckedCall,
    ) -> Result<CallVerdict, Fault> {
        let by_person = wanted.approved.is_some();
        let edited = wanted.approved.as_ref().is_some_and(|approved| approved.edited);
        let (written, ready) = fits(toolbox, wanted, &self.work_context.shared.limits)?;
        let (decision, faults) = match by_person && !edited {
            // The hooks have seen these exact arguments before the question was asked.
            true => (HookDecision::Allow(ready), Vec::new()),
            false => self.run_hooks(&written.id, ready).await,
        };
        let turn = self.context.turn;
        report_faults(&self.work_context, turn, Some(&written.id), &written.name, faults).await;
        Ok(match decision {
            HookDecision::Ended(outcome) => CallVerdict::Settled(*outcome),
            HookDecision::Ask { call, .. } if by_person => {
                self.permit_or_refuse(&written.id, call, true).await?
            }
            HookDecision::Ask { call, hook, reason } => {
                ask_verdict(&call, format!("{hook}: {reason}"))
            }
            HookDecision::Pass(ready) => {
                self.permit_or_refuse(&written.id, ready, by_person).await?
            }
            HookDecision::Allow(ready) => self.permit_or_refuse(&written.id, ready, true).await?,
        })
    }

    async fn run_hooks(&self, call: &CallId, ready: CheckedCall) -> (HookDecision, Vec<Fault>) {
        let hooks = &self.work_context.shared.hooks;
        if hooks.is_empty() {
            return (HookDecision::Pass(ready), Vec::new());
        }
        let context = CallContext { call: call.clone(), ..self.context.clone() };
        hooks.before(ready, &context).await
    }

    /// Applies the session's permissions, then, unless they deny, the program's policy.
    async fn ask_policy(&self, id: &CallId, ready: &CheckedCall) -> Result<PolicyDecision, Fault> {
        let usual = self.settings.permissions.permit(ready.spec());
        let usual = permit_version(usual, ready.spec(), &self.versions);
        match &self.work_context.shared.policy {
            Some(policy) if !matches!(usual, Permission::Deny(_)) => {
                let context = CallContext { call: id.clone(), ..self.context.clone() };
                policy::ask(policy, ready, usual, &context).await
            }
            _ => Ok(usual.into()),
        }
    }

    /// Decides about permission. A hook or a person can make the question unnecessary but cannot lift a denial.
    async fn permit_or_refuse(
        &self,
        id: &CallId,
        ready: CheckedCall,
        allowed: bool,
    ) -> Result<CallVerdict, Fault> {
        let permitted = self.ask_policy(id, &ready).await?;
        verdict_from(id, ready, permitted, allowed, &self.ready)
    }
}

/// Checks the calls of one step without waiting. The caller makes sure that there are no hooks and no policy.
/// `None` if the cached toolbox is missing, locked or stale.
pub(crate) fn check_without_wait(
    shared: &RuntimeShared,
    tools: &mut SessionTools,
    session: &Session,
    calls: &[CallId],
) -> Option<Vec<(CallId, CallVerdict)>> {
    let settings = tools.settings(session);
    let kept = tools.toolbox.try_lock().ok()?;
    let (at, toolbox) = kept.as_ref()?;
    if *at != shared.tools.generation() {
        return None;
    }
    let one = |wanted: UncheckedCall| {
        let by_person = wanted.approved.is_some();
        let (written, ready) = fits(toolbox, wanted, &shared.limits)?;
        let usual = settings.permissions.permit(ready.spec());
        let permitted = permit_version(usual, ready.spec(), &session.tool_versions).into();
        verdict_from(&written.id, ready, permitted, by_person, &tools.ready)
    };
    let checked = find_unchecked_calls(session, calls).into_iter().map(|wanted| {
        let id = wanted.written.id.clone();
        let settled = |fault: Fault| CallVerdict::Settled(fault.with_trace(session.trace()).into());
        (id, one(wanted).unwrap_or_else(settled))
    });
    Some(checked.collect())
}

/// Validates a call against its tool, with the arguments of the model or those that a person allowed.
fn fits(
    toolbox: &Toolbox,
    wanted: UncheckedCall,
    limits: &Limits,
) -> Result<(ToolUse, CheckedCall), Fault> {
    let UncheckedCall { written, approved } = wanted;
    let ready = match approved {
        Some(approved) => toolbox.check_value(&written.name, approved.arguments, limits)?,
        None => toolbox.check(&written, limits)?,
    };
    Ok((written, ready))
}

/// Turns a permission into a verdict. A call that may run is stored in `kept` until it starts.
fn verdict_from(
    id: &CallId,
    ready: CheckedCall,
    permitted: PolicyDecision,
    allowed: bool,
    kept: &Mutex<BTreeMap<CallId, CheckedCall>>,
) -> Result<CallVerdict, Fault> {
    match permitted {
        PolicyDecision::Deny(reason) => Err(Fault::new(Kind::DeniedByPolicy, Operation::ToolCall)
            .with(Fact::ToolName, ready.spec().name.to_string())
            .with(Fact::Reason, reason)),
        PolicyDecision::Ask(reason) if !allowed => Ok(ask_verdict(&ready, reason.into_owned())),
        PolicyDecision::Ask(_) | PolicyDecision::Allow => {
            let verdict = CallVerdict::Run {
                arguments: ready.arguments().clone(),
                repairs: ready.repairs().to_vec(),
                idempotent: ready.spec().idempotent,
                reconcile: ready.can_reconcile(),
                route: match &ready.spec().source {
                    ToolOrigin::Worker(route) => Some(route.clone()),
                    _ => None,
                },
            };
            kept.lock().expect("no code panics while holding this").insert(id.clone(), ready);
            Ok(verdict)
        }
    }
}

fn ask_verdict(ready: &CheckedCall, reason: String) -> CallVerdict {
    CallVerdict::Ask {
        arguments: ready.arguments().clone(),
        repairs: ready.repairs().to_vec(),
        idempotent: ready.spec().idempotent,
        digest: ready.digest(),
        reason,
    }
}

fn refuse_all(wanted: &[UncheckedCall], fault: &Fault) -> Vec<(CallId, CallVerdict)> {
    let settled = || CallVerdict::Settled(fault.clone().into());
    wanted.iter().map(|wanted| (wanted.written.id.clone(), settled())).collect()
}

#[cfg(test)]
mod tests {
    use budao_core::tool::{Effect, Mode, Permissions};

    use super::*;

    fn spec(is_changed: bool) -> ToolSpec {
        ToolSpec {
            name: "mcp__s__t".into(),
            description: "".into(),
            schema: Arc::new(serde_json::Value::Null),
            effect: Effect::Reads,
            idempotent: true,
            confirm: false,
            repair: false,
            deadline: None,
            output_bytes: None,
            source: ToolOrigin::Mcp { server: "s".into(), is_changed },
        }
    }

    #[test]
    fn a_tool_that_its_server_changed_is_asked_about_whatever_allows_it() {
        let allow = vec!["mcp__*".to_owned()];
        let permit = |permissions: &Permissions, is_changed| {
            let spec = spec(is_changed);
            permit_version(permissions.permit(&spec), &spec, &BTreeMap::new())
        };
        for mode in [Mode::Auto, Mode::Approval, Mode::Readonly] {
            for allow in [Vec::new(), allow.clone()] {
                let permissions = Permissions { mode, allow, ..Permissions::default() };
                assert_eq!(permit(&permissions, false), Permission::Allow);
                assert_eq!(permit(&permissions, true), Permission::Ask(CHANGED_BY_SERVER));
            }
        }
        let denied = Permissions { deny: allow, ..Permissions::default() };
        assert!(matches!(permit(&denied, true), Permission::Deny(_)), "a denial stays one");
        let told = budao_core::fault::text::reason(CHANGED_BY_SERVER, budao_core::Lang::Zh);
        assert!(told.contains("该工具"), "{told}");
    }
}
