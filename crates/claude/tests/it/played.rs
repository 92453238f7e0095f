//! A launcher that plays the CLI over pipes. Shared with the tests of the editor bridge.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use budao_claude::{Launch, LaunchSpec, Launcher, RunningCli};
use budao_core::{
    event::SessionId,
    fault::{Fact, Fault, Kind, Operation},
};
use budao_testkit::claude::{CliVersion, play};
use tokio_util::sync::CancellationToken;

/// Plays the CLI over a pipe, and remembers what it was started for.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) age: CliVersion,
    pub(crate) starts: Mutex<Vec<LaunchSpec>>,
    /// The conversations the CLI has.
    pub(crate) persisted: Mutex<BTreeSet<SessionId>>,
    /// Those that run.
    running: Mutex<Vec<CancellationToken>>,
    /// How many run.
    count: Arc<AtomicUsize>,
}

impl Played {
    pub(crate) fn new(age: CliVersion) -> Arc<Self> {
        let (starts, persisted, running) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { age, starts, persisted, running, count: Arc::default() })
    }

    pub(crate) fn launches(&self) -> Vec<Launch> {
        self.starts.lock().unwrap().iter().map(|start| start.launch).collect()
    }

    /// Kills all that run.
    #[allow(dead_code, reason = "not every test that plays it kills it")]
    pub(crate) fn kill(&self) {
        for running in self.running.lock().unwrap().drain(..) {
            running.cancel();
        }
    }

    /// How many run now.
    #[allow(dead_code, reason = "not every test that plays it counts them")]
    pub(crate) fn running(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Can it begin on this conversation?
    fn can_begin(&self, start: &LaunchSpec) -> bool {
        let mut persisted = self.persisted.lock().unwrap();
        match start.launch {
            Launch::Resume => persisted.contains(&start.session),
            Launch::Fresh => persisted.insert(start.session),
            Launch::Fork(parent) => persisted.contains(&parent) && persisted.insert(start.session),
        }
    }
}

fn exit_code(code: i32) -> Fault {
    Fault::new(Kind::CliExited, Operation::ReadCli)
        .with(Fact::Program, "claude")
        .with(Fact::ExitCode, code)
}

#[async_trait]
impl Launcher for Played {
    async fn launch(&self, start: LaunchSpec) -> Result<RunningCli, Fault> {
        let can_begin = self.can_begin(&start);
        let complaint = match start.launch {
            Launch::Resume => "No conversation found with session ID",
            Launch::Fresh | Launch::Fork(_) => "Error: Session ID is already in use.",
        };
        let session = start.session.to_string();
        self.starts.lock().unwrap().push(start);
        let (input, their_input) = tokio::io::duplex(64 * 1024);
        let (output, their_output) = tokio::io::duplex(64 * 1024);
        let stop = CancellationToken::new();
        let (sender, ended) = tokio::sync::oneshot::channel();
        let (age, stopped, count) = (self.age, stop.clone(), Arc::clone(&self.count));
        self.running.lock().unwrap().push(stop.clone());
        count.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(async move {
            let played = async {
                match can_begin {
                    true => drop(play(age, &session, their_input, their_output).await),
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
