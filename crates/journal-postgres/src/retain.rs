//! Retention and deletion: sessions by set, records inside a session by rows, old days by partitions.

use std::time::Duration;

use budao_core::{
    event::{Answer, Command, Epoch, Seq, SessionId},
    fault::{Fault, Operation},
    time::Timestamp,
};
use budao_journal::{
    Digest, JournalStats, PageLimits, Reader, Retention, RetentionReport,
    implement::{
        batch_encoding::{self, BatchLocation},
        retention::{self, RetainedSize},
    },
};
use bytes::Bytes;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::{
    cohort, inbox,
    pool::{Exclusive, LaneKind},
    shared::{PostgresShared, micros},
};

/// Finished sessions that did not change for a while, after the key `$1`. `$2` is the latest time of their last record.
const EXPIRED: &str = "SELECT s.id FROM @session s LEFT JOIN @view_session v ON v.session = s.id \
    WHERE s.id > $1 AND coalesce(v.updated, s.expires) < $2 AND v.open_turn IS NULL AND v.wake_at IS NULL \
    AND s.expires <= coalesce($3::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) \
    AND NOT EXISTS (SELECT 1 FROM @inbox i WHERE i.session = s.id AND i.answer IS NULL) \
    ORDER BY s.id LIMIT 256";

/// Locks those of the sessions that are still finished: their rows did not change since the views were made.
const LOCK_EXPIRED: &str = "SELECT s.id, s.uuid FROM @session s WHERE s.id = ANY($1) AND NOT s.dirty \
    AND s.expires <= coalesce($2::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) \
    ORDER BY s.id FOR UPDATE";

const LOCK_ONE: &str = "SELECT id, uuid FROM @session WHERE uuid = $1 FOR UPDATE";

/// Removes locked sessions except for their counts in the views. Commands that came before the lock are seen here.
const REMOVE: &str = "WITH b AS (DELETE FROM @batch b USING @session s WHERE s.id = ANY($1) \
        AND b.cohort = s.cohort AND b.session = s.id), \
    i AS (DELETE FROM @inbox WHERE session = ANY($1)), \
    n AS (DELETE FROM @snapshot WHERE session = ANY($1)), \
    r AS (DELETE FROM @blob_reference WHERE session = ANY($1)), \
    v AS (DELETE FROM @view_session WHERE session = ANY($1)), \
    l AS (DELETE FROM @view_label WHERE session = ANY($1)), \
    t AS (DELETE FROM @view_trace WHERE session = ANY($1)), \
    o AS (DELETE FROM @view_tool WHERE session = ANY($1)), \
    c AS (DELETE FROM @view_code WHERE session = ANY($1)) \
    DELETE FROM @session WHERE id = ANY($1)";

const STILL_WAITING: &str =
    "SELECT DISTINCT session FROM @inbox WHERE session = ANY($1) AND answer IS NULL";

/// Sessions with records, and the position of their snapshot, 0 for none.
const TRIMMABLE: &str = "SELECT s.id, s.uuid, s.cohort, s.removed_to, coalesce(n.seq, 0) FROM @session s \
    LEFT JOIN @snapshot n ON n.session = s.id WHERE s.id > $1 AND s.head > s.removed_to \
    ORDER BY s.id LIMIT 64";

/// Adds a snapshot unless there is a newer one. A deleted session gets none.
const COVER: &str = "WITH s AS (SELECT id FROM @session WHERE id = $1 FOR KEY SHARE) \
    INSERT INTO @snapshot(session, seq, body) SELECT id, $2, $3 FROM s \
    ON CONFLICT (session) DO UPDATE SET seq = excluded.seq, body = excluded.body \
        WHERE @snapshot.seq < excluded.seq";

/// Answered commands with their content, after the id `$2`. `$3` marks those whose content is removed.
const CONTENTS: &str = "SELECT id, body, answer FROM @inbox WHERE session = $1 AND id > $2 \
    AND answer IS NOT NULL AND position($3::bytea in body) = 0 ORDER BY id LIMIT 256";

const REMOVE_CONTENTS: &str = "UPDATE @inbox i SET body = u.body \
    FROM unnest($2::bigint[], $3::bytea[]) AS u(id, body) WHERE i.session = $1 AND i.id = u.id";

const BATCHES: &str = "SELECT first, count, body FROM @batch WHERE cohort = $1 AND session = $2 \
    AND first > $3 ORDER BY first LIMIT 64";

