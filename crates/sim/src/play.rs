//! Plays a script, waits until all work has ended, and checks the remaining state.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use budao_core::{
    engine::{Engine as _, SessionOptions},
    event::{CommandBody, Record, SessionId, Settings},
    limits::Limits,
    timer::TimerRequest,
    tool::{Mode, Permissions},
};
use budao_journal::{Filter, Inbox as _, Memory, PageLimits, Reader as _, SessionState, fold};
use tokio::task::JoinSet;

#[cfg(feature = "gateways")]
use crate::client::Client;
use crate::{
    check::{Violation, Violations},
    disk::Disk,
    laws,
    people::{Answers, Watcher, command, decide, message_text, send, settle, words},
    process::Machine,
    script::{Script, ScriptAction, Step, World},
    world::{SimClock, Tasks, world},
};

/// Virtual time within which all work must end after the last step.
const REST: Duration = Duration::from_secs(4 * 3600);

/// The result of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimResult {
    /// The promises that did not hold; empty for a good run.
    pub violations: Vec<Violation>,
    /// CRC-32 over all records and effects: the same for the same script.
    pub digest: u32,
    /// Number of durable records in all sessions.
    pub records: usize,
    /// Number of turns that ended.
    pub turns: usize,
    /// Number of tool effects that happened.
    pub effects: usize,
    /// Number of events, by name.
    pub events: BTreeMap<String, usize>,
    /// Every record as one line, if [`Script::story`] is set; otherwise empty.
    pub story: Vec<String>,
}

/// Plays a script on a runtime of its own.
///
/// # Panics
/// When no tokio runtime can be created.
#[must_use]
pub fn run(script: &Script) -> SimResult {
    on_virtual_time(async {
        match script.world {
            World::Services => crate::services_world::play(script).await,
            World::Engine | World::Served => Simulation::begin(script).play(script).await.0,
            #[cfg(feature = "gateways")]
            World::Editor => crate::editor::play(script).await,
            #[cfg(feature = "gateways")]
            World::Smcp => crate::smcp_world::play(script).await,
            #[cfg(feature = "gateways")]
            World::Workers => crate::workers_world::play(script).await,
            #[cfg(not(feature = "gateways"))]
            World::Editor | World::Smcp | World::Workers => {
                Simulation::begin(script).play(script).await.0
            }
        }
    })
}

/// Plays a script in the engine's world and returns every record of each session too.
///
/// # Panics
/// When no tokio runtime can be created.
#[must_use]
pub fn run_recorded(script: &Script) -> (SimResult, BTreeMap<SessionId, Vec<Record>>) {
    on_virtual_time(async { Simulation::begin(script).play(script).await })
}

fn on_virtual_time<T>(played: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O can be made");
    runtime.block_on(played)
}

/// The state that survives every process of a script.
pub(crate) fn machine(script: &Script) -> Arc<Machine> {
    let clock = SimClock::new();
    let disk_world = world(&clock, script.seed, "disk", Arc::new(Tasks::default()));
    let kept = Memory::new(disk_world, Limits::default());
    let violations = Violations::default();
    let disk = Disk::new(kept, clock.clone(), script.seed, violations.clone());
    Arc::new(Machine::new(script, clock, disk, violations))
}

struct Simulation {
    machine: Arc<Machine>,
    answers: Answers,
    sessions: Vec<SessionId>,
    watchers: Vec<Arc<Watcher>>,
    /// Two clients per session; empty without a server.
    #[cfg(feature = "gateways")]
    clients: Vec<Arc<Client>>,
    /// Running actions of people, such as a command that is not answered yet.
    doing: JoinSet<()>,
}

impl Simulation {
    fn begin(script: &Script) -> Self {
        let machine = machine(script);
        Self {
            machine,
            answers: Answers::default(),
            sessions: Vec::new(),
            watchers: Vec::new(),
            #[cfg(feature = "gateways")]
            clients: Vec::new(),
            doing: JoinSet::new(),
        }
    }

    async fn play(mut self, script: &Script) -> (SimResult, BTreeMap<SessionId, Vec<Record>>) {
        for process in 0..script.processes {
            self.machine.start(process);
        }
        for _ in 0..script.sessions {
            self.open().await;
        }
        #[cfg(feature = "gateways")]
        self.come(script);
        for step in &script.steps {
            let due = Duration::from_millis(step.at_ms);
            tokio::time::sleep(due.saturating_sub(self.machine.clock.elapsed())).await;
            self.perform(step);
        }
        self.rest(script).await;
        self.look_back(script).await
    }

