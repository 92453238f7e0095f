//! One journal, opened with every surface: each number that two of them show is the same in both.
//!
//! The sessions are simulated: models and tools fail, processes are killed, people cancel. Two more are made of them: a
//! fork, whose copied turns count in lists and not in statistics, and one with a cost and a summary. The surfaces are
//! the real program: `budao sessions`, `sessions show`, `top`, and a server's list, session, frames and statistics, from which
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

use budao_core::{
    Event, Record, Timestamp,
    event::{Compaction, Origin, SessionId, StopReason},
    message::Usage,
    spending,
};
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

/// Numbers of statistics that `top` and `/api/stats` share.
const SHARED: [&str; 12] = [
    "turns",
    "steps",
    "steps_unanswered",
    "calls",
    "faults",
    "kinds",
    "retries",
    "recovery_ms",
    "by_tool",
    "by_model",
    "usage",
    "doubts_open",
];
/// What the session with costs spent, in millionths, and the currency.
const COST: (u64, &str) = (12_500, "USD");

/// The histories that are imported, by session.
type Histories = BTreeMap<SessionId, Vec<Record>>;

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

/// Whether a server would continue a session that ends here: a timer is set, or a second message waits.
fn is_due_again(history: &[Record]) -> bool {
    let messages = history.iter().filter(|it| matches!(it.event, Event::MessageAccepted { .. }));
    messages.count() != 1
        || history.iter().any(|record| matches!(record.event, Event::TimerSet { .. }))
}

/// The first turn of a simulated session, if it ended well and without a fault.
fn good_turn(history: &[Record]) -> Option<&[Record]> {
    let end = history.iter().position(|record| matches!(record.event, Event::TurnEnded { .. }))?;
    let turn = &history[..=end];
    let is_good = matches!(turn[end].event, Event::TurnEnded { stop: StopReason::EndTurn, .. })
        && turn.iter().all(|record| record.event.fault().is_none())
        && matches!(turn[0].event, Event::SessionOpened { origin: None, .. })
        && tokens_of(turn, 0)[0] > 0
        && !is_due_again(turn);
    is_good.then_some(turn)
}

/// A fork that copied the first turn of a session, and a session whose first turn has a cost and a summary.
fn fork_and_priced(histories: &Histories) -> [(SessionId, Vec<Record>); 2] {
    let mut good = histories.iter().filter_map(|(id, history)| Some((*id, good_turn(history)?)));
    let (parent, copy) = good.next().expect("a session has a good turn");
    let (other, priced) = good.next().expect("a second session has a good turn");
    let (mut fork, mut priced) = (copy.to_vec(), priced.to_vec());
    let copied = fork.len() as u64;
    if let Event::SessionOpened { origin, .. } = &mut fork[0].event {
        *origin = Some(Origin::Fork { parent, at: copied, copied });
    }
    let mut end = priced.pop().unwrap();
    let data = json!({
        "model": "simulated", "cost": COST.0, "currency": COST.1, "usage": Usage::default(),
    });
    let note = Event::Annotated { topic: spending::TOPIC.to_owned(), data };
    let summary = Compaction {
        messages: 0,
        summary: "Nothing was said.".to_owned(),
        by_model: true,
        tokens_before: 10,
        tokens_after: 10,
        usage: Usage { input_tokens: 7, output_tokens: 3, ..Usage::default() },
    };
    for event in [note, Event::HistoryCompacted(summary)] {
        priced.push(Record { event, ..end.clone() });
        end.seq += 1;
    }
    priced.push(end);
    let next = |id: SessionId| SessionId(uuid::Uuid::from_u128(id.0.as_u128() + 1));
    [(next(parent), fork), (next(other), priced)]
}

/// The position of the last record that a fork copied.
fn copied(history: &[Record]) -> u64 {
    match history[0].event {
        Event::SessionOpened { origin: Some(Origin::Fork { copied, .. }), .. } => copied,
        _ => 0,
    }
}

