//! A worker: a program that offers its own functions to the sessions of a server.
//!
//! The task of a worker claims each call before it runs it, keeps every result until the server has it, and reconnects
//! as a session does. What it holds it says on every connection, so the server knows what became of each call.

use std::{collections::BTreeMap, fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use budao_core::fault::{Fault, Kind, Operation};
use serde_json::{Map, Value, json};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    client::Client,
    event::Event,
    socket::{ConnectionEnd, Socket, loss_fault},
};

/// Pause before a result that a busy server refused is sent again.
const RESULT_PAUSE: Duration = Duration::from_millis(500);
/// Upper bound of a result: one frame, with room for its other fields.
const RESULT_BYTES: usize = 1_000_000;
/// Results that may wait for the worker's task.
const RESULTS: usize = 1024;

/// The failure of a worker's function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallError {
    /// The sentence for the model; without one, the model reads that the tool failed.
    pub message: Option<String>,
    /// What the model should do, one line each.
    pub advice: Vec<String>,
    /// How far the call got: `not_begun`, `ended`, `unconfirmed` or `done`.
    pub progress: Option<&'static str>,
    /// The error behind it, for the operator alone.
    pub detail: Option<String>,
}

impl CallError {
    /// A failure with a sentence that the model reads.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: Some(message.into()), ..Self::default() }
    }

    /// Adds a line of advice for the model.
    #[must_use]
    pub fn advise(mut self, line: impl Into<String>) -> Self {
        self.advice.push(line.into());
        self
    }

    fn to_json(&self) -> Value {
        json!({
            "message": self.message, "advice": self.advice, "progress": self.progress,
            "detail": self.detail,
        })
    }
}

/// What a worker's function knows of the call that it runs.
#[derive(Clone, Debug)]
pub struct WorkerCall {
    /// The session that made the call.
    pub session_id: String,
    /// The id of the call in its session.
    pub step_id: String,
    /// The attempt, from 1.
    pub attempt: u64,
    /// Equal for all attempts of the call. Pass it to services that deduplicate.
    pub idempotency_key: String,
    /// The W3C trace context of the call.
    pub traceparent: String,
    /// True if the call asks what became of an earlier one. The result is then a `reconciliation`.
    pub is_reconcile: bool,
    /// Cancelled when the call should stop.
    pub cancel: CancellationToken,
    progress: mpsc::Sender<Signal>,
    worker_id: Arc<str>,
}

impl WorkerCall {
    /// Shows progress to people. It is dropped if the connection is busy or away.
    pub fn show(&self, text: &str) {
        let content =
            json!({ "attempt": self.attempt, "worker_id": &*self.worker_id, "delta": text });
        let frame = json!({
            "event": "user.tool_output", "session_id": self.session_id, "step_id": self.step_id,
            "content": content,
        });
        let _ = self.progress.try_send(Signal::Frame(frame));
    }
}

type CallFuture = Pin<Box<dyn Future<Output = Result<Value, CallError>> + Send>>;
type CallFunction = Arc<dyn Fn(Value, WorkerCall) -> CallFuture + Send + Sync>;

/// A function that a worker offers as a tool.
#[derive(Clone)]
pub struct WorkerTool {
    name: String,
    fields: Map<String, Value>,
    function: CallFunction,
}

impl fmt::Debug for WorkerTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerTool").field("name", &self.name).finish_non_exhaustive()
    }
}

impl WorkerTool {
    /// A tool with this name, description for the model, and JSON Schema of its arguments.
    pub fn new<F, R>(name: &str, description: &str, parameters: Value, function: F) -> Self
    where
        F: Fn(Value, WorkerCall) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Value, CallError>> + Send + 'static,
    {
        let mut fields = Map::new();
        fields.insert("name".to_owned(), name.into());
        fields.insert("description".to_owned(), description.into());
        fields.insert("parameters".to_owned(), parameters);
        let function: CallFunction = Arc::new(move |value, call| Box::pin(function(value, call)));
        Self { name: name.to_owned(), fields, function }
    }

    /// Sets a field of the offer: `read_only`, `idempotent`, `confirm`, `reconcile`, `deadline_ms` or `wait_ms`.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(field.to_owned(), value.into());
        self
    }
}

/// A worker with its tools, not yet connected.
#[derive(Debug)]
pub struct Worker {
    client: Client,
    name: String,
    id: Arc<str>,
    session: Option<String>,
    capacity: usize,
    tools: Vec<WorkerTool>,
}

/// What the tasks of calls send to the worker's task.
#[derive(Debug)]
enum Signal {
    Ended(CallRef, Result<Value, CallError>),
    /// Progress, or a result that is sent again.
    Frame(Value),
}

