//! A copy of the repository that contains every mistake, and its tests, built once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use super::plant::{self, Mistake, PlantedMistake};
use crate::process::{self, Stream};
use crate::repo;

/// Upper bound for builds. Each build finds the invalid mistakes of one compiler phase.
const TRIES: usize = 30;
const BUILD_LIMIT: Duration = Duration::from_secs(40 * 60);

/// The built copy of the repository.
pub(super) struct TreeCopy {
    pub(super) root: PathBuf,
    /// The function of each mistake, both by number.
    pub(super) functions: BTreeMap<usize, usize>,
    pub(super) unviable: BTreeSet<usize>,
    pub(super) programs: Vec<Program>,
}

/// A test program of the copy.
pub(super) struct Program {
    pub(super) package: String,
    pub(super) path: PathBuf,
    pub(super) dir: PathBuf,
}

/// A test program or example in cargo's output.
#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    executable: Option<PathBuf>,
    profile: Profile,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Deserialize)]
struct CompilerMessage {
    message: Message,
}

#[derive(Deserialize)]
struct Message {
    level: String,
    spans: Vec<MessageSpan>,
    rendered: Option<String>,
}

#[derive(Deserialize)]
struct MessageSpan {
    file_name: String,
    line_start: usize,
    line_end: usize,
    is_primary: bool,
}

/// Copies the files, plants the mistakes and builds. Mistakes that do not compile are removed until the build succeeds,
/// and passed to `keep`.
pub(super) fn make(
    root: &Path,
    target: &Path,
    mistakes: &[Mistake],
    packages: &[&str],
    mut unviable: BTreeSet<usize>,
    keep: impl Fn(&BTreeSet<usize>) -> Result<()>,
) -> Result<TreeCopy> {
    let copy = target.join("mistakes/copy");
    // Tests of one package link others, whose mistakes must compile as well.
    let all: BTreeSet<&str> = mistakes.iter().map(|mistake| mistake.package.as_str()).collect();
    let all: Vec<&str> = all.into_iter().collect();
    copy_files(root, &copy, &changed(mistakes))?;
    for attempt in 1..=TRIES {
        let planted = plant_all(root, &copy, mistakes, &unviable)?;
        println!(
            "build {attempt}: {} mistakes are in",
            planted.values().map(Vec::len).sum::<usize>()
        );
        let (_, errors) = build(&copy, target, &all, &["--lib"])?;
        if errors.is_empty() {
            let (programs, errors) = build(&copy, target, packages, &["--tests", "--examples"])?;
            ensure!(errors.is_empty(), "the tests do not compile, though the code does");
            let functions = planted.values().flatten().map(|one| (one.number, one.function));
            let functions = functions.collect();
            return Ok(TreeCopy { root: copy, functions, unviable, programs });
        }
        let before = unviable.len();
        for error in &errors {
            unviable.extend(blamed(error, &planted));
        }
        if unviable.len() == before {
            let words = errors.iter().filter_map(|error| error.rendered.as_deref());
            bail!("no mistake is to blame for this:\n{}", words.collect::<String>());
        }
        keep(&unviable)?;
    }
    bail!("the mistakes do not compile, not even after {TRIES} times of taking some out")
}

/// The mistakes that cause an error: those at its primary location, otherwise those at any location it names.
fn blamed(error: &Message, planted: &BTreeMap<String, Vec<PlantedMistake>>) -> BTreeSet<usize> {
    let of = |places: &mut dyn Iterator<Item = &MessageSpan>| -> BTreeSet<usize> {
        let hits = places.flat_map(|place| {
            let ours = planted.get(&place.file_name).map(Vec::as_slice).unwrap_or_default();
            let is_hit = |one: &&PlantedMistake| {
                one.lines.start <= place.line_end && place.line_start < one.lines.end
            };
            // A location that spans half a function identifies no mistake.
            let hits: Vec<usize> = ours.iter().filter(is_hit).map(|one| one.number).collect();
            if hits.len() == 1 { hits } else { Vec::new() }
        });
        hits.collect()
    };
    let first = of(&mut error.spans.iter().filter(|place| place.is_primary));
    if first.is_empty() { of(&mut error.spans.iter()) } else { first }
}

