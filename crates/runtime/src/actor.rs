//! One loaded session: a task that owns its state, its lease and its work.
//!
//! Inputs are taken in rounds: whatever has gathered is decided together, made durable in one append,
//! and only then answered and acted on. If the append fails, what was decided never happened: the state
//! is thrown away and read back.

mod act;
mod alarm;
mod round;
mod start;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use budao_core::{
    Timestamp,
    event::{Answer, Command, Origin, SessionId, Settings},
    fault::Fault,
    session::Session,
    turn::{Input, Work},
};
use budao_journal::{
    Missing,
    tenure::{Exit, Round, Tenure, wrong_engine},
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{
    model_hooks::Teller,
    runtime::{Runtime, Shared},
    work::{self, Known},
};
use alarm::Alarm;
use start::Start;

/// Messages that may wait for one session.
const INBOX: usize = 256;
/// Messages decided in one round: what has gathered while the one before was written.
const ROUND: usize = INBOX;

/// So many loaded sessions stay for as long as they may when they are idle; of more, each leaves the sooner.
const CROWD: u32 = 64;

/// What a session's task is told.
#[derive(Debug)]
pub(crate) enum Message {
    /// Be opened.
    Open {
        settings: Box<Settings>,
        origin: Option<Origin>,
        reply: oneshot::Sender<Result<(), Fault>>,
    },
    /// Take up a command.
    Command {
        command: Box<Command>,
        /// Does it wait in the journal's inbox?
        waits: bool,
        reply: oneshot::Sender<Result<Answer, Fault>>,
    },
    /// Something to record that no work of this session has to say.
    Aside(Box<Input>),
    /// Work reports.
    Report {
        /// In which life of the session the work was started; what an earlier one started is void.
        life: u32,
        /// The work that is over with this.
        over: Option<Work>,
        /// What it has to say. Boxed: inputs are large, and a channel keeps room for many messages.
        input: Box<Input>,
    },
    /// Finish or park.
    Stop { patience: Duration, reply: oneshot::Sender<()> },
}

/// Starts the task of a session and returns the way in.
pub(crate) fn start(
    runtime: Runtime,
    session: SessionId,
    missing: Missing,
) -> mpsc::Sender<Message> {
    let (sender, inputs) = mpsc::channel(INBOX);
    let spawn = Arc::clone(&runtime.shared.world.spawn);
    let start = Start { runtime, id: session, missing, sender: sender.clone(), inputs, lives: 0 };
    spawn.spawn(Box::pin(start.run()));
    sender
}

/// A loaded session.
struct Actor {
    shared: Arc<Shared>,
    life: u32,
    tenure: Tenure,
    /// For work that runs sessions of its own.
    runtime: Runtime,
    id: SessionId,
    /// For work to report to.
    sender: mpsc::Sender<Message>,
    session: Session,
    idle_since: Timestamp,
    /// In the order it was started: few pieces at a time, and no chance in which is stopped first.
    running: Vec<(Work, Running)>,
    known: Arc<Mutex<Known>>,
    tools: work::Tools,
    slots: Arc<tokio::sync::Semaphore>,
    teller: Teller,
    /// Turns may go on until then; from then on they are parked.
    stopping: Option<Timestamp>,
    /// Calls were asked to stop for that: whatever the clock says now, nobody else asked.
    parked: bool,
    /// They learn that we stopped when this is dropped.
    waiting: Vec<oneshot::Sender<()>>,
}

/// Work under way. Dropping it stops what may be stopped.
pub(crate) struct Running {
    /// Asks a call to stop; drops everything else.
    pub(crate) cancel: CancellationToken,
    /// A call runs to its end whatever happens; other work is dropped when it is no longer due.
    pub(crate) is_call: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Actor {
    async fn load(start: &Start, shared: Arc<Shared>) -> Result<Self, Fault> {
        let (tenure, session) = Tenure::begin(shared.terms(), start.id, start.missing).await?;
        if session.settings.is_foreign() {
            tenure.release().await;
            return Err(wrong_engine(start.id, &session.settings));
        }
        let now = shared.world.clock.now();
        Ok(Self {
            life: start.lives,
            tenure,
            runtime: start.runtime.clone(),
            id: start.id,
            sender: start.sender.clone(),
            known: Arc::new(Mutex::new(Known::of(&session))),
            tools: work::Tools::default(),
            slots: Arc::new(tokio::sync::Semaphore::new(shared.limits.parallel_calls)),
            teller: Teller::new(&shared.model_hooks, &session.history),
            session,
            idle_since: now,
            running: Vec::new(),
            stopping: None,
            parked: false,
            waiting: Vec::new(),
            shared,
        })
    }

    /// Runs until there is a reason to end.
    async fn run(
        &mut self,
        inputs: &mut mpsc::Receiver<Message>,
        halt: Option<Fault>,
    ) -> Result<Exit, Exit> {
        let mut round = Round::default();
        match halt {
            // Nothing but the end fits on a full disk.
            Some(fault) => drop(self.step(Input::Halted { fault }, &mut round)),
            None if self.session.head > 0 => drop(self.step(Input::Resumed, &mut round)),
            None => {}
        }
        self.commit(round).await?;
        self.take_inbox().await?;
        self.act();
        let mut alarm = Alarm::default();
        loop {
            let now = self.shared.world.clock.now();
            if let Some(exit) = self.reason_to_end(now) {
                return Ok(exit);
            }
            if self.stopping.is_some_and(|until| now >= until) {
                self.act();
            }
            if self.tenure.renew(now).await? {
                self.take_inbox().await?;
            }
            let (at, clock) =
                (now.after(self.next_wake(now)), Arc::clone(&self.shared.world.clock));
            tokio::select! {
                biased;
                Some(message) = inputs.recv() => {
                    let mut round = vec![message];
                    while round.len() < ROUND && let Ok(message) = inputs.try_recv() {
                        round.push(message);
                    }
                    self.take(round).await?;
                }
                () = self.tenure.changed() => self.take_inbox().await?,
                () = alarm.by(at, now, &*clock) => {}
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.session.turn.is_none() && self.running.is_empty()
    }

    /// Idle, and nobody is left whose failure would have to be recorded.
    fn may_go(&self) -> bool {
        self.is_idle() && !self.teller.is_busy()
    }

    fn reason_to_end(&self, now: Timestamp) -> Option<Exit> {
        match self.stopping {
            Some(_) if self.is_idle() => Some(Exit::Stopped),
            Some(until) if now >= until => {
                let grace = self.shared.limits.kill_grace * 2;
                let may_wait = self.calls_running() > 0 && now < until.after(grace);
                (!may_wait).then_some(Exit::Stopped)
            }
            Some(_) => None,
            None if self.may_go() && now.since(self.idle_since) >= self.idle_keep() => {
                Some(Exit::Idle)
            }
            None => None,
        }
    }

    /// How long it stays when it is idle. Thousands that come at once must not all be loaded at once.
    fn idle_keep(&self) -> Duration {
        let loaded = u32::try_from(self.runtime.sessions.len()).unwrap_or(u32::MAX);
        match loaded {
            0..=CROWD => self.shared.idle_keep,
            _ => self.shared.idle_keep * CROWD / loaded,
        }
    }

    fn calls_running(&self) -> usize {
        self.running.iter().filter(|(_, running)| running.is_call).count()
    }

    fn next_wake(&self, now: Timestamp) -> Duration {
        let mut wake = self.tenure.renew_at(now).since(now);
        if let Some(until) = self.stopping {
            let grace = self.shared.limits.kill_grace * 2;
            let next = if now < until { until } else { until.after(grace) };
            wake = wake.min(next.since(now));
        } else if self.may_go() {
            wake = wake.min(self.idle_since.after(self.idle_keep()).since(now));
        }
        wake.max(Duration::from_millis(1))
    }

    /// Commands that other processes left for us.
    async fn take_inbox(&mut self) -> Result<(), Exit> {
        let messages = self.tenure.inbox().await.into_iter().map(|command| {
            let (reply, _) = oneshot::channel();
            Message::Command { command: Box::new(command), waits: true, reply }
        });
        self.take(messages.collect()).await
    }
}
