//! Tests of [`crate::OnceKeys`]: one call of all that claim a key gets it.

use std::time::Duration;

use bytes::Bytes;

use super::Fixture;
use crate::{
    Digest, OnceOwner, OnceSettlement, OnceState, Retention, conformance::fixture::session,
};

fn owner(number: u128, call: &str) -> OnceOwner {
    OnceOwner { session: session(number), call: call.into() }
}

fn key(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}

fn done() -> OnceSettlement {
    OnceSettlement::Done(Bytes::from_static(b"done"))
}

/// Another call gets the holder of the key, and later the outcome.
pub async fn a_key_belongs_to_the_call_that_claimed_it_first(fixture: &Fixture) {
    let (journal, one, two) = (&fixture.journal, owner(1, "a"), owner(2, "a"));
    assert_eq!(journal.claim_once(key("k"), one.clone(), 1).await.unwrap(), OnceState::Claimed);
    let again = journal.claim_once(key("k"), one.clone(), 1).await.unwrap();
    assert_eq!(again, OnceState::Own { outcome: None }, "a repeated claim finds out");
    let taken = journal.claim_once(key("k"), two.clone(), 1).await.unwrap();
    assert_eq!(taken, OnceState::Taken { owner: one.clone(), outcome: None });
    assert_eq!(journal.claim_once(key("l"), two.clone(), 1).await.unwrap(), OnceState::Claimed);
    journal.settle_once(one.clone(), 1, done()).await.unwrap();
    let outcome = Some(Bytes::from_static(b"done"));
    let taken = journal.claim_once(key("k"), two, 1).await.unwrap();
    assert_eq!(taken, OnceState::Taken { owner: one.clone(), outcome: outcome.clone() });
    let own = journal.claim_once(key("k"), one, 2).await.unwrap();
    assert_eq!(own, OnceState::Own { outcome });
}

/// A call releases only its own key, and only before the key has an outcome.
pub async fn a_call_that_did_nothing_gives_its_key_back(fixture: &Fixture) {
    let (journal, one, two) = (&fixture.journal, owner(1, "a"), owner(2, "b"));
    journal.claim_once(key("k"), one.clone(), 1).await.unwrap();
    journal.settle_once(two.clone(), 9, OnceSettlement::NotDone).await.unwrap();
    journal.settle_once(one.clone(), 1, OnceSettlement::NotDone).await.unwrap();
    assert_eq!(journal.claim_once(key("k"), two.clone(), 1).await.unwrap(), OnceState::Claimed);
    journal.settle_once(two.clone(), 1, done()).await.unwrap();
    journal.settle_once(two.clone(), 1, OnceSettlement::NotDone).await.unwrap();
    let other = OnceSettlement::Done(Bytes::from_static(b"other"));
    journal.settle_once(two.clone(), 1, other).await.unwrap();
    let outcome = Some(Bytes::from_static(b"done"));
    let taken = journal.claim_once(key("k"), one, 1).await.unwrap();
    assert_eq!(taken, OnceState::Taken { owner: two, outcome }, "the first outcome stays");
}

/// The attempt fences the key.
pub async fn an_older_attempt_gives_nothing_up_for_a_newer_one(fixture: &Fixture) {
    let (journal, one) = (&fixture.journal, owner(1, "a"));
    journal.claim_once(key("k"), one.clone(), 1).await.unwrap();
    journal.claim_once(key("k"), one.clone(), 2).await.unwrap();
    journal.settle_once(one.clone(), 1, OnceSettlement::NotDone).await.unwrap();
    let stale = journal.claim_once(key("k"), one.clone(), 1).await.unwrap();
    assert_eq!(stale, OnceState::Taken { owner: one.clone(), outcome: None });
    let newer = journal.claim_once(key("k"), one, 2).await.unwrap();
    assert_eq!(newer, OnceState::Own { outcome: None });
}

/// Sessions claim the same key at the same time.
pub async fn of_calls_that_race_for_a_key_exactly_one_gets_it(fixture: &Fixture) {
    let claims = (1..=8).map(|number| {
        let journal = fixture.journal.clone();
        tokio::spawn(async move { journal.claim_once(key("k"), owner(number, "a"), 1).await })
    });
    let mut claimed = 0;
    for claim in claims.collect::<Vec<_>>() {
        claimed += usize::from(claim.await.unwrap().unwrap() == OnceState::Claimed);
    }
    assert_eq!(claimed, 1);
}

/// Retention of sessions leaves keys alone.
pub async fn keys_have_a_retention_of_their_own(fixture: &Fixture) {
    let (journal, one) = (&fixture.journal, owner(1, "a"));
    journal.claim_once(key("old"), one.clone(), 1).await.unwrap();
    let age = Duration::from_secs(3_600);
    fixture.clock.advance(age * 2);
    journal.claim_once(key("new"), owner(2, "b"), 1).await.unwrap();
    let sessions = Retention { session_age: Some(Duration::ZERO), ..Retention::default() };
    journal.retain(sessions).await.unwrap();
    let kept = journal.claim_once(key("old"), owner(3, "c"), 1).await.unwrap();
    assert_eq!(kept, OnceState::Taken { owner: one, outcome: None }, "sessions go, keys stay");
    let keys = Retention { once_age: Some(age), ..Retention::default() };
    journal.retain(keys).await.unwrap();
    let forgotten = journal.claim_once(key("old"), owner(3, "c"), 1).await.unwrap();
    assert_eq!(forgotten, OnceState::Claimed);
    let young = journal.claim_once(key("new"), owner(3, "c"), 1).await.unwrap();
    assert!(matches!(young, OnceState::Taken { .. }));
}
