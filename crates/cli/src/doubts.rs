//! `budao doubts`: lists calls whose outcome is unknown, and settles them.
//!
//! A settlement goes through the session's inbox, so the process that holds the session records it. The first one
//! counts.

use std::time::Duration;

use budao_core::{
    Fault, Lang,
    engine::Engine as _,
    event::{Answer, CommandBody, SessionId, Settlement},
    message::CallId,
    session::Doubt,
};
use budao_journal::{Filter, Journal, fold};
use budao_runtime::world;
use serde_json::{Value, json};

use crate::{
    config::Config,
    exit::Exit,
    session_name::SessionName,
    setup::{self, JournalArgs},
    terminal::{Terminal, pad},
    texts::localize,
};

/// Sessions that one page of the journal's list has.
const PAGE: usize = 200;
/// Characters of the arguments in the list.
const ARGUMENTS_WIDTH: usize = 60;
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

/// Runs `budao doubts`.
pub(crate) async fn run(args: &Args, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    if let Some(Action::Settle(settle)) = &args.action {
        return settle_one(settle, args, lang, terminal).await;
    }
    let journal = args.journal.to_read().open(&world::system()).await?;
    let found = find(&*journal, args.session.as_ref()).await;
    journal.close().await;
    let mut found = found?;
    found.sort_by_key(|(_, doubt)| doubt.since);
    for (session, doubt) in &found {
        terminal.data(&row(*session, doubt, args.json, terminal));
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
) -> Result<Vec<(SessionId, Doubt)>, Fault> {
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

async fn of_session(
    journal: &dyn Journal,
    session: SessionId,
) -> Result<Vec<(SessionId, Doubt)>, Fault> {
    let state = fold(journal, session).await?.0;
    Ok(state.doubts.all_open().iter().map(|doubt| (session, doubt.clone())).collect())
}

fn row(session: SessionId, doubt: &Doubt, as_json: bool, terminal: &Terminal) -> String {
    let key = format!("{session}.{}", doubt.call);
    if as_json {
        let Doubt { call, tool, arguments, turn, since } = doubt;
        let line = json!({
            "session": session, "call": call.to_string(), "tool": tool, "arguments": arguments,
            "turn": turn, "since": since.to_string(), "key": key,
        });
        return format!("{line}\n");
    }
    let age = age(world::system().clock.now().since(doubt.since));
    let text = doubt.arguments.to_string();
    let arguments: String = text.chars().take(ARGUMENTS_WIDTH).collect();
    let (id, call) = (terminal.name(session), doubt.call.to_string());
    format!("{id}  {}  {}  {}  {arguments}\n", pad(&call, 12), pad(&age, 5), pad(&doubt.tool, 16))
}

/// An age in its largest whole unit.
fn age(span: Duration) -> String {
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
    let session = args.session.find(&all.journal).await?;
    let application = setup::assemble(&all.journal.existing(), Config::default()).await?;
    let body = CommandBody::SettleDoubt {
        call: CallId::from(args.call.as_str()),
        settlement: settlement(args),
        note: args.note.clone(),
    };
    let command = application.runtime.command("terminal", body);
    let answer = application.runtime.submit(session, command).await;
    application.runtime.shutdown(SHUTDOWN_GRACE).await;
    match answer? {
        Answer::Accepted { .. } => {
            if all.json {
                let line = json!({ "session": session, "call": args.call, "settled": true });
                terminal.data(&format!("{line}\n"));
            } else {
                terminal.say(localize(lang, "doubts-settled"));
            }
            Ok(Exit::Success)
        }
        Answer::Rejected { fault } => Err(fault),
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
