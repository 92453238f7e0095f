//! The workers of a server: offers, connections and open calls, and the tools that follow from them.

mod call_handle;
mod catalog;
mod claims;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use budao_core::{
    event::{SessionId, Settings},
    fault::Fault,
    remote::{OfferedTool, ToolRoute},
    time::Timestamp,
    world::World,
};
use budao_journal::Cluster;
use budao_tools::{Tool, Toolbox};

use crate::{
    calls::{CallKey, WorkerMessage},
    limits::WorkerLimits,
    offers::{OfferScope, TenantTools, WorkerOffer},
    peer_notes::OwnNote,
    roster::{Deliveries, ProcessKey, Roster, RosterProcess},
    tool::RemoteTool,
};
pub(crate) use call_handle::CallHandle;
pub use claims::ClaimCheck;
use claims::check_process;
pub(crate) use claims::not_open;

/// Sends messages to one connected worker.
pub trait WorkerLink: Send + Sync + fmt::Debug {
    /// Sends without waiting. A connection that cannot keep up is closed by its gateway.
    fn deliver(&self, message: WorkerMessage);

    /// The number of the connection on this server. A connection that opened later has a greater one.
    fn number(&self) -> u64;
}

/// The clock, the bounds and the store of a server's workers.
#[derive(Debug)]
pub struct WorkersConfig {
    /// The clock and the spawner.
    pub world: World,
    /// The bounds for each tenant.
    pub limits: WorkerLimits,
    /// Stores the tools of each tenant; `None` forgets them with the process.
    pub store: Option<Arc<dyn Cluster>>,
    /// Names of the server's own tools, as names or `prefix*`; no worker may offer them.
    pub reserved: Vec<String>,
}

/// The user who offers, and the names that the user may offer to all sessions of the tenant.
#[derive(Clone, Debug)]
pub struct WorkerIdentity {
    /// The tenant of the sessions.
    pub tenant: String,
    /// The user, as `tenant/user`.
    pub user: String,
    /// Names or `prefix*`; `None` permits every name.
    pub patterns: Option<Vec<String>>,
}

impl WorkerIdentity {
    /// The process of this user with this id.
    pub(crate) fn process(&self, id: &str) -> ProcessKey {
        ProcessKey {
            tenant: self.tenant.as_str().into(),
            owner: self.user.as_str().into(),
            id: id.into(),
        }
    }
}

/// Names the process that a frame is about, and the connection that the frame came on.
#[derive(Clone, Copy, Debug)]
pub struct ProcessRef<'a> {
    /// The tenant of the connection.
    pub tenant: &'a str,
    /// The user of the connection, as `tenant/user`.
    pub user: &'a str,
    /// The id of the connection.
    pub connection: &'a str,
    /// The id of the process that the frame names.
    pub worker_id: &'a str,
}

impl ProcessRef<'_> {
    pub(crate) fn key(self) -> ProcessKey {
        let (tenant, owner) = (self.tenant.into(), self.user.into());
        ProcessKey { tenant, owner, id: self.worker_id.into() }
    }
}

/// A process as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerView {
    /// The name that all processes of the worker share.
    pub worker: String,
    /// The id of the process.
    pub worker_id: String,
    /// The user who offers, as `tenant/user`.
    pub owner: String,
    /// The session that the offer is for; `None` for all sessions of the tenant.
    pub session: Option<SessionId>,
    /// Whether the process is connected.
    pub is_connected: bool,
    /// Whether it takes no new calls.
    pub is_draining: bool,
    /// Calls that it holds.
    pub held: usize,
    /// The most calls that it holds at the same time.
    pub capacity: usize,
    /// Its tools, with their versions.
    pub tools: Vec<(String, String)>,
}

/// Counts of workers and calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Processes that are connected now.
    pub connected: usize,
    /// Calls that are open now.
    pub open: usize,
    /// Calls since the server started.
    pub opened: u64,
}

/// All workers of a server. Clones refer to the same workers.
#[derive(Clone)]
pub struct Workers(Arc<WorkersState>);

