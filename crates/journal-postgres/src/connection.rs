//! One connection to the database: prepared statements, notices and notifications.
//!
//! A statement is written with `@name` for a table of the journal's schema, so that no connection depends on a
//! `search_path`. No statement is ever cancelled: a cancelled wait for a standby would count as success.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use budao_core::fault::{Fact, Fault, Kind, Operation};
use futures::stream::{self, StreamExt as _};
use tokio::sync::mpsc;
use tokio_postgres::{
    AsyncMessage, Client, NoTls, Row, Socket, Statement,
    tls::MakeTlsConnect,
    types::{ToSql, Type},
};

use crate::{
    address::{Address, TlsMode},
    errors::{self, StatementError},
    tls::VerifiedTls,
};

/// Notifications that wait for the listener; beyond it they are dropped and the heads compared instead.
const NOTIFICATIONS: usize = 1024;

/// Setup of a connection that runs the journal's statements. Generic plans: planning an append anew costs three times
/// its execution. A short wait for locks: one locked session holds up a group of appends no longer than this.
const SETUP: &str = "SET plan_cache_mode = force_generic_plan; SET lock_timeout = '1s'; \
                     SET idle_in_transaction_session_timeout = '60s'";

/// The parameters of a statement.
pub(crate) type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// An open connection. Statements of several callers are pipelined.
pub(crate) struct Connection {
    client: Client,
    /// The quoted schema with a dot, the replacement of `@`.
    schema: Arc<str>,
    prepared: Mutex<HashMap<&'static str, Statement>>,
    in_flight: AtomicUsize,
    /// Commits that the server reported as not confirmed by a standby.
    unconfirmed: Arc<AtomicU64>,
}

/// Counts a statement as in flight until it is dropped.
struct InFlight<'a>(&'a AtomicUsize);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The quoted schema with a dot.
pub(crate) fn prefix(schema: &str) -> Arc<str> {
    format!("\"{schema}\".").into()
}

/// Connects with the address's TLS mode.
///
/// # Errors
/// `journal_unreachable`, `journal_login_refused` and others, by cause.
pub(crate) async fn connect(
    address: &Address,
) -> Result<(Connection, mpsc::Receiver<String>), Fault> {
    match &address.tls {
        TlsMode::Disabled => connect_with(address, NoTls).await,
        TlsMode::Verified(root) => {
            let tls = VerifiedTls::new(root.as_deref()).map_err(|error| {
                errors::fault(address, Kind::JournalNotTrusted, Operation::OpenJournal)
                    .caused_by(&error)
            })?;
            connect_with(address, tls).await
        }
    }
}

async fn connect_with<T>(
    address: &Address,
    tls: T,
) -> Result<(Connection, mpsc::Receiver<String>), Fault>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    // The driver's own timeout covers the socket alone, not the login.
    let limit = address.config.get_connect_timeout().copied().unwrap_or_default() * 2;
    let connecting = tokio::time::timeout(limit, address.config.connect(tls)).await;
    let Ok(connected) = connecting else {
        return Err(errors::fault(address, Kind::JournalUnreachable, Operation::OpenJournal)
            .with(Fact::Host, address.hosts())
            .with_cause("no answer to the login in time"));
    };
    let (client, mut driver) = connected.map_err(|error| errors::not_connected(address, &error))?;
    let unconfirmed = Arc::new(AtomicU64::new(0));
    let (sender, receiver) = mpsc::channel(NOTIFICATIONS);
    let counter = Arc::clone(&unconfirmed);
    tokio::spawn(async move {
        let mut messages = stream::poll_fn(move |context| driver.poll_message(context));
        while let Some(Ok(message)) = messages.next().await {
            take_message(message, &counter, &sender);
        }
    });
    let connection = Connection {
        client,
        schema: prefix(&address.schema),
        prepared: Mutex::default(),
        in_flight: AtomicUsize::new(0),
        unconfirmed,
    };
    let setup = connection.client.batch_execute(SETUP).await;
    setup.map_err(|error| errors::not_connected(address, &error))?;
    Ok((connection, receiver))
}

fn take_message(message: AsyncMessage, unconfirmed: &AtomicU64, sender: &mpsc::Sender<String>) {
    match message {
        AsyncMessage::Notice(notice) if notice.message().contains("synchronous replication") => {
            unconfirmed.fetch_add(1, Ordering::AcqRel);
            tracing::warn!(notice = notice.message(), "commit not confirmed by a standby");
        }
        // A full channel loses a wake-up; the comparison of heads finds what it announced.
        AsyncMessage::Notification(told) => drop(sender.try_send(told.payload().to_owned())),
        _ => {}
    }
}

impl Connection {
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// The number of statements without an answer.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    /// Replaces `@` by the schema.
    pub(crate) fn qualify(&self, sql: &str) -> String {
        sql.replace('@', &self.schema)
    }

    fn begin(&self) -> InFlight<'_> {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        InFlight(&self.in_flight)
    }

    /// Runs a statement, which commits by itself.
    ///
    /// # Errors
    /// [`StatementError::Unknown`] also for a commit that no standby confirmed.
    pub(crate) async fn query(
        &self,
        sql: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, StatementError> {
        let _in_flight = self.begin();
        let before = self.unconfirmed.load(Ordering::Acquire);
        let statement = self.prepare_cached(sql).await?;
        let rows = self.client.query(&statement, parameters).await?;
        if self.unconfirmed.load(Ordering::Acquire) != before {
            let cause = "the wait for a standby was cancelled on the server";
            return Err(StatementError::Unknown(cause.into()));
        }
        Ok(rows)
    }

    /// Runs a statement that is planned for its parameters: for searches.
    pub(crate) async fn search(
        &self,
        sql: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, StatementError> {
        let _in_flight = self.begin();
        Ok(self.client.query_typed(&self.qualify(sql), parameters).await?)
    }

    /// Runs statements without parameters.
    pub(crate) async fn execute(&self, sql: &str) -> Result<(), StatementError> {
        let _in_flight = self.begin();
        Ok(self.client.batch_execute(&self.qualify(sql)).await?)
    }

    async fn prepare_cached(&self, sql: &'static str) -> Result<Statement, StatementError> {
        if let Some(statement) = lock(&self.prepared).get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(&self.qualify(sql)).await?;
        lock(&self.prepared).insert(sql, statement.clone());
        Ok(statement)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

/// Locks a mutex; a panic of another holder leaves no half-made state here.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
