//! A scripted editor: writes lines, reads lines, remembers all of them in order.

use std::{collections::BTreeMap, time::Duration};

use budao_acp::{Bridge, InitializeContext};
use budao_core::Fault;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf},
    task::JoinHandle,
};

use crate::check::{self, AgentKind};

/// Who sent a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Party {
    Editor,
    Agent,
}

/// One line of the conversation.
#[derive(Clone, Debug)]
pub(crate) struct TranscriptLine {
    pub(crate) from: Party,
    pub(crate) value: Value,
}

/// What the editor's user says to permission questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UserBehaviour {
    /// Chooses this option.
    Option(&'static str),
    /// Says nothing.
    Silent,
}

pub(crate) struct Editor {
    writer: WriteHalf<DuplexStream>,
    reader: Lines<BufReader<ReadHalf<DuplexStream>>>,
    pub(crate) transcript: Vec<TranscriptLine>,
    answers: BTreeMap<u64, Value>,
    next: u64,
    pub(crate) behaviour: UserBehaviour,
    /// What the user fills into every form; `None` if the editor cannot show one.
    pub(crate) form: Option<Value>,
    /// Who answers.
    pub(crate) agent_kind: AgentKind,
    /// Permission questions without an answer.
    pub(crate) questions: Vec<Value>,
    pub(crate) serving: JoinHandle<Result<(), Fault>>,
}

impl Editor {
    /// Connects and does nothing yet.
    pub(crate) fn connect(bridge: Bridge) -> Self {
        Self::connect_with(bridge, 1024 * 1024)
    }

    /// Connects over a line that holds so many bytes.
    pub(crate) fn connect_with(bridge: Bridge, bytes: usize) -> Self {
        Self::connect_while(bridge.initialize_context(), async { Ok(bridge) }, bytes)
    }

    /// Connects while the bridge is still being opened.
    pub(crate) fn connect_while(
        initialize_context: InitializeContext,
        opening: impl Future<Output = Result<Bridge, Fault>> + Send + 'static,
        bytes: usize,
    ) -> Self {
        let (ours, theirs) = tokio::io::duplex(bytes);
        let (input, output) = tokio::io::split(theirs);
        let serving = tokio::spawn(initialize_context.serve(opening, input, output));
        let (reader, writer) = tokio::io::split(ours);
        Self {
            writer,
            reader: BufReader::new(reader).lines(),
            transcript: Vec::new(),
            answers: BTreeMap::new(),
            next: 1,
            behaviour: UserBehaviour::Option("allow"),
            form: None,
            agent_kind: AgentKind::Obedient,
            questions: Vec::new(),
            serving,
        }
    }

    /// Connects, introduces itself, and opens a session.
    pub(crate) async fn open(bridge: Bridge) -> (Self, String) {
        let mut editor = Self::connect(bridge);
        editor.initialize().await;
        let session = editor.new_session().await;
        (editor, session)
    }

    pub(crate) async fn initialize(&mut self) -> Value {
        self.initialize_with(json!({})).await
    }

    /// Introduces itself as an editor with these capabilities.
    pub(crate) async fn initialize_with(&mut self, capabilities: Value) -> Value {
        let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
        self.ask("initialize", params).await
    }