struct WorkersState {
    config: WorkersConfig,
    roster: Mutex<Roster>,
    /// The tools of each tenant that was asked for, with the version of its note.
    catalogs: tokio::sync::Mutex<BTreeMap<String, (u64, TenantTools)>>,
    generation: AtomicU64,
    calls: AtomicU64,
    /// When the tools of connected processes were last noted in the journal.
    seen: Mutex<Timestamp>,
    /// The note for other servers as last written.
    note: tokio::sync::Mutex<OwnNote>,
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").finish_non_exhaustive()
    }
}

impl Workers {
    /// Workers of a server; none is connected yet.
    #[must_use]
    pub fn new(config: WorkersConfig) -> Self {
        let seen = Mutex::new(config.world.clock.now());
        Self(Arc::new(WorkersState {
            config,
            roster: Mutex::default(),
            catalogs: tokio::sync::Mutex::default(),
            generation: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            seen,
            note: tokio::sync::Mutex::default(),
        }))
    }

    /// The bounds for each tenant.
    #[must_use]
    pub fn limits(&self) -> &WorkerLimits {
        &self.0.config.limits
    }

    pub(crate) fn roster(&self) -> MutexGuard<'_, Roster> {
        self.0.roster.lock().expect("no code panics while holding this")
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.config.world.clock.now()
    }

    pub(crate) fn send(deliveries: Deliveries) {
        for (link, message) in deliveries {
            link.deliver(message);
        }
    }

    pub(crate) fn store_of_notes(&self) -> Option<&Arc<dyn Cluster>> {
        self.0.config.store.as_ref()
    }

    pub(crate) fn own_note(&self) -> &tokio::sync::Mutex<OwnNote> {
        &self.0.note
    }

    /// Connects a process whose offer was checked. What it held and does not declare is lost; waiting calls are offered.
    /// An offer that a newer connection of the process outran has no effect.
    pub fn connect(
        &self,
        identity: &WorkerIdentity,
        scope: OfferScope,
        offer: &WorkerOffer,
        (connection, link): (&str, Arc<dyn WorkerLink>),
    ) {
        let id = identity.process(&offer.worker_id);
        let declared =
            offer.holding.iter().take(self.limits().capacity).map(|held| {
                (CallKey { session: held.session, call: held.call.clone() }, held.attempt)
            });
        let mut roster = self.roster();
        let now = self.now();
        let worker = roster
            .processes
            .entry(id.clone())
            .or_insert_with(|| RosterProcess::absent(&offer.worker, now));
        if worker.newest > link.number() {
            return;
        }
        worker.newest = link.number();
        worker.name.clone_from(&offer.worker);
        worker.scope = scope;
        worker.tools = offer.tools.iter().map(|it| (it.name.clone(), it.version())).collect();
        worker.capacity = offer.capacity;
        worker.is_draining = false;
        let is_same = worker.link.as_ref().is_some_and(|(known, _)| known == connection);
        (worker.link, worker.gone) = (Some((connection.to_owned(), link)), None);
        let lost = match is_same {
            true => Vec::new(),
            false => worker.declare(declared.collect()),
        };
        for key in &lost {
            roster.lose(key, &id);
        }
        let mut out = Deliveries::new();
        roster.dispatch_to(&id, &mut out);
        drop(roster);
        tracing::info!(
            tenant = identity.tenant,
            worker = offer.worker,
            worker_id = offer.worker_id,
            tools = offer.tools.len(),
            lost = lost.len(),
            "worker connected"
        );
        Self::send(out);
    }

    /// Ends a connection. Its processes keep their claims for the grace, then the claims are lost.
    pub fn disconnect(&self, connection: &str) {
        let now = self.now();
        let (out, gone) = self.roster().disconnect(connection, now);
        Self::send(out);
        for id in gone {
            tracing::info!(tenant = %id.tenant, worker_id = %id.id, "worker disconnected");
            self.expire_later(id, now);
        }
    }

    pub(crate) fn expire_later(&self, id: ProcessKey, gone: Timestamp) {
        let (workers, world) = (self.clone(), &self.0.config.world);
        let sleep = world.clock.sleep(self.limits().grace);
        world.spawn.spawn(Box::pin(async move {
            sleep.await;
            workers.roster().expire(&id, gone);
        }));
    }

    /// Gives a process no new calls. It finishes what it holds.
    ///
    /// # Errors
    /// The connection has offered nothing with this id.
    pub fn drain(&self, process: ProcessRef<'_>) -> Result<usize, Fault> {
        let mut roster = self.roster();
        let id = check_process(&roster, process)?;
        let Some(worker) = roster.processes.get_mut(&id) else { return Ok(0) };
        worker.is_draining = true;
        Ok(worker.held.len())
    }

    /// A number that changes whenever the tools of a tenant change.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Relaxed)
    }

    /// Adds the tools that workers offer to this session. The server's own tools keep their names.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub async fn add_tools(&self, settings: &Settings, toolbox: Toolbox) -> Result<Toolbox, Fault> {
        let tenant: Arc<str> = settings.tenant().into();
        let known = self.catalog(&tenant).await?;
        let mut tools: BTreeMap<String, Arc<dyn Tool>> = BTreeMap::new();
        let mut add = |worker: &str, version: &str, offered: &OfferedTool| {
            let tool = RemoteTool::new(self, Arc::clone(&tenant), worker, version, offered);
            tools.entry(offered.name.clone()).or_insert_with(|| Arc::new(tool));
        };
        for tool in known.tools.values() {
            if let Some((version, offered)) = tool.newest() {
                add(&tool.worker, version, offered);
            }
        }
        for offer in &settings.offers {
            offer.tools.iter().for_each(|tool| add(&offer.worker, &tool.version(), tool));
        }
        tools.retain(|name, _| toolbox.spec(name).is_none());
        if tools.is_empty() {
            return Ok(toolbox);
        }
        toolbox.with_all(tools.into_values())
    }

    /// A toolbox with the version of a tool that a started call was checked against; `None` if it is forgotten.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub async fn routed(
        &self,
        settings: &Settings,
        tool: &str,
        route: &ToolRoute,
    ) -> Result<Option<Toolbox>, Fault> {
        let tenant: Arc<str> = settings.tenant().into();
        let known = self.catalog(&tenant).await?;
        let of_tenant = known.tools.get(tool).and_then(|known| known.version(&route.version));
        let of_session = || {
            let tools = settings.offers.iter().flat_map(|offer| &offer.tools);
            tools.into_iter().find(|it| it.name == tool && it.version() == route.version)
        };
        let Some(offered) = of_tenant.map(|tool| &**tool).or_else(of_session) else {
            return Ok(None);
        };
        let tool = RemoteTool::new(self, tenant, &route.worker, &route.version, offered);
        Toolbox::builder().add(tool).map(|builder| Some(builder.build()))
    }

    /// The processes of a tenant, or of all tenants, for people.
    #[must_use]
    pub fn list(&self, tenant: Option<&str>) -> Vec<WorkerView> {
        let roster = self.roster();
        // A process that has not offered here has no capacity: it claimed a call on another server.
        let shown = roster.processes.iter().filter(|(id, worker)| {
            tenant.is_none_or(|tenant| *id.tenant == *tenant) && worker.capacity > 0
        });
        shown
            .map(|(id, worker)| WorkerView {
                worker: worker.name.clone(),
                worker_id: id.id.to_string(),
                owner: id.owner.to_string(),
                session: match worker.scope {
                    OfferScope::Tenant => None,
                    OfferScope::Session(session) => Some(session),
                },
                is_connected: worker.link.is_some(),
                is_draining: worker.is_draining,
                held: worker.held.len(),
                capacity: worker.capacity,
                tools: worker.tools.clone().into_iter().collect(),
            })
            .collect()
    }

    /// The tools of a tenant with their workers, in their newest version.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub async fn tools(
        &self,
        tenant: &str,
    ) -> Result<Vec<(String, String, Arc<OfferedTool>)>, Fault> {
        let known = self.catalog(tenant).await?;
        let newest = |tool: &crate::offers::KnownTool| {
            let (version, offered) = tool.newest()?;
            Some((tool.worker.clone(), version.clone(), Arc::clone(offered)))
        };
        Ok(known.tools.values().filter_map(newest).collect())
    }

    /// Counts for metrics.
    #[must_use]
    pub fn counts(&self) -> WorkerCounts {
        let roster = self.roster();
        let connected = roster.processes.values().filter(|worker| worker.link.is_some()).count();
        let opened = self.0.calls.load(Ordering::Relaxed);
        WorkerCounts { connected, open: roster.calls.len(), opened }
    }
}