    async fn open(&mut self) {
        let permissions = Permissions { mode: Mode::Auto, ..Permissions::default() };
        let settings = Settings { permissions, ..Settings::default() };
        let opening = SessionOptions { settings, ..SessionOptions::default() };
        let opened = self.machine.ask(0, |runtime| async move { runtime.open(opening).await });
        let session = opened.await.expect("nobody is killed yet").expect("a session opens");
        let watcher = Arc::new(Watcher::default());
        drop(tokio::spawn(Arc::clone(&watcher).watch(Arc::clone(&self.machine), session)));
        self.sessions.push(session);
        self.watchers.push(watcher);
    }

    /// Connects two clients to every session if there is a server: a fast one and a slow one.
    #[cfg(feature = "gateways")]
    fn come(&mut self, script: &Script) {
        if script.world != World::Served {
            return;
        }
        for (number, session) in self.sessions.iter().enumerate() {
            for slow in [false, true] {
                let client = Client::new(*session, format!("client {number} {slow}"), slow);
                drop(tokio::spawn(Arc::clone(&client).live(Arc::clone(&self.machine))));
                self.clients.push(client);
            }
        }
    }

    /// Performs the part of a step that concerns clients of the server. Returns true if that is the whole step.
    #[cfg(feature = "gateways")]
    fn perform_served(&mut self, step: &Step) -> bool {
        match step.what {
            ScriptAction::Say { session, via, .. } if !self.clients.is_empty() => {
                let client = Arc::clone(&self.clients[session * 2 + via % 2]);
                let (mark, machine) = (step.id, Arc::clone(&self.machine));
                self.doing.spawn(client.say(machine, format!("say-{mark}"), message_text(mark)));
                true
            }
            ScriptAction::Cut { session, away_ms } => {
                let both = self.clients.iter().skip(session * 2).take(2);
                both.for_each(|client| client.cut(away_ms));
                false
            }
            ScriptAction::Doze { session, for_ms } => {
                let both = self.clients.iter().skip(session * 2).take(2);
                both.for_each(|client| client.doze(for_ms));
                false
            }
            _ => false,
        }
    }

    fn perform(&mut self, step: &Step) {
        #[cfg(feature = "gateways")]
        if self.perform_served(step) {
            return;
        }
        let mark = step.id;
        match step.what {
            ScriptAction::Say { session, via, twice } => {
                self.submit(session, via, format!("say-{mark}"), words(mark), twice);
            }
            ScriptAction::Withdraw { session, of } => {
                let body = CommandBody::Withdraw { message: format!("say-{of}").into() };
                self.submit(session, 0, format!("withdraw-{mark}"), body, false);
            }
            ScriptAction::Plan { session, confirm } => {
                let body = CommandBody::Plan { question: format!("plan «{mark}»"), confirm };
                self.submit(session, 0, format!("plan-{mark}"), body, false);
            }
            ScriptAction::Cancel { session, via } => {
                self.submit(
                    session,
                    via,
                    format!("cancel-{mark}"),
                    CommandBody::Cancel { reason: None },
                    false,
                );
            }
            ScriptAction::Timer { session, via, after_ms } => {
                let body = CommandBody::SetTimer {
                    timer: Some(format!("timer-{mark}").into()),
                    when: TimerRequest::After(after_ms),
                    message: message_text(mark),
                };
                self.submit(session, via, format!("timer-{mark}"), body, false);
            }
            ScriptAction::CancelTimer { session, of } => {
                let body = CommandBody::CancelTimer { timer: format!("timer-{of}").into() };
                self.submit(session, 0, format!("cancel-timer-{mark}"), body, false);
            }
            ScriptAction::Close { session } => {
                self.submit(session, 0, format!("close-{mark}"), CommandBody::Close, false);
            }
            ScriptAction::Decide { session, allow } => {
                let (machine, answers) = (Arc::clone(&self.machine), self.answers.clone());
                let session = self.sessions[session];
                self.doing.spawn(async move {
                    decide(&machine, &answers, session, Some(allow)).await;
                    settle(&machine, &answers, session).await;
                });
            }
            ScriptAction::Kill { process, away_ms } => {
                self.machine.kill(process);
                self.start_again(process, away_ms);
            }
            ScriptAction::Stop { process, away_ms } => self.stop(process, away_ms),
            ScriptAction::Disk { trouble, for_ms } => {
                self.machine.disk.trouble(trouble, Duration::from_millis(for_ms));
            }
            ScriptAction::Jump { by_ms } => self.machine.clock.jump(by_ms),
            ScriptAction::Cut { session, away_ms } => self.watchers[session].cut(away_ms),
            ScriptAction::Doze { session, for_ms } => self.watchers[session].doze(for_ms),
            ScriptAction::KillWorker { .. }
            | ScriptAction::CutWorker { .. }
            | ScriptAction::DrainWorker { .. } => {}
        }
    }

