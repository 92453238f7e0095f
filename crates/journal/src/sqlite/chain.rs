//! Reads the stored digests of a session, without its records.

use std::path::Path;

use budao_core::{
    event::{Seq, SessionId},
    fault::Operation,
};
use rusqlite::{Connection, OptionalExtension, Row};

use super::{
    errors::SqliteError,
    rows::{self, SessionRow, read_position},
};
use crate::{
    contract::{Anchor, BatchLink, ChainPage, Digest},
    implement::faults,
};

/// Batches that the index does not have yet are found by a scan behind its end.
const LINKS_SQL: &str = "SELECT first, count, substr(body, 2, 32), substr(body, -36, 32) FROM batch \
    WHERE batch_id IN (SELECT batch_id FROM batch_index WHERE session = ?1 \
        UNION ALL SELECT batch_id FROM batch WHERE batch_id > (SELECT indexed_to FROM meta) AND session = ?1) \
    AND session = ?1 AND first + count - 1 > ?2 ORDER BY first LIMIT ?3";

/// The highest position that tables other than `batch` and `session` state.
const KNOWN_HEAD_SQL: &str = "SELECT max(coalesce((SELECT head FROM view_session WHERE session = ?1), 0), \
    coalesce((SELECT seq FROM snapshot WHERE session = ?1), 0), \
    coalesce((SELECT max(first) FROM batch_index WHERE session = ?1), 0))";

pub(super) fn chain(
    connection: &Connection,
    path: &Path,
    session: SessionId,
    after: Seq,
    limit: usize,
) -> Result<ChainPage, SqliteError> {
    let row = SessionRow::load(connection, path, session)?
        .ok_or_else(|| faults::unknown_session(session, Operation::CheckJournal))?;
    let known_head: Option<i64> = connection
        .prepare_cached(KNOWN_HEAD_SQL)?
        .query_row([row.key], |row| row.get(0))
        .optional()?;
    let mut statement = connection.prepare_cached(LINKS_SQL)?;
    let parameters = (row.key, after.cast_signed(), rows::sql_limit(limit));
    let links = statement.query_map(parameters, read_link)?.collect::<Result<_, _>>()?;
    let known_end = row.known_end.map_or(0, |end| end.seq);
    let known_head = known_head.unwrap_or(0).max(0).cast_unsigned().max(known_end);
    let is_head = |end: &Anchor| end.seq == known_head;
    Ok(ChainPage {
        epoch: row.epoch,
        start: row.start(),
        known_head,
        head_digest: row.known_end.filter(is_head).map(|end| end.digest),
        links,
    })
}

fn read_link(row: &Row<'_>) -> Result<BatchLink, rusqlite::Error> {
    let (first, count) = (read_position(row, 0)?, read_position(row, 1)?);
    let last = first.saturating_add(count).saturating_sub(1);
    Ok(BatchLink { first, last, previous: read_digest(row, 2)?, digest: read_digest(row, 3)? })
}

/// A digest; zeros if the batch is too short to have one.
fn read_digest(row: &Row<'_>, column: usize) -> Result<Digest, rusqlite::Error> {
    let bytes = row.get_ref(column)?.as_bytes()?;
    Ok(Digest(bytes.try_into().unwrap_or_default()))
}
