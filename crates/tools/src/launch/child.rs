//! A running program: under a supervisor, or in a process group of its own where the program has no launcher.
//!
//! Dropping the handle ends the program: the supervisor sees its socket close, the group is killed.

use std::{
    ffi::OsString,
    io::{self, PipeReader, PipeWriter, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream as StdUnixStream,
    },
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop, ProcessGroup};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        UnixStream,
        unix::pipe::{Receiver, Sender},
    },
    process::Command,
};

use super::{
    CommandExit, Confinement, KILL, LaunchRequest, Launcher, LauncherMessage, TERMINATE,
    checked_length, milliseconds, registry, streams, tree, write_message,
};

/// Set in the environment of every program, so that the processes of a killed supervisor can be found.
const MARKER: &str = "BUDAO_COMMAND";
/// The supervisor's own name, as `ps` shows it. `pkill budao` must not kill a supervisor together with its parent.
const SUPERVISOR_NAME: &str = "supervisor";
/// How long a supervisor may take to say that the program runs.
const START_MAX: Duration = Duration::from_secs(30);

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// One start at a time: on systems that cannot create a descriptor closed on exec, a second start could inherit ours.
static STARTING: Mutex<()> = Mutex::new(());

/// How long processes have from TERM to KILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Graces {
    /// When we ask for the end.
    #[serde(with = "milliseconds")]
    pub stop: Duration,
    /// When this program has died, or dropped the handle: nobody records what the program still does.
    #[serde(with = "milliseconds")]
    pub orphan: Duration,
    /// For processes the program leaves behind when it ends by itself.
    #[serde(with = "milliseconds")]
    pub left: Duration,
}

/// What a program reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Input {
    /// Nothing.
    #[default]
    Null,
    /// What is written to [`Child::stdin`].
    Piped,
}

/// Where a program's error output goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Errors {
    /// To [`Child::stderr`].
    #[default]
    Piped,
    /// To the error output of this program.
    Inherited,
}

/// What to start, and how.
#[derive(Clone, Debug)]
pub struct Start {
    /// The program; the next one is tried when one is not found.
    pub programs: Vec<OsString>,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Does it inherit the environment of this program?
    pub inherits_env: bool,
    /// Variables it does not inherit.
    pub env_without: Vec<OsString>,
    /// Variables it gets besides, or instead.
    pub env: Vec<(OsString, OsString)>,
    /// Where it runs; otherwise where this program runs.
    pub directory: Option<PathBuf>,
    /// What it reads.
    pub input: Input,
    /// Where its error output goes.
    pub errors: Errors,
    /// How its processes are ended.
    pub graces: Graces,
    /// What it may read and write; needs a launcher.
    pub confine: Option<Confinement>,
    /// A random number that no other start has.
    pub mark: u128,
}

/// Why a program does not run.
#[derive(Debug)]
pub(crate) enum StartError {
    /// It cannot be confined as ordered.
    Refused(String),
    /// The supervisor ended before it answered; how it ended.
    Lost(CommandExit),
    /// The system's error for the program itself.
    Program(io::Error),
    /// The system's error for the supervisor, or for a pipe.
    Supervisor(io::Error),
}

impl From<StartError> for io::Error {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Refused(reason) => Self::other(reason),
            StartError::Lost(_) => Self::other("the supervisor ended before it answered"),
            StartError::Program(error) => error,
            // Its kind would be taken for the program's.
            StartError::Supervisor(error) => Self::other(format!("the supervisor: {error}")),
        }
    }
}

/// A program that runs. Dropping it ends it.
#[derive(Debug)]
pub struct Child {
    /// What it reads, if that is a pipe.
    pub stdin: Option<Sender>,
    /// What it writes.
    pub stdout: Option<Receiver>,
    /// What it complains about, if that is a pipe.
    pub stderr: Option<Receiver>,
    pid: u32,
    keeper: Keeper,
}

