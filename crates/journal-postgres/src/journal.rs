//! Four of the interfaces of a journal on PostgreSQL.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    event::{Answer, Command, CommandId, Seq, SessionId},
    fault::{Fault, Kind, Operation},
};
use budao_journal::{
    Admin, Append, AppendError, ChainPage, ChangeWatch, Digest, FaultRate, Filter, HistoryInfo,
    Inbox, JournalLoad, JournalStats, Lease, LeaseRequest, Page, PageLimits, RateQuery, Reader,
    Retention, RetentionReport, SessionSummary, Snapshot, StoredRecord, SubmitOutcome,
    TimedSession, TimerQuery, UnfinishedSession, Writer,
    implement::{PageSource, faults, follow, transfer::Transfer},
};
use bytes::Bytes;
use futures::stream::BoxStream;

use crate::{errors, open::Postgres, settings::Purpose, wake::COMPARISON};

/// How long a close waits for appends that are on their way.
const CLOSING: Duration = Duration::from_secs(30);
const CLOSING_PAUSE: Duration = Duration::from_millis(5);

/// Pages for followers. Holds the journal open.
struct Pages(Postgres);

#[async_trait]
impl PageSource for Pages {
    async fn page(
        self: Arc<Self>,
        session: SessionId,
        after: Seq,
        limits: PageLimits,
    ) -> Result<Page, Fault> {
        self.0.shared.read_page(session, after, limits).await
    }
}

impl Postgres {
    /// Refuses a change of a journal that was opened for reading.
    pub(crate) fn must_write(&self, operation: Operation) -> Result<(), Fault> {
        match self.shared.purpose {
            Purpose::Write => Ok(()),
            Purpose::Read => {
                let address = self.shared.pool.address();
                Err(errors::fault(address, Kind::JournalReadOnly, operation)
                    .with_cause("the journal was opened for reading"))
            }
        }
    }
}

#[async_trait]
impl Reader for Postgres {
    async fn info(&self, session: SessionId) -> Result<Option<HistoryInfo>, Fault> {
        self.shared.info(session).await
    }

    async fn read(
        &self,
        session: SessionId,
        after: Seq,
        limits: PageLimits,
    ) -> Result<Page, Fault> {
        self.shared.read_page(session, after, limits).await
    }

    fn follow(
        &self,
        session: SessionId,
        after: Seq,
    ) -> BoxStream<'static, Result<Vec<StoredRecord>, Fault>> {
        follow(Arc::new(Pages(self.clone())), &self.shared.notifier, session, after)
    }

    async fn snapshot(&self, session: SessionId) -> Result<Option<Snapshot>, Fault> {
        self.shared.snapshot(session).await
    }

    async fn blob(&self, digest: Digest) -> Result<Option<Bytes>, Fault> {
        self.shared.blob(digest).await
    }

    async fn sessions(&self, filter: Filter) -> Result<Vec<SessionSummary>, Fault> {
        self.shared.sessions(&filter).await
    }

    async fn unfinished(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<UnfinishedSession>, Fault> {
        self.shared.unfinished(after, limit, None).await
    }

    async fn sessions_with_timers(&self, query: TimerQuery) -> Result<Vec<TimedSession>, Fault> {
        self.shared.sessions_with_timers(&query).await
    }

    async fn rates(&self, query: RateQuery) -> Result<Vec<FaultRate>, Fault> {
        self.shared.rates(&query).await
    }

    fn load(&self) -> JournalLoad {
        self.shared.load()
    }
}

#[async_trait]
impl Inbox for Postgres {
    async fn submit(&self, session: SessionId, command: Command) -> Result<SubmitOutcome, Fault> {
        self.must_write(Operation::SubmitCommand)?;
        let submitted = self.shared.submit(session, &command).await?;
        // Also for a command that waits already: the answer to an earlier attempt may have been lost.
        if matches!(submitted, SubmitOutcome::New | SubmitOutcome::Pending) {
            self.shared.notifier.announce_command(session);
            self.shared.announcer.announce_command(session);
        }
        Ok(submitted)
    }

