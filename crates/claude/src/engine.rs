//! The engine: sessions by id, loaded when touched, their CLI ended when they have been idle for long.

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    engine::{Engine, SessionOptions},
    event::{Answer, Command, Record, Seq, SessionId, Settings},
    fault::Fault,
    limits::Limits,
    scrub::Scrubber,
    world::World,
};
use budao_engine::{HolderLiveness, Host, HostConfig, UnknownLiveness};
use budao_journal::Journal;
use dashmap::DashMap;
use futures::stream::BoxStream;
use serde_json::Value;

use crate::{
    decider::{ClaudeFactory, Signal},
    launch::Launcher,
    machine::CliTimeouts,
};

/// The label that says which engine runs a session.
pub const ENGINE_LABEL: &str = Settings::ENGINE;
/// The label's value for sessions of this engine.
pub const ENGINE_NAME: &str = "claude";

/// What an engine is made of.
#[derive(Clone, Debug)]
pub struct ClaudeConfig {
    /// Where its records are.
    pub journal: Arc<dyn Journal>,
    /// Time, chance and tasks.
    pub world: World,
    /// Starts the CLI.
    pub launcher: Arc<dyn Launcher>,
    /// The bounds.
    pub limits: Limits,
    /// The CLI's bounds.
    pub timeouts: CliTimeouts,
    /// Takes secrets out of what is recorded.
    pub scrubber: Scrubber,
    /// Who writes; unique for each run of a program.
    pub holder: String,
    /// Whose leases may be taken before they run out.
    pub liveness: Arc<dyn HolderLiveness>,
    /// How long an idle session keeps its CLI.
    pub idle_keep: Duration,
    /// Is the CLI started when a session is opened, before anything is asked?
    pub ahead: bool,
    /// Where the CLI keeps the plans it writes in plan mode, an absolute path. Without it no plan can be written there.
    pub plan_folder: Option<PathBuf>,
}

impl ClaudeConfig {
    /// The usual.
    #[must_use]
    pub fn new(journal: Arc<dyn Journal>, world: World, launcher: Arc<dyn Launcher>) -> Self {
        let holder = format!("claude-{}", world.uuid().simple());
        Self {
            journal,
            world,
            launcher,
            limits: Limits::default(),
            timeouts: CliTimeouts::default(),
            scrubber: Scrubber::new(),
            holder,
            liveness: Arc::new(UnknownLiveness),
            idle_keep: Duration::from_secs(15 * 60),
            ahead: false,
            plan_folder: None,
        }
    }
}

/// What all sessions share.
#[derive(Debug)]
pub(crate) struct ClaudeShared {
    pub(crate) world: World,
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) timeouts: CliTimeouts,
    pub(crate) scrubber: Scrubber,
    pub(crate) tool_servers: DashMap<SessionId, Value>,
    ahead: bool,
    pub(crate) plan_folder: Option<PathBuf>,
}

/// The Claude CLI as an engine. Clones are cheap and are the same engine.
#[derive(Clone, Debug)]
pub struct Claude {
    shared: Arc<ClaudeShared>,
    host: Host<ClaudeFactory>,
}

impl Claude {
    /// An engine without loaded sessions.
    #[must_use]
    pub fn new(config: ClaudeConfig) -> Self {
        let ClaudeConfig { journal, world, launcher, limits, timeouts, scrubber, .. } = config;
        let ClaudeConfig { holder, liveness, idle_keep, ahead, plan_folder, .. } = config;
        let limits = Arc::new(limits);
        let host = HostConfig {
            journal,
            world: world.clone(),
            limits: Arc::clone(&limits),
            holder,
            liveness,
            idle_keep,
        };
        let tool_servers = DashMap::new();
        let shared = Arc::new(ClaudeShared {
            world,
            launcher,
            limits,
            timeouts,
            scrubber,
            tool_servers,
            ahead,
            plan_folder,
        });
        Self { host: Host::new(host, ClaudeFactory(Arc::clone(&shared))), shared }
    }

    /// The journal it writes.
    #[must_use]
    pub fn journal(&self) -> &Arc<dyn Journal> {
        &self.host.config().journal
    }

    /// Hands over MCP servers for a session, as the CLI's `mcpServers` has them; for when its CLI is started
    /// next. They are not recorded, because they may hold keys.
    pub fn tool_servers(&self, session: SessionId, servers: Value) {
        self.shared.tool_servers.insert(session, servers);
    }

    /// Forgets what was handed over for a session.
    pub fn forget(&self, session: SessionId) {
        self.shared.tool_servers.remove(&session);
    }

    /// The number of loaded sessions.
    #[must_use]
    pub fn loaded(&self) -> usize {
        self.host.loaded()
    }
}

#[async_trait]
impl Engine for Claude {
    async fn open(&self, opening: SessionOptions) -> Result<SessionId, Fault> {
        let session = self.host.open(opening).await?;
        if self.shared.ahead {
            self.host.signal(session, Signal::Warm).await?;
        }
        Ok(session)
    }

    async fn submit(&self, session: SessionId, command: Command) -> Result<Answer, Fault> {
        self.host.submit(session, command).await
    }

    async fn follow(
        &self,
        session: SessionId,
        after: Seq,
    ) -> Result<BoxStream<'static, Result<Record, Fault>>, Fault> {
        self.host.follow(session, after).await
    }

    fn touch(&self, session: SessionId) {
        self.host.touch(session);
    }

    async fn recover(&self) -> Result<usize, Fault> {
        self.host.recover().await
    }

    async fn shutdown(&self, grace: Duration) {
        self.host.shutdown(grace).await;
    }
}
