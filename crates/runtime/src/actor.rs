//! One loaded session: a task that owns its state, its lease and its work.
//!
//! Inputs are taken in rounds: whatever has gathered is decided together, made durable in one append,
//! and only then answered and acted on. If the append fails, what was decided never happened: the state
//! is thrown away and read back.

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use budao_core::{
    Timestamp,
    event::{
        self as core, Answer, Ask, Command, CommandId, Event, Origin, Seq, SessionId, Settings,
    },
    fault::{Category, Fact, Fault, Kind, Operation},
    session::{CallState, Session},
    turn::{self, Env, Input, Work},
};
use budao_journal::{Append, AppendError, Entry, Lease, LeaseRequest, Missing, Watch, fold};
use futures::FutureExt;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{
    clean,
    model_hooks::Teller,
    runtime::{Runtime, Shared},
    work::{self, Known},
};

/// Messages that may wait for one session.
const INBOX: usize = 256;
/// Messages decided in one round.
const ROUND: usize = 64;
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
    Aside(Input),
    /// Work reports.
    Report {
        /// In which life of the session the work was started; what an earlier one started is void.
        life: u32,
        /// The work that is over with this.
        over: Option<Work>,
        /// What it has to say.
        input: Input,
    },
    /// Finish or park.
    Stop { patience: Duration, reply: oneshot::Sender<()> },
}

