//! A running command: a shell under a supervisor, or in its own process group without one.
//!
//! Dropping the handle ends the command.

use std::{io, time::Duration};

use budao_core::{
    Timestamp,
    fault::{Fact, Fault, Kind, Operation},
    world::World,
};
use futures::future::BoxFuture;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    net::unix::pipe::Receiver,
};
use tokio_util::sync::CancellationToken;

use super::super::{BuiltinOptions, Workspace, budget};
use crate::{
    contract::CallContext,
    launch::{Child, CommandExit, Confinement, GracePeriods, Start, StartError},
};

/// Time after the grace before a command that does not end is given up.
const GIVE_UP: Duration = Duration::from_secs(7);
/// Time reserved for the kill and for reporting it.
const ENDING: Duration = Duration::from_millis(400);
/// How long to read remaining output after the command has ended.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// The longest single argument that the Linux kernel accepts, in bytes.
const COMMAND_BYTES_MAX: usize = 128 * 1024 - 1;

/// The inputs for starting a command.
#[derive(Debug)]
pub(super) struct CommandSpec<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) options: &'a BuiltinOptions,
    pub(super) command: &'a str,
    pub(super) context: &'a CallContext,
}

/// The stream that a piece of output came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputStream {
    Out,
    Err,
}

/// The reason for the end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndReason {
    /// The command ended by itself.
    Exited,
    Deadline,
    Cancelled,
}

/// The result of a command that has ended.
#[derive(Debug)]
pub(super) struct CommandResult {
    pub(super) reason: EndReason,
    pub(super) ended: CommandExit,
    pub(super) elapsed: Duration,
}

/// A running command. Dropping it ends the command.
#[derive(Debug)]
pub(super) struct RunningCommand {
    child: Child,
    out: Option<Receiver>,
    err: Option<Receiver>,
    grace: Duration,
    world: World,
    since: Timestamp,
}

/// Starts a command in the workspace.
pub(super) async fn start(setup: &CommandSpec<'_>) -> Result<RunningCommand, Fault> {
    if setup.command.len() > COMMAND_BYTES_MAX {
        return Err(not_started(setup, "the command line is too long; put it into a file"));
    }
    if setup.command.contains('\0') {
        return Err(not_started(setup, "the command line contains a NUL"));
    }
    let grace = grace(setup.context);
    let mut start = Start::new("bash", setup.context.world.uuid().as_u128());
    start.programs.push("sh".into());
    start.args = vec!["-c".into(), setup.command.into()];
    start.inherits_env = false;
    start.env = setup
        .options
        .environment
        .variables()
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    start.directory = Some(setup.workspace.path().to_path_buf());
    // If the call is dropped, the command is killed at once, because its file changes would not be recorded.
    start.grace_periods = GracePeriods { stop: grace, orphan: Duration::ZERO, left: grace };
    start.confine = setup.options.confine.as_ref().map(|confine| with_workspace(confine, setup));
    match start.start(setup.options.launcher.as_ref()).await {
        Ok(child) => Ok(RunningCommand::new(child, grace, setup.context)),
        Err(StartError::Refused(reason)) => Err(refused(&reason)),
        Err(StartError::Program(error) | StartError::Supervisor(error)) => {
            Err(spawn_fault(setup, &error))
        }
        Err(StartError::Lost(ended)) => Err(lost(setup, &ended)),
    }
}

/// The fault for a supervisor that died before it reported the start. The command, if it started, was killed.
fn lost(setup: &CommandSpec<'_>, ended: &CommandExit) -> Fault {
    match ended.signal {
        Some(signal) => Fault::new(Kind::KilledBySignal, Operation::RunCommand)
            .with(Fact::Signal, super::signal_name(signal))
            .with(Fact::Command, budget::head(setup.command, 300).to_owned()),
        None => not_started(setup, "the launcher did not answer"),
    }
}

/// Adds the workspace and the standard devices to the writable paths.
fn with_workspace(confine: &Confinement, setup: &CommandSpec<'_>) -> Confinement {
    let mut confine = confine.clone();
    confine.write.push(setup.workspace.path().to_path_buf());
    let devices =
        ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
    confine
        .write
        .extend(devices.iter().map(Into::into).filter(|path: &std::path::PathBuf| path.exists()));
    confine
}

impl RunningCommand {
    fn new(mut child: Child, grace: Duration, context: &CallContext) -> Self {
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let (world, since) = (context.world.clone(), context.world.clock.now());
        Self { child, out, err, grace, world, since }
    }

