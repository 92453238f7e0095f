//! The report: counts and rates over a window, in the form that clients receive.

use std::{
    collections::{BTreeMap, HashMap},
    str::FromStr,
    time::Duration,
};

use budao_core::{
    Fault, Kind, Timestamp,
    event::SessionId,
    fault::{Fact, Operation},
};
use serde::Serialize;
use serde_json::Value;

use super::ledger::{FaultEntry, FaultResolution, StatsLedger, before};

/// Upper bound of rows per table.
const ROWS: usize = 50;
/// Upper bounds of the recovery-time histogram's buckets, in milliseconds.
const CLASSES: [u64; 12] =
    [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 120_000, 600_000];

/// The period of a report, counted back from now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr, strum::EnumString)]
pub enum Window {
    /// `5m`, in buckets of 15 s.
    #[strum(serialize = "5m")]
    FiveMinutes,
    /// `1h`, the default, in buckets of 1 minute.
    #[default]
    #[strum(serialize = "1h")]
    Hour,
    /// `24h`, in buckets of 30 minutes.
    #[strum(serialize = "24h")]
    Day,
    /// `7d`, in buckets of 3 hours.
    #[strum(serialize = "7d")]
    Week,
}

impl Window {
    /// Parses a window as a client writes it, such as `24h`.
    ///
    /// # Errors
    /// `bad_request` if there is no such window.
    pub fn read(text: &str) -> Result<Self, Fault> {
        Self::from_str(text).map_err(|_| {
            Fault::new(Kind::BadRequest, Operation::ServeRequest)
                .with(Fact::Field, "window")
                .with(Fact::Expected, "5m, 1h, 24h or 7d")
                .with(Fact::Received, text.chars().take(40).collect::<String>())
        })
    }

    const fn length(self) -> Duration {
        match self {
            Self::FiveMinutes => Duration::from_mins(5),
            Self::Hour => Duration::from_hours(1),
            Self::Day => Duration::from_hours(24),
            Self::Week => Duration::from_hours(7 * 24),
        }
    }

    const fn bucket(self) -> Duration {
        match self {
            Self::FiveMinutes => Duration::from_secs(15),
            Self::Hour => Duration::from_mins(1),
            Self::Day => Duration::from_mins(30),
            Self::Week => Duration::from_hours(3),
        }
    }
}

/// What went wrong in a window of time, and how it ended.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Stats)]
pub struct Report {
    /// `5m`, `1h`, `24h` or `7d`.
    window: &'static str,
    /// Where it begins: at the start of the first bucket.
    since: String,
    /// Where it ends.
    until: String,
    /// The length of a bucket in seconds.
    bucket_seconds: u64,
    /// Is everything counted? If not there was too much at once; ask again.
    complete: bool,
    /// When there were too many faults to keep: all since then are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    counted_since: Option<String>,
    /// Turns that began.
    turns: u64,
    /// Model requests.
    steps: u64,
    /// Tool calls that ended, those that were refused before they ran included.
    calls: u64,
    /// Faults.
    faults: u64,
    /// Faults over time, the oldest first; also those in which there was none.
    buckets: Vec<Bucket>,
    /// Faults by kind, the most frequent first.
    kinds: Vec<KindCount>,
    /// Tries that were made again, and what came of it.
    retries: Retries,
    /// How long it took from the first failure until it worked.
    recovery_ms: Recovery,
    /// The faults of a turn in order and how it ended, the most frequent first.
    paths: Vec<PathCount>,
    by_tool: Vec<ToolCount>,
    by_model: Vec<ModelCount>,
    by_stage: Vec<StageCount>,
    by_computer: Vec<ComputerCount>,
    /// Sessions with faults that nobody can recover from, or that were given up on.
    unrecoverable_by_session: Vec<SessionCount>,
    /// The gates to model services: open or held, what waits, and the last error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) gates: Vec<super::GateReport>,
    /// What the hub of this server counted since it began, if it has one: what `/smcp/stats` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) smcp: Option<Value>,
}

