//! Starts the engine a command asked for: the native loop, the Claude CLI, or the relay to an AG-UI agent.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use budao_core::{
    Fault, Kind,
    engine::Engine,
    event::Settings,
    fault::{Fact, Operation},
    spending::SpendingConfig,
};
use budao_journal::Journal;
use budao_relay::RelayParts;
use budao_scrub::Scrubber;

use crate::{
    claude,
    config::Config,
    lease_holder,
    setup::{self, Application, JournalArgs},
    traces,
};

/// The value of `--engine`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EngineChoice {
    /// The built-in loop.
    Native,
    /// The Claude CLI, at this path or where it is found.
    Claude(Option<PathBuf>),
    /// An AG-UI agent, at this address or the configured one.
    Agui(Option<String>),
}

impl EngineChoice {
    /// Reads `native`, `claude`, `agui` or `agui:ADDRESS`. `path` is that of the Claude CLI, if it was given.
    pub(crate) fn parse(named: &str, path: Option<&Path>) -> Result<Self, Fault> {
        match named {
            Settings::NATIVE => Ok(Self::Native),
            claude::ENGINE_NAME => Ok(Self::Claude(path.map(Path::to_owned))),
            budao_relay::ENGINE_NAME => Ok(Self::Agui(None)),
            other => match other.strip_prefix("agui:").filter(|address| !address.is_empty()) {
                Some(address) => Ok(Self::Agui(Some(address.to_owned()))),
                None => Err(Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
                    .with(Fact::ConfigKey, "--engine")
                    .with(Fact::Expected, "native, claude, agui or agui:ADDRESS")
                    .with(Fact::Received, other.chars().take(80).collect::<String>())),
            },
        }
    }
}

impl EngineChoice {
    /// Refuses caps on spending for an engine that makes its requests itself, so that nothing could stop them.
    ///
    /// # Errors
    /// `configuration_wrong` for the first cap.
    pub(crate) fn check_caps(&self, spending: &SpendingConfig) -> Result<(), Fault> {
        let named = match self {
            Self::Native => return Ok(()),
            Self::Claude(_) => claude::ENGINE_NAME,
            Self::Agui(_) => budao_relay::ENGINE_NAME,
        };
        let Some(cap) = spending.caps().next() else { return Ok(()) };
        let expected = format!(
            "absent with `--engine {named}`, which asks its models itself: only `--engine native` keeps caps on spending"
        );
        Err(Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
            .with(Fact::ConfigKey, format!("models.spending.{cap}"))
            .with(Fact::Expected, expected))
    }
}

/// A started engine with its journal.
pub(crate) struct RunningEngine {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) journal: Arc<dyn Journal>,
    /// The native engine's tool servers and shells; none for the other engines, which have their own.
    pub(crate) native: Option<Box<Application>>,
}

impl RunningEngine {
    /// Starts an engine.
    pub(crate) async fn start(
        choice: EngineChoice,
        journal: &JournalArgs,
        file: Config,
    ) -> Result<Self, Fault> {
        choice.check_caps(&file.limits.spending)?;
        match choice {
            EngineChoice::Native => {
                let application = Box::new(setup::assemble(journal, file).await?);
                let journal = Arc::clone(application.runtime.journal());
                let engine = Arc::new(application.runtime.clone());
                Ok(Self { engine, journal, native: Some(application) })
            }
            EngineChoice::Claude(path) => claude::start(path, journal, file).await,
            EngineChoice::Agui(address) => Self::start_relay(address, journal, file).await,
        }
    }

    async fn start_relay(
        address: Option<String>,
        journal: &JournalArgs,
        file: Config,
    ) -> Result<Self, Fault> {
        let world = traces::world();
        let mut config = file.engines.agui;
        config.url = address.or(config.url);
        let secrets = setup::keys().1.into_iter().chain(config.token.clone());
        let scrubber = Scrubber::with_secrets(secrets);
        let journal = journal.open(&world).await?;
        let mut parts = RelayParts::new(Arc::clone(&journal), world, config);
        parts.limits = file.limits;
        setup::set_lease_times(&*journal, &mut parts.limits);
        parts.scrubber = scrubber;
        parts.holder = lease_holder::name();
        parts.liveness = Arc::new(lease_holder::KnownHolders);
        parts.places = file.places;
        parts.server = Some(Arc::new(lease_holder::node_identity(file.port)));
        Ok(Self { engine: Arc::new(parts.into_engine()?), journal, native: None })
    }

    /// MCP servers and rooms that have not started yet, with the reason.
    pub(crate) fn missing(&self) -> &[(String, Fault)] {
        self.native.as_ref().map_or(&[], |application| &application.missing)
    }

    /// Stops the engine and everything it started.
    pub(crate) async fn close(&self) {
        match &self.native {
            Some(application) => application.close().await,
            None => self.engine.shutdown(Duration::ZERO).await,
        }
    }
}
