//! Records that say their own position, and the helpers that write and read them in tests of journals.

use std::time::Duration;

use budao_core::{
    event::{Event, Seq, SessionId},
    trace::Trace,
};
use budao_journal::{
    Append, Entry, IfMissing, Journal, Lease, LeaseRequest, PageLimits, StoredRecord,
};
use uuid::Uuid;

use crate::world::system;

/// The session of a number.
#[must_use]
pub fn session(number: u64) -> SessionId {
    SessionId(Uuid::from_u128(u128::from(number) + 1))
}

/// Takes a session's lease for an hour.
///
/// # Panics
/// When the journal refuses it.
pub async fn lease(journal: &dyn Journal, session: SessionId, holder: &str) -> Lease {
    let request = LeaseRequest {
        session,
        holder: holder.into(),
        ttl: Duration::from_secs(3600),
        if_missing: IfMissing::Create,
        dead_holder: None,
    };
    journal.take_lease(request).await.expect("the lease is free")
}

/// An entry that says its position, with `weight` bytes of padding.
#[must_use]
pub fn entry(number: u64, weight: usize) -> Entry {
    let text = "x".repeat(weight);
    let event = Event::Annotated {
        topic: "test.number".into(),
        data: serde_json::json!({ "number": number, "weight": text }),
    };
    Entry {
        at: system().clock.now(),
        trace: Trace::from_random(u128::from(number) + 1),
        turn: 1,
        event: event.into(),
    }
}

/// The position that a record says.
///
/// # Panics
/// When it is another record than those of [`entry`].
#[must_use]
pub fn number(record: &StoredRecord) -> u64 {
    match record.event().expect("the record is whole") {
        Event::Annotated { data, .. } => data["number"].as_u64().expect("a record of this module"),
        other => panic!("{other:?}"),
    }
}

/// `count` entries that follow the position `after`.
#[must_use]
pub fn entries(after: Seq, count: u64, weight: usize) -> Vec<Entry> {
    (after + 1..=after + count).map(|number| entry(number, weight)).collect()
}

/// Appends `count` entries; returns the new head.
///
/// # Panics
/// When the journal refuses them.
pub async fn append(journal: &dyn Journal, lease: &Lease, after: Seq, count: u64) -> Seq {
    journal
        .append(Append::new(lease, after, entries(after, count, 30)))
        .await
        .expect("the append is accepted")
}

/// Every record of a session, each checked to follow the one before it.
///
/// # Panics
/// When a record is missing, or says another position than its own.
pub async fn read_all(journal: &dyn Journal, session: SessionId) -> Vec<StoredRecord> {
    let mut all: Vec<StoredRecord> = Vec::new();
    loop {
        let after = all.last().map_or(0, |record| record.seq);
        let page = journal
            .read(session, after, PageLimits::default())
            .await
            .expect("the page is readable");
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
