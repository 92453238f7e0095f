//! The check of a journal: verifies all of its data while it is in use, and changes nothing.

use std::{collections::HashMap, path::Path, time::Duration};

use budao_core::{
    event::Seq,
    fault::{Fault, Kind, Operation},
};
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension};

use super::{
    apply::snapshot_checksum,
    errors::SqliteError,
    inspect::{self, PathContent},
    rows::{self, InboxRow, SessionRow, read_position},
    schema::{self, ConnectionOptions, Meta, Purpose},
    watermark::{self, Watermark},
    writer_connection::{read_watermark, watermark_from_tables},
};
use crate::{
    contract::{CheckReport, Damage, Digest},
    implement::{
        batch_encoding::{self, BatchLocation},
        chain,
    },
};

/// The number of findings after which a check stops collecting.
const MAX_FINDINGS: usize = 1000;

impl Damage {
    fn in_file(description: impl Into<String>, readable: impl Into<String>) -> Self {
        Self {
            session: None,
            seq: None,
            description: description.into(),
            readable: readable.into(),
        }
    }

    fn in_session(row: &SessionRow, description: impl Into<String>) -> Self {
        let readable = "its records".into();
        Self { session: Some(row.session), seq: None, description: description.into(), readable }
    }
}

const SALVAGE: &str = "records that `export --salvage` can recover";

/// Checks the file at `path`. A file that cannot be opened is a finding, not an error. `progress` receives the number of
/// the current batch and of the last one.
pub(super) fn check(
    path: &Path,
    setup: ConnectionOptions,
    progress: &dyn Fn(u64, u64),
) -> Result<CheckReport, Fault> {
    let mut found = CheckReport::default();
    let inspected = match inspect::inspect(path, Operation::CheckJournal) {
        Ok(inspected) => inspected,
        Err(fault) if fault.kind() == Kind::JournalDamaged => {
            found.findings.push(Damage::in_file(fault.to_string(), SALVAGE));
            return Ok(found);
        }
        Err(fault) => return Err(fault),
    };
    let path = &inspected.path;
    if inspected.content == PathContent::Empty {
        if watermark::path_of(path).exists() {
            found.findings.push(Damage::in_file("the journal is empty but had records", "nothing"));
        }
        return Ok(found);
    }
    let inspected = inspected.require_journal(Operation::CheckJournal)?;
    let path = &inspected.path;
    let done = connect(path, setup).and_then(|connection| {
        // The watermark is read before the tables, so that it can be behind them but not ahead.
        let meta = Meta::load_required(&connection, path);
        let recorded = meta.as_ref().ok().and_then(|meta| read_watermark(path, meta));
        connection.execute_batch("BEGIN")?;
        let mut check = FileCheck { connection: &connection, path, found: &mut found, progress };
        check.check_structure()?;
        check.check_all(&meta?, recorded)
    });
    match done {
        Ok(()) => Ok(found),
        Err(error) => {
            let fault = error.into_fault(path, Operation::CheckJournal);
            if matches!(
                fault.kind(),
                Kind::JournalNewer | Kind::JournalOutdated | Kind::JournalBusy
            ) {
                return Err(fault);
            }
            found.findings.push(Damage::in_file(fault.to_string(), SALVAGE));
            Ok(found)
        }
    }
}

/// Opens the file read-only, so that closing it does not checkpoint into a file that may be damaged.
pub(super) fn connect(path: &Path, setup: ConnectionOptions) -> Result<Connection, SqliteError> {
    let setup =
        ConnectionOptions { busy_timeout: setup.busy_timeout.max(Duration::from_secs(1)), ..setup };
    schema::connect(path, Purpose::ReadOnly, setup)
}

/// Checks one journal file and collects the damage.
struct FileCheck<'a> {
    connection: &'a Connection,
    path: &'a Path,
    found: &'a mut CheckReport,
    progress: &'a dyn Fn(u64, u64),
}

/// The progress of a check through one session's batches.
struct SessionProgress {
    row: SessionRow,
    next: Seq,
    chain: Option<Digest>,
    damaged: Option<Seq>,
}

