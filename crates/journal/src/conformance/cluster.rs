//! Tests of [`crate::Cluster`]: nodes, orphaned and observed sessions, notes.

use std::time::Duration;

use budao_core::event::{Event, SessionId};

use super::{Fixture, fixture::TTL, fixture::message};
use crate::contract::{NODE_BEAT, NODE_ROW_TTL, NODE_TIMEOUT, NodeBeat, NodeStatus};

fn beat(holder: &str, joined: &[SessionId], left: &[SessionId]) -> NodeBeat {
    let status =
        NodeStatus { version: "1".into(), places: vec!["disk".into()], ..NodeStatus::default() };
    NodeBeat { holder: holder.into(), status, joined: joined.into(), left: left.into() }
}

async fn ages(fixture: &Fixture) -> Vec<(String, Duration)> {
    let census = fixture.journal.census("a").await.unwrap();
    census.nodes.into_iter().map(|node| (node.holder, node.silent_for)).collect()
}

/// A node that left is not listed, and a long silent one is forgotten.
pub async fn nodes_are_listed_with_the_time_since_their_last_beat(fixture: &Fixture) {
    assert!(!fixture.journal.beat(beat("a", &[], &[])).await.unwrap());
    fixture.clock.advance(NODE_BEAT);
    assert!(!fixture.journal.beat(beat("b", &[], &[])).await.unwrap());
    assert_eq!(
        ages(fixture).await,
        [("a".to_owned(), NODE_BEAT), ("b".to_owned(), Duration::ZERO)]
    );
    let census = fixture.journal.census("a").await.unwrap();
    assert_eq!(census.nodes[0].status, beat("a", &[], &[]).status);
    fixture.clock.advance(NODE_TIMEOUT - NODE_BEAT);
    assert!(fixture.journal.beat(beat("b", &[], &[])).await.unwrap(), "b was known");
    let nodes = fixture.journal.census("b").await.unwrap().nodes;
    assert!(nodes[0].is_gone() && !nodes[1].is_gone());
    fixture.clock.advance(NODE_ROW_TTL);
    fixture.journal.beat(beat("b", &[], &[])).await.unwrap();
    assert_eq!(ages(fixture).await, [("b".to_owned(), Duration::ZERO)]);
    fixture.journal.leave("b").await.unwrap();
    assert_eq!(ages(fixture).await, []);
}

/// Sessions of a living holder are not listed, nor finished ones.
pub async fn unfinished_sessions_without_a_living_writer_are_orphaned(fixture: &Fixture) {
    let (of_dead, of_living, free, idle) = (
        fixture.lease(fixture.id(), "dead").await,
        fixture.lease(fixture.id(), "living").await,
        fixture.open().await,
        fixture.open().await,
    );
    for lease in [&of_dead, &of_living] {
        let started = vec![Event::TurnStarted { message: "m".into() }];
        fixture.append_events(lease, 0, started).await;
    }
    fixture.append(&idle, 0, 1).await;
    fixture.journal.submit(free.session, message("a", "x")).await.unwrap();
    fixture.journal.release(&free).await.unwrap();
    let orphaned = async |dead: &[String]| {
        let found = fixture.journal.orphaned_sessions(dead, None, 10).await.unwrap();
        found.into_iter().map(|found| found.session).collect::<Vec<_>>()
    };
    assert_eq!(orphaned(&[]).await, [free.session]);
    let mut expected = vec![free.session, of_dead.session];
    expected.sort();
    let dead = ["dead".to_owned(), "nobody".to_owned()];
    assert_eq!(orphaned(&dead).await, expected);
    let first = fixture.journal.orphaned_sessions(&dead, None, 1).await.unwrap();
    let rest = fixture.journal.orphaned_sessions(&dead, Some(first[0].session), 9).await.unwrap();
    assert_eq!([first[0].session, rest[0].session], expected[..]);
    fixture.clock.advance(TTL);
    assert_eq!(orphaned(&[]).await.len(), 3, "leases that ran out are free");
}

