//! Reads and verifies rows of the tables that hold the truth; used by the writer and by readers.

use std::path::Path;

use budao_core::{
    event::{Answer, Command, Epoch, Seq, SessionId},
    fault::{Fact, Fault, Operation},
    time::Timestamp,
};
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row};
use serde::Serialize;
use uuid::Uuid;

use super::errors::{SqliteError, damage_fault};
use crate::{
    contract::{Anchor, Digest, Gap, GapReason, LeaseInfo, LeaseToken},
    implement::{
        batch_encoding::{self, BatchLocation},
        chain,
    },
};

/// The row of a session.
#[derive(Clone, Debug)]
pub(super) struct SessionRow {
    pub(super) key: i64,
    pub(super) session: SessionId,
    pub(super) epoch: Epoch,
    /// The last record that retention removed, 0 for none.
    pub(super) removed_to: Seq,
    pub(super) removed_reason: Option<GapReason>,
    pub(super) token: Option<LeaseToken>,
    pub(super) holder: String,
    pub(super) expires: Timestamp,
    /// The digest at `removed_to`; `None` if the chain begins with the session.
    pub(super) removed_digest: Option<Digest>,
    /// The head when the lease was last taken, renewed or released; a history that ends before it was cut.
    pub(super) known_end: Option<Anchor>,
}

const SESSION_COLUMNS: &str = "id, uuid, epoch, removed_to, removed_reason, token, holder, expires, checksum, removed_digest, \
     known_end_seq, known_end_digest";

/// The key of a session's row with the row, or with the fault that describes its damage.
pub(super) type KeyedSession = (i64, Result<SessionRow, Fault>);

impl SessionRow {
    fn checksum(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(self.session.0.as_bytes());
        hasher.update(&self.epoch.0.to_le_bytes());
        hasher.update(&self.removed_to.to_le_bytes());
        hasher.update(self.removed_reason.map_or("", GapReason::as_str).as_bytes());
        hasher.update(&self.token.map_or(0, |token| token.0).to_le_bytes());
        hasher.update(self.holder.as_bytes());
        hasher.update(&self.expires.as_micros().to_le_bytes());
        hasher.update(self.removed_digest.as_ref().map_or(&[], |digest| &digest.0));
        if let Some(end) = &self.known_end {
            hasher.update(&end.seq.to_le_bytes());
            hasher.update(&end.digest.0);
        }
        hasher.finalize()
    }

    /// Stores the head as the known end. A known end beyond the current head stays, so that a lost end remains
    /// detectable until the history has grown beyond it.
    pub(super) fn update_known_end(&mut self, end: Option<Anchor>) {
        let is_behind = |end: &Anchor| self.known_end.is_none_or(|known| known.seq <= end.seq);
        self.known_end = end.filter(is_behind).or(self.known_end);
    }

    /// The anchor at which the chain of the kept records begins.
    pub(super) fn start(&self) -> Anchor {
        let digest = self.removed_digest.unwrap_or_else(|| chain::seed(self.session));
        Anchor { seq: self.removed_to, digest }
    }

    fn from_row(row: &Row<'_>) -> Result<(Self, u32), rusqlite::Error> {
        let found = Self {
            key: row.get(0)?,
            session: SessionId(Uuid::from_bytes(row.get(1)?)),
            epoch: Epoch(row.get(2)?),
            removed_to: read_position(row, 3)?,
            removed_reason: row.get_ref(4)?.as_str_or_null()?.and_then(GapReason::from_name),
            token: row.get::<_, Option<i64>>(5)?.map(|token| LeaseToken(token.cast_unsigned())),
            holder: row.get(6)?,
            expires: Timestamp::from_micros(row.get(7)?),
            removed_digest: row.get::<_, Option<[u8; 32]>>(9)?.map(Digest),
            known_end: read_known_end(row)?,
        };
        Ok((found, row.get(8)?))
    }

    pub(super) fn load(
        connection: &Connection,
        path: &Path,
        session: SessionId,
    ) -> Result<Option<Self>, SqliteError> {
        let sql = format!("SELECT {SESSION_COLUMNS} FROM session WHERE uuid = ?1");
        let mut statement = connection.prepare_cached(&sql)?;
        let found = statement.query_row([session.0.as_bytes()], Self::from_row).optional()?;
        found.map(|(row, checksum)| row.verify_checksum(checksum, path)).transpose()
    }

    /// Loads sessions with their keys, in key order after one key.
    pub(super) fn load_many(
        connection: &Connection,
        path: &Path,
        after: i64,
        limit: usize,
    ) -> Result<Vec<KeyedSession>, SqliteError> {
        let sql =
            format!("SELECT {SESSION_COLUMNS} FROM session WHERE id > ?1 ORDER BY id LIMIT ?2");
        let mut statement = connection.prepare_cached(&sql)?;
        let rows = statement.query_map((after, sql_limit(limit)), Self::from_row)?;
        let mut all = Vec::new();
        for row in rows {
            let (row, checksum) = row?;
            let key = row.key;
            let row = row.verify_checksum(checksum, path);
            all.push((key, row.map_err(|error| error.into_fault(path, Operation::ReadRecords))));
        }
        Ok(all)
    }

