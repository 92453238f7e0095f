//! The connections of a process: four that write, four that read, one for transactions.
//!
//! A lane is a place for one connection, which is opened when it is needed and again after it failed. Statements go to
//! the lane with the fewest in flight. There is no queue here: every caller has its own deadline.

use std::{
    sync::{Arc, atomic::AtomicBool, atomic::Ordering},
    time::Duration,
};

use budao_core::fault::{Fault, Kind, Operation};
use tokio::{
    sync::{Mutex, MutexGuard, Semaphore},
    time::Instant,
};
use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};

use crate::{
    address::Address,
    connection::{self, Connection, Parameters},
    errors::{self, StatementError},
};

/// Connections that write, and as many that read. More cost the server CPU and gained nothing.
pub(crate) const LANES: usize = 4;
/// How long a statement may take, with reconnecting, before its caller gets `journal_busy`.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// First pause before another attempt; it doubles.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Connections left behind because they did not answer. The server may still work for them.
const ABANDONED: usize = 8;
/// How long a connection that was left behind may take before it is closed.
const ABANDONED_AGE: Duration = Duration::from_secs(600);

/// Which connections a statement may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneKind {
    Write,
    Read,
}

/// A place for one connection.
#[derive(Debug, Default)]
pub(crate) struct Lane(Mutex<Option<Arc<Connection>>>);

/// All connections of a journal.
#[derive(Debug)]
pub(crate) struct Pool {
    address: Arc<Address>,
    write: [Lane; LANES],
    read: [Lane; LANES],
    exclusive: Lane,
    is_closed: AtomicBool,
    abandoned: Arc<Semaphore>,
}

impl Pool {
    pub(crate) fn new(address: Arc<Address>, first: Connection) -> Self {
        Self {
            address,
            write: Default::default(),
            read: Default::default(),
            exclusive: Lane(Mutex::new(Some(Arc::new(first)))),
            is_closed: AtomicBool::new(false),
            abandoned: Arc::new(Semaphore::new(ABANDONED)),
        }
    }

    pub(crate) fn address(&self) -> &Arc<Address> {
        &self.address
    }

    /// A lane that writes, by its number.
    pub(crate) fn write_lane(&self, number: usize) -> &Lane {
        &self.write[number % LANES]
    }

    fn lanes(&self, kind: LaneKind) -> &[Lane; LANES] {
        match kind {
            LaneKind::Write => &self.write,
            LaneKind::Read => &self.read,
        }
    }

    /// The lane with the fewest statements in flight; one that is being connected counts as busy.
    fn least_busy(&self, kind: LaneKind) -> &Lane {
        let lanes = self.lanes(kind);
        lanes.iter().min_by_key(|lane| lane.in_flight()).unwrap_or(&lanes[0])
    }

