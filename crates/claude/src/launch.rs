//! Starts the CLI: a trait, so that tests can play the CLI over a pipe, and its real implementation.

use std::{ffi::OsString, fmt, io, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    event::{SessionId, Settings},
    fault::{Fact, Fault, Kind, Operation},
    world::World,
};
use budao_scrub::Scrubber;
use budao_tools::{
    child::{Tail, drain},
    launch::{self, Child, CommandExit, GracePeriods, Input},
};
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::{PROGRAM, machine::Launch, permissions};

/// Time between the end of the CLI's input and SIGTERM.
const LEAVE: Duration = Duration::from_millis(100);
/// How long to wait for the rest of an ended process's standard error.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The inputs of one start of the CLI.
#[derive(Clone, Debug)]
pub struct LaunchSpec {
    /// The session; its id is also the id of the CLI's conversation.
    pub session: SessionId,
    /// The conversation to start on: new, resumed or forked.
    pub launch: Launch,
    /// The session's settings at the start.
    pub settings: Settings,
    /// MCP servers in the format of the CLI's `mcpServers`; may contain keys.
    pub mcp_servers: Option<Value>,
}

/// A running CLI.
pub struct RunningCli {
    /// The process id; `None` if a test plays the CLI.
    pub pid: Option<u32>,
    /// The CLI's standard input; dropping it closes it.
    pub input: Box<dyn AsyncWrite + Send + Unpin>,
    /// The CLI's standard output.
    pub output: Box<dyn AsyncRead + Send + Unpin>,
    /// Cancelling it ends the CLI and everything it started.
    pub stop: CancellationToken,
    /// Completes when the CLI has ended, with a fault that carries exit code or signal and the end of standard error.
    pub ended: BoxFuture<'static, Fault>,
}

impl fmt::Debug for RunningCli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningCli").field("pid", &self.pid).finish_non_exhaustive()
    }
}

/// Starts CLI processes.
#[async_trait]
pub trait Launcher: Send + Sync + fmt::Debug {
    /// Starts one CLI. The caller ends it with `RunningCli::stop`.
    ///
    /// # Errors
    /// The program or its workspace is missing, or the process cannot be started.
    async fn launch(&self, start: LaunchSpec) -> Result<RunningCli, Fault>;
}

/// Starts the real CLI as a child process.
#[derive(Clone, Debug)]
pub struct CliProgram {
    /// Path of the program; see [`crate::find`].
    pub path: PathBuf,
    /// Arguments that precede all others.
    pub args: Vec<String>,
    /// Environment variables to add to, or to override in, the inherited ones.
    pub env: Vec<(OsString, OsString)>,
    /// True to pass on this process's environment, which the CLI needs for its sign-in.
    pub inherit_env: bool,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Starts the supervisor under which the CLI runs. Without one, a `kill -9` of this program leaves
    /// the CLI running.
    pub supervisor: Option<launch::Launcher>,
    /// Clock, entropy and spawner.
    pub world: World,
    /// Removes secrets from the CLI's standard error.
    pub scrubber: Scrubber,
}

impl CliProgram {
    /// Describes the program at this path, with the inherited environment and a grace of 2 s.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, world: World) -> Self {
        Self {
            path: path.into(),
            args: Vec::new(),
            env: Vec::new(),
            inherit_env: true,
            grace: Duration::from_secs(2),
            supervisor: launch::installed(),
            world,
            scrubber: Scrubber::new(),
        }
    }

    fn to_start(
        &self,
        start: &LaunchSpec,
        servers: Option<&tempfile::NamedTempFile>,
    ) -> launch::Start {
        let mut program = launch::Start::new(&self.path, self.world.uuid().as_u128());
        program.inherits_env = self.inherit_env;
        // The CLI refuses to run if this variable shows that another CLI started it.
        program.env_without = vec!["CLAUDECODE".into()];
        program.env.clone_from(&self.env);
        program.args.extend(self.args.iter().chain(&arguments(start)).map(Into::into));
        if let Some(servers) = servers {
            program.args.extend(["--mcp-config".into(), servers.path().into()]);
        }
        program.directory = start.settings.workspace.as_ref().map(PathBuf::from);
        program.input = Input::Piped;
        // No grace for orphans: without a reader, or after the CLI's end, nothing that changes files may go on.
        let zero = Duration::ZERO;
        program.grace_periods = GracePeriods { stop: self.grace, orphan: zero, left: zero };
        program
    }
}