    fn verify_checksum(self, checksum: u32, path: &Path) -> Result<Self, SqliteError> {
        if self.checksum() == checksum {
            return Ok(self);
        }
        let cause = format!("the row of session {} is altered", self.session);
        let fault = damage_fault(path, Operation::ReadRecords, cause);
        Err(fault.with(Fact::Session, self.session.to_string()).into())
    }

    pub(super) fn insert(&mut self, connection: &Connection) -> Result<(), rusqlite::Error> {
        connection
            .prepare_cached(
                "INSERT INTO session(uuid, epoch, removed_to, removed_reason, token, holder, expires, \
                 checksum, removed_digest, known_end_seq, known_end_digest) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            )?
            .execute((
                self.session.0.as_bytes(),
                self.epoch.0,
                self.removed_to.cast_signed(),
                self.removed_reason.map(GapReason::as_str),
                self.token.map(|token| token.0.cast_signed()),
                &self.holder,
                self.expires.as_micros(),
                self.checksum(),
                self.removed_digest.map(|digest| digest.0),
                self.known_end.map_or(0, |end| end.seq.cast_signed()),
                self.known_end.map(|end| end.digest.0),
            ))?;
        self.key = connection.last_insert_rowid();
        Ok(())
    }

    pub(super) fn update(&self, connection: &Connection) -> Result<(), rusqlite::Error> {
        connection
            .prepare_cached(
                "UPDATE session SET epoch = ?2, removed_to = ?3, removed_reason = ?4, token = ?5, \
                 holder = ?6, expires = ?7, checksum = ?8, removed_digest = ?9, known_end_seq = ?10, \
                 known_end_digest = ?11 WHERE id = ?1",
            )?
            .execute((
                self.key,
                self.epoch.0,
                self.removed_to.cast_signed(),
                self.removed_reason.map(GapReason::as_str),
                self.token.map(|token| token.0.cast_signed()),
                &self.holder,
                self.expires.as_micros(),
                self.checksum(),
                self.removed_digest.map(|digest| digest.0),
                self.known_end.map_or(0, |end| end.seq.cast_signed()),
                self.known_end.map(|end| end.digest.0),
            ))?;
        Ok(())
    }

    /// The lease, if it has not expired. Without a token, the session is reserved for its holder.
    pub(super) fn lease(&self, now: Timestamp) -> Option<LeaseInfo> {
        (self.expires > now && !self.holder.is_empty())
            .then(|| LeaseInfo { holder: self.holder.clone(), expires: self.expires })
    }

    pub(super) fn gap_after(&self, after: Seq) -> Option<Gap> {
        let reason = self.removed_reason?;
        (after < self.removed_to).then_some(Gap { from: after + 1, to: self.removed_to, reason })
    }
}

/// Reads the known end from the columns 10 and 11 of a session's row.
fn read_known_end(row: &Row<'_>) -> Result<Option<Anchor>, rusqlite::Error> {
    let digest: Option<[u8; 32]> = row.get(11)?;
    let seq = read_position(row, 10)?;
    Ok(digest.map(|digest| Anchor { seq, digest: Digest(digest) }))
}

/// Reads a position; a negative number is damage.
pub(super) fn read_position(row: &Row<'_>, column: usize) -> Result<u64, rusqlite::Error> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}

/// A row limit as an SQLite integer.
pub(super) fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// The end of a session's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HistoryEnd {
    pub(super) head: Seq,
    /// The batch that holds the head; `None` if there are no records.
    pub(super) batch_id: Option<i64>,
}

/// A batch that is not in the index yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnindexedBatch {
    pub(super) batch_id: i64,
    pub(super) first: Seq,
    pub(super) count: u64,
}

/// The batches of a session that are not in the index yet, oldest first.
pub(super) fn unindexed_batches(
    connection: &Connection,
    key: i64,
    indexed: i64,
) -> Result<Vec<UnindexedBatch>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(
        "SELECT batch_id, first, count FROM batch WHERE batch_id > ?1 AND session = ?2 ORDER BY batch_id",
    )?;
    let found = statement.query_map((indexed, key), |row| {
        Ok(UnindexedBatch {
            batch_id: row.get(0)?,
            first: read_position(row, 1)?,
            count: read_position(row, 2)?,
        })
    })?;
    found.collect()
}

/// The end of a history, given its batches outside the index.
pub(super) fn history_end_after(
    connection: &Connection,
    row: &SessionRow,
    recent: &[UnindexedBatch],
) -> Result<HistoryEnd, rusqlite::Error> {
    let found = match recent.last() {
        Some(last) => HistoryEnd {
            head: last.first.saturating_add(last.count).saturating_sub(1),
            batch_id: Some(last.batch_id),
        },
        None => last_indexed_end(connection, row.key)?,
    };
    // An imported history may begin with a gap and have no records yet.
    Ok(HistoryEnd { head: found.head.max(row.removed_to), ..found })
}

