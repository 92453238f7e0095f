//! A server's process, started under a supervisor and ended together with its descendants.
//!
//! One task owns the child and reaps it, so no zombie remains. When the task is stopped or dropped, it closes the
//! input, waits, sends TERM, waits again and sends KILL.

use std::{ffi::OsString, fmt, io, sync::Arc, time::Duration};

use budao_core::{limits::Limits, world::World};
use budao_scrub::Scrubber;
use budao_tools::{
    child::{Tail, drain},
    launch::{self, Child, CommandExit, Confinement, GracePeriods, Input, Start},
};
use secrecy::ExposeSecret;
use tokio::{
    net::unix::pipe::{Receiver, Sender},
    sync::{broadcast, watch},
};
use tokio_util::sync::CancellationToken;

use crate::{
    auth::TokenSource,
    config::{ConfineConfig, Stdio, matches},
    resources::ResourceChange,
};

/// Variables that every server inherits: paths, user, locale. None of them holds a key.
const USUAL: &[&str] =
    &["HOME", "LANG", "LC_*", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER", "XDG_*"];

/// The time from TERM to KILL after the program that started the server has ended. Some servers need it to clean up: a
/// container outlives the client that started it.
const ORPHAN_GRACE: Duration = Duration::from_millis(300);

/// How long to wait for the remaining stderr output of an ended process.
pub(crate) const LAST_WORDS: Duration = Duration::from_millis(500);

/// A handle to a server's process. Dropping it ends the process.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    pub(crate) tail: Arc<Tail>,
    pub(crate) id: u32,
    exited: watch::Receiver<Option<ProcessExit>>,
    stop: CancellationToken,
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The standard input and output of a process.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) input: Sender,
    pub(crate) output: Receiver,
}

/// The exit status of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProcessExit {
    Code(i32),
    Signal(i32),
    Unknown,
}

/// The environment variables of the program that starts servers: `std::env::vars_os().collect()`. A stdio server gets
/// the usual ones (`PATH`, `HOME` …) and those that its `inherit` names. Debug output omits the values.
#[derive(Clone, Default)]
pub struct ProcessVariables(Arc<[(OsString, OsString)]>);

impl FromIterator<(OsString, OsString)> for ProcessVariables {
    fn from_iter<I: IntoIterator<Item = (OsString, OsString)>>(variables: I) -> Self {
        Self(variables.into_iter().collect())
    }
}

impl fmt::Debug for ProcessVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// The environment of a connection: clock, limits, scrubber and channels.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionContext {
    pub(crate) server: Arc<str>,
    pub(crate) world: World,
    pub(crate) limits: Arc<Limits>,
    pub(crate) scrubber: Scrubber,
    pub(crate) variables: ProcessVariables,
    /// The login to the server; `None` for a server that takes none.
    pub(crate) token_source: Option<TokenSource>,
    /// Sends changes of the server's resources.
    pub(crate) changes: broadcast::Sender<ResourceChange>,
    /// Cancelled when the last handle is dropped or the server is shut down.
    pub(crate) stop: CancellationToken,
}

impl ServerProcess {
    /// Starts the process, and the tasks that read its stderr and wait for its end.
    pub(crate) async fn start(
        config: &Stdio,
        confine: Option<&ConfineConfig>,
        connection_context: &ConnectionContext,
    ) -> io::Result<(Self, Pipes)> {
        let mut start = to_start(config, connection_context);
        start.confine = confine.map(|paths| confinement(paths, config));
        let mut child = start.spawn(launch::installed().as_ref()).await?;
        let missing = || io::Error::other("a pipe of the child is missing");
        let id = child.pid();
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = child.stdout.take().ok_or_else(missing)?;
        let errors = child.stderr.take().ok_or_else(missing)?;
        let tail = Arc::new(Tail::default());
        let (server, clock) =
            (connection_context.server.clone(), connection_context.world.clock.clone());
        let drained =
            drain(errors, tail.clone(), server, connection_context.scrubber.clone(), clock);
        connection_context.world.spawn.spawn(Box::pin(drained));
        let stop = CancellationToken::new();
        let (sender, exited) = watch::channel(None);
        let keeper = ProcessSupervisor {
            child,
            stop: stop.clone(),
            grace: connection_context.limits.kill_grace,
            world: connection_context.world.clone(),
        };
        connection_context.world.spawn.spawn(Box::pin(async move {
            let exit = keeper.keep().await;
            sender.send_replace(Some(exit));
        }));
        let process = Self { tail, id, exited, stop };
        Ok((process, Pipes { input, output }))
    }

