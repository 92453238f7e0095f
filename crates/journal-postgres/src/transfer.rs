//! Moves sessions into and out of the tables.

use async_trait::async_trait;
use budao_core::{
    event::{Answer, Command, Seq, SessionId},
    fault::{Fault, Operation},
};
use budao_journal::{
    Digest, GapReason, Lease,
    implement::{
        EncodedRecord, faults, frame, new_epoch,
        transfer::{Transfer, TransferredHistory},
    },
};
use bytes::Bytes;
use tokio_postgres::types::{ToSql, Type};

use crate::{append::EncodedAppend, inbox, open::Postgres, pool::LaneKind, shared::micros};

const SESSIONS: &str =
    "SELECT uuid FROM @session WHERE ($1 IS NULL OR uuid > $1) ORDER BY uuid LIMIT $2";

const COMMANDS: &str = "SELECT i.body, i.answer FROM @session s LEFT JOIN @inbox i \
    ON i.session = s.id WHERE s.uuid = $1 ORDER BY i.id";

const BLOBS: &str = "SELECT r.hash FROM @session s LEFT JOIN @blob_reference r ON r.session = s.id \
    WHERE s.uuid = $1 ORDER BY r.hash";

/// Makes a session whose history begins after `$6`, with a lease.
const ADOPT: &str = "WITH t AS (SELECT coalesce($5::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now) \
    INSERT INTO @session(uuid, cohort, epoch, chain, token, holder, expires, head, removed_to, removed_reason) \
    SELECT $1, coalesce((SELECT max(day) FROM @cohort WHERE day <= t.now / 86400000000), (SELECT min(day) FROM @cohort)), \
    $2, $3, nextval('@token'), 'import', t.now + $4, $6, $6, $7 FROM t ON CONFLICT (uuid) DO NOTHING \
    RETURNING id, epoch, head, chain, token, expires";

const ADOPT_COMMAND: &str = "INSERT INTO @inbox(session, command, body, answer) \
    SELECT id, $2, $3, $4 FROM @session WHERE uuid = $1 ON CONFLICT DO NOTHING RETURNING 1";

#[async_trait]
impl Transfer for Postgres {
    async fn session_ids(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<SessionId>, Fault> {
        let after = after.map(|session| session.0);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let values: [(&(dyn ToSql + Sync), Type); 2] = [(&after, Type::UUID), (&limit, Type::INT8)];
        let rows = self.shared.pool.search(Operation::BackUpJournal, SESSIONS, &values).await?;
        Ok(rows.iter().map(|row| SessionId(row.get(0))).collect())
    }

    async fn commands(&self, session: SessionId) -> Result<Vec<(Command, Option<Answer>)>, Fault> {
        let operation = Operation::BackUpJournal;
        let rows = self.shared.pool.run(LaneKind::Read, operation, COMMANDS, &[&session.0]).await?;
        if rows.is_empty() {
            return Err(faults::unknown_session(session, operation));
        }
        let mut commands = Vec::new();
        for row in &rows {
            let Some(body) = row.get::<_, Option<&[u8]>>(0) else { continue };
            let answer = row.get::<_, Option<&[u8]>>(1);
            let answer = answer.map(|answer| self.shared.decode(session, answer)).transpose()?;
            commands.push((self.shared.decode(session, body)?, answer));
        }
        Ok(commands)
    }

    async fn blobs_of(&self, session: SessionId) -> Result<Vec<Digest>, Fault> {
        let operation = Operation::BackUpJournal;
        let rows = self.shared.pool.run(LaneKind::Read, operation, BLOBS, &[&session.0]).await?;
        if rows.is_empty() {
            return Err(faults::unknown_session(session, operation));
        }
        let hashes = rows.iter().filter_map(|row| row.get::<_, Option<&[u8]>>(0));
        Ok(hashes.filter_map(|hash| hash.try_into().ok().map(Digest)).collect())
    }

    async fn adopt(&self, history: TransferredHistory) -> Result<Lease, Fault> {
        self.must_write(Operation::ImportSession)?;
        let TransferredHistory { session, epoch, removed_to, removed_reason } = history;
        let shared = &self.shared;
        let epoch = epoch.unwrap_or_else(|| new_epoch(&shared.world)).0.cast_signed();
        let chain = frame::seed(session).cast_signed();
        let (ttl, now) = (micros(shared.limits.lease), shared.lease_time());
        let (removed_to, reason) =
            (removed_to.cast_signed(), removed_reason.map(GapReason::as_str));
        let parameters: [&(dyn ToSql + Sync); 7] =
            [&session.0, &epoch, &chain, &ttl, &now, &removed_to, &reason];
        let operation = Operation::ImportSession;
        let rows = shared.pool.run(LaneKind::Write, operation, ADOPT, &parameters).await?;
        match rows.first() {
            Some(row) => Ok(shared.remember_lease(session, row)),
            None => Err(faults::busy(session, "", shared.now(), shared.now())),
        }
    }

    async fn adopt_command(
        &self,
        session: SessionId,
        command: Command,
        answer: Option<Answer>,
    ) -> Result<(), Fault> {
        self.must_write(Operation::ImportSession)?;
        let (id, body) = (command.id.0.as_bytes(), inbox::encode(&command));
        let answer = answer.as_ref().map(inbox::encode);
        let parameters: [&(dyn ToSql + Sync); 4] = [&session.0, &id, &body, &answer];
        let operation = Operation::ImportSession;
        let added =
            self.shared.pool.run(LaneKind::Write, operation, ADOPT_COMMAND, &parameters).await?;
        match added.is_empty() {
            true => Err(faults::repeated(session, &command.id)),
            false => Ok(()),
        }
    }

    async fn adopt_records(
        &self,
        lease: &Lease,
        expected: Seq,
        records: Vec<EncodedRecord>,
        snapshot: Option<Vec<u8>>,
    ) -> Result<Seq, Fault> {
        self.must_write(Operation::ImportSession)?;
        let append = EncodedAppend::of_records(lease, expected, records, snapshot);
        let done = self.shared.append_encoded(append).await;
        done.map_err(|error| error.into_fault(lease.session))
    }

    async fn adopt_blob(&self, session: SessionId, content: Bytes) -> Result<(), Fault> {
        self.must_write(Operation::ImportSession)?;
        self.shared.store_blob(session, &content).await.map(drop)
    }
}
