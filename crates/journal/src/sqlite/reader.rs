//! Read connections beside the writer, each used by one query at a time.
//!
//! They do not use a memory map: a read error in a mapped page kills the process.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use budao_core::{
    event::{Answer, Command, CommandId, Seq, SessionId},
    fault::{Fact, Fault, Kind, Operation},
    time::Timestamp,
};
use bytes::Bytes;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::{
    apply::snapshot_checksum,
    errors::{SqliteError, damage_fault},
    files::OpenFile,
    rows::{self, InboxRow, SessionRow, UnindexedBatch, read_position, record_damage_fault},
    schema::{self, ConnectionOptions, Meta, Purpose},
};
use crate::{
    contract::{Digest, HistoryInfo, Page, PageLimits, Snapshot},
    implement::faults,
    implement::notifier::lock,
    implement::page::{PageBuilder, PageHistory},
};

/// A pool of read connections, opened on demand.
#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    purpose: Purpose,
    setup: ConnectionOptions,
    idle: Mutex<Vec<Connection>>,
    slots: Semaphore,
    /// Declared last: the file must be dropped after the connections.
    _file: Arc<OpenFile>,
}

impl Readers {
    pub(super) fn new(
        path: PathBuf,
        purpose: Purpose,
        setup: ConnectionOptions,
        count: usize,
        file: Arc<OpenFile>,
    ) -> Arc<Self> {
        let (idle, slots) = (Mutex::default(), Semaphore::new(count.max(1)));
        Arc::new(Self { path, purpose, setup, idle, slots, _file: file })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Closes idle connections, so that the writer closes last and SQLite can remove its side files.
    pub(super) fn close_idle(&self) {
        lock(&self.idle).clear();
    }

    /// The purpose and options that connections are opened with.
    pub(super) fn connection_options(&self) -> (Purpose, ConnectionOptions) {
        (self.purpose, self.setup)
    }

    /// Runs one query on a consistent state of the file, on a background thread.
    pub(super) async fn query<T: Send + 'static>(
        self: &Arc<Self>,
        operation: Operation,
        run: impl FnOnce(&Connection, &Path) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T, Fault> {
        let gone = || Fault::new(Kind::ShuttingDown, operation);
        let _slot = self.slots.acquire().await.map_err(|_| gone())?;
        let readers = self.clone();
        let answer = tokio::task::spawn_blocking(move || readers.query_blocking(operation, run));
        answer.await.map_err(|error| {
            Fault::new(Kind::Bug, operation).with_cause("a reader panicked").caused_by(&error)
        })?
    }

    /// Runs one query on the current thread.
    pub(super) fn query_blocking<T>(
        &self,
        operation: Operation,
        run: impl FnOnce(&Connection, &Path) -> Result<T, SqliteError>,
    ) -> Result<T, Fault> {
        let known = lock(&self.idle).pop();
        let connection = match known {
            Some(connection) => connection,
            None => schema::connect(&self.path, self.purpose, self.setup)
                .map_err(|error| error.into_fault(&self.path, operation))?,
        };
        let answer = run_in_snapshot(&connection, |connection| run(connection, &self.path));
        match answer {
            Ok(answer) => {
                lock(&self.idle).push(connection);
                Ok(answer)
            }
            // A connection is dropped after an error, but kept after a mere refusal.
            Err(error) => {
                if error.keeps_connection_usable() {
                    lock(&self.idle).push(connection);
                }
                Err(error.into_fault(&self.path, operation))
            }
        }
    }
}

fn run_in_snapshot<T>(
    connection: &Connection,
    run: impl FnOnce(&Connection) -> Result<T, SqliteError>,
) -> Result<T, SqliteError> {
    connection.prepare_cached("BEGIN")?.execute([])?;
    let answer = run(connection);
    let ended = connection.prepare_cached("COMMIT")?.execute([]);
    let answer = answer?;
    ended?;
    Ok(answer)
}

pub(super) fn load_session(
    connection: &Connection,
    path: &Path,
    session: SessionId,
    operation: Operation,
) -> Result<SessionRow, SqliteError> {
    SessionRow::load(connection, path, session)?
        .ok_or_else(|| faults::unknown_session(session, operation).into())
}

pub(super) fn info(
    connection: &Connection,
    path: &Path,
    session: SessionId,
    now: Timestamp,
) -> Result<Option<HistoryInfo>, SqliteError> {
    let Some(row) = SessionRow::load(connection, path, session)? else { return Ok(None) };
    let meta = Meta::load_required(connection, path)?;
    let end = rows::history_end(connection, &row, meta.indexed)?;
    Ok(Some(HistoryInfo {
        epoch: row.epoch,
        head: end.head,
        first_available: row.removed_to + 1,
        lease: row.lease(now),
    }))
}

pub(super) fn page(
    connection: &Connection,
    path: &Path,
    session: SessionId,
    after: Seq,
    limits: PageLimits,
) -> Result<Page, SqliteError> {
    let row = load_session(connection, path, session, Operation::ReadRecords)?;
    let meta = Meta::load_required(connection, path)?;
    let recent = rows::unindexed_batches(connection, row.key, meta.indexed)?;
    let head = rows::history_end_after(connection, &row, &recent)?.head;
    if after > head {
        return Err(faults::beyond_head(session, after, head, row.epoch).into());
    }
    let history = PageHistory { session, epoch: row.epoch, head, removed_to: row.removed_to };
    let mut builder = PageBuilder::new(history, after, limits);
    if builder.is_open() {
        add_indexed_batches(&mut builder, connection, row.key)?;
    }
    if builder.is_open() {
        add_unindexed_batches(&mut builder, connection, &recent)?;
    }
    Ok(Page {
        epoch: row.epoch,
        head,
        first_available: row.removed_to + 1,
        gap: row.gap_after(after),
        records: builder.finish().map_err(|seq| record_damage_fault(path, session, seq))?,
    })
}

/// Adds the batches of a session from the index.
fn add_indexed_batches(
    page: &mut PageBuilder,
    connection: &Connection,
    key: i64,
) -> Result<(), SqliteError> {
    let mut statement = connection.prepare_cached(
        "SELECT b.session, b.first, b.count, b.body, s.first FROM batch_index s \
         LEFT JOIN batch b ON b.batch_id = s.batch_id \
         WHERE s.session = ?1 AND s.first >= coalesce((SELECT max(first) FROM batch_index \
         WHERE session = ?1 AND first <= ?2), ?2) ORDER BY s.first",
    )?;
    let mut rows = statement.query((key, page.next_seq().cast_signed()))?;
    while page.is_open() {
        let Some(row) = rows.next()? else { break };
        let found: Option<i64> = row.get(0)?;
        if found != Some(key) || read_position(row, 1)? != read_position(row, 4)? {
            page.mark_damaged();
            break;
        }
        let blob = row.get_ref(3)?.as_blob().map_err(rusqlite::Error::from)?;
        page.take(read_position(row, 1)?, read_position(row, 2)?, &Bytes::copy_from_slice(blob));
    }
    Ok(())
}

/// Adds the batches that are not in the index yet.
fn add_unindexed_batches(
    page: &mut PageBuilder,
    connection: &Connection,
    recent: &[UnindexedBatch],
) -> Result<(), SqliteError> {
    let mut statement = connection.prepare_cached("SELECT body FROM batch WHERE batch_id = ?1")?;
    for batch in recent {
        if !page.is_open() {
            break;
        }
        if batch.first.saturating_add(batch.count) <= page.next_seq() {
            continue;
        }
        let mut rows = statement.query([batch.batch_id])?;
        let Some(row) = rows.next()? else { break };
        let blob = row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
        page.take(batch.first, batch.count, &Bytes::copy_from_slice(blob));
    }
    Ok(())
}

pub(super) fn inbox(
    connection: &Connection,
    path: &Path,
    session: SessionId,
) -> Result<Vec<Command>, SqliteError> {
    let row = load_session(connection, path, session, Operation::SubmitCommand)?;
    let mut statement = connection.prepare_cached(
        "SELECT id, body, answer, checksum FROM inbox WHERE session = ?1 AND answer IS NULL \
         ORDER BY id",
    )?;
    let mut rows = statement.query([row.key])?;
    let mut commands = Vec::new();
    while let Some(found) = rows.next()? {
        commands.push(InboxRow::from_row(found, session, path)?.command);
    }
    Ok(commands)
}

/// The outer `None` means an unknown command, the inner `None` a pending one.
pub(super) fn answer(
    connection: &Connection,
    path: &Path,
    session: SessionId,
    id: &CommandId,
) -> Result<Option<Option<Answer>>, SqliteError> {
    let row = load_session(connection, path, session, Operation::SubmitCommand)?;
    let found = rows::load_command(connection, path, &row, &id.0)?;
    Ok(found.map(|found| found.answer))
}

/// Those of these commands that have an answer.
pub(super) fn answered(
    connection: &Connection,
    path: &Path,
    session: SessionId,
    mut ids: Vec<CommandId>,
) -> Result<Vec<CommandId>, SqliteError> {
    let row = load_session(connection, path, session, Operation::SubmitCommand)?;
    let mut find = connection.prepare_cached(
        "SELECT 1 FROM inbox WHERE session = ?1 AND command = ?2 AND answer IS NOT NULL",
    )?;
    let mut error = None;
    ids.retain(|id| {
        find.exists((row.key, &*id.0)).unwrap_or_else(|failed| {
            error = Some(failed);
            false
        })
    });
    error.map_or(Ok(ids), |failed| Err(failed.into()))
}

/// Every command of a session with its answer, in order of submission.
pub(super) fn commands(
    connection: &Connection,
    path: &Path,
    session: SessionId,
) -> Result<Vec<(Command, Option<Answer>)>, SqliteError> {
    let row = load_session(connection, path, session, Operation::BackUpJournal)?;
    let mut statement = connection.prepare_cached(
        "SELECT id, body, answer, checksum FROM inbox WHERE session = ?1 ORDER BY id",
    )?;
    let mut rows = statement.query([row.key])?;
    let mut commands = Vec::new();
    while let Some(found) = rows.next()? {
        let kept = InboxRow::from_row(found, session, path)?;
        commands.push((kept.command, kept.answer));
    }
    Ok(commands)
}

/// The stored outputs that a session references.
pub(super) fn blobs_of(
    connection: &Connection,
    path: &Path,
    session: SessionId,
) -> Result<Vec<Digest>, SqliteError> {
    let row = load_session(connection, path, session, Operation::BackUpJournal)?;
    let mut statement =
        connection.prepare_cached("SELECT hash FROM blob_reference WHERE session = ?1")?;
    let found = statement.query_map([row.key], |found| Ok(Digest(found.get(0)?)))?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// The ids of sessions in order, starting after `after`.
pub(super) fn session_ids(
    connection: &Connection,
    after: Option<SessionId>,
    limit: usize,
) -> Result<Vec<SessionId>, SqliteError> {
    let sql = "SELECT uuid FROM session WHERE uuid > ?1 ORDER BY uuid LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let after = after.map_or(Vec::new(), |session| session.0.as_bytes().to_vec());
    let found = statement.query_map((after, rows::sql_limit(limit)), |row| {
        Ok(SessionId(uuid::Uuid::from_bytes(row.get(0)?)))
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

pub(super) fn snapshot(
    connection: &Connection,
    path: &Path,
    session: SessionId,
) -> Result<Option<Snapshot>, SqliteError> {
    let row = load_session(connection, path, session, Operation::ReadRecords)?;
    let mut statement =
        connection.prepare_cached("SELECT seq, body, checksum FROM snapshot WHERE session = ?1")?;
    let mut rows = statement.query([row.key])?;
    let Some(found) = rows.next()? else { return Ok(None) };
    let seq = read_position(found, 0)?;
    let body = found.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
    let bad = |cause: String| {
        damage_fault(path, Operation::ReadRecords, cause)
            .with(Fact::Session, session.to_string())
            .with(Fact::LastEventSeq, seq)
    };
    if snapshot_checksum(seq, body) != found.get::<_, u32>(2)? {
        return Err(bad(format!("the snapshot of session {session} is damaged")).into());
    }
    let meta = Meta::load_required(connection, path)?;
    let head = rows::history_end(connection, &row, meta.indexed)?.head;
    if seq > head {
        let cause = format!("the snapshot covers {seq} records, the history has {head}");
        return Err(bad(cause).into());
    }
    Ok(Some(Snapshot { seq, body: Bytes::copy_from_slice(body) }))
}

pub(super) fn blob(
    connection: &Connection,
    path: &Path,
    digest: Digest,
) -> Result<Option<Bytes>, SqliteError> {
    let mut statement = connection.prepare_cached("SELECT body FROM blob WHERE hash = ?1")?;
    let mut rows = statement.query([digest.0])?;
    let Some(found) = rows.next()? else { return Ok(None) };
    let body = found.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
    if Digest::of(body) != digest {
        let cause = format!("the kept output {digest} is damaged");
        return Err(damage_fault(path, Operation::ReadBlob, cause).into());
    }
    Ok(Some(Bytes::copy_from_slice(body)))
}