/// The part that ends its processes.
#[derive(Debug)]
enum Keeper {
    Supervisor(Box<Supervisor>),
    Group(Group),
}

impl Start {
    /// A program without arguments that inherits the environment, reads nothing, and is killed without a grace.
    #[must_use]
    pub fn new(program: impl Into<OsString>, mark: u128) -> Self {
        let zero = Duration::ZERO;
        Self {
            programs: vec![program.into()],
            args: Vec::new(),
            inherits_env: true,
            env_without: Vec::new(),
            env: Vec::new(),
            directory: None,
            input: Input::default(),
            errors: Errors::default(),
            graces: Graces { stop: zero, orphan: zero, left: zero },
            confine: None,
            mark,
        }
    }

    /// Starts it under a supervisor, or without a launcher in a process group.
    ///
    /// # Errors
    /// The system's error; its kind is that of the program's start.
    pub async fn spawn(self, launcher: Option<&Launcher>) -> io::Result<Child> {
        self.start(launcher).await.map_err(Into::into)
    }

    pub(crate) async fn start(self, launcher: Option<&Launcher>) -> Result<Child, StartError> {
        match launcher {
            Some(launcher) => self.start_supervised(launcher).await,
            None if self.confine.is_some() => {
                let reason = "no launcher is set up that could confine the command";
                Err(StartError::Refused(reason.to_owned()))
            }
            None => self.start_group(),
        }
    }

    async fn start_supervised(self, launcher: &Launcher) -> Result<Child, StartError> {
        let (mut supervisor, pipes) =
            self.start_supervisor(launcher).map_err(StartError::Supervisor)?;
        let ours = pipes.into_async().map_err(StartError::Supervisor)?;
        let order = LaunchRequest {
            programs: self.programs,
            args: self.args,
            graces: self.graces,
            confine: self.confine,
        };
        let answer = match tokio::time::timeout(START_MAX, supervisor.order(&order)).await {
            Ok(answer) => answer,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        match answer {
            Ok(LauncherMessage::Started { pid }) => {
                supervisor.pid = pid;
                Ok(ours.into_child(pid, Keeper::Supervisor(Box::new(supervisor))))
            }
            Ok(LauncherMessage::Refused { reason }) => Err(StartError::Refused(reason)),
            Ok(LauncherMessage::NotStarted { errno, reason }) => Err(StartError::Program(
                errno.map_or_else(|| io::Error::other(reason), io::Error::from_raw_os_error),
            )),
            Ok(LauncherMessage::Ended(_)) => Err(StartError::Lost(CommandExit::default())),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                // A program that is no supervisor, or one that hangs.
                drop(supervisor.process.start_kill());
                supervisor.sweep().await;
                Err(StartError::Supervisor(error))
            }
            // It may run all the same.
            Err(_) => Err(StartError::Lost(supervisor.ended().await)),
        }
    }

    /// Starts the supervisor and hands it the streams. Without an order it does nothing, and ends when we do.
    fn start_supervisor(&self, launcher: &Launcher) -> io::Result<(Supervisor, OurPipes)> {
        let _one = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let (ours, theirs) = StdUnixStream::pair()?;
        let (alive, alive_until_exit) = io::pipe()?;
        let (pipes, streams) = pipes(self.input, self.errors)?;
        streams::send(&ours, [streams[0].as_fd(), streams[1].as_fd(), streams[2].as_fd()])?;
        let mut command = Command::new(&launcher.program);
        command.args(&launcher.args).arg0(SUPERVISOR_NAME);
        self.set_up(&mut command);
        command.stdin(OwnedFd::from(theirs)).stdout(alive_until_exit).stderr(Stdio::null());
        ours.set_nonblocking(true)?;
        let signals = Arc::new(ours.try_clone()?);
        // Before the start: whatever ends all supervisors must not miss this one.
        registry::register(Arc::downgrade(&signals), alive)?;
        let process = command.spawn()?;
        let control = UnixStream::from_std(ours)?;
        let marker = format!("{MARKER}={:032x}", self.mark);
        let words = Words { control, received: Vec::new() };
        Ok((Supervisor { words, signals, process, marker, pid: 0 }, pipes))
    }

