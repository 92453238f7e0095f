//! A journal in memory, for tests and for sessions that need not survive the process.
//!
//! It keeps every other promise of the contract.

mod cluster;
mod session;
mod state;
mod timers;

use std::{sync::Arc, sync::Mutex, time::Duration};

use async_trait::async_trait;
use budao_core::{
    event::{Answer, Command, CommandId, Seq, SessionId},
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    world::World,
};
use bytes::Bytes;
use futures::stream::BoxStream;

use crate::{
    backend::{Access, Backend, Inspection},
    contract::{
        Admin, Append, AppendError, ChainPage, ChangeWatch, Digest, FaultRate, Filter, HistoryInfo,
        Inbox, Journal, Lease, LeaseRequest, OnceKeys, OnceOwner, OnceSettlement, OnceState, Page,
        PageLimits, RateQuery, Reader, Retention, RetentionReport, SessionSummary, Snapshot,
        StoredRecord, SubmitOutcome, TimedSession, TimerQuery, UnfinishedSession, Writer,
    },
    implement::encoded,
    implement::faults,
    implement::follow::{self, PageSource},
    implement::notifier::{Notifier, lock},
};

use self::{cluster::MemoryCluster, state::MemoryState};

/// A journal in memory. Clones share the same records.
#[derive(Clone, Debug)]
pub struct Memory {
    shared: Arc<MemoryShared>,
}

#[derive(Debug)]
struct MemoryShared {
    world: World,
    notifier: Arc<Notifier>,
    state: Mutex<MemoryState>,
    cluster: Mutex<MemoryCluster>,
}

impl Memory {
    /// Creates an empty journal.
    #[must_use]
    pub fn new(world: World, limits: Limits) -> Self {
        let state = Mutex::new(MemoryState::new(limits));
        let (notifier, cluster) = (Arc::default(), Mutex::default());
        Self { shared: Arc::new(MemoryShared { world, notifier, state, cluster }) }
    }

    fn with_state<T>(&self, change: impl FnOnce(&mut MemoryState, &World) -> T) -> T {
        change(&mut lock(&self.shared.state), &self.shared.world)
    }
}

/// Opens `memory:`, a new journal each time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryBackend;

#[async_trait]
impl Backend for MemoryBackend {
    fn accepts(&self, url: &str) -> bool {
        url.starts_with("memory:")
    }

    fn kind(&self) -> &'static str {
        "memory"
    }

    fn url_form(&self) -> &'static str {
        "memory:"
    }

    async fn open(
        &self,
        url: &str,
        access: Access,
        world: World,
        limits: Limits,
    ) -> Result<Arc<dyn Journal>, Fault> {
        if access != Access::Create || url != "memory:" {
            return Err(Fault::new(Kind::NoJournal, Operation::OpenJournal)
                .with(Fact::Path, url.chars().take(80).collect::<String>()));
        }
        Ok(Arc::new(Memory::new(world, limits)))
    }

    async fn inspect(&self, _: &str) -> Result<Inspection, Fault> {
        Ok(Inspection { file: None, exists: false })
    }
}

#[async_trait]
impl PageSource for MemoryShared {
    async fn page(
        self: Arc<Self>,
        session: SessionId,
        after: Seq,
        limits: PageLimits,
    ) -> Result<Page, Fault> {
        lock(&self.state).read(session, after, limits)
    }
}

#[async_trait]
impl Reader for Memory {
    async fn info(&self, session: SessionId) -> Result<Option<HistoryInfo>, Fault> {
        Ok(self.with_state(|state, world| state.info(session, world.clock.now())))
    }

    async fn read(
        &self,
        session: SessionId,
        after: Seq,
        limits: PageLimits,
    ) -> Result<Page, Fault> {
        self.shared.clone().page(session, after, limits).await
    }

    fn follow(
        &self,
        session: SessionId,
        after: Seq,
    ) -> BoxStream<'static, Result<Vec<StoredRecord>, Fault>> {
        follow::follow(self.shared.clone(), &self.shared.notifier, session, after)
    }

    async fn snapshot(&self, session: SessionId) -> Result<Option<Snapshot>, Fault> {
        self.with_state(|state, _| state.snapshot(session))
    }

    async fn blob(&self, digest: Digest) -> Result<Option<Bytes>, Fault> {
        Ok(self.with_state(|state, _| state.blob(digest)))
    }

    async fn sessions(&self, filter: Filter) -> Result<Vec<SessionSummary>, Fault> {
        self.with_state(|state, _| state.sessions(&filter))
    }

    async fn unfinished(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<UnfinishedSession>, Fault> {
        self.with_state(|state, world| state.unfinished(after, limit, world.clock.now()))
    }

    async fn sessions_with_timers(&self, query: TimerQuery) -> Result<Vec<TimedSession>, Fault> {
        Ok(self.with_state(|state, world| state.query_timers(&query, world.clock.now())))
    }

    async fn rates(&self, query: RateQuery) -> Result<Vec<FaultRate>, Fault> {
        self.with_state(|state, _| state.rates(&query))
    }
}

