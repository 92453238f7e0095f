//! The Python SDK's own tests, with `budao smcp server` in the place of the SDK's server.
//!
//! `xtask/peers/a2c-smcp-tests/tests.txt` names the tests: those that use a server and do not look into its memory.
//! Left out are the two that `docs/compatibility/smcp-tests.md` explains.

use std::fs;

use anyhow::{Context as _, Result, bail};

use super::{StepContext, StepResult};
use crate::metadata::Metadata;
use crate::{peers, process};

const HOME: &str = "xtask/peers/a2c-smcp-tests";

/// Tests at the same time. Most of them wait most of the time.
const PARALLEL: &str = "4";

pub(super) fn run(run: &StepContext) -> Result<StepResult> {
    // With examples, dependencies get the same features as in the tests, so that none is compiled twice.
    run.cargo(&["build", "--locked", "--workspace", "--bins", "--examples"])?;
    let program = Metadata::load(&run.root)?.target_directory.join("debug/budao");
    let hub = format!(
        "'{}' smcp server --listen 127.0.0.1:{{port}} --accept-any-token",
        program.display()
    );
    let peer = peers::find("a2c-smcp-tests").context("the peer `a2c-smcp-tests` is not here")?;
    let home = run.root.join(HOME);
    let listed = fs::read_to_string(home.join("tests.txt")).context("read the list of tests")?;
    let tests: Vec<&str> = listed.lines().filter(|line| !line.is_empty()).collect();
    let python = peer.join("bin/python");
    let mut pytest = process::command(&python.to_string_lossy(), &peer.join("source"));
    pytest.args(["-B", "-m", "pytest", "-p", "other_hub", "-p", "no:cacheprovider", "-q"]);
    // The SDK repeats its own tests three times, because they wait for fractions of a second.
    pytest.args(["-W", "ignore", "--tb=short", "--timeout", "60", "--reruns", "3"]);
    pytest.args(["-n", PARALLEL]).args(&tests);
    pytest.env("PYTHONPATH", &home).env("HUB_COMMAND", hub).env_remove("BUDAO_SMCP_TOKEN");
    passed(&mut pytest, tests.len())
}

fn passed(pytest: &mut std::process::Command, expected: usize) -> Result<StepResult> {
    let mut passed = 0;
    let status = process::follow_tests(pytest, |_, line| {
        println!("{line}");
        passed = count(line).unwrap_or(passed);
    })?;
    process::ended_well(pytest, status)?;
    if passed != expected {
        bail!("{passed} of {expected} tests passed");
    }
    Ok(StepResult::Passed(format!("{passed} tests")))
}

/// The number of passed tests in pytest's last line: `86 passed, 1 rerun in 33.00s`.
pub(super) fn count(line: &str) -> Option<usize> {
    let (before, _) = line.split_once(" passed")?;
    before.rsplit(' ').next()?.trim_start_matches('=').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_passed_tests_is_read() {
        assert_eq!(count("86 passed, 1 rerun in 33.00s"), Some(86));
        assert_eq!(count("2 failed, 84 passed in 100.07s (0:01:40)"), Some(84));
        assert_eq!(count("....... [100%]"), None);
    }
}
