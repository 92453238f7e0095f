//! Paths that are not a journal: each is refused with a fault that says what it is, and nothing there changes.

use std::{
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::support::{open, options};
use budao_core::fault::{Fact, Fault, Kind};
use budao_journal::{
    Admin as _,
    sqlite::{Sqlite, SqliteOptions, salvage},
};
use budao_testkit::{
    records::{append, lease, read_all, session},
    world::system as world,
};
use rusqlite::Connection;
use rustix::{
    fs::{CWD, FileType, Mode, chown, mknodat},
    process::{Gid, Uid, geteuid},
};
use tempfile::TempDir;

/// Path, mode, inode, owner and content of a file.
type FileState = (PathBuf, u32, u64, u32, Option<Vec<u8>>);

/// Everything about a directory and what is in it that a program could alter by mistake.
fn state(directory: &Path) -> Vec<FileState> {
    let mut found = vec![directory.to_owned()];
    let mut at = 0;
    while at < found.len() {
        if found[at].symlink_metadata().unwrap().is_dir() {
            found.extend(std::fs::read_dir(&found[at]).unwrap().map(|entry| entry.unwrap().path()));
        }
        at += 1;
    }
    found.sort();
    let seen = found.into_iter().map(|path| {
        let meta = path.symlink_metadata().unwrap();
        let content = meta.is_file().then(|| std::fs::read(&path).unwrap());
        (path, meta.mode(), meta.ino(), meta.uid(), content)
    });
    seen.collect()
}

/// A fault that comes in time.
async fn bounded(name: &'static str, wait: impl Future<Output = Fault>) -> (&'static str, Fault) {
    let done = tokio::time::timeout(Duration::from_secs(120), wait).await;
    (name, done.unwrap_or_else(|_| panic!("{name} hangs")))
}

/// What every way of opening says. None of them may wait for long.
async fn refusals(path: &Path) -> Vec<(&'static str, Fault)> {
    // With a reserve, which is a file beside the journal.
    let all = SqliteOptions { reserve_bytes: 4096, ..options() };
    let written = async { Sqlite::open(path, world(), all).await.unwrap_err() };
    let read = async { Sqlite::open_read_only(path, world(), options()).await.unwrap_err() };
    let checked = async { Sqlite::check(path).await.unwrap_err() };
    vec![
        bounded("open", written).await,
        bounded("open_read_only", read).await,
        bounded("check", checked).await,
    ]
}

async fn refused_as(directory: &TempDir, path: &Path, cause: &str) {
    let before = state(directory.path());
    for (way, fault) in refusals(path).await {
        assert_eq!(fault.kind(), Kind::NotAJournal, "{way} {}: {fault}", path.display());
        assert_eq!(fault.detail().text(Fact::Cause), Some(cause), "{way} {}", path.display());
    }
    assert_eq!(state(directory.path()), before, "{}", path.display());
}

fn with_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn node(path: &Path, kind: FileType) {
    mknodat(CWD, path, kind, Mode::from_raw_mode(0o666), 0).unwrap();
    with_mode(path, 0o666);
}

#[tokio::test]
async fn a_directory_given_as_a_journal_is_refused_and_keeps_its_mode() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("folder");
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("a.txt"), "words").unwrap();
    with_mode(&path, 0o755);
    refused_as(&directory, &path, "directory").await;
}

#[tokio::test]
async fn a_file_that_is_not_a_journal_is_refused_and_nothing_about_it_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    for content in ["x", "a letter to a friend", &"many words ".repeat(1000)] {
        std::fs::write(&path, content).unwrap();
        with_mode(&path, 0o644);
        refused_as(&directory, &path, "file").await;
    }
    std::fs::remove_file(&path).unwrap();
    let below = directory.path().join("file").join("journal.db");
    std::fs::write(directory.path().join("file"), "words").unwrap();
    refused_as(&directory, &below, "parent_not_directory").await;
}

#[tokio::test]
async fn a_database_of_another_program_is_refused_in_every_state_and_gets_no_side_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("theirs.db");
    let make = "CREATE TABLE t(x); INSERT INTO t VALUES (1);";
    Connection::open(&path).unwrap().execute_batch(make).unwrap();
    with_mode(&path, 0o644);
    refused_as(&directory, &path, "database").await;
    let wal = "PRAGMA application_id = 7; PRAGMA journal_mode = WAL;";
    Connection::open(&path).unwrap().execute_batch(wal).unwrap();
    refused_as(&directory, &path, "database").await;
    // While it is in use, and before its first checkpoint: its tables are in its log only.
    let path = directory.path().join("fresh.db");
    let theirs = Connection::open(&path).unwrap();
    theirs.execute_batch(&format!("PRAGMA journal_mode = WAL; {make}")).unwrap();
    refused_as(&directory, &path, "database").await;
    drop(theirs);
}

