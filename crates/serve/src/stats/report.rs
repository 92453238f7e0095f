//! The report: counts and rates over a window, in the form that clients receive.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    str::FromStr,
    time::Duration,
};

use budao_core::{
    Fault, Kind, Timestamp,
    event::SessionId,
    fault::{Fact, Operation},
    tally::FaultResolution,
};
use serde::Serialize;
use serde_json::Value;

use super::{
    OpenDoubt,
    ledger::{FaultEntry, StatsLedger, before},
};
use crate::project::units;

/// Upper bound of rows per table.
const ROWS: usize = 50;
/// Upper bounds of the recovery-time histogram's buckets, in milliseconds.
const CLASSES: [u64; 12] =
    [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 120_000, 600_000];

/// The period of a report, counted back from now.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    strum::IntoStaticStr,
    strum::EnumString,
    strum::VariantArray,
)]
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

/// Fault statistics over a window: counts, retries and recoveries of all sessions. `paths` and the tables by tool,
/// model, stage, computer, tenant, user and session have at most 50 rows each.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Stats)]
pub struct Report {
    /// Length of the window: `5m`, `1h`, `24h` or `7d`.
    window: &'static str,
    /// Start of the window and of its first bucket, RFC 3339 in UTC.
    since: String,
    /// End of the window, RFC 3339 in UTC: the time of the request.
    until: String,
    /// Length of a bucket in seconds: 15, 60, 1800 or 10800, by window.
    bucket_seconds: u64,
    /// False if this request could not count all records (200,000 per request); repeat it to continue.
    complete: bool,
    /// Only if the server had to drop old entries within the window: it counts all faults since this time, RFC 3339 in
    /// UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    counted_since: Option<String>,
    /// Number of turns that started in the window.
    turns: u64,
    /// Number of model requests, retries included.
    steps: u64,
    /// Number of tool calls that ended, including those refused before they ran.
    calls: u64,
    /// Number of faults in the window.
    faults: u64,
    /// Faults over time, the oldest bucket first; empty buckets are included.
    buckets: Vec<Bucket>,
    /// Faults by kind, the most frequent first; all kinds with at least one fault.
    kinds: Vec<KindCount>,
    /// Retries and their results.
    retries: Retries,
    /// Times from a first failure to the success, in milliseconds.
    recovery_ms: Recovery,
    /// Sequences of faults within a turn and the turn's end, the most frequent first.
    paths: Vec<PathCount>,
    /// Faults by tool, the most frequent first; called tools without faults are included.
    by_tool: Vec<ToolCount>,
    /// Faults by model, the most frequent first; used models without faults are included.
    by_model: Vec<ModelCount>,
    /// Faults by stage of a pipeline, the most frequent first.
    by_stage: Vec<StageCount>,
    /// Faults by remote computer, the most frequent first.
    by_computer: Vec<ComputerCount>,
    /// Faults by tenant, the most frequent first.
    by_tenant: Vec<TenantCount>,
    /// Faults by user, the most frequent first.
    by_user: Vec<UserCount>,
    /// Tokens, the share that came from caches, and costs.
    usage: UsageTotals,
    /// Sessions with faults that ended a turn or cannot be fixed, those with the most first.
    unrecoverable_by_session: Vec<SessionCount>,
    /// Number of calls whose outcome is unknown now, in sessions that changed in the last seven days.
    doubts_open: u64,
    /// These calls, the oldest first, at most 50.
    doubts: Vec<DoubtRow>,
    /// The gates to model services: open or held, what waits, and the last error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) gates: Vec<super::GateReport>,
    /// Counters of this server's SMCP hub since its start, as in `/smcp/stats`; absent without a hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) smcp: Option<Value>,
}

/// Tokens and costs of the model requests in the window, as the services report them.
#[derive(Clone, Debug, Default, Serialize, utoipa::ToSchema)]
pub(crate) struct UsageTotals {
    /// Tokens that models read, cached ones included.
    input_tokens: u64,
    /// The part of `input_tokens` that came from the caches of the services.
    cached_tokens: u64,
    /// Tokens that models wrote.
    output_tokens: u64,
    /// Share of the tokens read that came from caches, 0 to 1; null if none were read.
    cache_hit_rate: Option<f64>,
    /// What the requests cost, in units of `currency`; absent without prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<f64>,
    /// The currency of the costs; absent without prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    currency: Option<String>,
    /// Tokens and costs by model.
    by_model: BTreeMap<String, ModelUsage>,
    /// Costs by tenant, in units of `currency`.
    cost_by_tenant: BTreeMap<String, f64>,
}

/// Tokens and costs of one model.
#[derive(Clone, Debug, Default, Serialize, utoipa::ToSchema)]
pub(crate) struct ModelUsage {
    /// Tokens that the model read, cached ones included.
    input_tokens: u64,
    /// The part of `input_tokens` that came from the service's cache.
    cached_tokens: u64,
    /// Tokens that the model wrote.
    output_tokens: u64,
    /// Share of the tokens read that came from the cache, 0 to 1; null if none were read.
    cache_hit_rate: Option<f64>,
    /// What the requests cost, in units of the currency.
    cost: f64,
}

