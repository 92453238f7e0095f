//! Real `budao serve` processes on one journal, a model service that the test controls, and clients of any server.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::LazyLock,
    time::Duration,
};

use budao_testkit::{
    postgres::PostgresServer,
    provider::Reply,
    sse::{self, ModelOutput},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const TOKEN: &str = "a-token-for-the-test";
/// The first pause of servers before they try a request again.
pub(crate) const RETRY_BASE: Duration = Duration::from_millis(50);
/// Nothing here takes this long unless it hangs.
const TEST_TIMEOUT: Duration = Duration::from_secs(90);

/// The journal that all servers of a test share.
pub(crate) struct SharedJournal {
    pub(crate) url: String,
    pub(crate) home: TempDir,
    /// Held, so that it runs as long as the test.
    _postgres: Option<PostgresServer>,
}

impl SharedJournal {
    pub(crate) fn file() -> Self {
        let home = tempfile::tempdir().unwrap();
        let url = home.path().join("journal.db").display().to_string();
        Self { url, home, _postgres: None }
    }

    /// None if PostgreSQL is not installed.
    pub(crate) fn postgres() -> Option<Self> {
        let server = PostgresServer::start()?;
        let url = server.url("budao");
        Some(Self { url, home: tempfile::tempdir().unwrap(), _postgres: Some(server) })
    }
}

/// Where a server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    /// On this machine, where servers see each other's processes.
    Shared,
    /// In a process namespace of its own, as on a machine of its own: others know of its death by its silence alone. On
    /// this machine if namespaces are not allowed here.
    Own,
    /// The same, and clients reach it at this address of a network.
    At(SocketAddr),
}

/// The arguments of `unshare` for a process namespace that ends with its first process.
const NAMESPACE: [&str; 6] =
    ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child=KILL"];

static CAN_UNSHARE: LazyLock<bool> = LazyLock::new(|| {
    let tried = Command::new("unshare").args(NAMESPACE).arg("true").output();
    let can = tried.is_ok_and(|tried| tried.status.success());
    if !can {
        println!("NOT TESTED: no process namespaces here; servers see each other's processes");
    }
    can
});

/// A running server. Dropping it kills it, as `kill -9` does.
pub(crate) struct Server {
    child: Child,
    /// The child made a process namespace, and the server is its child.
    is_in_namespace: bool,
    pub(crate) url: String,
    /// What the server printed: its address, with the token if it made one.
    pub(crate) line: String,
}

impl Server {
    pub(crate) fn start(journal: &SharedJournal, model: &str) -> Self {
        Self::start_with(journal, model, &["--token", TOKEN], &[])
    }

    pub(crate) fn start_with(
        journal: &SharedJournal,
        model: &str,
        args: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        Self::start_at(journal.home.path(), &journal.url, model, args, variables)
    }

    pub(crate) fn start_at(
        home: &Path,
        journal: &str,
        model: &str,
        args: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        Self::start_on(Machine::Shared, home, journal, model, args, variables)
    }

    pub(crate) fn start_on(
        machine: Machine,
        home: &Path,
        journal: &str,
        model: &str,
        args: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let program = env!("CARGO_BIN_EXE_budao");
        let is_in_namespace = machine != Machine::Shared && *CAN_UNSHARE;
        let mut command = Command::new(if is_in_namespace { "/usr/bin/unshare" } else { program });
        if is_in_namespace {
            command.args(NAMESPACE).arg(program);
        }
        let listen = match machine {
            Machine::At(address) => address.to_string(),
            Machine::Shared | Machine::Own => "127.0.0.1:0".to_owned(),
        };
        let mut child = command
            .args(["serve", "--listen", &listen, "--model", model])
            .args(args)
            .current_dir(home)
            .env_clear()
            .env("BUDAO_JOURNAL", journal)
            .env("BUDAO__LIMITS__RETRY__BASE", RETRY_BASE.as_millis().to_string())
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().split('#').next().unwrap().trim_end_matches('/').to_owned();
        assert!(url.starts_with("http"), "the server did not start: {line}");
        Self { child, is_in_namespace, url, line }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.url.strip_prefix("http://").unwrap().parse().unwrap()
    }

