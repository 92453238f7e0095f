//! The editor: its requests, and the checks on every message it receives.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use budao_core::world::Spawn as _;
use rand::{RngExt as _, rngs::StdRng};
use serde_json::{Value, json};
use tokio::{
    io::{
        AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf,
        WriteHalf,
    },
    sync::mpsc,
};

use super::{EditorAction, engine_host::EngineHost};
use crate::{
    people::message_text,
    process::Machine,
    script::{Script, pick},
    world::chance,
};

/// Words that control the played CLI; the native engine's model misbehaves without them.
const TWISTS: &[&str] = &[
    "",
    "",
    "",
    "@slow",
    "@slow",
    "@tool",
    "@tool",
    "@early",
    "@cut",
    "@whole",
    "@die",
    "@die-mid",
    "@die-tool",
    "@slow @deaf",
    "@api-429",
    "@broke",
    "@odd",
    "@stale-before",
    "@stale-mid",
    "@stale-bare",
    "@foreign",
    "@late",
    "@background",
    "@withdraw",
    "@junk",
    "@slow @late",
    "@tool @slow",
    "@stray-mid @fine",
    "@stray-after",
];

/// An editor with its sessions. A reconnect keeps them.
pub(super) struct Editor {
    machine: Arc<Machine>,
    engine_host: Arc<EngineHost>,
    dice: StdRng,
    sessions: Vec<Option<String>>,
    next: u64,
    /// The decision on permission questions; `None` leaves them unanswered.
    allow: Option<bool>,
    finishing: bool,
    away: Duration,
    open: BTreeMap<u64, PendingRequest>,
    answers: BTreeMap<u64, Value>,
    /// Answers to the prompts of this connection, by mark.
    answered: BTreeMap<usize, Value>,
    /// Calls shown on this connection that have not ended: session id and call id.
    calls: BTreeSet<(String, String)>,
    pending: Vec<Value>,
    /// A line that is not JSON. It is a violation unless it is the last one: a killed process may have written half a
    /// line.
    half: Option<String>,
}

/// A request without an answer yet.
enum PendingRequest {
    Prompt { session: usize, mark: usize },
    Load { session: String },
    Other,
}

/// A connection to a bridge.
struct BridgeConnection {
    writer: WriteHalf<DuplexStream>,
    reader: Lines<BufReader<ReadHalf<DuplexStream>>>,
}

/// The connection was closed.
struct ConnectionLost;

impl Editor {
    pub(super) fn new(
        script: &Script,
        machine: Arc<Machine>,
        engine_host: Arc<EngineHost>,
    ) -> Self {
        Self {
            machine,
            engine_host,
            dice: chance(script.seed, "editor"),
            sessions: vec![None; script.sessions],
            next: 1,
            allow: Some(true),
            finishing: false,
            away: Duration::ZERO,
            open: BTreeMap::new(),
            answers: BTreeMap::new(),
            answered: BTreeMap::new(),
            calls: BTreeSet::new(),
            pending: Vec::new(),
            half: None,
        }
    }

    /// Runs until it has received `Finish` and every answer.
    pub(super) async fn live(mut self, mut orders: mpsc::UnboundedReceiver<EditorAction>) {
        loop {
            if let Ok(mut line) = self.connect().await
                && self.converse(&mut line, &mut orders).await.is_ok()
            {
                return;
            }
            // Requests on a closed connection get no answer.
            self.open.clear();
            self.answers.clear();
            self.answered.clear();
            self.calls.clear();
            self.pending.clear();
            self.half = None;
            let away = std::mem::take(&mut self.away).max(Duration::from_millis(60));
            tokio::time::sleep(away).await;
        }
    }

    async fn connect(&mut self) -> Result<BridgeConnection, ConnectionLost> {
        let (bridge, tasks) = self.engine_host.bridge().ok_or(ConnectionLost)?;
        let bytes = *pick(&mut self.dice, &[2_000, 64_000]);
        let (ours, theirs) = tokio::io::duplex(bytes);
        let (input, output) = tokio::io::split(theirs);
        tasks.spawn(Box::pin(async move { drop(bridge.serve(input, output).await) }));
        let (reader, writer) = tokio::io::split(ours);
        let mut line = BridgeConnection { writer, reader: BufReader::new(reader).lines() };
        let hello = json!({"protocolVersion": 1, "clientCapabilities": {}});
        self.ask(&mut line, "initialize", hello, PendingRequest::Other).await?;
        for index in 0..self.sessions.len() {
            self.take_up(&mut line, index).await?;
        }
        Ok(line)
    }

