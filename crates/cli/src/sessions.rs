//! `budao sessions`: lists, shows, retries and deletes sessions of the journal, and finds anomalies.

mod retry;
mod show;

use budao_core::{
    Fault, Lang, Timestamp,
    fault::{Kind, Operation},
    trace::Trace,
};
use budao_journal::{Filter, Journal, SessionState, SessionSummary};
use budao_runtime::world;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::{
    anomalies,
    exit::Exit,
    session_name::SessionName,
    setup::JournalArgs,
    terminal::{Terminal, pad},
    texts::localize,
    time_point::TimePoint,
};

/// Sessions that a list without `--limit` has.
const LIST_LIMIT: usize = 50;
/// The width of the longest state.
const STATE_WIDTH: usize = 20;

/// List, show, retry and delete sessions; without a subcommand, list them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    journal: JournalArgs,

    /// Find anomalies: turns that ended at once or without an answer, dropped results, messages right after an end,
    /// long silences
    #[arg(long)]
    anomalies: bool,

    /// Only sessions changed since then: 90s, 15m, 1h, 2d, or a time in UTC
    #[arg(long, value_name = "TIME")]
    since: Option<TimePoint>,

    /// Print one JSON object per line on stdout
    #[arg(long)]
    json: bool,

    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List sessions, the most recently changed first
    List(ListArgs),
    /// Show one session: its state, its last fault, whose move it is, its writer
    Show {
        /// The session: its id, or the beginning of it
        session: SessionName,
        /// Print one JSON object on stdout
        #[arg(long)]
        json: bool,
    },
    /// Continue failed turns from where they stood; lists them first
    Retry(Box<retry::RetryArgs>),
    /// Delete sessions with their records, commands and stored outputs
    Delete {
        /// The sessions, by id or the beginning of one
        #[arg(required = true)]
        sessions: Vec<SessionName>,
        /// Print one JSON object per session on stdout
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// List only sessions in this state
    #[arg(long, value_parser = state_parser())]
    state: Option<SessionState>,
    /// List only sessions changed since then: 90s, 15m, 1h, 2d, or a time in UTC
    #[arg(long, value_name = "TIME")]
    since: Option<TimePoint>,
    /// List only sessions changed before then: 90s, 15m, 1h, 2d, or a time in UTC
    #[arg(long, value_name = "TIME")]
    until: Option<TimePoint>,
    /// List only sessions with this label: KEY or KEY=VALUE
    #[arg(long, value_name = "LABEL")]
    label: Option<String>,
    /// List only sessions with records of this trace
    #[arg(long)]
    trace: Option<Trace>,
    /// List only sessions with a fault of this code
    #[arg(long)]
    code: Option<String>,
    /// List only sessions that called this tool
    #[arg(long)]
    tool: Option<String>,
    /// Maximum number of sessions
    #[arg(long, default_value_t = LIST_LIMIT)]
    limit: usize,
    /// Print one JSON object per session on stdout
    #[arg(long)]
    json: bool,
}

fn state_parser() -> impl TypedValueParser<Value = SessionState> {
    PossibleValuesParser::new(SessionState::ALL.map(SessionState::as_str))
        .try_map(|name| name.parse::<SessionState>())
}

impl ListArgs {
    fn filter(&self, now: Timestamp) -> Filter {
        let label = self.label.as_ref().map(|label| match label.split_once('=') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (label.clone(), None),
        });
        Filter {
            ids: None,
            state: self.state,
            since: self.since.map(|since| since.at(now)),
            until: self.until.map(|until| until.at(now)),
            label,
            trace: self.trace,
            code: self.code.clone(),
            tool: self.tool.clone(),
            after: None,
            limit: self.limit,
        }
    }
}

/// Runs `budao sessions`. Only `delete` and `retry` need write access to the journal.
pub(crate) async fn run(args: &Args, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    if let Some(Action::Retry(retry)) = &args.action {
        return retry::run(retry, &args.journal, lang, terminal).await;
    }
    let journal = match &args.action {
        Some(Action::Delete { .. }) => args.journal.existing(),
        _ => args.journal.to_read(),
    };
    let world = world::system();
    let journal = journal.open(&world).await?;
    let now = world.clock.now();
    let since = args.since.map(|since| since.at(now));
    let done = match &args.action {
        None | Some(Action::Retry(_)) if args.anomalies => {
            anomalies::run(&*journal, since, args.json, lang, terminal).await
        }
        None | Some(Action::Retry(_)) => {
            let filter = Filter { since, limit: LIST_LIMIT, ..Filter::default() };
            list(&*journal, filter, args.json, lang, terminal).await
        }
        Some(Action::List(args)) => {
            list(&*journal, args.filter(now), args.json, lang, terminal).await
        }
        Some(Action::Show { session, json }) => {
            show::show(&*journal, session, *json, lang, terminal).await
        }
        Some(Action::Delete { sessions, json }) => {
            delete(&*journal, sessions, *json, lang, terminal).await
        }
    };
    journal.close().await;
    done
}

async fn list(
    journal: &dyn Journal,
    filter: Filter,
    is_json: bool,
    lang: Lang,
    terminal: &Terminal,
) -> Result<Exit, Fault> {
    let found = journal.sessions(filter).await?;
    for summary in &found {
        terminal.data(&if is_json { json(summary)? } else { row(summary, lang, terminal) });
    }
    if found.is_empty() {
        terminal.say(localize(lang, "sessions-no-sessions-found"));
    }
    Ok(Exit::Success)
}

async fn delete(
    journal: &dyn Journal,
    names: &[SessionName],
    is_json: bool,
    lang: Lang,
    terminal: &Terminal,
) -> Result<Exit, Fault> {
    let mut exit = Exit::Success;
    for name in names {
        let session = name.find_in(journal).await?;
        let is_deleted = journal.delete(session).await?;
        exit = if is_deleted { exit } else { Exit::Failed };
        if is_json {
            let result = serde_json::json!({ "session": session, "deleted": is_deleted });
            terminal.data(&format!("{result}\n"));
            continue;
        }
        let text = match is_deleted {
            true => localize(lang, "sessions-deleted"),
            false => localize(lang, "sessions-unknown-session"),
        };
        terminal.say(&format!("{text} {session}"));
    }
    Ok(exit)
}

fn json(summary: &SessionSummary) -> Result<String, Fault> {
    let text = serde_json::to_string(summary)
        .map_err(|error| Fault::new(Kind::Bug, Operation::ReadRecords).caused_by(&error))?;
    Ok(text + "\n")
}

fn row(summary: &SessionSummary, lang: Lang, terminal: &Terminal) -> String {
    let counts = summary.fault_counts();
    let faults = match counts.faults {
        0 => String::new(),
        faults => format!(
            " {faults} {}, {} {}",
            localize(lang, "sessions-faults"),
            counts.recovered,
            localize(lang, "sessions-recovered"),
        ),
    };
    format!(
        "{}  {}  {}  {} {}{}\n",
        terminal.name(summary.session),
        summary.updated_at,
        pad(summary.state.as_str(), STATE_WIDTH),
        summary.title.as_deref().unwrap_or_default(),
        terminal.faint(summary.last_code.as_deref().unwrap_or_default()),
        terminal.faint(faults),
    )
}
