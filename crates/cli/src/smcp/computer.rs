//! `budao smcp computer`: MCP servers of this machine for the agent of a room.

use std::{
    io::{BufRead as _, IsTerminal as _, Write as _},
    path::PathBuf,
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use budao_core::{
    Fault, Lang,
    fault::{Fact, Kind, Operation},
};
use budao_mcp::State;
use budao_runtime::world;
use budao_smcp::computer::{Computer, Config, Confirm, Input, Question, Settings, Sort, Values};

use crate::{exit::Exit, terminal::Terminal, words::say};

/// A program that says a value, or decides about a call, has this long.
const PROGRAM_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub(super) struct ComputerArgs {
    #[command(flatten)]
    way: super::Way,
    /// The MCP servers, as JSON
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// What happens when a tool wants to run that is not applied by itself: ask at the terminal, or no
    #[arg(long, value_name = "WHO", default_value = "ask", conflicts_with = "confirm_command")]
    confirm: Asked,
    /// A program that decides: it is given the call as JSON on its input, and ends with 0 for yes
    #[arg(long, value_name = "COMMAND")]
    confirm_command: Option<String>,
    /// The room
    room: String,
}

/// Who decides about calls.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Asked {
    /// Whoever is at the terminal.
    Ask,
    /// Nobody: such calls are refused.
    Never,
}

pub(super) async fn run(
    args: &ComputerArgs,
    lang: Lang,
    terminal: &Terminal,
) -> Result<Exit, Fault> {
    let text = std::fs::read_to_string(&args.config).map_err(|error| {
        Fault::new(Kind::FileNotFound, Operation::LoadConfig)
            .with(Fact::Path, args.config.display().to_string())
            .caused_by(&error)
    })?;
    let settings = Settings::read(&text)?;
    for remark in &settings.remarks {
        terminal.say(remark);
    }
    let confirm: Arc<dyn Confirm> = match (&args.confirm_command, args.confirm) {
        (Some(command), _) => Arc::new(Program(command.clone())),
        (None, Asked::Ask) => Arc::new(AtTerminal(lang)),
        (None, Asked::Never) => Arc::new(budao_smcp::computer::Nobody),
    };
    let config = Config { confirm, ..Config::new(args.way.place(&args.room)) };
    let values = Here { lang };
    let computer = Computer::start(config, settings, &values, world::real()).await?;
    terminal.say(&format!("{} {}", say(lang, "joined", "已加入"), args.room));
    for (server, state) in computer.states() {
        if let State::Down { fault, .. } = state {
            terminal.say(&format!("{server}: {fault}"));
        }
    }
    let ended = tokio::select! {
        biased;
        () = super::interrupted() => None,
        fault = computer.ended() => Some(fault),
    };
    computer.shutdown().await;
    ended.map_or(Ok(Exit::Fine), Err)
}

/// Values of this process and of whoever is at its terminal.
#[derive(Debug)]
struct Here {
    lang: Lang,
}

#[async_trait]
impl Values for Here {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().filter(|value| !value.is_empty())
    }

    async fn ask(&self, input: &Input) -> Option<String> {
        if let Sort::Command { command, args } = &input.sort {
            return said_by(command, args).await;
        }
        let mut question = format!(
            "{}: ",
            if input.description.is_empty() { &input.id } else { &input.description }
        );
        if let Sort::PickString { options, .. } = &input.sort {
            let lines = options.iter().enumerate();
            let lines = lines.map(|(index, choice)| format!("  {} {}\n", index + 1, choice.label));
            question = format!(
                "{question}\n{}{} ",
                lines.collect::<String>(),
                say(self.lang, "number:", "编号：")
            );
        }
        let answer = at_terminal(question).await?;
        match &input.sort {
            Sort::PickString { options, .. } => {
                let index = answer.parse::<usize>().ok()?.checked_sub(1)?;
                options.get(index).map(|choice| choice.value.clone())
            }
            _ => Some(answer),
        }
    }
}

/// A line from the terminal, if there is one.
async fn at_terminal(question: String) -> Option<String> {
    if !std::io::stdin().is_terminal() {
        return None;
    }
    let line = tokio::task::spawn_blocking(move || {
        let mut err = std::io::stderr().lock();
        let _ = write!(err, "{question}").and_then(|()| err.flush());
        drop(err);
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line).ok().map(|_| line)
    });
    let line = line.await.ok().flatten()?;
    Some(line.trim().to_owned()).filter(|line| !line.is_empty())
}

/// The first line a program says.
async fn said_by(command: &str, args: &serde_json::Value) -> Option<String> {
    let args = args.as_array().into_iter().flatten().filter_map(serde_json::Value::as_str);
    let output = tokio::process::Command::new(command)
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PROGRAM_LIMIT, output).await.ok()?.ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().next()?.trim().to_owned();
    Some(line).filter(|line| output.status.success() && !line.is_empty())
}

/// Asks whoever is at the terminal.
#[derive(Debug)]
struct AtTerminal(Lang);

#[async_trait]
impl Confirm for AtTerminal {
    async fn confirm(&self, question: &Question<'_>) -> Option<bool> {
        let Question { bundle_id, tool, params, .. } = question;
        let may = say(self.0, "may it run?", "是否允许执行？");
        let answer = at_terminal(format!("{bundle_id} {tool} {params}\n{may} [y/N] ")).await;
        if !std::io::stdin().is_terminal() {
            return None;
        }
        Some(answer.is_some_and(|answer| matches!(answer.as_str(), "y" | "Y" | "yes" | "是")))
    }
}

/// Asks a program.
#[derive(Debug)]
struct Program(String);

#[async_trait]
impl Confirm for Program {
    async fn confirm(&self, question: &Question<'_>) -> Option<bool> {
        use tokio::io::AsyncWriteExt as _;
        let words = shell_words::split(&self.0).ok()?;
        let (program, args) = words.split_first()?;
        let mut child = tokio::process::Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .ok()?;
        let call = serde_json::json!({
            "req_id": question.req_id, "mcp_server": question.bundle_id,
            "tool": question.tool, "params": question.params,
        });
        if let Some(mut stdin) = child.stdin.take() {
            // A program that decides without reading is fine.
            let _ = stdin.write_all(format!("{call}\n").as_bytes()).await;
        }
        let status = tokio::time::timeout(PROGRAM_LIMIT, child.wait()).await.ok()?.ok()?;
        Some(status.success())
    }
}
