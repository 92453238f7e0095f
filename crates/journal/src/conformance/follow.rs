//! Tests of followers: from history to live records without a gap.

use budao_core::{event::Seq, event::SessionId, fault::Fact, fault::Kind};
use futures::{StreamExt, future::join_all};

use super::{Fixture, fixture::number};
use crate::contract::{Append, Retention};

/// Reads `count` records and checks that their positions are consecutive.
async fn take(fixture: &Fixture, session: SessionId, after: Seq, count: u64) {
    let mut stream = fixture.journal.follow(session, after);
    let mut last = after;
    while last < after + count {
        let batch = stream.next().await.expect("a follower has no end").expect("readable");
        assert!(!batch.is_empty());
        for record in batch {
            assert_eq!(record.seq, last + 1);
            assert_eq!(number(&record), record.seq);
            last = record.seq;
        }
    }
}

/// Every record arrives once and in order, from history or live.
pub async fn goes_from_history_to_live_without_a_seam(fixture: &Fixture) {
    let lease = fixture.open().await;
    let head = fixture.append(&lease, 0, 25).await;
    let writer = async {
        let mut head = head;
        for count in [1, 3, 20, 1, 50] {
            head = fixture.append(&lease, head, count).await;
        }
        assert_eq!(head, 100);
    };
    tokio::join!(biased; take(fixture, lease.session, 0, 100), writer);
}

/// Including the head, after which every record is live.
pub async fn from_every_position_gives_exactly_the_rest(fixture: &Fixture) {
    let lease = fixture.open().await;
    let head = fixture.append(&lease, 0, 20).await;
    let followers = (0..=head).map(|after| take(fixture, lease.session, after, head + 5 - after));
    let writer = async {
        fixture.append(&lease, head, 2).await;
        fixture.append(&lease, head + 2, 3).await;
    };
    tokio::join!(biased; join_all(followers), writer);
}

/// Followers that stop after a few records and resume at the same position, during appends.
pub async fn under_concurrent_append_and_reconnects_gives_exactly_the_sequence(fixture: &Fixture) {
    const TOTAL: u64 = 2000;
    let lease = fixture.open().await;
    let writer = async {
        let mut head = 0;
        while head < TOTAL {
            let count = (1 + head % 13).min(TOTAL - head);
            head = fixture.append(&lease, head, count).await;
        }
    };
    let follower = |stride: u64| {
        let session = lease.session;
        async move {
            let mut after = 0;
            while after < TOTAL {
                let count = stride.min(TOTAL - after);
                take(fixture, session, after, count).await;
                after += count;
            }
        }
    };
    let followers = join_all([1_u64, 7, 100, TOTAL].map(follower));
    tokio::join!(followers, writer);
}

/// A follower pulls, so unread records block neither the writer nor other followers.
pub async fn a_slow_follower_delays_no_writer_and_misses_nothing(fixture: &Fixture) {
    let lease = fixture.open().await;
    let mut head = fixture.append(&lease, 0, 1).await;
    let mut slow = fixture.journal.follow(lease.session, 0);
    assert_eq!(slow.next().await.unwrap().unwrap().len(), 1);
    while head < 5000 {
        let writer = async { fixture.append(&lease, head, 100).await };
        (head, ()) = tokio::join!(writer, take(fixture, lease.session, head, 100));
    }
    let mut last = 1;
    while last < head {
        for record in slow.next().await.unwrap().unwrap() {
            assert_eq!(record.seq, last + 1);
            last = record.seq;
        }
    }
}

/// The session exists but has no records yet.
pub async fn waits_for_a_session_without_records(fixture: &Fixture) {
    let lease = fixture.open().await;
    let writer = async { fixture.append(&lease, 0, 3).await };
    let ((), head) = tokio::join!(biased; take(fixture, lease.session, 0, 3), writer);
    assert_eq!(head, 3);
}

/// The stream ends after the fault.
pub async fn ends_with_a_fault_when_the_session_is_deleted(fixture: &Fixture) {
    let lease = fixture.open().await;
    fixture.append(&lease, 0, 1).await;
    let mut stream = fixture.journal.follow(lease.session, 0);
    assert_eq!(stream.next().await.unwrap().unwrap().len(), 1);
    let (next, deleted) =
        tokio::join!(biased; stream.next(), fixture.journal.delete(lease.session));
    assert!(deleted.unwrap());
    assert_eq!(next.unwrap().unwrap_err().kind(), Kind::UnknownSession);
    assert!(stream.next().await.is_none());
}

/// The fault names the exact range and the oldest position available.
pub async fn reports_a_gap(fixture: &Fixture) {
    let lease = fixture.open().await;
    let append = Append { snapshot: Some(vec![1]), ..Append::new(&lease, 0, fixture.notes(1, 10)) };
    fixture.journal.append(append).await.unwrap();
    let retention = Retention { records: Some(4), ..Retention::default() };
    fixture.journal.retain(retention).await.unwrap();
    let mut stream = fixture.journal.follow(lease.session, 2);
    let fault = stream.next().await.unwrap().unwrap_err();
    assert_eq!(fault.kind(), Kind::HistoryGap);
    let fact = |fact| fault.detail().number(fact);
    assert_eq!((fact(Fact::FromSeq), fact(Fact::ToSeq)), (Some(3), Some(6)));
    assert_eq!(fact(Fact::OldestSeq), Some(7));
    assert!(stream.next().await.is_none());
    take(fixture, lease.session, 6, 4).await;
}
