//! `cargo xtask bench`: runs every bench target and compares its numbers with their bars.
//!
//! A bench target is a program (`harness = false`) that prints one JSON line per number:
//! `{"bench":"fault/render_model","value":1.2,"unit":"µs CPU","bar":2.0,"better":"lower","low":1.1,"high":1.4}`.
//! `budao_testkit::bench` writes them. Programs run alternately, round after round, so that other load on the machine
//! affects all of them alike; a number is the median over its rounds. With `--peers` other frameworks take part, and
//! [`ratio`] compares our numbers with theirs.

mod chart;
mod postgres;
mod ratio;
mod recovery;
mod report;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use crate::metadata::Metadata;
use crate::process::{self, Stream};
use crate::table::{self, Align};
use crate::{peers, repo};

/// Time limit for one bench program.
const PROGRAM_LIMIT: Duration = Duration::from_secs(15 * 60);

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    scenario: Option<Scenario>,
    /// Only benches whose name holds one of these texts
    filters: Vec<String>,
    /// Build and run the benches of this package alone; may be given several times
    #[arg(long, value_name = "NAME")]
    package: Vec<String>,
    /// Measure other frameworks too; builds them on first use, which takes minutes
    #[arg(long)]
    peers: bool,
    /// Write what was measured into `docs/benchmarks.md`, with charts
    #[arg(long)]
    write: bool,
    /// Measure nothing: write what the last run measured
    #[arg(long, conflicts_with_all = ["filters", "package", "peers", "write"])]
    last: bool,
    /// How often each program runs, in turns
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// The cargo profile; `dev` is for trying a new bench, not for numbers
    #[arg(long, default_value = "bench")]
    profile: String,
}

/// A bench with a command line of its own; the others do not run it.
#[derive(Debug, clap::Subcommand)]
enum Scenario {
    /// Count the turns that finish while a model service fails, refuses and recovers
    Recovery(recovery::Args),
    /// Measure the journal on PostgreSQL, turns on it and several servers, each figure with its bar
    Postgres(postgres::Args),
}

/// One number as a bench program reports it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct BenchLine {
    bench: String,
    value: f64,
    unit: String,
    /// The value the project promises; absent if it promises none.
    bar: Option<f64>,
    #[serde(default)]
    better: Better,
    /// Lower quartile of the program's own rounds.
    low: Option<f64>,
    high: Option<f64>,
    note: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Better {
    #[default]
    Lower,
    Higher,
}

/// The result of comparing a number with its bar.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    Met,
    /// The distance as a fraction of the bar: 0.25 is a quarter.
    MissedBy(f64),
    NoBar,
}

/// A program that prints [`BenchLine`]s.
#[derive(Debug)]
struct Program {
    name: String,
    path: PathBuf,
    /// Arguments that come before those of every bench program.
    args: Vec<String>,
    dir: PathBuf,
    /// Its time limit.
    limit: Duration,
}

pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    match &args.scenario {
        Some(Scenario::Recovery(args)) => return recovery::main(args),
        Some(Scenario::Postgres(args)) => return postgres::main(args),
        None => {}
    }
    let root = repo::root();
    let metadata = Metadata::load(&root)?;
    let file = metadata.target_directory.join("bench.json");
    if args.last {
        let run = Run::read(&file)?;
        report::write(&root, &run.benches, &run.circumstances)?;
        return Ok(ExitCode::SUCCESS);
    }
    let load_before = load();
    let is_wanted =
        |package: &str| args.package.is_empty() || args.package.iter().any(|it| it == package);
    let mut programs = build(&root, &metadata, &args.profile, |package, target| {
        let is_scenario = (package, target) == recovery::TARGET || postgres::owns(package, target);
        is_wanted(package) && !is_scenario
    })?;
    if args.peers {
        programs.extend(others()?);
    }
    let mut lines = Vec::new();
    let mut broken = Vec::new();
    for round in 1..=args.rounds {
        for program in &programs {
            println!("round {round}/{}: {}", args.rounds, program.name);
            match measure_all(program, &args.filters) {
                Ok(heard) => lines.extend(heard),
                Err(error) => {
                    eprintln!("{}: FAILED: {error:#}", program.name);
                    broken.push(program.name.clone());
                }
            }
        }
    }
    broken.sort_unstable();
    broken.dedup();
    let mut rows = merge(&lines);
    rows.extend(ratio::lines(&lines));
    if rows.is_empty() && broken.is_empty() && !args.filters.is_empty() {
        bail!("no bench has a name with `{}` in it", args.filters.join("` or `"));
    }
    print!("\n{}", report(&rows, &broken, &args.profile));
    let command = format!("cargo xtask {}", shell_words::join(std::env::args().skip(1)));
    let mut circumstances = Circumstances::of(&root, command, load_before);
    (circumstances.profile, circumstances.rounds) = (args.profile.clone(), args.rounds);
    let run = Run { circumstances, benches: rows };
    run.save(&file)?;
    if args.write {
        report::write(&root, &run.benches, &run.circumstances)?;
    }
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The peers with benches, fetched or built if necessary.
fn others() -> Result<Vec<Program>> {
    let present = peers::ensure_for_benches()?;
    let benches = present.into_iter().filter_map(|(peer, dir)| {
        let (path, args) = peers::bench(peer, &dir)?;
        Some(Program { name: format!("peer {}", peer.name), path, args, dir, limit: PROGRAM_LIMIT })
    });
    Ok(benches.collect())
}

