//! Sessions move between a file and PostgreSQL, both ways, and stay what they were.

use std::sync::Arc;

use crate::support::{append, entries, lease, session, world};
use budao_core::event::Answer;
use budao_journal::{
    Append, Digest, Journal, OnceOwner, OnceSettlement, PageLimits, Retention,
    conformance::fixture::message,
    implement::transfer::{CopyReport, copy},
};
use budao_testkit::postgres::PostgresServer;

/// A journal with sessions of several kinds: plain, trimmed, with commands and outputs, empty.
async fn fill(journal: &dyn Journal) {
    let trimmed = lease(journal, session(2), "writer").await;
    append(journal, &trimmed, 0, 20).await;
    let with_snapshot =
        Append { snapshot: Some(vec![7; 99]), ..Append::new(&trimmed, 20, entries(20, 3, 9)) };
    journal.append(with_snapshot).await.unwrap();
    append(journal, &trimmed, 23, 4).await;
    journal.retain(Retention { records: Some(8), ..Retention::default() }).await.unwrap();
    let plain = lease(journal, session(1), "writer").await;
    let head = append(journal, &plain, 0, 700).await;
    append(journal, &plain, head, 1500).await;
    let busy = lease(journal, session(3), "writer").await;
    for id in ["a", "b"] {
        journal.submit(busy.session, message(id, "x")).await.unwrap();
    }
    let answers = vec![("a".into(), Answer::Accepted { at: 1 })];
    journal.append(Append { answers, ..Append::new(&busy, 0, entries(0, 1, 5)) }).await.unwrap();
    journal.put_blob(busy.session, "an output".into()).await.unwrap();
    for (name, outcome) in [("known", Some("done")), ("open", None)] {
        let owner = OnceOwner { session: busy.session, call: name.into() };
        journal.claim_once(Digest::of(name.as_bytes()), owner.clone(), 2).await.unwrap();
        if let Some(outcome) = outcome {
            let done = OnceSettlement::Done(outcome.into());
            journal.settle_once(owner, 2, done).await.unwrap();
        }
    }
    let version = journal.set_note("cursor", 0, b"1".to_vec()).await.unwrap();
    journal.set_note("cursor", version.unwrap(), b"2".to_vec()).await.unwrap();
    let empty = lease(journal, session(4), "writer").await;
    for lease in [plain, trimmed, busy, empty] {
        journal.release(&lease).await.unwrap();
    }
}

/// Compares all that a reader can see.
async fn check_same(ours: &dyn Journal, theirs: &dyn Journal) {
    for number in 1..=4 {
        let id = session(number);
        assert_eq!(ours.info(id).await.unwrap(), theirs.info(id).await.unwrap(), "{number}");
        let mut after = 0;
        loop {
            let limits = PageLimits::default();
            let page = ours.read(id, after, limits).await.unwrap();
            assert_eq!(page, theirs.read(id, after, limits).await.unwrap(), "{number}");
            let Some(last) = page.records.last() else { break };
            after = last.seq;
        }
        assert_eq!(ours.snapshot(id).await.unwrap(), theirs.snapshot(id).await.unwrap());
        assert_eq!(ours.inbox(id).await.unwrap(), theirs.inbox(id).await.unwrap());
        for command in ["a", "b"] {
            let command = command.into();
            let answer = ours.answer(id, &command).await.unwrap();
            assert_eq!(answer, theirs.answer(id, &command).await.unwrap());
        }
    }
    let digest = budao_journal::Digest::of(b"an output");
    assert_eq!(theirs.blob(digest).await.unwrap().unwrap(), "an output");
    let (ours_, theirs_) = (ours.transfer().unwrap(), theirs.transfer().unwrap());
    let keys = ours_.once_keys(None, 9).await.unwrap();
    assert_eq!((keys.len(), &keys), (2, &theirs_.once_keys(None, 9).await.unwrap()));
    assert_eq!(ours_.notes().await.unwrap(), theirs_.notes().await.unwrap());
    let filter = budao_journal::Filter::default;
    assert_eq!(ours.sessions(filter()).await.unwrap().len(), 3);
    assert_eq!(ours.unfinished(None, 9).await.unwrap(), theirs.unfinished(None, 9).await.unwrap());
}

