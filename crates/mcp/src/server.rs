//! A server and its supervisor, which starts it, restarts it after a failure, and stops it.
//!
//! One task owns the connection. Handles read the tools, the state, and a generation that increases when the tools
//! change. A server that is down has no tools; calls to tools obtained earlier fail at once.

use std::{
    collections::BTreeSet,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use budao_core::{
    fault::{Fault, Operation},
    limits::Limits,
    tool::ToolSpec,
    world::World,
};
use budao_scrub::Scrubber;
use budao_tools::{Tool, Toolbox};
use tokio::sync::{Notify, broadcast, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    auth::TokenSource,
    config::McpServerConfig,
    connection::{ServerConnection, starting},
    era::Era,
    error::{FaultContext, ServerError},
    host,
    offer::{self, OfferedTools},
    process::{ConnectionContext, ProcessVariables},
    resources::{CHANGES_MAX, ResourceChange},
    sampling::SamplingMode,
    servers::ServerEnvironment,
    store::{self, ServerStore},
    subscription,
};

/// A handle to a server. Dropping the last handle stops the server.
#[derive(Debug)]
pub struct ServerHandle {
    pub(crate) shared: Arc<ServerShared>,
    stop: CancellationToken,
}

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// The program's name and version; `None` if it does not say.
    pub program: Option<String>,
    /// The protocol version that the connection uses.
    pub protocol: String,
}

/// The state of a server's connection.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerState {
    /// The first attempt to connect is running.
    Starting,
    /// The server is connected and its tools are listed.
    Ready {
        /// The number of tools offered, after `include`, `exclude` and validation.
        tools: usize,
    },
    /// The server is not connected.
    Down {
        /// The fault of the last attempt or connection.
        fault: Fault,
        /// The delay before the next attempt; `None` if only [`ServerHandle::restart`] starts one.
        again_in: Option<Duration>,
    },
    /// The server was stopped; this state is final.
    Stopped,
}

/// State shared by the handles, the tools and the supervisor.
#[derive(Debug)]
pub(crate) struct ServerShared {
    pub(crate) name: Arc<str>,
    pub(crate) scrubber: Scrubber,
    pub(crate) world: World,
    /// Sends changes of the server's resources.
    pub(crate) changes: broadcast::Sender<ResourceChange>,
    connected_tools: Mutex<ConnectedTools>,
    state: watch::Sender<ServerState>,
    /// Increases when tools change; shared by all servers of a [`crate::ServerSet`].
    generation: Arc<watch::Sender<u64>>,
    restart: Notify,
    /// What is remembered of the server between runs, under its key.
    store: Arc<ServerStore>,
    store_key: String,
    /// The answer to a question for roots.
    roots: serde_json::Value,
    /// Whether the server may ask for texts of the session's model.
    pub(crate) sampling: SamplingMode,
    /// The ids of the tasks that calls of this process follow.
    pub(crate) tasks: Mutex<BTreeSet<String>>,
}

#[derive(Debug, Default)]
struct ConnectedTools {
    connection: Option<Arc<ServerConnection>>,
    offered: OfferedTools,
}

impl ServerHandle {
    /// Starts a server and waits until it is ready. If the first attempt fails, the server is stopped.
    ///
    /// # Errors
    /// When the server cannot be started. The fault names its command or URL and carries its last stderr output.
    pub async fn connect(
        config: McpServerConfig,
        variables: &ProcessVariables,
        world: &World,
        limits: &Arc<Limits>,
    ) -> Result<Self, Fault> {
        let server = Self::open(config, variables, world, limits)?;
        match server.ready().await {
            Ok(()) => Ok(server),
            Err(fault) => {
                server.shutdown().await;
                Err(fault)
            }
        }
    }

    /// Starts a server without waiting. The supervisor retries according to the restart policy.
    ///
    /// # Errors
    /// When the configuration is invalid.
    pub fn open(
        config: McpServerConfig,
        variables: &ProcessVariables,
        world: &World,
        limits: &Arc<Limits>,
    ) -> Result<Self, Fault> {
        let environment = ServerEnvironment::new(variables, world, limits);
        Self::open_in(config, &environment, Arc::new(watch::Sender::new(0)))
    }

