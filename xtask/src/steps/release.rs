//! Builds and finds the release binary.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::{StepContext, StepResult};
use crate::metadata::Metadata;

/// Builds the default member of the workspace, as `cargo run --release` does.
pub(super) fn build(run: &StepContext) -> Result<StepResult> {
    run.cargo(&["build", "--locked", "--release"])?;
    let size = fs::metadata(binary(run)?).context("find the release binary")?.len();
    Ok(StepResult::Passed(format!("{:.1} MB", size as f64 / 1e6)))
}

/// The path of the release binary.
pub(super) fn binary(run: &StepContext) -> Result<PathBuf> {
    let target = Metadata::load(&run.root)?.target_directory;
    Ok(target.join(Path::new("release").join(format!("budao{}", std::env::consts::EXE_SUFFIX))))
}