/// Finds the end of a history: in the batches outside the index, else in the index.
pub(super) fn history_end(
    connection: &Connection,
    row: &SessionRow,
    indexed: i64,
) -> Result<HistoryEnd, rusqlite::Error> {
    history_end_after(connection, row, &unindexed_batches(connection, row.key, indexed)?)
}

fn last_indexed_end(connection: &Connection, key: i64) -> Result<HistoryEnd, rusqlite::Error> {
    let indexed_end = connection
        .prepare_cached(
            "SELECT b.first, b.count, b.batch_id FROM batch_index s JOIN batch b ON b.batch_id = s.batch_id \
             WHERE s.session = ?1 ORDER BY s.first DESC LIMIT 1",
        )?
        .query_row([key], end_from_row)
        .optional()?;
    Ok(indexed_end.unwrap_or(HistoryEnd { head: 0, batch_id: None }))
}

fn end_from_row(row: &Row<'_>) -> Result<HistoryEnd, rusqlite::Error> {
    let (first, count) = (read_position(row, 0)?, read_position(row, 1)?);
    Ok(HistoryEnd {
        head: first.saturating_add(count).saturating_sub(1),
        batch_id: Some(row.get(2)?),
    })
}

/// The digest that the next batch continues. Checks the last batch.
pub(super) fn read_end_digest(
    connection: &Connection,
    path: &Path,
    row: &SessionRow,
    end: HistoryEnd,
) -> Result<Digest, SqliteError> {
    let Some(batch_id) = end.batch_id else { return Ok(row.start().digest) };
    let (key, first, count, body) = connection
        .prepare_cached("SELECT session, first, count, body FROM batch WHERE batch_id = ?1")?
        .query_row([batch_id], |found| {
            let body = Bytes::copy_from_slice(found.get_ref(3)?.as_blob()?);
            Ok((found.get::<_, i64>(0)?, read_position(found, 1)?, read_position(found, 2)?, body))
        })?;
    let location = BatchLocation { session: row.session, epoch: row.epoch, first, count };
    let unpacked = batch_encoding::unpack(location, &body, drop);
    match unpacked.digest {
        Some(digest) if key == row.key => Ok(digest),
        _ => {
            let seq = unpacked.damaged.unwrap_or(first);
            Err(record_damage_fault(path, row.session, seq).into())
        }
    }
}

pub(super) fn record_damage_fault(path: &Path, session: SessionId, seq: Seq) -> Fault {
    damage_fault(
        path,
        Operation::ReadRecords,
        format!("record {seq} of session {session} is damaged"),
    )
    .with(Fact::Session, session.to_string())
    .with(Fact::FromSeq, seq)
}

/// A command and its answer, both encoded.
#[derive(Debug)]
pub(super) struct InboxRow {
    pub(super) command: Command,
    pub(super) answer: Option<Answer>,
}

/// The checksum of an inbox row.
pub(super) fn inbox_checksum(session: SessionId, body: &[u8], answer: Option<&[u8]>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(session.0.as_bytes());
    hasher.update(&(body.len() as u64).to_le_bytes());
    hasher.update(body);
    hasher.update(answer.unwrap_or_default());
    hasher.finalize()
}

impl InboxRow {
    pub(super) fn from_row(
        row: &Row<'_>,
        session: SessionId,
        path: &Path,
    ) -> Result<Self, SqliteError> {
        let body = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        let answer = row.get_ref(2)?.as_blob_or_null().map_err(rusqlite::Error::from)?;
        let id: i64 = row.get(0)?;
        let bad = |reason: &str| {
            let cause = format!("command {id} of session {session} is damaged: {reason}");
            damage_fault(path, Operation::SubmitCommand, cause)
                .with(Fact::Session, session.to_string())
        };
        if inbox_checksum(session, body, answer) != row.get::<_, u32>(3)? {
            return Err(bad("its checksum is wrong").into());
        }
        let command = serde_json::from_slice(body).map_err(|error| bad(&error.to_string()))?;
        let answer = answer
            .map(serde_json::from_slice)
            .transpose()
            .map_err(|error| bad(&error.to_string()))?;
        Ok(Self { command, answer })
    }
}

/// Loads one command of a session by its id.
pub(super) fn load_command(
    connection: &Connection,
    path: &Path,
    row: &SessionRow,
    id: &str,
) -> Result<Option<InboxRow>, SqliteError> {
    let mut statement = connection.prepare_cached(
        "SELECT id, body, answer, checksum FROM inbox WHERE session = ?1 AND command = ?2",
    )?;
    let mut rows = statement.query((row.key, id))?;
    rows.next()?.map(|found| InboxRow::from_row(found, row.session, path)).transpose()
}

/// Encodes one of this crate's types, which cannot fail.
pub(super) fn encode(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("commands and answers have string keys and finite numbers")
}