/// Removes the records of a session up to a position; the last batch stays. A session that was moved or trimmed
/// meanwhile is left alone.
const TRIM: &str = "WITH s AS (UPDATE @session SET removed_to = $4, removed_reason = $5, removed_digest = $6 \
        WHERE id = $1 AND cohort = $2 AND removed_to = $3 RETURNING id) \
    , b AS (DELETE FROM @batch b USING s WHERE b.cohort = $2 AND b.session = s.id \
        AND b.first + b.count - 1 <= $4 AND b.first < (SELECT max(f.first) FROM @batch f \
        WHERE f.cohort = $2 AND f.session = $1)) \
    SELECT id FROM s";

const UNUSED: &str = "SELECT hash FROM @blob b WHERE NOT EXISTS \
    (SELECT 1 FROM @blob_reference r WHERE r.hash = b.hash) LIMIT 1000 FOR UPDATE";

/// A second statement, so that a reference added before the lock is seen.
const SWEEP: &str = "DELETE FROM @blob b WHERE b.hash = ANY($1) AND NOT EXISTS \
    (SELECT 1 FROM @blob_reference r WHERE r.hash = b.hash) RETURNING 1";

const STATS: &str = "SELECT (SELECT count(*) FROM @session), (SELECT count(*) FROM @batch), \
    (SELECT coalesce(sum(count), 0)::bigint FROM @batch), \
    (SELECT coalesce(sum(length(body)), 0)::bigint FROM @batch), (SELECT count(*) FROM @inbox), \
    (SELECT count(*) FROM @inbox WHERE answer IS NULL), (SELECT count(*) FROM @snapshot), \
    (SELECT count(*) FROM @blob), (SELECT coalesce(sum(length(body)), 0)::bigint FROM @blob), \
    (SELECT count(*) FROM @session WHERE dirty), (SELECT lost FROM @meta), \
    (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c \
     JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r')";

const OPERATION: Operation = Operation::ApplyRetention;

/// A session whose records may be trimmed.
struct TrimmedSession {
    key: i64,
    session: SessionId,
    cohort: i32,
    removed_to: Seq,
    snapshot: Seq,
}

impl PostgresShared {
    pub(crate) async fn retain(
        &self,
        retention: &Retention,
        reader: &dyn Reader,
    ) -> Result<RetentionReport, Fault> {
        self.catch_up().await?;
        let mut report = RetentionReport::default();
        if let Some(age) = retention.session_age {
            report.sessions = self.remove_expired(age).await?;
        }
        if retention.record_age.is_some()
            || retention.records.is_some()
            || retention.bytes.is_some()
        {
            report.records = self.trim_all(retention, reader).await?;
        }
        if let Some(age) = retention.once_age {
            let before = self.now().as_micros().saturating_sub(micros(age));
            self.forget_once(Timestamp::from_micros(before)).await?;
        }
        report.blobs = self.sweep_blobs().await?;
        let today = cohort::day_of(self.now());
        cohort::make_ahead(&self.pool, today).await?;
        if let Some(age) = retention.session_age {
            let days = i32::try_from(age.as_secs() / 86_400).unwrap_or(i32::MAX);
            cohort::drop_before(&self.pool, today.saturating_sub(days), today, self.node).await?;
        }
        Ok(report)
    }

    async fn remove_expired(&self, age: Duration) -> Result<u64, Fault> {
        let before = self.now().as_micros().saturating_sub(micros(age));
        let (mut last, mut removed) = (0_i64, 0);
        loop {
            let now = self.lease_time();
            let parameters: [&(dyn ToSql + Sync); 3] = [&last, &before, &now];
            let rows = self.pool.run(LaneKind::Read, OPERATION, EXPIRED, &parameters).await?;
            let keys: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
            let Some(newest) = keys.last() else { return Ok(removed) };
            last = *newest;
            let gone = self.remove_finished(&keys).await?;
            removed += gone.len() as u64;
            self.announce_removed(&gone);
        }
    }

    fn announce_removed(&self, sessions: &[SessionId]) {
        for session in sessions {
            self.notifier.announce_history_change(*session);
            self.announcer.announce_history_change(*session);
        }
    }

