//! Tests of leases: one writer per session.

use std::time::Duration;

use budao_core::fault::Kind;

use super::{Fixture, fixture::TTL};
use crate::contract::{Append, AppendError, IfMissing, LeaseRequest};

/// Across sessions, holders, releases and deletions.
pub async fn tokens_grow_and_are_never_given_twice(stage: &Fixture) {
    let mut last = None;
    let session = stage.id();
    for round in 0..6 {
        let lease = stage.lease(session, "writer").await;
        let other = stage.open().await;
        assert!(Some(lease.token) > last && other.token > lease.token, "round {round}");
        last = Some(other.token);
        match round {
            1 => stage.journal.release(&lease).await.unwrap(),
            3 => assert!(stage.journal.delete(session).await.unwrap()),
            _ => {}
        }
    }
}

/// The fault carries the remaining time; the session's info names the holder.
pub async fn a_running_lease_is_not_taken_by_another(stage: &Fixture) {
    let lease = stage.open().await;
    stage.clock.advance(TTL - Duration::from_secs(1));
    let fault = stage.journal.take_lease(stage.request(lease.session, "other")).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::SessionBusy);
    assert_eq!(fault.retry_hint(), Some(Duration::from_secs(1)));
    assert_eq!(stage.append(&lease, 0, 1).await, 1);
    let info = stage.journal.info(lease.session).await.unwrap().unwrap();
    assert_eq!(info.lease.unwrap().holder, "writer");
}

/// Also after the new holder has written and released the lease.
pub async fn a_lease_that_ran_out_is_taken_by_another_and_its_writer_is_refused_for_ever(
    stage: &Fixture,
) {
    let lost = stage.open().await;
    stage.append(&lost, 0, 2).await;
    stage.clock.advance(TTL);
    let taken = stage.lease(lost.session, "thief").await;
    assert_eq!((taken.head, taken.epoch), (2, lost.epoch));
    let refused = || async {
        let append = Append::new(&lost, 2, stage.notes(3, 1));
        assert_eq!(stage.journal.append(append).await, Err(AppendError::Fenced));
        let fault = stage.journal.renew(&lost, TTL).await.unwrap_err();
        assert_eq!(fault.kind(), Kind::Fenced);
    };
    refused().await;
    assert_eq!(stage.append(&taken, 2, 1).await, 3);
    refused().await;
    stage.journal.release(&lost).await.unwrap();
    assert_eq!(stage.append(&taken, 3, 1).await, 4, "releasing a lost lease does nothing");
    stage.journal.release(&taken).await.unwrap();
    refused().await;
    assert_eq!(stage.read_all(lost.session, 0).await.len(), 4);
}

/// Fencing is by token, never by the clock.
pub async fn a_lease_that_ran_out_still_writes_until_somebody_takes_it(stage: &Fixture) {
    let lease = stage.open().await;
    stage.clock.advance(TTL * 10);
    assert_eq!(stage.append(&lease, 0, 1).await, 1);
    let renewed = stage.journal.renew(&lease, TTL).await.unwrap();
    assert_eq!((renewed.token, renewed.head), (lease.token, 1));
    let fault = stage.journal.take_lease(stage.request(lease.session, "other")).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::SessionBusy);
}

/// A program that lost track of its own lease need not wait until it expires.
pub async fn a_holder_may_take_its_own_lease_again_and_fences_itself(stage: &Fixture) {
    let old = stage.open().await;
    let new = stage.lease(old.session, "writer").await;
    let append = Append::new(&old, 0, stage.notes(1, 1));
    assert_eq!(stage.journal.append(append).await, Err(AppendError::Fenced));
    assert_eq!(stage.append(&new, 0, 1).await, 1);
}

/// A wrong claim is harmless: the earlier holder is fenced.
pub async fn the_lease_of_a_holder_that_is_gone_is_taken_at_once(stage: &Fixture) {
    let gone = stage.open().await;
    let request = |instead_of: &str| LeaseRequest {
        instead_of: Some(instead_of.into()),
        ..stage.request(gone.session, "heir")
    };
    let fault = stage.journal.take_lease(request("somebody else")).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::SessionBusy);
    let heir = stage.journal.take_lease(request("writer")).await.unwrap();
    let append = Append::new(&gone, 0, stage.notes(1, 1));
    assert_eq!(stage.journal.append(append).await, Err(AppendError::Fenced));
    assert_eq!(stage.append(&heir, 0, 1).await, 1);
}

/// The new validity starts at the renewal.
pub async fn a_renewed_lease_runs_on(stage: &Fixture) {
    let lease = stage.open().await;
    stage.clock.advance(Duration::from_secs(10));
    let renewed = stage.journal.renew(&lease, TTL).await.unwrap();
    assert_eq!(renewed.expires, stage.world.clock.now().after(TTL));
    stage.clock.advance(Duration::from_secs(10));
    let fault = stage.journal.take_lease(stage.request(lease.session, "other")).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::SessionBusy);
}

/// At once, without an advance of the clock.
pub async fn a_released_lease_is_dead_and_the_session_is_free(stage: &Fixture) {
    let lease = stage.open().await;
    stage.journal.release(&lease).await.unwrap();
    let append = Append::new(&lease, 0, stage.notes(1, 1));
    assert_eq!(stage.journal.append(append).await, Err(AppendError::Fenced));
    let next = stage.lease(lease.session, "other").await;
    assert_eq!(stage.append(&next, 0, 1).await, 1);
}

/// A mistyped id creates no session.
pub async fn a_session_is_made_only_when_asked_for(stage: &Fixture) {
    let session = stage.id();
    let request = LeaseRequest { missing: IfMissing::Refuse, ..stage.request(session, "writer") };
    let fault = stage.journal.take_lease(request.clone()).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::UnknownSession);
    assert_eq!(stage.journal.info(session).await.unwrap(), None);
    let made = stage.lease(session, "writer").await;
    let again = stage.journal.take_lease(request).await.unwrap();
    assert_eq!((again.epoch, again.head), (made.epoch, 0));
}
