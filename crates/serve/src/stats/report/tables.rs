//! Rows of the report's tables: faults by kind, sequence, tool, model, stage, computer, endpoint, node, version,
//! tenant, user and session.

use std::collections::{BTreeMap, HashMap, HashSet};

use budao_core::{Kind, Timestamp, event::SessionId, tally::FaultResolution};
use serde::Serialize;

use super::{
    super::ledger::{FaultEntry, FaultPath},
    ROWS, recovery,
};

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
    /// Median time from such a fault to its recovery in milliseconds; null if none recovered.
    recovery_p50_ms: Option<u64>,
    #[serde(flatten)]
    counts: Counts,
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

/// The faults of one service's address.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct EndpointCount {
    /// Host and port, at most 80 characters; `other` stands for all names beyond the first 200.
    endpoint: String,
    #[serde(flatten)]
    counts: Counts,
}

/// The faults that one server recorded.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct NodeCount {
    /// Name of the server's machine, with the port of its address if it was given, at most 80 characters; `other` stands
    /// for all names beyond the first 200.
    node: String,
    #[serde(flatten)]
    counts: Counts,
}

/// The faults that servers of one version recorded.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct VersionCount {
    /// Version of the program, at most 80 characters; `other` stands for all names beyond the first 200.
    version: String,
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

pub(super) fn kinds(seen: &[&FaultEntry]) -> Vec<KindCount> {
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
            recovery_p50_ms: recovery::median(seen.iter().filter_map(|seen| seen.recovery_ms)),
            counts,
        }
    }
}

/// Faults by tool, with the number of calls of each.
pub(super) fn by_tool(seen: &[&FaultEntry], calls: &BTreeMap<&str, u64>) -> Vec<ToolCount> {
    let row = |(tool, counts): (&str, _)| ToolCount {
        calls: calls.get(tool).copied().unwrap_or(0),
        tool: tool.to_owned(),
        counts,
    };
    table(seen, |seen| seen.tool.as_deref(), calls.keys().copied()).map(row).collect()
}

/// Faults by model, with the number of requests to each.
pub(super) fn by_model(seen: &[&FaultEntry], steps: &BTreeMap<&str, u64>) -> Vec<ModelCount> {
    let row = |(model, counts): (&str, _)| ModelCount {
        steps: steps.get(model).copied().unwrap_or(0),
        model: model.to_owned(),
        counts,
    };
    table(seen, |seen| seen.model.as_deref(), steps.keys().copied()).map(row).collect()
}

pub(super) fn by_stage(seen: &[&FaultEntry]) -> Vec<StageCount> {
    table(seen, |seen| seen.stage.map(Into::into), [])
        .map(|(stage, counts)| StageCount { stage: stage.to_owned(), counts })
        .collect()
}

pub(super) fn by_computer(seen: &[&FaultEntry]) -> Vec<ComputerCount> {
    table(seen, |seen| seen.computer.as_deref(), [])
        .map(|(computer, counts)| ComputerCount { computer: computer.to_owned(), counts })
        .collect()
}

pub(super) fn by_endpoint(seen: &[&FaultEntry]) -> Vec<EndpointCount> {
    table(seen, |seen| seen.endpoint.as_deref(), [])
        .map(|(endpoint, counts)| EndpointCount { endpoint: endpoint.to_owned(), counts })
        .collect()
}

pub(super) fn by_node(seen: &[&FaultEntry]) -> Vec<NodeCount> {
    table(seen, |seen| seen.node.as_deref(), [])
        .map(|(node, counts)| NodeCount { node: node.to_owned(), counts })
        .collect()
}

pub(super) fn by_version(seen: &[&FaultEntry]) -> Vec<VersionCount> {
    table(seen, |seen| seen.version.as_deref(), [])
        .map(|(version, counts)| VersionCount { version: version.to_owned(), counts })
        .collect()
}

pub(super) fn by_tenant(seen: &[&FaultEntry]) -> Vec<TenantCount> {
    table(seen, |seen| seen.tenant.as_deref(), [])
        .map(|(tenant, counts)| TenantCount { tenant: tenant.to_owned(), counts })
        .collect()
}

pub(super) fn by_user(seen: &[&FaultEntry]) -> Vec<UserCount> {
    table(seen, |seen| seen.user.as_deref(), [])
        .map(|(user, counts)| UserCount { user: user.to_owned(), counts })
        .collect()
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

pub(super) fn paths<'a>(paths: impl Iterator<Item = &'a FaultPath>) -> Vec<PathCount> {
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

pub(super) fn unrecoverable(seen: &[&FaultEntry]) -> Vec<SessionCount> {
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
