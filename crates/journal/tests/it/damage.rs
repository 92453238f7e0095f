//! Damage: bytes of a small journal are altered, and the file is cut, in every run at some of them, with `BUDAO_FULL`
//! at every one (`cargo xtask security --full`).
//!
//! The promise: either the damage is reported, or the journal's content is the same as before. Nothing
//! panics, and what stands before the damage can be had.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::support::options;
use budao_core::event::Answer;
use budao_journal::{
    Admin, Append, Inbox, Reader, Writer,
    conformance::fixture::message,
    sqlite::{SalvagedSession, Sqlite, SqliteOptions, salvage},
};
use budao_testkit::{
    records::{self, append, entries, lease, session},
    world::system as world,
};
use tempfile::TempDir;

const FILES: [&str; 3] = ["journal.db", "journal.db-wal", "journal.db-watermark"];

/// A small journal, half of it still in the write-ahead log, with its content.
struct Sample {
    files: Vec<(&'static str, Vec<u8>)>,
    content: String,
    records: Vec<SalvagedSession>,
}

fn small() -> SqliteOptions {
    SqliteOptions { page_bytes: 1024, busy_timeout: Duration::from_millis(50), ..options() }
}

async fn read_content(path: &Path) -> Option<String> {
    let journal = Sqlite::open_read_only(path, world(), small()).await.ok()?;
    let mut out = Vec::new();
    let report = journal.export(None, &mut out).await.ok()?;
    (report.cut == 0).then(|| String::from_utf8_lossy(&out).into_owned())
}

fn salvaged(path: &Path) -> Vec<SalvagedSession> {
    let mut found = Vec::new();
    salvage(path, |session| found.push(session)).unwrap();
    found
}

async fn sample() -> Sample {
    let directory = memory_directory();
    let path = directory.path().join("journal.db");
    let journal = Sqlite::open(&path, world(), small()).await.unwrap();
    furnish(&journal, 1).await;
    journal.close().await;
    let journal = Sqlite::open(&path, world(), small()).await.unwrap();
    furnish(&journal, 3).await;
    let files: Vec<_> = FILES
        .iter()
        .map(|name| (*name, std::fs::read(directory.path().join(name)).unwrap()))
        .collect();
    assert!(files[1].1.len() > 10_000, "the write-ahead log has its part");
    let copy = lay_out(&files);
    let path = copy.path().join("journal.db");
    let found = Sqlite::check(&path).await.unwrap();
    assert_eq!(found.findings, []);
    let content = read_content(&path).await.unwrap();
    let records = salvaged(&path);
    assert_eq!(records.iter().map(|session| session.records.len()).sum::<usize>(), 20);
    Sample { files, content, records }
}

async fn furnish(journal: &Sqlite, from: u64) {
    let a = lease(journal, session(from), "w").await;
    append(journal, &a, 0, 3).await;
    journal.submit(session(from), message("m", "x")).await.unwrap();
    let answer = ("m".into(), Answer::Accepted { at: 3 });
    let all = Append {
        answers: vec![answer],
        snapshot: Some(vec![7; 40]),
        ..Append::new(&a, 3, entries(3, 5, 200))
    };
    journal.append(all).await.unwrap();
    let b = lease(journal, session(from + 1), "w").await;
    for head in 0..2 {
        append(journal, &b, head, 1).await;
    }
    journal.put_blob(session(from), format!("output {from}").into()).await.unwrap();
}

/// Where files cost no disk.
fn memory_directory() -> TempDir {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() {
        tempfile::tempdir_in(shared).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}

fn lay_out(files: &[(&'static str, Vec<u8>)]) -> TempDir {
    let directory = memory_directory();
    for (name, bytes) in files {
        std::fs::write(directory.path().join(name), bytes).unwrap();
    }
    directory
}

/// What comes out of a damaged file.
async fn verify(path: &Path, sample: &Sample, context: &str) {
    let found = Sqlite::check(path).await;
    let is_reported = !found.as_ref().is_ok_and(|found| found.findings.is_empty());
    if !is_reported {
        let now = read_content(path).await;
        assert_eq!(now.as_ref(), Some(&sample.content), "{context}: altered and not reported");
    }
    for left in salvaged(path) {
        let whole = sample.records.iter().find(|whole| whole.session == left.session);
        let Some(whole) = whole else {
            assert_eq!(left.records, [], "{context}: records of a session that never was");
            continue;
        };
        let is_prefix = left.records.len() <= whole.records.len()
            && left.records.iter().zip(&whole.records).all(|(left, whole)| {
                (left.seq, left.at, left.trace, left.turn, &left.body)
                    == (whole.seq, whole.at, whole.trace, whole.turn, &whole.body)
            });
        assert!(is_prefix, "{context}: not a prefix of {}", left.session);
    }
}

/// One byte of so many is tried in a usual run. No power of two, so that the tried ones wander over pages and cells.
const SHARE: usize = 11;

/// Places of `length` to try: all of them, or a share that begins where the seed says. `BUDAO_SEED` is the seed.
fn places(length: usize, part: usize, parts: usize) -> impl Iterator<Item = usize> {
    let is_full = std::env::var_os("BUDAO_FULL").is_some();
    let seed = std::env::var("BUDAO_SEED").ok().and_then(|seed| seed.parse().ok());
    let (first, apart) = if is_full { (0, 1) } else { (seed.unwrap_or(0) % SHARE, SHARE) };
    (first..length).step_by(apart).skip(part).step_by(parts)
}

/// Goal: no altered bit is believed. Method: alter bytes of database and log, one at a time; several tests divide
/// the work.
async fn flip_bytes(part: usize, parts: usize) {
    let sample = sample().await;
    let mut tried = 0;
    for (index, (name, bytes)) in sample.files.iter().enumerate() {
        let directory = lay_out(&sample.files);
        let path = directory.path().join("journal.db");
        for at in places(bytes.len(), part, parts) {
            let mut altered = bytes.clone();
            // Every bit has its turn somewhere.
            altered[at] ^= 1 << ((at / 7 + at) % 8);
            restore(directory.path(), &sample.files, index, &altered);
            verify(&path, &sample, &format!("byte {at} of {name}")).await;
            tried += 1;
        }
    }
    eprintln!("security T9: {tried} bytes of a journal altered, one at a time");
}

/// Puts all files back, with one of them changed.
fn restore(directory: &Path, files: &[(&'static str, Vec<u8>)], changed: usize, bytes: &[u8]) {
    let _ = std::fs::remove_file(directory.join("journal.db-shm"));
    for (index, (name, original)) in files.iter().enumerate() {
        let path: PathBuf = directory.join(name);
        let wanted = if index == changed { bytes } else { original };
        std::fs::write(path, wanted).unwrap();
    }
}

macro_rules! flips {
    ($($name:ident $share:literal)*) => {$(
        #[tokio::test]
        async fn $name() {
            flip_bytes($share, 4).await;
        }
    )*};
}

flips! {
    an_altered_byte_is_reported_or_harmless_first_quarter 0
    an_altered_byte_is_reported_or_harmless_second_quarter 1
    an_altered_byte_is_reported_or_harmless_third_quarter 2
    an_altered_byte_is_reported_or_harmless_fourth_quarter 3
}

/// Goal: no cut is believed either.
#[tokio::test]
async fn a_file_cut_at_any_byte_is_reported_or_harmless() {
    let sample = sample().await;
    let mut tried = 0;
    for (index, (name, bytes)) in sample.files.iter().enumerate() {
        let directory = lay_out(&sample.files);
        let path = directory.path().join("journal.db");
        for cut in places(bytes.len(), 0, 1) {
            restore(directory.path(), &sample.files, index, &bytes[..cut]);
            verify(&path, &sample, &format!("{name} cut at byte {cut}")).await;
            tried += 1;
        }
    }
    eprintln!("security T9: {tried} cuts of a journal");
}

/// Goal: damage in one record costs that record and what follows in its session, no more.
#[tokio::test]
async fn records_before_a_damaged_one_are_read_and_the_loss_is_reported() {
    let directory = memory_directory();
    let path = directory.path().join("journal.db");
    let journal = Sqlite::open(&path, world(), options()).await.unwrap();
    let (a, b) = (lease(&journal, session(1), "w").await, lease(&journal, session(2), "w").await);
    for head in 0..10 {
        append(&journal, &a, head, 1).await;
        append(&journal, &b, head, 1).await;
    }
    journal.close().await;
    let mut bytes = std::fs::read(&path).unwrap();
    // The sixth record of the first session says its number in its text; rows lie from the end of a page.
    let needle = b"\"number\":6,";
    let at = bytes.windows(needle.len()).rposition(|window| window == needle).unwrap();
    bytes[at + 9] = b'7';
    std::fs::write(&path, bytes).unwrap();
    let found = Sqlite::check(&path).await.unwrap();
    assert_eq!(found.findings.len(), 1, "{found:?}");
    assert_eq!((found.findings[0].session, found.findings[0].seq), (Some(session(1)), Some(6)));
    let journal = Sqlite::open(&path, world(), options()).await.unwrap();
    let limits = budao_journal::PageLimits::default();
    let page = journal.read(session(1), 0, limits).await.unwrap();
    assert_eq!((page.records.len(), page.head), (5, 10));
    let fault = journal.read(session(1), 5, limits).await.unwrap_err();
    assert_eq!(fault.kind(), budao_core::Kind::JournalDamaged);
    assert_eq!(fault.detail().number(budao_core::fault::Fact::FromSeq), Some(6));
    assert_eq!(records::read_all(&journal, session(2)).await.len(), 10);
    let b = lease(&journal, session(2), "w").await;
    assert_eq!(append(&journal, &b, 10, 1).await, 11, "other sessions are written on");
}
