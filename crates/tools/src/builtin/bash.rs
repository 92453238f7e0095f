//! `bash_run`, `bash_logs` and `bash_kill`: shell commands in the foreground or in the background.

mod capture;
mod child;
mod environment;
mod shells;

use std::{sync::Arc, time::Duration};

use budao_core::{
    fault::{Detail, Fact, Fault, Kind, Operation, text},
    tool::{Effect, Failure},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

pub use environment::Environment;
pub use shells::Shells;

use super::{
    BuiltinOptions, Workspace, budget,
    define::{Builtin, failure},
    io_errors::{advice, invalid},
};
use crate::contract::{CallContext, ToolResult};
use capture::{Capture, LiveOutput};
use child::{CommandResult, CommandSpec, EndReason, OutputStream};
use shells::{Shell, ShellState};

/// Lines of error output that a fault includes.
const TAIL_LINES: usize = 20;
/// Maximum size of those lines, in JSON bytes.
const TAIL_ROOM: usize = 2 * 1024;
/// Output kept for a background shell, in bytes.
const BACKGROUND_BYTES: usize = 1024 * 1024;
/// Time for ending a command, in addition to its grace.
const ENDING_MAX: Duration = Duration::from_secs(10);

/// State shared by the three tools: the workspace and the options.
#[derive(Clone, Debug)]
pub(super) struct Bash(Arc<(Workspace, BuiltinOptions)>);

impl Bash {
    pub(super) fn new(workspace: Workspace, options: BuiltinOptions) -> Self {
        Self(Arc::new((workspace, options)))
    }

    fn options(&self) -> &BuiltinOptions {
        &self.0.1
    }

    fn setup<'a>(&'a self, command: &'a str, context: &'a CallContext) -> CommandSpec<'a> {
        CommandSpec { workspace: &self.0.0, options: self.options(), command, context }
    }
}

/// The `bash_run` tool.
#[derive(Debug)]
pub(super) struct BashRun(pub(super) Bash);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RunArgs {
    /// The command line, run by bash (or sh) in the workspace. Its standard input is empty.
    #[schemars(length(min = 1))]
    cmd: String,
    /// How long it may take, in milliseconds. Default: 120000; none for a background command.
    #[schemars(range(min = 1))]
    timeout_ms: Option<u64>,
    /// Return at once and let it run; see `bash_logs` and `bash_kill`. Default: false.
    #[serde(default)]
    background: bool,
}

impl Builtin for BashRun {
    const NAME: &'static str = "bash_run";
    const ABOUT: &'static str = "Runs a command in the workspace and returns its output. A command that is \
        still running at its deadline is ended with everything it started, and so is everything a finished \
        command has left running. Set `background` for a server or a long job.";
    const EFFECT: Effect = Effect::Executes;
    const IDEMPOTENT: bool = false;
    const OPERATION: Operation = Operation::RunCommand;

    type Args = RunArgs;

    fn deadline(&self) -> Option<Duration> {
        // The command's own timeout fires first; this deadline covers a command that cannot be ended.
        Some(self.0.options().timeout_max + ENDING_MAX)
    }

    async fn run(&self, args: RunArgs, context: &CallContext) -> ToolResult {
        let timeout = self.timeout(&args).map_err(failure)?;
        let setup = self.0.setup(&args.cmd, context);
        let running = child::start(&setup).await.map_err(failure)?;
        if args.background {
            return shells::keep(&self.0.options().shells, running, &args.cmd, timeout, context);
        }
        let mut output = Capture::new(context.limits.output_bytes_kept);
        let mut errors = Capture::new(2 * TAIL_ROOM);
        let mut live = LiveOutput::new(context.notes.clone(), context.limits.output_bytes);
        let take = |stream, bytes: &[u8]| {
            output.push(bytes);
            live.push(bytes);
            if stream == OutputStream::Err {
                errors.push(bytes);
            }
        };
        let timeout = timeout.unwrap_or(self.0.options().timeout);
        let finish = running.finish(Some(timeout), &context.cancel, take).await;
        answer(&args.cmd, timeout, &finish, &output, &errors, context).await
    }
}

impl BashRun {
    fn timeout(&self, args: &RunArgs) -> Result<Option<Duration>, Fault> {
        let max = self.0.options().timeout_max;
        let requested = args.timeout_ms.map(Duration::from_millis);
        match requested {
            Some(requested) if requested > max && !args.background => Err(invalid(
                Operation::RunCommand,
                "/timeout_ms",
                "maximum",
                format!("must be at most {}; use `background` for longer", max.as_millis()),
                Some(requested.as_millis().to_string()),
            )),
            requested => Ok(requested),
        }
    }
}

/// The result of a foreground command: its output, or a fault.
async fn answer(
    command: &str,
    timeout: Duration,
    finish: &CommandResult,
    output: &Capture,
    errors: &Capture,
    context: &CallContext,
) -> ToolResult {
    let data = output_data(finish, output, context).await;
    let fault = match finish.reason {
        EndReason::Exited if finish.ended.code == Some(0) => return Ok(data),
        EndReason::Exited => ended_badly(command, finish, &errors.end()),
        EndReason::Deadline => Fault::new(Kind::DeadlinePassed, Operation::RunCommand)
            .with(Fact::TimeoutMs, timeout)
            .with(Fact::ElapsedMs, finish.elapsed)
            .with(Fact::ToolName, BashRun::NAME),
        EndReason::Cancelled => {
            Fault::new(Kind::Cancelled, Operation::RunCommand).with(Fact::ToolName, BashRun::NAME)
        }
    };
    Err(Failure { fault, data: Some(data), note: None })
}

