//! An editor as a program: starts the real agent, writes lines, reads lines.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Lines, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

pub(crate) fn budao(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_budao"));
    command
        .current_dir(directory)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("XDG_STATE_HOME", directory.join("state"))
        .env("BUDAO_JOURNAL", directory.join("journal.db"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

/// An editor that has started the agent.
pub(crate) struct Editor {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    next: u64,
    pub(crate) updates: Vec<Value>,
    /// The permission questions it was asked.
    pub(crate) questions: Vec<Value>,
    /// Documents that are open, by path, with their unsaved text. What the agent writes is saved.
    pub(crate) documents: BTreeMap<String, String>,
    /// The file requests it was sent: method and path.
    pub(crate) file_requests: Vec<(String, String)>,
}

impl Editor {
    pub(crate) fn start(directory: &Path, args: &[&str]) -> Self {
        let mut command = budao(directory);
        command.arg("acp").args(args);
        Self::start_as(command)
    }

    pub(crate) fn start_as(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut editor = Self {
            child,
            stdin,
            lines,
            next: 1,
            updates: Vec::new(),
            questions: Vec::new(),
            documents: BTreeMap::new(),
            file_requests: Vec::new(),
        };
        editor.ask("initialize", json!({"protocolVersion": 1}));
        editor
    }

    /// Introduces itself again, as an editor that reads and writes files.
    pub(crate) fn offer_files(&mut self) {
        let fs = json!({"readTextFile": true, "writeTextFile": true});
        let params = json!({"protocolVersion": 1, "clientCapabilities": {"fs": fs}});
        self.ask("initialize", params);
    }

    /// Answers a request for a file from the open documents, or from the disk.
    fn serve_file(&mut self, value: &Value) {
        let (method, params) = (value["method"].as_str().unwrap(), &value["params"]);
        let path = params["path"].as_str().unwrap().to_owned();
        self.file_requests.push((method.to_owned(), path.clone()));
        let result = if method == "fs/write_text_file" {
            let text = params["content"].as_str().unwrap();
            std::fs::write(&path, text).unwrap();
            self.documents.insert(path, text.to_owned());
            json!({})
        } else {
            let saved = || std::fs::read_to_string(&path).unwrap();
            json!({"content": self.documents.get(&path).cloned().unwrap_or_else(saved)})
        };
        self.write(&json!({"jsonrpc": "2.0", "id": value["id"], "result": result}));
    }

    pub(crate) fn raw(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn write(&mut self, value: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{value}").unwrap();
    }

    #[expect(clippy::needless_pass_by_value, reason = "parameters are written where they are sent")]
    pub(crate) fn send(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    pub(crate) fn read(&mut self) -> Value {
        let line = self.lines.next().unwrap().unwrap();
        let value: Value = serde_json::from_str(&line).expect("stdout carries protocol only");
        if value["method"] == "session/update" {
            self.updates.push(value["params"]["update"].clone());
        }
        if value["method"].as_str().is_some_and(|method| method.starts_with("fs/")) {
            self.serve_file(&value);
        }
        value
    }

    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    pub(crate) fn answer(&mut self, id: u64) -> Value {
        loop {
            let value = self.read();
            if value["id"] == id && value.get("method").is_none() {
                return value;
            }
            if value["method"] == "session/request_permission" {
                let result = json!({"outcome": {"outcome": "selected", "optionId": "allow"}});
                self.write(&json!({"jsonrpc": "2.0", "id": value["id"], "result": result}));
                self.questions.push(value["params"].clone());
            }
        }
    }

    pub(crate) fn new_session(&mut self, directory: &Path) -> String {
        let opened = self.ask("session/new", json!({"cwd": directory, "mcpServers": []}));
        opened["result"]["sessionId"].as_str().unwrap().to_owned()
    }

    pub(crate) fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.send("session/prompt", json!({"sessionId": session, "prompt": prompt}))
    }

    /// Sends a prompt and waits for its end: the stop reason or the code of the error, and the words shown.
    pub(crate) fn run(&mut self, session: &str, text: &str) -> (String, String) {
        let before = self.updates.len();
        let id = self.prompt(session, text);
        let answer = self.answer(id);
        (stop(&answer), answer_text(&self.updates[before..]))
    }

    /// Reads on until an update of this sort came.
    pub(crate) fn until(&mut self, kind: &str) {
        while self.read()["params"]["update"]["sessionUpdate"] != kind {}
    }

    pub(crate) fn notify(&mut self, method: &str, params: &Value) {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Hangs up, and waits until the agent has ended.
    pub(crate) fn hang_up(mut self) {
        let began = Instant::now();
        drop(self.stdin.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
        // `budao-acp` proves on virtual time that it takes at most a second.
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
}

/// How a prompt was answered.
pub(crate) fn stop(answer: &Value) -> String {
    match answer["result"]["stopReason"].as_str() {
        Some(reason) => reason.to_owned(),
        None => answer["error"]["code"].to_string(),
    }
}

/// The words among updates.
pub(crate) fn answer_text(updates: &[Value]) -> String {
    let chunks = updates.iter().filter(|it| it["sessionUpdate"] == "agent_message_chunk");
    chunks.filter_map(|chunk| chunk["content"]["text"].as_str()).collect()
}

/// Is there a process with this on its command line?
pub(crate) fn running(marker: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .any(|line| line.split(|byte| *byte == 0).any(|word| word == marker.as_bytes()))
}
