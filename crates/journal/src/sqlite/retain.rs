//! Removal: retention from the front of a history, and deletion of whole sessions.
//!
//! The newest batch of a session always stays in the file, because the next batch continues its checksum. Readers skip
//! removed records in a batch that stays.

use budao_core::event::{Seq, SessionId};
use bytes::Bytes;
use rusqlite::OptionalExtension;

use super::{
    errors::SqliteError,
    rows::{self, InboxRow, SessionRow, read_position},
    schema::Meta,
    write_request::WriteReply,
    writer_connection::WriterConnection,
    writer_thread::CommitNotice,
};
use crate::{
    contract::{AppendError, Digest, Retention, RetentionReport, StoredRecord},
    implement::batch_encoding::{self, BatchLocation},
    implement::retention::{self, RetainedSize},
};

/// The number of sessions processed in one transaction.
const SLICE: usize = 64;

impl WriterConnection {
    /// Applies retention to the next [`SLICE`] sessions.
    pub(super) fn retain_slice(
        &mut self,
        after: i64,
        retention: &Retention,
    ) -> Result<Result<WriteReply, AppendError>, SqliteError> {
        // The views decide which sessions are finished, and must include the records that are removed.
        while self.update_views_slice()? {}
        self.index_now()?;
        let rows = SessionRow::load_many(self.connection()?, self.path(), after, SLICE)?;
        let next = rows.get(SLICE - 1).map(|(key, _)| *key);
        let mut retained = RetentionReport::default();
        for (_, row) in rows {
            match row {
                Ok(row) if self.is_expired(&row, retention)? => {
                    self.remove_session(&row)?;
                    retained.sessions += 1;
                }
                Ok(row) => retained.records += self.remove_old_records(&row, retention)?,
                Err(fault) => tracing::warn!(%fault, "retention skipping damaged session"),
            }
        }
        Ok(Ok(WriteReply::Retained(retained, next)))
    }

    fn is_expired(&self, row: &SessionRow, retention: &Retention) -> Result<bool, SqliteError> {
        let Some(age) = retention.session_age else { return Ok(false) };
        let now = self.context.world.clock.now();
        let view: Option<(i64, bool)> = self
            .connection()?
            .prepare_cached(
                "SELECT updated, open_turn IS NOT NULL OR wake_at IS NOT NULL FROM view_session \
                 WHERE session = ?1",
            )?
            .query_row([row.key], |found| Ok((found.get(0)?, found.get(1)?)))
            .optional()?;
        let (last, is_open) = match view {
            Some((updated, is_open)) => (budao_core::Timestamp::from_micros(updated), is_open),
            None => (row.expires, false),
        };
        Ok(now.since(last) > age
            && !is_open
            && row.lease(now).is_none()
            && self.count_pending(row.key)? == 0)
    }

    fn remove_old_records(
        &mut self,
        row: &SessionRow,
        retention: &Retention,
    ) -> Result<u64, SqliteError> {
        if retention.record_age.is_none()
            && retention.records.is_none()
            && retention.bytes.is_none()
        {
            return Ok(0);
        }
        let sizes = self.record_sizes(row)?;
        let now = self.context.world.clock.now();
        let Some((wanted, _)) = retention::find_removal_end(&sizes, Seq::MAX, retention, now)
        else {
            return Ok(0);
        };
        let covered = self.ensure_snapshot(row, wanted)?;
        let Some((to, reason)) = retention::find_removal_end(&sizes, covered, retention, now)
        else {
            return Ok(0);
        };
        let removed_digest = Some(self.digest_at(row, to)?);
        let removed_reason = Some(reason);
        let row = SessionRow { removed_to: to, removed_reason, removed_digest, ..row.clone() };
        row.update(self.connection()?)?;
        self.remove_batches(&row)?;
        self.remove_contents(&row)?;
        self.notices.push(CommitNotice::History(row.session));
        Ok(sizes.iter().filter(|size| size.seq <= to).count() as u64)
    }