/// Faults in a stretch of time.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Bucket {
    /// Where it begins.
    at: String,
    /// How often each kind came.
    by_kind: BTreeMap<&'static str, u64>,
}

/// Faults, and how they ended. Those in neither number were passed over: the turn went on without.
#[derive(Clone, Copy, Debug, Default, Serialize, utoipa::ToSchema)]
pub(crate) struct Counts {
    /// All.
    count: u64,
    /// Another try worked: the runtime's, or a changed call of the model.
    recovered: u64,
    /// They ended their turn.
    given_up: u64,
}

/// Faults of a kind.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct KindCount {
    kind: &'static str,
    code: &'static str,
    #[serde(rename = "errorType")]
    error_type: &'static str,
    category: &'static str,
    #[serde(flatten)]
    counts: Counts,
}

/// Tries that were made again.
#[derive(Clone, Copy, Debug, Default, Serialize, utoipa::ToSchema)]
pub(crate) struct Retries {
    /// How many.
    attempts: u64,
    /// Things that were tried again and worked in the end.
    succeeded: u64,
    /// Things that were tried again and did not.
    failed: u64,
    /// The share that worked; none when nothing was tried again to its end.
    success_rate: Option<f64>,
}

/// How long recoveries took, in milliseconds.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Recovery {
    count: u64,
    p50: Option<u64>,
    p90: Option<u64>,
    p99: Option<u64>,
    /// Each class once: those up to `le` that are in no class before.
    histogram: Vec<HistogramBucket>,
}

/// Recoveries that took about as long.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct HistogramBucket {
    /// At most this many milliseconds; none for the rest.
    le: Option<u64>,
    n: u64,
}

/// A way that turns went.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct PathCount {
    /// Kinds in order, the same one after itself told once; the last word is how the turn ended.
    path: Vec<&'static str>,
    n: u64,
}

/// Faults of a tool.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ToolCount {
    tool: String,
    /// Calls that ended, those that were refused before they ran included.
    calls: u64,
    #[serde(flatten)]
    counts: Counts,
}

/// Faults while a model was used.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ModelCount {
    model: String,
    /// Requests.
    steps: u64,
    #[serde(flatten)]
    counts: Counts,
}

/// Faults in a stage of plan, solve, aggregate.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct StageCount {
    stage: String,
    #[serde(flatten)]
    counts: Counts,
}

/// Faults on a computer.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ComputerCount {
    computer: String,
    #[serde(flatten)]
    counts: Counts,
}

/// Faults of a session that stayed.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SessionCount {
    session_id: String,
    n: u64,
    last_code: &'static str,
    last_at: String,
}

impl Counts {
    fn add(&mut self, fate: FaultResolution) {
        self.count += 1;
        self.recovered += u64::from(fate == FaultResolution::Recovered);
        self.given_up += u64::from(fate == FaultResolution::NotRecovered);
    }
}

