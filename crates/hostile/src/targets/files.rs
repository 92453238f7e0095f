//! Targets for journal files of foreign origin: imports, and the watermark file beside a journal.

use std::{
    io::BufReader,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, OnceLock},
    time::Duration,
};

use budao_core::{
    Fault, Kind, Timestamp,
    event::{Event, SessionId},
    trace::Trace,
};
use budao_journal::{
    Admin, Append, Entry, IfMissing, ImportReport, LeaseRequest, PageLimits, Reader, Writer,
    probe::{is_ahead, watermark_from},
    sqlite::{Sqlite, SqliteOptions},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// The session in the journal whose watermark file is forged.
const SESSION: SessionId = SessionId(uuid::Uuid::from_u128(7));
/// Number of records in that session.
const RECORDS: u64 = 3;

/// Any file is imported or refused with a short message. Imported sessions can be exported and imported again without a
/// difference, the size of reads makes no difference, and no lease remains.
pub(super) fn import(bytes: &[u8]) {
    static PLACE: OnceLock<Mutex<(Scratch, Sqlite)>> = OnceLock::new();
    let place = lock_or_make(&PLACE, || {
        let place = Scratch::new();
        let journal = place.runtime.block_on(open(&place.file()));
        (place, journal)
    });
    let (place, journal) = &*place;
    place.runtime.block_on(async {
        let first = journal.import(&mut &*bytes).await;
        if let Err(fault) = &first {
            assert_ne!(fault.kind(), Kind::Bug, "{fault}");
            assert!(fault.to_string().len() < 4 * 1024, "a refusal is short: {fault}");
        }
        let whole = taken_out(journal).await;
        let again = journal.import(&mut BufReader::with_capacity(7, bytes)).await;
        assert_eq!(
            describe_result(&again),
            describe_result(&first),
            "how it was cut makes no difference"
        );
        assert_eq!(taken_out(journal).await, whole);
        let moved = journal.import(&mut whole.as_bytes()).await;
        let moved = moved.unwrap_or_else(|fault| panic!("what was exported is refused: {fault}"));
        assert_eq!(moved.skipped, 0);
        assert_eq!(taken_out(journal).await, whole, "what was exported comes back the same");
    });
}

/// With any bytes as the watermark file, the journal opens, has all its records, and can be appended to and reopened.
/// Its epoch changes exactly if the file is a valid watermark that is ahead of the journal.
pub(super) fn witness(bytes: &[u8]) {
    static PLACE: OnceLock<Mutex<(Scratch, JournalFiles)>> = OnceLock::new();
    let place = lock_or_make(&PLACE, || {
        let place = Scratch::new();
        let files = place.runtime.block_on(write_files(&place));
        (place, files)
    });
    let (place, files) = &*place;
    // The second input carries a valid format, as if its author knew it.
    for witness in [bytes, &watermark_from(bytes, &files.witness)] {
        let epoch = place.runtime.block_on(survives(place, files, witness));
        assert_eq!(epoch != files.epoch, is_ahead(witness, &files.witness));
    }
}

/// A temporary folder, in memory where `/dev/shm` exists, and a single-threaded runtime.
struct Scratch {
    folder: TempDir,
    runtime: Runtime,
}

impl Scratch {
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let folder = tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Self { folder: folder.expect("a folder"), runtime: runtime.expect("a thread") }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("journal.db")
    }

    fn witness(&self) -> PathBuf {
        self.folder.path().join("journal.db-watermark")
    }
}

/// State shared between inputs; it is rebuilt after an input that panicked.
fn lock_or_make<T>(kept: &OnceLock<Mutex<T>>, make: impl Fn() -> T) -> MutexGuard<'_, T> {
    let kept = kept.get_or_init(|| Mutex::new(make()));
    kept.lock().unwrap_or_else(|broken| {
        kept.clear_poison();
        let mut kept = broken.into_inner();
        *kept = make();
        kept
    })
}

async fn open(file: &Path) -> Sqlite {
    let options = SqliteOptions { reserve_bytes: 0, readers: 1, ..SqliteOptions::default() };
    let journal = Sqlite::open(file, budao_runtime::world::system(), options).await;
    journal.unwrap_or_else(|fault| panic!("the journal does not open: {fault}"))
}

