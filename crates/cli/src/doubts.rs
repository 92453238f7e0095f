//! `budao doubts`: lists calls whose outcome is unknown, and settles them.
//!
//! The process that holds the session records the settlement. The first one counts. A session that a foreign program
//! answers is never loaded here: its settlement waits in the inbox for its server.

use std::time::Duration;

use budao_core::{
    Fault, Lang,
    engine::Engine as _,
    event::{Answer, CommandBody, SessionId, Settlement},
    limits::Limits,
    message::CallId,
    session::Doubt,
};
use budao_journal::{Filter, Journal, fold};
use budao_runtime::world;
use serde_json::{Value, json};

use crate::{
    config::Config,
    exit::Exit,
    inbox,
    session_name::SessionName,
    setup::{self, JournalArgs},
    terminal::{Terminal, pad},
    texts::localize,
};

/// Sessions that one page of the journal's list has.
const PAGE: usize = 200;
/// Characters of the arguments in the list.
const ARGUMENTS_WIDTH: usize = 60;
/// Characters of a key in the list; that of a call with a short id fits.
const KEY_WIDTH: usize = 60;
/// Time for the session to be released after a settlement.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// List calls whose outcome is unknown, oldest first; settle one of them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    journal: JournalArgs,

    /// Only calls of this session, by id or the beginning of one
    #[arg(long, value_name = "ID")]
    session: Option<SessionName>,

    /// Print one JSON object per call on stdout
    #[arg(long)]
    json: bool,

    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Say what became of a call; the model reads it at its next step
    Settle(SettleArgs),
}

#[derive(Debug, clap::Args)]
#[command(group(
    clap::ArgGroup::new("outcome").required(true).args(["happened", "did_not_happen", "leave"])
))]
struct SettleArgs {
    /// The session: its id, or the beginning of it
    session: SessionName,
    /// The call, as the list names it
    call: String,
    /// The call was done; with its result as JSON or text, if it has one
    #[arg(long, value_name = "RESULT", num_args = 0..=1, default_missing_value = "null")]
    happened: Option<String>,
    /// The call was not done. Nothing runs now; the model may make the call again at its next step
    #[arg(long)]
    did_not_happen: bool,
    /// Leave it to the model to find out
    #[arg(long)]
    leave: bool,
    /// A remark for the model
    #[arg(long)]
    note: Option<String>,
}

/// A call in doubt, as the list shows it.
struct OpenDoubt {
    session: SessionId,
    /// The idempotency key that the tool received; `None` if a foreign program ran the call.
    key: Option<String>,
    age: Duration,
    doubt: Doubt,
}

/// Runs `budao doubts`.
pub(crate) async fn run(args: &Args, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    if let Some(Action::Settle(settle)) = &args.action {
        return settle_one(settle, args, lang, terminal).await;
    }
    let journal = args.journal.to_read().open(&world::system()).await?;
    let found = find(&*journal, args.session.as_ref()).await;
    journal.close().await;
    let mut found = found?;
    found.sort_by_key(|found| found.doubt.since);
    for found in &found {
        terminal.data(&if args.json { json_row(found) } else { row(found, terminal) });
    }
    if found.is_empty() && !args.json {
        terminal.say(localize(lang, "doubts-none"));
    }
    Ok(Exit::Success)
}

/// The open doubts of one session or of all.
async fn find(
    journal: &dyn Journal,
    session: Option<&SessionName>,
) -> Result<Vec<OpenDoubt>, Fault> {
    if let Some(name) = session {
        return of_session(journal, name.find_in(journal).await?).await;
    }
    let mut found = Vec::new();
    let mut filter = Filter { limit: PAGE, ..Filter::default() };
    loop {
        let page = journal.sessions(filter.clone()).await?;
        // A call in doubt is a fault of its session.
        for summary in page.iter().filter(|summary| summary.fault_counts().faults > 0) {
            found.extend(of_session(journal, summary.session).await?);
        }
        let Some(last) = page.last().filter(|_| page.len() == PAGE) else { break };
        filter.after = Some((last.updated_at, last.session));
    }
    Ok(found)
}

async fn of_session(journal: &dyn Journal, session: SessionId) -> Result<Vec<OpenDoubt>, Fault> {
    let state = fold(journal, session).await?.0;
    let now = world::system().clock.now();
    let doubts = state.doubts.all_open().iter().map(|doubt| OpenDoubt {
        session,
        key: (!state.settings.is_foreign()).then(|| format!("{session}.{}", doubt.call)),
        age: now.since(doubt.since),
        doubt: doubt.clone(),
    });
    Ok(doubts.collect())
}

