//! A faulty journal: confirmed writes survive every kill, and reads and writes fail as the script says.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use budao_core::{
    event::{Answer, Command, CommandId, Seq, SessionId},
    fault::{Fault, Kind, Operation},
};
use budao_journal::{
    Append, AppendError, ChangeWatch, Digest, Filter, HistoryInfo, Journal, Lease, LeaseRequest,
    LeaseToken, Memory, Page, PageLimits, Rate, RateQuery, Retention, RetentionReport,
    SessionSummary, Snapshot, StoredRecord, SubmitOutcome, UnfinishedSession,
};
use bytes::Bytes;
use futures::stream::BoxStream;
use rand::{RngExt as _, rngs::StdRng};

use crate::{
    check::Violations,
    script::DiskFault,
    world::{SimClock, chance},
};

/// The disk that all processes share. Clones share one state.
#[derive(Clone)]
pub(crate) struct Disk {
    /// The durable content.
    kept: Memory,
    clock: SimClock,
    mood: Arc<Mutex<DiskState>>,
    writes: Arc<AtomicU64>,
    /// The token of the last lease of each session.
    holders: Arc<Mutex<BTreeMap<SessionId, LeaseToken>>>,
    violations: Violations,
}

struct DiskState {
    dice: StdRng,
    trouble: Option<(DiskFault, Duration)>,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Disk")
    }
}

impl Disk {
    pub(crate) fn new(kept: Memory, clock: SimClock, seed: u64, violations: Violations) -> Self {
        let mood = Arc::new(Mutex::new(DiskState { dice: chance(seed, "disk"), trouble: None }));
        let (writes, holders) = (Arc::default(), Arc::default());
        Self { kept, clock, mood, writes, holders, violations }
    }

    /// Takes a lease and notes its token: only this holder may write the session from now on.
    async fn give(&self, request: LeaseRequest) -> Result<Lease, Fault> {
        let lease = self.kept.take_lease(request).await?;
        let mut holders = self.holders.lock().expect("nobody panics with it");
        holders.insert(lease.session, lease.token);
        Ok(lease)
    }

    /// Appends, and checks that the writer is the last holder of the lease.
    async fn write_records(&self, append: Append) -> Result<Seq, AppendError> {
        let (session, token) = (append.session, append.token);
        let head = self.kept.append(append).await?;
        let holder = self.holders.lock().expect("nobody panics with it").get(&session).copied();
        self.violations.expect(holder == Some(token), "only the last holder writes", || {
            format!("{session} at {head}: {token:?} wrote, {holder:?} has it")
        });
        Ok(head)
    }

    /// Starts a fault that ends by itself after `lasts` of virtual time.
    pub(crate) fn trouble(&self, trouble: DiskFault, lasts: Duration) {
        let until = self.clock.elapsed() + lasts;
        self.mood.lock().expect("nobody panics with it").trouble = Some((trouble, until));
    }

    /// Ends the current fault.
    pub(crate) fn calm(&self) {
        self.mood.lock().expect("nobody panics with it").trouble = None;
    }

    /// The content without any fault, for checks.
    pub(crate) fn kept(&self) -> &Memory {
        &self.kept
    }

    fn now(&self) -> Option<DiskFault> {
        let mood = self.mood.lock().expect("nobody panics with it");
        let (trouble, until) = mood.trouble?;
        (self.clock.elapsed() < until).then_some(trouble)
    }

    /// Waits a random time before and after a write, so that a kill can fall on either side of it.
    async fn turn_round(&self) {
        let most = if self.now() == Some(DiskFault::Slow) { 2_000_000 } else { 400 };
        let micros = {
            let mut mood = self.mood.lock().expect("nobody panics with it");
            mood.dice.random_range(0..most)
        };
        if micros > most / 2 {
            tokio::time::sleep(Duration::from_micros(micros)).await;
        }
    }

    /// The result of the next write. `closing` marks a write that a full disk still accepts.
    fn write(&self, closing: bool, operation: Operation) -> WriteResult {
        let fault = |kind| Fault::new(kind, operation);
        let odd = self.writes.fetch_add(1, Ordering::Relaxed) % 2 == 1;
        match self.now() {
            Some(DiskFault::Full) if !closing => WriteResult::Refused(fault(Kind::DiskFull)),
            Some(DiskFault::Unconfirmed) => WriteResult::Unconfirmed(fault(Kind::SyncFailed)),
            Some(DiskFault::Refusing) => WriteResult::Refused(fault(Kind::JournalBusy)),
            Some(DiskFault::Flaky) if odd => WriteResult::Refused(fault(Kind::JournalBusy)),
            _ => WriteResult::Confirmed,
        }
    }

