//! The TypeScript client: its types are those of the schema, it compiles, and it does what it says in Node and in a
//! real browser, both against the real server.

use anyhow::{Context as _, Result, bail};

use super::{Done, Run};
use crate::metadata::Metadata;
use crate::{peers, process};

const HOME: &str = "clients/typescript";

/// Compiles it and runs its tests in Node.
pub(super) fn node(run: &Run) -> Result<Done> {
    build(run)?;
    tests(run, "test/node")
}

/// Runs its tests in Chromium.
pub(super) fn browser(run: &Run) -> Result<Done> {
    if which::which("chromium").is_err() {
        let missing = "chromium is not on the path";
        if run.is_ci {
            bail!("{missing}");
        }
        return Ok(Done::Skipped(missing.to_owned()));
    }
    build(run)?;
    tests(run, "test/browser")
}

/// Everything the tests start: the types, the client, the server.
fn build(run: &Run) -> Result<()> {
    let home = run.root.join(HOME);
    let mut types = process::command("node", &home);
    process::run(types.args(["scripts/types.mjs", "--check"]), run.deadline)?;
    let tsc = peers::find("web").context("the peer `web` is not here")?;
    let tsc = tsc.join("node_modules/typescript/bin/tsc");
    process::run(process::command("node", &home).arg(tsc).args(["-p", "."]), run.deadline)?;
    // With examples, dependencies have the features the tests were built with: nothing is compiled twice.
    run.cargo(&["build", "--locked", "--workspace", "--bins", "--examples"])
}

fn tests(run: &Run, folder: &str) -> Result<Done> {
    let program = Metadata::load(&run.root)?.target_directory.join("debug/budao");
    let mut node = process::command("node", &run.root.join(HOME));
    node.args(["--test", "--test-reporter", "spec"]).arg(folder);
    node.env("BUDAO_PEERS", peers::dir()?).env("BUDAO_BIN", program);
    println!("$ {}", process::shown(&node));
    let mut passed = 0;
    let status = process::follow(&mut node, run.deadline, |_, line| {
        println!("{line}");
        if let Some(count) = line.trim().strip_prefix("ℹ pass ") {
            passed = count.parse().unwrap_or(0);
        }
    })?;
    process::ended_well(&node, status)?;
    match passed {
        0 => bail!("no test ran in `{HOME}/{folder}`"),
        passed => Ok(Done::Passed(format!("{passed} tests"))),
    }
}
