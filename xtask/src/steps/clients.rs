//! Checks of the TypeScript client: its types match the schema, it compiles, and its tests pass in Node and in a real
//! browser, against the real server. The web page, which contains a copy of the client, is tested in the browser too.
//! Checks of the Python package: mypy finds nothing, and its tests pass against the real server.

use anyhow::{Context as _, Result, bail};

use super::repeated::RepeatedTests;
use super::{StepContext, StepResult};
use crate::metadata::Metadata;
use crate::{peers, process};

const HOME: &str = "clients/typescript";
const PAGE: &str = "clients/page";
const CHAT: &str = "clients/chat";
const PYTHON: &str = "clients/python";

/// Files with tests of the page that measure; they run by themselves.
const TIMED: [&str; 3] = ["scale.", "speed.", "text."];

/// The other files that run at the same time, because they wait most of their time.
const PAGES_AT_ONCE: u32 = 2;

/// Number of SIGKILLs in every run, and with `--full`; `clients/harness/kills.py --kills N` does more.
const KILLS: (u32, u32) = (200, 1_000);

/// Compiles the client and runs its tests in Node.
pub(super) fn node(run: &StepContext) -> Result<StepResult> {
    build(run)?;
    let (passed, repeated) = tests(run, HOME, &["test/node"], 1)?;
    Ok(StepResult::Passed(repeated.summary(passed)))
}

/// Runs the tests with the clients of other front-end protocols.
pub(super) fn front_ends(run: &StepContext) -> Result<StepResult> {
    build(run)?;
    let (passed, repeated) = tests(run, HOME, &["test/front_end"], 1)?;
    Ok(StepResult::Passed(repeated.summary(passed)))
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
    let (mut passed, mut repeated) = (0, RepeatedTests::default());
    let (timed, others) = page_tests(run)?;
    let timed: Vec<&str> = timed.iter().map(String::as_str).collect();
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    let sets = [
        (HOME, &["test/browser"][..], 1),
        (PAGE, &others, PAGES_AT_ONCE),
        (PAGE, &timed, 1),
        (CHAT, &["test"], 1),
    ];
    for (home, places, at_once) in sets {
        let (more, failed_once) = tests(run, home, places, at_once)?;
        passed += more;
        repeated.extend(&failed_once);
    }
    Ok(StepResult::Passed(repeated.checked()?.summary(passed)))
}

/// The files with tests of the page: those that measure, and the others.
fn page_tests(run: &StepContext) -> Result<(Vec<String>, Vec<String>)> {
    let mut files = Vec::new();
    for file in std::fs::read_dir(run.root.join(PAGE).join("test"))? {
        let name = file?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".test.mjs") {
            files.push(format!("test/{name}"));
        }
    }
    files.sort();
    Ok(files.into_iter().partition(|file| TIMED.iter().any(|timed| file.contains(timed))))
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
    let pytest = |tests: &[String]| {
        let mut pytest = process::command(&python, &home);
        pytest.args(["-B", "-m", "pytest", "-q", "--durations", "5", "-rfE"]).args(tests);
        pytest.env("BUDAO_BIN", &program);
        println!("$ {}", process::shown(&pytest));
        let (mut passed, mut failed) = (None, RepeatedTests::default());
        let status = process::follow_tests(&mut pytest, |_, line| {
            println!("{line}");
            passed = super::sdk::count(line).or(passed);
            if let Some(test) = failed_in_python(line) {
                failed.add(test);
            }
        })?;
        if failed.names().is_empty() {
            process::ended_well(&pytest, status)?;
        }
        anyhow::Ok((passed.unwrap_or(0), failed))
    };
    let (mut passed, failed) = pytest(&[])?;
    let repeated = failed.checked()?;
    if !repeated.names().is_empty() {
        let (more, failed) = pytest(repeated.names())?;
        if let Some(test) = failed.names().first() {
            bail!("{test} failed, also when it was repeated");
        }
        passed += more;
    }
    match passed {
        0 => bail!("pytest did not say how many tests passed"),
        passed => Ok(StepResult::Passed(repeated.summary(u64::try_from(passed)?))),
    }
}