/// Builds all wanted bench targets in one cargo call and returns the programs.
fn build(
    root: &Path,
    metadata: &Metadata,
    profile: &str,
    is_wanted: impl Fn(&str, &str) -> bool,
) -> Result<Vec<Program>> {
    let mut cargo = process::cargo(root);
    cargo.args(["bench", "--locked", "--no-run", "--profile", profile]);
    cargo.args(["--message-format", "json-render-diagnostics"]);
    let mut dirs = BTreeMap::new();
    for (package, target) in metadata.targets("bench") {
        if !is_wanted(&package.name, &target.name) {
            continue;
        }
        cargo.args(["--package", &package.name, "--bench", &target.name]);
        let name = format!("{} {}", package.name, target.name);
        dirs.insert((package.dir().join("Cargo.toml"), target.name.clone()), (name, package.dir()));
    }
    if dirs.is_empty() {
        bail!("there is no such bench target in the workspace");
    }
    println!("$ {}", process::shown(&cargo));
    let mut programs = Vec::new();
    let status = process::follow(&mut cargo, None, |stream, line| match stream {
        Stream::Err => eprintln!("{line}"),
        Stream::Out => {
            let Ok(artifact) = serde_json::from_str::<Artifact>(line) else { return };
            let key = (artifact.manifest_path, artifact.target.name);
            if let (Some(path), Some((name, dir))) = (artifact.executable, dirs.get(&key)) {
                let (name, dir) = (name.clone(), dir.to_path_buf());
                programs.push(Program { name, path, args: Vec::new(), dir, limit: PROGRAM_LIMIT });
            }
        }
    })?;
    process::ended_well(&cargo, status)?;
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(programs)
}

/// The fields of cargo's `compiler-artifact` message that name a program.
#[derive(Debug, Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: ArtifactTarget,
    executable: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct ArtifactTarget {
    name: String,
}

/// Runs a program once, or once per filter. A number that matches several filters counts once.
fn measure_all(program: &Program, filters: &[String]) -> Result<Vec<BenchLine>> {
    if filters.is_empty() {
        return measure(program, None);
    }
    let mut lines: Vec<BenchLine> = Vec::new();
    for filter in filters {
        for line in measure(program, Some(filter.as_str()))? {
            if lines.iter().all(|heard| heard.bench != line.bench) {
                lines.push(line);
            }
        }
    }
    Ok(lines)
}

/// Runs a program once. Lines of its standard output that are not measurements are printed.
fn measure(program: &Program, filter: Option<&str>) -> Result<Vec<BenchLine>> {
    let mut command: Command = process::command(&program.path.to_string_lossy(), &program.dir);
    command.args(&program.args).arg("--bench").args(filter);
    let deadline = Some(std::time::Instant::now() + program.limit);
    let mut lines = Vec::new();
    let mut odd = None;
    let status =
        process::follow(&mut command, deadline, |stream, line| match (stream, understand(line)) {
            (Stream::Out, Some(Ok(number))) => lines.push(number),
            (Stream::Out, Some(Err(error))) => odd = Some(error),
            _ => println!("  {line}"),
        })?;
    process::ended_well(&command, status)?;
    if let Some(error) = odd {
        return Err(error);
    }
    lines.retain(|line| filter.is_none_or(|filter| line.bench.contains(filter)));
    Ok(lines)
}

