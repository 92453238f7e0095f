//! The outcome of an append whose answer did not come or was a refusal: read, never guessed.
//!
//! An append was written if the database holds its very bytes. Before that is believed, another commit must reach the
//! standby, since the records of a wait that ended early are visible but not replicated.

use std::time::Duration;

use budao_core::{
    event::{Seq, SessionId},
    fault::{Fact, Fault, Operation},
};
use budao_journal::{
    AppendError,
    implement::{faults, new_epoch},
};
use tokio::time::Instant;
use tokio_postgres::{error::SqlState, types::ToSql};

use super::{
    CachedSession,
    group::{self, PackedAppend},
};
use crate::{
    errors::{self, StatementError},
    pool::{self, LaneKind},
    shared::PostgresShared,
};

/// How long an outcome may stay unknown, or its session locked, before the caller gets `journal_busy`.
const UNKNOWN_MAX: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(100);
/// Attempts of a statement that conflicts with others.
const CONFLICTS: usize = 3;

const BATCH: &str = "SELECT b.body FROM @session s JOIN @batch b ON b.cohort = s.cohort \
    AND b.session = s.id WHERE s.id = $1 AND b.first = $2";

const ANSWERS: &str = "SELECT command, answer FROM @inbox WHERE session = $1 AND command = ANY($2)";

const SNAPSHOT: &str = "SELECT seq, body FROM @snapshot WHERE session = $1";

/// A change of the session's row without effect. Its commit waits for the standby, and so for all commits before it.
const CONFIRM: &str = "UPDATE @session SET dirty = dirty WHERE id = $1";

/// Gives a session a new epoch and no writer, and notes what is lost, at most a few kilobytes of it.
const LOSS: &str = "WITH s AS (UPDATE @session SET epoch = $4, token = NULL, holder = '', viewed = least(viewed, head), \
        dirty = true WHERE id = $1 AND token = $2 AND head = $3 RETURNING id) \
    UPDATE @meta SET lost = left(concat_ws('; ', lost, $5::text), 4000) FROM s";

