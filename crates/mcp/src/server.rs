//! A server and its supervisor, which starts it, restarts it after a failure, and stops it.
//!
//! One task owns the connection. Handles read the tools, the state, and a generation that increases when the tools
//! change. A server that is down has no tools; calls to tools obtained earlier fail at once.

use std::{
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
    config::McpServerConfig,
    connection::{ServerConnection, starting},
    error::{FaultContext, ServerError},
    process::ConnectionContext,
    resources::{NEWS_MAX, ResourceChange},
    tool::McpTool,
};

/// A handle to a server. Dropping the last handle stops the server.
#[derive(Debug)]
pub struct ServerHandle {
    pub(crate) shared: Arc<ServerShared>,
    stop: CancellationToken,
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
    pub(crate) news: broadcast::Sender<ResourceChange>,
    live: Mutex<ConnectedTools>,
    state: watch::Sender<ServerState>,
    /// Increases when tools change; shared by all servers of a [`crate::ServerSet`].
    generation: Arc<watch::Sender<u64>>,
    restart: Notify,
}

#[derive(Debug, Default)]
struct ConnectedTools {
    link: Option<Arc<ServerConnection>>,
    tools: Vec<Arc<dyn Tool>>,
    /// The server's own tool names, in the same order as `tools`.
    called: Vec<String>,
    refused: Vec<Fault>,
}

impl ServerHandle {
    /// Starts a server and waits until it is ready. If the first attempt fails, the server is stopped.
    ///
    /// # Errors
    /// When the server cannot be started. The fault names its command or URL and carries its last stderr output.
    pub async fn connect(
        config: McpServerConfig,
        world: &World,
        limits: &Arc<Limits>,
    ) -> Result<Self, Fault> {
        let server = Self::open(config, world, limits)?;
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
        world: &World,
        limits: &Arc<Limits>,
    ) -> Result<Self, Fault> {
        Self::open_in(config, world, limits, Arc::new(watch::Sender::new(0)))
    }

    pub(crate) fn open_in(
        config: McpServerConfig,
        world: &World,
        limits: &Arc<Limits>,
        generation: Arc<watch::Sender<u64>>,
    ) -> Result<Self, Fault> {
        config.check()?;
        let shared = Arc::new(ServerShared {
            name: config.name.as_str().into(),
            scrubber: config.scrubber(),
            world: world.clone(),
            news: broadcast::Sender::new(NEWS_MAX),
            live: Mutex::default(),
            state: watch::Sender::new(ServerState::Starting),
            generation,
            restart: Notify::new(),
        });
        let stop = CancellationToken::new();
        let around = ConnectionContext {
            server: shared.name.clone(),
            world: world.clone(),
            limits: limits.clone(),
            scrubber: shared.scrubber.clone(),
            news: shared.news.clone(),
            stop: stop.clone(),
        };
        let keeper = ServerSupervisor { config, shared: shared.clone(), around };
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
        self.shared.lock().tools.clone()
    }

    /// The tools offered now, each with the server's own name for it.
    #[must_use]
    pub fn named_tools(&self) -> Vec<(String, Arc<dyn Tool>)> {
        let live = self.shared.lock();
        live.called.iter().cloned().zip(live.tools.iter().cloned()).collect()
    }

