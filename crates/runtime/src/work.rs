//! Work of a session: each piece runs on its own task and reports one last input, or none if it is dropped.
//!
//! A panic is reported like any other end; without a report the turn would wait for ever.

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use budao_core::{
    event::{SessionId, Settings, TaskEnd, TurnNumber},
    fault::{Fact, Fault, Kind, Operation},
    gate::{GateKey, Willingness},
    message::{CallId, ToolUse, Usage},
    remote::ToolRoute,
    session::{CallState, Session},
    tool::ReconcileResult,
    turn::{CallVerdict, Input as TurnInput, Work as TurnWork},
};
use budao_engine::SignalSender;
use budao_journal::Digest;
use budao_pipeline::{Input, Work};
use budao_tools::{Blobs, CallContext, Note, NoteSender, Toolbox, call::CheckedCall};
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

use crate::{
    check, compact,
    decider::{RunningWork, Signal},
    gates::AdmissionAnswer,
    model,
    notes::NoteRecorder,
    once, pipeline,
    runtime::{Runtime, RuntimeShared},
    session_memory::{MemoryView, SessionMemory},
    timers::CallTimers,
};

/// Notes of one call that may wait to be recorded.
const NOTES_MAX: usize = 64;

/// The context of a piece of work: shared parts, its session and the way to report.
#[derive(Clone)]
pub(crate) struct WorkContext {
    pub(crate) shared: Arc<RuntimeShared>,
    /// For work that runs child sessions.
    pub(crate) runtime: Runtime,
    pub(crate) session: SessionId,
    /// Depth of the session below a person's session, which has depth 0.
    pub(crate) depth: u32,
    pub(crate) signals: SignalSender<Signal>,
    /// The generation of the session that starts the work.
    pub(crate) generation: u32,
    pub(crate) known: Arc<Mutex<SessionMemory>>,
    /// Permits for calls that run at the same time.
    pub(crate) slots: Arc<tokio::sync::Semaphore>,
}

impl WorkContext {
    pub(crate) fn now(&self) -> budao_core::Timestamp {
        self.shared.world.clock.now()
    }

    /// Reports an input and waits while the session's mailbox is full. The report is lost only if the
    /// session is unloaded.
    pub(crate) async fn report(&self, input: impl Into<Input>) {
        self.send(None, Box::new(input.into())).await;
    }

    async fn send(&self, ended: Option<Work>, input: Box<Input>) {
        self.signals.send(Signal::Work { generation: self.generation, ended, input }).await;
    }
}

/// The tools of a session, kept while it is loaded.
#[derive(Debug, Default)]
pub(crate) struct SessionTools {
    /// The toolbox and its source's generation; `None` until first use.
    pub(crate) toolbox: Arc<tokio::sync::Mutex<Option<(u64, Toolbox)>>>,
    /// Checked calls that wait to run.
    pub(crate) ready: Arc<Mutex<BTreeMap<CallId, CheckedCall>>>,
    /// A copy of the session's settings that work shares; `None` until first use.
    pub(crate) settings: Option<Arc<Settings>>,
    /// The model request that waited while the session was not loaded, until it goes on.
    pub(crate) admission: Option<(GateKey, AdmissionAnswer)>,
}

impl SessionTools {
    /// Returns the session's settings. A change of settings replaces this struct, so the copy is never stale.
    pub(crate) fn settings(&mut self, session: &Session) -> Arc<Settings> {
        Arc::clone(self.settings.get_or_insert_with(|| Arc::new(session.settings.clone())))
    }
}

/// Stores large outputs as blobs in the session's journal.
#[derive(Debug)]
struct JournalBlobs(Arc<RuntimeShared>, SessionId);

#[async_trait]
impl Blobs for JournalBlobs {
    async fn put(&self, bytes: Bytes) -> Result<String, Fault> {
        self.0.journal.put_blob(self.1, bytes).await.map(|digest| digest.to_string())
    }

    async fn get(&self, name: &str) -> Result<Option<Bytes>, Fault> {
        self.0.journal.blob(name.parse::<Digest>()?).await
    }
}

