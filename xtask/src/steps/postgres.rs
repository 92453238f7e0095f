//! Finds the PostgreSQL that tests start for themselves.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use super::{StepContext, StepResult};

/// Reports the version of the server that `budao_testkit::postgres` starts, since tests without one only say so in
/// their own output. In CI a missing server is a failure.
pub(super) fn run(run: &StepContext) -> Result<StepResult> {
    let Some(programs) = programs() else {
        let why = "PostgreSQL is missing, so its journal is not tested; `apt install postgresql`";
        if run.is_ci {
            bail!("{why}");
        }
        return Ok(StepResult::Skipped(why.to_owned()));
    };
    let server = programs.join("postgres");
    let output = Command::new(&server).arg("--version").output();
    let output = output.with_context(|| format!("run {}", server.display()))?;
    ensure!(output.status.success(), "`{} --version` failed", server.display());
    Ok(StepResult::Passed(String::from_utf8_lossy(&output.stdout).trim().to_owned()))
}

/// The directory of the programs, by the same rule as the testkit: Debian's newest, else the path.
fn programs() -> Option<PathBuf> {
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut debian: Vec<PathBuf> = debian.map(|entry| entry.path().join("bin")).collect();
    debian.sort();
    let path = env::var_os("PATH").unwrap_or_default();
    let mut all = debian.into_iter().rev().chain(env::split_paths(&path));
    all.find(|directory| directory.join("initdb").exists())
}
