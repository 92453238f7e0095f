//! The registry of this process's supervisors, which lets a program end all of them before it exits.

use std::{
    io::{self, PipeReader, Read, Write},
    os::{fd::AsFd, unix::net::UnixStream},
    sync::{Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::KILL;

/// Interval for polling supervisors that are ending.
const LOOK_STEP: Duration = Duration::from_millis(2);

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { supervisors: Vec::new(), is_closed: false });

struct Registry {
    supervisors: Vec<Supervisor>,
    /// Set by [`end_all`]; later starts are refused.
    is_closed: bool,
}

/// One supervisor, registered from before its start until its process is gone.
struct Supervisor {
    /// Dead once the child's handle was dropped, which ends the child.
    control: Weak<UnixStream>,
    /// Reaches end of file when the supervisor's process has ended.
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
            // If the write fails, the supervisor is already ending.
            drop((&*control).write(&[KILL]));
        }
    }
}

/// Registers a supervisor before it is started. Fails after a call of [`end_all`].
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

/// Kills every supervised program of this process with all its processes, and waits at most `limit` until they are
/// gone. Later starts are refused. Blocks its thread; call it last before exit. Returns the number of supervisors
/// still running; they notice the exit and finish by themselves.
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
