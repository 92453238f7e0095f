//! The release binary, and the commands README promises, tried on it.
//!
//! Each command runs in an empty folder with an empty home, so that nothing of the developer's own
//! settings helps or hurts it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::{Done, Run};
use crate::metadata::Metadata;
use crate::process::{self, Said};
use crate::repo;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(rename = "run")]
    runs: Vec<Smoke>,
}

/// One command and what must come of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Smoke {
    args: Vec<String>,
    #[serde(default)]
    exit: i32,
    /// Texts that standard output must hold.
    #[serde(default)]
    stdout: Vec<String>,
    /// Texts that standard error must hold.
    #[serde(default)]
    stderr: Vec<String>,
    /// Texts that must be in one of the two.
    #[serde(default)]
    output: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default = "usual_limit_s")]
    limit_s: u64,
    /// Why a command README shows cannot be tried like this. It is then only listed.
    untried: Option<String>,
}

fn usual_limit_s() -> u64 {
    10
}

/// What `cargo run --release` builds: the workspace's default member.
pub(super) fn build(run: &Run) -> Result<Done> {
    run.cargo(&["build", "--locked", "--release"])?;
    let size = fs::metadata(binary(run)?).context("find the release binary")?.len();
    Ok(Done::Passed(format!("{:.1} MB", size as f64 / 1e6)))
}

pub(super) fn smoke(run: &Run) -> Result<Done> {
    let table: Table = repo::read_table(&run.root, "smoke.toml")?;
    let binary = binary(run)?;
    let home = binary.with_file_name("smoke-home");
    let mut wrong = Vec::new();
    for smoke in table.runs.iter().filter(|smoke| smoke.untried.is_none()) {
        if home.exists() {
            fs::remove_dir_all(&home).context("empty the home folder of the smoke runs")?;
        }
        fs::create_dir_all(&home).context("make a home folder for the smoke runs")?;
        let mut command = process::command(&binary.to_string_lossy(), &home);
        command.env_clear().args(&smoke.args).env("HOME", &home).env("LANG", "C.UTF-8");
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path))).envs(&smoke.env);
        let shown = process::shown(&command);
        println!("$ {shown}");
        match process::capture(&mut command, Duration::from_secs(smoke.limit_s)) {
            Ok(said) => {
                let mistakes = judge(smoke, &said);
                if !mistakes.is_empty() {
                    println!("{}{}", said.stdout, said.stderr);
                    wrong.push(format!("`{shown}`: {}", mistakes.join("; ")));
                }
            }
            Err(error) => wrong.push(format!("{error:#}")),
        }
    }
    let readme = fs::read_to_string(run.root.join("README.md")).context("read `README.md`")?;
    wrong.extend(unlisted(&readme, &table.runs));
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(Done::Passed(format!("{} commands", table.runs.len())))
}

fn binary(run: &Run) -> Result<std::path::PathBuf> {
    let target = Metadata::load(&run.root)?.target_directory;
    Ok(target.join(Path::new("release").join(format!("budao{}", std::env::consts::EXE_SUFFIX))))
}

fn judge(smoke: &Smoke, said: &Said) -> Vec<String> {
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

/// Commands README shows that nobody tries.
fn unlisted(readme: &str, runs: &[Smoke]) -> Vec<String> {
    commands_in(readme)
        .into_iter()
        .filter(|args| runs.iter().all(|run| run.args != *args))
        .map(|args| {
            let command = shell_words::join(args);
            format!("README shows `budao {command}`, but xtask/smoke.toml has no run for it")
        })
        .collect()
}

/// The arguments of every `budao …` or `cargo run --release -- …` in a Markdown code block.
fn commands_in(markdown: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut is_fenced = false;
    for line in markdown.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
            continue;
        }
        if !is_fenced && !line.starts_with("    ") {
            continue;
        }
        let line = line.trim();
        let line = line.strip_prefix("$ ").unwrap_or(line);
        let typed = ["budao ", "cargo run --release -- ", "cargo run -- "];
        let Some(args) = typed.iter().find_map(|start| line.strip_prefix(start)) else { continue };
        let args = args.split_once(" # ").map_or(args, |(args, _)| args);
        let args = args.split_once(" | ").map_or(args, |(args, _)| args);
        if let Ok(args) = shell_words::split(args) {
            found.push(args);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_commands_a_reader_would_type() {
        let readme = "\
Type `budao never` or see\n\n```sh\n$ budao explain 4101 --lang zh   # in Chinese\n4101 …\n\
cargo run --release -- explain --list | head\n```\n\n    budao explain 'a b'\n";
        assert_eq!(
            commands_in(readme),
            [
                vec!["explain", "4101", "--lang", "zh"],
                vec!["explain", "--list"],
                vec!["explain", "a b"]
            ]
        );
    }

    #[test]
    fn a_command_nobody_tries_is_named() {
        let table: Table = toml::from_str("[[run]]\nargs = [\"explain\", \"--list\"]\n").unwrap();
        let readme = "```\nbudao explain --list\nbudao serve\n```\n";
        assert_eq!(
            unlisted(readme, &table.runs),
            ["README shows `budao serve`, but xtask/smoke.toml has no run for it"]
        );
    }

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
}
