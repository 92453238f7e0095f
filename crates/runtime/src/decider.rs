//! The native loop as a decider: `budao_pipeline::step` decides, this module starts the work that is due.

mod act;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use budao_core::{
    event::{Answer, CommandId, Entry, Event, SessionId, Settings},
    fallback::{ModelChangeReason, ModelOutlook, check_models},
    fault::{Fact, Fault, Kind, Operation},
    session::Session,
    time::Timestamp,
    turn::{Env, Input as TurnInput},
};
use budao_engine::{
    Batch, Decider, DeciderFactory, HostInput, SessionContext, SessionLoader, SignalSender,
    SpaceReclaimer,
};
use budao_pipeline::{Input, Work};
use budao_tools::FinalAnswer;
use tokio_util::sync::CancellationToken;

use crate::{
    model_hooks::HookNotifier,
    once,
    runtime::{Runtime, RuntimeShared},
    sanitize,
    session_memory::SessionMemory,
    work,
};

/// A report of a session's work to its decider.
#[derive(Debug)]
pub(crate) enum Signal {
    /// An event that no work of this session produced, such as the end of a child session.
    External(Box<Input>),
    /// A report of a piece of work.
    Work {
        /// The generation of the session that started the work; reports of an earlier one are stale.
        generation: u32,
        /// The work that ends with this report.
        ended: Option<Work>,
        /// The report. Boxed: inputs are large, and a channel reserves room for many messages.
        input: Box<Input>,
    },
}

/// Makes the deciders of the native engine.
#[derive(Debug)]
pub(crate) struct NativeFactory(pub(crate) Arc<RuntimeShared>);

impl DeciderFactory for NativeFactory {
    type Decider = NativeDecider;

    fn accepts(&self, settings: &Settings) -> bool {
        !settings.is_foreign()
    }

    fn can_fork(&self) -> bool {
        true
    }

    fn prepare(&self, settings: &mut Settings) -> Result<(), Fault> {
        if settings.is_foreign() {
            return Err(Fault::new(Kind::ConfigurationWrong, Operation::OpenSession)
                .with(Fact::ConfigKey, "labels.engine")
                .with(Fact::Expected, "no such label, which is for sessions of other engines")
                .with(Fact::Received, "a label"));
        }
        let models: Vec<String> =
            std::iter::once(&settings.model).chain(&settings.fallbacks).cloned().collect();
        check_models("model", &models)?;
        if let Some(schema) = &settings.answer_schema {
            FinalAnswer::new(schema)?;
        }
        models.iter().try_for_each(|name| self.0.models.model(name).map(drop))
    }

    fn load(&self, context: SessionContext<Self>, state: Session) -> NativeDecider {
        self.0.observers.session_loaded(context.session, context.generation, &state);
        let mut decider = NativeDecider::new(Arc::clone(&self.0), context, state);
        decider.tools.admission = self.0.gates.claim(decider.id, decider.session.head);
        decider.continues_wait = decider.tools.admission.is_some();
        if !decider.continues_wait {
            self.0.restore_hold(&decider.session);
        }
        decider
    }

    fn is_suspended(&self, session: SessionId) -> bool {
        self.0.gates.is_suspended(session)
    }

    fn after_unload(&self, session: SessionId, loader: SessionLoader<Self>) {
        self.0.gates.after_unload(session, loader);
    }

    fn reclaimer(&self) -> &dyn SpaceReclaimer {
        &*self.0
    }
}

/// One loaded session of the native engine.
pub(crate) struct NativeDecider {
    shared: Arc<RuntimeShared>,
    generation: u32,
    /// For work that runs sessions of its own.
    runtime: Runtime,
    id: SessionId,
    signals: SignalSender<Signal>,
    session: Session,
    /// In start order: few pieces at a time, and a stop must not depend on a map's order.
    running: Vec<(Work, RunningWork)>,
    known: Arc<Mutex<SessionMemory>>,
    tools: work::SessionTools,
    slots: Arc<tokio::sync::Semaphore>,
    hook_notifier: HookNotifier,
    /// Whether the turn waits for its service, as last reported.
    is_waiting: bool,
    /// The session was loaded to go on with a wait that this process never left: nothing was interrupted.
    continues_wait: bool,
    /// The grace period of a shutdown is over: running calls are asked to stop and nothing new starts.
    is_parked: bool,
}

/// A piece of work under way. Dropping it fires the token: a call is asked to stop, other work is dropped.
pub(crate) struct RunningWork {
    /// Asks a call to stop; drops any other work.
    pub(crate) cancel: CancellationToken,
    /// A call runs to its end; other work is dropped when it is no longer due.
    pub(crate) is_call: bool,
}

