//! A running program: under a supervisor, or in its own process group if there is no launcher.
//!
//! Dropping the handle ends the program: the supervisor sees its socket close, or the group is killed.

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

use rustix::process::{Pid, Signal, kill_process_group};
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

/// Environment variable set for every program, used to find the processes of a killed supervisor.
const MARKER: &str = "BUDAO_COMMAND";
/// The process name of the supervisor in `ps`, so that `pkill budao` does not kill a supervisor with its parent.
const SUPERVISOR_NAME: &str = "supervisor";
/// Time limit for the supervisor's report that the program has started.
const START_MAX: Duration = Duration::from_secs(30);

const SIGKILL: i32 = 9;

/// Serializes starts: where descriptors cannot be created close-on-exec, a concurrent start could inherit ours.
static STARTING: Mutex<()> = Mutex::new(());

/// Time between TERM and KILL, by reason for the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GracePeriods {
    /// After a call of [`Child::terminate`].
    #[serde(with = "milliseconds")]
    pub stop: Duration,
    /// After this program has died or dropped the handle, when the program's work is no longer recorded.
    #[serde(with = "milliseconds")]
    pub orphan: Duration,
    /// For processes that still run when the program ends by itself.
    #[serde(with = "milliseconds")]
    pub left: Duration,
}

/// The source of a program's standard input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Input {
    /// An empty input (`/dev/null`).
    #[default]
    Null,
    /// A pipe; write to [`Child::stdin`].
    Piped,
}

/// The destination of a program's error output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Errors {
    /// A pipe; read from [`Child::stderr`].
    #[default]
    Piped,
    /// The error output of this program.
    Inherited,
}

/// The program to start, and its settings.
#[derive(Clone, Debug)]
pub struct Start {
    /// The program's candidates; the next one is tried if one is not found.
    pub programs: Vec<OsString>,
    /// The arguments, without the program's name.
    pub args: Vec<OsString>,
    /// Whether the program inherits this program's environment.
    pub inherits_env: bool,
    /// Variables that are not inherited.
    pub env_without: Vec<OsString>,
    /// Variables that are added or replaced.
    pub env: Vec<(OsString, OsString)>,
    /// The working directory; `None` means that of this program.
    pub directory: Option<PathBuf>,
    /// The source of the standard input.
    pub input: Input,
    /// The destination of the error output.
    pub errors: Errors,
    /// Time between TERM and KILL.
    pub grace_periods: GracePeriods,
    /// The paths the program may read and write; requires a launcher.
    pub confine: Option<Confinement>,
    /// A random number, unique to this start; it marks the program's processes.
    pub mark: u128,
}

/// Why a program could not be started.
#[derive(Debug)]
pub(crate) enum StartError {
    /// The requested confinement is not possible; the text is the reason.
    Refused(String),
    /// The supervisor ended before it answered; the value is its exit.
    Lost(CommandExit),
    /// The system's error for the program itself.
    Program(io::Error),
    /// The system's error for the supervisor or for a pipe.
    Supervisor(io::Error),
}

impl From<StartError> for io::Error {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Refused(reason) => Self::other(reason),
            StartError::Lost(_) => Self::other("the supervisor ended before it answered"),
            StartError::Program(error) => error,
            // The original kind would look like an error of the program itself.
            StartError::Supervisor(error) => Self::other(format!("the supervisor: {error}")),
        }
    }
}

/// A running program. Dropping it ends the program.
#[derive(Debug)]
pub struct Child {
    /// The write end of the standard input; `None` if the input is empty.
    pub stdin: Option<Sender>,
    /// The read end of the standard output; `None` once taken.
    pub stdout: Option<Receiver>,
    /// The read end of the error output; `None` if it is inherited.
    pub stderr: Option<Receiver>,
    pid: u32,
    keeper: Keeper,
}

/// Owns the program's processes and ends them.
#[derive(Debug)]
enum Keeper {
    Supervisor(Box<Supervisor>),
    Group(Group),
}

