//! Builds and finds the release binary.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::{StepContext, StepResult};
use crate::metadata::Metadata;

/// Builds the default member of the workspace, as `cargo run --release` does.
pub(super) fn build(run: &StepContext) -> Result<StepResult> {
    run.cargo(&["build", "--locked", "--release"])?;
    let size = fs::metadata(program(run, "release")?).context("find the release binary")?.len();
    Ok(StepResult::Passed(format!("{:.1} MB", size as f64 / 1e6)))
}

/// The binary whose commands are tried: with `--full` the release binary, which the step before built, else that of the
/// other steps.
pub(super) fn binary(run: &StepContext) -> Result<PathBuf> {
    if run.is_full {
        return program(run, "release");
    }
    run.cargo(&["build", "--locked", "--workspace", "--bins", "--examples"])?;
    program(run, "debug")
}

fn program(run: &StepContext, profile: &str) -> Result<PathBuf> {
    let target = Metadata::load(&run.root)?.target_directory;
    Ok(target.join(Path::new(profile).join(format!("budao{}", std::env::consts::EXE_SUFFIX))))
}