    /// Creates a session, or loads the existing one after a reconnect.
    async fn take_up(
        &mut self,
        line: &mut BridgeConnection,
        index: usize,
    ) -> Result<(), ConnectionLost> {
        let (cwd, servers) = ("/", json!([]));
        if let Some(id) = self.sessions[index].clone() {
            let params = json!({"sessionId": id, "cwd": cwd, "mcpServers": servers});
            let asked = PendingRequest::Load { session: id };
            let answer = self.ask(line, "session/load", params, asked).await?;
            return if answer.get("error").is_some() { Err(ConnectionLost) } else { Ok(()) };
        }
        let params = json!({"cwd": cwd, "mcpServers": servers});
        let answer = self.ask(line, "session/new", params, PendingRequest::Other).await?;
        let id = answer["result"]["sessionId"].as_str().ok_or(ConnectionLost)?;
        self.sessions[index] = Some(id.to_owned());
        Ok(())
    }

    async fn write(
        &mut self,
        line: &mut BridgeConnection,
        value: &Value,
    ) -> Result<(), ConnectionLost> {
        let text = format!("{value}\n");
        let mut rest = text.as_bytes();
        // Writes and reads at the same time: a bridge that waits for its output to be read would block the write.
        while !rest.is_empty() {
            tokio::select! {
                biased;
                wrote = line.writer.write(rest) => match wrote {
                    Ok(count @ 1..) => rest = &rest[count..],
                    _ => return Err(ConnectionLost),
                },
                came = line.reader.next_line() => {
                    let Ok(Some(text)) = came else { return Err(ConnectionLost) };
                    self.keep(&text);
                }
            }
        }
        Ok(())
    }

    async fn send(
        &mut self,
        line: &mut BridgeConnection,
        method: &str,
        params: Value,
        asked: PendingRequest,
    ) -> Result<u64, ConnectionLost> {
        let id = self.next;
        self.next += 1;
        self.open.insert(id, asked);
        let value = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.write(line, &value).await?;
        Ok(id)
    }

    /// Sends a request and reads until its answer arrives.
    async fn ask(
        &mut self,
        line: &mut BridgeConnection,
        method: &str,
        params: Value,
        asked: PendingRequest,
    ) -> Result<Value, ConnectionLost> {
        let id = self.send(line, method, params, asked).await?;
        loop {
            if let Some(answer) = self.answers.remove(&id) {
                return Ok(answer);
            }
            self.read(line).await?;
        }
    }

    async fn converse(
        &mut self,
        line: &mut BridgeConnection,
        orders: &mut mpsc::UnboundedReceiver<EditorAction>,
    ) -> Result<(), ConnectionLost> {
        loop {
            self.reply(line).await?;
            if self.finishing && self.open.is_empty() {
                return Ok(());
            }
            tokio::select! {
                biased;
                Some(order) = orders.recv() => self.perform(line, order).await?,
                came = line.reader.next_line() => {
                    let Ok(Some(text)) = came else { return Err(ConnectionLost) };
                    self.keep(&text);
                }
            }
        }
    }

    async fn perform(
        &mut self,
        line: &mut BridgeConnection,
        order: EditorAction,
    ) -> Result<(), ConnectionLost> {
        match order {
            EditorAction::Prompt { session, mark } => {
                let twist =
                    if self.engine_host.is_cli() { *pick(&mut self.dice, TWISTS) } else { "" };
                let text = format!("{} {twist}", message_text(mark));
                let id = self.sessions[session].clone().unwrap_or_default();
                let prompt = json!([{"type": "text", "text": text.trim()}]);
                let params = json!({"sessionId": id, "prompt": prompt});
                let asked = PendingRequest::Prompt { session, mark };
                self.send(line, "session/prompt", params, asked).await?;
            }
            EditorAction::Cancel { session } => {
                let id = self.sessions[session].clone().unwrap_or_default();
                self.notify(line, "session/cancel", json!({"sessionId": id})).await?;
            }
            EditorAction::Withdraw { mark } => {
                let own = |asked: &PendingRequest| matches!(asked, PendingRequest::Prompt { mark: of, .. } if *of == mark);
                let id = self.open.iter().find(|(_, asked)| own(asked)).map(|(id, _)| *id);
                if let Some(id) = id {
                    self.notify(line, "$/cancel_request", json!({"requestId": id})).await?;
                }
            }
            EditorAction::Decide { allow } => self.allow = Some(allow),
            EditorAction::Ponder => self.allow = None,
            EditorAction::Doze { for_ms } => {
                tokio::time::sleep(Duration::from_millis(for_ms)).await;
            }
            EditorAction::Cut { away_ms } => {
                self.away = Duration::from_millis(away_ms);
                return Err(ConnectionLost);
            }
            EditorAction::Finish => {
                self.finishing = true;
                self.allow = Some(true);
            }
        }
        Ok(())
    }

    async fn notify(
        &mut self,
        line: &mut BridgeConnection,
        method: &str,
        params: Value,
    ) -> Result<(), ConnectionLost> {
        let value = json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.write(line, &value).await
    }

