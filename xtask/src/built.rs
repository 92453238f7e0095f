//! Programs of ours, built as the tests build them, so that nothing is compiled twice.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::{metadata::Metadata, process, repo};

/// A program of the workspace.
pub(crate) fn bin(name: &str) -> Result<Command> {
    Ok(command(folder()?.join(name)))
}

/// An example of the workspace.
pub(crate) fn example(name: &str) -> Result<Command> {
    Ok(command(folder()?.join("examples").join(name)))
}

/// One example alone, as the whole workspace would build it.
pub(crate) fn only_example(name: &str) -> Result<PathBuf> {
    let root = repo::root();
    let built = process::cargo(&root)
        .args(["build", "--quiet", "--locked", "--workspace", "--example", name])
        .status()
        .context("cannot run cargo")?;
    ensure!(built.success(), "the example `{name}` could not be built");
    Ok(Metadata::load(&root)?.target_directory.join("debug/examples").join(name))
}

fn command(program: PathBuf) -> Command {
    let mut command = Command::new(program);
    command.current_dir(repo::root());
    command
}

/// Builds them all, which takes no time after the tests, and says where they are.
fn folder() -> Result<PathBuf> {
    let root = repo::root();
    let built = Command::new("cargo")
        .args(["build", "--quiet", "--locked", "--workspace", "--bins", "--examples"])
        .current_dir(&root)
        .status()
        .context("cannot run cargo")?;
    ensure!(built.success(), "the workspace could not be built");
    Ok(Metadata::load(&root)?.target_directory.join("debug"))
}
