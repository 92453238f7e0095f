//! Servers as processes of their own: ours and those of others. CPU time and memory are theirs alone.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// A running server.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// Where its journal is, if it has one.
    _folder: Option<tempfile::TempDir>,
}

/// Where sessions are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    Memory,
    Durable,
}

impl Server {
    /// Ours: this program, told to serve.
    pub(crate) fn ours(kept: Storage) -> Self {
        let folder = (kept == Storage::Durable).then(|| tempfile::tempdir().expect("a folder"));
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg(crate::SERVE);
        if let Some(folder) = &folder {
            command.arg(folder.path().join("journal.db"));
        }
        Self::start(&mut command, folder)
    }

    /// Ours, with a journal on disk and the bounds of an operator who expects crowds.
    pub(crate) fn bounded(is_narrow: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg(crate::SERVE).arg(folder.path().join("journal.db"));
        command.arg(if is_narrow { crate::NARROW } else { "bounded" });
        Self::start(&mut command, Some(folder))
    }

    /// The WebSocket library alone: this program too.
    pub(crate) fn floor() -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        Self::start(command.arg(crate::FLOOR), None)
    }

    /// The reference's own library, doing what the reference does for each event.
    pub(crate) fn websockets() -> Option<Self> {
        let python = peer("websockets")?.join("bin/python");
        let mut command = Command::new(python);
        command.arg("-B").arg(script("websockets/server.py"));
        Some(Self::start(&mut command, None))
    }

    /// Socket.IO on Node.
    pub(crate) fn socketio() -> Option<Self> {
        let mut command = Command::new("node");
        command.arg(script("socketio-js/server.mjs")).arg(peer("socketio-js")?);
        Some(Self::start(&mut command, None))
    }

    /// Starts a program that says where it listens in its first line.
    fn start(command: &mut Command, folder: Option<tempfile::TempDir>) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("a server starts");
        let mut line = String::new();
        let out = child.stdout.take().expect("it is piped");
        BufReader::new(out).read_line(&mut line).expect("it says where it listens");
        let address = line.trim().parse().expect("an address");
        Self { child, address, _folder: folder }
    }

    /// CPU time it has used so far, with that of the kernel for it. In hundredths of a second.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = self.proc("stat");
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        // `utime` and `stime` are the 14th and 15th field; two are before the end of the name.
        let ticks: u64 = after_name
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|ticks| ticks.parse::<u64>().expect("a number"))
            .sum();
        Duration::from_millis(ticks * 10)
    }

    /// Resident bytes.
    pub(crate) fn resident(&self) -> u64 {
        let statm = self.proc("statm");
        let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
        pages.expect("a number") * 4096
    }

    fn proc(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).expect("it runs")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where a peer is, if `cargo xtask peers` has fetched it.
fn peer(name: &str) -> Option<PathBuf> {
    let set =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("BUDAO_PEERS")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("budao/peers")))
        .or_else(|| Some(set("HOME")?.join(".cache/budao/peers")))?
        .join(name);
    if !folder.is_dir() {
        eprintln!("NOT MEASURED: the peer is not there; `cargo xtask peers {name}`");
    }
    folder.is_dir().then_some(folder)
}

fn script(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../xtask/peers")).join(path)
}
