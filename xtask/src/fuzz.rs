//! `cargo xtask fuzz`: feeds every parser and decoder hostile input for as long as one likes.
//!
//! With cargo-fuzz and a nightly compiler it is guided by coverage; without, the mutator of `crates/hostile` does it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::{built, process, repo};

/// Read by the program itself, which has no library: its target is a test of the program.
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
    /// Feed this file once instead
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Do not use cargo-fuzz though it is there
    #[arg(long)]
    plain: bool,
}

/// Feeds.
///
/// # Errors
/// When a target broke; what was printed says on what.
pub(crate) fn run(args: &Args) -> Result<()> {
    let (config, others): (Vec<&String>, Vec<&String>) =
        args.targets.iter().partition(|name| *name == CONFIG);
    if !others.is_empty() || args.targets.is_empty() {
        if args.input.is_none() && !args.plain && has_coverage() {
            covered(&others, args)?;
        } else {
            mutated(&others, args)?;
        }
    }
    if !config.is_empty() || args.targets.is_empty() {
        configuration(args)?;
    }
    Ok(())
}

/// Is cargo-fuzz here, and the compiler it needs?
fn has_coverage() -> bool {
    let nightly = Command::new("rustc").args(["+nightly", "--version"]).output();
    which::which("cargo-fuzz").is_ok() && nightly.is_ok_and(|output| output.status.success())
}

fn covered(targets: &[&String], args: &Args) -> Result<()> {
    let root = repo::root();
    // The same dependencies as everything else.
    std::fs::copy(root.join("Cargo.lock"), root.join("fuzz/Cargo.lock"))?;
    let mut names: Vec<String> = targets.iter().map(|name| (*name).clone()).collect();
    if names.is_empty() {
        let mut list = Command::new("cargo");
        list.args(["+nightly", "fuzz", "list"]).current_dir(&root);
        let list = list.output().context("cannot run cargo-fuzz")?;
        names = String::from_utf8_lossy(&list.stdout).lines().map(str::to_owned).collect();
    }
    let seconds = format!("-max_total_time={}", args.minutes * 60);
    let seed = format!("-seed={}", args.seed);
    for name in names {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(&root).args(["+nightly", "fuzz", "run", &name]);
        // What it finds worth keeping goes into a folder of its own; the committed corpus stays small.
        let found = root.join("fuzz/artifacts/found").join(&name);
        std::fs::create_dir_all(&found)?;
        cargo.arg(found).arg(root.join("fuzz/corpus").join(&name));
        cargo.args(["--", &seconds, &seed, "-timeout=20", "-rss_limit_mb=2048", "-max_len=65536"]);
        process::run(&mut cargo, None)?;
    }
    Ok(())
}

fn mutated(targets: &[&String], args: &Args) -> Result<()> {
    let mut hostile = built::bin("budao-hostile")?;
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
