//! The supervisor's main loop: starts the program, waits, and exits only when all its processes are gone.

use std::{
    ffi::OsStr,
    io::{self, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Command, ExitCode},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitOptions, getpid, setsid, wait};
use tokio::signal::unix::{SignalKind, signal};

use super::{
    CommandExit, GracePeriods, KILL, LaunchRequest, LauncherMessage, Processes, read_message,
    streams, tree, write_message,
};

/// How long to repeat KILL before reporting the remaining processes as survivors.
const KILLING_MAX: Duration = Duration::from_secs(5);
/// Interval between rounds of KILL.
const KILLING_STEP: Duration = Duration::from_millis(10);
/// Upper bound for a requested grace.
const GRACE_MAX: Duration = Duration::from_secs(3_600);
/// Maximum number of program candidates in a request.
const PROGRAMS_MAX: usize = 8;

/// An event for the main loop.
enum SupervisorEvent {
    /// The program is to be ended.
    Stop(Urgency),
    /// A child process was reaped.
    Reaped { pid: i32, code: Option<i32>, signal: Option<i32> },
    /// No child processes are left.
    NoChildren,
}

/// How soon KILL follows TERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Urgency {
    /// After the grace: the parent, or a signal to the supervisor, requests the end.
    Graceful,
    /// After the grace for orphans: the parent has died.
    Orphaned,
    /// At once: the parent sent `KILL`.
    Now,
}

/// Why the program could not be started.
enum StartError {
    Refused(String),
    NotStarted(io::Error),
}

impl From<StartError> for LauncherMessage {
    fn from(unstarted: StartError) -> Self {
        match unstarted {
            StartError::Refused(reason) => Self::Refused { reason },
            StartError::NotStarted(error) => {
                Self::NotStarted { errno: error.raw_os_error(), reason: error.to_string() }
            }
        }
    }
}

pub(super) fn run() -> ExitCode {
    match supervise() {
        Ok(ended) => {
            let code = ended.code.or(ended.signal.map(|signal| 128 + signal)).unwrap_or(1);
            ExitCode::from(u8::try_from(code & 0xff).unwrap_or(1))
        }
        // The parent is gone or sent an invalid request, so there is no reader for a message.
        Err(_) => ExitCode::from(125),
    }
}

fn supervise() -> io::Result<CommandExit> {
    let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let streams = streams::receive(&control)?;
    let order: LaunchRequest = read_message(&control)?;
    // Fails only if the process already leads a group, which is just as good.
    let _ = setsid();
    #[cfg(target_os = "linux")]
    {
        rustix::process::set_child_subreaper(Some(getpid()))?;
        // The kernel would otherwise show the name `exe`, from `/proc/self/exe`.
        let _ = rustix::thread::set_name(c"supervisor");
    }
    let (sender, events) = mpsc::channel();
    listen_for_signals(sender.clone())?;
    listen_to_parent(control.try_clone()?, sender.clone());
    #[cfg(not(target_os = "linux"))]
    watch_parent(sender.clone());
    let program = match start(&order, streams) {
        Ok(pid) => pid,
        Err(unstarted) => {
            let word = LauncherMessage::from(unstarted);
            write_message(&control, &word)?;
            let code = if matches!(word, LauncherMessage::Refused { .. }) { 126 } else { 127 };
            return Ok(CommandExit { code: Some(code), ..CommandExit::default() });
        }
    };
    thread::spawn(move || reap(&sender));
    // A write error means that the parent is gone; the thread that reads the socket handles that.
    drop(write_message(&control, &LauncherMessage::Started { pid: program }));
    let ended = ProcessSupervisor::new(program, order.grace_periods, events).keep();
    drop(write_message(&control, &LauncherMessage::Ended(ended.clone())));
    Ok(ended)
}

