//! `cargo xtask mutants`: plants small mistakes in the recovery code, one at a time, and runs the tests of the package,
//! which must fail.
//!
//! `cargo-mutants`, fetched into the peers folder, lists the mistakes. It would rebuild everything for each of them,
//! which takes most of a day. Instead all of them go into one copy of the repository, each behind a number ([`plant`]).
//! The copy is built once ([`copy`]), and each mistake then costs only the tests that enter its function ([`trial`]).

mod copy;
mod plant;
mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use self::plant::Mistake;
use self::trial::Verdict;
use crate::metadata::Metadata;
use crate::recovery::{self, AREAS};
use crate::table::{self, Align};
use crate::tools::Tool;
use crate::{process, repo};

const TOOL: Tool = Tool { name: "mutants", version: "27.1.0" };

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only files of this package; may be given several times
    #[arg(long, value_name = "NAME")]
    package: Vec<String>,
    /// Only files whose path holds this text
    #[arg(long, value_name = "TEXT")]
    file: Option<String>,
    /// Only those that no test noticed the last time, or that were not tried yet
    #[arg(long)]
    again: bool,
}

/// For how long tests are tried on one mistake until it counts as not noticed.
const PATIENCE: Duration = Duration::from_secs(120);

/// The result of a mistake, saved between runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum MutantOutcome {
    Noticed,
    Hung,
    Missed,
    /// The mistake does not compile.
    Unviable,
    /// The mistake cannot be placed behind a number.
    Apart,
}

type MutantOutcomes = BTreeMap<String, MutantOutcome>;

pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    let root = repo::root();
    let packages = recovery::packages(&args.package);
    // All mistakes go into the copy, whichever are tried, so that it is built once.
    let mistakes = listed(&root)?;
    let is_wanted = |mistake: &Mistake| {
        packages.contains(&mistake.package.as_str())
            && args.file.as_ref().is_none_or(|text| mistake.file.contains(text))
    };
    let target = Metadata::load(&root)?.target_directory;
    let kept = target.join("mistakes/ends.json");
    let mut ends: MutantOutcomes = fs::read_to_string(&kept)
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    let wanted: Vec<&Mistake> = mistakes.iter().filter(|one| is_wanted(one)).collect();
    ensure!(!wanted.is_empty(), "no such file brings sessions back");
    let is_tried = |name: &&&str| wanted.iter().any(|mistake| mistake.package == **name);
    let tried: Vec<&str> = packages.iter().filter(is_tried).copied().collect();
    let numbers = mistakes.iter().enumerate();
    let known = numbers.filter(|(_, one)| ends.get(&one.name) == Some(&MutantOutcome::Unviable));
    let known = known.map(|(number, _)| number).collect();
    // Mistakes that do not compile are saved at once: finding them takes half of the time.
    let keep = |unviable: &BTreeSet<usize>| {
        let names =
            unviable.iter().map(|number| (mistakes[*number].name.clone(), MutantOutcome::Unviable));
        save(&kept, &ends.clone().into_iter().chain(names).collect())
    };
    let copy = copy::make(&root, &target, &mistakes, &tried, known, keep)?;
    println!("{}: every test once, without a mistake", copy.root.display());
    let tests = trial::tests(&copy.programs, &target.join("mistakes/entered"))?;
    println!("{} tests, {} mistakes", tests.len(), copy.functions.len());
    let is_open = |number: &usize| {
        let mistake = &mistakes[*number];
        let is_undecided = matches!(ends.get(&mistake.name), None | Some(MutantOutcome::Missed));
        is_wanted(mistake) && (is_undecided || !args.again)
    };
    let planted: Vec<(usize, usize, &str)> = copy
        .functions
        .iter()
        .filter(|(number, _)| is_open(number))
        .map(|(number, function)| (*number, *function, mistakes[*number].package.as_str()))
        .collect();
    for (number, mistake) in mistakes.iter().enumerate() {
        let is_in = copy.functions.contains_key(&number);
        let end = if copy.unviable.contains(&number) {
            MutantOutcome::Unviable
        } else {
            MutantOutcome::Apart
        };
        if !is_in {
            ends.insert(mistake.name.clone(), end);
        }
    }
    let ends = Mutex::new(ends);
    trial::all(&copy.programs, &tests, &planted, PATIENCE, |number, verdict| {
        let name = mistakes[number].name.clone();
        let end = match verdict {
            Verdict::Noticed => MutantOutcome::Noticed,
            Verdict::Hung => MutantOutcome::Hung,
            Verdict::Missed(tried) => {
                println!("not noticed by {tried} tests: {name}");
                MutantOutcome::Missed
            }
        };
        let mut ends = ends.lock().expect("nobody panics with it");
        ends.insert(name, end);
        if let Err(error) = save(&kept, &ends) {
            eprintln!("{error:#}");
        }
    });
    let ends = ends.into_inner().expect("nobody panics with it");
    print!("\n{}", render_report(&wanted, &ends));
    save(&kept, &ends)?;
    Ok(ExitCode::SUCCESS)
}

