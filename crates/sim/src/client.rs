//! Clients of the session server: they watch and ask over a line that is cut, while they read slowly, repeat
//! themselves and say things in another order than they thought of them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use budao_core::{
    engine::Engine,
    event::{Event, Record, SessionId},
    session::Session,
    world::{Spawn as _, World},
};
use budao_journal::Journal;
use budao_serve::{
    Auth, Config, Identity, Keyring,
    in_process::{ClientMessage, InProcessServer},
    project::Projector,
};
use rand::{RngExt as _, rngs::StdRng};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use crate::{people::at, process::Machine, script::pick, world::chance};

/// Words that wait on a line before whoever writes must wait.
const LINE: usize = 4;
/// How often a command is refused before that counts as its answer.
const REFUSALS: u32 = 8;

/// The session server of a process. Its bounds are small enough to be met.
pub(crate) fn server(
    engine: Arc<dyn Engine>,
    journal: Arc<dyn Journal>,
    world: World,
) -> InProcessServer {
    let keys = Keyring::new(["a secret that is long enough for a key"]).expect("it is long enough");
    let mut config = Config::new(Auth::open(), keys);
    config.limits.observer_bytes = 6_000;
    config.limits.all_observer_bytes = 40_000;
    InProcessServer::new(config, engine, journal, world)
}

/// Somebody who watches a session through the server.
#[derive(Debug)]
pub(crate) struct Client {
    session: SessionId,
    name: String,
    /// Takes its time over every frame.
    slow: bool,
    /// Frames of records, in the order they came.
    heard: Mutex<Vec<String>>,
    last: AtomicU64,
    orders: Mutex<Vec<ClientCommand>>,
    asked: Notify,
    away_ms: AtomicU64,
    doze_ms: AtomicU64,
    cut: Notify,
    calm: AtomicBool,
}

/// A command of a client's.
#[derive(Debug)]
struct ClientCommand {
    id: String,
    frame: String,
    /// It is to be sent, or sent again.
    due: bool,
    refused: u32,
    end: Option<bool>,
}

/// A line to a server, and what was said on it.
struct ServerConnection {
    to: mpsc::Sender<ClientMessage>,
    from: mpsc::Receiver<ClientMessage>,
    /// Commands sent and not answered, by id.
    open: BTreeMap<String, i32>,
    /// The server has said from where it goes on. If it cannot, the client comes back.
    resumed: bool,
}

impl Client {
    pub(crate) fn new(session: SessionId, name: String, slow: bool) -> Arc<Self> {
        Arc::new(Self {
            session,
            name,
            slow,
            heard: Mutex::default(),
            last: AtomicU64::new(0),
            orders: Mutex::default(),
            asked: Notify::new(),
            away_ms: AtomicU64::new(0),
            doze_ms: AtomicU64::new(0),
            cut: Notify::new(),
            calm: AtomicBool::new(false),
        })
    }

    /// Loses the line, and comes back after a while.
    pub(crate) fn cut(&self, away_ms: u64) {
        self.away_ms.store(away_ms, Ordering::Relaxed);
        self.cut.notify_one();
    }

    /// Reads nothing for a while.
    pub(crate) fn doze(&self, for_ms: u64) {
        self.doze_ms.store(for_ms, Ordering::Relaxed);
    }

    /// Is quick and attentive from now on.
    pub(crate) fn calm(&self) {
        self.calm.store(true, Ordering::Relaxed);
    }

