//! Builds programs of the workspace in the same way as `cargo xtask test`: always the whole workspace, so that every
//! dependency has one set of features and is compiled once. Each build is announced.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::{metadata::Metadata, process, repo};

/// A command for a binary of the workspace.
pub(crate) fn bin(name: &str) -> Result<Command> {
    Ok(command(folder()?.join(name)))
}

/// As [`bin`], built with optimisation.
pub(crate) fn optimised(name: &str) -> Result<Command> {
    Ok(command(build_optimised(&["--bin", name])?.join(name)))
}

/// As [`optimised`], an example; returns its path.
pub(crate) fn optimised_example(name: &str) -> Result<PathBuf> {
    Ok(build_optimised(&["--example", name])?.join("examples").join(name))
}

/// Builds with optimisation and the features of a whole-workspace build, and returns the folder.
fn build_optimised(what: &[&str]) -> Result<PathBuf> {
    let root = repo::root();
    let mut cargo = process::cargo(&root);
    cargo.args(["build", "--locked", "--release", "--workspace"]).args(what);
    process::run(&mut cargo, None)?;
    Ok(Metadata::load(&root)?.target_directory.join("release"))
}

/// Builds one example alone, with the features of a whole-workspace build, and returns its path.
pub(crate) fn only_example(name: &str) -> Result<PathBuf> {
    let root = repo::root();
    let mut cargo = process::cargo(&root);
    cargo.args(["build", "--quiet", "--locked", "--workspace", "--example", name]);
    process::run(&mut cargo, None)?;
    Ok(Metadata::load(&root)?.target_directory.join("debug/examples").join(name))
}

fn command(program: PathBuf) -> Command {
    let mut command = Command::new(program);
    command.current_dir(repo::root());
    command
}

/// Builds all programs, which is fast after the tests, and returns their folder.
fn folder() -> Result<PathBuf> {
    let root = repo::root();
    let mut cargo = process::cargo(&root);
    cargo.args(["build", "--locked", "--workspace", "--bins", "--examples"]);
    process::run(&mut cargo, None)?;
    Ok(Metadata::load(&root)?.target_directory.join("debug"))
}

/// A test program: its package and its name. `None` means the unit tests of the library.
pub(crate) type TestProgram = (&'static str, Option<&'static str>);

/// Test programs that were built together.
#[derive(Debug)]
pub(crate) struct Tests(Vec<Artifact>);

/// An artefact in cargo's output.
#[derive(Debug, Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

/// Builds these test programs, and the programs and examples that some of them start, with two cargo calls.
pub(crate) fn tests(wanted: impl IntoIterator<Item = TestProgram>) -> Result<Tests> {
    folder()?;
    let names: BTreeSet<Option<&str>> = wanted.into_iter().map(|(_, name)| name).collect();
    let mut cargo = process::cargo(&repo::root());
    cargo.args(["test", "--no-run", "--locked", "--workspace"]);
    for name in names {
        match name {
            Some(name) => cargo.args(["--test", name]),
            None => cargo.arg("--lib"),
        };
    }
    println!("$ {}", process::shown(&cargo));
    cargo.arg("--message-format=json-render-diagnostics").stdout(Stdio::piped());
    let mut building = cargo.spawn().context("cannot run cargo")?;
    let said = building.stdout.take().context("cargo says nothing")?;
    let lines = BufReader::new(said).lines().map_while(Result::ok);
    let made: Vec<Artifact> = lines.filter_map(|line| serde_json::from_str(&line).ok()).collect();
    process::ended_well(&cargo, building.wait()?)?;
    Ok(Tests(made.into_iter().filter(|made| made.profile.test).collect()))
}

impl Tests {
    /// A command for one of them, in the working directory that cargo would use.
    pub(crate) fn command(&self, (package, test): TestProgram) -> Result<Command> {
        let folder = package.strip_prefix("budao-").unwrap_or(package);
        let is_it = |made: &&Artifact| {
            let named = |kind: &str| made.target.kind.iter().any(|it| it == kind);
            made.manifest_path.ends_with(format!("{folder}/Cargo.toml"))
                && test.map_or_else(|| named("lib"), |test| made.target.name == test)
        };
        let made = self.0.iter().find(is_it);
        let program = made.and_then(|made| Some((made.executable.as_ref()?, made)));
        let (program, made) =
            program.with_context(|| format!("`{package}` has no test program {test:?}"))?;
        let home = made.manifest_path.parent().context("a package has a folder")?;
        let mut command = Command::new(program);
        command.current_dir(home).env("CARGO_MANIFEST_DIR", home).stdin(Stdio::null());
        Ok(command)
    }
}

/// Runs a command to its end, with its output on our terminal.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status =
        command.status().with_context(|| format!("start `{}`", process::shown(command)))?;
    ensure!(status.success(), "`{}` failed ({status})", process::shown(command));
    Ok(())
}
