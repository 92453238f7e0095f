//! A journal whose next calls go as a script says, and all others as the one inside does.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use budao_core::{
    event::{Answer, Command, CommandId, Seq, SessionId},
    fault::Fault,
};
use budao_journal::{
    Append, AppendError, ChangeWatch, Digest, Filter, HistoryInfo, Journal, Lease, LeaseRequest,
    Page, PageLimits, Rate, RateQuery, Retention, RetentionReport, SessionSummary, Snapshot,
    StoredRecord, SubmitOutcome, UnfinishedSession,
};
use bytes::Bytes;
use futures::stream::BoxStream;

/// What a call runs into.
#[derive(Debug)]
pub(crate) enum FaultMode {
    /// Nothing was done.
    Lost(Fault),
    /// It was done, but the answer never came back.
    Unanswered(Fault),
    /// It is never done and never answered.
    #[allow(dead_code, reason = "not every test that includes this file plans it")]
    Hung,
}

#[derive(Debug)]
pub(crate) struct Flaky {
    pub(crate) inner: Arc<dyn Journal>,
    script: Mutex<VecDeque<(&'static str, FaultMode)>>,
}

impl Flaky {
    pub(crate) fn new(inner: Arc<dyn Journal>) -> Arc<Self> {
        Arc::new(Self { inner, script: Mutex::default() })
    }

    /// The next call of this name for which nothing is planned yet runs into this.
    pub(crate) fn plan(&self, call: &'static str, trouble: FaultMode) {
        self.script.lock().unwrap().push_back((call, trouble));
    }

    /// Is everything that was planned over?
    pub(crate) fn is_through(&self) -> bool {
        self.script.lock().unwrap().is_empty()
    }

    fn next(&self, call: &str) -> Option<FaultMode> {
        let mut script = self.script.lock().unwrap();
        let at = script.iter().position(|(planned, _)| *planned == call)?;
        script.remove(at).map(|(_, trouble)| trouble)
    }

    async fn meet<T>(
        &self,
        call: &str,
        done: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        match self.next(call) {
            None => done.await,
            Some(FaultMode::Lost(fault)) => Err(fault),
            Some(FaultMode::Hung) => std::future::pending().await,
            Some(FaultMode::Unanswered(fault)) => {
                done.await?;
                Err(fault)
            }
        }
    }
}

#[async_trait]
impl Journal for Flaky {
    async fn append(&self, append: Append) -> Result<Seq, AppendError> {
        match self.next("append") {
            None => self.inner.append(append).await,
            Some(FaultMode::Lost(fault)) => Err(fault.into()),
            Some(FaultMode::Hung) => std::future::pending().await,
            Some(FaultMode::Unanswered(fault)) => {
                self.inner.append(append).await?;
                Err(fault.into())
            }
        }
    }

    async fn take_lease(&self, request: LeaseRequest) -> Result<Lease, Fault> {
        self.meet("take_lease", self.inner.take_lease(request)).await
    }

    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Lease, Fault> {
        self.meet("renew", self.inner.renew(lease, ttl)).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), Fault> {
        self.meet("release", self.inner.release(lease)).await
    }

    async fn submit(&self, session: SessionId, command: Command) -> Result<SubmitOutcome, Fault> {
        self.meet("submit", self.inner.submit(session, command)).await
    }

    async fn withdraw(
        &self,
        session: SessionId,
        command: Command,
        fault: Fault,
    ) -> Result<Answer, Fault> {
        self.meet("withdraw", self.inner.withdraw(session, command, fault)).await
    }

    async fn inbox(&self, session: SessionId) -> Result<Vec<Command>, Fault> {
        self.meet("inbox", self.inner.inbox(session)).await
    }

    async fn answer(&self, session: SessionId, id: &CommandId) -> Result<Option<Answer>, Fault> {
        self.meet("answer", self.inner.answer(session, id)).await
    }

    async fn await_answer(&self, session: SessionId, id: &CommandId) -> Result<Answer, Fault> {
        self.inner.await_answer(session, id).await
    }

    fn watch(&self, session: SessionId) -> ChangeWatch {
        self.inner.watch(session)
    }

    async fn info(&self, session: SessionId) -> Result<Option<HistoryInfo>, Fault> {
        self.meet("info", self.inner.info(session)).await
    }

    async fn read(
        &self,
        session: SessionId,
        after: Seq,
        limits: PageLimits,
    ) -> Result<Page, Fault> {
        self.meet("read", self.inner.read(session, after, limits)).await
    }

    fn follow(
        &self,
        session: SessionId,
        after: Seq,
    ) -> BoxStream<'static, Result<Vec<StoredRecord>, Fault>> {
        self.inner.follow(session, after)
    }

    async fn snapshot(&self, session: SessionId) -> Result<Option<Snapshot>, Fault> {
        self.meet("snapshot", self.inner.snapshot(session)).await
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