/// Input and output tokens of the answers and summaries after this position.
fn tokens_of(history: &[Record], after: u64) -> [u64; 2] {
    let mut sum = Usage::default();
    for record in history.iter().filter(|record| record.seq > after) {
        match &record.event {
            Event::ModelAnswered { usage, .. }
            | Event::HistoryCompacted(Compaction { usage, .. }) => sum += *usage,
            _ => {}
        }
    }
    [sum.input_tokens, sum.output_tokens]
}

/// Simulates sessions and imports them, moved to the last days.
fn import_simulated(home: &Path) -> Histories {
    let later = now().as_micros() - AGO_MICROS - BEGIN_MICROS;
    let mut histories = Histories::new();
    for seed in 0.. {
        let (result, sessions) = run_recorded(&Script::of(seed));
        assert_eq!(result.violations, [], "seed {seed}");
        histories.extend(sessions.into_iter().filter(|(_, history)| !history.is_empty()));
        if histories.len() >= SESSIONS {
            break;
        }
    }
    histories.extend(fork_and_priced(&histories));
    let mut text = format!("{}\n", json!({ "journal": 1 }));
    for (session, history) in &histories {
        write_session(&mut text, *session, history, later);
    }
    writeln!(text, "{}", json!({ "done": histories.len() })).unwrap();
    std::fs::write(home.join("sessions.jsonl"), text).unwrap();
    let journal = home.join("journal.db");
    let imported = ["journal", "import", journal.to_str().unwrap(), "sessions.jsonl", "--json"];
    assert_eq!(lines(home, &imported)[0]["sessions"], histories.len());
    histories
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

    /// The frames of a session, oldest first.
    fn timeline(&self, session: &str) -> Vec<Value> {
        let frames = self.get(&format!("/v1/sessions/{session}/frames"));
        frames.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// The numbers of a timeline: the counts and the cost in the last frames that have them, and the tokens of all turns.
fn timeline_numbers(frames: &[Value]) -> ([u64; 3], Option<f64>, [u64; 2]) {
    let last = |name: &str| frames.iter().rev().find_map(|frame| frame["metadata"].get(name));
    let ends = frames.iter().filter(|frame| frame["metadata"]["total_tokens"].is_u64());
    let sum = |name: &str| {
        ends.clone().map(|frame| frame["metadata"][name].as_u64().unwrap()).sum::<u64>()
    };
    let faults = last("fault_counts").map_or([0; 3], counts);
    let cost = last("session_cost").and_then(Value::as_f64);
    (faults, cost, ["input_tokens", "output_tokens"].map(sum))
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

/// The code that each session of a list shows.
fn codes(listed: &[Value], id: &str) -> BTreeMap<String, Option<String>> {
    let code = |item: &Value| {
        let code = item["last_code"].as_str().map(str::to_owned);
        (item[id].as_str().unwrap().to_owned(), code)
    };
    listed.iter().map(code).collect()
}

/// The faults by kind add up to the faults of all sessions, and the turns to their turns. What a fork copied counts for
/// its parent.
fn compare_statistics(
    stats: &Value,
    listed: &BTreeMap<String, Numbers>,
    histories: &Histories,
    surface: &str,
) {
    assert_eq!(stats["complete"], true, "{surface}");
    let sum = |at: usize| listed.values().map(|numbers| numbers.faults[at]).sum::<u64>();
    let kinds = stats["kinds"].as_array().unwrap();
    let by_kind = |name: &str| kinds.iter().map(|kind| kind[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!(stats["faults"], sum(0), "{surface}: faults");
    for (at, name) in ["count", "recovered", "not_recovered"].into_iter().enumerate() {
        assert_eq!(by_kind(name), sum(at), "{surface}: {name}");
    }
    let turns = listed.values().map(|numbers| numbers.turns).sum::<u64>();
    let copied_turns = histories.values().filter(|history| copied(history) > 0).count() as u64;
    assert_eq!(copied_turns, 1, "the fork copied one turn");
    assert_eq!(stats["turns"], turns - copied_turns, "{surface}: turns");
    let mut tokens = [0; 2];
    for history in histories.values() {
        let [input, output] = tokens_of(history, copied(history));
        tokens = [tokens[0] + input, tokens[1] + output];
    }
    let usage = &stats["usage"];
    assert_eq!(usage["input_tokens"], tokens[0], "{surface}: input tokens");
    assert_eq!(usage["output_tokens"], tokens[1], "{surface}: output tokens");
    assert_eq!((&usage["cost"], &usage["currency"]), (&json!(0.0125), &json!(COST.1)), "{surface}");
}

/// What one session shows on its own, on every surface. Returns its calls in doubt.
fn compare_session(home: &Path, server: &Server, session: &str, numbers: &Numbers) -> u64 {
    let shown = &lines(home, &["sessions", "show", session, "--json"])[0];
    assert_eq!(Numbers::of(shown, "state"), *numbers, "sessions show {session}");
    let viewed = server.json(&format!("/v1/sessions/{session}"));
    assert_eq!(Numbers::of(&viewed, "status"), *numbers, "the server's {session}");
    assert_eq!(shown["queued_messages"], viewed["queued"], "messages that wait in {session}");
    let tokens = |of: &Value| ["input_tokens", "output_tokens"].map(|name| of[name].as_u64());
    assert_eq!(tokens(shown), tokens(&viewed), "tokens of {session}");
    let (faults, cost, by_turn) = timeline_numbers(&server.timeline(session));
    assert_eq!(faults, numbers.faults, "timeline of {session}");
    assert_eq!(by_turn.map(Some), tokens(&viewed), "tokens of the turns of {session}");
    let shown_cost = shown["cost"].as_str().map(|text| text.trim_start_matches("≈ "));
    let timeline_cost = cost.map(|cost| format!("{cost} {}", COST.1));
    assert_eq!(shown_cost, timeline_cost.as_deref(), "cost of {session}");
    viewed["doubts"].as_array().unwrap().len() as u64
}

/// Compares what is shown of each session on its own, four at a time. Returns the number of calls in doubt.
fn compare_sessions(home: &Path, server: &Server, listed: &BTreeMap<String, Numbers>) -> u64 {
    let waiting = Mutex::new(listed.iter());
    let compare = || {
        let mut doubts = 0;
        while let Some((session, numbers)) = { waiting.lock().unwrap().next() } {
            doubts += compare_session(home, server, session, numbers);
        }
        doubts
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..4).map(|_| scope.spawn(compare)).collect();
        all.into_iter().map(|task| task.join().unwrap()).sum()
    })
}

#[test]
fn every_surface_shows_the_same_numbers_of_the_same_sessions() {
    let home = tempfile::tempdir().unwrap();
    let histories = import_simulated(home.path());
    let count = histories.len();
    let printed =
        lines(home.path(), &["sessions", "list", "--json", "--limit", &count.to_string()]);
    let (listed, codes_listed) = (by_session(&printed, "session"), codes(&printed, "session"));
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
    for (session, code) in codes(top["sessions"].as_array().unwrap(), "session") {
        assert_eq!(code, codes_listed[&session], "top shows the code of {session}");
    }
    for (state, shown) in [("running", "running"), ("waiting_for_decision", "waiting_for_decision")]
    {
        let of_state = listed.values().filter(|numbers| numbers.state == state).count();
        assert_eq!(top[shown], of_state, "top counts {state}");
    }
    compare_statistics(&top["stats"], &listed, &histories, "top");

    let server = Server::start(home.path());
    let list = server.list();
    assert_eq!(by_session(&list, "session_id"), listed, "the server's list");
    assert_eq!(codes(&list, "session_id"), codes_listed, "the codes of the server's list");
    let stats = server.json("/api/stats?window=7d");
    compare_statistics(&stats, &listed, &histories, "/api/stats");
    for name in SHARED {
        assert_eq!(top["stats"][name], stats[name], "top and /api/stats: {name}");
    }
    let ids: BTreeSet<&str> = listed.keys().map(String::as_str).collect();
    for row in stats["unrecoverable_by_session"].as_array().unwrap() {
        assert!(ids.contains(row["session_id"].as_str().unwrap()), "{row}");
    }
    let doubts = compare_sessions(home.path(), &server, &listed);
    assert!(doubts > 0, "some calls are in doubt");
    assert_eq!(stats["doubts_open"], doubts, "/api/stats: calls in doubt");
}
