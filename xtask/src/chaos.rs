//! `cargo xtask chaos`: clients of a real server on a line that breaks all the time, for as long as asked for. The same
//! storm of 20 000 disconnects is part of every test run.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::repo;

/// The test that is the storm.
const STORM: &str = "chaos::a_storm_of_disconnects_loses_nothing_and_repeats_nothing";

/// Storms for `minutes`; from this seed, if one is given.
///
/// # Errors
/// When an event was lost, repeated or out of order.
pub(crate) fn run(minutes: u32, seed: Option<u64>) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--package", "budao-serve", "--test", "proof", "--"]);
    cargo.args(["--exact", STORM, "--nocapture"]);
    cargo.env("BUDAO_CHAOS_MINUTES", minutes.to_string()).current_dir(repo::root());
    if let Some(seed) = seed {
        cargo.env("BUDAO_SEED", seed.to_string());
    }
    let status = cargo.status().context("cannot run cargo")?;
    ensure!(
        status.success(),
        "the storm found something; `--seed` with the seed above repeats its cuts"
    );
    Ok(())
}
