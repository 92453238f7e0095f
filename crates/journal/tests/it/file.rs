//! The file: who may read it, what it is refused for, how it is copied, and what happens when it goes away.

use std::{os::unix::fs::PermissionsExt, path::Path};

use crate::support::{open, options};
use budao_core::{
    event::Answer,
    fault::{Fault, Kind},
    limits::Limits,
};
use budao_journal::{
    Admin, Append, AppendError, Filter, GapReason, Inbox, Journal, Memory, PageLimits, Reader,
    Retention, Writer,
    conformance::fixture::{manual_world, message},
    sqlite::{Sqlite, SqliteOptions},
};
use budao_testkit::{
    records::{self, append, entries, lease, read_all, session},
    world::system as world,
};
use rusqlite::Connection;

async fn refused(path: &Path) -> Fault {
    Sqlite::open(path, world(), options()).await.unwrap_err()
}

#[tokio::test]
async fn only_the_owner_can_read_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    std::fs::write(&path, "").unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    let journal = Sqlite::open(&path, world(), SqliteOptions::default()).await.unwrap();
    let lease = lease(&journal, session(1), "w").await;
    append(&journal, &lease, 0, 1).await;
    journal.backup(&directory.path().join("copy.db")).await.unwrap();
    let mut names = Vec::new();
    for file in std::fs::read_dir(directory.path()).unwrap() {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", file.path());
        names.push(file.file_name().into_string().unwrap());
    }
    names.sort();
    assert_eq!(
        names,
        [
            "copy.db",
            "journal.db",
            "journal.db-reserve",
            "journal.db-shm",
            "journal.db-wal",
            "journal.db-watermark"
        ]
    );
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    open(&path).await.close().await;
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 999).unwrap();
    let fault = refused(&path).await;
    assert_eq!(fault.kind(), Kind::JournalNewer);
    assert_eq!(fault.detail().text(budao_core::fault::Fact::Version), Some("999"));
    let fault = Sqlite::open_read_only(&path, world(), options()).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::JournalNewer);
    assert_eq!(Sqlite::check(&path).await.unwrap_err().kind(), Kind::JournalNewer);
}

#[tokio::test]
async fn a_file_of_an_unreleased_version_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    open(&path).await.close().await;
    for version in ["1", "7"] {
        Connection::open(&path).unwrap().pragma_update(None, "user_version", version).unwrap();
        let before = std::fs::read(&path).unwrap();
        let fault = refused(&path).await;
        assert_eq!(fault.kind(), Kind::JournalOutdated);
        assert_eq!(fault.detail().text(budao_core::fault::Fact::Version), Some(version));
        let fault = Sqlite::open_read_only(&path, world(), options()).await.unwrap_err();
        assert_eq!(fault.kind(), Kind::JournalOutdated);
        assert_eq!(Sqlite::check(&path).await.unwrap_err().kind(), Kind::JournalOutdated);
        assert_eq!(std::fs::read(&path).unwrap(), before, "nothing in it changed");
    }
}

#[tokio::test]
async fn a_file_that_is_no_journal_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let foreign = directory.path().join("foreign.db");
    Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE t(x)").unwrap();
    assert_eq!(refused(&foreign).await.kind(), Kind::NotAJournal);
    let text = directory.path().join("notes.txt");
    std::fs::write(&text, "not a database, only words and words and more words".repeat(40))
        .unwrap();
    let before = std::fs::read(&text).unwrap();
    assert_eq!(refused(&text).await.kind(), Kind::NotAJournal);
    assert_eq!(std::fs::read(&text).unwrap(), before);
    let nowhere = directory.path().join("no/such/directory/journal.db");
    assert_eq!(refused(&nowhere).await.kind(), Kind::NoJournal);
}

#[tokio::test]
async fn what_was_written_is_there_after_closing_and_opening() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    let mut head = 0;
    let mut tokens = Vec::new();
    for round in 0..5 {
        let journal = open(&path).await;
        let lease = lease(&journal, session(1), "w").await;
        assert_eq!(lease.head, head);
        tokens.push(lease.token);
        head = append(&journal, &lease, head, 10 + round).await;
        assert_eq!(read_all(&journal, session(1)).await.len() as u64, head);
        journal.close().await;
        let refused = journal.append(Append::new(&lease, head, entries(head, 1, 1))).await;
        let Err(AppendError::Failed(fault)) = refused else { panic!("{refused:?}") };
        assert_eq!(fault.kind(), Kind::ShuttingDown);
    }
    assert!(tokens.is_sorted());
    assert_eq!(Sqlite::check(&path).await.unwrap().findings, []);
}

