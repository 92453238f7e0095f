//! The launcher as a program of its own, so that tests can start it without the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    budao_tools::launch::maybe_launch(std::env::args_os().skip(1)).unwrap_or(ExitCode::FAILURE)
}