/// Exports all sessions as text and deletes them. Epochs are blanked, because an import creates a new one.
async fn taken_out(journal: &Sqlite) -> String {
    let mut out = Vec::new();
    let report = journal.export(None, &mut out).await.expect("what was taken in can be exported");
    assert_eq!(report.cut, 0, "nothing is damaged");
    let text = String::from_utf8(out).expect("an export is text");
    let mut lines = String::new();
    for line in text.lines() {
        let mut read: Value = serde_json::from_str(line).expect("a line is JSON");
        if let Ok(session) = SessionId::deserialize(&read["session"]) {
            let info = journal.info(session).await.expect("it can be asked");
            assert!(info.is_some_and(|info| info.lease.is_none()), "a session is still held");
            assert!(journal.delete(session).await.expect("it can be removed"));
            read["epoch"] = json!("");
            lines += &read.to_string();
        } else {
            lines += line;
        }
        lines.push('\n');
    }
    lines
}

fn describe_result(done: &Result<ImportReport, Fault>) -> Result<ImportReport, String> {
    done.as_ref().map(|report| *report).map_err(ToString::to_string)
}

/// The bytes of a journal's files on disk, and its epoch.
struct JournalFiles {
    journal: Vec<u8>,
    witness: Vec<u8>,
    epoch: String,
}

async fn write_files(place: &Scratch) -> JournalFiles {
    let journal = open(&place.file()).await;
    append(&journal, 0).await;
    let info = journal.info(SESSION).await.expect("it can be asked").expect("it is there");
    journal.close().await;
    drop(journal);
    let read = |path: &Path| std::fs::read(path).expect("it was written");
    let epoch = info.epoch.to_string();
    JournalFiles { journal: read(&place.file()), witness: read(&place.witness()), epoch }
}

async fn append(journal: &Sqlite, after: u64) {
    let request = LeaseRequest {
        session: SESSION,
        holder: "fuzz".into(),
        ttl: Duration::from_secs(3600),
        if_missing: IfMissing::Create,
        dead_holder: None,
    };
    let lease = journal.take_lease(request).await;
    let lease = lease.unwrap_or_else(|fault| panic!("nobody holds it: {fault}"));
    let entries = (0..RECORDS).map(|number| Entry {
        at: Timestamp::from_micros(1_700_000_000_000_000),
        trace: Trace::from_random(5),
        turn: 1,
        event: Event::Annotated { topic: "fuzz".into(), data: json!(number) }.into(),
    });
    let head = journal.append(Append::new(&lease, after, entries.collect())).await;
    assert_eq!(head.expect("it can be written on"), after + RECORDS);
    journal.release(&lease).await.expect("it can be let go");
}

/// Opens the journal with this watermark file, appends and reopens it. Returns the epoch after the first open.
async fn survives(place: &Scratch, files: &JournalFiles, witness: &[u8]) -> String {
    for suffix in ["", "-wal", "-shm", "-watermark"] {
        let _ = std::fs::remove_file(place.folder.path().join(format!("journal.db{suffix}")));
    }
    std::fs::write(place.file(), &files.journal).expect("it can be written");
    std::fs::write(place.witness(), witness).expect("it can be written");
    let journal = open(&place.file()).await;
    let epoch = records(&journal, RECORDS).await;
    append(&journal, RECORDS).await;
    journal.close().await;
    drop(journal);
    let journal = open(&place.file()).await;
    assert_eq!(records(&journal, 2 * RECORDS).await, epoch, "its own witness is believed");
    journal.close().await;
    epoch
}

/// Asserts that the session has records 1 to `count`. Returns the epoch.
async fn records(journal: &Sqlite, count: u64) -> String {
    let page = journal.read(SESSION, 0, PageLimits::default()).await;
    let page = page.unwrap_or_else(|fault| panic!("it can be read: {fault}"));
    let seqs: Vec<u64> = page.records.iter().map(|record| record.seq).collect();
    assert_eq!(seqs, (1..=count).collect::<Vec<u64>>(), "no record is lost");
    page.epoch.to_string()
}
