//! The space of removed records goes back to the file system.

use std::path::Path;

use budao_journal::{Admin, Append, Reader, Retention, Writer, sqlite::Sqlite};
use budao_testkit::records::{append, entries, lease, read_all, session};

use crate::support::open;

const SESSIONS: u64 = 100;

/// A journal with a hundred sessions, of which ninety were deleted.
async fn forgetful(path: &Path) -> Sqlite {
    let journal = open(path).await;
    for number in 1..=SESSIONS {
        let lease = lease(&journal, session(number), "w").await;
        journal.append(Append::new(&lease, 0, entries(0, 10, 4_000))).await.unwrap();
        journal.release(&lease).await.unwrap();
    }
    for number in (1..=SESSIONS).filter(|number| number % 10 != 0) {
        assert!(journal.delete(session(number)).await.unwrap());
    }
    journal
}

/// The size of the smallest file with the same content.
async fn held(journal: &Sqlite, directory: &Path) -> u64 {
    let copy = directory.join("copy.db");
    journal.backup(&copy).await.unwrap();
    std::fs::metadata(&copy).unwrap().len()
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

#[tokio::test]
async fn retention_keeps_a_file_within_1_3_times_of_what_it_holds() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    let journal = forgetful(&path).await;
    let held = held(&journal, directory.path()).await;
    journal.close().await;
    assert!(size(&path) > 5 * held, "the file is large before: {} for {held}", size(&path));

    let journal = open(&path).await;
    journal.retain(Retention::default()).await.unwrap();
    journal.close().await;
    assert!(size(&path) * 10 <= held * 13, "{} for {held}", size(&path));
    let checked = Sqlite::check(&path).await.unwrap();
    assert_eq!((checked.sessions, checked.records, checked.findings), (10, 100, vec![]));
}

#[tokio::test]
async fn a_journal_in_use_is_compacted_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    let journal = forgetful(&path).await;
    let held = held(&journal, directory.path()).await;
    let kept = session(10);
    let before = read_all(&journal, kept).await.len();
    // Another handle writes before and after, and reads what it wrote.
    let other = open(&path).await;
    let token = lease(&other, kept, "other").await;
    append(&other, &token, 10, 3).await;
    let report = journal.compact().await.unwrap();
    append(&other, &token, 13, 3).await;
    assert!(report.before_bytes > 5 * held, "{report:?} for {held}");
    assert!(report.after_bytes * 10 <= held * 11, "{report:?} for {held}");
    for handle in [&journal, &other] {
        assert_eq!(read_all(handle, kept).await.len(), before + 6);
    }
    assert_eq!(other.info(kept).await.unwrap().unwrap().head, 16);
    let again = journal.compact().await.unwrap();
    assert_eq!(again.before_bytes, again.after_bytes, "there is nothing left to return");
    journal.close().await;
    other.close().await;
    assert!(size(&path) * 10 <= held * 12, "{} for {held}", size(&path));
    assert_eq!(Sqlite::check(&path).await.unwrap().findings, []);
}