#[async_trait]
impl Inbox for Memory {
    async fn submit(&self, session: SessionId, command: Command) -> Result<SubmitOutcome, Fault> {
        let submitted = self.with_state(|state, _| state.submit(session, command))?;
        if submitted == SubmitOutcome::New {
            self.shared.notifier.announce_command(session);
        }
        Ok(submitted)
    }

    async fn withdraw(
        &self,
        session: SessionId,
        command: Command,
        fault: Fault,
    ) -> Result<Answer, Fault> {
        let answer = self.with_state(|state, _| state.withdraw(session, command, fault))?;
        self.shared.notifier.announce_answer(session);
        Ok(answer)
    }

    async fn inbox(&self, session: SessionId) -> Result<Vec<Command>, Fault> {
        self.with_state(|state, _| state.inbox(session))
    }

    async fn answer(&self, session: SessionId, id: &CommandId) -> Result<Option<Answer>, Fault> {
        self.with_state(|state, _| state.answer(session, id)).map(Option::flatten)
    }

    async fn await_answer(&self, session: SessionId, id: &CommandId) -> Result<Answer, Fault> {
        let mut subscription = self.shared.notifier.subscribe(session);
        loop {
            match self.with_state(|state, _| state.answer(session, id))? {
                Some(Some(answer)) => return Ok(answer),
                Some(None) => subscription.wait_for_answer_change().await,
                None => return Err(faults::unknown_command(session, id)),
            }
        }
    }

    fn watch(&self, session: SessionId) -> ChangeWatch {
        ChangeWatch::new(self.shared.notifier.subscribe(session))
    }
}

#[async_trait]
impl Writer for Memory {
    async fn take_lease(&self, request: LeaseRequest) -> Result<Lease, Fault> {
        self.with_state(|state, world| state.take_lease(&request, world))
    }

    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Lease, Fault> {
        self.with_state(|state, world| state.renew(lease, ttl, world.clock.now()))
    }

    async fn release(&self, lease: &Lease) -> Result<(), Fault> {
        self.with_state(|state, world| state.release(lease, None, world.clock.now()));
        Ok(())
    }

    async fn reserve(&self, lease: &Lease, time: Duration) -> Result<(), Fault> {
        self.with_state(|state, world| state.release(lease, Some(time), world.clock.now()));
        Ok(())
    }

    async fn append(&self, mut append: Append) -> Result<Seq, AppendError> {
        let session = append.session;
        let is_answer = !append.answers.is_empty();
        // All sessions share one lock, so events are encoded before it is taken.
        let encoded = encoded::encode(std::mem::take(&mut append.entries));
        let (head, batch) = self.with_state(|state, _| state.append(append, &encoded))?;
        self.shared.notifier.announce_records(session, head, batch);
        if is_answer {
            self.shared.notifier.announce_answer(session);
        }
        Ok(head)
    }

    async fn put_blob(&self, session: SessionId, content: Bytes) -> Result<Digest, Fault> {
        self.with_state(|state, _| state.put_blob(session, content))
    }
}

#[async_trait]
impl OnceKeys for Memory {
    async fn claim_once(
        &self,
        key: Digest,
        owner: OnceOwner,
        attempt: u32,
    ) -> Result<OnceState, Fault> {
        Ok(self.with_state(|state, world| state.claim_once(key, owner, attempt, world.clock.now())))
    }

    async fn settle_once(
        &self,
        owner: OnceOwner,
        attempt: u32,
        settlement: OnceSettlement,
    ) -> Result<(), Fault> {
        self.with_state(|state, _| state.settle_once(&owner, attempt, settlement));
        Ok(())
    }
}

#[async_trait]
impl Admin for Memory {
    fn kind(&self) -> &'static str {
        "memory"
    }

    async fn retain(&self, retention: Retention) -> Result<RetentionReport, Fault> {
        let (retained, changed) =
            self.with_state(|state, world| state.retain(&retention, world.clock.now()))?;
        for session in changed {
            self.shared.notifier.announce_history_change(session);
        }
        Ok(retained)
    }

    async fn delete(&self, session: SessionId) -> Result<bool, Fault> {
        let was_there = self.with_state(|state, _| state.delete(session));
        self.shared.notifier.announce_history_change(session);
        Ok(was_there)
    }

    async fn rebuild_views(&self) -> Result<(), Fault> {
        Ok(())
    }

    async fn chain(&self, session: SessionId, after: Seq, _: usize) -> Result<ChainPage, Fault> {
        self.with_state(|state, _| state.chain(session, after))
    }
}
