//! Cargo's metadata of the workspace: packages, targets, and the target folder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::process;

/// The fields of `cargo metadata --no-deps` that xtask uses.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) target_directory: PathBuf,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) manifest_path: PathBuf,
    pub(crate) targets: Vec<Target>,
    pub(crate) dependencies: Vec<Dependency>,
    /// The registries it may go to; `None` means all of them, an empty list none.
    #[serde(default)]
    publish: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

/// A dependency as the package's manifest declares it.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Absent for a normal dependency, else `dev` or `build`.
    pub(crate) kind: Option<String>,
}

impl Metadata {
    /// Runs `cargo metadata`, which does not check the lock file; `cargo tree` does.
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let mut cargo = process::cargo(root);
        cargo.args(["metadata", "--no-deps", "--format-version", "1"]);
        let text = process::output_of(&mut cargo, Duration::from_secs(120))?;
        serde_json::from_str(&text).context("understand `cargo metadata`")
    }

    /// All targets of a kind, such as `bench`, with their packages.
    pub(crate) fn targets(&self, kind: &str) -> impl Iterator<Item = (&Package, &Target)> {
        self.packages.iter().flat_map(move |package| {
            let targets = package.targets.iter();
            targets
                .filter(move |target| target.kind.iter().any(|k| k == kind))
                .map(move |target| (package, target))
        })
    }
}

impl Package {
    /// False for crates with `publish = false`.
    pub(crate) fn is_published(&self) -> bool {
        self.publish.as_ref().is_none_or(|registries| !registries.is_empty())
    }

    /// The folder of the package's manifest.
    pub(crate) fn dir(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(Path::new("."))
    }
}