/// Starts a piece of work on its own task.
pub(crate) fn start(
    work_context: WorkContext,
    work: Work,
    session: &Session,
    tools: &mut SessionTools,
) -> RunningWork {
    let cancel = CancellationToken::new();
    let is_call = matches!(work, Work::Turn(TurnWork::Call { .. }));
    let spawn = Arc::clone(&work_context.shared.world.spawn);
    let reporter = work_context.clone();
    let over = work.clone();
    let task = task(work_context, work, session, tools, &cancel);
    let stop = cancel.clone();
    spawn.spawn(Box::pin(async move {
        let task = AssertUnwindSafe(task).catch_unwind();
        // A call is asked to stop and runs to its end; other work is dropped.
        let ended = match is_call {
            true => Some(task.await),
            false => stop.run_until_cancelled(task).await,
        };
        if let Some(ended) = ended {
            // Boxed before the next await: a value that lives across one enlarges the future of every piece of work.
            let input = Box::new(ended.unwrap_or_else(|_| of_panic(&over)));
            reporter.send(Some(over), input).await;
        }
    }));
    RunningWork { cancel, is_call }
}

/// The report of a piece of work that panicked: a `bug` fault.
fn of_panic(work: &Work) -> Input {
    let bug = |operation| {
        Fault::new(Kind::Bug, operation).with_cause("the code that does this work panicked")
    };
    match work {
        Work::Turn(work) => of_turn_panic(work, bug).into(),
        Work::Stage { turn, job } | Work::Stop { turn, job } => Input::StageEnded {
            turn: *turn,
            job: job.clone(),
            end: TaskEnd::Failed { fault: bug(Operation::StartAgent) },
            usage: Usage::default(),
        },
    }
}

fn of_turn_panic(work: &TurnWork, bug: impl Fn(Operation) -> Fault) -> TurnInput {
    match work {
        TurnWork::Model { turn, step, attempt } => TurnInput::ModelFailed {
            turn: *turn,
            step: *step,
            attempt: *attempt,
            fault: bug(Operation::ModelRequest),
        },
        TurnWork::Call { turn, call, attempt } => TurnInput::ToolCallEnded {
            turn: *turn,
            call: call.clone(),
            attempt: *attempt,
            outcome: bug(Operation::ToolCall).into(),
        },
        TurnWork::Reconcile { turn, call, attempt } => TurnInput::CallReconciled {
            turn: *turn,
            call: call.clone(),
            attempt: *attempt,
            answer: ReconcileResult::Failed(bug(Operation::ReconcileCall)),
        },
        TurnWork::Check { turn, calls } => TurnInput::CallsChecked {
            turn: *turn,
            verdicts: calls
                .iter()
                .map(|call| (call.clone(), CallVerdict::Settled(bug(Operation::ToolCall).into())))
                .collect(),
        },
        TurnWork::Compact { turn, .. } => {
            TurnInput::CompactionFailed { turn: *turn, fault: bug(Operation::CompactHistory) }
        }
        TurnWork::Wake { turn, .. } => TurnInput::TimerFired { turn: *turn },
    }
}

/// Returns the future of a piece of work, with its inputs copied from the session now.
pub(crate) fn task(
    work_context: WorkContext,
    work: Work,
    session: &Session,
    tools: &mut SessionTools,
    cancel: &CancellationToken,
) -> BoxFuture<'static, Input> {
    match work {
        Work::Turn(TurnWork::Wake { turn, at }) => {
            let clock = Arc::clone(&work_context.shared.world.clock);
            Box::pin(async move {
                clock.sleep(at.since(clock.now())).await;
                TurnInput::TimerFired { turn }.into()
            })
        }
        Work::Turn(TurnWork::Model { turn, step, attempt }) => {
            let model_attempt =
                model::ModelAttempt::new(&work_context, session, step, attempt, tools);
            debug_assert_eq!(model_attempt.turn(), turn, "work is due for the running turn");
            Box::pin(model::ask(work_context, model_attempt).map(Input::Turn))
        }
        Work::Stage { turn, job } => {
            match pipeline::Brief::new(&work_context, session, turn, job.clone()) {
                Some(brief) => Box::pin(pipeline::run(work_context, brief)),
                None => Box::pin(async move { pipeline::unknown_input(turn, job) }),
            }
        }
        Work::Stop { turn, job } => Box::pin(pipeline::stop(work_context, turn, job)),
        Work::Turn(TurnWork::Compact { turn, .. }) => {
            compact_task(work_context, session, tools, turn)
        }
        Work::Turn(TurnWork::Check { turn, calls }) => {
            check_task(work_context, session, tools, (turn, &calls), cancel)
        }
        Work::Turn(TurnWork::Call { turn, call, attempt }) => {
            call_task(work_context, session, tools, (turn, call, attempt), cancel)
        }
        Work::Turn(TurnWork::Reconcile { turn, call, attempt }) => {
            reconcile_task(work_context, session, tools, (turn, call, attempt), cancel)
        }
    }
}

