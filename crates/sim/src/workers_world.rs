//! Workers that connect, offer, claim, run, end late or twice, drain and die, on servers that are killed. A ledger outside
//! all processes says what was done. Every call has one end, and the end says what the ledger says.

mod book;
mod laws;
mod listed;
mod model;
mod worker;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    engine::{Engine, SessionOptions},
    event::{CommandBody, SessionId, Settings},
    fault::Fault,
    message::CallId,
    remote::{RemoteCall, ToolRoute},
    tool::{Mode, Permissions},
    world::World,
};
use budao_journal::{Journal, Reader as _};
use budao_remote::{WorkerLimits, Workers, WorkersConfig};
use budao_runtime::ToolSource;
use budao_serve::Identity;
use budao_tools::{Toolbox, pool::Pool};
use rand::RngExt as _;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    people::{Answers, command, send, words},
    play::{SimResult, gather, machine},
    process::Machine,
    script::{Script, ScriptAction, Step},
    world::chance,
};
use book::WorkerBook;
pub(crate) use listed::ServerList;
pub(crate) use model::WorkerModel;
use worker::{WorkerHandle, start};

/// The name of all workers.
const WORKER: &str = "money";
/// The tools of every worker: one may not be repeated, one may, one reads, one finds out what became of a call.
const TOOLS: &[&str] = &["pay", "pay", "note", "look", "check"];
/// How long a call waits for a claim, and for its end after the claim.
const WAIT: Duration = Duration::from_secs(8);
const DEADLINE: Duration = Duration::from_secs(20);
/// How long a server waits for a process that is away.
const GRACE: Duration = Duration::from_secs(3);
/// Time between two exchanges of a server with the others.
const ROUND: Duration = Duration::from_millis(500);
/// Virtual time within which all turns must end.
const REST: Duration = Duration::from_secs(3600);

/// The tools as a worker offers them.
fn tools() -> Value {
    let tool = |name: &str, flag: &str| {
        let mut tool = json!({
            "name": name, "description": "Does something.",
            "parameters": {
                "type": "object", "properties": { "id": { "type": "string" } }, "required": ["id"],
            },
        });
        if !flag.is_empty() {
            tool[flag] = true.into();
        }
        tool
    };
    json!([
        tool("pay", ""),
        tool("note", "idempotent"),
        tool("look", "read_only"),
        tool("check", "reconcile")
    ])
}

/// The workers of one process of the server.
pub(crate) fn workers(world: &World, journal: Arc<dyn Journal>) -> Workers {
    let limits = WorkerLimits {
        grace: GRACE,
        claim_wait: Duration::from_secs(1),
        wait: WAIT,
        deadline: DEADLINE,
        ..WorkerLimits::default()
    };
    Workers::new(WorkersConfig {
        world: world.clone(),
        limits,
        store: Some(journal as _),
        reserved: Vec::new(),
    })
}

/// The tools of workers, and no others.
#[derive(Debug)]
pub(crate) struct WorkerTools(pub(crate) Workers);

#[async_trait]
impl ToolSource for WorkerTools {
    async fn toolbox(&self, _session: SessionId, settings: &Settings) -> Result<Toolbox, Fault> {
        let empty = Toolbox::builder().pool(Arc::new(Pool::tasks())).build();
        self.0.add_tools(settings, empty).await
    }

    async fn routed(
        &self,
        _session: SessionId,
        settings: &Settings,
        tool: &str,
        route: &ToolRoute,
    ) -> Result<Option<Toolbox>, Fault> {
        self.0.routed(settings, tool, route).await
    }

    fn call_changed(&self, session: SessionId, call: &CallId, attempt: u32, remote: &RemoteCall) {
        self.0.call_changed(session, call, attempt, remote);
    }

    fn generation(&self) -> u64 {
        self.0.generation()
    }
}

/// Exchanges open calls with the other servers, as a real server does.
pub(crate) async fn exchange(
    workers: Workers,
    holder: String,
    others: impl Fn() -> Vec<String> + Send,
    engine: Arc<dyn Engine>,
) {
    loop {
        tokio::time::sleep(ROUND).await;
        // After a failure, the next exchange tries again.
        let _ = workers.exchange(&holder, &others(), &*engine).await;
    }
}

/// Plays a script of this world.
pub(crate) async fn play(script: &Script) -> SimResult {
    let machine = machine(script);
    for process in 0..script.processes {
        machine.start(process);
    }
    let mut world = WorkersWorld {
        machine,
        book: Arc::default(),
        workers: BTreeMap::new(),
        sessions: Vec::new(),
        answers: Answers::default(),
        doing: JoinSet::new(),
        counts: BTreeMap::new(),
    };
    world.begin(script).await;
    for step in &script.steps {
        let due = Duration::from_millis(step.at_ms);
        tokio::time::sleep(due.saturating_sub(world.machine.clock.elapsed())).await;
        world.perform(step);
    }
    world.rest().await;
    world.look_back(script).await
}