    /// The exit status; `None` while the process runs.
    pub(crate) fn exit(&self) -> Option<ProcessExit> {
        self.exited.borrow().clone()
    }

    /// Waits until the process has ended.
    pub(crate) async fn exited(&self) {
        // An error means that the supervising task has ended, and the process with it.
        drop(self.exited.clone().wait_for(Option::is_some).await);
    }

    /// Waits at most [`LAST_WORDS`] for the end and the last stderr output, which go into the fault that follows.
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

    /// Ends the process and waits for its end. The caller closes the input first.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        self.exited().await;
    }
}

/// The start parameters of a server, with a filtered environment.
fn to_start(config: &Stdio, connection_context: &ConnectionContext) -> Start {
    let mut start = Start::new(&config.command, connection_context.world.uuid().as_u128());
    start.args = config.args.iter().map(Into::into).collect();
    start.inherits_env = false;
    start.env = connection_context.variables.inherited(config).collect();
    let own = config.env.iter();
    start.env.extend(own.map(|(name, value)| (name.into(), value.expose_secret().into())));
    start.directory = config.cwd.as_ref().map(Into::into);
    start.input = Input::Piped;
    let grace = connection_context.limits.kill_grace;
    start.grace_periods =
        GracePeriods { stop: grace, orphan: ORPHAN_GRACE.min(grace), left: Duration::ZERO };
    start
}

/// The configured paths, and what every program needs to run at all. A confined program may use its own directory.
fn confinement(paths: &ConfineConfig, config: &Stdio) -> Confinement {
    let mut write = paths.write.clone();
    write.extend(config.cwd.clone());
    write.push("/dev/null".into());
    Confinement { read: paths.read.clone(), write }
}

impl ProcessVariables {
    /// The value of a variable; `None` if it is not set or not valid Unicode.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.and_then(|(_, value)| value.to_str()).map(str::to_owned)
    }

    /// The variables to pass on. Their values are not inspected.
    fn inherited(&self, config: &Stdio) -> impl Iterator<Item = (OsString, OsString)> {
        let is_inherited = |name: &str| {
            USUAL.iter().any(|pattern| matches(pattern, name))
                || config.inherit.iter().any(|pattern| matches(pattern, name))
        };
        self.0.iter().filter(move |(name, _)| name.to_str().is_some_and(is_inherited)).cloned()
    }
}

struct ProcessSupervisor {
    child: Child,
    stop: CancellationToken,
    grace: Duration,
    world: World,
}

impl ProcessSupervisor {
    async fn keep(mut self) -> ProcessExit {
        let ended = tokio::select! {
            biased;
            ended = self.child.wait() => ended,
            () = self.stop.cancelled() => self.end().await,
        };
        ended.into()
    }

    async fn end(&mut self) -> CommandExit {
        if let Some(ended) = self.within_grace().await {
            return ended;
        }
        self.child.terminate();
        if let Some(ended) = self.within_grace().await {
            return ended;
        }
        self.child.kill();
        self.child.wait().await
    }

    async fn within_grace(&mut self) -> Option<CommandExit> {
        tokio::select! {
            biased;
            ended = self.child.wait() => Some(ended),
            () = self.world.clock.sleep(self.grace) => None,
        }
    }
}

impl From<CommandExit> for ProcessExit {
    fn from(ended: CommandExit) -> Self {
        match (ended.code, ended.signal) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Unknown,
        }
    }
}
