//! The TypeScript client: its types are those of the schema, it compiles, and it does what it says in Node and in a
//! real browser, both against the real server. And the web page, which has a copy of it, in that browser too.

use anyhow::{Context as _, Result, bail};

use super::{StepContext, StepResult};
use crate::metadata::Metadata;
use crate::{peers, process};

const HOME: &str = "clients/typescript";
const PAGE: &str = "clients/page";

/// Compiles it and runs its tests in Node.
pub(super) fn node(run: &StepContext) -> Result<StepResult> {
    build(run)?;
    let passed = tests(run, HOME, "test/node")?;
    Ok(StepResult::Passed(format!("{passed} tests")))
}

/// Runs its tests and the page's in Chromium. Pictures of the page are in `target/page`.
pub(super) fn browser(run: &StepContext) -> Result<StepResult> {
    if which::which("chromium").is_err() {
        let missing = "chromium is not on the path";
        if run.is_ci {
            bail!("{missing}");
        }
        return Ok(StepResult::Skipped(missing.to_owned()));
    }
    build(run)?;
    let passed = tests(run, HOME, "test/browser")? + tests(run, PAGE, "test")?;
    Ok(StepResult::Passed(format!("{passed} tests")))
}

/// Everything the tests start: the types, the client, the server.
fn build(run: &StepContext) -> Result<()> {
    let home = run.root.join(HOME);
    let mut types = process::command("node", &home);
    process::run(types.args(["scripts/types.mjs", "--check"]), run.deadline)?;
    let mut copy = process::command("node", &home);
    copy.args(["scripts/page.mjs", "--check"]).env("BUDAO_PEERS", peers::dir()?);
    process::run(&mut copy, run.deadline)?;
    let tsc = peers::find("web").context("the peer `web` is not here")?;
    let tsc = tsc.join("node_modules/typescript/bin/tsc");
    process::run(process::command("node", &home).arg(tsc).args(["-p", "."]), run.deadline)?;
    // With examples, dependencies have the features the tests were built with: nothing is compiled twice.
    run.cargo(&["build", "--locked", "--workspace", "--bins", "--examples"])
}

/// Runs the tests of a folder; how many passed?
fn tests(run: &StepContext, home: &str, folder: &str) -> Result<u32> {
    let program = Metadata::load(&run.root)?.target_directory.join("debug/budao");
    let mut node = process::command("node", &run.root.join(home));
    // One file after the other: some of them measure.
    node.args(["--test", "--test-reporter", "spec", "--test-concurrency", "1"]).arg(folder);
    node.env("BUDAO_PEERS", peers::dir()?).env("BUDAO_BIN", program);
    println!("$ {}", process::shown(&node));
    let mut passed: u32 = 0;
    let status = process::follow(&mut node, run.deadline, |_, line| {
        println!("{line}");
        if let Some(count) = line.trim().strip_prefix("ℹ pass ") {
            passed = count.parse().unwrap_or(0);
        }
    })?;
    process::ended_well(&node, status)?;
    match passed {
        0 => bail!("no test ran in `{home}/{folder}`"),
        passed => Ok(passed),
    }
}