/// The files that are generated and not copied: those with mistakes, and the roots of their crates.
fn changed(mistakes: &[Mistake]) -> BTreeSet<String> {
    let files = mistakes.iter().map(|mistake| mistake.file.clone());
    files.chain(libs(mistakes)).collect()
}

fn libs(mistakes: &[Mistake]) -> BTreeSet<String> {
    let folders = mistakes.iter().filter_map(|mistake| Some(mistake.file.split_once("/src/")?.0));
    folders.map(|folder| format!("{folder}/src/lib.rs")).collect()
}

/// Copies every file that git tracks or does not ignore. An equal file is not rewritten, so that cargo does not
/// rebuild.
fn copy_files(root: &Path, copy: &Path, but: &BTreeSet<String>) -> Result<()> {
    let mut git = process::command("git", root);
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    let listed = process::output_of(&mut git, Duration::from_secs(60))?;
    for name in listed.lines() {
        let from = root.join(name);
        if from.is_file() && !but.contains(name) {
            let bytes = fs::read(&from).with_context(|| format!("read `{name}`"))?;
            repo::write_changed(&copy.join(name), &bytes)?;
        }
    }
    Ok(())
}

/// Plants all mistakes that may compile. Returns those of each file.
fn plant_all(
    root: &Path,
    copy: &Path,
    mistakes: &[Mistake],
    unviable: &BTreeSet<usize>,
) -> Result<BTreeMap<String, Vec<PlantedMistake>>> {
    let mut files: BTreeMap<&str, Vec<(usize, &Mistake)>> = BTreeMap::new();
    for (number, mistake) in mistakes.iter().enumerate() {
        files.entry(&mistake.file).or_default().push((number, mistake));
    }
    let mut all = BTreeMap::new();
    for (file, mistakes) in &files {
        let text = fs::read_to_string(root.join(file)).with_context(|| format!("read `{file}`"))?;
        let (text, planted) = plant::plant(&text, mistakes, |number| !unviable.contains(&number));
        repo::write_changed(&copy.join(file), text.as_bytes())?;
        all.insert((*file).to_owned(), planted);
    }
    for lib in libs(mistakes) {
        let text = fs::read_to_string(root.join(&lib)).with_context(|| format!("read `{lib}`"))?;
        repo::write_changed(
            &copy.join(&lib),
            format!("{text}{}", plant::switch(mistakes.len())).as_bytes(),
        )?;
    }
    Ok(all)
}

fn build(
    copy: &Path,
    target: &Path,
    packages: &[&str],
    targets: &[&str],
) -> Result<(Vec<Program>, Vec<Message>)> {
    let mut cargo = process::cargo(copy);
    cargo.args(["build", "--locked", "--keep-going"]).args(targets);
    cargo.args(["--message-format", "json"]).env("CARGO_TARGET_DIR", target);
    // The crates of the copy have the names of ours. A wrapper without effect separates their builds, while builds of
    // dependencies are shared.
    cargo.env("RUSTC_WORKSPACE_WRAPPER", "env");
    for package in packages {
        cargo.args(["--package", package]);
    }
    let (mut programs, mut errors) = (Vec::new(), Vec::new());
    let deadline = Some(Instant::now() + BUILD_LIMIT);
    let status = process::follow(&mut cargo, deadline, |stream, line| {
        if stream == Stream::Err {
            return eprintln!("{line}");
        }
        if let Ok(CompilerMessage { message }) = serde_json::from_str(line) {
            if message.level == "error" && !message.spans.is_empty() {
                errors.push(message);
            }
        } else if let Ok(Artifact { manifest_path, executable: Some(path), profile }) =
            serde_json::from_str(line)
            && profile.test
        {
            let dir = manifest_path.parent().unwrap_or(copy).to_owned();
            let folder = dir.file_name().unwrap_or_default().to_string_lossy();
            programs.push(Program { package: format!("budao-{folder}"), path, dir });
        }
    })?;
    if errors.is_empty() {
        process::ended_well(&cargo, status)?;
    }
    Ok((programs, errors))
}
