//! `budao sessions retry`: lists sessions whose last turn failed, and continues those turns.
//!
//! The command goes through the session's inbox, so a process that holds the session continues its turn. A session
//! that nobody holds is continued by this process.

use std::{
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    time::Duration,
};

use budao_core::{
    Fault, Lang, Timestamp,
    engine::Engine as _,
    event::{Answer, CommandBody, SessionId},
    fault::{Fact, Kind, Operation, text},
    session::Session,
};
use budao_journal::{Filter, Journal, PageLimits, fold};
use budao_runtime::{TurnResult, world};
use futures::StreamExt as _;
use strum::VariantArray as _;

use crate::{
    config::ConfigArgs,
    exit::Exit,
    session_name::SessionName,
    setup::{self, Application, JournalArgs},
    terminal::{Terminal, pad},
    texts::{fill, localize},
    time_point::parse_span,
    watch::{TurnFormat, Watcher},
};

/// Turns that run at the same time; the others wait.
const AT_ONCE: usize = 32;
/// Sessions that one page of the list has.
const PAGE: usize = 200;

#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("which").required(true).args(["sessions", "failed"])))]
pub(super) struct RetryArgs {
    /// The sessions, by id or the beginning of one
    #[arg(value_name = "ID")]
    sessions: Vec<SessionName>,
    /// Every session whose last turn failed
    #[arg(long)]
    failed: bool,
    /// With --failed: only turns that failed within this time: 90s, 15m, 1h, 2d
    #[arg(long, value_name = "TIME", requires = "failed", value_parser = parse_span)]
    since: Option<Duration>,
    /// With --failed: only turns that failed with this code
    #[arg(long, requires = "failed")]
    code: Option<String>,
    /// Retry without a question
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

/// A session with the failed turn that is to be continued.
struct FailedTurn {
    session: SessionId,
    title: String,
    code: &'static str,
    age: Duration,
}

/// Runs `budao sessions retry`: the list, the question, the turns.
pub(super) async fn run(
    args: &RetryArgs,
    journal: &JournalArgs,
    lang: Lang,
    terminal: &Terminal,
) -> Result<Exit, Fault> {
    check_code(args.code.as_deref())?;
    let opened = journal.existing().open(&world::system()).await?;
    let found = match args.failed {
        true => find_failed(&*opened, args, lang, terminal).await,
        false => look_up(&*opened, &args.sessions, terminal).await,
    };
    opened.close().await;
    let found = found?;
    if found.is_empty() {
        terminal.say(localize(lang, "sessions-there-is-no-failed-turn-to"));
        return Ok(Exit::Success);
    }
    for failed in &found {
        terminal.data(&row(failed, terminal));
    }
    if !args.yes && !confirm(found.len(), lang, terminal) {
        return Ok(Exit::Success);
    }
    let application = setup::assemble(&journal.existing(), args.config.load()?).await?;
    let done = match (found.as_slice(), args.failed) {
        ([one], false) => follow_one(&application, one.session, lang, terminal).await,
        (all, _) => retry_all(&application, all, lang, terminal).await,
    };
    application.close().await;
    done
}

/// Checks that a code is in the catalog.
fn check_code(code: Option<&str>) -> Result<(), Fault> {
    let known = |code: &&str| Kind::VARIANTS.iter().any(|kind| kind.row().code == *code);
    match code.filter(|code| !known(code)) {
        None => Ok(()),
        Some(code) => Err(Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
            .with(Fact::ConfigKey, "--code")
            .with(Fact::Expected, "a code that `budao explain --list` shows")
            .with(Fact::Received, code.chars().take(40).collect::<String>())),
    }
}

/// The sessions with these ids; fails if one of them cannot be retried, and names that one.
async fn look_up(
    journal: &dyn Journal,
    names: &[SessionName],
    terminal: &Terminal,
) -> Result<Vec<FailedTurn>, Fault> {
    let mut found = Vec::new();
    for name in names {
        let session = name.find_in(journal).await?;
        match check(journal, session).await {
            Ok(failed) => found.push(failed),
            Err(fault) => {
                terminal.say(&format!("✗ {}", terminal.name(session)));
                return Err(fault);
            }
        }
    }
    Ok(found)
}

async fn check(journal: &dyn Journal, session: SessionId) -> Result<FailedTurn, Fault> {
    let state = fold(journal, session).await?.0;
    state.retryable_turn(None)?;
    check_engine(journal, session, &state).await?;
    describe(journal, session, &state).await
}

/// All sessions whose last turn failed, the most recent first. Says how many of them cannot be retried.
async fn find_failed(
    journal: &dyn Journal,
    args: &RetryArgs,
    lang: Lang,
    terminal: &Terminal,
) -> Result<Vec<FailedTurn>, Fault> {
    let (mut found, mut left_out) = (Vec::new(), 0_usize);
    let now = world::system().clock.now();
    let mut filter = Filter {
        since: args.since.map(|since| before(now, since)),
        code: args.code.clone(),
        limit: PAGE,
        ..Filter::default()
    };
    loop {
        let page = journal.sessions(filter.clone()).await?;
        for summary in &page {
            let is_wanted = |code: &String| args.code.as_ref().is_none_or(|wanted| wanted == code);
            if summary.open_turn.is_some() || !summary.last_code.as_ref().is_some_and(is_wanted) {
                continue;
            }
            let state = fold(journal, summary.session).await?.0;
            let is_ours = check_engine(journal, summary.session, &state).await;
            match state.retryable_turn(None).and(is_ours) {
                Ok(()) => found.push(describe(journal, summary.session, &state).await?),
                Err(_) => left_out += 1,
            }
        }
        let Some(last) = page.last().filter(|_| page.len() == PAGE) else { break };
        filter.after = Some((last.updated_at, last.session));
    }
    if left_out > 0 {
        let words = localize(lang, "sessions-left-out-because-they-cannot-be");
        terminal.say(&format!("{words} {left_out}"));
    }
    Ok(found)
}

/// Fails for a session of another engine that no process holds: nobody here can continue its turn.
async fn check_engine(
    journal: &dyn Journal,
    session: SessionId,
    state: &Session,
) -> Result<(), Fault> {
    let is_held = async || Ok::<_, Fault>(journal.info(session).await?.and_then(|it| it.lease));
    if !state.settings.is_foreign() || is_held().await?.is_some() {
        return Ok(());
    }
    Err(Fault::new(Kind::ConstraintViolated, Operation::SubmitCommand)
        .with(Fact::Field, "session")
        .with(Fact::Constraint, format!("a process of its engine holds session {session}"))
        .with(Fact::ProvidedValue, serde_json::json!(session)))
}

async fn describe(
    journal: &dyn Journal,
    session: SessionId,
    state: &Session,
) -> Result<FailedTurn, Fault> {
    let one = PageLimits { records: 1, bytes: 0 };
    let page = journal.read(session, state.head.saturating_sub(1), one).await?;
    let now = world::system().clock.now();
    let fault = state.last.as_ref().and_then(|last| last.fault.as_ref());
    Ok(FailedTurn {
        session,
        title: state.settings.title.clone().unwrap_or_default(),
        code: fault.map_or("", |fault| fault.row().code),
        age: page.records.last().map_or(Duration::ZERO, |record| now.since(record.at)),
    })
}

fn before(now: Timestamp, span: Duration) -> Timestamp {
    let micros = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(now.as_micros().saturating_sub(micros))
}

fn row(failed: &FailedTurn, terminal: &Terminal) -> String {
    let (id, age) = (terminal.name(failed.session), short_span(failed.age));
    format!("{id}  {}  {}  {}\n", pad(failed.code, 15), pad(&age, 5), failed.title)
}

/// A time span in its largest whole unit.
fn short_span(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7_200 => format!("{}m", seconds / 60),
        seconds @ 7_200..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Asks at the terminal whether to go on; without one, says how to.
fn confirm(count: usize, lang: Lang, terminal: &Terminal) -> bool {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        terminal.say(localize(lang, "sessions-nothing-was-retried-add-yes-to"));
        return false;
    }
    let prompt = fill(lang, "sessions-confirm-retry", &[("count", count.into())]);
    let mut line = String::new();
    let mut stderr = io::stderr().lock();
    let written = stderr.write_all(prompt.as_bytes()).and_then(|()| stderr.flush());
    drop(stderr);
    let answered = written.and_then(|()| io::stdin().lock().read_line(&mut line));
    answered.is_ok() && line.trim().eq_ignore_ascii_case("y")
}

/// Retries one turn and follows it like `budao resume`.
async fn follow_one(
    application: &Application,
    session: SessionId,
    lang: Lang,
    terminal: &Terminal,
) -> Result<Exit, Fault> {
    let runtime = &application.runtime;
    let command = runtime.command("terminal", CommandBody::Retry { turn: None });
    let after = match runtime.submit(session, command).await? {
        Answer::Accepted { at } => at,
        Answer::Rejected { fault } => return Err(fault),
    };
    let show = TurnFormat::Text;
    Watcher::new(runtime, session, terminal, lang, show).until_idle(after).await
}

/// Retries all turns, a bounded number at a time, and reports each when it ends.
async fn retry_all(
    application: &Application,
    all: &[FailedTurn],
    lang: Lang,
    terminal: &Terminal,
) -> Result<Exit, Fault> {
    let turns = all
        .iter()
        .map(async |failed| (failed.session, application.runtime.retry(failed.session).await));
    let mut ends = futures::stream::iter(turns).buffer_unordered(AT_ONCE);
    let mut answered = 0;
    loop {
        let end = tokio::select! {
            biased;
            end = ends.next() => end,
            _ = tokio::signal::ctrl_c() => {
                terminal.say(localize(lang, "sessions-stopped-turns-under-way-go-on"));
                return Ok(Exit::Stopped);
            }
        };
        let Some((session, end)) = end else { break };
        answered += usize::from(report(session, end, lang, terminal));
    }
    let words = localize(lang, "sessions-answered");
    terminal.say(&format!("{words} {answered}/{}", all.len()));
    Ok(if answered == all.len() { Exit::Success } else { Exit::Failed })
}

/// Prints how a turn ended. Returns true if it answered.
fn report(
    session: SessionId,
    end: Result<TurnResult, Fault>,
    lang: Lang,
    terminal: &Terminal,
) -> bool {
    let id = terminal.name(session);
    let fault = match end {
        Ok(turn) if !turn.pending.is_empty() => {
            let words = localize(lang, "sessions-waits-for-a-decision");
            terminal.say(&format!("? {id} {words} budao resume {session}"));
            return false;
        }
        Ok(TurnResult { fault: None, .. }) => {
            terminal.say(&format!("✓ {id}"));
            return true;
        }
        Ok(TurnResult { fault: Some(fault), .. }) | Err(fault) => fault,
    };
    let words = text::user_text(&fault, lang);
    terminal.say(&format!("✗ {id} {} {words}", fault.row().code));
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_span_is_a_number_and_a_unit() {
        let seconds = |text| parse_span(text).map(|span| span.as_secs());
        assert_eq!(seconds("90s"), Ok(90));
        assert_eq!(seconds("15m"), Ok(900));
        assert_eq!(seconds("1h"), Ok(3_600));
        assert_eq!(seconds("2d"), Ok(172_800));
        for wrong in
            ["", "h", "1", "1w", "-1h", "+1h", "1.5h", "1 h", "1时", "99999999999999999999d"]
        {
            let message = parse_span(wrong).unwrap_err();
            assert!(message.contains(&format!("`{wrong}`")), "{message}");
        }
    }

    #[test]
    fn an_age_is_shown_in_its_largest_whole_unit() {
        let shown = |seconds| short_span(Duration::from_secs(seconds));
        assert_eq!(shown(119), "119s");
        assert_eq!(shown(120), "2m");
        assert_eq!(shown(7_200), "2h");
        assert_eq!(shown(172_800), "2d");
    }
}
