//! A journal in one SQLite file, for several processes at once.
//!
//! One thread writes, a few connections read, one thread listens for other processes. `docs/journal.md`
//! describes the file; `frame` how records lie in it.

mod apply;
mod check;
mod errors;
mod frame;
mod hold;
mod open;
mod pages;
mod poll;
mod project;
mod queries;
mod reader;
mod reserve;
mod retain;
mod rows;
mod salvage;
mod schema;
mod transfer;
mod upkeep;
mod witness;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, atomic::Ordering, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use async_trait::async_trait;
use budao_core::{
    event::{Answer, Command, CommandId, Seq, SessionId},
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    seams::World,
};
use bytes::Bytes;
use futures::stream::BoxStream;
use tokio::sync::{Semaphore, oneshot};

use self::{
    apply::{Ask, Done, Prepared},
    hold::Hold,
    poll::Poller,
    reader::Readers,
    reserve::Reserve,
    schema::{Purpose, Setup},
    writer::{Job, Outside, Tally, Writer},
};
pub use self::{
    check::{Check, Damage},
    salvage::{Salvage, salvage},
    transfer::{ExportReport, ImportReport},
    upkeep::Stats,
};
use crate::{
    bell::{Bell, lock},
    contract::{
        Append, AppendError, Digest, Filter, Info, Journal, Lease, LeaseRequest, Page, PageLimits,
        Rate, RateQuery, Retained, Retention, Snapshot, Stored, Submitted, Summary, Unfinished,
        Watch,
    },
    faults,
    follow::{self, Pages},
};

/// How a file is used. The defaults are right for everybody but tests.
#[derive(Clone, Debug)]
pub struct Options {
    /// The system's bounds.
    pub limits: Limits,
    /// Questions answered at once.
    pub readers: usize,
    /// Requests that may wait for the writer; more wait in line before it.
    pub queue: usize,
    /// Bytes of events in one append.
    pub append_bytes: usize,
    /// Room set aside for a full disk; 0 for none.
    pub reserve_bytes: u64,
    /// Wait for another process's write.
    pub busy: Duration,
    /// Page size of a new file.
    pub page_bytes: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            readers: 4,
            queue: 4096,
            append_bytes: 64 << 20,
            reserve_bytes: 4 << 20,
            busy: Duration::from_secs(10),
            page_bytes: 4096,
        }
    }
}

/// What a journal's writer has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Transactions made durable: one sync each.
    pub transactions: u64,
    /// Requests answered by them.
    pub requests: u64,
    /// Transactions that failed.
    pub failures: u64,
    /// Times the write-ahead log was carried over into the file.
    pub checkpoints: u64,
    /// The longest of those: the worst pause a writer makes by itself.
    pub longest_checkpoint: Duration,
}

/// A journal in one SQLite file. Clones share it; when the last one drops, queued work is finished.
#[derive(Clone, Debug)]
pub struct Sqlite {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    world: World,
    options: Options,
    bell: Arc<Bell>,
    readers: Arc<Readers>,
    /// None when the file was opened for reading only.
    desk: Option<Desk>,
    _poller: Poller,
}

