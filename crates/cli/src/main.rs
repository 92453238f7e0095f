//! The `budao` binary: parses the command line, sets up the parts, and runs a subcommand.
//!
//! Every subcommand is a module with clap arguments and a function that returns an [`Exit`]. Output goes through a
//! [`Terminal`]: data on stdout, messages on stderr. A panic ends here with an exit code of its own.

#![cfg_attr(
    not(feature = "default"),
    allow(dead_code, reason = "some helpers are only used by a part that is not built in")
)]

mod anomalies;
mod chat;
mod choices;
mod completions;
mod config;
mod demo;
mod doubts;
mod engines;
mod examples;
mod exit;
mod explain;
mod file_fault;
mod form;
mod inbox;
mod journal;
mod lang;
mod lease_holder;
mod line_breaks;
mod listener;
mod log;
mod man;
mod mcp;
mod missing;
mod port_owner;
mod program;
mod progress;
mod remote;
mod replay_check;
mod run;
mod screen;
mod session_name;
mod sessions;
mod setup;
mod signals;
mod spending;
mod symbols;
mod terminal;
mod texts;
mod time_point;
mod timers;
mod tools;
mod transcript;
mod watch;

// Parts that a program can be built without. The replacement beside each one refuses, and says how to build it in.
#[cfg(feature = "acp")]
mod acp;
#[cfg(not(feature = "acp"))]
#[path = "missing/acp.rs"]
mod acp;
#[cfg(feature = "claude")]
mod claude;
#[cfg(not(feature = "claude"))]
#[path = "missing/claude.rs"]
mod claude;
#[cfg(feature = "serve")]
mod nodes;
#[cfg(not(feature = "serve"))]
#[path = "missing/nodes.rs"]
mod nodes;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(not(feature = "postgres"))]
#[path = "missing/postgres.rs"]
mod postgres;
#[cfg(feature = "serve")]
mod serve;
#[cfg(not(feature = "serve"))]
#[path = "missing/serve.rs"]
mod serve;
#[cfg(feature = "smcp")]
mod smcp;
#[cfg(not(feature = "smcp"))]
#[path = "missing/smcp.rs"]
mod smcp;
#[cfg(feature = "serve")]
mod top;
#[cfg(not(feature = "serve"))]
#[path = "missing/top.rs"]
mod top;
#[cfg(feature = "traces")]
mod traces;
#[cfg(not(feature = "traces"))]
#[path = "missing/traces.rs"]
mod traces;

use budao_core::{
    Fault, Kind, Lang,
    fault::{Advice, Fact, text},
};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use exit::Exit;
use terminal::Terminal;
use texts::localize;

/// Time limit for killed programs to end before this process exits.
const CHILDREN_END_MAX: std::time::Duration = std::time::Duration::from_millis(500);

/// Run AI agents that recover from failures.
#[derive(Debug, Parser)]
#[command(name = "budao", version, max_term_width = 80, after_help = exit::HELP)]
struct Cli {
    /// Output language: en or zh [default: from the environment, else en]
    #[arg(long, global = true, value_name = "LANG", env = "BUDAO_LANG")]
    lang: Option<String>,

    /// URL of an OpenTelemetry collector (OTLP over HTTP) to send traces to [default: none]
    #[arg(long, global = true, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    traces: Option<String>,

    /// The journal: a path, `sqlite:PATH`, `postgres://USER@HOST/DATABASE` or `memory:`. Default: a file in the user's
    /// state directory. Commands that use no journal ignore it
    #[arg(long, global = true, value_name = "URL", env = "BUDAO_JOURNAL")]
    journal: Option<String>,

    /// Put messages, arguments and results into traces; configured secrets are removed
    #[arg(long, global = true, env = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT")]
    traces_content: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one value, and the sizes depend on the parts that are built"
)]
enum Command {
    Demo(demo::Args),
    Chat(chat::Args),
    Run(run::RunArgs),
    Resume(run::ResumeArgs),
    Cancel(run::CancelArgs),
    Replay(run::ReplayArgs),
    Serve(serve::Args),
    Acp(acp::Args),
    Top(top::Args),
    Nodes(nodes::Args),
    Tools(tools::Args),
    Mcp(mcp::Args),
    Sessions(sessions::Args),
    Spending(spending::Args),
    Doubts(doubts::Args),
    Timers(timers::Args),
    Journal(journal::Args),
    Backup(journal::BackupArgs),
    Explain(explain::Args),
    Config(config::Args),
    Smcp(smcp::Args),
    Completions(completions::Args),
    Man(man::Args),
}

fn main() -> std::process::ExitCode {
    // Every program we start runs under a supervisor, which is this same binary. The supervisor must start before any
    // thread exists.
    if let Some(code) = budao_tools::launch::maybe_launch(std::env::args_os().skip(1)) {
        return code;
    }
    install_tls();
    std::panic::catch_unwind(|| run(&parse())).unwrap_or(Exit::Bug).into()
}

/// The command line with the examples of its help.
fn command() -> clap::Command {
    // clap needs a `'static` text, and this runs once per process.
    examples::attach(Cli::command()).version(&*Box::leak(missing::version().into_boxed_str()))
}

