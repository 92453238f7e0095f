//! Updates the views from the records, session by session.
//!
//! No lock is held while records are folded: the result is stored only if the session's views are still where they were.
//! A process that loses that race folds again, so counters are exact with any number of processes.

use std::time::Duration;

use budao_core::{
    event::{Epoch, Seq, SessionId},
    fault::{Fault, Operation},
    time::Timestamp,
};
use budao_journal::{
    Digest, SessionSummary,
    implement::{
        batch_encoding::{self, BatchLocation},
        views::{self, SessionChanges},
    },
};
use bytes::Bytes;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::{
    errors,
    pool::LaneKind,
    schema::VIEWS,
    settings::Purpose,
    shared::{self, PostgresShared},
};

const DIRTY: &str = "SELECT id FROM @session WHERE dirty AND id > $1 ORDER BY id LIMIT 256";

/// The snapshot is read only where the view begins after removed records.
const SESSION: &str = "SELECT s.uuid, s.cohort, s.head, s.viewed, v.body, n.seq, n.body, s.chain FROM @session s \
    LEFT JOIN @view_session v ON v.session = s.id \
    LEFT JOIN @snapshot n ON n.session = s.id AND s.removed_to > 0 AND v.session IS NULL \
    WHERE s.id = $1 AND s.dirty";

const BATCHES: &str = "SELECT first, count, body FROM @batch WHERE cohort = $1 AND session = $2 \
    AND first >= coalesce((SELECT max(f.first) FROM @batch f WHERE f.cohort = $1 AND f.session = $2 \
    AND f.first <= $3), 0) AND first <= $4 ORDER BY first LIMIT 64";

/// Stores the changes of one session, if nobody else did since they were folded.
const STORE: &str = "WITH v AS (UPDATE @session SET viewed = $3, dirty = (head <> $3) \
        WHERE id = $1 AND viewed = $2 RETURNING id), \
    s AS (INSERT INTO @view_session(session, state, updated, open_turn, body, wake_at) \
        SELECT v.id, $4, $5, $6, $7, $19 FROM v ON CONFLICT (session) DO UPDATE SET state = EXCLUDED.state, \
        updated = EXCLUDED.updated, open_turn = EXCLUDED.open_turn, body = EXCLUDED.body, \
        wake_at = EXCLUDED.wake_at), \
    d AS (DELETE FROM @view_label l USING v WHERE l.session = v.id AND $8::boolean \
        AND NOT l.key = ANY($9::bytea[])), \
    l AS (INSERT INTO @view_label(key, value, session) SELECT x.key, x.value, v.id FROM v, \
        unnest($9::bytea[], $10::bytea[]) AS x(key, value) WHERE $8::boolean \
        ON CONFLICT (session, key) DO UPDATE SET value = EXCLUDED.value), \
    r AS (INSERT INTO @view_trace(trace, session) SELECT x.trace, v.id FROM v, \
        unnest($11::bytea[]) AS x(trace) ON CONFLICT DO NOTHING), \
    t AS (INSERT INTO @view_tool(tool, session) SELECT x.tool, v.id FROM v, \
        unnest($12::bytea[]) AS x(tool) ON CONFLICT DO NOTHING), \
    c AS (INSERT INTO @view_code(code, session) SELECT x.code, v.id FROM v, \
        unnest($13::text[]) AS x(code) ON CONFLICT DO NOTHING), \
    n AS (INSERT INTO @view_rate AS r(code, minute, node, raised, ended) \
        SELECT x.code, x.minute, $14, x.raised, x.ended FROM v, \
        unnest($15::text[], $16::bigint[], $17::bigint[], $18::bigint[]) AS x(code, minute, raised, ended) \
        ON CONFLICT (code, minute, node) DO UPDATE SET raised = r.raised + EXCLUDED.raised, \
        ended = r.ended + EXCLUDED.ended) \
    SELECT id FROM v";

