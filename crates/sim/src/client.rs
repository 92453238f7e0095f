//! Clients of the session server. They observe and send commands over connections that are cut; they read slowly, send
//! commands twice and send them out of order.

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
use budao_journal::Reader;
use budao_serve::{
    Auth, Config, Identity, Keyring,
    in_process::{ClientMessage, InProcessServer},
    project::Projector,
};
use rand::{RngExt as _, rngs::StdRng};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use crate::{people::at, process::Machine, script::pick, world::chance};

/// Capacity of the queue from the server to a client, in messages. When it is full, the server waits.
const LINE: usize = 4;
/// Refusals of a command after which the last refusal counts as its answer.
const REFUSALS: u32 = 8;

/// The session server of a process, with limits so small that a simulation reaches them.
pub(crate) fn server(
    engine: Arc<dyn Engine>,
    journal: Arc<dyn Reader>,
    world: World,
    workers: Option<budao_remote::Workers>,
) -> InProcessServer {
    let keys = Keyring::new(["a secret that is long enough for a key"]).expect("it is long enough");
    let mut config = Config::new(Auth::open(), keys);
    if workers.is_none() {
        config.limits.observer_bytes = 6_000;
        config.limits.total_observer_bytes = 40_000;
    }
    config.workers = workers;
    InProcessServer::new(config, engine, journal, world)
}

/// A client that observes one session through the server.
#[derive(Debug)]
pub(crate) struct Client {
    session: SessionId,
    name: String,
    /// Waits a random time before it reads a frame.
    slow: bool,
    /// The frames of records, in the order of arrival.
    heard: Mutex<Vec<String>>,
    last: AtomicU64,
    orders: Mutex<Vec<ClientCommand>>,
    asked: Notify,
    away_ms: AtomicU64,
    doze_ms: AtomicU64,
    cut: Notify,
    calm: AtomicBool,
}

/// A command of a client, kept until it is answered.
#[derive(Debug)]
struct ClientCommand {
    id: String,
    frame: String,
    /// The command must be sent, or sent again.
    due: bool,
    refused: u32,
    end: Option<bool>,
}

/// A connection to a server and its unanswered commands.
struct ServerConnection {
    to: mpsc::Sender<ClientMessage>,
    from: mpsc::Receiver<ClientMessage>,
    /// Number of unanswered sends on this connection, by command id.
    open: BTreeMap<String, i32>,
    /// The server has confirmed the resume. Until then a record frame makes the client reconnect.
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

    /// Drops the connection and reconnects after `away_ms`.
    pub(crate) fn cut(&self, away_ms: u64) {
        self.away_ms.store(away_ms, Ordering::Relaxed);
        self.cut.notify_one();
    }

    /// Reads nothing for `for_ms`.
    pub(crate) fn doze(&self, for_ms: u64) {
        self.doze_ms.store(for_ms, Ordering::Relaxed);
    }

    /// Ends all slow reading, for the rest phase of a simulation.
    pub(crate) fn calm(&self) {
        self.calm.store(true, Ordering::Relaxed);
    }

    fn orders(&self) -> MutexGuard<'_, Vec<ClientCommand>> {
        self.orders.lock().expect("nobody panics with it")
    }

    /// Sends a message, sometimes twice, until it is answered.
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

    /// The final answer of every answered command: true if it was accepted.
    pub(crate) fn list_answers(&self) -> Vec<(String, bool)> {
        let ended = |order: &ClientCommand| Some((order.id.clone(), order.end?));
        self.orders().iter().filter_map(ended).collect()
    }

    /// Runs until the simulation ends. It reconnects after every cut and after the death of a process.
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
            // A refused client finds the connection closed and reconnects.
            drop(server.serve(Identity::local(), theirs, answers).await);
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

    /// Sends the due commands: some of them twice, and sometimes in reverse order.
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
                // A command that does not fit into the queue stays due.
                if line.to.try_send(ClientMessage::Frame(order.frame.clone())).is_ok() {
                    *line.open.entry(order.id.clone()).or_default() += 1;
                    order.due = false;
                }
            }
        }
    }

    /// Handles a frame. Returns false if the connection is of no use and the client must reconnect.
    async fn hear(&self, machine: &Machine, line: &mut ServerConnection, text: String) -> bool {
        let Ok(frame) = serde_json::from_str::<Value>(&text) else {
            machine.violations.add("a frame is JSON", || text);
            return false;
        };
        let meta = &frame["metadata"];
        line.resumed |= meta["action"] == "resume" && meta["status"] == "complete";
        match frame["seq"].as_u64() {
            // Sending a command also starts observation, from the head on; the earlier records would be missing.
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
            // A refused command is sent again with the same id.
            order.due = order.refused < REFUSALS;
            order.end = (!order.due).then_some(false);
        }
    }

    /// Returns whether the client has received the frame of every record.
    pub(crate) fn is_up_to_date(&self, history: &[Record]) -> bool {
        let last = frames(history).last().map_or(0, |(seq, _)| *seq);
        self.last.load(Ordering::Relaxed) >= last
    }

    /// Compares the received frames with the projection of the records, and the answers with the history.
    pub(crate) fn compare(&self, machine: &Machine, history: &[Record]) {
        let heard = self.heard.lock().expect("nobody panics with it");
        let all = frames(history);
        let wrong = all.iter().zip(heard.iter()).find(|((_, said), heard)| said != *heard);
        let same = wrong.is_none() && heard.len() <= all.len();
        machine.violations.expect(same, "what a client heard is what the records say", || {
            format!("{}: {wrong:?}, {} of {}", self.name, heard.len(), all.len())
        });
        for (id, accepted) in self.list_answers() {
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

/// Returns whether a retry may turn this refusal into an acceptance.
fn is_passing(meta: &Value) -> bool {
    meta["recoverable"] != false || meta["retryable"] == true
}

/// The frames of a history with their positions, made by the server's own projection.
fn frames(history: &[Record]) -> Vec<(u64, String)> {
    let mut projector = Projector::new(&Session::default(), 0);
    let frame = |record| Some((record, projector.project(record)?));
    let frames = history.iter().filter_map(frame);
    frames.map(|(record, frame)| (record.seq, frame.encode())).collect()
}
