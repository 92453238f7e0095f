//! Tests of the hash chain: the same digests in every journal, and a start that outlives removed records.

use budao_core::event::{Seq, SessionId};

use super::Fixture;
use crate::{
    contract::{Anchor, Append, Digest, Retention},
    implement::chain,
};

/// Hashes the kept records again and compares the result with every stored digest. Returns the digest at the head.
async fn check_chain(fixture: &Fixture, session: SessionId) -> Digest {
    let page = fixture.journal.chain(session, 0, 1000).await.unwrap();
    let mut digest = page.start.digest;
    for record in fixture.read_all(session, 0).await {
        let begins = page.links.iter().find(|link| link.first == record.seq);
        assert!(begins.is_none_or(|link| link.previous == digest), "before {}", record.seq);
        digest = record.digest_after(digest);
        let ends = page.links.iter().find(|link| link.last == record.seq);
        assert!(ends.is_none_or(|link| link.digest == digest), "at {}", record.seq);
    }
    let last = page.links.last().map_or(page.start.seq, |link| link.last);
    assert!(page.known_head <= last);
    assert!(page.known_head < last || page.head_digest.is_none_or(|head| head == digest));
    assert_eq!(page.links.last().map(|link| link.digest), Some(digest));
    digest
}

/// The records of one session in batches of several sizes, and those of another one at once.
pub async fn the_digest_of_a_history_does_not_depend_on_its_batches(fixture: &Fixture) {
    let lease = fixture.open().await;
    let mut head: Seq = 0;
    for count in [1, 4, 2, 5] {
        head = fixture.append(&lease, head, count).await;
    }
    let digest = check_chain(fixture, lease.session).await;
    let expected = fixture
        .read_all(lease.session, 0)
        .await
        .iter()
        .fold(chain::seed(lease.session), |before, record| record.digest_after(before));
    assert_eq!(digest, expected);
    let start = fixture.journal.chain(lease.session, 0, 0).await.unwrap().start;
    assert_eq!(start, Anchor { seq: 0, digest: chain::seed(lease.session) });
}

/// The digest at the last removed record stays, so that the kept ones continue it.
pub async fn removed_records_leave_their_digest(fixture: &Fixture) {
    let lease = fixture.open().await;
    let head = fixture.append(&lease, 0, 7).await;
    let head = fixture.append(&lease, head, 6).await;
    let append = Append { snapshot: Some(vec![7]), ..Append::new(&lease, head, vec![]) };
    fixture.journal.append(append).await.unwrap();
    let records = fixture.read_all(lease.session, 0).await;
    let whole = check_chain(fixture, lease.session).await;
    for kept in [9_u64, 2] {
        let retention = Retention { records: Some(kept), ..Retention::default() };
        fixture.journal.retain(retention).await.unwrap();
        let start = fixture.journal.chain(lease.session, 0, 0).await.unwrap().start;
        let removed = records.iter().filter(|record| record.seq <= start.seq);
        let digest =
            removed.fold(chain::seed(lease.session), |before, record| record.digest_after(before));
        assert_eq!(start, Anchor { seq: 13 - kept, digest });
        assert_eq!(check_chain(fixture, lease.session).await, whole);
    }
    fixture.append(&lease, head, 3).await;
    check_chain(fixture, lease.session).await;
}
