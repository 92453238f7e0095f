//! `cargo xtask instructions`: counts the instructions of a turn, an event and an append under valgrind.
//!
//! Other work on the machine does not change the figures, so a small regression shows that a timed benchmark cannot see.
//! The accepted figures are in `xtask/instructions.toml`; a figure more than [`TOLERANCE`] above its own is a failure.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::{process, repo, table, test_programs};

/// How far a figure may be above the accepted one.
const TOLERANCE: f64 = 0.05;

/// Time limit for one run under valgrind.
const RUN_LIMIT: Duration = Duration::from_secs(300);

/// Each case with two counts: what start and end cost is in both runs, so the difference has none of it.
const CASES: [(&str, [u32; 2]); 3] =
    [("turn", [20, 60]), ("event", [500, 2_500]), ("append", [50, 250])];

const HEAD: &str = "\
# Instructions of one turn (with one call, journal in memory), one event (from the model to a client) and one append (a record
# of 200 bytes, SQLite). The release program is counted by `cargo xtask instructions`; `--write` accepts new figures.
";

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Accept the new figures: they become those that later ones are compared with
    #[arg(long)]
    write: bool,
}

/// The accepted figures.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct AcceptedFigures(BTreeMap<String, u64>);

/// Counts, prints and compares; writes the figures if asked.
///
/// # Errors
/// When a figure is too high, or valgrind is missing.
pub(crate) fn run(args: &Args) -> Result<String> {
    let program = test_programs::optimised_example("instructions")?;
    let counted = CASES
        .iter()
        .map(|(case, counts)| Ok(((*case).to_owned(), count_one(&program, case, *counts)?)))
        .collect::<Result<BTreeMap<_, _>>>()?;
    let file = repo::root().join("xtask/instructions.toml");
    if args.write {
        fs::write(&file, format!("{HEAD}{}", toml::to_string(&AcceptedFigures(counted.clone()))?))
            .with_context(|| format!("write `{}`", file.display()))?;
    }
    let accepted = read(&file)?;
    let rows: Vec<Vec<String>> =
        counted.iter().map(|(case, count)| row(case, *count, &accepted)).collect();
    print!(
        "{}",
        table::render(
            &["one", "instructions", "accepted", "change"]
                .map(|title| (title, table::Align::Right)),
            &rows
        )
    );
    let high: Vec<&str> = counted
        .iter()
        .filter(|(case, count)| is_too_high(**count, accepted.0.get(*case).copied()))
        .map(|(case, _)| case.as_str())
        .collect();
    ensure!(
        high.is_empty(),
        "{} cost more than {:.0} % above the accepted figure; if that is meant, `cargo xtask instructions --write`",
        high.join(", "),
        TOLERANCE * 100.0
    );
    Ok(format!("{} cases", counted.len()))
}

fn read(file: &Path) -> Result<AcceptedFigures> {
    let text = fs::read_to_string(file).with_context(|| format!("read `{}`", file.display()))?;
    toml::from_str(&text).with_context(|| format!("`{}` has figures by case", file.display()))
}

fn row(case: &str, count: u64, accepted: &AcceptedFigures) -> Vec<String> {
    let known = accepted.0.get(case).copied();
    let change =
        known.map_or_else(String::new, |known| format!("{:+.1} %", change(count, known) * 100.0));
    vec![
        case.to_owned(),
        count.to_string(),
        known.map_or_else(String::new, |known| known.to_string()),
        change,
    ]
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn change(count: u64, accepted: u64) -> f64 {
    count as f64 / accepted as f64 - 1.0
}

/// A case without an accepted figure is too high, so that none is forgotten.
fn is_too_high(count: u64, accepted: Option<u64>) -> bool {
    accepted.is_none_or(|accepted| change(count, accepted) > TOLERANCE)
}

/// The instructions of one, from two runs.
fn count_one(program: &Path, case: &str, [few, many]: [u32; 2]) -> Result<u64> {
    let (less, more) = (count(program, case, few)?, count(program, case, many)?);
    let difference = more.checked_sub(less).context("more work takes more instructions")?;
    Ok(difference / u64::from(many - few))
}

fn count(program: &Path, case: &str, times: u32) -> Result<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
    valgrind.args([case, &times.to_string()]);
    let output = process::capture(&mut valgrind, RUN_LIMIT)?;
    ensure!(output.status.success(), "`{}` failed", process::shown(&valgrind));
    collected(&output.stderr).with_context(|| format!("valgrind counted nothing for `{case}`"))
}

/// The figure in a line such as `==42== Collected : 123456`.
fn collected(text: &str) -> Option<u64> {
    let line = text.lines().rev().find(|line| line.contains("Collected :"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_too_high_beyond_the_tolerance_or_without_an_accepted_one() {
        assert!(!is_too_high(1_050, Some(1_000)));
        assert!(is_too_high(1_051, Some(1_000)));
        assert!(!is_too_high(500, Some(1_000)));
        assert!(is_too_high(1, None));
    }

    #[test]
    fn the_figure_is_read_from_what_valgrind_prints() {
        let text = "==1== Events    : Ir\n==1== Collected : 71829334\n==1== \n==1== I   refs:      71,829,334\n";
        assert_eq!(collected(text), Some(71_829_334));
        assert_eq!(collected("==1== nothing"), None);
    }
}