/// The data of a result or a fault: the bounded output and details of the exit.
async fn output_data(finish: &CommandResult, output: &Capture, context: &CallContext) -> Value {
    let shown = output.shown(budget::text_room(&context.limits));
    let mut data = json!({ "background": false, "code": finish.ended.code, "output": shown.text });
    if shown.cut {
        data["output_bytes"] = output.total().into();
        if let Some(whole) = output.whole()
            && let Ok(name) = context.blobs.put(whole).await
        {
            data["output_kept"] = name.into();
        }
    }
    if finish.ended.left > 0 {
        data["left_running_and_ended"] = finish.ended.left.into();
    }
    if finish.ended.survivors > 0 {
        data["could_not_be_ended"] = finish.ended.survivors.into();
    }
    data
}

fn ended_badly(command: &str, finish: &CommandResult, errors: &str) -> Fault {
    let tail = budget::last_lines(errors, TAIL_LINES, TAIL_ROOM).to_owned();
    let short = budget::head(command, 300).to_owned();
    let fault = match (finish.ended.code, finish.ended.signal) {
        (Some(code), _) => {
            Fault::new(Kind::ExitStatus, Operation::RunCommand).with(Fact::ExitCode, code)
        }
        (None, signal) => Fault::new(Kind::KilledBySignal, Operation::RunCommand)
            .with(Fact::Signal, signal.map_or_else(|| "an unknown signal".to_owned(), signal_name)),
    };
    let fault = fault.with(Fact::Command, short);
    if tail.is_empty() { fault } else { fault.with(Fact::StderrTail, tail) }
}

fn signal_name(number: i32) -> String {
    let name = match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

/// The `bash_logs` tool.
#[derive(Debug)]
pub(super) struct BashLogs(pub(super) Bash);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ShellArgs {
    /// The id `bash_run` gave for a background command.
    #[schemars(length(min = 1, max = 128))]
    shell_id: String,
}

impl Builtin for BashLogs {
    const NAME: &'static str = "bash_logs";
    const ABOUT: &'static str = "Returns what a background command has printed so far, and whether it is \
        still running.";
    const EFFECT: Effect = Effect::Reads;
    const IDEMPOTENT: bool = true;
    const OPERATION: Operation = Operation::ReadShell;

    type Args = ShellArgs;

    async fn run(&self, args: ShellArgs, context: &CallContext) -> ToolResult {
        let shells = &self.0.options().shells;
        let shell =
            shells.find(&args.shell_id, context.session, Self::OPERATION).map_err(failure)?;
        Ok(report(&shell, budget::text_room(&context.limits)))
    }
}

fn report(shell: &Shell, room: usize) -> Value {
    let (state, shown, total) = shell.look(room);
    let mut data = json!({
        "ok": true,
        "shell_id": shell.id(),
        "status": state.name(),
        "running": matches!(state, ShellState::Running),
        "code": state.code(),
        "output": shown.text,
    });
    if shown.cut {
        data["output_bytes"] = total.into();
    }
    if let Some(signal) = state.signal() {
        data["signal"] = signal_name(signal).into();
    }
    data
}

/// The `bash_kill` tool.
#[derive(Debug)]
pub(super) struct BashKill(pub(super) Bash);

impl Builtin for BashKill {
    const NAME: &'static str = "bash_kill";
    const ABOUT: &'static str = "Ends a background command and everything it started, and waits until it is \
        gone.";
    const EFFECT: Effect = Effect::Executes;
    const IDEMPOTENT: bool = false;
    const OPERATION: Operation = Operation::KillShell;

    type Args = ShellArgs;

    fn deadline(&self) -> Option<Duration> {
        Some(ENDING_MAX * 2)
    }

    async fn run(&self, args: ShellArgs, context: &CallContext) -> ToolResult {
        let shells = &self.0.options().shells;
        let shell =
            shells.find(&args.shell_id, context.session, Self::OPERATION).map_err(failure)?;
        let was_running = matches!(shell.look(0).0, ShellState::Running);
        shell.stop().await;
        let mut data = report(&shell, budget::text_room(&context.limits));
        let id = if was_running { "advice-shell-ended" } else { "advice-shell-had-ended" };
        data["message"] = text::line(id, &Detail::new(), context.lang).into();
        Ok(data)
    }
}

/// The fault for reaching the limit of background shells; it lists the running ones.
fn too_many(limit: usize, running: Vec<String>) -> Fault {
    Fault::new(Kind::LimitReached, Operation::RunCommand)
        .with(Fact::LimitName, "background_shells")
        .with(Fact::Limit, limit)
        .with(Fact::Actual, running.len())
        .advise_model([advice("shells-running", Detail::new().with(Fact::Allowed, running))])
}
