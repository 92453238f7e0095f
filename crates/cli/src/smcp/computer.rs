//! `budao smcp computer`: offers MCP servers of this machine to the agent of a room.

mod command;
mod confirm;
mod console;

use std::{
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use budao_core::{
    Fault, Lang,
    fault::{Fact, Operation},
};
use budao_mcp::ServerState;
use budao_smcp::{
    computer::{Computer, Config, Confirmer, Input, InputKind, NoConfirmer, Settings, ValueSource},
    wire::Dialect,
};
use serde_json::json;

use super::show::{Printer, state_object};
use crate::{exit::Exit, file_fault, program, texts::localize, traces};
use command::{CommandHandler, Flow};
use confirm::{ProgramConfirmer, ServiceConfirmer, TerminalConfirmer};
use console::Console;

/// Time limit for a program that supplies an input value.
const PROGRAM_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub(super) struct ComputerArgs {
    #[command(flatten)]
    connection: super::ConnectArgs,
    /// JSON file with the MCP servers [default: none; the console command `add` adds one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How to confirm calls of tools without auto_apply
    #[arg(long, value_name = "MODE", default_value = "ask", conflicts_with_all = ["confirm_command", "confirm_url"])]
    confirm: ConfirmMode,
    /// Program that confirms calls: gets the call as JSON on stdin, exits with 0 to allow and 1 to deny
    #[arg(long, value_name = "COMMAND", conflicts_with = "confirm_url")]
    confirm_command: Option<String>,
    /// Service that confirms calls: gets the call as a JSON POST, answers `{"allow": true}` or `{"allow": false}`
    #[arg(long, value_name = "URL")]
    confirm_url: Option<String>,
    /// Time limit of a confirmation by a program or a service
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    confirm_timeout: u64,
    /// Print one JSON object per line on stdout
    #[arg(long)]
    pub(super) json: bool,
    /// Folder with documents that agents may read; requires --dialect 0.2
    #[arg(long, value_name = "FOLDER")]
    documents: Option<PathBuf>,
    /// Folder with skills, one per subfolder
    #[arg(long, value_name = "FOLDER")]
    skills: Option<PathBuf>,
    /// Folder for uploads by agents [default: uploads are refused]
    #[arg(long, value_name = "FOLDER")]
    uploads: Option<PathBuf>,
    /// The room
    room: String,
}

/// How calls without `auto_apply` are confirmed.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ConfirmMode {
    /// Ask at the terminal.
    Ask,
    /// Deny these calls.
    Never,
}

/// Adds the name of the file to the key that is wrong in it.
fn in_file(fault: Fault, path: &Path) -> Fault {
    let line = fault.detail().number(Fact::Line);
    let place = line.map_or_else(String::new, |line| format!(":{line}"));
    let key = fault.detail().text(Fact::ConfigKey).filter(|key| *key != "the file");
    let key = key.map_or_else(String::new, |key| format!(" `{key}`"));
    fault.with(Fact::ConfigKey, format!("{}{place}{key}", path.display()))
}

impl ComputerArgs {
    fn settings(&self) -> Result<Settings, Fault> {
        let Some(path) = &self.config else { return Ok(Settings::default()) };
        let text = std::fs::read_to_string(path)
            .map_err(|error| file_fault::unreadable(path, Operation::LoadConfig, &error))?;
        Settings::read(&text).map_err(|fault| in_file(fault, path))
    }

    fn confirm(&self, console: &Console, lang: Lang) -> Result<Arc<dyn Confirmer>, Fault> {
        let limit = Duration::from_secs(self.confirm_timeout);
        Ok(match (&self.confirm_command, &self.confirm_url, self.confirm) {
            (Some(command), _, _) => Arc::new(ProgramConfirmer::new(command, limit)?),
            (None, Some(url), _) => Arc::new(ServiceConfirmer::new(url, limit)?),
            (None, None, ConfirmMode::Ask) => {
                Arc::new(TerminalConfirmer { console: console.clone(), lang })
            }
            (None, None, ConfirmMode::Never) => Arc::new(NoConfirmer),
        })
    }
}

