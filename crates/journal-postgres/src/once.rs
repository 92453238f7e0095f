//! Keys of calls that are done once, in the table `once_key`.

use async_trait::async_trait;
use budao_core::{
    event::SessionId,
    fault::{Fault, Operation},
    message::CallId,
    time::Timestamp,
};
use budao_journal::{Digest, OnceKeys, OnceOwner, OnceSettlement, OnceState};
use bytes::Bytes;
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

use crate::{open::Postgres, pool::LaneKind, shared::PostgresShared};

/// Inserts a new key, or raises the attempt of the caller's own. The row is the one after the statement; `xmax = 0`
/// marks an insert.
const CLAIM: &str = "INSERT INTO @once_key AS k(key, session, call, attempt, claimed) \
    VALUES ($1, $2, $3, $4, $5) ON CONFLICT (key) DO UPDATE SET attempt = CASE WHEN k.session = $2 \
        AND k.call = $3 THEN greatest(k.attempt, $4) ELSE k.attempt END \
    RETURNING k.session, k.call, k.attempt, k.outcome, k.xmax = 0";

const DONE: &str = "UPDATE @once_key SET outcome = $3 \
    WHERE session = $1 AND call = $2 AND outcome IS NULL";

const NOT_DONE: &str = "DELETE FROM @once_key \
    WHERE session = $1 AND call = $2 AND attempt <= $3 AND outcome IS NULL";

const FORGET: &str = "DELETE FROM @once_key WHERE claimed < $1";

const OPERATION: Operation = Operation::AppendRecords;

#[async_trait]
impl OnceKeys for Postgres {
    async fn claim_once(
        &self,
        key: Digest,
        owner: OnceOwner,
        attempt: u32,
    ) -> Result<OnceState, Fault> {
        self.must_write(OPERATION)?;
        self.shared.claim_once(key, &owner, attempt).await
    }

    async fn settle_once(
        &self,
        owner: OnceOwner,
        attempt: u32,
        settlement: OnceSettlement,
    ) -> Result<(), Fault> {
        self.must_write(OPERATION)?;
        self.shared.settle_once(&owner, attempt, &settlement).await
    }
}

impl PostgresShared {
    async fn claim_once(
        &self,
        key: Digest,
        owner: &OnceOwner,
        attempt: u32,
    ) -> Result<OnceState, Fault> {
        let (hash, call, now) = (key.0.as_slice(), owner.call.to_string(), self.now().as_micros());
        let attempt = i64::from(attempt);
        let parameters: [&(dyn ToSql + Sync); 5] = [&hash, &owner.session.0, &call, &attempt, &now];
        let rows = self.pool.run(LaneKind::Write, OPERATION, CLAIM, &parameters).await?;
        Ok(state_of(&rows[0], owner, attempt))
    }

    async fn settle_once(
        &self,
        owner: &OnceOwner,
        attempt: u32,
        settlement: &OnceSettlement,
    ) -> Result<(), Fault> {
        let (call, attempt) = (owner.call.to_string(), i64::from(attempt));
        let body;
        let (sql, last): (_, &(dyn ToSql + Sync)) = match settlement {
            OnceSettlement::Done(outcome) => {
                body = &outcome[..];
                (DONE, &body)
            }
            OnceSettlement::NotDone => (NOT_DONE, &attempt),
        };
        let parameters: [&(dyn ToSql + Sync); 3] = [&owner.session.0, &call, last];
        self.pool.run(LaneKind::Write, OPERATION, sql, &parameters).await.map(drop)
    }

    /// Forgets keys that were claimed before this time.
    pub(crate) async fn forget_once(&self, before: Timestamp) -> Result<(), Fault> {
        let before = before.as_micros();
        let parameters: [&(dyn ToSql + Sync); 1] = [&before];
        let operation = Operation::ApplyRetention;
        self.pool.run(LaneKind::Write, operation, FORGET, &parameters).await.map(drop)
    }
}

fn state_of(row: &Row, owner: &OnceOwner, attempt: i64) -> OnceState {
    let (session, call): (Uuid, String) = (row.get(0), row.get(1));
    let has = OnceOwner { session: SessionId(session), call: CallId::from(call.as_str()) };
    let outcome = row.get::<_, Option<Vec<u8>>>(3).map(Bytes::from);
    match (row.get::<_, bool>(4), has == *owner && row.get::<_, i64>(2) <= attempt) {
        (true, _) => OnceState::Claimed,
        (false, true) => OnceState::Own { outcome },
        (false, false) => OnceState::Taken { owner: has, outcome },
    }
}
