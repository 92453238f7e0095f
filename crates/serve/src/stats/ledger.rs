//! What was counted, minute by minute, within bounds.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use budao_core::{
    Fault, Kind, Timestamp,
    event::{SessionId, Stage, StopReason},
};

use super::metrics_recorder::MetricsRecorder;
use crate::alerts::Alarm;

/// The longest window that can be asked for; what is older is let go.
pub(super) const KEPT: Duration = Duration::from_hours(7 * 24);
/// Faults, recoveries and paths kept; the oldest minutes go first.
const ROWS: usize = 100_000;
/// Faults kept between two looks of those who make alerts of them.
const ALARMS: usize = 10_000;
/// Characters of a fault's line in an alert.
const LINE_CHARS: usize = 500;
/// Names of each sort that are told apart; the rest is [`OTHER`].
const NAMES: usize = 200;
/// Characters of a name.
const NAME_CHARS: usize = 80;
/// Stands for every name that came when there was no more room.
pub(super) const OTHER: &str = "other";

/// The name of a tool, a model or a computer.
pub(super) type Name = Arc<str>;

/// One fault, where it was met and how it ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FaultEntry {
    pub(super) at: Timestamp,
    pub(super) session: SessionId,
    pub(super) kind: Kind,
    pub(super) tool: Option<Name>,
    pub(super) model: Option<Name>,
    pub(super) stage: Option<Stage>,
    pub(super) computer: Option<Name>,
    pub(super) fate: FaultResolution,
}

/// How a fault ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FaultResolution {
    /// Its turn went on, or is still going on, without it.
    #[default]
    Ignored,
    /// Another try worked: the runtime's, or a changed call of the model.
    Recovered,
    /// It ended its turn.
    NotRecovered,
}

/// The faults of a turn in order, and how it ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FaultPath {
    pub(super) kinds: Vec<Kind>,
    pub(super) end: StopReason,
}

/// What came in one minute.
#[derive(Clone, Debug, Default)]
pub(super) struct Minute {
    pub(super) faults: Vec<FaultEntry>,
    pub(super) recoveries: Vec<u64>,
    pub(super) paths: Vec<FaultPath>,
    /// Tries that were made again.
    pub(super) retries: u64,
    /// Of things that were tried again: those that worked in the end, and those that did not.
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) turns: u64,
    pub(super) steps: BTreeMap<Name, u64>,
    pub(super) calls: BTreeMap<Name, u64>,
}

impl Minute {
    fn rows(&self) -> usize {
        self.faults.len() + self.recoveries.len() + self.paths.len()
    }
}

/// Everything that was counted.
#[derive(Debug, Default)]
pub(super) struct StatsLedger {
    /// Who else is told, at once.
    meter: Option<MetricsRecorder>,
    /// What alerts are made of, and from when on.
    alarms: Option<(Timestamp, Vec<Alarm>)>,
    minutes: BTreeMap<i64, Minute>,
    rows: usize,
    /// Before this, something was let go for want of room.
    pub(super) cut_at: Option<Timestamp>,
    tools: Names,
    models: Names,
    computers: Names,
}

/// Names that were seen, each kept once.
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

impl StatsLedger {
    pub(super) fn with_metrics(meter: MetricsRecorder) -> Self {
        Self { meter: Some(meter), ..Self::default() }
    }

    pub(super) fn tool(&mut self, name: &str) -> Name {
        self.tools.get(name)
    }

    pub(super) fn model(&mut self, name: &str) -> Name {
        self.models.get(name)
    }

    pub(super) fn computer(&mut self, name: &str) -> Name {
        self.computers.get(name)
    }

    /// A fault was met; how it ends is counted when that is known.
    pub(super) fn met(&mut self, seen: &FaultEntry, fault: &Fault) {
        if let Some(meter) = &mut self.meter {
            meter.fault(seen);
        }
        if let Some((since, alarms)) = &mut self.alarms
            && seen.at > *since
            && alarms.len() < ALARMS
        {
            alarms.push(Alarm {
                at: seen.at,
                kind: seen.kind,
                session: seen.session,
                trace: fault.trace(),
                tool: seen.tool.as_deref().map(str::to_owned),
                line: fault.to_string().chars().take(LINE_CHARS).collect(),
            });
        }
    }

    /// Keeps what alerts are made of, from this time on.
    pub(super) fn raise_alarms(&mut self, since: Timestamp) {
        self.alarms = Some((since, Vec::new()));
    }

    pub(super) fn take_alarms(&mut self) -> Vec<Alarm> {
        self.alarms.as_mut().map(|(_, alarms)| std::mem::take(alarms)).unwrap_or_default()
    }

