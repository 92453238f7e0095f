//! A journal in one SQLite file, for several processes at once.
//!
//! One thread writes, several connections read, and one thread polls for writes of other processes. `docs/journal.md`
//! describes the file, `implement::batch_encoding` the encoding of records.

mod admin;
mod apply;
mod backend;
mod chain;
mod check;
mod cluster;
mod disk_reserve;
mod errors;
mod files;
mod inspect;
mod journal;
mod maintenance;
mod once;
mod open;
mod pages;
mod poll;
mod queries;
mod reader;
mod retain;
mod rows;
mod salvage;
mod schema;
mod shrink;
mod sqlite_writer;
mod transfer;
mod view_update;
pub(crate) mod watermark;
mod write_request;
mod writer_connection;
mod writer_thread;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use budao_core::{
    event::{Seq, SessionId},
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    world::World,
};
use tokio::sync::{Semaphore, oneshot};

pub use self::{
    backend::SqliteBackend,
    inspect::PathContent,
    salvage::{SalvagedSession, salvage},
};
use self::{
    disk_reserve::DiskReserve,
    files::OpenFile,
    poll::{OwnBatches, Poller},
    reader::Readers,
    schema::{ConnectionOptions, Purpose},
    sqlite_writer::SqliteWriter,
    write_request::{EncodedAppend, WriteReply, WriteRequest},
    writer_connection::WriterConnection,
    writer_thread::{
        QueuedWrite, WriterContext, WriterCounters, WriterLock, WriterMessage, WriterThread,
    },
};
use crate::{
    contract::{AppendError, Lease},
    implement::notifier::{Notifier, lock},
};

/// Settings of a journal file. Only tests need values other than the defaults.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// Limits shared with the other crates.
    pub limits: Limits,
    /// Read connections, and so the number of concurrent queries.
    pub readers: usize,
    /// Length of the writer's queue; further requests wait for a slot.
    pub queue: usize,
    /// The largest size of one append, in bytes of events.
    pub append_bytes: usize,
    /// Bytes of disk space reserved for closing appends on a full disk; 0 for none.
    pub reserve_bytes: u64,
    /// How long a write waits for another process's transaction.
    pub busy_timeout: Duration,
    /// Page size of a new file, in bytes.
    pub page_bytes: u32,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            readers: 4,
            queue: 4096,
            append_bytes: 64 << 20,
            reserve_bytes: 4 << 20,
            busy_timeout: Duration::from_secs(10),
            page_bytes: 4096,
        }
    }
}

/// Counters of a journal's writer since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalCounters {
    /// Committed transactions, with one sync each.
    pub transactions: u64,
    /// Requests in those transactions.
    pub requests: u64,
    /// Requests written on the caller's thread, because only one session was writing.
    pub inline_writes: u64,
    /// Transactions that failed.
    pub failures: u64,
    /// Checkpoints of the write-ahead log into the file.
    pub checkpoints: u64,
    /// Duration of the longest checkpoint: the longest pause that the writer causes by itself.
    pub longest_checkpoint: Duration,
}

/// Consecutive appends after which a session counts as the sole writer.
const SOLE_WRITER_APPENDS: u32 = 2;
/// The largest append, in bytes, that the caller's thread writes itself.
const INLINE_BYTES: usize = 64 * 1024;

/// A journal in one SQLite file. Clones share it; dropping the last one finishes the queued requests.
#[derive(Clone, Debug)]
pub struct Sqlite {
    shared: Arc<SqliteShared>,
}

#[derive(Debug)]
struct SqliteShared {
    path: PathBuf,
    world: World,
    options: SqliteOptions,
    notifier: Arc<Notifier>,
    readers: Arc<Readers>,
    /// `None` when the file was opened read-only.
    writer_handle: Option<WriterHandle>,
    _poller: Poller,
}

