//! The supervisor: a small mode of our own binary that runs one program and leaves no process behind.
//!
//! A process can only signal what it can name, and a killed process signals nothing. So every program runs under a
//! supervisor, never directly under us. On Linux the supervisor is the *child subreaper* of the program: a descendant
//! that loses its parent, even one that called `setsid`, becomes the supervisor's child and is found and ended. On
//! other systems it ends the process group and every descendant that `ps` shows.
//!
//! The supervisor's standard input is a socket to us. We send the program's three streams over it (the supervisor
//! copies no data), then an order; one byte asks for the end. The end of the stream means that we are gone, however
//! we went. The parent-death signal of Linux does not serve: it fires when the *thread* that started the child ends.
//!
//! Landlock, if ordered, confines the thread that starts the program; a kernel that cannot do it gets a refusal.

mod child;
#[cfg(target_os = "linux")]
mod confine;
mod registry;
mod streams;
mod supervise;
#[cfg_attr(not(target_os = "linux"), path = "launch/tree_by_ps.rs")]
pub(crate) mod tree;
#[cfg(all(test, target_os = "linux"))]
#[allow(dead_code, reason = "Linux has `tree`; here only the tests of this one run")]
mod tree_by_ps;

use std::{
    ffi::{OsStr, OsString},
    io::{self, Read, Write},
    path::PathBuf,
    process::ExitCode,
    sync::OnceLock,
    time::Duration,
};

use serde::{Deserialize, Serialize};

pub(crate) use child::StartError;
pub use child::{Child, Errors, Graces, Input, Start};
pub use registry::end_all;

/// The first argument that makes a process a supervisor.
pub const ARGUMENT: &str = "__launch";

/// The launcher of this program, if its `main` calls [`maybe_launch`].
static INSTALLED: OnceLock<Launcher> = OnceLock::new();

/// The most bytes an order or a word may have.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How to start a supervisor: a program that calls [`maybe_launch`] first thing.
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

    /// The running program. On Linux it is found even after its file was replaced by another version.
    fn of_this_program() -> Option<Self> {
        let link = PathBuf::from("/proc/self/exe");
        if cfg!(target_os = "linux") && link.exists() {
            return Some(Self::new(link));
        }
        std::env::current_exe().ok().map(Self::new)
    }
}

/// Where a command may read and where it may write. Anywhere else is refused by the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// Directories and files it may read and execute. One that does not exist is no loss.
    pub read: Vec<PathBuf>,
    /// Directories and files it may also change. Each must exist.
    pub write: Vec<PathBuf>,
}

impl Confinement {
    /// Reading anywhere, writing nowhere; the workspace of a command is added to it. The network is not
    /// confined.
    #[must_use]
    pub fn read_anywhere() -> Self {
        Self { read: vec!["/".into()], write: Vec::new() }
    }
}

/// What a supervisor is to do. The environment and the directory are its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LaunchRequest {
    /// The program; the next one is tried when one is not found.
    pub(crate) programs: Vec<OsString>,
    pub(crate) args: Vec<OsString>,
    /// How long processes have from TERM to KILL.
    pub(crate) graces: Graces,
    /// Applied, or the order is refused.
    pub(crate) confine: Option<Confinement>,
}

/// What a supervisor says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LauncherMessage {
    /// The program runs.
    Started {
        /// The program's process, which leads a group of its own.
        pid: u32,
    },
    /// The kernel cannot confine it; nothing ran.
    Refused {
        /// The kernel's or Landlock's reason.
        reason: String,
    },
    /// The program did not start.
    NotStarted {
        /// The system's error number, if it gave one.
        errno: Option<i32>,
        /// The system's text.
        reason: String,
    },
    /// The program and all of its processes have ended.
    Ended(CommandExit),
}

/// Sent by the parent: TERM now, KILL after the grace.
pub(crate) const TERMINATE: u8 = b't';
/// Sent by the parent: KILL now.
pub(crate) const KILL: u8 = b'k';

/// How a program ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandExit {
    /// The exit status, if it exited.
    pub code: Option<i32>,
    /// The signal, if one killed it.
    pub signal: Option<i32>,
    /// Processes the program left behind when it ended by itself; the supervisor ended them too.
    pub left: usize,
    /// Processes that did not die: held in the kernel.
    pub survivors: usize,
}

/// The processes of one program: those below `root` and, where the system has no subreaper, those of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Processes {
    /// The supervisor.
    pub(crate) root: i32,
    /// The program, which leads the group.
    #[cfg_attr(target_os = "linux", allow(dead_code, reason = "a subreaper needs no group"))]
    pub(crate) group: i32,
}

/// Becomes a supervisor if the arguments (without the program) ask for it; otherwise remembers that this program
/// can be one, so that whatever it starts is supervised. Call this first thing in `main`, before any thread or
/// runtime exists.
#[must_use]
pub fn maybe_launch<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Option<ExitCode> {
    let first = args.into_iter().next();
    if first.is_some_and(|first| first.as_ref() == ARGUMENT) {
        return Some(supervise::run());
    }
    if let Some(launcher) = Launcher::of_this_program() {
        // A second call changes nothing.
        let _ = INSTALLED.set(launcher);
    }
    None
}

/// The launcher of this program; none if its `main` does not call [`maybe_launch`]. Then what it starts runs in a
/// process group that is killed when its handle is dropped, but survives a `kill -9` of this program.
#[must_use]
pub fn installed() -> Option<Launcher> {
    INSTALLED.get().cloned()
}

/// A duration in whole milliseconds, for the order.
mod milliseconds {
    use super::{Deserialize, Duration};

    pub(super) fn serialize<S: serde::Serializer>(
        duration: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
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