/// Starts the program from a separate thread, because Landlock restricts a thread and its children and the supervisor
/// must stay unrestricted. Keeps no copy of the streams, so that their other ends see the program close them.
fn start(order: &LaunchRequest, streams: [OwnedFd; 3]) -> Result<u32, StartError> {
    let LaunchRequest { programs, args, confine, .. } = order.clone();
    let starter = thread::spawn(move || {
        if let Some(confine) = confine {
            #[cfg(target_os = "linux")]
            super::confine::restrict_thread(&confine).map_err(StartError::Refused)?;
            #[cfg(not(target_os = "linux"))]
            {
                drop(confine);
                return Err(StartError::Refused("this system has no Landlock".to_owned()));
            }
        }
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for program in programs.iter().take(PROGRAMS_MAX) {
            match spawn(program, &args, &streams) {
                Ok(pid) => return Ok(pid),
                Err(error) if error.kind() == io::ErrorKind::NotFound => last = error,
                Err(error) => return Err(StartError::NotStarted(error)),
            }
        }
        Err(StartError::NotStarted(last))
    });
    let panicked = || StartError::NotStarted(io::Error::other("the supervisor panicked"));
    starter.join().unwrap_or_else(|_| Err(panicked()))
}

/// Starts the program in its own process group, so that a signal to its group does not reach the supervisor. The
/// handle is dropped on purpose: `reap` waits for every child.
fn spawn(program: &OsStr, args: &[impl AsRef<OsStr>], streams: &[OwnedFd; 3]) -> io::Result<u32> {
    let [input, output, errors] = streams;
    let mut command = Command::new(program);
    command.args(args).process_group(0);
    command.stdin(input.try_clone()?).stdout(output.try_clone()?).stderr(errors.try_clone()?);
    Ok(command.spawn()?.id())
}

fn listen_for_signals(sender: Sender<SupervisorEvent>) -> io::Result<()> {
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
        // Sending fails only when the supervisor has already finished.
        drop(sender.send(SupervisorEvent::Stop(Urgency::Graceful)));
    });
    Ok(())
}

fn listen_to_parent(mut control: UnixStream, sender: Sender<SupervisorEvent>) {
    thread::spawn(move || {
        loop {
            let mut byte = [0];
            let urgency = match control.read(&mut byte) {
                Ok(1..) if byte == [KILL] => Urgency::Now,
                Ok(1..) => Urgency::Graceful,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(0) | Err(_) => Urgency::Orphaned,
            };
            if sender.send(SupervisorEvent::Stop(urgency)).is_err() || urgency == Urgency::Orphaned
            {
                return;
            }
        }
    });
}

/// Polls the parent's id, because a concurrent start may have inherited the parent's end of the socket.
#[cfg(not(target_os = "linux"))]
fn watch_parent(sender: Sender<SupervisorEvent>) {
    const LOOK_STEP: Duration = Duration::from_millis(100);
    let parent = rustix::process::getppid();
    thread::spawn(move || {
        while rustix::process::getppid() == parent {
            thread::sleep(LOOK_STEP);
        }
        drop(sender.send(SupervisorEvent::Stop(Urgency::Orphaned)));
    });
}

/// Reaps every child, including adopted ones, until none is left.
fn reap(sender: &Sender<SupervisorEvent>) {
    loop {
        let events = match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => SupervisorEvent::Reaped {
                pid: Pid::as_raw(Some(pid)),
                code: status.exit_status(),
                signal: status.terminating_signal(),
            },
            Ok(None) | Err(rustix::io::Errno::INTR) => continue,
            Err(_) => SupervisorEvent::NoChildren,
        };
        let has_no_children = matches!(events, SupervisorEvent::NoChildren);
        if sender.send(events).is_err() || has_no_children {
            return;
        }
    }
}

/// Waits for the end of the program, then for the end of all its processes.
struct ProcessSupervisor {
    program: i32,
    processes: Processes,
    grace_periods: GracePeriods,
    events: Receiver<SupervisorEvent>,
    ended: CommandExit,
    has_no_children: bool,
    /// Time of KILL. The first stop sets it; later ones can only make it earlier.
    kill_at: Option<Instant>,
}

