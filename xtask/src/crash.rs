//! `cargo xtask crash`: a process that writes a journal is killed with SIGKILL, again and again, and what is
//! left is judged each time. The program that does both is an example of `budao-journal`.

use anyhow::{Context as _, Result, ensure};

use crate::built;

/// Kills `kills` times.
///
/// # Errors
/// When something acknowledged is lost, doubled or half.
pub(crate) fn run(kills: u32) -> Result<()> {
    let mut victim = built::example("journal-victim")?;
    let status = victim.arg(kills.to_string()).status().context("cannot run the victim")?;
    ensure!(status.success(), "a killed journal broke its promise; the line above has the seed");
    Ok(())
}