struct WorkersWorld {
    machine: Arc<Machine>,
    book: Arc<WorkerBook>,
    /// The processes of the worker by their slots, with the number of each.
    workers: BTreeMap<usize, (u32, WorkerHandle)>,
    sessions: Vec<SessionId>,
    answers: Answers,
    doing: JoinSet<()>,
    /// What was done to processes, for the totals.
    counts: BTreeMap<String, usize>,
}

impl WorkersWorld {
    /// Opens the sessions and starts the processes, and waits until the tools are known.
    async fn begin(&mut self, script: &Script) {
        let permissions = Permissions { mode: Mode::Auto, ..Permissions::default() };
        let identity = Identity::local();
        let labels =
            [(Settings::TENANT, identity.tenant.clone()), (Settings::OWNER, identity.name())];
        let labels: BTreeMap<String, String> =
            labels.map(|(name, value)| (name.to_owned(), value)).into();
        for _ in 0..script.sessions {
            let settings = Settings {
                permissions: permissions.clone(),
                labels: labels.clone(),
                ..Settings::default()
            };
            let opening = SessionOptions { settings, ..SessionOptions::default() };
            let opened = self.machine.ask(0, |runtime| async move { runtime.open(opening).await });
            self.sessions.push(opened.await.expect("nobody is killed yet").expect("it opens"));
        }
        let count = chance(script.seed, "worker processes").random_range(1..=4);
        for slot in 0..count {
            self.start_worker(slot);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }

    fn start_worker(&mut self, slot: usize) {
        let life = self.workers.get(&slot).map_or(0, |(life, _)| *life) + 1;
        let handle = start(&self.machine, &self.book, slot, life);
        self.workers.insert(slot, (life, handle));
    }

    fn count(&mut self, what: &str) {
        *self.counts.entry(what.to_owned()).or_default() += 1;
    }

    fn perform(&mut self, step: &Step) {
        let mark = step.id;
        match step.what {
            ScriptAction::Say { session, via, .. } => {
                self.submit(session, via, format!("say-{mark}"), words(mark));
            }
            ScriptAction::Cancel { session, via } => {
                self.submit(
                    session,
                    via,
                    format!("cancel-{mark}"),
                    CommandBody::Cancel { reason: None },
                );
            }
            ScriptAction::Kill { process, away_ms } => {
                if self.machine.kill(process) {
                    self.book.kill_server();
                    self.count("servers killed");
                }
                let machine = Arc::clone(&self.machine);
                self.doing.spawn(async move {
                    tokio::time::sleep(Duration::from_millis(away_ms)).await;
                    machine.start(process);
                });
            }
            ScriptAction::KillWorker { worker } => {
                self.count("workers killed");
                let slot = worker % self.workers.len();
                if let Some((_, handle)) = self.workers.get(&slot) {
                    handle.tasks.kill();
                    self.book.leave(&handle.id);
                }
                self.start_worker(slot);
            }
            ScriptAction::CutWorker { worker, away_ms } => {
                if let Some((_, handle)) = self.workers.get(&(worker % self.workers.len())) {
                    // A process that is away for nearly as long as the grace may be given up.
                    if Duration::from_millis(away_ms) * 2 > GRACE {
                        self.book.leave(&handle.id);
                    }
                    handle.cut(away_ms);
                }
            }
            ScriptAction::DrainWorker { worker } => {
                self.count("workers drained");
                let slot = worker % self.workers.len();
                if let Some((_, handle)) = self.workers.get(&slot) {
                    handle.drain();
                }
                self.start_worker(slot);
            }
            _ => {}
        }
    }

    fn submit(&mut self, session: usize, via: usize, id: String, body: CommandBody) {
        let (machine, answers) = (Arc::clone(&self.machine), self.answers.clone());
        let session = self.sessions[session % self.sessions.len()];
        self.doing.spawn(async move {
            send(&machine, &answers, session, command(id, body), via).await;
        });
    }

    /// Waits until every turn has ended.
    async fn rest(&mut self) {
        while self.doing.join_next().await.is_some() {}
        let deadline = self.machine.clock.elapsed() + REST;
        loop {
            let unfinished =
                self.machine.disk.durable().unfinished(None, 1).await.unwrap_or_default();
            let Some(first) = unfinished.first().map(|it| format!("{it:?}")) else { return };
            if self.machine.clock.elapsed() > deadline {
                return self.machine.violations.add("every wait ends", || first);
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    }

    async fn look_back(mut self, script: &Script) -> SimResult {
        let violations = &self.machine.violations;
        let (mut played, histories) = gather(&self.machine, script).await;
        for history in histories.values() {
            crate::laws::of_session(history, &self.machine.limits, violations);
            laws::of_calls(history, &self.book, &self.machine.ledger.entries(), violations);
        }
        self.counts.insert("connections cut".to_owned(), self.book.cuts());
        played.events.append(&mut self.counts);
        SimResult { violations: violations.all(), ..played }
    }
}
