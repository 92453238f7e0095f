//! Rooms with one agent and two computers each, on the real hub. The script causes cancels, deadlines, late answers,
//! duplicate ids, members that leave during a call, slow readers, and a hub that is shut down or killed.

mod agent;
mod call_ledger;
mod computer;
mod connection;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use budao_core::world::Spawn as _;
use budao_smcp::server::{Access, Config, CrossRoomVisibility, Hub, Limits};
use rand::RngExt as _;
use tokio::sync::mpsc;

use crate::{
    check::Violations,
    play::SimResult,
    script::{DiskFault, Script, ScriptAction, Step},
    world::{SimClock, Tasks, chance, world},
};
use agent::Agent;
use call_ledger::CallLedger;
use computer::Computer;
use connection::{HubConnection, MemberConnection, MemberId};

/// Virtual time within which everything must be answered after the last step.
const REST: Duration = Duration::from_secs(4 * 3600);

/// An action of a member of a room.
#[derive(Clone, Copy, Debug)]
enum MemberAction {
    /// Sends a request to a computer; with `again`, a second one with the same id before the answer.
    Call { mark: usize, computer: usize, again: bool },
    /// Cancels the call of this step; the last call if `None`.
    Cancel { of: Option<usize> },
    /// Leaves the room and joins again.
    Leave,
    /// Reports a change to the room.
    Update,
    /// Reads nothing for `for_ms`.
    Doze { for_ms: u64 },
    /// Drops the connection and reconnects after `away_ms`.
    Cut { away_ms: u64 },
    /// Waits for all answers and disconnects.
    Finish,
}

/// The hub, and the state that survives it.
#[derive(Debug)]
struct SmcpWorld {
    seed: u64,
    tight: bool,
    clock: SimClock,
    violations: Violations,
    book: CallLedger,
    wires: AtomicU64,
    hub: Mutex<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    started: u32,
    running: Option<RunningHub>,
}

/// A running hub with its connections.
#[derive(Clone, Debug)]
struct RunningHub {
    hub: Hub,
    number: u32,
    tasks: Arc<Tasks>,
    wires: Vec<Arc<HubConnection>>,
}

/// Plays a script in the SMCP world.
pub(crate) async fn play(script: &Script) -> SimResult {
    let violations = Violations::default();
    let office = Arc::new(SmcpWorld {
        seed: script.seed,
        tight: script.tight,
        clock: SimClock::new(),
        book: CallLedger::new(violations.clone()),
        violations,
        wires: AtomicU64::new(0),
        hub: Mutex::default(),
    });
    office.start();
    let people = RoomMembers::come(script, &office);
    for step in &script.steps {
        let due = Duration::from_millis(step.at_ms);
        tokio::time::sleep(due.saturating_sub(office.clock.elapsed())).await;
        people.perform(step, &office);
    }
    office.start();
    people.finish(&office).await;
    office.look_back(script)
}

/// The order channels and the tasks of all members.
struct RoomMembers {
    agents: Vec<mpsc::UnboundedSender<MemberAction>>,
    computers: Vec<mpsc::UnboundedSender<MemberAction>>,
    agents_live: Vec<tokio::task::JoinHandle<()>>,
    computers_live: Vec<tokio::task::JoinHandle<()>>,
}

impl RoomMembers {
    fn come(script: &Script, office: &Arc<SmcpWorld>) -> Self {
        let mut people = Self {
            agents: Vec::new(),
            computers: Vec::new(),
            agents_live: Vec::new(),
            computers_live: Vec::new(),
        };
        for room in 0..script.sessions {
            for number in 0..2 {
                let (orders, taken) = mpsc::unbounded_channel();
                let computer = Computer::new(Arc::clone(office), MemberId::computer(room, number));
                people.computers_live.push(tokio::spawn(computer.live(taken)));
                people.computers.push(orders);
            }
            let (orders, taken) = mpsc::unbounded_channel();
            let agent = Agent::new(Arc::clone(office), MemberId::agent(room));
            people.agents_live.push(tokio::spawn(agent.live(taken)));
            people.agents.push(orders);
        }
        people
    }

    fn perform(&self, step: &Step, office: &Arc<SmcpWorld>) {
        let mark = step.id;
        // Member tasks run until they receive `Finish`.
        let tell = |all: &[mpsc::UnboundedSender<MemberAction>], number: usize, what| {
            let _ = all[number % all.len()].send(what);
        };
        let agent = |room, what| tell(&self.agents, room, what);
        let computer = |number, what| tell(&self.computers, number, what);
        match step.what {
            ScriptAction::Say { session, via, twice } => {
                agent(session, MemberAction::Call { mark: mark * 10, computer: via, again: twice });
            }
            ScriptAction::Plan { session, .. } => {
                for part in 0..8 {
                    agent(
                        session,
                        MemberAction::Call { mark: mark * 10 + part, computer: part, again: false },
                    );
                }
            }
            ScriptAction::Withdraw { session, of } => {
                agent(session, MemberAction::Cancel { of: Some(of * 10) });
            }
            ScriptAction::Cancel { session, .. } => {
                agent(session, MemberAction::Cancel { of: None });
            }
            ScriptAction::Close { session } => agent(session, MemberAction::Leave),
            // A room has no timers.
            ScriptAction::Timer { .. } | ScriptAction::CancelTimer { .. } => {}
            ScriptAction::Decide { session, allow: true } => {
                computer(session * 2 + 1, MemberAction::Update);
            }
            ScriptAction::Decide { session, allow: false } => {
                computer(session * 2, MemberAction::Leave);
            }
            ScriptAction::Cut { session, away_ms } => {
                computer(session * 2 + mark % 2, MemberAction::Cut { away_ms });
            }
            ScriptAction::Doze { session, for_ms } => {
                computer(session * 2 + mark % 2, MemberAction::Doze { for_ms });
            }
            // Only step ids divisible by 3 kill the hub; more kills would hide all other faults.
            ScriptAction::Kill { away_ms, .. } if mark.is_multiple_of(3) => office.kill(away_ms),
            ScriptAction::Kill { process: 0, away_ms } => {
                agent(mark, MemberAction::Cut { away_ms });
            }
            ScriptAction::Kill { away_ms, .. } => computer(mark, MemberAction::Cut { away_ms }),
            ScriptAction::Stop { away_ms, .. } => office.stop(away_ms),
            ScriptAction::Disk { trouble: DiskFault::Unreadable, for_ms } => {
                agent(mark, MemberAction::Doze { for_ms });
            }
            ScriptAction::Disk { for_ms, .. } => computer(mark, MemberAction::Doze { for_ms }),
            ScriptAction::Jump { by_ms } => office.clock.jump(by_ms),
            ScriptAction::KillWorker { .. }
            | ScriptAction::CutWorker { .. }
            | ScriptAction::DrainWorker { .. } => {}
        }
    }

