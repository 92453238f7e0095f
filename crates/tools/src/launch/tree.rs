//! Finds and signals the descendants of a process through Linux's `/proc`.
//!
//! A process id can be reused as soon as its process is gone. So signals are sent through a pidfd, and only after
//! checking, with the pidfd open, that the process still has the expected parent.

use std::{
    collections::{HashMap, HashSet},
    fs,
};

use super::Processes;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Rounds of STOP before KILL. Each round stops the processes that the previous one had not seen.
const FREEZE_ROUNDS: usize = 64;

/// A descendant of the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descendant {
    pid: i32,
    parent: i32,
    alive: bool,
}

/// All descendants of `root`, parents before children.
pub(crate) fn descendants(root: i32) -> Vec<Descendant> {
    let mut all: Vec<Descendant> = Vec::new();
    let mut seen = HashSet::from([root]);
    let mut parents = vec![root];
    let mut by_stat = None;
    while let Some(parent) = parents.pop() {
        let children = match listed_children(parent) {
            Some(children) => children,
            // The kernel keeps no list of children: reads the parent of every process instead, once.
            None => by_stat.get_or_insert_with(everybody).get(&parent).cloned().unwrap_or_default(),
        };
        for pid in children {
            if seen.insert(pid) {
                let alive = stat(pid).is_some_and(|stat| stat.alive);
                all.push(Descendant { pid, parent, alive });
                parents.push(pid);
            }
        }
    }
    all
}

/// Number of processes still running; zombies do not count.
pub(crate) fn running(processes: Processes) -> usize {
    descendants(processes.root).iter().filter(|process| process.alive).count()
}

/// Sends a signal to every process of the program.
pub(crate) fn signal_all(processes: Processes, signal: Signal) {
    signal_below(processes.root, signal);
}

fn signal_below(root: i32, signal: Signal) {
    for process in descendants(root) {
        send(root, process, signal);
    }
}

/// Kills every process. They are stopped first, because a stopped process cannot start another.
pub(crate) fn kill_all(processes: Processes) {
    let root = processes.root;
    let mut stopped = HashSet::new();
    for _ in 0..FREEZE_ROUNDS {
        let fresh: Vec<_> =
            descendants(root).into_iter().filter(|one| stopped.insert(one.pid)).collect();
        if fresh.is_empty() {
            break;
        }
        for process in fresh {
            send(root, process, Signal::STOP);
        }
    }
    signal_below(root, Signal::KILL);
}

/// Kills every process with `marker` in its environment. Last resort for when a supervisor itself was killed. Returns
/// the number of processes killed.
pub(crate) fn sweep(marker: &str, _group: u32) -> usize {
    let mut killed = 0;
    for pid in pids() {
        let Some(handle) =
            Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
        else {
            continue;
        };
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { continue };
        let marked = environment.split(|byte| *byte == 0).any(|entry| entry == marker.as_bytes());
        if marked && pidfd_send_signal(&handle, Signal::KILL).is_ok() {
            killed += 1;
        }
    }
    killed
}

fn send(root: i32, process: Descendant, signal: Signal) {
    let Some(pid) = Pid::from_raw(process.pid) else { return };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    // The process belongs to the program if its parent is unchanged or, after being orphaned, is the root.
    let ours =
        stat(process.pid).is_some_and(|stat| stat.parent == process.parent || stat.parent == root);
    if ours {
        // The process may be gone already, which is fine.
        let _ = pidfd_send_signal(&handle, signal);
    }
}

/// The children as the kernel lists them; `None` if it keeps no list.
fn listed_children(pid: i32) -> Option<Vec<i32>> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        // The process is gone and has no children.
        return Some(Vec::new());
    };
    let mut children = Vec::new();
    let mut unlisted = false;
    for thread in threads.flatten() {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(list) => {
                children.extend(list.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
            }
            Err(_) => unlisted |= thread.path().exists(),
        }
    }
    (!unlisted).then_some(children)
}

fn everybody() -> HashMap<i32, Vec<i32>> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for pid in pids() {
        if let Some(stat) = stat(pid) {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    children
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

struct Stat {
    parent: i32,
    alive: bool,
}

/// Parent and state of a process. The program's name is in parentheses and may contain any character, so the fields
/// are counted from the last parenthesis.
fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after = text.iter().rposition(|byte| *byte == b')')?;
    let rest = String::from_utf8_lossy(&text[after + 1..]).into_owned();
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    Some(Stat { parent, alive: !matches!(state, "Z" | "X" | "x") })
}
