//! One loaded session: a task that owns its machine, its lease and its CLI.
//!
//! What has gathered is decided together, made durable in one append, and only then answered and acted on.
//! If the append fails, what was decided never happened: the CLI is ended, the state read back, and the turn
//! gets its fault from that.

use std::{
    collections::VecDeque,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use budao_core::{
    event::{Answer, Ask, Command, CommandId, Origin, Seq, SessionId, Settings},
    fault::{Category, Fact, Fault, Kind, Operation},
    session::Session,
    time::Timestamp,
};
use budao_journal::{Append, AppendError, Entry, Lease, LeaseRequest, Missing, Watch, fold};
use futures::FutureExt;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{
    engine::{Claude, Shared},
    launch::Start,
    link::{Around, Link},
    machine::{self, Action, Env, Input, Machine},
    wire::Line,
};

/// Messages that may wait for one session.
const INBOX: usize = 256;
/// Messages decided in one round.
const ROUND: usize = 128;
/// Answers remembered, for commands that come again at once.
const REMEMBERED: usize = 64;
/// Tries of one append, and the wait that grows between them.
const APPEND_TRIES: u32 = 4;
const APPEND_WAIT: Duration = Duration::from_millis(100);
/// Times a session is read back after its journal failed, before it is left for the next touch.
const REVIVALS: u32 = 5;

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

/// Why a task ended.
enum Exit {
    Idle,
    Stopped,
    Fenced,
    Failed(Fault),
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
        let mut halt = None;
        let mut attempt = 0;
        let end = loop {
            attempt += 1;
            let life = AssertUnwindSafe(self.live(&shared, halt.take())).catch_unwind().await;
            match life.unwrap_or_else(|_| Exit::Failed(broken(self.id))) {
                // Nothing failed: a command had come before, so what was decided is void.
                Exit::Failed(fault) if fault.kind() == Kind::CommandRepeated => attempt = 0,
                Exit::Failed(fault) if attempt < REVIVALS && is_passing(&fault) => {
                    tracing::error!(session = %self.id, %fault, "the journal failed; reading back");
                    shared.world.clock.sleep(shared.limits.retry.delay(attempt, 0.0)).await;
                    halt = (fault.row().category == Category::Resource).then_some(fault);
                }
                Exit::Failed(fault) => break Err(fault),
                Exit::Fenced => break Err(busy(self.id)),
                Exit::Idle => break Ok(()),
                Exit::Stopped => break Err(gone(self.id)),
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
        if !matches!(exit, Exit::Fenced)
            && let Err(fault) = shared.journal.release(&actor.lease).await
        {
            tracing::warn!(session = %self.id, %fault, "the lease was not given back");
        }
        exit
    }

    /// No longer the session's task. What came in meanwhile goes to the next one, or is refused.
    async fn leave(mut self, end: Result<(), Fault>) {
        let ours =
            |_: &SessionId, sender: &mpsc::Sender<Message>| sender.same_channel(&self.sender);
        self.engine.sessions.remove_if(&self.id, ours);
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

/// Becomes the session's writer: at once if its holder is known to be gone.
async fn take_lease(shared: &Shared, session: SessionId, missing: Missing) -> Result<Lease, Fault> {
    let request = LeaseRequest {
        session,
        holder: shared.holder.clone(),
        ttl: shared.limits.lease,
        missing,
        instead_of: None,
    };
    let fault = match shared.journal.take_lease(request.clone()).await {
        Err(fault) if fault.kind() == Kind::SessionBusy => fault,
        taken => return taken,
    };
    match shared.journal.info(session).await?.and_then(|info| info.lease) {
        Some(lease) if shared.census.is_gone(&lease.holder) => {
            let request = LeaseRequest { instead_of: Some(lease.holder), ..request };
            shared.journal.take_lease(request).await
        }
        _ => Err(fault),
    }
}

fn is_passing(fault: &Fault) -> bool {
    !matches!(fault.kind(), Kind::UnknownSession | Kind::JournalDamaged | Kind::JournalNewer)
}

fn broken(session: SessionId) -> Fault {
    Fault::new(Kind::Bug, Operation::RunTurn)
        .with(Fact::Session, session.to_string())
        .because("the code that runs the session panicked")
}

fn busy(session: SessionId) -> Fault {
    Fault::new(Kind::SessionBusy, Operation::OpenSession).with(Fact::Session, session.to_string())
}

fn repeated(session: SessionId, command: &CommandId) -> Fault {
    Fault::new(Kind::CommandRepeated, Operation::SubmitCommand)
        .with(Fact::Session, session.to_string())
        .with(Fact::CommandId, command.to_string())
}

/// The task that was to answer is gone.
pub(crate) fn gone(session: SessionId) -> Fault {
    Fault::new(Kind::ShuttingDown, Operation::SubmitCommand)
        .with(Fact::Session, session.to_string())
}

/// A loaded session.
struct Actor {
    shared: Arc<Shared>,
    id: SessionId,
    machine: Machine,
    lease: Lease,
    renew_at: Timestamp,
    idle_since: Timestamp,
    snapshot: Seq,
    watch: Watch,
    /// The inbox could not be read and must be looked at again.
    missed: bool,
    remembered: VecDeque<Taken>,
    around: Around,
    link: Option<Link>,
    /// Set once the life before is gone.
    ending: Option<CancellationToken>,
    /// When words that came are recorded.
    flush_at: Option<Timestamp>,
    stopping: Option<Timestamp>,
    waiting: Vec<oneshot::Sender<()>>,
}

/// A command that was taken up, for when it comes again.
struct Taken {
    id: CommandId,
    /// What was asked, in short: the same id for something else is no repetition.
    ask: u64,
    answer: Answer,
}

fn fingerprint(ask: &Ask) -> u64 {
    let mut hasher = DefaultHasher::new();
    serde_json::to_vec(ask).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}

/// What one round decided, and who waits for it.
#[derive(Default)]
struct Round {
    entries: Vec<Entry>,
    actions: Vec<Action>,
    answers: Vec<(CommandId, Answer)>,
    taken: Vec<(Command, Answer)>,
    known: Vec<Taken>,
    replies: Vec<(oneshot::Sender<Result<Answer, Fault>>, Answer)>,
    opened: Vec<oneshot::Sender<Result<(), Fault>>>,
}

impl Round {
    fn refuse(self, fault: &Fault) {
        self.replies.into_iter().for_each(|(reply, _)| drop(reply.send(Err(fault.clone()))));
        self.opened.into_iter().for_each(|reply| drop(reply.send(Err(fault.clone()))));
    }
}

impl Actor {
    async fn load(task: &Task, shared: Arc<Shared>) -> Result<Self, Fault> {
        let watch = shared.journal.watch(task.id);
        let lease = take_lease(&shared, task.id, task.missing).await?;
        let (session, snapshot) = match lease.head {
            0 => (Session::default(), 0),
            _ => fold(&*shared.journal, task.id).await?,
        };
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
            renew_at: now.after(shared.limits.lease_renewal),
            idle_since: now,
            lease,
            snapshot,
            watch,
            missed: false,
            remembered: VecDeque::new(),
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
        let mut round = Round::default();
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
            if now >= self.renew_at {
                self.renew(now).await?;
                if self.missed {
                    self.take_inbox().await?;
                }
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
                () = self.watch.changed() => self.take_inbox().await?,
                () = wake => {}
            }
        }
    }

    /// What is due by the clock.
    async fn take_times(&mut self, now: Timestamp) -> Result<(), Exit> {
        let mut round = Round::default();
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
        let mut wake = self.renew_at;
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
                let mut round = Round::default();
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

    async fn renew(&mut self, now: Timestamp) -> Result<(), Exit> {
        match self.shared.journal.renew(&self.lease, self.shared.limits.lease).await {
            Ok(lease) => self.lease = lease,
            Err(fault) if fault.kind() == Kind::Fenced => return Err(Exit::Fenced),
            // A lease that has run out still works until somebody takes it.
            Err(fault) => tracing::warn!(session = %self.id, %fault, "the lease was not renewed"),
        }
        self.renew_at = now.after(self.shared.limits.lease_renewal);
        Ok(())
    }

    /// Commands that other processes left for us.
    async fn take_inbox(&mut self) -> Result<(), Exit> {
        let commands = match self.shared.journal.inbox(self.id).await {
            Ok(commands) => commands,
            Err(fault) => {
                tracing::warn!(session = %self.id, %fault, "the inbox could not be read");
                self.missed = true;
                return Ok(());
            }
        };
        self.missed = false;
        let messages = commands.into_iter().map(|command| {
            let (reply, _) = oneshot::channel();
            Message::Command { command: Box::new(command), waits: true, reply }
        });
        self.take(messages.collect()).await
    }

    /// One round: decide, make durable, answer, act.
    async fn take(&mut self, messages: Vec<Message>) -> Result<(), Exit> {
        let mut round = Round::default();
        for message in messages {
            self.decide(message, &mut round).await;
        }
        self.commit(round).await
    }

    async fn decide(&mut self, message: Message, round: &mut Round) {
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
        round: &mut Round,
    ) {
        if self.machine.session().head > 0 {
            let fault = Fault::new(Kind::CommandRepeated, Operation::OpenSession)
                .with(Fact::Session, self.id.to_string());
            return drop(reply.send(Err(fault)));
        }
        self.step(Input::Opened { settings, origin }, round);
        round.opened.push(reply);
    }

    /// Takes up a command, unless it was taken up before.
    async fn command(
        &mut self,
        command: Command,
        waits: bool,
        reply: oneshot::Sender<Result<Answer, Fault>>,
        round: &mut Round,
    ) {
        if self.machine.session().head == 0 {
            let fault = Fault::new(Kind::UnknownSession, Operation::SubmitCommand)
                .with(Fact::Session, self.id.to_string());
            return drop(reply.send(Err(fault)));
        }
        let ask = fingerprint(&command.ask);
        let mut known = round.known.iter().chain(&self.remembered);
        match known.find(|taken| taken.id == command.id) {
            Some(taken) if taken.ask == ask => {
                return round.replies.push((reply, taken.answer.clone()));
            }
            Some(taken) => return drop(reply.send(Err(repeated(self.id, &taken.id)))),
            None => {}
        }
        let kept = (!waits && !command.id.is_own()).then(|| command.clone());
        if kept.is_some() && self.is_old(&command.id).await {
            // Whoever is told "busy" asks through the inbox, which knows every answer.
            return drop(reply.send(Err(busy(self.id))));
        }
        let Some((id, answer)) = self.step(Input::Command(command), round) else { return };
        match kept {
            Some(command) => round.taken.push((command, answer.clone())),
            None if waits => round.answers.push((id.clone(), answer.clone())),
            None => {}
        }
        round.known.push(Taken { id, ask, answer: answer.clone() });
        round.replies.push((reply, answer));
    }

    /// Was a command with this id taken up before, longer ago than we remember?
    async fn is_old(&self, id: &CommandId) -> bool {
        !matches!(self.shared.journal.answer(self.id, id).await, Ok(None))
    }

    /// Lets the machine decide. Its events are applied to the state and wait in the round to be durable.
    fn step(&mut self, input: Input, round: &mut Round) -> Option<(CommandId, Answer)> {
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
        round.entries.extend(decided.entries.into_iter().map(|entry| Entry {
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
    async fn commit(&mut self, round: Round) -> Result<(), Exit> {
        let nothing =
            round.entries.is_empty() && round.answers.is_empty() && round.taken.is_empty();
        if !nothing {
            if let Err(exit) = self.append(&round).await {
                let fault = match &exit {
                    Exit::Failed(fault) if fault.kind() != Kind::CommandRepeated => fault.clone(),
                    _ => busy(self.id),
                };
                round.refuse(&fault);
                return Err(exit);
            }
            self.idle_since = self.shared.world.clock.now();
        }
        for answered in round.known {
            self.remembered.push_back(answered);
            if self.remembered.len() > REMEMBERED {
                self.remembered.pop_front();
            }
        }
        round.replies.into_iter().for_each(|(reply, answer)| drop(reply.send(Ok(answer))));
        round.opened.into_iter().for_each(|reply| drop(reply.send(Ok(()))));
        self.act(round.actions).await
    }

    async fn append(&mut self, round: &Round) -> Result<(), Exit> {
        let head = self.machine.session().head;
        let expected = head - round.entries.len() as Seq;
        // The longer the history, the rarer: what snapshots cost stays in proportion to what is written.
        let apart = self.shared.limits.snapshot_records.max(self.snapshot / 2);
        let due = head - self.snapshot >= apart;
        let snapshot = due.then(|| serde_json::to_vec(self.machine.session()).ok()).flatten();
        if snapshot.is_some() {
            self.snapshot = head;
        }
        let append = || Append {
            session: self.id,
            token: self.lease.token,
            expected,
            entries: round.entries.clone(),
            answers: round.answers.clone(),
            taken: round.taken.clone(),
            snapshot: snapshot.clone(),
        };
        self.append_at_last(append, head).await
    }

    /// Appends; what passes is tried again here, so that a running turn is not thrown away for it.
    async fn append_at_last(&self, append: impl Fn() -> Append, head: Seq) -> Result<(), Exit> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let fault = match self.shared.journal.append(append()).await {
                Ok(_) => return Ok(()),
                // Only we write: the records are there, and only the answer was lost.
                Err(AppendError::Conflict { head: there }) if attempt > 1 && there == head => {
                    return Ok(());
                }
                Err(AppendError::Fenced) => return Err(Exit::Fenced),
                Err(error) => error.into_fault(self.id),
            };
            if attempt >= APPEND_TRIES
                || !is_passing(&fault)
                || fault.row().category == Category::Resource
                || fault.kind() == Kind::CommandRepeated
            {
                return Err(Exit::Failed(fault));
            }
            tracing::warn!(session = %self.id, %fault, "the append is tried again");
            self.shared.world.clock.sleep(APPEND_WAIT * attempt).await;
        }
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
                        && let Err(fault) = link.send(line)
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
        let mut round = Round::default();
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
