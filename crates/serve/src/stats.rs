//! Fault statistics: a fold over the journal's records. They survive a restart and need no storage.
//!
//! Sessions are not slowed down by counting: a query finds the sessions that changed since the previous query and
//! counts their new records.

mod fault_selector;
mod fold;
mod gates;
mod ledger;
mod metrics_recorder;
mod node_metrics;
mod open_requests;
mod report;

use std::{
    collections::{HashMap, hash_map::Entry},
    time::Duration,
};

use budao_core::{Fault, Kind, Timestamp, event::SessionId};
use budao_journal::{Filter, PageLimits, Reader, SessionSummary};

pub(crate) use self::fault_selector::FaultSelector;
pub(crate) use self::fold::OpenDoubt;
pub(crate) use self::gates::{GateReport, gate_reports, render_gates};
pub(crate) use self::node_metrics::NodeMetrics;
pub use self::open_requests::ModelLoad;
pub use self::report::{Report, Window};
use crate::alerts::FaultNotice;

use self::{
    fold::SessionCounters,
    ledger::{MinuteCounters, WINDOW_MAX, time_before},
};

/// Upper bound of records counted per query. Beyond it, the report is marked incomplete.
const RECORDS_MAX: usize = 200_000;
/// Upper bound of sessions whose progress is stored, so that no record is counted twice.
const SESSIONS: usize = 100_000;
/// Sessions listed per page.
const SESSIONS_PER_PAGE: usize = 256;
/// Records read per page.
const PAGE: PageLimits = PageLimits { records: 1024, bytes: 1 << 20 };
/// A record may become visible this long after its timestamp, because processes have different clocks.
const OVERLAP: Duration = Duration::from_mins(5);

/// The statistics so far. Owned by the server and updated by queries.
#[derive(Debug, Default)]
pub struct Stats {
    ledger: MinuteCounters,
    session_counters: HashMap<SessionId, SessionCounters>,
    /// All changes of sessions before this time are counted.
    seen: Option<Timestamp>,
}

impl Stats {
    /// Starts to collect faults for alerts, from this time on.
    pub(crate) fn watch_faults(&mut self, since: Timestamp) {
        self.ledger.watch_faults(since);
    }

    /// Returns the faults collected for alerts since the last call.
    pub(crate) fn take_notices(&mut self) -> Vec<FaultNotice> {
        self.ledger.take_notices()
    }

    /// Counts new records and returns the report for a window.
    ///
    /// # Errors
    /// If the journal fails.
    pub async fn report(
        &mut self,
        journal: &dyn Reader,
        window: Window,
        now: Timestamp,
    ) -> Result<Report, Fault> {
        let is_complete = self.catch_up(journal, now).await?;
        let open = self.session_counters.values().flat_map(SessionCounters::open_faults);
        let report = Report::new(&self.ledger, open, window, now, is_complete);
        Ok(report.with_doubts(&self.open_doubts(journal).await?))
    }

    /// Counts new records and returns the sessions that the selected faults hit within a time, with the time of the last
    /// such fault; the latest first.
    pub(crate) async fn sessions_with_fault(
        &mut self,
        journal: &dyn Reader,
        selector: &FaultSelector,
        (from, until): (Option<Timestamp>, Option<Timestamp>),
        now: Timestamp,
    ) -> Result<Vec<(Timestamp, SessionId)>, Fault> {
        self.catch_up(journal, now).await?;
        let open = self.session_counters.values().flat_map(SessionCounters::open_faults);
        let minutes = self.ledger.minutes_since(time_before(now, WINDOW_MAX));
        let closed = minutes.flat_map(|minute| &minute.faults);
        Ok(selector.sessions(closed.chain(open), from, until))
    }

    /// The open model requests of the sessions that a process writes, by model. Counts nothing new.
    #[must_use]
    pub fn model_loads(&self, is_written: impl Fn(SessionId) -> bool) -> Vec<ModelLoad> {
        let counters = self.session_counters.values();
        let written = counters.filter(|counters| is_written(counters.session()));
        open_requests::group(written.filter_map(SessionCounters::request))
    }

