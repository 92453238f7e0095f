//! The relay on the real binary: front ends are cut and servers are killed in the middle of answers.
//!
//! Goal: no frame is lost or repeated, a killed answer is marked as cut and never asked again by itself, and the session
//! stays usable. Method: one client observes through a proxy that cuts it; at the end its frames are compared with the
//! whole history of the server. The agent is scripted, and a second time pydantic-ai, unmodified.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use budao_client::{Client, Decision, Event, Events, Session};
use budao_core::retry::RetryPolicy;
use budao_testkit::{
    port, program,
    provider::{Provider, ReceivedRequest, Reply},
    proxy::{Ending, Proxy},
    sse,
};
use serde_json::{Value, json};

const TOKEN: &str = "a-token-for-the-test";
/// Nothing here takes this long unless it hangs.
const HANG: Duration = Duration::from_secs(120);

/// A child process. Dropping it kills it, as `kill -9` does.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A journal, a port, and the address of the agent.
struct Stage {
    directory: tempfile::TempDir,
    address: SocketAddr,
    agent: String,
}

impl Stage {
    fn new(agent: String) -> Self {
        let address = (Ipv4Addr::LOCALHOST, port::free()).into();
        Self { directory: tempfile::tempdir().unwrap(), address, agent }
    }

    fn server(&self) -> Process {
        let mut child = Command::new(env!("CARGO_BIN_EXE_budao"))
            .args(["serve", "--listen", &self.address.to_string(), "--token", TOKEN])
            .args(["--engine", &format!("agui:{}", self.agent)])
            .current_dir(self.directory.path())
            .env_clear()
            .env("BUDAO_JOURNAL", self.directory.path().join("journal.db"))
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

    /// Why `replay --verify` leaves the only session of the journal out.
    fn verify_replay(&self) -> Value {
        let verified = Command::new(env!("CARGO_BIN_EXE_budao"))
            .args(["replay", "--verify", "--all", "--json"])
            .current_dir(self.directory.path())
            .env_clear()
            .env("BUDAO_JOURNAL", self.directory.path().join("journal.db"))
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&verified.stdout);
        assert!(verified.status.success(), "{output}{}", String::from_utf8_lossy(&verified.stderr));
        let first: Value = serde_json::from_str(output.lines().next().unwrap()).unwrap();
        first["skipped"].clone()
    }