type CallRef = (String, String);

/// A call that the worker claims, runs or has ended.
#[derive(Debug)]
struct ActiveCall {
    attempt: u64,
    state: ActiveState,
}

#[derive(Debug)]
enum ActiveState {
    /// The claim was sent; it runs when the claim is accepted.
    Claiming {
        id: String,
        call: Box<(String, Value, WorkerCall)>,
    },
    Running(CancellationToken),
    /// The result was sent; it is kept until it is accepted.
    Ended {
        id: String,
        frame: Value,
    },
}

impl Worker {
    /// A worker with this name. All processes of a worker share its name and its tools.
    #[must_use]
    pub fn new(client: Client, name: &str) -> Self {
        let id = Uuid::now_v7().to_string().into();
        Self { client, name: name.to_owned(), id, session: None, capacity: 16, tools: Vec::new() }
    }

    /// Offers the tools to this session only.
    #[must_use]
    pub fn session(mut self, session_id: &str) -> Self {
        self.session = Some(session_id.to_owned());
        self
    }

    /// Sets how many calls run at the same time; 16 by default.
    #[must_use]
    pub fn capacity(mut self, capacity: usize) -> Self {
        self.capacity = capacity.max(1);
        self
    }

    /// Offers one more tool.
    #[must_use]
    pub fn tool(mut self, tool: WorkerTool) -> Self {
        self.tools.push(tool);
        self
    }

    /// Serves calls until `stop` is cancelled. Then it takes no new calls and returns when those it holds have ended.
    ///
    /// # Errors
    /// If the server refuses the credentials or the offer, or cannot be reached any more.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Fault> {
        let (signals, ended) = mpsc::channel(RESULTS);
        let mut task = WorkerTask { worker: self, stop, held: BTreeMap::new(), signals, ended };
        task.run().await
    }
}

struct WorkerTask {
    worker: Worker,
    stop: CancellationToken,
    held: BTreeMap<CallRef, ActiveCall>,
    signals: mpsc::Sender<Signal>,
    ended: mpsc::Receiver<Signal>,
}

impl WorkerTask {
    async fn run(&mut self) -> Result<(), Fault> {
        let mut waits = self.worker.client.waits();
        loop {
            let mut is_established = false;
            let end = match Socket::open(&self.worker.client).await {
                Ok(socket) => self.serve(socket, &mut is_established).await,
                Err(end) => Err(end),
            };
            let fault = match end {
                Ok(()) => return Ok(()),
                Err(ConnectionEnd::Refused(fault)) => return Err(fault),
                Err(ConnectionEnd::Lost(fault)) => fault,
            };
            if is_established {
                waits = self.worker.client.waits();
            }
            let Some(wait) = waits.next() else { return Err(fault) };
            let wait = wait.max(fault.retry_hint().unwrap_or_default());
            if !self.wait(wait.min(self.worker.client.retry.hint_ceiling.max(wait))).await {
                return Ok(());
            }
        }
    }

    /// Waits before the next try and takes results meanwhile. Returns false if the worker has nothing left to do.
    async fn wait(&mut self, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        loop {
            if self.stop.is_cancelled() && self.held.is_empty() {
                return false;
            }
            tokio::select! {
                Some(signal) = self.ended.recv() => drop(self.take_signal(signal)),
                () = self.stop.cancelled(), if !self.stop.is_cancelled() => {}
                () = tokio::time::sleep_until(until) => return true,
            }
        }
    }

    /// Serves one connection to its end. Returns `Ok` if the worker has nothing left to do.
    async fn serve(
        &mut self,
        mut socket: Socket,
        is_established: &mut bool,
    ) -> Result<(), ConnectionEnd> {
        let offer_id = Uuid::now_v7().to_string();
        socket.send(&self.offer(&offer_id)).await?;
        let silence = self.worker.client.silence;
        let mut deadline = Instant::now() + silence;
        let mut is_drained = false;
        loop {
            if self.stop.is_cancelled() && *is_established && !is_drained {
                is_drained = true;
                let content = json!({ "worker_id": &*self.worker.id });
                let frame = json!({ "event": "user.drain_worker", "content": content });
                socket.send(&frame).await?;
            }
            if is_drained && self.held.is_empty() {
                socket.close().await;
                return Ok(());
            }
            tokio::select! {
                Some(signal) = self.ended.recv() => {
                    if let (Some(frame), true) = (self.take_signal(signal), *is_established) {
                        socket.send(&frame).await?;
                    }
                }
                () = self.stop.cancelled(), if !self.stop.is_cancelled() => {}
                received = tokio::time::timeout_at(deadline, socket.next()) => {
                    deadline = Instant::now() + silence;
                    let event = received.map_err(|_| ConnectionEnd::Lost(loss_fault()))??;
                    if event.answers() == Some(&offer_id) {
                        self.take_offer_answer(&event)?;
                        *is_established = true;
                        for frame in self.list_unanswered() {
                            socket.send(&frame).await?;
                        }
                    }
                    if let Some(frame) = self.take_event(event) {
                        socket.send(&frame).await?;
                    }
                }
            }
        }
    }

