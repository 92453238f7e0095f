//! A journal that kills its own process at a chosen append.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use budao_core::{
    Fault,
    event::{Answer, Command, CommandId, Seq, SessionId},
};
use budao_journal::{
    Append, AppendError, Digest, Filter, Info, Journal, Lease, LeaseRequest, Page, PageLimits,
    Rate, RateQuery, Retained, Retention, Snapshot, Sqlite, Stored, Submitted, Summary, Unfinished,
    Watch,
};
use bytes::Bytes;
use futures::stream::BoxStream;

/// When to die.
#[derive(Clone, Debug)]
pub(crate) enum Moment {
    /// Before append number *n* is made.
    Before(u32),
    /// After it is durable, before anyone hears of it.
    After(u32),
    /// In a tool: `begun` before its effect, `done` after it.
    Tool(String, String),
}

impl Moment {
    pub(crate) fn parse(text: &str) -> Self {
        let (what, which) = text.split_once(' ').expect("a moment has two words");
        match what {
            "before" => Self::Before(which.parse().expect("a number")),
            "after" => Self::After(which.parse().expect("a number")),
            _ => Self::Tool(what.into(), which.into()),
        }
    }

    pub(crate) fn in_tool(moment: &Option<Self>, call: &str, now: &str) {
        if let Some(Self::Tool(when, which)) = moment
            && when == now
            && which == call
        {
            die();
        }
    }
}

/// SIGKILL: no destructor, no flush, no goodbye.
fn die() {
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
        .expect("a process may kill itself");
    loop {
        std::thread::park();
    }
}

#[derive(Debug)]
pub(crate) struct Killing {
    inner: Sqlite,
    moment: Option<Moment>,
    appends: AtomicU32,
}

impl Killing {
    pub(crate) fn new(inner: Sqlite, moment: Option<Moment>) -> Self {
        Self { inner, moment, appends: AtomicU32::new(0) }
    }
}

#[async_trait]
impl Journal for Killing {
    async fn append(&self, append: Append) -> Result<Seq, AppendError> {
        let number = self.appends.fetch_add(1, Ordering::SeqCst) + 1;
        if matches!(self.moment, Some(Moment::Before(wanted)) if wanted == number) {
            die();
        }
        let done = self.inner.append(append).await;
        if matches!(self.moment, Some(Moment::After(wanted)) if wanted == number) {
            die();
        }
        done
    }

    async fn take_lease(&self, request: LeaseRequest) -> Result<Lease, Fault> {
        self.inner.take_lease(request).await
    }

    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Lease, Fault> {
        self.inner.renew(lease, ttl).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), Fault> {
        self.inner.release(lease).await
    }

    async fn submit(&self, session: SessionId, command: Command) -> Result<Submitted, Fault> {
        self.inner.submit(session, command).await
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

    fn watch(&self, session: SessionId) -> Watch {
        self.inner.watch(session)
    }

    async fn info(&self, session: SessionId) -> Result<Option<Info>, Fault> {
        self.inner.info(session).await
    }

    async fn read(
        &self,
        session: SessionId,
        after: Seq,
        limits: PageLimits,
    ) -> Result<Page, Fault> {
        self.inner.read(session, after, limits).await
    }

    fn follow(
        &self,
        session: SessionId,
        after: Seq,
    ) -> BoxStream<'static, Result<Vec<Stored>, Fault>> {
        self.inner.follow(session, after)
    }

    async fn snapshot(&self, session: SessionId) -> Result<Option<Snapshot>, Fault> {
        self.inner.snapshot(session).await
    }

    async fn put_blob(&self, session: SessionId, content: Bytes) -> Result<Digest, Fault> {
        self.inner.put_blob(session, content).await
    }

    async fn blob(&self, digest: Digest) -> Result<Option<Bytes>, Fault> {
        self.inner.blob(digest).await
    }

    async fn sessions(&self, filter: Filter) -> Result<Vec<Summary>, Fault> {
        self.inner.sessions(filter).await
    }

    async fn unfinished(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<Unfinished>, Fault> {
        self.inner.unfinished(after, limit).await
    }

    async fn rates(&self, query: RateQuery) -> Result<Vec<Rate>, Fault> {
        self.inner.rates(query).await
    }

    async fn rebuild_views(&self) -> Result<(), Fault> {
        self.inner.rebuild_views().await
    }

    async fn retain(&self, retention: Retention) -> Result<Retained, Fault> {
        self.inner.retain(retention).await
    }

    async fn delete(&self, session: SessionId) -> Result<bool, Fault> {
        self.inner.delete(session).await
    }
}
