//! A journal in memory: for tests, and for sessions nobody wants back.
//!
//! It keeps every promise of the contract except surviving the process.

mod state;

use std::{sync::Arc, sync::Mutex, time::Duration};

use async_trait::async_trait;
use budao_core::{
    event::{Answer, Command, CommandId, Seq, SessionId},
    fault::Fault,
    limits::Limits,
    seams::World,
};
use bytes::Bytes;
use futures::stream::BoxStream;

use crate::{
    bell::{Bell, lock},
    contract::{
        Append, AppendError, Digest, Filter, Info, Journal, Lease, LeaseRequest, Page, PageLimits,
        Rate, RateQuery, Retained, Retention, Snapshot, Stored, Submitted, Summary, Unfinished,
        Watch,
    },
    encoded, faults,
    follow::{self, Pages},
};

use self::state::State;

/// A journal in memory. Clones share it.
#[derive(Clone, Debug)]
pub struct Memory {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    world: World,
    bell: Arc<Bell>,
    state: Mutex<State>,
}

impl Memory {
    /// An empty journal.
    #[must_use]
    pub fn new(world: World, limits: Limits) -> Self {
        let state = Mutex::new(State::new(limits));
        Self { shared: Arc::new(Shared { world, bell: Arc::default(), state }) }
    }

    fn with<T>(&self, change: impl FnOnce(&mut State, &World) -> T) -> T {
        change(&mut lock(&self.shared.state), &self.shared.world)
    }
}

#[async_trait]
impl Pages for Shared {
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
impl Journal for Memory {
    async fn take_lease(&self, request: LeaseRequest) -> Result<Lease, Fault> {
        self.with(|state, world| state.take_lease(&request, world))
    }

    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Lease, Fault> {
        self.with(|state, world| state.renew(lease, ttl, world.clock.now()))
    }

    async fn release(&self, lease: &Lease) -> Result<(), Fault> {
        self.with(|state, _| state.release(lease));
        Ok(())
    }

    async fn append(&self, mut append: Append) -> Result<Seq, AppendError> {
        let session = append.session;
        let is_answer = !append.answers.is_empty();
        // All sessions wait for the one lock: what can be done before is.
        let encoded = encoded::encode(std::mem::take(&mut append.entries));
        let (head, batch) = self.with(|state, _| state.append(append, &encoded))?;
        self.shared.bell.records(session, head, batch);
        if is_answer {
            self.shared.bell.answered(session);
        }
        Ok(head)
    }

    async fn submit(&self, session: SessionId, command: Command) -> Result<Submitted, Fault> {
        let submitted = self.with(|state, _| state.submit(session, command))?;
        if submitted == Submitted::New {
            self.shared.bell.command(session);
        }
        Ok(submitted)
    }

    async fn withdraw(
        &self,
        session: SessionId,
        command: Command,
        fault: Fault,
    ) -> Result<Answer, Fault> {
        let answer = self.with(|state, _| state.withdraw(session, command, fault))?;
        self.shared.bell.answered(session);
        Ok(answer)
    }

    async fn inbox(&self, session: SessionId) -> Result<Vec<Command>, Fault> {
        self.with(|state, _| state.inbox(session))
    }

    async fn answer(&self, session: SessionId, id: &CommandId) -> Result<Option<Answer>, Fault> {
        self.with(|state, _| state.answer(session, id)).map(Option::flatten)
    }

    async fn await_answer(&self, session: SessionId, id: &CommandId) -> Result<Answer, Fault> {
        let mut ear = self.shared.bell.listen(session);
        loop {
            match self.with(|state, _| state.answer(session, id))? {
                Some(Some(answer)) => return Ok(answer),
                Some(None) => ear.answers_changed().await,
                None => return Err(faults::unknown_command(session, id)),
            }
        }
    }

    fn watch(&self, session: SessionId) -> Watch {
        Watch(self.shared.bell.listen(session))
    }

    async fn info(&self, session: SessionId) -> Result<Option<Info>, Fault> {
        Ok(self.with(|state, world| state.info(session, world.clock.now())))
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
    ) -> BoxStream<'static, Result<Vec<Stored>, Fault>> {
        follow::follow(self.shared.clone(), &self.shared.bell, session, after)
    }

    async fn snapshot(&self, session: SessionId) -> Result<Option<Snapshot>, Fault> {
        self.with(|state, _| state.snapshot(session))
    }

    async fn put_blob(&self, session: SessionId, content: Bytes) -> Result<Digest, Fault> {
        self.with(|state, _| state.put_blob(session, content))
    }

    async fn blob(&self, digest: Digest) -> Result<Option<Bytes>, Fault> {
        Ok(self.with(|state, _| state.blob(digest)))
    }

    async fn sessions(&self, filter: Filter) -> Result<Vec<Summary>, Fault> {
        self.with(|state, _| state.sessions(&filter))
    }

    async fn unfinished(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<Unfinished>, Fault> {
        self.with(|state, world| state.unfinished(after, limit, world.clock.now()))
    }

    async fn rates(&self, query: RateQuery) -> Result<Vec<Rate>, Fault> {
        self.with(|state, _| state.rates(&query))
    }

    async fn rebuild_views(&self) -> Result<(), Fault> {
        Ok(())
    }

    async fn retain(&self, retention: Retention) -> Result<Retained, Fault> {
        let (retained, changed) =
            self.with(|state, world| state.retain(&retention, world.clock.now()))?;
        for session in changed {
            self.shared.bell.history_changed(session);
        }
        Ok(retained)
    }

    async fn delete(&self, session: SessionId) -> Result<bool, Fault> {
        let was_there = self.with(|state, _| state.delete(session));
        self.shared.bell.history_changed(session);
        Ok(was_there)
    }
}