    /// The calls in doubt of all sessions that changed within the longest window, oldest first.
    pub(crate) async fn open_doubts(
        &mut self,
        journal: &dyn Reader,
    ) -> Result<Vec<OpenDoubt>, Fault> {
        let in_doubt =
            self.session_counters.values().filter(|counters| !counters.doubts().is_empty());
        let sessions: Vec<SessionId> = in_doubt.map(SessionCounters::session).collect();
        let mut found = Vec::new();
        for session in sessions {
            // The doubts of a deleted session are left out.
            if journal.info(session).await?.is_none() {
                self.session_counters.remove(&session);
            }
            let counters = self.session_counters.get(&session);
            found.extend(counters.into_iter().flat_map(SessionCounters::doubts).cloned());
        }
        found.sort_by(|one, other| (one.since, &one.call).cmp(&(other.since, &other.call)));
        Ok(found)
    }

    /// Counts new records, up to `RECORDS_MAX`. Returns true if all were counted.
    pub(crate) async fn catch_up(
        &mut self,
        journal: &dyn Reader,
        now: Timestamp,
    ) -> Result<bool, Fault> {
        let oldest = time_before(now, WINDOW_MAX);
        let since = self.seen.map_or(oldest, |seen| time_before(seen, OVERLAP).max(oldest));
        let mut budget = RECORDS_MAX;
        let mut after = None;
        loop {
            let filter =
                Filter { since: Some(since), after, limit: SESSIONS_PER_PAGE, ..Filter::default() };
            let page = journal.sessions(filter).await?;
            for summary in &page {
                if !self.count(journal, summary, &mut budget).await? {
                    self.ledger.trim(now);
                    return Ok(false);
                }
            }
            match page.last().filter(|_| page.len() == SESSIONS_PER_PAGE) {
                Some(last) => after = Some((last.updated_at, last.session)),
                None => break,
            }
        }
        self.seen = Some(now);
        // A session without changes since then is outside every window.
        self.session_counters.retain(|_, counters| counters.changed >= oldest);
        self.ledger.trim(now);
        Ok(true)
    }

    /// Counts a session's new records. Returns false if a bound was reached first.
    async fn count(
        &mut self,
        journal: &dyn Reader,
        summary: &SessionSummary,
        budget: &mut usize,
    ) -> Result<bool, Fault> {
        let is_full = self.session_counters.len() >= SESSIONS;
        let counters = match self.session_counters.entry(summary.session) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if is_full => return Ok(false),
            Entry::Vacant(free) => free.insert(SessionCounters::new(summary.session)),
        };
        while counters.after < summary.head {
            if *budget == 0 {
                return Ok(false);
            }
            match read(journal, counters, &mut self.ledger).await {
                Ok(read) => *budget = budget.saturating_sub(read.max(1)),
                Err(fault) => match fault.kind() {
                    Kind::UnknownSession => {
                        self.session_counters.remove(&summary.session);
                        return Ok(true);
                    }
                    // The history was replaced. Records counted from the old one stay counted.
                    Kind::EpochMismatch => *counters = SessionCounters::new(summary.session),
                    Kind::JournalDamaged => {
                        tracing::warn!(
                            session = %summary.session, %fault,
                            "skipping damaged session in statistics"
                        );
                        counters.after = summary.head;
                    }
                    _ => return Err(fault),
                },
            }
        }
        Ok(true)
    }
}

/// Counts one page and returns its number of records.
async fn read(
    journal: &dyn Reader,
    counters: &mut SessionCounters,
    ledger: &mut MinuteCounters,
) -> Result<usize, Fault> {
    let page = journal.read(counters.session(), counters.after, PAGE).await?;
    if counters.epoch.is_some_and(|epoch| epoch != page.epoch) {
        *counters = SessionCounters::new(counters.session());
        counters.epoch = Some(page.epoch);
        return Ok(0);
    }
    counters.epoch = Some(page.epoch);
    for stored in &page.records {
        if fold::is_counted(&stored.body) {
            counters.take(&stored.record()?, ledger);
        }
        (counters.after, counters.changed) = (stored.seq, stored.at);
    }
    if page.records.is_empty() {
        counters.after = page.head.max(counters.after);
    }
    Ok(page.records.len())
}
