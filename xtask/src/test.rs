//! `cargo xtask test`: runs every check, in order, and compares its time with its budget.
//!
//! A failed step does not stop the rest, so that one run finds all failures. The report lists unchecked steps as
//! prominently as failed ones. Outside CI a step that passed with the same files is not repeated. In CI (`CI=true`) all
//! steps run, and a missing tool or peer is a failure. The last two lines are a summary: one for a machine, one for a
//! person.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::passed_steps::PassedSteps;
use crate::step_runs::StepRuns;
use crate::steps::{Need, STEPS, Step, StepContext, StepResult, StepScope};
use crate::table::{self, Align};
use crate::{peers, repo};

/// A longer cold run on two cores is reported as too slow, which fails nothing.
const TOTAL_LIMIT: Duration = Duration::from_secs(40 * 60);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Add what is too heavy for every run, and repeat what passed before; the limit on the total time does not apply then
    #[arg(long)]
    full: bool,
    /// Run the steps that passed before with the same files, too; with `CI=true` they always run
    #[arg(long)]
    again: bool,
    /// Run only these steps, in their usual order
    #[arg(long, num_args = 1.., value_name = "STEP")]
    only: Vec<String>,
    /// Say what the steps are and when each ran last in this clone, and run nothing
    #[arg(long)]
    list: bool,
}

/// The result of one step.
#[derive(Debug)]
struct Row {
    name: &'static str,
    budget: Duration,
    took: Duration,
    end: StepOutcome,
}

#[derive(Debug, PartialEq, Eq)]
enum StepOutcome {
    /// With a summary of the checks, for the table.
    Passed(String),
    Failed(String),
    Skipped(String),
    /// It passed before with the same files.
    Unchanged,
}

impl StepOutcome {
    /// None if the step did not run.
    fn has_passed(&self) -> Option<bool> {
        match self {
            Self::Passed(_) => Some(true),
            Self::Failed(_) => Some(false),
            Self::Skipped(_) | Self::Unchanged => None,
        }
    }
}

pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    if args.list {
        print!("{}", listing(&StepRuns::open()?));
        return Ok(ExitCode::SUCCESS);
    }
    let steps = choose(args)?;
    let run = StepContext { root: repo::root(), is_ci: repo::is_ci(), is_full: args.full };
    // A step that is named runs in any case.
    let memory =
        (!run.is_ci && !args.again && !args.full && args.only.is_empty()).then(PassedSteps::open);
    let memory = memory.transpose()?;
    let mut runs = StepRuns::open()?;
    let started = Instant::now();
    let total = steps.len();
    let mut rows = Vec::new();
    for (index, step) in steps.into_iter().enumerate() {
        let row = perform(step, &run, memory.as_ref(), index + 1, total);
        if let Some(has_passed) = row.end.has_passed() {
            runs.record(row.name, row.took, has_passed)?;
        }
        rows.push(row);
    }
    let took = started.elapsed();
    let is_late = run.is_ci && !args.full && took > TOTAL_LIMIT;
    print!("\n{}", report(&rows, took, is_late));
    let is_green = !rows.iter().any(|row| matches!(row.end, StepOutcome::Failed(_)));
    Ok(if is_green { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn choose(args: &Args) -> Result<Vec<&'static Step>> {
    if let Some(unknown) = args.only.iter().find(|name| STEPS.iter().all(|s| s.name != **name)) {
        let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        bail!("there is no step `{unknown}`; the steps are: {}", names.join(", "));
    }
    // Selecting a heavy step by name runs it, without `--full`.
    let wanted = |step: &&Step| {
        if args.only.is_empty() {
            args.full || step.when == StepScope::Always
        } else {
            args.only.iter().any(|name| name == step.name)
        }
    };
    Ok(STEPS.iter().filter(wanted).collect())
}

fn listing(runs: &StepRuns) -> String {
    let rows: Vec<Vec<String>> = STEPS
        .iter()
        .map(|step| {
            let when = match step.when {
                StepScope::Always => "every run",
                StepScope::Full => "--full",
            };
            let needs: Vec<String> = step.needs.iter().map(ToString::to_string).collect();
            vec![
                step.name.to_owned(),
                when.to_owned(),
                table::duration(step.budget),
                runs.describe(step.name),
                step.about.to_owned(),
                needs.join(", "),
            ]
        })
        .collect();
    let head =
        ["step", "when", "budget", "last run", "what", "needs"].map(|title| (title, Align::Left));
    table::render(&head, &rows)
}

fn perform(
    step: &'static Step,
    run: &StepContext,
    memory: Option<&PassedSteps>,
    number: usize,
    total: usize,
) -> Row {
    println!("\n━━ {number}/{total} {}: {}", step.name, step.about);
    let started = Instant::now();
    let end = match memory {
        Some(memory) if memory.has_passed(step) => StepOutcome::Unchanged,
        _ => attempt(step, run),
    };
    if let (StepOutcome::Passed(_), Some(memory)) = (&end, memory) {
        memory.record(step);
    }
    let row = Row { name: step.name, budget: step.budget, took: started.elapsed(), end };
    let (word, rest) = match &row.end {
        StepOutcome::Passed(note) if note.is_empty() => ("passed", String::new()),
        StepOutcome::Passed(note) => ("passed", format!(": {note}")),
        StepOutcome::Failed(why) => ("FAILED", format!(": {why}")),
        StepOutcome::Skipped(why) => ("SKIPPED", format!(": {why}")),
        StepOutcome::Unchanged => ("unchanged", String::new()),
    };
    let took = table::duration(row.took);
    println!("── {} {word} after {took} of {}{rest}", row.name, budget(&row));
    row
}

fn attempt(step: &Step, run: &StepContext) -> StepOutcome {
    let missing: Vec<String> =
        step.needs.iter().filter(|need| !is_there(need)).map(Need::remedy).collect();
    if !missing.is_empty() {
        let why = format!("missing: {}", missing.join("; "));
        return if run.is_ci { StepOutcome::Failed(why) } else { StepOutcome::Skipped(why) };
    }
    match (step.run)(run) {
        Ok(StepResult::Passed(note)) => StepOutcome::Passed(note),
        Ok(StepResult::Skipped(why)) => StepOutcome::Skipped(why),
        Err(error) => StepOutcome::Failed(format!("{error:#}")),
    }
}

fn is_there(need: &Need) -> bool {
    match need {
        Need::Tool(name) => which::which(name).is_ok(),
        Need::Peer(name) => peers::find(name).is_some(),
    }
}

fn budget(row: &Row) -> String {
    let budget = table::duration(row.budget);
    if row.took > row.budget { format!("{budget} OVER BUDGET") } else { budget }
}

/// The end of a run: the table, the warnings, and the two last lines.
fn report(rows: &[Row], took: Duration, is_late: bool) -> String {
    let head = [
        ("step", Align::Left),
        ("result", Align::Left),
        ("time", Align::Right),
        ("budget", Align::Left),
        ("what", Align::Left),
    ];
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let (result, note) = match &row.end {
                StepOutcome::Passed(note) => ("passed", note.as_str()),
                StepOutcome::Failed(_) => ("FAILED", ""),
                StepOutcome::Skipped(_) => ("skipped", ""),
                StepOutcome::Unchanged => ("unchanged", "passed before with the same files"),
            };
            vec![
                row.name.to_owned(),
                result.to_owned(),
                table::duration(row.took),
                budget(row),
                note.to_owned(),
            ]
        })
        .collect();
    let mut text = table::render(&head, &cells);
    let mut say = |line: String| writeln!(text, "{line}").expect("a string takes all");

    let reasons = |pick: fn(&StepOutcome) -> Option<&String>| {
        rows.iter().filter_map(move |row| Some((row.name, pick(&row.end)?))).collect::<Vec<_>>()
    };
    let failed = reasons(|end| if let StepOutcome::Failed(why) = end { Some(why) } else { None });
    let skipped = reasons(|end| if let StepOutcome::Skipped(why) = end { Some(why) } else { None });
    for (title, list) in [("FAILED", &failed), ("SKIPPED, so not checked", &skipped)] {
        if !list.is_empty() {
            say(format!("\n!! {title}:"));
        }
        for (name, why) in list {
            say(format!("!!   {name}: {}", why.replace('\n', "\n!!     ")));
        }
    }
    for row in rows.iter().filter(|row| row.took > row.budget) {
        let (took, budget) = (table::duration(row.took), table::duration(row.budget));
        say(format!("\n!! OVER BUDGET: {} took {took}, its budget is {budget}.", row.name));
    }
    if is_late {
        let limit = table::duration(TOTAL_LIMIT);
        say(format!("\n!! TOO SLOW: the whole run may take {limit}."));
    }

    let unchanged = rows.iter().filter(|row| row.end == StepOutcome::Unchanged).count();
    let passed = rows.len() - failed.len() - skipped.len() - unchanged;
    let counts = [(skipped.len(), "skipped"), (unchanged, "unchanged")];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let skips: String = counts.map(|(count, word)| format!(", {count} {word}")).collect();
    say(format!("\n{passed} passed, {} failed{skips}", failed.len()));
    let steps = if passed == 1 { "step" } else { "steps" };
    let late = if is_late { ", which is too slow" } else { "" };
    say(format!(
        "xtask test: {passed} {steps} passed, {} failed{skips} in {}{late}",
        failed.len(),
        table::duration(took)
    ));
    text
}

