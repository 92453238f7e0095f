//! Nodes, observed sessions and notes. Beats are timed by the database's clock.

use std::time::Duration;

use async_trait::async_trait;
use budao_core::{
    event::SessionId,
    fault::{Fault, Operation},
};
use budao_journal::{
    Census, Cluster, NODE_ROW_TTL, NODE_TIMEOUT, NodeBeat, NodeInfo, Note, UnfinishedSession,
};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::{inbox::encode, open::Postgres, pool::LaneKind, shared::micros};

const OPERATION: Operation = Operation::TakeLease;

/// `$3` and `$4` are the sessions that are observed from now on and no longer, `$5` the time of a test, `$6` the age of
/// a row that is removed.
const BEAT: &str = "WITH t AS (SELECT coalesce($5::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now), \
    before AS (SELECT 1 FROM @node WHERE holder = $1), \
    n AS (INSERT INTO @node(holder, beat, status) SELECT $1, t.now, $2 FROM t \
        ON CONFLICT (holder) DO UPDATE SET beat = EXCLUDED.beat, status = EXCLUDED.status), \
    joined AS (INSERT INTO @observer(session, holder) SELECT unnest($3::uuid[]), $1 ON CONFLICT DO NOTHING), \
    gone AS (DELETE FROM @node o USING t WHERE o.beat < t.now - $6::bigint AND o.holder <> $1 RETURNING o.holder), \
    gone_observers AS (DELETE FROM @observer WHERE holder IN (SELECT holder FROM gone) \
        OR (holder = $1 AND session = ANY($4::uuid[]))) \
    SELECT EXISTS (SELECT 1 FROM before)";

/// A row per node, then a row per session of `$1` that nodes with a beat in the last `$3` observe.
const CENSUS: &str = "WITH t AS (SELECT coalesce($2::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now) \
    (SELECT n.holder, greatest(t.now - n.beat, 0), n.status, NULL::uuid FROM @node n, t ORDER BY n.holder) \
    UNION ALL (SELECT DISTINCT NULL, 0, NULL::bytea, o.session FROM t, @observer o JOIN @node n ON n.holder = o.holder \
        JOIN @session s ON s.uuid = o.session \
        WHERE o.holder <> $1 AND n.beat > t.now - $3::bigint AND s.holder = $1 \
        AND (s.token IS NOT NULL OR s.expires > t.now))";

const LEAVE: &str = "WITH o AS (DELETE FROM @observer WHERE holder = $1) \
    DELETE FROM @node WHERE holder = $1";

const NOTE: &str = "SELECT version, body FROM @note WHERE name = $1";

const SET_NOTE: &str = "WITH made AS (INSERT INTO @note(name, body, version) SELECT $1, $3, 1 \
        WHERE $2::bigint = 0 ON CONFLICT (name) DO NOTHING RETURNING version), \
    changed AS (UPDATE @note SET body = $3, version = version + 1 \
        WHERE name = $1 AND version = $2 AND $2 > 0 RETURNING version) \
    SELECT version FROM made UNION ALL SELECT version FROM changed";

fn node(row: &Row) -> Option<NodeInfo> {
    let holder: String = row.get::<_, Option<String>>(0)?;
    let silent: i64 = row.get(1);
    let status: &[u8] = row.get::<_, Option<&[u8]>>(2)?;
    Some(NodeInfo {
        holder,
        silent_for: Duration::from_micros(silent.max(0).cast_unsigned()),
        // A status of another version is shown with what this version knows of it.
        status: serde_json::from_slice(status).unwrap_or_default(),
    })
}

#[async_trait]
impl Cluster for Postgres {
    async fn beat(&self, beat: NodeBeat) -> Result<bool, Fault> {
        self.must_write(OPERATION)?;
        let ids = |sessions: &[SessionId]| sessions.iter().map(|id| id.0).collect::<Vec<Uuid>>();
        let (joined, left) = (ids(&beat.joined), ids(&beat.left));
        let (now, forgotten) = (self.shared.lease_time(), micros(NODE_ROW_TTL));
        let status = encode(&beat.status);
        let rows = self
            .shared
            .pool
            .run(
                LaneKind::Write,
                OPERATION,
                BEAT,
                &[&beat.holder, &status, &joined, &left, &now, &forgotten],
            )
            .await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }

    async fn census(&self, holder: &str) -> Result<Census, Fault> {
        let (now, gone) = (self.shared.lease_time(), micros(NODE_TIMEOUT));
        let rows = self
            .shared
            .pool
            .run(LaneKind::Read, OPERATION, CENSUS, &[&holder, &now, &gone])
            .await?;
        let session = |row: &Row| row.get::<_, Option<Uuid>>(3).map(SessionId);
        Ok(Census {
            nodes: rows.iter().filter_map(node).collect(),
            observed: rows.iter().filter_map(session).collect(),
        })
    }

    async fn leave(&self, holder: &str) -> Result<(), Fault> {
        self.must_write(OPERATION)?;
        self.shared.pool.run(LaneKind::Write, OPERATION, LEAVE, &[&holder]).await?;
        Ok(())
    }

    async fn orphaned_sessions(
        &self,
        dead: &[String],
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<UnfinishedSession>, Fault> {
        self.shared.unfinished(after, limit, Some(dead)).await
    }

    async fn note(&self, name: &str) -> Result<Option<Note>, Fault> {
        let rows = self.shared.pool.run(LaneKind::Read, OPERATION, NOTE, &[&name]).await?;
        Ok(rows
            .first()
            .map(|row| Note { version: row.get::<_, i64>(0).cast_unsigned(), body: row.get(1) }))
    }

    async fn set_note(
        &self,
        name: &str,
        expected: u64,
        body: Vec<u8>,
    ) -> Result<Option<u64>, Fault> {
        self.must_write(OPERATION)?;
        let was = expected.cast_signed();
        let rows = self
            .shared
            .pool
            .run(LaneKind::Write, OPERATION, SET_NOTE, &[&name, &was, &body])
            .await?;
        match rows.first() {
            Some(row) => Ok(Some(row.get::<_, i64>(0).cast_unsigned())),
            // A statement that was repeated after a lost connection finds its own change.
            None => Ok(self
                .note(name)
                .await?
                .filter(|note| note.version == expected + 1 && note.body == body)
                .map(|note| note.version)),
        }
    }
}
