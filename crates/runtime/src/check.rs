//! Checks calls: look-up, parse, repair, validate, hooks and guards, permission.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use budao_core::{
    event::{Event, Scope, Settings, TurnNumber},
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    message::{CallId, ToolUse},
    session::{Approved, Session},
    tool::{self, Permit},
    trace::Trace,
    turn::{Input, Verdict},
};
use budao_tools::{
    CallContext, Toolbox,
    call::Ready,
    hooks::Decision,
    policy::{self, Permitted},
    pool::NoAnswer,
};

use crate::{
    runtime::Shared,
    subagent,
    work::{Desk, Tools, wanted},
};

/// A call to check.
pub(crate) struct Wanted {
    /// As the model wrote it.
    pub(crate) written: ToolUse,
    /// A person allowed it, with these arguments.
    pub(crate) approved: Option<Approved>,
}

/// Checks the calls of one step.
pub(crate) struct Checker {
    pub(crate) desk: Desk,
    pub(crate) settings: Arc<Settings>,
    pub(crate) toolbox: Arc<tokio::sync::Mutex<Option<(u64, Toolbox)>>>,
    pub(crate) ready: Arc<Mutex<BTreeMap<CallId, Ready>>>,
    pub(crate) context: CallContext,
}

/// The session's toolbox: kept, and made anew when tools came or went.
pub(crate) async fn toolbox(
    desk: &Desk,
    settings: &Settings,
    kept: &tokio::sync::Mutex<Option<(u64, Toolbox)>>,
) -> Result<Toolbox, Fault> {
    let source = &desk.shared.tools;
    let generation = source.generation();
    let mut kept = kept.lock().await;
    if let Some((at, toolbox)) = &*kept
        && *at == generation
    {
        return Ok(toolbox.clone());
    }
    let mut toolbox = match source.is_quick() {
        true => source.toolbox(desk.session, settings).await?,
        false => asked_apart(desk, settings).await?,
    };
    if let Some(task_run) = subagent::tool(desk, settings) {
        toolbox = toolbox.with(task_run)?;
    }
    if let Some(offered) = &settings.tools {
        let named = |name: &str| offered.iter().any(|pattern| tool::matches(pattern, name));
        toolbox = toolbox.without(|spec| !named(&spec.name));
    }
    *kept = Some((generation, toolbox.clone()));
    Ok(toolbox)
}

