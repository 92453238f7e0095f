//! `cargo xtask sim`: plays seeds on the simulator in `crates/sim`.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use crate::{sim_mutants, test_programs};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many seeds
    #[arg(long, default_value_t = 20_000)]
    pub(crate) seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// The world they are played in: engine, served, editor, smcp, services or workers
    #[arg(long, default_value = "engine")]
    world: String,
    /// Build it optimised first: minutes, and well spent from some hundred thousand seeds on
    #[arg(long)]
    release: bool,
    /// Play each seed twice: the same seed must give the same bytes
    #[arg(long)]
    twice: bool,
    /// Play a script instead, as a failure leaves it
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Play that script, or the first seed alone, and print every record that was kept
    #[arg(long)]
    story: bool,
    /// Plant each of the bugs in `crates/sim/mutants` in a copy of the code, and see that seeds find it; or only
    /// those whose names have this in them
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    mutants: Option<String>,
}

impl Args {
    /// The first `seeds` seeds of the engine world.
    pub(crate) fn first(seeds: u64) -> Self {
        Self {
            seeds,
            from: 0,
            world: "engine".to_owned(),
            release: false,
            twice: false,
            script: None,
            story: false,
            mutants: None,
        }
    }
}

/// Plays the chosen seeds.
///
/// # Errors
/// When a promise does not hold in a seed; the printed output says how to reproduce it.
pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(name) = &args.mutants {
        return sim_mutants::run(name, args.from);
    }
    let name = "budao-sim";
    let mut sim =
        if args.release { test_programs::optimised(name)? } else { test_programs::bin(name)? };
    match &args.script {
        Some(file) => sim.arg("--script").arg(file),
        None => sim.args(["--seeds", &args.seeds.to_string(), "--from", &args.from.to_string()]),
    };
    if args.script.is_none() {
        sim.args(["--world", &args.world]);
    }
    sim.args(args.twice.then_some("--twice")).args(args.story.then_some("--story"));
    let status = sim.status().context("cannot run the simulator")?;
    ensure!(status.success(), "a promise did not hold; the lines above say how to see it again");
    Ok(())
}