/// Parses the command line with the configuration file's values as defaults.
fn parse() -> Cli {
    let arguments: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let matches = config::with_defaults(command(), &arguments).get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn run(cli: &Cli) -> Exit {
    let terminal = Terminal::from_env();
    let lang = lang::choose(cli.lang.as_deref(), &terminal);
    traces::aim(cli.traces.clone().or_else(config::traces), cli.traces_content);
    // These four start their log themselves, once they have read the configuration.
    match &cli.command {
        Command::Serve(_) | Command::Run(_) | Command::Resume(_) | Command::Chat(_) => {}
        // Log lines would corrupt its screen.
        Command::Top(_) => {}
        Command::Acp(args) => {
            if let Err(fault) = acp::start_log(args) {
                return terminal.finish(failed(&fault, lang, &terminal));
            }
        }
        Command::Smcp(args) => logging(smcp::usual_log(args)),
        _ => logging("off"),
    }
    let exit = match &cli.command {
        Command::Config(args) => config::run(args, lang, &terminal)
            .unwrap_or_else(|fault| failed(&fault, lang, &terminal)),
        Command::Completions(args) => completions::run(args, command(), &terminal),
        Command::Man(args) => man::run(args, command(), lang, &terminal)
            .unwrap_or_else(|fault| failed(&fault, lang, &terminal)),
        Command::Explain(args) => explain::main(args, lang, &terminal),
        Command::Demo(args) => wait(demo::run(args, lang, &terminal), lang, &terminal),
        Command::Chat(args) => wait(chat::run(args, lang, &terminal), lang, &terminal),
        Command::Top(args) => wait(top::run(args, lang, &terminal), lang, &terminal),
        Command::Nodes(args) => wait(nodes::run(args, lang, &terminal), lang, &terminal),
        Command::Tools(args) => wait(tools::run(args, lang, &terminal), lang, &terminal),
        Command::Mcp(args) => wait(mcp::run(args, lang, &terminal), lang, &terminal),
        Command::Run(args) => wait(run::run(args, lang, &terminal), lang, &terminal),
        Command::Resume(args) => wait(run::resume(args, lang, &terminal), lang, &terminal),
        Command::Cancel(args) => wait(run::cancel(args, lang, &terminal), lang, &terminal),
        Command::Replay(args) => wait(run::replay(args, lang, &terminal), lang, &terminal),
        Command::Serve(args) => wait(serve::run(args, lang, &terminal), lang, &terminal),
        Command::Acp(args) => wait(acp::run(args, lang, &terminal), lang, &terminal),
        Command::Sessions(args) => wait(sessions::run(args, lang, &terminal), lang, &terminal),
        Command::Spending(args) => wait(spending::run(args, lang, &terminal), lang, &terminal),
        Command::Doubts(args) => wait(doubts::run(args, lang, &terminal), lang, &terminal),
        Command::Timers(args) => wait(timers::run(args, lang, &terminal), lang, &terminal),
        Command::Journal(args) => wait(journal::run(args, lang, &terminal), lang, &terminal),
        Command::Smcp(args) => wait(smcp::run(args, lang, &terminal), lang, &terminal),
        Command::Backup(args) => wait(journal::backup(args, lang, &terminal), lang, &terminal),
    };
    terminal.finish(exit)
}

/// Runs a future on a new tokio runtime and prints its fault, if any.
fn wait(work: impl Future<Output = Result<Exit, Fault>>, lang: Lang, terminal: &Terminal) -> Exit {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            terminal.say(&format!("Starting the worker threads failed: {error}"));
            return Exit::Failed;
        }
    };
    let done = runtime.block_on(async {
        traces::start()?;
        let done = work.await;
        traces::finish().await;
        done
    });
    // Programs started by this process do not outlive it.
    let left = budao_tools::launch::end_all(CHILDREN_END_MAX);
    if left > 0 {
        tracing::warn!(
            remaining = left,
            "child processes still running; their supervisors end them"
        );
    }
    // Threads that still block are not waited for.
    runtime.shutdown_background();
    done.unwrap_or_else(|fault| failed(&fault, lang, terminal))
}

fn failed(fault: &Fault, lang: Lang, terminal: &Terminal) -> Exit {
    if let Some(text) = missing::describe(fault, lang) {
        terminal.say(&text);
        return Exit::Usage;
    }
    terminal.say(&texts::with_address(text::user_text(fault, lang), fault));
    for advice in fault.user_advice() {
        let line = match advice {
            Advice::Custom(line) => line.clone(),
            Advice::Known { advice, with } => text::line(&format!("advice-{advice}"), with, lang),
        };
        terminal.say(&format!("  {line}"));
    }
    if let (Kind::ConfigurationWrong, Some(nearest)) =
        (fault.kind(), fault.detail().get(Fact::Nearest))
    {
        let question = localize(lang, "main-did-you-mean");
        let mark = localize(lang, "main-mark");
        terminal.say(&format!("  {question} `{}`{mark}", terminal.name(nearest.to_string())));
    }
    for cause in fault.causes() {
        terminal.say(&terminal.faint(format!("  {cause}")));
    }
    terminal.say(&format!("  budao explain {}", fault.row().code));
    match fault.kind() {
        Kind::ConfigurationWrong
        | Kind::UnknownSession
        | Kind::NoJournal
        | Kind::NotAJournal
        | Kind::JournalLoginRefused
        | Kind::JournalNoDatabase
        | Kind::JournalNoRights
        | Kind::JournalSettingUnsafe
        | Kind::JournalNotTrusted
        | Kind::FileExists => Exit::Usage,
        Kind::Bug => Exit::Bug,
        _ => Exit::Failed,
    }
}

/// Sends log lines to stderr, filtered by `BUDAO_LOG`, else by `usual`.
fn logging(usual: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("BUDAO_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(usual));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(console::colors_enabled_stderr())
        .with_writer(std::io::stderr)
        .try_init();
}

/// Installs the TLS provider of this process.
fn install_tls() {
    // This fails only if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
