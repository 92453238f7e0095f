//! The Claude CLI as a decider: the pure machine decides, this module starts, feeds and ends the CLI's process.
//!
//! If an append fails, nothing of the batch takes effect: the host drops the decider, which ends the CLI. The
//! next load of the session ends the turn with a fault.

use std::sync::Arc;

use budao_core::{
    event::{Answer, CommandId, SessionId, Settings},
    fault::Fault,
    session::Session,
    time::Timestamp,
    trace::Trace,
};
use budao_engine::{
    Batch, BufferContent, Decider, DeciderFactory, FlushTimer, HostInput, NoReclaimer,
    SessionContext, SpaceReclaimer, SteadyClock,
};
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::{
    cli_process::{CliProcess, ProcessContext},
    engine::{ClaudeShared, ENGINE_LABEL, ENGINE_NAME},
    launch::LaunchSpec,
    machine::{self, Action, Env, Input, Machine, check_settings},
    wire::CliLine,
};

/// What the CLI's process reports to its session.
#[derive(Debug)]
pub(crate) enum Signal {
    /// Start the CLI although no prompt is waiting.
    Warm,
    Line {
        generation: u32,
        line: Box<CliLine>,
    },
    Exited {
        generation: u32,
        fault: Fault,
    },
}

/// Makes the deciders of this engine.
#[derive(Debug)]
pub(crate) struct ClaudeFactory(pub(crate) Arc<ClaudeShared>);

impl DeciderFactory for ClaudeFactory {
    type Decider = ClaudeDecider;

    fn accepts(&self, settings: &Settings) -> bool {
        settings.labels.get(ENGINE_LABEL).is_some_and(|name| name == ENGINE_NAME)
    }

    fn prepare(&self, settings: &mut Settings) -> Result<(), Fault> {
        check_settings(settings)?;
        settings.labels.insert(ENGINE_LABEL.to_owned(), ENGINE_NAME.to_owned());
        Ok(())
    }

    fn load(&self, context: SessionContext<Self>, state: Session) -> ClaudeDecider {
        let shared = Arc::clone(&self.0);
        let process_context = ProcessContext {
            launcher: Arc::clone(&shared.launcher),
            world: shared.world.clone(),
            signals: context.signals,
            line_bytes_max: shared.limits.frame_bytes_hard,
        };
        ClaudeDecider {
            session: context.session,
            machine: Machine::new(context.session, state).plan_folder(shared.plan_folder.clone()),
            process_context,
            process: None,
            ending: None,
            steady_clock: SteadyClock::start(),
            flush_timer: FlushTimer::new(shared.limits.delta_window),
            actions: Vec::new(),
            shared,
        }
    }

    fn reclaimer(&self) -> &dyn SpaceReclaimer {
        &NoReclaimer
    }
}

/// One loaded session of this engine.
pub(crate) struct ClaudeDecider {
    shared: Arc<ClaudeShared>,
    session: SessionId,
    machine: Machine,
    process_context: ProcessContext,
    process: Option<CliProcess>,
    /// Cancelled when the process before the current one has ended.
    ending: Option<CancellationToken>,
    steady_clock: SteadyClock,
    /// When text that arrived is recorded, in steady time.
    flush_timer: FlushTimer,
    /// Decided, and due after the next commit.
    actions: Vec<Action>,
}

