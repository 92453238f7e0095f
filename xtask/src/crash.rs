//! `cargo xtask crash`: kills processes with SIGKILL, again and again, and checks the remaining state each time.
//!
//! An example of `budao-journal` kills a journal writer at random times. The other cases are tests, of which every run
//! plays a share: a journal during its checkpoints, a turn at every named point, the real server, hub, computer and
//! bridge.

use anyhow::{Context as _, Result, ensure};

use crate::test_programs::{self, TestProgram};

/// Environment variable that makes the tests below kill more often than in a usual run.
const DEEP: &str = "BUDAO_CRASH_DEEP";

/// The test program, its test filter, and the kind of process that is killed.
const OTHERS: [(TestProgram, &str, &str); 6] = [
    (
        ("budao-journal", Some("crash")),
        "in_the_middle_of_a_checkpoint",
        "a journal in its checkpoints",
    ),
    (
        ("budao-runtime", Some("crash")),
        "",
        "a turn at every named point, and again while it gets up",
    ),
    (("budao-serve", Some("proof")), "killing::", "the server, with clients that come back"),
    (
        ("budao-cli", Some("killed")),
        "",
        "the hub and the computer of a room, in the middle of calls",
    ),
    (("budao-cli", Some("acp")), "survives_the_death", "the bridge of an editor"),
    (
        ("budao-cli", Some("acp")),
        "outlives_the_bridge",
        "the bridge in every way, while its CLI and shells write files",
    ),
];

/// Kills a journal writer `kills` times.
///
/// # Errors
/// When an acknowledged record is lost, duplicated or incomplete.
pub(crate) fn run(kills: u32) -> Result<()> {
    let mut victim = test_programs::example("journal-victim")?;
    let status = victim.arg(kills.to_string()).status().context("cannot run the victim")?;
    ensure!(status.success(), "a killed journal broke its promise; the line above has the seed");
    Ok(())
}

/// As [`run`], followed by all other crash tests.
///
/// # Errors
/// When a promise does not hold.
pub(crate) fn everywhere(kills: u32) -> Result<()> {
    let tests = test_programs::tests(OTHERS.map(|(which, ..)| which))?;
    println!("\na process that writes a journal, at random");
    run(kills)?;
    for (which, names, what) in OTHERS {
        println!("\n{what}");
        let mut command = tests.command(which)?;
        command.args([names, "--nocapture"]).env(DEEP, "1");
        test_programs::run(&mut command)
            .with_context(|| format!("what was killed did not get up as it should: {what}"))?;
    }
    Ok(())
}
