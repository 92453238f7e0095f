//! Reads of a session's records that a front end's request needs before its stream begins.
//!
//! A client can repeat such a request without limit. Every page is therefore charged to the client's replay allowance
//! and read in a replay slot, and no slot is held for more than one page.

use budao_core::{
    Event, Fault, Kind,
    event::{Seq, SessionId},
    fault::{Fact, Operation},
    session::Session,
};
use budao_journal::{Page, PageLimits, StoredRecord};

use super::Thread;
use crate::{admission::AdmissionPermit, server::Server};

/// Records read at once.
const PAGE: PageLimits = PageLimits { records: 1024, bytes: 256 * 1024 };

/// Records of the first search for the last turn; each further one is twice as long.
const FIRST_SEARCH: u64 = 64;

/// Reads records page by page through the replay scheduler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PagedReader<'a> {
    pub(crate) server: &'a Server,
    pub(crate) permit: &'a AdmissionPermit,
}

impl PagedReader<'_> {
    /// Up to `records` records after a position, at most a page.
    pub(crate) async fn page(
        &self,
        session: SessionId,
        after: Seq,
        records: u64,
    ) -> Result<Page, Fault> {
        let _slot = self.server.replays.acquire(self.permit.charge_replay(records)).await;
        let records = usize::try_from(records).unwrap_or(PAGE.records).min(PAGE.records);
        self.server.journal.read(session, after, PageLimits { records, ..PAGE }).await
    }

    /// Calls `visit` with each record after `after`, up to `until`, until it returns false. Removed records are skipped.
    pub(crate) async fn visit(
        &self,
        session: SessionId,
        (after, until): (Seq, Seq),
        mut visit: impl FnMut(&StoredRecord) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        let mut at = after;
        while at < until {
            let page = self.page(session, at, until - at).await?;
            let Some(last) = page.records.last() else { break };
            at = last.seq;
            for stored in page.records.iter().take_while(|stored| stored.seq <= until) {
                if !visit(stored)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The state at a position: from the thread's own state if that is not beyond it, else from the newest snapshot that is
    /// not beyond it, else from the first record.
    ///
    /// # Errors
    /// `history_gap` if records are missing; `epoch_mismatch` for a position beyond the head.
    pub(crate) async fn fold_at(&self, thread: &Thread, at: Seq) -> Result<Session, Fault> {
        let session = thread.session;
        let mut state = match thread.state.head <= at {
            true => thread.state.clone(),
            false => self.snapshot(session, at).await?.unwrap_or_default(),
        };
        while state.head < at {
            let page = self.page(session, state.head, at - state.head).await?;
            if let Some(gap) = page.gap {
                return Err(Fault::new(Kind::HistoryGap, Operation::ReadRecords)
                    .with(Fact::FromSeq, gap.from)
                    .with(Fact::ToSeq, gap.to)
                    .with(Fact::OldestSeq, page.first_available)
                    .with(Fact::Reason, gap.reason.as_str())
                    .with(Fact::Session, session.to_string()));
            }
            if page.records.is_empty() {
                break;
            }
            for stored in page.records.iter().take_while(|stored| stored.seq <= at) {
                state.apply(&*stored.shared_event()?, stored.at, stored.trace);
            }
        }
        if state.head < at {
            return Err(Fault::new(Kind::EpochMismatch, Operation::ReadRecords)
                .with(Fact::Session, session.to_string())
                .with(Fact::HeadSeq, state.head));
        }
        Ok(state)
    }

    async fn snapshot(&self, session: SessionId, at: Seq) -> Result<Option<Session>, Fault> {
        let _slot = self.server.replays.acquire(self.permit.charge_replay(1)).await;
        let found = self.server.journal.snapshot(session).await?.filter(|found| found.seq <= at);
        let state = found.and_then(|found| {
            let state = serde_json::from_slice::<Session>(&found.body).ok()?;
            (state.head == found.seq).then_some(state)
        });
        Ok(state)
    }

    /// The position before the last turn. Searches backwards from the head, so the cost depends only on that turn's
    /// length.
    pub(crate) async fn last_turn(&self, thread: &Thread) -> Result<Option<Seq>, Fault> {
        let info = self.server.journal.info(thread.session).await?;
        let oldest = info.map_or(0, |info| info.first_available.saturating_sub(1));
        let (mut until, mut records) = (thread.state.head, FIRST_SEARCH);
        while until > oldest {
            let after = until.saturating_sub(records).max(oldest);
            let mut began = None;
            self.visit(thread.session, (after, until), |stored| {
                if let Event::TurnStarted { .. } = *stored.shared_event()? {
                    began = Some(stored.seq.saturating_sub(1));
                }
                Ok(true)
            })
            .await?;
            if began.is_some() {
                return Ok(began);
            }
            until = after;
            records = records.saturating_mul(2);
        }
        Ok(None)
    }
}
