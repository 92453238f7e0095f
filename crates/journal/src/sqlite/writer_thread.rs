//! The writer thread: takes the queued requests, executes them in one transaction, and maintains the file while idle.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    },
    time::Duration,
};

use budao_core::{event::SessionId, limits::Limits, world::World};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{
    poll::OwnBatches,
    schema::ConnectionOptions,
    sqlite_writer::SqliteWriter,
    write_request::{WriteReply, WriteRequest},
};
use crate::{
    contract::{AppendError, StoredRecord},
    implement::notifier::{Notifier, lock},
};

/// The largest number of requests in one transaction.
const DRAIN_REQUESTS: usize = 1024;
/// The largest size of the events in one transaction, in bytes.
const DRAIN_BYTES: usize = 16 << 20;
/// Idle time after which the views are updated.
const QUIET: Duration = Duration::from_millis(250);

/// A request and the channel for its reply.
#[derive(Debug)]
pub(super) struct QueuedWrite {
    pub(super) request: WriteRequest,
    pub(super) reply: oneshot::Sender<Result<WriteReply, AppendError>>,
    /// A slot in the queue; dropping the write frees it.
    pub(super) _permit: OwnedSemaphorePermit,
}

/// A message to the writer thread.
#[derive(Debug)]
pub(super) enum WriterMessage {
    Write(Box<QueuedWrite>),
    /// A caller wrote on its own thread, and a checkpoint or a view update is due.
    Maintenance,
}

/// A notification to this process's subscriptions, sent once a transaction is durable.
#[derive(Debug)]
pub(super) enum CommitNotice {
    Records { session: SessionId, head: u64, batch: Vec<StoredRecord> },
    Command(SessionId),
    Answered(SessionId),
    History(SessionId),
}

/// Counters of the writer, for metrics.
#[derive(Debug, Default)]
pub(super) struct WriterCounters {
    pub(super) transactions: AtomicU64,
    pub(super) requests: AtomicU64,
    /// Requests executed on their callers' own threads.
    pub(super) inline_writes: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) checkpoints: AtomicU64,
    pub(super) longest_checkpoint_micros: AtomicU64,
}

/// The path, settings and shared parts that the writer uses.
#[derive(Debug, Clone)]
pub(super) struct WriterContext {
    pub(super) path: PathBuf,
    pub(super) setup: ConnectionOptions,
    pub(super) world: World,
    pub(super) limits: Limits,
    pub(super) notifier: Arc<Notifier>,
    pub(super) counters: Arc<WriterCounters>,
    pub(super) own_batches: Arc<OwnBatches>,
}

/// The lock on the writer, and a flag that the writer thread waits for it.
pub(super) struct WriterLock {
    writer: Mutex<SqliteWriter>,
    is_wanted: AtomicBool,
}

impl std::fmt::Debug for WriterLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WriterLock")
    }
}

impl WriterLock {
    pub(super) fn new(writer: SqliteWriter) -> Arc<Self> {
        Arc::new(Self { writer: Mutex::new(writer), is_wanted: AtomicBool::new(false) })
    }

    /// The writer, if it is free and the writer thread does not wait for it.
    pub(super) fn try_take(&self) -> Option<MutexGuard<'_, SqliteWriter>> {
        if self.is_wanted.load(Ordering::Acquire) {
            return None;
        }
        self.writer.try_lock().ok()
    }

    /// Waits for the writer. The flag stops callers that write alone from taking it again first.
    fn take(&self) -> MutexGuard<'_, SqliteWriter> {
        self.is_wanted.store(true, Ordering::Release);
        let writer = lock(&self.writer);
        self.is_wanted.store(false, Ordering::Release);
        writer
    }
}

pub(super) struct WriterThread {
    writes: Receiver<WriterMessage>,
    writer_lock: Arc<WriterLock>,
}

enum NextInput {
    Message(WriterMessage),
    Quiet,
    Closed,
}

impl WriterThread {
    pub(super) fn new(writes: Receiver<WriterMessage>, writer_lock: Arc<WriterLock>) -> Self {
        Self { writes, writer_lock }
    }

    /// Runs until every handle is dropped.
    pub(super) fn run(self) {
        loop {
            match self.next() {
                NextInput::Message(WriterMessage::Write(first)) => {
                    let writes = self.drain(*first);
                    self.writer_lock.take().write(writes);
                }
                NextInput::Message(WriterMessage::Maintenance) => {
                    self.writer_lock.take().run_maintenance();
                }
                NextInput::Quiet => {
                    let mut writer = self.writer_lock.take();
                    writer.run_maintenance();
                    if writer.is_idle_for(QUIET) {
                        writer.catch_up();
                    }
                }
                NextInput::Closed => break,
            }
        }
        self.writer_lock.take().close();
    }

    fn next(&self) -> NextInput {
        let has_views_to_write = {
            let mut writer = self.writer_lock.take();
            writer.maintenance_requested = writer.connection.view_lag() > 0;
            writer.maintenance_requested
        };
        if !has_views_to_write {
            return self.writes.recv().map_or(NextInput::Closed, NextInput::Message);
        }
        match self.writes.recv_timeout(QUIET) {
            Ok(message) => NextInput::Message(message),
            Err(RecvTimeoutError::Timeout) => NextInput::Quiet,
            Err(RecvTimeoutError::Disconnected) => NextInput::Closed,
        }
    }

    fn drain(&self, first: QueuedWrite) -> Vec<QueuedWrite> {
        let mut bytes = first.request.bytes();
        let mut writes = vec![first];
        while writes.len() < DRAIN_REQUESTS && bytes < DRAIN_BYTES {
            match self.writes.try_recv() {
                Ok(WriterMessage::Write(write)) => {
                    bytes += write.request.bytes();
                    writes.push(*write);
                }
                // Maintenance is checked after every transaction anyway.
                Ok(WriterMessage::Maintenance) => {}
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        writes
    }
}
