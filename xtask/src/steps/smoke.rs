//! Runs the commands of the README and the guides with the release binary.
//!
//! Every line a reader is told to type has a row in `xtask/smoke.toml`: it is run, or the row gives the reason why not.
//! Each command runs in an empty folder with an empty home, so that the developer's own settings have no influence.

mod companions;
mod documents;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use self::companions::{Companion, Companions};
use super::release::binary;
use super::{StepContext, StepResult};
use crate::process::{self, ProcessOutput};
use crate::repo;

/// Upper bound for rows that are only listed. To add one, make another one runnable.
const UNTRIED: usize = 44;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// Contents of files that rows can request, by name.
    #[serde(default)]
    files: BTreeMap<String, String>,
    #[serde(rename = "run")]
    runs: Vec<Smoke>,
}

/// One command and its expected result.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Smoke {
    /// The arguments of `budao`.
    #[serde(default)]
    args: Vec<String>,
    /// Instead of `args`: a shell command line, with `budao` on the path.
    shell: Option<String>,
    /// The line in the document, if it differs from the command that is run.
    line: Option<String>,
    #[serde(default)]
    exit: i32,
    /// Texts that standard output must contain.
    #[serde(default)]
    stdout: Vec<String>,
    /// Texts that standard error must contain.
    #[serde(default)]
    stderr: Vec<String>,
    /// Texts that one of the two must contain.
    #[serde(default)]
    output: Vec<String>,
    /// For a command that does not end: it is killed as soon as a line contains this text.
    until: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Names of files to create in the working folder.
    #[serde(default)]
    files: Vec<String>,
    /// Processes that run beside the command.
    #[serde(default)]
    beside: Vec<Companion>,
    #[serde(default = "usual_limit_s")]
    limit_s: u64,
    /// The reason why the command cannot be run here. It is then only listed.
    untried: Option<String>,
}

fn usual_limit_s() -> u64 {
    60
}

impl Smoke {
    /// The line as the document prints it.
    fn printed(&self) -> String {
        let typed = || format!("budao {}", shell_words::join(&self.args));
        self.line.clone().or_else(|| self.shell.clone()).unwrap_or_else(typed)
    }
}

pub(super) fn run(run: &StepContext) -> Result<StepResult> {
    let table: Table = repo::read_table(&run.root, "smoke.toml")?;
    let binary = binary(run)?;
    let mut wrong = documents::unlisted(&run.root, &table)?;
    let untried = table.runs.iter().filter(|smoke| smoke.untried.is_some()).count();
    if untried > UNTRIED {
        wrong.push(format!("{untried} rows of xtask/smoke.toml are untried; {UNTRIED} may be"));
    }
    for smoke in table.runs.iter().filter(|smoke| smoke.untried.is_none()) {
        if let Err(error) = attempt(smoke, &table.files, &binary) {
            wrong.push(format!("{error:#}"));
        }
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    let tried = table.runs.len() - untried;
    Ok(StepResult::Passed(format!("{tried} commands; {untried} more are listed with a reason")))
}

/// Runs one command in a folder of its own and checks its result.
fn attempt(smoke: &Smoke, files: &BTreeMap<String, String>, binary: &Path) -> Result<()> {
    let home = binary.with_file_name("smoke-home");
    if home.exists() {
        fs::remove_dir_all(&home).context("empty the home folder of the smoke runs")?;
    }
    fs::create_dir_all(&home).context("make a home folder for the smoke runs")?;
    for name in &smoke.files {
        let text = files.get(name).with_context(|| format!("[files] has no `{name}`"))?;
        fs::write(home.join(name), text).with_context(|| format!("write `{name}`"))?;
    }
    let around = Companions::start(&smoke.beside, binary, &home)?;
    let mut command = around.command(binary, &home);
    match &smoke.shell {
        Some(line) => {
            command = around.shell(binary, &home, line)?;
        }
        None => {
            command.args(smoke.args.iter().map(|arg| around.filled(arg)));
        }
    }
    command.envs(&smoke.env);
    let shown = process::shown(&command);
    println!("$ {shown}");
    let mistakes = match &smoke.until {
        Some(text) => stays(&mut command, text, smoke.limit_s)?,
        None => {
            let said = process::capture(&mut command, Duration::from_secs(smoke.limit_s))?;
            let mistakes = judge(smoke, &said);
            if !mistakes.is_empty() {
                println!("{}{}", said.stdout, said.stderr);
            }
            mistakes
        }
    };
    if !mistakes.is_empty() {
        bail!("`{shown}`: {}", mistakes.join("; "));
    }
    Ok(())
}

/// Runs a command that does not end by itself until a line contains `text`.
fn stays(command: &mut Command, text: &str, limit_s: u64) -> Result<Vec<String>> {
    let deadline = Instant::now() + Duration::from_secs(limit_s);
    let (said, is_heard) = process::converse(command, "", text, deadline)?;
    if is_heard {
        return Ok(Vec::new());
    }
    println!("{said}");
    Ok(vec![format!("ended without a line that holds {text:?}")])
}

fn judge(smoke: &Smoke, said: &ProcessOutput) -> Vec<String> {
    let mut wrong = Vec::new();
    if said.status.code() != Some(smoke.exit) {
        wrong.push(format!("ended with {}, not with exit code {}", said.status, smoke.exit));
    }
    let lacks = |place: &str, text: &str| format!("{place} lacks {text:?}");
    for text in smoke.stdout.iter().filter(|text| !said.stdout.contains(*text)) {
        wrong.push(lacks("standard output", text));
    }
    for text in smoke.stderr.iter().filter(|text| !said.stderr.contains(*text)) {
        wrong.push(lacks("standard error", text));
    }
    for text in &smoke.output {
        if !said.stdout.contains(text) && !said.stderr.contains(text) {
            wrong.push(lacks("its output", text));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_expectation_can_fail() {
        let table: Table = toml::from_str(
            "[[run]]\nargs = []\nexit = 2\nstdout = [\"a\"]\nstderr = [\"b\"]\noutput = [\"c\"]\n",
        )
        .unwrap();
        let said = |script: &str| {
            let mut command = process::command("sh", Path::new("."));
            command.args(["-c", script]);
            process::capture(&mut command, Duration::from_secs(10)).unwrap()
        };
        assert_eq!(judge(&table.runs[0], &said("echo a c; echo b >&2; exit 2")), [""; 0]);
        assert_eq!(
            judge(&table.runs[0], &said("true")),
            [
                "ended with exit status: 0, not with exit code 2",
                "standard output lacks \"a\"",
                "standard error lacks \"b\"",
                "its output lacks \"c\""
            ]
        );
    }

    #[test]
    fn a_long_running_command_must_print_its_line() {
        let shell = |script: &str| {
            let mut command = process::command("sh", Path::new("."));
            command.args(["-c", script]);
            command
        };
        let heard = stays(&mut shell("echo here; sleep 600"), "here", 10).unwrap();
        assert_eq!(heard, [""; 0]);
        assert_eq!(stays(&mut shell("echo gone"), "here", 10).unwrap().len(), 1);
    }
}