/// Where requests to the writer are handed in.
#[derive(Debug)]
struct Desk {
    tally: Arc<Tally>,
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    slots: Arc<Semaphore>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Sqlite {
    /// Opens a journal; makes the file if it is not there, migrates an older one.
    ///
    /// # Errors
    /// `journal_damaged`, `journal_newer`, `journal_read_only`, `journal_gone`, `journal_busy`,
    /// `disk_full`.
    pub async fn open(path: &Path, world: World, options: Options) -> Result<Self, Fault> {
        let path = path.to_owned();
        in_background(Operation::OpenJournal, move || Self::open_now(path, world, options)).await
    }

    /// Opens a journal that is there, to read it only. Nothing is changed, not even by migration.
    ///
    /// # Errors
    /// As [`Sqlite::open`].
    pub async fn open_read_only(
        path: &Path,
        world: World,
        options: Options,
    ) -> Result<Self, Fault> {
        let path = path.to_owned();
        in_background(Operation::OpenJournal, move || {
            let readers = readers(&path, Purpose::ReadOnly, &options);
            readers.ask_now(Operation::OpenJournal, |connection, path| {
                schema::Meta::must_load(connection, path)
            })?;
            Self::assemble(path, world, options, Arc::default(), readers, None)
        })
        .await
    }

    fn open_now(path: PathBuf, world: World, options: Options) -> Result<Self, Fault> {
        let bell = Arc::new(Bell::default());
        let tally = Arc::new(Tally::default());
        let outside = Outside {
            path: path.clone(),
            setup: setup(&options),
            world: world.clone(),
            limits: options.limits.clone(),
            bell: bell.clone(),
            tally: tally.clone(),
        };
        let (connection, meta, mark) = open::prepare(&outside)?;
        let hold = Hold::new(outside.clone(), connection, meta, mark)
            .map_err(|trouble| trouble.into_fault(&path, Operation::OpenJournal))?;
        let reserve = Reserve::new(&path, options.reserve_bytes);
        let (sender, receiver) = mpsc::channel();
        let writer = Writer::new(outside, receiver, hold, reserve);
        let thread = std::thread::Builder::new()
            .name("journal-write".into())
            .spawn(move || writer.run())
            .map_err(|error| errors::io_fault(&error, &path, Operation::OpenJournal))?;
        let desk = Desk {
            tally,
            jobs: Mutex::new(Some(sender)),
            slots: Arc::new(Semaphore::new(options.queue.max(1))),
            thread: Mutex::new(Some(thread)),
        };
        let readers = readers(&path, Purpose::Read, &options);
        // One is opened now, so that reading goes on when the file is taken away later.
        readers.ask_now(Operation::OpenJournal, |_, _| Ok(()))?;
        Self::assemble(path, world, options, bell, readers, Some(desk))
    }

    fn assemble(
        path: PathBuf,
        world: World,
        options: Options,
        bell: Arc<Bell>,
        readers: Arc<Readers>,
        desk: Option<Desk>,
    ) -> Result<Self, Fault> {
        let poller = Poller::start(&bell, readers.clone())
            .map_err(|error| errors::io_fault(&error, &path, Operation::OpenJournal))?;
        let shared = Shared { path, world, options, bell, readers, desk, _poller: poller };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// What was done since it was opened.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let Some(desk) = &self.shared.desk else { return Counters::default() };
        let tally = &desk.tally;
        Counters {
            transactions: tally.transactions.load(Ordering::Relaxed),
            requests: tally.requests.load(Ordering::Relaxed),
            failures: tally.failures.load(Ordering::Relaxed),
            checkpoints: tally.checkpoints.load(Ordering::Relaxed),
            longest_checkpoint: Duration::from_micros(
                tally.longest_checkpoint_micros.load(Ordering::Relaxed),
            ),
        }
    }

    /// Finishes what is queued and lets the file go. Later requests are refused as `shutting_down`.
    pub async fn close(&self) {
        let Some(desk) = &self.shared.desk else { return };
        self.shared.readers.rest();
        drop(lock(&desk.jobs).take());
        let thread = lock(&desk.thread).take();
        if let Some(thread) = thread {
            // The writer catches its own panics; there is nothing to learn from joining it.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }

    async fn write(&self, ask: Ask) -> Result<Done, AppendError> {
        let operation = ask.operation();
        let over = || AppendError::Failed(Fault::new(Kind::ShuttingDown, operation));
        let Some(desk) = &self.shared.desk else {
            let path = self.shared.path.display().to_string();
            let fault = Fault::new(Kind::JournalReadOnly, operation).with(Fact::Path, path);
            return Err(fault.because("it was opened for reading only").into());
        };
        let permit = desk.slots.clone().acquire_owned().await.map_err(|_| over())?;
        let (reply, answer) = oneshot::channel();
        let is_sent = match &*lock(&desk.jobs) {
            Some(jobs) => jobs.send(Job { ask, reply, _permit: permit }).is_ok(),
            None => false,
        };
        if !is_sent {
            return Err(over());
        }
        answer.await.map_err(|_| over())?
    }

    async fn append_prepared(&self, append: Prepared) -> Result<Seq, Fault> {
        match self.write(Ask::Append(append)).await.map_err(into_fault)? {
            Done::Head(head) => Ok(head),
            done => Err(mixed_up(Operation::ImportSession, &done)),
        }
    }

    async fn lease_of(&self, ask: Ask) -> Result<Lease, Fault> {
        match self.write(ask).await.map_err(into_fault)? {
            Done::Lease(lease) => Ok(lease),
            done => Err(mixed_up(Operation::ImportSession, &done)),
        }
    }

    async fn adopt(&self, ask: Ask) -> Result<(), Fault> {
        self.write(ask).await.map_err(into_fault)?;
        Ok(())
    }

    /// Brings the views up to date, as far as we may write.
    async fn catch_up(&self) -> Result<(), Fault> {
        if self.shared.desk.is_none() {
            return Ok(());
        }
        loop {
            match self.write(Ask::Project).await {
                Ok(Done::More(true)) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(into_fault(error)),
            }
        }
    }
}

fn setup(options: &Options) -> Setup {
    Setup { page_bytes: options.page_bytes, busy: options.busy }
}

fn readers(path: &Path, purpose: Purpose, options: &Options) -> Arc<Readers> {
    Readers::new(path.to_owned(), purpose, setup(options), options.readers)
}

async fn in_background<T: Send + 'static>(
    operation: Operation,
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Fault::new(Kind::Bug, operation).caused_by(&error))?
}

/// For requests that are never fenced or in conflict.
fn into_fault(error: AppendError) -> Fault {
    match error {
        AppendError::Failed(fault) => fault,
        AppendError::Conflict { .. } | AppendError::Fenced => {
            Fault::new(Kind::Fenced, Operation::AppendRecords)
        }
    }
}

/// The writer answers each request with its own sort of answer.
fn mixed_up(operation: Operation, done: &Done) -> Fault {
    Fault::new(Kind::Bug, operation).because(format!("the writer answered {done:?}"))
}

#[async_trait]
impl Pages for Readers {
    async fn page(
        self: Arc<Self>,
        session: SessionId,
        after: Seq,
        limits: PageLimits,
    ) -> Result<Page, Fault> {
        self.ask(Operation::ReadRecords, move |connection, path| {
            reader::page(connection, path, session, after, limits)
        })
        .await
    }
}

#[async_trait]
impl Journal for Sqlite {
    async fn take_lease(&self, request: LeaseRequest) -> Result<Lease, Fault> {
        match self.write(Ask::TakeLease(request)).await.map_err(into_fault)? {
            Done::Lease(lease) => Ok(lease),
            done => Err(mixed_up(Operation::TakeLease, &done)),
        }
    }

    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Lease, Fault> {
        match self.write(Ask::Renew(lease.clone(), ttl)).await.map_err(into_fault)? {
            Done::Lease(lease) => Ok(lease),
            done => Err(mixed_up(Operation::TakeLease, &done)),
        }
    }

