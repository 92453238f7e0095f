//! Tools of workers on the real binary: workers and servers are killed in the middle of calls, and a ledger on disk says
//! what was done.
//!
//! The worker is a process of its own: this test program, started again with an address in its environment.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use budao_client::{Client, Worker, WorkerTool};
use budao_core::retry::RetryPolicy;
use budao_testkit::{
    port,
    provider::{Provider, ReceivedRequest, Reply},
    sse::{self, ModelOutput},
};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::cluster::fixture::SharedJournal;

const TOKEN: &str = "a-token-for-the-test";
/// Nothing here takes this long unless it hangs.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Polls until it holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let polling = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(TEST_TIMEOUT, polling).await.is_ok(), "never: {what}");
}

/// A child process. Dropping it kills it, as `kill -9` does.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory with a journal, a ledger and a free port.
struct Stage {
    directory: tempfile::TempDir,
    journal: String,
    port: u16,
    provider: Provider,
    grace_ms: &'static str,
}

impl Stage {
    async fn new() -> Self {
        let port = port::free();
        let provider = Provider::answering(model).await;
        let directory = tempfile::tempdir().unwrap();
        let journal = directory.path().join("journal.db").display().to_string();
        Self { directory, journal, port, provider, grace_ms: "5000" }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn server(&self) -> Process {
        self.server_on(self.port)
    }

    fn server_on(&self, port: u16) -> Process {
        let listen = format!("127.0.0.1:{port}");
        let model = format!("openai:one@{}/v1", self.provider.url());
        let mut child = Command::new(env!("CARGO_BIN_EXE_budao"))
            .args(["serve", "--listen", &listen, "--token", TOKEN, "--model", &model])
            .args(["--permission", "auto"])
            .current_dir(self.directory.path())
            .env_clear()
            .env("BUDAO_JOURNAL", &self.journal)
            .env("BUDAO__SERVE__WORKERS__GRACE", self.grace_ms)
            .env("BUDAO__LIMITS__RETRY__BASE", "50")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("http://"), "the server did not start: {line}");
        Process(child)
    }

    /// Starts a worker. Its calls end when the file `go` exists.
    fn worker(&self) -> Process {
        self.worker_of(self.port)
    }