impl Report {
    pub(super) fn new<'a>(
        ledger: &'a StatsLedger,
        open: impl Iterator<Item = &'a FaultEntry>,
        window: Window,
        now: Timestamp,
        complete: bool,
    ) -> Self {
        let since = bucket_of(before(now, window.length()), window);
        let minutes: Vec<_> = ledger.since(since).collect();
        let closed = minutes.iter().flat_map(|minute| &minute.faults);
        let seen: Vec<&FaultEntry> = closed.chain(open).filter(|seen| seen.at >= since).collect();
        let (mut calls, mut steps) = (BTreeMap::new(), BTreeMap::new());
        let (mut retries, mut turns) = (Retries::default(), 0);
        for minute in &minutes {
            turns += minute.turns;
            add_all(&mut calls, &minute.calls);
            add_all(&mut steps, &minute.steps);
            retries.attempts += minute.retries;
            retries.succeeded += minute.succeeded;
            retries.failed += minute.failed;
        }
        retries.success_rate = share(retries.succeeded, retries.succeeded + retries.failed);
        let recoveries = minutes.iter().flat_map(|minute| minute.recoveries.iter().copied());
        Self {
            window: window.into(),
            since: since.to_string(),
            until: now.to_string(),
            bucket_seconds: window.bucket().as_secs(),
            complete,
            counted_since: ledger.cut_at.filter(|at| *at > since).map(|at| at.to_string()),
            turns,
            steps: steps.values().sum(),
            calls: calls.values().sum(),
            faults: seen.len() as u64,
            buckets: buckets(&seen, since, window, now),
            kinds: kinds(&seen),
            retries,
            recovery_ms: Recovery::new(recoveries.collect()),
            paths: paths(minutes.iter().flat_map(|minute| &minute.paths)),
            by_tool: table(&seen, |seen| seen.tool.as_deref(), calls.keys().copied())
                .map(|(tool, counts)| ToolCount {
                    calls: calls.get(tool).copied().unwrap_or(0),
                    tool: tool.to_owned(),
                    counts,
                })
                .collect(),
            by_model: table(&seen, |seen| seen.model.as_deref(), steps.keys().copied())
                .map(|(model, counts)| ModelCount {
                    steps: steps.get(model).copied().unwrap_or(0),
                    model: model.to_owned(),
                    counts,
                })
                .collect(),
            by_stage: table(&seen, |seen| seen.stage.map(Into::into), [])
                .map(|(stage, counts)| StageCount { stage: stage.to_owned(), counts })
                .collect(),
            by_computer: table(&seen, |seen| seen.computer.as_deref(), [])
                .map(|(computer, counts)| ComputerCount { computer: computer.to_owned(), counts })
                .collect(),
            unrecoverable_by_session: unrecoverable(&seen),
            gates: Vec::new(),
            smcp: None,
        }
    }
}

fn add_all<'a>(sum: &mut BTreeMap<&'a str, u64>, counts: &'a BTreeMap<super::ledger::Name, u64>) {
    for (name, count) in counts {
        *sum.entry(name).or_default() += count;
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a share needs few digits")]
    (whole > 0).then(|| (part as f64 / whole as f64 * 1e4).round() / 1e4)
}

/// The start of the bucket that contains this time.
fn bucket_of(at: Timestamp, window: Window) -> Timestamp {
    let length = i64::try_from(window.bucket().as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(at.as_micros().saturating_sub(at.as_micros().rem_euclid(length)))
}

fn buckets(seen: &[&FaultEntry], since: Timestamp, window: Window, now: Timestamp) -> Vec<Bucket> {
    let mut counted: BTreeMap<Timestamp, BTreeMap<&'static str, u64>> = BTreeMap::new();
    let mut at = since;
    while at <= now {
        counted.insert(at, BTreeMap::new());
        at = at.after(window.bucket());
    }
    for seen in seen {
        // A record may be ahead of this clock; it counts in the last bucket.
        let at = bucket_of(seen.at.min(now), window);
        *counted.entry(at).or_default().entry(seen.kind.row().name).or_default() += 1;
    }
    counted.into_iter().map(|(at, by_kind)| Bucket { at: at.to_string(), by_kind }).collect()
}

fn kinds(seen: &[&FaultEntry]) -> Vec<KindCount> {
    let mut counted: BTreeMap<Kind, Counts> = BTreeMap::new();
    for seen in seen {
        counted.entry(seen.kind).or_default().add(seen.fate);
    }
    let mut kinds: Vec<KindCount> = counted
        .into_iter()
        .map(|(kind, counts)| {
            let row = kind.row();
            let (error_type, category) = (row.error_type.into(), row.category.into());
            KindCount { kind: row.name, code: row.code, error_type, category, counts }
        })
        .collect();
    kinds.sort_by_key(|row| std::cmp::Reverse(row.counts.count));
    kinds
}

/// Counts faults per name, most frequent first. Names in `known` without faults are included.
fn table<'a>(
    seen: &[&'a FaultEntry],
    name: impl Fn(&'a FaultEntry) -> Option<&'a str>,
    known: impl IntoIterator<Item = &'a str>,
) -> impl Iterator<Item = (&'a str, Counts)> {
    let mut counted: BTreeMap<&str, Counts> =
        known.into_iter().map(|name| (name, Counts::default())).collect();
    for seen in seen {
        if let Some(name) = name(seen) {
            counted.entry(name).or_default().add(seen.fate);
        }
    }
    let mut rows: Vec<_> = counted.into_iter().collect();
    rows.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.count));
    rows.into_iter().take(ROWS)
}

