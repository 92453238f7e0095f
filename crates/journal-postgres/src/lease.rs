//! Leases: one writer per session, with tokens from one sequence and times by the database's clock.

use std::time::Duration;

use budao_core::{
    event::{Epoch, SessionId},
    fault::{Fault, Kind, Operation},
    time::Timestamp,
};
use budao_journal::{
    IfMissing, Lease, LeaseRequest, LeaseToken,
    implement::{chain, faults, new_epoch},
};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::{
    append::CachedSession,
    errors,
    pool::LaneKind,
    shared::{PostgresShared, digest, micros},
    timeline::{current_origin, current_timeline},
};

/// Takes a free lease or makes the session. `$3` is the time to live, `$5` the time of a test, `$6` the epoch and `$7` the
/// chain of a new session, `$8` is a holder known to have ended. The first lease in a generation gives a new epoch too.
/// No lease is given before a replaced history was noticed.
const TAKE: &str = concat!(
    "WITH t AS (SELECT coalesce($5::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now), \
    m AS (SELECT generation FROM @meta WHERE timeline = ",
    current_timeline!(),
    " AND origin = ",
    current_origin!(),
    "), \
    made AS (INSERT INTO @session(uuid, cohort, epoch, chain, token, holder, expires, generation) \
        SELECT $1, coalesce((SELECT max(day) FROM @cohort WHERE day <= t.now / 86400000000), (SELECT min(day) FROM @cohort)), \
        $6, $7, nextval('@token'), $2, t.now + $3, m.generation FROM t, m WHERE $4::boolean \
        ON CONFLICT (uuid) DO NOTHING RETURNING id, epoch, head, chain, token, expires), \
    taken AS (UPDATE @session s SET token = nextval('@token'), holder = $2, expires = t.now + $3, \
            epoch = CASE WHEN s.generation = m.generation THEN s.epoch ELSE $6 END, generation = m.generation FROM t, m \
        WHERE s.uuid = $1 AND (s.token IS NULL OR s.expires <= t.now OR s.holder = $2 OR s.holder = $8) \
        RETURNING s.id, s.epoch, s.head, s.chain, s.token, s.expires) \
    SELECT *, false FROM made UNION ALL SELECT *, epoch = $6 FROM taken"
);

/// Names the current holder, and tells whether the history was replaced and nobody has noticed. Always one row.
const HOLDER: &str = concat!(
    "SELECT s.holder, s.expires, \
    coalesce($2::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint), s.token IS NOT NULL, \
    (m.timeline, m.origin) IS DISTINCT FROM (",
    current_timeline!(),
    ", ",
    current_origin!(),
    ") FROM @meta m LEFT JOIN @session s ON s.uuid = $1"
);

const RENEW: &str = "WITH t AS (SELECT coalesce($4::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now), \
    a AS (SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS a(uuid, token, ttl)) \
    UPDATE @session s SET expires = t.now + a.ttl FROM a, t WHERE s.uuid = a.uuid AND s.token = a.token \
    RETURNING s.uuid, s.token, s.head, s.expires";

/// `$3` is the time for which the session stays reserved for its holder; without it, the session is nobody's.
const RELEASE: &str = "UPDATE @session SET token = NULL, holder = CASE WHEN $3::bigint IS NULL THEN '' ELSE holder END, \
    expires = coalesce($4::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + coalesce($3, 0) \
    WHERE uuid = $1 AND token = $2";

/// Attempts before a session that others take and release all the time counts as busy.
const ATTEMPTS: usize = 5;
/// Renewals in one statement.
const RENEWALS: usize = 1000;

/// A renewal that waits for the next statement.
#[derive(Debug)]
pub(crate) struct Renewal {
    lease: Lease,
    ttl: Duration,
    reply: oneshot::Sender<Result<Lease, Fault>>,
}

impl PostgresShared {
    pub(crate) async fn take_lease(&self, request: &LeaseRequest) -> Result<Lease, Fault> {
        let session = request.session;
        let (ttl, is_create) = (micros(request.ttl), request.if_missing == IfMissing::Create);
        let seed = chain::seed(session);
        let chain: &[u8] = &seed.0;
        for _ in 0..ATTEMPTS {
            let (now, epoch) = (self.lease_time(), new_epoch(&self.world).0.cast_signed());
            let found = self
                .pool
                .run(
                    LaneKind::Write,
                    Operation::TakeLease,
                    TAKE,
                    &[
                        &session.0,
                        &request.holder,
                        &ttl,
                        &is_create,
                        &now,
                        &epoch,
                        &chain,
                        &request.dead_holder,
                    ],
                )
                .await?;
            if let Some(row) = found.first() {
                if row.get(6) {
                    tracing::info!(%session, "session has a new epoch");
                    self.notifier.announce_history_change(session);
                    self.announcer.announce_history_change(session);
                }
                return Ok(self.remember_lease(session, row));
            }
            if let Some(fault) = self.refusal(session).await? {
                return Err(fault);
            }
        }
        let cause = "the lease was taken and released by others at the same time";
        Err(errors::busy(self.pool.address(), Operation::TakeLease, cause))
    }

