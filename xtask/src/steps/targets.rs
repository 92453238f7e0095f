//! The platforms that no check runs on: the program is compiled for those whose standard library is installed.
//!
//! SQLite and ring are C, so their build scripts need a compiler for the target. The peer `zig` is one for all of them, with the
//! headers of their C libraries.

use std::env;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{StepContext, StepResult};
use crate::{peers, process};

/// The platforms beside that of this machine.
const TARGETS: [&str; 4] = [
    "aarch64-unknown-linux-gnu",
    "x86_64-unknown-linux-musl",
    "aarch64-apple-darwin",
    "x86_64-apple-darwin",
];

/// Time limit for the question where a standard library is.
const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn run(run: &StepContext) -> Result<StepResult> {
    let mut compiled = Vec::new();
    let mut missing = Vec::new();
    for target in TARGETS {
        match is_installed(&run.root, target)? {
            true => compiled.push(target),
            false => missing.push(target),
        }
    }
    if compiled.is_empty() {
        return Ok(StepResult::Skipped(format!("rustup target add {}", missing.join(" "))));
    }
    let zig = match peers::ensure("zig") {
        Ok(folder) => folder.join("bin"),
        Err(error) => return Ok(StepResult::Skipped(format!("no compiler for C: {error:#}"))),
    };
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(zig.clone()).chain(env::split_paths(&path));
    let path = env::join_paths(folders).context("put zig on the path")?;
    for target in &compiled {
        let mut cargo = process::command(&zig.join("cargo-zigbuild").to_string_lossy(), &run.root);
        cargo.args(["check", "--locked", "-p", "budao-cli", "--target", target]);
        process::run(cargo.env("PATH", &path), None)?;
    }
    let mut told = compiled.join(", ");
    if !missing.is_empty() {
        told.push_str(&format!("; not installed: {}", missing.join(", ")));
    }
    Ok(StepResult::Passed(told))
}

/// Whether this compiler has the standard library of a target.
fn is_installed(root: &Path, target: &str) -> Result<bool> {
    let mut rustc = process::command("rustc", root);
    rustc.args(["--print", "target-libdir", "--target", target]);
    let folder = process::output_of(&mut rustc, LIMIT)?;
    Ok(Path::new(folder.trim()).is_dir())
}
