//! The engine: sessions by id, loaded on first use, all of them answered by one AG-UI agent.

use std::{sync::Arc, time::Duration};

use budao_core::{
    fault::{Fact, Fault, Kind, NodeIdentity, Operation},
    limits::Limits,
    world::World,
};
use budao_engine::{HolderLiveness, Host, HostConfig, UnknownLiveness};
use budao_journal::Journal;
use budao_models::event_source::EventSource;
use budao_scrub::Scrubber;
use secrecy::SecretString;

use crate::{RelayConfig, decider::RelayFactory};

/// The value of the label `engine` for sessions of this engine.
pub const ENGINE_NAME: &str = budao_core::ag_ui::ENGINE_NAME;

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
    /// The server that recorded faults name; `None` for a program without a name.
    pub server: Option<Arc<NodeIdentity>>,
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
            server: None,
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
    pub(crate) server: Option<Arc<NodeIdentity>>,
}

/// A foreign AG-UI agent as an engine: the session host with deciders of the relay, without methods of its own.
pub type Relay = Host<RelayFactory>;

impl RelayParts {
    /// Creates the engine; it loads no session and makes no request yet.
    ///
    /// # Errors
    /// `configuration_wrong` when the address or a bound is wrong.
    pub fn into_engine(self) -> Result<Relay, Fault> {
        let Self { journal, world, mut config, limits, scrubber, server, .. } = self;
        let Self { holder, liveness, idle_keep, places, .. } = self;
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
        let shared = Arc::new(RelayShared { world, source, config, limits, scrubber, server });
        Ok(Host::new(host, RelayFactory(shared)))
    }
}
