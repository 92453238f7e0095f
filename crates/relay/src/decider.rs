//! One loaded session of the relay: lets the machine decide, and performs its actions.

use std::sync::Arc;

use budao_core::{
    event::{Answer, CommandId, Seq, SessionId, Settings, TurnNumber},
    fault::Fault,
    session::Session,
    time::Timestamp,
    trace::Trace,
};
use budao_engine::{
    Batch, Decider, DeciderFactory, FlushTimer, HostInput, NoReclaimer, SessionContext,
    SignalSender, SpaceReclaimer, SteadyClock,
};
use budao_journal::{Journal, PageLimits};
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    client::Post,
    engine::{ENGINE_NAME, RelayShared},
    machine::{self, Input, RelayAction, RelayEnv, RelayMachine, check_settings, limit},
    partial::PartialTurn,
};

/// A report of a session's work. `generation` is that of the loaded session that started the work: a report of an
/// earlier one is stale.
#[derive(Debug)]
pub struct Signal {
    pub(crate) generation: u32,
    pub(crate) input: Input,
    /// The share of the bytes that may wait for the session; freed when the session takes the report.
    pub(crate) _room: Option<OwnedSemaphorePermit>,
}

/// Makes the deciders of this engine.
#[derive(Debug)]
pub struct RelayFactory(pub(crate) Arc<RelayShared>);

impl DeciderFactory for RelayFactory {
    type Decider = RelayDecider;

    fn accepts(&self, settings: &Settings) -> bool {
        settings.labels.get(Settings::ENGINE).is_some_and(|name| name == ENGINE_NAME)
    }

    fn prepare(&self, settings: &mut Settings) -> Result<(), Fault> {
        check_settings(settings)?;
        settings.labels.insert(Settings::ENGINE.to_owned(), ENGINE_NAME.to_owned());
        Ok(())
    }

    fn load(&self, context: SessionContext<Self>, state: Session) -> RelayDecider {
        let SessionContext { session, generation, signals, host } = context;
        RelayDecider {
            session,
            generation,
            machine: RelayMachine::new(session, state),
            signals,
            journal: Arc::clone(&host.config().journal),
            steady_clock: SteadyClock::start(),
            flush_timer: FlushTimer::new(self.0.limits.delta_window),
            actions: Vec::new(),
            connection: None,
            shared: Arc::clone(&self.0),
        }
    }

    fn reclaimer(&self) -> &dyn SpaceReclaimer {
        &NoReclaimer
    }
}

/// One loaded session of this engine.
#[derive(Debug)]
pub struct RelayDecider {
    shared: Arc<RelayShared>,
    session: SessionId,
    generation: u32,
    machine: RelayMachine,
    signals: SignalSender<Signal>,
    journal: Arc<dyn Journal>,
    steady_clock: SteadyClock,
    /// When buffered events are recorded, in steady time.
    flush_timer: FlushTimer,
    /// Actions to perform after the next commit.
    actions: Vec<RelayAction>,
    /// The running POST; dropping it ends the connection.
    connection: Option<(u32, DropGuard)>,
}

