//! The counts per minute, within bounds.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use budao_core::{
    Fault, Kind, Timestamp,
    event::{SessionId, Stage, StopReason},
    fallback::ModelChangeReason,
    message::Usage,
    tally::FaultResolution,
};

use super::metrics_recorder::MetricsRecorder;
use crate::alerts::FaultNotice;

/// The longest window of a report; older minutes are dropped.
pub(super) const WINDOW_MAX: Duration = Duration::from_hours(7 * 24);
/// Upper bound of stored faults, recoveries and paths; the oldest minutes are dropped first.
const ROWS: usize = 100_000;
/// Upper bound of faults collected between two alert rounds; further ones are dropped.
const NOTICES_MAX: usize = 10_000;
/// Maximum length of a fault's line in an alert, in characters.
const LINE_CHARS: usize = 500;
/// Distinct names per category; further names are counted as [`OTHER`].
const NAMES: usize = 200;
/// Maximum length of a name in characters.
const NAME_CHARS: usize = 80;
/// Stands for all names beyond the bound.
pub(super) const OTHER: &str = "other";

/// The name of a tool, a model or a computer, shared between entries.
pub(super) type Name = Arc<str>;

/// One fault with its context and its resolution.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FaultEntry {
    pub(super) at: Timestamp,
    pub(super) session: SessionId,
    pub(super) kind: Kind,
    pub(super) tool: Option<Name>,
    pub(super) model: Option<Name>,
    pub(super) stage: Option<Stage>,
    pub(super) computer: Option<Name>,
    /// The address of the service that failed.
    pub(super) endpoint: Option<Name>,
    /// The name and the version of the server that recorded the fault.
    pub(super) node: Option<Name>,
    pub(super) version: Option<Name>,
    /// The tenant and the user of the session.
    pub(super) tenant: Option<Name>,
    pub(super) user: Option<Name>,
    /// `None` if the turn goes on, or went on, without the operation.
    pub(super) resolution: Option<FaultResolution>,
    /// Milliseconds from the fault to its recovery, if it recovered.
    pub(super) recovery_ms: Option<u64>,
}

/// The kinds of a turn's faults in order, and the turn's end.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FaultPath {
    pub(super) kinds: Vec<Kind>,
    pub(super) end: StopReason,
}

/// The counts of one minute.
#[derive(Clone, Debug, Default)]
pub(super) struct Minute {
    pub(super) faults: Vec<FaultEntry>,
    pub(super) recoveries: Vec<u64>,
    pub(super) paths: Vec<FaultPath>,
    /// Attempts after the first.
    pub(super) retries: u64,
    /// Operations that were retried, by their result.
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) turns: u64,
    /// Model requests that ended without an answer.
    pub(super) unanswered: u64,
    pub(super) steps: BTreeMap<Name, u64>,
    pub(super) calls: BTreeMap<Name, u64>,
    /// Tokens by model, as the services report them.
    pub(super) usage: BTreeMap<Name, Usage>,
    /// Costs by model, by tenant and by API key, in millionths.
    pub(super) cost_by_model: BTreeMap<Name, u64>,
    pub(super) cost_by_tenant: BTreeMap<Name, u64>,
    pub(super) cost_by_key: BTreeMap<Name, u64>,
}

impl Minute {
    fn rows(&self) -> usize {
        self.faults.len() + self.recoveries.len() + self.paths.len()
    }
}

/// All stored minutes.
#[derive(Debug, Default)]
pub(super) struct MinuteCounters {
    /// Updates Prometheus with each count; `None` for the counters behind `/api/stats`.
    recorder: Option<MetricsRecorder>,
    /// The faults for alerts and the time from which they are collected; `None` without alerts.
    notices: Option<(Timestamp, Vec<FaultNotice>)>,
    minutes: BTreeMap<i64, Minute>,
    rows: usize,
    /// The currency of the costs; empty if there are none.
    pub(super) currency: String,
    /// Entries before this time were dropped because of `ROWS`.
    pub(super) cut_at: Option<Timestamp>,
    tools: Names,
    models: Names,
    computers: Names,
    endpoints: Names,
    nodes: Names,
    versions: Names,
    tenants: Names,
    users: Names,
    keys: Names,
}

/// The names seen so far, each stored once.
#[derive(Debug, Default)]
struct Names(BTreeSet<Name>);

impl Names {
    fn get(&mut self, name: &str) -> Name {
        let name: String = name.chars().take(NAME_CHARS).collect();
        if let Some(known) = self.0.get(name.as_str()) {
            return Arc::clone(known);
        }
        if self.0.len() >= NAMES {
            return OTHER.into();
        }
        let name: Name = name.into();
        self.0.insert(Arc::clone(&name));
        name
    }
}

impl MinuteCounters {
    pub(super) fn with_metrics(recorder: MetricsRecorder) -> Self {
        Self { recorder: Some(recorder), ..Self::default() }
    }

