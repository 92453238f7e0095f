//! Opens a journal: checks the server, creates or upgrades the tables, starts the tasks.

use std::sync::Arc;

use budao_core::{
    fault::{Fault, Kind, Operation},
    limits::Limits,
    world::World,
};
use budao_journal::{Access, implement::Notifier};
use tokio::sync::mpsc;
use tokio_postgres::config::TargetSessionAttrs;

use crate::{
    address::{self, Address},
    backend::Credentials,
    cohort, connection, errors,
    notify::NotifyTransport,
    pool::{LANES, Pool},
    schema::{self, SchemaContent},
    settings::{self, Purpose},
    shared::{LeaseClock, PostgresShared, TaskGuard},
    wake::{Announcer, WakeTransport},
};

/// Renewals that wait for the next statement.
const RENEWALS: usize = 4096;

/// Settings of a journal on PostgreSQL.
#[derive(Clone, Debug, Default)]
pub struct PostgresOptions {
    /// Limits shared with the other crates.
    pub limits: Limits,
    /// Whose clock decides about leases; only tests need another than the database's.
    pub clock: LeaseClock,
    /// What carries wake-ups to other processes; `None` for the database's own notifications.
    pub wake: Option<Arc<dyn WakeTransport>>,
}

/// A journal on PostgreSQL. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Postgres {
    pub(crate) shared: Arc<PostgresShared>,
    pub(crate) tasks: Arc<TaskGuard>,
}

impl Postgres {
    /// Opens the journal at an address.
    ///
    /// # Errors
    /// `configuration_wrong` for the address; `journal_unreachable`, `journal_login_refused`, `journal_no_database`,
    /// `journal_no_rights`, `journal_not_trusted`, `journal_connections_full`, `journal_setting_unsafe`,
    /// `journal_read_only`, `not_a_journal`, `journal_newer`; `no_journal` unless one may be created. Nothing is
    /// created then.
    pub async fn open(
        url: &str,
        access: Access,
        credentials: &Credentials,
        world: World,
        options: PostgresOptions,
    ) -> Result<Self, Fault> {
        let mut address = address::parse(url, credentials)?;
        let purpose = if access == Access::ReadOnly { Purpose::Read } else { Purpose::Write };
        if purpose == Purpose::Read {
            address.config.target_session_attrs(TargetSessionAttrs::Any);
        }
        let address = Arc::new(address);
        let pool = connect(&address, purpose).await?;
        let content = inspect(&pool).await?;
        let journal = match (content, access) {
            (SchemaContent::Journal(found), Access::ReadOnly) => found.journal,
            (SchemaContent::Journal(found), _) if found.version >= schema::VERSION => found.journal,
            (SchemaContent::Nothing, Access::Existing | Access::ReadOnly) => {
                return Err(errors::fault(&address, Kind::NoJournal, Operation::OpenJournal));
            }
            _ => schema::migrate(&pool).await?,
        };
        let transport = options
            .wake
            .clone()
            .unwrap_or_else(|| Arc::new(NotifyTransport::new(address, journal)));
        let (shared, renewals) = shared(pool, world, &options, purpose);
        if purpose == Purpose::Write {
            shared.pool.check_pooler().await?;
            cohort::make_ahead(&shared.pool, cohort::day_of(shared.now())).await?;
            shared.notice_replacement().await?;
        }
        let tasks = Arc::new(TaskGuard::default());
        start(&shared, &tasks, renewals, transport);
        Ok(Self { shared, tasks })
    }
}

/// Connects and checks the server.
pub(crate) async fn connect(address: &Arc<Address>, purpose: Purpose) -> Result<Pool, Fault> {
    let (connection, _) = connection::connect(address).await?;
    let pool = Pool::new(Arc::clone(address), connection);
    let mut exclusive = pool.exclusive(Operation::OpenJournal).await?;
    settings::check(&mut exclusive, address, purpose).await?;
    drop(exclusive);
    Ok(pool)
}

/// What the schema holds, if this version can use it.
pub(crate) async fn inspect(pool: &Pool) -> Result<SchemaContent, Fault> {
    let mut exclusive = pool.exclusive(Operation::OpenJournal).await?;
    let content = schema::inspect(&mut exclusive, &pool.address().schema).await?;
    schema::refuse(content, pool.address())?;
    Ok(content)
}

fn shared(
    pool: Pool,
    world: World,
    options: &PostgresOptions,
    purpose: Purpose,
) -> (Arc<PostgresShared>, mpsc::Receiver<crate::lease::Renewal>) {
    let (renewals, receiver) = mpsc::channel(RENEWALS);
    let node = (world.entropy.bits() >> 33) as i32;
    let shared = PostgresShared {
        pool,
        world,
        limits: options.limits.clone(),
        clock: options.clock,
        purpose,
        notifier: Arc::<Notifier>::default(),
        announcer: Announcer::default(),
        appends: Default::default(),
        renewals,
        sessions: Default::default(),
        cohorts: Default::default(),
        written: Default::default(),
        node,
        commits: Default::default(),
    };
    (Arc::new(shared), receiver)
}

fn start(
    shared: &Arc<PostgresShared>,
    tasks: &TaskGuard,
    renewals: mpsc::Receiver<crate::lease::Renewal>,
    transport: Arc<dyn WakeTransport>,
) {
    let (listening, wake) = (Arc::clone(shared), Arc::clone(&transport));
    tasks.spawn(async move { listening.listen(wake).await });
    let comparing = Arc::clone(shared);
    tasks.spawn(async move { comparing.compare_regularly().await });
    if shared.purpose == Purpose::Read {
        return;
    }
    for lane in 0..LANES {
        tasks.spawn(Arc::clone(shared).write_appends(lane));
    }
    let renewing = Arc::clone(shared);
    tasks.spawn(async move { renewing.renew_gathered(renewals).await });
    let projecting = Arc::clone(shared);
    tasks.spawn(async move { projecting.project_regularly().await });
    let announcing = Arc::clone(shared);
    let node = shared.node;
    tasks.spawn(async move { announcing.announcer.send_gathered(transport, node).await });
}