async fn run(from: &dyn Journal, to: &dyn Journal) -> CopyReport {
    copy(from.transfer().unwrap(), to.transfer().unwrap(), &|_| {}).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_up_and_down_again_keeps_ids_positions_epochs_and_traces() {
    let Some(server) = PostgresServer::shared() else { return };
    let directory = tempfile::tempdir().unwrap();
    let open_file = |name: &str| {
        let file = directory.path().join(name).display().to_string();
        async move { budao_journal::open(&file, world()).await.unwrap() }
    };
    let source = open_file("source.db").await;
    fill(&*source).await;
    let above: Arc<dyn Journal> =
        Arc::new(crate::support::open(&server.url(&crate::support::schema()), world()).await);
    let report = run(&*source, &*above).await;
    assert_eq!((report.sessions, report.conflicts), (4, 0));
    assert_eq!((report.records, report.commands, report.blobs), (2200 + 8 + 1, 2, 1));
    assert_eq!((report.once_keys, report.notes), (2, 1));
    check_same(&*source, &*above).await;
    let again = run(&*source, &*above).await;
    assert_eq!(again, CopyReport { sessions: 4, ..CopyReport::default() }, "nothing is left to do");
    let below = open_file("below.db").await;
    run(&*above, &*below).await;
    check_same(&*source, &*below).await;
    for journal in [source, above, below] {
        journal.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_goes_on_where_the_last_one_stopped_and_leaves_other_histories_alone() {
    let Some(server) = PostgresServer::shared() else { return };
    let source: Arc<dyn Journal> =
        Arc::new(crate::support::open(&server.url(&crate::support::schema()), world()).await);
    fill(&*source).await;
    let target: Arc<dyn Journal> =
        Arc::new(crate::support::open(&server.url(&crate::support::schema()), world()).await);
    let other = lease(&*target, session(4), "writer").await;
    append(&*target, &other, 0, 1).await;
    target.release(&other).await.unwrap();
    let first = run(&*source, &*target).await;
    assert_eq!((first.sessions, first.conflicts), (3, 1));
    // The source goes on: records, a command, and the answer to one that waited.
    let writer = lease(&*source, session(3), "writer").await;
    let answers = vec![("b".into(), Answer::Accepted { at: 2 })];
    source.append(Append { answers, ..Append::new(&writer, 1, entries(1, 5, 5)) }).await.unwrap();
    source.submit(session(3), message("c", "x")).await.unwrap();
    let second = run(&*source, &*target).await;
    assert_eq!((second.records, second.commands, second.conflicts), (5, 2, 1));
    let answer = target.answer(session(3), &"b".into()).await.unwrap();
    assert_eq!(answer, Some(Answer::Accepted { at: 2 }));
    assert_eq!(crate::support::read_all(&*target, session(3)).await.len(), 6);
    source.close().await;
    target.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_exported_from_postgresql_is_imported_with_new_epochs() {
    let Some(server) = PostgresServer::shared() else { return };
    let source = crate::support::open(&server.url(&crate::support::schema()), world()).await;
    fill(&source).await;
    let target = crate::support::open(&server.url(&crate::support::schema()), world()).await;
    let mut lines = Vec::new();
    let (out, into): (&dyn Journal, &dyn Journal) = (&source, &target);
    let exported = out.export(None, &mut lines).await.unwrap();
    assert_eq!((exported.sessions, exported.records, exported.cut), (4, 2209, 0));
    let imported = into.import(&mut &lines[..]).await.unwrap();
    assert_eq!((imported.sessions, imported.records, imported.skipped), (4, 2209, 0));
    let again = into.import(&mut &lines[..]).await.unwrap();
    assert_eq!((again.sessions, again.skipped), (0, 4));
    let epoch = |info: Option<budao_journal::HistoryInfo>| info.unwrap().epoch;
    let ours = epoch(out.info(session(2)).await.unwrap());
    assert_ne!(ours, epoch(into.info(session(2)).await.unwrap()));
    out.close().await;
    into.close().await;
}
