//! A reader can be written outside of the crate: this one reads records from a list, with what implementers share.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use budao_core::{
    event::{Epoch, Event, Seq, SessionId},
    fault::{Fault, Operation},
    time::Timestamp,
    trace::Trace,
};
use budao_journal::{
    ChangeWatch, Digest, FaultRate, Filter, HistoryInfo, Page, PageLimits, RateQuery, Reader,
    SessionSummary, Snapshot, StoredRecord, TimedSession, TimerQuery, UnfinishedSession,
    implement::{self, CachedEvent, Notifier, PageSource},
};
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, stream::BoxStream};

const SESSION: SessionId = SessionId(uuid::Uuid::from_u128(7));

/// The records of one session.
#[derive(Debug, Default)]
struct List {
    records: Mutex<Vec<StoredRecord>>,
    notifier: Arc<Notifier>,
}

impl List {
    fn push(&self, topic: &str) {
        let mut records = self.records.lock().unwrap();
        let seq = records.len() as Seq + 1;
        let event = Event::Annotated { topic: topic.into(), data: seq.into() };
        let record = StoredRecord {
            session: SESSION,
            epoch: Epoch(1),
            seq,
            at: Timestamp::from_micros(1),
            trace: Trace::NONE,
            turn: 0,
            body: Bytes::from(event.encode()),
            cached_event: CachedEvent::of(&Arc::new(event)),
        };
        records.push(record.clone());
        drop(records);
        self.notifier.announce_records(SESSION, seq, vec![record]);
    }
}

/// A reader of a [`List`].
#[derive(Clone, Debug, Default)]
struct ListReader(Arc<List>);

#[async_trait]
impl PageSource for List {
    async fn page(
        self: Arc<Self>,
        session: SessionId,
        after: Seq,
        _: PageLimits,
    ) -> Result<Page, Fault> {
        if session != SESSION {
            let operation = Operation::ReadRecords;
            return Err(implement::faults::unknown_session(session, operation));
        }
        let records = self.records.lock().unwrap();
        let head = records.len() as Seq;
        let records = records.iter().filter(|record| record.seq > after).cloned().collect();
        Ok(Page { records, epoch: Epoch(1), head, first_available: 1, gap: None })
    }
}

#[async_trait]
impl Reader for ListReader {
    async fn info(&self, _: SessionId) -> Result<Option<HistoryInfo>, Fault> {
        Ok(None)
    }

    async fn read(
        &self,
        session: SessionId,
        after: Seq,
        limits: PageLimits,
    ) -> Result<Page, Fault> {
        Arc::clone(&self.0).page(session, after, limits).await
    }

    fn follow(
        &self,
        session: SessionId,
        after: Seq,
    ) -> BoxStream<'static, Result<Vec<StoredRecord>, Fault>> {
        implement::follow(Arc::clone(&self.0), &self.0.notifier, session, after)
    }

    async fn snapshot(&self, _: SessionId) -> Result<Option<Snapshot>, Fault> {
        Ok(None)
    }

    async fn blob(&self, _: Digest) -> Result<Option<Bytes>, Fault> {
        Ok(None)
    }

    async fn sessions(&self, _: Filter) -> Result<Vec<SessionSummary>, Fault> {
        Ok(Vec::new())
    }

    async fn unfinished(
        &self,
        _: Option<SessionId>,
        _: usize,
    ) -> Result<Vec<UnfinishedSession>, Fault> {
        Ok(Vec::new())
    }

    async fn sessions_with_timers(&self, _: TimerQuery) -> Result<Vec<TimedSession>, Fault> {
        Ok(Vec::new())
    }

    async fn rates(&self, _: RateQuery) -> Result<Vec<FaultRate>, Fault> {
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn a_journal_of_another_crate_is_read_followed_and_folded() {
    let list = Arc::new(List::default());
    let journal = ListReader(Arc::clone(&list));
    list.push("first");
    let mut followed = journal.follow(SESSION, 0);
    assert_eq!(followed.next().await.unwrap().unwrap()[0].seq, 1);
    list.push("second");
    assert_eq!(followed.next().await.unwrap().unwrap()[0].seq, 2);
    let (state, _) = budao_journal::fold(&journal, SESSION).await.unwrap();
    assert_eq!(state.head, 2);
}

#[tokio::test]
async fn its_writer_is_woken_by_a_command() {
    let list = List::default();
    let mut watch = ChangeWatch::new(list.notifier.subscribe(SESSION));
    assert!(watch.wait_for_change().now_or_never().is_none());
    list.notifier.announce_command(SESSION);
    watch.wait_for_change().await;
}
