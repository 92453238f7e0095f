//! Reads of one session: its state, pages of records, snapshot and stored outputs.

use std::{collections::HashMap, sync::Mutex};

use budao_core::{
    event::{Epoch, Seq, SessionId},
    fault::{Fact, Fault, Operation},
    time::Timestamp,
};
use budao_journal::{
    Anchor, BatchLink, ChainPage, Digest, Gap, GapReason, HistoryInfo, LeaseInfo, Page, PageLimits,
    Snapshot,
    implement::{
        chain, faults,
        page::{PageBuilder, PageHistory},
    },
};
use bytes::Bytes;
use tokio_postgres::{Row, types::ToSql};

use crate::{
    connection::lock,
    errors,
    pool::LaneKind,
    shared::{PostgresShared, digest},
};

/// The session's row and its batches from one snapshot. `$2` is the first wanted position, `$3` the session's day,
/// which must be a parameter: only then are the other partitions left out.
const PAGE: &str = "SELECT s.epoch, s.head, s.removed_to, s.removed_reason, s.cohort, b.first, b.count, b.body \
    FROM @session s LEFT JOIN LATERAL (SELECT b.first, b.count, b.body FROM @batch b \
        WHERE b.cohort = $3 AND b.session = s.id AND b.first >= coalesce((SELECT max(f.first) FROM @batch f \
        WHERE f.cohort = $3 AND f.session = s.id AND f.first <= $2), 0) ORDER BY b.first LIMIT $4) b \
    ON s.cohort = $3 WHERE s.uuid = $1";

const INFO: &str = "SELECT epoch, head, removed_to, holder, expires, expires > \
    coalesce($2::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) FROM @session \
    WHERE uuid = $1";

const SNAPSHOT: &str = "SELECT s.head, n.seq, n.body FROM @session s \
    LEFT JOIN @snapshot n ON n.session = s.id WHERE s.uuid = $1";

/// The session's row and the digests of its batches from one snapshot, after the position `$2`.
const CHAIN: &str = "SELECT s.epoch, s.head, s.chain, s.removed_to, s.removed_digest, b.first, b.count, b.previous, b.digest \
    FROM @session s LEFT JOIN LATERAL (SELECT b.first, b.count, substring(b.body from 2 for 32) AS previous, \
        substring(b.body from length(b.body) - 35 for 32) AS digest FROM @batch b WHERE b.cohort = s.cohort \
        AND b.session = s.id AND b.first + b.count - 1 > $2 ORDER BY b.first LIMIT $3) b ON true \
    WHERE s.uuid = $1 ORDER BY b.first";

const BLOB: &str = "SELECT body FROM @blob WHERE hash = $1";

/// Stores an output and the session's reference to it. The update locks a row that exists, so that no sweep removes it.
const PUT_BLOB: &str = "WITH s AS (SELECT id FROM @session WHERE uuid = $1 FOR KEY SHARE), \
    b AS (INSERT INTO @blob(hash, body) SELECT $2, $3 FROM s \
        ON CONFLICT (hash) DO UPDATE SET hash = EXCLUDED.hash), \
    r AS (INSERT INTO @blob_reference(session, hash) SELECT s.id, $2 FROM s ON CONFLICT DO NOTHING) \
    SELECT id FROM s";

/// Batches in the first statement of a page; each further statement reads four times as many.
const BATCHES: i64 = 16;
const BATCHES_MAX: i64 = 4096;
/// Attempts of a page whose session is moved or trimmed while it is read.
const ATTEMPTS: usize = 8;
/// Days of sessions that are remembered.
const DAYS: usize = 100_000;

/// The day of each session that was read, so that a read needs one statement.
#[derive(Debug, Default)]
pub(crate) struct CohortCache(Mutex<HashMap<SessionId, i32>>);

impl CohortCache {
    /// A day that no session has, if the session's is not known.
    fn get(&self, session: SessionId) -> i32 {
        lock(&self.0).get(&session).copied().unwrap_or(-1)
    }

    fn set(&self, session: SessionId, day: i32) {
        let mut days = lock(&self.0);
        if days.len() >= DAYS {
            days.clear();
        }
        days.insert(session, day);
    }
}

/// The columns 0 to 3 of [`PAGE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HistoryRow {
    epoch: Epoch,
    head: Seq,
    removed_to: Seq,
    removed_reason: Option<GapReason>,
}

