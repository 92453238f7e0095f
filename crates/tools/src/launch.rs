//! The supervisor: a mode of this binary that runs one program and ends all of its processes.
//!
//! A killed process cannot clean up its children, so every program runs under a supervisor. On Linux the supervisor
//! is the *child subreaper*: a descendant that loses its parent, even after `setsid`, becomes the supervisor's child
//! and is ended. On other systems the supervisor ends the process group and every descendant that `ps` shows.
//!
//! The supervisor's standard input is a socket to the parent. The parent sends the program's three streams over it,
//! then the request; later single bytes ask for the end. End of file means that the parent has died. (Linux's
//! parent-death signal is unsuitable: it fires when the starting *thread* ends.) If confinement is requested,
//! Landlock restricts the thread that starts the program; without kernel support the supervisor refuses the request.

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
pub use child::{Child, Errors, GracePeriods, Input, Start};
pub use registry::end_all;

/// The first argument that makes a process a supervisor.
pub const ARGUMENT: &str = "__launch";

/// The launcher of this program; set by [`maybe_launch`].
static INSTALLED: OnceLock<Launcher> = OnceLock::new();

/// Maximum size of a message on the socket, in bytes.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How to start a supervisor: a program whose `main` calls [`maybe_launch`] first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// The executable; usually the running one.
    pub program: PathBuf,
    /// The arguments; usually [`ARGUMENT`] alone.
    pub args: Vec<String>,
}

impl Launcher {
    /// A launcher for a program that becomes a supervisor when its first argument is [`ARGUMENT`].
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), args: vec![ARGUMENT.to_owned()] }
    }

    /// A launcher for the running program. On Linux it works even after the executable file was replaced.
    fn of_this_program() -> Option<Self> {
        let link = PathBuf::from("/proc/self/exe");
        if cfg!(target_os = "linux") && link.exists() {
            return Some(Self::new(link));
        }
        std::env::current_exe().ok().map(Self::new)
    }
}

/// The paths a command may read and write. The kernel refuses all others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// Directories and files that may be read and executed. Missing ones are ignored.
    pub read: Vec<PathBuf>,
    /// Directories and files that may also be changed. Each must exist.
    pub write: Vec<PathBuf>,
}

impl Confinement {
    /// Allows reading everywhere and writing nowhere; the command's workspace is added. Does not restrict the
    /// network.
    #[must_use]
    pub fn read_anywhere() -> Self {
        Self { read: vec!["/".into()], write: Vec::new() }
    }
}

/// The request to a supervisor. The program inherits the supervisor's environment and directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LaunchRequest {
    /// The program's candidates; the next one is tried if one is not found.
    pub(crate) programs: Vec<OsString>,
    pub(crate) args: Vec<OsString>,
    /// Time between TERM and KILL, by reason for the end.
    pub(crate) grace_periods: GracePeriods,
    /// The confinement; if it cannot be applied, the request is refused.
    pub(crate) confine: Option<Confinement>,
}

/// A message from the supervisor to the parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LauncherMessage {
    /// The program has been started.
    Started {
        /// The program's process id; the process leads its own group.
        pid: u32,
    },
    /// The kernel cannot confine the program; nothing was started.
    Refused {
        /// The kernel's or Landlock's reason.
        reason: String,
    },
    /// The program could not be started.
    NotStarted {
        /// The system's error number, if there is one.
        errno: Option<i32>,
        /// The system's error text.
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
    /// The exit status; `None` if a signal killed the program.
    pub code: Option<i32>,
    /// The signal that killed the program, if one did.
    pub signal: Option<i32>,
    /// Number of processes that were still running when the program ended by itself; the supervisor ended them.
    pub left: usize,
    /// Number of processes that did not die after KILL, because they hang in the kernel.
    pub survivors: usize,
}

/// The processes of one program: the descendants of `root` and, on systems without a subreaper, the process group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Processes {
    /// Process id of the supervisor.
    pub(crate) root: i32,
    /// Process id of the program, which is also its group id.
    #[cfg_attr(target_os = "linux", allow(dead_code, reason = "a subreaper needs no group"))]
    pub(crate) group: i32,
}

/// Runs the supervisor if the arguments (without the program name) ask for it, and returns its exit code. Otherwise
/// installs this program as its own launcher and returns `None`. Call this first in `main`, before any thread or
/// runtime exists.
#[must_use]
pub fn maybe_launch<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Option<ExitCode> {
    let first = args.into_iter().next();
    if first.is_some_and(|first| first.as_ref() == ARGUMENT) {
        return Some(supervise::run());
    }
    if let Some(launcher) = Launcher::of_this_program() {
        // A second call has no effect.
        let _ = INSTALLED.set(launcher);
    }
    None
}

/// The launcher of this program; `None` if its `main` does not call [`maybe_launch`]. Without a launcher, programs
/// run in a process group that is killed when the handle is dropped, but that survives a `kill -9` of this program.
#[must_use]
pub fn installed() -> Option<Launcher> {
    INSTALLED.get().cloned()
}

/// Serializes a duration as whole milliseconds.
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

/// Writes one message: a four-byte big-endian length, then JSON.
pub(crate) fn write_message(mut to: impl Write, message: &impl Serialize) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend_from_slice(&body);
    to.write_all(&frame)
}

/// Reads one message; blocks until it is complete.
pub(crate) fn read_message<T: for<'de> Deserialize<'de>>(mut from: impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut body = vec![0; checked_length(length)?];
    from.read_exact(&mut body)?;
    Ok(serde_json::from_slice(&body)?)
}

/// The length of a message; an error if it exceeds the limit.
pub(crate) fn checked_length(length: [u8; 4]) -> io::Result<usize> {
    match usize::try_from(u32::from_be_bytes(length)) {
        Ok(length) if length <= MESSAGE_BYTES_MAX => Ok(length),
        _ => Err(io::Error::other("the message is too long")),
    }
}
