//! `budao acp`: an agent for editors, on stdin and stdout.
//!
//! Stdout carries the protocol and nothing else. Log lines for the operator go into a file in the state directory.
//! `budao acp doctor` checks the same setup and writes nothing.

mod choices;
mod claude;
mod doctor;
mod editor_documents;
mod editor_servers;
mod log;

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use budao_acp::{
    Bridge, EditorOptions, EditorServices, InitializeContext, ModelChoice, SignIn, SlashCommand,
};
use budao_core::{
    Fault, Kind, Lang,
    engine::Engine,
    event::Settings,
    tool::{Mode, Permissions},
    world::World,
};
use budao_journal::Reader;
use budao_models::{Models, Spec};

use crate::{
    choices::one_of,
    config::{Config, ConfigArgs},
    engines,
    exit::Exit,
    lease_holder,
    setup::{self, JournalArgs},
    terminal::Terminal,
    texts::localize,
};

use self::choices::{EngineName, FailureReport};
pub(crate) use editor_servers::EditorServers;

/// Time sessions get to end their turns and programs after the editor disconnects. Programs that still run are then
/// killed.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(300);

/// Serve an editor over the Agent Client Protocol, on stdin and stdout.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,

    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Check engine, model, keys, configuration and journal, without writing anything
    Doctor {
        #[command(flatten)]
        serve: ServeArgs,
        /// Print one JSON object per check on stdout
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct ServeArgs {
    /// Engine: claude (the Claude CLI) or native (built in) [default: native if --model names one of its models,
    /// else claude if it is installed, else native]
    #[arg(long, value_enum, value_name = "ENGINE", hide_possible_values = true)]
    engine: Option<EngineName>,

    /// Path of the Claude CLI [default: CLAUDE_CODE_EXECUTABLE, else `claude` in PATH]
    #[arg(long, value_name = "PROGRAM")]
    claude: Option<PathBuf>,

    /// Models the editor can choose from; the first is the default: anthropic:NAME, openai:NAME@URL, demo, demo:fast,
    /// script:FILE, or a model name of the Claude CLI
    #[arg(long = "model", value_name = "SPEC", env = "BUDAO_MODEL", value_delimiter = ',')]
    models: Vec<String>,

    /// Permission mode of new sessions: approval (ask), readonly (plan) or auto
    #[arg(long, default_value = "approval", value_name = "MODE", value_parser = one_of::<Mode>(), hide_possible_values = true)]
    permission: Mode,

    /// System prompt
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,

    /// How to report a failed turn: error, or refusal, which makes some editors delete the prompt
    #[arg(
        long,
        default_value = "error",
        value_name = "HOW",
        value_enum,
        hide_possible_values = true
    )]
    execution_error: FailureReport,

    #[command(flatten)]
    config: ConfigArgs,

    #[command(flatten)]
    journal: JournalArgs,
}

/// The engine behind the bridge, from `--engine` or from the named models and the installed CLI.
enum EngineChoice {
    Native,
    /// Path of the Claude CLI executable.
    Claude(PathBuf),
}

impl ServeArgs {
    fn engine(&self) -> Result<EngineChoice, Fault> {
        let names_a_model =
            || self.models.first().is_some_and(|model| Models::parse_spec(model).is_ok());
        match self.engine {
            Some(EngineName::Native) => Ok(EngineChoice::Native),
            Some(EngineName::Claude) => {
                crate::claude::program(self.claude.clone()).map(EngineChoice::Claude)
            }
            None if self.claude.is_none() && names_a_model() => Ok(EngineChoice::Native),
            None => match crate::claude::program(self.claude.clone()) {
                Ok(program) => Ok(EngineChoice::Claude(program)),
                // The user named a program that is not there, and must not get another engine for it.
                Err(fault) if self.claude.is_some() || crate::claude::is_configured() => Err(fault),
                Err(fault) => {
                    tracing::warn!(%fault, "claude not found, using native engine");
                    Ok(EngineChoice::Native)
                }
            },
        }
    }

    fn models(&self) -> Vec<String> {
        if self.models.is_empty() { vec!["demo".to_owned()] } else { self.models.clone() }
    }

    fn settings(&self, lang: Lang) -> Settings {
        Settings {
            language: lang,
            model: self.models().swap_remove(0),
            system: self.system.as_deref().map(Into::into),
            permissions: Permissions { mode: self.permission, ..Permissions::default() },
            ..Settings::default()
        }
    }

    fn editor_options(&self, lang: Lang, context_tokens: u64) -> Result<EditorOptions, Fault> {
        let models = self.models();
        let specs: Vec<Spec> =
            models.iter().map(|model| Models::parse_spec(model)).collect::<Result<_, Fault>>()?;
        let needs_key = |spec: &Spec| matches!(spec, Spec::Hosted { url: None, .. });
        let key = SignIn {
            id: "environment".to_owned(),
            name: localize(lang, "acp-api-key-in-the-environment").to_owned(),
            about: localize(lang, "acp-set-anthropic-api-key-or-openai").to_owned(),
        };
        let plan = SlashCommand {
            name: "plan".to_owned(),
            about: localize(lang, "acp-split-a-question-into-tasks-solve").to_owned(),
            hint: Some(localize(lang, "acp-the-question").to_owned()),
        };
        Ok(EditorOptions {
            engine: "native".to_owned(),
            thinking: specs.iter().any(Spec::takes_thinking),
            models: models.into_iter().map(|id| ModelChoice::new(id.clone(), id)).collect(),
            context_tokens,
            commands: vec![plan],
            sign_ins: if specs.iter().any(needs_key) { vec![key] } else { Vec::new() },
            ..EditorOptions::default()
        })
    }
}
/// The JSON-RPC error code of a kind of fault.
pub(crate) fn json_rpc_code(kind: Kind) -> Option<i32> {
    Some(budao_acp::json_rpc_code(kind))
}