/// The queue of the writer thread, and the lock on the writer itself.
#[derive(Debug)]
struct WriterHandle {
    counters: Arc<WriterCounters>,
    writes: Mutex<Option<mpsc::Sender<WriterMessage>>>,
    slots: Arc<Semaphore>,
    queue: usize,
    writer_lock: Arc<WriterLock>,
    sole_writer: SoleWriterDetector,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Detects that only one session is writing.
#[derive(Debug, Default)]
struct SoleWriterDetector {
    last: AtomicU64,
    count: AtomicU32,
}

impl SoleWriterDetector {
    /// Records an append of this session. Returns whether the last few appends were all from it.
    fn record_and_check(&self, session: SessionId) -> bool {
        let (_, id) = session.0.as_u64_pair();
        if self.last.swap(id, Ordering::Relaxed) == id {
            return self.count.fetch_add(1, Ordering::Relaxed) >= SOLE_WRITER_APPENDS;
        }
        self.count.store(0, Ordering::Relaxed);
        false
    }
}

impl Sqlite {
    /// Opens a journal for writing. Creates the file if it is absent and migrates an older version. A path that leads
    /// to any other file is refused and left unchanged.
    ///
    /// # Errors
    /// `not_a_journal`, `no_journal` if the directory does not exist, `journal_of_other_user`, `journal_damaged`,
    /// `journal_newer`, `journal_read_only`, `journal_gone`, `journal_busy`, `disk_full`.
    pub async fn open(path: &Path, world: World, options: SqliteOptions) -> Result<Self, Fault> {
        let path = path.to_owned();
        run_blocking(Operation::OpenJournal, move || {
            Self::open_blocking(&path, world, options, true)
        })
        .await
    }

    /// Opens an existing journal for writing. Never creates one.
    ///
    /// # Errors
    /// Those of [`Sqlite::open`]; `no_journal` if the file does not exist.
    pub async fn open_existing(
        path: &Path,
        world: World,
        options: SqliteOptions,
    ) -> Result<Self, Fault> {
        let path = path.to_owned();
        run_blocking(Operation::OpenJournal, move || {
            Self::open_blocking(&path, world, options, false)
        })
        .await
    }

    /// Returns the file that a path leads to, with links resolved, and what it contains. Changes nothing.
    ///
    /// # Errors
    /// When no journal can be written at the path: `not_a_journal`, `no_journal` if the directory does not exist,
    /// `journal_of_other_user`, `file_permission`, `journal_damaged`.
    pub async fn inspect(path: &Path) -> Result<(PathBuf, PathContent), Fault> {
        let path = path.to_owned();
        run_blocking(Operation::OpenJournal, move || {
            let found = inspect::inspect(&path, Operation::OpenJournal)?;
            found.require_owner(Operation::OpenJournal)?;
            Ok((found.path, found.content))
        })
        .await
    }

    /// Opens an existing journal for reading only. Changes nothing and runs no migration.
    ///
    /// # Errors
    /// Those of [`Sqlite::open_existing`].
    pub async fn open_read_only(
        path: &Path,
        world: World,
        options: SqliteOptions,
    ) -> Result<Self, Fault> {
        let path = path.to_owned();
        run_blocking(Operation::OpenJournal, move || {
            let operation = Operation::OpenJournal;
            let found = inspect::inspect(&path, operation)?.require_journal(operation)?;
            let (path, file) = found.into_file(operation)?;
            let readers = reader_pool(&path, Purpose::ReadOnly, &options, file);
            readers.query_blocking(Operation::OpenJournal, |connection, path| {
                schema::Meta::load_required(connection, path)
            })?;
            Self::assemble(path, world, options, Arc::default(), readers, Arc::default(), None)
        })
        .await
    }