/// The task that was to answer is gone.
pub(crate) fn gone(session: SessionId) -> Fault {
    Fault::new(Kind::ShuttingDown, Operation::SubmitCommand)
        .with(Fact::Session, session.to_string())
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

/// Why a task ended.
enum Exit {
    /// Nothing to do.
    Idle,
    /// Told to.
    Stopped,
    /// Another writer has the session.
    Fenced,
    /// The journal failed.
    Failed(Fault),
}

/// A task before and after it has the session: it holds the way in, so that no message is lost between.
struct Start {
    runtime: Runtime,
    id: SessionId,
    missing: Missing,
    sender: mpsc::Sender<Message>,
    inputs: mpsc::Receiver<Message>,
    lives: u32,
}

impl Start {
    async fn run(mut self) {
        let shared = Arc::clone(&self.runtime.shared);
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
                Exit::Failed(fault) => {
                    // Somebody must go on with what is unfinished, when the journal can be written again.
                    self.runtime.pursue(self.id);
                    break Err(fault);
                }
                Exit::Fenced => break Err(busy(self.id)),
                Exit::Idle => break Ok(()),
                Exit::Stopped => break Err(gone(self.id)),
            }
        };
        self.leave(end).await;
    }

    /// Takes the lease, reads the session and runs it until there is a reason to end.
    async fn live(&mut self, shared: &Arc<Shared>, halt: Option<Fault>) -> Exit {
        self.lives += 1;
        let mut actor = match Actor::load(self, Arc::clone(shared)).await {
            Ok(actor) => actor,
            Err(fault) if fault.kind() == Kind::SessionBusy => return Exit::Fenced,
            Err(fault) => return Exit::Failed(fault),
        };
        let exit = actor.run(&mut self.inputs, halt).await.unwrap_or_else(|exit| exit);
        if !matches!(exit, Exit::Fenced)
            && let Err(fault) = shared.journal.release(&actor.lease).await
        {
            tracing::warn!(session = %self.id, %fault, "the lease was not given back");
        }
        exit
    }

    /// No longer the session's task. What came in meanwhile goes to the next one, or is refused.
    async fn leave(mut self, end: Result<(), Fault>) {
        self.runtime.sessions.remove_if(&self.id, |_, sender| sender.same_channel(&self.sender));
        self.inputs.close();
        while let Some(message) = self.inputs.recv().await {
            match (&end, message) {
                (_, Message::Report { .. } | Message::Aside(_)) => {}
                (_, Message::Stop { reply, .. }) => drop(reply.send(())),
                (Err(fault), message) => message.refuse(fault),
                (Ok(()), message) => {
                    let (runtime, id) = (self.runtime.clone(), self.id);
                    let forward = async move {
                        drop(runtime.send(id, Missing::Refuse, message).await);
                    };
                    self.runtime.shared.world.spawn.spawn(Box::pin(forward));
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
    let lease = shared.journal.info(session).await?.and_then(|info| info.lease);
    match lease {
        Some(lease) if shared.census.is_gone(&lease.holder) => {
            let request = LeaseRequest { instead_of: Some(lease.holder), ..request };
            shared.journal.take_lease(request).await
        }
        _ => Err(fault),
    }
}

/// Worth reading back and trying again.
fn is_passing(fault: &Fault) -> bool {
    !matches!(fault.kind(), Kind::UnknownSession | Kind::JournalDamaged | Kind::JournalNewer)
}

fn broken(session: SessionId) -> Fault {
    Fault::new(Kind::Bug, Operation::RunTurn)
        .with(Fact::Session, session.to_string())
        .because("the code that runs the session panicked")
}

fn repeated(session: SessionId, command: &CommandId) -> Fault {
    Fault::new(Kind::CommandRepeated, Operation::SubmitCommand)
        .with(Fact::Session, session.to_string())
        .with(Fact::CommandId, command.to_string())
}

fn busy(session: SessionId) -> Fault {
    Fault::new(Kind::SessionBusy, Operation::OpenSession).with(Fact::Session, session.to_string())
}

impl Message {
    fn refuse(self, fault: &Fault) {
        match self {
            Self::Open { reply, .. } => drop(reply.send(Err(fault.clone()))),
            Self::Command { reply, .. } => drop(reply.send(Err(fault.clone()))),
            Self::Stop { reply, .. } => drop(reply.send(())),
            Self::Report { .. } | Self::Aside(_) => {}
        }
    }
}

/// A loaded session.
struct Actor {
    shared: Arc<Shared>,
    life: u32,
    /// The inbox could not be read and must be looked at again.
    missed: bool,
    /// For work that runs sessions of its own.
    runtime: Runtime,
    id: SessionId,
    /// For work to report to.
    sender: mpsc::Sender<Message>,
    session: Session,
    lease: Lease,
    renew_at: Timestamp,
    idle_since: Timestamp,
    /// The position of the last snapshot.
    snapshot: Seq,
    running: HashMap<Work, Running>,
    known: Arc<Mutex<Known>>,
    tools: work::Tools,
    slots: Arc<tokio::sync::Semaphore>,
    watch: Watch,
    remembered: VecDeque<Taken>,
    teller: Teller,
    /// Turns may go on until then; from then on they are parked.
    stopping: Option<Timestamp>,
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
    /// Answers to commands of the inbox.
    answers: Vec<(CommandId, Answer)>,
    /// Commands that came directly, with an id that may come again.
    taken: Vec<(Command, Answer)>,
    /// Every answer of the round.
    known: Vec<Taken>,
    replies: Vec<(oneshot::Sender<Result<Answer, Fault>>, Answer)>,
    opened: Vec<oneshot::Sender<Result<(), Fault>>>,
}

impl Round {
    fn refuse(self, fault: &Fault) {
        for (reply, _) in self.replies {
            drop(reply.send(Err(fault.clone())));
        }
        for reply in self.opened {
            drop(reply.send(Err(fault.clone())));
        }
    }
}

impl Actor {
    async fn load(start: &Start, shared: Arc<Shared>) -> Result<Self, Fault> {
        let watch = shared.journal.watch(start.id);
        let lease = take_lease(&shared, start.id, start.missing).await?;
        let (session, snapshot) = match lease.head {
            0 => (Session::default(), 0),
            _ => fold(&*shared.journal, start.id).await?,
        };
        let now = shared.world.clock.now();
        Ok(Self {
            life: start.lives,
            missed: false,
            runtime: start.runtime.clone(),
            id: start.id,
            sender: start.sender.clone(),
            known: Arc::new(Mutex::new(Known::of(&session))),
            tools: work::Tools::default(),
            slots: Arc::new(tokio::sync::Semaphore::new(shared.limits.parallel_calls)),
            teller: Teller::new(&shared.model_hooks, &session.history),
            session,
            lease,
            renew_at: now.after(shared.limits.lease_renewal),
            idle_since: now,
            snapshot,
            running: HashMap::new(),
            watch,
            remembered: VecDeque::new(),
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
            // Nothing but the end fits on a full disk.
            Some(fault) => drop(self.step(Input::Halted { fault }, &mut round)),
            None if self.session.head > 0 => drop(self.step(Input::Resumed, &mut round)),
            None => {}
        }
        self.commit(round).await?;
        self.take_inbox().await?;
        self.act();
        loop {
            let now = self.shared.world.clock.now();
            if let Some(exit) = self.reason_to_end(now) {
                return Ok(exit);
            }
            if self.stopping.is_some_and(|until| now >= until) {
                self.act();
            }
            if now >= self.renew_at {
                self.renew(now).await?;
                if self.missed {
                    self.take_inbox().await?;
                }
            }
            let wake = self.shared.world.clock.sleep(self.next_wake(now));
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
            None if self.may_go() && now.since(self.idle_since) >= self.shared.idle_keep => {
                Some(Exit::Idle)
            }
            None => None,
        }
    }

    fn calls_running(&self) -> usize {
        self.running.values().filter(|running| running.is_call).count()
    }

    fn next_wake(&self, now: Timestamp) -> Duration {
        let mut wake = self.renew_at.since(now);
        if let Some(until) = self.stopping {
            let grace = self.shared.limits.kill_grace * 2;
            let next = if now < until { until } else { until.after(grace) };
            wake = wake.min(next.since(now));
        } else if self.may_go() {
            wake = wake.min(self.idle_since.after(self.shared.idle_keep).since(now));
        }
        wake.max(Duration::from_millis(1))
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
        self.check_at_once(&mut round);
        self.commit(round).await?;
        self.act();
        Ok(())
    }

    async fn decide(&mut self, message: Message, round: &mut Round) {
        match message {
            Message::Aside(input) => drop(self.step(input, round)),
            Message::Report { life, over, input } => self.report(life, over, input, round),
            Message::Open { settings, origin, reply } => self.open(*settings, origin, reply, round),
            Message::Command { command, waits, reply } => {
                self.command(*command, waits, reply, round).await;
            }
            Message::Stop { patience, reply } => {
                self.waiting.push(reply);
                self.stopping = Some(self.shared.world.clock.now().after(patience));
            }
        }
    }

    /// What work has to say. What an earlier life started is void, except that its calls are counted.
    fn report(&mut self, life: u32, over: Option<Work>, input: Input, round: &mut Round) {
        let ours = life == self.life;
        if let (true, Some(work)) = (ours, over) {
            self.running.remove(&work);
        }
        let is_call = matches!(input, Input::CallEnded { .. });
        // A call that was stopped only because we stop is left as it is: whoever resumes runs it again
        // or says that nobody knows.
        let parked = self.is_parking() && stopped(&input);
        if (ours && !parked) || (!ours && is_call) {
            self.step(input, round);
        }
    }

    fn is_parking(&self) -> bool {
        self.stopping.is_some_and(|until| self.shared.world.clock.now() >= until)
    }

    fn open(
        &mut self,
        settings: Settings,
        origin: Option<Origin>,
        reply: oneshot::Sender<Result<(), Fault>>,
        round: &mut Round,
    ) {
        if self.session.head > 0 {
            let fault = Fault::new(Kind::CommandRepeated, Operation::OpenSession)
                .with(Fact::Session, self.id.to_string());
            return drop(reply.send(Err(fault)));
        }
        self.step(
            Input::Noted { turn: 0, event: Event::SessionOpened { settings, origin } },
            round,
        );
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
        if self.session.head == 0 {
            let fault = Fault::new(Kind::UnknownSession, Operation::SubmitCommand)
                .with(Fact::Session, self.id.to_string());
            return drop(reply.send(Err(fault)));
        }
        let ask = fingerprint(&command.ask);
        let before =
            round.known.iter().chain(&self.remembered).find(|taken| taken.id == command.id);
        match before {
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

    /// Lets the turn decide. Its events are applied to the state and wait in the round to be durable.
    fn step(&mut self, input: Input, round: &mut Round) -> Option<(CommandId, Answer)> {
        let world = &self.shared.world;
        let now = world.clock.now();
        let may_retry = || {
            let provider = self.tools.provider.lock().expect("no code panics while holding this");
            self.shared.providers.take_retry(&provider, now)
        };
        let env = Env {
            now,
            jitter: world.jitter(),
            may_retry: &may_retry,
            trace: world.trace(),
            limits: &self.shared.limits,
        };
        // Scrubbed before it is decided about, so that the state in memory is the fold of what is kept.
        let input = clean::input(input, &self.shared.scrubber, self.shared.limits.json_depth);
        let decided = turn::step(&mut self.session, input, &env);
        for entry in decided.entries {
            self.known.lock().expect("no code panics while holding this").apply(&entry.event);
            if let Event::SettingsChanged { .. } = entry.event {
                // A request under way is still the old provider's.
                let provider = Arc::clone(&self.tools.provider);
                self.tools = work::Tools { provider, ..work::Tools::default() };
            }
            let core::Entry { at, trace, turn, event } = entry;
            round.entries.push(Entry { at, trace, turn, event });
        }
        decided.answer.map(|(id, answer)| (id, clean::answer(answer, &self.shared.scrubber)))
    }

    /// Makes a round durable, then answers whoever waits for it.
    async fn commit(&mut self, round: Round) -> Result<(), Exit> {
        let nothing =
            round.entries.is_empty() && round.answers.is_empty() && round.taken.is_empty();
        if !nothing {
            if let Err(exit) = self.append(&round).await {
                let fault = match &exit {
                    Exit::Failed(fault) if fault.kind() != Kind::CommandRepeated => fault.clone(),
                    // Whoever is told "busy" asks through the inbox, which knows every answer.
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
        if round.entries.iter().any(|entry| matches!(entry.event, Event::SessionEnded { .. })) {
            self.shared.let_go_of_tools(self.id);
        }
        let mut teller = std::mem::take(&mut self.teller);
        teller.tell(|| self.desk(), &round.entries, &self.session.history);
        self.teller = teller;
        Ok(())
    }

    async fn append(&mut self, round: &Round) -> Result<(), Exit> {
        let written = round.entries.len() as Seq;
        let expected = self.session.head - written;
        // The longer the history, the rarer: what snapshots cost stays in proportion to what is written.
        let apart = self.shared.limits.snapshot_records.max(self.snapshot / 2);
        let due = self.session.head - self.snapshot >= apart;
        let snapshot = due.then(|| serde_json::to_vec(&self.session).ok()).flatten();
        if snapshot.is_some() {
            self.snapshot = self.session.head;
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
        self.append_at_last(append).await
    }

    /// Appends; what passes is tried again here, so that running work is not thrown away for it.
    async fn append_at_last(&self, append: impl Fn() -> Append) -> Result<(), Exit> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let fault = match self.shared.journal.append(append()).await {
                Ok(_) => return Ok(()),
                // Only we write: the records are there, and only the answer was lost.
                Err(AppendError::Conflict { head }) if attempt > 1 && head == self.session.head => {
                    return Ok(());
                }
                Err(AppendError::Fenced) => return Err(Exit::Fenced),
                Err(error) => error.into_fault(self.id),
            };
            let is_resource = fault.row().category == Category::Resource;
            let last = if is_resource { 2 } else { APPEND_TRIES };
            if attempt >= last || !is_passing(&fault) || fault.kind() == Kind::CommandRepeated {
                return Err(Exit::Failed(fault));
            }
            if is_resource {
                self.shared.clean_up(&fault).await;
            } else {
                tracing::warn!(session = %self.id, %fault, "the append is tried again");
                self.shared.world.clock.sleep(APPEND_WAIT * attempt).await;
            }
        }
    }

    /// Starts what is due, stops what no longer is.
    fn act(&mut self) {
        let due = turn::due(&self.session, &self.shared.limits);
        self.running.retain(|work, running| running.is_call || due.contains(work));
        self.running.retain(|work, _| !is_over(work, &self.session));
        let parking = self.is_parking();
        if parking || self.session.turn.as_ref().is_some_and(|turn| turn.cancelling) {
            self.running.values().filter(|call| call.is_call).for_each(|call| call.cancel.cancel());
        }
        if parking {
            return;
        }
        for work in due {
            if !self.running.contains_key(&work) {
                let running = self.perform(work.clone());
                self.running.insert(work, running);
            }
        }
    }

    /// Checks calls in the round that brought them, if that needs no waiting: one append less.
    fn check_at_once(&mut self, round: &mut Round) {
        let asks_others = !self.shared.hooks.is_empty() || self.shared.policy.is_some();
        if asks_others || self.is_parking() {
            return;
        }
        let due = turn::due(&self.session, &self.shared.limits);
        let check = due.into_iter().find(|work| matches!(work, Work::Check { .. }));
        let Some(work) = check.filter(|work| !self.running.contains_key(work)) else { return };
        let cancel = CancellationToken::new();
        let task = work::task(self.desk(), work, &self.session, &mut self.tools, &cancel);
        if let Some(Ok(input)) = AssertUnwindSafe(task).catch_unwind().now_or_never() {
            self.step(input, round);
        }
    }

    fn perform(&mut self, work: Work) -> Running {
        let desk = self.desk();
        work::start(desk, work, &self.session, &mut self.tools)
    }

    fn desk(&self) -> work::Desk {
        work::Desk {
            shared: Arc::clone(&self.shared),
            runtime: self.runtime.clone(),
            session: self.id,
            depth: self.session.depth(),
            sender: self.sender.clone(),
            life: self.life,
            known: Arc::clone(&self.known),
            slots: Arc::clone(&self.slots),
        }
    }
}

/// Is this a call that ended because it was stopped?
fn stopped(input: &Input) -> bool {
    match input {
        Input::CallEnded { outcome, .. } => {
            outcome.fault().is_some_and(|fault| fault.kind() == Kind::Cancelled)
        }
        _ => false,
    }
}

/// Has this call its outcome, or is it on another try?
fn is_over(work: &Work, session: &Session) -> bool {
    let Work::Call { turn, call, attempt } = work else { return false };
    let running = session
        .turn
        .as_ref()
        .filter(|current| current.number == *turn)
        .and_then(|current| current.call(call))
        .is_some_and(
            |call| matches!(&call.state, CallState::Started { attempt: now, .. } if now == attempt),
        );
    !running
}

impl Shared {
    /// Frees room once, before one more try. A clean-up that takes long goes on beside us: the lease must
    /// be renewed meanwhile.
    async fn clean_up(&self, fault: &Fault) {
        tracing::warn!(%fault, "cleaning up before one more try");
        for clean_up in &self.clean_ups {
            let (clean_up, limit) = (Arc::clone(clean_up), self.limits.lease_renewal);
            let (done, is_done) = oneshot::channel();
            self.world.spawn.spawn(Box::pin(async move {
                clean_up.clean_up().await;
                // Nobody listens any more when it took long.
                let _ = done.send(());
            }));
            tokio::select! {
                biased;
                done = is_done => if done.is_err() { tracing::warn!("a clean-up panicked") },
                () = self.world.clock.sleep(limit) => tracing::warn!("a clean-up takes long"),
            }
        }
    }

    /// Lets the tools go that a session had.
    fn let_go_of_tools(self: &Arc<Self>, session: SessionId) {
        let shared = Arc::clone(self);
        self.world.spawn.spawn(Box::pin(async move {
            tokio::select! {
                biased;
                () = shared.tools.session_ended(session) => {}
                () = shared.world.clock.sleep(shared.limits.tool_deadline) => {
                    tracing::warn!(%session, "the tools of an ended session take long to let go");
                }
            }
        }));
    }
}
