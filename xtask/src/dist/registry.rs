//! A registry in a folder: the packed crates beside those of others, for `cargo install` without a network.
//!
//! Cargo reads it as a directory source in place of crates.io, and compares each crate with its checksum in the lock file
//! that is packed with the program.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

use super::{crates, hex};
use crate::metadata::Metadata;
use crate::process;

const LIMIT: Duration = Duration::from_secs(600);

/// Makes the registry in a folder, which is emptied first. Returns the file for cargo's option `--config`.
pub(crate) fn make(root: &Path, folder: &Path) -> Result<PathBuf> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("empty `{}`", folder.display()))?;
    }
    let sources = folder.join("crates");
    fs::create_dir_all(&sources).with_context(|| format!("make `{}`", sources.display()))?;
    let mut vendor = process::cargo(root);
    vendor.args(["vendor", "--locked", "--versioned-dirs", "--quiet"]).arg(&sources);
    process::output_of(&mut vendor, LIMIT)?;
    for (name, bytes) in crates::pack(&Metadata::load(root)?, root)? {
        add(&sources, &name, &bytes)?;
    }
    let config = folder.join("config.toml");
    let path = toml::Value::from(sources.to_string_lossy().into_owned());
    let text = format!(
        "[source.crates-io]\nreplace-with = \"packed\"\n\n[source.packed]\ndirectory = {path}\n"
    );
    fs::write(&config, text).with_context(|| format!("write `{}`", config.display()))?;
    Ok(config)
}

/// Unpacks a crate, with the checksum of its archive.
fn add(sources: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let archive = sources.join(name);
    fs::write(&archive, bytes).with_context(|| format!("write `{}`", archive.display()))?;
    let mut tar = process::command("tar", sources);
    process::output_of(tar.arg("xzf").arg(&archive), LIMIT)?;
    fs::remove_file(&archive).with_context(|| format!("remove `{}`", archive.display()))?;
    let sums = serde_json::json!({ "files": {}, "package": hex(&Sha256::digest(bytes)) });
    let file = archive.with_extension("").join(".cargo-checksum.json");
    fs::write(&file, sums.to_string()).with_context(|| format!("write `{}`", file.display()))
}
