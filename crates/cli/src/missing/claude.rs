//! The engine that runs the Claude CLI, in a program that was built without it.

use std::path::PathBuf;

use budao_core::Fault;

use crate::{
    config::Config,
    engines::RunningEngine,
    missing::{self, ProgramPart},
    setup::JournalArgs,
};

/// The name of the engine in `--engine` and in sessions.
pub(crate) const ENGINE_NAME: &str = "claude";

fn missing() -> Fault {
    missing::fault(ProgramPart::Claude, "--engine claude")
}

/// Refuses.
///
/// # Errors
/// `configuration_wrong`, always.
pub(crate) async fn start(
    _: Option<PathBuf>,
    _: &JournalArgs,
    _: Config,
) -> Result<RunningEngine, Fault> {
    Err(missing())
}

/// Refuses.
///
/// # Errors
/// `configuration_wrong`, always.
pub(crate) fn server_model(_: Option<&str>) -> Result<String, Fault> {
    Err(missing())
}

/// Refuses.
///
/// # Errors
/// `configuration_wrong`, always.
pub(crate) fn chat_model(_: &str) -> Result<String, Fault> {
    Err(missing())
}
