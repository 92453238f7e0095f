//! `cargo xtask instructions`: counts the instructions and allocations of a turn, an event and an append under valgrind.
//!
//! Other work on the machine does not change the figures, so a small regression shows that a timed benchmark cannot see.
//! The accepted figures are in `xtask/instructions.toml`; one that is more than its tolerance above is a failure. They are
//! those of one compiler and one processor; elsewhere they are printed and not compared.
//! Every run of the check counts the programs of the dev profile, which it has built anyway; `--full` the release ones, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::{bench, process, repo, table, test_programs};

/// Time limit for one run under valgrind.
const RUN_LIMIT: Duration = Duration::from_secs(300);

/// What is done once, and the example that does it as often as its last argument says.
struct Case {
    name: &'static str,
    example: &'static str,
    args: &'static [&'static str],
    /// What start and end cost is in both runs, so the difference has none of it.
    counts: [u32; 2],
    /// How often it is counted; the least figure is taken. Events that come together share work, and how many do differs
    /// from run to run.
    rounds: u32,
    /// How far a figure may be above the accepted one. An append has two threads, and how they meet differs by some percent.
    tolerance: f64,
}

const CASES: [Case; 3] = [
    Case {
        name: "turn",
        example: "turns",
        args: &[],
        counts: [20, 60],
        rounds: 1,
        tolerance: 0.05,
    },
    Case {
        name: "event",
        example: "instructions",
        args: &["event"],
        counts: [500, 1_500],
        rounds: 3,
        tolerance: 0.05,
    },
    Case {
        name: "append",
        example: "instructions",
        args: &["append"],
        counts: [100, 600],
        rounds: 3,
        tolerance: 0.1,
    },
];

/// What is counted of which programs; the name is that of a table in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Figure {
    /// Instructions of the programs of the dev profile.
    Dev,
    /// Allocations and reallocations, of the same programs.
    Allocations,
    /// Instructions of the release programs.
    Release,
}

const EVERY_RUN: &[Figure] = &[Figure::Dev, Figure::Allocations];
const ALL: &[Figure] = &[Figure::Dev, Figure::Allocations, Figure::Release];

const HEAD: &str = "\
# One turn (with one call, journal in memory), one event (from the model to a client) and one append (a record of 200 bytes,
# SQLite): instructions in the dev and the release profile, and allocations. `cargo xtask instructions --write` accepts
# what it counts.
";

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Accept the new figures: they become those that later ones are compared with
    #[arg(long)]
    write: bool,
    /// Count the programs of the dev profile only, as every run of the check does
    #[arg(long)]
    dev: bool,
}

impl Args {
    /// As the step of the check counts: the release programs with `--full` only.
    pub(crate) fn of_check(is_full: bool) -> Self {
        Self { write: false, dev: !is_full }
    }
}

/// The accepted figures, and what they were counted with.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct AcceptedFigures {
    rustc: String,
    processor: String,
    /// By what is counted, then by case.
    counts: BTreeMap<Figure, BTreeMap<String, u64>>,
}

/// Counts, prints and compares; writes the figures if asked.
///
/// # Errors
/// When a figure is too high or has no accepted one, or valgrind is missing.
pub(crate) fn run(args: &Args) -> Result<String> {
    let file = repo::root().join("xtask/instructions.toml");
    let mut accepted =
        if args.write && !file.exists() { AcceptedFigures::default() } else { read(&file)? };
    let mut counted = Vec::new();
    for figure in if args.dev { EVERY_RUN } else { ALL } {
        let programs = figure.programs()?;
        for case in &CASES {
            counted.push((*figure, case.name, count_one(*figure, case, &programs[case.example])?));
        }
    }
    if args.write {
        for (figure, case, count) in &counted {
            accepted.counts.entry(*figure).or_default().insert((*case).to_owned(), *count);
        }
        (accepted.rustc, accepted.processor) = (bench::rustc(), bench::processor());
        fs::write(&file, format!("{HEAD}{}", toml::to_string(&accepted)?))
            .with_context(|| format!("write `{}`", file.display()))?;
    }
    accepted.check_complete()?;
    let head =
        ["what", "one", "count", "accepted", "change"].map(|title| (title, table::Align::Right));
    let rows: Vec<Vec<String>> = counted.iter().map(|row| accepted.row(*row)).collect();
    print!("{}", table::render(&head, &rows));
    if let Some(difference) = accepted.difference_here() {
        return Ok(format!("{} figures, not compared: {difference}", counted.len()));
    }
    let high: Vec<String> =
        counted.iter().filter_map(|figure| accepted.describe_if_high(*figure)).collect();
    ensure!(
        high.is_empty(),
        "{}; if that is meant, `cargo xtask instructions --write`",
        high.join(", ")
    );
    Ok(format!("{} figures", counted.len()))
}

