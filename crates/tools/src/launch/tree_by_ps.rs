//! Finds and signals the processes of a program through `ps`, for systems without `/proc`.
//!
//! A descendant is found by its parent or its process group. One that left the group and lost its parent between two
//! listings is not found; that needs a subreaper, which only Linux has.

use std::{
    collections::HashSet,
    io::Read as _,
    process::{Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::Processes;

/// Rounds of STOP before KILL. Each round stops the processes that the previous one had not seen.
const STOP_ROUNDS: usize = 8;

/// One line of the output of `ps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessRow {
    pid: i32,
    parent: i32,
    group: i32,
    is_alive: bool,
}

/// Number of processes still running.
pub(crate) fn running(processes: Processes) -> usize {
    found(processes, &list()).iter().filter(|process| process.is_alive).count()
}

/// Sends a signal to every process of the program.
pub(crate) fn signal_all(processes: Processes, signal: Signal) {
    signal_group(processes.group, signal);
    for process in found(processes, &list()) {
        send(process.pid, signal);
    }
}

/// Kills every process. They are stopped first, because a stopped process cannot start another.
pub(crate) fn kill_all(processes: Processes) {
    let mut stopped = HashSet::new();
    signal_group(processes.group, Signal::STOP);
    for _ in 0..STOP_ROUNDS {
        let listed = found(processes, &list());
        let fresh: Vec<i32> =
            listed.iter().map(|process| process.pid).filter(|pid| stopped.insert(*pid)).collect();
        if fresh.is_empty() {
            break;
        }
        fresh.into_iter().for_each(|pid| send(pid, Signal::STOP));
    }
    signal_group(processes.group, Signal::KILL);
    stopped.into_iter().for_each(|pid| send(pid, Signal::KILL));
}

/// Kills the process group of a program whose supervisor was killed. Processes outside the group are not found.
pub(crate) fn sweep(_marker: &str, group: u32) -> usize {
    if let Ok(group) = i32::try_from(group) {
        signal_group(group, Signal::KILL);
    }
    0
}

fn signal_group(group: i32, signal: Signal) {
    // 0 would be the supervisor's own group, 1 every process.
    if group > 1
        && let Some(group) = Pid::from_raw(group)
    {
        // An error means that the group has no processes left.
        let _ = kill_process_group(group, signal);
    }
}

fn send(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // The process may be gone already, which is fine.
        let _ = kill_process(pid, signal);
    }
}

/// The descendants of the root, and the group's processes with their descendants.
fn found(processes: Processes, listed: &[ProcessRow]) -> Vec<ProcessRow> {
    let in_group = |process: &&ProcessRow| processes.group > 1 && process.group == processes.group;
    let mut all: Vec<ProcessRow> = listed.iter().filter(in_group).copied().collect();
    let mut seen: HashSet<i32> = all.iter().map(|process| process.pid).collect();
    let mut parents: Vec<i32> = seen.iter().copied().chain([processes.root]).collect();
    while let Some(parent) = parents.pop() {
        for process in listed.iter().filter(|process| process.parent == parent) {
            if process.pid != processes.root && seen.insert(process.pid) {
                all.push(*process);
                parents.push(process.pid);
            }
        }
    }
    all
}

fn list() -> Vec<ProcessRow> {
    let mut ps = Command::new("ps");
    ps.args(["-A", "-o", "pid=,ppid=,pgid=,stat="]).stdin(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = ps.stdout(Stdio::piped()).spawn() else { return Vec::new() };
    let own = i32::try_from(child.id()).unwrap_or(0);
    let mut output = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        // A read error leaves a partial list, which is better than none.
        drop(stdout.read_to_end(&mut output));
    }
    // The supervisor's reaper may already have reaped this child.
    drop(child.wait());
    let text = String::from_utf8_lossy(&output);
    text.lines().filter_map(read).filter(|process| process.pid != own).collect()
}

fn read(line: &str) -> Option<ProcessRow> {
    let mut words = line.split_whitespace();
    let mut number = || words.next()?.parse::<i32>().ok();
    let (pid, parent, group) = (number()?, number()?, number()?);
    let is_alive = !words.next()?.starts_with('Z');
    Some(ProcessRow { pid, parent, group, is_alive })
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::CommandExt as _,
        time::{Duration, Instant},
    };

    use super::*;

    fn until(condition: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !holds() {
            assert!(Instant::now() < deadline, "never: {condition}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_group_and_what_left_it_are_found_and_killed_without_proc() {
        let script = "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 1000' & sleep 1000 & wait";
        let mut shell = Command::new("sh");
        let mut shell = shell.args(["-c", script]).process_group(0).spawn().unwrap();
        let group = i32::try_from(shell.id()).unwrap();
        let processes = Processes { root: group, group };
        // The shell, its `sleep`, the shell that left the group, and its `sleep`.
        until("four processes", || running(processes) >= 4);
        kill_all(processes);
        shell.wait().unwrap();
        until("no process is left", || running(processes) == 0);
    }

    #[test]
    fn lines_of_ps_are_read_and_others_are_skipped() {
        let listed = ProcessRow { pid: 12, parent: 1, group: 12, is_alive: true };
        assert_eq!(read("   12     1    12 Ss+"), Some(listed));
        assert_eq!(read("13 1 12 Z"), Some(ProcessRow { pid: 13, is_alive: false, ..listed }));
        assert_eq!(read("PID PPID PGID STAT"), None);
        assert_eq!(read("12 1"), None);
    }
}
