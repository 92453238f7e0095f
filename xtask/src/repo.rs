//! Paths of the repository: its root, its tracked files, and the TOML tables beside this crate.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::de::DeserializeOwned;

/// The repository's root. Cargo provides it at run time, so that a moved clone still works.
pub(crate) fn root() -> PathBuf {
    let xtask = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    xtask.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// True in CI, where a missing tool is a failure and not a skipped step.
pub(crate) fn is_ci() -> bool {
    env::var("CI").is_ok_and(|ci| ci == "true" || ci == "1")
}

/// All files that git tracks, relative to the root, without deleted files that are not staged yet.
pub(crate) fn tracked_files(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root)
        .output()
        .context("run `git ls-files`")?;
    ensure!(
        output.status.success(),
        "`git ls-files` failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let listed = String::from_utf8(output.stdout).context("a tracked file's name is not UTF-8")?;
    let mut files: Vec<String> = listed
        .split('\0')
        .filter(|name| !name.is_empty() && root.join(name).is_file())
        .map(str::to_owned)
        .collect();
    files.sort();
    files.dedup();
    Ok(files)
}

/// Writes a file and the folders above it, unless the file has these bytes: cargo rebuilds what is newer than its build.
pub(crate) fn write_changed(file: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(file).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let folder = file.parent().context("a file without a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("make `{}`", folder.display()))?;
    fs::write(file, bytes).with_context(|| format!("write `{}`", file.display()))
}

/// Reads one of the tables beside this crate, such as `xtask/smoke.toml`.
pub(crate) fn read_table<T: DeserializeOwned>(root: &Path, name: &str) -> Result<T> {
    let path = root.join("xtask").join(name);
    let text = fs::read_to_string(&path).with_context(|| format!("read `xtask/{name}`"))?;
    toml::from_str(&text).with_context(|| format!("understand `xtask/{name}`"))
}
