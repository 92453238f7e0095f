//! Tests of retention, deletion and stored outputs.

use std::time::Duration;

use budao_core::{
    event::{Answer, Event, Seq, StopReason},
    fault::Kind,
    limits::Limits,
    message::{Block, Usage},
    session::Session,
};
use bytes::Bytes;

use super::{
    Fixture,
    fixture::{TTL, fault, message, number},
};
use crate::{
    contract::{
        Append, AppendError, Digest, Gap, GapReason, Lease, PageLimits, Retention, RetentionReport,
        SubmitOutcome,
    },
    fold, fold_at,
};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Appends `count` records, three at a time, then a snapshot that covers all of them.
async fn covered(fixture: &Fixture, count: u64) -> Lease {
    let lease = fixture.open().await;
    let mut head = 0;
    while head < count {
        head = fixture.append(&lease, head, 3.min(count - head)).await;
    }
    let append = Append { snapshot: Some(vec![7]), ..Append::new(&lease, head, vec![]) };
    fixture.journal.append(append).await.unwrap();
    lease
}

async fn check_gap(fixture: &Fixture, lease: &Lease, to: Seq, head: Seq, reason: GapReason) {
    for after in 0..=head {
        let limits = PageLimits::default();
        let page = fixture.journal.read(lease.session, after, limits).await.unwrap();
        let gap = (after < to).then_some(Gap { from: after + 1, to, reason });
        assert_eq!(page.gap, gap, "after {after}");
        assert_eq!((page.first_available, page.head), (to + 1, head));
        let seqs: Vec<Seq> = page.records.iter().map(|record| record.seq).collect();
        assert_eq!(seqs, (after.max(to) + 1..=head).collect::<Vec<Seq>>());
        assert!(page.records.iter().all(|record| number(record) == record.seq));
    }
}

/// The state must stay foldable: the snapshot is unusable, and the records before it are gone.
pub async fn retention_removes_nothing_that_the_state_needs(fixture: &Fixture) {
    let lease = fixture.open().await;
    let head = fixture.append(&lease, 0, 10).await;
    let append =
        Append { snapshot: Some(vec![1]), ..Append::new(&lease, head, fixture.notes(11, 2)) };
    fixture.journal.append(append).await.unwrap();
    fixture.append(&lease, 12, 8).await;
    let retention = Retention { records: Some(8), ..Retention::default() };
    let retained = fixture.journal.retain(retention).await.unwrap();
    assert_eq!(retained.records, 12);
    let retention = Retention { records: Some(1), ..Retention::default() };
    let again = fixture.journal.retain(retention).await.unwrap();
    assert_eq!(again, RetentionReport::default(), "no state can be made without the first records");
    check_gap(fixture, &lease, 12, 20, GapReason::Count).await;
}

/// Also of a session that its writer never made a snapshot of, and of one that grew since its last snapshot.
pub async fn retention_keeps_the_requested_number_of_records(fixture: &Fixture) {
    let lease = fixture.open().await;
    fixture.append(&lease, 0, 10).await;
    let (before, _) = fold(&*fixture.journal, lease.session).await.unwrap();
    let retention = Retention { records: Some(3), ..Retention::default() };
    assert_eq!(fixture.journal.retain(retention.clone()).await.unwrap().records, 7);
    check_gap(fixture, &lease, 7, 10, GapReason::Count).await;
    assert_eq!(fold(&*fixture.journal, lease.session).await.unwrap(), (before, 10));
    fixture.append(&lease, 10, 30).await;
    let (before, _) = fold(&*fixture.journal, lease.session).await.unwrap();
    assert_eq!(fixture.journal.retain(retention.clone()).await.unwrap().records, 30);
    check_gap(fixture, &lease, 37, 40, GapReason::Count).await;
    assert_eq!(fold(&*fixture.journal, lease.session).await.unwrap().0, before);
    let again = fixture.journal.retain(retention).await.unwrap();
    assert_eq!(again, RetentionReport::default(), "there is nothing more to remove");
}

