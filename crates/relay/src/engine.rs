//! The engine: sessions by id, loaded on first use, all of them answered by one AG-UI agent.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    engine::{Engine, SessionChoice, SessionOptions, WrittenRange},
    event::{Answer, Command, Record, Seq, SessionId},
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    retention::{Retention, RetentionReport},
    world::World,
};
use budao_engine::{HolderLiveness, Host, HostConfig, UnknownLiveness};
use budao_journal::Journal;
use budao_models::event_source::EventSource;
use budao_scrub::Scrubber;
use futures::stream::BoxStream;
use secrecy::SecretString;

use crate::{RelayConfig, decider::RelayFactory};

/// The value of the label `engine` for sessions of this engine.
pub const ENGINE_NAME: &str = "agui";

/// The parts and settings of a [`Relay`].
#[derive(Clone, Debug)]
pub struct RelayParts {
    /// Stores the sessions' records.
    pub journal: Arc<dyn Journal>,
    /// Clock, entropy, spawner and span exporter.
    pub world: World,
    /// The address of the agent and the bounds of its runs.
    pub config: RelayConfig,
    /// Limits of sessions and payloads.
    pub limits: Limits,
    /// Removes secrets from everything that is recorded. It should know the agent's token.
    pub scrubber: Scrubber,
    /// Name under which leases are taken; must be unique for each run of a program.
    pub holder: String,
    /// Tells which lease holders have died, so that their leases can be taken before they expire.
    pub liveness: Arc<dyn HolderLiveness>,
    /// How long an idle session stays loaded; 5 min by default.
    pub idle_keep: Duration,
    /// The places whose files this process has; sessions bound to another place run elsewhere.
    pub places: Vec<String>,
}

impl RelayParts {
    /// Creates parts with default limits and a random holder name.
    #[must_use]
    pub fn new(journal: Arc<dyn Journal>, world: World, config: RelayConfig) -> Self {
        let holder = format!("agui-{}", world.uuid().simple());
        Self {
            journal,
            world,
            config,
            limits: Limits::default(),
            scrubber: Scrubber::new(),
            holder,
            liveness: Arc::new(UnknownLiveness),
            idle_keep: Duration::from_secs(5 * 60),
            places: Vec::new(),
        }
    }
}

/// The parts that all sessions share.
#[derive(Debug)]
pub(crate) struct RelayShared {
    pub(crate) world: World,
    pub(crate) source: EventSource,
    pub(crate) config: RelayConfig,
    pub(crate) limits: Arc<Limits>,
    pub(crate) scrubber: Scrubber,
}

/// A foreign AG-UI agent as an engine. A clone is cheap and refers to the same engine.
#[derive(Clone, Debug)]
pub struct Relay {
    host: Host<RelayFactory>,
}

impl Relay {
    /// Creates an engine; it loads no session and makes no request yet.
    ///
    /// # Errors
    /// `configuration_wrong` when the address or a bound is wrong.
    pub fn new(parts: RelayParts) -> Result<Self, Fault> {
        let RelayParts { journal, world, mut config, limits, scrubber, .. } = parts;
        let RelayParts { holder, liveness, idle_keep, places, .. } = parts;
        config.check()?;
        let address = config.url.as_deref().ok_or_else(|| {
            Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
                .with(Fact::ConfigKey, "engines.agui.url")
                .with(Fact::Expected, "an address such as http://127.0.0.1:8000/agent")
                .with(Fact::Received, "nothing")
        })?;
        let token = config.token.take().map(SecretString::from);
        let source = EventSource::new("engines.agui.url", address, token, &world, &limits)?;
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
        let shared = Arc::new(RelayShared { world, source, config, limits, scrubber });
        Ok(Self { host: Host::new(host, RelayFactory(shared)) })
    }

    /// The journal that stores this engine's sessions.
    #[must_use]
    pub fn journal(&self) -> &Arc<dyn Journal> {
        &self.host.config().journal
    }
}

#[async_trait]
impl Engine for Relay {
    async fn open(&self, opening: SessionOptions) -> Result<SessionId, Fault> {
        self.host.open(opening).await
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
