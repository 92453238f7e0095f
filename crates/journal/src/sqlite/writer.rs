//! The writer's thread: takes what has gathered, has it made durable in one transaction, and looks after the
//! file while nobody asks for anything.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    },
    time::Duration,
};

use budao_core::{event::SessionId, limits::Limits, seams::World};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{
    ask::{Ask, Done},
    pen::Pen,
    poll::Ours,
    schema::Setup,
};
use crate::{
    bell::{Bell, lock},
    contract::{AppendError, Stored},
};

/// Requests taken into one transaction.
const DRAIN_REQUESTS: usize = 1024;
/// Bytes of events taken into one transaction.
const DRAIN_BYTES: usize = 16 << 20;
/// Quiet after which the views are brought up to date.
const QUIET: Duration = Duration::from_millis(250);

/// A request and where its answer goes.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) ask: Ask,
    pub(super) reply: oneshot::Sender<Result<Done, AppendError>>,
    /// Bounds how many wait; given back when the job is dropped.
    pub(super) _permit: OwnedSemaphorePermit,
}

/// What the thread is told.
#[derive(Debug)]
pub(super) enum Note {
    Job(Box<Job>),
    /// Somebody wrote without it, and there is something to look after.
    House,
}

/// What happens inside this process once a transaction is durable.
#[derive(Debug)]
pub(super) enum Effect {
    Records { session: SessionId, head: u64, batch: Vec<Stored> },
    Command(SessionId),
    Answered(SessionId),
    History(SessionId),
}

/// What the writer has done since it began, for metrics.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) transactions: AtomicU64,
    pub(super) requests: AtomicU64,
    /// Requests written on their callers' own threads.
    pub(super) alone: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) checkpoints: AtomicU64,
    pub(super) longest_checkpoint_micros: AtomicU64,
}

/// What the writer needs from outside.
#[derive(Debug, Clone)]
pub(super) struct Outside {
    pub(super) path: PathBuf,
    pub(super) setup: Setup,
    pub(super) world: World,
    pub(super) limits: Limits,
    pub(super) bell: Arc<Bell>,
    pub(super) tally: Arc<Tally>,
    pub(super) ours: Arc<Ours>,
}

/// The pen, and a sign that the thread wants it.
pub(super) struct Shelf {
    pen: Mutex<Pen>,
    is_wanted: AtomicBool,
}

impl std::fmt::Debug for Shelf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shelf")
    }
}

impl Shelf {
    pub(super) fn new(pen: Pen) -> Arc<Self> {
        Arc::new(Self { pen: Mutex::new(pen), is_wanted: AtomicBool::new(false) })
    }

    /// The pen, if nobody has it and nobody waits for it.
    pub(super) fn try_take(&self) -> Option<MutexGuard<'_, Pen>> {
        if self.is_wanted.load(Ordering::Acquire) {
            return None;
        }
        self.pen.try_lock().ok()
    }

    /// The pen. A caller that writes alone, again and again, cannot keep it from us.
    fn take(&self) -> MutexGuard<'_, Pen> {
        self.is_wanted.store(true, Ordering::Release);
        let pen = lock(&self.pen);
        self.is_wanted.store(false, Ordering::Release);
        pen
    }
}

pub(super) struct Writer {
    jobs: Receiver<Note>,
    shelf: Arc<Shelf>,
}

enum Next {
    Note(Note),
    Quiet,
    Closed,
}

impl Writer {
    pub(super) fn new(jobs: Receiver<Note>, shelf: Arc<Shelf>) -> Self {
        Self { jobs, shelf }
    }

    /// Runs until every handle is gone.
    pub(super) fn run(self) {
        loop {
            match self.next() {
                Next::Note(Note::Job(first)) => {
                    let jobs = self.drain(*first);
                    self.shelf.take().write(jobs);
                }
                Next::Note(Note::House) => self.shelf.take().keep_house(),
                Next::Quiet => {
                    let mut pen = self.shelf.take();
                    pen.keep_house();
                    if pen.is_quiet(QUIET) {
                        pen.catch_up();
                    }
                }
                Next::Closed => break,
            }
        }
        self.shelf.take().close();
    }

    fn next(&self) -> Next {
        let has_views_to_write = {
            let mut pen = self.shelf.take();
            pen.is_called = pen.hold.view_lag() > 0;
            pen.is_called
        };
        if !has_views_to_write {
            return self.jobs.recv().map_or(Next::Closed, Next::Note);
        }
        match self.jobs.recv_timeout(QUIET) {
            Ok(note) => Next::Note(note),
            Err(RecvTimeoutError::Timeout) => Next::Quiet,
            Err(RecvTimeoutError::Disconnected) => Next::Closed,
        }
    }

    fn drain(&self, first: Job) -> Vec<Job> {
        let mut bytes = first.ask.bytes();
        let mut jobs = vec![first];
        while jobs.len() < DRAIN_REQUESTS && bytes < DRAIN_BYTES {
            match self.jobs.try_recv() {
                Ok(Note::Job(job)) => {
                    bytes += job.ask.bytes();
                    jobs.push(*job);
                }
                // It is seen to after every transaction anyway.
                Ok(Note::House) => {}
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        jobs
    }
}
