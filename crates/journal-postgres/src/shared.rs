//! The state that all parts of an open journal share.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use budao_core::{limits::Limits, time::Timestamp, world::World};
use budao_journal::{Digest, JournalLoad, implement::Notifier};
use tokio::{sync::mpsc, task::AbortHandle};
use tokio_postgres::Row;

use crate::{
    append::{AppendQueue, SessionCache},
    connection::lock,
    lease::Renewal,
    pool::Pool,
    reader::CohortCache,
    settings::Purpose,
    wake::Announcer,
    written::WrittenSessions,
};

/// Whose clock decides whether a lease has expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaseClock {
    /// The database's: clocks of several machines have no say.
    #[default]
    Database,
    /// The world's: for tests that advance it.
    World,
}

/// An open journal without its tasks.
#[derive(Debug)]
pub(crate) struct PostgresShared {
    pub(crate) pool: Pool,
    pub(crate) world: World,
    pub(crate) limits: Limits,
    pub(crate) clock: LeaseClock,
    pub(crate) purpose: Purpose,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) announcer: Announcer,
    pub(crate) appends: AppendQueue,
    pub(crate) renewals: mpsc::Sender<Renewal>,
    pub(crate) sessions: SessionCache,
    pub(crate) cohorts: CohortCache,
    pub(crate) written: WrittenSessions,
    /// Distinguishes the counters of processes that write at the same time.
    pub(crate) node: i32,
    pub(crate) commits: AtomicU64,
}

/// A duration in microseconds, as the tables hold times.
pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 4)
}

/// A digest in a column; zeros if the column has another length.
pub(crate) fn digest(row: &Row, column: usize) -> Digest {
    Digest(row.get::<_, &[u8]>(column).try_into().unwrap_or_default())
}

impl PostgresShared {
    /// The time for a statement about leases; `None` means the database's clock.
    pub(crate) fn lease_time(&self) -> Option<i64> {
        match self.clock {
            LeaseClock::Database => None,
            LeaseClock::World => Some(self.world.clock.now().as_micros()),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.world.clock.now()
    }

    pub(crate) fn count_commit(&self) {
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn load(&self) -> JournalLoad {
        let commits = self.commits.load(Ordering::Relaxed);
        JournalLoad { queued_requests: self.appends.len(), bytes: 0, commits }
    }
}

/// Ends the tasks of a journal when its last handle is dropped.
#[derive(Debug, Default)]
pub(crate) struct TaskGuard(Mutex<Vec<AbortHandle>>);

impl TaskGuard {
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        lock(&self.0).push(tokio::spawn(task).abort_handle());
    }

    pub(crate) fn abort(&self) {
        lock(&self.0).drain(..).for_each(|task| task.abort());
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.abort();
    }
}