#[tokio::test]
async fn pipes_sockets_and_devices_are_refused_without_being_opened() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    node(&pipe, FileType::Fifo);
    refused_as(&directory, &pipe, "pipe").await;
    let socket = directory.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    refused_as(&directory, &socket, "socket").await;
    refused_as(&directory, Path::new("/dev/null"), "device").await;
    let fault = salvage(&pipe, |_| {}).unwrap_err();
    assert_eq!(fault.detail().text(Fact::Cause), Some("pipe"));
    let fault = salvage(directory.path(), |_| {}).unwrap_err();
    assert_eq!(fault.detail().text(Fact::Cause), Some("directory"));
}

#[tokio::test]
async fn links_that_lead_nowhere_or_in_a_circle_are_refused_and_nothing_is_created_behind_them() {
    let directory = tempfile::tempdir().unwrap();
    let dangling = directory.path().join("dangling");
    symlink(directory.path().join("nowhere.db"), &dangling).unwrap();
    refused_as(&directory, &dangling, "dangling_link").await;
    let round = directory.path().join("round");
    symlink(&round, &round).unwrap();
    refused_as(&directory, &round, "link_loop").await;
    let folder = directory.path().join("to-folder");
    symlink(directory.path(), &folder).unwrap();
    refused_as(&directory, &folder, "directory").await;
}

#[tokio::test]
async fn an_own_link_leads_to_the_journal_and_side_files_lie_beside_the_file_itself() {
    let directory = tempfile::tempdir().unwrap();
    let real = directory.path().join("real");
    std::fs::create_dir(&real).unwrap();
    let path = real.join("journal.db");
    open(&path).await.close().await;
    let link = directory.path().join("link.db");
    symlink("real/journal.db", &link).unwrap();
    let journal = open(&link).await;
    assert_eq!(journal.path(), path);
    let lease_held = lease(&journal, session(1), "w").await;
    append(&journal, &lease_held, 0, 2).await;
    assert_eq!(read_all(&journal, session(1)).await.len(), 2);
    journal.close().await;
    let names: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(real.join("journal.db-watermark").exists());
}

/// Changing an owner needs the rights of root.
fn is_root() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        eprintln!("skipped: only root can make files of another user");
    }
    is_root
}

fn give_away(path: &Path) {
    chown(path, Some(Uid::from_raw(65_534)), Some(Gid::from_raw(65_534))).unwrap();
}

#[tokio::test]
async fn a_journal_of_another_user_is_read_and_never_written() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    let journal = open(&path).await;
    let lease_held = lease(&journal, session(1), "w").await;
    append(&journal, &lease_held, 0, 2).await;
    journal.close().await;
    drop(journal);
    for name in ["journal.db", "journal.db-watermark"] {
        give_away(&directory.path().join(name));
        with_mode(&directory.path().join(name), 0o644);
    }
    let before = state(directory.path());
    let fault = Sqlite::open(&path, world(), options()).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::JournalOfOtherUser, "{fault}");
    assert_eq!(fault.detail().text(Fact::Holder), Some("uid 65534"));
    assert_eq!(state(directory.path()), before);
    let journal = Sqlite::open_read_only(&path, world(), options()).await.unwrap();
    assert_eq!(read_all(&journal, session(1)).await.len(), 2);
    assert_eq!(Sqlite::check(&path).await.unwrap().findings, []);
    // An empty file of another user is no place for a journal either.
    let empty = directory.path().join("empty.db");
    std::fs::write(&empty, "").unwrap();
    give_away(&empty);
    let fault = Sqlite::open(&empty, world(), options()).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::JournalOfOtherUser, "{fault}");
    assert_eq!(std::fs::read(&empty).unwrap(), b"");
}

#[tokio::test]
async fn a_link_of_another_user_is_not_followed() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    open(&path).await.close().await;
    let link = directory.path().join("link.db");
    symlink(&path, &link).unwrap();
    let user = (Some(Uid::from_raw(65_534)), Some(Gid::from_raw(65_534)));
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::chownat(CWD, &link, user.0, user.1, flags).unwrap();
    refused_as(&directory, &link, "link_of_other_user").await;
}