    fn orders(&self) -> MutexGuard<'_, Vec<ClientCommand>> {
        self.orders.lock().expect("nobody panics with it")
    }

    /// Sends a message, perhaps twice, until it is answered.
    pub(crate) async fn say(self: Arc<Self>, machine: Arc<Machine>, id: String, text: String) {
        let (session, command_id) = (self.session.to_string(), &id);
        let frame = json!({
            "event": "user.message", "session_id": session, "command_id": command_id, "content": text,
        });
        let frame = frame.to_string();
        self.orders().push(ClientCommand {
            id: id.clone(),
            frame,
            due: true,
            refused: 0,
            end: None,
        });
        self.asked.notify_one();
        for _ in 0..2_000 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if self.orders().iter().any(|order| order.id == id && order.end.is_some()) {
                return;
            }
        }
        machine
            .violations
            .add("every command of a client is answered", || format!("{} {id}", self.session));
    }

    /// What became of every command: accepted or not.
    pub(crate) fn told(&self) -> Vec<(String, bool)> {
        let ended = |order: &ClientCommand| Some((order.id.clone(), order.end?));
        self.orders().iter().filter_map(ended).collect()
    }

    /// Lives until the simulation is over, coming back after every cut and every death.
    pub(crate) async fn live(self: Arc<Self>, machine: Arc<Machine>) {
        let mut dice = chance(machine.seed, &self.name);
        for via in 0.. {
            if let Some(line) = self.connect(&machine, via) {
                self.talk(&machine, line, &mut dice).await;
            }
            let away = self.away_ms.swap(0, Ordering::Relaxed).max(50);
            tokio::time::sleep(Duration::from_millis(away)).await;
        }
    }

    fn connect(&self, machine: &Machine, via: usize) -> Option<ServerConnection> {
        let process = machine.process(via)?;
        let server = process.server.clone()?;
        let (to, theirs) = mpsc::channel(64);
        let (answers, from) = mpsc::channel(LINE);
        process.tasks.spawn(Box::pin(async move {
            // Whoever is not let in finds the line dead, and comes back.
            drop(server.attend(Identity::local(), theirs, answers).await);
        }));
        Some(ServerConnection { to, from, open: BTreeMap::new(), resumed: false })
    }

    async fn talk(&self, machine: &Machine, mut line: ServerConnection, dice: &mut StdRng) {
        let cursor = json!({
            "event": "user.reconnect", "session_id": self.session.to_string(),
            "content": { "last_seq": self.last.load(Ordering::Relaxed) },
        });
        let _ = line.to.try_send(ClientMessage::Frame(cursor.to_string()));
        for order in self.orders().iter_mut().filter(|order| order.end.is_none()) {
            order.due = true;
        }
        loop {
            self.send_due(&mut line, dice);
            let word = tokio::select! {
                biased;
                () = self.cut.notified() => return,
                () = self.asked.notified() => continue,
                word = line.from.recv() => word,
            };
            match word {
                None | Some(ClientMessage::Close(..)) => return,
                Some(ClientMessage::Heartbeat) => drop(line.to.try_send(ClientMessage::Heartbeat)),
                Some(ClientMessage::Frame(text)) => {
                    self.dawdle(dice).await;
                    if !self.hear(machine, &mut line, text).await {
                        return;
                    }
                }
            }
        }
    }

    async fn dawdle(&self, dice: &mut StdRng) {
        let doze = self.doze_ms.swap(0, Ordering::Relaxed);
        let pause = if self.slow { *pick(dice, &[0, 0, 0, 2, 40, 900]) } else { 0 };
        if doze + pause > 0 && !self.calm.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(doze + pause)).await;
        }
    }

    /// Sends what is to be sent: sometimes twice, and not always in the order it was thought of.
    fn send_due(&self, line: &mut ServerConnection, dice: &mut StdRng) {
        let mut orders = self.orders();
        let mut due: Vec<&mut ClientCommand> =
            orders.iter_mut().filter(|order| order.due).collect();
        if dice.random_bool(0.2) {
            due.reverse();
        }
        for order in due {
            let times = if dice.random_bool(0.3) { 2 } else { 1 };
            for _ in 0..times {
                // What does not fit is said again on the next line.
                if line.to.try_send(ClientMessage::Frame(order.frame.clone())).is_ok() {
                    *line.open.entry(order.id.clone()).or_default() += 1;
                    order.due = false;
                }
            }
        }
    }

    /// Takes in a frame. Is the line of any use?
    async fn hear(&self, machine: &Machine, line: &mut ServerConnection, text: String) -> bool {
        let Ok(frame) = serde_json::from_str::<Value>(&text) else {
            machine.violations.add("a frame is JSON", || text);
            return false;
        };
        let meta = &frame["metadata"];
        line.resumed |= meta["action"] == "resume" && meta["status"] == "complete";
        match frame["seq"].as_u64() {
            // It may watch from now on because it asked something; what came before is missing.
            Some(_) if !line.resumed => return false,
            Some(seq) => self.hear_record(machine, &frame, seq, text).await,
            None if meta["action"] == "reconnect" && meta["status"] == "rejected" => return false,
            None => self.hear_answer(machine, line, &frame),
        }
        true
    }

    async fn hear_record(&self, machine: &Machine, frame: &Value, seq: u64, text: String) {
        let last = self.last.load(Ordering::Relaxed);
        let follows = frame["prev"].as_u64() == Some(last) && seq > last;
        machine.violations.expect(follows, "a client misses no frame and hears none twice", || {
            format!("{}: after {last} came {text}", self.name)
        });
        let kept = at(machine, self.session, seq).await.is_some();
        machine.violations.expect(kept, "no frame comes before its record is on disk", || {
            format!("{}: {text}", self.name)
        });
        self.last.store(seq, Ordering::Relaxed);
        self.heard.lock().expect("nobody panics with it").push(text);
    }

    fn hear_answer(&self, machine: &Machine, line: &mut ServerConnection, frame: &Value) {
        let meta = &frame["metadata"];
        let Some(id) = meta["command_id"].as_str() else { return };
        let mut orders = self.orders();
        let Some(order) = orders.iter_mut().find(|order| order.id == id) else { return };
        let open = line.open.entry(id.to_owned()).or_default();
        *open -= 1;
        machine.violations.expect(*open >= 0, "a command gets one answer", || frame.to_string());
        let accepted = meta["status"] == "accepted";
        let undone = order.end == Some(true) && !accepted && !is_passing(meta);
        machine.violations.expect(!undone, "the same id gets the same answer", || {
            format!("{id} was accepted, and then {frame}")
        });
        if accepted {
            order.end = Some(true);
        } else if order.end.is_none() {
            order.refused += 1;
            // What passes is asked again, with the same id.
            order.due = order.refused < REFUSALS;
            order.end = (!order.due).then_some(false);
        }
    }

    /// Has it heard everything that is there to hear?
    pub(crate) fn is_up_to_date(&self, history: &[Record]) -> bool {
        let last = frames(history).last().map_or(0, |(seq, _)| *seq);
        self.last.load(Ordering::Relaxed) >= last
    }

    /// What it heard is what the records say, frame by frame.
    pub(crate) fn compare(&self, machine: &Machine, history: &[Record]) {
        let heard = self.heard.lock().expect("nobody panics with it");
        let all = frames(history);
        let wrong = all.iter().zip(heard.iter()).find(|((_, said), heard)| said != *heard);
        let same = wrong.is_none() && heard.len() <= all.len();
        machine.violations.expect(same, "what a client heard is what the records say", || {
            format!("{}: {wrong:?}, {} of {}", self.name, heard.len(), all.len())
        });
        for (id, accepted) in self.told() {
            let times = history.iter().filter(|record| {
                matches!(&record.event,
                Event::MessageAccepted { command, .. } if *command.0 == *id)
            });
            let times = times.count();
            let right = if accepted { times == 1 } else { times <= 1 };
            machine.violations.expect(right, "what a client was told is accepted is there", || {
                format!("{}: {id} is there {times} times", self.session)
            });
        }
    }
}

/// Is it a refusal that another try may turn?
fn is_passing(meta: &Value) -> bool {
    meta["recoverable"] != false || meta["retryable"] == true
}

/// The frames of a history, as the server's own projection makes them.
fn frames(history: &[Record]) -> Vec<(u64, String)> {
    let mut projector = Projector::new(&Session::default(), 0);
    let frame = |record| Some((record, projector.project(record)?));
    let frames = history.iter().filter_map(frame);
    frames.map(|(record, frame)| (record.seq, frame.encode())).collect()
}
