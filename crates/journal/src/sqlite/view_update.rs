//! Updates the views from the batches, in transactions of its own.
//!
//! The updates run when the writer is idle, when the views are far behind, and before a query. By measurement they do
//! not slow appends down.

use std::collections::{HashMap, hash_map::Entry};

use budao_core::{
    event::{Epoch, SessionId},
    fault::Operation,
    time::Timestamp,
};
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension};
use uuid::Uuid;

use super::{
    errors::SqliteError,
    rows::{self, read_position},
    schema::{Meta, VIEWS},
    writer_connection::WriterConnection,
};
use crate::{
    contract::{SessionSummary, TimerView},
    implement::batch_encoding::{self, BatchLocation},
    implement::views::{self, SessionChanges},
};

/// The number of batches added to the views in one transaction.
const SLICE: usize = 1024;

struct BatchRow {
    batch_id: i64,
    key: i64,
    location: BatchLocation,
    body: Bytes,
}

/// The changes of one slice by session, collected so that each row is written once.
#[derive(Default)]
struct ViewChanges(HashMap<i64, (SessionSummary, SessionChanges)>);

impl WriterConnection {
    /// Adds the next slice to the views. Returns whether more batches are left.
    pub(super) fn update_views_slice(&mut self) -> Result<bool, SqliteError> {
        self.resume_views();
        let mut changes = ViewChanges::default();
        let (mut taken, mut last) = (0, self.meta.viewed);
        let mut statement = self.connection()?.prepare_cached(
            "SELECT b.batch_id, b.session, b.first, b.count, b.body, s.uuid FROM batch b \
             JOIN session s ON s.id = b.session WHERE b.batch_id > ?1 ORDER BY b.batch_id LIMIT ?2",
        )?;
        let mut rows = statement.query((self.meta.viewed, rows::sql_limit(SLICE)))?;
        while let Some(row) = rows.next()? {
            let row = BatchRow::read(row)?;
            self.apply_batch(&row, &mut changes)?;
            (taken, last) = (taken + 1, row.batch_id);
        }
        drop(rows);
        drop(statement);
        // Numbers without a batch, as of a deleted session, count as viewed too.
        let viewed = if taken == SLICE { last } else { self.mark.batch_id };
        if viewed == self.meta.viewed {
            return Ok(false);
        }
        let connection = self.connection()?;
        changes.store(connection)?;
        let meta = Meta { viewed, ..self.meta.clone() };
        meta.store(connection)?;
        self.meta = meta;
        self.frames += 8 + changes.0.len() as u64;
        Ok(viewed < self.mark.batch_id)
    }

    fn apply_batch(&self, row: &BatchRow, changes: &mut ViewChanges) -> Result<(), SqliteError> {
        let (summary, marks) = match changes.0.entry(row.key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => {
                let summary = load_summary(self.connection()?, row.key, row.location.session)?;
                free.insert((summary, SessionChanges::default()))
            }
        };
        // Damaged records are left out of the views; readers of the session get a fault.
        batch_encoding::unpack(row.location, &row.body, |record| marks.add(summary, &record));
        Ok(())
    }

    /// Empties the views. [`WriterConnection::update_views_slice`] fills them again from the first batch.
    pub(super) fn clear_views(&mut self) -> Result<(), SqliteError> {
        let connection = self.connection()?;
        for view in VIEWS {
            connection.execute(&format!("DELETE FROM {view}"), [])?;
        }
        let meta = Meta { viewed: 0, ..self.meta.clone() };
        meta.store(connection)?;
        self.meta = meta;
        Ok(())
    }
}

impl BatchRow {
    fn read(row: &rusqlite::Row<'_>) -> Result<Self, rusqlite::Error> {
        let session = SessionId(Uuid::from_bytes(row.get(5)?));
        let (first, count) = (read_position(row, 2)?, read_position(row, 3)?);
        Ok(Self {
            batch_id: row.get(0)?,
            key: row.get(1)?,
            location: BatchLocation { session, epoch: Epoch(0), first, count },
            body: Bytes::copy_from_slice(row.get_ref(4)?.as_blob()?),
        })
    }
}

fn load_summary(
    connection: &Connection,
    key: i64,
    session: SessionId,
) -> Result<SessionSummary, SqliteError> {
    let found = connection
        .prepare_cached(
            "SELECT state, opened, updated, title, labels, turns, open_turn, last_code, head, \
             faults, timers FROM view_session WHERE session = ?1",
        )?
        .query_row([key], |row| summary_from_row(row, session))
        .optional()?;
    match found {
        Some(summary) => Ok(summary),
        None => new_summary(connection, key, session),
    }
}

/// The first summary of a session: empty, or with the timers of its snapshot if retention removed records.
fn new_summary(
    connection: &Connection,
    key: i64,
    session: SessionId,
) -> Result<SessionSummary, SqliteError> {
    let snapshot: Option<(i64, Vec<u8>)> = connection
        .prepare_cached(
            "SELECT n.seq, n.body FROM snapshot n JOIN session s ON s.id = n.session \
             WHERE s.id = ?1 AND s.removed_to > 0",
        )?
        .query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let snapshot = snapshot.as_ref().map(|(seq, body)| (seq.cast_unsigned(), &**body));
    Ok(views::summary_after_removal(session, snapshot))
}