    /// All frames of a session from its first, as the server has them now.
    async fn frames(&self, session: &str) -> Vec<Value> {
        let url = format!("http://{}/v1/sessions/{session}/frames", self.address);
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let sent = http.get(url).bearer_auth(TOKEN).send().await.unwrap();
        let text = sent.text().await.unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// One front end and everything it was shown.
struct FrontEnd {
    session: Session,
    events: Events,
    shown: Vec<Event>,
}

impl FrontEnd {
    async fn open(proxy: &Proxy) -> Self {
        let retry = RetryPolicy {
            tries: 10_000,
            base: Duration::from_millis(20),
            max: Duration::from_millis(200),
            ..RetryPolicy::default()
        };
        let url = format!("ws://{}/ws", proxy.address());
        let client = Client::new(url).token(TOKEN).retry(retry);
        let (session, events) = client.create(Default::default()).await.unwrap();
        Self { session, events, shown: Vec::new() }
    }

    /// Reads until a frame with this name.
    async fn until(&mut self, names: &[&str]) -> Event {
        let reading = async {
            loop {
                let event = self.events.next().await.unwrap().unwrap();
                if event.is_local() {
                    continue;
                }
                if event.seq.is_some() {
                    self.shown.push(event.clone());
                }
                if names.contains(&event.event.as_str()) {
                    return event;
                }
            }
        };
        let read = tokio::time::timeout(HANG, reading).await;
        let last = self.shown.last().map(|event| event.event.clone());
        read.unwrap_or_else(|_| panic!("never: {names:?}, after {last:?}"))
    }
}

/// Cuts the front end in even rounds and kills the server in odd ones, in the middle of answers.
async fn torment(stage: &Stage, rounds: usize) -> (usize, usize) {
    let mut server = Some(stage.server());
    let proxy = Proxy::start(stage.address, 1).await.unwrap();
    let mut front = FrontEnd::open(&proxy).await;
    let (mut cuts, mut kills) = (0, 0);
    for round in 0..rounds {
        front.session.send("count to 30").await.unwrap();
        front.until(&["agent.partial_answer"]).await;
        if round % 2 == 0 {
            for _ in 0..3 {
                proxy.cut_all(Ending::Reset);
                cuts += 1;
                front.until(&["agent.partial_answer"]).await;
            }
            let answer = front.until(&["agent.final_answer", "agent.error"]).await;
            let counted: String = (1..=30).map(|number| format!("{number} ")).collect();
            assert_eq!((answer.event.as_str(), answer.text()), ("agent.final_answer", &*counted));
            continue;
        }
        drop(server.take());
        kills += 1;
        server = Some(stage.server());
        let failed = front.until(&["agent.final_answer", "agent.error"]).await;
        assert_eq!(failed.event, "agent.error", "{failed:?}");
        assert_eq!(*failed.meta("error_code"), json!("ERR_CONN_010"), "{failed:?}");
        front.session.retry().await.unwrap();
        front.until(&["agent.final_answer"]).await;
    }
    compare(stage, &front).await;
    (cuts, kills)
}

/// The front end saw every frame of the history once, in order.
async fn compare(stage: &Stage, front: &FrontEnd) {
    let history = stage.frames(front.session.id()).await;
    let ids: Vec<String> =
        history.iter().map(|frame| frame["event_id"].as_str().unwrap().to_owned()).collect();
    let shown: Vec<String> =
        front.shown.iter().map(|event| event.event_id.clone().unwrap()).collect();
    assert_eq!(shown.iter().collect::<BTreeSet<_>>().len(), shown.len(), "a frame was repeated");
    assert_eq!(shown, ids[..shown.len()], "a frame was lost");
    assert!(ids.len() - shown.len() <= 1, "{} frames were not shown", ids.len() - shown.len());
}

fn count(_: &ReceivedRequest) -> Reply {
    counting()
}

/// Counts to 30, one number every 30 ms.
fn counting() -> Reply {
    let event = |value: Value| sse::data(&value);
    let delta = |number: u32| {
        let delta = format!("{number} ");
        event(json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": delta}))
    };
    Reply::stream()
        .then([event(json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r"}))])
        .then([event(json!({"type": "TEXT_MESSAGE_START", "messageId": "m"}))])
        .then((1..=30).map(delta))
        .then([event(json!({"type": "TEXT_MESSAGE_END", "messageId": "m"}))])
        .then([event(json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}))])
        .paced(Duration::from_millis(30))
}

fn rounds(otherwise: usize) -> usize {
    std::env::var("BUDAO_RELAY_ROUNDS").ok().and_then(|it| it.parse().ok()).unwrap_or(otherwise)
}

#[tokio::test]
async fn cut_front_ends_and_killed_relays_lose_and_repeat_nothing() {
    let agent = Provider::answering(count).await;
    let stage = Stage::new(format!("{}/agent", agent.url()));
    let (cuts, kills) = torment(&stage, rounds(8)).await;
    eprintln!("scripted agent: {cuts} cuts, {kills} kills");
    assert_eq!(
        stage.verify_replay(),
        json!("other_engine"),
        "the machine of a turn is not tried on it"
    );
}

/// The most memory that a process had, in bytes.
fn peak_memory(process: &Process) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// Goal: an agent that sends 100 MB does not fill the memory of a server with default limits, in large events, in small
/// ones or in one without an end. Method: the growth of the server's peak is compared with the bound of a turn.
#[tokio::test]
async fn an_agent_that_sends_100_mb_meets_a_limit_in_bounded_memory_and_the_session_goes_on() {
    const FLOOD: usize = 100_000_000;
    /// `turn_bytes`. The events of a turn are held as text, as records and as history, and go into the next request.
    const TURN: u64 = 32 << 20;
    let start = [
        sse::data(&json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r"})),
        sse::data(&json!({"type": "TEXT_MESSAGE_START", "messageId": "m"})),
    ];
    let delta = |size: usize| {
        let delta = "x".repeat(size);
        sse::data(&json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": delta}))
    };
    let flood = |size: usize| {
        let events = std::iter::repeat_n(delta(size), FLOOD / size);
        Reply::stream().then(start.clone()).then(events)
    };
    let endless = Reply::stream().then(start.clone()).bytes("data: ").bytes("x".repeat(FLOOD));
    let replies =
        [(flood(500_000), "turn_bytes"), (flood(2_000), "turn_bytes"), (endless, "event_bytes")];
    for (reply, limit) in replies {
        let agent = Provider::start([reply, counting()]).await;
        let stage = Stage::new(format!("{}/agent", agent.url()));
        let server = stage.server();
        let proxy = Proxy::start(stage.address, 1).await.unwrap();
        let mut front = FrontEnd::open(&proxy).await;
        let before = peak_memory(&server);
        front.session.send("go").await.unwrap();
        let failed = front.until(&["agent.final_answer", "agent.error"]).await;
        assert_eq!(failed.event, "agent.error", "{failed:?}");
        let name = format!("engines.agui.limits.{limit}");
        assert_eq!(failed.meta("context")["limit_name"], json!(name), "{failed:?}");
        front.session.send("count to 30").await.unwrap();
        let answer = front.until(&["agent.final_answer", "agent.error"]).await;
        assert_eq!(answer.event, "agent.final_answer", "{answer:?}");
        let grown = peak_memory(&server) - before;
        eprintln!("{limit}: {} MB more", grown / 1_000_000);
        assert!(grown < 20 * TURN, "{limit}: {grown} bytes more");
    }
}

/// Runs the program on the journal of the server.
async fn budao(stage: &Stage, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command =
        program::command_in(env!("CARGO_BIN_EXE_budao"), stage.directory.path(), args);
    command.env("BUDAO_JOURNAL", stage.directory.path().join("journal.db"));
    program::run(command).await
}

/// The calls in doubt, as the terminal lists them.
async fn doubts(stage: &Stage) -> Vec<Value> {
    let (code, listed, errors) = budao(stage, &["doubts", "--json"]).await;
    assert_eq!(code, Some(0), "{errors}");
    listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn a_call_of_a_cut_run_is_settled_in_the_terminal_with_and_without_a_server() {
    let call = |id: &str| {
        [
            json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r"}),
            json!({"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": "pay"}),
            json!({"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": "{\"claim\":7}"}),
            json!({"type": "TOOL_CALL_END", "toolCallId": id}),
        ]
    };
    let cut = |id| Reply::events(call(id).iter().map(sse::data));
    let agent = Provider::start([cut("x"), cut("y"), counting()]).await;
    let stage = Stage::new(format!("{}/agent", agent.url()));
    let server = stage.server();
    let proxy = Proxy::start(stage.address, 1).await.unwrap();
    let mut front = FrontEnd::open(&proxy).await;
    let session = front.session.id().to_string();
    front.session.send("pay").await.unwrap();
    front.until(&["agent.error"]).await;
    let open = doubts(&stage).await;
    assert_eq!((open.len(), &open[0]["tool"], &open[0]["key"]), (1, &json!("pay"), &Value::Null));
    let first = open[0]["call"].as_str().unwrap().to_owned();
    let settle = |call: String, word: &'static str| {
        let (stage, session) = (&stage, &session);
        async move { budao(stage, &["doubts", "settle", session, &call, word]).await }
    };
    let (code, _, said) = settle(first.clone(), "--did-not-happen").await;
    assert!(code == Some(0) && said.contains("with the next message"), "{code:?} {said}");
    assert!(doubts(&stage).await.is_empty());
    let (code, _, said) = settle(first, "--leave").await;
    assert!(code != Some(0) && said.contains("settled it before"), "{code:?} {said}");

    front.session.send("again").await.unwrap();
    front.until(&["agent.error"]).await;
    drop(server);
    let second = doubts(&stage).await[0]["call"].as_str().unwrap().to_owned();
    let (code, _, said) = settle(second, "--happened").await;
    assert!(code == Some(0) && said.contains("waits for a server"), "{code:?} {said}");
    let _server = stage.server();
    let recording = async { while !doubts(&stage).await.is_empty() {} };
    tokio::time::timeout(HANG, recording).await.expect("the server records it");
    front.session.send("and now?").await.unwrap();
    front.until(&["agent.final_answer"]).await;
    let asked = agent.asked();
    let messages = |request: usize| asked[request].body["messages"].to_string();
    assert!(messages(1).contains("it did not happen"), "{}", messages(1));
    assert!(messages(2).contains("it happened"), "{}", messages(2));
}

/// The Python of a fetched peer.
fn fetched(peer: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("BUDAO_PEERS")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/budao/peers")));
    let path = folder?.join(peer).join("bin/python");
    if path.exists() {
        return Some(path);
    }
    let advice = format!("NOT TESTED: {peer} is missing; `cargo xtask peers {peer}`");
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{advice}");
    eprintln!("\n*** {advice} ***\n");
    None
}

/// Starts the scripted pydantic-ai agent.
fn pydantic(python: &PathBuf, ledger: &std::path::Path) -> (Process, String) {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/relay/pydantic_agent.py");
    let mut child = Command::new(python)
        .arg(script)
        .arg(ledger)
        .arg("0.03")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    (Process(child), format!("http://127.0.0.1:{}/", line.trim()))
}

#[tokio::test]
async fn pydantic_ai_behind_the_relay_survives_cuts_and_kills() {
    let Some(python) = fetched("pydantic-ag-ui") else { return };
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger");
    let (_agent, url) = pydantic(&python, &ledger);
    let stage = Stage::new(url);
    let (cuts, kills) = torment(&stage, rounds(4)).await;
    let asked = fs::read_to_string(&ledger).unwrap().lines().count();
    let asked_by_people = rounds(4) + kills;
    assert_eq!(asked, asked_by_people, "the relay asked by itself");
    eprintln!("pydantic-ai: {cuts} cuts, {kills} kills, {asked} requests");
}

#[tokio::test]
async fn pydantic_ai_calls_its_tools_and_waits_for_an_approval_over_a_kill() {
    let Some(python) = fetched("pydantic-ag-ui") else { return };
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger");
    let (_agent, url) = pydantic(&python, &ledger);
    let stage = Stage::new(url);
    let server = stage.server();
    let proxy = Proxy::start(stage.address, 1).await.unwrap();
    let mut front = FrontEnd::open(&proxy).await;
    front.session.send("weather").await.unwrap();
    let answer = front.until(&["agent.final_answer", "agent.error"]).await;
    assert_eq!(answer.text(), "The tool said: sunny in a");
    front.session.send("delete it").await.unwrap();
    let question = front.until(&["agent.user_confirm"]).await;
    drop(server);
    let _server = stage.server();
    let step = question.step_id.unwrap();
    front.session.answer(&step, Decision::Approve).await.unwrap();
    let answer = front.until(&["agent.final_answer", "agent.error"]).await;
    assert_eq!(answer.text(), "The tool said: deleted a");
    front.session.send("delete it").await.unwrap();
    let question = front.until(&["agent.user_confirm"]).await;
    let denial = Decision::Deny(Some("keep it".to_owned()));
    front.session.answer(&question.step_id.unwrap(), denial).await.unwrap();
    let answer = front.until(&["agent.final_answer", "agent.error"]).await;
    assert_eq!(answer.event, "agent.final_answer");
    let text = fs::read_to_string(&ledger).unwrap();
    let done: Vec<&str> = text.lines().filter(|line| !line.starts_with("request")).collect();
    assert_eq!(done, ["weather a", "delete a"], "each effect happened once, and none when denied");
    compare(&stage, &front).await;
}
