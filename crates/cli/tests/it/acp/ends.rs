//! The bridge ends in every way there is, at random moments, and nothing it started goes on: no process is left after
//! a second, and no file is written once the bridge has ended.
//!
//! The CLI is a script that never answers. It and its shells write files until they are killed: shells of its group,
//! shells that ignore TERM, HUP and INT, shells that left the group, and one whose parent is gone.
//!
//! `BUDAO_ENDS` says how many ends there are, `BUDAO_SEED` repeats a run.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime},
};

use budao_core::world::Entropy;
use budao_testkit::world;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::acp::editor::budao;

/// No process may be left this long after the bridge's end.
const GONE_WITHIN: Duration = Duration::from_secs(1);
/// Nothing here takes this long unless it hangs.
const HANGS: Duration = Duration::from_secs(60);
/// Ends at a time.
const WORKERS: u64 = 4;

const CLI: &str = r#"#!/bin/sh
write() { while :; do echo x >> "$ENDS_FILES/$1"; sleep 0.01; done; }
(write shell) &
(trap '' TERM HUP INT; write deaf) &
setsid sh -c 'trap "" TERM HUP INT; while :; do echo x >> "$ENDS_FILES/left-group"; sleep 0.01; done' &
(setsid sh -c 'while :; do echo x >> "$ENDS_FILES/lost-parent"; sleep 0.01; done' &)
trap '' TERM HUP INT
write cli
"#;

/// How a bridge is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EndKind {
    InputClosed,
    Term,
    Int,
    Hup,
    Kill,
}

const WAYS: [EndKind; 5] =
    [EndKind::InputClosed, EndKind::Term, EndKind::Int, EndKind::Hup, EndKind::Kill];

/// The moment of an end.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// So long after the start of the bridge: before, while or after the CLI is started.
    After(Duration),
    /// When the CLI has written so many lines.
    Lines(usize),
}

/// One bridge with its CLI, its files and a mark that stands in the environment of everything it starts.
struct Fixture {
    directory: tempfile::TempDir,
    files: PathBuf,
    mark: String,
}

impl Fixture {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let directory = tempfile::tempdir().unwrap();
        let files = directory.path().join("files");
        std::fs::create_dir(&files).unwrap();
        let cli = directory.path().join("claude");
        std::fs::write(&cli, CLI).unwrap();
        std::fs::set_permissions(&cli, std::fs::Permissions::from_mode(0o755)).unwrap();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("ENDS_MARK=ends-{}-{number}-end", std::process::id());
        Self { directory, files, mark }
    }

    fn command(&self) -> Command {
        let (name, value) = self.mark.split_once('=').unwrap();
        let mut command = budao(self.directory.path());
        command.env(name, value).env("ENDS_FILES", &self.files);
        command.args(["acp", "--engine", "claude", "--claude"]);
        command.arg(self.directory.path().join("claude"));
        command
    }

    /// Processes that carry the mark: the bridge, supervisors, the CLI and everything below.
    fn processes(&self) -> Vec<(i32, String)> {
        marked(&self.mark)
    }

    fn lines(&self) -> usize {
        std::fs::metadata(self.files.join("cli"))
            .map_or(0, |file| usize::try_from(file.len() / 2).unwrap_or(usize::MAX))
    }

    /// The last time a file was written.
    fn last_write(&self) -> Option<SystemTime> {
        let files = std::fs::read_dir(&self.files).unwrap().flatten();
        files.filter_map(|file| file.metadata().ok()?.modified().ok()).max()
    }
}

impl Drop for Fixture {
    /// A test that failed must not leave what it found.
    fn drop(&mut self) {
        for (pid, _) in self.processes() {
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
    }
}

/// Processes with this in their environment, and their command lines.
fn marked(mark: &str) -> Vec<(i32, String)> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let found = pids.filter_map(|pid| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        let is_marked = environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes());
        let line = || std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        is_marked.then(|| (pid, String::from_utf8_lossy(&line()).replace('\0', " ")))
    });
    found.collect()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + HANGS;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A bridge that runs, and the pipe to it.
struct Bridge {
    child: Child,
    input: Arc<Mutex<Option<ChildStdin>>>,
    conversation: Option<JoinHandle<()>>,
}

