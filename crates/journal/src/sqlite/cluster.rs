//! Nodes, observed sessions and notes in a journal file. Their times are by the machine's clock.

use async_trait::async_trait;
use budao_core::{
    event::SessionId,
    fault::{Fault, Operation},
    time::Timestamp,
};
use rusqlite::{Connection, OptionalExtension};
use uuid::Uuid;

use super::{
    Sqlite,
    errors::SqliteError,
    into_fault, queries, unexpected_reply,
    write_request::{WriteReply, WriteRequest, WriteResult},
    writer_connection::WriterConnection,
};
use crate::contract::{
    Census, Cluster, NODE_ROW_TTL, NODE_TIMEOUT, NodeBeat, NodeInfo, Note, UnfinishedSession,
};

const OPERATION: Operation = Operation::TakeLease;

/// Sessions whose lease `?1` has and that nodes with a beat after `?2` observe.
const OBSERVED_SQL: &str = "SELECT DISTINCT o.session FROM observer o JOIN node n ON n.holder = o.holder \
    JOIN session s ON s.uuid = o.session \
    WHERE o.holder <> ?1 AND n.beat > ?2 AND s.holder = ?1 AND (s.token IS NOT NULL OR s.expires > ?3)";

impl WriterConnection {
    pub(super) fn beat(&mut self, beat: &NodeBeat) -> Result<WriteResult, SqliteError> {
        let now = self.context.world.clock.now();
        let status = serde_json::to_vec(&beat.status).unwrap_or_default();
        let connection = self.connection()?;
        let old = now.as_micros().saturating_sub(micros(NODE_ROW_TTL));
        connection.prepare_cached("DELETE FROM node WHERE beat < ?1")?.execute([old])?;
        let known = connection
            .prepare_cached("UPDATE node SET beat = ?2, status = ?3 WHERE holder = ?1")?
            .execute((&beat.holder, now.as_micros(), &status))?;
        if known == 0 {
            connection
                .prepare_cached("INSERT INTO node(holder, beat, status) VALUES (?1, ?2, ?3)")?
                .execute((&beat.holder, now.as_micros(), &status))?;
            connection.execute(
                "DELETE FROM observer WHERE holder NOT IN (SELECT holder FROM node)",
                [],
            )?;
        }
        let mut remove =
            connection.prepare_cached("DELETE FROM observer WHERE session = ?1 AND holder = ?2")?;
        for session in &beat.left {
            remove.execute((session.0.as_bytes(), &beat.holder))?;
        }
        let mut add = connection
            .prepare_cached("INSERT OR IGNORE INTO observer(session, holder) VALUES (?1, ?2)")?;
        for session in &beat.joined {
            add.execute((session.0.as_bytes(), &beat.holder))?;
        }
        drop((remove, add));
        self.frames += 2;
        Ok(Ok(WriteReply::WasKnown(known > 0)))
    }

    pub(super) fn leave(&mut self, holder: &str) -> Result<WriteResult, SqliteError> {
        let connection = self.connection()?;
        connection.execute("DELETE FROM node WHERE holder = ?1", [holder])?;
        connection.execute("DELETE FROM observer WHERE holder = ?1", [holder])?;
        self.frames += 2;
        Ok(Ok(WriteReply::Nothing))
    }

    pub(super) fn set_note(
        &mut self,
        name: &str,
        expected: u64,
        body: &[u8],
    ) -> Result<WriteResult, SqliteError> {
        let connection = self.connection()?;
        let found = read_note(connection, name)?.map_or(0, |note| note.version);
        if found != expected {
            return Ok(Ok(WriteReply::NoteVersion(None)));
        }
        let version = expected + 1;
        connection
            .prepare_cached(
                "INSERT INTO note(name, version, body) VALUES (?1, ?2, ?3) \
                 ON CONFLICT (name) DO UPDATE SET version = ?2, body = ?3",
            )?
            .execute((name, version.cast_signed(), body))?;
        self.frames += 1;
        Ok(Ok(WriteReply::NoteVersion(Some(version))))
    }