/// Asks the source apart from the session: one that hangs, blocks its thread or panics costs the turn and no more.
async fn asked_apart(desk: &Desk, settings: &Settings) -> Result<Toolbox, Fault> {
    let Shared { tools, pool, world, limits, .. } = &*desk.shared;
    let (source, session, settings) = (Arc::clone(tools), desk.session, settings.clone());
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

/// Records what failed beside a call, without changing it.
pub(crate) async fn report_faults(
    desk: &Desk,
    turn: TurnNumber,
    call: Option<&CallId>,
    tool: &str,
    faults: Vec<Fault>,
) {
    for fault in faults {
        tracing::warn!(session = %desk.session, %fault, "a hook failed");
        let scope = Scope { call: call.cloned(), tool: Some(tool.to_owned()), ..Scope::default() };
        desk.report(Input::Noted { turn, event: Event::FaultRaised { fault, scope } }).await;
    }
}

impl Checker {
    /// What is to be done with each call. One bad call costs its siblings nothing.
    pub(crate) async fn check(&self, wanted: Vec<Wanted>, trace: Trace) -> Vec<(CallId, Verdict)> {
        let toolbox = match toolbox(&self.desk, &self.settings, &self.toolbox).await {
            Ok(toolbox) => toolbox,
            Err(fault) => return refuse_all(&wanted, &fault.traced(trace)),
        };
        let mut verdicts = Vec::with_capacity(wanted.len());
        for wanted in wanted {
            let id = wanted.written.id.clone();
            let verdict = self
                .one(&toolbox, wanted)
                .await
                .unwrap_or_else(|fault| Verdict::Settled(fault.traced(trace).into()));
            verdicts.push((id, verdict));
        }
        verdicts
    }

    async fn one(&self, toolbox: &Toolbox, wanted: Wanted) -> Result<Verdict, Fault> {
        let by_person = wanted.approved.is_some();
        let edited = wanted.approved.as_ref().is_some_and(|approved| approved.edited);
        let (written, ready) = fits(toolbox, wanted, &self.desk.shared.limits)?;
        let (decision, faults) = match by_person && !edited {
            // Hooks were asked about these very arguments before the person was.
            true => (Decision::Allow(ready), Vec::new()),
            false => self.hooks(&written.id, ready).await,
        };
        let turn = self.context.turn;
        report_faults(&self.desk, turn, Some(&written.id), &written.name, faults).await;
        Ok(match decision {
            Decision::Ended(outcome) => Verdict::Settled(*outcome),
            Decision::Ask { call, .. } if by_person => {
                self.permitted(&written.id, call, true).await?
            }
            Decision::Ask { call, hook, reason } => ask(&call, format!("{hook}: {reason}")),
            Decision::Pass(ready) => self.permitted(&written.id, ready, by_person).await?,
            Decision::Allow(ready) => self.permitted(&written.id, ready, true).await?,
        })
    }

    async fn hooks(&self, call: &CallId, ready: Ready) -> (Decision, Vec<Fault>) {
        let hooks = &self.desk.shared.hooks;
        if hooks.is_empty() {
            return (Decision::Pass(ready), Vec::new());
        }
        let context = CallContext { call: call.clone(), ..self.context.clone() };
        hooks.before(ready, &context).await
    }

    /// What the session's permissions say and, unless they deny, the program's own policy.
    async fn permit(&self, id: &CallId, ready: &Ready) -> Result<Permitted, Fault> {
        let usual = self.settings.permissions.permit(ready.spec());
        match &self.desk.shared.policy {
            Some(policy) if !matches!(usual, Permit::Deny(_)) => {
                let context = CallContext { call: id.clone(), ..self.context.clone() };
                policy::ask(policy, ready, usual, &context).await
            }
            _ => Ok(usual.into()),
        }
    }

    /// Permission. A hook or a person may spare the question, never lift a denial.
    async fn permitted(&self, id: &CallId, ready: Ready, allowed: bool) -> Result<Verdict, Fault> {
        let permitted = self.permit(id, &ready).await?;
        judged(id, ready, permitted, allowed, &self.ready)
    }
}

/// Checks the calls of one step at once. Only where no hook and no policy is to be asked; none if the toolbox is
/// not at hand.
pub(crate) fn at_once(
    shared: &Shared,
    tools: &mut Tools,
    session: &Session,
    calls: &[CallId],
) -> Option<Vec<(CallId, Verdict)>> {
    let settings = tools.settings(session);
    let kept = tools.toolbox.try_lock().ok()?;
    let (at, toolbox) = kept.as_ref()?;
    if *at != shared.tools.generation() {
        return None;
    }
    let one = |wanted: Wanted| {
        let by_person = wanted.approved.is_some();
        let (written, ready) = fits(toolbox, wanted, &shared.limits)?;
        let permitted = settings.permissions.permit(ready.spec()).into();
        judged(&written.id, ready, permitted, by_person, &tools.ready)
    };
    let checked = wanted(session, calls).into_iter().map(|wanted| {
        let id = wanted.written.id.clone();
        let settled = |fault: Fault| Verdict::Settled(fault.traced(session.trace()).into());
        (id, one(wanted).unwrap_or_else(settled))
    });
    Some(checked.collect())
}

/// The call, if it fits its tool: as the model wrote it, or as a person allowed it.
fn fits(toolbox: &Toolbox, wanted: Wanted, limits: &Limits) -> Result<(ToolUse, Ready), Fault> {
    let Wanted { written, approved } = wanted;
    let ready = match approved {
        Some(approved) => toolbox.check_value(&written.name, approved.arguments, limits)?,
        None => toolbox.check(&written, limits)?,
    };
    Ok((written, ready))
}

/// What becomes of a call that fits. What may run is kept ready.
fn judged(
    id: &CallId,
    ready: Ready,
    permitted: Permitted,
    allowed: bool,
    kept: &Mutex<BTreeMap<CallId, Ready>>,
) -> Result<Verdict, Fault> {
    match permitted {
        Permitted::Deny(reason) => Err(Fault::new(Kind::DeniedByPolicy, Operation::ToolCall)
            .with(Fact::ToolName, ready.spec().name.to_string())
            .with(Fact::Reason, reason)),
        Permitted::Ask(reason) if !allowed => Ok(ask(&ready, reason.into_owned())),
        Permitted::Ask(_) | Permitted::Allow => {
            let verdict = Verdict::Run {
                arguments: ready.arguments().clone(),
                repairs: ready.repairs().to_vec(),
                idempotent: ready.spec().idempotent,
            };
            kept.lock().expect("no code panics while holding this").insert(id.clone(), ready);
            Ok(verdict)
        }
    }
}

fn ask(ready: &Ready, reason: String) -> Verdict {
    Verdict::Ask {
        arguments: ready.arguments().clone(),
        repairs: ready.repairs().to_vec(),
        idempotent: ready.spec().idempotent,
        digest: ready.digest(),
        reason,
    }
}

fn refuse_all(wanted: &[Wanted], fault: &Fault) -> Vec<(CallId, Verdict)> {
    let settled = || Verdict::Settled(fault.clone().into());
    wanted.iter().map(|wanted| (wanted.written.id.clone(), settled())).collect()
}