fn save(file: &Path, ends: &MutantOutcomes) -> Result<()> {
    let text = serde_json::to_string_pretty(ends).context("write how they ended")?;
    fs::write(file, text).with_context(|| format!("write `{}`", file.display()))
}

/// All mistakes in the recovery files.
fn listed(root: &Path) -> Result<Vec<Mistake>> {
    let program = TOOL.program()?;
    let mut list = process::command(&program.to_string_lossy(), root);
    list.args(["mutants", "--list", "--json", "--no-shuffle"]);
    // cargo-mutants would list the mistakes of a repeated package twice; `packages` returns each once.
    for package in recovery::packages(&[]) {
        list.args(["--package", package]);
    }
    for area in AREAS {
        list.args(
            area.files.iter().flat_map(|file| ["--file".to_owned(), format!("crates/{file}")]),
        );
    }
    let said = process::output_of(&mut list, Duration::from_secs(300))?;
    let mut mistakes: Vec<Mistake> =
        serde_json::from_str(&said).context("understand what cargo-mutants lists")?;
    // A function whose return type is inferred from its body cannot have several bodies.
    for mistake in &mut mistakes {
        mistake.function.take_if(|function| function.return_type.contains("impl "));
    }
    Ok(mistakes)
}

/// One row per area: the fraction of compiling mistakes that some test noticed.
fn render_report(mistakes: &[&Mistake], ends: &MutantOutcomes) -> String {
    let head = [
        ("area", Align::Left),
        ("package", Align::Left),
        ("mistakes", Align::Right),
        ("noticed", Align::Right),
        ("%", Align::Right),
        ("by hanging", Align::Right),
        ("not compiled", Align::Right),
        ("not made", Align::Right),
    ];
    let mut rows = Vec::new();
    for area in AREAS {
        let is_its = |file: &str| area.files.iter().any(|one| file == format!("crates/{one}"));
        let of: Vec<&Mistake> = mistakes.iter().copied().filter(|one| is_its(&one.file)).collect();
        if !of.is_empty() {
            rows.push(row(area.name, area.package, &of, ends));
        }
    }
    rows.push(row("all", "", mistakes, ends));
    let missed = mistakes.iter().filter(|one| ends.get(&one.name) == Some(&MutantOutcome::Missed));
    let missed: String = missed.map(|one| format!("not noticed: {}\n", one.name)).collect();
    format!("{missed}\n{}", table::render(&head, &rows))
}

fn row(area: &str, package: &str, of: &[&Mistake], ends: &MutantOutcomes) -> Vec<String> {
    let count =
        |end: MutantOutcome| of.iter().filter(|one| ends.get(&one.name) == Some(&end)).count();
    let noticed = count(MutantOutcome::Noticed) + count(MutantOutcome::Hung);
    let all = noticed + count(MutantOutcome::Missed);
    let part = 100.0 * noticed as f64 / all.max(1) as f64;
    let numbers =
        [count(MutantOutcome::Hung), count(MutantOutcome::Unviable), count(MutantOutcome::Apart)];
    let mut row = vec![area.to_owned(), package.to_owned(), all.to_string(), noticed.to_string()];
    row.push(format!("{part:.1}"));
    row.extend(numbers.map(|number| number.to_string()));
    row
}