    pub(crate) fn open_in(
        config: McpServerConfig,
        environment: &ServerEnvironment,
        generation: Arc<watch::Sender<u64>>,
    ) -> Result<Self, Fault> {
        let ServerEnvironment { variables, world, limits, store, logins } = environment;
        config.check()?;
        let shared = Arc::new(ServerShared {
            name: config.name.as_str().into(),
            scrubber: config.scrubber(),
            world: world.clone(),
            changes: broadcast::Sender::new(CHANGES_MAX),
            connected_tools: Mutex::default(),
            state: watch::Sender::new(ServerState::Starting),
            generation,
            restart: Notify::new(),
            store: store.clone(),
            store_key: store::key(&config),
            roots: host::roots_answer(&config),
            sampling: config.sampling,
            tasks: Mutex::default(),
        });
        let stop = CancellationToken::new();
        let connection_context = ConnectionContext {
            server: shared.name.clone(),
            world: world.clone(),
            limits: limits.clone(),
            scrubber: shared.scrubber.clone(),
            variables: variables.clone(),
            token_source: TokenSource::of(&config, logins.as_ref(), world),
            changes: shared.changes.clone(),
            stop: stop.clone(),
        };
        let keeper = ServerSupervisor { config, shared: shared.clone(), connection_context };
        world.spawn.spawn(Box::pin(keeper.run()));
        Ok(Self { shared, stop })
    }

    /// The configured name, as in `mcp__name__tool`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The tools offered now; empty while the server is down.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.shared.lock().offered.tools.clone()
    }

    /// The tools offered now as a toolbox, with their schemas compiled; empty while the server is down.
    #[must_use]
    pub fn toolbox(&self) -> Toolbox {
        self.shared.lock().offered.toolbox.clone()
    }

    /// The server's own remarks for the model, as it wrote them; `None` if it made none or is down.
    #[must_use]
    pub fn instructions(&self) -> Option<String> {
        self.shared.connection()?.peer.peer_info()?.instructions.clone()
    }

    /// The name and version that the server gives itself, and the protocol version; `None` while it is down.
    #[must_use]
    pub fn about(&self) -> Option<ServerInfo> {
        let info = self.shared.connection()?.peer.peer_info()?;
        Some(ServerInfo {
            program: info.server_info.as_ref().map(|it| format!("{} {}", it.name, it.version)),
            protocol: info.protocol_version.to_string(),
        })
    }

    /// How connections to the server begin; `None` until the first one.
    #[must_use]
    pub fn era(&self) -> Option<Era> {
        self.shared.era()
    }

    /// Approves the tools as they are now. Returns the server's own names of those that had changed.
    pub fn approve(&self) -> Vec<String> {
        let changed: Vec<_> = {
            let connected_tools = self.shared.lock();
            let digests = connected_tools.offered.digests.iter();
            digests
                .filter(|(_, (_, is_changed))| *is_changed)
                .map(|(name, (digest, _))| (name.clone(), digest.clone()))
                .collect()
        };
        for (name, digest) in &changed {
            self.shared.approve(name, digest);
        }
        changed.into_iter().map(|(name, _)| name).collect()
    }

    /// The tools offered now, each with the server's own name for it.
    #[must_use]
    pub fn named_tools(&self) -> Vec<(String, Arc<dyn Tool>)> {
        let connected_tools = self.shared.lock();
        let offered = &connected_tools.offered;
        offered.server_tool_name.iter().cloned().zip(offered.tools.iter().cloned()).collect()
    }

    /// A fault for each tool that is not offered because its name or schema is invalid.
    #[must_use]
    pub fn refused(&self) -> Vec<Fault> {
        self.shared.lock().offered.refused.clone()
    }

    /// A number that increases whenever the tools change.
    #[must_use]
    pub fn generation(&self) -> u64 {
        *self.shared.generation.borrow()
    }

    /// Subscribes to [`ServerHandle::generation`].
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.shared.generation.subscribe()
    }

    /// The current state of the connection.
    #[must_use]
    pub fn state(&self) -> ServerState {
        self.shared.state.borrow().clone()
    }

    /// Subscribes to [`ServerHandle::state`].
    #[must_use]
    pub fn watch_state(&self) -> watch::Receiver<ServerState> {
        self.shared.state.subscribe()
    }

    /// The process id of a stdio server; `None` for an HTTP server and while the server is down.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.shared.connection()?.process_id()
    }

    /// Waits until the server is connected or the first attempt has failed.
    ///
    /// # Errors
    /// The fault of the failed attempt.
    pub async fn ready(&self) -> Result<(), Fault> {
        let mut state = self.shared.state.subscribe();
        // An error means that the supervisor has ended.
        let state = state.wait_for(|state| *state != ServerState::Starting).await;
        match state.map(|state| state.clone()) {
            Ok(ServerState::Down { fault, .. }) => Err(fault),
            Ok(ServerState::Ready { .. }) => Ok(()),
            Ok(ServerState::Starting | ServerState::Stopped) | Err(_) => {
                let fault_context =
                    FaultContext::bare(&self.shared.name, Operation::StartMcpServer);
                Err(ServerError::Down.fault(&fault_context))
            }
        }
    }

    /// Reconnects at once if the server is down, without waiting for the backoff.
    pub fn restart(&self) {
        self.shared.restart.notify_one();
    }

    /// Stops the server and waits until its process and connection are gone.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        let mut state = self.shared.state.subscribe();
        drop(state.wait_for(|state| *state == ServerState::Stopped).await);
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl ServerShared {
    /// The connection; `None` if the server is down.
    pub(crate) fn connection(&self) -> Option<Arc<ServerConnection>> {
        let connection = self.lock().connection.clone();
        connection.filter(|connection| !connection.closed.is_cancelled())
    }

    fn lock(&self) -> MutexGuard<'_, ConnectedTools> {
        self.connected_tools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the connection and its tools, and increases the generation if the tools differ.
    fn publish(&self, connection: Option<Arc<ServerConnection>>, offered: OfferedTools) {
        let has_changed = {
            let mut connected_tools = self.lock();
            let has_changed = specs(&connected_tools.offered.tools) != specs(&offered.tools);
            *connected_tools = ConnectedTools { connection, offered };
            has_changed
        };
        if has_changed {
            self.generation.send_modify(|generation| *generation += 1);
        }
    }

    /// The client's answer to a question for its directories.
    pub(crate) fn roots(&self) -> &serde_json::Value {
        &self.roots
    }

    fn era(&self) -> Option<Era> {
        self.store.get(&self.store_key).era
    }

    /// Remembers the era, or forgets it: the next connection asks again.
    fn set_era(&self, era: Option<Era>) {
        self.store.update(&self.store_key, |record| record.era = era);
    }

    /// The digests of the tools that were approved, by the server's own names.
    pub(crate) fn approved(&self) -> std::collections::BTreeMap<String, String> {
        self.store.get(&self.store_key).tools
    }

    /// Remembers the digests of tools that were seen for the first time.
    pub(crate) fn remember(&self, new: &[(String, String)]) {
        self.store.update(&self.store_key, |record| {
            for (tool, digest) in new {
                record.tools.entry(tool.clone()).or_insert_with(|| digest.clone());
            }
        });
    }

    /// Approves a tool that changed. The tools are listed again, so that it needs no further question.
    pub(crate) fn approve(&self, tool: &str, digest: &str) {
        self.store.update(&self.store_key, |record| {
            record.tools.insert(tool.to_owned(), digest.to_owned());
        });
        if let Some(connection) = self.connection() {
            connection.doubt.notify_one();
        }
    }

    fn set_state(&self, state: ServerState) {
        self.state.send_replace(state);
    }

    fn publish_change(&self, changes: ResourceChange) {
        // An error only means that there is no receiver.
        let _ = self.changes.send(changes);
    }
}