#[tokio::test]
async fn a_removed_file_stops_writing_and_one_put_back_resumes_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    let aside = directory.path().join("aside.db");
    let journal = open(&path).await;
    let lease = lease(&journal, session(1), "w").await;
    append(&journal, &lease, 0, 3).await;
    std::fs::rename(&path, &aside).unwrap();
    let gone = journal.append(Append::new(&lease, 3, entries(3, 1, 1))).await;
    let Err(AppendError::Failed(fault)) = gone else { panic!("{gone:?}") };
    assert_eq!(fault.kind(), Kind::JournalGone);
    assert_eq!(read_all(&journal, session(1)).await.len(), 3, "readers go on");
    std::fs::write(&path, "another file").unwrap();
    let gone = journal.append(Append::new(&lease, 3, entries(3, 1, 1))).await;
    let Err(AppendError::Failed(fault)) = gone else { panic!("{gone:?}") };
    assert_eq!(fault.kind(), Kind::JournalGone);
    std::fs::rename(&aside, &path).unwrap();
    assert_eq!(append(&journal, &lease, 3, 1).await, 4);
    assert_eq!(read_all(&journal, session(1)).await.len(), 4);
}

#[tokio::test]
async fn a_deleted_session_leaves_no_byte_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    let journal = open(&path).await;
    let marker = "a-marker-that-must-go-1f2e3d";
    let gone = lease(&journal, session(1), "w").await;
    let kept = lease(&journal, session(2), "w").await;
    let mut batch = entries(0, 3, 10);
    let text = marker.repeat(400);
    batch[1].event = budao_core::Event::TextDelta { step: 1, text }.into();
    journal.append(Append::new(&gone, 0, batch)).await.unwrap();
    append(&journal, &kept, 0, 3).await;
    journal.submit(session(1), message("m", marker)).await.unwrap();
    journal.put_blob(session(1), marker.repeat(9000).into()).await.unwrap();
    journal.delete(session(1)).await.unwrap();
    journal.close().await;
    let bytes = std::fs::read(&path).unwrap();
    let found = bytes.windows(marker.len()).any(|window| window == marker.as_bytes());
    assert!(!found, "the marker is still in the file");
    assert!(!directory.path().join("journal.db-wal").exists());
    assert_eq!(Sqlite::check(&path).await.unwrap().findings, []);
}

/// Three sessions: one with everything, one with a gap, one empty.
async fn furnish(journal: &Sqlite) {
    let a = lease(journal, session(1), "w").await;
    append(journal, &a, 0, 7).await;
    for id in ["m1", "m2"] {
        journal.submit(session(1), message(id, "x")).await.unwrap();
    }
    let all = Append {
        answers: vec![("m1".into(), Answer::Accepted { at: 7 })],
        snapshot: Some(b"state at nine".to_vec()),
        ..Append::new(&a, 7, entries(7, 2, 3))
    };
    journal.append(all).await.unwrap();
    append(journal, &a, 9, 3).await;
    journal.put_blob(session(1), "an output".into()).await.unwrap();
    let b = lease(journal, session(2), "w").await;
    let covered = Append { snapshot: Some(vec![1]), ..Append::new(&b, 0, entries(0, 9, 3)) };
    journal.append(covered).await.unwrap();
    let retention = Retention { records: Some(4), ..Retention::default() };
    journal.retain(retention).await.unwrap();
    lease(journal, session(3), "w").await;
}

async fn exported(journal: &Sqlite) -> String {
    let mut out = Vec::new();
    journal.export(None, &mut out).await.unwrap();
    let text = String::from_utf8(out).unwrap();
    // An import is another incarnation; everything else is the same.
    let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
    for line in &mut lines {
        if let Some(at) = line.find("\"epoch\":\"") {
            line.replace_range(at + 9..at + 17, "________");
        }
    }
    lines.join("\n")
}

