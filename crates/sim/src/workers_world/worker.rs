//! A process of a worker: it connects to a server, offers tools, claims calls, runs them and reports their ends, on a
//! connection with delays that is cut. It follows the protocol; only its functions hang, fail, and end twice or late.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use budao_core::world::Spawn as _;
use budao_serve::{Identity, in_process::ClientMessage};
use futures::future::{AbortHandle, abortable};
use rand::{RngExt as _, rngs::StdRng};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use super::{DEADLINE, WORKER, book::WorkerBook, tools};
use crate::{
    process::Machine,
    script::pick,
    world::{Tasks, chance},
};

/// Messages that a connection holds in each direction.
const LINE: usize = 64;
/// Virtual milliseconds that a message travels.
const DELAYS: &[u64] = &[0, 0, 1, 5, 40, 300];

/// Session, call and attempt.
type CallName = (String, String, u64);

/// A living process, as the script sees it.
#[derive(Clone, Debug)]
pub(crate) struct WorkerHandle {
    pub(crate) id: String,
    pub(crate) tasks: Arc<Tasks>,
    signals: Arc<Signals>,
}

#[derive(Debug, Default)]
struct Signals {
    away_ms: AtomicU64,
    cut: Notify,
    drain: Notify,
}

impl WorkerHandle {
    /// Drops the connection; the process connects again after `away_ms`.
    pub(crate) fn cut(&self, away_ms: u64) {
        self.signals.away_ms.store(away_ms, Ordering::Relaxed);
        self.signals.cut.notify_one();
    }

    /// Lets the process end what it holds, and end.
    pub(crate) fn drain(&self) {
        self.signals.drain.notify_one();
    }
}

/// Starts a process. Its tasks end with it.
pub(crate) fn start(
    machine: &Arc<Machine>,
    book: &Arc<WorkerBook>,
    slot: usize,
    life: u32,
) -> WorkerHandle {
    let id = format!("w-{slot}-{life}");
    let (tasks, signals) = (Arc::new(Tasks::default()), Arc::new(Signals::default()));
    let (ends, ended) = mpsc::channel(LINE);
    let mut dice = chance(machine.seed, &format!("worker {id}"));
    let process = WorkerProcess {
        capacity: dice.random_range(1..=6),
        via: slot,
        dice,
        machine: Arc::clone(machine),
        book: Arc::clone(book),
        id: id.clone(),
        tasks: Arc::clone(&tasks),
        signals: Arc::clone(&signals),
        calls: BTreeMap::new(),
        ends,
        ended,
        sent: 0,
        is_draining: false,
    };
    tasks.spawn(Box::pin(process.live()));
    WorkerHandle { id, tasks, signals }
}

/// How far a call got that the process holds.
#[derive(Debug)]
enum HeldCall {
    /// The claim with this id has no answer yet; then the call, as it was offered.
    Claiming(String, Value, Box<Value>),
    Running(AbortHandle),
    /// The result with this id has no answer yet.
    Ended(String, Value),
}

struct WorkerProcess {
    machine: Arc<Machine>,
    book: Arc<WorkerBook>,
    id: String,
    capacity: usize,
    via: usize,
    dice: StdRng,
    tasks: Arc<Tasks>,
    signals: Arc<Signals>,
    calls: BTreeMap<CallName, HeldCall>,
    ends: mpsc::Sender<(CallName, Value)>,
    ended: mpsc::Receiver<(CallName, Value)>,
    /// Number of commands so far, for their ids.
    sent: u64,
    is_draining: bool,
}

/// A connection to a server; messages arrive late and in order.
struct Line {
    to: mpsc::Sender<ClientMessage>,
    from: mpsc::Receiver<ClientMessage>,
    /// The id of the offer that is not accepted yet.
    offer: Option<String>,
}

impl Line {
    fn send(&self, frame: &Value) {
        // A line that is full or closed is noticed by its reader; commands are repeated on the next one.
        let _ = self.to.try_send(ClientMessage::Frame(frame.to_string()));
    }
}

impl WorkerProcess {
    async fn live(mut self) {
        loop {
            if let Some(line) = self.connect() {
                self.talk(line).await;
            }
            if self.is_draining && self.calls.is_empty() {
                return self.book.leave(&self.id);
            }
            self.via += 1;
            let away = self.signals.away_ms.swap(0, Ordering::Relaxed);
            let away = away + *pick(&mut self.dice, &[20, 60, 200]);
            tokio::time::sleep(Duration::from_millis(away)).await;
        }
    }

    fn connect(&mut self) -> Option<Line> {
        let process = self.machine.process(self.via)?;
        let server = process.server.clone()?;
        let (to, theirs) = self.pipe(&process.tasks);
        let (answers, from) = self.pipe(&process.tasks);
        process.tasks.spawn(Box::pin(async move {
            drop(server.serve(Identity::local(), theirs, answers).await);
        }));
        Some(Line { to, from, offer: None })
    }