    async fn withdraw(
        &self,
        session: SessionId,
        command: Command,
        fault: Fault,
    ) -> Result<Answer, Fault> {
        self.must_write(Operation::SubmitCommand)?;
        let answer = self.shared.withdraw(session, &command, fault).await?;
        self.shared.notifier.announce_answer(session);
        self.shared.announcer.announce_answer(session);
        Ok(answer)
    }

    async fn inbox(&self, session: SessionId) -> Result<Vec<Command>, Fault> {
        self.shared.inbox(session).await
    }

    async fn answer(&self, session: SessionId, id: &CommandId) -> Result<Option<Answer>, Fault> {
        self.shared.answer(session, id).await.map(Option::flatten)
    }

    async fn answered(
        &self,
        session: SessionId,
        ids: &[CommandId],
    ) -> Result<Vec<CommandId>, Fault> {
        self.shared.answered(session, ids).await
    }

    async fn await_answer(&self, session: SessionId, id: &CommandId) -> Result<Answer, Fault> {
        let mut subscription = self.shared.notifier.subscribe(session);
        loop {
            match self.shared.answer(session, id).await? {
                Some(Some(answer)) => return Ok(answer),
                Some(None) => {
                    // A wake-up may be lost, and no comparison sees a command that came and was answered since the
                    // one before.
                    let change = subscription.wait_for_answer_change();
                    drop(tokio::time::timeout(COMPARISON, change).await);
                }
                None => return Err(faults::unknown_command(session, id)),
            }
        }
    }

    fn watch(&self, session: SessionId) -> ChangeWatch {
        ChangeWatch::new(self.shared.notifier.subscribe(session))
    }
}

#[async_trait]
impl Writer for Postgres {
    async fn take_lease(&self, request: LeaseRequest) -> Result<Lease, Fault> {
        self.must_write(Operation::TakeLease)?;
        self.shared.take_lease(&request).await
    }

    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Lease, Fault> {
        self.must_write(Operation::TakeLease)?;
        self.shared.renew(lease, ttl).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), Fault> {
        self.must_write(Operation::TakeLease)?;
        self.shared.release(lease, None).await
    }

    async fn reserve(&self, lease: &Lease, time: Duration) -> Result<(), Fault> {
        self.must_write(Operation::TakeLease)?;
        self.shared.release(lease, Some(time)).await
    }

    async fn append(&self, append: Append) -> Result<Seq, AppendError> {
        self.must_write(Operation::AppendRecords)?;
        self.shared.append(append).await
    }

    async fn put_blob(&self, session: SessionId, content: Bytes) -> Result<Digest, Fault> {
        self.must_write(Operation::WriteBlob)?;
        self.shared.put_blob(session, &content).await
    }
}

#[async_trait]
impl Admin for Postgres {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    async fn retain(&self, retention: Retention) -> Result<RetentionReport, Fault> {
        self.must_write(Operation::ApplyRetention)?;
        self.shared.retain(&retention, self).await
    }

    async fn delete(&self, session: SessionId) -> Result<bool, Fault> {
        self.must_write(Operation::ApplyRetention)?;
        self.shared.delete(session).await
    }

    async fn rebuild_views(&self) -> Result<(), Fault> {
        self.must_write(Operation::ReadRecords)?;
        self.shared.rebuild_views().await
    }

    async fn renew_epochs(&self) -> Result<(), Fault> {
        self.must_write(Operation::BackUpJournal)?;
        self.shared.renew_epochs().await
    }

    fn transfer(&self) -> Option<&dyn Transfer> {
        Some(self)
    }

    async fn chain(
        &self,
        session: SessionId,
        after: Seq,
        limit: usize,
    ) -> Result<ChainPage, Fault> {
        self.shared.chain(session, after, limit).await
    }

    async fn stats(&self) -> Result<JournalStats, Fault> {
        self.shared.stats().await
    }

    async fn close(&self) {
        self.shared.appends.close();
        let written = async {
            while !self.shared.appends.is_idle() {
                tokio::time::sleep(CLOSING_PAUSE).await;
            }
        };
        // What is not written by then is answered as `shutting_down`.
        let _ = tokio::time::timeout(CLOSING, written).await;
        self.tasks.abort();
        self.shared.pool.close().await;
    }
}