    fn submit(&mut self, session: usize, via: usize, id: String, body: CommandBody, twice: bool) {
        let (machine, answers) = (Arc::clone(&self.machine), self.answers.clone());
        let session = self.sessions[session];
        self.doing.spawn(async move {
            let command = command(id, body);
            send(&machine, &answers, session, command.clone(), via).await;
            if twice {
                send(&machine, &answers, session, command, via + 1).await;
            }
        });
    }

    fn start_again(&mut self, process: usize, away_ms: u64) {
        let machine = Arc::clone(&self.machine);
        self.doing.spawn(async move {
            tokio::time::sleep(Duration::from_millis(away_ms)).await;
            machine.start(process);
        });
    }

    /// Shuts a process down and starts it again. The process is killed after its shutdown, because its parked work
    /// belongs to its next start.
    fn stop(&mut self, process: usize, away_ms: u64) {
        let machine = Arc::clone(&self.machine);
        let Some(asked) = machine.own(process) else { return };
        self.doing.spawn(async move {
            let patience = Duration::from_secs(3);
            let stopped = asked.ask(|runtime| async move {
                runtime.shutdown(patience).await;
            });
            let bound = tokio::time::timeout(Duration::from_secs(60), stopped).await;
            machine.violations.expect(bound.is_ok(), "a process stops within its patience", || {
                format!("process {process}")
            });
            machine.kill(process);
            tokio::time::sleep(Duration::from_millis(away_ms)).await;
            machine.start(process);
        });
    }

    /// Ends all faults, answers all questions, and waits until every turn has ended.
    async fn rest(&mut self, script: &Script) {
        self.machine.disk.calm();
        while self.doing.join_next().await.is_some() {}
        for process in 0..script.processes {
            self.machine.start(process);
        }
        let deadline = self.machine.clock.elapsed() + REST;
        let mut wait = Duration::from_millis(200);
        while let Some(busy) = self.busy().await {
            if self.machine.clock.elapsed() > deadline {
                self.machine.violations.add("every turn ends and every timer fires", || busy);
                break;
            }
            for session in self.sessions_in(Some(SessionState::WaitingForDecision)).await {
                decide(&self.machine, &self.answers, session, None).await;
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_secs(60));
        }
        #[cfg(feature = "gateways")]
        self.await_clients().await;
        self.await_watchers().await;
    }

