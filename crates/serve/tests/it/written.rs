//! An engine that also reports what tests write into the journal directly, as if its own writers had written it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use budao_core::{
    Fault, Record,
    engine::{Engine, SessionChoice, SessionOptions, WrittenRange},
    event::{Answer, Command, Seq, SessionId},
    gate::{GateKey, GateStatus},
    retention::{Retention, RetentionReport},
};
use budao_journal::Journal;
use budao_runtime::Runtime;
use futures::stream::BoxStream;

/// What tests wrote, by the address of the journal.
static WRITTEN: Mutex<Vec<(usize, WrittenRange)>> = Mutex::new(Vec::new());

/// Reports records that a test has appended.
pub(crate) fn report(journal: &Arc<dyn Journal>, range: WrittenRange) {
    WRITTEN.lock().unwrap().push((address(journal), range));
}

fn address(journal: &Arc<dyn Journal>) -> usize {
    Arc::as_ptr(journal).cast::<()>().addr()
}

fn take(journal: usize) -> Vec<WrittenRange> {
    let mut written = WRITTEN.lock().unwrap();
    let (of_journal, others) = written.drain(..).partition(|(of, _)| *of == journal);
    *written = others;
    let of_journal: Vec<(usize, WrittenRange)> = of_journal;
    of_journal.into_iter().map(|(_, range)| range).collect()
}

#[derive(Debug)]
pub(crate) struct CountingEngine {
    runtime: Runtime,
    journal: usize,
}

impl CountingEngine {
    /// What was written before is history.
    pub(crate) fn new(runtime: Runtime, journal: &Arc<dyn Journal>) -> Self {
        let journal = address(journal);
        take(journal);
        Self { runtime, journal }
    }
}

#[async_trait]
impl Engine for CountingEngine {
    async fn open(&self, opening: SessionOptions) -> Result<SessionId, Fault> {
        Engine::open(&self.runtime, opening).await
    }

    async fn fork(&self, request: budao_core::engine::ForkRequest) -> Result<SessionId, Fault> {
        Engine::fork(&self.runtime, request).await
    }

    async fn submit(&self, session: SessionId, command: Command) -> Result<Answer, Fault> {
        Engine::submit(&self.runtime, session, command).await
    }

    async fn follow(
        &self,
        session: SessionId,
        after: Seq,
    ) -> Result<BoxStream<'static, Result<Record, Fault>>, Fault> {
        Engine::follow(&self.runtime, session, after).await
    }

    fn touch(&self, session: SessionId) {
        Engine::touch(&self.runtime, session);
    }

    fn track_observers(&self) {
        Engine::track_observers(&self.runtime);
    }

    fn set_observed(&self, session: SessionId, is_observed: bool) {
        Engine::set_observed(&self.runtime, session, is_observed);
    }

    fn is_waiting(&self, session: SessionId) -> bool {
        Engine::is_waiting(&self.runtime, session)
    }

    fn gates(&self) -> Vec<(GateKey, GateStatus)> {
        Engine::gates(&self.runtime)
    }

    async fn recover(&self) -> Result<usize, Fault> {
        Engine::recover(&self.runtime).await
    }

    async fn take_over(&self, dead: &[String], wants: SessionChoice<'_>) -> Result<usize, Fault> {
        Engine::take_over(&self.runtime, dead, wants).await
    }

    fn loaded(&self) -> usize {
        Engine::loaded(&self.runtime)
    }

    fn take_written(&self) -> Vec<WrittenRange> {
        let mut written = Engine::take_written(&self.runtime);
        written.extend(take(self.journal));
        written
    }

    async fn delete(&self, session: SessionId) -> Result<bool, Fault> {
        Engine::delete(&self.runtime, session).await
    }

    async fn retain(&self, retention: Retention) -> Result<RetentionReport, Fault> {
        Engine::retain(&self.runtime, retention).await
    }

    async fn shutdown(&self, grace: Duration) {
        Engine::shutdown(&self.runtime, grace).await;
    }
}
