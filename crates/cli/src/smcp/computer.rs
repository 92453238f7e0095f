//! `budao smcp computer`: MCP servers of this machine for the agent of a room.

mod command;
mod confirm;
mod console;

use std::{path::PathBuf, pin::pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    Fault, Lang,
    fault::{Fact, Kind, Operation},
};
use budao_mcp::State;
use budao_smcp::{
    computer::{Computer, Config, Confirm, Input, Nobody, Settings, Sort, Values},
    wire::Dialect,
};
use serde_json::json;

use super::show::{Show, state_object};
use crate::{exit::Exit, program, traces, words::say};
use command::{Desk, Flow};
use confirm::{AtTerminal, Program, Service};
use console::Console;

/// A program that says a value has this long.
const PROGRAM_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub(super) struct ComputerArgs {
    #[command(flatten)]
    way: super::Way,
    /// The MCP servers, as JSON; without it there are none until `add`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What happens when a tool wants to run that is not applied by itself: ask at the terminal, or no
    #[arg(long, value_name = "WHO", default_value = "ask", conflicts_with_all = ["confirm_command", "confirm_url"])]
    confirm: Asked,
    /// A program that decides: it is given the call as JSON on its input, and ends with 0 for yes and 1 for no
    #[arg(long, value_name = "COMMAND", conflicts_with = "confirm_url")]
    confirm_command: Option<String>,
    /// A service that decides: it is posted the call as JSON, and answers `{"allow": true}` or false
    #[arg(long, value_name = "URL")]
    confirm_url: Option<String>,
    /// How long a program or a service may take to decide
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    confirm_timeout: u64,
    /// Everything it says on stdout as one JSON object a line
    #[arg(long)]
    pub(super) json: bool,
    /// A folder with documents an agent may read, with --dialect 0.2
    #[arg(long, value_name = "FOLDER")]
    documents: Option<PathBuf>,
    /// A folder with skills, one in each of its folders
    #[arg(long, value_name = "FOLDER")]
    skills: Option<PathBuf>,
    /// A folder for data that agents send; without it they cannot
    #[arg(long, value_name = "FOLDER")]
    uploads: Option<PathBuf>,
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

impl ComputerArgs {
    fn settings(&self) -> Result<Settings, Fault> {
        let Some(path) = &self.config else { return Ok(Settings::default()) };
        let text = std::fs::read_to_string(path).map_err(|error| {
            Fault::new(Kind::FileNotFound, Operation::LoadConfig)
                .with(Fact::Path, path.display().to_string())
                .caused_by(&error)
        })?;
        Settings::read(&text)
    }

    fn confirm(&self, console: &Console, lang: Lang) -> Result<Arc<dyn Confirm>, Fault> {
        let limit = Duration::from_secs(self.confirm_timeout);
        Ok(match (&self.confirm_command, &self.confirm_url, self.confirm) {
            (Some(command), _, _) => Arc::new(Program::new(command, limit)?),
            (None, Some(url), _) => Arc::new(Service::new(url, limit)?),
            (None, None, Asked::Ask) => Arc::new(AtTerminal { console: console.clone(), lang }),
            (None, None, Asked::Never) => Arc::new(Nobody),
        })
    }
}

pub(super) async fn run(args: &ComputerArgs, show: Show<'_>) -> Result<Exit, Fault> {
    let lang = show.lang;
    let settings = args.settings()?;
    for remark in &settings.remarks {
        show.terminal.say(remark);
    }
    let console = Console::open();
    let config = Config {
        confirm: args.confirm(&console, lang)?,
        skills: args.skills.clone(),
        landing: args.uploads.clone(),
        documents: args.documents.clone(),
        ..Config::new(args.way.place(&args.room, Dialect::V04))
    };
    let values = Here { console: console.clone(), lang };
    let computer = Computer::start(config, settings, &values, traces::world()).await?;
    let words = format!("{} {}", say(lang, "joined", "已加入"), args.room);
    show.remark(&words, &json!({ "joined": args.room }));
    for (server, state) in computer.states() {
        if let State::Down { fault, .. } = &state {
            show.remark(&format!("{server}: {fault}"), &state_object(&server, &state));
        }
    }
    let ended = {
        let desk = Desk { computer: &computer, values: &values, show };
        let mut listening = pin!(listen(&console, &desk));
        tokio::select! {
            biased;
            () = super::interrupted() => None,
            fault = computer.ended() => Some(fault),
            () = &mut listening => None,
        }
    };
    computer.shutdown().await;
    ended.map_or(Ok(Exit::Fine), Err)
}

/// Does what the lines say, until one says that it is enough. The end of a terminal is that, too; the end of anything
/// else is only the end of the commands.
async fn listen(console: &Console, desk: &Desk<'_>) {
    while let Some(line) = console.command().await {
        if desk.perform(&line).await == Flow::End {
            return;
        }
    }
    if !console.is_terminal() {
        std::future::pending::<()>().await;
    }
}

/// Values of this process and of whoever is at its input.
#[derive(Debug)]
struct Here {
    console: Console,
    lang: Lang,
}

#[async_trait]
impl Values for Here {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().filter(|value| !value.is_empty())
    }

    async fn ask(&self, input: &Input) -> Option<String> {
        let about = if input.description.is_empty() { &input.id } else { &input.description };
        let (question, is_secret) = match &input.sort {
            Sort::Command { command, args } => return said_by(command, args).await,
            Sort::PromptString { password, .. } => (format!("{about}: "), *password),
            Sort::PickString { options, .. } => {
                let lines = options.iter().enumerate();
                let lines: String =
                    lines.map(|(index, it)| format!("  {} {}\n", index + 1, it.label)).collect();
                (format!("{about}\n{lines}{} ", say(self.lang, "number:", "编号：")), false)
            }
        };
        let answer = self.console.ask(question, is_secret).await.filter(|it| !it.is_empty())?;
        match &input.sort {
            Sort::PickString { options, .. } => {
                let index = answer.parse::<usize>().ok()?.checked_sub(1)?;
                options.get(index).map(|choice| choice.value.clone())
            }
            _ => Some(answer),
        }
    }
}

/// The first line a program says.
async fn said_by(command: &str, args: &serde_json::Value) -> Option<String> {
    // The protocol has named arguments as a map; a list is taken, too.
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
    let line = ended.said.lines().next()?.trim().to_owned();
    Some(line).filter(|line| ended.code == Some(0) && !line.is_empty())
}