/// Repetitions are still recognised, pending commands stay whole.
pub async fn the_content_of_a_command_goes_with_its_records(fixture: &Fixture) {
    let lease = fixture.open().await;
    let submit =
        async |id: &str, text: &str| fixture.journal.submit(lease.session, message(id, text)).await;
    for id in ["old", "refused", "new", "pending"] {
        submit(id, &format!("words of {id}")).await.unwrap();
    }
    let refused = Answer::Rejected { fault: fault(Kind::QuestionNotOpen) };
    let old = Answer::Accepted { at: 0 };
    let append = Append {
        answers: vec![("old".into(), old.clone()), ("refused".into(), refused.clone())],
        ..Append::new(&lease, 0, fixture.notes(1, 5))
    };
    fixture.journal.append(append).await.unwrap();
    let new = Answer::Accepted { at: 5 };
    let append = Append {
        answers: vec![("new".into(), new.clone())],
        ..Append::new(&lease, 5, fixture.notes(6, 2))
    };
    fixture.journal.append(append).await.unwrap();
    let retention = Retention { records: Some(2), ..Retention::default() };
    assert_eq!(fixture.journal.retain(retention).await.unwrap().records, 5);
    let mut lines = Vec::new();
    // A journal without a file has no export.
    if fixture.journal.export(None, &mut lines).await.is_ok() {
        let lines = String::from_utf8(lines).unwrap();
        for (id, is_there) in [("old", false), ("refused", false), ("new", true), ("pending", true)]
        {
            assert_eq!(lines.contains(&format!("words of {id}")), is_there, "{id}");
        }
    }
    for (id, answer) in [("old", old), ("refused", refused), ("new", new)] {
        let again = submit(id, &format!("words of {id}")).await.unwrap();
        assert_eq!(again, SubmitOutcome::Answered(answer), "{id}");
        let other = submit(id, "other words").await.unwrap_err();
        assert_eq!(other.kind(), Kind::CommandRepeated, "{id}");
    }
    let waiting = fixture.journal.inbox(lease.session).await.unwrap();
    assert_eq!(waiting, [message("pending", "words of pending")]);
}

/// At any position, also in the middle of an append.
pub async fn retention_by_count_leaves_an_exact_gap(fixture: &Fixture) {
    let lease = covered(fixture, 20).await;
    for keep in [19, 12, 11, 3, 1] {
        let retention = Retention { records: Some(keep), ..Retention::default() };
        fixture.journal.retain(retention).await.unwrap();
        check_gap(fixture, &lease, 20 - keep, 20, GapReason::Count).await;
    }
    assert_eq!(fixture.append(&lease, 20, 2).await, 22);
    check_gap(fixture, &lease, 19, 22, GapReason::Count).await;
}

/// Appends six messages one by one with a snapshot after the fourth, and removes the first four. Returns the folded
/// state.
async fn folded(fixture: &Fixture, body: impl Fn(&Session) -> Vec<u8>) -> (Lease, Session) {
    let lease = fixture.open().await;
    let mut state = Session::default();
    for number in 1..=6_u64 {
        let (command, content) = (format!("m{number}"), vec![Block::Text(number.to_string())]);
        let event = Event::MessageAccepted { command: command.into(), content };
        let entry = fixture.entry(event);
        state.apply(&entry.event, entry.at, entry.trace);
        let snapshot = (number == 4).then(|| body(&state));
        let append = Append { snapshot, ..Append::new(&lease, number - 1, vec![entry]) };
        fixture.journal.append(append).await.unwrap();
    }
    let retention = Retention { records: Some(2), ..Retention::default() };
    assert_eq!(fixture.journal.retain(retention).await.unwrap().records, 4);
    (lease, state)
}

/// Gateways read sessions whose first records were removed.
pub async fn a_fold_needs_nothing_from_before_its_snapshot(fixture: &Fixture) {
    let (lease, state) = folded(fixture, |state| serde_json::to_vec(state).unwrap()).await;
    let read = fold(&*fixture.journal, lease.session).await.unwrap();
    assert_eq!(read, (state.clone(), 4));
    assert_eq!(fold_at(&*fixture.journal, lease.session, 6).await.unwrap(), state);
    assert_eq!(fold_at(&*fixture.journal, lease.session, 5).await.unwrap().queue.len(), 5);
    let before = fold_at(&*fixture.journal, lease.session, 3).await.unwrap_err();
    assert_eq!(before.kind(), Kind::HistoryGap, "what a snapshot swallowed cannot be told apart");
    let beyond = fold_at(&*fixture.journal, lease.session, 7).await.unwrap_err();
    assert_eq!(beyond.kind(), Kind::EpochMismatch);
}

