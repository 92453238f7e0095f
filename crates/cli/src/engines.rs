//! Starts the engine a command asked for: the native loop, or the Claude CLI.

use std::{path::Path, sync::Arc, time::Duration};

use budao_core::{Fault, engine::Engine};
use budao_journal::Journal;

use crate::{
    claude,
    config::Config,
    setup::{self, Application, JournalArgs},
    traces,
};

/// A started engine with its journal.
pub(crate) struct RunningEngine {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) journal: Arc<dyn Journal>,
    /// The native engine's tool servers and shells; none for the Claude CLI, which has its own.
    pub(crate) native: Option<Box<Application>>,
}

impl RunningEngine {
    /// Starts an engine. `claude` selects the Claude CLI, at the inner path if one is given.
    pub(crate) async fn start(
        claude: Option<Option<&Path>>,
        journal: &JournalArgs,
        file: Config,
    ) -> Result<Self, Fault> {
        let Some(path) = claude else {
            let application = Box::new(setup::assemble(journal, file).await?);
            let journal = Arc::clone(application.runtime.journal());
            let engine = Arc::new(application.runtime.clone());
            return Ok(Self { engine, journal, native: Some(application) });
        };
        let (world, mut limits, places) = (traces::world(), file.limits, file.places);
        let program = claude::program(path.map(Path::to_owned))?;
        let journal = journal.open(&world).await?;
        setup::set_lease_times(&*journal, &mut limits);
        let engine =
            claude::engine(program, Arc::clone(&journal) as _, &world, limits, places, false);
        Ok(Self { engine: Arc::new(engine), journal, native: None })
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
