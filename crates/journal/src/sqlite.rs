//! A journal in one SQLite file, for several processes at once.
//!
//! One thread writes, a few connections read, one thread listens for other processes. `docs/journal.md`
//! describes the file; `frame` how records lie in it.

mod apply;
mod ask;
mod check;
mod errors;
mod files;
pub(crate) mod frame;
mod hold;
mod inspect;
mod journal;
mod open;
mod pages;
mod pen;
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
pub(crate) mod witness;
mod writer;

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
    seams::World,
};
use tokio::sync::{Semaphore, oneshot};

use self::{
    ask::{Ask, Done, Prepared},
    files::OpenFile,
    hold::Hold,
    pen::Pen,
    poll::{Ours, Poller},
    reader::Readers,
    reserve::Reserve,
    schema::{Purpose, Setup},
    writer::{Job, Note, Outside, Shelf, Tally, Writer},
};
pub use self::{
    check::{Check, Damage},
    inspect::PathContent,
    salvage::{Salvage, salvage},
    transfer::{ExportReport, ImportReport},
    upkeep::Stats,
};
use crate::{
    bell::{Bell, lock},
    contract::{AppendError, Lease},
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
    /// Those of a lone session, written on its own thread.
    pub alone: u64,
    /// Transactions that failed.
    pub failures: u64,
    /// Times the write-ahead log was carried over into the file.
    pub checkpoints: u64,
    /// The longest of those: the worst pause a writer makes by itself.
    pub longest_checkpoint: Duration,
}

/// Appends of one session in a row after which it counts as alone.
const TIMES_TO_BE_ALONE: u32 = 2;
/// Bytes of an append that is written on its caller's own thread.
const ALONE_BYTES: usize = 64 * 1024;

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
    jobs: Mutex<Option<mpsc::Sender<Note>>>,
    slots: Arc<Semaphore>,
    queue: usize,
    shelf: Arc<Shelf>,
    lone: Lone,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Notices when one session writes and no other does.
#[derive(Debug, Default)]
struct Lone {
    last: AtomicU64,
    times: AtomicU32,
}

impl Lone {
    /// Has this session written last, several times in a row?
    fn is(&self, session: SessionId) -> bool {
        let (_, id) = session.0.as_u64_pair();
        if self.last.swap(id, Ordering::Relaxed) == id {
            return self.times.fetch_add(1, Ordering::Relaxed) >= TIMES_TO_BE_ALONE;
        }
        self.times.store(0, Ordering::Relaxed);
        false
    }
}

impl Sqlite {
    /// Opens a journal; creates the file if it is absent, migrates an older one. A path that leads to anything
    /// else is left as it is.
    ///
    /// # Errors
    /// `not_a_journal`, `no_journal` if the directory does not exist, `journal_of_other_user`, `journal_damaged`,
    /// `journal_newer`, `journal_read_only`, `journal_gone`, `journal_busy`, `disk_full`.
    pub async fn open(path: &Path, world: World, options: Options) -> Result<Self, Fault> {
        let path = path.to_owned();
        in_background(Operation::OpenJournal, move || Self::open_now(&path, world, options, true))
            .await
    }

    /// Opens a journal that exists, for writing. Never creates one.
    ///
    /// # Errors
    /// As [`Sqlite::open`]; `no_journal` if there is none.
    pub async fn open_existing(path: &Path, world: World, options: Options) -> Result<Self, Fault> {
        let path = path.to_owned();
        in_background(Operation::OpenJournal, move || Self::open_now(&path, world, options, false))
            .await
    }

    /// What a path leads to, and the file itself behind any links. Changes nothing.
    ///
    /// # Errors
    /// When no journal can be written there: `not_a_journal`, `no_journal` if the directory does not exist,
    /// `journal_of_other_user`, `file_permission`, `journal_damaged`.
    pub async fn inspect(path: &Path) -> Result<(PathBuf, PathContent), Fault> {
        let path = path.to_owned();
        in_background(Operation::OpenJournal, move || {
            let found = inspect::inspect(&path, Operation::OpenJournal)?;
            found.must_be_own(Operation::OpenJournal)?;
            Ok((found.path, found.content))
        })
        .await
    }

    /// Opens a journal that exists, to read it only. Nothing is changed, not even by migration.
    ///
    /// # Errors
    /// As [`Sqlite::open_existing`].
    pub async fn open_read_only(
        path: &Path,
        world: World,
        options: Options,
    ) -> Result<Self, Fault> {
        let path = path.to_owned();
        in_background(Operation::OpenJournal, move || {
            let operation = Operation::OpenJournal;
            let found = inspect::inspect(&path, operation)?.must_be_journal(operation)?;
            let (path, file) = found.into_file(operation)?;
            let readers = readers(&path, Purpose::ReadOnly, &options, file);
            readers.ask_now(Operation::OpenJournal, |connection, path| {
                schema::Meta::must_load(connection, path)
            })?;
            Self::assemble(path, world, options, Arc::default(), readers, Arc::default(), None)
        })
        .await
    }