pub(super) async fn run(args: &ComputerArgs, show: Printer<'_>) -> Result<Exit, Fault> {
    let lang = show.lang;
    let settings = args.settings()?;
    for remark in &settings.remarks {
        show.terminal.say(remark);
    }
    let console = Console::open();
    let config = Config {
        confirm: args.confirm(&console, lang)?,
        skills: args.skills.clone(),
        upload_folder: args.uploads.clone(),
        documents: args.documents.clone(),
        variables: std::env::vars_os().collect(),
        ..Config::new(args.connection.member(&args.room, Dialect::V04))
    };
    let values = ConsoleValues { console: console.clone(), lang };
    let computer = Computer::start(config, settings, &values, traces::world()).await?;
    let words = format!("{} {}", localize(lang, "smcp-joined"), args.room);
    show.remark(&words, &json!({ "joined": args.room }));
    for (server, state) in computer.states() {
        if let ServerState::Down { fault, .. } = &state {
            show.remark(&format!("{server}: {fault}"), &state_object(&server, &state));
        }
    }
    let ended = {
        let handler = CommandHandler { computer: &computer, values: &values, show };
        let mut listening = pin!(listen(&console, &handler));
        tokio::select! {
            biased;
            () = super::interrupted() => None,
            fault = computer.ended() => Some(fault),
            () = &mut listening => None,
        }
    };
    computer.shutdown().await;
    ended.map_or(Ok(Exit::Success), Err)
}

/// Performs console commands until one stops the computer. End of input stops it only on a terminal; otherwise it
/// only ends the commands.
async fn listen(console: &Console, handler: &CommandHandler<'_>) {
    while let Some(line) = console.command().await {
        if handler.perform(&line).await == Flow::Stop {
            return;
        }
    }
    if !console.is_terminal() {
        std::future::pending::<()>().await;
    }
}

/// Input values from the environment, the console, or a program's output.
#[derive(Debug)]
struct ConsoleValues {
    console: Console,
    lang: Lang,
}

#[async_trait]
impl ValueSource for ConsoleValues {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().filter(|value| !value.is_empty())
    }

    async fn ask(&self, input: &Input) -> Option<String> {
        let label = if input.description.is_empty() { &input.id } else { &input.description };
        let (question, is_secret) = match &input.sort {
            InputKind::Command { command, args } => return command_output(command, args).await,
            InputKind::PromptString { password, .. } => (format!("{label}: "), *password),
            InputKind::PickString { options, .. } => {
                let lines = options.iter().enumerate();
                let lines: String =
                    lines.map(|(index, it)| format!("  {} {}\n", index + 1, it.label)).collect();
                (format!("{label}\n{lines}{} ", localize(self.lang, "smcp-number")), false)
            }
        };
        let answer = self.console.ask(question, is_secret).await.filter(|it| !it.is_empty())?;
        match &input.sort {
            InputKind::PickString { options, .. } => {
                let index = answer.parse::<usize>().ok()?.checked_sub(1)?;
                options.get(index).map(|choice| choice.value.clone())
            }
            _ => Some(answer),
        }
    }
}

/// The first line of the program's output; none if it fails or prints nothing.
async fn command_output(command: &str, args: &serde_json::Value) -> Option<String> {
    // The protocol passes arguments as a map; a list is accepted as well.
    let words: Vec<String> = match args {
        serde_json::Value::Object(map) => map
            .iter()
            .flat_map(|(name, value)| [name.clone(), value.as_str().unwrap_or_default().to_owned()])
            .collect(),
        serde_json::Value::Array(list) => {
            list.iter().filter_map(|it| it.as_str().map(str::to_owned)).collect()
        }
        _ => Vec::new(),
    };
    let ended = program::run(command, &words, b"", PROGRAM_LIMIT).await.ok()?;
    let line = ended.output.lines().next()?.trim().to_owned();
    Some(line).filter(|line| ended.code == Some(0) && !line.is_empty())
}