    /// A channel in which each message travels for a random time. Some lose what is under way when the server dies.
    fn pipe(
        &mut self,
        server: &Arc<Tasks>,
    ) -> (mpsc::Sender<ClientMessage>, mpsc::Receiver<ClientMessage>) {
        let (enter, mut entered) = mpsc::channel::<ClientMessage>(LINE);
        let (leave, left) = mpsc::channel(LINE);
        let most = *pick(&mut self.dice, DELAYS);
        let server = self.dice.random_bool(0.6).then(|| Arc::clone(server));
        drop(tokio::spawn(async move {
            while let Some(message) = entered.recv().await {
                if most > 0 {
                    tokio::time::sleep(Duration::from_millis(most)).await;
                }
                let is_lost = server.as_ref().is_some_and(|server| !server.is_alive());
                if is_lost || leave.send(message).await.is_err() {
                    return;
                }
            }
        }));
        (enter, left)
    }

    /// Serves one connection to its end.
    async fn talk(&mut self, mut line: Line) {
        let id = self.next_id("offer");
        line.send(&self.offer(&id));
        line.offer = Some(id);
        loop {
            let signals = Arc::clone(&self.signals);
            tokio::select! {
                biased;
                () = signals.cut.notified() => return self.book.cut(),
                () = signals.drain.notified() => {
                    self.is_draining = true;
                    line.send(&json!({
                        "event": "user.drain_worker", "command_id": self.next_id("drain"),
                        "content": { "worker_id": self.id },
                    }));
                }
                Some((call, content)) = self.ended.recv() => self.end(&line, call, &content),
                message = line.from.recv() => match message {
                    None | Some(ClientMessage::Close(..)) => return,
                    Some(ClientMessage::Heartbeat) => {
                        let _ = line.to.try_send(ClientMessage::Heartbeat);
                    }
                    Some(ClientMessage::Frame(text)) => {
                        let frame: Value = serde_json::from_str(&text).unwrap_or_default();
                        if !self.take(&mut line, &frame) {
                            return;
                        }
                    }
                },
            }
            if self.is_draining && self.calls.is_empty() {
                return;
            }
        }
    }

    fn next_id(&mut self, word: &str) -> String {
        self.sent += 1;
        format!("{}-{word}-{}", self.id, self.sent)
    }

    fn offer(&self, id: &str) -> Value {
        let holding: Vec<Value> = self
            .calls
            .keys()
            .map(|(session, step, attempt)| {
                json!({ "session_id": session, "step_id": step, "attempt": attempt })
            })
            .collect();
        json!({
            "event": "user.offer_tools", "command_id": id,
            "content": {
                "worker": WORKER, "worker_id": self.id, "capacity": self.capacity,
                "tools": tools(), "holding": holding,
            },
        })
    }

    /// Takes a frame. Returns false if the connection is of no use.
    fn take(&mut self, line: &mut Line, frame: &Value) -> bool {
        let metadata = &frame["metadata"];
        let is_accepted = metadata["status"] == "accepted";
        match (frame["event"].as_str(), metadata["command_id"].as_str()) {
            (Some("tool.call"), _) => self.take_call(line, frame),
            (Some("tool.cancel"), _) => self.take_cancel(line, frame),
            (_, Some(id)) if line.offer.as_deref() == Some(id) => {
                if !is_accepted {
                    return false;
                }
                line.offer = None;
                self.repeat(line);
            }
            (_, Some(id)) => {
                let passes = ["transient", "resource"]
                    .contains(&metadata["category"].as_str().unwrap_or_default());
                self.take_answer(line, id, (is_accepted, passes));
            }
            _ => {}
        }
        true
    }

    /// Sends the claims and results again that have no answer.
    fn repeat(&self, line: &Line) {
        for held in self.calls.values() {
            if let HeldCall::Claiming(_, frame, _) | HeldCall::Ended(_, frame) = held {
                line.send(frame);
            }
        }
    }

    fn about(&self, event: &str, id: &str, call: &CallName, content: &Value) -> Value {
        let mut frame = json!({
            "event": event, "command_id": id, "session_id": call.0, "step_id": call.1,
            "content": content,
        });
        frame["content"]["attempt"] = call.2.into();
        frame["content"]["worker_id"] = self.id.as_str().into();
        frame
    }

