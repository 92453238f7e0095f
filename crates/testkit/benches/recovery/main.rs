//! Storms, and how many turns finish in them: the real `budao serve` and, beside it, other clients.
//!
//! Each storm has a service of its own for each system, on a free port. A system gets all its turns at once and has
//! until a bit more than the best possible time. What the service counted and what the system reported become four
//! figures: turns finished, requests per needed request, time per best possible time, tool calls done twice. `waiting`
//! is not a storm: it measures what very many waiting turns cost.
//!
//! `cargo xtask bench recovery` builds and starts this program.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a bench program's standard output is its answer"
)]

mod budao;
mod figures;
mod http;
mod peer;
mod waiting;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use budao_testkit::storm::{Pace, ServiceLog, Storm, StormService, Weather};
use clap::Parser;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use figures::Figures;
use peer::PeerProgram;

/// Runs storms against budao and other clients.
#[derive(Debug, Parser)]
struct Args {
    /// The program to measure.
    #[arg(long, env = "BUDAO_BIN")]
    budao: PathBuf,
    /// A client in Python: `NAME=PYTHON=SCRIPT`; may be given several times.
    #[arg(long)]
    peer: Vec<PeerProgram>,
    /// Only storms with these names.
    #[arg(long)]
    storm: Vec<String>,
    /// Storms of a few seconds.
    #[arg(long)]
    quick: bool,
    /// Storms of full length.
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Only these systems: `budao` or names of peers.
    #[arg(long)]
    system: Vec<String>,
    /// Cargo's flag for a bench.
    #[arg(long, hide = true)]
    bench: bool,
}

/// The outcome of the turns of one system in one storm, as it reported it.
#[derive(Debug, Default)]
struct Outcome {
    finished: usize,
    /// Tool calls beyond the first of a turn.
    twice: usize,
    /// The causes of failed turns, and how many had each.
    causes: std::collections::BTreeMap<String, usize>,
    /// Why the storm says nothing about this system.
    unsupported: Option<String>,
}

/// The services of one storm for one system.
#[derive(Debug)]
struct Endpoints {
    first: StormService,
    second: Option<StormService>,
}

impl Endpoints {
    async fn start(storm: &Storm) -> Self {
        let first = StormService::start(storm.weather.clone(), storm.steps).await;
        let second = match storm.has_second {
            true => Some(StormService::start(Weather::default(), storm.steps).await),
            false => None,
        };
        Self { first, second }
    }

    fn urls(&self) -> Vec<String> {
        std::iter::once(&self.first).chain(&self.second).map(StormService::url).collect()
    }

    /// The requests at both endpoints.
    fn log(&self) -> ServiceLog {
        let mut log = self.first.log();
        if let Some(second) = &self.second {
            let later = second.started().zip(self.first.started());
            let later = later.map_or(Duration::ZERO, |(second, first)| second - first);
            log.merge(&second.log(), later);
        }
        log
    }
}

/// With more turns than this, a peer keeps a core busy.
const MANY_TURNS: usize = 200;

/// How long a system may take: half as long again as is possible, and some time for its start.
fn time_limit(storm: &Storm) -> Duration {
    storm.best_time().mul_f64(1.5) + Duration::from_secs(20)
}

#[tokio::main]
async fn main() -> ExitCode {
    match run_all(&Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Args {
    fn pace(&self) -> Pace {
        match (self.quick, self.full) {
            (true, _) => Pace::Quick,
            (_, true) => Pace::Full,
            _ => Pace::Usual,
        }
    }

    fn wants_storm(&self, name: &str) -> bool {
        self.storm.is_empty() || self.storm.iter().any(|storm| storm == name)
    }

    fn wants_system(&self, name: &str) -> bool {
        self.system.is_empty() || self.system.iter().any(|system| system == name)
    }
}

async fn run_all(args: &Args) -> Result<()> {
    let storms = Storm::all(args.pace());
    let names: Vec<&str> = storms.iter().map(|storm| storm.name).chain([waiting::NAME]).collect();
    if let Some(unknown) = args.storm.iter().find(|name| !names.contains(&name.as_str())) {
        bail!("there is no storm `{unknown}`; the storms are: {}", names.join(", "));
    }
    ensure!(args.budao.is_file(), "there is no program `{}`", args.budao.display());
    for storm in storms.iter().filter(|storm| args.wants_storm(storm.name)) {
        println!("{}: {}", storm.name, storm.about);
        println!("  {}", storm.formula());
        for figures in run(storm, args).await.with_context(|| format!("run `{}`", storm.name))? {
            figures.emit(storm);
        }
    }
    if args.wants_storm(waiting::NAME) && args.wants_system("budao") {
        let sessions = if args.quick { 1_000 } else { 10_000 };
        println!(
            "{}: {sessions} turns wait for a service that answers 503 for ever",
            waiting::NAME
        );
        waiting::run(&args.budao, sessions).await.context("run `waiting`")?;
    }
    Ok(())
}

/// Runs budao alone, then the peers: at the same time, since they mostly wait, unless there are very many turns.
async fn run(storm: &Storm, args: &Args) -> Result<Vec<Figures>> {
    let mut all = Vec::new();
    if args.wants_system("budao") {
        let endpoints = Endpoints::start(storm).await;
        let outcome = budao::run(storm, &args.budao, &endpoints).await?;
        all.push(Figures::new("budao", storm, outcome, &endpoints.log()));
    }
    let peers =
        args.peer.iter().filter(|peer| args.wants_system(&peer.name)).map(|peer| async move {
            let endpoints = Endpoints::start(storm).await;
            // A peer that cannot be run must not end the comparison of the others.
            let outcome = peer.run(storm, &endpoints.urls()).await.unwrap_or_else(|error| {
                Outcome { unsupported: Some(format!("{error:#}")), ..Outcome::default() }
            });
            anyhow::Ok(Figures::new(&peer.name, storm, outcome, &endpoints.log()))
        });
    let at_once = if storm.turns > MANY_TURNS { 1 } else { args.peer.len().max(1) };
    let peers: Vec<Figures> = stream::iter(peers).buffered(at_once).try_collect().await?;
    all.extend(peers);
    Ok(all)
}
