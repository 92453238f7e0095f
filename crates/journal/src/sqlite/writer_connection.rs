//! The writer's connection to the file, with a cache of what the file contains.
//!
//! The cache is valid while no other process writes, which SQLite's `data_version` shows. Every failure clears it.

use std::{collections::HashMap, path::Path, sync::Arc, time::Duration};

use budao_core::{
    event::{Epoch, Seq, SessionId},
    fault::{Fact, Fault, Kind, Operation},
};
use rusqlite::{Connection, OptionalExtension};

use super::{
    errors::{SqliteError, damage_fault, io_fault},
    files::{self, FileIdentity, OpenFile},
    rows::{self, SessionRow},
    schema::{self, Meta, Purpose},
    watermark::{self, Watermark, WatermarkFile},
    writer_thread::{CommitNotice, WriterContext},
};
use crate::contract::{Anchor, Digest, Lease, LeaseToken};

/// The size of the session cache; other sessions are read from the file.
const KNOWN_SESSIONS: usize = 16 * 1024;
/// Batches that may lack index entries before they are indexed in bulk.
const INDEX_LAG: i64 = 1024;

/// The cached state of a session.
#[derive(Clone, Debug)]
pub(super) struct CachedSession {
    pub(super) key: i64,
    pub(super) epoch: Epoch,
    pub(super) token: Option<LeaseToken>,
    pub(super) head: Seq,
    /// The digest that the next batch continues.
    pub(super) chain: Digest,
    /// The cache generation in which this entry was last compared with the file.
    generation: u64,
}

impl CachedSession {
    /// The head with its digest.
    pub(super) fn end(&self) -> Anchor {
        Anchor { seq: self.head, digest: self.chain }
    }
}

pub(super) struct WriterConnection {
    pub(super) context: WriterContext,
    /// `None` after a failure, until the file is opened and checked again.
    connection: Option<Connection>,
    pub(super) meta: Meta,
    /// The watermark of the open transaction, and that of the last durable one.
    pub(super) mark: Watermark,
    acknowledged: Watermark,
    sessions: HashMap<SessionId, CachedSession>,
    /// Increases when another process writes, and after every failure.
    generation: u64,
    data_version: i64,
    identity: FileIdentity,
    watermark_file: WatermarkFile,
    pub(super) notices: Vec<CommitNotice>,
    pub(super) frames: u64,
    views_postponed: bool,
    /// The first batch since which this process wrote all batches, and the last batch before the open transaction.
    own_since: Option<i64>,
    last_batch_before: i64,
    should_wait: bool,
    /// Declared last: the file must be dropped after the connection.
    _file: Arc<OpenFile>,
}

impl WriterConnection {
    /// Wraps the connection to a file that [`super::open::prepare`] has prepared.
    pub(super) fn new(
        context: WriterContext,
        connection: Connection,
        meta: Meta,
        mark: Watermark,
        file: Arc<OpenFile>,
    ) -> Self {
        let identity = file.identity;
        let mut watermark_file = WatermarkFile::open(&context.path, meta.journal);
        watermark_file.record(mark);
        Self {
            context,
            connection: Some(connection),
            meta,
            mark,
            acknowledged: mark,
            sessions: HashMap::new(),
            generation: 0,
            data_version: 0,
            identity,
            watermark_file,
            notices: Vec::new(),
            frames: 0,
            views_postponed: false,
            own_since: None,
            last_batch_before: 0,
            should_wait: true,
            _file: file,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.context.path
    }

    /// The connection, or a fault if there is none. Inside a transaction there always is one.
    pub(super) fn connection(&self) -> Result<&Connection, SqliteError> {
        self.connection.as_ref().ok_or_else(|| {
            Fault::new(Kind::Bug, Operation::AppendRecords).with_cause("no connection").into()
        })
    }

    /// Whether there is a connection without a failure.
    pub(super) fn has_connection(&self) -> bool {
        self.connection.is_some()
    }

    /// Sets whether a transaction waits for another process's write or fails at once.
    pub(super) fn set_busy_wait(&mut self, should_wait: bool) {
        if let Some(connection) =
            self.connection.as_ref().filter(|_| self.should_wait != should_wait)
        {
            let wait = if should_wait { self.context.setup.busy_timeout } else { Duration::ZERO };
            // This sets a number only; after a failure here the next statement fails too.
            let _ = connection.busy_timeout(wait);
            self.should_wait = should_wait;
        }
    }

    /// Runs `work` in one durable transaction. On failure nothing changes and the cache is cleared.
    pub(super) fn transact<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, SqliteError>,
    ) -> Result<T, SqliteError> {
        self.notices.clear();
        let done = self.try_transact(work);
        if let Err(error) = &done {
            self.clear_cache();
            if !error.keeps_connection_usable() {
                self.drop_connection();
            }
        }
        done
    }

