//! The release binary.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::{Done, Run};
use crate::metadata::Metadata;

/// What `cargo run --release` builds: the workspace's default member.
pub(super) fn build(run: &Run) -> Result<Done> {
    run.cargo(&["build", "--locked", "--release"])?;
    let size = fs::metadata(binary(run)?).context("find the release binary")?.len();
    Ok(Done::Passed(format!("{:.1} MB", size as f64 / 1e6)))
}

/// Where it is.
pub(super) fn binary(run: &Run) -> Result<PathBuf> {
    let target = Metadata::load(&run.root)?.target_directory;
    Ok(target.join(Path::new("release").join(format!("budao{}", std::env::consts::EXE_SUFFIX))))
}
