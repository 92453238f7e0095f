//! Checks of the TypeScript client: its types match the schema, it compiles, and its tests pass in Node and in a real
//! browser, against the real server. The web page, which contains a copy of the client, is tested in the browser too.
//! Checks of the Python package: mypy finds nothing, and its tests pass against the real server.

use anyhow::{Context as _, Result, bail};

use super::{StepContext, StepResult};
use crate::metadata::Metadata;
use crate::{peers, process};

const HOME: &str = "clients/typescript";
const PAGE: &str = "clients/page";
const CHAT: &str = "clients/chat";
const PYTHON: &str = "clients/python";

/// Number of SIGKILLs in every run, and with `--full`; `clients/harness/kills.py --kills N` does more.
const KILLS: (u32, u32) = (200, 1_000);

/// Compiles the client and runs its tests in Node.
pub(super) fn node(run: &StepContext) -> Result<StepResult> {
    build(run)?;
    let passed = tests(run, HOME, "test/node")?;
    Ok(StepResult::Passed(format!("{passed} tests")))
}

/// Runs the tests with the clients of other front-end protocols.
pub(super) fn front_ends(run: &StepContext) -> Result<StepResult> {
    build(run)?;
    let passed = tests(run, HOME, "test/front_end")?;
    Ok(StepResult::Passed(format!("{passed} tests")))
}

/// Runs the tests of the client, of the page and of the example chat in Chromium. Screenshots go to `target/page`.
pub(super) fn browser(run: &StepContext) -> Result<StepResult> {
    if which::which("chromium").is_err() {
        let missing = "chromium is not on the path";
        if run.is_ci {
            bail!("{missing}");
        }
        return Ok(StepResult::Skipped(missing.to_owned()));
    }
    build(run)?;
    let passed =
        tests(run, HOME, "test/browser")? + tests(run, PAGE, "test")? + tests(run, CHAT, "test")?;
    Ok(StepResult::Passed(format!("{passed} tests")))
}

/// Builds everything the tests start: the types, the client, the server.
fn build(run: &StepContext) -> Result<()> {
    let home = run.root.join(HOME);
    let mut types = process::command("node", &home);
    process::run(types.args(["scripts/types.mjs", "--check"]), None)?;
    let mut copy = process::command("node", &home);
    copy.args(["scripts/page.mjs", "--check"]).env("BUDAO_PEERS", peers::dir()?);
    process::run(&mut copy, None)?;
    let mut client = process::command("node", &home);
    client.arg("scripts/build.mjs").env("BUDAO_PEERS", peers::dir()?);
    process::run(&mut client, None)?;
    server(run)
}

fn server(run: &StepContext) -> Result<()> {
    // With examples, dependencies get the same features as in the tests, so that none is compiled twice.
    run.cargo(&["build", "--locked", "--workspace", "--bins", "--examples"])
}

/// Checks the types of the Python package and runs its tests.
pub(super) fn python(run: &StepContext) -> Result<StepResult> {
    server(run)?;
    let peer = peers::find("python-package").context("the peer `python-package` is not here")?;
    let python = peer.join("bin/python").to_string_lossy().into_owned();
    let home = run.root.join(PYTHON);
    let mut types = process::command(&python, &home);
    types.args(["-B", "-m", "mypy", "--cache-dir", "/dev/null"]);
    process::run(&mut types, None)?;
    let program = Metadata::load(&run.root)?.target_directory.join("debug/budao");
    let mut pytest = process::command(&python, &home);
    pytest.args(["-B", "-m", "pytest", "-q", "--durations", "5"]).env("BUDAO_BIN", program);
    println!("$ {}", process::shown(&pytest));
    let mut passed = None;
    let status = process::follow_tests(&mut pytest, |_, line| {
        println!("{line}");
        passed = super::sdk::count(line).or(passed);
    })?;
    process::ended_well(&pytest, status)?;
    let passed = passed.context("pytest did not say how many tests passed")?;
    Ok(StepResult::Passed(format!("{passed} tests")))
}

/// Kills workers, the server and clients, and compares the ledger of effects with what the clients were told.
pub(super) fn kills(run: &StepContext) -> Result<StepResult> {
    build(run)?;
    let peer = peers::find("python-package").context("the peer `python-package` is not here")?;
    let python = peer.join("bin/python").to_string_lossy().into_owned();
    let program = Metadata::load(&run.root)?.target_directory.join("debug/budao");
    let mut kills = process::command(&python, &run.root);
    kills.args(["-B", "clients/harness/kills.py", "--kills", &run.count(KILLS).to_string()]);
    kills.env("BUDAO_PEERS", peers::dir()?).env("BUDAO_BIN", program);
    println!("$ {}", process::shown(&kills));
    let mut summary = String::new();
    let status = process::follow_tests(&mut kills, |_, line| {
        println!("{line}");
        line.clone_into(&mut summary);
    })?;
    process::ended_well(&kills, status)?;
    Ok(StepResult::Passed(summary))
}

/// Runs the tests of a folder; returns the number that passed.
fn tests(run: &StepContext, home: &str, folder: &str) -> Result<u32> {
    let program = Metadata::load(&run.root)?.target_directory.join("debug/budao");
    let mut node = process::command("node", &run.root.join(home));
    // One file at a time, because some tests measure.
    node.args([
        "--test",
        "--test-reporter",
        "spec",
        "--test-concurrency",
        "1",
        "--test-timeout",
        "300000",
    ])
    .arg(folder);
    node.env("BUDAO_PEERS", peers::dir()?).env("BUDAO_BIN", program);
    println!("$ {}", process::shown(&node));
    let mut passed: u32 = 0;
    let status = process::follow_tests(&mut node, |_, line| {
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