    fn try_transact<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, SqliteError>,
    ) -> Result<T, SqliteError> {
        self.verify_file()?;
        self.connection()?.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let done = self.refresh().and_then(|()| work(self)).and_then(|value| {
            self.index_if_due()?;
            Ok(value)
        });
        let done = done.and_then(|value| {
            self.connection()?.prepare_cached("COMMIT")?.execute([])?;
            Ok(value)
        });
        match done {
            Ok(value) => {
                self.acknowledged = self.mark;
                self.publish_own_range();
                self.watermark_file.record(self.mark);
                Ok(value)
            }
            Err(error) => {
                // SQLite may have rolled back by itself. The first error is returned.
                if let Ok(connection) = self.connection()
                    && !connection.is_autocommit()
                {
                    let _ = connection.execute_batch("ROLLBACK");
                }
                Err(error)
            }
        }
    }

    /// Publishes the range of batches that this process wrote, so that the poller skips them.
    fn publish_own_range(&mut self) {
        if self.mark.batch_id > self.last_batch_before {
            let from = *self.own_since.get_or_insert(self.last_batch_before + 1);
            self.context.own_batches.set_range(from, self.mark.batch_id);
        }
    }

    /// Clears the cache; it is filled from the file again.
    fn clear_cache(&mut self) {
        self.sessions.clear();
        self.notices.clear();
        self.generation += 1;
        self.data_version = -1;
        self.mark = self.acknowledged;
    }

    /// Drops the connection; the next transaction opens and checks the file again.
    pub(super) fn drop_connection(&mut self) {
        self.clear_cache();
        self.connection = None;
    }

    /// Verifies that the path still leads to the same file. After a failure, opens and checks the file again.
    fn verify_file(&mut self) -> Result<(), SqliteError> {
        let gone = |cause: String| {
            Fault::new(Kind::JournalGone, Operation::AppendRecords)
                .with(Fact::Path, self.context.path.display().to_string())
                .with_cause(cause)
        };
        match identity(&self.context.path) {
            Ok(found) if found == self.identity => {}
            Ok(_) => return Err(gone("another file is in its place".into()).into()),
            Err(error) => {
                let fault = error.into_fault(&self.context.path, Operation::AppendRecords);
                return Err(gone(fault.to_string()).into());
            }
        }
        if self.connection.is_none() {
            self.connection = Some(self.reopen()?);
            self.should_wait = true;
        }
        Ok(())
    }

    fn reopen(&mut self) -> Result<Connection, SqliteError> {
        let connection = schema::connect(self.path(), Purpose::Write, self.context.setup)?;
        let meta = Meta::load_required(&connection, self.path())?;
        if meta.journal != self.meta.journal {
            return Err(Fault::new(Kind::JournalGone, Operation::OpenJournal)
                .with(Fact::Path, self.path().display().to_string())
                .with_cause("another journal is in its place")
                .into());
        }
        let found = watermark_from_tables(&connection, &meta)?;
        if let Some(loss) = found.describe_loss(self.acknowledged) {
            return Err(damage_fault(self.path(), Operation::OpenJournal, loss).into());
        }
        check_last_batch(&connection, self.path(), found.batch_id)?;
        tracing::info!(path = %self.path().display(), "journal reopened and checked");
        Ok(connection)
    }

    /// Clears cached state that another process may have changed.
    fn refresh(&mut self) -> Result<(), SqliteError> {
        let connection = self.connection()?;
        let version: i64 =
            connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        if version != self.data_version {
            let meta = Meta::load_required(connection, self.path())?;
            let mark = watermark_from_tables(connection, &meta)?;
            self.meta = meta;
            self.mark = mark;
            self.data_version = version;
            self.generation += 1;
            self.own_since = None;
        }
        self.last_batch_before = self.mark.batch_id;
        Ok(())
    }

    /// Returns the state of a session, from the cache or the file; `None` if the session does not exist.
    pub(super) fn cached_session(
        &mut self,
        session: SessionId,
    ) -> Result<Option<CachedSession>, SqliteError> {
        if let Some(known) = self.sessions.get(&session)
            && known.generation == self.generation
        {
            return Ok(Some(known.clone()));
        }
        let connection = self.connection()?;
        let Some(row) = SessionRow::load(connection, self.path(), session)? else {
            self.sessions.remove(&session);
            return Ok(None);
        };
        // Only the holder of the token appends, so an unchanged token means an unchanged head.
        if let Some(known) = self.sessions.get_mut(&session)
            && known.key == row.key
            && known.epoch == row.epoch
            && known.token.is_some()
            && known.token == row.token
        {
            known.generation = self.generation;
            return Ok(Some(known.clone()));
        }
        let known = self.load_session_state(&row)?;
        self.remember(session, known.clone());
        Ok(Some(known))
    }

    pub(super) fn load_session_state(
        &self,
        row: &SessionRow,
    ) -> Result<CachedSession, SqliteError> {
        let connection = self.connection()?;
        let end = rows::history_end(connection, row, self.meta.indexed)?;
        let chain = rows::read_end_digest(connection, self.path(), row, end)?;
        Ok(CachedSession {
            key: row.key,
            epoch: row.epoch,
            token: row.token,
            head: end.head,
            chain,
            generation: self.generation,
        })
    }

    /// The cached head of a session; the lease prevents any other writer from moving it.
    pub(super) fn cached_end(&self, lease: &Lease) -> Option<Anchor> {
        let known = self.sessions.get(&lease.session)?;
        (known.token == Some(lease.token)).then(|| known.end())
    }

    pub(super) fn remember(&mut self, session: SessionId, known: CachedSession) {
        if self.sessions.len() >= KNOWN_SESSIONS {
            self.sessions.clear();
        }
        self.sessions.insert(session, known);
    }

    pub(super) fn forget_session(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    /// Allocates the number of the next batch.
    pub(super) fn next_batch_id(&mut self) -> i64 {
        self.mark.batch_id += 1;
        self.mark.batch_id
    }

    /// Adds index entries in bulk: one by one, each session would dirty a page of its own.
    fn index_if_due(&mut self) -> Result<(), SqliteError> {
        if self.mark.batch_id - self.meta.indexed < INDEX_LAG {
            return Ok(());
        }
        self.index_now()
    }

    /// Background work for an idle writer: the views first, then the index. Indexed batches are faster to read.
    pub(super) fn run_background_step(&mut self) -> Result<bool, SqliteError> {
        let has_more = self.update_views_slice()?;
        if !has_more && self.mark.batch_id > self.meta.indexed {
            self.index_now()?;
        }
        Ok(has_more)
    }

    pub(super) fn index_now(&mut self) -> Result<(), SqliteError> {
        let connection = self.connection()?;
        connection
            .prepare_cached(
                "INSERT INTO batch_index(session, first, batch_id) SELECT session, first, batch_id FROM batch \
                 WHERE batch_id > ?1 ORDER BY session, first",
            )?
            .execute([self.meta.indexed])?;
        let meta = Meta { indexed: self.mark.batch_id, ..self.meta.clone() };
        meta.store(connection)?;
        self.meta = meta;
        self.frames += 16;
        Ok(())
    }

    pub(super) fn take_notices(&mut self) -> Vec<CommitNotice> {
        std::mem::take(&mut self.notices)
    }

    /// The number of batches not yet in the views; 0 while the views are postponed.
    pub(super) fn view_lag(&self) -> i64 {
        if self.views_postponed { 0 } else { self.acknowledged.batch_id - self.meta.viewed }
    }

    /// Leaves the views as they are until the next query. Called after a failure to update them.
    pub(super) fn postpone_views(&mut self) {
        self.views_postponed = true;
    }

    pub(super) fn resume_views(&mut self) {
        self.views_postponed = false;
    }

    pub(super) fn frames_since_checkpoint(&self) -> u64 {
        self.frames
    }

    /// Checkpoints the write-ahead log into the file. Runs after the replies were sent.
    pub(super) fn checkpoint(&mut self) {
        self.frames = 0;
        let Some(connection) = &self.connection else { return };
        let done = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        if let Err(error) = done {
            let fault = SqliteError::Sql(error).into_fault(self.path(), Operation::AppendRecords);
            tracing::warn!(%fault, "checkpoint failed, reopening journal");
            self.drop_connection();
        }
    }

    pub(super) fn close(&mut self) {
        if let Some(connection) = self.connection.take()
            && let Err((_, error)) = connection.close()
        {
            tracing::debug!(%error, "closing journal failed");
        }
    }
}