    /// Answers the pending permission questions, if a decision is set.
    async fn reply(&mut self, line: &mut BridgeConnection) -> Result<(), ConnectionLost> {
        let Some(allow) = self.allow else { return Ok(()) };
        while let Some(question) = self.pending.pop() {
            let kind = if allow { "allow" } else { "reject" };
            let options = question["params"]["options"].as_array().cloned().unwrap_or_default();
            let fits = |option: &&Value| {
                option["kind"].as_str().is_some_and(|known| known.starts_with(kind))
            };
            let chosen = options.iter().find(fits).map_or(Value::Null, |it| it["optionId"].clone());
            // Sometimes the answer is an option that was not offered.
            let chosen = if self.dice.random_bool(0.03) { json!("nonsense") } else { chosen };
            let result = json!({"outcome": {"outcome": "selected", "optionId": chosen}});
            let value = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
            self.write(line, &value).await?;
        }
        Ok(())
    }

    async fn read(&mut self, line: &mut BridgeConnection) -> Result<(), ConnectionLost> {
        let Ok(Some(text)) = line.reader.next_line().await else { return Err(ConnectionLost) };
        self.keep(&text);
        self.reply(line).await
    }

    fn law(&self, holds: bool, promise: &'static str, seen: &Value) {
        self.machine
            .violations
            .expect(holds, promise, || format!("{}: {seen}", self.engine_host.name()));
    }

    /// Handles a line from the bridge.
    fn keep(&mut self, text: &str) {
        let whole = self.half.take();
        self.law(whole.is_none(), "an editor is told JSON and nothing else", &json!(whole));
        let Ok(value) = serde_json::from_str::<Value>(text) else {
            self.half = Some(text.to_owned());
            return;
        };
        match (value["method"].as_str(), value["id"].as_u64()) {
            (Some("session/update"), _) => self.take_update(&value),
            (Some("session/request_permission"), _) => self.pending.push(value),
            (None, Some(id)) => self.take_answer(id, value),
            _ => {}
        }
    }

    fn take_answer(&mut self, id: u64, value: Value) {
        let asked = self.open.remove(&id);
        self.law(asked.is_some(), "a request of an editor has one answer", &value);
        if let Some(PendingRequest::Prompt { session, mark }) = asked {
            // With a journal fault it is unknown whether the message was accepted, so its answer settles nothing.
            let unknown = value["error"]["data"]["kind"].as_str();
            let is_unknown =
                |kind: &str| kind.starts_with("journal_") || kind == "request_timed_out";
            if !unknown.is_some_and(is_unknown) {
                self.answered.insert(mark, value.clone());
            }
            let session = self.sessions[session].clone().unwrap_or_default();
            // A refused or withdrawn prompt may be answered while another turn runs.
            let ran = value["error"].is_null() && value["result"]["_meta"]["turn"] != 0;
            let open = ran && self.calls.iter().any(|(of, _)| *of == session);
            self.law(!open, "a call that was shown has its end before the answer", &value);
        }
        self.answers.insert(id, value);
    }

    fn take_update(&mut self, value: &Value) {
        let (params, update) = (&value["params"], &value["params"]["update"]);
        let session = params["sessionId"].as_str().unwrap_or_default();
        let loads = |asked: &PendingRequest| matches!(asked, PendingRequest::Load { session: of } if of == session);
        if self.open.values().any(loads) {
            return;
        }
        match update["sessionUpdate"].as_str() {
            Some("agent_message_chunk") => {
                let text = update["content"]["text"].as_str().unwrap_or_default();
                self.belongs(session, read_mark(text), value);
            }
            Some("tool_call" | "tool_call_update") => {
                let id = update["toolCallId"].as_str().unwrap_or_default().to_owned();
                let argument = update["rawInput"]["id"].as_str();
                let mark = argument.and_then(|id| id.split('/').next()?.parse().ok());
                self.belongs(session, mark, value);
                match update["status"].as_str() {
                    Some("completed" | "failed") => {
                        self.calls.remove(&(session.to_owned(), id));
                    }
                    _ => drop(self.calls.insert((session.to_owned(), id))),
                }
            }
            _ => {}
        }
    }

    /// Checks that output with the mark of a prompt comes before that prompt's answer and in the order of prompts.
    fn belongs(&self, session: &str, mark: Option<usize>, value: &Value) {
        let Some(mark) = mark else { return };
        let answer = self.answered.get(&mark);
        let seen = json!([answer, value]);
        self.law(answer.is_none(), "nothing of a prompt comes after its answer", &seen);
        let mut due = self.open.values().filter_map(|asked| match asked {
            PendingRequest::Prompt { session: at, mark } => {
                (self.sessions[*at].as_deref() == Some(session)).then_some(*mark)
            }
            _ => None,
        });
        let oldest = due.next();
        let early = oldest != Some(mark) && due.any(|other| other == mark);
        self.law(!early, "prompts are answered in the order they came", value);
    }
}

/// The number in the mark of a text: 7 for `«7»`.
fn read_mark(text: &str) -> Option<usize> {
    text.split_once('«')?.1.split_once('»')?.0.split('.').next()?.parse().ok()
}