    /// Closes all connections and refuses later statements.
    pub(crate) async fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        for lane in self.write.iter().chain(&self.read).chain([&self.exclusive]) {
            lane.0.lock().await.take();
        }
    }

    /// The connection of a lane, made anew if it ended. If the server has no free one, that of another lane.
    pub(crate) async fn connection(&self, lane: &Lane) -> Result<Arc<Connection>, StatementError> {
        let mut place = lane.0.lock().await;
        if self.is_closed.load(Ordering::Acquire) {
            let fault = Fault::new(Kind::ShuttingDown, Operation::OpenJournal);
            return Err(StatementError::NotSent(fault));
        }
        if let Some(connection) = place.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(Arc::clone(connection));
        }
        match connection::connect(&self.address).await {
            Ok((connection, _)) => {
                let connection = Arc::new(connection);
                *place = Some(Arc::clone(&connection));
                Ok(connection)
            }
            Err(fault) => {
                let is_full = fault.kind() == Kind::JournalConnectionsFull;
                let shared = is_full.then(|| self.open_connection()).flatten();
                shared.ok_or(StatementError::NotSent(fault))
            }
        }
    }

    /// The open connection of any lane with the fewest statements in flight.
    fn open_connection(&self) -> Option<Arc<Connection>> {
        let places = self.write.iter().chain(&self.read).filter_map(|lane| lane.0.try_lock().ok());
        let connections = places.filter_map(|place| place.clone());
        let open = connections.filter(|connection| !connection.is_closed());
        open.min_by_key(|connection| connection.in_flight())
    }

    /// Takes a connection out of its lane: it does not answer, or its server cannot write any more.
    pub(crate) async fn abandon(&self, lane: &Lane, connection: &Arc<Connection>) {
        let mut place = lane.0.lock().await;
        if !place.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            return;
        }
        // Without a permit too many are left behind already, and the lane waits for its own.
        let Ok(permit) = Arc::clone(&self.abandoned).try_acquire_owned() else { return };
        let Some(connection) = place.take() else { return };
        tokio::spawn(async move {
            let _permit = permit;
            // The server may still commit for it, so it is not closed before it answers. An empty statement is answered
            // after all that were sent before it.
            let _ = tokio::time::timeout(ABANDONED_AGE, connection.execute("")).await;
        });
    }

    /// Runs a statement that may be repeated: after a lost connection it runs again until [`PATIENCE`] ends.
    ///
    /// # Errors
    /// `journal_busy` if no answer came in time; else by the server's refusal.
    pub(crate) async fn run(
        &self,
        kind: LaneKind,
        operation: Operation,
        sql: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, Fault> {
        let mut retry = Retry::new(&self.address, operation);
        loop {
            let lane = self.least_busy(kind);
            let failed = match self.attempt(lane, sql, parameters, retry.time_left()).await {
                Ok(rows) => return Ok(rows),
                Err(failed) => failed,
            };
            retry.again(failed).await?;
        }
    }

    /// Runs a search, as [`Pool::run`] does.
    pub(crate) async fn search(
        &self,
        operation: Operation,
        sql: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Fault> {
        let mut retry = Retry::new(&self.address, operation);
        loop {
            let lane = self.least_busy(LaneKind::Read);
            let run = async { self.connection(lane).await?.search(sql, parameters).await };
            let failed = match tokio::time::timeout(retry.time_left(), run).await {
                Ok(Ok(rows)) => return Ok(rows),
                Ok(Err(failed)) => failed,
                Err(_) => StatementError::Unknown("no answer in time".into()),
            };
            retry.again(failed).await?;
        }
    }

    /// Runs a statement once on a lane. A connection that does not answer within `patience` is left behind.
    pub(crate) async fn attempt(
        &self,
        lane: &Lane,
        sql: &'static str,
        parameters: Parameters<'_>,
        patience: Duration,
    ) -> Result<Vec<Row>, StatementError> {
        let late = || StatementError::Unknown("no answer in time".into());
        let connecting = tokio::time::timeout(patience, self.connection(lane)).await;
        let connection = connecting.map_err(|_| late())??;
        let done = tokio::time::timeout(patience, connection.query(sql, parameters)).await;
        let done = match done {
            Ok(done) => done,
            Err(_) => {
                self.abandon(lane, &connection).await;
                return Err(late());
            }
        };
        if done.as_ref().is_err_and(StatementError::needs_other_server) {
            self.abandon(lane, &connection).await;
        }
        done
    }

    /// Refuses a pooler that gives each transaction another server and does not know prepared statements. While one
    /// connection is in a transaction, the statement of another one meets another server there.
    ///
    /// # Errors
    /// `journal_setting_unsafe`; `journal_connections_full` without room for a second connection; when the database fails.
    pub(crate) async fn check_pooler(&self) -> Result<(), Fault> {
        let operation = Operation::OpenJournal;
        let failed = |failed: StatementError| failed.into_fault(&self.address, operation);
        let lane = self.write_lane(0);
        self.attempt(lane, "SELECT 1", &[], PATIENCE).await.map_err(failed)?;
        let mut transaction = self.exclusive(operation).await?;
        transaction.begin().await?;
        self.attempt(lane, "SELECT 1", &[], PATIENCE).await.map_err(failed)?;
        transaction.commit().await
    }

    /// A connection for a transaction, which no other caller uses meanwhile.
    ///
    /// # Errors
    /// `journal_busy` if no connection came about in time; else by the server's refusal.
    pub(crate) async fn exclusive(&self, operation: Operation) -> Result<Exclusive<'_>, Fault> {
        let mut retry = Retry::new(&self.address, operation);
        let mut place = self.exclusive.0.lock().await;
        loop {
            if self.is_closed.load(Ordering::Acquire) {
                return Err(Fault::new(Kind::ShuttingDown, operation));
            }
            if place.as_ref().is_some_and(|connection| !connection.is_closed()) {
                let address = &self.address;
                return Ok(Exclusive { place, address, operation, is_in_transaction: false });
            }
            match connection::connect(&self.address).await {
                Ok((connection, _)) => *place = Some(Arc::new(connection)),
                Err(fault) => retry.again(StatementError::NotSent(fault)).await?,
            }
        }
    }
}