/// A reserved session belongs to its holder as long as that is a listed node, and yet any writer may take it.
pub async fn a_reserved_session_is_orphaned_only_without_its_node(fixture: &Fixture) {
    let (waiting, asked) =
        (fixture.lease(fixture.id(), "a").await, fixture.lease(fixture.id(), "a").await);
    for lease in [&waiting, &asked] {
        let started = vec![Event::TurnStarted { message: "m".into() }];
        fixture.append_events(lease, 0, started).await;
        fixture.journal.reserve(lease, TTL * 100).await.unwrap();
    }
    let orphaned = async |dead: &[String]| {
        let found = fixture.journal.orphaned_sessions(dead, None, 10).await.unwrap();
        found.into_iter().map(|found| found.session).collect::<Vec<_>>()
    };
    let both = orphaned(&[]).await;
    assert_eq!(both.len(), 2, "no node is listed");
    fixture.journal.beat(beat("a", &[], &[])).await.unwrap();
    assert_eq!(orphaned(&[]).await, []);
    assert_eq!(orphaned(&["a".to_owned()]).await, both);
    fixture.clock.advance(TTL);
    let info = fixture.journal.info(waiting.session).await.unwrap().unwrap();
    assert_eq!(info.lease.unwrap().holder, "a", "after the lease would have expired");
    fixture.journal.beat(beat("b", &[waiting.session], &[])).await.unwrap();
    assert_eq!(fixture.journal.census("a").await.unwrap().observed, [waiting.session]);
    fixture.journal.submit(asked.session, message("a", "x")).await.unwrap();
    assert_eq!(orphaned(&[]).await, [asked.session], "a command waits for a writer");
    let taken = fixture.lease(waiting.session, "b").await;
    fixture.journal.reserve(&waiting, TTL).await.unwrap();
    fixture.append(&taken, 1, 1).await;
    fixture.journal.release(&taken).await.unwrap();
    let info = fixture.journal.info(waiting.session).await.unwrap().unwrap();
    assert_eq!(info.lease, None, "a release ends the reservation");
    fixture.journal.leave("a").await.unwrap();
    assert_eq!(orphaned(&[]).await, both);
}

/// Only observers of other living nodes count, and only for the writer of the session.
pub async fn a_writer_learns_what_clients_of_other_nodes_observe(fixture: &Fixture) {
    let (one, two) =
        (fixture.lease(fixture.id(), "a").await, fixture.lease(fixture.id(), "b").await);
    let (one, two) = (one.session, two.session);
    fixture.journal.beat(beat("a", &[one, two], &[])).await.unwrap();
    fixture.journal.beat(beat("b", &[one], &[])).await.unwrap();
    let observed = async |holder: &str| fixture.journal.census(holder).await.unwrap().observed;
    assert_eq!(observed("a").await, [one], "observed by b");
    assert_eq!(observed("b").await, [two], "observed by a");
    fixture.journal.beat(beat("a", &[], &[two])).await.unwrap();
    assert_eq!(observed("b").await, []);
    fixture.clock.advance(NODE_TIMEOUT);
    assert_eq!(observed("a").await, [], "b is gone");
    fixture.journal.beat(beat("b", &[], &[])).await.unwrap();
    assert_eq!(observed("a").await, [one]);
    fixture.journal.leave("b").await.unwrap();
    assert_eq!(observed("a").await, []);
}

/// A writer that read an older version changes nothing.
pub async fn a_note_changes_only_from_the_version_that_was_read(fixture: &Fixture) {
    let journal = &fixture.journal;
    assert_eq!(journal.note("key").await.unwrap(), None);
    assert_eq!(journal.set_note("key", 3, b"x".to_vec()).await.unwrap(), None);
    assert_eq!(journal.set_note("key", 0, b"one".to_vec()).await.unwrap(), Some(1));
    assert_eq!(journal.set_note("key", 0, b"two".to_vec()).await.unwrap(), None);
    assert_eq!(journal.set_note("key", 1, b"three".to_vec()).await.unwrap(), Some(2));
    let note = journal.note("key").await.unwrap().unwrap();
    assert_eq!((note.version, &note.body[..]), (2, &b"three"[..]));
    assert_eq!(journal.note("other").await.unwrap(), None);
}