    fn open_now(
        named: &Path,
        world: World,
        options: Options,
        creates: bool,
    ) -> Result<Self, Fault> {
        let inspected = inspect::inspect_to_write(named, creates)?;
        let path = inspected.path.clone();
        let bell = Arc::new(Bell::default());
        let (tally, ours) = (Arc::new(Tally::default()), Arc::new(Ours::default()));
        let outside = Outside {
            path: path.clone(),
            setup: setup(&options),
            world: world.clone(),
            limits: options.limits.clone(),
            bell: bell.clone(),
            tally: tally.clone(),
            ours: ours.clone(),
        };
        let (connection, meta, mark) = open::prepare(&outside, &inspected)?;
        let (_, file) = inspected.into_file(Operation::OpenJournal)?;
        let hold = Hold::new(outside.clone(), connection, meta, mark, file.clone());
        let reserve = Reserve::new(&path, options.reserve_bytes);
        let (sender, receiver) = mpsc::channel();
        let shelf = Shelf::new(Pen::new(outside, hold, reserve));
        let writer = Writer::new(receiver, shelf.clone());
        let thread = std::thread::Builder::new()
            .name("journal-write".into())
            .spawn(move || writer.run())
            .map_err(|error| errors::io_fault(&error, &path, Operation::OpenJournal))?;
        let desk = Desk {
            tally,
            jobs: Mutex::new(Some(sender)),
            slots: Arc::new(Semaphore::new(options.queue.max(1))),
            queue: options.queue.max(1),
            shelf,
            lone: Lone::default(),
            thread: Mutex::new(Some(thread)),
        };
        let readers = readers(&path, Purpose::Read, &options, file);
        // One is opened now, so that reading goes on when the file is taken away later.
        readers.ask_now(Operation::OpenJournal, |_, _| Ok(()))?;
        Self::assemble(path, world, options, bell, readers, ours, Some(desk))
    }

    fn assemble(
        path: PathBuf,
        world: World,
        options: Options,
        bell: Arc<Bell>,
        readers: Arc<Readers>,
        ours: Arc<Ours>,
        desk: Option<Desk>,
    ) -> Result<Self, Fault> {
        let poller = Poller::start(&bell, readers.clone(), ours)
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
            alone: tally.alone.load(Ordering::Relaxed),
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
        let began = Instant::now();
        let written =
            || metrics::histogram!("budao_journal_append_seconds").record(began.elapsed());
        if let Some(done) = desk.write_alone(&ask) {
            written();
            return done;
        }
        let permit = desk.slots.clone().acquire_owned().await.map_err(|_| over())?;
        let (reply, answer) = oneshot::channel();
        if !desk.tell(Note::Job(Box::new(Job { ask, reply, _permit: permit }))) {
            return Err(over());
        }
        let done = answer.await.map_err(|_| over())?;
        written();
        done
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

impl Desk {
    /// Writes an append on the caller's own thread, if its session is alone and it will not take long.
    ///
    /// That keeps a thread of the caller's waiting for the disk, as any work of a lone session would; with others
    /// about, the writer's thread shares one sync among all.
    fn write_alone(&self, ask: &Ask) -> Option<Result<Done, AppendError>> {
        let Ask::Append(append) = ask else { return None };
        let is_alone = self.lone.is(append.session)
            && append.bytes() <= ALONE_BYTES
            && self.slots.available_permits() == self.queue;
        let mut pen = self.shelf.try_take().filter(|_| is_alone)?;
        let done = pen.write_alone(ask)?;
        self.tally.alone.fetch_add(1, Ordering::Relaxed);
        let calls = !pen.is_called && pen.has_house_to_keep();
        pen.is_called |= calls;
        drop(pen);
        if calls {
            self.tell(Note::House);
        }
        Some(done)
    }

    /// False when the journal was closed.
    fn tell(&self, note: Note) -> bool {
        lock(&self.jobs).as_ref().is_some_and(|jobs| jobs.send(note).is_ok())
    }
}

fn setup(options: &Options) -> Setup {
    Setup { page_bytes: options.page_bytes, busy: options.busy }
}

fn readers(path: &Path, purpose: Purpose, options: &Options, file: Arc<OpenFile>) -> Arc<Readers> {
    Readers::new(path.to_owned(), purpose, setup(options), options.readers, file)
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