    async fn release(&self, lease: &Lease) -> Result<(), Fault> {
        self.write(Ask::Release(lease.clone())).await.map_err(into_fault)?;
        Ok(())
    }

    async fn append(&self, append: Append) -> Result<Seq, AppendError> {
        let prepared = Prepared::new(append);
        let (limit, size) = (self.shared.options.append_bytes, prepared.bytes());
        if size > limit {
            let operation = Operation::AppendRecords;
            return Err(faults::limit(operation, "append_bytes", "bytes", limit, size).into());
        }
        match self.write(Ask::Append(prepared)).await? {
            Done::Head(head) => Ok(head),
            done => Err(mixed_up(Operation::AppendRecords, &done).into()),
        }
    }

    async fn submit(&self, session: SessionId, command: Command) -> Result<Submitted, Fault> {
        let ask = Ask::Submit(session, Box::new(command));
        match self.write(ask).await.map_err(into_fault)? {
            Done::Submitted(submitted) => Ok(submitted),
            done => Err(mixed_up(Operation::SubmitCommand, &done)),
        }
    }

    async fn inbox(&self, session: SessionId) -> Result<Vec<Command>, Fault> {
        let readers = &self.shared.readers;
        readers
            .ask(Operation::SubmitCommand, move |connection, path| {
                reader::inbox(connection, path, session)
            })
            .await
    }

    async fn answer(&self, session: SessionId, id: &CommandId) -> Result<Option<Answer>, Fault> {
        Ok(self.shared.answer(session, id).await?.flatten())
    }

    async fn await_answer(&self, session: SessionId, id: &CommandId) -> Result<Answer, Fault> {
        let mut ear = self.shared.bell.listen(session);
        loop {
            match self.shared.answer(session, id).await? {
                Some(Some(answer)) => return Ok(answer),
                Some(None) => ear.answers_changed().await,
                None => return Err(faults::unknown_command(session, id)),
            }
        }
    }

    fn watch(&self, session: SessionId) -> Watch {
        Watch(self.shared.bell.listen(session))
    }

