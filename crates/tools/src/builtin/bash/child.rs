//! A running command: started under a launcher, or in a process group where there is none.
//!
//! Dropping it ends the command too: the launcher sees its socket close, the group is killed.

use std::{io, os::unix::net::UnixStream as StdUnixStream, process::Stdio, time::Duration};

use budao_core::{
    Timestamp,
    fault::{Fact, Fault, Kind, Operation},
    seams::World,
};
use futures::future::BoxFuture;
use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop, ProcessGroup};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    process::{ChildStderr, ChildStdout, Command},
};
use tokio_util::sync::CancellationToken;

use super::super::{Options, Workspace, budget};
use crate::{
    contract::CallContext,
    launch::{Confine, Ended, Launcher, Order, Word, checked_length, tree},
};

/// Set in the environment of every command, so that what a killed launcher left can be found.
const MARKER: &str = "BUDAO_COMMAND";
/// Beyond its grace, how long a command may take to be gone before it is given up.
const GIVE_UP: Duration = Duration::from_secs(7);
/// What killing and telling of it takes.
const ENDING: Duration = Duration::from_millis(400);
/// How long output may still come after the end.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// The kernel takes no longer argument.
const COMMAND_BYTES_MAX: usize = 128 * 1024 - 1;

/// What a command is started from.
#[derive(Debug)]
pub(super) struct Setup<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) options: &'a Options,
    pub(super) command: &'a str,
    pub(super) context: &'a CallContext,
}

/// Which of the two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

/// Why it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// By itself.
    Ended,
    Deadline,
    Cancelled,
}

/// How it ended.
#[derive(Debug)]
pub(super) struct Finish {
    pub(super) why: Why,
    pub(super) ended: Ended,
    pub(super) elapsed: Duration,
}

/// A command that runs.
#[derive(Debug)]
pub(super) struct Running {
    keeper: Keeper,
    out: Option<ChildStdout>,
    err: Option<ChildStderr>,
    grace: Duration,
    world: World,
    since: Timestamp,
}

/// Who answers for its processes.
#[derive(Debug)]
enum Keeper {
    Launcher { words: Words, child: Box<dyn ChildWrapper>, marker: String },
    Group(Box<dyn ChildWrapper>),
}

/// Starts a command.
pub(super) async fn start(setup: &Setup<'_>) -> Result<Running, Fault> {
    if setup.command.len() > COMMAND_BYTES_MAX {
        return Err(not_started(setup, "the command line is too long; put it into a file"));
    }
    if setup.command.contains('\0') {
        return Err(not_started(setup, "the command line contains a NUL"));
    }
    match &setup.options.launcher {
        Some(launcher) => start_launcher(setup, launcher).await,
        None if setup.options.confine.is_some() => {
            Err(refused("no launcher is set up that could confine the command"))
        }
        None => start_group(setup),
    }
}

async fn start_launcher(setup: &Setup<'_>, launcher: &Launcher) -> Result<Running, Fault> {
    let marker = format!("{:032x}", setup.context.world.uuid().as_u128());
    let (ours, theirs) = StdUnixStream::pair().map_err(|error| spawn_fault(setup, &error))?;
    let mut command = command(setup, &launcher.program, &marker);
    command.args(&launcher.args).stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)));
    let child = CommandWrap::from(command).spawn().map_err(|error| spawn_fault(setup, &error))?;
    let control = ours
        .set_nonblocking(true)
        .and_then(|()| UnixStream::from_std(ours))
        .map_err(|error| spawn_fault(setup, &error))?;
    let mut running = Running::new(
        Keeper::Launcher {
            words: Words { control, come: Vec::new() },
            child,
            marker: format!("{MARKER}={marker}"),
        },
        setup.context,
    );
    let order = Order {
        command: setup.command.to_owned(),
        grace_ms: u64::try_from(running.grace.as_millis()).unwrap_or(u64::MAX),
        confine: setup.options.confine.as_ref().map(|confine| with_workspace(confine, setup)),
    };
    match running.order(&order).await {
        Ok(Word::Started { .. }) => Ok(running),
        Ok(Word::Refused { reason }) => Err(refused(&reason)),
        Ok(Word::NotStarted { reason }) => Err(not_started(setup, &reason)),
        Ok(Word::Ended(_)) => Err(not_started(setup, "the launcher ended")),
        Err(error) => Err(running.lost(setup).await.caused_by(&error)),
    }
}