    /// Waits until every member has its answers and has disconnected.
    async fn finish(self, office: &Arc<SmcpWorld>) {
        for (orders, live) in
            [(self.agents, self.agents_live), (self.computers, self.computers_live)]
        {
            for order in &orders {
                let _ = order.send(MemberAction::Finish);
            }
            for one in live {
                let done = tokio::time::timeout(REST, one).await;
                let well = matches!(done, Ok(Ok(())));
                office.violations.expect(well, "whoever asks is answered, and may go", || {
                    format!("after {REST:?}: {done:?}")
                });
            }
        }
        // Longer than the hub tracks late answers, so that the last of them is counted.
        tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
    }
}

impl SmcpWorld {
    fn slot(&self) -> std::sync::MutexGuard<'_, Slot> {
        self.hub.lock().expect("nobody panics with it")
    }

    /// Starts a hub; does nothing if one runs.
    fn start(&self) {
        let mut slot = self.slot();
        if slot.running.is_some() {
            return;
        }
        slot.started += 1;
        let number = slot.started;
        let tasks = Arc::new(Tasks::default());
        let name = format!("hub {number}");
        let world = world(&self.clock, self.seed, &name, Arc::clone(&tasks));
        let cross_room = *crate::script::pick(
            &mut chance(self.seed, "cross_room"),
            &[CrossRoomVisibility::Named, CrossRoomVisibility::Hidden],
        );
        let config = Config { cross_room, limits: self.limits(), ..Config::new(Access::Any) };
        slot.running =
            Some(RunningHub { hub: Hub::new(config, world), number, tasks, wires: Vec::new() });
    }

    fn limits(&self) -> Limits {
        let calls_max = if self.tight { 2 } else { 1024 };
        Limits { calls_max, answer_bytes_max: 3_000, ..Limits::default() }
    }

    /// A connection to the hub; `None` if no hub runs.
    fn connect(self: &Arc<Self>, who: &MemberId) -> Option<MemberConnection> {
        let mut slot = self.slot();
        let running = slot.running.as_mut()?;
        let number = self.wires.fetch_add(1, Ordering::Relaxed);
        let (wire, link, ups) =
            connection::pair(Arc::clone(self), number, running.number, who.clone());
        let desk = running.hub.enter(Arc::clone(&wire) as _, None, None).ok()?;
        running.wires.push(Arc::clone(&wire));
        running.tasks.spawn(Box::pin(wire.read(desk, ups)));
        Some(link)
    }

    /// Kills the hub; its members find their connections closed.
    fn end(&self) {
        let Some(running) = self.slot().running.take() else { return };
        running.tasks.kill();
        running.wires.iter().for_each(|wire| wire.shut());
        self.book.forget(running.number);
    }

    fn kill(self: &Arc<Self>, away_ms: u64) {
        self.end();
        let office = Arc::clone(self);
        drop(tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(away_ms)).await;
            office.start();
        }));
    }

    /// Shuts the hub down in order: it answers every request it has received.
    fn stop(self: &Arc<Self>, away_ms: u64) {
        let office = Arc::clone(self);
        drop(tokio::spawn(async move {
            let Some(running) = office.slot().running.clone() else { return };
            let bound = tokio::time::timeout(Duration::from_secs(5), running.hub.close()).await;
            office.violations.expect(bound.is_ok(), "a hub stops within its patience", String::new);
            if office.slot().running.as_ref().is_some_and(|now| now.number == running.number) {
                office.book.check_answers(running.number, "a hub that stops answers what it heard");
                office.kill(away_ms);
            }
        }));
    }

    fn look_back(&self, script: &Script) -> SimResult {
        if let Some(running) = self.slot().running.clone() {
            self.book.check_answers(running.number, "every question is answered");
            let stats = running.hub.stats();
            let left = (stats.calls_under_way, stats.connections, stats.rooms, stats.computers);
            self.violations.expect(left == (0, 0, 0, 0), "nothing is left of who is gone", || {
                format!("calls, connections, rooms, computers: {left:?}")
            });
            let late = self.book.late(running.number);
            self.violations.expect(
                stats.answers_late == late,
                "late answers are counted and dropped",
                || format!("{late} came, {} were counted", stats.answers_late),
            );
        }
        self.book.sum_up(script, self.violations.all())
    }
}

/// A random duration out of these milliseconds.
fn some_ms(dice: &mut rand::rngs::StdRng, from: &[u64]) -> Duration {
    Duration::from_millis(from[dice.random_range(0..from.len())])
}
