//! Several servers as one tool source.

use std::{sync::Arc, time::Duration};

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    world::World,
};
use budao_tools::{Tool, Toolbox};
use futures::future::join_all;
use tokio::sync::watch;

use crate::{
    config::McpServerConfig,
    process::ProcessVariables,
    server::{ServerHandle, ServerState},
};

/// The servers of a configuration. A server that fails to start does not affect the others.
#[derive(Debug)]
pub struct ServerSet {
    servers: Vec<ServerHandle>,
    generation: Arc<watch::Sender<u64>>,
}

impl ServerSet {
    /// Starts every enabled server without waiting.
    ///
    /// # Errors
    /// When a configuration is invalid, or two servers have the same name.
    pub fn open(
        configs: impl IntoIterator<Item = McpServerConfig>,
        variables: &ProcessVariables,
        world: &World,
        limits: &Arc<Limits>,
    ) -> Result<Self, Fault> {
        let configs: Vec<McpServerConfig> =
            configs.into_iter().filter(|config| config.enabled).collect();
        for (index, config) in configs.iter().enumerate() {
            config.check()?;
            if configs[..index].iter().any(|other| other.name == config.name) {
                return Err(Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
                    .with(Fact::ConfigKey, "mcp.name")
                    .with(Fact::Expected, "a name no other server has")
                    .with(Fact::Received, config.name.clone()));
            }
        }
        let generation = Arc::new(watch::Sender::new(0));
        let servers = configs
            .into_iter()
            .map(|config| {
                ServerHandle::open_in(config, variables, world, limits, generation.clone())
            })
            .collect::<Result<_, Fault>>()?;
        Ok(Self { servers, generation })
    }

    /// Waits until every server is connected or has failed once, at most for `limit`. Returns the name and fault of each
    /// server that has failed. Supervisors keep trying to connect failed and late servers.
    pub async fn ready(&self, world: &World, limit: Duration) -> Vec<(String, Fault)> {
        let tries = self.servers.iter().map(|server| async move {
            server.ready().await.err().map(|fault| (server.name().to_owned(), fault))
        });
        tokio::select! {
            biased;
            failed = join_all(tries) => failed.into_iter().flatten().collect(),
            () = world.clock.sleep(limit) => self.down(),
        }
    }

    fn down(&self) -> Vec<(String, Fault)> {
        let down = |server: &ServerHandle| match server.state() {
            ServerState::Down { fault, .. } => Some((server.name().to_owned(), fault)),
            ServerState::Starting | ServerState::Ready { .. } | ServerState::Stopped => None,
        };
        self.servers.iter().filter_map(down).collect()
    }

    /// The tools of all servers, in the order of configuration.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.servers.iter().flat_map(ServerHandle::tools).collect()
    }

    /// Returns `base` with the current tools of all servers in place of the MCP tools it had.
    ///
    /// # Errors
    /// When the toolbox refuses a tool. Tools with an invalid name or schema are not in [`ServerSet::tools`].
    pub fn offer(&self, base: &Toolbox) -> Result<Toolbox, Fault> {
        use budao_core::tool::ToolOrigin;
        base.without(|spec| matches!(spec.source, ToolOrigin::Mcp { .. })).with_all(self.tools())
    }

    /// A number that increases whenever the tools of any server change.
    #[must_use]
    pub fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    /// Subscribes to [`ServerSet::generation`].
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Iterates over the servers in the order of configuration.
    pub fn iter(&self) -> impl Iterator<Item = &ServerHandle> {
        self.servers.iter()
    }

    /// The server with this name; `None` if it is not configured or not enabled.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ServerHandle> {
        self.servers.iter().find(|server| server.name() == name)
    }

    /// Stops all servers and waits until their processes and connections are gone.
    pub async fn shutdown(&self) {
        join_all(self.servers.iter().map(ServerHandle::shutdown)).await;
    }
}
