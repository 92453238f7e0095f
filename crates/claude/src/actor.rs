//! One loaded session: a task that owns its machine, its lease and its CLI.
//!
//! What has gathered is decided together, made durable in one append, and only then answered and acted on.
//! If the append fails, what was decided never happened: the CLI is ended, the state read back, and the turn
//! gets its fault from that.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use budao_core::{
    event::{Answer, Command, CommandId, Origin, SessionId, Settings},
    fault::{Fault, Kind, Operation},
    time::Timestamp,
};
use budao_journal::{
    Entry, Missing,
    tenure::{After, Exit, Lives, NoRoom, Round, Tenure, busy},
};
use futures::FutureExt;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{
    engine::{Claude, Shared, is_ours},
    launch::Start,
    link::{Around, Link},
    machine::{self, Action, Env, Input, Machine},
    wire::Line,
};

/// Messages that may wait for one session.
const INBOX: usize = 256;
/// Messages decided in one round.
const ROUND: usize = 128;
/// What a session's task is told.
#[derive(Debug)]
pub(crate) enum Message {
    Open {
        settings: Box<Settings>,
        origin: Option<Origin>,
        reply: oneshot::Sender<Result<(), Fault>>,
    },
    Command {
        command: Box<Command>,
        /// Does it wait in the journal's inbox?
        waits: bool,
        reply: oneshot::Sender<Result<Answer, Fault>>,
    },
    /// Be loaded, and have the CLI started.
    Warm,
    /// Be loaded, so that what is unfinished goes on.
    Touch,
    Line {
        life: u32,
        line: Box<Line>,
    },
    Exited {
        life: u32,
        fault: Fault,
    },
    Stop {
        patience: Duration,
        reply: oneshot::Sender<()>,
    },
}

impl Message {
    fn refuse(self, fault: &Fault) {
        match self {
            Self::Open { reply, .. } => drop(reply.send(Err(fault.clone()))),
            Self::Command { reply, .. } => drop(reply.send(Err(fault.clone()))),
            Self::Stop { reply, .. } => drop(reply.send(())),
            Self::Warm | Self::Touch | Self::Line { .. } | Self::Exited { .. } => {}
        }
    }
}

/// Starts the task of a session and returns the way in.
pub(crate) fn start(engine: Claude, id: SessionId, missing: Missing) -> mpsc::Sender<Message> {
    let (sender, inputs) = mpsc::channel(INBOX);
    let spawn = Arc::clone(&engine.shared.world.spawn);
    let task = Task { engine, id, missing, sender: sender.clone(), inputs };
    spawn.spawn(Box::pin(task.run()));
    sender
}

/// A task before and after it has the session: it holds the way in, so that no message is lost between.
struct Task {
    engine: Claude,
    id: SessionId,
    missing: Missing,
    sender: mpsc::Sender<Message>,
    inputs: mpsc::Receiver<Message>,
}

impl Task {
    async fn run(mut self) {
        let shared = Arc::clone(&self.engine.shared);
        let mut lives = Lives::new(self.id);
        let end = loop {
            let life = AssertUnwindSafe(self.live(&shared, lives.halt())).catch_unwind().await;
            match lives.after(life, &shared.limits.retry) {
                After::Again(wait) if wait.is_zero() => {}
                After::Again(wait) => shared.world.clock.sleep(wait).await,
                After::End(end) => break end,
                After::GivenUp(fault) => {
                    // Somebody must go on with what is unfinished, when the journal can be written again.
                    self.engine.pursue(self.id);
                    break Err(fault);
                }
            }
        };
        self.leave(end).await;
    }

    /// Takes the lease, reads the session and runs it until there is a reason to end.
    async fn live(&mut self, shared: &Arc<Shared>, halt: Option<Fault>) -> Exit {
        let mut actor = match Actor::load(self, Arc::clone(shared)).await {
            Ok(actor) => actor,
            Err(fault) if fault.kind() == Kind::SessionBusy => return Exit::Fenced,
            Err(fault) => return Exit::Failed(fault),
        };
        let exit = actor.run(&mut self.inputs, halt).await.unwrap_or_else(|exit| exit);
        actor.end_link(&mut self.inputs).await;
        if !matches!(exit, Exit::Fenced) {
            actor.tenure.release().await;
        }
        exit
    }

    /// No longer the session's task. What came in meanwhile goes to the next one, or is refused.
    async fn leave(mut self, end: Result<(), Fault>) {
        self.engine.sessions.leave(self.id, &self.sender);
        self.inputs.close();
        while let Some(message) = self.inputs.recv().await {
            match (&end, message) {
                (_, Message::Line { .. } | Message::Exited { .. }) => {}
                (_, Message::Stop { reply, .. }) => drop(reply.send(())),
                (Err(fault), message) => message.refuse(fault),
                (Ok(()), message) => {
                    let (engine, id) = (self.engine.clone(), self.id);
                    let forward = async move {
                        drop(engine.send(id, Missing::Refuse, message).await);
                    };
                    self.engine.shared.world.spawn.spawn(Box::pin(forward));
                }
            }
        }
    }
}