/// The test of pytest's `FAILED tests/test_runs.py::test_cut - AssertionError`, or of `ERROR …`.
fn failed_in_python(line: &str) -> Option<&str> {
    let test = line.strip_prefix("FAILED ").or_else(|| line.strip_prefix("ERROR "))?;
    Some(test.split_once(" - ").map_or(test, |(test, _)| test).trim())
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

/// Runs tests in folders or files, so many files at once; returns the number that passed and those that passed only when
/// they were repeated.
fn tests(
    run: &StepContext,
    home: &str,
    places: &[&str],
    at_once: u32,
) -> Result<(u64, RepeatedTests)> {
    let first = node_tests(run, home, places, at_once)?;
    let mut repeated = RepeatedTests::default();
    if !first.failed.is_empty() {
        let mut files: Vec<&str> = Vec::new();
        for test in &first.failed {
            repeated.add(&format!("{} ({})", test.name, test.file));
            if !files.contains(&test.file.as_str()) {
                files.push(&test.file);
            }
        }
        repeated = repeated.checked()?;
        println!("Tests failed: {}. Their files are run once more.", repeated.names().join(", "));
        let again = node_tests(run, home, &files, 1)?;
        if let Some(test) = again.failed.first() {
            bail!("{} failed, also when it was repeated", test.name);
        }
    }
    match first.passed {
        0 => bail!("no test ran in `{home}`: {}", places.join(", ")),
        passed => Ok((passed + u64::try_from(first.failed.len())?, repeated)),
    }
}

/// What a run of Node's tests said.
#[derive(Debug, Default)]
struct NodeRun {
    passed: u64,
    failed: Vec<FailedTest>,
    /// The file in the line that comes before the name of a failed test.
    file: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
struct FailedTest {
    name: String,
    file: String,
}

impl NodeRun {
    /// The list of failures has `test at test/node/runs.test.mjs:21:1` and then `✖ the name (12.3ms)`.
    fn hear(&mut self, line: &str) {
        let line = line.trim();
        if let Some(count) = line.strip_prefix("ℹ pass ") {
            self.passed = count.parse().unwrap_or(0);
        } else if let Some(place) = line.strip_prefix("test at ") {
            self.file = place.rsplitn(3, ':').last().map(str::to_owned);
        } else if let Some(name) = line.strip_prefix("✖ ") {
            let name = name.rsplit_once(" (").map_or(name, |(name, _)| name).to_owned();
            self.failed.extend(self.file.take().map(|file| FailedTest { name, file }));
        }
    }
}

/// Runs tests in folders or files. A failure that names no test is an error.
fn node_tests(run: &StepContext, home: &str, places: &[&str], at_once: u32) -> Result<NodeRun> {
    let program = Metadata::load(&run.root)?.target_directory.join("debug/budao");
    let mut node = process::command("node", &run.root.join(home));
    node.args(["--test", "--test-reporter", "spec"]);
    node.args(["--test-concurrency", &at_once.to_string()]);
    node.args(["--test-timeout", "300000"]).args(places);
    node.env("BUDAO_PEERS", peers::dir()?).env("BUDAO_BIN", program);
    println!("$ {}", process::shown(&node));
    let mut heard = NodeRun::default();
    let status = process::follow_tests(&mut node, |_, line| {
        println!("{line}");
        heard.hear(line);
    })?;
    if heard.failed.is_empty() {
        process::ended_well(&node, status)?;
    }
    Ok(heard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_pytest_are_read() {
        let test =
            failed_in_python("FAILED tests/test_runs.py::test_cut[one] - AssertionError: a - b");
        assert_eq!(test, Some("tests/test_runs.py::test_cut[one]"));
        assert_eq!(failed_in_python("1 failed, 3 passed in 2.00s"), None);
    }

    #[test]
    fn failures_of_node_are_read_with_their_files() {
        let mut heard = NodeRun::default();
        let lines = [
            "✖ the line is cut (12.5ms)",
            "ℹ pass 43",
            "ℹ fail 1",
            "✖ failing tests:",
            "",
            "test at test/node/runs.test.mjs:21:1",
            "✖ the line is cut (and (not) only once) (12.5ms)",
        ];
        lines.iter().for_each(|line| heard.hear(line));
        assert_eq!(heard.passed, 43);
        let name = "the line is cut (and (not) only once)".to_owned();
        assert_eq!(heard.failed, [FailedTest { name, file: "test/node/runs.test.mjs".to_owned() }]);
    }
}