impl UsageTotals {
    fn new(minutes: &[&super::ledger::Minute], currency: &str) -> Self {
        let mut totals = Self::default();
        let (mut micros, mut by_model_micros) = (0_u64, BTreeMap::<&str, u64>::new());
        let mut by_tenant_micros = BTreeMap::<&str, u64>::new();
        for minute in minutes {
            for (model, usage) in &minute.usage {
                let row = totals.by_model.entry(model.to_string()).or_default();
                row.input_tokens += usage.input_tokens;
                row.cached_tokens += usage.cached_tokens.min(usage.input_tokens);
                row.output_tokens += usage.output_tokens;
            }
            add_all(&mut by_model_micros, &minute.cost_by_model);
            add_all(&mut by_tenant_micros, &minute.cost_by_tenant);
        }
        for (model, cost) in by_model_micros {
            micros += cost;
            totals.by_model.entry(model.to_owned()).or_default().cost = units(cost);
        }
        for row in totals.by_model.values_mut() {
            row.cache_hit_rate = share(row.cached_tokens, row.input_tokens);
            totals.input_tokens += row.input_tokens;
            totals.cached_tokens += row.cached_tokens;
            totals.output_tokens += row.output_tokens;
        }
        totals.cache_hit_rate = share(totals.cached_tokens, totals.input_tokens);
        let tenants = by_tenant_micros.into_iter();
        totals.cost_by_tenant =
            tenants.map(|(name, cost)| (name.to_owned(), units(cost))).collect();
        totals.cost = (!currency.is_empty()).then(|| units(micros));
        totals.currency = (!currency.is_empty()).then(|| currency.to_owned());
        totals
    }
}

/// Faults in one bucket of the window.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Bucket {
    /// Start of the bucket, RFC 3339 in UTC.
    at: String,
    /// Number of faults per kind; kinds without faults are absent.
    by_kind: BTreeMap<&'static str, u64>,
}

/// Faults by resolution. A fault that is neither recovered nor not recovered did not stop its turn.
#[derive(Clone, Copy, Debug, Default, Serialize, utoipa::ToSchema)]
pub(crate) struct Counts {
    /// Number of all faults.
    count: u64,
    /// Faults after which a later attempt succeeded: a retry by the runtime, or a changed call by the model.
    recovered: u64,
    /// Faults that ended their turn, their task or their retries.
    not_recovered: u64,
}

/// The faults of one kind.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct KindCount {
    /// Name of the kind, such as `request_timed_out`.
    kind: &'static str,
    /// Permanent code of the kind, such as `ERR_TIMEOUT_001`.
    code: &'static str,
    /// Class of the kind for a model: `validation`, `runtime`, `logical`, `aborted` or `exception`.
    #[serde(rename = "errorType")]
    error_type: &'static str,
    /// `validation`, `transient`, `resource`, `permanent` or `connection`.
    category: &'static str,
    /// Who acts on it: `runtime`, `model`, `user` or `operator`.
    remedy: &'static str,
    /// Number of sessions that had it.
    sessions: usize,
    /// Time of the first fault in the window, RFC 3339 in UTC.
    first_at: String,
    /// Time of the latest fault in the window, RFC 3339 in UTC.
    last_at: String,
    #[serde(flatten)]
    counts: Counts,
}

/// Retries by the runtime and their results.
#[derive(Clone, Copy, Debug, Default, Serialize, utoipa::ToSchema)]
pub(crate) struct Retries {
    /// Number of attempts after a first one.
    attempts: u64,
    /// Retried operations that succeeded in the end.
    succeeded: u64,
    /// Retried operations that failed in the end.
    failed: u64,
    /// Share of retried operations that succeeded, 0 to 1; null if none has ended.
    success_rate: Option<f64>,
}

/// Times from a first failure to the success, in milliseconds.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Recovery {
    /// Number of recoveries in the window.
    count: u64,
    /// Median in milliseconds; null without recoveries.
    p50: Option<u64>,
    /// 90th percentile in milliseconds; null without recoveries.
    p90: Option<u64>,
    /// 99th percentile in milliseconds; null without recoveries.
    p99: Option<u64>,
    /// Disjoint classes from 50 ms to 600 s, the shortest first; each recovery is in one class.
    histogram: Vec<HistogramBucket>,
}

/// One class of the recovery-time histogram.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct HistogramBucket {
    /// Upper bound in milliseconds, inclusive; null for the last class.
    le: Option<u64>,
    /// Number of recoveries in this class.
    n: u64,
}

/// A sequence of faults within a turn, and its frequency.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct PathCount {
    /// Up to six kinds in order, without direct repetitions; the last element is the turn's stop reason.
    path: Vec<&'static str>,
    /// Number of turns with this sequence.
    n: u64,
}