    fn open_blocking(
        named: &Path,
        world: World,
        options: SqliteOptions,
        creates: bool,
    ) -> Result<Self, Fault> {
        let inspected = inspect::inspect_to_write(named, creates)?;
        let path = inspected.path.clone();
        let notifier = Arc::new(Notifier::default());
        let (counters, own_batches) =
            (Arc::new(WriterCounters::default()), Arc::new(OwnBatches::default()));
        let context = WriterContext {
            path: path.clone(),
            setup: connection_options(&options),
            world: world.clone(),
            limits: options.limits.clone(),
            notifier: notifier.clone(),
            counters: counters.clone(),
            own_batches: own_batches.clone(),
        };
        let (connection, meta, mark) = open::prepare(&context, &inspected)?;
        let (_, file) = inspected.into_file(Operation::OpenJournal)?;
        let connection =
            WriterConnection::new(context.clone(), connection, meta, mark, file.clone());
        let reserve = DiskReserve::new(&path, options.reserve_bytes);
        let (sender, receiver) = mpsc::channel();
        let writer_lock = WriterLock::new(SqliteWriter::new(context, connection, reserve));
        let writer = WriterThread::new(receiver, writer_lock.clone());
        let thread = std::thread::Builder::new()
            .name("journal-write".into())
            .spawn(move || writer.run())
            .map_err(|error| errors::io_fault(&error, &path, Operation::OpenJournal))?;
        let writer_handle = WriterHandle {
            counters,
            writes: Mutex::new(Some(sender)),
            slots: Arc::new(Semaphore::new(options.queue.max(1))),
            queue: options.queue.max(1),
            writer_lock,
            sole_writer: SoleWriterDetector::default(),
            thread: Mutex::new(Some(thread)),
        };
        let readers = reader_pool(&path, Purpose::Read, &options, file);
        // One connection is opened now, so that reads still work if the file is removed later.
        readers.query_blocking(Operation::OpenJournal, |_, _| Ok(()))?;
        Self::assemble(path, world, options, notifier, readers, own_batches, Some(writer_handle))
    }

