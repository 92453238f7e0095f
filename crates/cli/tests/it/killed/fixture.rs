//! The real hub and the real computer as programs that can be frozen and killed, a tool whose effects are counted, and an
//! agent that is never told to come back.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::Stdio,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use budao_core::fault::{Fault, Kind};
use budao_smcp::{
    MemberConfig,
    agent::{Agent, Call, Config},
};
use budao_testkit::{
    mcp::{EffectLedger, Point},
    port,
    program::{self, Process, fake_mcp, until},
    world,
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Nothing here takes this long unless it hangs.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// How a call may end that a computer may have begun: whoever hears it knows that nobody knows.
const UNKNOWN: [Kind; 2] = [Kind::OutcomeUnknown, Kind::ComputerGone];

/// And one that certainly never began.
const NEVER_BEGAN: [Kind; 7] = [
    Kind::ComputerNotFound,
    Kind::RoomNotFound,
    Kind::NotInRoom,
    Kind::UnknownTool,
    Kind::McpServerFailed,
    Kind::LimitReached,
    Kind::ConnectionLost,
];

/// How a call ended.
pub(crate) type CallResult = Result<Value, Fault>;

/// Starts the program and waits until its stderr says `word`; gives that line.
fn start(args: &[&str], word: &str) -> (Process, String) {
    let mut command = program::command(env!("CARGO_BIN_EXE_budao"), args);
    command.env("BUDAO_SMCP_TOKEN", "right").stdout(Stdio::null());
    Process::start_until(command, word)
}

/// The process hears nothing and does nothing from now on: a thread that runs stops a moment after the signal.
pub(crate) async fn freeze(process: &Process) {
    process.signal("STOP");
    let tasks = format!("/proc/{}/task", process.0.id());
    let is_stopped = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    };
    let all = || std::fs::read_dir(&tasks).unwrap().flatten().all(is_stopped);
    until("every thread stands still", all).await;
}

/// Who is there.
pub(crate) struct Fixture {
    folder: tempfile::TempDir,
    pub(crate) ledger: EffectLedger,
    address: String,
    pub(crate) hub: Process,
    pub(crate) computer: Process,
    agent: Agent,
    probes: AtomicU32,
    /// What callers were told, and how often.
    reported: Mutex<BTreeMap<String, u32>>,
}

impl Fixture {
    /// Everybody is in the room and works. Nothing if a program is missing.
    pub(crate) async fn open() -> Option<Self> {
        let program = fake_mcp(env!("CARGO_BIN_EXE_budao"))?;
        let folder = tempfile::tempdir().unwrap();
        let server = json!({
            "name": "tools", "type": "stdio", "default_tool_meta": { "auto_apply": true },
            "server_parameters": { "command": program, "args": ["--ledger", folder.path()] },
        });
        let config = json!({ "servers": [server] }).to_string();
        std::fs::write(folder.path().join("computer.json"), config).unwrap();
        let (hub, address) = start_hub(&format!("127.0.0.1:{}", port::free()));
        let computer = start_computer(folder.path(), &address);
        let mut place = MemberConfig::new(&format!("http://{address}"), "room", "bot");
        place.token = Some("right".to_owned().into());
        let base = Duration::from_millis(20);
        (place.reconnect.base, place.reconnect.max) = (base, base * 8);
        let agent = Agent::connect(Config::new(place), world::seeded(7)).await.unwrap();
        let fixture = Self {
            ledger: EffectLedger::new(folder.path().to_owned()),
            folder,
            address,
            hub,
            computer,
            agent,
            probes: AtomicU32::new(0),
            reported: Mutex::default(),
        };
        fixture.all_are_back().await;
        Some(fixture)
    }

    /// Kills the hub; another one takes its place when the caller has looked around.
    pub(crate) fn kill_hub(&mut self) {
        self.hub.kill();
    }

    pub(crate) fn start_hub(&mut self) {
        (self.hub, _) = start_hub(&self.address);
    }

    pub(crate) fn kill_computer(&mut self) {
        self.computer.kill();
    }

    pub(crate) fn start_computer(&mut self) {
        self.computer = start_computer(self.folder.path(), &self.address);
    }

    /// Calls the tool, by a name that no other call has.
    pub(crate) fn call(&self, name: &str, holds: bool) -> JoinHandle<CallResult> {
        let call = Call {
            computer: "pc".into(),
            tool: "tools__effect".into(),
            params: json!({ "text": name, "holds": holds }),
            timeout: TEST_TIMEOUT,
            req_id: None,
        };
        let agent = self.agent.clone();
        tokio::spawn(async move { agent.call(call, &CancellationToken::new()).await })
    }