    fn take_call(&mut self, line: &Line, frame: &Value) {
        let Some(call) = name_of(frame) else { return };
        let is_busy = self.calls.len() >= self.capacity || self.dice.random_bool(0.05);
        if self.calls.contains_key(&call) || self.is_draining || is_busy {
            return;
        }
        let id = self.next_id("claim");
        let claim = self.about("user.tool_claim", &id, &call, &json!({}));
        line.send(&claim);
        self.calls.insert(call, HeldCall::Claiming(id, claim, Box::new(frame.clone())));
    }

    fn take_cancel(&mut self, line: &Line, frame: &Value) {
        let Some(call) = name_of(frame) else { return };
        let Some(HeldCall::Running(running)) = self.calls.get(&call) else { return };
        running.abort();
        if frame["metadata"]["reason"] == "cancelled" {
            let content = json!({ "error": { "progress": "unconfirmed" } });
            self.book.stop(&call);
            return self.end(line, call, &content);
        }
        self.calls.remove(&call);
    }

    /// Takes the answer to a claim or a result.
    fn take_answer(&mut self, line: &Line, answered: &str, (is_accepted, passes): (bool, bool)) {
        let found = self.calls.iter().find(|(_, held)| match held {
            HeldCall::Claiming(id, ..) | HeldCall::Ended(id, _) => *id == answered,
            HeldCall::Running(_) => false,
        });
        let Some(call) = found.map(|(call, _)| call.clone()) else { return };
        match self.calls.remove(&call) {
            Some(HeldCall::Claiming(_, _, offer)) if is_accepted => {
                let running = self.run(&call, &offer["metadata"]);
                self.calls.insert(call, HeldCall::Running(running));
            }
            Some(HeldCall::Ended(_, frame)) if !is_accepted && passes => {
                let mut frame = frame;
                let id = self.next_id("again");
                frame["command_id"] = id.as_str().into();
                line.send(&frame);
                self.calls.insert(call, HeldCall::Ended(id, frame));
            }
            Some(HeldCall::Ended(_, frame)) if is_accepted => {
                self.book.record_report(&call, &frame["content"]);
                // A process that forgets what it said says it again, in other words.
                if self.dice.random_bool(0.1) {
                    let id = self.next_id("twice");
                    line.send(&self.about(
                        "user.tool_result",
                        &id,
                        &call,
                        &json!({ "result": "twice" }),
                    ));
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, line: &Line, call: CallName, content: &Value) {
        if !matches!(self.calls.get(&call), Some(HeldCall::Running(_))) {
            return;
        }
        let id = self.next_id("result");
        let frame = self.about("user.tool_result", &id, &call, content);
        if line.offer.is_none() {
            line.send(&frame);
        }
        self.calls.insert(call, HeldCall::Ended(id, frame));
    }

    /// Runs the function of a call whose claim was accepted.
    fn run(&mut self, call: &CallName, metadata: &Value) -> AbortHandle {
        let text = |name: &str| metadata[name].as_str().unwrap_or_default().to_owned();
        let (tool, purpose) = (text("tool"), text("purpose"));
        let name = format!("function {} {} {}", self.id, call.1, call.2);
        let mut dice = chance(self.machine.seed, &format!("{name} {}", call.0));
        let (book, ledger, ends) =
            (Arc::clone(&self.book), self.machine.ledger.clone(), self.ends.clone());
        let (call, key) = (call.clone(), format!("{}.{}", call.0, call.1));
        let (function, handle) = abortable(async move {
            let some = |wait: u64| tokio::time::sleep(Duration::from_millis(wait));
            if purpose == "reconcile" {
                some(*pick(&mut dice, &[0, 5, 80])).await;
                let content = match ledger.find(&key) {
                    true => json!({ "reconciliation": "happened", "result": { "did": key } }),
                    false => json!({ "reconciliation": "did_not_happen" }),
                };
                return drop(ends.send((call, content)).await);
            }
            book.begin(&key);
            let number = ledger.begin(&key);
            some(*pick(&mut dice, &[0, 0, 2, 60, 700])).await;
            let fate = dice.random_range(0..100);
            if fate < 8 {
                let error = json!({ "message": "No.", "advice": ["Ask less."] });
                return drop(ends.send((call, json!({ "error": error }))).await);
            }
            ledger.write(&key, number);
            some(*pick(&mut dice, &[0, 0, 2, 60, 700])).await;
            if fate < 14 && tool != "look" {
                book.hang(&call);
                some(if fate < 11 { 3_600_000 } else { 5_000 + millis(DEADLINE) }).await;
            }
            drop(ends.send((call, json!({ "result": { "did": key } }))).await);
        });
        self.tasks.spawn(Box::pin(async move {
            let _ = function.await;
        }));
        handle
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn name_of(frame: &Value) -> Option<CallName> {
    let text = |name: &str| Some(frame[name].as_str()?.to_owned());
    Some((text("session_id")?, text("step_id")?, frame["metadata"]["attempt"].as_u64()?))
}
