//! Coverage-guided fuzzing: all targets in one program of `fuzz/`, built by cargo-fuzz with the address sanitizer.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::{Args, CONFIG};
use crate::metadata::Metadata;
use crate::tools::Tool;
use crate::{process, repo};

const TOOL: Tool = Tool { name: "fuzz", version: "0.13.2" };

/// Number of output lines that are printed after a failure.
const TAIL: usize = 60;

/// The host triple of the nightly compiler; `None` if there is no such compiler.
pub(super) fn nightly() -> Option<String> {
    let mut rustc = nightly_of(process::command("rustc", &repo::root()));
    let said = process::output_of(rustc.arg("-vV"), Duration::from_secs(60)).ok()?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "))?;
    said.contains("-nightly").then(|| host.to_owned())
}

/// Selects the nightly compiler through rustup, without installing a missing one.
fn nightly_of(mut command: Command) -> Command {
    command.env("RUSTUP_TOOLCHAIN", "nightly").env("RUSTUP_AUTO_INSTALL", "0");
    command
}

/// Feeds these targets, all of them if none is named, and prints the progress of each.
pub(super) fn run(host: &str, targets: &[&String], args: &Args) -> Result<()> {
    let root = repo::root();
    let known = known(&root)?;
    let mut names: Vec<String> = targets.iter().map(|name| (*name).clone()).collect();
    if names.is_empty() {
        names.clone_from(&known);
    }
    if let Some(name) = names.iter().find(|name| !known.contains(name)) {
        anyhow::bail!("no target `{name}`; there are: {}, {CONFIG}", known.join(", "));
    }
    let target = Metadata::load(&root)?.target_directory;
    let program = build(&root, &target, host)?;
    let mut broken = Vec::new();
    for name in names {
        if !feed(&program, &root, &target, &name, args)? {
            broken.push(name);
        }
    }
    ensure!(broken.is_empty(), "promises did not hold: {}", broken.join(", "));
    Ok(())
}

/// The names of all targets, taken from their corpus folders.
fn known(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("fuzz/corpus");
    let entries = fs::read_dir(&folder).with_context(|| format!("read `{}`", folder.display()))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name != CONFIG).collect();
    names.sort();
    Ok(names)
}

fn build(root: &Path, target: &Path, host: &str) -> Result<PathBuf> {
    let tool = TOOL.program()?;
    // Uses the same dependency versions as the workspace.
    fs::copy(root.join("Cargo.lock"), root.join("fuzz/Cargo.lock")).context("copy the lock")?;
    let folder = target.join("fuzz-build");
    let mut cargo = nightly_of(process::command(&tool.to_string_lossy(), root));
    cargo.args(["build", "--codegen-units", "16", "--target", host, "--target-dir"]);
    process::run(cargo.arg(&folder).arg("any"), None)?;
    Ok(folder.join(host).join("release/any"))
}

/// Feeds one target. Returns true if no input failed.
fn feed(program: &Path, root: &Path, target: &Path, name: &str, args: &Args) -> Result<bool> {
    let kept = target.join("fuzz");
    // New inputs go into a folder of their own, so that the committed corpus stays small.
    let found = kept.join("found").join(name);
    fs::create_dir_all(&found).with_context(|| format!("make `{}`", found.display()))?;
    let seconds = args.minutes * 60;
    let mut command = process::command(&program.to_string_lossy(), root);
    command.env("BUDAO_FUZZ_TARGET", name).env("ASAN_OPTIONS", "detect_odr_violation=0");
    command.arg(format!("-max_total_time={seconds}")).arg(format!("-seed={}", args.seed));
    command.arg(format!("-artifact_prefix={}/{name}-", kept.display()));
    command.args(["-timeout=20", "-rss_limit_mb=2048", "-max_len=65536", "-print_final_stats=1"]);
    command.arg(found).arg(root.join("fuzz/corpus").join(name));
    let mut said = FuzzerReport::default();
    let status = process::follow(&mut command, None, |_, line| said.hear(line))?;
    if status.success() {
        println!(
            "{name:<10} {:>10} inputs in {seconds} s, guided by coverage, seed {}: {} edges, {} features; nothing broke",
            said.inputs, args.seed, said.edges, said.features
        );
        return Ok(true);
    }
    said.tail.iter().for_each(|line| println!("{line}"));
    println!("{name}: failed ({status})");
    if let Some(file) = said.kept {
        println!("  saved as {file}; to shrink it: cargo xtask fuzz {name} --input {file}");
    }
    println!("  after the fix, add it to fuzz/corpus/{name}");
    Ok(false)
}

/// Statistics from the fuzzer's own output.
#[derive(Debug, Default)]
struct FuzzerReport {
    inputs: u64,
    edges: u64,
    features: u64,
    kept: Option<String>,
    tail: VecDeque<String>,
}

impl FuzzerReport {
    fn hear(&mut self, line: &str) {
        let number = |label: &str| {
            let (_, rest) = line.split_once(label)?;
            rest.split_whitespace().next()?.parse::<u64>().ok()
        };
        self.inputs = number("stat::number_of_executed_units:").unwrap_or(self.inputs);
        self.edges = number(" cov: ").unwrap_or(self.edges);
        self.features = number(" ft: ").unwrap_or(self.features);
        if let Some((_, file)) = line.split_once("Test unit written to ") {
            self.kept = Some(file.trim().to_owned());
        }
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(line.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_the_fuzzer_is_parsed() {
        let mut said = FuzzerReport::default();
        for line in [
            "#2\tINITED cov: 9 ft: 10 corp: 1/1b exec/s: 0 rss: 30Mb",
            "#131072\tpulse  cov: 812 ft: 3311 corp: 204/9Kb lim: 110 exec/s: 65536 rss: 101Mb",
            "stat::number_of_executed_units: 170218",
            "artifact_prefix='x/'; Test unit written to x/crash-5ba9",
        ] {
            said.hear(line);
        }
        assert_eq!((said.inputs, said.edges, said.features), (170_218, 812, 3311));
        assert_eq!(said.kept.as_deref(), Some("x/crash-5ba9"));
    }

    #[test]
    fn only_the_end_of_the_output_is_kept() {
        let mut said = FuzzerReport::default();
        (0..1000).for_each(|line| said.hear(&line.to_string()));
        assert_eq!((said.tail.len(), said.tail.back().map(String::as_str)), (TAIL, Some("999")));
    }
}