fn paths<'a>(paths: impl Iterator<Item = &'a super::ledger::FaultPath>) -> Vec<PathCount> {
    let mut counted: BTreeMap<Vec<&'static str>, u64> = BTreeMap::new();
    for path in paths {
        let kinds = path.kinds.iter().map(|kind| kind.row().name);
        *counted.entry(kinds.chain([path.end.into()]).collect()).or_default() += 1;
    }
    let mut rows: Vec<_> = counted.into_iter().map(|(path, n)| PathCount { path, n }).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.n));
    rows.truncate(ROWS);
    rows
}

fn unrecoverable(seen: &[&FaultEntry]) -> Vec<SessionCount> {
    let mut counted: HashMap<SessionId, (u64, &FaultEntry)> = HashMap::new();
    for seen in seen {
        if seen.fate == FaultResolution::NotRecovered || !seen.kind.row().recoverable {
            let row = counted.entry(seen.session).or_insert((0, seen));
            row.0 += 1;
            if seen.at >= row.1.at {
                row.1 = seen;
            }
        }
    }
    let mut rows: Vec<_> = counted.into_iter().collect();
    rows.sort_by_key(|(session, (n, last))| {
        (std::cmp::Reverse(*n), std::cmp::Reverse(last.at), *session)
    });
    let row = |(session, (n, last)): (SessionId, (u64, &FaultEntry))| SessionCount {
        session_id: session.to_string(),
        n,
        last_code: last.kind.row().code,
        last_at: last.at.to_string(),
    };
    rows.into_iter().take(ROWS).map(row).collect()
}

impl Recovery {
    fn new(mut millis: Vec<u64>) -> Self {
        millis.sort_unstable();
        // The smallest value that at least `percent` of the values do not exceed.
        let quantile = |percent: usize| {
            let rank = (millis.len() * percent).div_ceil(100);
            millis.get(rank.max(1) - 1).copied()
        };
        let mut below = 0;
        let mut class = |le: Option<u64>| {
            let upto = le.map_or(millis.len(), |le| millis.partition_point(|value| *value <= le));
            let n = (upto - below) as u64;
            below = upto;
            HistogramBucket { le, n }
        };
        let histogram = CLASSES.map(Some).into_iter().chain([None]).map(&mut class).collect();
        Self {
            count: millis.len() as u64,
            p50: quantile(50),
            p90: quantile(90),
            p99: quantile(99),
            histogram,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_times_that_were_measured() {
        let recovery = Recovery::new((1..=100).rev().collect());
        assert_eq!(
            (recovery.p50, recovery.p90, recovery.p99, recovery.count),
            (Some(50), Some(90), Some(99), 100)
        );
        let one = Recovery::new(vec![7]);
        assert_eq!((one.p50, one.p99), (Some(7), Some(7)));
        let none = Recovery::new(Vec::new());
        assert_eq!((none.p50, none.count), (None, 0));
    }

    #[test]
    fn every_recovery_is_in_one_class_of_the_histogram() {
        let recovery = Recovery::new(vec![0, 50, 51, 1_000, 1_001, 600_000, 600_001, u64::MAX]);
        let of = |le| recovery.histogram.iter().find(|class| class.le == le).unwrap().n;
        assert_eq!((of(Some(50)), of(Some(100)), of(Some(1_000))), (2, 1, 1));
        assert_eq!((of(Some(2_500)), of(Some(600_000)), of(None)), (1, 1, 2));
        assert_eq!(recovery.histogram.iter().map(|class| class.n).sum::<u64>(), 8);
    }
}
