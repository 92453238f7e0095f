//! The views that operators search by, derived from records by pure functions.
//!
//! Every implementation uses these functions, so their views agree and can be rebuilt from the records at any time.

use std::collections::{BTreeMap, HashMap, HashSet};

use budao_core::{
    activity::Activity,
    event::{Event, Seq, SessionId},
    fault::{Fault, Kind, Operation},
    session::{Session, SessionState},
    tally::FaultTally,
    time::Timestamp,
};

use serde::{Deserialize, Serialize};

use crate::contract::{SessionSummary, StoredRecord, TimerView};

/// The resolution of counts: one minute, in microseconds.
pub const BUCKET_MICROS: i64 = 60_000_000;

/// The changes of one record to the views other than the summary.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RecordChanges {
    /// The name of the tool, if the record starts or ends a call.
    pub tool: Option<String>,
    /// The fault code in the record, if there is one.
    pub code: Option<CodeMark>,
    /// Whether the record changes the session's labels.
    pub has_new_labels: bool,
}

/// A fault code in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeMark {
    /// The code, as in the catalog.
    pub code: &'static str,
    /// True if the record raises the fault; false if the fault ends a turn, task or session.
    pub is_raised: bool,
}

/// The changes of several records of one session, collected so that each row of a view is written once.
#[derive(Debug, Default)]
pub struct SessionChanges {
    /// Whether the session's labels differ from those in the views.
    pub has_new_labels: bool,
    /// The traces of the records.
    pub traces: HashSet<u128>,
    /// The tools that were called.
    pub tools: HashSet<String>,
    /// The codes of faults.
    pub codes: HashSet<&'static str>,
    /// Faults raised and ended, by code and minute.
    pub rates: HashMap<(&'static str, i64), (i64, i64)>,
}

impl SessionChanges {
    /// Adds a record to the session's summary and its changes here. A record that the summary contains already has no
    /// effect; one that cannot be decoded is left out, and its readers get a fault.
    pub fn add(&mut self, summary: &mut SessionSummary, record: &StoredRecord) {
        if record.seq <= summary.head {
            return;
        }
        let changes = match apply(summary, record) {
            Ok(changes) => changes,
            Err(fault) => {
                let (session, seq) = (record.session, record.seq);
                tracing::warn!(%session, seq, %fault, "skipping record in views");
                return;
            }
        };
        self.has_new_labels |= changes.has_new_labels;
        if record.trace.is_some() {
            self.traces.insert(record.trace.as_u128());
        }
        self.tools.extend(changes.tool);
        if let Some(mark) = changes.code {
            self.codes.insert(mark.code);
            let minute = bucket_start(record.at, 1).as_micros();
            let count = self.rates.entry((mark.code, minute)).or_default();
            count.0 += i64::from(mark.is_raised);
            count.1 += i64::from(!mark.is_raised);
        }
    }
}

/// Prefixes of further frequent events that change no view; they are not decoded, like deltas.
const SKIPPED_PREFIXES: [&[u8]; 2] = [b"{\"file_seen\"", b"{\"annotated\""];

/// The summary of a session without records.
pub fn empty_summary(session: SessionId) -> SessionSummary {
    SessionSummary {
        session,
        state: SessionState::Idle,
        opened_at: Timestamp::default(),
        updated_at: Timestamp::default(),
        title: None,
        labels: BTreeMap::new(),
        turns: 0,
        open_turn: None,
        last_code: None,
        head: 0,
        timers: TimerView::default(),
        faults: FaultTally::default(),
    }
}

/// The summary of a session whose first records retention removed: its timers are those of the snapshot, up to the
/// snapshot's position.
pub fn summary_after_removal(session: SessionId, snapshot: Option<(Seq, &[u8])>) -> SessionSummary {
    let state = snapshot.and_then(|(seq, body)| {
        let state: Session = serde_json::from_slice(body).ok()?;
        (state.head == seq).then_some(state)
    });
    let timers = state.map(|state| TimerView { timers: state.timers, from: state.head });
    SessionSummary { timers: timers.unwrap_or_default(), ..empty_summary(session) }
}

/// Adds one record to a summary and returns its other changes to the views.
pub fn apply(summary: &mut SessionSummary, record: &StoredRecord) -> Result<RecordChanges, Fault> {
    if summary.head == 0 {
        summary.opened_at = record.at;
    }
    summary.head = record.seq;
    summary.updated_at = record.at;
    if record.is_delta() || SKIPPED_PREFIXES.iter().any(|prefix| record.body.starts_with(prefix)) {
        return Ok(RecordChanges::default());
    }
    let event = record.shared_event()?;
    summary.faults.apply(&event, record.at, &mut ());
    if record.seq > summary.timers.from {
        summary.timers.timers.apply(&event, record.at);
    }
    let code = code_mark(&event);
    let mut changes = RecordChanges { code, ..RecordChanges::default() };
    let Some(activity) = Activity::of(&event) else { return Ok(changes) };
    summary.state = summary.state.after(&activity, summary.open_turn.is_some());
    match activity {
        Activity::SessionOpened { settings, .. } | Activity::SettingsChanged { settings } => {
            summary.title.clone_from(&settings.title);
            changes.has_new_labels = summary.labels != settings.labels;
            summary.labels.clone_from(&settings.labels);
        }
        Activity::SessionEnded { .. } => summary.open_turn = None,
        Activity::TurnStarted { .. } => {
            summary.turns = summary.turns.max(record.turn);
            summary.open_turn = Some(record.turn);
            summary.last_code = None;
        }
        Activity::CallStarted { tool, .. } | Activity::CallEnded { tool, .. } => {
            changes.tool = Some(tool.to_owned());
        }
        Activity::TurnEnded { .. } => {
            summary.open_turn = None;
            summary.last_code = code.map(|mark| mark.code.to_owned());
        }
        _ => {}
    }
    Ok(changes)
}

/// A fault counts as raised in the record that reports it first: as an event of its own or as the outcome of a call. A
/// later record in which the same fault ends something counts as ended.
fn code_mark(event: &Event) -> Option<CodeMark> {
    let code = event.fault()?.row().code;
    let is_raised = match event {
        Event::FaultRaised { .. } | Event::ToolCallEnded { .. } | Event::PlanRefused { .. } => true,
        Event::RecoveryFailed { .. } => return None,
        _ => false,
    };
    Some(CodeMark { code, is_raised })
}

/// A summary with the open faults of its turn, which lists do not show.
#[derive(Serialize, Deserialize)]
struct StoredSummary<S> {
    summary: S,
    faults: FaultTally,
}

/// Encodes a summary, for an implementation that stores it as one value.
///
/// # Errors
/// If the summary cannot be written as JSON, which is a bug.
pub fn encode_summary(summary: &SessionSummary) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(&StoredSummary { summary, faults: summary.faults.clone() })
        .map_err(|error| Fault::new(Kind::Bug, Operation::AppendRecords).caused_by(&error))
}

/// Decodes the output of [`encode_summary`]; `None` for any other bytes.
pub fn decode_summary(body: &[u8]) -> Option<SessionSummary> {
    let stored: StoredSummary<SessionSummary> = serde_json::from_slice(body).ok()?;
    Some(SessionSummary { faults: stored.faults, ..stored.summary })
}

/// The start of the bucket that contains `at`, for buckets of `minutes` minutes.
pub fn bucket_start(at: Timestamp, minutes: i64) -> Timestamp {
    let length = BUCKET_MICROS.saturating_mul(minutes.max(1));
    let micros = at.as_micros();
    Timestamp::from_micros(micros.saturating_sub(micros.rem_euclid(length)))
}

/// The length in minutes, rounded up, at least 1.
pub fn minutes_rounded_up(length: std::time::Duration) -> i64 {
    i64::try_from(length.as_secs().div_ceil(60)).unwrap_or(i64::MAX / BUCKET_MICROS).max(1)
}
