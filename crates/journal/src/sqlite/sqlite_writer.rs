//! The writer: executes requests in transactions. Mostly the writer thread uses it; a session that writes alone uses it
//! on its own thread, because a switch to another thread costs more than the SQLite work.
//!
//! A reply is sent only after COMMIT has returned. A failed transaction clears the cache of the file's content. After
//! an I/O error the file is opened and checked again before the next write, because a failed sync leaves the content of
//! the disk unknown.

use std::{
    panic::AssertUnwindSafe,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use budao_core::fault::{Fact, Fault, Kind, Operation};

use super::{
    disk_reserve::DiskReserve,
    errors::SqliteError,
    write_request::{WriteRequest, WriteResult},
    writer_connection::WriterConnection,
    writer_thread::{CommitNotice, QueuedWrite, WriterContext},
};
use crate::contract::AppendError;

/// Frames in the write-ahead log after which the writer makes a checkpoint.
const CHECKPOINT_FRAMES: u64 = 1000;
/// The number of batches that the views may lag behind while requests are queued.
const VIEW_LAG: i64 = 16 * 1024;
/// The longest commit after which a caller's thread may still write; with a slower disk only the writer thread does.
const QUICK_COMMIT: Duration = Duration::from_millis(5);

pub(super) struct SqliteWriter {
    context: WriterContext,
    pub(super) connection: WriterConnection,
    reserve: DiskReserve,
    /// When the last transaction ended, and its duration.
    last_commit_at: Instant,
    last_duration: Duration,
    /// Whether the writer thread has been sent a maintenance message.
    pub(super) maintenance_requested: bool,
    is_closed: bool,
}

impl SqliteWriter {
    pub(super) fn new(
        context: WriterContext,
        connection: WriterConnection,
        reserve: DiskReserve,
    ) -> Self {
        let (last_commit_at, last_duration) = (Instant::now(), Duration::ZERO);
        Self {
            context,
            connection,
            reserve,
            last_commit_at,
            last_duration,
            maintenance_requested: false,
            is_closed: false,
        }
    }

    /// Executes one request on the caller's thread. Returns `None`, with nothing written, if that could take long.
    pub(super) fn write_inline(&mut self, request: &WriteRequest) -> Option<WriteResult> {
        if self.is_closed || self.last_duration > QUICK_COMMIT || !self.connection.has_connection()
        {
            // The next commit on the writer thread measures the disk again.
            return None;
        }
        self.connection.set_busy_wait(false);
        match self.transact(&[request]) {
            Ok(mut outcomes) => {
                if !request.is_closing() {
                    self.reserve.restore();
                }
                self.notify();
                outcomes.pop()
            }
            // Another process is writing, or the disk is full: the writer thread waits or frees space.
            Err(error) if error.is_busy() || error.is_full() => None,
            Err(error) => {
                Some(Err(error.into_fault(&self.context.path, request.operation()).into()))
            }
        }
    }

    /// Executes the queued requests in one transaction and replies to each.
    pub(super) fn write(&mut self, writes: Vec<QueuedWrite>) {
        self.connection.set_busy_wait(true);
        let requests: Vec<&WriteRequest> = writes.iter().map(|write| &write.request).collect();
        match self.transact(&requests) {
            Ok(outcomes) => {
                if writes.iter().any(|write| !write.request.is_closing()) {
                    self.reserve.restore();
                }
                self.answer(writes, outcomes);
                self.run_maintenance();
            }
            // On a full disk, small closing requests may still fit one by one.
            Err(error) if error.is_full() => {
                for write in writes {
                    self.write_from_reserve(write);
                }
            }
            Err(error) => {
                for write in writes {
                    let fault = error.as_fault(&self.context.path, write.request.operation());
                    // The caller may have stopped waiting.
                    let _ = write.reply.send(Err(AppendError::Failed(fault)));
                }
            }
        }
    }

    fn write_from_reserve(&mut self, write: QueuedWrite) {
        let mut done = self.transact(&[&write.request]);
        if done.as_ref().is_err_and(SqliteError::is_full)
            && write.request.is_closing()
            && self.reserve.release()
        {
            done = self.transact(&[&write.request]);
        }
        match done {
            Ok(outcomes) => self.answer(vec![write], outcomes),
            Err(error) => {
                let fault = error.into_fault(&self.context.path, write.request.operation());
                let _ = write.reply.send(Err(AppendError::Failed(fault)));
            }
        }
    }

    /// Runs one transaction. A panic in it is a bug; it fails these requests, not the journal.
    fn transact(&mut self, requests: &[&WriteRequest]) -> Result<Vec<WriteResult>, SqliteError> {
        let began = Instant::now();
        let connection = &mut self.connection;
        let done = std::panic::catch_unwind(AssertUnwindSafe(|| {
            connection.transact(|connection| {
                requests.iter().map(|request| connection.apply(request)).collect()
            })
        }));
        self.last_commit_at = Instant::now();
        self.last_duration = self.last_commit_at - began;
        let done = done.unwrap_or_else(|_| {
            self.connection.drop_connection();
            Err(Fault::new(Kind::Bug, Operation::AppendRecords)
                .with(Fact::Path, self.context.path.display().to_string())
                .with_cause("the writer panicked")
                .into())
        });
        let counters = &self.context.counters;
        match &done {
            Ok(_) => {
                metrics::histogram!("budao_journal_sync_seconds").record(self.last_duration);
                counters.transactions.fetch_add(1, Ordering::Relaxed);
                counters.requests.fetch_add(requests.len() as u64, Ordering::Relaxed);
            }
            Err(_) => {
                metrics::counter!("budao_journal_failures_total").increment(1);
                counters.failures.fetch_add(1, Ordering::Relaxed);
            }
        }
        done
    }

    fn answer(&mut self, writes: Vec<QueuedWrite>, outcomes: Vec<WriteResult>) {
        for (write, outcome) in writes.into_iter().zip(outcomes) {
            let _ = write.reply.send(outcome);
        }
        self.notify();
    }

    /// Announces the durable changes inside this process.
    fn notify(&mut self) {
        for effect in self.connection.take_notices() {
            let notifier = &self.context.notifier;
            match effect {
                CommitNotice::Records { session, head, batch } => {
                    notifier.announce_records(session, head, batch);
                }
                CommitNotice::Command(session) => notifier.announce_command(session),
                CommitNotice::Answered(session) => notifier.announce_answer(session),
                CommitNotice::History(session) => notifier.announce_history_change(session),
            }
        }
    }

    /// Whether a checkpoint or a view update is due, which no caller should wait for.
    pub(super) fn has_maintenance(&self) -> bool {
        self.connection.frames_since_checkpoint() >= CHECKPOINT_FRAMES
            || self.connection.view_lag() > 0
    }

    pub(super) fn run_maintenance(&mut self) {
        if self.connection.frames_since_checkpoint() >= CHECKPOINT_FRAMES {
            let began = Instant::now();
            self.connection.checkpoint();
            let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            let counters = &self.context.counters;
            metrics::histogram!("budao_journal_checkpoint_seconds").record(began.elapsed());
            counters.checkpoints.fetch_add(1, Ordering::Relaxed);
            counters.longest_checkpoint_micros.fetch_max(micros, Ordering::Relaxed);
        }
        if self.connection.view_lag() > VIEW_LAG {
            self.catch_up();
        }
    }

    /// Whether the last transaction is at least this long ago.
    pub(super) fn is_idle_for(&self, since: Duration) -> bool {
        self.last_commit_at.elapsed() >= since
    }

    /// Advances the index and the views by one step. A failure is logged, since no caller waits for it.
    pub(super) fn catch_up(&mut self) {
        self.connection.set_busy_wait(true);
        if let Err(error) = self.connection.transact(WriterConnection::run_background_step) {
            let fault = error.into_fault(&self.context.path, Operation::AppendRecords);
            tracing::warn!(%fault, "updating views failed");
            self.connection.postpone_views();
        }
    }

    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.connection.close();
    }
}