    /// A fault for each tool that is not offered because its name or schema is invalid.
    #[must_use]
    pub fn refused(&self) -> Vec<Fault> {
        self.shared.lock().refused.clone()
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
        self.shared.link()?.process_id()
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
                let about = FaultContext::bare(&self.shared.name, Operation::StartMcpServer);
                Err(ServerError::Down.fault(&about))
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
    pub(crate) fn link(&self) -> Option<Arc<ServerConnection>> {
        let link = self.lock().link.clone();
        link.filter(|link| !link.gone.is_cancelled())
    }

    fn lock(&self) -> MutexGuard<'_, ConnectedTools> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the connection and its tools, and increases the generation if the tools differ.
    fn publish(&self, link: Option<Arc<ServerConnection>>, offered: OfferedTools) {
        let OfferedTools { tools, called, refused } = offered;
        let moved = {
            let mut live = self.lock();
            let moved = specs(&live.tools) != specs(&tools);
            *live = ConnectedTools { link, tools, called, refused };
            moved
        };
        if moved {
            self.generation.send_modify(|generation| *generation += 1);
        }
    }

    fn set_state(&self, state: ServerState) {
        self.state.send_replace(state);
    }

    fn publish_change(&self, news: ResourceChange) {
        // An error only means that there is no receiver.
        let _ = self.news.send(news);
    }
}

fn specs(tools: &[Arc<dyn Tool>]) -> Vec<Arc<ToolSpec>> {
    tools.iter().map(|tool| tool.spec()).collect()
}

/// The task that owns a server's connection.
struct ServerSupervisor {
    config: McpServerConfig,
    shared: Arc<ServerShared>,
    around: ConnectionContext,
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
            let began = self.around.world.clock.now();
            let fault = match self.live().await {
                ConnectionEnd::Stopped => return,
                ConnectionEnd::Lost(fault) => fault.scrub(&self.shared.scrubber),
            };
            // A server that fails soon after its start keeps its failure count, so that the backoff grows.
            let lasted = self.around.world.clock.now().since(began);
            failures = if lasted > self.config.reconnect.max { 1 } else { failures + 1 };
            if !self.pause(fault, failures).await {
                return;
            }
        }
    }

    /// Runs one connection from its start to its end.
    async fn live(&self) -> ConnectionEnd {
        let link = match ServerConnection::open(&self.config, &self.around).await {
            Ok(link) => Arc::new(link),
            Err(_) if self.around.stop.is_cancelled() => return ConnectionEnd::Stopped,
            Err(fault) => return ConnectionEnd::Lost(fault),
        };
        let end = self.attend(&link).await;
        self.shared.publish(None, OfferedTools::default());
        self.shared.publish_change(ResourceChange::Listed);
        link.close(&self.around).await;
        end
    }

    /// Lists the tools again after each change, until the connection ends.
    async fn attend(&self, link: &Arc<ServerConnection>) -> ConnectionEnd {
        if let Err(trouble) = self.list(link, self.config.timeouts.start).await {
            return self.ended(link, trouble).await;
        }
        self.shared.publish_change(ResourceChange::Listed);
        let mut stale = false;
        loop {
            tokio::select! {
                biased;
                () = self.around.stop.cancelled() => return ConnectionEnd::Stopped,
                () = link.gone.cancelled() => return self.ended(link, ServerError::Lost).await,
                () = link.changed.notified() => {}
                () = link.doubt.notified() => {}
                () = self.time_to_ask(link, stale) => {}
            }
            stale = match self.list(link, self.config.timeouts.list).await {
                Ok(()) => false,
                // A slow answer must not end the connection while other calls are running on it.
                Err(trouble) if link.outlives(&trouble) => {
                    let fault = trouble.fault(&self.listing());
                    tracing::warn!(
                        server = %self.shared.name, %fault,
                        "listing tools failed, keeping previous list"
                    );
                    true
                }
                Err(trouble) => return self.ended(link, trouble).await,
            };
        }
    }

    /// Waits until the next periodic list. HTTP servers are polled: some send no change notifications, and a vanished
    /// server sends nothing.
    async fn time_to_ask(&self, link: &ServerConnection, stale: bool) {
        let timeouts = &self.config.timeouts;
        let wait = if stale { Some(timeouts.list) } else { timeouts.refresh };
        match wait.filter(|_| stale || link.is_remote()) {
            Some(wait) => self.around.world.clock.sleep(wait).await,
            None => std::future::pending().await,
        }
    }

    async fn ended(&self, link: &ServerConnection, trouble: ServerError) -> ConnectionEnd {
        if self.around.stop.is_cancelled() {
            return ConnectionEnd::Stopped;
        }
        let fault = trouble.fault(&self.listing());
        ConnectionEnd::Lost(link.last_words(fault, &self.around.world).await)
    }

    /// Lists the tools and publishes them.
    async fn list(&self, link: &Arc<ServerConnection>, limit: Duration) -> Result<(), ServerError> {
        let listed = tokio::select! {
            biased;
            () = self.around.stop.cancelled() => return Err(ServerError::Lost),
            listed = link.list() => listed?,
            () = self.around.world.clock.sleep(limit) => return Err(ServerError::TimedOut(limit)),
        };
        let offered = self.offered(listed);
        let count = offered.tools.len();
        tracing::debug!(server = %self.shared.name, tools = count, "tools listed");
        self.shared.publish(Some(link.clone()), offered);
        self.shared.set_state(ServerState::Ready { tools: count });
        Ok(())
    }

    /// Selects the tools that the configuration admits and the toolbox accepts.
    fn offered(&self, listed: Vec<rmcp::model::Tool>) -> OfferedTools {
        let mut offered = OfferedTools::default();
        for tool in listed.into_iter().filter(|tool| self.config.takes(&tool.name)) {
            let called = tool.name.to_string();
            let tool: Arc<dyn Tool> =
                Arc::new(McpTool::new(tool, &self.config, self.shared.clone()));
            if offered.tools.iter().any(|other| other.spec().name == tool.spec().name) {
                tracing::warn!(
                    server = %self.shared.name, tool = %tool.spec().name,
                    "skipping duplicate tool"
                );
                continue;
            }
            match Toolbox::builder().add_shared(tool.clone()) {
                Ok(_) => {
                    offered.tools.push(tool);
                    offered.called.push(called);
                }
                Err(fault) => {
                    let fault = fault.via("mcp_server", &*self.shared.name);
                    tracing::warn!(server = %self.shared.name, %fault, "skipping tool");
                    offered.refused.push(fault);
                }
            }
        }
        offered
    }

    /// Waits for the backoff before the next attempt. Returns false if the server was stopped.
    async fn pause(&self, fault: Fault, failures: u32) -> bool {
        let policy = &self.config.reconnect;
        let again_in =
            (failures < policy.tries).then(|| policy.delay(failures, self.around.world.jitter()));
        tracing::warn!(server = %self.shared.name, %fault, retry_in = ?again_in, "server down");
        self.shared.set_state(ServerState::Down { fault, again_in });
        let wait = async {
            match again_in {
                Some(wait) => self.around.world.clock.sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.around.stop.cancelled() => false,
            () = self.shared.restart.notified() => true,
            () = wait => true,
        }
    }

    fn listing(&self) -> FaultContext<'_> {
        FaultContext {
            operation: Operation::DiscoverTools,
            ..starting(&self.config, &self.around.limits)
        }
    }
}

/// The tools to offer, and a fault for each rejected one.
#[derive(Debug, Default)]
struct OfferedTools {
    tools: Vec<Arc<dyn Tool>>,
    called: Vec<String>,
    refused: Vec<Fault>,
}

/// Publishes the final state when the supervisor ends in any way, so that waiting callers return.
struct StopNotifier(Arc<ServerShared>);

impl Drop for StopNotifier {
    fn drop(&mut self) {
        self.0.publish(None, OfferedTools::default());
        self.0.set_state(ServerState::Stopped);
    }
}