    pub(crate) async fn new_session(&mut self) -> String {
        let opened = self.ask("session/new", json!({"cwd": "/tmp", "mcpServers": []})).await;
        opened["result"]["sessionId"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn raw(&mut self, line: &str) {
        self.writer.write_all(line.as_bytes()).await.unwrap();
        self.writer.write_all(b"\n").await.unwrap();
    }

    async fn write(&mut self, value: Value) {
        self.raw(&value.to_string()).await;
        self.transcript.push(TranscriptLine { from: Party::Editor, value });
    }

    /// Sends a request; its id.
    pub(crate) async fn send(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.write(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        id
    }

    pub(crate) async fn notify(&mut self, method: &str, params: Value) {
        self.write(json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        self.answer(id).await
    }

    pub(crate) async fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.send("session/prompt", json!({"sessionId": session, "prompt": prompt})).await
    }

    pub(crate) async fn cancel(&mut self, session: &str) {
        self.notify("session/cancel", json!({"sessionId": session})).await;
    }

    /// Reads on until a request is answered.
    pub(crate) async fn answer(&mut self, id: u64) -> Value {
        loop {
            if let Some(answer) = self.answers.get(&id) {
                return answer.clone();
            }
            assert!(self.read().await, "the agent is gone before it answered {id}");
        }
    }

    /// The stop reason, or the code of the error.
    pub(crate) async fn stop(&mut self, id: u64) -> String {
        let answer = self.answer(id).await;
        match answer["result"]["stopReason"].as_str() {
            Some(reason) => reason.to_owned(),
            None => answer["error"]["code"].to_string(),
        }
    }

    /// Reads on until something was sent that looks so.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            assert!(self.read().await, "the agent is gone before that came");
            let last =
                &self.transcript.iter().rfind(|line| line.from == Party::Agent).unwrap().value;
            if wanted(last) {
                return last.clone();
            }
        }
    }

    /// Reads what there is for so long.
    pub(crate) async fn read_for(&mut self, wait: Duration) {
        let until = tokio::time::Instant::now() + wait;
        while tokio::time::timeout_at(until, self.read()).await.unwrap_or(false) {}
    }

    /// Reads a line. Is there one?
    async fn read(&mut self) -> bool {
        let Some(line) = self.reader.next_line().await.unwrap() else { return false };
        let value: Value = serde_json::from_str(&line).expect("stdout carries protocol only");
        self.transcript.push(TranscriptLine { from: Party::Agent, value: value.clone() });
        if value["method"] == "session/request_permission" {
            match self.behaviour.clone() {
                UserBehaviour::Option(option) => self.choose(&value, option).await,
                UserBehaviour::Silent => self.questions.push(value),
            }
        } else if value["method"] == "elicitation/create" {
            let answer = match self.form.clone() {
                Some(result) => json!({"jsonrpc": "2.0", "id": value["id"], "result": result}),
                None => json!({"jsonrpc": "2.0", "id": value["id"],
                    "error": {"code": -32601, "message": "no forms"}}),
            };
            self.write(answer).await;
        } else if let Some(id) = value["id"].as_u64().filter(|_| value.get("method").is_none()) {
            self.answers.insert(id, value);
        }
        true
    }

    /// Answers a permission question.
    pub(crate) async fn choose(&mut self, question: &Value, option: &str) {
        let result = json!({"outcome": {"outcome": "selected", "optionId": option}});
        self.write(json!({"jsonrpc": "2.0", "id": question["id"], "result": result})).await;
    }

    /// Everything the agent told of that kind.
    pub(crate) fn updates(&self, kind: &str) -> Vec<Value> {
        let updates = self.transcript.iter().filter_map(|line| {
            let update = &line.value["params"]["update"];
            (line.from == Party::Agent && update["sessionUpdate"] == kind).then(|| update.clone())
        });
        updates.collect()
    }

    /// All text the agent showed as its answer.
    pub(crate) fn text(&self) -> String {
        let chunks = self.updates("agent_message_chunk");
        chunks.iter().filter_map(|chunk| chunk["content"]["text"].as_str()).collect()
    }

    /// Is gone from one moment to the next, and waits until the agent is too.
    pub(crate) async fn vanish(self) {
        let Self { writer, reader, serving, .. } = self;
        drop((writer, reader));
        serving.await.unwrap().ok();
    }

    /// Hangs up, waits until the agent is gone, and looks at the whole conversation.
    pub(crate) async fn hang_up(mut self) -> Vec<TranscriptLine> {
        self.writer.shutdown().await.unwrap();
        while self.read().await {}
        self.serving.await.unwrap().unwrap();
        check::transcript(&self.transcript, self.agent_kind).unwrap();
        self.transcript
    }
}
