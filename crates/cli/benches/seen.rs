//! What being seen costs: CPU time of durable turns in a server whose traces are collected and whose numbers are asked for
//! every second, beside one that is left alone. And what an idle server keeps in memory, and a hub with fifty agents.
//!
//! The servers are the real program, in processes of their own; a turn is a message, one call of a tool, final words.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use budao_smcp::{
    MemberConfig,
    agent::{Agent, Config},
};
use budao_testkit::{
    bench::{Better, Measurement, emit},
    collector::Collector,
    world,
};
use futures::future;

const TURNS: u32 = 150;
const ROUNDS: usize = 7;
const SCRIPT: &str = "order = \"history\"\n[[step]]\n[[step.call]]\ntool = \"fs_read\"\n\
                      arguments = { path = \"script.toml\" }\n[[step]]\ntext = \"done\"\n";

struct Server {
    child: Child,
    host: String,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(traces: Option<&str>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("script.toml"), SCRIPT).expect("it can be written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_budao"));
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--no-auth", "--permission", "auto"])
            .args(["--model", "script:script.toml"])
            .current_dir(folder.path())
            .env_clear()
            .env("BUDAO_JOURNAL", folder.path().join("journal.db"))
            .envs(traces.map(|url| ("OTEL_EXPORTER_OTLP_ENDPOINT", url)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().expect("a server starts");
        let mut line = String::new();
        let out = child.stdout.take().expect("it is piped");
        BufReader::new(out).read_line(&mut line).expect("it says where it listens");
        let host = line.trim().trim_start_matches("http://").trim_end_matches('/').to_owned();
        Self { child, host, _folder: folder }
    }

    fn ask(&self, head: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.host).expect("it listens");
        let head = format!(
            "{head} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             connection: close\r\n\r\n{body}",
            self.host,
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }

    /// Durable turns, one after the other.
    fn turns(&self) {
        for _ in 0..TURNS {
            let made = self.ask("POST /v1/sessions", "{}");
            let body = made.split("\r\n\r\n").nth(1).expect("a body");
            let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
            let session = body["session_id"].as_str().expect("an id");
            self.ask(&format!("POST /v1/sessions/{session}/messages"), r#"{"content":"go"}"#);
            let until = Instant::now() + Duration::from_secs(30);
            while !self.ask(&format!("GET /v1/sessions/{session}"), "").contains("\"turns\":1") {
                assert!(Instant::now() < until, "the turn did not end");
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// CPU time so far, with that of the kernel for it.
    fn cpu(&self) -> Duration {
        let stat = self.proc("stat");
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        // `utime` and `stime` are the 14th and 15th field; two are before the end of the name.
        let ticks = after_name.split_whitespace().skip(11).take(2);
        Duration::from_millis(
            ticks.map(|ticks| ticks.parse::<u64>().expect("a number")).sum::<u64>() * 10,
        )
    }

    fn proc(&self, file: &str) -> String {
        proc(&self.child, file)
    }
}

fn proc(child: &Child, file: &str) -> String {
    let path = Path::new("/proc").join(child.id().to_string()).join(file);
    std::fs::read_to_string(path).expect("it runs")
}

fn resident_mib(child: &Child) -> f64 {
    let status = proc(child, "status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib / 1024.0
}

/// What `budao smcp server` keeps in memory with fifty agents, each in a room of its own.
async fn hub_with_agents() -> f64 {
    const AGENTS: usize = 50;
    let mut command = Command::new(env!("CARGO_BIN_EXE_budao"));
    command.args(["smcp", "server", "--listen", "127.0.0.1:0", "--accept-any-token", "--json"]);
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("a hub starts");
    let mut line = String::new();
    let out = child.stdout.take().expect("it is piped");
    BufReader::new(out).read_line(&mut line).expect("it says where it listens");
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let url = line["listening"].as_str().expect("an address");
    let agents = (0..AGENTS).map(|number| {
        let room = MemberConfig::new(url, &format!("room{number}"), "bot");
        Agent::connect(Config::new(room), world::seeded(1))
    });
    let agents = future::try_join_all(agents).await.expect("all join");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let resident = resident_mib(&child);
    drop(agents);
    let _ = child.kill();
    let _ = child.wait();
    resident
}

/// CPU time of a round; meanwhile, if so, somebody asks for the numbers.
fn round(server: &Server, is_seen: bool) -> f64 {
    let (before, over) = (server.cpu(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        if is_seen {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    server.ask("GET /metrics", "");
                    std::thread::park_timeout(Duration::from_secs(1));
                }
            });
        }
        server.turns();
        over.store(true, Ordering::Relaxed);
    });
    (server.cpu() - before).as_secs_f64()
}

fn report(bench: &str, mut rounds: Vec<f64>, unit: &str, bar: f64, note: &str) {
    rounds.sort_by(f64::total_cmp);
    let at = |quarter: usize| rounds[(rounds.len() - 1) * quarter / 4];
    emit(&Measurement {
        bench: bench.into(),
        value: at(2),
        unit: unit.into(),
        bar: Some(bar),
        better: Better::Lower,
        note: Some(note.into()),
        low: Some(at(1)),
        high: Some(at(3)),
    });
}

#[tokio::main]
async fn main() {
    let collector = Collector::start().await;
    let url = collector.url();
    let measured = tokio::task::spawn_blocking(move || {
        let (alone, seen) = (Server::start(None), Server::start(Some(&url)));
        std::thread::sleep(Duration::from_secs(2));
        let resident = resident_mib(&alone.child);
        // The first round warms both up.
        round(&alone, false);
        round(&seen, true);
        let more = |_| {
            let (without, with) = (round(&alone, false), round(&seen, true));
            100.0 * (with - without) / without
        };
        (resident, (0..ROUNDS).map(more).collect::<Vec<f64>>())
    });
    let (resident, more) = measured.await.expect("it does not panic");
    assert!(collector.spans().len() > TURNS as usize * ROUNDS, "the collector was told");
    let note = "an idle `budao serve`, resident, two seconds after its start";
    report("seen/idle_server", vec![resident], "MiB", 14.0, note);
    let note = "`budao smcp server` with fifty agents, resident, two seconds after they joined";
    report("seen/hub", vec![hub_with_agents().await], "MiB", 12.0, note);
    let note = "CPU of durable turns with trace collection and a /metrics request every second, over the same without";
    report("seen/traces_and_metrics", more, "% more", 3.0, note);
}
