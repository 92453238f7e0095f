//! The engine: sessions by id, loaded on first use. An idle session's CLI is ended after `idle_keep`.

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    engine::{Engine, ForkRequest, SessionChoice, SessionOptions, WrittenRange},
    event::{Answer, Command, Record, Seq, SessionId, Settings},
    fault::{Fault, NodeIdentity},
    limits::Limits,
    retention::{Retention, RetentionReport},
    world::World,
};
use budao_engine::{HolderLiveness, Host, HostConfig, UnknownLiveness};
use budao_journal::Journal;
use budao_scrub::Scrubber;
use dashmap::DashMap;
use futures::stream::BoxStream;
use serde_json::Value;

use crate::{
    decider::{ClaudeFactory, Signal},
    launch::Launcher,
    machine::CliTimeouts,
};

/// The session label that names the engine.
pub const ENGINE_LABEL: &str = Settings::ENGINE;
/// The label's value for sessions of this engine.
pub const ENGINE_NAME: &str = "claude";

/// The parts and settings of a [`Claude`] engine.
#[derive(Clone, Debug)]
pub struct ClaudeConfig {
    /// Stores the sessions' records.
    pub journal: Arc<dyn Journal>,
    /// Clock, entropy, spawner and span exporter.
    pub world: World,
    /// Starts CLI processes; a test can replace it.
    pub launcher: Arc<dyn Launcher>,
    /// Limits of sessions and payloads.
    pub limits: Limits,
    /// Time limits of the CLI.
    pub timeouts: CliTimeouts,
    /// Removes secrets from everything that is recorded.
    pub scrubber: Scrubber,
    /// Name under which leases are taken; must be unique for each run of a program.
    pub holder: String,
    /// Tells which lease holders have died, so that their leases can be taken before they expire.
    pub liveness: Arc<dyn HolderLiveness>,
    /// How long an idle session keeps its CLI; 15 min by default.
    pub idle_keep: Duration,
    /// The places whose files this process has; sessions bound to another place run elsewhere.
    pub places: Vec<String>,
    /// The server that recorded faults name; `None` for a program without a name.
    pub server: Option<Arc<NodeIdentity>>,
    /// True to start the CLI when a session is opened, before its first message.
    pub start_early: bool,
    /// Absolute path of the folder in which the CLI stores plans. `None` denies every write in plan mode.
    pub plan_folder: Option<PathBuf>,
}

impl ClaudeConfig {
    /// Creates a configuration with default limits and timeouts and a random holder name.
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
            places: Vec::new(),
            server: None,
            start_early: false,
            plan_folder: None,
        }
    }
}

/// The parts that all sessions share.
#[derive(Debug)]
pub(crate) struct ClaudeShared {
    pub(crate) world: World,
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) timeouts: CliTimeouts,
    pub(crate) scrubber: Scrubber,
    pub(crate) server: Option<Arc<NodeIdentity>>,
    pub(crate) tool_servers: DashMap<SessionId, Value>,
    start_early: bool,
    pub(crate) plan_folder: Option<PathBuf>,
}

/// The Claude CLI as an engine. A clone is cheap and refers to the same engine.
#[derive(Clone, Debug)]
pub struct Claude {
    shared: Arc<ClaudeShared>,
    host: Host<ClaudeFactory>,
}

impl Claude {
    /// Creates an engine; it loads no session yet.
    #[must_use]
    pub fn new(config: ClaudeConfig) -> Self {
        let ClaudeConfig { journal, world, launcher, limits, timeouts, scrubber, server, .. } =
            config;
        let ClaudeConfig { holder, liveness, idle_keep, start_early, plan_folder, places, .. } =
            config;
        let limits = Arc::new(limits);
        let host = HostConfig {
            journal,
            world: world.clone(),
            limits: Arc::clone(&limits),
            holder,
            liveness,
            idle_keep,
            places,
        };
        let tool_servers = DashMap::new();
        let shared = Arc::new(ClaudeShared {
            world,
            launcher,
            limits,
            timeouts,
            scrubber,
            server,
            tool_servers,
            start_early,
            plan_folder,
        });
        Self { host: Host::new(host, ClaudeFactory(Arc::clone(&shared))), shared }
    }

    /// The journal that stores this engine's sessions.
    #[must_use]
    pub fn journal(&self) -> &Arc<dyn Journal> {
        &self.host.config().journal
    }

    /// Sets the MCP servers of a session, in the format of the CLI's `mcpServers`. They apply from the next
    /// start of its CLI. They are not recorded, because they may contain keys.
    pub fn tool_servers(&self, session: SessionId, servers: Value) {
        self.shared.tool_servers.insert(session, servers);
    }

    /// Removes the MCP servers of a session.
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
        if self.shared.start_early {
            self.host.signal(session, Signal::Warm).await?;
        }
        Ok(session)
    }

    async fn fork(&self, request: ForkRequest) -> Result<SessionId, Fault> {
        self.host.fork(request).await
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

    async fn take_over(&self, dead: &[String], wants: SessionChoice<'_>) -> Result<usize, Fault> {
        self.host.take_over(dead, wants).await
    }

    fn loaded(&self) -> usize {
        self.host.loaded()
    }

    fn take_written(&self) -> Vec<WrittenRange> {
        self.host.take_written()
    }

    async fn delete(&self, session: SessionId) -> Result<bool, Fault> {
        self.host.delete(session).await
    }

    async fn retain(&self, retention: Retention) -> Result<RetentionReport, Fault> {
        self.host.retain(retention).await
    }

    async fn shutdown(&self, grace: Duration) {
        self.host.shutdown(grace).await;
    }
}
