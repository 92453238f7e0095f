//! What several test programs need.

#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

use std::{path::Path, sync::Arc, time::Duration};

use budao_core::{
    event::{Event, Seq, SessionId},
    time::Timestamp,
    trace::Trace,
    world::{Clock, Entropy, NoopSpanExporter, Spawn, World},
};
use budao_journal::{
    Append, Entry, IfMissing, Journal, Lease, LeaseRequest, PageLimits, StoredRecord,
    sqlite::{Sqlite, SqliteOptions},
};
use futures::future::BoxFuture;
use uuid::Uuid;

#[derive(Debug)]
struct SystemWorld;

impl Clock for SystemWorld {
    fn now(&self) -> Timestamp {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap())
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(wait))
    }
}

impl Entropy for SystemWorld {
    fn bits(&self) -> u64 {
        u64::from_le_bytes(Uuid::new_v4().as_bytes()[..8].try_into().unwrap())
    }
}

impl Spawn for SystemWorld {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}

/// The real clock.
pub fn world() -> World {
    let real = Arc::new(SystemWorld);
    World {
        clock: real.clone(),
        entropy: real.clone(),
        spawn: real,
        spans: Arc::new(NoopSpanExporter),
    }
}

pub fn session(number: u64) -> SessionId {
    SessionId(Uuid::from_u128(u128::from(number) + 1))
}

pub async fn open(path: &Path) -> Sqlite {
    Sqlite::open(path, world(), options()).await.unwrap()
}

pub fn options() -> SqliteOptions {
    SqliteOptions { reserve_bytes: 0, ..SqliteOptions::default() }
}

pub async fn lease(journal: &dyn Journal, session: SessionId, holder: &str) -> Lease {
    let request = LeaseRequest {
        session,
        holder: holder.into(),
        ttl: Duration::from_secs(3600),
        if_missing: IfMissing::Create,
        dead_holder: None,
    };
    journal.take_lease(request).await.unwrap()
}

/// An entry that says where it belongs, with some weight.
pub fn entry(number: u64, weight: usize) -> Entry {
    let text = "x".repeat(weight);
    let event = Event::Annotated {
        topic: "test.number".into(),
        data: serde_json::json!({ "number": number, "weight": text }),
    };
    Entry {
        at: SystemWorld.now(),
        trace: Trace::from_random(u128::from(number) + 1),
        turn: 1,
        event: event.into(),
    }
}

/// The number an entry says.
pub fn number(record: &StoredRecord) -> u64 {
    match record.event().unwrap() {
        Event::Annotated { data, .. } => data["number"].as_u64().unwrap(),
        other => panic!("{other:?}"),
    }
}

pub fn entries(after: Seq, count: u64, weight: usize) -> Vec<Entry> {
    (after + 1..=after + count).map(|number| entry(number, weight)).collect()
}

pub async fn append(journal: &dyn Journal, lease: &Lease, after: Seq, count: u64) -> Seq {
    journal.append(Append::new(lease, after, entries(after, count, 30))).await.unwrap()
}

/// Every record, each checked to be the one after the last.
pub async fn read_all(journal: &dyn Journal, session: SessionId) -> Vec<StoredRecord> {
    let mut all: Vec<StoredRecord> = Vec::new();
    loop {
        let after = all.last().map_or(0, |record| record.seq);
        let page = journal.read(session, after, PageLimits::default()).await.unwrap();
        if page.records.is_empty() {
            assert_eq!(page.head, after);
            return all;
        }
        for record in &page.records {
            assert_eq!(record.seq, all.last().map_or(1, |last| last.seq + 1));
            assert_eq!(number(record), record.seq);
            all.push(record.clone());
        }
    }
}
