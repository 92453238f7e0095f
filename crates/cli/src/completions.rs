//! `budao completions`: prints a shell's completion script.

use crate::{exit::Exit, terminal::Terminal};

/// Print the completion script for a shell.
///
/// For bash, run `source <(budao completions bash)`. For zsh, save it as `_budao` in a directory of `fpath`; for fish,
/// save it in `~/.config/fish/completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// Prints the completion script of the given shell on stdout.
pub(crate) fn run(args: &Args, mut program: clap::Command, terminal: &Terminal) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "budao", &mut script);
    terminal.data(&String::from_utf8_lossy(&script));
    Exit::Success
}
