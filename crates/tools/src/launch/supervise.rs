//! The life of a launcher: start the command, wait, and do not leave before everybody else has.

use std::{
    io::{self, Read},
    os::{
        fd::AsFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Command, ExitCode, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitOptions, getpid, set_child_subreaper, setsid, wait};
use tokio::signal::unix::{SignalKind, signal};

use super::{Ended, Order, Word, confine, read_message, tree, write_message};

/// How long to go on killing what does not die before leaving it to the operator.
const KILLING_MAX: Duration = Duration::from_secs(5);
/// Between rounds of killing.
const KILLING_STEP: Duration = Duration::from_millis(10);

/// What the main loop hears of.
enum Heard {
    /// The parent wants an end, is gone, or somebody sent a signal.
    Stop,
    /// A child was reaped.
    Reaped { pid: i32, code: Option<i32>, signal: Option<i32> },
    /// There are no children any more.
    Alone,
}

/// Why the command did not start.
enum Unstarted {
    Refused(String),
    NotStarted(String),
}

pub(super) fn run() -> ExitCode {
    match supervise() {
        Ok(ended) => {
            let code = ended.code.or(ended.signal.map(|signal| 128 + signal)).unwrap_or(1);
            ExitCode::from(u8::try_from(code & 0xff).unwrap_or(1))
        }
        // The parent is gone or sent nonsense; there is nobody to tell.
        Err(_) => ExitCode::from(125),
    }
}

fn supervise() -> io::Result<Ended> {
    let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let order: Order = read_message(&control)?;
    // Fails only for a process that leads a group already, which serves as well.
    let _ = setsid();
    set_child_subreaper(Some(getpid()))?;

    let (tell, heard) = mpsc::channel();
    listen_for_signals(tell.clone())?;
    listen_to_parent(control.try_clone()?, tell.clone());
    let shell = match start(&order) {
        Ok(pid) => pid,
        Err(Unstarted::Refused(reason)) => {
            write_message(&control, &Word::Refused { reason })?;
            return Ok(Ended { code: Some(126), ..Ended::default() });
        }
        Err(Unstarted::NotStarted(reason)) => {
            write_message(&control, &Word::NotStarted { reason })?;
            return Ok(Ended { code: Some(127), ..Ended::default() });
        }
    };
    thread::spawn(move || reap(&tell));
    // A parent that is gone is heard of by its own thread.
    drop(write_message(&control, &Word::Started { pid: shell }));
    let ended = Vigil::new(shell, Duration::from_millis(order.grace_ms), heard).keep();
    drop(write_message(&control, &Word::Ended(ended.clone())));
    Ok(ended)
}

/// Starts the shell, confined if ordered, from a thread of its own: Landlock restricts a thread and what
/// it starts, and the launcher has to stay free.
fn start(order: &Order) -> Result<u32, Unstarted> {
    let Order { command, confine, .. } = order.clone();
    let starter = thread::spawn(move || {
        if let Some(confine) = confine {
            confine::restrict_thread(&confine).map_err(Unstarted::Refused)?;
        }
        spawn("bash", &command)
            .or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => spawn("sh", &command),
                _ => Err(error),
            })
            .map_err(|error| Unstarted::NotStarted(error.to_string()))
    });
    starter.join().unwrap_or_else(|_| Err(Unstarted::NotStarted("the launcher panicked".into())))
}

/// The shell in a process group of its own, so that a command which signals its group does not hit us.
/// The handle is dropped on purpose: the reaper waits for every child alike.
fn spawn(shell: &str, command: &str) -> io::Result<u32> {
    let mut shell = Command::new(shell);
    shell.arg("-c").arg(command).stdin(Stdio::null()).process_group(0);
    Ok(shell.spawn()?.id())
}

fn listen_for_signals(tell: Sender<Heard>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let guard = runtime.enter();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    drop(guard);
    thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                biased;
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hangup.recv() => {}
            }
        });
        // Nobody listens when it is over already.
        drop(tell.send(Heard::Stop));
    });
    Ok(())
}

fn listen_to_parent(mut control: UnixStream, tell: Sender<Heard>) {
    thread::spawn(move || {
        // A byte, the end, or an error: all mean the same.
        drop(control.read(&mut [0]));
        drop(tell.send(Heard::Stop));
    });
}

/// Reaps every child, our own and those that were handed to us, until there is none.
fn reap(tell: &Sender<Heard>) {
    loop {
        let heard = match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => Heard::Reaped {
                pid: Pid::as_raw(Some(pid)),
                code: status.exit_status(),
                signal: status.terminating_signal(),
            },
            Ok(None) | Err(rustix::io::Errno::INTR) => continue,
            Err(_) => Heard::Alone,
        };
        let alone = matches!(heard, Heard::Alone);
        if tell.send(heard).is_err() || alone {
            return;
        }
    }
}

/// Waiting for the end, and then for everybody's end.
struct Vigil {
    shell: i32,
    grace: Duration,
    heard: Receiver<Heard>,
    ended: Ended,
    alone: bool,
}

impl Vigil {
    fn new(shell: u32, grace: Duration, heard: Receiver<Heard>) -> Self {
        let shell = i32::try_from(shell).unwrap_or(i32::MAX);
        Self { shell, grace, heard, ended: Ended::default(), alone: false }
    }

    fn keep(mut self) -> Ended {
        let own = Pid::as_raw(Some(getpid()));
        if self.wait_for_the_shell() {
            self.ended.left = if self.alone { 0 } else { tree::running(own) };
        }
        if !self.alone {
            tree::signal_all(own, Signal::TERM);
            // What was stopped can only obey once it runs again.
            tree::signal_all(own, Signal::CONT);
            self.wait_until(Instant::now() + self.grace);
        }
        let give_up = Instant::now() + KILLING_MAX;
        while !self.alone && Instant::now() < give_up {
            tree::kill_all(own);
            self.wait_until(Instant::now() + KILLING_STEP);
        }
        self.ended.survivors = if self.alone { 0 } else { tree::running(own) };
        self.ended
    }

    /// True when the shell ended by itself, false when it is to be stopped.
    fn wait_for_the_shell(&mut self) -> bool {
        while let Ok(heard) = self.heard.recv() {
            if matches!(heard, Heard::Stop) {
                return false;
            }
            if self.note(&heard) {
                // Whoever is left may be gone in the same moment; then there is nothing to end.
                self.wait_until(Instant::now() + Duration::from_millis(1));
                return true;
            }
        }
        true
    }

    fn wait_until(&mut self, deadline: Instant) {
        while !self.alone {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.heard.recv_timeout(left) {
                Ok(heard) => _ = self.note(&heard),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Takes a fact in. True when the shell is over.
    fn note(&mut self, heard: &Heard) -> bool {
        match *heard {
            Heard::Reaped { pid, code, signal } if pid == self.shell => {
                self.ended.code = code;
                self.ended.signal = signal;
                true
            }
            Heard::Alone => {
                self.alone = true;
                true
            }
            Heard::Reaped { .. } | Heard::Stop => false,
        }
    }
}
