//! The tables, their versions, and whether a schema holds a journal.
//!
//! `session`, `batch`, `inbox`, `snapshot` and `blob` hold the truth; every `view_…` table is derived. Within a release
//! a migration only adds, so that processes of two versions work side by side.

use budao_core::fault::{Fact, Fault, Kind, Operation};
use uuid::Uuid;

use crate::{
    address::Address,
    errors,
    pool::{Exclusive, Pool},
    timeline::{current_origin, current_timeline},
};

/// The name of the program in `meta`.
const PROGRAM: &str = "budao";

/// Each script upgrades the tables from the previous version. A released script never changes.
const MIGRATIONS: [&str; 4] = ["
CREATE TABLE @meta(
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    program text NOT NULL,
    journal uuid NOT NULL,
    version int NOT NULL,
    oldest_reader int NOT NULL,
    timeline bigint NOT NULL,
    lost text
);
CREATE SEQUENCE @token;
CREATE TABLE @note(name text PRIMARY KEY, body bytea NOT NULL, version bigint NOT NULL);
CREATE TABLE @node(holder text PRIMARY KEY, beat bigint NOT NULL, status bytea NOT NULL) WITH (fillfactor = 50);
CREATE TABLE @observer(session uuid NOT NULL, holder text NOT NULL, PRIMARY KEY (session, holder));
CREATE INDEX observer_holder ON @observer(holder);
CREATE TABLE @cohort(day int PRIMARY KEY);
CREATE TABLE @session(
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uuid uuid NOT NULL UNIQUE,
    cohort int NOT NULL,
    epoch int NOT NULL,
    head bigint NOT NULL DEFAULT 0,
    chain bytea NOT NULL,
    token bigint,
    holder text NOT NULL DEFAULT '',
    expires bigint NOT NULL,
    removed_to bigint NOT NULL DEFAULT 0,
    removed_reason text,
    removed_digest bytea,
    viewed bigint NOT NULL DEFAULT 0,
    dirty boolean NOT NULL DEFAULT false,
    place text
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX session_dirty ON @session(id) WHERE dirty;
CREATE INDEX session_holder ON @session(holder) WHERE token IS NOT NULL;
CREATE INDEX session_cohort ON @session(cohort);
CREATE TABLE @batch(
    cohort int NOT NULL,
    session bigint NOT NULL,
    first bigint NOT NULL,
    count int NOT NULL,
    body bytea NOT NULL
) PARTITION BY RANGE (cohort);
ALTER TABLE @batch ALTER body SET STORAGE EXTERNAL;
CREATE TABLE @inbox(
    id bigint GENERATED ALWAYS AS IDENTITY,
    session bigint NOT NULL,
    command bytea NOT NULL,
    body bytea NOT NULL,
    answer bytea,
    PRIMARY KEY (session, command)
);
CREATE INDEX inbox_waiting ON @inbox(session, id) WHERE answer IS NULL;
CREATE TABLE @snapshot(session bigint PRIMARY KEY, seq bigint NOT NULL, body bytea NOT NULL);
CREATE TABLE @blob(hash bytea PRIMARY KEY, body bytea NOT NULL);
ALTER TABLE @blob ALTER body SET STORAGE EXTERNAL;
CREATE TABLE @blob_reference(session bigint NOT NULL, hash bytea NOT NULL, PRIMARY KEY (session, hash));
CREATE INDEX blob_reference_hash ON @blob_reference(hash);
CREATE TABLE @view_session(
    session bigint PRIMARY KEY,
    state text NOT NULL,
    updated bigint NOT NULL,
    open_turn bigint,
    body bytea NOT NULL
);
CREATE INDEX view_session_updated ON @view_session(updated);
CREATE INDEX view_session_open ON @view_session(session) WHERE open_turn IS NOT NULL;
CREATE TABLE @view_label(key bytea NOT NULL, value bytea NOT NULL, session bigint NOT NULL,
    PRIMARY KEY (session, key));
CREATE INDEX view_label_key ON @view_label(key, session);
CREATE TABLE @view_trace(trace bytea NOT NULL, session bigint NOT NULL, PRIMARY KEY (trace, session));
CREATE INDEX view_trace_session ON @view_trace(session);
CREATE TABLE @view_tool(tool bytea NOT NULL, session bigint NOT NULL, PRIMARY KEY (session, tool));
CREATE INDEX view_tool_tool ON @view_tool(tool, session);
CREATE TABLE @view_code(code text NOT NULL, session bigint NOT NULL, PRIMARY KEY (code, session));
CREATE INDEX view_code_session ON @view_code(session);
CREATE TABLE @view_rate(code text NOT NULL, minute bigint NOT NULL, node int NOT NULL, raised bigint NOT NULL,
    ended bigint NOT NULL, PRIMARY KEY (code, minute, node));
CREATE INDEX view_rate_minute ON @view_rate(minute);
", "
CREATE TABLE @once_key(
    key bytea PRIMARY KEY,
    session uuid NOT NULL,
    call text NOT NULL,
    attempt bigint NOT NULL,
    claimed bigint NOT NULL,
    outcome bytea
);
CREATE INDEX once_key_owner ON @once_key(session, call);
CREATE INDEX once_key_claimed ON @once_key(claimed);
", "
ALTER TABLE @view_session ADD COLUMN wake_at bigint;
CREATE INDEX view_session_wake ON @view_session(wake_at) WHERE wake_at IS NOT NULL;
", "
ALTER TABLE @meta ADD COLUMN origin text;
ALTER TABLE @meta ADD COLUMN generation int NOT NULL DEFAULT 0;
ALTER TABLE @session ADD COLUMN generation int NOT NULL DEFAULT 0;
"];

/// Versions up to this one were never released. Tables of such a version are refused and left as they are.
const UNRELEASED: i32 = 2;

/// The version this program writes.
pub(crate) const VERSION: i32 = UNRELEASED + MIGRATIONS.len() as i32;

/// The oldest version whose programs can use what this version writes.
const OLDEST_READER: i32 = UNRELEASED + 1;

/// Stores program and version. What is known of the history of existing tables stays.
const STORE_VERSION: &str = concat!(
    "INSERT INTO @meta(program, journal, version, oldest_reader, timeline, origin) \
     VALUES ($1, gen_random_uuid(), $2, $3, ",
    current_timeline!(),
    ", ",
    current_origin!(),
    ") ON CONFLICT (one) DO UPDATE SET version = $2, oldest_reader = greatest(meta.oldest_reader, $3), \
        origin = coalesce(meta.origin, excluded.origin) RETURNING journal"
);

/// The tables that can be derived again from the records.
pub(crate) const VIEWS: &str =
    "@view_session, @view_label, @view_trace, @view_tool, @view_code, @view_rate";

/// What a schema holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchemaContent {
    /// There is no schema, or it has no tables.
    Nothing,
    /// Tables of another program.
    Foreign,
    Journal(JournalVersion),
}

/// The identity and versions of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalVersion {
    pub(crate) journal: Uuid,
    pub(crate) version: i32,
    /// The oldest version whose programs can use it.
    pub(crate) oldest_reader: i32,
}

