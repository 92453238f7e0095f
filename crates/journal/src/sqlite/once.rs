//! Keys of calls that are done once, in the table `once_key`.

use async_trait::async_trait;
use budao_core::{
    event::SessionId,
    fault::{Fault, Operation},
    message::CallId,
    time::Timestamp,
};
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension};
use uuid::Uuid;

use super::{
    Sqlite,
    errors::SqliteError,
    into_fault, rows, unexpected_reply,
    write_request::{WriteReply, WriteRequest, WriteResult},
    writer_connection::WriterConnection,
};
use crate::{
    contract::{Digest, OnceKeys, OnceOwner, OnceSettlement, OnceState},
    implement::transfer::TransferredKey,
};

/// Keys in their order, starting after `after`.
pub(super) fn once_keys(
    connection: &Connection,
    after: Option<Digest>,
    limit: usize,
) -> Result<Vec<TransferredKey>, SqliteError> {
    let mut statement = connection.prepare_cached(
        "SELECT session, call, attempt, outcome, key, claimed FROM once_key \
         WHERE key > ?1 ORDER BY key LIMIT ?2",
    )?;
    let after = after.map_or(Vec::new(), |key| key.0.to_vec());
    let found = statement.query_map((after, rows::sql_limit(limit)), |row| {
        let OnceRow { owner, attempt, outcome } = OnceRow::read(row)?;
        let (key, claimed) = (Digest(row.get(4)?), Timestamp::from_micros(row.get(5)?));
        Ok(TransferredKey { key, owner, attempt, claimed, outcome })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// A key's row.
struct OnceRow {
    owner: OnceOwner,
    attempt: u32,
    outcome: Option<Bytes>,
}

impl OnceRow {
    fn read(row: &rusqlite::Row<'_>) -> Result<Self, rusqlite::Error> {
        let (session, call): ([u8; 16], String) = (row.get(0)?, row.get(1)?);
        let session = SessionId(Uuid::from_bytes(session));
        let owner = OnceOwner { session, call: CallId::from(call.as_str()) };
        let outcome: Option<Vec<u8>> = row.get(3)?;
        Ok(Self { owner, attempt: row.get(2)?, outcome: outcome.map(Bytes::from) })
    }
}

#[async_trait]
impl OnceKeys for Sqlite {
    async fn claim_once(
        &self,
        key: Digest,
        owner: OnceOwner,
        attempt: u32,
    ) -> Result<OnceState, Fault> {
        let request = WriteRequest::ClaimOnce(key, owner, attempt);
        match self.write(request).await.map_err(into_fault)? {
            WriteReply::Once(state) => Ok(state),
            done => Err(unexpected_reply(Operation::AppendRecords, &done)),
        }
    }

    async fn settle_once(
        &self,
        owner: OnceOwner,
        attempt: u32,
        settlement: OnceSettlement,
    ) -> Result<(), Fault> {
        let request = WriteRequest::SettleOnce(owner, attempt, settlement);
        self.write(request).await.map_err(into_fault).map(drop)
    }
}

impl WriterConnection {
    pub(super) fn claim_once(
        &mut self,
        key: Digest,
        owner: &OnceOwner,
        attempt: u32,
    ) -> Result<WriteResult, SqliteError> {
        let now = self.context.world.clock.now().as_micros();
        let connection = self.connection()?;
        let known = connection
            .prepare_cached("SELECT session, call, attempt, outcome FROM once_key WHERE key = ?1")?
            .query_row([key.0], OnceRow::read)
            .optional()?;
        let Some(OnceRow { owner: has, attempt: at, outcome }) = known else {
            connection
                .prepare_cached(
                    "INSERT INTO once_key(key, session, call, attempt, claimed) \
                     VALUES (?1, ?2, ?3, ?4, ?5)",
                )?
                .execute((
                    key.0,
                    owner.session.0.as_bytes(),
                    owner.call.to_string(),
                    attempt,
                    now,
                ))?;
            self.frames += 3;
            return Ok(Ok(WriteReply::Once(OnceState::Claimed)));
        };
        if has != *owner || at > attempt {
            return Ok(Ok(WriteReply::Once(OnceState::Taken { owner: has, outcome })));
        }
        connection
            .prepare_cached("UPDATE once_key SET attempt = ?2 WHERE key = ?1")?
            .execute((key.0, attempt))?;
        self.frames += 1;
        Ok(Ok(WriteReply::Once(OnceState::Own { outcome })))
    }

    pub(super) fn settle_once(
        &mut self,
        owner: &OnceOwner,
        attempt: u32,
        settlement: &OnceSettlement,
    ) -> Result<WriteResult, SqliteError> {
        let connection = self.connection()?;
        let (session, call) = (owner.session.0.as_bytes(), owner.call.to_string());
        match settlement {
            OnceSettlement::Done(outcome) => connection
                .prepare_cached(
                    "UPDATE once_key SET outcome = ?3 \
                     WHERE session = ?1 AND call = ?2 AND outcome IS NULL",
                )?
                .execute((session, call, &outcome[..]))?,
            OnceSettlement::NotDone => connection
                .prepare_cached(
                    "DELETE FROM once_key \
                     WHERE session = ?1 AND call = ?2 AND attempt <= ?3 AND outcome IS NULL",
                )?
                .execute((session, call, attempt))?,
        };
        self.frames += 2;
        Ok(Ok(WriteReply::Nothing))
    }

    pub(super) fn adopt_once_key(
        &mut self,
        key: &TransferredKey,
    ) -> Result<WriteResult, SqliteError> {
        let (session, call) = (key.owner.session.0.as_bytes(), key.owner.call.to_string());
        let (claimed, outcome) = (key.claimed.as_micros(), key.outcome.as_deref());
        let changed = self
            .connection()?
            .prepare_cached(
                "INSERT INTO once_key(key, session, call, attempt, claimed, outcome) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (key) DO UPDATE SET session = ?2, \
                 call = ?3, attempt = ?4, claimed = ?5, outcome = ?6 WHERE outcome IS NULL \
                 AND (claimed < ?5 OR (claimed = ?5 AND (attempt < ?4 OR ?6 IS NOT NULL)))",
            )?
            .execute((key.key.0, session, call, key.attempt, claimed, outcome))?;
        self.frames += 3;
        Ok(Ok(WriteReply::Adopted(changed > 0)))
    }

    pub(super) fn forget_once(&mut self, before: i64) -> Result<WriteResult, SqliteError> {
        self.connection()?
            .prepare_cached("DELETE FROM once_key WHERE claimed < ?1")?
            .execute([before])?;
        self.frames += 2;
        Ok(Ok(WriteReply::Nothing))
    }
}
