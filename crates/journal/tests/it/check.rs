//! Every finding of a check, each made by one statement behind the journal's back; and files that get in the way.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::support::{open, options};
use budao_core::{event::Answer, fault::Kind, session::Session};
use budao_journal::{
    Admin, Append, CheckReport, Inbox, Retention, Writer,
    conformance::fixture::message,
    fold, fold_at,
    sqlite::{Sqlite, SqliteOptions, salvage},
};
use budao_testkit::{
    records::{append, entries, lease, read_all, session},
    world::system as world,
};
use rusqlite::Connection;
use tempfile::TempDir;

/// A journal with something of everything, closed, so that all of it is in one file and in its index.
async fn furnished() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    let journal = open(&path).await;
    let first = lease(&journal, session(1), "w").await;
    append(&journal, &first, 0, 3).await;
    journal.submit(session(1), message("m", "x")).await.unwrap();
    let all = Append {
        answers: vec![("m".into(), Answer::Accepted { at: 3 })],
        snapshot: Some(b"{}".to_vec()),
        ..Append::new(&first, 3, entries(3, 2, 50))
    };
    journal.append(all).await.unwrap();
    append(&journal, &first, 5, 1).await;
    journal.put_blob(session(1), "kept".into()).await.unwrap();
    let second = lease(&journal, session(2), "w").await;
    append(&journal, &second, 0, 2).await;
    // Takes nothing away, and has the index made.
    journal.retain(Retention::default()).await.unwrap();
    journal.close().await;
    assert_eq!(Sqlite::check(&path).await.unwrap().findings, []);
    (directory, path)
}

/// What a check finds after this statement.
async fn after(statement: &str) -> CheckReport {
    let (_directory, path) = furnished().await;
    alter(&path, statement);
    Sqlite::check(&path).await.unwrap()
}

fn alter(path: &Path, statement: &str) {
    Connection::open(path).unwrap().execute_batch(statement).unwrap();
}

fn finds(found: &CheckReport, description: &str) {
    let descriptions: Vec<&str> =
        found.findings.iter().map(|damage| &*damage.description).collect();
    assert!(
        descriptions.iter().any(|found| found.contains(description)),
        "no `{description}` in {descriptions:?}"
    );
}

#[tokio::test]
async fn a_check_finds_records_that_were_altered_moved_or_taken_away() {
    let found = after("UPDATE batch SET body = x'00' WHERE batch_id = 2").await;
    finds(&found, "record 4 is damaged or missing");
    assert_eq!(found.findings[0].readable, "records 1 to 3");
    let found = after("DELETE FROM batch WHERE batch_id = 2").await;
    finds(&found, "record 4 is damaged or missing");
    finds(&found, "1 index entries point nowhere");
    let found = after("DELETE FROM batch WHERE batch_id = 1").await;
    finds(&found, "record 1 is damaged or missing");
    let found = after("UPDATE batch SET first = 99 WHERE batch_id = 2").await;
    finds(&found, "batch 2 is not where the index says");
    let found = after("UPDATE batch SET session = 77 WHERE batch_id = 2").await;
    finds(&found, "batch 2 has no session");
    // A batch that stands well and goes on from another one.
    let swap =
        "UPDATE batch SET body = (SELECT body FROM batch WHERE batch_id = 2) WHERE batch_id = 1";
    finds(&after(swap).await, "record 1 is damaged or missing");
}

#[tokio::test]
async fn a_check_finds_an_end_that_is_missing_and_an_index_that_claims_it() {
    let found = after("DELETE FROM batch WHERE batch_id = 4").await;
    finds(&found, "the journal lost its end: acknowledged batch 4, last batch found 3");
    finds(&found, "the index claims batches that are not there");
}

#[tokio::test]
async fn a_check_finds_a_session_whose_row_was_altered_and_goes_on_with_the_others() {
    let found = after("UPDATE session SET holder = 'somebody' WHERE id = 1").await;
    assert_eq!(found.sessions, 1);
    assert_eq!(found.records, 2, "those of the other session");
    assert!(found.findings.len() >= 2, "{:?}", found.findings);
}

/// Goal: retention does not end where many sessions in a row are damaged. Method: more of them than it looks at in one go,
/// then one that is past.
#[tokio::test]
async fn retention_goes_on_behind_sessions_that_are_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    let journal = open(&path).await;
    for number in 1..=130 {
        let lease = lease(&journal, session(number), "w").await;
        append(&journal, &lease, 0, 1).await;
        journal.release(&lease).await.unwrap();
    }
    journal.close().await;
    alter(&path, "UPDATE session SET holder = 'somebody' WHERE id < 130");
    let journal = open(&path).await;
    let all = Retention { session_age: Some(Duration::ZERO), ..Retention::default() };
    assert_eq!(journal.retain(all).await.unwrap().sessions, 1);
}

#[tokio::test]
async fn a_check_finds_snapshots_commands_and_outputs_that_are_not_what_they_were() {
    finds(&after("UPDATE snapshot SET body = x'00'").await, "its snapshot is damaged");
    let found = after("DELETE FROM batch WHERE batch_id IN (2, 3)").await;
    finds(&found, "its snapshot covers 5 records, 3 are there");
    finds(
        &after("UPDATE inbox SET command = 'other'").await,
        "command `other`: the stored id differs",
    );
    let found = after("UPDATE inbox SET body = x'00'").await;
    assert_eq!((found.commands, found.findings.len()), (0, 1), "{:?}", found.findings);
    finds(&after("UPDATE blob SET body = x'00'").await, "is damaged");
    finds(&after("DELETE FROM blob").await, "1 kept outputs are missing");
}