    fn assemble(
        path: PathBuf,
        world: World,
        options: SqliteOptions,
        notifier: Arc<Notifier>,
        readers: Arc<Readers>,
        own_batches: Arc<OwnBatches>,
        writer_handle: Option<WriterHandle>,
    ) -> Result<Self, Fault> {
        let poller = Poller::start(&notifier, readers.clone(), own_batches)
            .map_err(|error| errors::io_fault(&error, &path, Operation::OpenJournal))?;
        let shared = SqliteShared {
            path,
            world,
            options,
            notifier,
            readers,
            writer_handle,
            _poller: poller,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The path of the file, with links resolved.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// The writer's counters since the journal was opened; all 0 if it is read-only.
    #[must_use]
    pub fn counters(&self) -> JournalCounters {
        let Some(writer_handle) = &self.shared.writer_handle else {
            return JournalCounters::default();
        };
        let counters = &writer_handle.counters;
        JournalCounters {
            transactions: counters.transactions.load(Ordering::Relaxed),
            requests: counters.requests.load(Ordering::Relaxed),
            inline_writes: counters.inline_writes.load(Ordering::Relaxed),
            failures: counters.failures.load(Ordering::Relaxed),
            checkpoints: counters.checkpoints.load(Ordering::Relaxed),
            longest_checkpoint: Duration::from_micros(
                counters.longest_checkpoint_micros.load(Ordering::Relaxed),
            ),
        }
    }

    async fn write(&self, request: WriteRequest) -> Result<WriteReply, AppendError> {
        let operation = request.operation();
        let over = || AppendError::Failed(Fault::new(Kind::ShuttingDown, operation));
        let Some(writer_handle) = &self.shared.writer_handle else {
            let path = self.shared.path.display().to_string();
            let fault = Fault::new(Kind::JournalReadOnly, operation).with(Fact::Path, path);
            return Err(fault.with_cause("it was opened for reading only").into());
        };
        let began = Instant::now();
        let written =
            || metrics::histogram!("budao_journal_append_seconds").record(began.elapsed());
        if let Some(done) = writer_handle.write_inline(&request) {
            written();
            return done;
        }
        let permit = writer_handle.slots.clone().acquire_owned().await.map_err(|_| over())?;
        let (reply, answer) = oneshot::channel();
        if !writer_handle.send(WriterMessage::Write(Box::new(QueuedWrite {
            request,
            reply,
            _permit: permit,
        }))) {
            return Err(over());
        }
        let done = answer.await.map_err(|_| over())?;
        written();
        done
    }

    async fn append_prepared(&self, append: EncodedAppend) -> Result<Seq, Fault> {
        match self.write(WriteRequest::Append(append)).await.map_err(into_fault)? {
            WriteReply::Head(head) => Ok(head),
            done => Err(unexpected_reply(Operation::ImportSession, &done)),
        }
    }

    async fn write_for_lease(&self, request: WriteRequest) -> Result<Lease, Fault> {
        match self.write(request).await.map_err(into_fault)? {
            WriteReply::Lease(lease) => Ok(lease),
            done => Err(unexpected_reply(Operation::ImportSession, &done)),
        }
    }

    async fn write_ignoring_reply(&self, request: WriteRequest) -> Result<(), Fault> {
        self.write(request).await.map_err(into_fault)?;
        Ok(())
    }

    /// Brings the views up to date. A read-only journal keeps the views it has.
    async fn catch_up(&self) -> Result<(), Fault> {
        if self.shared.writer_handle.is_none() {
            return Ok(());
        }
        loop {
            match self.write(WriteRequest::UpdateViews).await {
                Ok(WriteReply::More(true)) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(into_fault(error)),
            }
        }
    }
}

impl WriterHandle {
    /// Writes an append on the caller's thread, if its session is the sole writer and the append is small.
    ///
    /// The caller's thread then waits for the disk. When several sessions write, the writer thread shares one sync
    /// among them instead.
    fn write_inline(&self, request: &WriteRequest) -> Option<Result<WriteReply, AppendError>> {
        let WriteRequest::Append(append) = request else { return None };
        let is_sole = self.sole_writer.record_and_check(append.session)
            && append.bytes() <= INLINE_BYTES
            && self.slots.available_permits() == self.queue;
        let mut writer = self.writer_lock.try_take().filter(|_| is_sole)?;
        let done = writer.write_inline(request)?;
        self.counters.inline_writes.fetch_add(1, Ordering::Relaxed);
        let needs_maintenance = !writer.maintenance_requested && writer.has_maintenance();
        writer.maintenance_requested |= needs_maintenance;
        drop(writer);
        if needs_maintenance {
            self.send(WriterMessage::Maintenance);
        }
        Some(done)
    }

    /// Sends a message to the writer thread. Returns false if the journal is closed.
    fn send(&self, message: WriterMessage) -> bool {
        lock(&self.writes).as_ref().is_some_and(|writes| writes.send(message).is_ok())
    }
}

fn connection_options(options: &SqliteOptions) -> ConnectionOptions {
    ConnectionOptions { page_bytes: options.page_bytes, busy_timeout: options.busy_timeout }
}

fn reader_pool(
    path: &Path,
    purpose: Purpose,
    options: &SqliteOptions,
    file: Arc<OpenFile>,
) -> Arc<Readers> {
    Readers::new(path.to_owned(), purpose, connection_options(options), options.readers, file)
}

async fn run_blocking<T: Send + 'static>(
    operation: Operation,
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Fault::new(Kind::Bug, operation).caused_by(&error))?
}

/// Converts the error of a request that can be neither fenced nor in conflict.
fn into_fault(error: AppendError) -> Fault {
    match error {
        AppendError::Failed(fault) => fault,
        AppendError::Conflict { .. } | AppendError::Fenced => {
            Fault::new(Kind::Bug, Operation::AppendRecords)
                .with_cause("a request without a lease was fenced or in conflict")
        }
    }
}

/// The fault for a reply of the wrong type: a bug, since each request has its own reply type.
fn unexpected_reply(operation: Operation, done: &WriteReply) -> Fault {
    Fault::new(Kind::Bug, operation).with_cause(format!("the writer answered {done:?}"))
}