    async fn remove_finished(&self, keys: &[i64]) -> Result<Vec<SessionId>, Fault> {
        let mut connection = self.pool.exclusive(OPERATION).await?;
        let now = self.lease_time();
        connection.begin().await?;
        let locked = connection.query(LOCK_EXPIRED, &[&keys, &now]).await?;
        let locked: Vec<(i64, SessionId)> =
            locked.iter().map(|row| (row.get(0), SessionId(row.get(1)))).collect();
        let ids: Vec<i64> = locked.iter().map(|(key, _)| *key).collect();
        let waiting = connection.query(STILL_WAITING, &[&ids]).await?;
        let waiting: Vec<i64> = waiting.iter().map(|row| row.get(0)).collect();
        let gone: Vec<(i64, SessionId)> =
            locked.into_iter().filter(|(key, _)| !waiting.contains(key)).collect();
        let ids: Vec<i64> = gone.iter().map(|(key, _)| *key).collect();
        connection.query(REMOVE, &[&ids]).await?;
        connection.commit().await?;
        Ok(gone.into_iter().map(|(_, session)| session).collect())
    }

    pub(crate) async fn delete(&self, session: SessionId) -> Result<bool, Fault> {
        // The views must include the session's fault codes before its records are removed, because counts outlive it.
        self.catch_up().await?;
        let mut connection = self.pool.exclusive(OPERATION).await?;
        connection.begin().await?;
        let found = connection.query(LOCK_ONE, &[&session.0]).await?;
        let keys: Vec<i64> = found.iter().map(|row| row.get(0)).collect();
        if !keys.is_empty() {
            connection.query(REMOVE, &[&keys]).await?;
            sweep(&mut connection).await?;
        }
        connection.commit().await?;
        drop(connection);
        self.announce_removed(&[session]);
        Ok(!keys.is_empty())
    }

    async fn trim_all(&self, retention: &Retention, reader: &dyn Reader) -> Result<u64, Fault> {
        let (mut last, mut removed) = (0_i64, 0);
        loop {
            let rows = self.pool.run(LaneKind::Read, OPERATION, TRIMMABLE, &[&last]).await?;
            let Some(newest) = rows.last() else { return Ok(removed) };
            last = newest.get(0);
            for row in &rows {
                let session = TrimmedSession {
                    key: row.get(0),
                    session: SessionId(row.get::<_, Uuid>(1)),
                    cohort: row.get(2),
                    removed_to: row.get::<_, i64>(3).cast_unsigned(),
                    snapshot: row.get::<_, i64>(4).cast_unsigned(),
                };
                removed += self.trim(&session, retention, reader).await?;
            }
        }
    }

    async fn trim(
        &self,
        session: &TrimmedSession,
        retention: &Retention,
        reader: &dyn Reader,
    ) -> Result<u64, Fault> {
        let (sizes, now) = (self.sizes(session).await?, self.now());
        let Some((wanted, _)) = retention::find_removal_end(&sizes, Seq::MAX, retention, now)
        else {
            return Ok(0);
        };
        let covered = self.cover(session, wanted, reader).await?;
        let Some((to, reason)) = retention::find_removal_end(&sizes, covered, retention, now)
        else {
            return Ok(0);
        };
        let (before, to_sql) = (session.removed_to.cast_signed(), to.cast_signed());
        let reason = reason.as_str();
        let digest = self.digest_at(session, to, reader).await?;
        let digest: &[u8] = &digest.0;
        let parameters: [&(dyn ToSql + Sync); 6] =
            [&session.key, &session.cohort, &before, &to_sql, &reason, &digest];
        let done = self.pool.run(LaneKind::Write, OPERATION, TRIM, &parameters).await?;
        if done.is_empty() {
            return Ok(0);
        }
        self.remove_contents(session, to).await?;
        self.announce_removed(&[session.session]);
        Ok(sizes.iter().filter(|size| size.seq <= to).count() as u64)
    }

    /// The digest at a kept position, from the records before it.
    async fn digest_at(
        &self,
        session: &TrimmedSession,
        to: Seq,
        reader: &dyn Reader,
    ) -> Result<Digest, Fault> {
        let mut digest = self.chain(session.session, 0, 0).await?.start.digest;
        let mut after = session.removed_to;
        while after < to {
            let page = reader.read(session.session, after, PageLimits::default()).await?;
            let Some(last) = page.records.last().map(|record| record.seq) else { break };
            let removed = page.records.iter().filter(|record| record.seq <= to);
            digest = removed.fold(digest, |before, record| record.digest_after(before));
            after = last;
        }
        Ok(digest)
    }

    /// Makes a snapshot at the head if the one there is does not reach `to`. Returns the position of the snapshot.
    async fn cover(
        &self,
        session: &TrimmedSession,
        to: Seq,
        reader: &dyn Reader,
    ) -> Result<Seq, Fault> {
        if session.snapshot >= to {
            return Ok(session.snapshot);
        }
        let state = match budao_journal::fold(reader, session.session).await {
            Ok((state, _)) if state.head >= to => state,
            Ok(_) => return Ok(session.snapshot),
            Err(fault) => {
                tracing::warn!(session = %session.session, %fault, "retention makes no snapshot");
                return Ok(session.snapshot);
            }
        };
        let (head, body) = (state.head.cast_signed(), inbox::encode(&state));
        let parameters: [&(dyn ToSql + Sync); 3] = [&session.key, &head, &body];
        self.pool.run(LaneKind::Write, OPERATION, COVER, &parameters).await?;
        Ok(state.head)
    }