    /// Waits until every client has the last frame, and compares its frames with the records.
    #[cfg(feature = "gateways")]
    async fn await_clients(&self) {
        for client in &self.clients {
            client.calm();
        }
        for (index, client) in self.clients.iter().enumerate() {
            let session = self.sessions[index / 2];
            for _ in 0..600 {
                if client.is_up_to_date(&records(&self.machine, session).await) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            let history = records(&self.machine, session).await;
            let there = client.is_up_to_date(&history);
            self.machine.violations.expect(there, "a client gets to the head", || {
                format!("client {index} of {session}")
            });
            client.compare(&self.machine, &history);
        }
    }

    /// Describes a session with unfinished work; `None` if there is none.
    async fn busy(&self) -> Option<String> {
        // The journal's index of unfinished sessions is fast; the records decide.
        let unfinished = self.machine.disk.durable().unfinished(None, 1).await.unwrap_or_default();
        if let Some(first) = unfinished.first() {
            return Some(format!("{first:?}"));
        }
        for session in self.everyone().await {
            let Ok((state, _)) = fold(self.machine.disk.durable(), session).await else {
                return Some(format!("{session} cannot be read"));
            };
            let inbox = self.machine.disk.durable().inbox(session).await.unwrap_or_default();
            if let Some(timer) = state.timers.all().next() {
                return Some(format!("{session}: {timer:?}"));
            }
            if state.turn.is_some() || !state.queue.is_empty() || !inbox.is_empty() {
                return Some(format!(
                    "{session}: turn {:?}, queue {:?}, inbox {inbox:?}",
                    state.turn, state.queue
                ));
            }
        }
        None
    }

    async fn await_watchers(&self) {
        for (watcher, session) in self.watchers.iter().zip(&self.sessions) {
            let head = records(&self.machine, *session).await.len() as u64;
            for _ in 0..600 {
                if watcher.last.load(Ordering::Relaxed) >= head {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            let last = watcher.last.load(Ordering::Relaxed);
            self.machine.violations.expect(last >= head, "an observer gets to the head", || {
                format!("{session}: {last} of {head}")
            });
            watcher.stop();
        }
    }

    /// All sessions, children included, oldest first.
    async fn everyone(&self) -> Vec<SessionId> {
        self.sessions_in(None).await
    }

    async fn sessions_in(&self, state: Option<SessionState>) -> Vec<SessionId> {
        sessions(&self.machine, state).await
    }

    async fn look_back(self, script: &Script) -> (SimResult, BTreeMap<SessionId, Vec<Record>>) {
        let violations = &self.machine.violations;
        let (played, histories) = gather(&self.machine, script).await;
        for (session, history) in &histories {
            laws::of_session(history, &self.machine.limits, violations);
            laws::of_replay(*session, history, &self.machine.limits, violations);
            laws::of_snapshot(self.machine.disk.durable(), *session, history, violations).await;
        }
        #[cfg(feature = "gateways")]
        laws::views::of_views(script.seed, self.machine.disk.durable(), &histories, violations)
            .await;
        laws::answers::of_answers(&self.answers.all(), &histories, violations);
        laws::answers::of_effects(&self.machine.ledger.entries(), &histories, violations);
        (SimResult { violations: violations.all(), ..played }, histories)
    }
}

/// All sessions in this state, or in any if `None`, children included, oldest first.
pub(crate) async fn sessions(machine: &Machine, state: Option<SessionState>) -> Vec<SessionId> {
    let filter = Filter { limit: 10_000, state, ..Filter::default() };
    let all = machine.disk.durable().sessions(filter).await.unwrap_or_default();
    let mut ids: Vec<_> = all.into_iter().map(|summary| summary.session).collect();
    ids.sort_unstable();
    ids
}

/// Counts the durable content and computes its digest.
pub(crate) async fn gather(
    machine: &Machine,
    script: &Script,
) -> (SimResult, BTreeMap<SessionId, Vec<Record>>) {
    let mut played = SimResult {
        violations: Vec::new(),
        digest: 0,
        records: 0,
        turns: 0,
        effects: machine.ledger.entries().len(),
        events: BTreeMap::new(),
        story: Vec::new(),
    };
    let mut digest = crc32fast::Hasher::new();
    let mut histories = BTreeMap::new();
    for session in sessions(machine, None).await {
        let history = records(machine, session).await;
        for record in &history {
            let event = serde_json::to_string(&record.event).unwrap_or_default();
            digest.update(&record.at.as_micros().to_le_bytes());
            digest.update(event.as_bytes());
            let name = laws::name(&event);
            played.turns += usize::from(name == "turn_ended");
            *played.events.entry(name.to_owned()).or_default() += 1;
            if script.story {
                played.story.push(line(record, &event));
            }
        }
        played.records += history.len();
        histories.insert(session, history);
    }
    for (id, times) in machine.ledger.entries() {
        digest.update(format!("{id} {times}").as_bytes());
    }
    played.digest = digest.finalize();
    (played, histories)
}

pub(crate) async fn records(machine: &Machine, session: SessionId) -> Vec<Record> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let page = machine.disk.durable().read(session, after, PageLimits::default()).await;
        let Ok(page) = page else { return all };
        let Some(last) = page.records.last() else { return all };
        after = last.seq;
        all.extend(page.records.iter().filter_map(|stored| stored.record().ok()));
    }
}

fn line(record: &Record, event: &str) -> String {
    let Record { session, seq, at, turn, .. } = record;
    let mut line = format!("{session} {seq:>4} {at} turn {turn} {event}");
    line.truncate(line.floor_char_boundary(400));
    line
}
