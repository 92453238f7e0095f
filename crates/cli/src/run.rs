//! `budao run`, `resume`, `cancel` and `replay`: one session on the terminal.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use budao_core::{
    Fault, Lang,
    activity::{Activity, MessageContent},
    engine::{Engine, SessionOptions},
    event::{Answer, CommandBody, CommandId, SessionId, Settings, Thinking},
    fallback::split_models,
    fault::{Fact, Kind, Operation},
    message::Block,
    session::SessionState,
    tool::{Mode, Permissions},
    trace::Trace,
};
use budao_tools::schema::SCHEMA_BYTES_MAX;
use futures::StreamExt;
use serde_json::Value;

use crate::{
    choices::one_of,
    config::{Config, ConfigArgs},
    exit::Exit,
    replay_check::ReplayCheck,
    session_name::SessionName,
    setup::{self, Application, JournalArgs},
    terminal::Terminal,
    texts::localize,
    transcript::{Channel, channel, clock},
    watch::{TurnFormat, Watcher, can_ask},
};

/// Options of a new session.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SessionArgs {
    /// Model: anthropic:NAME, openai:NAME@URL, gemini:NAME, azure:…, bedrock:…, demo, script:FILE. Several, separated by
    /// commas, are asked in this order: the next one while the ones before it cannot answer
    #[arg(long, default_value = "demo", value_name = "SPEC", env = "BUDAO_MODEL")]
    pub(crate) model: String,

    /// Working directory of the tools
    #[arg(long, default_value = ".", value_name = "DIR")]
    workspace: PathBuf,

    /// Which tool calls run without asking: auto (all), approval (read-only calls), readonly (read-only calls; all
    /// others are denied)
    #[arg(long, default_value = "approval", value_name = "MODE", value_parser = one_of::<Mode>(), hide_possible_values = true)]
    permission: Mode,

    /// Offer only these tools, by name or `prefix*` [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    tools: Option<Vec<String>>,

    /// System prompt
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,

    /// Maximum model requests per turn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_steps: Option<u32>,

    /// Thinking before the answer: low, medium or high [default: none]
    #[arg(long, value_name = "DEPTH", value_parser = one_of::<Thinking>(), hide_possible_values = true)]
    thinking: Option<Thinking>,
}

/// Give an agent a task and follow it until it ends.
///
/// The answer goes to stdout, progress to stderr. The exit code is the outcome of the turn.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// The task for the agent
    #[arg(value_parser = not_blank)]
    task: String,

    #[command(flatten)]
    session: SessionArgs,

    /// File with the JSON Schema of the answer. The answer on stdout is then JSON that fits it
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,

    /// Print one JSON object per record on stdout
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    config: ConfigArgs,

    #[command(flatten)]
    journal: JournalArgs,
}

/// Resume an interrupted session and follow it until it ends.
#[derive(Debug, clap::Args)]
pub(crate) struct ResumeArgs {
    /// The session: its id, or the beginning of it
    session: SessionName,

    /// A further message to send
    #[arg(value_parser = not_blank)]
    message: Option<String>,

    /// Print one JSON object per record on stdout
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    config: ConfigArgs,

    #[command(flatten)]
    journal: JournalArgs,
}

/// Cancel the turn of a session, whichever process runs it.
#[derive(Debug, clap::Args)]
pub(crate) struct CancelArgs {
    /// The session: its id, or the beginning of it
    session: SessionName,

    /// Withdraw this queued message instead; the running turn continues
    #[arg(long, value_name = "COMMAND")]
    message: Option<String>,

    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    journal: JournalArgs,
}

/// Print the recorded history of a session, or try today's decisions against it.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    /// The session: its id, or the beginning of it
    #[arg(required_unless_present = "all")]
    session: Option<SessionName>,

    /// Feed the recorded inputs to the decisions of this version, with the limits of the configuration, and name the
    /// first one that differs
    #[arg(long, conflicts_with_all = ["channel", "turn", "trace", "follow"])]
    verify: bool,

    /// Verify every session of the journal
    #[arg(long, requires = "verify", conflicts_with = "session")]
    all: bool,

    #[command(flatten)]
    config: ConfigArgs,

    /// Print only records of this channel
    #[arg(long, value_enum)]
    channel: Option<Channel>,

    /// Print only records of this turn
    #[arg(long, value_name = "N")]
    turn: Option<u64>,

    /// Print only records of this trace
    #[arg(long, value_name = "HEX")]
    trace: Option<String>,

    /// Keep printing new records until interrupted
    #[arg(long)]
    follow: bool,

    /// Print one JSON object per record on stdout
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    journal: JournalArgs,
}