/// A loaded session.
struct Actor {
    shared: Arc<Shared>,
    id: SessionId,
    machine: Machine,
    tenure: Tenure,
    idle_since: Timestamp,
    around: Around,
    link: Option<Link>,
    /// Set once the life before is gone.
    ending: Option<CancellationToken>,
    /// When words that came are recorded.
    flush_at: Option<Timestamp>,
    stopping: Option<Timestamp>,
    waiting: Vec<oneshot::Sender<()>>,
}

/// What one round decided: to be made durable, and then done.
#[derive(Default)]
struct Decided {
    round: Round,
    actions: Vec<Action>,
}

impl Actor {
    async fn load(task: &Task, shared: Arc<Shared>) -> Result<Self, Fault> {
        let (tenure, session) = Tenure::begin(shared.terms(), task.id, task.missing).await?;
        if session.head > 0 && !is_ours(&session.settings) {
            tenure.release().await;
            return Err(busy(task.id));
        }
        let now = shared.world.clock.now();
        let around = Around {
            launcher: Arc::clone(&shared.launcher),
            world: shared.world.clone(),
            actor: task.sender.clone(),
            line_bytes_max: shared.limits.frame_bytes_hard,
        };
        Ok(Self {
            id: task.id,
            machine: Machine::new(task.id, session),
            idle_since: now,
            tenure,
            around,
            link: None,
            ending: None,
            flush_at: None,
            stopping: None,
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
        let mut round = Decided::default();
        match halt {
            Some(fault) => drop(self.step(Input::Halted { fault }, &mut round)),
            None if self.machine.session().head > 0 => drop(self.step(Input::Resumed, &mut round)),
            None => {}
        }
        self.commit(round).await?;
        self.take_inbox().await?;
        loop {
            let now = self.shared.world.clock.now();
            if let Some(exit) = self.reason_to_end(now).await? {
                return Ok(exit);
            }
            if self.tenure.renew(now).await? {
                self.take_inbox().await?;
            }
            self.take_times(now).await?;
            let wake = self.shared.world.clock.sleep(self.next_wake());
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
                () = wake => {}
            }
        }
    }

    /// What is due by the clock.
    async fn take_times(&mut self, now: Timestamp) -> Result<(), Exit> {
        let mut round = Decided::default();
        if self.flush_at.is_some_and(|at| at <= now) {
            self.step(Input::Flush, &mut round);
        }
        if self.machine.wake(&self.shared.patience).is_some_and(|at| at <= now) {
            self.step(Input::Woke, &mut round);
        }
        self.commit(round).await
    }

    fn next_wake(&self) -> Duration {
        let now = self.shared.world.clock.now();
        let mut wake = self.tenure.renew_at(now);
        let times = [self.flush_at, self.machine.wake(&self.shared.patience), self.stopping];
        for at in times.into_iter().flatten() {
            wake = wake.min(at);
        }
        if self.machine.is_idle() {
            wake = wake.min(self.idle_since.after(self.shared.idle_keep));
        }
        wake.since(now).max(Duration::from_millis(1))
    }

    async fn reason_to_end(&mut self, now: Timestamp) -> Result<Option<Exit>, Exit> {
        let idle = self.machine.is_idle();
        match self.stopping {
            Some(_) if idle => Ok(Some(Exit::Stopped)),
            Some(until) if now >= until => {
                let fault = Fault::new(Kind::ShuttingDown, Operation::RunTurn);
                let mut round = Decided::default();
                self.step(Input::Parked { fault }, &mut round);
                self.commit(round).await?;
                Ok(Some(Exit::Stopped))
            }
            Some(_) => Ok(None),
            None if idle && now.since(self.idle_since) >= self.shared.idle_keep => {
                Ok(Some(Exit::Idle))
            }
            None => Ok(None),
        }
    }

    /// Commands that other processes left for us.
    async fn take_inbox(&mut self) -> Result<(), Exit> {
        let messages = self.tenure.inbox().await.into_iter().map(|command| {
            let (reply, _) = oneshot::channel();
            Message::Command { command: Box::new(command), waits: true, reply }
        });
        self.take(messages.collect()).await
    }

    /// One round: decide, make durable, answer, act.
    async fn take(&mut self, messages: Vec<Message>) -> Result<(), Exit> {
        let mut round = Decided::default();
        for message in messages {
            self.decide(message, &mut round).await;
        }
        self.commit(round).await
    }

    async fn decide(&mut self, message: Message, round: &mut Decided) {
        match message {
            Message::Open { settings, origin, reply } => self.open(settings, origin, reply, round),
            Message::Command { command, waits, reply } => {
                self.command(*command, waits, reply, round).await;
            }
            Message::Warm => drop(self.step(Input::Warm, round)),
            Message::Touch => {}
            Message::Line { life, line } => drop(self.step(Input::Line { life, line }, round)),
            Message::Exited { life, fault } => {
                drop(self.step(Input::Exited { life, fault }, round));
            }
            Message::Stop { patience, reply } => {
                self.waiting.push(reply);
                self.stopping = Some(self.shared.world.clock.now().after(patience));
            }
        }
    }

    fn open(
        &mut self,
        settings: Box<Settings>,
        origin: Option<Origin>,
        reply: oneshot::Sender<Result<(), Fault>>,
        round: &mut Decided,
    ) {
        if !self.tenure.opens(self.machine.session(), reply, &mut round.round) {
            return;
        }
        self.step(Input::Opened { settings, origin }, round);
    }

    /// Takes up a command, unless it was taken up before.
    async fn command(
        &mut self,
        command: Command,
        waits: bool,
        reply: oneshot::Sender<Result<Answer, Fault>>,
        round: &mut Decided,
    ) {
        let session = self.machine.session();
        let admitted = self.tenure.admit(session, &command, waits, reply, &mut round.round).await;
        let Some(admitted) = admitted else { return };
        if let Some((id, answer)) = self.step(Input::Command(command), round) {
            round.round.answer(admitted, id, answer);
        }
    }

    /// Lets the machine decide. Its events are applied to the state and wait in the round to be durable.
    fn step(&mut self, input: Input, round: &mut Decided) -> Option<(CommandId, Answer)> {
        let world = &self.shared.world;
        let env = Env {
            now: world.clock.now(),
            uuid: world.uuid(),
            trace: world.trace(),
            limits: &self.shared.limits,
            patience: &self.shared.patience,
            scrubber: &self.shared.scrubber,
        };
        let decided = machine::step(&mut self.machine, input, &env);
        round.round.entries.extend(decided.entries.into_iter().map(|entry| Entry {
            at: entry.at,
            trace: entry.trace,
            turn: entry.turn,
            event: entry.event.into(),
        }));
        round.actions.extend(decided.actions);
        self.flush_at = match (self.machine.has_words(), self.flush_at) {
            (false, _) => None,
            (true, Some(at)) => Some(at),
            (true, None) => Some(env.now.after(self.shared.limits.delta_window)),
        };
        decided.answer
    }

    /// Makes a round durable, then answers whoever waits for it, then acts.
    async fn commit(&mut self, round: Decided) -> Result<(), Exit> {
        let Decided { round, actions } = round;
        let session = self.machine.session();
        if self.tenure.commit(round, session, &NoRoom).await?.wrote {
            self.idle_since = self.shared.world.clock.now();
        }
        self.act(actions).await
    }

    /// Does to the process what was decided.
    async fn act(&mut self, actions: Vec<Action>) -> Result<(), Exit> {
        let mut failed = None;
        for action in actions {
            match action {
                Action::Start { life, launch, settings } => {
                    let mcp_servers = self.shared.tool_servers.get(&self.id);
                    let mcp_servers = mcp_servers.map(|servers| servers.value().clone());
                    let start =
                        Start { session: self.id, launch, settings: *settings, mcp_servers };
                    self.drop_link();
                    self.link = Some(Link::start(life, start, &self.around, self.ending.take()));
                }
                Action::Send { life, line } => {
                    if let Some(link) = self.link.as_ref().filter(|link| link.life == life)
                        && let Err(fault) = link.send(&line)
                    {
                        failed = Some((life, fault));
                    }
                }
                Action::Kill { life } => {
                    if self.link.as_ref().is_some_and(|link| link.life == life) {
                        self.drop_link();
                    }
                }
            }
        }
        let Some((life, fault)) = failed else { return Ok(()) };
        let mut round = Decided::default();
        self.step(Input::Broken { life, fault }, &mut round);
        Box::pin(self.commit(round)).await
    }

    fn drop_link(&mut self) {
        if let Some(link) = self.link.take() {
            self.ending = Some(link.end());
        }
    }

    /// Waits until nothing of the CLI is left: the next writer may start one on the same conversation.
    async fn end_link(&mut self, inputs: &mut mpsc::Receiver<Message>) {
        self.drop_link();
        let Some(ending) = self.ending.take() else { return };
        let mut kept = Vec::new();
        let bound = self.shared.limits.kill_grace * 2 + Duration::from_secs(5);
        let mut late = std::pin::pin!(self.shared.world.clock.sleep(bound));
        loop {
            tokio::select! {
                biased;
                () = ending.cancelled() => break,
                () = &mut late => break,
                // Its last lines must not keep it from ending.
                Some(message) = inputs.recv(), if kept.len() < INBOX => match message {
                    Message::Line { .. } | Message::Exited { .. } => {}
                    other => kept.push(other),
                },
            }
        }
        for message in kept {
            let sender = self.around.actor.clone();
            // Behind the channel's bound nobody waits for long: its receiver comes back to it now.
            self.shared.world.spawn.spawn(Box::pin(async move {
                drop(sender.send(message).await);
            }));
        }
    }
}