    fn worker_of(&self, port: u16) -> Process {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "workers::the_worker_process", "--nocapture"])
            .env("WORKER_URL", format!("ws://127.0.0.1:{port}/ws"))
            .env("WORKER_DIRECTORY", self.directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Process(child)
    }

    /// Lines of the ledger: `begin KEY` or `end KEY`.
    fn ledger(&self, word: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path("ledger")).unwrap_or_default();
        text.lines()
            .filter_map(|line| line.strip_prefix(word))
            .map(|it| it.trim().to_owned())
            .collect()
    }

    async fn tools(&self) -> Value {
        let sent = http().get(format!("{}/v1/tools", self.url())).bearer_auth(TOKEN).send().await;
        match sent {
            Ok(response) => response.json().await.unwrap_or_default(),
            Err(_) => Value::Null,
        }
    }

    /// Waits until this many processes of the worker are connected.
    async fn connected(&self, count: usize) {
        let connected = |list: &Value| {
            let all = list["workers"].as_array().cloned().unwrap_or_default();
            all.iter().filter(|it| it["is_connected"] == true).count()
        };
        let polling = async {
            while connected(&self.tools().await) != count {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let done = tokio::time::timeout(TEST_TIMEOUT, polling).await;
        assert!(done.is_ok(), "{count} workers never connected");
    }

    /// Opens a session and asks for a tool.
    async fn ask(&self, tool: &str) -> String {
        let opened = self.post("/v1/sessions", json!({})).await;
        let session = opened["session_id"].as_str().unwrap().to_owned();
        self.post(&format!("/v1/sessions/{session}/messages"), json!({ "content": tool })).await;
        session
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let sent = http().post(format!("{}{path}", self.url())).bearer_auth(TOKEN).json(&body);
        let response = sent.send().await.unwrap();
        assert!(response.status().is_success(), "{path}: {}", response.status());
        response.json().await.unwrap()
    }

    /// The frames of a session, once its run has ended.
    async fn frames(&self, session: &str) -> Vec<Value> {
        let url = format!("{}/v1/sessions/{session}/frames", self.url());
        let polling = async {
            loop {
                let sent = http().get(&url).bearer_auth(TOKEN).send().await;
                let text = match sent {
                    Ok(response) => response.text().await.unwrap_or_default(),
                    Err(_) => String::new(),
                };
                let frames: Vec<Value> =
                    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
                if frames.iter().any(|it| it["event"] == "agent.final_answer") {
                    return frames;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let ended = tokio::time::timeout(TEST_TIMEOUT, polling).await;
        ended.unwrap_or_else(|_| panic!("session {session} never ended"))
    }
}

fn http() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// Calls the tool that the user names, then answers.
fn model(request: &ReceivedRequest) -> Reply {
    let messages = request.body["messages"].as_array().cloned().unwrap_or_default();
    let last = messages.last().cloned().unwrap_or_default();
    if last["role"] == "tool" {
        return Reply::events(sse::openai(&[ModelOutput::text("done")]));
    }
    let named = if last.to_string().contains("bill") { "bill" } else { "pay" };
    let call = ModelOutput::call("c1", named, &json!({ "invoice": 7 }));
    Reply::events(sse::openai(&[call]))
}

/// The program of the worker; does nothing unless it is started as one.
#[tokio::test]
async fn the_worker_process() {
    let (Ok(url), Ok(directory)) = (std::env::var("WORKER_URL"), std::env::var("WORKER_DIRECTORY"))
    else {
        return;
    };
    let directory = PathBuf::from(directory);
    let schema = json!({
        "type": "object", "properties": { "invoice": { "type": "integer" } }, "required": ["invoice"],
    });
    let function = |directory: PathBuf| {
        move |_: Value, call: budao_client::WorkerCall| {
            let directory = directory.clone();
            async move {
                write_line(&directory, "begin", &call.idempotency_key);
                let go = directory.join("go");
                until("the call may end", || go.exists()).await;
                write_line(&directory, "end", &call.idempotency_key);
                Ok(json!("paid"))
            }
        }
    };
    let pay = WorkerTool::new("pay", "Pays.", schema.clone(), function(directory.clone()));
    let bill = WorkerTool::new("bill", "Bills.", schema, function(directory));
    let retry = RetryPolicy {
        tries: 10_000,
        base: Duration::from_millis(50),
        max: Duration::from_millis(200),
        ..RetryPolicy::default()
    };
    let client = Client::new(url).token(TOKEN).retry(retry);
    let worker = Worker::new(client, "billing").tool(pay).tool(bill.with("idempotent", true));
    worker.run(CancellationToken::new()).await.unwrap();
}

fn write_line(directory: &Path, word: &str, key: &str) {
    let path = directory.join("ledger");
    let mut file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    file.write_all(format!("{word} {key}\n").as_bytes()).unwrap();
    file.sync_all().unwrap();
}

fn result_of(frames: &[Value]) -> &Value {
    let results: Vec<&Value> =
        frames.iter().filter(|it| it["event"] == "agent.tool_result").collect();
    assert_eq!(results.len(), 1, "each call has one result");
    results[0]
}

#[tokio::test]
async fn a_worker_killed_in_a_call_leaves_a_doubt_or_a_repetition_never_both() {
    let stage = Stage::new().await;
    let _server = stage.server();
    let worker = stage.worker();
    stage.connected(1).await;
    let (pay, bill) = (stage.ask("pay").await, stage.ask("bill").await);
    until("both calls began", || stage.ledger("begin").len() == 2).await;
    drop(worker);
    fs::write(stage.path("go"), "").unwrap();
    let _next = stage.worker();
    let frames = stage.frames(&pay).await;
    let result = result_of(&frames);
    assert_eq!(result["metadata"]["error_code"], "ERR_TOOL_022", "{result}");
    assert!(result["metadata"]["error"].to_string().contains("unknown"), "{result}");
    let frames = stage.frames(&bill).await;
    assert_eq!(result_of(&frames)["content"], "paid");
    let begun = stage.ledger("begin");
    let times = |session: &str| begun.iter().filter(|key| key.starts_with(session)).count();
    assert_eq!((times(&pay), times(&bill)), (1, 2), "only the idempotent call ran again");
}

#[tokio::test]
async fn a_server_killed_in_a_call_loses_neither_the_call_nor_its_result() {
    let stage = Stage { grace_ms: "60000", ..Stage::new().await };
    let server = stage.server();
    let _worker = stage.worker();
    stage.connected(1).await;
    let session = stage.ask("pay").await;
    until("the call began", || stage.ledger("begin").len() == 1).await;
    drop(server);
    // The function ends while there is no server to tell.
    fs::write(stage.path("go"), "").unwrap();
    until("the call ended", || stage.ledger("end").len() == 1).await;
    let _server = stage.server();
    let frames = stage.frames(&session).await;
    assert_eq!(result_of(&frames)["content"], "paid");
    assert_eq!((stage.ledger("begin").len(), stage.ledger("end").len()), (1, 1), "once");
}

/// Goal: any server takes any worker. Method: two servers share a journal; the worker connects to one, the person to the
/// other, and the server with the worker is killed in the middle of a second call.
#[tokio::test]
async fn a_worker_on_another_server_serves_the_call() {
    let stage = Stage { grace_ms: "60000", ..Stage::new().await };
    fs::write(stage.path("go"), "").unwrap();
    let _server = stage.server();
    let other = port::free();
    let far = stage.server_on(other);
    let _worker = stage.worker_of(other);
    // The tools of the tenant are a note in the journal that both servers read.
    let polling = async {
        while stage.tools().await["tools"].as_array().is_none_or(Vec::is_empty) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, polling).await.unwrap();
    let session = stage.ask("pay").await;
    let frames = stage.frames(&session).await;
    assert_eq!(result_of(&frames)["content"], "paid");
    assert_eq!(stage.ledger("begin").len(), 1);
    fs::remove_file(stage.path("go")).unwrap();
    let session = stage.ask("pay").await;
    until("the second call began", || stage.ledger("begin").len() == 2).await;
    drop(far);
    fs::write(stage.path("go"), "").unwrap();
    until("the second call ended", || stage.ledger("end").len() == 2).await;
    let _far = stage.server_on(other);
    let frames = stage.frames(&session).await;
    assert_eq!(result_of(&frames)["content"], "paid", "the result came by another process");
    assert_eq!(stage.ledger("begin").len(), 2, "nothing was done twice");
}

/// Goal: an open call outlives the server that has its session and its worker's connection. Method: two servers share a
/// journal; the first one is killed in the call and never comes back, and the worker reaches the other one.
async fn a_call_outlives_its_node(journal: SharedJournal) {
    let mut stage = Stage { grace_ms: "60000", journal: journal.url.clone(), ..Stage::new().await };
    let first = stage.server();
    let other = port::free();
    let _survivor = stage.server_on(other);
    let target = Arc::new(AtomicU16::new(stage.port));
    let _worker = stage.worker_of(forward_to(&target).await);
    stage.connected(1).await;
    let session = stage.ask("pay").await;
    until("the call began", || stage.ledger("begin").len() == 1).await;
    drop(first);
    target.store(other, Ordering::SeqCst);
    stage.port = other;
    fs::write(stage.path("go"), "").unwrap();
    until("the call ended", || stage.ledger("end").len() == 1).await;
    let frames = stage.frames(&session).await;
    assert_eq!(result_of(&frames)["content"], "paid");
    assert_eq!(stage.ledger("begin").len(), 1, "once");
}

#[tokio::test]
async fn an_open_call_survives_the_death_of_its_server_for_good() {
    a_call_outlives_its_node(SharedJournal::file()).await;
}

#[tokio::test]
async fn an_open_call_survives_the_death_of_its_server_on_postgres_for_good() {
    let Some(journal) = SharedJournal::postgres() else { return };
    a_call_outlives_its_node(journal).await;
}

/// Forwards connections to a server that may change. Returns its own port.
async fn forward_to(target: &Arc<AtomicU16>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, target) = (listener.local_addr().unwrap().port(), Arc::clone(target));
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let server = ("127.0.0.1", target.load(Ordering::SeqCst));
            tokio::spawn(async move {
                if let Ok(mut far) = TcpStream::connect(server).await {
                    // A connection that breaks ends both sides.
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                }
            });
        }
    });
    port
}

