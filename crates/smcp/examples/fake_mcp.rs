//! An MCP server that can misbehave, as a program for the tests of this crate.

use std::{io, process::ExitCode};

fn main() -> io::Result<ExitCode> {
    budao_testkit::mcp::serve(budao_testkit::mcp::Behaviour::from_args(std::env::args().skip(1)))
}