    /// The process of the server itself, which is a child of the one that made its namespace.
    fn pid(&self) -> Option<Pid> {
        let id = self.child.id();
        let pid = match self.is_in_namespace {
            false => i32::try_from(id).ok()?,
            true => {
                let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
                children.ok()?.split_whitespace().next()?.parse().ok()?
            }
        };
        Pid::from_raw(pid)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid().unwrap(), signal).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
    }

    /// Waits for the end of a server that was told to stop.
    pub(crate) fn wait(&mut self) {
        self.child.wait().unwrap();
    }

    pub(crate) async fn try_post(&self, path: &str, body: Value) -> Result<Value, String> {
        let sent = client().post(format!("{}{path}", self.url)).bearer_auth(TOKEN).json(&body);
        let response = sent.send().await.map_err(|error| error.to_string())?;
        let status = response.status();
        let text = response.text().await.map_err(|error| error.to_string())?;
        match status.is_success() {
            true => serde_json::from_str(&text).map_err(|error| error.to_string()),
            false => Err(format!("{status}: {text}")),
        }
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        self.try_post(path, body).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub(crate) async fn get(&self, path: &str) -> String {
        let sent = client().get(format!("{}{path}", self.url)).bearer_auth(TOKEN);
        sent.send().await.unwrap().text().await.unwrap()
    }

    pub(crate) async fn open(&self) -> String {
        let opened = self.post("/v1/sessions", json!({})).await;
        opened["session_id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn say(&self, session: &str, text: &str) {
        self.post(&format!("/v1/sessions/{session}/messages"), json!({ "content": text })).await;
    }

    /// Opens a session and sends it one message.
    pub(crate) async fn ask(&self) -> String {
        let session = self.open().await;
        self.say(&session, "go").await;
        session
    }

    pub(crate) async fn state(&self, session: &str) -> String {
        let text = self.get(&format!("/v1/sessions/{session}")).await;
        let found: Value = serde_json::from_str(&text).unwrap();
        found["status"].as_str().unwrap_or_else(|| panic!("{text}")).to_owned()
    }

    /// The event stream of a session from its beginning.
    pub(crate) async fn events(&self, session: &str) -> Events {
        let url = format!("{}/v1/sessions/{session}/events?after=0", self.url);
        let response = client().get(url).bearer_auth(TOKEN).send().await.unwrap();
        assert!(response.status().is_success(), "{}", response.status());
        Events { response, text: String::new() }
    }

    /// The answers of a session's runs, as a client of this server sees them, until there are `count`.
    pub(crate) async fn answers(&self, session: &str, count: usize) -> Vec<String> {
        let mut events = self.events(session).await;
        let mut answers = Vec::new();
        while answers.len() < count {
            let frame = bounded("an answer", events.next()).await;
            match frame["event"].as_str().unwrap_or_default() {
                "agent.final_answer" => {
                    answers.push(frame["content"].as_str().unwrap_or_default().to_owned());
                }
                name @ ("agent.error" | "agent.interrupted") => answers.push(name.to_owned()),
                _ => {}
            }
        }
        answers
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The events of a session, one by one.
pub(crate) struct Events {
    response: reqwest::Response,
    text: String,
}

impl Events {
    pub(crate) async fn next(&mut self) -> Value {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let frame = event.lines().find_map(|line| line.strip_prefix("data: "));
                let frame = frame.map(|frame| serde_json::from_str::<Value>(frame).unwrap());
                self.text = rest.to_owned();
                match frame {
                    Some(frame) => return frame,
                    None => continue,
                }
            }
            let bytes = self.response.chunk().await.unwrap().expect("the stream goes on");
            self.text.push_str(&String::from_utf8_lossy(&bytes));
        }
    }
}

/// Waits, but not for ever.
pub(crate) async fn bounded<T>(what: &str, wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, wait).await.unwrap_or_else(|_| panic!("never: {what}"))
}

/// Polls until it holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let polling = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    bounded(what, polling).await;
}

pub(crate) fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

pub(crate) fn answer() -> Reply {
    Reply::events(sse::openai(&[ModelOutput::text("done")]))
}