/// Builds the CLI's arguments for a session, without `--mcp-config`.
#[must_use]
pub fn arguments(start: &LaunchSpec) -> Vec<String> {
    let LaunchSpec { session, launch, settings, .. } = start;
    let mut args: Vec<String> =
        "-p --output-format stream-json --input-format stream-json --verbose \
        --include-partial-messages --replay-user-messages --permission-prompt-tool stdio"
            .split_whitespace()
            .map(str::to_owned)
            .collect();
    let mut add = |flag: &str, value: String| args.extend([flag.to_owned(), value]);
    match launch {
        Launch::Fresh => add("--session-id", session.to_string()),
        Launch::Resume => add("--resume", session.to_string()),
        Launch::Fork(parent) => {
            add("--session-id", session.to_string());
            add("--resume", parent.to_string());
        }
    }
    // Always set: without it, a resumed CLI restores the mode in which its conversation was left.
    add("--permission-mode", permissions::mode(settings).to_owned());
    if let Some(model) = permissions::model(settings) {
        add("--model", model.to_owned());
    }
    if let Some(system) = &settings.system {
        add("--append-system-prompt", system.to_string());
    }
    if let Some(rules) = permissions::rules(settings) {
        add("--settings", rules.to_string());
    }
    if let Some(tools) = &settings.tools {
        add("--tools", tools.join(","));
    }
    if let Some(steps) = settings.max_steps {
        add("--max-turns", steps.to_string());
    }
    let directories = settings.extra.get(permissions::DIRECTORIES).and_then(Value::as_array);
    for directory in directories.into_iter().flatten().filter_map(Value::as_str) {
        add("--add-dir", directory.to_owned());
    }
    if matches!(launch, Launch::Fork(_)) {
        args.push("--fork-session".to_owned());
    }
    args
}

#[async_trait]
impl Launcher for CliProgram {
    async fn launch(&self, start: LaunchSpec) -> Result<RunningCli, Fault> {
        let not_started = |error: &io::Error| {
            let missing = error.kind() == io::ErrorKind::NotFound;
            let kind = if missing { Kind::CliNotInstalled } else { Kind::CliExited };
            Fault::new(kind, Operation::StartCli).with(Fact::Program, PROGRAM).caused_by(error)
        };
        if let Some(workspace) = &start.settings.workspace
            && !std::path::Path::new(workspace).is_dir()
        {
            return Err(Fault::new(Kind::FileNotFound, Operation::StartCli)
                .with(Fact::Path, workspace.clone()));
        }
        // Servers go into a file: their keys must not appear on a command line, which other users can read.
        let servers = start.mcp_servers.as_ref().map(servers_file).transpose();
        let servers = servers.map_err(|error| not_started(&error))?;
        let program = self.to_start(&start, servers.as_ref());
        let spawned = program.spawn(self.supervisor.as_ref()).await;
        let mut child = spawned.map_err(|error| not_started(&error))?;
        let missing = || not_started(&io::Error::other("a pipe of the child is missing"));
        let pid = Some(child.pid());
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = child.stdout.take().ok_or_else(missing)?;
        let errors = child.stderr.take().ok_or_else(missing)?;
        let tail = Arc::new(Tail::default());
        let drained = drain(
            errors,
            tail.clone(),
            format!("claude {}", start.session).into(),
            self.scrubber.clone(),
            self.world.clock.clone(),
        );
        self.world.spawn.spawn(Box::pin(drained));
        let stop = CancellationToken::new();
        let keeper = ProcessSupervisor {
            child,
            stop: stop.clone(),
            grace: self.grace,
            world: self.world.clone(),
            tail,
            servers,
        };
        let (sender, ended) = tokio::sync::oneshot::channel();
        // A task of its own: the process is reaped and its group ended even if `ended` is dropped.
        self.world.spawn.spawn(Box::pin(async move {
            drop(sender.send(keeper.keep().await));
        }));
        let ended = Box::pin(async move { ended.await.unwrap_or_else(|_| exit_fault()) });
        Ok(RunningCli { pid, input: Box::new(input), output: Box::new(output), stop, ended })
    }
}

fn servers_file(servers: &Value) -> io::Result<tempfile::NamedTempFile> {
    let file = tempfile::Builder::new().prefix("budao-mcp-").suffix(".json").tempfile()?;
    serde_json::to_writer(file.as_file(), &serde_json::json!({"mcpServers": servers}))?;
    Ok(file)
}

fn exit_fault() -> Fault {
    Fault::new(Kind::CliExited, Operation::ReadCli).with(Fact::Program, PROGRAM)
}

struct ProcessSupervisor {
    child: Child,
    stop: CancellationToken,
    grace: Duration,
    world: World,
    tail: Arc<Tail>,
    servers: Option<tempfile::NamedTempFile>,
}

