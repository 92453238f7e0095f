//! A launcher that plays the Claude CLI over pipes, for tests of the Claude engine, of the bridge to editors, and for the
//! simulator.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use budao_claude::{Launch, LaunchSpec, Launcher, RunningCli};
use budao_core::{
    event::SessionId,
    fault::{Fact, Fault, Kind, Operation},
};
use tokio_util::sync::CancellationToken;

use crate::claude::{CliVersion, play};

/// Plays the CLI over pipes, and keeps the specifications that it was started with.
#[derive(Debug)]
pub struct PlayedCliLauncher {
    /// The version that the CLI plays.
    pub version: CliVersion,
    starts: Mutex<Vec<LaunchSpec>>,
    /// The conversations that the CLI has on its disk.
    persisted: Mutex<BTreeSet<SessionId>>,
    running: Mutex<Vec<CancellationToken>>,
    running_count: Arc<AtomicUsize>,
}

impl PlayedCliLauncher {
    /// A launcher that has started nothing.
    #[must_use]
    pub fn new(version: CliVersion) -> Arc<Self> {
        Arc::new(Self {
            version,
            starts: Mutex::default(),
            persisted: Mutex::default(),
            running: Mutex::default(),
            running_count: Arc::default(),
        })
    }

    /// The specifications of all starts so far.
    pub fn starts(&self) -> MutexGuard<'_, Vec<LaunchSpec>> {
        lock(&self.starts)
    }

    /// How each start began.
    #[must_use]
    pub fn launches(&self) -> Vec<Launch> {
        self.starts().iter().map(|start| start.launch).collect()
    }

    /// The conversations that the CLI has on its disk.
    pub fn persisted(&self) -> MutexGuard<'_, BTreeSet<SessionId>> {
        lock(&self.persisted)
    }

    /// Kills all CLIs that run.
    pub fn kill(&self) {
        for running in lock(&self.running).drain(..) {
            running.cancel();
        }
    }

    /// The number of CLIs that run now.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running_count.load(Ordering::SeqCst)
    }

    /// Whether the CLI can begin on this conversation.
    fn can_begin(&self, start: &LaunchSpec) -> bool {
        let mut persisted = self.persisted();
        match start.launch {
            Launch::Resume => persisted.contains(&start.session),
            Launch::Fresh => persisted.insert(start.session),
            Launch::Fork(parent) => persisted.contains(&parent) && persisted.insert(start.session),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no code panics while holding this")
}

fn exit_code(code: i32) -> Fault {
    Fault::new(Kind::CliExited, Operation::ReadCli)
        .with(Fact::Program, "claude")
        .with(Fact::ExitCode, code)
}

#[async_trait]
impl Launcher for PlayedCliLauncher {
    async fn launch(&self, start: LaunchSpec) -> Result<RunningCli, Fault> {
        let can_begin = self.can_begin(&start);
        let complaint = match start.launch {
            Launch::Resume => "No conversation found with session ID",
            Launch::Fresh | Launch::Fork(_) => "Error: Session ID is already in use.",
        };
        let session = start.session.to_string();
        self.starts().push(start);
        let (input, their_input) = tokio::io::duplex(64 * 1024);
        let (output, their_output) = tokio::io::duplex(64 * 1024);
        let stop = CancellationToken::new();
        let (sender, ended) = tokio::sync::oneshot::channel();
        let (version, stopped) = (self.version, stop.clone());
        let count = Arc::clone(&self.running_count);
        lock(&self.running).push(stop.clone());
        count.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(async move {
            let played = async {
                match can_begin {
                    true => drop(play(version, &session, their_input, their_output).await),
                    false => drop((their_input, their_output)),
                }
            };
            tokio::select! {
                biased;
                () = stopped.cancelled() => {}
                () = played => {}
            }
            count.fetch_sub(1, Ordering::SeqCst);
            drop(sender.send(match can_begin {
                true => exit_code(7),
                false => exit_code(1).with(Fact::StderrTail, complaint),
            }));
        });
        let ended = Box::pin(async move { ended.await.unwrap_or_else(|_| exit_code(9)) });
        Ok(RunningCli { pid: None, input: Box::new(input), output: Box::new(output), stop, ended })
    }
}