impl Bridge {
    /// Starts it and talks to it so far that its CLI works on a prompt, as long as the bridge lives.
    fn start(fixture: &Fixture) -> Self {
        let mut child = fixture.command().spawn().unwrap();
        let input = Arc::new(Mutex::new(child.stdin.take()));
        let output = child.stdout.take().unwrap();
        let (write, directory) = (input.clone(), fixture.directory.path().to_owned());
        let conversation = Some(std::thread::spawn(move || converse(&write, output, &directory)));
        Self { child, input, conversation }
    }

    fn end(&mut self, end_kind: EndKind) {
        let signal = match end_kind {
            EndKind::InputClosed => return drop(self.input.lock().unwrap().take()),
            EndKind::Term => Signal::TERM,
            EndKind::Int => Signal::INT,
            EndKind::Hup => Signal::HUP,
            EndKind::Kill => Signal::KILL,
        };
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn wait(&mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        self.conversation.take().unwrap().join().unwrap();
        status
    }
}

fn converse(input: &Mutex<Option<ChildStdin>>, output: ChildStdout, directory: &Path) {
    let write = |id: u64, method: &str, params: Value| {
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let mut input = input.lock().unwrap();
        // It may have ended by now.
        let _ = input.as_mut().map(|input| writeln!(input, "{line}"));
    };
    write(1, "initialize", json!({"protocolVersion": 1}));
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        // The last line of a killed bridge may be half.
        let value: Value = serde_json::from_str(&line).unwrap_or_default();
        if value["id"] == 1 {
            write(2, "session/new", json!({"cwd": directory, "mcpServers": []}));
        }
        if value["id"] == 2 {
            let prompt = json!([{"type": "text", "text": "write"}]);
            let session = &value["result"]["sessionId"];
            write(3, "session/prompt", json!({"sessionId": session, "prompt": prompt}));
        }
    }
}

/// What was measured at one end.
struct Measured {
    end_kind: EndKind,
    status: ExitStatus,
    /// Had the CLI written anything by then?
    in_turn: bool,
    /// From asking for the end to the bridge's end.
    ending: Duration,
    /// Processes at the moment of the bridge's end.
    left: usize,
    /// From the bridge's end until no process was left.
    gone: Duration,
    /// How long after the bridge's end the last file was written.
    late_write: Duration,
}

fn one_end(end_kind: EndKind, end_moment: Moment) -> Measured {
    let fixture = Fixture::new();
    let mut bridge = Bridge::start(&fixture);
    match end_moment {
        // The moment is the fault that is played; nothing is waited for.
        Moment::After(delay) => std::thread::sleep(delay),
        Moment::Lines(lines) => until("the CLI writes", || fixture.lines() >= lines),
    }
    let in_turn = fixture.lines() > 0;
    let questions = Instant::now();
    bridge.end(end_kind);
    let status = bridge.wait();
    let (ended, ended_at) = (Instant::now(), SystemTime::now());
    let left = fixture.processes().len();
    until("no process is left", || fixture.processes().is_empty());
    let gone = if left == 0 { Duration::ZERO } else { ended.elapsed() };
    let late = fixture.last_write().and_then(|last| last.duration_since(ended_at).ok());
    let late_write = late.unwrap_or_default();
    Measured { end_kind, status, in_turn, ending: ended - questions, left, gone, late_write }
}

impl Measured {
    fn check(&self, number: u64, end_moment: Moment) {
        let printed =
            format!("end {number}, {:?} at {end_moment:?}: {}", self.end_kind, self.status);
        assert!(self.gone <= GONE_WITHIN, "{printed}: a process was left for {:?}", self.gone);
        // One that was killed outright cannot wait for its CLI; its supervisor is as fast as it is scheduled.
        if self.status.signal().is_none() {
            assert!(self.late_write.is_zero(), "{printed}: written {:?} later", self.late_write);
            assert_eq!(self.status.code(), Some(0), "{printed}");
        } else {
            assert!(
                self.late_write <= GONE_WITHIN,
                "{printed}: written {:?} later",
                self.late_write
            );
        }
    }
}

fn end_moment(dice: &dyn Entropy) -> Moment {
    if dice.bits().is_multiple_of(2) {
        Moment::After(Duration::from_micros(dice.bits() % 400_000))
    } else {
        Moment::Lines(1 + usize::try_from(dice.bits() % 20).unwrap())
    }
}

