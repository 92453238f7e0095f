//! The tables of the file, their versions, and the setup of a connection.
//!
//! The tables `batch`, `session`, `inbox`, `snapshot` and `blob` hold the truth, with checksums in their rows.
//! `batch_index` is an index of `batch` that is filled in bulk. `node`, `observer` and `note` coordinate servers. Every `view_…` table is derived.

use std::{path::Path, sync::OnceLock, time::Duration};

use budao_core::fault::{Fact, Fault, Kind, Operation};
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::{
    errors::{SqliteError, damage_fault},
    inspect::not_a_journal,
};

/// SQLite's `application_id` of a journal: "Bdao" in ASCII.
pub(super) const APPLICATION_ID: i32 = 0x4264_616f;

/// Each script upgrades a file from the previous version. A released script never changes.
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
    checksum INTEGER NOT NULL,
    removed_digest BLOB,
    known_end_seq INTEGER NOT NULL,
    known_end_digest BLOB
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
CREATE TABLE node(
    holder TEXT PRIMARY KEY,
    beat INTEGER NOT NULL,
    status BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE observer(
    session BLOB NOT NULL,
    holder TEXT NOT NULL,
    PRIMARY KEY (session, holder)
) WITHOUT ROWID;
CREATE INDEX observer_holder ON observer(holder);
CREATE TABLE note(
    name TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    body BLOB NOT NULL
) WITHOUT ROWID;
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
    head INTEGER NOT NULL,
    faults TEXT NOT NULL,
    timers TEXT,
    wake_at INTEGER
);
CREATE INDEX view_session_updated ON view_session(updated);
CREATE INDEX view_session_open ON view_session(session) WHERE open_turn IS NOT NULL;
CREATE INDEX view_session_wake ON view_session(wake_at) WHERE wake_at IS NOT NULL;
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
CREATE TABLE once_key(
    key BLOB PRIMARY KEY,
    session BLOB NOT NULL,
    call TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    claimed INTEGER NOT NULL,
    outcome BLOB
) WITHOUT ROWID;
CREATE INDEX once_key_owner ON once_key(session, call);
CREATE INDEX once_key_claimed ON once_key(claimed);
"];

/// Versions up to this one were never released. A file of such a version is refused and left as it is.
const UNRELEASED: usize = 7;

/// The version this program writes.
pub(super) const VERSION: usize = UNRELEASED + MIGRATIONS.len();

/// The tables that can be derived again from the records.
pub(super) const VIEWS: [&str; 6] =
    ["view_session", "view_label", "view_trace", "view_tool", "view_code", "view_rate"];

/// The access that a connection needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Write,
    Read,
    /// For a file system that may not permit writing at all.
    ReadOnly,
}

/// Page size of a new file, and how long a statement waits for another process's lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionOptions {
    pub(super) page_bytes: u32,
    pub(super) busy_timeout: Duration,
}

/// Opens a connection to an inspected file. A connection for writing migrates an older version.
pub(super) fn connect(
    path: &Path,
    purpose: Purpose,
    setup: ConnectionOptions,
) -> Result<Connection, SqliteError> {
    let connection = open(path, purpose, setup)?;
    configure(&connection, path, purpose, setup)?;
    Ok(connection)
}

/// Opens the file, which must exist. Reads and writes nothing yet.
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
    connection.busy_timeout(setup.busy_timeout)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Configures a connection: the first step that may change the file.
pub(super) fn configure(
    connection: &Connection,
    path: &Path,
    purpose: Purpose,
    setup: ConnectionOptions,
) -> Result<(), SqliteError> {
    refuse_unreleased(connection, path)?;
    if purpose == Purpose::Write {
        // These two only have an effect on a file without tables, and must come before WAL.
        connection.pragma_update(None, "page_size", setup.page_bytes)?;
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        let mode: String =
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
        if mode != "wal" {
            let fault = Fault::new(Kind::JournalReadOnly, Operation::OpenJournal)
                .with(Fact::Path, path.display().to_string())
                .with_cause(format!("write-ahead logging is not possible here (mode {mode})"));
            return Err(fault.into());
        }
        connection.pragma_update(None, "synchronous", "FULL")?;
        // The writer checkpoints by itself after replying; this is the fallback.
        connection.pragma_update(None, "wal_autocheckpoint", 4000)?;
        connection.pragma_update(None, "secure_delete", true)?;
        // Statement journals stay in memory instead of a temporary file.
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        migrate(connection, path)?;
    } else {
        connection.pragma_update(None, "query_only", true)?;
        refuse_unprepared(connection, path)?;
    }
    refuse_altered_schema(connection, path)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    Ok(())
}

fn read_version(connection: &Connection) -> Result<usize, rusqlite::Error> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok(usize::try_from(version).unwrap_or(usize::MAX))
}

fn read_application_id(connection: &Connection) -> Result<i32, rusqlite::Error> {
    connection.pragma_query_value(None, "application_id", |row| row.get(0))
}

