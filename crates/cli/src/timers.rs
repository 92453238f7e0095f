//! `budao timers`: lists the timers of all sessions, and cancels one.
//!
//! A cancellation waits in the session's inbox, so that this command never runs the session: a server records it before
//! it fires anything.

use budao_core::{
    Fault, Lang, Timestamp,
    event::{CommandBody, SessionId},
    timer::{Timer, TimerId},
};
use budao_journal::{Journal, TimerQuery, fold};
use budao_runtime::world;
use serde_json::json;

use crate::{
    exit::Exit,
    inbox,
    session_name::SessionName,
    setup::JournalArgs,
    terminal::{Terminal, pad},
    texts::localize,
};

/// Sessions that one page of the journal's list has.
const PAGE: usize = 200;
/// Characters of the message in the list.
const MESSAGE_WIDTH: usize = 60;

const EXAMPLES: &str = "\
Examples:
  budao timers                              timers of all sessions, the next first
  budao timers --session 01a1e597 --json
  budao timers cancel 01a1e597 daily-report";

/// List the timers that wake sessions, the next first; cancel one of them.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    journal: JournalArgs,

    /// Only timers of this session, by id or the beginning of one
    #[arg(long, value_name = "ID")]
    session: Option<SessionName>,

    /// Print one JSON object per timer on stdout
    #[arg(long)]
    json: bool,

    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Cancel a timer; a server records it before the timer can fire
    Cancel(CancelArgs),
}

#[derive(Debug, clap::Args)]
struct CancelArgs {
    /// The session: its id, or the beginning of it
    session: SessionName,
    /// The timer, as the list names it
    timer: String,
}

/// Runs `budao timers`.
pub(crate) async fn run(args: &Args, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    if let Some(Action::Cancel(cancel)) = &args.action {
        return cancel_one(cancel, args, lang, terminal).await;
    }
    let journal = args.journal.to_read().open(&world::system()).await?;
    let found = find(&*journal, args.session.as_ref()).await;
    journal.close().await;
    let found = found?;
    for (session, timer) in &found {
        terminal.data(&row(*session, timer, args.json, terminal));
    }
    if found.is_empty() && !args.json {
        terminal.say(localize(lang, "timers-none"));
    }
    Ok(Exit::Success)
}

/// The timers of one session or of all, the next first.
async fn find(
    journal: &dyn Journal,
    session: Option<&SessionName>,
) -> Result<Vec<(SessionId, Timer)>, Fault> {
    let mut found = Vec::new();
    match session {
        Some(name) => {
            let session = name.find_in(journal).await?;
            let (state, _) = fold(journal, session).await?;
            found.extend(state.timers.all().map(|timer| (session, timer.clone())));
        }
        None => {
            let mut query = TimerQuery { tenant: None, after: None, limit: PAGE };
            loop {
                let page = journal.sessions_with_timers(query.clone()).await?;
                for timed in &page {
                    found.extend(timed.timers.all().map(|timer| (timed.session, timer.clone())));
                }
                let Some(last) = page.last().filter(|_| page.len() == PAGE) else { break };
                query.after = Some((last.wake_at, last.session));
            }
        }
    }
    found.sort_by(|(_, a), (_, b)| (a.next, &a.timer).cmp(&(b.next, &b.timer)));
    Ok(found)
}

fn row(session: SessionId, timer: &Timer, as_json: bool, terminal: &Terminal) -> String {
    let Timer { timer: id, schedule, message, next, by, set_at, fired, .. } = timer;
    if as_json {
        let line = json!({
            "session": session, "timer": id, "next_at": next.to_string(), "schedule": schedule.to_string(),
            "message": message, "fired": fired, "by": by, "set_at": set_at.to_string(),
        });
        return format!("{line}\n");
    }
    let message: String = message.chars().take(MESSAGE_WIDTH).collect();
    let (id, name, next) = (id.to_string(), terminal.name(session), shown(*next));
    format!("{name}  {}  {next}  {}  {message}\n", pad(&id, 20), pad(&schedule.to_string(), 24))
}

/// A time to the second.
fn shown(at: Timestamp) -> String {
    at.to_string().replace(".000Z", "Z")
}

/// Cancels one timer.
async fn cancel_one(
    args: &CancelArgs,
    all: &Args,
    lang: Lang,
    terminal: &Terminal,
) -> Result<Exit, Fault> {
    let world = world::system();
    let journal = all.journal.existing().open(&world).await?;
    let session = args.session.find_in(&*journal).await?;
    let timer = TimerId::from(args.timer.as_str());
    fold(&*journal, session).await?.0.cancel_timer(timer.clone(), String::new())?;
    let body = CommandBody::CancelTimer { timer };
    let is_recorded = inbox::leave(&*journal, &world, session, body).await;
    journal.close().await;
    let is_recorded = is_recorded?;
    if all.json {
        let line = json!({ "session": session, "timer": args.timer, "recorded": is_recorded });
        terminal.data(&format!("{line}\n"));
    } else {
        let text = if is_recorded { "timers-cancelled" } else { "timers-cancel-waits" };
        terminal.say(localize(lang, text));
    }
    Ok(Exit::Success)
}