/// Parses a line of the protocol; `None` if the line is other output.
fn understand(line: &str) -> Option<Result<BenchLine>> {
    if !line.starts_with('{') {
        return None;
    }
    Some(serde_json::from_str(line).with_context(|| format!("understand the bench line `{line}`")))
}

/// One row per bench, in order of first appearance: the median over the rounds, and the widest spread.
fn merge(lines: &[BenchLine]) -> Vec<BenchLine> {
    let mut rows: Vec<BenchLine> = Vec::new();
    for line in lines {
        if rows.iter().any(|row| row.bench == line.bench) {
            continue;
        }
        let same: Vec<&BenchLine> =
            lines.iter().filter(|other| other.bench == line.bench).collect();
        let lows = same.iter().map(|line| line.low.unwrap_or(line.value));
        let highs = same.iter().map(|line| line.high.unwrap_or(line.value));
        rows.push(BenchLine {
            value: median(same.iter().map(|line| line.value).collect()),
            low: lows.reduce(f64::min),
            high: highs.reduce(f64::max),
            ..line.clone()
        });
    }
    rows
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

fn judge(line: &BenchLine) -> Verdict {
    let Some(bar) = line.bar else { return Verdict::NoBar };
    let beyond = match line.better {
        Better::Lower => line.value - bar,
        Better::Higher => bar - line.value,
    };
    if beyond <= 0.0 {
        Verdict::Met
    } else {
        Verdict::MissedBy(beyond / bar.abs().max(f64::MIN_POSITIVE))
    }
}

/// Three significant digits: `1.23`, `45.6`, `789`, `12300`.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

fn report(rows: &[BenchLine], broken: &[String], profile: &str) -> String {
    let head = [
        ("bench", Align::Left),
        ("value", Align::Right),
        ("unit", Align::Left),
        ("spread", Align::Left),
        ("bar", Align::Left),
        ("verdict", Align::Left),
    ];
    let verdicts: Vec<Verdict> = rows.iter().map(judge).collect();
    let cells: Vec<Vec<String>> = rows
        .iter()
        .zip(&verdicts)
        .map(|(row, verdict)| {
            let sign = if row.better == Better::Lower { "≤" } else { "≥" };
            let verdict = match verdict {
                Verdict::Met => "met".to_owned(),
                Verdict::MissedBy(part) => format!("MISSED by {} %", number(part * 100.0)),
                Verdict::NoBar => "no bar".to_owned(),
            };
            let spread = match (row.low, row.high) {
                (Some(low), Some(high)) => format!("{} … {}", number(low), number(high)),
                _ => String::new(),
            };
            vec![
                row.bench.clone(),
                number(row.value),
                row.unit.clone(),
                spread,
                row.bar.map_or_else(String::new, |bar| format!("{sign} {bar}")),
                verdict,
            ]
        })
        .collect();
    let mut text = table::render(&head, &cells);
    let mut say = |line: String| writeln!(text, "{line}").expect("a string takes all");
    let notes = rows.iter().filter_map(|row| Some((&row.bench, row.note.as_ref()?)));
    for (index, (bench, note)) in notes.enumerate() {
        say(format!("{}{bench}: {note}", if index == 0 { "\n" } else { "" }));
    }
    if profile != "bench" {
        say(format!("\n!! Built with the profile `{profile}`: these numbers mean nothing."));
    }
    if !broken.is_empty() {
        say(format!("\n!! FAILED, so not measured: {}", broken.join(", ")));
    }
    let count = |wanted: fn(&Verdict) -> bool| verdicts.iter().filter(|v| wanted(v)).count();
    say(format!(
        "\nxtask bench: {} measured, {} met their bar, {} missed it, {} have none",
        rows.len(),
        count(|verdict| *verdict == Verdict::Met),
        count(|verdict| matches!(verdict, Verdict::MissedBy(_))),
        count(|verdict| *verdict == Verdict::NoBar)
    ));
    text
}

/// A run as it is saved in `target/bench.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Run {
    #[serde(flatten)]
    circumstances: Circumstances,
    benches: Vec<BenchLine>,
}

impl Run {
    fn save(&self, file: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).context("write the numbers")?;
        fs::write(file, text + "\n").with_context(|| format!("write `{}`", file.display()))
    }

    fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file)
            .with_context(|| format!("read `{}`: was there a run?", file.display()))?;
        serde_json::from_str(&text).with_context(|| format!("understand `{}`", file.display()))
    }
}

