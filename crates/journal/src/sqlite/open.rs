//! Opens the file for writing: prepares it and compares it with its watermark.

use std::path::Path;

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    world::World,
};
use rusqlite::Connection;

use super::{
    errors::{SqliteError, io_fault},
    files,
    inspect::InspectedPath,
    rows::SessionRow,
    schema::{self, Meta, Purpose},
    watermark::Watermark,
    writer_connection::{read_watermark, watermark_from_tables},
    writer_thread::WriterContext,
};
use crate::contract::new_epoch;

/// Opens an inspected file for writing.
pub(super) fn prepare(
    context: &WriterContext,
    inspected: &InspectedPath,
) -> Result<(Connection, Meta, Watermark), Fault> {
    let path = &context.path;
    let opened = connect(context, inspected).and_then(|connection| {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let (meta, mark) = reconcile_with_watermark(&connection, path, &context.world)?;
        connection.execute_batch("COMMIT")?;
        Ok((connection, meta, mark))
    });
    opened.map_err(|error| error.into_fault(path, Operation::OpenJournal))
}

/// Connects to exactly the file that was inspected, or changes nothing.
fn connect(context: &WriterContext, inspected: &InspectedPath) -> Result<Connection, SqliteError> {
    let path = &context.path;
    let connection = schema::open(path, Purpose::Write, context.setup)?;
    let found =
        files::identity(path).map_err(|error| io_fault(&error, path, Operation::OpenJournal))?;
    if inspected.file.as_ref().map(|file| file.identity) != Some(found) {
        let fault = Fault::new(Kind::JournalGone, Operation::OpenJournal)
            .with(Fact::Path, path.display().to_string())
            .with_cause("the file was replaced while it was opened");
        return Err(fault.into());
    }
    schema::configure(&connection, path, Purpose::Write, context.setup)?;
    Ok(connection)
}

/// Decides, under the write lock, whether the history is new, a copy, intact, or has lost its end.
fn reconcile_with_watermark(
    connection: &Connection,
    path: &Path,
    world: &World,
) -> Result<(Meta, Watermark), SqliteError> {
    let Some(mut meta) = Meta::load(connection, path)? else {
        let meta = Meta {
            journal: *world.uuid().as_bytes(),
            indexed: 0,
            viewed: 0,
            floor: 0,
            last_token: 0,
            is_copy: false,
            lost: None,
        };
        meta.store(connection)?;
        return Ok((meta, Watermark::default()));
    };
    let mark = watermark_from_tables(connection, &meta)?;
    if meta.is_copy {
        tracing::warn!(path = %path.display(), "journal restored from copy, renewing epochs");
        meta.journal = *world.uuid().as_bytes();
        meta.is_copy = false;
        meta.store(connection)?;
        renew_epochs(connection, path, world)?;
    } else if let Some(recorded) =
        read_watermark(path, &meta).filter(|recorded| mark.is_behind(*recorded))
    {
        let lost = format!(
            "{}: batches up to {}, commands up to {} and leases up to {} had been acknowledged; \
             the file has {}, {} and {}",
            world.clock.now(),
            recorded.batch_id,
            recorded.inbox,
            recorded.token,
            mark.batch_id,
            mark.inbox,
            mark.token,
        );
        tracing::error!(path = %path.display(), detail = lost, "journal lost acknowledged data");
        // Positions and tokens that were issued must not be issued again for other data.
        meta.floor = meta.floor.max(recorded.batch_id);
        meta.last_token = meta.last_token.max(recorded.token);
        meta.lost = Some(lost);
        meta.store(connection)?;
        renew_epochs(connection, path, world)?;
    }
    let mark = watermark_from_tables(connection, &meta)?;
    Ok((meta, mark))
}

/// Gives every session a new epoch and ends its lease, because the history was replaced: old cursors are invalid.
fn renew_epochs(connection: &Connection, path: &Path, world: &World) -> Result<(), SqliteError> {
    let mut after = 0;
    loop {
        let rows = SessionRow::load_many(connection, path, after, 1000)?;
        let Some((last, _)) = rows.last() else { return Ok(()) };
        after = *last;
        for row in rows.into_iter().filter_map(|(_, row)| row.ok()) {
            SessionRow { epoch: new_epoch(world), token: None, ..row }.update(connection)?;
        }
    }
}