impl ProcessSupervisor {
    /// Waits for the end of the process, or ends it when `stop` is cancelled. Returns the fault that
    /// describes the end.
    async fn keep(mut self) -> Fault {
        let ended = tokio::select! {
            biased;
            ended = self.child.wait() => ended,
            () = self.stop.cancelled() => self.end().await,
        };
        tokio::select! {
            biased;
            () = self.tail.closed() => {}
            () = self.world.clock.sleep(LAST_WORDS) => {}
        }
        drop(self.servers);
        self.tail.onto(with_status(exit_fault(), &ended))
    }

    async fn end(&mut self) -> CommandExit {
        if let Some(ended) = self.wait_at_most(LEAVE).await {
            return ended;
        }
        self.child.terminate();
        if let Some(ended) = self.wait_at_most(self.grace).await {
            return ended;
        }
        self.child.kill();
        self.child.wait().await
    }

    async fn wait_at_most(&mut self, wait: Duration) -> Option<CommandExit> {
        tokio::select! {
            biased;
            ended = self.child.wait() => Some(ended),
            () = self.world.clock.sleep(wait) => None,
        }
    }
}

fn with_status(fault: Fault, ended: &CommandExit) -> Fault {
    match (ended.code, ended.signal) {
        (Some(code), _) => fault.with(Fact::ExitCode, code),
        (None, Some(signal)) => fault.with(Fact::Signal, signal),
        (None, None) => fault,
    }
}

#[cfg(test)]
#[allow(clippy::print_stderr, reason = "how many were tried is part of the result")]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    /// Flags without a value; every other flag takes the next word as its value.
    const ALONE: [&str; 5] = [
        "-p",
        "--verbose",
        "--include-partial-messages",
        "--replay-user-messages",
        "--fork-session",
    ];

    /// Setting values that try to become flags.
    fn values() -> Vec<String> {
        let flags = [
            "--dangerously-skip-permissions",
            "--permission-mode",
            "--permission-mode=bypassPermissions",
            "--mcp-config",
            "--settings",
            "--add-dir",
            "--allowedTools",
            "-p",
            "--",
            "-",
        ];
        let frames: [fn(&str) -> String; 10] = [
            str::to_owned,
            |flag| format!("opus {flag}"),
            |flag| format!("opus\n{flag}"),
            |flag| format!("opus\0{flag}"),
            |flag| format!("\"{flag}\""),
            |flag| format!("opus,{flag}"),
            |flag| format!("opus;{flag}"),
            |flag| format!("$({flag})"),
            |flag| format!("={flag}"),
            |flag| format!(" {flag} x"),
        ];
        flags.iter().flat_map(|flag| frames.iter().map(move |frame| frame(flag))).collect()
    }

    /// Lists the flags of a command line, parsed as the CLI parses it.
    fn flags(args: &[String]) -> Vec<&str> {
        let (mut flags, mut rest) = (Vec::new(), args.iter());
        while let Some(arg) = rest.next() {
            flags.push(arg.as_str());
            if !ALONE.contains(&arg.as_str()) {
                rest.next();
            }
        }
        flags
    }

    /// Goal: a setting is always a value and never a flag. Method: put flag-like words into every setting
    /// that reaches the command line; its flags must equal those of a plain word.
    #[test]
    fn no_setting_becomes_a_flag() {
        let set: [fn(&mut Settings, &str); 5] = [
            |settings, value| settings.model = value.to_owned(),
            |settings, value| settings.system = Some(value.into()),
            |settings, value| settings.tools = Some(vec![value.to_owned(), "Read".to_owned()]),
            |settings, value| {
                settings.extra.insert(permissions::DIRECTORIES.to_owned(), json!([value]));
            },
            |settings, value| settings.permissions.deny = vec![value.to_owned()],
        ];
        let mut cases = 0;
        for set in set {
            let started = |value: &str| {
                let mut settings = Settings::default();
                set(&mut settings, value);
                let session = SessionId(uuid::Uuid::from_u128(7));
                arguments(&LaunchSpec {
                    session,
                    launch: Launch::Fresh,
                    settings,
                    mcp_servers: None,
                })
            };
            let plain: BTreeSet<String> =
                flags(&started("word")).into_iter().map(str::to_owned).collect();
            for value in values() {
                let args = started(&value);
                let found: BTreeSet<String> = flags(&args).into_iter().map(str::to_owned).collect();
                assert_eq!(found, plain, "{value:?}: {args:?}");
                cases += 1;
            }
        }
        assert!(cases >= 500, "{cases} cases");
        eprintln!("security T3: {cases} settings that look like flags");
    }
}