/// A partial history is never returned as a complete one.
pub async fn a_fold_without_a_snapshot_or_its_records_is_a_gap(fixture: &Fixture) {
    let (lease, _) = folded(fixture, |_| b"of another version".to_vec()).await;
    let fault = fold(&*fixture.journal, lease.session).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::HistoryGap);
    let unknown = fold(&*fixture.journal, fixture.id()).await.unwrap_err();
    assert_eq!(unknown.kind(), Kind::UnknownSession);
}

/// The remaining records fit the bound.
pub async fn retention_by_bytes_leaves_an_exact_gap(fixture: &Fixture) {
    let lease = covered(fixture, 20).await;
    let all = fixture.read_all(lease.session, 0).await;
    let bytes = all[14..].iter().map(|record| record.body.len() as u64).sum::<u64>();
    let retention = Retention { bytes: Some(bytes), ..Retention::default() };
    assert_eq!(fixture.journal.retain(retention).await.unwrap().records, 14);
    check_gap(fixture, &lease, 14, 20, GapReason::Bytes).await;
}

/// By the time of each record.
pub async fn retention_by_age_leaves_an_exact_gap(fixture: &Fixture) {
    let lease = fixture.open().await;
    let head = fixture.append(&lease, 0, 4).await;
    fixture.clock.advance(DAY);
    let append =
        Append { snapshot: Some(vec![1]), ..Append::new(&lease, head, fixture.notes(5, 4)) };
    fixture.journal.append(append).await.unwrap();
    fixture.clock.advance(Duration::from_secs(10));
    let retention = Retention { record_age: Some(DAY), ..Retention::default() };
    assert_eq!(fixture.journal.retain(retention).await.unwrap().records, 4);
    check_gap(fixture, &lease, 4, 8, GapReason::Age).await;
}

/// The head survives the removal of every record.
pub async fn appending_goes_on_after_everything_was_removed(fixture: &Fixture) {
    let lease = covered(fixture, 7).await;
    fixture.clock.advance(DAY);
    let retention = Retention { record_age: Some(Duration::ZERO), ..Retention::default() };
    assert_eq!(fixture.journal.retain(retention).await.unwrap().records, 7);
    check_gap(fixture, &lease, 7, 7, GapReason::Age).await;
    fixture.journal.release(&lease).await.unwrap();
    let next = fixture.lease(lease.session, "next").await;
    assert_eq!(next.head, 7);
    assert_eq!(fixture.append(&next, 7, 2).await, 9);
    check_gap(fixture, &next, 7, 9, GapReason::Age).await;
}

/// Sessions with a writer or with pending commands stay too.
pub async fn old_finished_sessions_go_and_unfinished_ones_stay(fixture: &Fixture) {
    let started = Event::TurnStarted { message: "m".into() };
    let ended = Event::TurnEnded {
        stop: StopReason::EndTurn,
        fault: None,
        steps: 1,
        usage: Usage::default(),
    };
    let finished = fixture.open().await;
    fixture.append_events(&finished, 0, vec![started.clone(), ended.clone()]).await;
    let running = fixture.open().await;
    fixture.append_events(&running, 0, vec![started]).await;
    let waiting = fixture.open().await;
    fixture.append_events(&waiting, 0, vec![ended.clone()]).await;
    fixture.journal.submit(waiting.session, message("m", "x")).await.unwrap();
    let empty = fixture.open().await;
    fixture.clock.advance(DAY * 31);
    let leased = fixture.open().await;
    fixture.clock.advance(DAY * 31);
    fixture.journal.renew(&leased, TTL).await.unwrap();
    let recent = fixture.open().await;
    fixture.append_events(&recent, 0, vec![ended]).await;
    let retention = Retention { session_age: Some(DAY * 30), ..Retention::default() };
    let retained = fixture.journal.retain(retention).await.unwrap();
    assert_eq!((retained.sessions, retained.records), (2, 0));
    for (lease, is_there) in [
        (&finished, false),
        (&empty, false),
        (&running, true),
        (&waiting, true),
        (&leased, true),
        (&recent, true),
    ] {
        let info = fixture.journal.info(lease.session).await.unwrap();
        assert_eq!(info.is_some(), is_there, "{lease:?}");
    }
}