impl ClaudeDecider {
    /// The outside values at this moment, without fresh ids.
    fn env<'a>(&self, shared: &'a ClaudeShared) -> Env<'a> {
        Env {
            now: shared.world.clock.now(),
            steady: self.steady_clock.now(),
            uuid: uuid::Uuid::nil(),
            trace: Trace::NONE,
            limits: &shared.limits,
            timeouts: &shared.timeouts,
            scrubber: &shared.scrubber,
            server: shared.server.as_ref(),
        }
    }

    /// Lets the machine decide. Its events are applied to the state and added to the batch.
    fn step(&mut self, input: Input, batch: &mut Batch) -> Option<(CommandId, Answer)> {
        let shared = Arc::clone(&self.shared);
        let env = self.env(&shared);
        let env = Env { uuid: shared.world.uuid(), trace: shared.world.trace(), ..env };
        let decided = machine::step(&mut self.machine, input, &env);
        batch.entries.extend(decided.entries);
        self.actions.extend(decided.actions);
        let content = match self.machine.has_words() {
            true => BufferContent::Shown,
            false => BufferContent::Nothing,
        };
        self.flush_timer.update(content, env.steady);
        decided.answer
    }

    fn fire_timers(&mut self, batch: &mut Batch) {
        let shared = Arc::clone(&self.shared);
        if self.machine.wake(&self.env(&shared)).is_some_and(|wait| wait.is_zero()) {
            self.step(Input::TimerFired, batch);
        }
    }

    /// Starts a process, once the one before it has ended.
    fn start_process(&mut self, generation: u32, launch: machine::Launch, settings: Settings) {
        let mcp_servers = self.shared.tool_servers.get(&self.session);
        let mcp_servers = mcp_servers.map(|servers| servers.value().clone());
        let start = LaunchSpec { session: self.session, launch, settings, mcp_servers };
        self.drop_process();
        self.process =
            Some(CliProcess::start(generation, start, &self.process_context, self.ending.take()));
    }

    fn drop_process(&mut self) {
        if let Some(process) = self.process.take() {
            self.ending = Some(process.end());
        }
    }

    fn process(&self, generation: u32) -> Option<&CliProcess> {
        self.process.as_ref().filter(|process| process.generation == generation)
    }
}

impl Decider for ClaudeDecider {
    type Signal = Signal;

    fn state(&self) -> &Session {
        self.machine.session()
    }

    fn decide(
        &mut self,
        input: HostInput<Signal>,
        batch: &mut Batch,
    ) -> Option<(CommandId, Answer)> {
        let input = match input {
            HostInput::Open { settings, origin } => Input::Opened { settings, origin },
            HostInput::Resumed => Input::Resumed,
            HostInput::Aborted(fault) => Input::Aborted { fault },
            HostInput::Command(command) => Input::Command(command),
            HostInput::Signal(Signal::Warm) => Input::Warm,
            HostInput::Signal(Signal::Line { generation, line }) => {
                Input::Line { generation, line }
            }
            HostInput::Signal(Signal::Exited { generation, fault }) => {
                Input::Exited { generation, fault }
            }
            HostInput::Parked(fault) => Input::Parked { fault },
            HostInput::TimerFired => {
                self.fire_timers(batch);
                return None;
            }
        };
        self.step(input, batch)
    }

    /// Text that is due shares the sync of the batch.
    fn before_commit(&mut self, batch: &mut Batch) {
        if self.flush_timer.is_due(self.steady_clock.now()) {
            self.step(Input::Flush, batch);
        }
    }

    fn act(&mut self, failed: &mut Batch) {
        let mut broken = None;
        for action in std::mem::take(&mut self.actions) {
            match action {
                Action::Start { generation, launch, settings } => {
                    self.start_process(generation, launch, *settings);
                }
                Action::Send { generation, line } => {
                    if let Some(Err(fault)) =
                        self.process(generation).map(|process| process.send(&line))
                    {
                        broken = Some((generation, fault));
                    }
                }
                Action::Kill { generation } => {
                    if self.process(generation).is_some() {
                        self.drop_process();
                    }
                }
            }
        }
        if let Some((generation, fault)) = broken {
            self.step(Input::Broken { generation, fault }, failed);
        }
    }

    fn wake_at(&self) -> Option<Timestamp> {
        let env = self.env(&self.shared);
        self.flush_timer.wake_at(self.machine.wake(&env), env.steady, env.now)
    }

    fn is_idle(&self) -> bool {
        self.machine.is_idle()
    }

    /// Ends the CLI: the next writer may start one on the same conversation.
    fn close(&mut self) -> Option<BoxFuture<'static, ()>> {
        self.drop_process();
        let ending = self.ending.take()?;
        Some(Box::pin(async move { ending.cancelled().await }))
    }
}