/// Goal: nothing that the bridge started outlives it.
/// Method: real bridges, a CLI that does everything to survive, ends of every kind at random moments.
#[test]
fn no_process_and_no_write_outlives_the_bridge_however_it_ends() {
    let set = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let deep = std::env::var_os("BUDAO_CRASH_DEEP").is_some();
    let ends = set("BUDAO_ENDS").unwrap_or(if deep { 1_000 } else { 60 });
    let seed = set("BUDAO_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    eprintln!("seed {seed}, {ends} ends");
    let (next, all) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= ends {
                        return;
                    }
                    let dice = world::seeded(seed.wrapping_mul(1_000_003) + number).entropy;
                    let end_kind = WAYS[usize::try_from(number).unwrap() % WAYS.len()];
                    let end_moment = end_moment(&*dice);
                    let measured = one_end(end_kind, end_moment);
                    measured.check(number, end_moment);
                    all.lock().unwrap().push(measured);
                }
            });
        }
    });
    report(&all.into_inner().unwrap());
}

fn report(all: &[Measured]) {
    let mut by_way: BTreeMap<EndKind, Vec<&Measured>> = BTreeMap::new();
    all.iter().for_each(|measured| by_way.entry(measured.end_kind).or_default().push(measured));
    for (end_kind, all) in by_way {
        let worst = |of: fn(&Measured) -> Duration| all.iter().map(|one| of(one)).max().unwrap();
        let count = |holds: fn(&Measured) -> bool| all.iter().filter(|one| holds(one)).count();
        eprintln!(
            "{end_kind:?}: {} ends, {} while the CLI wrote, {} by default action of the signal; bridge gone after at most \
             {:?}; processes left at its end in {}, gone after at most {:?}; files written later in {}, at most {:?}",
            all.len(),
            count(|one| one.in_turn),
            count(|one| one.status.signal().is_some()),
            worst(|one| one.ending),
            count(|one| one.left > 0),
            worst(|one| one.gone),
            count(|one| !one.late_write.is_zero()),
            worst(|one| one.late_write),
        );
    }
}

/// The records of the one session of a journal; none before it is opened.
fn records(directory: &Path) -> String {
    let listed = budao(directory).args(["sessions", "list", "--json"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let Some(line) = listed.lines().next() else { return String::new() };
    let session: Value = serde_json::from_str(line).unwrap();
    let id = session["session"].as_str().unwrap();
    let printed = budao(directory).args(["replay", "--json", id]).output().unwrap();
    String::from_utf8(printed.stdout).unwrap()
}

/// Goal: whoever reads the journal later sees that the turn was over.
/// Method: every end a program can notice, in the middle of a turn.
#[test]
fn the_turn_is_ended_in_the_journal_before_the_bridge_exits() {
    for end_kind in WAYS.into_iter().filter(|end_kind| *end_kind != EndKind::Kill) {
        let fixture = Fixture::new();
        let mut bridge = Bridge::start(&fixture);
        until("the CLI writes", || fixture.lines() > 0);
        until("the turn is recorded", || {
            records(fixture.directory.path()).contains("turn_started")
        });
        bridge.end(end_kind);
        let status = bridge.wait();
        assert_eq!(status.code(), Some(0), "{end_kind:?}: {status}");
        assert_eq!(fixture.processes(), [], "{end_kind:?}");
        let records = records(fixture.directory.path());
        assert!(records.contains("turn_ended"), "{end_kind:?}: {records}");
    }
}

/// Goal: a supervisor is no single point of failure.
/// Method: it is killed while the CLI works; the bridge finds and kills what it supervised.
#[test]
fn processes_of_a_killed_supervisor_are_ended_by_the_bridge() {
    let fixture = Fixture::new();
    let mut bridge = Bridge::start(&fixture);
    until("the CLI writes", || fixture.lines() > 0);
    let is_supervisor = |line: &str| line.starts_with("supervisor ");
    let supervisors = fixture.processes().into_iter().filter(|(_, line)| is_supervisor(line));
    let supervisors: Vec<i32> = supervisors.map(|(pid, _)| pid).collect();
    assert_eq!(supervisors.len(), 1);
    kill_process(Pid::from_raw(supervisors[0]).unwrap(), Signal::KILL).unwrap();
    until("only the bridge is left", || fixture.processes().len() == 1);
    bridge.end(EndKind::InputClosed);
    assert_eq!(bridge.wait().code(), Some(0));
    assert_eq!(fixture.processes(), []);
}
