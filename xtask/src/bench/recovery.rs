//! `cargo xtask bench recovery`: builds the storms of `crates/testkit/benches/recovery`, runs them, and renders figures.
//!
//! With `--peers` other clients of the same service take part (`xtask/peers/*/storm.py`). `--write` puts the figures into
//! `docs/benchmarks.md`, with a chart.

mod report;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{Circumstances, Run, build, load, measure};
use crate::metadata::Metadata;
use crate::{peers, repo, test_programs};

/// Package and bench target of the storms.
pub(super) const TARGET: (&str, &str) = ("budao-testkit", "recovery");

/// The peers with a `storm.py`, in the order of the columns.
const PEERS: [&str; 4] = ["openai-sdk", "langgraph", "openai-agents", "pydantic-ai"];

/// Time limit for all storms together.
const LIMIT: Duration = Duration::from_secs(90 * 60);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this storm; may be given several times
    #[arg(long, value_name = "NAME")]
    storm: Vec<String>,
    /// The same storms with the OpenAI SDK, LangGraph, openai-agents and pydantic-ai
    #[arg(long)]
    peers: bool,
    /// The program to measure, or `BUDAO_BIN`; built with optimisation otherwise
    #[arg(long, value_name = "FILE")]
    budao: Option<PathBuf>,
    /// Only this system: `budao` or the name of a peer; may be given several times
    #[arg(long, value_name = "NAME")]
    system: Vec<String>,
    /// Storms of a few seconds: for trying a change, not for figures
    #[arg(long)]
    quick: bool,
    /// The outage of five minutes at full length
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Write what was measured into `docs/benchmarks.md`, with a chart
    #[arg(long, conflicts_with_all = ["storm", "quick", "system"])]
    write: bool,
}

pub(super) fn main(args: &Args) -> Result<ExitCode> {
    let root = repo::root();
    let metadata = Metadata::load(&root)?;
    let load_before = load();
    let is_it = |package: &str, target: &str| (package, target) == TARGET;
    // The profile of the storms does not matter: they wait. That of the measured program does.
    let mut program =
        build(&root, &metadata, "dev", is_it)?.pop().context("cargo built no storms")?;
    program.args = arguments(args)?;
    program.limit = LIMIT;
    let rows = measure(&program, None)?;
    let run =
        Run { circumstances: Circumstances::of(&root, command(args), load_before), benches: rows };
    print!("\n{}", report::table(&run.benches));
    if args.quick {
        println!("\n!! Measured with `--quick`: these figures are for trying a change only.");
    }
    if args.write {
        report::write(&root, &run)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The `budao` to measure: the given one, that of `BUDAO_BIN`, or one that is built with optimisation.
pub(super) fn program(given: Option<&PathBuf>) -> Result<PathBuf> {
    match given.cloned().or_else(|| env::var_os("BUDAO_BIN").map(PathBuf::from)) {
        Some(path) => std::path::absolute(path).context("find the program to measure"),
        None => Ok(PathBuf::from(test_programs::optimised("budao")?.get_program())),
    }
}

/// The command line of the storms.
fn arguments(args: &Args) -> Result<Vec<String>> {
    let budao = program(args.budao.as_ref())?;
    let mut words = vec!["--budao".to_owned(), budao.to_string_lossy().into_owned()];
    for name in PEERS.iter().filter(|_| args.peers) {
        let python = peers::ensure(name)?.join("bin/python");
        let script = repo::root().join("xtask/peers").join(name).join("storm.py");
        words.extend([
            "--peer".to_owned(),
            format!("{name}={}={}", python.display(), script.display()),
        ]);
    }
    words.extend(args.storm.iter().flat_map(|name| ["--storm".to_owned(), name.clone()]));
    words.extend(args.system.iter().flat_map(|name| ["--system".to_owned(), name.clone()]));
    words.extend(args.quick.then(|| "--quick".to_owned()));
    words.extend(args.full.then(|| "--full".to_owned()));
    Ok(words)
}

/// The command as it is published: without the path of a program.
fn command(args: &Args) -> String {
    let flags = [(args.peers, " --peers"), (args.full, " --full"), (args.write, " --write")];
    let given: String = flags.iter().filter(|(is, _)| *is).map(|(_, flag)| *flag).collect();
    format!("cargo xtask bench recovery{given}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_has_its_storm() {
        for name in PEERS {
            let script = repo::root().join("xtask/peers").join(name).join("storm.py");
            assert!(script.is_file(), "{name}");
            assert!(peers::all().any(|peer| peer.name == name), "{name}");
        }
    }
}
