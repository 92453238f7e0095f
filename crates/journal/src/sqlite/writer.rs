//! The writer thread: takes what has gathered, makes it durable in one transaction, then answers.
//!
//! Nobody is answered before COMMIT has returned. When anything about a transaction fails, everything this
//! thread believed about the file is forgotten; after an I/O error the file is opened and checked anew
//! before more is accepted, because a failed sync says nothing about what is on disk.

use std::{
    panic::AssertUnwindSafe,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    },
    time::{Duration, Instant},
};

use budao_core::{
    event::SessionId,
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    seams::World,
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{
    ask::{Ask, Done},
    errors::Trouble,
    hold::Hold,
    reserve::Reserve,
    schema::Setup,
};
use crate::{
    bell::Bell,
    contract::{AppendError, Stored},
};

/// Requests taken into one transaction.
const DRAIN_REQUESTS: usize = 1024;
/// Bytes of events taken into one transaction.
const DRAIN_BYTES: usize = 16 << 20;
/// Frames in the write-ahead log before it is carried over into the file.
const CHECKPOINT_FRAMES: u64 = 1000;
/// Batches the views may be behind while there is work to do.
const VIEW_LAG: i64 = 16 * 1024;
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
}

pub(super) struct Writer {
    outside: Outside,
    jobs: Receiver<Job>,
    hold: Hold,
    reserve: Reserve,
}

enum Next {
    Job(Box<Job>),
    Quiet,
    Closed,
}

impl Writer {
    pub(super) fn new(outside: Outside, jobs: Receiver<Job>, hold: Hold, reserve: Reserve) -> Self {
        Self { outside, jobs, hold, reserve }
    }

    /// Runs until every handle is gone.
    pub(super) fn run(mut self) {
        loop {
            match self.next() {
                Next::Job(first) => {
                    let jobs = self.drain(*first);
                    self.perform(jobs);
                }
                Next::Quiet => self.catch_up(),
                Next::Closed => break,
            }
        }
        self.hold.close();
    }

    fn next(&self) -> Next {
        if self.hold.view_lag() == 0 {
            return self.jobs.recv().map_or(Next::Closed, |job| Next::Job(Box::new(job)));
        }
        match self.jobs.recv_timeout(QUIET) {
            Ok(job) => Next::Job(Box::new(job)),
            Err(RecvTimeoutError::Timeout) => Next::Quiet,
            Err(RecvTimeoutError::Disconnected) => Next::Closed,
        }
    }

    fn drain(&self, first: Job) -> Vec<Job> {
        let mut bytes = first.ask.bytes();
        let mut jobs = vec![first];
        while jobs.len() < DRAIN_REQUESTS && bytes < DRAIN_BYTES {
            match self.jobs.try_recv() {
                Ok(job) => {
                    bytes += job.ask.bytes();
                    jobs.push(job);
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        jobs
    }

    fn perform(&mut self, jobs: Vec<Job>) {
        match self.transact(&jobs) {
            Ok(outcomes) => {
                if jobs.iter().any(|job| !job.ask.is_closing()) {
                    self.reserve.restore();
                }
                self.answer(jobs, outcomes);
                self.keep_house();
            }
            // On a full disk the small and the urgent may still fit, one by one.
            Err(trouble) if trouble.is_full() => {
                for job in jobs {
                    self.perform_in_need(job);
                }
            }
            Err(trouble) => {
                for job in jobs {
                    let fault = trouble.as_fault(&self.outside.path, job.ask.operation());
                    // Whoever asked may be gone; then nobody is waiting.
                    let _ = job.reply.send(Err(AppendError::Failed(fault)));
                }
            }
        }
    }

    fn perform_in_need(&mut self, job: Job) {
        let jobs = [job];
        let mut done = self.transact(&jobs);
        if done.as_ref().is_err_and(Trouble::is_full)
            && jobs[0].ask.is_closing()
            && self.reserve.release()
        {
            done = self.transact(&jobs);
        }
        match done {
            Ok(outcomes) => self.answer(jobs.into(), outcomes),
            Err(trouble) => {
                let fault = trouble.into_fault(&self.outside.path, jobs[0].ask.operation());
                let [job] = jobs;
                let _ = job.reply.send(Err(AppendError::Failed(fault)));
            }
        }
    }

    /// One transaction. A panic in it is our own mistake; it costs these requests, not the journal.
    fn transact(&mut self, jobs: &[Job]) -> Result<Vec<Result<Done, AppendError>>, Trouble> {
        let began = Instant::now();
        let hold = &mut self.hold;
        let done = std::panic::catch_unwind(AssertUnwindSafe(|| {
            hold.transact(|hold| jobs.iter().map(|job| hold.apply(&job.ask)).collect())
        }));
        let tally = &self.outside.tally;
        match done {
            Ok(Ok(_)) => {
                metrics::histogram!("budao_journal_sync_seconds").record(began.elapsed());
                tally.transactions.fetch_add(1, Ordering::Relaxed);
                tally.requests.fetch_add(jobs.len() as u64, Ordering::Relaxed);
            }
            Ok(Err(_)) | Err(_) => {
                metrics::counter!("budao_journal_failures_total").increment(1);
                tally.failures.fetch_add(1, Ordering::Relaxed);
            }
        }
        done.unwrap_or_else(|_| {
            self.hold.distrust();
            Err(Fault::new(Kind::Bug, Operation::AppendRecords)
                .with(Fact::Path, self.outside.path.display().to_string())
                .because("the writer panicked")
                .into())
        })
    }

    fn answer(&mut self, jobs: Vec<Job>, outcomes: Vec<Result<Done, AppendError>>) {
        for (job, outcome) in jobs.into_iter().zip(outcomes) {
            let _ = job.reply.send(outcome);
        }
        for effect in self.hold.take_effects() {
            let bell = &self.outside.bell;
            match effect {
                Effect::Records { session, head, batch } => bell.records(session, head, batch),
                Effect::Command(session) => bell.command(session),
                Effect::Answered(session) => bell.answered(session),
                Effect::History(session) => bell.history_changed(session),
            }
        }
    }

    fn keep_house(&mut self) {
        if self.hold.frames_since_checkpoint() >= CHECKPOINT_FRAMES {
            let began = Instant::now();
            self.hold.checkpoint();
            let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            let tally = &self.outside.tally;
            metrics::histogram!("budao_journal_checkpoint_seconds").record(began.elapsed());
            tally.checkpoints.fetch_add(1, Ordering::Relaxed);
            tally.longest_checkpoint_micros.fetch_max(micros, Ordering::Relaxed);
        }
        if self.hold.view_lag() > VIEW_LAG {
            self.catch_up();
        }
    }

    /// Brings index and views a piece further. Nobody waits for it, so a failure is told to the log.
    fn catch_up(&mut self) {
        if let Err(trouble) = self.hold.transact(Hold::tidy_some) {
            let fault = trouble.into_fault(&self.outside.path, Operation::AppendRecords);
            tracing::warn!(%fault, "the views stay behind");
            self.hold.postpone_views();
        }
    }
}