    fn offer(&self, id: &str) -> Value {
        let worker = &self.worker;
        let holding: Vec<Value> = self
            .held
            .iter()
            .map(|((session, step), held)| {
                json!({ "session_id": session, "step_id": step, "attempt": held.attempt })
            })
            .collect();
        let tools: Vec<Value> =
            worker.tools.iter().map(|tool| Value::Object(tool.fields.clone())).collect();
        let mut frame = json!({
            "event": "user.offer_tools", "command_id": id,
            "content": {
                "worker": worker.name, "worker_id": &*worker.id, "capacity": worker.capacity,
                "tools": tools, "holding": holding,
            },
        });
        if let Some(session) = &worker.session {
            frame["session_id"] = session.as_str().into();
        }
        frame
    }

    /// A refused offer ends the worker: the next one would be refused too. A busy server is asked again.
    fn take_offer_answer(&self, event: &Event) -> Result<(), ConnectionEnd> {
        if !event.is_refusal() {
            return Ok(());
        }
        let metadata = event.metadata.as_ref();
        let text = |name: &str| metadata.and_then(|it| it.get(name)).and_then(Value::as_str);
        let fault = Fault::new(Kind::BadRequest, Operation::RegisterTool).with_cause(format!(
            "{}: {}",
            text("error_code").unwrap_or_default(),
            event.text()
        ));
        match text("category") {
            Some("validation") | None => Err(ConnectionEnd::Refused(fault)),
            Some(_) => Err(ConnectionEnd::Lost(fault)),
        }
    }

    /// The claims and results that have no answer yet.
    fn list_unanswered(&self) -> Vec<Value> {
        let of = |((session, step), held): (&CallRef, &ActiveCall)| match &held.state {
            ActiveState::Claiming { id, .. } => {
                Some(claim_frame(id, session, step, held.attempt, &self.worker.id))
            }
            ActiveState::Ended { frame, .. } => Some(frame.clone()),
            ActiveState::Running(_) => None,
        };
        self.held.iter().filter_map(of).collect()
    }

    /// Takes the end of a call. Returns the frame to send.
    fn take_signal(&mut self, signal: Signal) -> Option<Value> {
        let (key, result) = match signal {
            Signal::Frame(frame) => return Some(frame),
            Signal::Ended(key, result) => (key, result),
        };
        let held = self.held.get_mut(&key)?;
        let mut content = match result {
            Ok(Value::Object(map)) if map.contains_key("reconciliation") => Value::Object(map),
            Ok(result) => json!({ "result": result }),
            Err(error) => json!({ "error": error.to_json() }),
        };
        content["attempt"] = held.attempt.into();
        content["worker_id"] = (&*self.worker.id).into();
        let id = Uuid::now_v7().to_string();
        if content.to_string().len() > RESULT_BYTES {
            let error = CallError::new(format!("The result is larger than {RESULT_BYTES} bytes."));
            content = json!({ "error": error.to_json(), "attempt": held.attempt });
            content["worker_id"] = (&*self.worker.id).into();
        }
        let frame = json!({
            "event": "user.tool_result", "command_id": id, "session_id": key.0, "step_id": key.1,
            "content": content,
        });
        held.state = ActiveState::Ended { id, frame: frame.clone() };
        Some(frame)
    }

    /// Takes a frame of the server. Returns the frame to send.
    fn take_event(&mut self, event: Event) -> Option<Value> {
        match event.event.as_str() {
            "tool.call" => return self.take_call(event),
            "tool.cancel" => {
                let key = (event.session_id?, event.step_id?);
                if let Some(ActiveCall { state: ActiveState::Running(cancel), .. }) =
                    self.held.get(&key)
                {
                    cancel.cancel();
                }
            }
            _ => self.take_answer(&event),
        }
        None
    }