impl Start {
    /// A program without arguments that inherits the environment, has an empty input, and is killed without a grace.
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
            grace_periods: GracePeriods { stop: zero, orphan: zero, left: zero },
            confine: None,
            mark,
        }
    }

    /// Starts the program under a supervisor, or in a process group if there is no launcher.
    ///
    /// # Errors
    /// The system's error. Its kind is that of the program's own start.
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
            grace_periods: self.grace_periods,
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
                // The launcher is not a supervisor, or it hangs.
                drop(supervisor.process.start_kill());
                supervisor.sweep().await;
                Err(StartError::Supervisor(error))
            }
            // The program may have been started, so its end is awaited.
            Err(_) => Err(StartError::Lost(supervisor.ended().await)),
        }
    }

    /// Starts the supervisor and sends it the streams. Until it gets a request it does nothing, and it exits with its
    /// parent.
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
        // Registered before the start, so that `end_all` cannot miss this supervisor.
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
            match command.process_group(0).kill_on_drop(true).spawn() {
                Ok(child) => {
                    drop((command, streams));
                    let pid = child.id().unwrap_or_default();
                    let group = Group { child, leader: Pid::from_raw(pid.cast_signed()) };
                    let ours = pipes.into_async().map_err(StartError::Supervisor)?;
                    return Ok(ours.into_child(pid, Keeper::Group(group)));
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

/// The parent's ends of a program's pipes.
struct OurPipes {
    input: Option<PipeWriter>,
    output: PipeReader,
    errors: Option<PipeReader>,
}

/// The parent's ends of a program's pipes, registered with the async runtime.
struct AsyncPipes {
    input: Option<Sender>,
    output: Receiver,
    errors: Option<Receiver>,
}

/// Creates the pipes: the parent's ends, and the program's three streams.
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
    /// The process id of the program.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends TERM to every process of the program. Under a supervisor, KILL follows after the grace; otherwise the
    /// caller must send it.
    pub fn terminate(&mut self) {
        match &mut self.keeper {
            Keeper::Supervisor(supervisor) => supervisor.send(TERMINATE),
            Keeper::Group(group) => group.signal(Signal::TERM),
        }
    }

    /// Sends KILL to every process of the program.
    pub fn kill(&mut self) {
        match &mut self.keeper {
            Keeper::Supervisor(supervisor) => supervisor.send(KILL),
            Keeper::Group(group) => group.kill(),
        }
    }

    /// Waits until the program and, under a supervisor, all its descendants are gone. Cancel safe; may be called
    /// again.
    pub async fn wait(&mut self) -> CommandExit {
        match &mut self.keeper {
            Keeper::Supervisor(supervisor) => supervisor.ended().await,
            Keeper::Group(group) => {
                let status = group.child.wait().await.ok();
                // Kills the processes left in the group, whose number may be given to another group afterwards.
                group.kill();
                group.leader = None;
                of_status(status)
            }
        }
    }

    /// Kills a program that does not end, and its supervisor, without waiting further.
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

/// A child process whose whole group is killed when the handle is dropped.
#[derive(Debug)]
struct Group {
    child: tokio::process::Child,
    /// The process whose id is the group's number; `None` once the group has ended.
    leader: Option<Pid>,
}

impl Group {
    fn kill(&mut self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            // An error means that the group has no processes left.
            let _ = kill_process_group(leader, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The parent's side of a supervisor.
#[derive(Debug)]
struct Supervisor {
    words: Words,
    /// The same socket, for writing single bytes without waiting.
    signals: Arc<StdUnixStream>,
    process: tokio::process::Child,
    marker: String,
    /// Process id of the program; 0 until it has started.
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
        // A dead supervisor needs no signal; `ended` notices its death.
        drop((&*self.signals).write(&[signal]));
    }

    async fn ended(&mut self) -> CommandExit {
        match self.words.next().await {
            Ok(LauncherMessage::Ended(ended)) => ended,
            // The supervisor was killed: by the program, by a person, or by the out-of-memory killer.
            Ok(_) | Err(_) => {
                self.sweep().await;
                of_status(self.process.wait().await.ok())
            }
        }
    }

    /// Kills the processes of a killed supervisor. Runs on a blocking thread, because it reads every process's
    /// environment.
    async fn sweep(&self) {
        let (marker, group) = (self.marker.clone(), self.pid);
        let sweep = move || while tree::sweep(&marker, group) > 0 {};
        // The only possible error is a panic of the task.
        drop(tokio::task::spawn_blocking(sweep).await);
    }
}

/// Reads the supervisor's messages. Cancel safe.
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
