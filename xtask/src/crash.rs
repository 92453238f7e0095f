//! `cargo xtask crash`: SIGKILL, again and again, and what is left is judged each time.
//!
//! A process that writes a journal is killed at random; the program that does both is an example of `budao-journal`.
//! The rest are tests of their own, which every run has a share of: a turn killed at every named point, and the real
//! server and bridge.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::{built, repo};

/// Package, test program, the tests in it, and what is killed.
const OTHERS: [(&str, &str, &str, &str); 3] = [
    ("budao-runtime", "crash", "", "a turn at every named point, and again while it gets up"),
    ("budao-serve", "proof", "killing::", "the server, with clients that come back"),
    ("budao-cli", "acp", "survives_the_death", "the bridge of an editor"),
];

/// Kills a process that writes a journal `kills` times.
///
/// # Errors
/// When something acknowledged is lost, doubled or half.
pub(crate) fn run(kills: u32) -> Result<()> {
    let mut victim = built::example("journal-victim")?;
    let status = victim.arg(kills.to_string()).status().context("cannot run the victim")?;
    ensure!(status.success(), "a killed journal broke its promise; the line above has the seed");
    Ok(())
}

/// The same, and everything else that is killed.
///
/// # Errors
/// When a promise does not hold.
pub(crate) fn everywhere(kills: u32) -> Result<()> {
    run(kills)?;
    for (package, program, tests, what) in OTHERS {
        println!("\n{what}");
        let mut cargo = Command::new("cargo");
        cargo.args(["test", "--quiet", "--package", package, "--test", program, "--", tests]);
        cargo.arg("--nocapture").env("BUDAO_CRASH_DEEP", "1").current_dir(repo::root());
        let status = cargo.status().context("cannot run cargo")?;
        ensure!(status.success(), "what was killed did not get up as it should: {what}");
    }
    Ok(())
}
