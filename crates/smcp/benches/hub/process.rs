//! Hubs and computers as processes of their own, so that their CPU time and memory are theirs alone.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

/// A child that ends when it is dropped: its input ends.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    _stdin: Option<ChildStdin>,
    /// The rest of the line it said first, after the word that was waited for.
    pub(crate) first_line: String,
}

impl Process {
    /// Starts a program and waits until a line of it begins with `word`.
    pub(crate) fn start(program: &Path, args: &[&str], word: &str) -> Self {
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let stdin = child.stdin.take();
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let first_line = loop {
            let line = lines.next().expect("it ended early").expect("it says text");
            if let Some(rest) = line.strip_prefix(word) {
                break rest.trim().to_owned();
            }
        };
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, _stdin: stdin, first_line }
    }

    /// Our own program in another part.
    pub(crate) fn of_ourselves(args: &[&str], word: &str) -> Self {
        Self::start(&std::env::current_exe().expect("we are a program"), args, word)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.first_line)
    }

    /// CPU time of it and of its children now alive.
    pub(crate) fn cpu(&self) -> Duration {
        let own = self.child.id();
        // A child belongs to the thread that started it.
        let threads = fs::read_dir(format!("/proc/{own}/task")).into_iter().flatten().flatten();
        let children: Vec<String> = threads
            .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
            .collect();
        let ids = children.iter().flat_map(|ids| ids.split_whitespace());
        let ids = ids.filter_map(|id| id.parse().ok());
        std::iter::once(own).chain(ids).map(cpu_of).sum()
    }

    /// Bytes resident.
    pub(crate) fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("it is alive");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.expect("Linux says it") * 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// User and system time, counted by the kernel in hundredths of a second.
fn cpu_of(id: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|ticks| ticks.parse::<u64>().ok());
    Duration::from_millis((ticks(11).unwrap_or(0) + ticks(12).unwrap_or(0)) * 10)
}

/// A peer's folder, or nothing and a word.
pub(crate) fn peer(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("BUDAO_PEERS").map(PathBuf::from);
    let folder = folder
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/budao/peers")));
    let found = folder.map(|folder| folder.join(name)).filter(|path| path.exists());
    if found.is_none() {
        eprintln!("the peer {name} is not here: `cargo xtask peers {name}`");
    }
    found
}
