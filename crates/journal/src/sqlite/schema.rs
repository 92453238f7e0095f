//! The file: its tables, its versions, and how a connection is set up.
//!
//! Truth is in `batch`, `session`, `inbox`, `snapshot` and `blob`; `span` is an index of `batch` that is
//! filled in bulk, and every `view_…` is derived. Rows of truth carry checksums of their own.

use std::{path::Path, sync::OnceLock, time::Duration};

use budao_core::fault::{Fact, Fault, Kind, Operation};
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::{
    errors::{SqliteError, damaged},
    inspect::not_a_journal,
};

/// "Bdao".
pub(super) const APPLICATION: i32 = 0x4264_616f;

/// Each brings a file from the version before to its own. Released ones never change.
const MIGRATIONS: [&str; 1] = ["
CREATE TABLE meta(
    id INTEGER PRIMARY KEY CHECK (id = 1),
    journal BLOB NOT NULL,
    indexed_to INTEGER NOT NULL,
    projected_to INTEGER NOT NULL,
    batch_id_floor INTEGER NOT NULL,
    last_token INTEGER NOT NULL,
    is_copy INTEGER NOT NULL,
    loss TEXT,
    checksum INTEGER NOT NULL
);
CREATE TABLE session(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    uuid BLOB NOT NULL UNIQUE,
    epoch INTEGER NOT NULL,
    removed_to INTEGER NOT NULL,
    removed_reason TEXT,
    token INTEGER,
    holder TEXT NOT NULL,
    expires INTEGER NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE TABLE batch(
    batch_id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    first INTEGER NOT NULL,
    count INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE TABLE batch_index(
    session INTEGER NOT NULL,
    first INTEGER NOT NULL,
    batch_id INTEGER NOT NULL,
    PRIMARY KEY (session, first)
) WITHOUT ROWID;
CREATE TABLE inbox(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL,
    command TEXT NOT NULL,
    body BLOB NOT NULL,
    answer BLOB,
    checksum INTEGER NOT NULL,
    UNIQUE (session, command)
);
CREATE INDEX inbox_waiting ON inbox(session) WHERE answer IS NULL;
CREATE TABLE snapshot(
    session INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    body BLOB NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE TABLE blob(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    hash BLOB NOT NULL UNIQUE,
    body BLOB NOT NULL
);
CREATE TABLE blob_reference(
    session INTEGER NOT NULL,
    hash BLOB NOT NULL,
    PRIMARY KEY (session, hash)
) WITHOUT ROWID;
CREATE INDEX blob_reference_hash ON blob_reference(hash);
CREATE TABLE view_session(
    session INTEGER PRIMARY KEY,
    state TEXT NOT NULL,
    opened INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    title TEXT,
    labels TEXT NOT NULL,
    turns INTEGER NOT NULL,
    open_turn INTEGER,
    last_code TEXT,
    head INTEGER NOT NULL
);
CREATE INDEX view_session_updated ON view_session(updated);
CREATE INDEX view_session_open ON view_session(session) WHERE open_turn IS NOT NULL;
CREATE TABLE view_label(
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    session INTEGER NOT NULL,
    PRIMARY KEY (key, value, session)
) WITHOUT ROWID;
CREATE TABLE view_trace(
    trace BLOB NOT NULL,
    session INTEGER NOT NULL,
    PRIMARY KEY (trace, session)
) WITHOUT ROWID;
CREATE TABLE view_tool(
    tool TEXT NOT NULL,
    session INTEGER NOT NULL,
    PRIMARY KEY (tool, session)
) WITHOUT ROWID;
CREATE TABLE view_code(
    code TEXT NOT NULL,
    session INTEGER NOT NULL,
    PRIMARY KEY (code, session)
) WITHOUT ROWID;
CREATE TABLE view_rate(
    code TEXT NOT NULL,
    minute INTEGER NOT NULL,
    raised INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    PRIMARY KEY (code, minute)
) WITHOUT ROWID;
"];

/// Versions up to this one were never released. A file of such a version is refused and left as it is.
const UNRELEASED: usize = 1;

/// The version this program writes.
pub(super) const VERSION: usize = UNRELEASED + MIGRATIONS.len();

/// Every table that can be made again.
pub(super) const VIEWS: [&str; 6] =
    ["view_session", "view_label", "view_trace", "view_tool", "view_code", "view_rate"];

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Write,
    Read,
    /// The file system may not let us write at all.
    ReadOnly,
}

/// How the file is laid out and used.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionOptions {
    pub(super) page_bytes: u32,
    pub(super) busy: Duration,
}

/// Opens a connection to a file that was inspected. A writer's migrates an older one.
pub(super) fn connect(
    path: &Path,
    purpose: Purpose,
    setup: ConnectionOptions,
) -> Result<Connection, SqliteError> {
    let connection = open(path, purpose, setup)?;
    set_up(&connection, path, purpose, setup)?;
    Ok(connection)
}

/// Opens the file, which must exist. Nothing is read or written yet.
pub(super) fn open(
    path: &Path,
    purpose: Purpose,
    setup: ConnectionOptions,
) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let flags = match purpose {
        Purpose::Write | Purpose::Read => flags | OpenFlags::SQLITE_OPEN_READ_WRITE,
        Purpose::ReadOnly => flags | OpenFlags::SQLITE_OPEN_READ_ONLY,
    };
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(setup.busy)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Makes a connection ready: the first step that may change the file.
pub(super) fn set_up(
    connection: &Connection,
    path: &Path,
    purpose: Purpose,
    setup: ConnectionOptions,
) -> Result<(), SqliteError> {
    refuse_unreleased(connection, path)?;
    if purpose == Purpose::Write {
        // Only has an effect on a file without tables, and must come before WAL.
        connection.pragma_update(None, "page_size", setup.page_bytes)?;
        let mode: String =
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
        if mode != "wal" {
            let fault = Fault::new(Kind::JournalReadOnly, Operation::OpenJournal)
                .with(Fact::Path, path.display().to_string())
                .with_cause(format!("write-ahead logging is not possible here (mode {mode})"));
            return Err(fault.into());
        }
        connection.pragma_update(None, "synchronous", "FULL")?;
        // We checkpoint by ourselves after answering; this is for when we do not get to it.
        connection.pragma_update(None, "wal_autocheckpoint", 4000)?;
        connection.pragma_update(None, "secure_delete", true)?;
        // Statements that may have to be undone alone keep their old pages in memory, not in a file.
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        migrate(connection, path)?;
    } else {
        connection.pragma_update(None, "query_only", true)?;
        refuse_foreign(connection, path)?;
    }
    refuse_altered(connection, path)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    Ok(())
}

fn version(connection: &Connection) -> Result<usize, rusqlite::Error> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok(usize::try_from(version).unwrap_or(usize::MAX))
}

fn application(connection: &Connection) -> Result<i32, rusqlite::Error> {
    connection.pragma_query_value(None, "application_id", |row| row.get(0))
}

/// A reader takes what a writer of this version has prepared, nothing else.
fn refuse_foreign(connection: &Connection, path: &Path) -> Result<(), SqliteError> {
    let version = version(connection)?;
    if application(connection)? != APPLICATION {
        return Err(not_a_journal(path, "database", Operation::OpenJournal).into());
    }
    match version.cmp(&VERSION) {
        std::cmp::Ordering::Greater => Err(newer(path, version).into()),
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Less => Err(outdated(path, version).into()),
    }
}

/// SQLite believes what the file says its tables are; a flipped bit there changes what is found.
fn refuse_altered(connection: &Connection, path: &Path) -> Result<(), SqliteError> {
    static EXPECTED: OnceLock<String> = OnceLock::new();
    let expected = match EXPECTED.get() {
        Some(expected) => expected,
        None => {
            let model = Connection::open_in_memory()?;
            for script in MIGRATIONS {
                model.execute_batch(script)?;
            }
            let told = stored_schema(&model)?;
            EXPECTED.get_or_init(|| told)
        }
    };
    if stored_schema(connection)? == *expected {
        return Ok(());
    }
    Err(damaged(path, Operation::OpenJournal, "the description of its tables is altered").into())
}

fn stored_schema(connection: &Connection) -> Result<String, rusqlite::Error> {
    connection.query_row(
        "SELECT group_concat(type || ' ' || name || ' ' || tbl_name || ' ' || coalesce(sql, ''), \
         char(10)) FROM (SELECT * FROM sqlite_schema ORDER BY name)",
        [],
        |row| row.get(0),
    )
}

/// Refuses a file of a version that no migration starts from, before anything in it changes.
fn refuse_unreleased(connection: &Connection, path: &Path) -> Result<(), SqliteError> {
    match version(connection)? {
        version @ 1..=UNRELEASED if application(connection)? == APPLICATION => {
            Err(outdated(path, version).into())
        }
        _ => Ok(()),
    }
}

fn outdated(path: &Path, version: usize) -> Fault {
    Fault::new(Kind::JournalOutdated, Operation::OpenJournal)
        .with(Fact::Path, path.display().to_string())
        .with(Fact::Version, version.to_string())
        .with(Fact::Supported, vec![VERSION.to_string()])
}

fn newer(path: &Path, version: usize) -> Fault {
    Fault::new(Kind::JournalNewer, Operation::OpenJournal)
        .with(Fact::Path, path.display().to_string())
        .with(Fact::Version, version.to_string())
        .with(Fact::Supported, vec![VERSION.to_string()])
}

fn migrate(connection: &Connection, path: &Path) -> Result<(), SqliteError> {
    if application(connection)? == APPLICATION && version(connection)? == VERSION {
        return Ok(());
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    // From here on no other process can be ahead of us.
    let done = migrate_locked(connection, path);
    match &done {
        Ok(()) => connection.execute_batch("COMMIT")?,
        // The first error is the one to tell; a failed rollback ends with the connection.
        Err(_) => drop(connection.execute_batch("ROLLBACK")),
    }
    done
}

fn migrate_locked(connection: &Connection, path: &Path) -> Result<(), SqliteError> {
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let from = version(connection)?;
    if tables > 0 && application(connection)? != APPLICATION {
        return Err(not_a_journal(path, "database", Operation::OpenJournal).into());
    }
    if from > VERSION {
        return Err(newer(path, from).into());
    }
    for script in &MIGRATIONS[from.saturating_sub(UNRELEASED)..] {
        connection.execute_batch(script)?;
    }
    connection.pragma_update(None, "application_id", APPLICATION)?;
    connection.pragma_update(None, "user_version", i64::try_from(VERSION).unwrap_or(i64::MAX))?;
    Ok(())
}

/// The one row that says how far things are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    /// Names this file, so that a witness of another is not believed.
    pub(super) journal: [u8; 16],
    /// Batches up to this one are in `span`.
    pub(super) indexed: i64,
    /// Batches up to this one are in the views.
    pub(super) viewed: i64,
    /// No batch gets a number up to this one, even if there is none left that has it.
    pub(super) floor: i64,
    /// The last lease token given.
    pub(super) last_token: i64,
    /// The file is a copy that nobody has written to yet.
    pub(super) is_copy: bool,
    /// What was found missing, when, in words.
    pub(super) lost: Option<String>,
}

impl Meta {
    fn checksum(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.journal);
        for number in [self.indexed, self.viewed, self.floor, self.last_token] {
            hasher.update(&number.to_le_bytes());
        }
        hasher.update(&[u8::from(self.is_copy)]);
        hasher.update(self.lost.as_deref().unwrap_or_default().as_bytes());
        hasher.finalize()
    }

    /// Reads it; none in a file that was just made.
    pub(super) fn load(connection: &Connection, path: &Path) -> Result<Option<Self>, SqliteError> {
        let mut statement = connection.prepare_cached(
            "SELECT journal, indexed_to, projected_to, batch_id_floor, last_token, is_copy, loss, checksum FROM meta",
        )?;
        let found = statement
            .query_row([], |row| {
                let meta = Self {
                    journal: row.get(0)?,
                    indexed: row.get(1)?,
                    viewed: row.get(2)?,
                    floor: row.get(3)?,
                    last_token: row.get(4)?,
                    is_copy: row.get(5)?,
                    lost: row.get(6)?,
                };
                Ok((meta, row.get::<_, u32>(7)?))
            })
            .optional()?;
        match found {
            Some((meta, checksum)) if meta.checksum() != checksum => {
                Err(damaged(path, Operation::OpenJournal, "the journal's own row is altered")
                    .into())
            }
            found => Ok(found.map(|(meta, _)| meta)),
        }
    }

    /// Reads it where it must be.
    pub(super) fn must_load(connection: &Connection, path: &Path) -> Result<Self, SqliteError> {
        Self::load(connection, path)?.ok_or_else(|| {
            damaged(path, Operation::OpenJournal, "the journal's own row is missing").into()
        })
    }

    pub(super) fn store(&self, connection: &Connection) -> Result<(), rusqlite::Error> {
        connection
            .prepare_cached(
                "INSERT OR REPLACE INTO meta(id, journal, indexed_to, projected_to, batch_id_floor, last_token, \
                 is_copy, loss, checksum) VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute((
                self.journal,
                self.indexed,
                self.viewed,
                self.floor,
                self.last_token,
                self.is_copy,
                &self.lost,
                self.checksum(),
            ))?;
        Ok(())
    }
}