fn compact_task(
    work_context: WorkContext,
    session: &Session,
    tools: &mut SessionTools,
    turn: TurnNumber,
) -> BoxFuture<'static, Input> {
    let current = session.turn.as_ref();
    let long = compact::LongHistory {
        attempt: model::AttemptId::of(session),
        is_held: current.is_some_and(|turn| turn.wait.is_held),
        history: Arc::clone(&session.history),
        first_message: current.map_or(0, |turn| turn.first_message),
        model: session.model().to_owned(),
        settings: tools.settings(session),
        day_raises: session.spending.day_raises.clone(),
        trace: session.trace(),
        requester: model::requester(&work_context, session, Willingness::WhileOpen),
    };
    debug_assert_eq!(long.attempt.turn, turn, "work is due for the running turn");
    Box::pin(compact::compact(work_context, long).map(Input::Turn))
}

fn check_task(
    work_context: WorkContext,
    session: &Session,
    tools: &mut SessionTools,
    (turn, calls): (TurnNumber, &[CallId]),
    cancel: &CancellationToken,
) -> BoxFuture<'static, Input> {
    let wanted = find_unchecked_calls(session, calls);
    let (toolbox, ready) = (Arc::clone(&tools.toolbox), Arc::clone(&tools.ready));
    let (settings, trace) = (tools.settings(session), session.trace());
    let context = context(&work_context, session, turn, CallId::from(""), 1, cancel.clone());
    let versions = session.tool_versions.clone();
    Box::pin(async move {
        let checker = check::Checker { work_context, settings, toolbox, ready, context, versions };
        let verdicts = checker.check(wanted, trace).await;
        TurnInput::CallsChecked { turn, verdicts }.into()
    })
}

fn call_task(
    work_context: WorkContext,
    session: &Session,
    tools: &mut SessionTools,
    (turn, call, attempt): (TurnNumber, CallId, u32),
    cancel: &CancellationToken,
) -> BoxFuture<'static, Input> {
    report_to_tool_source(&work_context, session, &call, attempt);
    // Taken at once: the call is checked again only if this process has not checked it, as after a restart.
    let checked = tools.ready.lock().expect("no code panics while holding this").remove(&call);
    let started = checked.is_none().then(|| find_started_call(session, &call)).flatten();
    let toolbox = Arc::clone(&tools.toolbox);
    let (context, notes) =
        call_context(&work_context, session, turn, call.clone(), attempt, cancel.clone());
    let settings = tools.settings(session);
    // Taken at once: the turn records a start only if a slot is free.
    let slot = Arc::clone(&work_context.slots).try_acquire_owned().ok();
    Box::pin(async move {
        let prepared = match checked {
            Some(checked) => Ok(checked),
            None => prepare(&work_context, &settings, &toolbox, started).await,
        };
        let outcome = match prepared {
            Ok(ready) if ready.is_once() => {
                let tenant = settings.tenant();
                run_once(&work_context, tenant, ready, (context, notes), turn, slot).await
            }
            Ok(ready) => run(&work_context, ready, (context, notes), turn, slot).await,
            Err(fault) => fault.into(),
        };
        TurnInput::ToolCallEnded { turn, call, attempt, outcome }.into()
    })
}

fn reconcile_task(
    work_context: WorkContext,
    session: &Session,
    tools: &mut SessionTools,
    (turn, call, attempt): (TurnNumber, CallId, u32),
    cancel: &CancellationToken,
) -> BoxFuture<'static, Input> {
    let use_ = find_started_call(session, &call);
    let toolbox = Arc::clone(&tools.toolbox);
    let (context, notes) =
        call_context(&work_context, session, turn, call.clone(), attempt, cancel.clone());
    let settings = tools.settings(session);
    let next = next_attempt(session, &call);
    Box::pin(async move {
        let ready = match prepare(&work_context, &settings, &toolbox, use_).await {
            Ok(ready) => ready,
            Err(fault) => {
                let answer = ReconcileResult::Failed(not_offered_yet(fault));
                return TurnInput::CallReconciled { turn, call, attempt, answer }.into();
            }
        };
        let (tenant, shared) = (settings.tenant(), &work_context.shared);
        let answer = match once::reconcile(shared, tenant, &ready, &context, next).await {
            Some(known) => known,
            None => {
                let owner = context.clone();
                let answer = reconcile(&work_context, ready, (context, notes), turn).await;
                once::settle_reconciled(shared, &owner, &answer).await;
                answer
            }
        };
        TurnInput::CallReconciled { turn, call, attempt, answer }.into()
    })
}

