//! Tests of leases: one writer per session.

use std::time::Duration;

use budao_core::fault::Kind;

use super::{Fixture, fixture::TTL};
use crate::contract::{Append, AppendError, IfMissing, LeaseRequest};

/// Across sessions, holders, releases and deletions.
pub async fn tokens_grow_and_are_never_given_twice(fixture: &Fixture) {
    let mut last = None;
    let session = fixture.id();
    for round in 0..6 {
        let lease = fixture.lease(session, "writer").await;
        let other = fixture.open().await;
        assert!(Some(lease.token) > last && other.token > lease.token, "round {round}");
        last = Some(other.token);
        match round {
            1 => fixture.journal.release(&lease).await.unwrap(),
            3 => assert!(fixture.journal.delete(session).await.unwrap()),
            _ => {}
        }
    }
}

/// The fault carries the remaining time; the session's info names the holder.
pub async fn a_running_lease_is_not_taken_by_another(fixture: &Fixture) {
    let lease = fixture.open().await;
    fixture.clock.advance(TTL - Duration::from_secs(1));
    let fault =
        fixture.journal.take_lease(fixture.request(lease.session, "other")).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::SessionBusy);
    assert_eq!(fault.retry_hint(), Some(Duration::from_secs(1)));
    assert_eq!(fixture.append(&lease, 0, 1).await, 1);
    let info = fixture.journal.info(lease.session).await.unwrap().unwrap();
    assert_eq!(info.lease.unwrap().holder, "writer");
}

/// Also after the new holder has written and released the lease.
pub async fn a_lease_that_ran_out_is_taken_by_another_and_its_writer_is_refused_for_ever(
    fixture: &Fixture,
) {
    let lost = fixture.open().await;
    fixture.append(&lost, 0, 2).await;
    fixture.clock.advance(TTL);
    let taken = fixture.lease(lost.session, "second").await;
    assert_eq!((taken.head, taken.epoch), (2, lost.epoch));
    let refused = || async {
        let append = Append::new(&lost, 2, fixture.notes(3, 1));
        assert_eq!(fixture.journal.append(append).await, Err(AppendError::Fenced));
        let fault = fixture.journal.renew(&lost, TTL).await.unwrap_err();
        assert_eq!(fault.kind(), Kind::Fenced);
    };
    refused().await;
    assert_eq!(fixture.append(&taken, 2, 1).await, 3);
    refused().await;
    fixture.journal.release(&lost).await.unwrap();
    assert_eq!(fixture.append(&taken, 3, 1).await, 4, "releasing a lost lease does nothing");
    fixture.journal.release(&taken).await.unwrap();
    refused().await;
    assert_eq!(fixture.read_all(lost.session, 0).await.len(), 4);
}

/// Fencing is by token, never by the clock.
pub async fn a_lease_that_ran_out_still_writes_until_another_takes_it(fixture: &Fixture) {
    let lease = fixture.open().await;
    fixture.clock.advance(TTL * 10);
    assert_eq!(fixture.append(&lease, 0, 1).await, 1);
    let renewed = fixture.journal.renew(&lease, TTL).await.unwrap();
    assert_eq!((renewed.token, renewed.head), (lease.token, 1));
    let fault =
        fixture.journal.take_lease(fixture.request(lease.session, "other")).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::SessionBusy);
}

/// A program that lost track of its own lease need not wait until it expires.
pub async fn a_holder_may_take_its_own_lease_again_and_fences_itself(fixture: &Fixture) {
    let old = fixture.open().await;
    let new = fixture.lease(old.session, "writer").await;
    let append = Append::new(&old, 0, fixture.notes(1, 1));
    assert_eq!(fixture.journal.append(append).await, Err(AppendError::Fenced));
    assert_eq!(fixture.append(&new, 0, 1).await, 1);
}

/// A wrong claim is harmless: the earlier holder is fenced.
pub async fn the_lease_of_a_holder_that_is_gone_is_taken_at_once(fixture: &Fixture) {
    let gone = fixture.open().await;
    let request = |dead_holder: &str| LeaseRequest {
        dead_holder: Some(dead_holder.into()),
        ..fixture.request(gone.session, "successor")
    };
    let fault = fixture.journal.take_lease(request("somebody else")).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::SessionBusy);
    let successor = fixture.journal.take_lease(request("writer")).await.unwrap();
    let append = Append::new(&gone, 0, fixture.notes(1, 1));
    assert_eq!(fixture.journal.append(append).await, Err(AppendError::Fenced));
    assert_eq!(fixture.append(&successor, 0, 1).await, 1);
}

/// The new validity starts at the renewal.
pub async fn a_renewed_lease_runs_on(fixture: &Fixture) {
    let lease = fixture.open().await;
    fixture.clock.advance(Duration::from_secs(10));
    let renewed = fixture.journal.renew(&lease, TTL).await.unwrap();
    assert_eq!(renewed.expires, fixture.world.clock.now().after(TTL));
    fixture.clock.advance(Duration::from_secs(10));
    let fault =
        fixture.journal.take_lease(fixture.request(lease.session, "other")).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::SessionBusy);
}

/// At once, without an advance of the clock.
pub async fn a_released_lease_is_dead_and_the_session_is_free(fixture: &Fixture) {
    let lease = fixture.open().await;
    fixture.journal.release(&lease).await.unwrap();
    let append = Append::new(&lease, 0, fixture.notes(1, 1));
    assert_eq!(fixture.journal.append(append).await, Err(AppendError::Fenced));
    let next = fixture.lease(lease.session, "other").await;
    assert_eq!(fixture.append(&next, 0, 1).await, 1);
}

/// A mistyped id creates no session.
pub async fn a_session_is_made_only_when_asked_for(fixture: &Fixture) {
    let session = fixture.id();
    let request =
        LeaseRequest { if_missing: IfMissing::Refuse, ..fixture.request(session, "writer") };
    let fault = fixture.journal.take_lease(request.clone()).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::UnknownSession);
    assert_eq!(fixture.journal.info(session).await.unwrap(), None);
    let made = fixture.lease(session, "writer").await;
    let again = fixture.journal.take_lease(request).await.unwrap();
    assert_eq!((again.epoch, again.head), (made.epoch, 0));
}
