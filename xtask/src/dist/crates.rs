//! The crates that are published, packed as `cargo publish` would. The step `install` compiles them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::metadata::Metadata;
use crate::process;

const LIMIT: Duration = Duration::from_secs(600);

/// Packs every crate that is published. A warning of cargo, such as a missing description, is an error here.
pub(super) fn pack(metadata: &Metadata, root: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let target = metadata.target_directory.join("dist");
    let packed = target.join("package");
    if packed.exists() {
        fs::remove_dir_all(&packed).with_context(|| format!("empty `{}`", packed.display()))?;
    }
    let mut cargo = process::cargo(root);
    cargo.args(["package", "--workspace", "--no-verify", "--locked", "--allow-dirty"]);
    cargo.arg("--target-dir").arg(&target);
    for package in metadata.packages.iter().filter(|package| !package.is_published()) {
        cargo.args(["--exclude", &package.name]);
    }
    let said = process::capture(&mut cargo, LIMIT)?;
    process::ended_well(&cargo, said.status).with_context(|| said.stderr.clone())?;
    if said.stderr.contains("warning: ") {
        bail!("cargo package warns:\n{}", said.stderr);
    }
    let published = metadata.packages.iter().filter(|package| package.is_published());
    published
        .map(|package| {
            let name = format!("{}-{}.crate", package.name, package.version);
            let path = packed.join(&name);
            let bytes = fs::read(&path).with_context(|| format!("read `{}`", path.display()))?;
            Ok((name, bytes))
        })
        .collect()
}
