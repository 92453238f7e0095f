//! `cargo xtask fuzz`: feeds every parser and decoder hostile input for a chosen time.
//!
//! With a nightly compiler, cargo-fuzz guides the inputs by coverage ([`guided`]); otherwise the mutator of
//! `crates/hostile` generates them.

mod guided;

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use crate::{process, repo, test_programs};

/// The target that runs as a test of the `budao` binary, because that crate has no library.
const CONFIG: &str = "config";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which targets; all of them if none is named
    targets: Vec<String>,
    /// For how long, each
    #[arg(long, default_value_t = 1)]
    minutes: u64,
    /// The seed of the mutations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Feed this file once instead, and make it small if it breaks a promise
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// By the mutator alone, though there is a nightly compiler
    #[arg(long)]
    plain: bool,
}

/// Feeds the chosen targets.
///
/// # Errors
/// When a target failed; the printed output names the input.
pub(crate) fn run(args: &Args) -> Result<()> {
    let (config, others): (Vec<&String>, Vec<&String>) =
        args.targets.iter().partition(|name| *name == CONFIG);
    if !others.is_empty() || args.targets.is_empty() {
        let is_plain = args.plain || args.input.is_some();
        match if is_plain { None } else { guided::nightly() } {
            Some(host) => guided::run(&host, &others, args)?,
            None => {
                if !is_plain {
                    println!("no nightly compiler: using the mutator without coverage");
                }
                mutated(&others, args)?;
            }
        }
    }
    if !config.is_empty() || args.targets.is_empty() {
        configuration(args)?;
    }
    Ok(())
}

fn mutated(targets: &[&String], args: &Args) -> Result<()> {
    let mut hostile = test_programs::bin("budao-hostile")?;
    hostile.args(targets).args(["--seconds", &(args.minutes * 60).to_string()]);
    hostile.args(["--seed", &args.seed.to_string()]);
    if let Some(input) = &args.input {
        hostile.arg("--input").arg(input);
    }
    let status = hostile.status().context("cannot run the fuzzer")?;
    ensure!(status.success(), "a promise did not hold; the lines above say on what");
    Ok(())
}

fn configuration(args: &Args) -> Result<()> {
    let mut cargo = process::cargo(&repo::root());
    cargo.args([
        "test",
        "--locked",
        "-p",
        "budao-cli",
        "--bin",
        "budao",
        "whatever_a_configuration",
    ]);
    cargo.args(["--", "--nocapture"]).env("BUDAO_SEED", args.seed.to_string());
    cargo.env("BUDAO_FUZZ_SECONDS", (args.minutes * 60).to_string());
    process::run(&mut cargo, None)
}