    pub(super) fn intern_tool(&mut self, name: &str) -> Name {
        self.tools.get(name)
    }

    pub(super) fn intern_model(&mut self, name: &str) -> Name {
        self.models.get(name)
    }

    pub(super) fn intern_computer(&mut self, name: &str) -> Name {
        self.computers.get(name)
    }

    pub(super) fn intern_endpoint(&mut self, name: &str) -> Name {
        self.endpoints.get(name)
    }

    pub(super) fn intern_node(&mut self, name: &str) -> Name {
        self.nodes.get(name)
    }

    pub(super) fn intern_version(&mut self, name: &str) -> Name {
        self.versions.get(name)
    }

    pub(super) fn intern_tenant(&mut self, name: &str) -> Name {
        self.tenants.get(name)
    }

    pub(super) fn intern_user(&mut self, name: &str) -> Name {
        self.users.get(name)
    }

    /// Reports a fault to metrics and alerts at once. Its entry is stored later, by `store_faults`, with its resolution.
    pub(super) fn record_fault(&mut self, seen: &FaultEntry, fault: &Fault) {
        if let Some(recorder) = &mut self.recorder {
            recorder.record_fault(seen);
        }
        if let Some((since, notices)) = &mut self.notices
            && seen.at > *since
            && notices.len() < NOTICES_MAX
        {
            notices.push(FaultNotice {
                at: seen.at,
                kind: seen.kind,
                session: seen.session,
                trace: fault.trace(),
                tool: seen.tool.as_deref().map(str::to_owned),
                line: fault.to_string().chars().take(LINE_CHARS).collect(),
            });
        }
    }

    /// Starts to collect faults for alerts, from this time on.
    pub(super) fn watch_faults(&mut self, since: Timestamp) {
        self.notices = Some((since, Vec::new()));
    }

    pub(super) fn take_notices(&mut self) -> Vec<FaultNotice> {
        self.notices.as_mut().map(|(_, notices)| std::mem::take(notices)).unwrap_or_default()
    }

    pub(super) fn count_retry(&mut self, at: Timestamp) {
        self.minute_mut(at).retries += 1;
        self.with_recorder(MetricsRecorder::record_retry);
    }

    /// Counts the result of a retried operation.
    pub(super) fn count_retried(&mut self, at: Timestamp, has_succeeded: bool) {
        let minute = self.minute_mut(at);
        *(if has_succeeded { &mut minute.succeeded } else { &mut minute.failed }) += 1;
        self.with_recorder(|recorder| recorder.record_retried(has_succeeded));
    }

    /// Counts a model request that ended without an answer.
    pub(super) fn count_unanswered(&mut self, at: Timestamp) {
        self.minute_mut(at).unanswered += 1;
    }

    pub(super) fn count_turn(&mut self, at: Timestamp) {
        self.minute_mut(at).turns += 1;
    }

    pub(super) fn record_turn_time(&self, stop: StopReason, took: Duration) {
        self.with_recorder(|recorder| recorder.record_turn(stop, took));
    }

    pub(super) fn count_step(&mut self, at: Timestamp, model: &Name) {
        *self.minute_mut(at).steps.entry(Arc::clone(model)).or_default() += 1;
        self.with_recorder(|recorder| recorder.record_step(model));
    }

    /// Counts the tokens of an answer.
    pub(super) fn count_usage(&mut self, at: Timestamp, model: &Name, usage: Usage) {
        *self.minute_mut(at).usage.entry(Arc::clone(model)).or_default() += usage;
        self.with_recorder(|recorder| recorder.record_usage(model, usage));
    }

    /// Counts the cost of a request, in millionths of the currency. `key`: a part of the hash of the API key; empty for
    /// none.
    pub(super) fn count_cost(
        &mut self,
        at: Timestamp,
        (model, key): (&Name, &str),
        tenant: Option<&Name>,
        cost: u64,
    ) {
        let key = (!key.is_empty()).then(|| self.keys.get(key));
        let minute = self.minute_mut(at);
        *minute.cost_by_model.entry(Arc::clone(model)).or_default() += cost;
        if let Some(tenant) = tenant {
            *minute.cost_by_tenant.entry(Arc::clone(tenant)).or_default() += cost;
        }
        if let Some(key) = &key {
            *minute.cost_by_key.entry(Arc::clone(key)).or_default() += cost;
        }
        self.with_recorder(|recorder| recorder.record_cost(model, tenant, key.as_ref(), cost));
    }

    pub(super) fn set_currency(&mut self, currency: &str) {
        if self.currency != currency {
            currency.clone_into(&mut self.currency);
        }
    }

    pub(super) fn record_answer_time(&self, took: Duration) {
        self.with_recorder(|recorder| recorder.record_answer(took));
    }

