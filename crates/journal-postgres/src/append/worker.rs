//! A worker: takes what has gathered, writes it, and answers every append.

use std::{collections::HashMap, sync::Arc};

use budao_core::{
    event::{Epoch, Seq, SessionId},
    fault::{Fault, Operation},
};
use budao_journal::{AppendError, LeaseToken, StoredRecord};
use tokio::{sync::oneshot, time::Instant};
use uuid::Uuid;

use super::{
    CachedSession, EncodedAppend,
    group::{self, PackedAppend},
    queue::QueuedAppend,
};
use crate::{
    errors::StatementError,
    pool::{LaneKind, running_fault},
    shared::{self, PostgresShared},
};

/// The ends of several histories.
const ENDS: &str = "SELECT uuid, id, epoch, head, chain, token FROM @session WHERE uuid = ANY($1)";

type Reply = oneshot::Sender<Result<Seq, AppendError>>;

/// An append at a worker, and the end of its history.
type ReadyAppend = (QueuedAppend, CachedSession);

impl PostgresShared {
    /// Writes groups on one lane until it is aborted.
    pub(crate) async fn write_appends(self: Arc<Self>, lane: usize) {
        loop {
            let group = self.appends.take_group().await;
            let mut ready = self.admit(group).await;
            ready.sort_by_key(|(_, known)| known.key);
            self.write_group(lane, ready).await;
        }
    }

    /// Answers an append and lets the next one of its session go.
    fn reply(&self, append: &EncodedAppend, reply: Reply, outcome: Result<Seq, AppendError>) {
        if outcome.is_err() {
            // The next append reads the end of the history anew.
            self.sessions.forget(append.session, append.token);
        }
        self.appends.finish([append.session]);
        // The caller may have given up.
        drop(reply.send(outcome));
    }

    /// Answers the appends that cannot succeed, and adds the end of the history to the others.
    async fn admit(&self, group: Vec<QueuedAppend>) -> Vec<ReadyAppend> {
        let cached = self.sessions.ends(group.iter().map(|queued| &queued.append));
        let missing: Vec<Uuid> = group
            .iter()
            .zip(&cached)
            .filter(|(_, cached)| cached.is_none())
            .map(|(queued, _)| queued.append.session.0)
            .collect();
        let loaded =
            if missing.is_empty() { Ok(HashMap::new()) } else { self.load_ends(&missing).await };
        let mut ready = Vec::with_capacity(group.len());
        for (queued, cached) in group.into_iter().zip(cached) {
            let append = &queued.append;
            let known = match (cached, &loaded) {
                (Some(known), _) => Ok(known),
                (None, Ok(ends)) => self.check_end(append, ends.get(&append.session)).await,
                (None, Err(fault)) => Err(fault.clone().not_started().into()),
            };
            match known {
                Ok(known) => ready.push((queued, known)),
                Err(refusal) => self.reply(&queued.append, queued.reply, Err(refusal)),
            }
        }
        ready
    }

    /// The ends of histories that have a writer.
    pub(super) async fn load_ends(
        &self,
        sessions: &[Uuid],
    ) -> Result<HashMap<SessionId, CachedSession>, Fault> {
        let operation = Operation::AppendRecords;
        let rows = self.pool.run(LaneKind::Read, operation, ENDS, &[&sessions]).await?;
        let ends = rows.iter().filter_map(|row| {
            let token = LeaseToken(row.get::<_, Option<i64>>(5)?.cast_unsigned());
            let known = CachedSession {
                key: row.get(1),
                epoch: Epoch(row.get::<_, i32>(2).cast_unsigned()),
                head: row.get::<_, i64>(3).cast_unsigned(),
                chain: shared::digest(row, 4),
                token,
            };
            Some((SessionId(row.get(0)), known))
        });
        Ok(ends.collect())
    }