    /// Removes the content of the commands whose records are removed.
    async fn remove_contents(&self, session: &TrimmedSession, to: Seq) -> Result<(), Fault> {
        let (mut last, mark) = (0_i64, retention::REMOVED_TOPIC.as_bytes());
        loop {
            let parameters: [&(dyn ToSql + Sync); 3] = [&session.key, &last, &mark];
            let rows = self.pool.run(LaneKind::Read, OPERATION, CONTENTS, &parameters).await?;
            let Some(newest) = rows.last() else { return Ok(()) };
            last = newest.get(0);
            let (mut ids, mut bodies) = (Vec::<i64>::new(), Vec::new());
            for row in &rows {
                let answer: Answer = self.decode(session.session, row.get(2))?;
                if retention::removes_content(&answer, to) {
                    let command: Command = self.decode(session.session, row.get(1))?;
                    ids.push(row.get(0));
                    bodies.push(inbox::encode(&retention::strip_content(&command)));
                }
            }
            let parameters: [&(dyn ToSql + Sync); 3] = [&session.key, &ids, &bodies];
            self.pool.run(LaneKind::Write, OPERATION, REMOVE_CONTENTS, &parameters).await?;
        }
    }

    /// The size and time of each record, oldest first. A damaged record ends the list, so that no later one is removed.
    async fn sizes(&self, session: &TrimmedSession) -> Result<Vec<RetainedSize>, Fault> {
        let (mut sizes, mut last) = (Vec::new(), 0_i64);
        loop {
            let parameters: [&(dyn ToSql + Sync); 3] = [&session.cohort, &session.key, &last];
            let rows = self.pool.run(LaneKind::Read, OPERATION, BATCHES, &parameters).await?;
            let Some(newest) = rows.last() else { return Ok(sizes) };
            last = newest.get(0);
            for row in &rows {
                let (first, count) = (row.get::<_, i64>(0).cast_unsigned(), row.get::<_, i32>(1));
                let count = u64::from(count.cast_unsigned());
                let (session_id, epoch) = (session.session, Epoch(0));
                let location = BatchLocation { session: session_id, epoch, first, count };
                let body = Bytes::copy_from_slice(row.get(2));
                let unpacked = batch_encoding::unpack(location, &body, |record| {
                    if record.seq > session.removed_to {
                        let bytes = record.body.len() as u64;
                        sizes.push(RetainedSize { seq: record.seq, at: record.at, bytes });
                    }
                });
                if unpacked.damaged.is_some() {
                    return Ok(sizes);
                }
            }
        }
    }

    async fn sweep_blobs(&self) -> Result<u64, Fault> {
        let mut connection = self.pool.exclusive(OPERATION).await?;
        connection.begin().await?;
        let count = sweep(&mut connection).await?;
        connection.commit().await?;
        Ok(count)
    }

    pub(crate) async fn stats(&self) -> Result<JournalStats, Fault> {
        let schema = &self.pool.address().schema;
        let rows = self.pool.run(LaneKind::Read, Operation::CheckJournal, STATS, &[schema]).await?;
        let count = |column: usize| rows[0].get::<_, i64>(column).cast_unsigned();
        Ok(JournalStats {
            file_bytes: count(11),
            wal_bytes: 0,
            free_bytes: 0,
            sessions: count(0),
            batches: count(1),
            records: count(2),
            record_bytes: count(3),
            commands: count(4),
            pending_commands: count(5),
            snapshots: count(6),
            blobs: count(7),
            blob_bytes: count(8),
            views_behind: count(9),
            lost: rows[0].get(10),
        })
    }
}

/// Removes stored outputs that no session references.
async fn sweep(connection: &mut Exclusive<'_>) -> Result<u64, Fault> {
    let mut removed = 0;
    loop {
        let rows = connection.query(UNUSED, &[]).await?;
        let hashes: Vec<&[u8]> = rows.iter().map(|row| row.get(0)).collect();
        let gone = connection.query(SWEEP, &[&hashes]).await?.len() as u64;
        removed += gone;
        if gone == 0 {
            return Ok(removed);
        }
    }
}
