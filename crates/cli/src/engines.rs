//! Who does the work: our own loop, or the Claude CLI.

use std::{path::Path, sync::Arc, time::Duration};

use budao_claude::Claude;
use budao_core::{Fault, engine::Engine, event::SessionId};
use budao_journal::Journal;

use crate::{
    claude,
    config::Config,
    traces,
    wiring::{self, JournalArgs, Wired},
};

/// An engine, and what it stands on.
pub(crate) enum Running {
    Native(Box<Wired>),
    Claude(Claude),
}

impl Running {
    /// Starts one: with `claude`, the CLI, at the place that was named if one was.
    pub(crate) async fn start(
        claude: Option<Option<&Path>>,
        journal: &JournalArgs,
        file: Config,
    ) -> Result<Self, Fault> {
        let Some(named) = claude else {
            let wired = wiring::wire(journal, file).await?;
            return Ok(Self::Native(Box::new(wired)));
        };
        let (world, limits) = (traces::world(), file.limits);
        let program = claude::program(named.map(Path::to_owned))?;
        let journal = journal.open(&world).await?;
        Ok(Self::Claude(claude::engine(program, journal, &world, limits, false)))
    }

    /// MCP servers and rooms that are not there yet, and why.
    pub(crate) fn missing(&self) -> &[(String, Fault)] {
        match self {
            Self::Native(wired) => &wired.missing,
            Self::Claude(_) => &[],
        }
    }

    /// Lets whatever is unfinished in a session go on.
    pub(crate) fn take_up(&self, session: SessionId) {
        match self {
            Self::Native(wired) => wired.runtime.touch(session),
            // It takes a session up when it is spoken to.
            Self::Claude(_) => {}
        }
    }

    pub(crate) fn engine(&self) -> Arc<dyn Engine> {
        match self {
            Self::Native(wired) => Arc::new(wired.runtime.clone()),
            Self::Claude(engine) => Arc::new(engine.clone()),
        }
    }

    pub(crate) fn journal(&self) -> Arc<dyn Journal> {
        match self {
            Self::Native(wired) => Arc::clone(wired.runtime.journal()),
            Self::Claude(engine) => Arc::clone(engine.journal()),
        }
    }

    pub(crate) async fn recover(&self) -> Result<usize, Fault> {
        match self {
            Self::Native(wired) => wired.runtime.recover().await,
            Self::Claude(engine) => engine.recover().await,
        }
    }

    pub(crate) async fn close(&self) {
        match self {
            Self::Native(wired) => wired.close().await,
            Self::Claude(engine) => engine.shutdown(Duration::ZERO).await,
        }
    }
}