fn read(file: &Path) -> Result<AcceptedFigures> {
    let text = fs::read_to_string(file).with_context(|| {
        format!("read `{}`; `cargo xtask instructions --write` makes it", file.display())
    })?;
    toml::from_str(&text).with_context(|| format!("`{}` has figures by case", file.display()))
}

impl AcceptedFigures {
    fn of(&self, figure: Figure, case: &str) -> Option<u64> {
        self.counts.get(&figure)?.get(case).copied()
    }

    /// How this machine differs from that of the figures; `None` if it does not.
    fn difference_here(&self) -> Option<String> {
        let here = [(&self.rustc, bench::rustc()), (&self.processor, bench::processor())];
        let (accepted, here) = here.into_iter().find(|(accepted, here)| *accepted != here)?;
        Some(format!("accepted with {accepted}, counted with {here}"))
    }

    fn describe_if_high(&self, (figure, name, count): (Figure, &str, u64)) -> Option<String> {
        let tolerance =
            CASES.iter().find(|case| case.name == name).map_or(0.0, |case| case.tolerance);
        let is_high = is_too_high(count, self.of(figure, name), tolerance);
        let percent = tolerance * 100.0;
        is_high.then(|| {
            format!(
                "{name} ({}) is more than {percent:.0} % above the accepted figure",
                figure.name()
            )
        })
    }

    /// Also of the figures that this run does not count, so that none is forgotten.
    fn check_complete(&self) -> Result<()> {
        for figure in ALL {
            for case in &CASES {
                ensure!(
                    self.of(*figure, case.name).is_some(),
                    "`xtask/instructions.toml` has no figure for {} ({}): `cargo xtask instructions --write`",
                    case.name,
                    figure.name()
                );
            }
        }
        Ok(())
    }

    fn row(&self, (figure, case, count): (Figure, &str, u64)) -> Vec<String> {
        let known = self.of(figure, case);
        let change = known
            .map_or_else(String::new, |known| format!("{:+.1} %", change(count, known) * 100.0));
        let known = known.map_or_else(String::new, |known| known.to_string());
        vec![figure.name().to_owned(), case.to_owned(), count.to_string(), known, change]
    }
}

impl Figure {
    fn name(self) -> &'static str {
        match self {
            Self::Dev => "instructions, dev",
            Self::Allocations => "allocations",
            Self::Release => "instructions, release",
        }
    }

    /// Builds the programs of all cases; by the name of their example.
    fn programs(self) -> Result<BTreeMap<&'static str, PathBuf>> {
        let build = match self {
            Self::Dev | Self::Allocations => test_programs::only_example,
            Self::Release => test_programs::optimised_example,
        };
        let examples: BTreeSet<&str> = CASES.iter().map(|case| case.example).collect();
        examples.into_iter().map(|example| Ok((example, build(example)?))).collect()
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Dev | Self::Release => &["--tool=callgrind", "--callgrind-out-file=/dev/null"],
            Self::Allocations => &["--leak-check=no", "--undef-value-errors=no"],
        }
    }

    /// Finds the figure in the output of valgrind.
    fn parse(self, text: &str) -> Option<u64> {
        match self {
            Self::Dev | Self::Release => instructions(text),
            Self::Allocations => allocations(text),
        }
    }
}

