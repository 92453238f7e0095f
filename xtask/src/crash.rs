//! `cargo xtask crash`: a process that writes a journal is killed with SIGKILL, again and again, and what is
//! left is judged each time. The program that does both is an example of `budao-journal`.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::repo;

/// Kills `kills` times.
///
/// # Errors
/// When something acknowledged is lost, doubled or half.
pub(crate) fn run(kills: u32) -> Result<()> {
    let status = Command::new("cargo")
        .args(["run", "--quiet", "--package", "budao-journal", "--example", "journal-victim", "--"])
        .arg(kills.to_string())
        .current_dir(repo::root())
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "a killed journal broke its promise; the line above has the seed");
    Ok(())
}