impl RelayDecider {
    /// The environment without random values.
    fn env<'a>(&self, shared: &'a RelayShared) -> RelayEnv<'a> {
        RelayEnv {
            now: shared.world.clock.now(),
            steady: self.steady_clock.now(),
            trace: Trace::NONE,
            jitter: 0.0,
            limits: &shared.limits,
            run_limits: &shared.config.limits,
            resubmit: shared.config.resubmit,
            scrubber: &shared.scrubber,
            server: shared.server.as_ref(),
        }
    }

    /// Lets the machine decide. Its events are applied to the state and added to the batch.
    fn step(&mut self, input: Input, batch: &mut Batch) -> Option<(CommandId, Answer)> {
        let shared = Arc::clone(&self.shared);
        let env = self.env(&shared);
        let env = RelayEnv { trace: shared.world.trace(), jitter: shared.world.jitter(), ..env };
        let decided = machine::step(&mut self.machine, input, &env);
        batch.entries.extend(decided.entries);
        self.actions.extend(decided.actions);
        self.flush_timer.update(self.machine.buffer_content(), env.steady);
        decided.answer
    }

    fn fire_timers(&mut self, batch: &mut Batch) {
        let shared = Arc::clone(&self.shared);
        if self.machine.wake(&self.env(&shared)).is_some_and(|wait| wait.is_zero()) {
            self.step(Input::TimerFired, batch);
        }
    }

    /// Starts a POST. A body above its limit is not sent.
    fn post(&mut self, post_number: u32, body: &Value, trace: Trace) -> Result<(), Fault> {
        let body = serde_json::to_vec(body).unwrap_or_default();
        let most = self.shared.config.limits.request_bytes;
        if body.len() > most {
            return Err(limit("request_bytes", most as u64).not_started());
        }
        let post = Post {
            source: self.shared.source.clone(),
            generation: self.generation,
            post_number,
            body,
            trace,
            event_bytes: self.shared.config.limits.event_bytes,
        };
        let left = CancellationToken::new();
        let work = post.run(self.signals.clone(), left.clone());
        self.shared.world.spawn.spawn(Box::pin(work));
        self.connection = Some((post_number, left.drop_guard()));
        Ok(())
    }

    fn restore(&self, turn: TurnNumber, after: Seq, before: Option<Value>) {
        let (journal, session) = (Arc::clone(&self.journal), self.session);
        let (signals, generation) = (self.signals.clone(), self.generation);
        let state_bytes = self.shared.config.limits.state_bytes;
        self.shared.world.spawn.spawn(Box::pin(async move {
            let partial = match read_turn(&*journal, session, after, before, state_bytes).await {
                Ok(partial) => Some(Box::new(partial)),
                Err(fault) => {
                    tracing::warn!(%session, %fault, "reading the interrupted turn failed");
                    None
                }
            };
            let input = Input::Restored { turn, partial };
            signals.send(Signal { generation, input, _room: None }).await;
        }));
    }
}

/// Folds the records after a position into what their turn had received.
async fn read_turn(
    journal: &dyn Journal,
    session: SessionId,
    mut after: Seq,
    before: Option<Value>,
    state_bytes: usize,
) -> Result<PartialTurn, Fault> {
    let mut partial = PartialTurn::new(before);
    loop {
        let page = journal.read(session, after, PageLimits::default()).await?;
        let Some(last) = page.records.last() else { return Ok(partial) };
        after = last.seq;
        for record in &page.records {
            partial.apply(&*record.shared_event()?, state_bytes);
        }
        if after >= page.head {
            return Ok(partial);
        }
    }
}

impl Decider for RelayDecider {
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
            HostInput::Signal(signal) if signal.generation != self.generation => return None,
            HostInput::Signal(signal) => signal.input,
            HostInput::Parked(_) => Input::Parked,
            HostInput::TimerFired => {
                self.fire_timers(batch);
                return None;
            }
        };
        self.step(input, batch)
    }

    /// Events that are due share the sync of the batch.
    fn before_commit(&mut self, batch: &mut Batch) {
        if self.flush_timer.is_due(self.steady_clock.now()) {
            self.step(Input::Flush, batch);
        }
    }

    fn act(&mut self, failed: &mut Batch) {
        let mut broken = None;
        for action in std::mem::take(&mut self.actions) {
            match action {
                RelayAction::Post { post_number, body, trace } => {
                    if let Err(fault) = self.post(post_number, &body, trace) {
                        broken = Some((post_number, fault));
                    }
                }
                RelayAction::Leave { post_number } => {
                    self.connection.take_if(|(open, _)| *open == post_number);
                }
                RelayAction::Restore { turn, after, before } => self.restore(turn, after, before),
            }
        }
        if let Some((post_number, fault)) = broken {
            self.step(Input::Failed { post_number, fault, is_unsent: true }, failed);
        }
    }

    fn wake_at(&self) -> Option<Timestamp> {
        let env = self.env(&self.shared);
        self.flush_timer.wake_at(self.machine.wake(&env), env.steady, env.now)
    }

    fn is_idle(&self) -> bool {
        self.machine.is_idle()
    }
}