/// The longest label, tool name or value that is indexed; longer ones are found by their beginning.
const INDEXED_BYTES: usize = 1000;
/// Sessions that are projected at the same time.
const AT_ONCE: usize = 8;
/// Attempts of a session that others project at the same time.
const ATTEMPTS: usize = 20;
/// Pause between two runs for what this process wrote.
const REGULAR: Duration = Duration::from_secs(2);

/// The part of a text that an index holds.
pub(crate) fn index_prefix(text: &str) -> &[u8] {
    &text.as_bytes()[..text.len().min(INDEXED_BYTES)]
}

/// A session whose records are ahead of its views.
struct DirtySession {
    key: i64,
    session: SessionId,
    cohort: i32,
    head: Seq,
    viewed: Seq,
    /// The digest at the head.
    chain: Digest,
    summary: SessionSummary,
}

impl PostgresShared {
    /// Brings the views up to the records that are durable now. A journal opened for reading shows them as they are.
    pub(crate) async fn catch_up(&self) -> Result<(), Fault> {
        if self.purpose == Purpose::Read {
            return Ok(());
        }
        let mut last = 0_i64;
        loop {
            let operation = Operation::ReadRecords;
            let rows = self.pool.run(LaneKind::Read, operation, DIRTY, &[&last]).await?;
            let keys: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
            let Some(newest) = keys.last() else { return Ok(()) };
            last = *newest;
            let projecting = keys.into_iter().map(|key| self.project(key));
            stream::iter(projecting).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        }
    }

    /// Projects what this process wrote, now and then, until it is aborted.
    pub(crate) async fn project_regularly(&self) {
        loop {
            tokio::time::sleep(REGULAR).await;
            for key in self.written.keys() {
                if let Err(fault) = self.project(key).await {
                    tracing::debug!(%fault, "views not updated");
                    break;
                }
            }
        }
    }

    async fn project(&self, key: i64) -> Result<(), Fault> {
        for _ in 0..ATTEMPTS {
            let written = self.written.head(key);
            let Some(mut session) = self.dirty_session(key).await? else {
                self.written.forget(key, written);
                return Ok(());
            };
            let changes = self.fold(&mut session).await?;
            if self.store(&session, &changes).await? {
                self.written.forget(key, session.head);
                return Ok(());
            }
        }
        let cause = "the views of a session change all the time";
        Err(errors::busy(self.pool.address(), Operation::ReadRecords, cause))
    }

