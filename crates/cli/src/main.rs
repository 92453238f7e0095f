//! The binary `budao`: reads the environment, wires the parts together, prints, exits.
//!
//! Every subcommand is a module with an `Args` and a `main` that returns an [`Exit`]. What it has to say goes
//! through a [`Terminal`]: data on stdout, talk on stderr. A mistake of ours that no subcommand caught ends
//! here, with an exit code of its own.

mod exit;
mod explain;
mod lang;
mod terminal;

use clap::{Parser, Subcommand};
use exit::Exit;
use terminal::Terminal;

/// Runs AI agents that fall well.
#[derive(Debug, Parser)]
#[command(name = "budao", version, max_term_width = 80, after_help = exit::HELP)]
struct Cli {
    /// The language to speak: en or zh. Otherwise that of the environment, else English
    #[arg(long, global = true, value_name = "LANG", env = "BUDAO_LANG")]
    lang: Option<String>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Explain(explain::Args),
}

fn main() -> std::process::ExitCode {
    // A tool's command runs under a launcher, which is this same program. It must come before anything that
    // could start a thread.
    if let Some(code) = budao_tools::launch::maybe_launch(std::env::args_os().skip(1)) {
        return code;
    }
    install_tls();
    std::panic::catch_unwind(|| run(&Cli::parse())).unwrap_or(Exit::Bug).into()
}

fn run(cli: &Cli) -> Exit {
    let terminal = Terminal::from_env();
    let lang = lang::choose(cli.lang.as_deref(), &terminal);
    let exit = match &cli.command {
        Command::Explain(args) => explain::main(args, lang, &terminal),
    };
    terminal.finish(exit)
}

/// One TLS provider for everything that speaks TLS in this process.
fn install_tls() {
    // It fails only if one is installed already, and then there is one.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