fn specs(tools: &[Arc<dyn Tool>]) -> Vec<Arc<ToolSpec>> {
    tools.iter().map(|tool| tool.spec()).collect()
}

/// The task that owns a server's connection.
struct ServerSupervisor {
    config: McpServerConfig,
    shared: Arc<ServerShared>,
    connection_context: ConnectionContext,
}

/// The reason why a connection ended.
enum ConnectionEnd {
    Stopped,
    Lost(Fault),
}

impl ServerSupervisor {
    async fn run(self) {
        let _stopped = StopNotifier(self.shared.clone());
        let mut failures = 0_u32;
        loop {
            let began = self.connection_context.world.clock.now();
            let fault = match self.connected_tools().await {
                ConnectionEnd::Stopped => return,
                ConnectionEnd::Lost(fault) => fault.scrub(&self.shared.scrubber),
            };
            // A server that fails soon after its start keeps its failure count, so that the backoff grows.
            let lasted = self.connection_context.world.clock.now().since(began);
            failures = if lasted > self.config.reconnect.max { 1 } else { failures + 1 };
            if !self.pause(fault, failures).await {
                return;
            }
        }
    }

    /// Runs one connection from its start to its end.
    async fn connected_tools(&self) -> ConnectionEnd {
        let known = self.shared.era();
        let opened = ServerConnection::open(&self.config, &self.connection_context, known).await;
        let connection = match opened {
            Ok(connection) => Arc::new(connection),
            Err(_) if self.connection_context.stop.is_cancelled() => return ConnectionEnd::Stopped,
            Err(fault) => return ConnectionEnd::Lost(fault),
        };
        self.shared.set_era(Some(connection.era));
        let end = self.attend(&connection).await;
        if connection.probe.is_late() {
            self.shared.set_era(None);
        }
        self.shared.publish(None, OfferedTools::default());
        self.shared.publish_change(ResourceChange::Listed);
        connection.close(&self.connection_context).await;
        end
    }