    pub(super) fn count_call(
        &mut self,
        at: Timestamp,
        tool: &Name,
        has_succeeded: bool,
        took: Duration,
    ) {
        *self.minute_mut(at).calls.entry(Arc::clone(tool)).or_default() += 1;
        self.with_recorder(|recorder| recorder.record_call(tool, has_succeeded, took));
    }

    pub(super) fn count_model_change(&self, from: &Name, to: &Name, reason: ModelChangeReason) {
        self.with_recorder(|recorder| recorder.record_model_change(from, to, reason));
    }

    pub(super) fn count_late_result(&self) {
        self.with_recorder(MetricsRecorder::record_late_result);
    }

    pub(super) fn count_lost_observer(&self) {
        self.with_recorder(MetricsRecorder::record_lost_observer);
    }

    fn with_recorder(&self, record: impl FnOnce(&MetricsRecorder)) {
        if let Some(recorder) = &self.recorder {
            record(recorder);
        }
    }

    /// The minute of this time; created if absent.
    fn minute_mut(&mut self, at: Timestamp) -> &mut Minute {
        self.minutes.entry(minute(at)).or_default()
    }

    /// Stores the faults of a finished turn.
    pub(super) fn store_faults(&mut self, faults: impl IntoIterator<Item = FaultEntry>) {
        for seen in faults {
            self.minute_mut(seen.at).faults.push(seen);
            self.rows += 1;
        }
    }

    pub(super) fn count_recovery(&mut self, at: Timestamp, millis: u64) {
        self.minute_mut(at).recoveries.push(millis);
        self.rows += 1;
        self.with_recorder(|recorder| recorder.record_recovery(Duration::from_millis(millis)));
    }

    pub(super) fn count_path(&mut self, at: Timestamp, path: FaultPath) {
        self.minute_mut(at).paths.push(path);
        self.rows += 1;
    }

    /// The minutes from this time on, oldest first.
    pub(super) fn minutes_since(&self, since: Timestamp) -> impl Iterator<Item = &Minute> {
        self.minutes.range(minute(since)..).map(|(_, minute)| minute)
    }

    /// Drops minutes that are too old, and the oldest ones above `ROWS`.
    pub(super) fn trim(&mut self, now: Timestamp) {
        let oldest = minute(time_before(now, WINDOW_MAX));
        while let Some(entry) = self.minutes.first_entry() {
            let is_old = *entry.key() < oldest;
            if !is_old && self.rows <= ROWS {
                return;
            }
            let (at, gone) = entry.remove_entry();
            self.rows -= gone.rows();
            if !is_old {
                self.cut_at = Some(Timestamp::from_micros((at + 1).saturating_mul(MICROS)));
            }
        }
    }
}

const MICROS: i64 = 60_000_000;

fn minute(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(MICROS)
}

/// `at` minus `length`.
pub(super) fn time_before(at: Timestamp, length: Duration) -> Timestamp {
    let micros = i64::try_from(length.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(at.as_micros().saturating_sub(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(at: Timestamp) -> FaultEntry {
        FaultEntry {
            at,
            session: SessionId(uuid::Uuid::nil()),
            kind: Kind::DiskFull,
            tool: None,
            model: None,
            stage: None,
            computer: None,
            endpoint: None,
            node: None,
            version: None,
            tenant: None,
            user: None,
            resolution: None,
            recovery_ms: None,
        }
    }

    #[test]
    fn too_many_faults_remove_the_oldest_and_the_report_names_its_start() {
        let mut ledger = MinuteCounters::default();
        let start = Timestamp::from_micros(1_794_729_600_000_000);
        for number in 0..3_u64 {
            let at = start.after(Duration::from_mins(number));
            ledger.store_faults((0..ROWS / 2).map(|_| seen(at)));
        }
        ledger.trim(start.after(Duration::from_mins(3)));
        assert_eq!(ledger.rows, ROWS / 2 * 2);
        assert_eq!(ledger.cut_at, Some(start.after(Duration::from_mins(1))));
    }

    #[test]
    fn faults_older_than_the_longest_window_are_removed_silently() {
        let mut ledger = MinuteCounters::default();
        let start = Timestamp::from_micros(1_794_729_600_000_000);
        ledger.store_faults([seen(start)]);
        ledger.trim(start.after(WINDOW_MAX + Duration::from_mins(2)));
        assert_eq!((ledger.rows, ledger.minutes.len(), ledger.cut_at), (0, 0, None));
    }

    #[test]
    fn names_beyond_the_bound_share_one() {
        let mut ledger = MinuteCounters::default();
        for number in 0..NAMES {
            ledger.intern_tool(&format!("tool_{number}"));
        }
        assert_eq!(&*ledger.intern_tool("one more"), OTHER);
        assert_eq!(&*ledger.intern_tool("tool_7"), "tool_7");
    }
}
