//! The acts that use `run`, `resume` and `replay`.

use std::os::unix::process::ExitStatusExt as _;

use budao_core::{
    Event, Fault, Kind, Record,
    event::{SessionId, StopReason},
};

use super::{
    CheckedClaims,
    act::{Act, Claim},
    runner::{DemoRunner, RecordLines, lines_in, not_read},
};
use crate::texts::localize;

/// The `retry_after` of the scripted service, in milliseconds.
const ASKED: u64 = 900;

/// Text deltas before the process is killed.
const SPOKEN: usize = 4;

/// The demo model's first call has a wrong argument, which it learns only from the fault.
pub(super) async fn correct(stage: &mut DemoRunner<'_>) -> Result<CheckedClaims, Fault> {
    let task = localize(stage.lang, "demo-read-readme-md-and-count-its");
    let args = ["run", "--json", "--model", "demo:fast", task];
    let (records, went_well) = stage.perform(&args).await?;
    let ended = |right: bool| {
        records.iter().position(|record| match &record.event {
            Event::ToolCallEnded { outcome, .. } => outcome.fault().is_none() == right,
            _ => false,
        })
    };
    let (failed, done) = (ended(false), ended(true));
    let model_got_fault = failed.is_some_and(|at| {
        records[at].event.fault().is_some_and(|fault| fault.row().code == "ERR_VAL_002")
    });
    let corrected = failed.zip(done).is_some_and(|(failed, done)| {
        failed < done && records[failed].event.tool() == records[done].event.tool()
    });
    let ended = went_well && ended_well(&records);
    keep(stage, Act::Correct, records);
    Ok(vec![
        (Claim::ToldOfTheMistake, model_got_fault),
        (Claim::CorrectedItself, corrected),
        (Claim::TurnEnded, ended),
    ])
}

/// The model refuses twice with 429; the runtime's own retry loop handles it.
pub(super) async fn wait(stage: &mut DemoRunner<'_>) -> Result<CheckedClaims, Fault> {
    let words = localize(stage.lang, "demo-here-i-am-again");
    let script = format!(
        "[[step]]\nstatus = 429\nretry_after_ms = {ASKED}\n\n[[step]]\nstatus = 429\n\n\
         [[step]]\ntext = \"{words}\"\npace_ms = 60\n"
    );
    stage.script("busy.toml", &script)?;
    let task = localize(stage.lang, "demo-are-you-there");
    let args = ["run", "--json", "--model", "script:busy.toml", task];
    let (records, went_well) = stage.perform(&args).await?;
    let waits: Vec<_> = records.iter().filter(|record| is_wait(record)).collect();
    let waited = waits.first().is_some_and(|wait| waited_out(wait, &records));
    let checked = vec![
        (Claim::RefusedTwice, waits.len() == 2),
        (Claim::WaitedAsLongAsAsked, waited),
        (Claim::Recovered, records.iter().any(|r| matches!(r.event, Event::Recovered { .. }))),
        (Claim::TurnEnded, went_well && ended_well(&records)),
    ];
    keep(stage, Act::Wait, records);
    Ok(checked)
}

/// True if the scheduled wait is at least [`ASKED`] and the next request came no earlier than its due time.
fn waited_out(wait: &Record, records: &[Record]) -> bool {
    let Event::RetryScheduled { wait_ms, due_at, .. } = &wait.event else { return false };
    let is_next = |record: &&Record| {
        record.seq > wait.seq && matches!(record.event, Event::StepStarted { .. })
    };
    *wait_ms >= ASKED && records.iter().find(is_next).is_some_and(|next| next.at >= *due_at)
}

fn is_wait(record: &Record) -> bool {
    matches!(record.event, Event::RetryScheduled { kind: Kind::ModelRateLimited, .. })
}