    /// Claims a call that is offered, unless the worker is full or stops.
    fn take_call(&mut self, event: Event) -> Option<Value> {
        let metadata = event.metadata.unwrap_or_default();
        let text = |name: &str| metadata.get(name).and_then(Value::as_str).unwrap_or_default();
        let key = (event.session_id?, event.step_id?);
        let attempt = metadata.get("attempt").and_then(Value::as_u64)?;
        // The server may offer the next call before its answer to the last result arrives.
        let runs = |held: &&ActiveCall| !matches!(held.state, ActiveState::Ended { .. });
        let is_full = self.held.values().filter(runs).count() >= self.worker.capacity;
        if self.held.contains_key(&key) || is_full || self.stop.is_cancelled() {
            return None;
        }
        let call = WorkerCall {
            session_id: key.0.clone(),
            step_id: key.1.clone(),
            attempt,
            idempotency_key: text("idempotency_key").to_owned(),
            traceparent: text("traceparent").to_owned(),
            is_reconcile: text("purpose") == "reconcile",
            cancel: CancellationToken::new(),
            progress: self.signals.clone(),
            worker_id: Arc::clone(&self.worker.id),
        };
        let id = Uuid::now_v7().to_string();
        let frame = claim_frame(&id, &key.0, &key.1, attempt, &self.worker.id);
        let call = Box::new((text("tool").to_owned(), event.content, call));
        self.held.insert(key, ActiveCall { attempt, state: ActiveState::Claiming { id, call } });
        Some(frame)
    }

    /// Starts a call whose claim was accepted, and forgets a call whose end was answered.
    fn take_answer(&mut self, event: &Event) {
        let Some(answered) = event.answers() else { return };
        let found = self.held.iter().find(|(_, held)| match &held.state {
            ActiveState::Claiming { id, .. } | ActiveState::Ended { id, .. } => id == answered,
            ActiveState::Running(_) => false,
        });
        let Some(key) = found.map(|(key, _)| key.clone()) else { return };
        let Some(held) = self.held.remove(&key) else { return };
        let call = match held.state {
            ActiveState::Claiming { call, .. } if !event.is_refusal() => call,
            // A busy server gets the result again; any other refusal means that the call is over.
            ActiveState::Ended { frame, .. } if passes(event) => {
                return self.repeat_later(key, held.attempt, frame);
            }
            ActiveState::Claiming { .. } | ActiveState::Ended { .. } | ActiveState::Running(_) => {
                return;
            }
        };
        let (tool, arguments, call) = *call;
        let cancel = call.cancel.clone();
        self.start(key.clone(), &tool, arguments, call);
        self.held
            .insert(key, ActiveCall { attempt: held.attempt, state: ActiveState::Running(cancel) });
    }

    /// Sends a result again after a pause, as a command of its own: the refusal of the first one may be durable.
    fn repeat_later(&mut self, key: CallRef, attempt: u64, mut frame: Value) {
        let id = Uuid::now_v7().to_string();
        frame["command_id"] = id.as_str().into();
        self.held.insert(
            key,
            ActiveCall { attempt, state: ActiveState::Ended { id, frame: frame.clone() } },
        );
        let signals = self.signals.clone();
        tokio::spawn(async move {
            tokio::time::sleep(RESULT_PAUSE).await;
            // The worker's task is gone only if the worker was dropped.
            let _ = signals.send(Signal::Frame(frame)).await;
        });
    }

    /// Runs the function on a task of its own. A panic is a failure like any other.
    fn start(&self, key: CallRef, tool: &str, arguments: Value, call: WorkerCall) {
        let known = self.worker.tools.iter().find(|known| known.name == tool);
        let function = known.map(|tool| Arc::clone(&tool.function));
        let signals = self.signals.clone();
        tokio::spawn(async move {
            let result = match function {
                Some(function) => match tokio::spawn(function(arguments, call)).await {
                    Ok(result) => result,
                    Err(error) => {
                        Err(CallError { detail: Some(error.to_string()), ..CallError::default() })
                    }
                },
                None => Err(CallError {
                    progress: Some("not_begun"),
                    detail: Some("the worker has no such tool".to_owned()),
                    ..CallError::default()
                }),
            };
            // The worker's task is gone only if the worker was dropped.
            let _ = signals.send(Signal::Ended(key, result)).await;
        });
    }
}

/// Whether the server may accept the same command later.
fn passes(event: &Event) -> bool {
    let category = event.metadata.as_ref().and_then(|metadata| metadata.get("category"));
    let category = category.and_then(Value::as_str).unwrap_or_default();
    event.is_refusal() && ["transient", "resource"].contains(&category)
}

fn claim_frame(id: &str, session: &str, step: &str, attempt: u64, worker_id: &str) -> Value {
    json!({
        "event": "user.tool_claim", "command_id": id, "session_id": session, "step_id": step,
        "content": { "attempt": attempt, "worker_id": worker_id },
    })
}