/// For readers, writers, senders of commands, and views.
pub async fn a_deleted_session_is_unknown_to_every_reader(fixture: &Fixture) {
    let lease = covered(fixture, 5).await;
    fixture.journal.submit(lease.session, message("m", "x")).await.unwrap();
    let digest = fixture.journal.put_blob(lease.session, "output".into()).await.unwrap();
    let kept = fixture.open().await;
    fixture.append(&kept, 0, 2).await;
    assert!(fixture.journal.delete(lease.session).await.unwrap());
    assert!(!fixture.journal.delete(lease.session).await.unwrap());
    let append = Append::new(&lease, 5, fixture.notes(6, 1));
    assert_eq!(fixture.journal.append(append).await, Err(AppendError::Fenced));
    let fault = fixture.journal.renew(&lease, TTL).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::Fenced);
    let fault = fixture.journal.read(lease.session, 0, PageLimits::default()).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::UnknownSession);
    assert_eq!(fixture.journal.blob(digest).await.unwrap(), None);
    let listed = fixture.journal.sessions(crate::Filter::default()).await.unwrap();
    assert_eq!(listed.iter().map(|s| s.session).collect::<Vec<_>>(), [kept.session]);
    assert_eq!(fixture.append(&kept, 2, 1).await, 3);
    assert_eq!(fixture.read_all(kept.session, 0).await.len(), 3);
}

/// The new history has another epoch and begins at position 1; the old writer stays fenced.
pub async fn a_session_made_again_is_another_incarnation(fixture: &Fixture) {
    let old = covered(fixture, 5).await;
    fixture.journal.delete(old.session).await.unwrap();
    let new = fixture.lease(old.session, "writer").await;
    assert_ne!(new.epoch, old.epoch);
    assert_eq!(new.head, 0);
    let append = Append::new(&old, 0, fixture.notes(1, 1));
    assert_eq!(fixture.journal.append(append).await, Err(AppendError::Fenced));
    assert_eq!(fixture.append(&new, 0, 1).await, 1);
    let records = fixture.read_all(new.session, 0).await;
    assert_eq!((records.len(), records[0].epoch), (1, new.epoch));
    assert_eq!(fixture.journal.snapshot(new.session).await.unwrap(), None);
    assert_eq!(fixture.journal.inbox(new.session).await.unwrap(), []);
}

/// An output is removed after the last session that uses it is deleted.
pub async fn outputs_are_kept_by_content_as_long_as_a_session_uses_them(fixture: &Fixture) {
    let (first, second) = (fixture.open().await, fixture.open().await);
    let output = Bytes::from(vec![b'x'; 300_000]);
    let digest = fixture.journal.put_blob(first.session, output.clone()).await.unwrap();
    assert_eq!(digest, Digest::of(&output));
    assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
    for lease in [&first, &second, &second] {
        let again = fixture.journal.put_blob(lease.session, output.clone()).await.unwrap();
        assert_eq!(again, digest);
    }
    fixture.journal.delete(first.session).await.unwrap();
    fixture.journal.retain(Retention::default()).await.unwrap();
    assert_eq!(fixture.journal.blob(digest).await.unwrap(), Some(output));
    fixture.journal.delete(second.session).await.unwrap();
    fixture.journal.retain(Retention::default()).await.unwrap();
    assert_eq!(fixture.journal.blob(digest).await.unwrap(), None);
}

/// The fault names the limit.
pub async fn an_output_above_the_limit_is_refused(fixture: &Fixture) {
    let lease = fixture.open().await;
    let output = Bytes::from(vec![0; Limits::default().output_bytes_kept + 1]);
    let fault = fixture.journal.put_blob(lease.session, output).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::LimitReached);
}
