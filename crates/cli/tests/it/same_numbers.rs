//! One journal, opened with every surface: each number that two of them show is the same in both.
//!
//! The sessions are simulated: models and tools fail, processes are killed, people cancel. The surfaces are the real
//! program: `budao sessions`, `sessions show`, `top`, and a server's list, session, frames and statistics, from which
//! the page draws its list, timeline and faults.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Mutex,
};

use budao_core::{Record, Timestamp, event::SessionId};
use budao_sim::{Script, run_recorded};
use serde_json::{Value, json};

/// Sessions that are compared.
const SESSIONS: usize = 500;
/// The simulated time is moved to this long before now: within the longest window of the statistics.
const AGO_MICROS: i64 = 3 * 24 * 3_600 * 1_000_000;
/// The start of every simulation: 2026-01-01T00:00:00Z.
const BEGIN_MICROS: i64 = 1_767_225_600_000_000;
/// `top` lists at most this many sessions.
const TOP_ROWS: usize = 200;

/// The numbers of a session that more than one surface shows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Numbers {
    state: String,
    turns: u64,
    head: u64,
    faults: [u64; 3],
}

impl Numbers {
    fn of(shown: &Value, state: &str) -> Self {
        let number = |name: &str| shown[name].as_u64().unwrap_or_else(|| panic!("{name}: {shown}"));
        Self {
            state: shown[state].as_str().unwrap().to_owned(),
            turns: number("turns"),
            head: number("head"),
            faults: counts(shown),
        }
    }
}

fn counts(shown: &Value) -> [u64; 3] {
    ["faults", "recovered", "not_recovered"]
        .map(|name| shown[name].as_u64().unwrap_or_else(|| panic!("{name}: {shown}")))
}

fn budao(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_budao"));
    command
        .current_dir(home)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("BUDAO_JOURNAL", home.join("journal.db"))
        .stdin(Stdio::null())
        .args(args);
    command
}

fn lines(home: &Path, args: &[&str]) -> Vec<Value> {
    let output = budao(home, args).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Simulates sessions and imports them, moved to the last days.
fn import_simulated(home: &Path) -> usize {
    let later = now().as_micros() - AGO_MICROS - BEGIN_MICROS;
    let mut histories: BTreeMap<SessionId, Vec<Record>> = BTreeMap::new();
    for seed in 0.. {
        let (result, sessions) = run_recorded(&Script::of(seed));
        assert_eq!(result.violations, [], "seed {seed}");
        histories.extend(sessions.into_iter().filter(|(_, history)| !history.is_empty()));
        if histories.len() >= SESSIONS {
            break;
        }
    }
    let mut text = format!("{}\n", json!({ "journal": 1 }));
    for (session, history) in &histories {
        write_session(&mut text, *session, history, later);
    }
    writeln!(text, "{}", json!({ "done": histories.len() })).unwrap();
    std::fs::write(home.join("sessions.jsonl"), text).unwrap();
    let journal = home.join("journal.db");
    let imported = ["journal", "import", journal.to_str().unwrap(), "sessions.jsonl", "--json"];
    assert_eq!(lines(home, &imported)[0]["sessions"], histories.len());
    histories.len()
}

fn write_session(text: &mut String, session: SessionId, history: &[Record], later: i64) {
    let head = json!({
        "session": session, "epoch": "1f2e3d4c", "removed_to": 0, "removed_reason": null,
    });
    writeln!(text, "{head}").unwrap();
    for record in history {
        let Record { seq, at, trace, turn, event, .. } = record;
        let at = Timestamp::from_micros(at.as_micros() + later);
        let line = json!({ "seq": seq, "at": at, "trace": trace, "turn": turn, "event": event });
        writeln!(text, "{line}").unwrap();
    }
    writeln!(text, "{}", json!({ "end": session, "records": history.len() })).unwrap();
}

fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap())
}

/// A server on the journal, and what it answers.
struct Server {
    process: Child,
    host: String,
    token: String,
}

impl Server {
    fn start(home: &Path) -> Self {
        let args = ["serve", "--listen", "127.0.0.1:0"];
        let mut process =
            budao(home, &args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let (url, token) = line.trim().split_once("#token=").unwrap();
        let host = url.strip_prefix("http://").unwrap().trim_end_matches('/').to_owned();
        Self { process, host, token: token.to_owned() }
    }

    fn get(&self, path: &str) -> String {
        let Self { host, token, .. } = self;
        let mut stream = TcpStream::connect(host).unwrap();
        // HTTP/1.0, so that the body is not sent in chunks.
        let head =
            format!("GET {path} HTTP/1.0\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 "), "{path}: {answer}");
        body.to_owned()
    }

    fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path)).unwrap()
    }

    /// Every page of the list.
    fn list(&self) -> Vec<Value> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.json(&format!("/v1/sessions?limit=100{after}"));
            all.extend(page["sessions"].as_array().unwrap().iter().cloned());
            match page["next"].as_str() {
                Some(next) => after = format!("&after={}", next.replace('+', "%2B")),
                None => return all,
            }
        }
    }

    /// The counts in the last frame of the timeline that has them.
    fn timeline_counts(&self, session: &str) -> [u64; 3] {
        let frames = self.get(&format!("/v1/sessions/{session}/frames"));
        let frames = frames.lines().rev().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut shown = frames.filter_map(|frame| frame["metadata"].get("fault_counts").cloned());
        shown.next().map_or([0; 3], |last| counts(&last))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The numbers of every session in a list.
fn by_session(listed: &[Value], id: &str) -> BTreeMap<String, Numbers> {
    let named = |item: &Value| (item[id].as_str().unwrap().to_owned(), Numbers::of(item, "state"));
    listed.iter().map(named).collect()
}

/// The faults by kind add up to the faults of all sessions, and the turns to their turns.
fn compare_statistics(stats: &Value, listed: &BTreeMap<String, Numbers>, surface: &str) {
    assert_eq!(stats["complete"], true, "{surface}");
    let sum = |at: usize| listed.values().map(|numbers| numbers.faults[at]).sum::<u64>();
    let kinds = stats["kinds"].as_array().unwrap();
    let by_kind = |name: &str| kinds.iter().map(|kind| kind[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!(stats["faults"], sum(0), "{surface}: faults");
    for (at, name) in ["count", "recovered", "not_recovered"].into_iter().enumerate() {
        assert_eq!(by_kind(name), sum(at), "{surface}: {name}");
    }
    let turns = listed.values().map(|numbers| numbers.turns).sum::<u64>();
    assert_eq!(stats["turns"], turns, "{surface}: turns");
}

/// Compares what is shown of each session on its own, four at a time.
fn compare_sessions(home: &Path, server: &Server, listed: &BTreeMap<String, Numbers>) {
    let waiting = Mutex::new(listed.iter());
    let compare = || {
        while let Some((session, numbers)) = { waiting.lock().unwrap().next() } {
            let shown = &lines(home, &["sessions", "show", session, "--json"])[0];
            assert_eq!(Numbers::of(shown, "state"), *numbers, "sessions show {session}");
            let viewed = server.json(&format!("/v1/sessions/{session}"));
            assert_eq!(Numbers::of(&viewed, "status"), *numbers, "the server's {session}");
            assert_eq!(server.timeline_counts(session), numbers.faults, "timeline of {session}");
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(compare);
        }
    });
}

#[test]
fn every_surface_shows_the_same_numbers_of_the_same_sessions() {
    let home = tempfile::tempdir().unwrap();
    let count = import_simulated(home.path());
    let printed =
        lines(home.path(), &["sessions", "list", "--json", "--limit", &count.to_string()]);
    let listed = by_session(&printed, "session");
    assert_eq!(listed.len(), count);
    assert!(listed.values().any(|numbers| numbers.faults[1] > 0), "some faults are recovered");
    assert!(listed.values().any(|numbers| numbers.faults[2] > 0), "some faults are final");
    assert!(listed.values().any(|numbers| numbers.state == "failed"), "some sessions failed");

    let top = &lines(home.path(), &["top", "--json", "--window", "7d"])[0];
    let rows = by_session(top["sessions"].as_array().unwrap(), "session");
    assert_eq!(rows.len(), TOP_ROWS.min(count));
    for (session, numbers) in &rows {
        assert_eq!(*numbers, listed[session], "top shows {session}");
    }
    for (state, shown) in [("running", "running"), ("waiting_for_decision", "waiting_for_decision")]
    {
        let of_state = listed.values().filter(|numbers| numbers.state == state).count();
        assert_eq!(top[shown], of_state, "top counts {state}");
    }
    compare_statistics(&top["stats"], &listed, "top");

    let server = Server::start(home.path());
    assert_eq!(by_session(&server.list(), "session_id"), listed, "the server's list");
    let stats = server.json("/api/stats?window=7d");
    compare_statistics(&stats, &listed, "/api/stats");
    let ids: BTreeSet<&str> = listed.keys().map(String::as_str).collect();
    for row in stats["unrecoverable_by_session"].as_array().unwrap() {
        assert!(ids.contains(row["session_id"].as_str().unwrap()), "{row}");
    }
    compare_sessions(home.path(), &server, &listed);
}
