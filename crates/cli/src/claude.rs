//! Locates the Claude CLI and builds the engine that runs it.

use std::{path::PathBuf, sync::Arc};

pub(crate) use budao_claude::ENGINE_NAME;
use budao_claude::{
    Claude, ClaudeConfig, CliProgram, DEFAULT_MODEL,
    find::{Search, find},
};
use budao_core::{
    Fault, Kind,
    fault::{Fact, NodeIdentity, Operation},
    limits::Limits,
    world::World,
};
use budao_journal::Journal;
use budao_models::Models;
use budao_scrub::Scrubber;

use crate::{
    config::Config,
    engines::RunningEngine,
    lease_holder,
    setup::{self, JournalArgs},
    traces,
};

/// Starts the CLI's engine for `--engine claude`, with the CLI at `path` or where it is found.
pub(crate) async fn start(
    path: Option<PathBuf>,
    journal: &JournalArgs,
    file: Config,
) -> Result<RunningEngine, Fault> {
    let (world, mut limits) = (traces::world(), file.limits);
    let server = lease_holder::node_identity(file.port);
    let program = program(path)?;
    let journal = journal.open(&world).await?;
    setup::set_lease_times(&*journal, &mut limits);
    let places = file.places;
    let engine = engine(program, Arc::clone(&journal), &world, limits, places, server, false);
    Ok(RunningEngine { engine: Arc::new(engine), journal, native: None })
}

/// Path of the CLI: `given`, else `CLAUDE_CODE_EXECUTABLE`, else `claude` in `PATH`. Fails if there is none.
pub(crate) fn program(given: Option<PathBuf>) -> Result<PathBuf, Fault> {
    find(&Search {
        given,
        executable: std::env::var_os("CLAUDE_CODE_EXECUTABLE"),
        path: std::env::var_os("PATH"),
    })
}

/// Does `CLAUDE_CODE_EXECUTABLE` name the CLI?
pub(crate) fn is_configured() -> bool {
    std::env::var_os("CLAUDE_CODE_EXECUTABLE").is_some_and(|value| !value.is_empty())
}

/// The model of new sessions of a server: the named one, or the CLI's default.
pub(crate) fn server_model(named: Option<&str>) -> Result<String, Fault> {
    one_model(named.unwrap_or(DEFAULT_MODEL))
}

/// The model of a new session in the chat. The CLI does not know our model names, so those become its default model.
pub(crate) fn chat_model(named: &str) -> Result<String, Fault> {
    let is_ours = named.split(',').all(|name| Models::parse_spec(name).is_ok());
    if is_ours { Ok(DEFAULT_MODEL.to_owned()) } else { one_model(named) }
}

/// The one model of a session of the CLI, which has no list of models.
fn one_model(named: &str) -> Result<String, Fault> {
    if named.contains(',') {
        return Err(Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
            .with(Fact::ConfigKey, "--model")
            .with(Fact::Expected, "one model, because the Claude CLI takes no list")
            .with(Fact::Received, named.chars().take(80).collect::<String>()));
    }
    Ok(named.to_owned())
}

/// The CLI's configuration folder with its sign-in, conversations and plans; none if there is no home directory.
pub(crate) fn config_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let folder = set("CLAUDE_CONFIG_DIR")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".claude")))?;
    std::path::absolute(folder).ok()
}

/// An engine that runs the CLI at `program`. With `start_early`, the CLI starts as soon as a session is opened.
pub(crate) fn engine(
    program: PathBuf,
    journal: Arc<dyn Journal>,
    world: &World,
    limits: Limits,
    places: Vec<String>,
    server: NodeIdentity,
    start_early: bool,
) -> Claude {
    let scrubber = Scrubber::with_secrets(setup::keys().1);
    let mut launcher = CliProgram::new(program, world.clone());
    launcher.scrubber = scrubber.clone();
    let mut config = ClaudeConfig::new(journal, world.clone(), Arc::new(launcher));
    config.limits = limits;
    config.scrubber = scrubber;
    config.holder = lease_holder::name();
    config.liveness = Arc::new(lease_holder::KnownHolders);
    config.places = places;
    config.server = Some(Arc::new(server));
    config.start_early = start_early;
    config.plan_folder = config_folder().map(|folder| folder.join("plans"));
    Claude::new(config)
}
