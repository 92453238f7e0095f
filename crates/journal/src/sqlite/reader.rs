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
    errors::{SqliteError, damaged},
    files::OpenFile,
    frame::{self, BatchLocation},
    rows::{self, InboxRow, SessionRow, UnindexedBatch, damaged_record, position},
    schema::{self, ConnectionOptions, Meta, Purpose},
};
use crate::{
    contract::{Digest, HistoryInfo, Page, PageLimits, Snapshot, StoredRecord},
    implement::faults,
    implement::notifier::lock,
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
        let answer = in_snapshot(&connection, |connection| run(connection, &self.path));
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

fn in_snapshot<T>(
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

pub(super) fn must_load(
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
    let meta = Meta::must_load(connection, path)?;
    let end = rows::end(connection, &row, meta.indexed)?;
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
    let row = must_load(connection, path, session, Operation::ReadRecords)?;
    let meta = Meta::must_load(connection, path)?;
    let recent = rows::recent(connection, row.key, meta.indexed)?;
    let head = rows::end_after(connection, &row, &recent)?.head;
    if after > head {
        return Err(faults::beyond_head(session, after, head, row.epoch).into());
    }
    let mut gather = PageBuilder::new(path, &row, after, head, limits);
    if gather.next <= head {
        gather.take_indexed(connection)?;
    }
    if gather.is_open() {
        gather.take_recent(connection, &recent)?;
    }
    Ok(Page {
        epoch: row.epoch,
        head,
        first_available: row.removed_to + 1,
        gap: row.gap_after(after),
        records: gather.finish()?,
    })
}

/// Collects consecutive records until the page is full, the head is reached or a record is damaged.
struct PageBuilder<'a> {
    path: &'a Path,
    row: &'a SessionRow,
    limits: PageLimits,
    head: Seq,
    /// The position of the next record.
    next: Seq,
    /// The checksum that the next batch must continue; `None` before the first batch.
    chain: Option<u32>,
    bytes: usize,
    is_full: bool,
    damaged: Option<Seq>,
    records: Vec<StoredRecord>,
}

impl<'a> PageBuilder<'a> {
    fn new(path: &'a Path, row: &'a SessionRow, after: Seq, head: Seq, limits: PageLimits) -> Self {
        let next = after.max(row.removed_to) + 1;
        let expected = usize::try_from((head + 1).saturating_sub(next)).unwrap_or(usize::MAX);
        // A damaged head may be any number, so the allocation is bounded by the page limits.
        let records = Vec::with_capacity(expected.min(limits.records).min(16 * 1024));
        let (chain, damaged) = (None, None);
        Self { path, row, limits, head, next, chain, bytes: 0, is_full: false, damaged, records }
    }

    fn is_open(&self) -> bool {
        self.next <= self.head && !self.is_full && self.damaged.is_none()
    }

    fn take_indexed(&mut self, connection: &Connection) -> Result<(), SqliteError> {
        let mut statement = connection.prepare_cached(
            "SELECT b.session, b.first, b.count, b.body, s.first FROM batch_index s \
             LEFT JOIN batch b ON b.batch_id = s.batch_id \
             WHERE s.session = ?1 AND s.first >= coalesce((SELECT max(first) FROM batch_index \
             WHERE session = ?1 AND first <= ?2), ?2) ORDER BY s.first",
        )?;
        let mut rows = statement.query((self.row.key, self.next.cast_signed()))?;
        while self.is_open() {
            let Some(row) = rows.next()? else { break };
            let key: Option<i64> = row.get(0)?;
            if key != Some(self.row.key) || position(row, 1)? != position(row, 4)? {
                self.damaged = Some(self.next);
                break;
            }
            let blob = row.get_ref(3)?.as_blob().map_err(rusqlite::Error::from)?;
            self.take(position(row, 1)?, position(row, 2)?, blob);
        }
        Ok(())
    }

    fn take_recent(
        &mut self,
        connection: &Connection,
        recent: &[UnindexedBatch],
    ) -> Result<(), SqliteError> {
        let mut statement =
            connection.prepare_cached("SELECT body FROM batch WHERE batch_id = ?1")?;
        for batch in recent {
            if !self.is_open() {
                break;
            }
            if batch.first.saturating_add(batch.count) <= self.next {
                continue;
            }
            let mut rows = statement.query([batch.batch_id])?;
            let Some(row) = rows.next()? else { break };
            let blob = row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
            self.take(batch.first, batch.count, blob);
        }
        Ok(())
    }

    fn take(&mut self, first: Seq, count: u64, blob: &[u8]) {
        let end = first.saturating_add(count);
        if end <= self.next && self.chain.is_none() {
            return;
        }
        if first > self.next || (self.chain.is_some() && first != self.next) {
            self.damaged = Some(self.next);
            return;
        }
        let body = Bytes::copy_from_slice(blob);
        let location =
            BatchLocation { session: self.row.session, epoch: self.row.epoch, first, count };
        let (next, before) = (self.next, self.records.len());
        let unpacked = frame::unpack(location, &body, |record| {
            if record.seq < next || self.is_full {
                return;
            }
            self.bytes += record.body.len();
            let is_over =
                self.records.len() >= self.limits.records.max(1) || self.bytes > self.limits.bytes;
            if is_over && !self.records.is_empty() {
                self.is_full = true;
                return;
            }
            self.records.push(record);
        });
        let taken = (self.records.len() - before) as u64;
        self.next += taken;
        let breaks_chain =
            self.chain.is_some() && unpacked.previous != self.chain && unpacked.damaged.is_none();
        if breaks_chain {
            self.records.truncate(before);
            self.next -= taken;
            self.damaged = Some(self.next);
        } else if !self.is_full {
            self.damaged = unpacked.damaged;
        }
        self.chain = Some(unpacked.checksum);
    }

    fn finish(mut self) -> Result<Vec<StoredRecord>, SqliteError> {
        // A missing record counts as damage too.
        if self.is_open() {
            self.damaged = Some(self.next);
        }
        match self.damaged {
            Some(seq) if self.records.is_empty() => {
                Err(damaged_record(self.path, self.row.session, seq).into())
            }
            _ => Ok(std::mem::take(&mut self.records)),
        }
    }
}

pub(super) fn inbox(
    connection: &Connection,
    path: &Path,
    session: SessionId,
) -> Result<Vec<Command>, SqliteError> {
    let row = must_load(connection, path, session, Operation::SubmitCommand)?;
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
    let row = must_load(connection, path, session, Operation::SubmitCommand)?;
    let found = rows::command(connection, path, &row, &id.0)?;
    Ok(found.map(|found| found.answer))
}

/// Every command of a session with its answer, in order of submission.
pub(super) fn commands(
    connection: &Connection,
    path: &Path,
    session: SessionId,
) -> Result<Vec<(Command, Option<Answer>)>, SqliteError> {
    let row = must_load(connection, path, session, Operation::BackUpJournal)?;
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
    let row = must_load(connection, path, session, Operation::BackUpJournal)?;
    let mut statement =
        connection.prepare_cached("SELECT hash FROM blob_reference WHERE session = ?1")?;
    let found = statement.query_map([row.key], |found| Ok(Digest(found.get(0)?)))?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// The ids of all sessions, in order.
pub(super) fn session_ids(connection: &Connection) -> Result<Vec<SessionId>, SqliteError> {
    let mut statement = connection.prepare("SELECT uuid FROM session ORDER BY uuid")?;
    let found =
        statement.query_map([], |row| Ok(SessionId(uuid::Uuid::from_bytes(row.get(0)?))))?;
    Ok(found.collect::<Result<_, _>>()?)
}

pub(super) fn snapshot(
    connection: &Connection,
    path: &Path,
    session: SessionId,
) -> Result<Option<Snapshot>, SqliteError> {
    let row = must_load(connection, path, session, Operation::ReadRecords)?;
    let mut statement =
        connection.prepare_cached("SELECT seq, body, checksum FROM snapshot WHERE session = ?1")?;
    let mut rows = statement.query([row.key])?;
    let Some(found) = rows.next()? else { return Ok(None) };
    let seq = position(found, 0)?;
    let body = found.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
    let bad = |what: String| {
        damaged(path, Operation::ReadRecords, what)
            .with(Fact::Session, session.to_string())
            .with(Fact::LastEventSeq, seq)
    };
    if snapshot_checksum(seq, body) != found.get::<_, u32>(2)? {
        return Err(bad(format!("the snapshot of session {session} is damaged")).into());
    }
    let meta = Meta::must_load(connection, path)?;
    let head = rows::end(connection, &row, meta.indexed)?.head;
    if seq > head {
        let what = format!("the snapshot covers {seq} records, the history has {head}");
        return Err(bad(what).into());
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
        let what = format!("the kept output {digest} is damaged");
        return Err(damaged(path, Operation::ReadBlob, what).into());
    }
    Ok(Some(Bytes::copy_from_slice(body)))
}
