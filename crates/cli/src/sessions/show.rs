//! `budao sessions show`: the state of one session, its last fault, and whose move it is.

use budao_core::{
    Fault, Lang, Timestamp,
    event::{Seq, SessionId},
    fault::{Fact, Kind, Operation, text},
    session::{Session, SessionState},
    spending::shown_amount,
};
use budao_journal::{HistoryInfo, Journal, PageLimits, fold};
use serde_json::{Value, json};

use crate::{
    exit::Exit,
    session_name::SessionName,
    terminal::{Terminal, pad},
    texts::localize,
};

/// The width of the longest name.
const NAME_WIDTH: usize = 18;

/// How many of the newest records are searched for the last fault.
const SEARCHED: Seq = 10_000;

pub(super) async fn show(
    journal: &dyn Journal,
    name: &SessionName,
    is_json: bool,
    lang: Lang,
    terminal: &Terminal,
) -> Result<Exit, Fault> {
    let session = name.find_in(journal).await?;
    let unknown = || {
        Fault::new(Kind::UnknownSession, Operation::ReadRecords)
            .with(Fact::Session, session.to_string())
    };
    let info = journal.info(session).await?.ok_or_else(unknown)?;
    let (state, _) = fold(journal, session).await?;
    let one = PageLimits { records: 1, bytes: 0 };
    let first = journal.read(session, info.first_available - 1, one).await?;
    let fault = last_fault(journal, &info, session).await?;
    let counts = state.faults.counts();
    let details = json!({
        "session": session,
        "state": state.state(),
        "title": state.settings.title,
        "tenant": Some(state.settings.tenant()).filter(|tenant| !tenant.is_empty()),
        "turns": state.turns,
        "last_fault": fault.as_ref().map(|(_, fault)| fault.row().code),
        "last_fault_at": fault.as_ref().map(|(at, _)| at.to_string()),
        "last_fault_text": fault.as_ref().map(|(_, fault)| text::user_text(fault, lang)),
        "next_move": next_move(&state, &info, lang),
        "input_tokens": state.usage.input_tokens,
        "cached_tokens": state.usage.cached_tokens,
        "output_tokens": state.usage.output_tokens,
        "cost": cost(&state),
        "faults": counts.faults,
        "recovered": counts.recovered,
        "not_recovered": counts.not_recovered,
        "timers": timers(&state),
        "queued_messages": state.queue.len(),
        "waiting_commands": journal.inbox(session).await?.len(),
        "writer": info.lease.as_ref().map(|lease| &lease.holder),
        "lease_expires": info.lease.as_ref().map(|lease| lease.expires.to_string()),
        "first_at": first.records.first().map(|record| record.at.to_string()),
        "first_available": info.first_available,
        "head": info.head,
        "epoch": info.epoch.to_string(),
        "snapshot": journal.snapshot(session).await?.map(|snapshot| snapshot.seq),
    });
    print(&details, is_json, lang, terminal);
    Ok(Exit::Success)
}

/// The newest fault of a session and its time, among the last [`SEARCHED`] records.
async fn last_fault(
    journal: &dyn Journal,
    info: &HistoryInfo,
    session: SessionId,
) -> Result<Option<(Timestamp, Fault)>, Fault> {
    let (mut after, mut found) = (info.head.saturating_sub(SEARCHED), None);
    while after < info.head {
        let page = journal.read(session, after, PageLimits::default()).await?;
        for stored in &page.records {
            let record = stored.record()?;
            found = record.event.fault().map(|fault| (record.at, fault.clone())).or(found);
        }
        let Some(last) = page.records.last() else { break };
        after = last.seq;
    }
    Ok(found)
}

fn print(details: &Value, is_json: bool, lang: Lang, terminal: &Terminal) {
    if is_json {
        return terminal.data(&format!("{details}\n"));
    }
    for (name, value) in details.as_object().into_iter().flatten() {
        let value = match value {
            Value::Null => localize(lang, "sessions-none").to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        terminal.data(&format!("{} {value}\n", pad(name, NAME_WIDTH)));
    }
}

/// Each timer with its next time, for example `daily 2026-11-18T09:00:00.000Z`; `None` if none is set.
fn timers(state: &Session) -> Option<String> {
    let all: Vec<String> =
        state.timers.all().map(|timer| format!("{} {}", timer.timer, timer.next)).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// What the session cost, for example `0.0125 USD`, with `≈` if a part is an estimate; `None` without prices.
fn cost(state: &Session) -> Option<String> {
    let spending = &state.spending;
    let mark = if state.usage.estimated_tokens > 0 { "≈ " } else { "" };
    let amount = || format!("{mark}{}", shown_amount(spending.session, &spending.currency));
    (!spending.currency.is_empty()).then(amount)
}

/// Who acts next, and how.
fn next_move(state: &Session, info: &HistoryInfo, lang: Lang) -> &'static str {
    match state.state() {
        SessionState::Running if info.lease.is_none() => {
            localize(lang, "sessions-yours-no-process-runs-the-turn")
        }
        SessionState::Running => localize(lang, "sessions-the-agents-a-turn-runs"),
        SessionState::WaitingForDecision => localize(lang, "sessions-yours-a-call-waits-for-a"),
        SessionState::Failed => localize(lang, "sessions-yours-the-last-turn-failed-continue"),
        SessionState::Idle => localize(lang, "sessions-yours-send-a-message"),
        SessionState::Closed => localize(lang, "sessions-nobodys-a-message-re-opens-the"),
    }
}