impl ProcessSupervisor {
    fn new(program: u32, grace_periods: GracePeriods, events: Receiver<SupervisorEvent>) -> Self {
        let program = i32::try_from(program).unwrap_or(i32::MAX);
        let processes = Processes { root: Pid::as_raw(Some(getpid())), group: program };
        let ended = CommandExit::default();
        Self {
            program,
            processes,
            grace_periods,
            events,
            ended,
            has_no_children: false,
            kill_at: None,
        }
    }

    fn keep(mut self) -> CommandExit {
        self.wait_for_the_program();
        if self.kill_at.is_none() {
            self.ended.left = self.running();
            self.bring_forward(self.grace_periods.left);
        }
        // Without a grace TERM is skipped, because its handler would have no time to run.
        if !self.is_over() && self.kill_at.is_some_and(|at| at > Instant::now()) {
            tree::signal_all(self.processes, Signal::TERM);
            // A stopped process handles TERM only after CONT.
            tree::signal_all(self.processes, Signal::CONT);
            self.wait_until_kill();
        }
        let give_up = Instant::now() + KILLING_MAX;
        while !self.is_over() && Instant::now() < give_up {
            tree::kill_all(self.processes);
            self.wait_until(Instant::now() + KILLING_STEP);
        }
        self.ended.survivors = self.running();
        self.ended
    }

    fn running(&self) -> usize {
        if self.has_no_children && cfg!(target_os = "linux") {
            0
        } else {
            tree::running(self.processes)
        }
    }

    /// Without a subreaper, processes can be left even if there are no children.
    fn is_over(&self) -> bool {
        self.has_no_children && (cfg!(target_os = "linux") || tree::running(self.processes) == 0)
    }

    /// Returns when the program has ended by itself or a stop is requested.
    fn wait_for_the_program(&mut self) {
        while let Ok(events) = self.events.recv() {
            let has_ended = self.note(&events);
            if self.kill_at.is_some() {
                return;
            }
            if has_ended {
                // The remaining processes may end at the same moment; waits 1 ms before counting them.
                self.wait_until(Instant::now() + Duration::from_millis(1));
                return;
            }
        }
    }

    fn wait_until_kill(&mut self) {
        while let Some(kill_at) = self.kill_at {
            if Instant::now() >= kill_at || self.is_over() {
                return;
            }
            self.wait_for_one(kill_at);
        }
    }

    fn wait_until(&mut self, deadline: Instant) {
        while Instant::now() < deadline && !self.is_over() {
            self.wait_for_one(deadline);
        }
    }

    fn wait_for_one(&mut self, deadline: Instant) {
        let mut left = deadline.saturating_duration_since(Instant::now());
        if self.has_no_children {
            // The end of a process that is not a child causes no event, so the loop polls.
            left = left.min(KILLING_STEP);
        }
        match self.events.recv_timeout(left) {
            Ok(events) => _ = self.note(&events),
            Err(RecvTimeoutError::Timeout) => {}
            // All senders are gone, the reaper's included: no children are left.
            Err(RecvTimeoutError::Disconnected) => {
                self.has_no_children = true;
                thread::sleep(left);
            }
        }
    }

    /// Handles an event. Returns true when the program has ended.
    fn note(&mut self, events: &SupervisorEvent) -> bool {
        match *events {
            SupervisorEvent::Reaped { pid, code, signal } if pid == self.program => {
                self.ended.code = code;
                self.ended.signal = signal;
                true
            }
            SupervisorEvent::NoChildren => {
                self.has_no_children = true;
                true
            }
            SupervisorEvent::Stop(urgency) => {
                self.bring_forward(match urgency {
                    Urgency::Graceful => self.grace_periods.stop,
                    Urgency::Orphaned => self.grace_periods.orphan,
                    Urgency::Now => Duration::ZERO,
                });
                false
            }
            SupervisorEvent::Reaped { .. } => false,
        }
    }

    fn bring_forward(&mut self, grace: Duration) {
        let at = Instant::now() + grace.min(GRACE_MAX);
        self.kill_at = Some(self.kill_at.map_or(at, |before| before.min(at)));
    }
}