impl Drop for RunningWork {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl NativeDecider {
    fn new(
        shared: Arc<RuntimeShared>,
        context: SessionContext<NativeFactory>,
        session: Session,
    ) -> Self {
        let SessionContext { session: id, generation, signals, host } = context;
        Self {
            generation,
            runtime: Runtime { shared: Arc::clone(&shared), host },
            id,
            signals,
            known: Arc::new(Mutex::new(SessionMemory::of(&session))),
            tools: work::SessionTools::default(),
            slots: Arc::new(tokio::sync::Semaphore::new(shared.limits.parallel_calls)),
            hook_notifier: HookNotifier::new(&shared.model_hooks, &session.history),
            session,
            running: Vec::new(),
            is_waiting: false,
            continues_wait: false,
            is_parked: false,
            shared,
        }
    }

    /// Takes a report of work. Reports of an earlier generation are stale, except that calls count once they ran.
    fn take_report(
        &mut self,
        generation: u32,
        ended: Option<Work>,
        input: Input,
        batch: &mut Batch,
    ) {
        let is_current = generation == self.generation;
        if let (true, Some(work)) = (is_current, ended) {
            self.running.retain(|(known, _)| *known != work);
        }
        let is_call = matches!(input, Input::Turn(TurnInput::ToolCallEnded { .. }));
        // A call that was stopped only by the shutdown keeps its state: the next writer runs it again or seals it.
        let is_ours_to_leave = self.is_parked && was_stopped(&input);
        if (is_current && !is_ours_to_leave) || (!is_current && is_call) {
            self.step(input, batch);
        }
    }

    /// Settles the once-key of a call in doubt, after a person settled the doubt.
    fn settle_key(&self, event: &Event) {
        let Event::DoubtSettled { call, settlement, .. } = event else { return };
        let (shared, session) = (Arc::clone(&self.shared), self.id);
        let (call, settlement) = (call.clone(), settlement.clone());
        self.shared.world.spawn.spawn(Box::pin(async move {
            once::settle_by_person(&shared, session, call, settlement).await;
        }));
    }

    /// Tells the tool source that a process claimed a call or reported its end.
    fn report_worker_state(&self, event: &Event) {
        let (Event::ToolCallClaimed { call, attempt, .. }
        | Event::ToolCallReported { call, attempt, .. }) = event
        else {
            return;
        };
        let known = self.session.turn.as_ref().and_then(|turn| turn.call(call));
        if let Some(remote) = known.and_then(|call| call.remote.as_deref()) {
            self.shared.tools.call_changed(self.id, call, *attempt, remote);
        }
    }

    /// Passes the durable answer to a running call that asked a person for input.
    fn pass_on_answer(&self, event: &Event) {
        let (Event::QuestionAnswered { call, .. } | Event::QuestionExpired { call, .. }) = event
        else {
            return;
        };
        let call = self.session.turn.as_ref().and_then(|turn| turn.call(call));
        if let Some(call) = call.filter(|call| !call.questions.is_empty()) {
            self.known.lock().expect("no code panics while holding this").set_questions(call);
        }
    }

    /// Slots that calls of ended turns still hold; all of them after the grace period of a shutdown.
    fn busy_slots(&self) -> usize {
        let limit = self.shared.limits.parallel_calls;
        if self.is_parked {
            return limit;
        }
        let taken = limit.saturating_sub(self.slots.available_permits());
        let ours = self.running.iter().filter(|(_, running)| running.is_call).count();
        taken.saturating_sub(ours)
    }

    /// The states of the gates of the session's models. Empty for a delta, and if the session has no fallbacks.
    fn outlooks(&self, input: &Input) -> Vec<ModelOutlook> {
        let settings = &self.session.settings;
        if settings.fallbacks.is_empty() || matches!(input, Input::Turn(TurnInput::Delta { .. })) {
            return Vec::new();
        }
        let of = |name: &str| {
            let model = self.shared.models.model(name).ok()?;
            let ModelOutlook { expected_wait, fault } =
                self.shared.gates.outlook(&model.gate_key());
            let fault = fault.map(|fault| fault.scrub(&self.shared.scrubber));
            Some(ModelOutlook { expected_wait, fault })
        };
        settings.models().map(|name| of(name).unwrap_or_default()).collect()
    }

