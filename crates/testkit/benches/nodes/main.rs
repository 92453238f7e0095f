//! Figures of several `budao serve` processes on one PostgreSQL server: take-over, drain, an idle node, and the turns of three
//! nodes beside those of one.
//!
//! `cargo xtask bench postgres` builds and starts this program, and names the `budao` to measure.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a bench program's standard output is its answer"
)]

mod idle;
mod node;
mod scale;
mod take_over;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use budao_testkit::bench::{Better, Measurement, emit};
use clap::Parser;

/// Measures several servers on one journal.
#[derive(Debug, Parser)]
struct Args {
    /// The program to measure.
    #[arg(long, env = "BUDAO_BIN")]
    budao: PathBuf,
    /// Only figures whose name holds this text.
    filter: Option<String>,
    /// Cargo's flag for a bench.
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    match run(&Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> Result<()> {
    let wants = |name: &str| args.filter.as_deref().is_none_or(|filter| name.contains(filter));
    if wants("nodes/take_over") {
        take_over::measure(&args.budao).await?;
    }
    if wants("nodes/scale") {
        scale::measure(&args.budao).await?;
    }
    if wants("nodes/idle") {
        idle::measure(&args.budao).await?;
    }
    Ok(())
}

/// Prints the median of the rounds with its bar.
fn report(name: &str, mut rounds: Vec<f64>, unit: &str, (better, bar): (Better, f64), note: &str) {
    rounds.sort_by(f64::total_cmp);
    println!("  nodes/{name}: {rounds:.3?} {unit}; {note}");
    emit(&Measurement {
        bench: format!("nodes/{name}"),
        value: rounds[rounds.len() / 2],
        unit: unit.to_owned(),
        bar: Some(bar),
        better,
        low: rounds.first().copied(),
        high: rounds.last().copied(),
        note: Some(note.to_owned()),
    });
}