    /// The digest at a kept position, from the records before it.
    fn digest_at(&self, row: &SessionRow, to: Seq) -> Result<Digest, SqliteError> {
        let contents = self.map_records(row, |record| (record.seq <= to).then_some(record))?;
        let removed = contents.iter().flatten();
        Ok(removed.fold(row.start().digest, |before, record| record.digest_after(before)))
    }

    /// Makes a snapshot at the head if the one there is does not reach `to`. Returns the position of the snapshot, 0
    /// for none.
    fn ensure_snapshot(&mut self, row: &SessionRow, to: Seq) -> Result<Seq, SqliteError> {
        let snapshot: Option<(i64, Vec<u8>)> = self
            .connection()?
            .prepare_cached("SELECT seq, body FROM snapshot WHERE session = ?1")?
            .query_row([row.key], |found| Ok((found.get(0)?, found.get(1)?)))
            .optional()?;
        let snapshot = snapshot.map(|(seq, body)| (seq.cast_unsigned(), body));
        let covered = snapshot.as_ref().map_or(0, |(seq, _)| *seq);
        if covered >= to {
            return Ok(covered);
        }
        let records = self.map_records(row, |record| record)?;
        let snapshot = snapshot.as_ref().map(|(seq, body)| (*seq, &**body));
        let state = retention::state_at_head(snapshot, &records);
        let Some(state) = state.filter(|state| state.head >= to) else { return Ok(covered) };
        let Ok(body) = serde_json::to_vec(&state) else { return Ok(covered) };
        self.write_snapshot(row.key, state.head, &body)?;
        Ok(state.head)
    }

    /// Removes the content of the commands whose records are removed.
    fn remove_contents(&mut self, row: &SessionRow) -> Result<(), SqliteError> {
        let sql = "SELECT id, body, answer, checksum FROM inbox WHERE session = ?1 \
             AND answer IS NOT NULL AND instr(body, CAST(?2 AS BLOB)) = 0";
        let mut reduced = Vec::new();
        let connection = self.connection()?;
        let mut statement = connection.prepare_cached(sql)?;
        let mut found = statement.query((row.key, retention::REMOVED_TOPIC))?;
        while let Some(command) = found.next()? {
            let id: i64 = command.get(0)?;
            let Ok(kept) = InboxRow::from_row(command, row.session, self.path()) else { continue };
            if kept.answer.is_some_and(|answer| retention::removes_content(&answer, row.removed_to))
            {
                let body = rows::encode(&retention::strip_content(&kept.command));
                let answer = command.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
                let checksum = rows::inbox_checksum(row.session, &body, Some(answer));
                reduced.push((id, body, checksum));
            }
        }
        drop(found);
        drop(statement);
        for (id, body, checksum) in &reduced {
            connection
                .prepare_cached("UPDATE inbox SET body = ?2, checksum = ?3 WHERE id = ?1")?
                .execute((id, body, checksum))?;
        }
        self.frames += reduced.len() as u64;
        Ok(())
    }

    /// The size and time of each record, oldest first. A damaged record ends the list, so that no later record is
    /// removed.
    fn record_sizes(&self, row: &SessionRow) -> Result<Vec<RetainedSize>, SqliteError> {
        self.map_records(row, |record| {
            let bytes = record.body.len() as u64;
            RetainedSize { seq: record.seq, at: record.at, bytes }
        })
    }

    /// Maps the records that are not removed, oldest first, up to the first damaged one.
    fn map_records<T>(
        &self,
        row: &SessionRow,
        map: impl Fn(StoredRecord) -> T,
    ) -> Result<Vec<T>, SqliteError> {
        let mut records = Vec::new();
        let mut statement = self.connection()?.prepare_cached(
            "SELECT b.first, b.count, b.body FROM batch_index s JOIN batch b ON b.batch_id = s.batch_id \
             WHERE s.session = ?1 ORDER BY s.first",
        )?;
        let mut found = statement.query([row.key])?;
        while let Some(batch) = found.next()? {
            let (first, count) = (read_position(batch, 0)?, read_position(batch, 1)?);
            let blob = batch.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
            let location = BatchLocation { session: row.session, epoch: row.epoch, first, count };
            let unpacked =
                batch_encoding::unpack(location, &Bytes::copy_from_slice(blob), |record| {
                    if record.seq > row.removed_to {
                        records.push(map(record));
                    }
                });
            if unpacked.damaged.is_some() {
                break;
            }
        }
        Ok(records)
    }

