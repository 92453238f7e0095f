//! Moves sessions into and out of the tables.

use async_trait::async_trait;
use budao_core::{
    event::{Answer, Command, Seq, SessionId},
    fault::{Fault, Operation},
    message::CallId,
    time::Timestamp,
};
use budao_journal::{
    Digest, GapReason, Lease, Note, OnceOwner,
    implement::{
        EncodedRecord, chain, faults, new_epoch,
        transfer::{Transfer, TransferredHistory, TransferredKey},
    },
};
use bytes::Bytes;
use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};

use crate::{append::EncodedAppend, inbox, open::Postgres, pool::LaneKind, shared::micros};

const SESSIONS: &str =
    "SELECT uuid FROM @session WHERE ($1 IS NULL OR uuid > $1) ORDER BY uuid LIMIT $2";

const COMMANDS: &str = "SELECT i.body, i.answer FROM @session s LEFT JOIN @inbox i \
    ON i.session = s.id WHERE s.uuid = $1 ORDER BY i.id";

const BLOBS: &str = "SELECT r.hash FROM @session s LEFT JOIN @blob_reference r ON r.session = s.id \
    WHERE s.uuid = $1 ORDER BY r.hash";

/// Makes a session whose history begins after `$6`, with a lease.
const ADOPT: &str = "WITH t AS (SELECT coalesce($5::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now) \
    INSERT INTO @session(uuid, cohort, epoch, chain, token, holder, expires, head, removed_to, removed_reason, \
    removed_digest, generation) \
    SELECT $1, coalesce((SELECT max(day) FROM @cohort WHERE day <= t.now / 86400000000), (SELECT min(day) FROM @cohort)), \
    $2, $3, nextval('@token'), 'import', t.now + $4, $6, $6, $7, $8, m.generation FROM t, @meta m ON CONFLICT (uuid) DO NOTHING \
    RETURNING id, epoch, head, chain, token, expires";

const ADOPT_COMMAND: &str = "INSERT INTO @inbox(session, command, body, answer) \
    SELECT id, $2, $3, $4 FROM @session WHERE uuid = $1 ON CONFLICT DO NOTHING RETURNING 1";

const ONCE_KEYS: &str = "SELECT key, session, call, attempt, claimed, outcome FROM @once_key \
    WHERE ($1 IS NULL OR key > $1) ORDER BY key LIMIT $2";

const ADOPT_ONCE_KEY: &str = "INSERT INTO @once_key AS k(key, session, call, attempt, claimed, outcome) \
    VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (key) DO UPDATE SET session = $2, call = $3, attempt = $4, \
        claimed = $5, outcome = $6 \
    WHERE k.outcome IS NULL AND (k.claimed < $5 OR (k.claimed = $5 AND (k.attempt < $4 OR $6 IS NOT NULL))) \
    RETURNING 1";

const NOTES: &str = "SELECT name, version, body FROM @note ORDER BY name";

const ADOPT_NOTE: &str = "INSERT INTO @note AS n(name, version, body) VALUES ($1, $2, $3) \
    ON CONFLICT (name) DO UPDATE SET version = $2, body = $3 WHERE n.version < $2 RETURNING 1";

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
        let TransferredHistory { session, epoch, removed_to, removed_reason, removed_digest } =
            history;
        let shared = &self.shared;
        let epoch = epoch.unwrap_or_else(|| new_epoch(&shared.world)).0.cast_signed();
        let start = removed_digest.unwrap_or_else(|| chain::seed(session));
        let (chain, removed): (&[u8], _) =
            (&start.0, removed_digest.as_ref().map(|digest| &digest.0[..]));
        let (ttl, now) = (micros(shared.limits.lease), shared.lease_time());
        let (removed_to, reason) =
            (removed_to.cast_signed(), removed_reason.map(GapReason::as_str));
        let parameters: [&(dyn ToSql + Sync); 8] =
            [&session.0, &epoch, &chain, &ttl, &now, &removed_to, &reason, &removed];
        let operation = Operation::ImportSession;
        let rows = shared.pool.run(LaneKind::Write, operation, ADOPT, &parameters).await?;
        match rows.first() {
            Some(row) => Ok(shared.remember_lease(session, row)),
            None => Err(faults::session_busy(session, "", shared.now(), shared.now())),
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
            true => Err(faults::command_repeated(session, &command.id)),
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

    async fn once_keys(
        &self,
        after: Option<Digest>,
        limit: usize,
    ) -> Result<Vec<TransferredKey>, Fault> {
        let after = after.map(|key| key.0.to_vec());
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let values: [(&(dyn ToSql + Sync), Type); 2] =
            [(&after, Type::BYTEA), (&limit, Type::INT8)];
        let rows = self.shared.pool.search(Operation::BackUpJournal, ONCE_KEYS, &values).await?;
        Ok(rows.iter().filter_map(once_key).collect())
    }

    async fn adopt_once_key(&self, key: TransferredKey) -> Result<bool, Fault> {
        self.must_write(Operation::ImportSession)?;
        let TransferredKey { key, owner, attempt, claimed, outcome } = key;
        let (hash, call, attempt) = (key.0.as_slice(), owner.call.to_string(), i64::from(attempt));
        let (claimed, outcome) = (claimed.as_micros(), outcome.as_deref());
        let parameters: [&(dyn ToSql + Sync); 6] =
            [&hash, &owner.session.0, &call, &attempt, &claimed, &outcome];
        let operation = Operation::ImportSession;
        let pool = &self.shared.pool;
        let rows = pool.run(LaneKind::Write, operation, ADOPT_ONCE_KEY, &parameters).await?;
        Ok(!rows.is_empty())
    }

    async fn notes(&self) -> Result<Vec<(String, Note)>, Fault> {
        let operation = Operation::BackUpJournal;
        let rows = self.shared.pool.run(LaneKind::Read, operation, NOTES, &[]).await?;
        let note = |row: &Row| {
            let version = row.get::<_, i64>(1).cast_unsigned();
            (row.get(0), Note { version, body: row.get(2) })
        };
        Ok(rows.iter().map(note).collect())
    }

    async fn adopt_note(&self, name: String, note: Note) -> Result<bool, Fault> {
        self.must_write(Operation::ImportSession)?;
        let version = note.version.cast_signed();
        let parameters: [&(dyn ToSql + Sync); 3] = [&name, &version, &note.body];
        let operation = Operation::ImportSession;
        let pool = &self.shared.pool;
        let rows = pool.run(LaneKind::Write, operation, ADOPT_NOTE, &parameters).await?;
        Ok(!rows.is_empty())
    }
}

/// A key's row; `None` if its digest has another length.
fn once_key(row: &Row) -> Option<TransferredKey> {
    let key = Digest(row.get::<_, &[u8]>(0).try_into().ok()?);
    let call: String = row.get(2);
    let owner = OnceOwner { session: SessionId(row.get(1)), call: CallId::from(call.as_str()) };
    let claimed = Timestamp::from_micros(row.get(4));
    let outcome = row.get::<_, Option<Vec<u8>>>(5).map(Bytes::from);
    let attempt = u32::try_from(row.get::<_, i64>(3)).unwrap_or(u32::MAX);
    Some(TransferredKey { key, owner, attempt, claimed, outcome })
}