    /// Lets `budao_pipeline::step` decide. Its events are applied to the state and added to the batch.
    fn step(&mut self, input: impl Into<Input>, batch: &mut Batch) -> Option<(CommandId, Answer)> {
        let input = input.into();
        let world = &self.shared.world;
        let now = world.clock.now();
        let outlooks = self.outlooks(&input);
        let env = Env {
            now,
            jitter: world.jitter(),
            busy_slots: self.busy_slots(),
            is_observed: self.shared.observers.is_observed(self.id),
            trace: world.trace(),
            outlooks: &outlooks,
            limits: &self.shared.limits,
            server: self.shared.server.as_ref(),
        };
        // Scrubbed before the decision, so that the state in memory is the fold of the records.
        let input =
            sanitize::clean_input(input, &self.shared.scrubber, self.shared.limits.json_depth);
        let decided = budao_pipeline::step(&mut self.session, input, &env);
        for entry in &decided.entries {
            self.known
                .lock()
                .expect("no code panics while holding this")
                .apply(&entry.event, entry.at);
            if let Event::SettingsChanged { .. } = *entry.event {
                self.tools = work::SessionTools::default();
                self.stop_held_request();
            }
        }
        match batch.entries.is_empty() {
            true => batch.entries = decided.entries,
            false => batch.entries.extend(decided.entries),
        }
        decided
            .answer
            .map(|(id, answer)| (id, sanitize::clean_answer(answer, &self.shared.scrubber)))
    }
}

impl Decider for NativeDecider {
    type Signal = Signal;

    fn state(&self) -> &Session {
        &self.session
    }

    fn decide(
        &mut self,
        input: HostInput<Signal>,
        batch: &mut Batch,
    ) -> Option<(CommandId, Answer)> {
        match input {
            HostInput::Command(command) => return self.step(TurnInput::Command(command), batch),
            HostInput::Open { settings, origin } => {
                let event = Event::SessionOpened { settings: *settings, origin };
                self.step(TurnInput::RecordOnly { turn: 0, event }, batch);
            }
            HostInput::Resumed if std::mem::take(&mut self.continues_wait) => {}
            HostInput::Resumed => drop(self.step(TurnInput::Resumed, batch)),
            HostInput::Aborted(fault) => drop(self.step(TurnInput::Aborted { fault }, batch)),
            HostInput::Signal(Signal::External(input)) => drop(self.step(*input, batch)),
            HostInput::Signal(Signal::Work { generation, ended, input }) => {
                self.take_report(generation, ended, *input, batch);
            }
            // Unfinished work stays as it is recorded; the next writer resumes it.
            HostInput::Parked(_) => {
                self.is_parked = true;
                self.known.lock().expect("no code panics while holding this").is_parked = true;
            }
            HostInput::TimerFired => drop(self.step(TurnInput::TimersDue, batch)),
        }
        None
    }

    fn before_commit(&mut self, batch: &mut Batch) {
        self.check_at_once(batch);
    }

    fn after_commit(&mut self, entries: &[Entry]) {
        if entries.iter().any(|entry| matches!(*entry.event, Event::SessionEnded { .. })) {
            self.shared.release_tools(self.id);
        }
        self.report_waiting();
        for entry in entries {
            self.known.lock().expect("no code panics while holding this").commit(&entry.event);
            log_model_change(self.id, entry);
            self.settle_key(&entry.event);
            self.report_worker_state(&entry.event);
            self.pass_on_answer(&entry.event);
        }
        let mut hook_notifier = std::mem::take(&mut self.hook_notifier);
        hook_notifier.notify(|| self.work_context(), entries, &self.session.history);
        self.hook_notifier = hook_notifier;
    }

    fn act(&mut self, _failed: &mut Batch) {
        self.start_due_work();
    }

    /// The next timer. Waits of a turn are work of their own.
    fn wake_at(&self) -> Option<Timestamp> {
        self.session.timers.wake_at().filter(|_| !self.is_parked)
    }

    fn is_idle(&self) -> bool {
        self.session.turn.is_none() && self.running.is_empty()
    }

    fn can_suspend(&self) -> bool {
        self.wait_end().is_some()
    }

    fn suspend(&mut self) -> Option<Duration> {
        self.suspend_wait()
    }

    /// A hook that is still running may fail, and its failure must be recorded.
    fn can_unload(&self) -> bool {
        !self.hook_notifier.is_busy()
    }

    fn is_winding_down(&self) -> bool {
        self.running.iter().any(|(_, running)| running.is_call)
    }
}

/// Logs that a session asks another model of its list.
fn log_model_change(session: SessionId, entry: &Entry) {
    if let Event::ModelChanged { step, from, to, reason, .. } = &*entry.event {
        let turn = entry.turn;
        match reason {
            ModelChangeReason::Returned => {
                tracing::info!(%session, turn, step, from, to, %reason, "model changed");
            }
            _ => tracing::warn!(%session, turn, step, from, to, %reason, "model changed"),
        }
    }
}

/// Is this a call that ended because it was stopped?
fn was_stopped(input: &Input) -> bool {
    let Input::Turn(TurnInput::ToolCallEnded { outcome, .. }) = input else { return false };
    outcome.fault().is_some_and(|fault| fault.kind() == Kind::Cancelled)
}

#[async_trait]
impl SpaceReclaimer for RuntimeShared {
    async fn reclaim(&self, fault: &Fault) -> bool {
        self.clean_up(fault).await;
        true
    }
}
