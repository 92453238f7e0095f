//! The launcher: a small mode of our own binary that runs one command and leaves nobody behind.
//!
//! A process that kills a command can only reach what it can name. A child that forks twice, calls
//! `setsid` and ignores TERM has no name left. So the command does not run under us but under a launcher,
//! which is its *child subreaper*: whoever in that tree loses its parent becomes the launcher's child.
//! "No children left" is then the same as "nobody left", and that is what the launcher waits for.
//!
//! The launcher talks with its parent over the socket that is its standard input: an order comes in,
//! words go out, and one more byte, or the end of the stream, means *stop*. The end of the stream
//! comes by itself when the parent dies, however it dies. The parent-death signal would be the
//! classical means, but it fires when the *thread* that started the child ends, and the threads of an
//! async runtime come and go.
//!
//! Landlock, when asked for, is applied to the launcher's starting thread before it starts the command:
//! the command and all it starts are confined, the launcher itself still sees `/proc`. A kernel that
//! cannot do it gets a refusal, never an unconfined command.

mod confine;
mod supervise;
pub(crate) mod tree;

use std::{
    ffi::OsStr,
    io::{self, Read, Write},
    path::PathBuf,
    process::ExitCode,
};

use serde::{Deserialize, Serialize};

/// What the first argument must be for a process to become a launcher.
pub const ARGUMENT: &str = "__launch";

/// The most bytes an order or a word may have.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How to start a launcher: a program that calls [`maybe_launch`] first thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// The program; usually the running one.
    pub program: PathBuf,
    /// Its arguments; usually [`ARGUMENT`] alone.
    pub args: Vec<String>,
}

impl Launcher {
    /// A program that becomes a launcher when its first argument is [`ARGUMENT`].
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), args: vec![ARGUMENT.to_owned()] }
    }
}

/// Where a command may read and where it may write. Anywhere else is refused by the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confine {
    /// Directories and files it may read and execute. One that does not exist is no loss.
    pub read: Vec<PathBuf>,
    /// Directories and files it may also change. Each must exist.
    pub write: Vec<PathBuf>,
}

impl Confine {
    /// Reading anywhere, writing nowhere; the workspace of a command is added to it. The network is not
    /// confined.
    #[must_use]
    pub fn read_anywhere() -> Self {
        Self { read: vec!["/".into()], write: Vec::new() }
    }
}

/// What a launcher is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    /// For the shell.
    pub(crate) command: String,
    /// From TERM to KILL.
    pub(crate) grace_ms: u64,
    /// If set, applied or refused.
    pub(crate) confine: Option<Confine>,
}

/// What a launcher says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Word {
    /// The command runs.
    Started {
        /// The shell's process.
        pid: u32,
    },
    /// The kernel cannot confine it; nothing ran.
    Refused {
        /// Why.
        reason: String,
    },
    /// The shell did not start.
    NotStarted {
        /// Why.
        reason: String,
    },
    /// It is over.
    Ended(Ended),
}

/// How a command ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// The exit status, if it exited.
    pub(crate) code: Option<i32>,
    /// The signal, if one killed it.
    pub(crate) signal: Option<i32>,
    /// Processes the command left behind when it ended by itself; they were ended too.
    pub(crate) left: usize,
    /// Processes that would not die: held in the kernel.
    pub(crate) survivors: usize,
}

/// Becomes a launcher if the arguments (without the program) ask for it. Call this first thing in
/// `main`, before any thread or runtime exists.
#[must_use]
pub fn maybe_launch<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Option<ExitCode> {
    let first = args.into_iter().next()?;
    (first.as_ref() == ARGUMENT).then(supervise::run)
}

/// Writes one message: its length in four bytes, then JSON.
pub(crate) fn write_message(mut to: impl Write, message: &impl Serialize) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend_from_slice(&body);
    to.write_all(&frame)
}

/// Reads one message.
pub(crate) fn read_message<T: for<'de> Deserialize<'de>>(mut from: impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut body = vec![0; checked_length(length)?];
    from.read_exact(&mut body)?;
    Ok(serde_json::from_slice(&body)?)
}

/// The length of a message, if it is one we would read.
pub(crate) fn checked_length(length: [u8; 4]) -> io::Result<usize> {
    match usize::try_from(u32::from_be_bytes(length)) {
        Ok(length) if length <= MESSAGE_BYTES_MAX => Ok(length),
        _ => Err(io::Error::other("the message is too long")),
    }
}