fn identity(path: &Path) -> Result<FileIdentity, SqliteError> {
    files::identity(path).map_err(|error| io_fault(&error, path, Operation::AppendRecords).into())
}

/// Reads the watermark of the file from its tables.
pub(super) fn watermark_from_tables(
    connection: &Connection,
    meta: &Meta,
) -> Result<Watermark, SqliteError> {
    let last: Option<i64> = connection
        .prepare_cached("SELECT max(batch_id) FROM batch")?
        .query_row([], |row| row.get(0))?;
    let counted = |table: &str| -> Result<i64, rusqlite::Error> {
        let last: Option<i64> = connection
            .prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = ?1")?
            .query_row([table], |row| row.get(0))
            .optional()?;
        Ok(last.unwrap_or(0))
    };
    Ok(Watermark {
        batch_id: last.unwrap_or(0).max(meta.floor),
        inbox: counted("inbox")?,
        token: meta.last_token,
        blob: counted("blob")?,
    })
}

/// Verifies the last batch, where a failed write would show.
fn check_last_batch(
    connection: &Connection,
    path: &Path,
    batch_id: i64,
) -> Result<(), SqliteError> {
    let uuid: Option<[u8; 16]> = connection
        .query_row(
            "SELECT s.uuid FROM batch b JOIN session s ON s.id = b.session WHERE b.batch_id = ?1",
            [batch_id],
            |row| row.get(0),
        )
        .optional()?;
    let Some(uuid) = uuid else { return Ok(()) };
    let session = SessionId(uuid::Uuid::from_bytes(uuid));
    if let Some(row) = SessionRow::load(connection, path, session)? {
        let meta = Meta::load_required(connection, path)?;
        let end = rows::history_end(connection, &row, meta.indexed)?;
        rows::read_end_digest(connection, path, &row, end)?;
    }
    Ok(())
}

/// Reads the watermark from its own file beside the journal.
pub(super) fn read_watermark(path: &Path, meta: &Meta) -> Option<Watermark> {
    watermark::read(path, meta.journal)
}
