//! The poller: detects writes of other processes.
//!
//! While there are subscriptions, one thread polls SQLite's `data_version`, which costs a few microseconds and reads
//! one page of shared memory. Measurements favour it over file notifications: those arrive before a commit is visible,
//! and not at all for writes through shared memory. Without subscriptions the thread sleeps.

use std::{
    collections::HashMap,
    sync::{Arc, Condvar, Mutex, Weak},
    time::{Duration, Instant},
};

use budao_core::event::SessionId;
use rusqlite::Connection;
use uuid::Uuid;

use super::{
    errors::SqliteError,
    reader::Readers,
    rows::{SessionRow, read_position},
    schema,
};
use crate::implement::notifier::{Notifier, lock};

/// The polling interval: half of the promised latency, to leave time for the poll itself.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The interval of checks for removed or replaced histories.
const HISTORY_INTERVAL: Duration = Duration::from_millis(500);

/// The latest range of batches that this process wrote without a batch of another process in between.
#[derive(Debug, Default)]
pub(super) struct OwnBatches(Mutex<(i64, i64)>);

impl OwnBatches {
    /// Sets the range, both ends included.
    pub(super) fn set_range(&self, from: i64, to: i64) {
        *lock(&self.0) = (from, to);
    }

    /// Whether this process wrote all of these batches. Its subscriptions were notified at the time.
    fn contains_range(&self, from: i64, to: i64) -> bool {
        let (first, last) = *lock(&self.0);
        first <= from && to <= last
    }
}

/// The handle of the polling thread; dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Poller {
    signal: Arc<PollerSignal>,
}

#[derive(Debug, Default)]
struct PollerSignal {
    state: Mutex<PollerState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PollerState {
    has_subscriber: bool,
    is_over: bool,
    /// Whether the thread sleeps. Waking it between two polls would cost two context switches for nothing.
    is_sleeping: bool,
}

impl PollerSignal {
    /// Wakes the thread after a new subscription.
    fn wake(&self) {
        let mut state = lock(&self.state);
        state.has_subscriber = true;
        if state.is_sleeping {
            self.changed.notify_all();
        }
    }

    fn stop(&self) {
        lock(&self.state).is_over = true;
        self.changed.notify_all();
    }

    /// Waits for a subscription. Returns false when the thread must end.
    fn sleep(&self) -> bool {
        let mut state = lock(&self.state);
        state.is_sleeping = true;
        while !state.has_subscriber && !state.is_over {
            state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        state.is_sleeping = false;
        state.has_subscriber = false;
        !state.is_over
    }

    /// Waits for one polling interval. Returns false when the thread must end.
    fn wait_interval(&self) -> bool {
        let state = lock(&self.state);
        let waited = self.changed.wait_timeout_while(state, POLL_INTERVAL, |state| !state.is_over);
        !waited.unwrap_or_else(std::sync::PoisonError::into_inner).0.is_over
    }
}

impl Poller {
    pub(super) fn start(
        notifier: &Arc<Notifier>,
        readers: Arc<Readers>,
        own_batches: Arc<OwnBatches>,
    ) -> std::io::Result<Self> {
        let signal = Arc::new(PollerSignal::default());
        let waker = signal.clone();
        notifier.on_subscribe(Box::new(move || waker.wake()));
        let thread = PollerThread {
            signal: signal.clone(),
            notifier: Arc::downgrade(notifier),
            readers,
            own_batches,
        };
        std::thread::Builder::new()
            .name("journal-poll".into())
            .spawn(move || while thread.signal.sleep() && thread.poll_while_subscribed() {})?;
        Ok(Self { signal })
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.signal.stop();
    }
}

struct PollerThread {
    signal: Arc<PollerSignal>,
    notifier: Weak<Notifier>,
    readers: Arc<Readers>,
    own_batches: Arc<OwnBatches>,
}

/// The poller's position in the file.
struct PollCursor {
    connection: Connection,
    version: i64,
    batch_id: i64,
    inbox: i64,
    histories: HashMap<SessionId, Option<(u32, u64)>>,
    checked_at: Instant,
    must_check_histories: bool,
}

impl PollerThread {
    /// Polls while there are subscriptions. Returns false when the journal is gone.
    fn poll_while_subscribed(&self) -> bool {
        let mut cursor = None;
        loop {
            let Some(notifier) = self.notifier.upgrade() else { return false };
            if notifier.is_idle() {
                return true;
            }
            let step = match &mut cursor {
                Some(cursor) => self.poll_once(cursor, &notifier),
                None => self.start_cursor(&notifier).map(|begun| cursor = Some(begun)),
            };
            if let Err(error) = step {
                tracing::debug!(error = ?error, "polling for other writers failed");
                cursor = None;
            }
            drop(notifier);
            if !self.signal.wait_interval() {
                return false;
            }
        }
    }