impl HistoryRow {
    fn read(row: &Row) -> Self {
        Self {
            epoch: Epoch(row.get::<_, i32>(0).cast_unsigned()),
            head: row.get::<_, i64>(1).cast_unsigned(),
            removed_to: row.get::<_, i64>(2).cast_unsigned(),
            removed_reason: row.get::<_, Option<&str>>(3).and_then(GapReason::from_name),
        }
    }

    fn is_same_history(&self, other: &Self) -> bool {
        self.epoch == other.epoch && self.removed_to == other.removed_to
    }

    fn gap_after(&self, after: Seq) -> Option<Gap> {
        let reason = self.removed_reason?;
        (after < self.removed_to).then_some(Gap { from: after + 1, to: self.removed_to, reason })
    }
}

fn link(row: &Row) -> Option<BatchLink> {
    let first = row.get::<_, Option<i64>>(5)?.cast_unsigned();
    let count = u64::from(row.get::<_, i32>(6).cast_unsigned());
    let last = first.saturating_add(count).saturating_sub(1);
    Some(BatchLink { first, last, previous: digest(row, 7), digest: digest(row, 8) })
}

impl PostgresShared {
    pub(crate) async fn info(&self, session: SessionId) -> Result<Option<HistoryInfo>, Fault> {
        let now = self.lease_time();
        let operation = Operation::ReadRecords;
        let found = self.pool.run(LaneKind::Read, operation, INFO, &[&session.0, &now]).await?;
        Ok(found.first().map(|row| HistoryInfo {
            epoch: Epoch(row.get::<_, i32>(0).cast_unsigned()),
            head: row.get::<_, i64>(1).cast_unsigned(),
            first_available: row.get::<_, i64>(2).cast_unsigned() + 1,
            lease: row.get::<_, bool>(5).then(|| LeaseInfo {
                holder: row.get(3),
                expires: Timestamp::from_micros(row.get(4)),
            }),
        }))
    }

    pub(crate) async fn chain(
        &self,
        session: SessionId,
        after: Seq,
        limit: usize,
    ) -> Result<ChainPage, Fault> {
        let (operation, after) = (Operation::CheckJournal, after.cast_signed());
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let parameters: [&(dyn ToSql + Sync); 3] = [&session.0, &after, &limit];
        let rows = self.pool.run(LaneKind::Read, operation, CHAIN, &parameters).await?;
        let Some(row) = rows.first() else {
            return Err(faults::unknown_session(session, operation));
        };
        let removed = row.get::<_, Option<&[u8]>>(4).and_then(|bytes| bytes.try_into().ok());
        let start = Anchor {
            seq: row.get::<_, i64>(3).cast_unsigned(),
            digest: removed.map_or_else(|| chain::seed(session), Digest),
        };
        Ok(ChainPage {
            epoch: Epoch(row.get::<_, i32>(0).cast_unsigned()),
            start,
            known_head: row.get::<_, i64>(1).cast_unsigned(),
            head_digest: Some(digest(row, 2)),
            links: rows.iter().filter_map(link).collect(),
        })
    }

    pub(crate) async fn read_page(
        &self,
        session: SessionId,
        after: Seq,
        limits: PageLimits,
    ) -> Result<Page, Fault> {
        for _ in 0..ATTEMPTS {
            if let Some(page) = self.try_page(session, after, limits).await? {
                return Ok(page);
            }
        }
        let cause = format!("session {session} is moved or trimmed all the time");
        Err(errors::busy(self.pool.address(), Operation::ReadRecords, cause))
    }

    /// `None` if the session was moved or trimmed between two statements.
    async fn try_page(
        &self,
        session: SessionId,
        after: Seq,
        limits: PageLimits,
    ) -> Result<Option<Page>, Fault> {
        let mut building: Option<(HistoryRow, PageBuilder)> = None;
        let mut batches = BATCHES;
        loop {
            let day = self.cohorts.get(session);
            let next = building.as_ref().map_or(after.saturating_add(1), |b| b.1.next_seq());
            let rows = self.page_rows(session, next, day, batches).await?;
            let row = HistoryRow::read(&rows[0]);
            let found: i32 = rows[0].get(4);
            if found != day {
                self.cohorts.set(session, found);
                return Ok(None);
            }
            if after > row.head {
                return Err(faults::beyond_head(session, after, row.head, row.epoch));
            }
            let (history, builder) = building.get_or_insert_with(|| {
                let (epoch, head, removed_to) = (row.epoch, row.head, row.removed_to);
                let history = PageHistory { session, epoch, head, removed_to };
                (row, PageBuilder::new(history, after, limits))
            });
            if !history.is_same_history(&row) {
                return Ok(None);
            }
            let count = take_rows(builder, &rows);
            if !builder.is_open() || count < batches {
                break;
            }
            batches = (batches * 4).min(BATCHES_MAX);
        }
        let Some((row, builder)) = building else { return Ok(None) };
        Ok(Some(Page {
            records: builder.finish().map_err(|seq| self.damaged_record(session, seq))?,
            epoch: row.epoch,
            head: row.head,
            first_available: row.removed_to + 1,
            gap: row.gap_after(after),
        }))
    }

