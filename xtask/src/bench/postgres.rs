//! `cargo xtask bench postgres`: the figures of the journal on PostgreSQL and of several servers on it, each with its bar.
//!
//! Three programs: appends, reads and follows beside `pgbench -N`; turns, with `--peers` beside other frameworks on the same
//! server; take-over, scaling and idle cost of real `budao serve` processes.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{BenchLine, Program, build, load, measure, recovery, report};
use crate::metadata::Metadata;
use crate::{peers, repo};

/// Packages and bench targets.
const JOURNAL: (&str, &str) = ("budao-journal-postgres", "postgres");
const TURNS: (&str, &str) = ("budao-runtime", "turn");
const NODES: (&str, &str) = ("budao-testkit", "nodes");

/// The peers with a `durable.py`.
const PEERS: [&str; 2] = ["langgraph", "pydantic-ai"];

/// Time limit for one program.
const LIMIT: Duration = Duration::from_secs(20 * 60);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only figures whose name holds this text
    filter: Option<String>,
    /// The same turns with LangGraph and its saver, and with pydantic-ai and DBOS
    #[arg(long)]
    peers: bool,
    /// The `budao` of the servers, or `BUDAO_BIN`; built with optimisation otherwise
    #[arg(long, value_name = "FILE")]
    budao: Option<PathBuf>,
    /// The cargo profile of the other programs; `dev` is for trying, not for numbers
    #[arg(long, default_value = "bench")]
    profile: String,
}

/// Whether a bench target runs only in this scenario.
pub(super) fn owns(package: &str, target: &str) -> bool {
    [JOURNAL, NODES].contains(&(package, target))
}

pub(super) fn main(args: &Args) -> Result<ExitCode> {
    let root = repo::root();
    let metadata = Metadata::load(&root)?;
    let load_before = load();
    let wants = |area: &str| {
        let filter = args.filter.as_deref().unwrap_or_default();
        filter.is_empty() || filter.contains(area) || area.contains(filter)
    };
    let mut rows = Vec::new();
    if wants("postgres/") {
        rows.extend(run(args, &metadata, JOURNAL, &args.profile, Vec::new())?);
    }
    if wants("turn/postgres") {
        rows.extend(run(args, &metadata, TURNS, &args.profile, turn_arguments(args)?)?);
    }
    if wants("nodes/") {
        let budao = recovery::program(args.budao.as_ref())?;
        let words = vec!["--budao".to_owned(), budao.to_string_lossy().into_owned()];
        // Its own profile does not matter: it waits.
        rows.extend(run(args, &metadata, NODES, "dev", words)?);
    }
    print!("\n{}", report(&rows, &[], &args.profile));
    println!("load before and after: {load_before}; {}", load());
    Ok(ExitCode::SUCCESS)
}

/// Builds one program and runs it once.
fn run(
    args: &Args,
    metadata: &Metadata,
    target: (&str, &str),
    profile: &str,
    words: Vec<String>,
) -> Result<Vec<BenchLine>> {
    let is_it = |package: &str, name: &str| (package, name) == target;
    let built = build(&repo::root(), metadata, profile, is_it)?.pop();
    let mut program: Program = built.context("cargo built no bench")?;
    (program.args, program.limit) = (words, LIMIT);
    measure(&program, args.filter.as_deref())
}

fn turn_arguments(args: &Args) -> Result<Vec<String>> {
    let mut words = vec!["--postgres".to_owned()];
    for name in PEERS.iter().filter(|_| args.peers) {
        let python = peers::ensure(name)?.join("bin/python");
        let script = repo::root().join("xtask/peers").join(name).join("durable.py");
        words.push(format!("--peer={name}={}={}", python.display(), script.display()));
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_has_its_turns() {
        for name in PEERS {
            let script = repo::root().join("xtask/peers").join(name).join("durable.py");
            assert!(script.is_file(), "{name}");
            assert!(peers::all().any(|peer| peer.name == name), "{name}");
        }
    }
}