/// The calls and faults of one tool.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ToolCount {
    /// Name of the tool, at most 80 characters; `other` stands for all names beyond the first 200.
    tool: String,
    /// Number of calls that ended, including those refused before they ran.
    calls: u64,
    #[serde(flatten)]
    counts: Counts,
}

/// The requests of one model, and the faults during its use.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ModelCount {
    /// Name of the model, at most 80 characters; `other` stands for all names beyond the first 200.
    model: String,
    /// Number of requests to the model, retries included.
    steps: u64,
    #[serde(flatten)]
    counts: Counts,
}

/// The faults in one stage of plan, solve, aggregate.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct StageCount {
    /// `planning`, `solving` or `aggregation`.
    stage: String,
    #[serde(flatten)]
    counts: Counts,
}

/// The faults on one remote computer.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ComputerCount {
    /// Name of the computer, at most 80 characters; `other` stands for all names beyond the first 200.
    computer: String,
    #[serde(flatten)]
    counts: Counts,
}

/// The faults in the sessions of one tenant.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct TenantCount {
    /// Name of the tenant, at most 80 characters; `other` stands for all names beyond the first 200.
    tenant: String,
    #[serde(flatten)]
    counts: Counts,
}

/// The faults in the sessions of one user.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct UserCount {
    /// The user as `tenant/user`, at most 80 characters; `other` stands for all names beyond the first 200.
    user: String,
    #[serde(flatten)]
    counts: Counts,
}

/// A call whose outcome is unknown.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct DoubtRow {
    /// The session's id, a UUID.
    session_id: String,
    /// The call, as `user.settle_doubt` names it.
    call_id: String,
    /// The tool's name.
    tool: String,
    /// When the call ended with an unknown outcome, RFC 3339 in UTC.
    since: String,
}

/// The unrecovered faults of one session.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SessionCount {
    /// The session's id, a UUID.
    session_id: String,
    /// Number of faults that ended a turn or cannot be fixed.
    n: u64,
    /// Code of the latest such fault.
    last_code: &'static str,
    /// Time of the latest such fault, RFC 3339 in UTC.
    last_at: String,
}

impl Counts {
    fn add(&mut self, resolution: Option<FaultResolution>) {
        self.count += 1;
        self.recovered += u64::from(resolution == Some(FaultResolution::Recovered));
        self.not_recovered += u64::from(resolution == Some(FaultResolution::NotRecovered));
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
            by_tenant: table(&seen, |seen| seen.tenant.as_deref(), [])
                .map(|(tenant, counts)| TenantCount { tenant: tenant.to_owned(), counts })
                .collect(),
            by_user: table(&seen, |seen| seen.user.as_deref(), [])
                .map(|(user, counts)| UserCount { user: user.to_owned(), counts })
                .collect(),
            usage: UsageTotals::new(&minutes, &ledger.currency),
            unrecoverable_by_session: unrecoverable(&seen),
            doubts_open: 0,
            doubts: Vec::new(),
            gates: Vec::new(),
            smcp: None,
        }
    }

    /// Adds the calls in doubt, which do not depend on the window.
    pub(super) fn with_doubts(self, doubts: &[OpenDoubt]) -> Self {
        let row = |doubt: &OpenDoubt| DoubtRow {
            session_id: doubt.session.to_string(),
            call_id: doubt.call.to_string(),
            tool: doubt.tool.clone(),
            since: doubt.since.to_string(),
        };
        let rows = doubts.iter().take(ROWS).map(row).collect();
        Self { doubts_open: doubts.len() as u64, doubts: rows, ..self }
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
    let mut by_kind: BTreeMap<Kind, Vec<&FaultEntry>> = BTreeMap::new();
    for seen in seen {
        by_kind.entry(seen.kind).or_default().push(seen);
    }
    let mut kinds: Vec<_> = by_kind.iter().map(|(kind, seen)| KindCount::of(*kind, seen)).collect();
    kinds.sort_by_key(|row| std::cmp::Reverse(row.counts.count));
    kinds
}

impl KindCount {
    fn of(kind: Kind, seen: &[&FaultEntry]) -> Self {
        let row = kind.row();
        let mut counts = Counts::default();
        seen.iter().for_each(|seen| counts.add(seen.resolution));
        let times = || seen.iter().map(|seen| seen.at);
        let text = |at: Option<Timestamp>| at.map(|at| at.to_string()).unwrap_or_default();
        Self {
            kind: row.name,
            code: row.code,
            error_type: row.error_type.into(),
            category: row.category.into(),
            remedy: row.remedy.into(),
            sessions: seen.iter().map(|seen| seen.session).collect::<HashSet<_>>().len(),
            first_at: text(times().min()),
            last_at: text(times().max()),
            counts,
        }
    }
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
            counted.entry(name).or_default().add(seen.resolution);
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
        if seen.resolution == Some(FaultResolution::NotRecovered) || !seen.kind.row().recoverable {
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
