//! `cargo xtask mutants`: small mistakes are put into the code that brings sessions back, one at a time, and the tests of
//! its package have to notice. `cargo-mutants` does it in a copy of the repository; it is fetched into the peers folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::metadata::Metadata;
use crate::process::{self, Stream};
use crate::recovery::{self, AREAS};
use crate::{peers, repo};

const VERSION: &str = "27.1.0";
/// A mistake whose tests take so many times as long as without it has made them hang, and was noticed; but not if that is
/// less than so many seconds.
const HANG_TIMES: &str = "5";
const HANG_SECONDS: &str = "60";
const INSTALL_LIMIT: Duration = Duration::from_secs(40 * 60);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only files of this package; may be given several times
    #[arg(long, value_name = "NAME")]
    package: Vec<String>,
    /// Only files whose path holds this text
    #[arg(long, value_name = "TEXT")]
    file: Option<String>,
    /// A share of the mistakes, as `0/8`: every eighth, from the first
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// Only these tests have to notice, as nextest filters them: `not test(slow)`
    #[arg(long, value_name = "FILTER")]
    tests: Option<String>,
    /// Say which mistakes there are, and make none
    #[arg(long)]
    list: bool,
    /// For how long at most, in minutes
    #[arg(long, default_value_t = 120)]
    minutes: u64,
}

/// How one mistake ended, as `cargo-mutants` writes it down.
#[derive(Debug, Deserialize)]
struct Outcome {
    summary: String,
    scenario: serde_json::Value,
}

#[derive(Debug, Deserialize)]
struct Outcomes {
    outcomes: Vec<Outcome>,
}

pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    let root = repo::root();
    let packages = recovery::packages(&args.package);
    let areas = AREAS.iter().filter(|area| packages.contains(&area.package));
    let wanted = |file: &&&str| args.file.as_ref().is_none_or(|text| file.contains(text));
    let files: Vec<String> = areas
        .flat_map(|area| area.files)
        .filter(wanted)
        .map(|file| format!("crates/{file}"))
        .collect();
    ensure!(!files.is_empty(), "no file of that name brings sessions back");
    let program = ensure_installed()?;
    let target = Metadata::load(&root)?.target_directory;
    let mut mutants = process::command(&program.to_string_lossy(), &root);
    mutants.args(["mutants", "--no-shuffle", "--colors", "never", "--test-tool", "nextest"]);
    // The tests run once without a mistake: they have to pass, and their time is the measure of what hangs.
    mutants.args(["--timeout-multiplier", HANG_TIMES, "--minimum-test-timeout", HANG_SECONDS]);
    mutants.arg("--output").arg(&target);
    for package in &packages {
        mutants.args(["--package", package]);
    }
    for file in &files {
        mutants.args(["--file", file]);
    }
    if let Some(shard) = &args.shard {
        mutants.args(["--shard", shard, "--sharding", "round-robin"]);
    }
    mutants.args(args.list.then_some("--list"));
    if let Some(tests) = &args.tests {
        mutants.args(["--", "-E", tests]);
    }
    // What others wrote is taken as it was built; the copy's own crates have another path and so another name.
    mutants.env("CARGO_TARGET_DIR", &target).env("BUDAO_PEERS", peers::dir()?);
    println!("$ {}", process::shown(&mutants));
    let deadline = Some(Instant::now() + Duration::from_secs(args.minutes * 60));
    let ran = process::follow(&mut mutants, deadline, |stream, line| match stream {
        Stream::Out => println!("{line}"),
        Stream::Err => eprintln!("{line}"),
    });
    if args.list {
        return ran.map(|_| ExitCode::SUCCESS);
    }
    if let Err(error) = ran {
        eprintln!("{error:#}: what was tried until then counts");
    }
    let score = Score::read(&target.join("mutants.out/outcomes.json"))?;
    print!("\n{}", score.told());
    Ok(ExitCode::SUCCESS)
}

fn ensure_installed() -> Result<PathBuf> {
    let folder = peers::dir()?.join(".tools");
    let program = folder.join("bin/cargo-mutants");
    let asked = || {
        let mut command = process::command(&program.to_string_lossy(), Path::new("/"));
        process::output_of(command.args(["mutants", "--version"]), Duration::from_secs(60))
    };
    if program.is_file() && asked().is_ok_and(|said| said.contains(VERSION)) {
        return Ok(program);
    }
    println!("cargo-mutants {VERSION} is not there; building it, which takes minutes");
    let mut cargo = process::cargo(&repo::root());
    // Unoptimised: it spends its time waiting for cargo.
    cargo.args(["install", "--locked", "--quiet", "--debug", "--root"]).arg(&folder);
    cargo.arg(format!("cargo-mutants@{VERSION}"));
    process::run(&mut cargo, Some(Instant::now() + INSTALL_LIMIT))?;
    Ok(program)
}

/// What became of the mistakes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Score {
    caught: usize,
    timed_out: usize,
    unviable: usize,
    missed: Vec<String>,
}

impl Score {
    fn read(file: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(file).with_context(|| format!("read `{}`", file.display()))?;
        let heard: Outcomes = serde_json::from_str(&text)
            .with_context(|| format!("understand `{}`", file.display()))?;
        Ok(Self::of(&heard))
    }

    fn of(heard: &Outcomes) -> Self {
        let mut score = Self::default();
        for outcome in &heard.outcomes {
            match outcome.summary.as_str() {
                "CaughtMutant" => score.caught += 1,
                "Timeout" => score.timed_out += 1,
                "Unviable" => score.unviable += 1,
                "MissedMutant" => {
                    let name = outcome.scenario["Mutant"]["name"].as_str().unwrap_or("unnamed");
                    score.missed.push(name.to_owned());
                }
                // The tests without a mistake.
                _ => {}
            }
        }
        score
    }

    /// The part of those that compile which some test noticed.
    fn told(&self) -> String {
        let noticed = self.caught + self.timed_out;
        let all = noticed + self.missed.len();
        let part = 100.0 * noticed as f64 / all.max(1) as f64;
        let missed: String =
            self.missed.iter().map(|name| format!("not noticed: {name}\n")).collect();
        format!(
            "{missed}xtask mutants: {noticed} of {all} mistakes noticed, {part:.1} % ({} made the tests hang); {} more \
             did not compile\n",
            self.timed_out, self.unviable
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_counts_only_mistakes_that_compile() {
        let outcome = |summary: &str| {
            let scenario = serde_json::json!({"Mutant": {"name": "replace > with >="}});
            Outcome { summary: summary.to_owned(), scenario }
        };
        let names =
            ["Success", "CaughtMutant", "CaughtMutant", "Timeout", "Unviable", "MissedMutant"];
        let score = Score::of(&Outcomes { outcomes: names.map(outcome).into_iter().collect() });
        assert_eq!(
            score.told(),
            "not noticed: replace > with >=\nxtask mutants: 3 of 4 mistakes noticed, 75.0 % (1 made the tests hang); 1 \
             more did not compile\n"
        );
    }
}
