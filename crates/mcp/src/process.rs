//! A server's process: started in a group of its own, and ended to the last member of it.
//!
//! One task owns the child from start to end. It waits for it, so there is never a zombie; and when it is
//! told to stop, or is itself dropped, nothing of the group is left: input closed, grace, TERM, grace, KILL.

use std::{
    ffi::OsString,
    io,
    process::{ExitStatus, Stdio as Pipe},
    sync::Arc,
    time::Duration,
};

use budao_core::{limits::Limits, scrub::Scrubber, seams::World};
use budao_tools::child::{Tail, drain};
use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop, ProcessGroup};
use secrecy::ExposeSecret;
use tokio::{
    process::{ChildStdin, ChildStdout, Command},
    sync::{broadcast, watch},
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{Stdio, matches},
    resources::ResourceNews,
};

/// Variables every server gets: where things are, who we are, how to write. No keys.
const USUAL: &[&str] =
    &["HOME", "LANG", "LC_*", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER", "XDG_*"];

const SIGTERM: i32 = 15;

/// How long the last words of a process that has ended may take to arrive.
pub(crate) const LAST_WORDS: Duration = Duration::from_millis(500);

/// A server's process. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) tail: Arc<Tail>,
    pub(crate) id: u32,
    exited: watch::Receiver<Option<Exit>>,
    stop: CancellationToken,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The pipes to a process.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) input: ChildStdin,
    pub(crate) output: ChildStdout,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
    Unknown,
}

/// What a connection needs to know of the world.
#[derive(Clone, Debug)]
pub(crate) struct Around {
    pub(crate) server: Arc<str>,
    pub(crate) world: World,
    pub(crate) limits: Arc<Limits>,
    pub(crate) scrubber: Scrubber,
    /// Where news about resources go.
    pub(crate) news: broadcast::Sender<ResourceNews>,
    /// Set when nobody wants the server any more.
    pub(crate) stop: CancellationToken,
}

impl Process {
    /// Starts a process.
    pub(crate) fn start(config: &Stdio, around: &Around) -> io::Result<(Self, Pipes)> {
        let mut wrapped = CommandWrap::from(command(config));
        wrapped.wrap(ProcessGroup::leader()).wrap(KillOnDrop);
        let mut child = wrapped.spawn()?;
        let missing = || io::Error::other("a pipe of the child is missing");
        let id = child.id().ok_or_else(missing)?;
        let input = child.stdin().take().ok_or_else(missing)?;
        let output = child.stdout().take().ok_or_else(missing)?;
        let errors = child.stderr().take().ok_or_else(missing)?;
        let tail = Arc::new(Tail::default());
        let (server, clock) = (around.server.clone(), around.world.clock.clone());
        let drained = drain(errors, tail.clone(), server, around.scrubber.clone(), clock);
        around.world.spawn.spawn(Box::pin(drained));
        let stop = CancellationToken::new();
        let (sender, exited) = watch::channel(None);
        let keeper = Keeper {
            child: Group(child),
            stop: stop.clone(),
            grace: around.limits.kill_grace,
            world: around.world.clone(),
        };
        around.world.spawn.spawn(Box::pin(async move {
            let exit = keeper.keep().await;
            sender.send_replace(Some(exit));
        }));
        let process = Self { tail, id, exited, stop };
        Ok((process, Pipes { input, output }))
    }

    /// How it ended, if it has.
    pub(crate) fn exit(&self) -> Option<Exit> {
        self.exited.borrow().clone()
    }

    /// Waits for its end.
    pub(crate) async fn exited(&self) {
        // An error means that the keeper is gone, and the process with it.
        drop(self.exited.clone().wait_for(Option::is_some).await);
    }

    /// Waits a moment for its end and for its last words: they belong into the fault that follows.
    pub(crate) async fn silent_soon(&self, world: &World) {
        let silent = async {
            self.exited().await;
            self.tail.closed().await;
        };
        tokio::select! {
            biased;
            () = silent => {}
            () = world.clock.sleep(LAST_WORDS) => {}
        }
    }

    /// Ends it and waits until it has ended. Its input should be closed by now.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        self.exited().await;
    }
}

/// The command of a server, with a filtered environment.
fn command(config: &Stdio) -> Command {
    let mut command = Command::new(&config.command);
    command.args(&config.args).env_clear().envs(inherited(config));
    for (name, value) in &config.env {
        command.env(name, value.expose_secret());
    }
    if let Some(cwd) = &config.cwd {
        command.current_dir(cwd);
    }
    command.stdin(Pipe::piped()).stdout(Pipe::piped()).stderr(Pipe::piped());
    command
}

/// What is passed on of our own environment. It is never looked at.
fn inherited(config: &Stdio) -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| {
        let Some(name) = name.to_str() else { return false };
        USUAL.iter().any(|pattern| matches(pattern, name))
            || config.inherit.iter().any(|pattern| matches(pattern, name))
    })
}

/// A child whose whole group dies with it.
#[derive(Debug)]
struct Group(Box<dyn ChildWrapper>);

impl Group {
    async fn wait(&mut self) -> Exit {
        self.0.wait().await.map_or(Exit::Unknown, Exit::from)
    }

    /// Kills every member. An error means that there is none left.
    fn kill(&mut self) {
        drop(self.0.start_kill());
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Keeper {
    child: Group,
    stop: CancellationToken,
    grace: Duration,
    world: World,
}

impl Keeper {
    async fn keep(mut self) -> Exit {
        let exit = tokio::select! {
            biased;
            exit = self.child.wait() => exit,
            () = self.stop.cancelled() => self.end().await,
        };
        // Whoever it left behind goes too.
        self.child.kill();
        exit
    }

    async fn end(&mut self) -> Exit {
        if let Some(exit) = self.within_grace().await {
            return exit;
        }
        drop(self.child.0.signal(SIGTERM));
        if let Some(exit) = self.within_grace().await {
            return exit;
        }
        self.child.kill();
        self.child.wait().await
    }

    async fn within_grace(&mut self) -> Option<Exit> {
        tokio::select! {
            biased;
            exit = self.child.wait() => Some(exit),
            () = self.world.clock.sleep(self.grace) => None,
        }
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        use std::os::unix::process::ExitStatusExt;
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Unknown,
        }
    }
}