    fn start_group(self) -> Result<Child, StartError> {
        let (pipes, streams) = pipes(self.input, self.errors).map_err(StartError::Supervisor)?;
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for program in &self.programs {
            let mut command = Command::new(program);
            command.args(&self.args);
            self.set_up(&mut command);
            let [input, output, errors] =
                clones(&streams).map_err(StartError::Supervisor)?.map(Stdio::from);
            command.stdin(input).stdout(output).stderr(errors);
            let mut wrapped = CommandWrap::from(command);
            match wrapped.wrap(ProcessGroup::leader()).wrap(KillOnDrop).spawn() {
                Ok(child) => {
                    drop((wrapped, streams));
                    let ours = pipes.into_async().map_err(StartError::Supervisor)?;
                    let pid = child.id().unwrap_or_default();
                    return Ok(ours.into_child(pid, Keeper::Group(Group(child))));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => last = error,
                Err(error) => return Err(StartError::Program(error)),
            }
        }
        Err(StartError::Program(last))
    }

    fn set_up(&self, command: &mut Command) {
        if !self.inherits_env {
            command.env_clear();
        }
        for name in &self.env_without {
            command.env_remove(name);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.env(MARKER, format!("{:032x}", self.mark));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
    }
}

/// Our ends of a program's pipes.
struct OurPipes {
    input: Option<PipeWriter>,
    output: PipeReader,
    errors: Option<PipeReader>,
}

/// The same for the async runtime.
struct AsyncPipes {
    input: Option<Sender>,
    output: Receiver,
    errors: Option<Receiver>,
}

/// Our ends, and the program's three.
fn pipes(input: Input, errors: Errors) -> io::Result<(OurPipes, [OwnedFd; 3])> {
    let (their_input, our_input) = match input {
        Input::Null => (OwnedFd::from(std::fs::File::open("/dev/null")?), None),
        Input::Piped => {
            let (theirs, ours) = io::pipe()?;
            (theirs.into(), Some(ours))
        }
    };
    let (output, their_output) = io::pipe()?;
    let (our_errors, their_errors) = match errors {
        Errors::Inherited => (None, io::stderr().as_fd().try_clone_to_owned()?),
        Errors::Piped => {
            let (ours, theirs) = io::pipe()?;
            (Some(ours), theirs.into())
        }
    };
    let ours = OurPipes { input: our_input, output, errors: our_errors };
    Ok((ours, [their_input, their_output.into(), their_errors]))
}

fn clones(streams: &[OwnedFd; 3]) -> io::Result<[OwnedFd; 3]> {
    let [input, output, errors] = streams;
    Ok([input.try_clone()?, output.try_clone()?, errors.try_clone()?])
}

impl OurPipes {
    fn into_async(self) -> io::Result<AsyncPipes> {
        let receiver = |pipe: PipeReader| Receiver::from_owned_fd(pipe.into());
        Ok(AsyncPipes {
            input: self.input.map(|pipe| Sender::from_owned_fd(pipe.into())).transpose()?,
            output: receiver(self.output)?,
            errors: self.errors.map(receiver).transpose()?,
        })
    }
}

impl AsyncPipes {
    fn into_child(self, pid: u32, keeper: Keeper) -> Child {
        let Self { input: stdin, output, errors: stderr } = self;
        Child { stdin, stdout: Some(output), stderr, pid, keeper }
    }
}

impl Child {
    /// The program's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Asks every process of the program to end. Under a supervisor KILL follows after the grace; without one the
    /// caller sends it.
    pub fn terminate(&mut self) {
        match &mut self.keeper {
            Keeper::Supervisor(supervisor) => supervisor.send(TERMINATE),
            Keeper::Group(group) => drop(group.0.signal(SIGTERM)),
        }
    }

    /// Kills every process of the program.
    pub fn kill(&mut self) {
        match &mut self.keeper {
            Keeper::Supervisor(supervisor) => supervisor.send(KILL),
            Keeper::Group(group) => group.kill(),
        }
    }

    /// Completes when the program and, under a supervisor, everything it started is gone. Can be broken off and
    /// called again.
    pub async fn wait(&mut self) -> CommandExit {
        match &mut self.keeper {
            Keeper::Supervisor(supervisor) => supervisor.ended().await,
            Keeper::Group(group) => {
                let status = group.0.wait().await.ok();
                // Whoever is left in the group.
                group.kill();
                of_status(status)
            }
        }
    }

    /// Kills a program that does not end, and its supervisor, and waits no longer.
    pub(crate) async fn give_up(&mut self) -> CommandExit {
        match &mut self.keeper {
            Keeper::Supervisor(supervisor) => {
                drop(supervisor.process.start_kill());
                supervisor.sweep().await;
            }
            Keeper::Group(group) => group.kill(),
        }
        CommandExit { signal: Some(SIGKILL), ..CommandExit::default() }
    }
}

/// A child whose whole group dies with it.
#[derive(Debug)]
struct Group(Box<dyn ChildWrapper>);

impl Group {
    fn kill(&mut self) {
        // An error means that no process is left.
        drop(self.0.start_kill());
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Our side of a supervisor.
#[derive(Debug)]
struct Supervisor {
    words: Words,
    /// The same socket, for single bytes that need no waiting.
    signals: Arc<StdUnixStream>,
    process: tokio::process::Child,
    marker: String,
    /// The program's process; 0 until it runs.
    pid: u32,
}

impl Supervisor {
    async fn order(&mut self, order: &LaunchRequest) -> io::Result<LauncherMessage> {
        let mut frame = Vec::new();
        write_message(&mut frame, order)?;
        self.words.control.write_all(&frame).await?;
        self.words.next().await
    }

    fn send(&self, signal: u8) {
        // A supervisor that is gone needs no signal; that it is gone is seen by `ended`.
        drop((&*self.signals).write(&[signal]));
    }

    async fn ended(&mut self) -> CommandExit {
        match self.words.next().await {
            Ok(LauncherMessage::Ended(ended)) => ended,
            // The supervisor was killed: by the program, by a person, or for want of memory.
            Ok(_) | Err(_) => {
                self.sweep().await;
                of_status(self.process.wait().await.ok())
            }
        }
    }

    /// Kills what a killed supervisor left. Off the async threads: it reads every process's environment.
    async fn sweep(&self) {
        let (marker, group) = (self.marker.clone(), self.pid);
        let sweep = move || while tree::sweep(&marker, group) > 0 {};
        // Only a panic could be lost here.
        drop(tokio::task::spawn_blocking(sweep).await);
    }
}

/// The supervisor's words as they come. Waiting for one can be broken off at any point.
#[derive(Debug)]
struct Words {
    control: UnixStream,
    received: Vec<u8>,
}

impl Words {
    async fn next(&mut self) -> io::Result<LauncherMessage> {
        loop {
            if let Some((length, rest)) = self.received.split_first_chunk::<4>() {
                let length = checked_length(*length)?;
                if let Some(body) = rest.get(..length) {
                    let word = serde_json::from_slice(body)?;
                    self.received.drain(..4 + length);
                    return Ok(word);
                }
            }
            if self.control.read_buf(&mut self.received).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

fn of_status(status: Option<ExitStatus>) -> CommandExit {
    use std::os::unix::process::ExitStatusExt;
    let Some(status) = status else {
        return CommandExit { signal: Some(SIGKILL), ..CommandExit::default() };
    };
    CommandExit { code: status.code(), signal: status.signal(), ..CommandExit::default() }
}