fn change(count: u64, accepted: u64) -> f64 {
    as_float(count) / as_float(accepted) - 1.0
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn as_float(count: u64) -> f64 {
    count as f64
}

/// A case without an accepted figure is too high, so that none is forgotten.
fn is_too_high(count: u64, accepted: Option<u64>, tolerance: f64) -> bool {
    accepted.is_none_or(|accepted| as_float(count) > as_float(accepted) * (1.0 + tolerance))
}

/// The figure of one: the least of the rounds, each from two runs.
fn count_one(figure: Figure, case: &Case, program: &Path) -> Result<u64> {
    let [few, many] = case.counts;
    let round = |_| {
        let less = count(figure, case, program, few)?;
        let more = count(figure, case, program, many)?;
        let difference = more.checked_sub(less).context("more work takes more")?;
        Ok(difference / u64::from(many - few))
    };
    let rounds = (0..case.rounds).map(round).collect::<Result<Vec<u64>>>()?;
    rounds.into_iter().min().context("a case is counted at least once")
}

fn count(figure: Figure, case: &Case, program: &Path, times: u32) -> Result<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(figure.options()).arg(program).args(case.args).arg(times.to_string());
    let output = process::capture(&mut valgrind, RUN_LIMIT)?;
    ensure!(output.status.success(), "`{}` failed", process::shown(&valgrind));
    let name = case.name;
    figure.parse(&output.stderr).with_context(|| format!("valgrind counted nothing for `{name}`"))
}

/// The figure in a line such as `==42== Collected : 123456`.
fn instructions(text: &str) -> Option<u64> {
    let line = text.lines().rev().find(|line| line.contains("Collected :"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

/// The figure in a line such as `==42==   total heap usage: 1,234 allocs, 1,230 frees, 56,789 bytes allocated`.
fn allocations(text: &str) -> Option<u64> {
    let (_, counts) = text.rsplit_once("total heap usage:")?;
    counts.split_whitespace().next()?.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_too_high_beyond_the_tolerance_or_without_an_accepted_one() {
        assert!(!is_too_high(1_050, Some(1_000), 0.05));
        assert!(is_too_high(1_051, Some(1_000), 0.05));
        assert!(!is_too_high(1_051, Some(1_000), 0.1));
        assert!(!is_too_high(500, Some(1_000), 0.05));
        assert!(is_too_high(1, None, 0.05));
    }

    #[test]
    fn the_figures_are_read_from_what_valgrind_prints() {
        let text = "==1== Events    : Ir\n==1== Collected : 71829334\n==1== \n==1== I   refs:      71,829,334\n";
        assert_eq!(instructions(text), Some(71_829_334));
        let text = "==1==   total heap usage: 1,234 allocs, 1,230 frees, 56,789 bytes allocated\n";
        assert_eq!(allocations(text), Some(1_234));
        assert_eq!((instructions("==1== nothing"), allocations("==1== nothing")), (None, None));
    }

    #[test]
    fn a_figure_that_is_missing_in_the_file_is_named() {
        let text = "rustc = \"1\"\nprocessor = \"p\"\n[counts.dev]\nturn = 3\nevent = 2\nappend = 1\n\
                    [counts.allocations]\nturn = 3\nevent = 2\n";
        let accepted: AcceptedFigures = toml::from_str(text).unwrap();
        assert_eq!(accepted.of(Figure::Dev, "event"), Some(2));
        assert!(accepted.difference_here().is_some_and(|text| text.contains("accepted with 1")));
        let error = accepted.check_complete().unwrap_err().to_string();
        assert!(error.contains("append (allocations)"), "{error}");
        assert_eq!(
            toml::from_str::<AcceptedFigures>(&toml::to_string(&accepted).unwrap()).unwrap(),
            accepted
        );
    }
}