    /// Lists the tools again after each change, until the connection ends.
    async fn attend(&self, connection: &Arc<ServerConnection>) -> ConnectionEnd {
        if let Err(error) = self.list(connection, self.config.timeouts.start).await {
            return self.ended(connection, error).await;
        }
        self.shared.publish_change(ResourceChange::Listed);
        let mut stale = false;
        let world = &self.connection_context.world;
        let mut following = pin!(subscription::follow(connection, &self.shared.changes, world));
        loop {
            tokio::select! {
                biased;
                () = self.connection_context.stop.cancelled() => return ConnectionEnd::Stopped,
                () = connection.closed.cancelled() => return self.ended(connection, ServerError::Lost).await,
                () = connection.changed.notified() => {}
                () = connection.doubt.notified() => {}
                () = self.time_to_ask(connection, stale) => {}
                () = &mut following => {}
            }
            stale = match self.list(connection, self.config.timeouts.list).await {
                Ok(()) => false,
                // A slow answer must not end the connection while other calls are running on it.
                Err(error) if connection.outlives(&error) => {
                    let fault = error.fault(&self.listing());
                    tracing::warn!(
                        server = %self.shared.name, %fault,
                        "listing tools failed, keeping previous list"
                    );
                    true
                }
                Err(error) => return self.ended(connection, error).await,
            };
        }
    }

    /// Waits until the next periodic list. HTTP servers are polled: some send no change notifications, and a vanished
    /// server sends nothing.
    async fn time_to_ask(&self, connection: &ServerConnection, stale: bool) {
        let timeouts = &self.config.timeouts;
        let wait = if stale { Some(timeouts.list) } else { timeouts.refresh };
        match wait.filter(|_| stale || connection.is_remote()) {
            Some(wait) => self.connection_context.world.clock.sleep(wait).await,
            None => std::future::pending().await,
        }
    }

    async fn ended(&self, connection: &ServerConnection, error: ServerError) -> ConnectionEnd {
        if self.connection_context.stop.is_cancelled() {
            return ConnectionEnd::Stopped;
        }
        let fault = error.fault(&self.listing());
        ConnectionEnd::Lost(connection.last_words(fault, &self.connection_context.world).await)
    }

    /// Lists the tools and publishes them.
    async fn list(
        &self,
        connection: &Arc<ServerConnection>,
        limit: Duration,
    ) -> Result<(), ServerError> {
        let listed = tokio::select! {
            biased;
            () = self.connection_context.stop.cancelled() => return Err(ServerError::Lost),
            listed = connection.list(limit) => listed?,
            () = self.connection_context.world.clock.sleep(limit) => return Err(ServerError::TimedOut(limit)),
        };
        let facts = (connection.has_tasks(), connection.era == Era::Stateless);
        let to_offer = offer::select(&self.config, &self.shared, listed, facts);
        let count = to_offer.tools.len();
        tracing::debug!(server = %self.shared.name, tools = count, "tools listed");
        self.shared.publish(Some(connection.clone()), to_offer);
        self.shared.set_state(ServerState::Ready { tools: count });
        Ok(())
    }

    /// Waits for the backoff before the next attempt. Returns false if the server was stopped.
    async fn pause(&self, fault: Fault, failures: u32) -> bool {
        let policy = &self.config.reconnect;
        let again_in = (failures < policy.tries)
            .then(|| policy.delay(failures, self.connection_context.world.jitter()));
        tracing::warn!(server = %self.shared.name, %fault, retry_in = ?again_in, "server down");
        self.shared.set_state(ServerState::Down { fault, again_in });
        let wait = async {
            match again_in {
                Some(wait) => self.connection_context.world.clock.sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.connection_context.stop.cancelled() => false,
            () = self.shared.restart.notified() => true,
            () = wait => true,
        }
    }

    fn listing(&self) -> FaultContext<'_> {
        FaultContext {
            operation: Operation::DiscoverTools,
            ..starting(&self.config, &self.connection_context.limits)
        }
    }
}

/// Publishes the final state when the supervisor ends in any way, so that waiting callers return.
struct StopNotifier(Arc<ServerShared>);

impl Drop for StopNotifier {
    fn drop(&mut self) {
        self.0.publish(None, OfferedTools::default());
        self.0.set_state(ServerState::Stopped);
    }
}
