//! `budao sessions`: lists, shows, retries and deletes sessions of the journal, and finds anomalies.

mod retry;

use budao_core::{
    Fault, Lang, Timestamp,
    event::SessionId,
    fault::{Fact, Kind, Operation},
    trace::Trace,
};
use budao_journal::{Filter, Journal, PageLimits, SessionState, SessionSummary};
use budao_runtime::world;

use crate::{
    anomalies,
    exit::Exit,
    setup::JournalArgs,
    terminal::{Terminal, pad},
    texts::localize,
};

/// List, show, retry and delete sessions.
#[derive(Debug, clap::Args)]
#[command(subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(flatten)]
    journal: JournalArgs,

    /// Find anomalies: turns that ended at once or without an answer, dropped results, messages right after an end,
    /// long silences
    #[arg(long, required_unless_present = "since")]
    anomalies: bool,

    /// With --anomalies: check only sessions changed at or after this time, in UTC
    #[arg(long, value_name = "TIME", requires = "anomalies")]
    since: Option<Timestamp>,

    /// With --anomalies: print one JSON object per line on stdout
    #[arg(long, requires = "anomalies")]
    json: bool,

    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List sessions, the most recently changed first
    List(ListArgs),
    /// Show one session: its positions, its writer, its waiting commands
    Show {
        /// The session
        session: SessionId,
        /// Print one JSON object on stdout
        #[arg(long)]
        json: bool,
    },
    /// Continue failed turns from where they stood; lists them first
    Retry(Box<retry::RetryArgs>),
    /// Delete sessions with their records, commands and stored outputs
    Delete {
        /// The sessions
        #[arg(required = true)]
        sessions: Vec<SessionId>,
        /// Print one JSON object per session on stdout
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// List only sessions in this state: idle, running, asking, closed or failed
    #[arg(long)]
    state: Option<SessionState>,
    /// List only sessions changed at or after this time, in UTC
    #[arg(long, value_name = "TIME")]
    since: Option<Timestamp>,
    /// List only sessions changed before this time, in UTC
    #[arg(long, value_name = "TIME")]
    until: Option<Timestamp>,
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
    #[arg(long, default_value_t = 50)]
    limit: usize,
    /// Print one JSON object per session on stdout
    #[arg(long)]
    json: bool,
}

impl ListArgs {
    fn filter(&self) -> Filter {
        let label = self.label.as_ref().map(|label| match label.split_once('=') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (label.clone(), None),
        });
        Filter {
            ids: None,
            state: self.state,
            since: self.since,
            until: self.until,
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
    let journal = journal.open(&world::system()).await?;
    let done = match &args.action {
        None | Some(Action::Retry(_)) => {
            anomalies::run(&*journal, args.since, args.json, lang, terminal).await
        }
        Some(Action::List(list)) => {
            let found = journal.sessions(list.filter()).await?;
            for summary in &found {
                terminal.data(&if list.json { json(summary)? } else { row(summary, terminal) });
            }
            if found.is_empty() {
                terminal.say(localize(lang, "No sessions found.", "没有找到会话。"));
            }
            Ok(Exit::Success)
        }
        Some(Action::Show { session, json }) => {
            show(&*journal, *session, *json, lang, terminal).await
        }
        Some(Action::Delete { sessions, json }) => {
            let mut exit = Exit::Success;
            for session in sessions {
                let is_deleted = journal.delete(*session).await?;
                if *json {
                    let result = serde_json::json!({ "session": session, "deleted": is_deleted });
                    terminal.data(&format!("{result}\n"));
                    exit = if is_deleted { exit } else { Exit::Failed };
                } else if is_deleted {
                    terminal.say(&format!("{} {session}", localize(lang, "Deleted", "已删除")));
                } else {
                    let text = localize(lang, "Unknown session", "未知会话");
                    terminal.say(&format!("{text} {session}"));
                    exit = Exit::Failed;
                }
            }
            Ok(exit)
        }
    };
    journal.close().await;
    done
}

fn json(summary: &SessionSummary) -> Result<String, Fault> {
    let text = serde_json::to_string(summary)
        .map_err(|error| Fault::new(Kind::Bug, Operation::ReadRecords).caused_by(&error))?;
    Ok(text + "\n")
}

fn row(summary: &SessionSummary, terminal: &Terminal) -> String {
    let title = summary.title.as_deref().unwrap_or_default();
    let code = summary.last_code.as_deref().unwrap_or_default();
    format!(
        "{}  {}  {}  {} {}\n",
        terminal.name(summary.session),
        summary.updated_at,
        pad(summary.state.as_str(), 7),
        title,
        terminal.faint(code),
    )
}

async fn show(
    journal: &dyn Journal,
    session: SessionId,
    is_json: bool,
    lang: Lang,
    terminal: &Terminal,
) -> Result<Exit, Fault> {
    let unknown = || {
        Fault::new(Kind::UnknownSession, Operation::ReadRecords)
            .with(Fact::Session, session.to_string())
    };
    let info = journal.info(session).await?.ok_or_else(unknown)?;
    let waiting = journal.inbox(session).await?.len();
    let one = PageLimits { records: 1, bytes: 0 };
    let first = journal.read(session, info.first_available - 1, one).await?;
    let snapshot = journal.snapshot(session).await?.map(|snapshot| snapshot.seq);
    let details = serde_json::json!({
        "session": session,
        "epoch": info.epoch.to_string(),
        "head": info.head,
        "first_available": info.first_available,
        "first_at": first.records.first().map(|record| record.at.to_string()),
        "snapshot": snapshot,
        "waiting_commands": waiting,
        "writer": info.lease.as_ref().map(|lease| &lease.holder),
        "lease_expires": info.lease.as_ref().map(|lease| lease.expires.to_string()),
    });
    if is_json {
        terminal.data(&format!("{details}\n"));
        return Ok(Exit::Success);
    }
    let none = localize(lang, "none", "无");
    for (name, value) in details.as_object().into_iter().flatten() {
        let value = match value {
            serde_json::Value::Null => none.to_owned(),
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        terminal.data(&format!("{} {value}\n", pad(name, 18)));
    }
    Ok(Exit::Success)
}