    async fn info(&self, session: SessionId) -> Result<Option<Info>, Fault> {
        let now = self.shared.world.clock.now();
        let readers = &self.shared.readers;
        readers
            .ask(Operation::ReadRecords, move |connection, path| {
                reader::info(connection, path, session, now)
            })
            .await
    }

    async fn read(
        &self,
        session: SessionId,
        after: Seq,
        limits: PageLimits,
    ) -> Result<Page, Fault> {
        self.shared.readers.clone().page(session, after, limits).await
    }

    fn follow(
        &self,
        session: SessionId,
        after: Seq,
    ) -> BoxStream<'static, Result<Vec<Stored>, Fault>> {
        follow::follow(self.shared.readers.clone(), &self.shared.bell, session, after)
    }

    async fn snapshot(&self, session: SessionId) -> Result<Option<Snapshot>, Fault> {
        let readers = &self.shared.readers;
        readers
            .ask(Operation::ReadRecords, move |connection, path| {
                reader::snapshot(connection, path, session)
            })
            .await
    }

    async fn put_blob(&self, session: SessionId, content: Bytes) -> Result<Digest, Fault> {
        let (limit, size) = (self.shared.options.limits.output_bytes_kept, content.len());
        if size > limit {
            let operation = Operation::WriteBlob;
            return Err(faults::limit(operation, "output_bytes_kept", "bytes", limit, size));
        }
        let digest = Digest::of(&content);
        self.write(Ask::PutBlob(session, digest, content)).await.map_err(into_fault)?;
        Ok(digest)
    }

    async fn blob(&self, digest: Digest) -> Result<Option<Bytes>, Fault> {
        let readers = &self.shared.readers;
        readers
            .ask(Operation::ReadBlob, move |connection, path| {
                reader::blob(connection, path, digest)
            })
            .await
    }

    async fn sessions(&self, filter: Filter) -> Result<Vec<Summary>, Fault> {
        self.catch_up().await?;
        let readers = &self.shared.readers;
        readers
            .ask(Operation::ReadRecords, move |connection, _| {
                queries::sessions(connection, &filter)
            })
            .await
    }

    async fn unfinished(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<Unfinished>, Fault> {
        self.catch_up().await?;
        let now = self.shared.world.clock.now();
        let readers = &self.shared.readers;
        readers
            .ask(Operation::ReadRecords, move |connection, path| {
                queries::unfinished(connection, path, after, limit, now)
            })
            .await
    }

    async fn rates(&self, query: RateQuery) -> Result<Vec<Rate>, Fault> {
        self.catch_up().await?;
        let readers = &self.shared.readers;
        readers
            .ask(Operation::ReadRecords, move |connection, _| queries::rates(connection, &query))
            .await
    }

    async fn rebuild_views(&self) -> Result<(), Fault> {
        self.write(Ask::RebuildViews).await.map_err(into_fault)?;
        self.catch_up().await
    }

    async fn retain(&self, retention: Retention) -> Result<Retained, Fault> {
        self.catch_up().await?;
        let mut total = Retained::default();
        let mut next = Some(0);
        while let Some(after) = next {
            let ask = Ask::Retain(after, retention.clone());
            match self.write(ask).await.map_err(into_fault)? {
                Done::Retained(retained, more) => {
                    total.sessions += retained.sessions;
                    total.records += retained.records;
                    next = more;
                }
                done => return Err(mixed_up(Operation::ApplyRetention, &done)),
            }
        }
        match self.write(Ask::Sweep).await.map_err(into_fault)? {
            Done::Retained(retained, _) => Ok(Retained { blobs: retained.blobs, ..total }),
            done => Err(mixed_up(Operation::ApplyRetention, &done)),
        }
    }

    async fn delete(&self, session: SessionId) -> Result<bool, Fault> {
        // What was counted stays counted, so it must have been counted first.
        self.catch_up().await?;
        match self.write(Ask::Delete(session)).await.map_err(into_fault)? {
            Done::Deleted(was_there) => Ok(was_there),
            done => Err(mixed_up(Operation::ApplyRetention, &done)),
        }
    }
}

impl Shared {
    async fn answer(
        &self,
        session: SessionId,
        id: &CommandId,
    ) -> Result<Option<Option<Answer>>, Fault> {
        let id = id.clone();
        self.readers
            .ask(Operation::SubmitCommand, move |connection, path| {
                reader::answer(connection, path, session, &id)
            })
            .await
    }
}