#[tokio::test]
async fn an_exported_journal_comes_back_the_same_in_another_epoch() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(&directory.path().join("a.db")).await;
    furnish(&journal).await;
    let mut lines = Vec::new();
    let report = journal.export(None, &mut lines).await.unwrap();
    assert_eq!((report.sessions, report.records, report.cut), (3, 4 + 4, 0));
    let other = open(&directory.path().join("b.db")).await;
    let imported = other.import(&mut &lines[..]).await.unwrap();
    assert_eq!((imported.sessions, imported.records, imported.skipped), (3, 8, 0));
    assert_eq!(exported(&other).await, exported(&journal).await);
    let (before, after) =
        (journal.info(session(1)).await.unwrap(), other.info(session(1)).await.unwrap());
    assert_ne!(before.unwrap().epoch, after.unwrap().epoch);
    let page = other.read(session(2), 0, PageLimits::default()).await.unwrap();
    assert_eq!(page.gap.map(|gap| (gap.from, gap.to, gap.reason)), Some((1, 5, GapReason::Count)));
    let again = other.import(&mut &lines[..]).await.unwrap();
    assert_eq!((again.sessions, again.skipped), (0, 3));
    let next = lease(&other, session(2), "w").await;
    assert_eq!(append(&other, &next, 9, 1).await, 10);
    other.close().await;
    assert_eq!(Sqlite::check(&directory.path().join("b.db")).await.unwrap().findings, []);
}

#[tokio::test]
async fn an_import_that_is_cut_anywhere_keeps_whole_sessions_only() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(&directory.path().join("a.db")).await;
    furnish(&journal).await;
    let mut lines = Vec::new();
    journal.export(None, &mut lines).await.unwrap();
    let breaks: Vec<usize> =
        (0..lines.len()).filter(|at| lines[*at] == b'\n').flat_map(|at| [at, at + 1]).collect();
    let whole = exported(&journal).await;
    for cut in breaks.into_iter().filter(|cut| *cut < lines.len() - 1) {
        let path = directory.path().join(format!("{cut}.db"));
        let target = open(&path).await;
        let fault = target.import(&mut &lines[..cut]).await.unwrap_err();
        assert_eq!(fault.kind(), Kind::BadRequest, "cut at {cut}: {fault}");
        let kept = exported(&target).await;
        let kept: Vec<&str> = kept.lines().collect();
        let prefix: Vec<&str> = whole.lines().take(kept.len() - 1).collect();
        assert_eq!(kept[..kept.len() - 1], prefix, "cut at {cut}");
        target.close().await;
    }
}

/// Goal: an imported file is believed no further than it can be checked. Method: files that claim what cannot be.
#[tokio::test]
async fn an_import_that_claims_what_cannot_be_is_refused_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(&directory.path().join("a.db")).await;
    let head = "{\"journal\":1}\n";
    let begin = |removed: u64| {
        let id = session(1);
        format!(
            "{head}{{\"session\":\"{id}\",\"epoch\":\"0000002a\",\"removed_to\":{removed},\"removed_reason\":\"age\"}}\n"
        )
    };
    for claim in [
        begin(u64::MAX),
        begin(u64::MAX - 1),
        begin(1 << 60),
        format!("{}{{\"snapshot\":18446744073709551615,\"body\":\"AAAA\"}}\n", begin(3)),
        format!("{}{{\"end\":\"{}\",\"records\":18446744073709551615}}\n", begin(3), session(1)),
        format!("{head}{head}"),
        format!("{}{{\"done\":1}}\n", begin(3)),
        format!("{}{{\"session\":\"{}\"}}\n", begin(3), session(2)),
    ] {
        let fault = journal.import(&mut claim.as_bytes()).await.unwrap_err();
        assert_eq!(fault.kind(), Kind::BadRequest, "{claim}");
        for number in [1, 2] {
            assert!(journal.info(session(number)).await.unwrap().is_none(), "{claim}");
        }
    }
    let done = format!("{head}{{\"done\":1}}\n");
    let fault = journal.import(&mut done.as_bytes()).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::BadRequest, "a session is missing");
    let mut endless = std::io::BufReader::with_capacity(1 << 20, std::io::repeat(b'x'));
    let fault = journal.import(&mut endless).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::BadRequest);
}