    async fn page_rows(
        &self,
        session: SessionId,
        next: Seq,
        day: i32,
        batches: i64,
    ) -> Result<Vec<Row>, Fault> {
        let operation = Operation::ReadRecords;
        let next = i64::try_from(next).unwrap_or(i64::MAX);
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&session.0, &next, &day, &batches];
        let rows = self.pool.run(LaneKind::Read, operation, PAGE, &parameters).await?;
        match rows.is_empty() {
            true => Err(faults::unknown_session(session, operation)),
            false => Ok(rows),
        }
    }

    pub(crate) fn damaged_record(&self, session: SessionId, seq: Seq) -> Fault {
        let what = format!("record {seq} of session {session} is damaged");
        errors::damage_fault(self.pool.address(), Operation::ReadRecords, what)
            .with(Fact::Session, session.to_string())
            .with(Fact::FromSeq, seq)
    }

    pub(crate) async fn snapshot(&self, session: SessionId) -> Result<Option<Snapshot>, Fault> {
        let operation = Operation::ReadRecords;
        let found = self.pool.run(LaneKind::Read, operation, SNAPSHOT, &[&session.0]).await?;
        let row = found.first().ok_or_else(|| faults::unknown_session(session, operation))?;
        let Some(body) = row.get::<_, Option<&[u8]>>(2) else { return Ok(None) };
        let (head, seq) = (row.get::<_, i64>(0), row.get::<_, i64>(1));
        if seq > head {
            let what = format!("the snapshot covers {seq} records, the history has {head}");
            let fault = errors::damage_fault(self.pool.address(), operation, what);
            return Err(fault.with(Fact::Session, session.to_string()));
        }
        Ok(Some(Snapshot { seq: seq.cast_unsigned(), body: Bytes::copy_from_slice(body) }))
    }

    pub(crate) async fn blob(&self, digest: Digest) -> Result<Option<Bytes>, Fault> {
        let (operation, hash) = (Operation::ReadBlob, digest.0.as_slice());
        let found = self.pool.run(LaneKind::Read, operation, BLOB, &[&hash]).await?;
        let Some(row) = found.first() else { return Ok(None) };
        let body: &[u8] = row.get(0);
        if Digest::of(body) != digest {
            let what = format!("the stored output {digest} is damaged");
            return Err(errors::damage_fault(self.pool.address(), operation, what));
        }
        Ok(Some(Bytes::copy_from_slice(body)))
    }

    pub(crate) async fn put_blob(
        &self,
        session: SessionId,
        content: &Bytes,
    ) -> Result<Digest, Fault> {
        let (limit, size) = (self.limits.output_bytes_kept, content.len());
        if size > limit {
            let (operation, name) = (Operation::WriteBlob, "output_bytes_kept");
            return Err(faults::limit_reached(operation, name, "bytes", limit, size));
        }
        self.store_blob(session, content).await
    }

    /// Stores an output of any size.
    pub(crate) async fn store_blob(
        &self,
        session: SessionId,
        content: &Bytes,
    ) -> Result<Digest, Fault> {
        let (operation, digest) = (Operation::WriteBlob, Digest::of(content));
        let (hash, body) = (digest.0.as_slice(), &content[..]);
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&session.0, &hash, &body];
        let found = self.pool.run(LaneKind::Write, operation, PUT_BLOB, &parameters).await?;
        match found.is_empty() {
            true => Err(faults::unknown_session(session, operation)),
            false => Ok(digest),
        }
    }
}

/// Adds the batches of these rows and returns how many there were.
fn take_rows(builder: &mut PageBuilder, rows: &[Row]) -> i64 {
    let mut count = 0;
    for row in rows {
        let Some(first) = row.get::<_, Option<i64>>(5) else { break };
        count += 1;
        if builder.is_open() {
            let records = row.get::<_, i32>(6).cast_unsigned();
            let body = Bytes::copy_from_slice(row.get(7));
            builder.take(first.cast_unsigned(), u64::from(records), &body);
        }
    }
    count
}
