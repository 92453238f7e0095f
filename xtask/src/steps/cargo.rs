//! The steps that consist of one cargo command each.

use std::process::Command;

use anyhow::{Result, bail};

use super::repeated::RepeatedTests;
use super::{StepContext, StepResult};
use crate::{
    peers, process,
    test_programs::{self, TestProgram},
};

pub(super) fn format(run: &StepContext) -> Result<StepResult> {
    // rustfmt ignores cargo's colour setting.
    let colour = if process::is_colour_welcome() { "auto" } else { "never" };
    run.cargo(&["fmt", "--all", "--check", "--", "--color", colour])?;
    Ok(StepResult::Passed(String::new()))
}

pub(super) fn clippy(run: &StepContext) -> Result<StepResult> {
    run.cargo(&["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    Ok(StepResult::Passed(String::new()))
}

/// The features of the command line, each of which builds alone.
const PARTS: [&str; 7] = ["acp", "claude", "documents", "postgres", "serve", "smcp", "traces"];

/// Checks the command line with the server alone; with `--full`, also with no part and with each part alone. The tests of
/// the refusals then run in a program without parts.
pub(super) fn features(run: &StepContext) -> Result<StepResult> {
    let mut alone = vec!["serve"];
    if run.is_full {
        alone.push("");
        alone.extend(PARTS.into_iter().filter(|part| *part != "serve"));
    }
    for part in alone.iter().copied() {
        let select = ["clippy", "--locked", "-p", "budao-cli", "--no-default-features"];
        run.cargo(&[&select[..], &["--features", part, "--", "-D", "warnings"]].concat())?;
    }
    if run.is_full {
        let select = ["test", "--locked", "-p", "budao-cli", "--no-default-features"];
        run.cargo(&[&select[..], &["--bin", "budao", "missing::"]].concat())?;
    }
    Ok(StepResult::Passed(format!("{} sets", alone.len())))
}

/// Runs the tests with nextest if it is installed, otherwise with cargo's own runner, and returns their count. Some
/// tests start an example as their peer, and the target selection below excludes examples, so these are built first.
/// The generated sessions whose streams each of the released front-end clients reads, with `--full`.
const FULL_SESSIONS: u32 = 10_000;

pub(super) fn tests(run: &StepContext) -> Result<StepResult> {
    run.cargo(&["build", "--locked", "--workspace", "--examples"])?;
    let mut cargo = process::cargo(&run.root);
    let runner = if which::which("cargo-nextest").is_ok() {
        cargo.args(["nextest", "run", "--retries", "1", "--test-threads", &test_threads()]);
        Runner::Nextest
    } else {
        println!("(cargo-nextest is not installed; cargo's own runner will do)");
        cargo.arg("test");
        Runner::Cargo
    };
    cargo.args(["--no-fail-fast", "--locked", "--workspace", "--lib", "--bins", "--tests"]);
    cargo.env("BUDAO_PEERS", peers::dir()?);
    if run.is_full {
        cargo.env("BUDAO_SESSIONS", FULL_SESSIONS.to_string());
    }
    let tally = count_tests(&mut cargo, runner)?;
    let repeated = tally.repeated.checked()?;
    Ok(StepResult::Passed(repeated.summary(tally.passed)))
}

/// Half more than there are cores: most tests with processes wait.
fn test_threads() -> String {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    (cores + cores / 2).to_string()
}

pub(super) fn doctests(run: &StepContext) -> Result<StepResult> {
    let mut cargo = process::cargo(&run.root);
    cargo.args(["test", "--no-fail-fast", "--locked", "--workspace", "--doc"]);
    let tally = count_tests(&mut cargo, Runner::Cargo)?;
    Ok(StepResult::Passed(format!("{} doc tests", tally.passed)))
}

fn count_tests(tests: &mut Command, runner: Runner) -> Result<Tally> {
    println!("$ {}", process::shown(tests));
    let mut tally = Tally::default();
    let status = process::follow_tests(tests, |_, line| {
        println!("{line}");
        tally.hear(runner, line);
    })?;
    if !status.success() && tally.failed > 0 {
        bail!("{} of {} tests failed", tally.failed, tally.passed + tally.failed);
    }
    process::ended_well(tests, status)?;
    Ok(tally)
}

/// Only libraries: the facade and the binary are both called `budao` and would overwrite each other's pages. One example is
/// among them so that cargo selects the features of the other steps; without it 17 dependencies are compiled again.
pub(super) fn docs(run: &StepContext) -> Result<StepResult> {
    let mut cargo = process::cargo(&run.root);
    cargo.args(["doc", "--locked", "--workspace", "--no-deps", "--lib", "--example", "first_tool"]);
    cargo.env("RUSTDOCFLAGS", "-D warnings");
    process::run(&mut cargo, None)?;
    Ok(StepResult::Passed(String::new()))
}

/// Runs in full the Socket.IO and SMCP load tests, of which a usual run does a share.
pub(super) fn acks(run: &StepContext) -> Result<StepResult> {
    let tests = [
        ("budao-socketio", "acks::"),
        ("budao-smcp", "chaos::"),
        ("budao-smcp", "very_many_calls"),
        ("budao-smcp", "raw_frames::"),
    ];
    at_length(run, &tests)
}

/// Runs all nine pairs of SMCP implementations.
pub(super) fn pairs(run: &StepContext) -> Result<StepResult> {
    peers::ensure("smcp-rust")?;
    at_length(run, &[("budao-smcp", "pairs::")])
}

fn at_length(run: &StepContext, tests: &[(&str, &str)]) -> Result<StepResult> {
    for (package, filter) in tests {
        let mut cargo = process::cargo(&run.root);
        cargo.args([
            "test",
            "--locked",
            "-p",
            package,
            "--test",
            "it",
            filter,
            "--",
            "--nocapture",
        ]);
        cargo.env("BUDAO_FULL", "1").env("BUDAO_PEERS", peers::dir()?);
        process::run(&mut cargo, None)?;
    }
    Ok(StepResult::Passed(String::new()))
}

/// Runs the ACP tests with real CLIs and a third-party editor. With `CI=true` no test may be skipped.
pub(super) fn editors(_: &StepContext) -> Result<StepResult> {
    const PROGRAM: TestProgram = ("budao-cli", Some("it"));
    let mut tests = test_programs::tests([PROGRAM])?.command(PROGRAM)?;
    tests.arg("acp::").env("CI", "true").env("BUDAO_PEERS", peers::dir()?);
    let tally = count_tests(&mut tests, Runner::Cargo)?;
    Ok(StepResult::Passed(format!("{} tests", tally.passed)))
}

/// Runs all random conversations; a usual run plays a share of them.
pub(super) fn interleavings(run: &StepContext) -> Result<StepResult> {
    for (package, filter) in [("budao-claude", "interleaving"), ("budao-acp", "stays_right")] {
        let mut cargo = process::cargo(&run.root);
        cargo.args(["test", "--locked", "-p", package, "--test", "it", filter]);
        cargo.args(["--", "--nocapture"]).env("BUDAO_FULL", "1");
        process::run(&mut cargo, None)?;
    }
    Ok(StepResult::Passed(
        "100 000 lives of the CLI, 20 000 conversations with an editor".to_owned(),
    ))
}

/// Runs the tests against a real llama.cpp, which is fetched and compiled on first use.
pub(super) fn llama(run: &StepContext) -> Result<StepResult> {
    peers::ensure("llama-cpp")?;
    let mut cargo = process::cargo(&run.root);
    cargo.args([
        "test",
        "--locked",
        "-p",
        "budao-runtime",
        "--test",
        "it",
        "llama::",
        "--",
        "--nocapture",
    ]);
    cargo.env("BUDAO_FULL", "1").env("BUDAO_PEERS", peers::dir()?);
    process::run(&mut cargo, None)?;
    Ok(StepResult::Passed(String::new()))
}

/// Runs the test with a real viewer of traces, which is fetched on first use.
pub(super) fn phoenix(run: &StepContext) -> Result<StepResult> {
    peers::ensure("phoenix")?;
    let mut cargo = process::cargo(&run.root);
    cargo.args(["test", "--locked", "-p", "budao-cli", "--test", "it", "phoenix::"]);
    cargo.args(["--", "--nocapture"]);
    cargo.env("BUDAO_FULL", "1").env("BUDAO_PEERS", peers::dir()?);
    process::run(&mut cargo, None)?;
    Ok(StepResult::Passed(String::new()))
}

pub(super) fn deny(run: &StepContext) -> Result<StepResult> {
    if which::which("cargo-deny").is_err() {
        return Ok(StepResult::Skipped("cargo-deny is not installed".to_owned()));
    }
    run.cargo(&["deny", "--locked", "check"])?;
    Ok(StepResult::Passed(String::new()))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runner {
    Nextest,
    Cargo,
}

/// Test counts, read from the output of the runners.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
    repeated: RepeatedTests,
}

impl Tally {
    /// Parses nextest's `Summary [ 0.1s] 3 tests run: 2 passed, 1 failed, 0 skipped` and cargo's `test result: ok. 3
    /// passed; 0 failed; …`, which appears once per test binary. Nextest repeats the latter for a failed test, so each
    /// runner has its own pattern.
    fn hear(&mut self, runner: Runner, line: &str) {
        let plain = without_colour(line);
        let plain = plain.trim_start();
        if let (Runner::Nextest, Some(repeated)) = (runner, repeated_test(plain)) {
            self.repeated.add(repeated);
        }
        let is_count = match runner {
            Runner::Nextest => plain.starts_with("Summary [") && plain.contains(" run: "),
            Runner::Cargo => plain.starts_with("test result: "),
        };
        if !is_count {
            return;
        }
        let mut count = None;
        for word in plain.split([' ', ',', ';', '.', ':']).filter(|word| !word.is_empty()) {
            match word {
                "passed" => self.passed += count.unwrap_or(0),
                "failed" => self.failed += count.unwrap_or(0),
                _ => {}
            }
            count = word.parse::<u64>().ok();
        }
    }
}

/// The test of nextest's `FLAKY 2/2 [   0.013s] (1/1) budao-models::it failures::no_such_name`.
fn repeated_test(line: &str) -> Option<&str> {
    line.strip_prefix("FLAKY ")?.rsplit([']', ')']).next().map(str::trim)
}

/// The text without terminal colours (`ESC [ … m`).
fn without_colour(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(runner: Runner, lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.hear(runner, line));
        tally
    }

    fn passed(passed: u64, failed: u64) -> Tally {
        Tally { passed, failed, ..Tally::default() }
    }

    #[test]
    fn understands_nextest() {
        let lines = [
            "test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 41 filtered out",
            "     Summary [   1.024s] 41/42 tests run: 40 passed (1 slow), 1 failed, 3 skipped",
        ];
        assert_eq!(tally(Runner::Nextest, &lines), passed(40, 1));
        let coloured = "\u{1b}[32;1m     Summary\u{1b}[0m [   0.1s] \u{1b}[1m5\u{1b}[0m tests run: \
                        \u{1b}[1m5\u{1b}[0m \u{1b}[32;1mpassed\u{1b}[0m, 0 skipped";
        assert_eq!(tally(Runner::Nextest, &[coloured]), passed(5, 0));
    }

    #[test]
    fn a_test_that_nextest_repeated_is_named() {
        let lines = [
            "  TRY 1 FAIL [   0.005s] (─────────) budao-models::it failures::one",
            "   FLAKY 2/2 [   0.006s] (1/1) budao-models::it failures::one::case_1",
            "     Summary [   0.012s] 1 test run: 1 passed (1 flaky), 0 skipped",
        ];
        let tally = tally(Runner::Nextest, &lines);
        assert_eq!((tally.passed, tally.failed), (1, 0));
        assert_eq!(tally.repeated.names(), ["budao-models::it failures::one::case_1"]);
    }

    #[test]
    fn adds_up_cargos_own_runner() {
        let lines = [
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
            "running 2 tests",
            "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out",
        ];
        assert_eq!(tally(Runner::Cargo, &lines), passed(4, 1));
    }

    #[test]
    fn other_lines_count_nothing() {
        let lines = ["7 passed", "PASS [ 0.1s] 3 failed"];
        assert_eq!(tally(Runner::Nextest, &lines), Tally::default());
    }
}
