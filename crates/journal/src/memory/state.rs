//! The state of a journal in memory: plain data behind one lock. Each method is one operation of the contract.
//!
//! Every query folds the views from all records: slow and simple. Tests compare the SQLite journal with this one.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use budao_core::{
    event::{Answer, Command, CommandId, Seq, SessionId},
    fault::{Fault, Operation},
    limits::Limits,
    time::Timestamp,
    world::World,
};
use bytes::Bytes;

use super::{
    session::{MemorySession, RecordChangesAt, digest_after},
    timers::TimerState,
};
use crate::{
    contract::{
        Anchor, Append, AppendError, BatchLink, ChainPage, Digest, FaultRate, Filter, Gap,
        HistoryInfo, IfMissing, Lease, LeaseInfo, LeaseRequest, LeaseToken, OnceOwner,
        OnceSettlement, OnceState, Page, PageLimits, RateQuery, Retention, RetentionReport,
        SessionSummary, Snapshot, StoredRecord, SubmitOutcome, UnfinishedSession, new_epoch,
    },
    implement::encoded::EncodedRecord,
    implement::faults,
    implement::retention,
    implement::views,
};

/// All sessions, blobs and once-keys of the journal.
#[derive(Debug)]
pub(super) struct MemoryState {
    limits: Limits,
    sessions: BTreeMap<SessionId, MemorySession>,
    blobs: HashMap<Digest, (Bytes, BTreeSet<SessionId>)>,
    last_token: u64,
    once: BTreeMap<Digest, OnceRow>,
}

/// A key and the call that has it.
#[derive(Debug)]
struct OnceRow {
    owner: OnceOwner,
    attempt: u32,
    at: Timestamp,
    outcome: Option<Bytes>,
}