/// The model calls a tool with a side effect, then is killed with SIGKILL while it sends text.
pub(super) async fn kill(stage: &mut DemoRunner<'_>) -> Result<CheckedClaims, Fault> {
    let words = localize(stage.lang, "demo-the-ledger-has-its-line-and");
    let script = format!(
        "order = \"history\"\n\n[[step]]\n[[step.call]]\ntool = \"bash_run\"\n\
         arguments = {{ cmd = \"echo paid >> ledger.txt\", background = false }}\n\n\
         [[step]]\ntext = \"{words}\"\npace_ms = 150\n"
    );
    stage.script("ledger.toml", &script)?;
    let task = localize(stage.lang, "demo-write-it-down");
    let args = ["run", "--json", "--permission", "auto", "--model", "script:ledger.toml", task];
    let (before, signal) = until_killed(stage, &args).await?;
    let session = before.first().map(|record| record.session).ok_or_else(not_read)?;
    let (after, went_well) = stage.perform(&["resume", "--json", &session.to_string()]).await?;

    let open = !before.iter().any(|record| matches!(record.event, Event::TurnEnded { .. }));
    let resumed = after.iter().any(|r| matches!(r.event, Event::SessionResumed { .. }));
    let starts = |records: &[Record]| {
        records.iter().filter(|r| matches!(r.event, Event::ToolCallStarted(_))).count()
    };
    let lines = lines_in(&stage.workspace().join("ledger.txt"));
    stage.show(&format!("ledger.txt: {lines} {}", localize(stage.lang, "demo-line")));
    let checked = vec![
        (Claim::KilledMidTurn, signal == Some(9) && open),
        (Claim::Resumed, resumed),
        (Claim::ToolRanOnce, starts(&before) + starts(&after) == 1 && lines == 1),
        (Claim::AnswerIsWhole, spoken(&after) == words),
        (Claim::TurnEnded, went_well && ended_well(&after)),
    ];
    keep(stage, Act::Kill, before);
    keep(stage, Act::Kill, after);
    Ok(checked)
}

/// Runs a command, kills it after [`SPOKEN`] text deltas, and returns its records and the signal that ended it.
async fn until_killed(
    stage: &DemoRunner<'_>,
    args: &[&str],
) -> Result<(Vec<Record>, Option<i32>), Fault> {
    let mut child = stage.start(args)?;
    let mut printed = RecordLines::of(&mut child)?;
    let (mut all, mut printer, mut words) = (Vec::new(), stage.printer(), 0);
    while let Some(record) = printed.next().await? {
        printer.print(&record);
        words += usize::from(matches!(record.event, Event::TextDelta { .. }));
        all.push(record);
        if words == SPOKEN {
            child.start_kill().map_err(|error| not_read().caused_by(&error))?;
        }
    }
    printer.end_line();
    let status = child.wait().await.map_err(|error| not_read().caused_by(&error))?;
    stage.show("✂ SIGKILL");
    Ok((all, status.signal()))
}

/// Reads back every session of the demo and shows the killed one.
pub(super) async fn replay(stage: &mut DemoRunner<'_>) -> Result<CheckedClaims, Fault> {
    let killed = stage.session_of(Act::Kill);
    let sessions: Vec<SessionId> = stage.sessions().collect();
    let (mut is_gapless, mut replayed) = (!sessions.is_empty(), Vec::new());
    for session in sessions {
        let id = session.to_string();
        let args = ["replay", "--json", &id];
        let (records, went_well) = match killed == Some(session) {
            true => stage.perform(&args).await?,
            false => stage.perform_untold(&args).await?,
        };
        let seqs = records.iter().map(|record| record.seq);
        is_gapless &= went_well && !records.is_empty() && seqs.eq(1..=records.len() as u64);
        replayed.extend(records);
    }
    let is_same = !stage.printed.is_empty() && stage.printed.iter().all(|r| replayed.contains(r));
    Ok(vec![(Claim::NoGaps, is_gapless), (Claim::SameAsHappened, is_same)])
}

fn keep(stage: &mut DemoRunner<'_>, act: Act, records: Vec<Record>) {
    if let Some(first) = records.first() {
        stage.remember(act, first.session);
    }
    stage.printed.extend(records);
}

/// True if exactly one turn ended, normally and without a fault.
fn ended_well(records: &[Record]) -> bool {
    let mut ends = records.iter().filter_map(|record| match &record.event {
        Event::TurnEnded { stop, fault, .. } => Some((*stop, fault.is_none())),
        _ => None,
    });
    ends.next() == Some((StopReason::EndTurn, true)) && ends.next().is_none()
}

/// The concatenated text deltas of the records.
fn spoken(records: &[Record]) -> String {
    let words = records.iter().filter_map(|record| match &record.event {
        Event::TextDelta { text, .. } => Some(text.as_str()),
        _ => None,
    });
    words.collect()
}