/// Refuses a text without a visible character.
pub(crate) fn not_blank(text: &str) -> Result<String, String> {
    match text.trim().is_empty() {
        true => Err("the text is empty".to_owned()),
        false => Ok(text.to_owned()),
    }
}

fn show(json: bool) -> TurnFormat {
    if json { TurnFormat::Json } else { TurnFormat::Text }
}

impl SessionArgs {
    /// The settings of a new session. Fails if `--model` names no model.
    pub(crate) fn settings(&self, lang: Lang) -> Result<Settings, Fault> {
        let workspace = std::path::absolute(&self.workspace).unwrap_or(self.workspace.clone());
        Ok(Settings {
            language: lang,
            system: self.system.as_deref().map(Into::into),
            workspace: Some(workspace.display().to_string()),
            permissions: Permissions { mode: self.permission, ..Permissions::default() },
            max_steps: self.max_steps,
            thinking: self.thinking,
            tools: self.tools.clone(),
            ..Settings::default()
        }
        .with_models(split_models("--model", &self.model)?))
    }
}

/// The schema in a file. A fault names the file and, if it is not JSON, the place.
fn schema_in(path: &Path) -> Result<Arc<Value>, Fault> {
    let wrong = |reason: String| {
        Fault::new(Kind::AnswerSchemaRefused, Operation::LoadConfig)
            .with(Fact::Reason, format!("{}: {reason}", path.display()))
    };
    let size = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
    if size > SCHEMA_BYTES_MAX as u64 {
        return Err(wrong(format!("{size} bytes are more than {SCHEMA_BYTES_MAX}")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_str(&text).map(Arc::new).map_err(|error| wrong(error.to_string()))
}

/// The title of a session: the first 60 characters of its first message.
pub(crate) fn title(text: &str) -> String {
    text.chars().take(60).collect()
}

/// Runs `budao run`: opens a session, sends the task and follows the turn to its end.
pub(crate) async fn run(args: &RunArgs, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    let answer_schema = args.schema.as_deref().map(schema_in).transpose()?;
    let title = Some(title(&args.task));
    let mut settings = Settings { title, answer_schema, ..args.session.settings(lang)? };
    let is_unattended = settings.permissions.mode == Mode::Approval && !can_ask(show(args.json));
    if is_unattended {
        // Nobody decides such a call, so no decision is recorded: a rule denies it.
        settings.permissions.mode = Mode::Readonly;
    }
    let application = setup::assemble(&args.journal, args.config.load()?).await?;
    application.check_tools(&settings).await?;
    for (name, fault) in &application.missing {
        terminal.missing_server(name, fault, lang);
    }
    let opening = SessionOptions { settings, ..SessionOptions::default() };
    let session = application.runtime.open(opening).await?;
    terminal.say(&format!("{} {session}", localize(lang, "run-session")));
    let message = message(&application, session, &args.task).await?;
    let mut watcher = Watcher::new(&application.runtime, session, terminal, lang, show(args.json));
    watcher.is_unattended = is_unattended;
    let exit = watcher.until_idle(message).await;
    application.close().await;
    exit
}

/// Sends a message; returns the position to follow from.
async fn message(application: &Application, session: SessionId, text: &str) -> Result<u64, Fault> {
    let content = vec![Block::Text(text.to_owned())];
    let command = application.runtime.command("terminal", CommandBody::Message { content });
    match application.runtime.submit(session, command).await? {
        Answer::Accepted { at } => Ok(at),
        Answer::Rejected { fault } => Err(fault),
    }
}

async fn follow(
    application: Application,
    session: SessionId,
    after: u64,
    show: TurnFormat,
    lang: Lang,
    terminal: &Terminal,
) -> Result<Exit, Fault> {
    let runtime = &application.runtime;
    let mut watcher = Watcher::new(runtime, session, terminal, lang, show);
    let exit = watcher.until_idle(after).await;
    application.close().await;
    exit
}

/// Says that no turn is open, and how to continue a failed one.
fn nothing_to_resume(session: SessionId, state: SessionState, lang: Lang) -> String {
    let nothing = localize(lang, "run-nothing-to-resume");
    if state != SessionState::Failed {
        return nothing.to_owned();
    }
    let failed = localize(lang, "run-the-last-turn-failed-continue-it");
    format!("{nothing}{failed} {session}")
}

/// Runs `budao resume`: continues an interrupted turn, or sends a further message.
pub(crate) async fn resume(
    args: &ResumeArgs,
    lang: Lang,
    terminal: &Terminal,
) -> Result<Exit, Fault> {
    let session = args.session.find(&args.journal).await?;
    let application = setup::assemble(&args.journal.existing(), args.config.load()?).await?;
    let state = application.runtime.state(session).await?;
    let after = match &args.message {
        Some(text) => message(&application, session, text).await?,
        None if !matches!(
            state.state(),
            SessionState::Running | SessionState::WaitingForDecision
        ) =>
        {
            terminal.say(&nothing_to_resume(session, state.state(), lang));
            return Ok(Exit::Success);
        }
        None => {
            application.runtime.touch(session);
            state.head
        }
    };
    let show = show(args.json);
    let mut watcher = Watcher::new(&application.runtime, session, terminal, lang, show);
    if let Err(fault) = watcher.ask_pending(&state).await {
        application.close().await;
        return Err(fault);
    }
    follow(application, session, after, show, lang, terminal).await
}

/// Runs `budao cancel`: stops the running turn, or withdraws a waiting message.
pub(crate) async fn cancel(
    args: &CancelArgs,
    lang: Lang,
    terminal: &Terminal,
) -> Result<Exit, Fault> {
    let session = args.session.find(&args.journal).await?;
    let application = setup::assemble(&args.journal.existing(), Config::default()).await?;
    let running = application.runtime.state(session).await?.turn.is_some();
    let report = |is_cancelled: bool, words: &str| {
        if args.json {
            let result = serde_json::json!({ "session": session, "cancelled": is_cancelled });
            terminal.data(&format!("{result}\n"));
        } else {
            terminal.say(words);
        }
    };
    if !running && args.message.is_none() {
        report(false, localize(lang, "run-no-turn-is-running"));
        return Ok(Exit::Success);
    }
    let id = CommandId::from(format!("cancel-{}", uuid::Uuid::new_v4()));
    let reason = Some("cancelled from a terminal".to_owned());
    let body = match &args.message {
        Some(message) => CommandBody::Withdraw { message: CommandId::from(message.clone()) },
        None => CommandBody::Cancel { reason },
    };
    let command =
        budao_core::event::Command { id, by: "terminal".into(), trace: Trace::NONE, body };
    let answer = application.runtime.submit(session, command).await?;
    application.runtime.shutdown(std::time::Duration::from_secs(5)).await;
    match answer {
        Answer::Accepted { .. } => {
            report(true, localize(lang, "run-cancelled"));
            Ok(Exit::Success)
        }
        Answer::Rejected { fault } => Err(fault),
    }
}

/// Runs `budao replay`: prints the records that match the filters.
pub(crate) async fn replay(
    args: &ReplayArgs,
    lang: Lang,
    terminal: &Terminal,
) -> Result<Exit, Fault> {
    if args.verify {
        let check = ReplayCheck { limits: args.config.load()?.limits, json: args.json, lang };
        return check.run(args.session.as_ref(), &args.journal, terminal).await;
    }
    let Some(name) = &args.session else { return Ok(Exit::Usage) };
    let session = name.find(&args.journal).await?;
    let application = setup::assemble(&args.journal.to_read(), Config::default()).await?;
    let head = application.runtime.state(session).await?.head;
    let wanted = |record: &budao_core::Record| {
        args.channel.is_none_or(|wanted| wanted == channel(&record.event))
            && args.turn.is_none_or(|turn| turn == record.turn)
            && args.trace.as_ref().is_none_or(|trace| *trace == record.trace.to_string())
    };
    let runtime = &application.runtime;
    let show = show(args.json);
    let mut watcher = Watcher::new(runtime, session, terminal, lang, show);
    watcher.has_times = true;
    let mut records = runtime.follow(session, 0).await?;
    let mut seen = 0;
    while seen < head || args.follow {
        let record = tokio::select! {
            biased;
            record = records.next() => record,
            _ = tokio::signal::ctrl_c() => break,
        };
        let Some(record) = record else { break };
        let record = record?;
        seen = record.seq;
        if wanted(&record) {
            if show == TurnFormat::Text {
                print_message(&record, terminal, lang);
            }
            watcher.print_record(&record);
        }
    }
    if watcher.is_mid_line() {
        terminal.data("\n");
    }
    Ok(Exit::Success)
}

/// Prints user messages, which `run` and `resume` leave out.
fn print_message(record: &budao_core::Record, terminal: &Terminal, lang: Lang) {
    if let Some(Activity::MessageAccepted { content: MessageContent::Blocks(content), .. }) =
        Activity::of(&record.event)
    {
        let who = localize(lang, "run-you");
        let text = budao_core::message::text_of(content);
        let (time, who) = (clock(record.at), terminal.strong(format!("{who}:")));
        terminal.say(&format!("{time} {who} {text}"));
    }
}