impl Lane {
    fn in_flight(&self) -> usize {
        match self.0.try_lock() {
            Ok(place) => place.as_ref().map_or(0, |connection| connection.in_flight()),
            Err(_) => usize::MAX,
        }
    }
}

/// The pauses and the deadline of a statement that is repeated.
struct Retry<'a> {
    address: &'a Address,
    operation: Operation,
    deadline: Instant,
    pause: Duration,
    conflicts: u32,
}

impl<'a> Retry<'a> {
    fn new(address: &'a Address, operation: Operation) -> Self {
        let deadline = Instant::now() + PATIENCE;
        Self { address, operation, deadline, pause: PAUSE, conflicts: 0 }
    }

    fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now()).max(PAUSE)
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    /// The fault of this failure if there is no next attempt.
    async fn again(&mut self, failed: StatementError) -> Result<(), Fault> {
        self.conflicts += u32::from(failed.is_conflict());
        let may_repeat = match &failed {
            StatementError::Refused(_) => {
                failed.needs_other_server()
                    || failed.is_locked()
                    || (failed.is_conflict() && self.conflicts < 3)
            }
            StatementError::Unknown(_) => true,
            StatementError::NotSent(fault) => is_passing(fault),
        };
        if !may_repeat || Instant::now() + self.pause >= self.deadline {
            return Err(running_fault(failed, self.address, self.operation));
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(())
    }
}

/// Whether a journal in use waits for this to pass: its server is away, full, or not the primary yet.
pub(crate) fn is_passing(fault: &Fault) -> bool {
    matches!(
        fault.kind(),
        Kind::JournalUnreachable
            | Kind::JournalConnectionsFull
            | Kind::JournalBusy
            | Kind::JournalReadOnly
    )
}

/// The fault of a journal in use: a server that cannot be reached for now, or has no free connection, is busy and not
/// misconfigured.
pub(crate) fn running_fault(
    failed: StatementError,
    address: &Address,
    operation: Operation,
) -> Fault {
    match failed {
        StatementError::NotSent(fault)
            if [Kind::JournalUnreachable, Kind::JournalConnectionsFull].contains(&fault.kind()) =>
        {
            let cause = fault.causes().first().cloned().unwrap_or_default();
            errors::busy(address, operation, cause)
        }
        failed => failed.into_fault(address, operation),
    }
}

/// A connection in the hands of one caller.
pub(crate) struct Exclusive<'a> {
    place: MutexGuard<'a, Option<Arc<Connection>>>,
    address: &'a Address,
    operation: Operation,
    is_in_transaction: bool,
}

impl Drop for Exclusive<'_> {
    /// Closes the connection of a transaction that did not end, which rolls it back.
    fn drop(&mut self) {
        if self.is_in_transaction {
            *self.place = None;
        }
    }
}

impl Exclusive<'_> {
    /// The schema of the tables.
    pub(crate) fn schema(&self) -> String {
        self.address.schema.clone()
    }

    pub(crate) async fn begin(&mut self) -> Result<(), Fault> {
        self.is_in_transaction = true;
        self.execute("BEGIN; SET LOCAL lock_timeout = '10s'").await
    }

    pub(crate) async fn commit(&mut self) -> Result<(), Fault> {
        self.execute("COMMIT").await?;
        self.is_in_transaction = false;
        Ok(())
    }

    /// Runs a statement of the transaction. After a failure the connection is closed, which rolls it back.
    pub(crate) async fn query(
        &mut self,
        sql: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, Fault> {
        let connection = self.connection()?;
        let done = tokio::time::timeout(PATIENCE * 6, connection.query(sql, parameters)).await;
        self.finish(done.unwrap_or_else(|_| Err(StatementError::Unknown("no answer".into()))))
    }

    /// Runs statements without parameters.
    pub(crate) async fn execute(&mut self, sql: &str) -> Result<(), Fault> {
        let connection = self.connection()?;
        let done = tokio::time::timeout(PATIENCE * 6, connection.execute(sql)).await;
        self.finish(done.unwrap_or_else(|_| Err(StatementError::Unknown("no answer".into()))))
    }

    fn connection(&self) -> Result<Arc<Connection>, Fault> {
        let gone = || errors::busy(self.address, self.operation, "the connection ended");
        self.place.clone().ok_or_else(gone)
    }

    fn finish<T>(&mut self, done: Result<T, StatementError>) -> Result<T, Fault> {
        done.map_err(|failed| {
            *self.place = None;
            failed.into_fault(self.address, self.operation)
        })
    }
}
