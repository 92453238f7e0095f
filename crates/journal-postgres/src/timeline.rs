//! Notices that the tables come from a backup, a dump or a failover, so that confirmed records may be missing.
//!
//! A promoted server has another timeline; a restored dump has other tables. `meta` has the timeline and the origin of
//! the tables as last noticed, and a generation that grows when the history was replaced. A session gets a new epoch when
//! its lease is first taken in a generation. A writer whose lease is still valid compares heads itself.

use std::time::Duration;

use budao_core::fault::{Fault, Operation};

use crate::{
    pool::LaneKind,
    shared::{PostgresShared, micros},
};

/// The timeline of the server. `pg_control_checkpoint` shows it only after the next checkpoint.
macro_rules! current_timeline {
    () => {
        "('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint"
    };
}

/// The database and the table `meta`: a dump is restored as others.
macro_rules! current_origin {
    () => {
        "(SELECT concat(d.oid, '/', '@meta'::regclass::oid) FROM pg_database d \
          WHERE d.datname = current_database())"
    };
}

pub(crate) use {current_origin, current_timeline};

/// A failover is believed to be one if a server of the journal beat so shortly before. A restored backup is older.
const FAILOVER_MAX: Duration = Duration::from_secs(120);

/// Records timeline and origin. `$1`: a failover loses nothing; `$2`: renew the epochs in any case; `$3` is the time of a
/// test, `$4` the greatest age of a beat. Tokens of the lost history are not given again.
const NOTICE: &str = concat!(
    "WITH c AS (SELECT ",
    current_timeline!(),
    " AS timeline, ",
    current_origin!(),
    " AS origin, coalesce($3::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now), \
    k AS (SELECT c.timeline, c.origin, CASE WHEN $1 AND NOT $2 AND c.timeline > m.timeline AND c.origin = m.origin \
        AND EXISTS (SELECT 1 FROM @node n WHERE n.beat > c.now - $4::bigint) THEN 0 ELSE 1 END AS step FROM c, @meta m), \
    u AS (UPDATE @meta m SET timeline = k.timeline, origin = k.origin, generation = m.generation + k.step FROM k \
        WHERE $2 OR (m.timeline, m.origin) IS DISTINCT FROM (k.timeline, k.origin) RETURNING k.timeline, k.step) \
    SELECT timeline, step, setval('@token', nextval('@token') + 1000000000) FROM u"
);

impl PostgresShared {
    /// Compares timeline and tables with those in `meta`. If they differ, sessions get new epochs, except after a
    /// failover that loses nothing by the address.
    pub(crate) async fn notice_replacement(&self) -> Result<(), Fault> {
        self.notice(false, Operation::OpenJournal).await
    }

    /// Gives every session a new epoch when its lease is next taken.
    pub(crate) async fn renew_epochs(&self) -> Result<(), Fault> {
        self.notice(true, Operation::BackUpJournal).await
    }

    async fn notice(&self, is_forced: bool, operation: Operation) -> Result<(), Fault> {
        let is_lossless = self.pool.address().is_failover_lossless;
        let (now, age) = (self.lease_time(), micros(FAILOVER_MAX));
        let parameters: crate::connection::Parameters<'_> = &[&is_lossless, &is_forced, &now, &age];
        let rows = self.pool.run(LaneKind::Write, operation, NOTICE, parameters).await?;
        let Some(row) = rows.first() else { return Ok(()) };
        let (timeline, step): (i64, i32) = (row.get(0), row.get(1));
        let journal = &self.pool.address().label;
        match step {
            0 => tracing::info!(%journal, timeline, "failover without loss noticed"),
            _ => tracing::warn!(%journal, timeline, "history replaced, sessions get new epochs"),
        }
        Ok(())
    }
}