    /// `None` if the views are up to date or the session is gone.
    async fn dirty_session(&self, key: i64) -> Result<Option<DirtySession>, Fault> {
        let operation = Operation::ReadRecords;
        let rows = self.pool.run(LaneKind::Read, operation, SESSION, &[&key]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let session = SessionId(row.get::<_, Uuid>(0));
        let viewed = row.get::<_, i64>(3).cast_unsigned();
        // Views that were cleared, or that this version cannot read, begin anew.
        let known = row.get::<_, Option<&[u8]>>(4).filter(|_| viewed > 0);
        let summary = known.and_then(views::decode_summary);
        Ok(Some(DirtySession {
            key,
            session,
            cohort: row.get(1),
            head: row.get::<_, i64>(2).cast_unsigned(),
            viewed,
            chain: shared::digest(row, 7),
            summary: summary.unwrap_or_else(|| {
                let seq = row.get::<_, Option<i64>>(5).map(i64::cast_unsigned);
                views::summary_after_removal(session, seq.zip(row.get::<_, Option<&[u8]>>(6)))
            }),
        }))
    }

    async fn fold(&self, session: &mut DirtySession) -> Result<SessionChanges, Fault> {
        let mut changes = SessionChanges::default();
        let mut next = session.viewed.max(session.summary.head) + 1;
        let (key, head, chain) = (session.key, session.head, session.chain);
        if let Some(records) = self.written.records(key, next - 1, head, chain) {
            for record in &records {
                changes.add(&mut session.summary, record);
            }
            return Ok(changes);
        }
        while next <= session.head {
            let (first, head) = (next.cast_signed(), session.head.cast_signed());
            let operation = Operation::ReadRecords;
            let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
                [&session.cohort, &session.key, &first, &head];
            let rows = self.pool.run(LaneKind::Read, operation, BATCHES, &parameters).await?;
            let Some(end) = rows.iter().map(end_of).max().filter(|end| *end >= next) else { break };
            for row in &rows {
                fold_batch(session, &mut changes, row);
            }
            next = end + 1;
        }
        Ok(changes)
    }

    /// Returns whether the changes were stored; false if another process was faster.
    async fn store(&self, session: &DirtySession, changes: &SessionChanges) -> Result<bool, Fault> {
        let summary = &session.summary;
        let (viewed, head) = (session.viewed.cast_signed(), session.head.cast_signed());
        let turn = summary.open_turn.map(u64::cast_signed);
        let (state, updated) = (summary.state.as_str(), summary.updated_at.as_micros());
        let wake_at = summary.timers.timers.first_time().map(Timestamp::as_micros);
        let body = views::encode_summary(summary)?;
        let keys: Vec<&[u8]> = summary.labels.keys().map(|key| index_prefix(key)).collect();
        let values: Vec<&[u8]> = summary.labels.values().map(|value| index_prefix(value)).collect();
        let traces: Vec<Vec<u8>> =
            changes.traces.iter().map(|trace| trace.to_be_bytes().to_vec()).collect();
        let tools: Vec<&[u8]> = changes.tools.iter().map(|tool| index_prefix(tool)).collect();
        let codes: Vec<&str> = changes.codes.iter().copied().collect();
        let mut rates: Vec<_> = changes.rates.iter().collect();
        rates.sort_unstable();
        let rate_codes: Vec<&str> = rates.iter().map(|((code, _), _)| *code).collect();
        let minutes: Vec<i64> = rates.iter().map(|((_, minute), _)| *minute).collect();
        let raised: Vec<i64> = rates.iter().map(|(_, (raised, _))| *raised).collect();
        let ended: Vec<i64> = rates.iter().map(|(_, (_, ended))| *ended).collect();
        let stored = self
            .pool
            .run(
                LaneKind::Write,
                Operation::ReadRecords,
                STORE,
                &[
                    &session.key,
                    &viewed,
                    &head,
                    &state,
                    &updated,
                    &turn,
                    &body,
                    &changes.has_new_labels,
                    &keys,
                    &values,
                    &traces,
                    &tools,
                    &codes,
                    &self.node,
                    &rate_codes,
                    &minutes,
                    &raised,
                    &ended,
                    &wake_at,
                ],
            )
            .await?;
        Ok(!stored.is_empty())
    }

    /// Deletes the views and derives them again from the records.
    pub(crate) async fn rebuild_views(&self) -> Result<(), Fault> {
        let mut connection = self.pool.exclusive(Operation::ReadRecords).await?;
        connection.begin().await?;
        connection.execute(&format!("TRUNCATE {VIEWS}")).await?;
        connection.execute("UPDATE @session SET viewed = 0, dirty = true WHERE head > 0").await?;
        connection.commit().await?;
        drop(connection);
        self.catch_up().await
    }
}

fn end_of(row: &Row) -> Seq {
    let first = row.get::<_, i64>(0).cast_unsigned();
    first + u64::from(row.get::<_, i32>(1).cast_unsigned()) - 1
}

fn fold_batch(session: &mut DirtySession, changes: &mut SessionChanges, row: &Row) {
    let (first, count) = (row.get::<_, i64>(0).cast_unsigned(), row.get::<_, i32>(1));
    let location = BatchLocation {
        session: session.session,
        epoch: Epoch(0),
        first,
        count: u64::from(count.cast_unsigned()),
    };
    let body = Bytes::copy_from_slice(row.get(2));
    // Damaged records are left out of the views; readers of the session get a fault.
    batch_encoding::unpack(location, &body, |record| changes.add(&mut session.summary, &record));
}