/// Finds out what the schema holds. Changes nothing.
pub(crate) async fn inspect(
    connection: &mut Exclusive<'_>,
    schema: &str,
) -> Result<SchemaContent, Fault> {
    let found = connection
        .query(
            "SELECT count(*), count(*) FILTER (WHERE c.relname = 'meta' AND 4 = (SELECT count(*) \
             FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname IN ('program', 'journal', \
             'version', 'oldest_reader'))) FROM pg_class c JOIN pg_namespace n \
             ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f')",
            &[&schema],
        )
        .await?;
    let (relations, metas): (i64, i64) = (found[0].get(0), found[0].get(1));
    if relations == 0 {
        return Ok(SchemaContent::Nothing);
    }
    if metas == 0 {
        return Ok(SchemaContent::Foreign);
    }
    let meta =
        connection.query("SELECT program, journal, version, oldest_reader FROM @meta", &[]).await?;
    let ours = meta.first().filter(|row| row.get::<_, &str>(0) == PROGRAM);
    Ok(ours.map_or(SchemaContent::Foreign, |row| {
        let (journal, version, oldest_reader) = (row.get(1), row.get(2), row.get(3));
        SchemaContent::Journal(JournalVersion { journal, version, oldest_reader })
    }))
}

/// Refuses tables that this version cannot use.
///
/// # Errors
/// `not_a_journal`, `journal_newer`, `journal_outdated`.
pub(crate) fn refuse(content: SchemaContent, address: &Address) -> Result<(), Fault> {
    let operation = Operation::OpenJournal;
    match content {
        SchemaContent::Foreign => Err(errors::fault(address, Kind::NotAJournal, operation)
            .with(Fact::Path, format!("{}?schema={}", address.label, address.schema))
            .with(Fact::Cause, "schema")),
        SchemaContent::Journal(found) if found.oldest_reader > VERSION => {
            Err(errors::fault(address, Kind::JournalNewer, operation)
                .with(Fact::Version, found.version.to_string())
                .with(Fact::Supported, vec![VERSION.to_string()]))
        }
        SchemaContent::Journal(found) if found.version <= UNRELEASED => {
            Err(errors::fault(address, Kind::JournalOutdated, operation)
                .with(Fact::Version, found.version.to_string())
                .with(Fact::Supported, vec![VERSION.to_string()]))
        }
        SchemaContent::Nothing | SchemaContent::Journal(_) => Ok(()),
    }
}

/// Creates or upgrades the tables in one transaction. Returns the id of the journal.
pub(crate) async fn migrate(pool: &Pool) -> Result<Uuid, Fault> {
    let address = pool.address();
    let mut connection = pool.exclusive(Operation::OpenJournal).await?;
    connection.begin().await?;
    // Held to the end of the transaction, so that two processes do not create the same tables.
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended('budao ' || $1, 0))";
    connection.query(lock, &[&address.schema]).await?;
    let content = inspect(&mut connection, &address.schema).await?;
    refuse(content, address)?;
    let from = match content {
        SchemaContent::Journal(found) if found.version >= VERSION => {
            connection.commit().await?;
            return Ok(found.journal);
        }
        SchemaContent::Journal(found) => found.version,
        _ => {
            if !exists(&mut connection, &address.schema).await? {
                connection.execute(&format!("CREATE SCHEMA \"{}\"", address.schema)).await?;
            }
            0
        }
    };
    let done = usize::try_from(from - UNRELEASED).unwrap_or(0);
    for script in MIGRATIONS.iter().skip(done) {
        connection.execute(script).await?;
    }
    let stored = connection.query(STORE_VERSION, &[&PROGRAM, &VERSION, &OLDEST_READER]).await?;
    connection.commit().await?;
    tracing::info!(journal = %address.label, from, to = VERSION, "journal tables migrated");
    Ok(stored[0].get(0))
}

async fn exists(connection: &mut Exclusive<'_>, schema: &str) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM pg_namespace WHERE nspname = $1";
    Ok(!connection.query(sql, &[&schema]).await?.is_empty())
}
