//! What went wrong, how often, and how it ended: a fold of the journal's records, so that it is the same after
//! a restart and needs no store of its own.
//!
//! Nothing is counted while sessions run. Whoever asks pays: the sessions that changed since the last question
//! are found in the journal's views, and their new records are counted.

mod fold;
mod ledger;
mod metrics_recorder;
mod report;

use std::{
    collections::{HashMap, hash_map::Entry},
    time::Duration,
};

use budao_core::{Fault, Kind, Timestamp, event::SessionId};
use budao_journal::{Filter, Journal, PageLimits, SessionSummary};

pub use self::report::{Report, Window};
use crate::{alerts::Alarm, metrics::Metrics};

use self::{
    fold::SessionCounters,
    ledger::{FaultResolution, KEPT, StatsLedger, before},
    metrics_recorder::MetricsRecorder,
};

/// Records counted for one question; who has more to count says that it is not complete.
const RECORDS: usize = 200_000;
/// Sessions that are remembered, so that nothing of them is counted twice.
const SESSIONS: usize = 100_000;
/// Sessions listed at once.
const LISTED: usize = 256;
/// Records read at once.
const PAGE: PageLimits = PageLimits { records: 1024, bytes: 1 << 20 };
/// A record may become visible this long after the time it bears: other processes have other clocks.
const OVERLAP: Duration = Duration::from_mins(5);

/// What a session met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FaultCounts {
    /// Faults.
    pub(crate) faults: u64,
    /// Those it recovered from.
    pub(crate) recovered: u64,
}

/// Everything that was counted so far.
#[derive(Debug, Default)]
pub struct Stats {
    ledger: StatsLedger,
    session_counters: HashMap<SessionId, SessionCounters>,
    /// All sessions that changed before this are counted.
    seen: Option<Timestamp>,
}

impl Stats {
    /// Nothing counted yet. What happens from `since` on is told to the meters as it is counted.
    pub(crate) fn new(meters: Metrics, since: Timestamp) -> Self {
        Self {
            ledger: StatsLedger::with_metrics(MetricsRecorder::new(meters, since)),
            ..Self::default()
        }
    }

    /// Keeps what alerts are made of, from this time on.
    pub(crate) fn raise_alarms(&mut self, since: Timestamp) {
        self.ledger.raise_alarms(since);
    }

    /// What came since the last call.
    pub(crate) fn take_alarms(&mut self) -> Vec<Alarm> {
        self.ledger.take_alarms()
    }

    /// Counts what is new and answers.
    ///
    /// # Errors
    /// When the journal fails.
    pub async fn ask(
        &mut self,
        journal: &dyn Journal,
        window: Window,
        now: Timestamp,
    ) -> Result<Report, Fault> {
        let is_complete = self.catch_up(journal, now).await?;
        let open = self.session_counters.values().flat_map(SessionCounters::open_faults);
        Ok(Report::new(&self.ledger, open, window, now, is_complete))
    }

    /// How many faults each of these sessions met within what is kept, and how many it recovered from.
    ///
    /// # Errors
    /// When the journal fails.
    pub(crate) async fn faults_of(
        &mut self,
        journal: &dyn Journal,
        sessions: &[SessionId],
        now: Timestamp,
    ) -> Result<HashMap<SessionId, FaultCounts>, Fault> {
        self.catch_up(journal, now).await?;
        let mut met: HashMap<SessionId, FaultCounts> =
            sessions.iter().map(|session| (*session, FaultCounts::default())).collect();
        let closed = self.ledger.since(before(now, KEPT)).flat_map(|minute| &minute.faults);
        for seen in
            closed.chain(self.session_counters.values().flat_map(SessionCounters::open_faults))
        {
            if let Some(met) = met.get_mut(&seen.session) {
                met.faults += 1;
                met.recovered += u64::from(seen.fate == FaultResolution::Recovered);
            }
        }
        Ok(met)
    }

    /// Counts what is new, within bounds. Was that all?
    pub(crate) async fn catch_up(
        &mut self,
        journal: &dyn Journal,
        now: Timestamp,
    ) -> Result<bool, Fault> {
        let oldest = before(now, KEPT);
        let since = self.seen.map_or(oldest, |seen| before(seen, OVERLAP).max(oldest));
        let mut budget = RECORDS;
        let mut after = None;
        loop {
            let filter = Filter { since: Some(since), after, limit: LISTED, ..Filter::default() };
            let page = journal.sessions(filter).await?;
            for summary in &page {
                if !self.count(journal, summary, &mut budget).await? {
                    self.ledger.trim(now);
                    return Ok(false);
                }
            }
            match page.last().filter(|_| page.len() == LISTED) {
                Some(last) => after = Some((last.updated_at, last.session)),
                None => break,
            }
        }
        self.seen = Some(now);
        // Nothing of a session that has not changed since then is in any window.
        self.session_counters.retain(|_, strand| strand.changed >= oldest);
        self.ledger.trim(now);
        Ok(true)
    }

    /// Counts the new records of a session. Was there room for all of them?
    async fn count(
        &mut self,
        journal: &dyn Journal,
        summary: &SessionSummary,
        budget: &mut usize,
    ) -> Result<bool, Fault> {
        let is_full = self.session_counters.len() >= SESSIONS;
        let strand = match self.session_counters.entry(summary.session) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if is_full => return Ok(false),
            Entry::Vacant(free) => free.insert(SessionCounters::new(summary.session)),
        };
        while strand.after < summary.head {
            if *budget == 0 {
                return Ok(false);
            }
            match read(journal, strand, &mut self.ledger).await {
                Ok(read) => *budget = budget.saturating_sub(read.max(1)),
                Err(fault) => match fault.kind() {
                    Kind::UnknownSession => {
                        self.session_counters.remove(&summary.session);
                        return Ok(true);
                    }
                    // What is there now is another history; what was counted of the old one did happen.
                    Kind::EpochMismatch => *strand = SessionCounters::new(summary.session),
                    Kind::JournalDamaged => {
                        tracing::warn!(session = %summary.session, %fault, "not in the statistics");
                        strand.after = summary.head;
                    }
                    _ => return Err(fault),
                },
            }
        }
        Ok(true)
    }
}

/// Counts one page and says how many records it had.
async fn read(
    journal: &dyn Journal,
    strand: &mut SessionCounters,
    ledger: &mut StatsLedger,
) -> Result<usize, Fault> {
    let page = journal.read(strand.session(), strand.after, PAGE).await?;
    if strand.epoch.is_some_and(|epoch| epoch != page.epoch) {
        *strand = SessionCounters::new(strand.session());
        strand.epoch = Some(page.epoch);
        return Ok(0);
    }
    strand.epoch = Some(page.epoch);
    for stored in &page.records {
        if fold::counts(&stored.body) {
            strand.take(&stored.record()?, ledger);
        }
        (strand.after, strand.changed) = (stored.seq, stored.at);
    }
    if page.records.is_empty() {
        strand.after = page.head.max(strand.after);
    }
    Ok(page.records.len())
}