#[tokio::test]
async fn the_check_distinguishes_missing_empty_and_foreign_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    assert_eq!(Sqlite::check(&path).await.unwrap_err().kind(), Kind::NoJournal);
    std::fs::write(&path, "").unwrap();
    assert_eq!(Sqlite::check(&path).await.unwrap(), CheckReport::default(), "a new one is whole");
    std::fs::write(directory.path().join("journal.db-watermark"), "it was there").unwrap();
    finds(&Sqlite::check(&path).await.unwrap(), "the journal is empty but had records");
    std::fs::write(&path, "a letter to a friend, long enough to be looked at".repeat(100)).unwrap();
    assert_eq!(Sqlite::check(&path).await.unwrap_err().kind(), Kind::NotAJournal);

    let (_kept, path) = furnished().await;
    alter(&path, "PRAGMA user_version = 999");
    assert_eq!(Sqlite::check(&path).await.unwrap_err().kind(), Kind::JournalNewer);
}

#[tokio::test]
async fn a_check_counts_what_retention_left() {
    let (_directory, path) = furnished().await;
    let journal = open(&path).await;
    let retention = Retention { records: Some(1), ..Retention::default() };
    journal.retain(retention).await.unwrap();
    journal.close().await;
    let found = Sqlite::check(&path).await.unwrap();
    assert_eq!(found.findings, []);
    assert_eq!(found.records, 2, "one of each session");
}

#[tokio::test]
async fn a_journal_in_a_folder_that_is_not_there_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nowhere").join("journal.db");
    assert!(Sqlite::open(&path, world(), options()).await.is_err());
}

/// The watermark and the reserve make a journal safer; it does not need them.
#[tokio::test]
async fn a_journal_works_without_its_side_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    std::fs::create_dir(directory.path().join("journal.db-watermark")).unwrap();
    std::fs::create_dir(directory.path().join("journal.db-reserve")).unwrap();
    let options = SqliteOptions { reserve_bytes: 4096, ..options() };
    let journal = Sqlite::open(&path, world(), options.clone()).await.unwrap();
    let lease_held = lease(&journal, session(1), "w").await;
    for head in 0..70 {
        append(&journal, &lease_held, head, 1).await;
    }
    assert_eq!(read_all(&journal, session(1)).await.len(), 70);
    // Once nothing is in the way, the room is set aside after all.
    std::fs::remove_dir(directory.path().join("journal.db-reserve")).unwrap();
    for head in 70..200 {
        append(&journal, &lease_held, head, 1).await;
    }
    assert_eq!(std::fs::metadata(directory.path().join("journal.db-reserve")).unwrap().len(), 4096);
    journal.close().await;
}

#[tokio::test]
async fn a_journal_works_without_watermark_and_reserve() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    std::os::unix::fs::symlink("/dev/full", directory.path().join("journal.db-watermark")).unwrap();
    let options = SqliteOptions { reserve_bytes: 1 << 60, ..options() };
    let journal = Sqlite::open(&path, world(), options).await.unwrap();
    assert!(!directory.path().join("journal.db-reserve").exists(), "half of it would be no use");
    let lease_held = lease(&journal, session(1), "w").await;
    append(&journal, &lease_held, 0, 3).await;
    journal.close().await;
    let journal = open(&path).await;
    assert_eq!(read_all(&journal, session(1)).await.len(), 3);
}

#[tokio::test]
async fn a_damaged_or_foreign_watermark_yields_no_finding() {
    for content in [&b"short"[..], &[7; 60]] {
        let (directory, path) = furnished().await;
        std::fs::write(directory.path().join("journal.db-watermark"), content).unwrap();
        assert_eq!(Sqlite::check(&path).await.unwrap().findings, []);
        assert_eq!(open(&path).await.stats().await.unwrap().sessions, 2);
    }
}

#[tokio::test]
async fn a_fold_beyond_the_head_or_of_a_missing_session_is_a_fault() {
    let (_directory, path) = furnished().await;
    let journal = open(&path).await;
    let beyond = fold_at(&journal, session(2), 3).await.unwrap_err();
    assert_eq!(beyond.kind(), Kind::EpochMismatch);
    let (whole, from) = fold(&journal, session(2)).await.unwrap();
    assert_eq!((whole.head, from), (2, 0));
    assert_eq!(fold_at(&journal, session(2), 2).await.unwrap(), whole);
    assert_eq!(fold_at(&journal, session(2), 0).await.unwrap(), Session::default());
    let gone = fold_at(&journal, session(9), 3).await.unwrap_err();
    assert_eq!(gone.kind(), Kind::UnknownSession);
}

#[tokio::test]
async fn a_batch_at_an_impossible_position_is_not_salvaged() {
    let (_directory, path) = furnished().await;
    alter(&path, "UPDATE batch SET first = -4 WHERE batch_id = 2");
    let mut left = Vec::new();
    salvage(&path, |found| left.push((found.session, found.records.len(), found.unusable)))
        .unwrap();
    // The batch behind it cannot be joined to what stands before it.
    assert_eq!(left, [(session(1), 3, 1), (session(2), 2, 0)]);
}

#[tokio::test]
async fn a_check_counts_what_is_there() {
    let (_directory, path) = furnished().await;
    let found = Sqlite::check(&path).await.unwrap();
    let counts = (found.sessions, found.records, found.commands, found.blobs);
    assert_eq!(counts, (2, 8, 1, 1));
}

#[tokio::test]
async fn opening_a_journal_removes_the_permissions_of_other_users() {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let (_directory, path) = furnished().await;
    for (before, after) in [(0o644, 0o600), (0o600, 0o600), (0o700, 0o700)] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(before)).unwrap();
        open(&path).await.close().await;
        assert_eq!(mode(&path), after, "{before:o}");
    }
}