    /// Waits for the command, and ends it on timeout or cancellation. `take` receives the output as it arrives.
    pub(super) async fn finish(
        mut self,
        timeout: Option<Duration>,
        cancel: &CancellationToken,
        mut take: impl FnMut(OutputStream, &[u8]),
    ) -> CommandResult {
        let clock = self.world.clock.clone();
        let mut deadline = timeout.map_or_else(never, |timeout| clock.sleep(timeout));
        let (mut kill_at, mut give_up_at) = (never(), never());
        let mut reason = EndReason::Exited;
        let mut buffers = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
        let ended = loop {
            let stop = tokio::select! {
                biased;
                () = cancel.cancelled(), if reason == EndReason::Exited => EndReason::Cancelled,
                () = &mut deadline => EndReason::Deadline,
                () = &mut kill_at => {
                    self.child.kill();
                    kill_at = never();
                    continue;
                }
                () = &mut give_up_at => break self.child.give_up().await,
                ended = self.child.wait() => break ended,
                // Standard output is read before error output, so that error messages come last.
                read = read(&mut self.out, &mut buffers.1) => {
                    take(OutputStream::Out, &buffers.1[..read]);
                    continue;
                }
                read = read(&mut self.err, &mut buffers.0) => {
                    take(OutputStream::Err, &buffers.0[..read]);
                    continue;
                }
            };
            reason = stop;
            self.child.terminate();
            deadline = never();
            kill_at = clock.sleep(self.grace);
            give_up_at = clock.sleep(self.grace + GIVE_UP);
        };
        let elapsed = clock.now().since(self.since);
        self.drain(&mut buffers, &mut take).await;
        CommandResult { reason, ended, elapsed }
    }

    /// Reads the rest of the pipes. Stops after `DRAIN_MAX` if another process keeps a pipe open.
    async fn drain(
        &mut self,
        buffers: &mut (Vec<u8>, Vec<u8>),
        take: &mut impl FnMut(OutputStream, &[u8]),
    ) {
        let mut enough = self.world.clock.sleep(DRAIN_MAX);
        while self.out.is_some() || self.err.is_some() {
            tokio::select! {
                biased;
                () = &mut enough => return,
                read = read(&mut self.out, &mut buffers.1) => take(OutputStream::Out, &buffers.1[..read]),
                read = read(&mut self.err, &mut buffers.0) => take(OutputStream::Err, &buffers.0[..read]),
            }
        }
    }
}

/// Reads once. At the end of the stream the pipe is closed and later reads stay pending.
async fn read(pipe: &mut Option<impl AsyncRead + Unpin>, buffer: &mut [u8]) -> usize {
    let Some(open) = pipe else { return std::future::pending().await };
    let read = open.read(buffer).await.unwrap_or(0);
    if read == 0 {
        *pipe = None;
    }
    read
}

/// Time from TERM to KILL. It is shorter than the call path's own grace, so that the end is reported in time.
fn grace(context: &CallContext) -> Duration {
    let whole = context.limits.kill_grace;
    whole.saturating_sub(ENDING).max(whole / 2)
}

/// A future that never completes.
fn never() -> BoxFuture<'static, ()> {
    Box::pin(std::future::pending())
}

fn spawn_fault(setup: &CommandSpec<'_>, error: &io::Error) -> Fault {
    let reason = match error.kind() {
        io::ErrorKind::NotFound if !setup.workspace.path().is_dir() => {
            "the workspace directory is gone"
        }
        io::ErrorKind::NotFound => "there is no shell or launcher",
        io::ErrorKind::PermissionDenied => "no permission",
        io::ErrorKind::ArgumentListTooLong => "the command line is too long",
        io::ErrorKind::WouldBlock => "there are too many processes",
        _ => "the system refused",
    };
    not_started(setup, reason).caused_by(error)
}

fn not_started(setup: &CommandSpec<'_>, reason: &str) -> Fault {
    Fault::new(Kind::CommandNotStarted, Operation::RunCommand)
        .with(Fact::Command, budget::head(setup.command, 300).to_owned())
        .with(Fact::Reason, reason.to_owned())
}

fn refused(reason: &str) -> Fault {
    Fault::new(Kind::SandboxUnavailable, Operation::RunCommand)
        .with(Fact::ToolName, "bash_run")
        .with(Fact::Reason, reason.to_owned())
}