    fn remove_batches(&mut self, row: &SessionRow) -> Result<(), SqliteError> {
        let connection = self.connection()?;
        let last: Option<i64> = connection
            .prepare_cached("SELECT max(first) FROM batch_index WHERE session = ?1")?
            .query_row([row.key], |found| found.get(0))?;
        let gone: Vec<(i64, i64)> = connection
            .prepare_cached(
                "SELECT b.batch_id, b.first FROM batch_index s JOIN batch b ON b.batch_id = s.batch_id \
                 WHERE s.session = ?1 AND b.first + b.count - 1 <= ?2 AND s.first < ?3",
            )?
            .query_map((row.key, row.removed_to.cast_signed(), last.unwrap_or(0)), |found| {
                Ok((found.get(0)?, found.get(1)?))
            })?
            .collect::<Result<_, _>>()?;
        for (batch_id, first) in &gone {
            connection
                .prepare_cached("DELETE FROM batch WHERE batch_id = ?1")?
                .execute([batch_id])?;
            connection
                .prepare_cached("DELETE FROM batch_index WHERE session = ?1 AND first = ?2")?
                .execute((row.key, first))?;
        }
        self.frames += 2 * gone.len() as u64;
        self.reserve_batch_ids()
    }

    /// Keeps the numbers of removed batches from being used again.
    fn reserve_batch_ids(&mut self) -> Result<(), SqliteError> {
        let meta = Meta { floor: self.mark.batch_id, ..self.meta.clone() };
        meta.store(self.connection()?)?;
        self.meta = meta;
        Ok(())
    }

    /// Removes stored outputs that no session references.
    pub(super) fn sweep_blobs(&mut self) -> Result<Result<WriteReply, AppendError>, SqliteError> {
        let connection = self.connection()?;
        let count = connection
            .prepare_cached("DELETE FROM blob WHERE hash NOT IN (SELECT hash FROM blob_reference)")?
            .execute([])?;
        let retained = RetentionReport { blobs: count as u64, ..RetentionReport::default() };
        Ok(Ok(WriteReply::Retained(retained, None)))
    }

    pub(super) fn delete(
        &mut self,
        session: SessionId,
    ) -> Result<Result<WriteReply, AppendError>, SqliteError> {
        let row = SessionRow::load(self.connection()?, self.path(), session)?;
        let Some(row) = row else { return Ok(Ok(WriteReply::Deleted(false))) };
        self.index_now()?;
        self.remove_session(&row)?;
        drop(self.sweep_blobs()?);
        Ok(Ok(WriteReply::Deleted(true)))
    }

    /// Removes a session except for its counts in the views. Its batches must be indexed.
    pub(super) fn remove_session(&mut self, row: &SessionRow) -> Result<(), SqliteError> {
        let connection = self.connection()?;
        for sql in [
            "DELETE FROM batch WHERE batch_id IN (SELECT batch_id FROM batch_index WHERE session = ?1)",
            "DELETE FROM batch_index WHERE session = ?1",
            "DELETE FROM inbox WHERE session = ?1",
            "DELETE FROM snapshot WHERE session = ?1",
            "DELETE FROM blob_reference WHERE session = ?1",
            "DELETE FROM view_session WHERE session = ?1",
            "DELETE FROM view_label WHERE session = ?1",
            "DELETE FROM view_trace WHERE session = ?1",
            "DELETE FROM view_tool WHERE session = ?1",
            "DELETE FROM view_code WHERE session = ?1",
            "DELETE FROM session WHERE id = ?1",
        ] {
            connection.prepare_cached(sql)?.execute([row.key])?;
        }
        self.reserve_batch_ids()?;
        self.forget_session(row.session);
        self.notices.push(CommitNotice::History(row.session));
        self.frames += 32;
        Ok(())
    }
}