/// Goal: SQLite deletes a foreign `-wal` beside an empty database and overwrites a foreign `-shm`; neither happens.
#[tokio::test]
async fn files_under_the_names_of_side_files_are_not_destroyed_by_a_new_journal() {
    for suffix in ["-wal", "-shm", "-journal"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal.db");
        let side = directory.path().join(format!("journal.db{suffix}"));
        std::fs::write(&side, "words of the user").unwrap();
        let before = state(directory.path());
        let fault = Sqlite::open(&path, world(), options()).await.unwrap_err();
        assert_eq!(fault.kind(), Kind::NotAJournal, "{suffix}: {fault}");
        assert_eq!(fault.detail().text(Fact::Cause), Some("side_file"), "{suffix}");
        assert_eq!(fault.detail().text(Fact::Path), side.to_str());
        assert_eq!(state(directory.path()), before, "{suffix}");
    }
}

#[tokio::test]
async fn files_under_the_names_of_watermark_and_reserve_keep_their_content() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    let names = ["journal.db-watermark", "journal.db-reserve"];
    for name in names {
        std::fs::write(directory.path().join(name), "words of the user").unwrap();
    }
    let options = SqliteOptions { reserve_bytes: 8192, ..options() };
    let journal = Sqlite::open(&path, world(), options.clone()).await.unwrap();
    let lease_held = lease(&journal, session(1), "w").await;
    for head in 0..70 {
        append(&journal, &lease_held, head, 1).await;
    }
    journal.close().await;
    for name in names {
        let content = std::fs::read(directory.path().join(name)).unwrap();
        assert_eq!(content, b"words of the user", "{name}");
    }
    // A pipe there is not waited for.
    for name in names {
        std::fs::remove_file(directory.path().join(name)).unwrap();
        node(&directory.path().join(name), FileType::Fifo);
    }
    let opened = Sqlite::open(&path, world(), options);
    let opened = tokio::time::timeout(Duration::from_secs(120), opened).await;
    opened.expect("a pipe is not waited for").unwrap().close().await;
}

#[tokio::test]
async fn an_empty_file_becomes_a_journal_only_for_a_writer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    std::fs::write(&path, "").unwrap();
    with_mode(&path, 0o644);
    let before = state(directory.path());
    let fault = Sqlite::open_read_only(&path, world(), options()).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::NoJournal, "{fault}");
    Sqlite::check(&path).await.unwrap();
    assert_eq!(state(directory.path()), before);
    open(&path).await.close().await;
    assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
}

/// Goal: a journal whose header is damaged is not reported as a foreign file. Method: its watermark lies beside it.
#[tokio::test]
async fn a_journal_with_a_damaged_header_is_reported_and_left_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    let journal = open(&path).await;
    let lease_held = lease(&journal, session(1), "w").await;
    append(&journal, &lease_held, 0, 1).await;
    journal.close().await;
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[..100].fill(7);
    std::fs::write(&path, bytes).unwrap();
    let before = state(directory.path());
    let fault = Sqlite::open(&path, world(), options()).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::JournalDamaged, "{fault}");
    assert_eq!(Sqlite::check(&path).await.unwrap().findings.len(), 1);
    assert_eq!(state(directory.path()), before);
}

#[tokio::test]
async fn a_backup_replaces_no_file_and_its_fault_names_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(&directory.path().join("journal.db")).await;
    let target = directory.path().join("copy.db");
    let partial = budao_journal::partial_copy(&target);
    std::fs::write(&partial, "words of the user").unwrap();
    let fault = journal.backup(&target).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::FileExists, "{fault}");
    assert_eq!(fault.detail().text(Fact::Path), partial.to_str());
    assert_eq!(std::fs::read(&partial).unwrap(), b"words of the user");
    std::fs::remove_file(&partial).unwrap();
    for make in [
        &|path: &Path| std::fs::write(path, "words of the user").unwrap() as _,
        &|path: &Path| std::fs::create_dir(path).unwrap() as _,
        &|path: &Path| symlink("nowhere", path).unwrap() as _,
    ] as [&dyn Fn(&Path); 3]
    {
        make(&target);
        let before = state(directory.path());
        let fault = journal.backup(&target).await.unwrap_err();
        assert_eq!(fault.kind(), Kind::FileExists, "{fault}");
        assert_eq!(fault.detail().text(Fact::Path), target.to_str());
        assert_eq!(state(directory.path()), before);
        if target.is_dir() {
            std::fs::remove_dir(&target).unwrap();
        } else {
            std::fs::remove_file(&target).unwrap();
        }
    }
    let nowhere = directory.path().join("no/such/copy.db");
    let fault = journal.backup(&nowhere).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::FileNotFound, "{fault}");
    // What an interrupted copy left is removed.
    std::fs::write(&partial, "").unwrap();
    journal.backup(&target).await.unwrap();
    assert!(!partial.exists());
}