/// Goal: a snapshot that says it stands elsewhere than it does is not gone on from.
#[tokio::test]
async fn a_snapshot_of_another_position_is_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(&directory.path().join("a.db")).await;
    let lease = lease(&journal, session(1), "w").await;
    for forged in [0, 7, 99, u64::MAX] {
        let state = budao_core::session::Session { head: forged, ..Default::default() };
        let head = journal.info(session(1)).await.unwrap().map_or(0, |info| info.head);
        let append = Append {
            snapshot: Some(serde_json::to_vec(&state).unwrap()),
            ..Append::new(&lease, head, entries(head, 1, 10))
        };
        journal.append(append).await.unwrap();
        let (folded, from) = budao_journal::fold(&journal, session(1)).await.unwrap();
        assert_eq!((folded.head, from), (head + 1, 0), "forged {forged}");
    }
}

#[tokio::test]
async fn a_check_reports_its_progress_up_to_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    let journal = open(&path).await;
    furnish(&journal).await;
    journal.close().await;
    let (report, reports) = std::sync::mpsc::channel();
    let found =
        Sqlite::check_with_progress(&path, move |done, all| report.send((done, all)).unwrap());
    assert_eq!(found.await.unwrap().findings, []);
    let progress: Vec<(u64, u64)> = reports.into_iter().collect();
    assert!(progress.is_sorted() && progress.iter().all(|(done, all)| done <= all), "{progress:?}");
    let (done, all) = progress.last().unwrap();
    assert_eq!(done, all, "the last batch was looked at");
}

#[tokio::test]
async fn a_backup_is_made_while_writing_and_restored_as_another_incarnation() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(&directory.path().join("journal.db")).await;
    furnish(&journal).await;
    let target = directory.path().join("copy.db");
    let lease_held = lease(&journal, session(9), "w").await;
    let writing = async {
        let mut head = 0;
        for _ in 0..50 {
            head = append(&journal, &lease_held, head, 3).await;
        }
    };
    let (made, ()) = tokio::join!(journal.backup(&target), writing);
    made.unwrap();
    assert!(journal.backup(&target).await.is_err(), "a backup never overwrites");
    assert_eq!(Sqlite::check(&target).await.unwrap().findings, []);
    let copy = open(&target).await;
    let records = read_all(&copy, session(9)).await;
    assert_eq!(
        records[..],
        read_all(&journal, session(9)).await[..records.len()]
            .iter()
            .cloned()
            .map(|mut record| {
                record.epoch = records[0].epoch;
                record
            })
            .collect::<Vec<_>>()[..]
    );
    let fenced =
        copy.append(Append::new(&lease_held, records.len() as u64, entries(0, 1, 1))).await;
    assert_eq!(fenced, Err(AppendError::Fenced), "leases are not restored");
    for number in [1, 2, 3] {
        let before = journal.info(session(number)).await.unwrap().unwrap();
        let after = copy.info(session(number)).await.unwrap().unwrap();
        assert_eq!(before.head, after.head);
        assert_ne!(before.epoch, after.epoch);
    }
}

#[tokio::test]
async fn a_restored_old_copy_is_detected_and_gets_new_epochs() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    let journal = open(&path).await;
    let lease_held = lease(&journal, session(1), "w").await;
    append(&journal, &lease_held, 0, 3).await;
    journal.close().await;
    let old = std::fs::read(&path).unwrap();
    let journal = open(&path).await;
    let lease_held = lease(&journal, session(1), "w").await;
    append(&journal, &lease_held, 3, 5).await;
    journal.close().await;
    std::fs::write(&path, old).unwrap();
    let found = Sqlite::check(&path).await.unwrap();
    assert_eq!(found.findings.len(), 1, "{found:?}");
    assert!(found.findings[0].description.contains("the journal lost its end"), "{found:?}");
    let journal = open(&path).await;
    let renewed = lease(&journal, session(1), "w").await;
    assert_ne!(renewed.epoch, lease_held.epoch, "positions 4 to 8 were given once");
    assert!(renewed.token > lease_held.token);
    assert_eq!(renewed.head, 3);
    append(&journal, &renewed, 3, 1).await;
    assert!(journal.stats().await.unwrap().lost.is_some());
    journal.close().await;
    let found = Sqlite::check(&path).await.unwrap();
    assert_eq!(found.findings, []);
    assert!(found.lost.is_some(), "what was lost stays told");
}

