//! Several servers as one source of tools.

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
    server::{ServerHandle, ServerState},
};

/// The servers of a configuration. One that cannot be started costs the others nothing.
#[derive(Debug)]
pub struct ServerSet {
    servers: Vec<ServerHandle>,
    generation: Arc<watch::Sender<u64>>,
}

impl ServerSet {
    /// Starts every enabled server and does not wait for them.
    ///
    /// # Errors
    /// When a configuration cannot work, or two servers have the same name.
    pub fn open(
        configs: impl IntoIterator<Item = McpServerConfig>,
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
            .map(|config| ServerHandle::open_in(config, world, limits, generation.clone()))
            .collect::<Result<_, Fault>>()?;
        Ok(Self { servers, generation })
    }

    /// Waits until every server is there or has failed once, but no longer than `most`. What failed or is
    /// late is tried on in the background.
    pub async fn ready(&self, world: &World, most: Duration) -> Vec<(String, Fault)> {
        let tries = self.servers.iter().map(|server| async move {
            server.ready().await.err().map(|fault| (server.name().to_owned(), fault))
        });
        tokio::select! {
            biased;
            failed = join_all(tries) => failed.into_iter().flatten().collect(),
            () = world.clock.sleep(most) => self.down(),
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

    /// `base` with the tools of all servers as of now; tools of servers that were in it are replaced.
    ///
    /// # Errors
    /// When a tool is refused; those that would be are not among [`ServerSet::tools`].
    pub fn offer(&self, base: &Toolbox) -> Result<Toolbox, Fault> {
        use budao_core::tool::ToolOrigin;
        base.without(|spec| matches!(spec.source, ToolOrigin::Mcp { .. })).with_all(self.tools())
    }

    /// A number that moves whenever tools come or go.
    #[must_use]
    pub fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    /// Follows [`ServerSet::generation`].
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Every server.
    pub fn iter(&self) -> impl Iterator<Item = &ServerHandle> {
        self.servers.iter()
    }

    /// The server of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ServerHandle> {
        self.servers.iter().find(|server| server.name() == name)
    }

    /// Ends all of them, and waits until nothing of them is left.
    pub async fn shutdown(&self) {
        join_all(self.servers.iter().map(ServerHandle::shutdown)).await;
    }
}
