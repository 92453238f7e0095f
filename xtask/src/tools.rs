//! Third-party cargo subcommands in pinned versions, built into the peers folder on first use.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::{peers, process, repo};

const INSTALL_LIMIT: Duration = Duration::from_secs(40 * 60);

/// A third-party cargo subcommand.
#[derive(Debug)]
pub(crate) struct Tool {
    /// The name of the subcommand: `fuzz` is the program `cargo-fuzz`.
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
}

impl Tool {
    /// The folder of the tools.
    fn folder() -> Result<PathBuf> {
        Ok(peers::dir()?.join(".tools"))
    }

    /// The path of the program, which is built first if this version is absent.
    pub(crate) fn program(&self) -> Result<PathBuf> {
        let folder = Self::folder()?;
        let name = format!("cargo-{}", self.name);
        let program = folder.join("bin").join(&name);
        if program.is_file() && self.is_version_of(&program) {
            return Ok(program);
        }
        println!("{name} {} is not installed; building it takes minutes", self.version);
        let mut cargo = process::cargo(&repo::root());
        // Unoptimised: the program only reads files or starts others.
        cargo.args(["install", "--locked", "--quiet", "--debug", "--root"]).arg(&folder);
        cargo.arg(format!("{name}@{}", self.version));
        process::run(&mut cargo, Some(Instant::now() + INSTALL_LIMIT))?;
        Ok(program)
    }

    fn is_version_of(&self, program: &Path) -> bool {
        let mut command = process::command(&program.to_string_lossy(), Path::new("/"));
        process::output_of(command.args([self.name, "--version"]), Duration::from_secs(60))
            .is_ok_and(|said| said.split_whitespace().any(|word| word == self.version))
    }
}
