//! MCP servers and documents of the editor that has a session open. The servers run while the editor has the session open. Their variables
//! and headers may be secrets and stay in memory only.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use budao_acp::{EditorFiles, EditorServices, ServerTransport, ToolServer};
use budao_core::{
    event::SessionId,
    fault::{Fact, Fault, Kind, Operation},
};
use budao_mcp::{McpServerConfig, ServerEnvironment, ServerSet, Transport};
use budao_models::Vendor;
use budao_tools::{Toolbox, builtin::EditorDocuments};

use super::editor_documents::SessionDocuments;

/// Time a session waits for its servers to start; slower ones join later.
const READY: Duration = Duration::from_secs(5);

/// Time a session waits for the servers of the configuration.
const CONFIGURED_READY: Duration = Duration::from_secs(1);

/// Characters of a name that stay when it gets an ending.
const NAME_HEAD: usize = 24;

/// The MCP servers of every session that an editor has open.
#[derive(Debug)]
pub(crate) struct EditorServers {
    environment: ServerEnvironment,
    configured: Arc<ServerSet>,
    held: Mutex<EditorServersState>,
}

#[derive(Debug, Default)]
struct EditorServersState {
    sessions: BTreeMap<SessionId, Arc<ServerSet>>,
    documents: BTreeMap<SessionId, Arc<dyn EditorDocuments>>,
    /// Incremented whenever a session's servers or documents are added, replaced or removed.
    changes: u64,
}

impl EditorServers {
    /// `configured` are the servers of the configuration; a session is told if one of them has failed.
    pub(crate) fn new(environment: ServerEnvironment, configured: Arc<ServerSet>) -> Self {
        Self { environment, configured, held: Mutex::default() }
    }

    /// `base` plus the tools of the session's servers. They never replace a tool.
    pub(crate) fn offer(&self, session: SessionId, base: &Toolbox) -> Toolbox {
        let servers = self.lock().sessions.get(&session).cloned();
        match servers {
            Some(servers) => servers.add_to(base),
            None => base.clone(),
        }
    }

    /// A name that no server of the configuration has: an editor's server must not take the place of one.
    fn unused_name(&self, name: String) -> String {
        if self.configured.get(&name).is_none() {
            return name;
        }
        let head: String = name.chars().take(NAME_HEAD).collect();
        format!("{}-editor", head.trim_end_matches('_'))
    }

    /// The documents of the editor that has the session open; `None` if it offers none.
    pub(crate) fn documents(&self, session: SessionId) -> Option<Arc<dyn EditorDocuments>> {
        self.lock().documents.get(&session).cloned()
    }

    /// Changes whenever a tool is added or removed, so that callers can cache [`Self::offer`].
    pub(crate) fn generation(&self) -> u64 {
        let held = self.lock();
        let moved: u64 = held.sessions.values().map(|servers| servers.generation()).sum();
        held.changes + moved
    }

    /// Stops the servers of all sessions.
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
        // Keeps the generation of the removed servers in the sum, so that `generation` never repeats a value.
        held.changes += 1 + before.as_ref().map_or(0, |servers| servers.generation());
        before
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, EditorServersState> {
        self.held.lock().expect("no code panics while holding this")
    }
}

#[async_trait]
impl EditorServices for EditorServers {
    async fn tool_servers(
        &self,
        session: SessionId,
        servers: Vec<ToolServer>,
    ) -> Result<Vec<Fault>, Fault> {
        // Those of the configuration have been starting since the agent started.
        let world = &self.environment.world;
        let mut failed = self.configured.ready(world, CONFIGURED_READY).await;
        let servers = if servers.is_empty() {
            None
        } else {
            let configs = servers.into_iter().map(config).map(|mut config| {
                config.name = self.unused_name(config.name);
                config
            });
            let opened = Arc::new(ServerSet::open_in(configs, &self.environment)?);
            failed.extend(opened.ready(world, READY).await);
            Some(opened)
        };
        if let Some(before) = self.replace(session, servers) {
            before.shutdown().await;
        }
        for (name, fault) in &failed {
            tracing::warn!(server = name, %fault, "tool server not ready");
        }
        Ok(failed.into_iter().map(|(_, fault)| fault).collect())
    }

    fn editor_files(&self, session: SessionId, files: EditorFiles) {
        let mut held = self.lock();
        held.documents.insert(session, Arc::new(SessionDocuments(files)));
        held.changes += 1;
    }

    async fn forget(&self, session: SessionId) {
        self.lock().documents.remove(&session);
        if let Some(servers) = self.replace(session, None) {
            servers.shutdown().await;
        }
    }

    async fn sign_in(&self, _: &str) -> Result<(), Fault> {
        let set = |name: &str| std::env::var(name).is_ok_and(|value| !value.is_empty());
        if Vendor::ALL.into_iter().any(|vendor| set(vendor.key_setting())) {
            return Ok(());
        }
        Err(Fault::new(Kind::CredentialMissing, Operation::Authenticate)
            .with(Fact::Service, "anthropic")
            .with(Fact::RequiredConfig, vec!["ANTHROPIC_API_KEY".to_owned()]))
    }
}

/// Converts an editor's server entry. Tool names allow only ASCII letters and digits, so other characters become `-`.
fn config(server: ToolServer) -> McpServerConfig {
    let ToolServer { name, transport } = server;
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let name: String = name.chars().take(32).map(plain).collect();
    let secrets = |pairs: Vec<(String, String)>| {
        pairs.into_iter().map(|(name, value)| (name, value.into())).collect()
    };
    match transport {
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