    pub(super) fn retry(&mut self, at: Timestamp) {
        self.at(at).retries += 1;
        self.with_recorder(|meter| meter.retry(at));
    }

    /// Something that was tried again worked in the end, or did not.
    pub(super) fn retried(&mut self, at: Timestamp, worked: bool) {
        let minute = self.at(at);
        *(if worked { &mut minute.succeeded } else { &mut minute.failed }) += 1;
        self.with_recorder(|meter| meter.retried(at, worked));
    }

    pub(super) fn turn_began(&mut self, at: Timestamp) {
        self.at(at).turns += 1;
    }

    pub(super) fn turn_ended(&self, at: Timestamp, stop: StopReason, took: Duration) {
        self.with_recorder(|meter| meter.turn(at, stop, took));
    }

    pub(super) fn step(&mut self, at: Timestamp, model: &Name) {
        *self.at(at).steps.entry(Arc::clone(model)).or_default() += 1;
        self.with_recorder(|meter| meter.step(at, model));
    }

    pub(super) fn answer(&self, at: Timestamp, took: Duration) {
        self.with_recorder(|meter| meter.answer(at, took));
    }

    pub(super) fn call(&mut self, at: Timestamp, tool: &Name, worked: bool, took: Duration) {
        *self.at(at).calls.entry(Arc::clone(tool)).or_default() += 1;
        self.with_recorder(|meter| meter.call(at, tool, worked, took));
    }

    pub(super) fn late(&self, at: Timestamp) {
        self.with_recorder(|meter| meter.late(at));
    }

    pub(super) fn lost(&self, at: Timestamp) {
        self.with_recorder(|meter| meter.lost(at));
    }

    fn with_recorder(&self, tell: impl FnOnce(&MetricsRecorder)) {
        if let Some(meter) = &self.meter {
            tell(meter);
        }
    }

    /// The minute of this time, to be added to.
    fn at(&mut self, at: Timestamp) -> &mut Minute {
        self.minutes.entry(minute(at)).or_default()
    }

    /// Takes over what a turn met.
    pub(super) fn faults(&mut self, faults: impl IntoIterator<Item = FaultEntry>) {
        for seen in faults {
            self.at(seen.at).faults.push(seen);
            self.rows += 1;
        }
    }

    pub(super) fn recovery(&mut self, at: Timestamp, millis: u64) {
        self.at(at).recoveries.push(millis);
        self.rows += 1;
        self.with_recorder(|meter| meter.recovery(at, Duration::from_millis(millis)));
    }

    pub(super) fn path(&mut self, at: Timestamp, path: FaultPath) {
        self.at(at).paths.push(path);
        self.rows += 1;
    }

    /// The minutes from this time on, oldest first.
    pub(super) fn since(&self, since: Timestamp) -> impl Iterator<Item = &Minute> {
        self.minutes.range(minute(since)..).map(|(_, minute)| minute)
    }

    /// Lets go what is too old or too much.
    pub(super) fn trim(&mut self, now: Timestamp) {
        let oldest = minute(before(now, KEPT));
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

/// So long before.
pub(super) fn before(at: Timestamp, length: Duration) -> Timestamp {
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
            fate: FaultResolution::Ignored,
        }
    }

    #[test]
    fn too_many_faults_push_out_the_oldest_and_it_is_said_from_when_on_all_are_there() {
        let mut ledger = StatsLedger::default();
        let start = Timestamp::from_micros(1_794_729_600_000_000);
        for number in 0..3_u64 {
            let at = start.after(Duration::from_mins(number));
            ledger.faults((0..ROWS / 2).map(|_| seen(at)));
        }
        ledger.trim(start.after(Duration::from_mins(3)));
        assert_eq!(ledger.rows, ROWS / 2 * 2);
        assert_eq!(ledger.cut_at, Some(start.after(Duration::from_mins(1))));
    }

    #[test]
    fn what_is_older_than_the_longest_window_is_let_go_without_a_word() {
        let mut ledger = StatsLedger::default();
        let start = Timestamp::from_micros(1_794_729_600_000_000);
        ledger.faults([seen(start)]);
        ledger.trim(start.after(KEPT + Duration::from_mins(2)));
        assert_eq!((ledger.rows, ledger.minutes.len(), ledger.cut_at), (0, 0, None));
    }

    #[test]
    fn names_beyond_the_bound_share_one() {
        let mut ledger = StatsLedger::default();
        for number in 0..NAMES {
            ledger.tool(&format!("tool_{number}"));
        }
        assert_eq!(&*ledger.tool("one more"), OTHER);
        assert_eq!(&*ledger.tool("tool_7"), "tool_7");
    }
}