impl FileCheck<'_> {
    fn add_finding(&mut self, damage: Damage) {
        if self.found.findings.len() < MAX_FINDINGS {
            self.found.findings.push(damage);
        }
    }

    /// Runs SQLite's own check of its pages and indexes.
    fn check_structure(&mut self) -> Result<(), SqliteError> {
        let mut statement = self.connection.prepare("PRAGMA integrity_check(100)")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let line: String = row.get(0)?;
            if line != "ok" {
                self.add_finding(Damage::in_file(line, SALVAGE));
            }
        }
        Ok(())
    }

    fn check_all(&mut self, meta: &Meta, recorded: Option<Watermark>) -> Result<(), SqliteError> {
        self.found.lost.clone_from(&meta.lost);
        let mark = watermark_from_tables(self.connection, meta)?;
        if let Some(loss) = recorded.and_then(|recorded| mark.describe_loss(recorded)) {
            self.add_finding(Damage::in_file(
                format!("the journal lost its end: {loss}"),
                "everything before it",
            ));
        }
        if meta.indexed > mark.batch_id || meta.viewed > mark.batch_id || meta.indexed < 0 {
            self.add_finding(Damage::in_file(
                "the index claims batches that are not there",
                SALVAGE,
            ));
        }
        let mut sessions = self.check_sessions()?;
        self.check_batches(&mut sessions, meta)?;
        self.check_ends(sessions, meta)?;
        self.check_index_entries(meta)?;
        self.check_blobs()
    }

    fn check_sessions(&mut self) -> Result<HashMap<i64, SessionProgress>, SqliteError> {
        let mut sessions = HashMap::new();
        for (key, row) in SessionRow::load_many(self.connection, self.path, 0, usize::MAX)? {
            match row {
                Ok(row) => {
                    sessions
                        .insert(key, SessionProgress { row, next: 0, chain: None, damaged: None });
                }
                Err(fault) => self.add_finding(Damage::in_file(fault.to_string(), SALVAGE)),
            }
        }
        self.found.sessions = sessions.len() as u64;
        Ok(sessions)
    }

    /// Checks every batch once, in file order.
    fn check_batches(
        &mut self,
        sessions: &mut HashMap<i64, SessionProgress>,
        meta: &Meta,
    ) -> Result<(), SqliteError> {
        let connection = self.connection;
        let last =
            connection.query_row("SELECT coalesce(max(batch_id), 0) FROM batch", [], |row| {
                read_position(row, 0)
            })?;
        let mut statement = connection
            .prepare("SELECT batch_id, session, first, count, body FROM batch ORDER BY batch_id")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (batch_id, key): (i64, i64) = (row.get(0)?, row.get(1)?);
            (self.progress)(batch_id.cast_unsigned(), last);
            let Some(progress) = sessions.get_mut(&key) else {
                self.add_finding(Damage::in_file(
                    format!("batch {batch_id} has no session"),
                    SALVAGE,
                ));
                continue;
            };
            let blob = row.get_ref(4)?.as_blob().map_err(rusqlite::Error::from)?;
            let good = progress.take(read_position(row, 2)?, read_position(row, 3)?, blob);
            self.found.records += good;
            if batch_id <= meta.indexed {
                let indexed: Option<i64> = connection
                    .prepare_cached(
                        "SELECT batch_id FROM batch_index WHERE session = ?1 AND first = ?2",
                    )?
                    .query_row((key, row.get::<_, i64>(2)?), |row| row.get(0))
                    .optional()?;
                if indexed != Some(batch_id) {
                    let description = format!("batch {batch_id} is not where the index says");
                    let damage = Damage::in_session(&progress.row, description);
                    self.add_finding(damage);
                }
            }
        }
        Ok(())
    }

    fn check_ends(
        &mut self,
        sessions: HashMap<i64, SessionProgress>,
        meta: &Meta,
    ) -> Result<(), SqliteError> {
        for progress in sessions.into_values() {
            let row = &progress.row;
            let head = rows::history_end(self.connection, row, meta.indexed)?.head;
            let last = progress.next.saturating_sub(1).max(row.removed_to);
            if let Some(seq) = progress.damaged.or((head != last).then_some(last + 1)) {
                self.add_finding(Damage {
                    session: Some(row.session),
                    seq: Some(seq),
                    description: format!("record {seq} is damaged or missing"),
                    readable: format!("records {} to {}", row.removed_to + 1, seq - 1),
                });
            }
            self.check_snapshot(row, last)?;
            self.check_inbox(row)?;
        }
        Ok(())
    }

    fn check_snapshot(&mut self, row: &SessionRow, head: Seq) -> Result<(), SqliteError> {
        let found: Option<(u64, bool)> = self
            .connection
            .prepare_cached("SELECT seq, body, checksum FROM snapshot WHERE session = ?1")?
            .query_row([row.key], |found| {
                let seq = read_position(found, 0)?;
                let body = found.get_ref(1)?.as_blob()?;
                Ok((seq, snapshot_checksum(seq, body) == found.get::<_, u32>(2)?))
            })
            .optional()?;
        match found {
            Some((_, false)) => {
                self.add_finding(Damage::in_session(row, "its snapshot is damaged"));
            }
            Some((seq, true)) if seq > head => {
                let description = format!("its snapshot covers {seq} records, {head} are there");
                self.add_finding(Damage::in_session(row, description));
            }
            _ => {}
        }
        Ok(())
    }

    fn check_inbox(&mut self, row: &SessionRow) -> Result<(), SqliteError> {
        let connection = self.connection;
        let sql = "SELECT id, body, answer, checksum, command FROM inbox WHERE session = ?1";
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query([row.key])?;
        while let Some(found) = rows.next()? {
            let name: String = found.get(4)?;
            match InboxRow::from_row(found, row.session, self.path) {
                Ok(kept) if *kept.command.id.0 == *name => self.found.commands += 1,
                Ok(_) => {
                    let description = format!("command `{name}`: the stored id differs");
                    self.add_finding(Damage::in_session(row, description));
                }
                Err(error) => {
                    let fault = error.into_fault(self.path, Operation::CheckJournal);
                    self.add_finding(Damage::in_session(row, fault.to_string()));
                }
            }
        }
        Ok(())
    }

    fn check_index_entries(&mut self, meta: &Meta) -> Result<(), SqliteError> {
        let sql = "SELECT count(*) FROM batch_index s LEFT JOIN batch b ON b.batch_id = s.batch_id \
             WHERE b.batch_id IS NULL OR b.session != s.session OR b.first != s.first OR s.batch_id > ?1";
        let dangling: i64 = self.connection.query_row(sql, [meta.indexed], |row| row.get(0))?;
        if dangling > 0 {
            let description = format!("{dangling} index entries point nowhere");
            self.add_finding(Damage::in_file(description, "the records"));
        }
        Ok(())
    }

    fn check_blobs(&mut self) -> Result<(), SqliteError> {
        let connection = self.connection;
        let mut statement = connection.prepare("SELECT hash, body FROM blob")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let digest = Digest(row.get(0)?);
            let body = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
            if Digest::of(body) == digest {
                self.found.blobs += 1;
            } else {
                let description = format!("the kept output {digest} is damaged");
                self.add_finding(Damage::in_file(description, "the records"));
            }
        }
        let sql = "SELECT count(*) FROM blob_reference WHERE hash NOT IN (SELECT hash FROM blob)";
        let missing: i64 = connection.query_row(sql, [], |row| row.get(0))?;
        if missing > 0 {
            let description = format!("{missing} kept outputs are missing");
            self.add_finding(Damage::in_file(description, "the records"));
        }
        Ok(())
    }
}

impl SessionProgress {
    /// Checks the next batch of the session. Returns how many of its records are intact and not removed.
    fn take(&mut self, first: Seq, count: u64, blob: &[u8]) -> u64 {
        if self.damaged.is_some() {
            return 0;
        }
        let is_first = self.chain.is_none();
        // Retention removes whole batches only from the front, never in between.
        let is_contiguous =
            if is_first { first <= self.row.removed_to + 1 } else { first == self.next };
        if !is_contiguous {
            self.damaged = Some(self.next.max(self.row.removed_to + 1));
            return 0;
        }
        let location =
            BatchLocation { session: self.row.session, epoch: self.row.epoch, first, count };
        let mut good = 0;
        let unpacked = batch_encoding::unpack(location, &Bytes::copy_from_slice(blob), |record| {
            good += u64::from(record.seq > self.row.removed_to);
        });
        let expected =
            if is_first { (first == 1).then(|| chain::seed(self.row.session)) } else { self.chain };
        if expected.is_some_and(|chain| unpacked.previous != Some(chain)) {
            self.damaged = Some(first);
            return 0;
        }
        self.damaged = unpacked.damaged;
        self.chain = unpacked.digest;
        self.next = first.saturating_add(count);
        good
    }
}