    pub(crate) fn remember_lease(&self, session: SessionId, row: &Row) -> Lease {
        let token = LeaseToken(row.get::<_, i64>(4).cast_unsigned());
        let epoch = Epoch(row.get::<_, i32>(1).cast_unsigned());
        let head = row.get::<_, i64>(2).cast_unsigned();
        let chain = digest(row, 3);
        self.sessions
            .remember(session, CachedSession { key: row.get(0), epoch, head, chain, token });
        Lease { session, token, epoch, head, expires: Timestamp::from_micros(row.get(5)) }
    }

    /// Why a lease was not taken; `None` if it is free by now.
    async fn refusal(&self, session: SessionId) -> Result<Option<Fault>, Fault> {
        let now = self.lease_time();
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&session.0, &now];
        let found =
            self.pool.run(LaneKind::Read, Operation::TakeLease, HOLDER, &parameters).await?;
        let Some(row) = found.first() else {
            return Ok(Some(errors::fault(
                self.pool.address(),
                Kind::JournalGone,
                Operation::TakeLease,
            )));
        };
        if row.get(4) {
            self.notice_replacement().await?;
            return Ok(None);
        }
        let (Some(holder), Some(expires)) = (row.get::<_, Option<&str>>(0), row.get(1)) else {
            return Ok(Some(faults::unknown_session(session, Operation::TakeLease)));
        };
        let now = Timestamp::from_micros(row.get(2));
        let expires = Timestamp::from_micros(expires);
        let is_held = row.get::<_, bool>(3) && expires > now;
        Ok(is_held.then(|| faults::session_busy(session, holder, now, expires)))
    }

    pub(crate) async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Lease, Fault> {
        let (reply, answer) = oneshot::channel();
        let closing = || Fault::new(Kind::ShuttingDown, Operation::TakeLease);
        let renewal = Renewal { lease: lease.clone(), ttl, reply };
        self.renewals.send(renewal).await.map_err(|_| closing())?;
        answer.await.map_err(|_| closing())?
    }

    /// Renews what has gathered in one statement, until the journal is closed.
    pub(crate) async fn renew_gathered(&self, mut queue: mpsc::Receiver<Renewal>) {
        let mut gathered = Vec::new();
        while queue.recv_many(&mut gathered, RENEWALS).await > 0 {
            let renewed = self.renew_all(&gathered).await;
            for renewal in gathered.drain(..) {
                let lease = &renewal.lease;
                let found = match &renewed {
                    Ok(rows) => rows
                        .iter()
                        .find(|row| row.session == lease.session && row.token == lease.token)
                        .map(|row| Lease { head: row.head, expires: row.expires, ..lease.clone() })
                        .ok_or_else(|| faults::fenced(lease.session, Operation::TakeLease)),
                    Err(fault) => Err(fault.clone()),
                };
                // The caller may have given up.
                drop(renewal.reply.send(found));
            }
        }
    }

    async fn renew_all(&self, renewals: &[Renewal]) -> Result<Vec<Lease>, Fault> {
        let ids: Vec<Uuid> = renewals.iter().map(|renewal| renewal.lease.session.0).collect();
        let tokens: Vec<i64> =
            renewals.iter().map(|renewal| renewal.lease.token.0.cast_signed()).collect();
        let times: Vec<i64> = renewals.iter().map(|renewal| micros(renewal.ttl)).collect();
        let now = self.lease_time();
        let operation = Operation::TakeLease;
        let rows = self
            .pool
            .run(LaneKind::Write, operation, RENEW, &[&ids, &tokens, &times, &now])
            .await?;
        let lease = |row: &Row| Lease {
            session: SessionId(row.get(0)),
            token: LeaseToken(row.get::<_, i64>(1).cast_unsigned()),
            epoch: Epoch(0),
            head: row.get::<_, i64>(2).cast_unsigned(),
            expires: Timestamp::from_micros(row.get(3)),
        };
        Ok(rows.iter().map(lease).collect())
    }

    pub(crate) async fn release(
        &self,
        lease: &Lease,
        reserved: Option<Duration>,
    ) -> Result<(), Fault> {
        self.sessions.forget(lease.session, lease.token);
        let (token, reserved) = (lease.token.0.cast_signed(), reserved.map(micros));
        let now = self.lease_time();
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&lease.session.0, &token, &reserved, &now];
        self.pool.run(LaneKind::Write, Operation::TakeLease, RELEASE, &values).await?;
        Ok(())
    }
}