fn json_row(found: &OpenDoubt) -> String {
    let OpenDoubt { session, key, age, doubt } = found;
    let Doubt { call, tool, arguments, turn, since } = doubt;
    let line = json!({
        "session": session, "call": call.to_string(), "tool": tool, "arguments": arguments,
        "turn": turn, "since": since.to_string(), "age_s": age.as_secs(), "key": key,
    });
    format!("{line}\n")
}

fn row(found: &OpenDoubt, terminal: &Terminal) -> String {
    let OpenDoubt { session, key, age, doubt } = found;
    let text = doubt.arguments.to_string();
    let arguments: String = text.chars().take(ARGUMENTS_WIDTH).collect();
    let (id, call, age) = (terminal.name(*session), doubt.call.to_string(), describe_age(*age));
    let key = key.as_deref().map_or_else(|| "-".to_owned(), shorten_key);
    let (call, age, tool) = (pad(&call, 12), pad(&age, 5), pad(&doubt.tool, 16));
    format!("{id}  {call}  {age}  {tool}  {}  {arguments}\n", pad(&key, 47))
}

/// A key in one column. It begins with the session's id, so the middle is left out.
fn shorten_key(key: &str) -> String {
    let length = key.chars().count();
    if length <= KEY_WIDTH {
        return key.to_owned();
    }
    let head: String = key.chars().take(KEY_WIDTH / 2).collect();
    let tail: String = key.chars().skip(length - (KEY_WIDTH / 2 - 1)).collect();
    format!("{head}…{tail}")
}

/// An age in its largest whole unit.
fn describe_age(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7_200 => format!("{}m", seconds / 60),
        seconds @ 7_200..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Settles one call.
async fn settle_one(
    args: &SettleArgs,
    all: &Args,
    lang: Lang,
    terminal: &Terminal,
) -> Result<Exit, Fault> {
    let journal = all.journal.existing().open(&world::system()).await?;
    let recorded = leave_for_foreign_engine(args, &*journal).await;
    journal.close().await;
    let text = match recorded? {
        Some(true) => "doubts-settled-foreign",
        Some(false) => "doubts-settle-waits",
        None => {
            settle_here(args, all).await?;
            "doubts-settled"
        }
    };
    if all.json {
        let session = args.session.find(&all.journal).await?;
        let is_settled = text != "doubts-settle-waits";
        let line = json!({ "session": session, "call": args.call, "settled": is_settled });
        terminal.data(&format!("{line}\n"));
    } else {
        terminal.say(localize(lang, text));
    }
    Ok(Exit::Success)
}

/// Leaves the settlement to the server of a session that a foreign program answers. Returns whether it is recorded; `None`
/// for a session of the native engine.
async fn leave_for_foreign_engine(
    args: &SettleArgs,
    journal: &dyn Journal,
) -> Result<Option<bool>, Fault> {
    let session = args.session.find_in(journal).await?;
    let (state, _) = fold(journal, session).await?;
    if !state.settings.is_foreign() {
        return Ok(None);
    }
    let body = settle_command(args);
    if let CommandBody::SettleDoubt { call, settlement, note } = body.clone() {
        state.settle_doubt(call, settlement, note, "terminal".to_owned(), &Limits::default())?;
    }
    inbox::leave(journal, &world::system(), session, body).await.map(Some)
}

/// Settles a call of the native engine, in this process or in the one that holds the session.
async fn settle_here(args: &SettleArgs, all: &Args) -> Result<(), Fault> {
    let session = args.session.find(&all.journal).await?;
    let application = setup::assemble(&all.journal.existing(), Config::default()).await?;
    let command = application.runtime.command("terminal", settle_command(args));
    let answer = application.runtime.submit(session, command).await;
    application.runtime.shutdown(SHUTDOWN_GRACE).await;
    match answer? {
        Answer::Accepted { .. } => Ok(()),
        Answer::Rejected { fault } => Err(fault),
    }
}

fn settle_command(args: &SettleArgs) -> CommandBody {
    CommandBody::SettleDoubt {
        call: CallId::from(args.call.as_str()),
        settlement: settlement(args),
        note: args.note.clone(),
    }
}

fn settlement(args: &SettleArgs) -> Settlement {
    match &args.happened {
        Some(text) => {
            let result = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text.as_str()));
            Settlement::Happened { result }
        }
        None if args.did_not_happen => Settlement::DidNotHappen,
        None => Settlement::LeftToModel,
    }
}
