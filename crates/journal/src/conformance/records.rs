//! Tests of records: order, conflicts, pages and snapshots.

use budao_core::{
    event::{Event, Seq},
    fault::Kind,
    trace::Trace,
};
use futures::{StreamExt, stream::FuturesUnordered};

use super::{
    Fixture,
    fixture::{message, note, number},
};
use crate::contract::{Append, AppendError, Digest, Entry, PageLimits};

/// For appends of any size.
pub async fn records_are_numbered_from_one_without_gaps(fixture: &Fixture) {
    let lease = fixture.open().await;
    let mut head = 0;
    for count in [1, 20, 1, 3, 100, 1] {
        head = fixture.append(&lease, head, count).await;
    }
    let seqs: Vec<Seq> = fixture.read_all(lease.session, 0).await.iter().map(|r| r.seq).collect();
    assert_eq!(seqs, (1..=126).collect::<Vec<Seq>>());
    let info = fixture.journal.info(lease.session).await.unwrap().unwrap();
    assert_eq!((info.head, info.first_available), (126, 1));
}

/// Including time, trace and turn.
pub async fn what_was_appended_is_read_back_byte_for_byte(fixture: &Fixture) {
    let lease = fixture.open().await;
    let trace = Trace::from_random(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
    let entries: Vec<Entry> = ["", "words", "多语言 🎎 \u{0} \"quotes\"", &"long ".repeat(50_000)]
        .into_iter()
        .zip(0..)
        .map(|(text, turn)| Entry {
            turn,
            trace: if turn == 2 { Trace::NONE } else { trace },
            ..fixture.entry(Event::TextDelta { step: 1, text: text.into() })
        })
        .collect();
    fixture.journal.append(Append::new(&lease, 0, entries.clone())).await.unwrap();
    let records = fixture.read_all(lease.session, 0).await;
    assert_eq!(records.len(), entries.len());
    for (stored, entry) in records.iter().zip(entries) {
        assert_eq!(&stored.body[..], entry.event.encode());
        let record = stored.record().unwrap();
        assert_eq!((record.session, record.epoch), (lease.session, lease.epoch));
        assert_eq!(record.event, *entry.event);
        assert_eq!((record.at, record.trace, record.turn), (entry.at, entry.trace, entry.turn));
    }
}

/// For positions before and after the head; nothing is written.
pub async fn an_append_at_a_wrong_position_is_a_conflict_that_names_the_head(fixture: &Fixture) {
    let lease = fixture.open().await;
    fixture.append(&lease, 0, 3).await;
    for wrong in [0, 2, 4, 1000, u64::MAX] {
        let append = Append::new(&lease, wrong, fixture.notes(1, 1));
        assert_eq!(fixture.journal.append(append).await, Err(AppendError::Conflict { head: 3 }));
    }
    assert_eq!(fixture.append(&lease, 3, 1).await, 4);
    assert_eq!(fixture.read_all(lease.session, 0).await.len(), 4);
}

/// The other appends get a conflict that names the head.
pub async fn of_appends_that_race_for_a_position_exactly_one_wins(fixture: &Fixture) {
    let lease = fixture.open().await;
    for expected in 0..20 {
        let racers = (0..8_u64).map(|racer| {
            let entries = vec![fixture.entry(note(racer))];
            fixture.journal.append(Append::new(&lease, expected, entries))
        });
        let ends: Vec<_> = racers.collect::<FuturesUnordered<_>>().collect().await;
        let won = ends.iter().filter(|end| **end == Ok(expected + 1)).count();
        let conflict = AppendError::Conflict { head: expected + 1 };
        let lost = ends.iter().filter(|end| **end == Err(conflict.clone())).count();
        assert_eq!((won, lost), (1, 7), "{ends:?}");
    }
}

/// Neither a record nor an answer nor a snapshot.
pub async fn an_append_that_failed_leaves_nothing_behind(fixture: &Fixture) {
    let lease = fixture.open().await;
    fixture.journal.submit(lease.session, message("a", "x")).await.unwrap();
    let answer = budao_core::event::Answer::Accepted { at: 0 };
    let append = Append {
        answers: vec![("a".into(), answer)],
        snapshot: Some(b"state".to_vec()),
        ..Append::new(&lease, 7, fixture.notes(1, 2))
    };
    assert_eq!(fixture.journal.append(append).await, Err(AppendError::Conflict { head: 0 }));
    assert_eq!(fixture.journal.inbox(lease.session).await.unwrap().len(), 1);
    assert_eq!(fixture.journal.snapshot(lease.session).await.unwrap(), None);
    assert_eq!(fixture.read_all(lease.session, 0).await, []);
}

/// Many sessions at once, each with its own positions.
pub async fn sessions_do_not_disturb_each_other(fixture: &Fixture) {
    let mut leases = Vec::new();
    for _ in 0..32 {
        leases.push(fixture.open().await);
    }
    let writers = leases.iter().map(|lease| async move {
        let mut head = 0;
        for count in 1..=10 {
            head = fixture.append(lease, head, count).await;
        }
        head
    });
    let heads: Vec<Seq> = writers.collect::<FuturesUnordered<_>>().collect().await;
    assert!(heads.iter().all(|head| *head == 55), "{heads:?}");
    for lease in &leases {
        let records = fixture.read_all(lease.session, 0).await;
        assert!(records.iter().all(|record| record.session == lease.session));
        assert!(records.iter().all(|record| number(record) == record.seq));
        assert_eq!(records.len(), 55);
    }
}

/// A page has at least one record, of any size.
pub async fn pages_obey_their_limits_and_always_move(fixture: &Fixture) {
    let lease = fixture.open().await;
    let mut head = 0;
    for count in [1, 7, 20, 2] {
        head = fixture.append(&lease, head, count).await;
    }
    let all = fixture.read_all(lease.session, 0).await;
    let size = |range: std::ops::Range<usize>| all[range].iter().map(|r| r.body.len()).sum();
    for after in 0..=head {
        let start = usize::try_from(after).unwrap();
        for records in [0, 1, 3, 8, 100] {
            let limits = PageLimits { records, bytes: usize::MAX };
            let page = fixture.journal.read(lease.session, after, limits).await.unwrap();
            let end = (start + records.max(1)).min(all.len());
            assert_eq!(page.records, all[start..end], "after {after}, {records} records");
            assert_eq!((page.head, page.first_available, page.gap), (head, 1, None));
        }
        for wanted in 1..=3 {
            let end = (start + wanted).min(all.len());
            let limits = PageLimits { records: 100, bytes: size(start..end) };
            let page = fixture.journal.read(lease.session, after, limits).await.unwrap();
            assert_eq!(page.records, all[start..end], "after {after}, {wanted} records of bytes");
        }
        let limits = PageLimits { records: 100, bytes: 0 };
        let page = fixture.journal.read(lease.session, after, limits).await.unwrap();
        assert_eq!(page.records, all[start..(start + 1).min(all.len())]);
    }
}

/// By the contract, such a position means that the history was replaced.
pub async fn a_position_beyond_the_head_is_an_epoch_mismatch(fixture: &Fixture) {
    let lease = fixture.open().await;
    fixture.append(&lease, 0, 2).await;
    for beyond in [3, u64::MAX] {
        let limits = PageLimits::default();
        let fault = fixture.journal.read(lease.session, beyond, limits).await.unwrap_err();
        assert_eq!(fault.kind(), Kind::EpochMismatch);
        let first = fixture.journal.follow(lease.session, beyond).next().await.unwrap();
        assert_eq!(first.unwrap_err().kind(), Kind::EpochMismatch);
    }
}

/// In every operation that takes a session.
pub async fn an_unknown_session_is_said_to_be_unknown(fixture: &Fixture) {
    let (journal, session) = (&fixture.journal, fixture.id());
    let faults = [
        journal.read(session, 0, PageLimits::default()).await.unwrap_err(),
        journal.submit(session, message("a", "x")).await.unwrap_err(),
        journal.inbox(session).await.unwrap_err(),
        journal.answer(session, &"a".into()).await.unwrap_err(),
        journal.await_answer(session, &"a".into()).await.unwrap_err(),
        journal.snapshot(session).await.unwrap_err(),
        journal.put_blob(session, "x".into()).await.unwrap_err(),
        journal.follow(session, 0).next().await.unwrap().unwrap_err(),
    ];
    for fault in faults {
        assert_eq!(fault.kind(), Kind::UnknownSession, "{fault}");
    }
    assert_eq!(journal.info(session).await.unwrap(), None);
    assert_eq!(journal.blob(Digest::of(b"x")).await.unwrap(), None);
    assert!(!journal.delete(session).await.unwrap());
    let append = Append::new(&fixture.open().await, 0, vec![]);
    let append = Append { session, ..append };
    assert_eq!(journal.append(append).await, Err(AppendError::Fenced));
}

/// A page is never partial or out of order, and the head never decreases.
pub async fn readers_beside_a_writer_see_whole_prefixes(fixture: &Fixture) {
    let lease = fixture.open().await;
    let writer = async {
        let mut head = 0;
        for round in 0..100 {
            head = fixture.append(&lease, head, 1 + round % 5).await;
        }
        head
    };
    let reader = async {
        let (mut head, mut pages) = (0, 0);
        while head < 300 {
            let limits = PageLimits::default();
            let page = fixture.journal.read(lease.session, 0, limits).await.unwrap();
            assert!(page.head >= head, "the head went back from {head} to {}", page.head);
            let seqs: Vec<Seq> = page.records.iter().map(|record| record.seq).collect();
            assert_eq!(seqs, (1..=page.head).collect::<Vec<Seq>>());
            assert!(page.records.iter().all(|record| number(record) == record.seq));
            (head, pages) = (page.head, pages + 1);
        }
        pages
    };
    let (head, first, second, third) = tokio::join!(writer, reader, async { 0 }, async { 0 });
    assert_eq!(head, 300);
    assert!(first + second + third > 0);
}

/// The newest snapshot is returned; older ones need not be kept.
pub async fn a_snapshot_names_the_position_it_covers(fixture: &Fixture) {
    let lease = fixture.open().await;
    assert_eq!(fixture.journal.snapshot(lease.session).await.unwrap(), None);
    let mut head = 0;
    for round in 1..=3_u64 {
        let append = Append {
            snapshot: Some(round.to_le_bytes().to_vec()),
            ..Append::new(&lease, head, fixture.notes(head + 1, round))
        };
        head = fixture.journal.append(append).await.unwrap();
        let snapshot = fixture.journal.snapshot(lease.session).await.unwrap().unwrap();
        assert_eq!((snapshot.seq, &snapshot.body[..]), (head, &round.to_le_bytes()[..]));
        head = fixture.append(&lease, head, 2).await;
        let same = fixture.journal.snapshot(lease.session).await.unwrap().unwrap();
        assert_eq!(same, snapshot);
    }
}
