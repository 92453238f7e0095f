//! Processes that run beside a smoke command, or before it: a hub, a computer in its room, a server, a session.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use crate::process;

/// Time limit for each of them to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// A companion that a row can request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Companion {
    /// A hub; `BUDAO_SMCP_URL` holds its address.
    Hub,
    /// A computer `my-pc` in the room `office` of that hub, from `computer.json`.
    Computer,
    /// A session that has run; its id replaces `{session}`.
    Session,
}

/// The running companions of a command. Dropping them kills the processes.
#[derive(Debug, Default)]
pub(super) struct Companions {
    hub: Option<String>,
    session: Option<String>,
    running: Vec<ChildGuard>,
}

#[derive(Debug)]
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Companions {
    pub(super) fn start(wanted: &[Companion], binary: &Path, home: &Path) -> Result<Self> {
        let mut around = Self::default();
        for beside in wanted {
            match beside {
                Companion::Hub => {
                    let args = ["smcp", "server", "--listen", "127.0.0.1:0", "--accept-any-token"];
                    let line = around.begin(binary, home, &args, "listening on ")?;
                    around.hub = line.rsplit(' ').next().map(str::to_owned);
                }
                Companion::Computer => {
                    let args = ["smcp", "computer", "--config", "computer.json", "--name", "my-pc"];
                    around.begin(binary, home, &[&args[..], &["office"]].concat(), "joined")?;
                }
                Companion::Session => {
                    let mut command = around.command(binary, home);
                    command.args(["run", "--model", "demo:fast", "say hello"]);
                    let said = process::capture(&mut command, READY_TIMEOUT)?;
                    let id = said.stderr.lines().find_map(|line| line.strip_prefix("session "));
                    around.session = id.map(str::to_owned);
                    ensure!(around.session.is_some(), "no session was made:\n{}", said.stderr);
                }
            }
        }
        Ok(around)
    }

    /// A command for the binary, with an empty home.
    pub(super) fn command(&self, binary: &Path, home: &Path) -> Command {
        let mut command = process::command(&binary.to_string_lossy(), home);
        self.environment(&mut command, home);
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command
    }

    /// A shell command line, with the binary on the path.
    pub(super) fn shell(&self, binary: &Path, home: &Path, line: &str) -> Result<Command> {
        let mut command = process::command("sh", home);
        self.environment(&mut command, home);
        let here = binary.parent().map(Path::to_path_buf);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path: Vec<PathBuf> = here.into_iter().chain(std::env::split_paths(&path)).collect();
        command.env("PATH", std::env::join_paths(path).context("join the path")?);
        command.args(["-c", &self.filled(line)]);
        Ok(command)
    }

    fn environment(&self, command: &mut Command, home: &Path) {
        command.env_clear().env("HOME", home).env("LANG", "C.UTF-8");
        command.envs(self.hub.iter().map(|hub| ("BUDAO_SMCP_URL", hub)));
    }

    /// The text with its placeholders replaced.
    pub(super) fn filled(&self, text: &str) -> String {
        match &self.session {
            Some(session) => text.replace("{session}", session),
            None => text.to_owned(),
        }
    }

    /// Starts a process that keeps running, and waits for a line that begins with `says`.
    fn begin(&mut self, binary: &Path, home: &Path, args: &[&str], says: &str) -> Result<String> {
        let mut command = self.command(binary, home);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| process::shown(&command))?;
        let pipe = child.stderr.take().context("its standard error is piped")?;
        self.running.push(ChildGuard(child));
        let (lines, heard) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                // The receiver is gone after the first match; reading on keeps the process from blocking on its output.
                let _ = lines.send(line);
            }
        });
        let until = Instant::now() + READY_TIMEOUT;
        let mut said = String::new();
        while let Ok(line) = heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
            if line.starts_with(says) {
                return Ok(line);
            }
            said.push_str(&line);
            said.push('\n');
        }
        bail!("`{}` did not say `{says}`:\n{said}", process::shown(&command))
    }
}
