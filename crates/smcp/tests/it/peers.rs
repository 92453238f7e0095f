//! Agents, computers and hubs of others, as processes: the Python package and the Rust crates.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::oneshot,
};

use crate::common::{fetched, fetched_for_full, within};

/// Seconds a call of the Rust agent may take; its crate takes them for all calls.
pub(crate) const RUST_TIMEOUT: u64 = 8;

/// Whose program it is.
#[derive(Clone, Debug)]
pub(crate) enum Kit {
    /// The Python package, in this environment.
    Python(PathBuf),
    /// The Rust crates, as this program. The tools behind their computer are Python's.
    Rust(PathBuf, PathBuf),
}

impl Kit {
    pub(crate) fn python() -> Option<Self> {
        fetched("a2c-smcp").map(Self::Python)
    }

    /// It takes long to build, so only `cargo xtask test --full` insists on it.
    pub(crate) fn rust() -> Option<Self> {
        let program = fetched_for_full("smcp-rust")?.join("target/release/smcp-rust");
        Some(Self::Rust(program, fetched("a2c-smcp")?))
    }

    fn agent(&self, url: &str) -> Command {
        match self {
            Self::Python(python) => {
                let mut command = Command::new(python.join("bin/python"));
                command.arg(script("agent.py")).args([url, "a", "bot"]);
                command
            }
            Self::Rust(program, _) => {
                let mut command = Command::new(program);
                command.args(["agent", url, "a", "bot", &RUST_TIMEOUT.to_string()]);
                command
            }
        }
    }

    fn computer(&self, url: &str, name: &str) -> Command {
        match self {
            Self::Python(python) => {
                let mut command = Command::new(python.join("bin/python"));
                command.arg(script("computer.py")).args([url, "a", name]).arg(script("tools.py"));
                command
            }
            Self::Rust(program, python) => {
                let mut command = Command::new(program);
                command.args(["computer", url, "a", name]);
                command.arg(python.join("bin/python")).arg(script("tools.py"));
                command
            }
        }
    }

    /// A hub, and where it is. It lives as long as what is returned.
    pub(crate) async fn hub(&self) -> (Child, String) {
        let mut command = match self {
            Self::Python(python) => {
                let mut command = Command::new(python.join("bin/python"));
                command.arg(script("hub.py"));
                command
            }
            Self::Rust(program, _) => {
                let mut command = Command::new(program);
                command.arg("hub");
                command
            }
        };
        let mut hub = spawn(&mut command);
        let mut lines = BufReader::new(hub.stdout.take().unwrap()).lines();
        // It says other things, too.
        let port = within(async {
            loop {
                let line = lines.next_line().await.unwrap().expect("it says where it listens");
                if let Some(port) = line.strip_prefix("listening ") {
                    return port.trim().to_owned();
                }
            }
        })
        .await;
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        (hub, format!("http://127.0.0.1:{port}"))
    }
}

pub(crate) fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(name)
}

fn spawn(command: &mut Command) -> Child {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // A killed computer's own children would hold it open.
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// A computer of others.
pub(crate) struct Computer {
    pub(crate) child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Computer {
    pub(crate) async fn start(kit: &Kit, url: &str, name: &str) -> Self {
        let mut child = spawn(&mut kit.computer(url, name));
        let stdin = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut computer = Self { child, stdin, lines };
        computer.says("joined").await;
        computer
    }

    pub(crate) async fn says(&mut self, word: &str) {
        within(async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if line.trim() == word {
                    return;
                }
            }
            panic!("it ended without saying `{word}`");
        })
        .await;
    }

    pub(crate) async fn send(&mut self, word: &str) {
        self.stdin.write_all(format!("{word}\n").as_bytes()).await.unwrap();
    }
}

type PendingCalls = Arc<Mutex<BTreeMap<u64, oneshot::Sender<Value>>>>;

/// An agent of others.
pub(crate) struct Agent {
    _child: Child,
    stdin: ChildStdin,
    waiting: PendingCalls,
    next: u64,
}

impl Agent {
    pub(crate) async fn start(kit: &Kit, url: &str) -> Self {
        let mut child = spawn(&mut kit.agent(url));
        let stdin = child.stdin.take().unwrap();
        let waiting = PendingCalls::default();
        let (sender, joined) = oneshot::channel();
        waiting.lock().unwrap().insert(0, sender);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let received = waiting.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let Ok(value) = serde_json::from_str::<Value>(&line) else { continue };
                let id = value["id"].as_u64().unwrap();
                if let Some(sender) = received.lock().unwrap().remove(&id) {
                    let _ = sender.send(value);
                }
            }
        });
        within(joined).await.unwrap();
        Self { _child: child, stdin, waiting, next: 0 }
    }

    pub(crate) async fn begin(&mut self, mut command: Value) -> oneshot::Receiver<Value> {
        self.next += 1;
        command["id"] = self.next.into();
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().unwrap().insert(self.next, sender);
        self.stdin.write_all(format!("{command}\n").as_bytes()).await.unwrap();
        receiver
    }

    pub(crate) async fn ask(&mut self, command: Value) -> Value {
        let answer = within(self.begin(command).await).await.unwrap();
        assert!(answer.get("error").is_none(), "{answer}");
        answer["ok"].clone()
    }

    /// What a call came to; `Err` is what the library raised.
    pub(crate) async fn tried(
        &mut self,
        tool: &str,
        params: Value,
        timeout: u64,
    ) -> Result<Value, String> {
        let call = json!({ "do": "call", "computer": "pc", "tool": tool, "params": params, "timeout": timeout });
        let answer = within(self.begin(call).await).await.unwrap();
        match answer.get("error") {
            Some(error) => Err(error.to_string()),
            None => Ok(answer["ok"].clone()),
        }
    }

    pub(crate) async fn call(&mut self, tool: &str, params: Value, timeout: u64) -> Value {
        self.tried(tool, params, timeout).await.unwrap()
    }
}