    fn start_cursor(&self, notifier: &Notifier) -> Result<PollCursor, SqliteError> {
        let (purpose, setup) = self.readers.connection_options();
        let connection = schema::connect(self.readers.path(), purpose, setup)?;
        let batch_id: Option<i64> =
            connection.query_row("SELECT max(batch_id) FROM batch", [], |row| row.get(0))?;
        let inbox: Option<i64> =
            connection.query_row("SELECT max(id) FROM inbox", [], |row| row.get(0))?;
        let cursor = PollCursor {
            version: read_data_version(&connection)?,
            connection,
            batch_id: batch_id.unwrap_or(0),
            inbox: inbox.unwrap_or(0),
            histories: HashMap::new(),
            checked_at: Instant::now(),
            must_check_histories: true,
        };
        // Records written between a subscription's first read and this one were seen by neither, so all subscriptions
        // read again.
        for session in notifier.subscribed_sessions() {
            notifier.wake_all(session);
        }
        Ok(cursor)
    }

    fn poll_once(&self, cursor: &mut PollCursor, notifier: &Notifier) -> Result<(), SqliteError> {
        if cursor.must_check_histories && cursor.checked_at.elapsed() >= HISTORY_INTERVAL {
            self.read_histories(cursor, notifier)?;
        }
        let now = read_data_version(&cursor.connection)?;
        if now == cursor.version {
            return Ok(());
        }
        cursor.version = now;
        self.read_new_records(cursor, notifier)?;
        self.read_new_commands(cursor, notifier)?;
        notifier.announce_all_answers();
        cursor.must_check_histories = true;
        Ok(())
    }

    fn read_new_records(
        &self,
        cursor: &mut PollCursor,
        notifier: &Notifier,
    ) -> Result<(), SqliteError> {
        let last: Option<i64> = cursor
            .connection
            .prepare_cached("SELECT max(batch_id) FROM batch")?
            .query_row([], |row| row.get(0))?;
        if let Some(last) =
            last.filter(|last| self.own_batches.contains_range(cursor.batch_id + 1, *last))
        {
            cursor.batch_id = cursor.batch_id.max(last);
            return Ok(());
        }
        let mut statement = cursor.connection.prepare_cached(
            "SELECT b.batch_id, b.first + b.count - 1, s.uuid FROM batch b \
             JOIN session s ON s.id = b.session WHERE b.batch_id > ?1 ORDER BY b.batch_id",
        )?;
        let mut rows = statement.query([cursor.batch_id])?;
        while let Some(row) = rows.next()? {
            cursor.batch_id = row.get(0)?;
            let session = SessionId(Uuid::from_bytes(row.get(2)?));
            notifier.announce_records(session, read_position(row, 1)?, Vec::new());
        }
        Ok(())
    }

    fn read_new_commands(
        &self,
        cursor: &mut PollCursor,
        notifier: &Notifier,
    ) -> Result<(), SqliteError> {
        let mut statement = cursor.connection.prepare_cached(
            "SELECT i.id, s.uuid FROM inbox i JOIN session s ON s.id = i.session \
             WHERE i.id > ?1 ORDER BY i.id",
        )?;
        let mut rows = statement.query([cursor.inbox])?;
        while let Some(row) = rows.next()? {
            cursor.inbox = row.get(0)?;
            notifier.announce_command(SessionId(Uuid::from_bytes(row.get(1)?)));
        }
        Ok(())
    }

    fn read_histories(
        &self,
        cursor: &mut PollCursor,
        notifier: &Notifier,
    ) -> Result<(), SqliteError> {
        let before = std::mem::take(&mut cursor.histories);
        for session in notifier.subscribed_sessions() {
            let row = SessionRow::load(&cursor.connection, self.readers.path(), session)?;
            let now = row.map(|row| (row.epoch.0, row.removed_to));
            // A missing session is announced even if the poller never saw it.
            if before.get(&session).map_or(now.is_none(), |before| *before != now) {
                notifier.announce_history_change(session);
            }
            cursor.histories.insert(session, now);
        }
        cursor.must_check_histories = false;
        cursor.checked_at = Instant::now();
        Ok(())
    }
}

fn read_data_version(connection: &Connection) -> Result<i64, rusqlite::Error> {
    connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}
