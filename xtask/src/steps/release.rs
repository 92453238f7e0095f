//! The release binary.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::{StepContext, StepResult};
use crate::metadata::Metadata;

/// What `cargo run --release` builds: the workspace's default member.
pub(super) fn build(run: &StepContext) -> Result<StepResult> {
    run.cargo(&["build", "--locked", "--release"])?;
    let size = fs::metadata(binary(run)?).context("find the release binary")?.len();
    Ok(StepResult::Passed(format!("{:.1} MB", size as f64 / 1e6)))
}

/// Where it is.
pub(super) fn binary(run: &StepContext) -> Result<PathBuf> {
    let target = Metadata::load(&run.root)?.target_directory;
    Ok(target.join(Path::new("release").join(format!("budao{}", std::env::consts::EXE_SUFFIX))))
}