    fn read(&self, operation: Operation) -> Result<(), Fault> {
        match self.now() {
            Some(DiskFault::Unreadable) => Err(Fault::new(Kind::JournalBusy, operation)),
            _ => Ok(()),
        }
    }
}

/// The result of a write.
enum WriteResult {
    Confirmed,
    /// The write is made, and reported as failed.
    Unconfirmed(Fault),
    /// The write is not made.
    Refused(Fault),
}

/// Runs a write with the delays and the result of this disk.
macro_rules! write {
    ($disk:expr, $closing:expr, $operation:expr, $write:expr) => {{
        $disk.turn_round().await;
        match $disk.write($closing, $operation) {
            WriteResult::Refused(fault) => Err(fault.into()),
            WriteResult::Unconfirmed(fault) => {
                drop($write.await);
                Err(fault.into())
            }
            WriteResult::Confirmed => {
                let done = $write.await;
                $disk.turn_round().await;
                done
            }
        }
    }};
}

#[async_trait]
impl Journal for Disk {
    async fn take_lease(&self, request: LeaseRequest) -> Result<Lease, Fault> {
        write!(self, false, Operation::TakeLease, self.give(request))
    }

    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Lease, Fault> {
        write!(self, true, Operation::TakeLease, self.kept.renew(lease, ttl))
    }

    async fn release(&self, lease: &Lease) -> Result<(), Fault> {
        write!(self, true, Operation::TakeLease, self.kept.release(lease))
    }

    async fn append(&self, append: Append) -> Result<Seq, AppendError> {
        let closing = append.is_closing();
        write!(self, closing, Operation::AppendRecords, self.write_records(append))
    }

    async fn submit(&self, session: SessionId, command: Command) -> Result<SubmitOutcome, Fault> {
        write!(self, false, Operation::SubmitCommand, self.kept.submit(session, command))
    }

    async fn withdraw(
        &self,
        session: SessionId,
        command: Command,
        fault: Fault,
    ) -> Result<Answer, Fault> {
        let withdrawn = self.kept.withdraw(session, command, fault);
        write!(self, true, Operation::SubmitCommand, withdrawn)
    }

    async fn inbox(&self, session: SessionId) -> Result<Vec<Command>, Fault> {
        self.read(Operation::ReadRecords)?;
        self.kept.inbox(session).await
    }

    async fn answer(&self, session: SessionId, id: &CommandId) -> Result<Option<Answer>, Fault> {
        self.read(Operation::ReadRecords)?;
        self.kept.answer(session, id).await
    }

    async fn await_answer(&self, session: SessionId, id: &CommandId) -> Result<Answer, Fault> {
        self.kept.await_answer(session, id).await
    }

    fn watch(&self, session: SessionId) -> ChangeWatch {
        self.kept.watch(session)
    }

    async fn info(&self, session: SessionId) -> Result<Option<HistoryInfo>, Fault> {
        self.read(Operation::ReadRecords)?;
        self.kept.info(session).await
    }

    async fn read(
        &self,
        session: SessionId,
        after: Seq,
        limits: PageLimits,
    ) -> Result<Page, Fault> {
        self.read(Operation::ReadRecords)?;
        self.kept.read(session, after, limits).await
    }

    fn follow(
        &self,
        session: SessionId,
        after: Seq,
    ) -> BoxStream<'static, Result<Vec<StoredRecord>, Fault>> {
        self.kept.follow(session, after)
    }

    async fn snapshot(&self, session: SessionId) -> Result<Option<Snapshot>, Fault> {
        self.read(Operation::ReadRecords)?;
        self.kept.snapshot(session).await
    }

    async fn put_blob(&self, session: SessionId, content: Bytes) -> Result<Digest, Fault> {
        write!(self, false, Operation::AppendRecords, self.kept.put_blob(session, content))
    }

    async fn blob(&self, digest: Digest) -> Result<Option<Bytes>, Fault> {
        self.read(Operation::ReadRecords)?;
        self.kept.blob(digest).await
    }

    async fn sessions(&self, filter: Filter) -> Result<Vec<SessionSummary>, Fault> {
        self.read(Operation::ReadRecords)?;
        self.kept.sessions(filter).await
    }

    async fn unfinished(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<UnfinishedSession>, Fault> {
        self.read(Operation::ReadRecords)?;
        self.kept.unfinished(after, limit).await
    }

    async fn rates(&self, query: RateQuery) -> Result<Vec<Rate>, Fault> {
        self.kept.rates(query).await
    }

    async fn rebuild_views(&self) -> Result<(), Fault> {
        self.kept.rebuild_views().await
    }

    async fn retain(&self, retention: Retention) -> Result<RetentionReport, Fault> {
        self.kept.retain(retention).await
    }

    async fn delete(&self, session: SessionId) -> Result<bool, Fault> {
        self.kept.delete(session).await
    }
}