    async fn write_group(&self, lane: usize, ready: Vec<ReadyAppend>) {
        if ready.is_empty() {
            return;
        }
        let (queued, known): (Vec<QueuedAppend>, Vec<CachedSession>) = ready.into_iter().unzip();
        let (appends, replies): (Vec<EncodedAppend>, Vec<Reply>) =
            queued.into_iter().map(|queued| (queued.append, queued.reply)).unzip();
        let packed: Vec<PackedAppend<'_>> = appends
            .iter()
            .zip(known)
            .map(|(append, known)| PackedAppend::new(append, known))
            .collect();
        let began = Instant::now();
        let done = group::write(&self.pool, self.pool.write_lane(lane), &packed).await;
        match &done {
            Ok(_) => metrics::histogram!("budao_journal_sync_seconds").record(began.elapsed()),
            Err(_) => metrics::counter!("budao_journal_failures_total").increment(1),
        }
        self.count_commit();
        let written = done.as_ref().map_or(&[][..], Vec::as_slice);
        let is_written = |number: usize| written.get(number).copied().unwrap_or(false);
        let (all, left): (Vec<_>, Vec<_>) =
            packed.iter().zip(replies).enumerate().partition(|(number, _)| is_written(*number));
        self.answer_written(all.into_iter().map(|(_, written)| written).collect());
        // One append may have failed the statement of all, and after a lost connection each has its own outcome. They
        // are spread over the lanes, so that a locked session holds up as few others as possible.
        let finishing = left.into_iter().map(|(number, (packed, reply))| {
            let failed = done.as_ref().err();
            async move {
                let outcome = match failed {
                    None => self.explain(packed).await,
                    Some(failed) => self.settle(lane + number, packed, failed).await,
                };
                self.reply(packed.append, reply, outcome);
            }
        });
        futures::future::join_all(finishing).await;
    }

    /// Answers the appends of a group that were written, and lets the next ones of their sessions go.
    fn answer_written(&self, written: Vec<(&PackedAppend<'_>, Reply)>) {
        let heads: Vec<Seq> = written.iter().map(|(packed, _)| self.announce(packed)).collect();
        self.appends.finish(written.iter().map(|(packed, _)| packed.append.session));
        for ((_, reply), head) in written.into_iter().zip(heads) {
            // The caller may have given up.
            drop(reply.send(Ok(head)));
        }
    }

    /// Tells this process and others about a durable append, and remembers the new end. Returns the head.
    pub(super) fn announce(&self, packed: &PackedAppend<'_>) -> Seq {
        let (append, head) = (packed.append, packed.head());
        let known = CachedSession { head, chain: packed.chain, ..packed.known };
        self.sessions.remember(append.session, known);
        let session = append.session;
        if !append.records.is_empty() {
            let stored = (packed.known.head + 1..).zip(&append.records);
            let stored = stored.map(|(seq, r)| r.to_stored(session, packed.known.epoch, seq));
            let stored: Vec<StoredRecord> = stored.collect();
            if self.notifier.has_subscribers(session) {
                self.notifier.announce_records(session, head, stored.clone());
            }
            self.announcer.records(session, head);
            self.written.add(packed.known.key, stored, head, packed.chain);
        }
        if !(append.answers.is_empty() && append.direct.is_empty()) {
            self.notifier.announce_answer(session);
            self.announcer.announce_answer(session);
        }
        head
    }

    /// The fault of an append that was refused by the server.
    pub(super) fn append_fault(&self, failed: StatementError) -> AppendError {
        running_fault(failed, self.pool.address(), Operation::AppendRecords).into()
    }

    /// Compares an append with the end of its history in the database.
    async fn check_end(
        &self,
        append: &EncodedAppend,
        found: Option<&CachedSession>,
    ) -> Result<CachedSession, AppendError> {
        let Some(end) = found.filter(|end| end.token == append.token) else {
            return Err(AppendError::Fenced);
        };
        // This process was answered for more records with the same token, and nobody else can write with it.
        let known = self.sessions.get(append.session, append.token);
        if let Some(known) = known.filter(|known| known.head > end.head) {
            return Err(self.declare_loss(append.session, end, known.head).await);
        }
        match end.head == append.expected {
            true => Ok(*end),
            false => Err(AppendError::Conflict { head: end.head }),
        }
    }
}