/// Refuses a file that a writer of this version has not prepared: a reader never migrates.
fn refuse_unprepared(connection: &Connection, path: &Path) -> Result<(), SqliteError> {
    let version = read_version(connection)?;
    if read_application_id(connection)? != APPLICATION_ID {
        return Err(not_a_journal(path, "database", Operation::OpenJournal).into());
    }
    match version.cmp(&VERSION) {
        std::cmp::Ordering::Greater => Err(newer_fault(path, version).into()),
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Less => Err(outdated_fault(path, version).into()),
    }
}

/// Refuses a file whose schema was altered. SQLite trusts the stored schema, so a flipped bit changes query results.
fn refuse_altered_schema(connection: &Connection, path: &Path) -> Result<(), SqliteError> {
    static EXPECTED: OnceLock<String> = OnceLock::new();
    let expected = match EXPECTED.get() {
        Some(expected) => expected,
        None => {
            let model = Connection::open_in_memory()?;
            for script in MIGRATIONS {
                model.execute_batch(script)?;
            }
            let schema = stored_schema(&model)?;
            EXPECTED.get_or_init(|| schema)
        }
    };
    if stored_schema(connection)? == *expected {
        return Ok(());
    }
    Err(damage_fault(path, Operation::OpenJournal, "the description of its tables is altered")
        .into())
}

fn stored_schema(connection: &Connection) -> Result<String, rusqlite::Error> {
    connection.query_row(
        "SELECT group_concat(type || ' ' || name || ' ' || tbl_name || ' ' || coalesce(sql, ''), \
         char(10)) FROM (SELECT * FROM sqlite_schema ORDER BY name)",
        [],
        |row| row.get(0),
    )
}

/// Refuses a file of a version that no migration starts from, before changing it.
fn refuse_unreleased(connection: &Connection, path: &Path) -> Result<(), SqliteError> {
    match read_version(connection)? {
        version @ 1..=UNRELEASED if read_application_id(connection)? == APPLICATION_ID => {
            Err(outdated_fault(path, version).into())
        }
        _ => Ok(()),
    }
}

fn outdated_fault(path: &Path, version: usize) -> Fault {
    Fault::new(Kind::JournalOutdated, Operation::OpenJournal)
        .with(Fact::Path, path.display().to_string())
        .with(Fact::Version, version.to_string())
        .with(Fact::Supported, vec![VERSION.to_string()])
}

fn newer_fault(path: &Path, version: usize) -> Fault {
    Fault::new(Kind::JournalNewer, Operation::OpenJournal)
        .with(Fact::Path, path.display().to_string())
        .with(Fact::Version, version.to_string())
        .with(Fact::Supported, vec![VERSION.to_string()])
}

fn migrate(connection: &Connection, path: &Path) -> Result<(), SqliteError> {
    if read_application_id(connection)? == APPLICATION_ID && read_version(connection)? == VERSION {
        return Ok(());
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    // The write lock is held now, so no other process can migrate at the same time.
    let done = migrate_locked(connection, path);
    match &done {
        Ok(()) => connection.execute_batch("COMMIT")?,
        // The first error is returned; a failed rollback ends with the connection.
        Err(_) => drop(connection.execute_batch("ROLLBACK")),
    }
    done
}

fn migrate_locked(connection: &Connection, path: &Path) -> Result<(), SqliteError> {
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let from = read_version(connection)?;
    if tables > 0 && read_application_id(connection)? != APPLICATION_ID {
        return Err(not_a_journal(path, "database", Operation::OpenJournal).into());
    }
    if from > VERSION {
        return Err(newer_fault(path, from).into());
    }
    for script in &MIGRATIONS[from.saturating_sub(UNRELEASED)..] {
        connection.execute_batch(script)?;
    }
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update(None, "user_version", i64::try_from(VERSION).unwrap_or(i64::MAX))?;
    Ok(())
}

/// The single row of `meta`: the identity and progress of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    /// The id of this file; a watermark with another id is ignored.
    pub(super) journal: [u8; 16],
    /// Batches up to this number are in `batch_index`.
    pub(super) indexed: i64,
    /// Batches up to this number are in the views.
    pub(super) viewed: i64,
    /// Numbers up to this one are never given to a new batch, even if their batches were removed.
    pub(super) floor: i64,
    /// The last lease token issued.
    pub(super) last_token: i64,
    /// Whether the file is a backup that no process has opened for writing yet.
    pub(super) is_copy: bool,
    /// A description of data found missing, with the time; `None` if nothing was.
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

    /// Reads the row; `None` in a new file.
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
                Err(damage_fault(path, Operation::OpenJournal, "the journal's own row is altered")
                    .into())
            }
            found => Ok(found.map(|(meta, _)| meta)),
        }
    }

    /// Reads the row; its absence is damage.
    pub(super) fn load_required(connection: &Connection, path: &Path) -> Result<Self, SqliteError> {
        Self::load(connection, path)?.ok_or_else(|| {
            damage_fault(path, Operation::OpenJournal, "the journal's own row is missing").into()
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
