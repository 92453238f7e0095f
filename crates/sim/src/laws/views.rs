//! Every surface shows the same numbers: the session list, the frames of the timeline, and the statistics.

use std::collections::BTreeMap;

use budao_core::{
    Timestamp,
    event::{Record, SessionId},
    session::Session,
    tally::FaultCounts,
};
use budao_journal::{Filter, Memory, Reader as _};
use budao_serve::{Stats, Window, project::Projector};
use serde_json::Value;

use crate::check::Violations;

/// Checks one seed in this many; projecting every frame of every seed would double the time.
const ONE_IN: u64 = 16;

/// Compares every number that two surfaces share.
pub(crate) async fn of_views(
    seed: u64,
    kept: &Memory,
    histories: &BTreeMap<SessionId, Vec<Record>>,
    violations: &Violations,
) {
    if !seed.is_multiple_of(ONE_IN) {
        return;
    }
    let mut total = FaultCounts::default();
    for (session, history) in histories {
        let counts = of_list(kept, *session, history, violations).await;
        violations.expect(
            last_frame_counts(history) == counts,
            "the frames of a session carry the counts of the list",
            || session.to_string(),
        );
        total.faults += counts.faults;
        total.recovered += counts.recovered;
        total.not_recovered += counts.not_recovered;
    }
    of_statistics(kept, histories, total, violations).await;
}

/// The list shows the state and the counts of the session itself.
async fn of_list(
    kept: &Memory,
    session: SessionId,
    history: &[Record],
    violations: &Violations,
) -> FaultCounts {
    let mut state = Session::default();
    state.apply_all(history);
    let counts = state.faults.counts();
    let filter = Filter { ids: Some((session, session)), ..Filter::default() };
    let listed = kept.sessions(filter).await.unwrap_or_default();
    let is_same = listed
        .first()
        .is_some_and(|summary| (summary.state, summary.fault_counts()) == (state.state(), counts));
    violations.expect(is_same, "the list shows the session's state and counts", || {
        format!("{session}: {:?} and {counts:?}, listed as {listed:?}", state.state())
    });
    counts
}

/// The counts in the last frame that has them.
fn last_frame_counts(history: &[Record]) -> FaultCounts {
    let mut projector = Projector::new(&Session::default(), 0);
    let mut last = FaultCounts::default();
    for frame in history.iter().filter_map(|record| projector.project(record)) {
        let frame: Value = serde_json::from_str(&frame.encode()).unwrap_or_default();
        let counts = &frame["metadata"]["fault_counts"];
        if !counts.is_null() {
            last = serde_json::from_value(counts.clone()).unwrap_or_default();
        }
    }
    last
}

/// `/api/stats` and `top` count the faults of all sessions.
async fn of_statistics(
    kept: &Memory,
    histories: &BTreeMap<SessionId, Vec<Record>>,
    total: FaultCounts,
    violations: &Violations,
) {
    let times = histories.values().flatten().map(|record| record.at);
    let (first, last) = (times.clone().min(), times.max());
    let (Some(first), Some(last)) = (first, last) else { return };
    if last.since(first) > std::time::Duration::from_hours(6 * 24) {
        return;
    }
    let shown = counts_shown(kept, last).await;
    violations.expect(shown == Some(total), "the statistics count what the lists count", || {
        format!("{shown:?} for {total:?}")
    });
}

async fn counts_shown(kept: &Memory, now: Timestamp) -> Option<FaultCounts> {
    let report = Stats::default().report(kept, Window::Week, now).await.ok()?;
    let report = serde_json::to_value(&report).ok()?;
    let kinds = report["kinds"].as_array()?;
    let sum = |name: &str| kinds.iter().filter_map(|kind| kind[name].as_u64()).sum::<u64>();
    let counts = FaultCounts {
        faults: sum("count"),
        recovered: sum("recovered"),
        not_recovered: sum("not_recovered"),
    };
    (report["faults"] == counts.faults).then_some(counts)
}