impl PostgresShared {
    /// Finishes an append whose group failed: finds out whether it was written, and writes it alone if not.
    pub(super) async fn settle(
        &self,
        lane: usize,
        packed: &PackedAppend<'_>,
        failed: &StatementError,
    ) -> Result<Seq, AppendError> {
        let mut is_unknown = matches!(failed, StatementError::Unknown(_));
        let deadline = Instant::now() + UNKNOWN_MAX;
        let mut conflicts = 0;
        loop {
            if is_unknown && self.find_written(packed, deadline).await? {
                return self.confirm(packed).await;
            }
            let lane = self.pool.write_lane(lane);
            let failed = match group::write(&self.pool, lane, std::slice::from_ref(packed)).await {
                Ok(written) if written[0] => return Ok(self.announce(packed)),
                Ok(_) if is_unknown && self.find_written(packed, deadline).await? => {
                    return self.confirm(packed).await;
                }
                Ok(_) => return self.explain(packed).await,
                Err(failed) => failed,
            };
            conflicts += usize::from(failed.is_conflict());
            let may_repeat = match &failed {
                StatementError::Unknown(_) | StatementError::NotSent(_) => true,
                StatementError::Refused(_) => {
                    failed.needs_other_server()
                        || failed.is_locked()
                        || (failed.is_conflict() && conflicts < CONFLICTS)
                }
            };
            if failed.code() == Some(&SqlState::UNIQUE_VIOLATION) {
                return self.explain(packed).await;
            }
            is_unknown |= matches!(failed, StatementError::Unknown(_));
            if !may_repeat || Instant::now() >= deadline {
                return Err(self.append_fault(failed));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Whether the database holds exactly this append. While it cannot be read, it is asked again until the deadline.
    async fn find_written(
        &self,
        packed: &PackedAppend<'_>,
        deadline: Instant,
    ) -> Result<bool, Fault> {
        loop {
            match self.is_written(packed).await {
                Err(fault) if pool::is_passing(&fault) && Instant::now() < deadline => {}
                found => return found,
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Whether the database holds exactly this append.
    async fn is_written(&self, packed: &PackedAppend<'_>) -> Result<bool, Fault> {
        let (append, key) = (packed.append, packed.known.key);
        let operation = Operation::AppendRecords;
        if !append.records.is_empty() {
            let first = (packed.known.head + 1).cast_signed();
            let rows = self.pool.run(LaneKind::Read, operation, BATCH, &[&key, &first]).await?;
            return Ok(rows.first().is_some_and(|row| row.get::<_, &[u8]>(0) == packed.body));
        }
        let mut expected: Vec<(&[u8], &[u8])> =
            append.answers.iter().map(|(id, answer)| (id.0.as_bytes(), &answer[..])).collect();
        expected.extend(append.direct.iter().map(|(id, _, answer)| (id.0.as_bytes(), &answer[..])));
        let ids: Vec<&[u8]> = expected.iter().map(|(id, _)| *id).collect();
        let rows = self.pool.run(LaneKind::Read, operation, ANSWERS, &[&key, &ids]).await?;
        let is_stored = |(id, answer): &(&[u8], &[u8])| {
            rows.iter().any(|row| {
                row.get::<_, &[u8]>(0) == *id && row.get::<_, Option<&[u8]>>(1) == Some(*answer)
            })
        };
        if !expected.iter().all(is_stored) {
            return Ok(false);
        }
        match &append.snapshot {
            Some(body) => {
                let rows = self.pool.run(LaneKind::Read, operation, SNAPSHOT, &[&key]).await?;
                let seq = packed.known.head.cast_signed();
                Ok(rows.first().is_some_and(|row| {
                    row.get::<_, i64>(0) == seq && row.get::<_, &[u8]>(1) == &body[..]
                }))
            }
            None => Ok(!expected.is_empty()),
        }
    }

    /// Answers an append that was found in the database, after a commit behind it reached the standby.
    async fn confirm(&self, packed: &PackedAppend<'_>) -> Result<Seq, AppendError> {
        let operation = Operation::AppendRecords;
        self.pool.run(LaneKind::Write, operation, CONFIRM, &[&packed.known.key]).await?;
        let session = packed.append.session;
        tracing::info!(%session, head = packed.head(), "append found after a lost answer");
        Ok(self.announce(packed))
    }

    /// Records that answered records are gone, as after a failover to a standby that lagged. The session gets a new
    /// epoch, so that no reader takes new records for the lost ones, and its lease ends.
    pub(super) async fn declare_loss(
        &self,
        session: SessionId,
        end: &CachedSession,
        answered: Seq,
    ) -> AppendError {
        let operation = Operation::AppendRecords;
        let lost = format!("records {} to {answered} of session {session}", end.head + 1);
        tracing::error!(%session, head = end.head, answered, "the database lost answered records");
        let epoch = new_epoch(&self.world).0.cast_signed();
        let (token, head) = (end.token.0.cast_signed(), end.head.cast_signed());
        let parameters: [&(dyn ToSql + Sync); 5] = [&end.key, &token, &head, &epoch, &lost];
        if let Err(fault) = self.pool.run(LaneKind::Write, operation, LOSS, &parameters).await {
            return fault.into();
        }
        self.notifier.announce_history_change(session);
        self.announcer.announce_history_change(session);
        let what = format!("the database lost {lost}");
        let fault = errors::damage_fault(self.pool.address(), operation, what);
        fault.with(Fact::Session, session.to_string()).with(Fact::FromSeq, end.head + 1).into()
    }

    /// Why an append was refused.
    pub(super) async fn explain(&self, packed: &PackedAppend<'_>) -> Result<Seq, AppendError> {
        let append = packed.append;
        let ends = self.load_ends(&[append.session.0]).await?;
        match ends.get(&append.session) {
            Some(end) if end.token == append.token && end.key == packed.known.key => {
                if end.head < append.expected {
                    return Err(self.declare_loss(append.session, end, append.expected).await);
                }
                if end.head != append.expected {
                    return Err(AppendError::Conflict { head: end.head });
                }
            }
            _ => return Err(AppendError::Fenced),
        }
        let ids: Vec<&[u8]> = append
            .answers
            .iter()
            .map(|(id, _)| id)
            .chain(append.direct.iter().map(|(id, ..)| id))
            .map(|id| id.0.as_bytes())
            .collect();
        let (key, operation) = (packed.known.key, Operation::AppendRecords);
        let rows = self.pool.run(LaneKind::Read, operation, ANSWERS, &[&key, &ids]).await?;
        let find = |id: &[u8]| rows.iter().find(|row| row.get::<_, &[u8]>(0) == id);
        let waits =
            |id: &[u8]| find(id).is_some_and(|row| row.get::<_, Option<&[u8]>>(1).is_none());
        if let Some((id, _)) = append.answers.iter().find(|(id, _)| !waits(id.0.as_bytes())) {
            return Err(faults::command_not_pending(append.session, id).into());
        }
        let known = append.direct.iter().find(|(id, ..)| find(id.0.as_bytes()).is_some());
        if let Some((id, ..)) = known {
            return Err(faults::command_repeated(append.session, id).into());
        }
        let cause = "the append was refused, and its reason is gone";
        Err(errors::busy(self.pool.address(), operation, cause).into())
    }
}