/// Checks a call of an earlier process again, with the arguments that its records have.
async fn prepare(
    work_context: &WorkContext,
    settings: &Settings,
    toolbox: &tokio::sync::Mutex<Option<(u64, Toolbox)>>,
    call: Option<StartedCall>,
) -> Result<CheckedCall, Fault> {
    let Some(StartedCall { tool, arguments, route }) = call else {
        return Err(Fault::new(Kind::Bug, Operation::ToolCall)
            .with_cause("a call that is not started was to be run"));
    };
    let routed = match &route {
        Some(route) => {
            let source = &work_context.shared.tools;
            source.routed(work_context.session, settings, &tool, route).await?
        }
        None => None,
    };
    let toolbox = match routed {
        Some(toolbox) => toolbox,
        None => check::toolbox(work_context, settings, toolbox).await?,
    };
    toolbox.check_value(&tool, arguments, &work_context.shared.limits)
}

/// A tool that is not offered may come back: after a restart its server is still starting. The question is asked again.
fn not_offered_yet(fault: Fault) -> Fault {
    if fault.kind() != Kind::UnknownTool {
        return fault;
    }
    let tool = fault.detail().text(Fact::ToolName).unwrap_or_default().to_owned();
    Fault::new(Kind::RequestTimedOut, Operation::ReconcileCall)
        .with(Fact::ToolName, tool)
        .with_cause("the tool is not offered at present")
}

/// Runs the tool's reconcile function for an interrupted call, and records its notes before the answer.
async fn reconcile(
    work_context: &WorkContext,
    ready: CheckedCall,
    (context, mut notes): (CallContext, mpsc::Receiver<Note>),
    turn: TurnNumber,
) -> ReconcileResult {
    let (call, tool) = (context.call.clone(), ready.spec().name.to_string());
    let mut recorder = NoteRecorder::new(work_context, turn, call, tool);
    let asking = ready.reconcile(context);
    tokio::pin!(asking);
    let answer = loop {
        tokio::select! {
            biased;
            answer = &mut asking => break answer,
            Some(note) = notes.recv() => recorder.add(note).await,
        }
    };
    for _ in 0..NOTES_MAX {
        let Ok(note) = notes.try_recv() else { break };
        recorder.add(note).await;
    }
    recorder.finish().await;
    answer
}

/// Runs a call whose work is done once in a tenant.
async fn run_once(
    work_context: &WorkContext,
    tenant: &str,
    ready: CheckedCall,
    (context, notes): (CallContext, mpsc::Receiver<Note>),
    turn: TurnNumber,
    slot: Option<OwnedSemaphorePermit>,
) -> budao_core::tool::Outcome {
    let shared = &work_context.shared;
    if let Err(outcome) = once::claim(shared, tenant, &ready, &context).await {
        return outcome;
    }
    let owner = context.clone();
    let outcome = run(work_context, ready, (context, notes), turn, slot).await;
    once::settle(shared, &owner, &outcome).await;
    outcome
}

/// Runs a call and records its notes in order, before its outcome.
async fn run(
    work_context: &WorkContext,
    ready: CheckedCall,
    (context, mut notes): (CallContext, mpsc::Receiver<Note>),
    turn: TurnNumber,
    slot: Option<OwnedSemaphorePermit>,
) -> budao_core::tool::Outcome {
    // Without a slot the call waits; one that is stopped meanwhile never runs.
    let permit = tokio::select! {
        biased;
        () = context.cancel.cancelled() => None,
        permit = async { match slot {
            Some(slot) => Some(slot),
            None => Arc::clone(&work_context.slots).acquire_owned().await.ok(),
        } } => permit,
    };
    let Some(permit) = permit else {
        return Fault::new(Kind::Cancelled, Operation::ToolCall)
            .with(Fact::ToolName, ready.spec().name.to_string())
            .not_started()
            .with_trace(context.trace)
            .into();
    };
    let (call, tool) = (context.call.clone(), ready.spec().name.to_string());
    let mut recorder = NoteRecorder::new(work_context, turn, call, tool);
    let hooks = work_context.shared.hooks.clone();
    let after = (!hooks.is_empty()).then(|| (ready.clone(), context.clone()));
    let clock = &work_context.shared.world.clock;
    let running = ready.run(context);
    tokio::pin!(running);
    let outcome = loop {
        let due = recorder.due();
        tokio::select! {
            // The call comes first: notes that never stop must not keep it from its deadline.
            biased;
            outcome = &mut running => break outcome,
            Some(note) = notes.recv() => recorder.add(note).await,
            () = clock.sleep(due.unwrap_or_default()), if due.is_some() => recorder.flush().await,
        }
    };
    for _ in 0..NOTES_MAX {
        let Ok(note) = notes.try_recv() else { break };
        recorder.add(note).await;
    }
    let (call, tool) = recorder.finish().await;
    drop(permit);
    match after {
        None => outcome,
        Some((ready, context)) => {
            let (outcome, faults) = hooks.after(&ready, outcome, &context).await;
            check::report_faults(work_context, turn, Some(&call), &tool, faults).await;
            outcome
        }
    }
}