/// Directs log lines to the ACP log file; must run before the first log line. `doctor` writes no log.
pub(crate) fn start_log(args: &Args) -> Result<(), Fault> {
    match args.action {
        None => log::start(&args.serve.config.load()?.log),
        Some(_) => Ok(()),
    }
}

/// Runs `budao acp`: the bridge itself, or `doctor`.
pub(crate) async fn run(args: &Args, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    match &args.action {
        Some(Action::Doctor { serve, json }) => Ok(doctor::run(serve, *json, lang, terminal).await),
        None => serve(&args.serve, lang).await,
    }
}

async fn serve(args: &ServeArgs, lang: Lang) -> Result<Exit, Fault> {
    match args.engine()? {
        EngineChoice::Native => serve_native(args, lang).await,
        EngineChoice::Claude(program) => serve_claude(args, program, lang).await,
    }
}

async fn serve_claude(args: &ServeArgs, program: PathBuf, lang: Lang) -> Result<Exit, Fault> {
    let Config { limits, mcp: configured, .. } = args.config.load()?;
    engines::EngineChoice::Claude(None).check_caps(&limits.spending)?;
    let editor_options = claude::editor_options(args.models.clone(), lang);
    let model = editor_options.models[0].id.clone();
    let settings = Settings { model, ..args.settings(lang) };
    tracing::info!(engine = editor_options.engine, program = %program.display(), "serving an editor");
    let world = crate::traces::world();
    let context = InitializeContext { editor_options, world: world.clone(), limits, lang };
    let (limits, journal) = (context.limits.clone(), args.journal.clone());
    let running = Arc::new(OnceLock::new());
    let keep = Arc::clone(&running);
    let opening = async move {
        let journal = journal.open(&world).await?;
        // `start_early` is true: the CLI starts when the editor opens the session, while the user is still typing.
        let writes = Arc::clone(&journal) as _;
        let server = lease_holder::node_identity(None);
        let places = Vec::new();
        let engine = crate::claude::engine(program, writes, &world, limits, places, server, true);
        let engine = keep.get_or_init(|| engine).clone();
        let services = Arc::new(claude::ClaudeHost { engine: engine.clone(), configured });
        Ok(OpenedEngine { engine: Arc::new(engine), journal, world, services })
    };
    let served = serve_bridge(args, context, settings, opening).await;
    if let Some(engine) = running.get() {
        within_grace(engine.shutdown(Duration::ZERO)).await;
    }
    served.map(|()| Exit::Success)
}

async fn serve_native(args: &ServeArgs, lang: Lang) -> Result<Exit, Fault> {
    let config = args.config.load()?;
    let limits = config.limits.clone();
    let (settings, editor_options) =
        (args.settings(lang), args.editor_options(lang, limits.context_tokens)?);
    tracing::info!(engine = editor_options.engine, models = ?args.models(), "serving an editor");
    let context = InitializeContext { editor_options, world: crate::traces::world(), limits, lang };
    let journal = args.journal.clone();
    let running = Arc::new(OnceLock::new());
    let keep = Arc::clone(&running);
    let opening = async move {
        // Slow MCP servers join later; the editor does not wait for them.
        let application = setup::assemble_within(&journal, config, Duration::ZERO).await?;
        let application = keep.get_or_init(|| application);
        let (runtime, services) =
            (application.runtime.clone(), Arc::clone(&application.editor_servers) as _);
        let (journal, world) = (Arc::clone(runtime.journal()), runtime.world().clone());
        Ok(OpenedEngine { engine: Arc::new(runtime), journal, world, services })
    };
    let served = serve_bridge(args, context, settings, opening).await;
    if let Some(application) = running.get() {
        within_grace(application.close()).await;
    }
    served.map(|()| Exit::Success)
}

/// The parts of a bridge that exist once the journal is open.
struct OpenedEngine {
    engine: Arc<dyn Engine>,
    journal: Arc<dyn Reader>,
    world: World,
    services: Arc<dyn EditorServices>,
}

/// Serves the editor on stdin and stdout. The bridge answers `initialize` while `opening` opens the journal.
async fn serve_bridge(
    args: &ServeArgs,
    context: InitializeContext,
    settings: Settings,
    opening: impl Future<Output = Result<OpenedEngine, Fault>> + Send + 'static,
) -> Result<(), Fault> {
    let execution_error = args.execution_error.into();
    let InitializeContext { editor_options, limits, lang, .. } = context.clone();
    let bridge = async move {
        let OpenedEngine { engine, journal, world, services } = opening.await?;
        Ok(Bridge {
            engine,
            journal,
            world,
            limits,
            editor_options,
            settings,
            lang,
            execution_error,
            services,
        })
    };
    until_terminated(context.serve(bridge, tokio::io::stdin(), tokio::io::stdout())).await
}

/// Serves until the editor closes stdin or the process receives TERM, INT or HUP.
async fn until_terminated(serve: impl Future<Output = Result<(), Fault>>) -> Result<(), Fault> {
    let termination = crate::screen::termination_signal();
    tokio::select! {
        biased;
        served = serve => served,
        () = termination => {
            tracing::info!("termination signal received");
            Ok(())
        }
    }
}

/// Awaits `close` for at most [`SHUTDOWN_GRACE`]; the editor is gone and nothing waits for a result.
async fn within_grace(close: impl Future<Output = ()>) {
    if tokio::time::timeout(SHUTDOWN_GRACE, close).await.is_err() {
        tracing::warn!("shutdown timed out, killing child processes");
    }
}