/// Columns 0 to 10: state, opened, updated, title, labels, turns, open turn, last code, head, faults, timers.
pub(super) fn summary_from_row(
    row: &rusqlite::Row<'_>,
    session: SessionId,
) -> Result<SessionSummary, rusqlite::Error> {
    let state: String = row.get(0)?;
    let labels: String = row.get(4)?;
    let faults: String = row.get(9)?;
    let timers: Option<String> = row.get(10)?;
    let bad = |column, error: Box<dyn std::error::Error + Send + Sync>| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, error)
    };
    Ok(SessionSummary {
        session,
        state: state.parse().map_err(|fault: budao_core::Fault| bad(0, Box::new(fault)))?,
        opened_at: Timestamp::from_micros(row.get(1)?),
        updated_at: Timestamp::from_micros(row.get(2)?),
        title: row.get(3)?,
        labels: serde_json::from_str(&labels).map_err(|error| bad(4, Box::new(error)))?,
        turns: read_position(row, 5)?,
        open_turn: row.get::<_, Option<i64>>(6)?.map(i64::cast_unsigned),
        last_code: row.get(7)?,
        head: read_position(row, 8)?,
        timers: match timers {
            Some(timers) => {
                serde_json::from_str(&timers).map_err(|error| bad(10, Box::new(error)))?
            }
            None => TimerView::default(),
        },
        faults: serde_json::from_str(&faults).map_err(|error| bad(9, Box::new(error)))?,
    })
}

impl ViewChanges {
    fn store(&self, connection: &Connection) -> Result<(), SqliteError> {
        let mut rates: HashMap<(&str, i64), (i64, i64)> = HashMap::new();
        for (key, (summary, changes)) in &self.0 {
            store_summary(connection, *key, summary)?;
            if changes.has_new_labels {
                store_labels(connection, *key, summary)?;
            }
            store_marks(connection, *key, changes)?;
            for (place, (raised, ended)) in &changes.rates {
                let count = rates.entry(*place).or_default();
                *count = (count.0 + raised, count.1 + ended);
            }
        }
        for ((code, minute), (raised, ended)) in rates {
            connection
                .prepare_cached(
                    "INSERT INTO view_rate(code, minute, raised, ended) VALUES (?1, ?2, ?3, ?4) \
                     ON CONFLICT DO UPDATE SET raised = raised + ?3, ended = ended + ?4",
                )?
                .execute((code, minute, raised, ended))?;
        }
        Ok(())
    }
}

fn store_labels(
    connection: &Connection,
    key: i64,
    summary: &SessionSummary,
) -> Result<(), SqliteError> {
    connection.execute("DELETE FROM view_label WHERE session = ?1", [key])?;
    for (name, value) in &summary.labels {
        connection
            .prepare_cached("INSERT INTO view_label(key, value, session) VALUES (?1, ?2, ?3)")?
            .execute((name, value, key))?;
    }
    Ok(())
}

fn store_marks(
    connection: &Connection,
    key: i64,
    changes: &SessionChanges,
) -> Result<(), SqliteError> {
    for trace in &changes.traces {
        connection
            .prepare_cached("INSERT OR IGNORE INTO view_trace(trace, session) VALUES (?1, ?2)")?
            .execute((trace.to_be_bytes(), key))?;
    }
    for tool in &changes.tools {
        connection
            .prepare_cached("INSERT OR IGNORE INTO view_tool(tool, session) VALUES (?1, ?2)")?
            .execute((tool, key))?;
    }
    for code in &changes.codes {
        connection
            .prepare_cached("INSERT OR IGNORE INTO view_code(code, session) VALUES (?1, ?2)")?
            .execute((code, key))?;
    }
    Ok(())
}

fn store_summary(
    connection: &Connection,
    key: i64,
    summary: &SessionSummary,
) -> Result<(), SqliteError> {
    let bug = |error: serde_json::Error| {
        budao_core::Fault::new(budao_core::Kind::Bug, Operation::AppendRecords).caused_by(&error)
    };
    let labels = serde_json::to_string(&summary.labels).map_err(bug)?;
    let faults = serde_json::to_string(&summary.faults).map_err(bug)?;
    // A view that began with a snapshot must keep its position, also without timers.
    let has_timers = summary.timers != TimerView::default();
    let timers = has_timers.then(|| serde_json::to_string(&summary.timers).map_err(bug));
    let wake_at = summary.timers.timers.first_time().map(Timestamp::as_micros);
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO view_session(session, state, opened, updated, title, labels, \
             turns, open_turn, last_code, head, faults, timers, wake_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?
        .execute((
            key,
            summary.state.as_str(),
            summary.opened_at.as_micros(),
            summary.updated_at.as_micros(),
            &summary.title,
            labels,
            summary.turns.cast_signed(),
            summary.open_turn.map(u64::cast_signed),
            &summary.last_code,
            summary.head.cast_signed(),
            faults,
            timers.transpose()?,
            wake_at,
        ))?;
    Ok(())
}