/// Lists the calls to check, with the arguments of the model or those that a person allowed.
pub(crate) fn find_unchecked_calls(session: &Session, ids: &[CallId]) -> Vec<check::UncheckedCall> {
    let calls = session.turn.iter().flat_map(|turn| &turn.calls);
    calls
        .filter(|call| ids.contains(&call.id))
        .filter_map(|call| match &call.state {
            CallState::Requested { approved } => Some(check::UncheckedCall {
                written: ToolUse {
                    id: call.id.clone(),
                    name: call.tool.clone(),
                    arguments: call.written.clone(),
                },
                approved: approved.clone(),
            }),
            _ => None,
        })
        .collect()
}

/// A call as its records have it.
struct StartedCall {
    tool: String,
    arguments: serde_json::Value,
    /// The worker that runs the call; absent if this process does.
    route: Option<ToolRoute>,
}

/// Tells the tool source how far a worker's call got, before its work starts.
fn report_to_tool_source(work_context: &WorkContext, session: &Session, id: &CallId, attempt: u32) {
    let call = session.turn.as_ref().and_then(|turn| turn.call(id));
    if let Some(remote) = call.and_then(|call| call.remote.as_deref()) {
        work_context.shared.tools.call_changed(work_context.session, id, attempt, remote);
    }
}

/// The attempt that runs if an interrupted call is found not to have happened.
fn next_attempt(session: &Session, id: &CallId) -> u32 {
    let call = session.turn.as_ref().and_then(|turn| turn.call(id));
    match call.map(|call| &call.state) {
        Some(CallState::Reconciling { of_attempt, .. }) => of_attempt.saturating_add(1),
        _ => 1,
    }
}

fn find_started_call(session: &Session, id: &CallId) -> Option<StartedCall> {
    let call = session.turn.as_ref()?.call(id)?;
    match &call.state {
        CallState::Started { arguments, .. } | CallState::Reconciling { arguments, .. } => {
            let (tool, arguments) = (call.tool.clone(), arguments.clone());
            let route = call.remote.as_ref().map(|remote| remote.route.clone());
            Some(StartedCall { tool, arguments, route })
        }
        _ => None,
    }
}

fn context(
    work_context: &WorkContext,
    session: &Session,
    turn: TurnNumber,
    call: CallId,
    attempt: u32,
    cancel: CancellationToken,
) -> CallContext {
    call_context(work_context, session, turn, call, attempt, cancel).0
}

fn call_context(
    work_context: &WorkContext,
    session: &Session,
    turn: TurnNumber,
    call: CallId,
    attempt: u32,
    cancel: CancellationToken,
) -> (CallContext, mpsc::Receiver<Note>) {
    let (notes, receiver) = NoteSender::channel(NOTES_MAX);
    let (shared, timer_call) = (&work_context.shared, call.clone());
    let running = session.turn.as_ref().and_then(|turn| turn.call(&call));
    let memory = MemoryView {
        work_context: work_context.clone(),
        turn,
        call: call.clone(),
        attempt,
        tool: running.map(|call| call.tool.clone()).unwrap_or_default(),
        waits: Mutex::default(),
    };
    let context = CallContext {
        session: work_context.session,
        turn,
        idempotency_key: format!("{}.{call}", work_context.session).into(),
        call,
        attempt,
        trace: session.trace(),
        lang: session.settings.language,
        cancel,
        limits: Arc::clone(&shared.limits),
        world: shared.world.clone(),
        memory: Arc::new(memory),
        notes,
        blobs: Arc::new(JournalBlobs(Arc::clone(shared), work_context.session)),
        timers: Arc::new(CallTimers {
            runtime: work_context.runtime.clone(),
            session: work_context.session,
            call: timer_call,
            known: Arc::clone(&work_context.known),
        }),
        scrubber: shared.scrubber.clone(),
    };
    (context, receiver)
}