    /// Waits for a call's end; what went wrong, if something did.
    pub(crate) async fn end_of(&self, name: &str, call: JoinHandle<CallResult>) -> Option<Kind> {
        let ended = tokio::time::timeout(TEST_TIMEOUT, call).await;
        let ended = ended.unwrap_or_else(|_| panic!("{name}: nobody was told")).unwrap();
        self.check(name, &ended)
    }

    /// What a call came to, held against the ledger: done is done once, never begun is not done, unknown is either.
    pub(crate) fn check(&self, name: &str, ended: &CallResult) -> Option<Kind> {
        let kind = ended.as_ref().err().map(Fault::kind);
        let word = kind.map_or("done".to_owned(), |kind| kind.row().name.to_owned());
        *self.reported.lock().unwrap().entry(word).or_default() += 1;
        let times = self.times(name);
        match (ended, kind) {
            (Ok(_), _) => assert_eq!(times, 1, "{name} is said to be done"),
            (_, Some(kind)) if UNKNOWN.contains(&kind) => assert!(times < 2, "{name}: {times}"),
            (_, Some(kind)) if NEVER_BEGAN.contains(&kind) => {
                assert_eq!(times, 0, "{name}: {kind}");
            }
            (Err(fault), _) => panic!("{name}: {fault:?}"),
        }
        kind
    }

    /// How often the effect of this call took place.
    pub(crate) fn times(&self, name: &str) -> usize {
        self.ledger.lines().iter().filter(|line| *line == name).count()
    }

    /// Waits until the call of this name stands there.
    pub(crate) async fn stands(&self, point: Point, name: &str) {
        until("the call comes so far", || self.ledger.stands(point, name)).await;
    }

    /// Calls until a call is done: by then everybody is back.
    pub(crate) async fn all_are_back(&self) {
        let probing = async {
            loop {
                let name = format!("probe {}", self.probes.fetch_add(1, Ordering::Relaxed));
                let call = self.call(&name, false);
                if self.end_of(&name, call).await.is_none() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(tokio::time::timeout(TEST_TIMEOUT, probing).await.is_ok(), "they never came back");
    }

    /// Waits until a frozen hub has something in its buffers that it will never read.
    pub(crate) async fn hub_is_sent_something(&self) {
        let port: u16 = self.address.rsplit(':').next().unwrap().parse().unwrap();
        until("the hub is sent something", || unread(port) > 0).await;
    }

    /// Waits until the hub has passed a call on.
    pub(crate) async fn hub_has_a_call(&self) {
        let under_way = || stats(&self.address).contains("\"calls_under_way\":1,");
        until("the call is under way", under_way).await;
    }

    /// Nothing was done twice, and nothing is left. What was told, in words.
    pub(crate) async fn judge(&self) -> String {
        let lines = self.ledger.lines();
        for line in &lines {
            assert_eq!(self.times(line), 1, "{line} happened twice");
        }
        let none = || stats(&self.address).contains("\"calls_under_way\":0,");
        until("the hub has no call any more", none).await;
        let reported = self.reported.lock().unwrap().clone();
        format!("{} effects, none twice; callers were told {reported:?}", lines.len())
    }
}

fn start_hub(listen: &str) -> (Process, String) {
    let (hub, line) = start(&["smcp", "server", "--listen", listen], "listening on");
    let url = line.split_whitespace().last().unwrap();
    (hub, url.strip_prefix("http://").unwrap().trim_end_matches('/').to_owned())
}

fn start_computer(folder: &Path, address: &str) -> Process {
    let file = folder.join("computer.json");
    let (file, url) = (file.to_str().unwrap(), format!("http://{address}"));
    let args = ["smcp", "computer", "--url", &url, "--name", "pc", "--config", file, "room"];
    start(&args, "joined").0
}

/// What the hub says of itself.
fn stats(address: &str) -> String {
    let connected = TcpStream::connect(address).and_then(|mut stream| {
        let head = format!(
            "GET /smcp/stats HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer right\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    });
    connected.unwrap_or_default()
}

/// Bytes that came to connections of this port and were not read, as Linux tells.
fn unread(port: u16) -> u64 {
    const ESTABLISHED: &str = "01";
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let lines = table.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_ours = words.get(1)?.ends_with(&format!(":{port:04X}"));
        let (_, waiting) = words.get(4)?.split_once(':')?;
        (is_ours && words[3] == ESTABLISHED).then(|| u64::from_str_radix(waiting, 16).unwrap_or(0))
    });
    lines.sum()
}