/// Date, commit, compiler, machine and load, needed to compare runs of different days.
#[derive(Debug, Serialize, Deserialize)]
struct Circumstances {
    measured_at: String,
    commit: String,
    rustc: String,
    cpu: String,
    cores: usize,
    /// The machine's load before the first build and after the last program.
    load: [String; 2],
    profile: String,
    rounds: u32,
    command: String,
}

impl Circumstances {
    /// One round with the profile `bench`, measured now.
    fn of(root: &Path, command: String, load_before: String) -> Self {
        let mut git = process::command("git", root);
        git.args(["describe", "--always", "--dirty"]);
        Self {
            measured_at: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            commit: first_line(&mut git),
            rustc: rustc(),
            cpu: processor(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            load: [load_before, load()],
            profile: "bench".to_owned(),
            rounds: 1,
            command,
        }
    }
}

/// The machine's load average over the last minute.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}

/// The first line that a program prints; `unknown` if it cannot run.
fn first_line(command: &mut Command) -> String {
    process::output_of(command, Duration::from_secs(30)).map_or_else(
        |_| "unknown".to_owned(),
        |text| text.trim().lines().next().unwrap_or_default().to_owned(),
    )
}

/// The version of the compiler.
pub(crate) fn rustc() -> String {
    let mut rustc = process::command("rustc", &repo::root());
    rustc.arg("--version");
    first_line(&mut rustc)
}

/// The model of the processor.
pub(crate) fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("model name"));
    let model = line.and_then(|line| line.split_once(": ")).map_or("unknown", |(_, model)| model);
    model.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(bench: &str, value: f64, bar: Option<f64>, better: Better) -> BenchLine {
        BenchLine {
            bench: bench.to_owned(),
            value,
            unit: "µs CPU".to_owned(),
            bar,
            better,
            low: None,
            high: None,
            note: None,
        }
    }

    #[test]
    fn understands_the_protocol_and_leaves_talk_alone() {
        let full =
            r#"{"bench":"a/b","value":1.5,"unit":"MB/s","bar":300,"better":"higher","note":"n"}"#;
        let heard = understand(full).unwrap().unwrap();
        assert_eq!(
            (heard.bench.as_str(), heard.bar, heard.better),
            ("a/b", Some(300.0), Better::Higher)
        );
        let short = understand(r#"{"bench":"a","value":1,"unit":"s"}"#).unwrap().unwrap();
        assert_eq!((short.bar, short.better), (None, Better::Lower));
        assert!(understand("running 3 cases").is_none());
        assert!(understand(r#"{"bench":"a"}"#).unwrap().is_err());
    }

    #[test]
    fn rounds_become_one_row_with_their_median() {
        let mut lines: Vec<BenchLine> =
            [3.0, 1.0, 2.0].map(|value| line("a", value, None, Better::Lower)).to_vec();
        lines.insert(1, line("b", 9.0, None, Better::Lower));
        let rows = merge(&lines);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].value, rows[0].low, rows[0].high), (2.0, Some(1.0), Some(3.0)));
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), 2.5);
    }

    #[test]
    fn a_bar_is_met_or_missed_by_a_part_of_it() {
        assert_eq!(judge(&line("a", 2.0, Some(2.0), Better::Lower)), Verdict::Met);
        assert_eq!(judge(&line("a", 2.5, Some(2.0), Better::Lower)), Verdict::MissedBy(0.25));
        assert_eq!(judge(&line("a", 150.0, Some(300.0), Better::Higher)), Verdict::MissedBy(0.5));
        assert_eq!(judge(&line("a", 1.0, None, Better::Higher)), Verdict::NoBar);
    }

    #[test]
    fn the_table_has_every_column() {
        let mut slow = line("scrub/clean", 150.0, Some(300.0), Better::Higher);
        slow.unit = "MB/s".to_owned();
        (slow.low, slow.high) = (Some(149.0), Some(152.0));
        slow.note = Some("1 MiB of logs".to_owned());
        let rows = [line("fault/make", 1.234, Some(2.0), Better::Lower), slow];
        assert_eq!(
            report(&rows, &[], "bench"),
            "\
bench        value  unit    spread     bar    verdict
───────────  ─────  ──────  ─────────  ─────  ────────────────
fault/make    1.23  µs CPU             ≤ 2    met
scrub/clean    150  MB/s    149 … 152  ≥ 300  MISSED by 50.0 %

scrub/clean: 1 MiB of logs

xtask bench: 2 measured, 1 met their bar, 1 missed it, 0 have none
"
        );
    }
}