fn start_group(setup: &Setup<'_>) -> Result<Running, Fault> {
    let spawn = |shell: &str| {
        let marker = format!("{:032x}", setup.context.world.uuid().as_u128());
        let mut command = command(setup, shell.as_ref(), &marker);
        command.arg("-c").arg(setup.command).stdin(Stdio::null());
        CommandWrap::from(command).wrap(ProcessGroup::leader()).wrap(KillOnDrop).spawn()
    };
    let child = spawn("bash")
        .or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => spawn("sh"),
            _ => Err(error),
        })
        .map_err(|error| spawn_fault(setup, &error))?;
    Ok(Running::new(Keeper::Group(child), setup.context))
}

fn command(setup: &Setup<'_>, program: &std::path::Path, marker: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .envs(setup.options.environment.variables())
        .env(MARKER, marker)
        .current_dir(setup.workspace.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The workspace is always in; so are the devices every program takes for granted.
fn with_workspace(confine: &Confine, setup: &Setup<'_>) -> Confine {
    let mut confine = confine.clone();
    confine.write.push(setup.workspace.path().to_path_buf());
    let devices =
        ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
    confine
        .write
        .extend(devices.iter().map(Into::into).filter(|path: &std::path::PathBuf| path.exists()));
    confine
}

impl Running {
    fn new(mut keeper: Keeper, context: &CallContext) -> Self {
        let child = match &mut keeper {
            Keeper::Launcher { child, .. } | Keeper::Group(child) => child,
        };
        let (out, err) = (child.stdout().take(), child.stderr().take());
        Self {
            keeper,
            out,
            err,
            grace: grace(context),
            world: context.world.clone(),
            since: context.world.clock.now(),
        }
    }

    async fn order(&mut self, order: &Order) -> io::Result<Word> {
        let Keeper::Launcher { words, .. } = &mut self.keeper else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let mut frame = Vec::new();
        crate::launch::write_message(&mut frame, order)?;
        words.control.write_all(&frame).await?;
        words.next().await
    }

    /// The launcher was gone before it said that the command runs. It may run all the same.
    async fn lost(mut self, setup: &Setup<'_>) -> Fault {
        match self.keeper.ended().await.signal {
            Some(signal) => Fault::new(Kind::KilledBySignal, Operation::RunCommand)
                .with(Fact::Signal, super::signal_name(signal))
                .with(Fact::Command, budget::head(setup.command, 300).to_owned()),
            None => not_started(setup, "the launcher did not answer"),
        }
    }

    /// Waits for the end, or brings it about. `take` gets the output as it comes.
    pub(super) async fn finish(
        mut self,
        timeout: Option<Duration>,
        cancel: &CancellationToken,
        mut take: impl FnMut(Stream, &[u8]),
    ) -> Finish {
        let clock = self.world.clock.clone();
        let mut deadline = timeout.map_or_else(never, |timeout| clock.sleep(timeout));
        let (mut kill_at, mut give_up_at) = (never(), never());
        let mut why = Why::Ended;
        let mut buffers = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
        let ended = loop {
            let stop = tokio::select! {
                biased;
                () = cancel.cancelled(), if why == Why::Ended => Why::Cancelled,
                () = &mut deadline => Why::Deadline,
                () = &mut kill_at => {
                    self.keeper.kill();
                    kill_at = never();
                    continue;
                }
                () = &mut give_up_at => break self.keeper.give_up().await,
                ended = self.keeper.ended() => break ended,
                // What went wrong is mostly said last.
                read = read(&mut self.out, &mut buffers.1) => {
                    take(Stream::Out, &buffers.1[..read]);
                    continue;
                }
                read = read(&mut self.err, &mut buffers.0) => {
                    take(Stream::Err, &buffers.0[..read]);
                    continue;
                }
            };
            why = stop;
            self.keeper.stop().await;
            deadline = never();
            kill_at = clock.sleep(self.grace);
            give_up_at = clock.sleep(self.grace + GIVE_UP);
        };
        let elapsed = clock.now().since(self.since);
        self.drain(&mut buffers, &mut take).await;
        Finish { why, ended, elapsed }
    }

    /// Takes what is still in the pipes; somebody who holds one open is not waited for.
    async fn drain(
        &mut self,
        buffers: &mut (Vec<u8>, Vec<u8>),
        take: &mut impl FnMut(Stream, &[u8]),
    ) {
        let mut enough = self.world.clock.sleep(DRAIN_MAX);
        while self.out.is_some() || self.err.is_some() {
            tokio::select! {
                biased;
                () = &mut enough => return,
                read = read(&mut self.out, &mut buffers.1) => take(Stream::Out, &buffers.1[..read]),
                read = read(&mut self.err, &mut buffers.0) => take(Stream::Err, &buffers.0[..read]),
            }
        }
    }
}

/// Reads a piece. At its end the pipe is closed and never read again.
async fn read(pipe: &mut Option<impl AsyncRead + Unpin>, buffer: &mut [u8]) -> usize {
    let Some(open) = pipe else { return std::future::pending().await };
    let read = open.read(buffer).await.unwrap_or(0);
    if read == 0 {
        *pipe = None;
    }
    read
}

/// From TERM to KILL. Somewhat less than what the call path waits for a call it has told to stop, so that it
/// hears of the end.
fn grace(context: &CallContext) -> Duration {
    let whole = context.limits.kill_grace;
    whole.saturating_sub(ENDING).max(whole / 2)
}

/// A wait without an end.
fn never() -> BoxFuture<'static, ()> {
    Box::pin(std::future::pending())
}

/// The launcher's words as they come. Waiting for one can be broken off at any point.
#[derive(Debug)]
struct Words {
    control: UnixStream,
    come: Vec<u8>,
}

impl Words {
    async fn next(&mut self) -> io::Result<Word> {
        loop {
            if let Some((length, rest)) = self.come.split_first_chunk::<4>() {
                let length = checked_length(*length)?;
                if let Some(body) = rest.get(..length) {
                    let word = serde_json::from_slice(body)?;
                    self.come.drain(..4 + length);
                    return Ok(word);
                }
            }
            if self.control.read_buf(&mut self.come).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

impl Keeper {
    /// Asks for the end.
    async fn stop(&mut self) {
        match self {
            // A launcher that is gone has nothing left to be told.
            Self::Launcher { words, .. } => drop(words.control.write_all(b"x").await),
            Self::Group(child) => drop(child.signal(15)),
        }
    }

    /// The grace is over. A launcher knows that by itself.
    fn kill(&mut self) {
        if let Self::Group(child) = self {
            drop(child.start_kill());
        }
    }

    /// Completes when the command and, under a launcher, everything it started is gone.
    async fn ended(&mut self) -> Ended {
        match self {
            Self::Launcher { words, child, marker } => match words.next().await {
                Ok(Word::Ended(ended)) => ended,
                // The launcher was killed: by the command, or for want of memory.
                Ok(_) | Err(_) => {
                    sweep(marker.clone()).await;
                    of_status(child.wait().await.ok())
                }
            },
            Self::Group(child) => {
                let status = child.wait().await.ok();
                // Whoever is left in the group.
                drop(child.signal(9));
                of_status(status)
            }
        }
    }

    /// Nobody ended it; it is killed as hard as we can and left.
    async fn give_up(&mut self) -> Ended {
        match self {
            Self::Launcher { child, marker, .. } => {
                drop(child.start_kill());
                sweep(marker.clone()).await;
            }
            Self::Group(child) => drop(child.start_kill()),
        }
        Ended { signal: Some(9), ..Ended::default() }
    }
}

/// Off the async threads: it reads every process's environment.
async fn sweep(marker: String) {
    // Only a panic could be lost here, and there is nobody to tell.
    drop(tokio::task::spawn_blocking(move || while tree::sweep(&marker) > 0 {}).await);
}

fn of_status(status: Option<std::process::ExitStatus>) -> Ended {
    use std::os::unix::process::ExitStatusExt;
    let Some(status) = status else { return Ended { signal: Some(9), ..Ended::default() } };
    Ended { code: status.code(), signal: status.signal(), ..Ended::default() }
}

fn spawn_fault(setup: &Setup<'_>, error: &io::Error) -> Fault {
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

fn not_started(setup: &Setup<'_>, reason: &str) -> Fault {
    Fault::new(Kind::CommandNotStarted, Operation::RunCommand)
        .with(Fact::Command, budget::head(setup.command, 300).to_owned())
        .with(Fact::Reason, reason.to_owned())
}

fn refused(reason: &str) -> Fault {
    Fault::new(Kind::SandboxUnavailable, Operation::RunCommand)
        .with(Fact::ToolName, "bash_run")
        .with(Fact::Reason, reason.to_owned())
}