impl MemoryState {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            sessions: BTreeMap::new(),
            blobs: HashMap::new(),
            once: BTreeMap::new(),
            last_token: 0,
        }
    }

    fn get(&self, session: SessionId, operation: Operation) -> Result<&MemorySession, Fault> {
        self.sessions.get(&session).ok_or_else(|| faults::unknown_session(session, operation))
    }

    fn get_mut(
        &mut self,
        session: SessionId,
        operation: Operation,
    ) -> Result<&mut MemorySession, Fault> {
        self.sessions.get_mut(&session).ok_or_else(|| faults::unknown_session(session, operation))
    }

    pub(super) fn take_lease(
        &mut self,
        request: &LeaseRequest,
        world: &World,
    ) -> Result<Lease, Fault> {
        let now = world.clock.now();
        if request.if_missing == IfMissing::Create {
            let new = || MemorySession::new(request.session, new_epoch(world), now);
            self.sessions.entry(request.session).or_insert_with(new);
        }
        let token = LeaseToken(self.last_token + 1);
        let session = self.get_mut(request.session, Operation::TakeLease)?;
        if let Some(lease) = session.lease(now).filter(|_| session.token.is_some())
            && lease.holder != request.holder
            && request.dead_holder.as_ref() != Some(&lease.holder)
        {
            return Err(faults::session_busy(request.session, &lease.holder, now, lease.expires));
        }
        session.token = Some(token);
        session.holder.clone_from(&request.holder);
        session.expires = now.after(request.ttl);
        let lease = Lease {
            session: request.session,
            token,
            epoch: session.epoch,
            head: session.head,
            expires: session.expires,
        };
        self.last_token = token.0;
        Ok(lease)
    }

    pub(super) fn renew(
        &mut self,
        lease: &Lease,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Lease, Fault> {
        let own_session = self.sessions.get_mut(&lease.session);
        let Some(session) = own_session.filter(|session| session.token == Some(lease.token)) else {
            return Err(faults::fenced(lease.session, Operation::TakeLease));
        };
        session.expires = now.after(ttl);
        Ok(Lease { head: session.head, expires: session.expires, ..lease.clone() })
    }

    pub(super) fn release(&mut self, lease: &Lease, reserved: Option<Duration>, now: Timestamp) {
        let own_session = self.sessions.get_mut(&lease.session);
        if let Some(session) = own_session.filter(|session| session.token == Some(lease.token)) {
            session.token = None;
            session.expires = now.after(reserved.unwrap_or_default());
            if reserved.is_none() {
                session.holder.clear();
            }
        }
    }

    /// `encoded` holds the entries of the append.
    pub(super) fn append(
        &mut self,
        append: Append,
        encoded: &[EncodedRecord],
    ) -> Result<(Seq, Vec<StoredRecord>), AppendError> {
        let own_session = self.sessions.get_mut(&append.session);
        let Some(session) = own_session.filter(|session| session.token == Some(append.token))
        else {
            return Err(AppendError::Fenced);
        };
        if session.head != append.expected {
            return Err(AppendError::Conflict { head: session.head });
        }
        let waits = |id: &CommandId| session.pending().any(|command| command.id == *id);
        if let Some((id, _)) = append.answers.iter().find(|(id, _)| !waits(id)) {
            return Err(faults::command_not_pending(append.session, id).into());
        }
        let known = |id: &CommandId| session.commands.iter().any(|(command, _)| command.id == *id);
        for (index, (command, _)) in append.direct_commands.iter().enumerate() {
            let is_twice =
                append.direct_commands[..index].iter().any(|(before, _)| before.id == command.id);
            if is_twice || known(&command.id) {
                return Err(faults::command_repeated(append.session, &command.id).into());
            }
        }
        let direct_commands =
            append.direct_commands.into_iter().map(|(command, answer)| (command, Some(answer)));
        session.commands.extend(direct_commands);
        for (id, answer) in append.answers {
            if let Some(slot) = session.commands.iter_mut().find(|(command, _)| command.id == id) {
                slot.1 = Some(answer);
            }
        }
        let first = session.head + 1;
        let batch: Vec<StoredRecord> = (first..)
            .zip(encoded)
            .map(|(seq, entry)| entry.to_stored(append.session, session.epoch, seq))
            .collect();
        batch.iter().for_each(|record| session.timed.apply(record));
        session.records.extend(batch.iter().cloned().map(StoredRecord::without_cached_event));
        session.head += batch.len() as u64;
        if let Some(body) = append.snapshot {
            session.snapshot = Some(Snapshot { seq: session.head, body: body.into() });
        }
        Ok((session.head, batch))
    }

    pub(super) fn submit(
        &mut self,
        session: SessionId,
        command: Command,
    ) -> Result<SubmitOutcome, Fault> {
        let limit = self.limits.queued_messages;
        let known = self.get_mut(session, Operation::SubmitCommand)?;
        if let Some((before, answer)) =
            known.commands.iter().find(|(before, _)| before.id == command.id)
        {
            return match answer {
                _ if !retention::is_same_request(&before.body, &command.body) => {
                    Err(faults::command_repeated(session, &command.id))
                }
                Some(answer) => Ok(SubmitOutcome::Answered(answer.clone())),
                None => Ok(SubmitOutcome::Pending),
            };
        }
        let waiting = known.pending().count();
        if waiting >= limit {
            let operation = Operation::SubmitCommand;
            return Err(faults::limit_reached(
                operation,
                "queued_messages",
                "commands",
                limit,
                waiting + 1,
            ));
        }
        known.commands.push((command, None));
        Ok(SubmitOutcome::New)
    }

    pub(super) fn withdraw(
        &mut self,
        session: SessionId,
        command: Command,
        fault: Fault,
    ) -> Result<Answer, Fault> {
        let commands = &mut self.get_mut(session, Operation::SubmitCommand)?.commands;
        let rejected = Answer::Rejected { fault };
        match commands.iter_mut().find(|(before, _)| before.id == command.id) {
            Some((before, _)) if !retention::is_same_request(&before.body, &command.body) => {
                Err(faults::command_repeated(session, &command.id))
            }
            Some((_, answer)) => Ok(answer.get_or_insert(rejected).clone()),
            None => {
                commands.push((command, Some(rejected.clone())));
                Ok(rejected)
            }
        }
    }

    pub(super) fn inbox(&self, session: SessionId) -> Result<Vec<Command>, Fault> {
        Ok(self.get(session, Operation::SubmitCommand)?.pending().cloned().collect())
    }

    /// The outer `None` means an unknown command, the inner `None` a pending one.
    pub(super) fn answer(
        &self,
        session: SessionId,
        id: &CommandId,
    ) -> Result<Option<Option<Answer>>, Fault> {
        let commands = &self.get(session, Operation::SubmitCommand)?.commands;
        let found = commands.iter().find(|(command, _)| command.id == *id);
        Ok(found.map(|(_, answer)| answer.clone()))
    }

    pub(super) fn info(&self, session: SessionId, now: Timestamp) -> Option<HistoryInfo> {
        let session = self.sessions.get(&session)?;
        Some(HistoryInfo {
            epoch: session.epoch,
            head: session.head,
            first_available: session.first_available(),
            lease: session.lease(now),
        })
    }

    pub(super) fn read(
        &self,
        session: SessionId,
        after: Seq,
        limits: PageLimits,
    ) -> Result<Page, Fault> {
        let known = self.get(session, Operation::ReadRecords)?;
        if after > known.head {
            return Err(faults::beyond_head(session, after, known.head, known.epoch));
        }
        let gap = known.removed.filter(|(to, _)| after < *to).map(|(to, reason)| Gap {
            from: after + 1,
            to,
            reason,
        });
        let mut bytes = 0;
        let mut records = Vec::new();
        let skip = known.records.partition_point(|record| record.seq <= after);
        for record in known.records.range(skip..).take(limits.records.max(1)) {
            bytes += record.body.len();
            if bytes > limits.bytes && !records.is_empty() {
                break;
            }
            records.push(record.clone());
        }
        let first_available = known.first_available();
        Ok(Page { records, epoch: known.epoch, head: known.head, first_available, gap })
    }

    /// The chain of a session as one batch of all kept records.
    pub(super) fn chain(&self, session: SessionId, after: Seq) -> Result<ChainPage, Fault> {
        let session = self.get(session, Operation::CheckJournal)?;
        let (first, last) = (session.first_available(), session.head);
        let previous = session.removed_digest;
        let digest = digest_after(previous, &session.records);
        let link = BatchLink { first, last, previous, digest };
        Ok(ChainPage {
            epoch: session.epoch,
            start: Anchor { seq: first - 1, digest: previous },
            known_head: last,
            head_digest: Some(digest),
            links: if last > after && first <= last { vec![link] } else { Vec::new() },
        })
    }

    pub(super) fn snapshot(&self, session: SessionId) -> Result<Option<Snapshot>, Fault> {
        Ok(self.get(session, Operation::ReadRecords)?.snapshot.clone())
    }

    pub(super) fn put_blob(&mut self, session: SessionId, content: Bytes) -> Result<Digest, Fault> {
        self.get(session, Operation::WriteBlob)?;
        let (limit, size) = (self.limits.output_bytes_kept, content.len());
        if size > limit {
            let operation = Operation::WriteBlob;
            return Err(faults::limit_reached(
                operation,
                "output_bytes_kept",
                "bytes",
                limit,
                size,
            ));
        }
        let digest = Digest::of(&content);
        let (_, users) = self.blobs.entry(digest).or_insert_with(|| (content, BTreeSet::new()));
        users.insert(session);
        Ok(digest)
    }

    pub(super) fn claim_once(
        &mut self,
        key: Digest,
        owner: OnceOwner,
        attempt: u32,
        at: Timestamp,
    ) -> OnceState {
        let Some(row) = self.once.get_mut(&key) else {
            self.once.insert(key, OnceRow { owner, attempt, at, outcome: None });
            return OnceState::Claimed;
        };
        let outcome = row.outcome.clone();
        if row.owner != owner || row.attempt > attempt {
            return OnceState::Taken { owner: row.owner.clone(), outcome };
        }
        row.attempt = attempt;
        OnceState::Own { outcome }
    }

    pub(super) fn settle_once(
        &mut self,
        owner: &OnceOwner,
        attempt: u32,
        settlement: OnceSettlement,
    ) {
        let is_ours = |row: &OnceRow| row.owner == *owner && row.attempt <= attempt;
        match settlement {
            OnceSettlement::Done(outcome) => {
                let owned = self.once.values_mut().filter(|row| row.owner == *owner);
                for row in owned.filter(|row| row.outcome.is_none()) {
                    row.outcome = Some(outcome.clone());
                }
            }
            OnceSettlement::NotDone => {
                self.once.retain(|_, row| !is_ours(row) || row.outcome.is_some());
            }
        }
    }

    pub(super) fn blob(&self, digest: Digest) -> Option<Bytes> {
        self.blobs.get(&digest).map(|(content, _)| content.clone())
    }

    pub(super) fn sessions(&self, filter: &Filter) -> Result<Vec<SessionSummary>, Fault> {
        let mut found = Vec::new();
        for (id, session) in &self.sessions {
            let (summary, changes) = session.fold(*id)?;
            if session.head > 0 && matches_filter(filter, &summary, &changes) {
                found.push(summary);
            }
        }
        found.sort_by_key(|summary| std::cmp::Reverse((summary.updated_at, summary.session)));
        found.truncate(filter.limit);
        Ok(found)
    }

    pub(super) fn unfinished(
        &self,
        after: Option<SessionId>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<UnfinishedSession>, Fault> {
        let mut found = Vec::new();
        for (id, session) in self.sessions.iter().filter(|(id, _)| Some(**id) > after) {
            let (summary, _) = session.fold(*id)?;
            let pending = session.pending().count();
            if found.len() < limit && (summary.open_turn.is_some() || pending > 0) {
                let (turn, lease) = (summary.open_turn, session.lease(now));
                found.push(UnfinishedSession { session: *id, turn, pending, lease });
            }
        }
        Ok(found)
    }

    /// `nodes` are the holders of the listed nodes; a reservation of any other holder is void.
    pub(super) fn orphaned_sessions(
        &self,
        dead: &[String],
        nodes: &[String],
        after: Option<SessionId>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<UnfinishedSession>, Fault> {
        let is_free = |found: &UnfinishedSession| {
            let is_reserved =
                self.sessions.get(&found.session).is_some_and(|it| it.is_reserved(now));
            found.lease.as_ref().is_none_or(|lease| {
                let is_left = found.pending > 0 || !nodes.contains(&lease.holder);
                dead.contains(&lease.holder) || (is_reserved && is_left)
            })
        };
        let all = self.unfinished(after, usize::MAX, now)?;
        Ok(all.into_iter().filter(is_free).take(limit).collect())
    }

    /// All sessions, each with its timers, labels and lease.
    pub(super) fn sessions_with_timers(
        &self,
        now: Timestamp,
    ) -> impl Iterator<Item = (SessionId, &TimerState, Option<LeaseInfo>)> {
        self.sessions.iter().map(move |(id, session)| (*id, &session.timed, session.lease(now)))
    }

    /// Whether the lease of a session, valid or not, was last given to this holder, or the session is reserved for it.
    pub(super) fn is_held_by(&self, session: SessionId, holder: &str, now: Timestamp) -> bool {
        let found = self.sessions.get(&session);
        let is_own = |found: &MemorySession| found.token.is_some() || found.is_reserved(now);
        found.is_some_and(|found| is_own(found) && found.holder == holder)
    }

    pub(super) fn rates(&self, query: &RateQuery) -> Result<Vec<FaultRate>, Fault> {
        let minutes = views::minutes_rounded_up(query.bucket);
        let since = views::bucket_start(query.since, minutes);
        let mut counts: BTreeMap<(&str, Timestamp), (u64, u64)> = BTreeMap::new();
        for (id, session) in &self.sessions {
            for (at, _, changes) in session.fold(*id)?.1 {
                let Some(mark) = changes.code else { continue };
                let is_wanted = query.code.as_deref().is_none_or(|code| code == mark.code);
                // Counts have a resolution of one minute, as in the SQLite journal.
                if is_wanted
                    && views::bucket_start(at, 1) >= since
                    && views::bucket_start(at, 1) < query.until
                {
                    let count =
                        counts.entry((mark.code, views::bucket_start(at, minutes))).or_default();
                    count.0 += u64::from(mark.is_raised);
                    count.1 += u64::from(!mark.is_raised);
                }
            }
        }
        let rate = |((code, at), (raised, ended)): ((&str, _), _)| FaultRate {
            code: code.to_owned(),
            at,
            raised,
            ended,
        };
        Ok(counts.into_iter().map(rate).collect())
    }

    pub(super) fn retain(
        &mut self,
        retention: &Retention,
        now: Timestamp,
    ) -> Result<(RetentionReport, Vec<SessionId>), Fault> {
        if let Some(age) = retention.once_age {
            self.once.retain(|_, row| now.since(row.at) <= age);
        }
        let mut retained = RetentionReport::default();
        let mut changed = Vec::new();
        let mut gone = Vec::new();
        for (id, session) in &mut self.sessions {
            let (summary, _) = session.fold(*id)?;
            if session.is_expired(&summary, retention, now) {
                gone.push(*id);
                continue;
            }
            let records = session.retain(*id, retention, now)?;
            if records > 0 {
                retained.records += records;
                changed.push(*id);
            }
        }
        let blobs = self.blobs.len();
        for id in &gone {
            self.delete(*id);
        }
        retained.sessions = gone.len() as u64;
        retained.blobs = (blobs - self.blobs.len()) as u64;
        changed.extend(gone);
        Ok((retained, changed))
    }

    pub(super) fn delete(&mut self, session: SessionId) -> bool {
        self.blobs.retain(|_, (_, users)| {
            users.remove(&session);
            !users.is_empty()
        });
        self.sessions.remove(&session).is_some()
    }
}

fn matches_filter(filter: &Filter, summary: &SessionSummary, changes: &[RecordChangesAt]) -> bool {
    filter.ids.is_none_or(|(first, last)| (first..=last).contains(&summary.session))
        && filter.state.is_none_or(|state| state == summary.state)
        && filter.since.is_none_or(|since| summary.updated_at >= since)
        && filter.until.is_none_or(|until| summary.updated_at < until)
        && filter.after.is_none_or(|after| (summary.updated_at, summary.session) < after)
        && filter.label.as_ref().is_none_or(|(key, value)| {
            let label = summary.labels.get(key);
            label.is_some() && (value.is_none() || label == value.as_ref())
        })
        && filter.trace.is_none_or(|wanted| changes.iter().any(|(_, trace, _)| *trace == wanted))
        && filter.tool.as_ref().is_none_or(|tool| {
            changes.iter().any(|(_, _, changes)| changes.tool.as_ref() == Some(tool))
        })
        && filter.code.as_ref().is_none_or(|code| {
            changes
                .iter()
                .any(|(_, _, changes)| changes.code.as_ref().is_some_and(|c| c.code == code))
        })
}