/// Goal: nothing is done twice, nothing is lost, one end per call, and doubt only where it is. Method: many sessions call
/// a tool that may not be repeated, and one that may, while workers and the server are killed in a fixed order.
#[tokio::test]
async fn kills_of_workers_and_server_keep_the_ledger_and_the_history_in_agreement() {
    let stage = Stage::new().await;
    fs::write(stage.path("go"), "").unwrap();
    let mut server = stage.server();
    let mut workers = vec![stage.worker(), stage.worker()];
    stage.connected(2).await;
    let mut sessions = BTreeMap::new();
    for round in 0..6 {
        for tool in ["pay", "bill", "pay", "bill"] {
            sessions.insert(stage.ask(tool).await, tool);
        }
        if round % 2 == 0 {
            drop(workers.remove(0));
            workers.push(stage.worker());
        } else {
            drop(server);
            server = stage.server();
        }
    }
    for (session, tool) in &sessions {
        let frames = stage.frames(session).await;
        let result = result_of(&frames);
        let count = |word: &str| {
            stage.ledger(word).iter().filter(|key| key.starts_with(session.as_str())).count()
        };
        let (begun, ended) = (count("begin"), count("end"));
        match result["metadata"]["status"] == "success" {
            true => assert!(ended >= 1, "{session} succeeded and was not done"),
            false => {
                let code = &result["metadata"]["error_code"];
                assert_eq!(code, "ERR_TOOL_022", "{tool}: {result}");
            }
        }
        if *tool == "pay" {
            assert!(begun <= 1 && ended <= 1, "{session} was done twice");
        }
    }
    drop(server);
}
