//! The report: counts and rates over a window, in the form that clients receive.

mod recovery;
mod tables;
mod usage;

use std::{collections::BTreeMap, str::FromStr, time::Duration};

use budao_core::{
    Fault, Kind, Timestamp,
    fault::{Fact, Operation},
};
use serde::Serialize;
use serde_json::Value;

use self::{
    recovery::Recovery,
    tables::{
        ComputerCount, EndpointCount, KindCount, ModelCount, NodeCount, PathCount, SessionCount,
        StageCount, TenantCount, ToolCount, UserCount, VersionCount,
    },
    usage::UsageTotals,
};
use super::{
    OpenDoubt,
    ledger::{FaultEntry, MinuteCounters, time_before},
};

/// Upper bound of rows per table.
const ROWS: usize = 50;

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
/// model, stage, computer, endpoint, node, version, tenant, user and session have at most 50 rows each.
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
    /// Number of model requests that ended without an answer: they failed, or their attempt was abandoned.
    steps_unanswered: u64,
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
    /// Faults by the address of the service that failed, the most frequent first.
    by_endpoint: Vec<EndpointCount>,
    /// Faults by the server that recorded them, the most frequent first.
    by_node: Vec<NodeCount>,
    /// Faults by the version of the server that recorded them, the most frequent first.
    by_version: Vec<VersionCount>,
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
    /// The MCP servers of this server's sessions: `name`, `transport`, `state` (`starting`, `connected`, `down` or
    /// `stopped`), `since`, `tools`, `retry_in_ms` and `last_error`; absent if the engine has none of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub(crate) mcp: Option<Value>,
}

/// Faults in one bucket of the window.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Bucket {
    /// Start of the bucket, RFC 3339 in UTC.
    at: String,
    /// Number of faults per kind; kinds without faults are absent.
    by_kind: BTreeMap<&'static str, u64>,
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

impl Report {
    pub(super) fn new<'a>(
        ledger: &'a MinuteCounters,
        open: impl Iterator<Item = &'a FaultEntry>,
        window: Window,
        now: Timestamp,
        complete: bool,
    ) -> Self {
        let since = bucket_of(time_before(now, window.length()), window);
        let minutes: Vec<_> = ledger.minutes_since(since).collect();
        let closed = minutes.iter().flat_map(|minute| &minute.faults);
        let seen: Vec<&FaultEntry> = closed.chain(open).filter(|seen| seen.at >= since).collect();
        let (mut calls, mut steps) = (BTreeMap::new(), BTreeMap::new());
        let (mut retries, mut turns, mut steps_unanswered) = (Retries::default(), 0, 0);
        for minute in &minutes {
            turns += minute.turns;
            steps_unanswered += minute.unanswered;
            add_counts(&mut calls, &minute.calls);
            add_counts(&mut steps, &minute.steps);
            retries.attempts += minute.retries;
            retries.succeeded += minute.succeeded;
            retries.failed += minute.failed;
        }
        retries.success_rate = ratio(retries.succeeded, retries.succeeded + retries.failed);
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
            steps_unanswered,
            calls: calls.values().sum(),
            faults: seen.len() as u64,
            buckets: buckets(&seen, since, window, now),
            kinds: tables::kinds(&seen),
            retries,
            recovery_ms: Recovery::new(recoveries.collect()),
            paths: tables::paths(minutes.iter().flat_map(|minute| &minute.paths)),
            by_tool: tables::by_tool(&seen, &calls),
            by_model: tables::by_model(&seen, &steps),
            by_stage: tables::by_stage(&seen),
            by_computer: tables::by_computer(&seen),
            by_endpoint: tables::by_endpoint(&seen),
            by_node: tables::by_node(&seen),
            by_version: tables::by_version(&seen),
            by_tenant: tables::by_tenant(&seen),
            by_user: tables::by_user(&seen),
            usage: UsageTotals::new(&minutes, &ledger.currency),
            unrecoverable_by_session: tables::unrecoverable(&seen),
            doubts_open: 0,
            doubts: Vec::new(),
            gates: Vec::new(),
            smcp: None,
            mcp: None,
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

fn add_counts<'a>(
    sum: &mut BTreeMap<&'a str, u64>,
    counts: &'a BTreeMap<super::ledger::Name, u64>,
) {
    for (name, count) in counts {
        *sum.entry(name).or_default() += count;
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
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
