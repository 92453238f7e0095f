//! A journal that does something of its own about appends and passes everything else on.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    Fault,
    event::{Answer, Command, CommandId, Seq, SessionId},
};
use budao_journal::{
    Append, AppendError, ChangeWatch, Digest, Filter, HistoryInfo, Journal, Lease, LeaseRequest,
    Page, PageLimits, Rate, RateQuery, Retention, RetentionReport, SessionSummary, Snapshot,
    StoredRecord, SubmitOutcome, UnfinishedSession,
};
use bytes::Bytes;
use futures::stream::BoxStream;

/// What is done about an append.
#[async_trait]
pub(crate) trait Appends: Send + Sync + fmt::Debug + 'static {
    async fn append(&self, inner: &dyn Journal, append: Append) -> Result<Seq, AppendError>;

    /// What is done about taking a lease.
    fn leases(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Work with the journal comes past here.
    fn passes(&self, _point: &'static str) {}
}

/// The journal inside, and what is done about its appends.
#[derive(Debug)]
pub(crate) struct InterceptedJournal<A> {
    pub(crate) inner: Arc<dyn Journal>,
    pub(crate) appends: A,
}

#[async_trait]
impl<A: Appends> Journal for InterceptedJournal<A> {
    async fn append(&self, append: Append) -> Result<Seq, AppendError> {
        self.appends.append(&*self.inner, append).await
    }

    async fn take_lease(&self, request: LeaseRequest) -> Result<Lease, Fault> {
        self.appends.passes("before-lease");
        self.appends.leases()?;
        let done = self.inner.take_lease(request).await;
        self.appends.passes("after-lease");
        done
    }

    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Lease, Fault> {
        self.appends.passes("before-renewal");
        let done = self.inner.renew(lease, ttl).await;
        self.appends.passes("after-renewal");
        done
    }

    async fn release(&self, lease: &Lease) -> Result<(), Fault> {
        self.appends.passes("before-release");
        let done = self.inner.release(lease).await;
        self.appends.passes("after-release");
        done
    }

    async fn submit(&self, session: SessionId, command: Command) -> Result<SubmitOutcome, Fault> {
        self.appends.passes("before-submit");
        let done = self.inner.submit(session, command).await;
        self.appends.passes("after-submit");
        done
    }

    async fn withdraw(
        &self,
        session: SessionId,
        command: Command,
        fault: Fault,
    ) -> Result<Answer, Fault> {
        self.inner.withdraw(session, command, fault).await
    }

    async fn inbox(&self, session: SessionId) -> Result<Vec<Command>, Fault> {
        self.inner.inbox(session).await
    }

    async fn answer(&self, session: SessionId, id: &CommandId) -> Result<Option<Answer>, Fault> {
        self.inner.answer(session, id).await
    }

    async fn await_answer(&self, session: SessionId, id: &CommandId) -> Result<Answer, Fault> {
        self.inner.await_answer(session, id).await
    }

    fn watch(&self, session: SessionId) -> ChangeWatch {
        self.inner.watch(session)
    }

    async fn info(&self, session: SessionId) -> Result<Option<HistoryInfo>, Fault> {
        self.inner.info(session).await
    }

    async fn read(
        &self,
        session: SessionId,
        after: Seq,
        limits: PageLimits,
    ) -> Result<Page, Fault> {
        self.appends.passes("before-read");
        let done = self.inner.read(session, after, limits).await;
        self.appends.passes("after-read");
        done
    }

    fn follow(
        &self,
        session: SessionId,
        after: Seq,
    ) -> BoxStream<'static, Result<Vec<StoredRecord>, Fault>> {
        self.inner.follow(session, after)
    }

    async fn snapshot(&self, session: SessionId) -> Result<Option<Snapshot>, Fault> {
        self.appends.passes("before-snapshot-read");
        let done = self.inner.snapshot(session).await;
        self.appends.passes("after-snapshot-read");
        done
    }

    async fn put_blob(&self, session: SessionId, content: Bytes) -> Result<Digest, Fault> {
        self.inner.put_blob(session, content).await
    }

    async fn blob(&self, digest: Digest) -> Result<Option<Bytes>, Fault> {
        self.inner.blob(digest).await
    }

    async fn sessions(&self, filter: Filter) -> Result<Vec<SessionSummary>, Fault> {
        self.inner.sessions(filter).await
    }

    async fn unfinished(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<UnfinishedSession>, Fault> {
        self.inner.unfinished(after, limit).await
    }

    async fn rates(&self, query: RateQuery) -> Result<Vec<Rate>, Fault> {
        self.inner.rates(query).await
    }

    async fn rebuild_views(&self) -> Result<(), Fault> {
        self.inner.rebuild_views().await
    }

    async fn retain(&self, retention: Retention) -> Result<RetentionReport, Fault> {
        self.inner.retain(retention).await
    }

    async fn delete(&self, session: SessionId) -> Result<bool, Fault> {
        self.inner.delete(session).await
    }
}
