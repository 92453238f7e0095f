//! The supervisors of this process, so that a program can end all of them before it exits.

use std::{
    io::{self, PipeReader, Read, Write},
    os::{fd::AsFd, unix::net::UnixStream},
    sync::{Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::KILL;

/// Between two looks at supervisors that are ending.
const LOOK_STEP: Duration = Duration::from_millis(2);

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { supervisors: Vec::new(), is_closed: false });

struct Registry {
    supervisors: Vec<Supervisor>,
    /// Set by [`end_all`]: nothing is started any more.
    is_closed: bool,
}

/// One supervisor, from before its order until its process is gone.
struct Supervisor {
    /// Gone when the handle of the child was dropped, which ends the child.
    control: Weak<UnixStream>,
    /// Ends when the supervisor's process has ended.
    alive: PipeReader,
}

impl Supervisor {
    fn is_gone(&mut self) -> bool {
        match self.alive.read(&mut [0]) {
            Ok(read) => read == 0,
            Err(error) => {
                !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
            }
        }
    }

    fn kill(&self) {
        if let Some(control) = self.control.upgrade() {
            // A supervisor that does not listen any more is about to end.
            drop((&*control).write(&[KILL]));
        }
    }
}

/// Registers a supervisor that has no order yet. Refused once [`end_all`] was called.
pub(super) fn register(control: Weak<UnixStream>, alive: PipeReader) -> io::Result<()> {
    let flags = fcntl_getfl(alive.as_fd())?;
    fcntl_setfl(alive.as_fd(), flags | OFlags::NONBLOCK)?;
    let mut registry = lock();
    if registry.is_closed {
        return Err(io::Error::other("the program is ending and starts nothing any more"));
    }
    registry.supervisors.retain_mut(|supervisor| !supervisor.is_gone());
    registry.supervisors.push(Supervisor { control, alive });
    Ok(())
}

/// Kills every supervised program of this process with all its processes, waits until they are gone, at most for
/// `limit`, and starts none any more. Blocks its thread; the last thing a program does before it exits. Returns how
/// many supervisors are left: they see the program's exit and go on by themselves.
pub fn end_all(limit: Duration) -> usize {
    let deadline = Instant::now() + limit;
    let mut registry = lock();
    registry.is_closed = true;
    registry.supervisors.retain_mut(|supervisor| !supervisor.is_gone());
    registry.supervisors.iter().for_each(Supervisor::kill);
    while !registry.supervisors.is_empty() && Instant::now() < deadline {
        thread::sleep(LOOK_STEP);
        registry.supervisors.retain_mut(|supervisor| !supervisor.is_gone());
    }
    registry.supervisors.len()
}

fn lock() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}