/// The peers that the usual steps need, or all steps with `full`.
pub(crate) fn needed_peers(full: bool) -> Vec<&'static str> {
    let mut names: Vec<&str> = STEPS
        .iter()
        .filter(|step| full || step.when == StepScope::Always)
        .flat_map(|step| step.needs)
        .filter_map(|need| if let Need::Peer(name) = need { Some(*name) } else { None })
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static str, took_s: u64, end: StepOutcome) -> Row {
        Row { name, budget: Duration::from_secs(60), took: Duration::from_secs(took_s), end }
    }

    #[test]
    fn a_report_lists_passed_failed_skipped_and_slow_tests() {
        let rows = [
            row("format", 10, StepOutcome::Passed(String::new())),
            row("clippy", 90, StepOutcome::Failed("`cargo clippy` failed\nexit 101".to_owned())),
            row("tests", 30, StepOutcome::Passed("12 tests".to_owned())),
            row("deny", 0, StepOutcome::Skipped("cargo-deny is not installed".to_owned())),
        ];
        let text = report(&rows, Duration::from_secs(130), false);
        assert_eq!(
            text,
            "\
step    result         time  budget             what
──────  ───────  ──────────  ─────────────────  ────────
format  passed         10 s  1 min
clippy  FAILED   1 min 30 s  1 min OVER BUDGET
tests   passed         30 s  1 min              12 tests
deny    skipped       0.0 s  1 min

!! FAILED:
!!   clippy: `cargo clippy` failed
!!     exit 101

!! SKIPPED, so not checked:
!!   deny: cargo-deny is not installed

!! OVER BUDGET: clippy took 1 min 30 s, its budget is 1 min.

2 passed, 1 failed, 1 skipped
xtask test: 2 steps passed, 1 failed, 1 skipped in 2 min 10 s
"
        );
    }

    #[test]
    fn a_green_report_ends_in_its_two_lines() {
        let rows = [row("format", 1, StepOutcome::Passed(String::new()))];
        let text = report(&rows, Duration::from_secs(1), false);
        assert!(
            text.ends_with(
                "\n\n1 passed, 0 failed\nxtask test: 1 step passed, 0 failed in 1.0 s\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_late_step_is_reported() {
        let rows = [row("format", 1, StepOutcome::Passed(String::new()))];
        let took = TOTAL_LIMIT + Duration::from_secs(60);
        let text = report(&rows, took, true);
        let [limit, took] = [TOTAL_LIMIT, took].map(table::duration);
        assert!(text.contains(&format!("!! TOO SLOW: the whole run may take {limit}.")), "{text}");
        assert!(text.ends_with(&format!("in {took}, which is too slow\n")), "{text}");
    }

    #[test]
    fn a_missing_tool_is_a_skip_at_home_and_a_failure_in_ci() {
        static STEP: Step = Step {
            name: "imagined",
            about: "needs what nobody has",
            budget: Duration::ZERO,
            when: StepScope::Always,
            needs: &[Need::Tool("no-such-tool-anywhere")],
            inputs: &[],
            run: |_| bail!("must not run"),
        };
        let run = |is_ci| StepContext { root: repo::root(), is_ci, is_full: false };
        let why = "missing: the program `no-such-tool-anywhere` is not on the path".to_owned();
        assert_eq!(attempt(&STEP, &run(false)), StepOutcome::Skipped(why.clone()));
        assert_eq!(attempt(&STEP, &run(true)), StepOutcome::Failed(why));
    }

    #[test]
    fn an_unchanged_step_is_distinguished_from_a_passed_one() {
        let rows = [
            row("format", 1, StepOutcome::Passed(String::new())),
            row("sim", 0, StepOutcome::Unchanged),
        ];
        let text = report(&rows, Duration::from_secs(1), false);
        assert!(text.contains("passed before with the same files"), "{text}");
        assert!(text.contains("\n1 passed, 0 failed, 1 unchanged\n"), "{text}");
    }

    #[test]
    fn the_usual_budgets_fit_into_the_limit() {
        let usual = STEPS.iter().filter(|step| step.when == StepScope::Always);
        assert!(usual.map(|step| step.budget).sum::<Duration>() <= TOTAL_LIMIT);
    }

    #[test]
    fn step_names_are_unique_and_their_peers_exist() {
        let mut names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), STEPS.len());
        for name in needed_peers(true) {
            assert!(peers::all().any(|peer| peer.name == name), "no peer `{name}`");
        }
    }
}