#[tokio::test]
async fn a_file_opened_for_reading_is_read_and_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    let writer = open(&path).await;
    furnish(&writer).await;
    let reader = Sqlite::open_read_only(&path, world(), options()).await.unwrap();
    assert_eq!(exported(&reader).await, exported(&writer).await);
    writer.sessions(Filter::default()).await.unwrap();
    let listed = reader.sessions(Filter::default()).await.unwrap();
    assert_eq!(listed, writer.sessions(Filter::default()).await.unwrap());
    assert_eq!(reader.delete(session(1)).await.unwrap_err().kind(), Kind::JournalReadOnly);
    let missing = directory.path().join("missing.db");
    let fault = Sqlite::open_read_only(&missing, world(), options()).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::NoJournal);
    let fault = Sqlite::open_existing(&missing, world(), options()).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::NoJournal);
    assert!(!missing.exists());
}

/// Goal: a second handle in the same process does not cost the first one its locks, which would let another
/// process throw the write-ahead log away. Method: SQLite itself says who holds what.
#[tokio::test]
async fn opening_a_journal_twice_in_one_process_keeps_its_locks() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    let first = open(&path).await;
    let lease_held = lease(&first, session(1), "w").await;
    append(&first, &lease_held, 0, 1).await;
    let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&path).unwrap());
    let locked = || {
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        locks.lines().any(|line| line.contains(&format!(":{inode} ")))
    };
    assert!(locked());
    let second = open(&path).await;
    Sqlite::check(&path).await.unwrap();
    second.backup(&directory.path().join("copy.db")).await.unwrap();
    second.close().await;
    assert!(locked());
    append(&first, &lease_held, 1, 1).await;
    assert!(directory.path().join("journal.db-wal").exists());
}

#[tokio::test]
async fn stats_count_what_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(&directory.path().join("journal.db")).await;
    furnish(&journal).await;
    let stats = journal.stats().await.unwrap();
    assert_eq!((stats.sessions, stats.commands, stats.pending_commands), (3, 2, 1));
    assert_eq!((stats.snapshots, stats.blobs, stats.blob_bytes), (2, 1, 9));
    assert_eq!(stats.records, 5 + 9, "a batch that is kept in part stays whole");
    assert!(stats.file_bytes + stats.wal_bytes > stats.record_bytes);
}

#[tokio::test]
async fn an_append_above_its_limit_is_refused_before_it_is_tried() {
    let directory = tempfile::tempdir().unwrap();
    let options = SqliteOptions { append_bytes: 1000, ..options() };
    let path = directory.path().join("journal.db");
    let journal = Sqlite::open(&path, world(), options).await.unwrap();
    let lease = lease(&journal, session(1), "w").await;
    let refused = journal.append(Append::new(&lease, 0, entries(0, 1, 1000))).await;
    let Err(AppendError::Failed(fault)) = refused else { panic!("{refused:?}") };
    assert_eq!(fault.kind(), Kind::LimitReached);
    assert_eq!(append(&journal, &lease, 0, 1).await, 1);
}

#[tokio::test]
async fn a_journal_in_memory_has_the_same_views_as_one_in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let (world, _) = manual_world();
    let memory = Memory::new(world.clone(), Limits::default());
    let file = Sqlite::open(&directory.path().join("journal.db"), world, options()).await.unwrap();
    for journal in [&memory as &dyn Journal, &file] {
        for number in 1..=30 {
            let lease = lease(journal, session(number), "w").await;
            let head = (0..number % 7).fold(0, |head, _| head + 1);
            let at = records::entry(0, 1).at;
            let mut entries = entries(0, head, 3);
            for entry in &mut entries {
                entry.at = budao_core::Timestamp::from_micros(at.as_micros() / 100_000_000);
            }
            journal.append(Append::new(&lease, 0, entries)).await.unwrap();
        }
    }
    let all = || Filter { limit: 1000, ..Filter::default() };
    assert_eq!(memory.sessions(all()).await.unwrap(), file.sessions(all()).await.unwrap());
}
