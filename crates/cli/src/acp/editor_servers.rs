//! MCP servers an editor hands over for a session. They live as long as the editor has it open, and what
//! they were handed with (variables, headers) is in memory only.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use budao_acp::{Host, ServerTransport, ToolServer};
use budao_core::{
    event::SessionId,
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    world::World,
};
use budao_mcp::{McpServerConfig, ServerSet, Transport};
use budao_tools::Toolbox;

/// How long a session waits for its servers; those that are late join when they are there.
const READY: Duration = Duration::from_secs(5);

/// The servers of every session an editor has open.
#[derive(Debug)]
pub(crate) struct EditorServers {
    world: World,
    limits: Arc<Limits>,
    held: Mutex<EditorServersState>,
}

#[derive(Debug, Default)]
struct EditorServersState {
    sessions: BTreeMap<SessionId, Arc<ServerSet>>,
    /// Grows whenever servers come or go.
    changes: u64,
}

impl EditorServers {
    pub(crate) fn new(world: World, limits: Arc<Limits>) -> Self {
        Self { world, limits, held: Mutex::default() }
    }

    /// A toolbox with the tools of a session's servers besides its own.
    pub(crate) fn offer(&self, session: SessionId, base: &Toolbox) -> Result<Toolbox, Fault> {
        let servers = self.lock().sessions.get(&session).cloned();
        match servers {
            Some(servers) => base.with_all(servers.tools()),
            None => Ok(base.clone()),
        }
    }

    /// Moves whenever tools came or went.
    pub(crate) fn generation(&self) -> u64 {
        let held = self.lock();
        let moved: u64 = held.sessions.values().map(|servers| servers.generation()).sum();
        held.changes + moved
    }

    /// Ends all of them.
    pub(crate) async fn shutdown(&self) {
        let all = std::mem::take(&mut self.lock().sessions);
        futures::future::join_all(all.values().map(|servers| servers.shutdown())).await;
    }

    fn replace(
        &self,
        session: SessionId,
        servers: Option<Arc<ServerSet>>,
    ) -> Option<Arc<ServerSet>> {
        let mut held = self.lock();
        let before = match servers {
            Some(servers) => held.sessions.insert(session, servers),
            None => held.sessions.remove(&session),
        };
        // What a server counted so far must not be lost with it, or a change could go unnoticed.
        held.changes += 1 + before.as_ref().map_or(0, |servers| servers.generation());
        before
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, EditorServersState> {
        self.held.lock().expect("no code panics while holding this")
    }
}

#[async_trait]
impl Host for EditorServers {
    async fn tool_servers(
        &self,
        session: SessionId,
        servers: Vec<ToolServer>,
    ) -> Result<(), Fault> {
        let servers = if servers.is_empty() {
            None
        } else {
            let configs: Vec<McpServerConfig> = servers.into_iter().map(config).collect();
            let opened = Arc::new(ServerSet::open(configs, &self.world, &self.limits)?);
            for (name, fault) in opened.ready(&self.world, READY).await {
                tracing::warn!(name, %fault, "a tool server of the editor is not there yet");
            }
            Some(opened)
        };
        if let Some(before) = self.replace(session, servers) {
            before.shutdown().await;
        }
        Ok(())
    }

    async fn forget(&self, session: SessionId) {
        if let Some(servers) = self.replace(session, None) {
            servers.shutdown().await;
        }
    }

    async fn sign_in(&self, _: &str) -> Result<(), Fault> {
        let set = |name: &str| std::env::var(name).is_ok_and(|value| !value.is_empty());
        if set("ANTHROPIC_API_KEY") || set("OPENAI_API_KEY") {
            return Ok(());
        }
        Err(Fault::new(Kind::CredentialMissing, Operation::Authenticate)
            .with(Fact::Service, "anthropic")
            .with(Fact::RequiredConfig, vec!["ANTHROPIC_API_KEY".to_owned()]))
    }
}

/// An editor's server in our words. Editors name servers freely; tools need plain names.
fn config(server: ToolServer) -> McpServerConfig {
    let ToolServer { name, reach } = server;
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let name: String = name.chars().take(32).map(plain).collect();
    let secrets = |pairs: Vec<(String, String)>| {
        pairs.into_iter().map(|(name, value)| (name, value.into())).collect()
    };
    match reach {
        ServerTransport::Stdio { command, args, env } => {
            let mut config = McpServerConfig::stdio(name, command, args);
            if let Transport::Stdio(stdio) = &mut config.transport {
                stdio.env = secrets(env);
            }
            config
        }
        ServerTransport::Http { url, headers } => {
            let mut config = McpServerConfig::http(name, url);
            if let Transport::Http(address) = &mut config.transport {
                address.headers = secrets(headers);
            }
            config
        }
        ServerTransport::Sse { url, headers } => {
            let mut config = McpServerConfig::sse(name, url);
            if let Transport::Sse(address) = &mut config.transport {
                address.headers = secrets(headers);
            }
            config
        }
    }
}
