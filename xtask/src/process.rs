//! Runs other programs: the one place for their environment, their time limit and their error messages.
//!
//! Children stay in our process group, so that Ctrl-C and a runner's kill reach them too. After a time limit we
//! therefore have to find and kill the child's descendants ourselves.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::repo;

/// Interval at which a child's exit is polled.
const POLL: Duration = Duration::from_millis(20);

/// How long output is read after a child has ended. A grandchild that keeps a pipe open delays us no longer than this.
const DRAIN: Duration = Duration::from_secs(2);

/// The output stream that a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// The output of a child, and its exit status.
#[derive(Debug)]
pub(crate) struct ProcessOutput {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A command in `dir`, without the variables that `cargo run` added to our own environment.
///
/// Some build scripts run again when those variables change (ring's does); keeping them would rebuild half the tree
/// between `cargo xtask test` and a plain `cargo build`.
pub(crate) fn command(program: &str, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(dir).stdin(Stdio::null());
    for (name, _) in env::vars_os() {
        let Some(name) = name.to_str() else { continue };
        if is_set_by_cargo_run(name) {
            command.env_remove(name);
        }
    }
    command
}

/// The cargo that started us, working on the repository at `root`.
pub(crate) fn cargo(root: &Path) -> Command {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = command(&cargo, root);
    if env::var_os("CARGO_TERM_COLOR").is_none() {
        command.env("CARGO_TERM_COLOR", if is_colour_welcome() { "always" } else { "never" });
    }
    if repo::is_ci() && env::var_os("CARGO_INCREMENTAL").is_none() {
        // A cold build is not continued, so what incremental builds store is wasted.
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

fn is_set_by_cargo_run(name: &str) -> bool {
    name.starts_with("CARGO_PKG_")
        || matches!(
            name,
            "CARGO"
                | "CARGO_BIN_NAME"
                | "CARGO_CRATE_NAME"
                | "CARGO_MANIFEST_DIR"
                | "CARGO_MANIFEST_PATH"
                | "CARGO_PRIMARY_PACKAGE"
                | "OUT_DIR"
        )
}

/// True on a terminal, unless the user asked for plain text.
pub(crate) fn is_colour_welcome() -> bool {
    use std::io::IsTerminal as _;
    std::io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none()
}

/// The command as a user would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
    let mut words = vec![name.into_owned()];
    words.extend(command.get_args().map(|arg| arg.to_string_lossy().into_owned()));
    shell_words::join(words)
}

/// Ticks a second in the files of `/proc`, on every platform that we build for.
const TICKS: u64 = 100;

/// The processor time of all children that ended, and of theirs. Linux only.
pub(crate) fn cpu_of_children() -> Result<Duration> {
    let text = fs::read_to_string("/proc/self/stat").context("read our own `stat`")?;
    let (_, fields) = text.rsplit_once(')').context("find the end of our name in `stat`")?;
    // `cutime` and `cstime` are the fields 16 and 17 of proc(5); the name is the second.
    let ticks = fields.split_whitespace().skip(13).take(2).map(str::parse::<u64>);
    let ticks = ticks.sum::<Result<u64, _>>().context("read the times in `stat`")?;
    Ok(Duration::from_millis(ticks.saturating_mul(1000 / TICKS)))
}

/// Runs a command on our own terminal; returns an error if it does not succeed.
pub(crate) fn run(command: &mut Command, deadline: Option<Instant>) -> Result<()> {
    println!("$ {}", shown(command));
    let mut child = spawn(command)?;
    loop {
        if let Some(status) = child.try_wait().context("wait for a child")? {
            return ended_well(command, status);
        }
        if is_past(deadline) {
            kill_tree(&mut child);
            bail!("`{}` was stopped: its time limit had passed", shown(command));
        }
        thread::sleep(POLL);
    }
}

/// A silent test run is stopped after this time. Under nextest and in Node a test that hangs is ended sooner, by its own limit
/// (`.config/nextest.toml`); this ends a hang under cargo's runner, pytest and the harnesses, which have none.
const SILENCE: Duration = Duration::from_secs(20 * 60);

/// When a command is stopped.
#[derive(Debug, Clone, Copy)]
enum Limit {
    At(Option<Instant>),
    /// After it has printed nothing for so long.
    Silence(Duration),
}

impl Limit {
    fn is_past(self, last_line: Instant) -> bool {
        match self {
            Self::At(deadline) => is_past(deadline),
            Self::Silence(limit) => last_line.elapsed() >= limit,
        }
    }
}

/// Runs a command and passes each line to `each` as it comes. The caller judges the exit status.
pub(crate) fn follow(
    command: &mut Command,
    deadline: Option<Instant>,
    each: impl FnMut(Stream, &str),
) -> Result<ExitStatus> {
    follow_within(command, Limit::At(deadline), each)
}

/// As [`follow`], for tests: they may take any time, but a run that prints nothing for 20 minutes hangs.
pub(crate) fn follow_tests(
    command: &mut Command,
    each: impl FnMut(Stream, &str),
) -> Result<ExitStatus> {
    follow_within(command, Limit::Silence(SILENCE), each)
}

fn follow_within(
    command: &mut Command,
    limit: Limit,
    mut each: impl FnMut(Stream, &str),
) -> Result<ExitStatus> {
    let ended = attend(command, "", limit, |stream, line| {
        each(stream, line);
        ControlFlow::Continue(())
    })?;
    ended.context("nobody stopped the command, yet it has no exit status")
}

/// Starts a command, sends `input`, waits for a line that contains `text`, and kills the command if it still runs.
/// Returns all output, and whether the line came.
pub(crate) fn converse(
    command: &mut Command,
    input: &str,
    text: &str,
    deadline: Instant,
) -> Result<(String, bool)> {
    let (mut said, mut is_heard) = (String::new(), false);
    attend(command, input, Limit::At(Some(deadline)), |_, line| {
        said.push_str(line);
        said.push('\n');
        is_heard = line.contains(text);
        if is_heard { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok((said, is_heard))
}

/// Runs a command until it ends, or until `each` ends it: then it is killed and has no status.
fn attend(
    command: &mut Command,
    input: &str,
    limit: Limit,
    mut each: impl FnMut(Stream, &str) -> ControlFlow<()>,
) -> Result<Option<ExitStatus>> {
    command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn(command)?;
    let (lines, heard) = mpsc::channel();
    if let Some(pipe) = child.stdout.take() {
        let lines = lines.clone();
        thread::spawn(move || read_lines(pipe, Stream::Out, &lines));
    }
    if let Some(pipe) = child.stderr.take() {
        thread::spawn(move || read_lines(pipe, Stream::Err, &lines));
    }
    // Stays open until the child ends: some servers exit as soon as their input closes.
    let mut stdin = child.stdin.take();
    if let Some(pipe) = &mut stdin {
        // A child that exits before reading reports that by its status.
        pipe.write_all(input.as_bytes()).and_then(|()| pipe.flush()).ok();
    }
    let mut ended: Option<(ExitStatus, Instant)> = None;
    let mut last_line = Instant::now();
    loop {
        match heard.recv_timeout(POLL) {
            Ok((stream, line)) => {
                last_line = Instant::now();
                if each(stream, &line).is_break() {
                    kill_tree(&mut child);
                    return Ok(None);
                }
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => {
                if let Some((status, _)) = ended {
                    return Ok(Some(status));
                }
                thread::sleep(POLL);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        match ended {
            None => ended = child.try_wait()?.map(|status| (status, Instant::now())),
            Some((status, at)) if at.elapsed() > DRAIN => return Ok(Some(status)),
            Some(_) => {}
        }
        if ended.is_none() && limit.is_past(last_line) {
            kill_tree(&mut child);
            bail!("`{}` was stopped: its time limit had passed", shown(command));
        }
    }
}

/// Runs a command to its end and returns all its output.
pub(crate) fn capture(command: &mut Command, limit: Duration) -> Result<ProcessOutput> {
    let (mut stdout, mut stderr) = (String::new(), String::new());
    let status = follow(command, Some(Instant::now() + limit), |stream, line| {
        let text = match stream {
            Stream::Out => &mut stdout,
            Stream::Err => &mut stderr,
        };
        text.push_str(line);
        text.push('\n');
    })?;
    Ok(ProcessOutput { status, stdout, stderr })
}

/// As [`capture`], but returns an error with the command's output if it does not succeed.
pub(crate) fn output_of(command: &mut Command, limit: Duration) -> Result<String> {
    let said = capture(command, limit)?;
    if !said.status.success() {
        bail!("`{}` failed ({}):\n{}", shown(command), said.status, said.stderr.trim_end());
    }
    Ok(said.stdout)
}

pub(crate) fn ended_well(command: &Command, status: ExitStatus) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    bail!("`{}` failed ({status})", shown(command))
}

fn spawn(command: &mut Command) -> Result<Child> {
    command.spawn().with_context(|| format!("start `{}`", shown(command)))
}

fn is_past(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

fn read_lines(pipe: impl Read, stream: Stream, lines: &mpsc::Sender<(Stream, String)>) {
    let mut pipe = BufReader::new(pipe);
    let mut raw = Vec::new();
    while pipe.read_until(b'\n', &mut raw).is_ok_and(|read| read > 0) {
        let line = String::from_utf8_lossy(&raw);
        let line = line.trim_end_matches(['\n', '\r']).to_owned();
        if lines.send((stream, line)).is_err() {
            return;
        }
        raw.clear();
    }
}

/// Kills the child and all its descendants.
fn kill_tree(child: &mut Child) {
    let family = descendants(child.id(), &parents());
    // The child is killed first, so that it cannot start replacements for its descendants. Errors are ignored, because
    // any of them may have ended by itself.
    child.kill().ok();
    for pid in family.into_iter().filter_map(|pid| Pid::from_raw(pid.cast_signed())) {
        kill_process(pid, Signal::KILL).ok();
    }
    child.wait().ok();
}

/// Every process id with its parent's, as far as `/proc` is readable.
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            Some((pid, parent_in_stat(&stat)?))
        })
        .collect()
}

/// The parent in a line of `/proc/PID/stat`. The program's name precedes it in parentheses, and may itself contain
/// spaces and parentheses.
fn parent_in_stat(stat: &str) -> Option<u32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(1)?.parse().ok()
}

fn descendants(root: u32, parents: &[(u32, u32)]) -> Vec<u32> {
    let mut family = vec![root];
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        family.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    family.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = command("sh", Path::new("."));
        command.args(["-c", script]);
        command
    }

    #[test]
    fn keeps_the_two_outputs_apart() {
        let said = capture(&mut sh("echo a; echo b >&2; exit 3"), Duration::from_secs(10)).unwrap();
        assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("a\n", "b\n"));
        assert_eq!(said.status.code(), Some(3));
    }

    #[test]
    fn a_server_is_left_as_soon_as_it_has_answered() {
        let mut server = sh("read line; echo got $line; sleep 60");
        let deadline = Instant::now() + Duration::from_secs(30);
        let heard = converse(&mut server, "hello\n", "got hello", deadline).unwrap();
        assert_eq!(heard, ("got hello\n".to_owned(), true));
        let heard = converse(&mut sh("echo other"), "", "got hello", deadline).unwrap();
        assert_eq!(heard, ("other\n".to_owned(), false));
    }

    #[test]
    fn a_time_limit_ends_the_whole_family() {
        let mut grandchild = None;
        let deadline = Some(Instant::now() + Duration::from_secs(2));
        let ended = follow(&mut sh("sleep 60 & echo $!; wait"), deadline, |_, line| {
            grandchild = line.parse::<u32>().ok();
        });
        assert!(ended.unwrap_err().to_string().contains("time limit"));
        let pid = grandchild.expect("the shell names its child");
        let alive = || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z ")
        };
        let patience = Instant::now() + Duration::from_secs(60);
        while alive() && Instant::now() < patience {
            thread::sleep(POLL);
        }
        assert!(!alive(), "the grandchild outlived the limit");
    }

    #[test]
    fn only_silence_counts_against_tests() {
        let limit = || Limit::Silence(Duration::from_secs(2));
        let mut talking = sh("for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.3; done");
        assert!(follow_within(&mut talking, limit(), |_, _| {}).unwrap().success());
        let stopped = follow_within(&mut sh("echo 1; sleep 60"), limit(), |_, _| {});
        assert!(stopped.unwrap_err().to_string().contains("time limit"));
    }

    #[test]
    fn a_pipe_left_open_does_not_keep_us() {
        let started = Instant::now();
        let said = capture(&mut sh("sleep 30 & echo done"), Duration::from_secs(60)).unwrap();
        assert_eq!(said.stdout, "done\n");
        assert!(started.elapsed() < Duration::from_secs(25));
    }

    #[test]
    fn reads_the_parent_behind_a_strange_name() {
        assert_eq!(parent_in_stat("71 (a) S (b) S 12 71 71 0"), Some(12));
        assert_eq!(parent_in_stat("nonsense"), None);
    }

    #[test]
    fn finds_children_of_children() {
        let mut found = descendants(1, &[(4, 3), (2, 1), (3, 2), (9, 8)]);
        found.sort_unstable();
        assert_eq!(found, [2, 3, 4]);
    }
}