    pub(super) fn adopt_note(
        &mut self,
        name: &str,
        note: &Note,
    ) -> Result<WriteResult, SqliteError> {
        let changed = self
            .connection()?
            .prepare_cached(
                "INSERT INTO note(name, version, body) VALUES (?1, ?2, ?3) ON CONFLICT (name) \
                 DO UPDATE SET version = ?2, body = ?3 WHERE version < ?2",
            )?
            .execute((name, note.version.cast_signed(), &note.body))?;
        self.frames += 1;
        Ok(Ok(WriteReply::Adopted(changed > 0)))
    }
}

pub(super) fn all_notes(connection: &Connection) -> Result<Vec<(String, Note)>, SqliteError> {
    let mut statement =
        connection.prepare_cached("SELECT name, version, body FROM note ORDER BY name")?;
    let found = statement.query_map([], |row| {
        let version = row.get::<_, i64>(1)?.cast_unsigned();
        Ok((row.get(0)?, Note { version, body: row.get(2)? }))
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

fn micros(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn read_note(connection: &Connection, name: &str) -> Result<Option<Note>, SqliteError> {
    let mut statement =
        connection.prepare_cached("SELECT version, body FROM note WHERE name = ?1")?;
    let found = statement
        .query_row([name], |row| {
            Ok(Note { version: row.get::<_, i64>(0)?.cast_unsigned(), body: row.get(1)? })
        })
        .optional()?;
    Ok(found)
}

fn read_census(
    connection: &Connection,
    holder: &str,
    now: Timestamp,
) -> Result<Census, SqliteError> {
    let mut statement =
        connection.prepare_cached("SELECT holder, beat, status FROM node ORDER BY holder")?;
    let nodes = statement.query_map([], |row| {
        let status: Vec<u8> = row.get(2)?;
        Ok(NodeInfo {
            holder: row.get(0)?,
            silent_for: now.since(Timestamp::from_micros(row.get(1)?)),
            // A status that another version wrote is read field by field; unknown fields are dropped.
            status: serde_json::from_slice(&status).unwrap_or_default(),
        })
    })?;
    let nodes = nodes.collect::<Result<_, _>>()?;
    let mut statement = connection.prepare_cached(OBSERVED_SQL)?;
    let since = now.as_micros().saturating_sub(micros(NODE_TIMEOUT));
    let observed = statement.query_map((holder, since, now.as_micros()), |row| {
        Ok(SessionId(Uuid::from_bytes(row.get(0)?)))
    })?;
    Ok(Census { nodes, observed: observed.collect::<Result<_, _>>()? })
}

#[async_trait]
impl Cluster for Sqlite {
    async fn beat(&self, beat: NodeBeat) -> Result<bool, Fault> {
        match self.write(WriteRequest::Beat(Box::new(beat))).await.map_err(into_fault)? {
            WriteReply::WasKnown(was_known) => Ok(was_known),
            done => Err(unexpected_reply(OPERATION, &done)),
        }
    }

    async fn census(&self, holder: &str) -> Result<Census, Fault> {
        let (holder, now) = (holder.to_owned(), self.shared.world.clock.now());
        self.shared
            .readers
            .query(OPERATION, move |connection, _| read_census(connection, &holder, now))
            .await
    }

    async fn leave(&self, holder: &str) -> Result<(), Fault> {
        self.write(WriteRequest::Leave(holder.to_owned())).await.map_err(into_fault)?;
        Ok(())
    }

    async fn orphaned_sessions(
        &self,
        dead: &[String],
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<UnfinishedSession>, Fault> {
        self.catch_up().await?;
        let (dead, now) = (dead.to_vec(), self.shared.world.clock.now());
        self.shared
            .readers
            .query(Operation::ReadRecords, move |connection, path| {
                queries::unfinished(connection, path, after, limit, now, Some(&dead))
            })
            .await
    }

    async fn note(&self, name: &str) -> Result<Option<Note>, Fault> {
        let name = name.to_owned();
        self.shared
            .readers
            .query(OPERATION, move |connection, _| read_note(connection, &name))
            .await
    }

    async fn set_note(
        &self,
        name: &str,
        expected: u64,
        body: Vec<u8>,
    ) -> Result<Option<u64>, Fault> {
        let request = WriteRequest::SetNote(name.to_owned(), expected, body);
        match self.write(request).await.map_err(into_fault)? {
            WriteReply::NoteVersion(version) => Ok(version),
            done => Err(unexpected_reply(OPERATION, &done)),
        }
    }
}
