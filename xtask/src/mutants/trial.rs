//! Finds the tests that notice a mistake. Only tests that enter its function are run; those that are fast and noticed
//! many mistakes run first.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::copy::Program;
use crate::process::{self, ExitKind};

/// Number of parallel tests: one per core.
fn workers() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// A test that takes longer without a mistake is left out.
const LONGEST: Duration = Duration::from_secs(60);
/// With a mistake a test may take this many times as long, but at least [`HANG_LEAST`]. After that it counts as hung,
/// which means noticed.
const HANG_TIMES: u32 = 5;
const HANG_LEAST: Duration = Duration::from_secs(10);

/// One test and the functions it enters.
#[derive(Debug)]
pub(super) struct Test {
    program: usize,
    name: String,
    took: Duration,
    enters: BTreeSet<usize>,
    /// Number of mistakes the test was run on, and below the number it noticed.
    tried: AtomicUsize,
    noticed: AtomicUsize,
}

impl Test {
    /// Expected time to notice a mistake with this test; the cheapest test runs first.
    fn price(&self) -> f64 {
        let (tried, noticed) = (
            self.tried.load(Ordering::Relaxed) as f64,
            self.noticed.load(Ordering::Relaxed) as f64,
        );
        self.took.as_secs_f64() * (tried + 1.0) / (noticed + 0.5)
    }
}

/// The result of one mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Noticed,
    Hung,
    /// No test failed; the value is the number of tests that entered the function.
    Missed(usize),
}

/// Calls `work` for every index, on all cores.
fn side_by_side(count: usize, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..workers() {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    work(index);
                }
            });
        }
    });
}

/// Runs every test once, without a mistake. Failing tests are printed and left out.
pub(super) fn tests(programs: &[Program], scratch: &Path) -> Result<Vec<Test>> {
    if scratch.exists() {
        fs::remove_dir_all(scratch).context("remove what an earlier run left")?;
    }
    fs::create_dir_all(scratch).context("make a folder for what tests enter")?;
    let mut named = Vec::new();
    for (index, program) in programs.iter().enumerate() {
        let mut list = process::command(&program.path.to_string_lossy(), &program.dir);
        let said = process::output_of(list.args(["--list", "--format", "terse"]), LONGEST)?;
        let names = said.lines().filter_map(|line| line.strip_suffix(": test"));
        named.extend(names.map(|name| (index, name.to_owned())));
    }
    let found = Mutex::new(Vec::new());
    side_by_side(named.len(), |index| {
        let (program, name) = &named[index];
        let file = scratch.join(index.to_string());
        let began = Instant::now();
        let told = ("BUDAO_MISTAKE_REACHED", file.to_string_lossy().into_owned());
        let ended = run(&programs[*program], name, told, LONGEST);
        let took = began.elapsed();
        if ended != ExitKind::Success {
            println!("left out, {ended:?} without a mistake: {name}");
            return;
        }
        let said = fs::read_to_string(&file).unwrap_or_default();
        let enters = said.lines().filter_map(|line| line.parse().ok()).collect();
        let [tried, noticed] = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let test = Test { program: *program, name: name.clone(), took, enters, tried, noticed };
        found.lock().expect("no test panics here").push(test);
    });
    Ok(found.into_inner().expect("no test panics here"))
}

fn run(program: &Program, test: &str, told: (&str, String), limit: Duration) -> ExitKind {
    let mut command = process::command(&program.path.to_string_lossy(), &program.dir);
    command.args(["--exact", test, "--test-threads", "1"]).env(told.0, told.1);
    command.env("CARGO_MANIFEST_DIR", &program.dir).env("INSTA_UPDATE", "no");
    process::silently(&mut command, limit)
}

/// Tries each of these mistakes, given by number, function and package, and reports the results.
pub(super) fn all(
    programs: &[Program],
    tests: &[Test],
    mistakes: &[(usize, usize, &str)],
    patience: Duration,
    each: impl Fn(usize, Verdict) + Sync,
) {
    side_by_side(mistakes.len(), |index| {
        let (number, function, package) = mistakes[index];
        let can = |test: &&Test| {
            test.enters.contains(&function) && programs[test.program].package == package
        };
        let began = Instant::now();
        let mut tried = 0;
        let mut able: Vec<(f64, &Test)> =
            tests.iter().filter(can).map(|test| (test.price(), test)).collect();
        able.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        for (_, test) in able {
            if began.elapsed() > patience {
                break;
            }
            tried += 1;
            let limit = HANG_LEAST.max(test.took * HANG_TIMES);
            let told = ("BUDAO_MISTAKE", number.to_string());
            let ended = run(&programs[test.program], &test.name, told, limit);
            test.tried.fetch_add(1, Ordering::Relaxed);
            let verdict = match ended {
                ExitKind::Success => continue,
                ExitKind::Failure => Verdict::Noticed,
                ExitKind::TimedOut => Verdict::Hung,
            };
            test.noticed.fetch_add(1, Ordering::Relaxed);
            return each(number, verdict);
        }
        each(number, Verdict::Missed(tried));
    });
}
