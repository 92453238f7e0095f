//! How the CLI is started: a port, so that tests can play it over a pipe, and the real thing.

use std::{ffi::OsString, fmt, io, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    event::{SessionId, Settings},
    fault::{Fact, Fault, Kind, Operation},
    scrub::Scrubber,
    world::World,
};
use budao_tools::{
    child::{Tail, drain},
    launch::{self, Child, CommandExit, Graces, Input},
};
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::{PROGRAM, machine::Launch, permissions};

/// From the end of its input to TERM.
const LEAVE: Duration = Duration::from_millis(100);
/// How long the last words of a process that has ended may take to arrive.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What a CLI is started for.
#[derive(Clone, Debug)]
pub struct LaunchSpec {
    /// The session, whose id is the conversation's.
    pub session: SessionId,
    /// On which conversation.
    pub launch: Launch,
    /// Set to what.
    pub settings: Settings,
    /// MCP servers, as the CLI's `mcpServers` has them.
    pub mcp_servers: Option<Value>,
}

/// A CLI that runs.
pub struct RunningCli {
    /// Its process, if it is one.
    pub pid: Option<u32>,
    /// What it reads.
    pub input: Box<dyn AsyncWrite + Send + Unpin>,
    /// What it writes.
    pub output: Box<dyn AsyncRead + Send + Unpin>,
    /// Ends it, with everything it started.
    pub stop: CancellationToken,
    /// Its end, as a fault that says how.
    pub ended: BoxFuture<'static, Fault>,
}

impl fmt::Debug for RunningCli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("pid", &self.pid).finish_non_exhaustive()
    }
}

/// Starts CLIs.
#[async_trait]
pub trait Launcher: Send + Sync + fmt::Debug {
    /// Starts one.
    ///
    /// # Errors
    /// When it cannot be started.
    async fn launch(&self, start: LaunchSpec) -> Result<RunningCli, Fault>;
}

/// Starts the real one.
#[derive(Clone, Debug)]
pub struct CliProgram {
    /// The program.
    pub path: PathBuf,
    /// Arguments before all others.
    pub args: Vec<String>,
    /// Variables besides, or instead of, those of this process.
    pub env: Vec<(OsString, OsString)>,
    /// Are this process's variables passed on? The CLI keeps its sign-in there.
    pub inherit_env: bool,
    /// From TERM to KILL.
    pub grace: Duration,
    /// Starts the supervisor under which the CLI runs. Without one a `kill -9` of this program leaves the CLI behind.
    pub supervisor: Option<launch::Launcher>,
    /// Time and tasks.
    pub world: World,
    /// Takes secrets out of what it complains about.
    pub scrubber: Scrubber,
}

impl CliProgram {
    /// The program at this path, with this process's variables.
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
        // A CLI that was itself started by a CLI refuses to run.
        program.env_without = vec!["CLAUDECODE".into()];
        program.env.clone_from(&self.env);
        program.args.extend(self.args.iter().chain(&arguments(start)).map(Into::into));
        if let Some(servers) = servers {
            program.args.extend(["--mcp-config".into(), servers.path().into()]);
        }
        program.directory = start.settings.workspace.as_ref().map(PathBuf::from);
        program.input = Input::Piped;
        // Once its output is read by nobody, or its program has ended, nothing that changes files may go on.
        let zero = Duration::ZERO;
        program.graces = Graces { stop: self.grace, orphan: zero, left: zero };
        program
    }
}

/// The arguments for a session.
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
    // Always: a CLI that resumes without it restores the mode its conversation was left in.
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
        // Keys of servers must not stand on a command line, where everybody can read them.
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
        // Its own task: the process is waited for and its group ended even if nobody listens.
        self.world.spawn.spawn(Box::pin(async move {
            drop(sender.send(keeper.keep().await));
        }));
        let ended = Box::pin(async move { ended.await.unwrap_or_else(|_| exited()) });
        Ok(RunningCli { pid, input: Box::new(input), output: Box::new(output), stop, ended })
    }
}

fn servers_file(servers: &Value) -> io::Result<tempfile::NamedTempFile> {
    let file = tempfile::Builder::new().prefix("budao-mcp-").suffix(".json").tempfile()?;
    serde_json::to_writer(file.as_file(), &serde_json::json!({"mcpServers": servers}))?;
    Ok(file)
}

fn exited() -> Fault {
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
    /// Waits for the end, or brings it about; tells how it ended.
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
        self.tail.onto(with_status(exited(), &ended))
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

    /// Flags of ours that stand alone; every other one takes the next word, whatever it is, as its value.
    const ALONE: [&str; 5] = [
        "-p",
        "--verbose",
        "--include-partial-messages",
        "--replay-user-messages",
        "--fork-session",
    ];

    /// What somebody might set to be more than a value.
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

    /// The flags of a command line, read as the CLI reads it.
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

    /// Goal: what a session is set to is a value and never a flag. Method: words that look like flags in every setting
    /// that reaches the command line; the flags there are those of the same setting with a plain word.
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
