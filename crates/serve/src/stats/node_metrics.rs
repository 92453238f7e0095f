//! Counts for Prometheus: only records that this server wrote, so that the sum over all servers of a journal counts
//! each record once.

use std::collections::{HashMap, VecDeque};

use budao_core::{Fault, Kind, Timestamp, engine::WrittenRange, event::SessionId};
use budao_journal::{PageLimits, Reader};

use super::{
    PAGE, RECORDS_MAX,
    fold::{self, SessionCounters},
    ledger::MinuteCounters,
    metrics_recorder::MetricsRecorder,
};
use crate::metrics::Metrics;

/// Upper bound of sessions whose context is stored; beyond it, all contexts are read again.
const SESSIONS: usize = 20_000;
/// Upper bound of ranges that wait to be counted; further ones are left out of the metrics.
const RANGES_MAX: usize = 200_000;

/// The metrics of the records that this server wrote.
#[derive(Debug)]
pub(crate) struct NodeMetrics {
    ledger: MinuteCounters,
    sessions: HashMap<SessionId, SessionCounters>,
    waiting: VecDeque<WrittenRange>,
}

impl NodeMetrics {
    /// Metrics that start at zero.
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self {
            ledger: MinuteCounters::with_metrics(MetricsRecorder::new(metrics)),
            sessions: HashMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Counts the written records, about `RECORDS_MAX` at most. Returns true if all were counted; the rest waits for the
    /// next call.
    ///
    /// # Errors
    /// If the journal fails. The next call continues there.
    pub(crate) async fn count(
        &mut self,
        journal: &dyn Reader,
        written: Vec<WrittenRange>,
        now: Timestamp,
    ) -> Result<bool, Fault> {
        let room = RANGES_MAX.saturating_sub(self.waiting.len());
        self.waiting.extend(written.into_iter().take(room));
        let mut pages = RECORDS_MAX / PAGE.records;
        while pages > 0
            && let Some(range) = self.waiting.pop_front()
        {
            pages -= 1;
            match self.count_page(journal, range).await {
                Ok(rest) => rest.into_iter().for_each(|rest| self.waiting.push_front(rest)),
                Err(fault) if is_gone(&fault) => drop(self.sessions.remove(&range.session)),
                Err(fault) => {
                    self.waiting.push_front(range);
                    return Err(fault);
                }
            }
        }
        self.ledger.trim(now);
        Ok(self.waiting.is_empty())
    }

    /// Counts the first page of a range and returns the rest of the range.
    async fn count_page(
        &mut self,
        journal: &dyn Reader,
        range: WrittenRange,
    ) -> Result<Option<WrittenRange>, Fault> {
        let page = journal.read(range.session, range.after, PAGE).await?;
        let is_known = self.sessions.get(&range.session).is_some_and(|it| it.after == range.after);
        if !is_known {
            let context = self.context(journal, range).await?;
            if self.sessions.len() >= SESSIONS {
                self.sessions.clear();
            }
            self.sessions.insert(range.session, context);
        }
        let Some(counters) = self.sessions.get_mut(&range.session) else { return Ok(None) };
        for stored in page.records.iter().take_while(|stored| stored.seq <= range.head) {
            if fold::is_counted(&stored.body) {
                counters.take(&stored.record()?, &mut self.ledger);
            }
            counters.after = stored.seq;
        }
        let after = counters.after;
        let has_rest = range.after < after && after < range.head;
        Ok(has_rest.then_some(WrittenRange { after, ..range }))
    }

    /// The context of a session at the start of a range: its tenant, user and stage, from its first record.
    async fn context(
        &mut self,
        journal: &dyn Reader,
        range: WrittenRange,
    ) -> Result<SessionCounters, Fault> {
        let mut counters = SessionCounters::new(range.session);
        if range.after > 0 {
            let first = PageLimits { records: 1, ..PAGE };
            let page = journal.read(range.session, 0, first).await?;
            if let Some(opening) = page.records.first().filter(|stored| stored.seq == 1) {
                counters.take(&opening.record()?, &mut self.ledger);
            }
        }
        counters.after = range.after;
        Ok(counters)
    }
}

/// True if the records can never be counted.
fn is_gone(fault: &Fault) -> bool {
    matches!(fault.kind(), Kind::UnknownSession | Kind::EpochMismatch | Kind::JournalDamaged)
}
