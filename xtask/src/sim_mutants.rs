//! `cargo xtask sim --mutants`: checks that the simulator finds deliberate bugs. Each is a patch in
//! `crates/sim/mutants`, named after the bug. The patches are applied to a copy of the tree, one at a time; each copy
//! is built and plays seeds. A bug that no seed finds shows a promise without a law, and fails the run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::table::{self, Align};
use crate::{metadata::Metadata, process, repo};

/// The folder of the patches.
const FOLDER: &str = "crates/sim/mutants";
/// Seeds for each bug, and below the seconds they may take, because some bugs slow down every seed. If none finds the
/// bug, further seeds are played until one does, up to [`SEEDS_MOST`] and [`SECONDS_MOST`].
const SEEDS: u64 = 400;
const SECONDS: u64 = 60;
const SEEDS_MOST: u64 = 20_000;
const SECONDS_MOST: u64 = 1_200;

/// A planted bug.
struct Mutant {
    name: String,
    patch: PathBuf,
    /// The first crate the patch touches; it determines the world that should find the bug.
    krate: String,
    /// The world that the patch names in a line `World: …`, before its crate.
    world: Option<String>,
}

/// The result of one bug.
struct MutantResult {
    seeds: u64,
    failed: u64,
    /// The promise that broke most often, with the first seed that broke it; `None` if none broke.
    law: Option<(String, u64)>,
    took: Duration,
}

/// Plants each bug whose name contains `name`, and plays seeds starting with `from`.
///
/// # Errors
/// When a bug is not found, or its patch does not apply or does not build.
pub(crate) fn run(name: &str, from: u64) -> Result<()> {
    let root = repo::root();
    let mutants: Vec<Mutant> =
        all(&root)?.into_iter().filter(|mutant| mutant.name.contains(name)).collect();
    ensure!(!mutants.is_empty(), "there is no such patch in {FOLDER}");
    let copy = TreeCopy::make(&root)?;
    let mut rows = Vec::new();
    let mut missed = Vec::new();
    for mutant in &mutants {
        let caught = copy.try_one(mutant, from)?;
        println!("{}: {} of {} seeds", mutant.name, caught.failed, caught.seeds);
        if caught.failed == 0 {
            missed.push(mutant.name.as_str());
        }
        rows.push(row(mutant, &caught));
    }
    let head = [
        ("planted bug", Align::Left),
        ("caught in", Align::Right),
        ("seeds", Align::Right),
        ("first", Align::Right),
        ("took", Align::Right),
        ("by the law", Align::Left),
    ];
    print!("\n{}", table::render(&head, &rows));
    ensure!(missed.is_empty(), "no seed found: {}", missed.join(", "));
    Ok(())
}

fn row(mutant: &Mutant, caught: &MutantResult) -> Vec<String> {
    let (law, first) = match &caught.law {
        Some((law, first)) => (law.clone(), first.to_string()),
        None => ("none".to_owned(), String::new()),
    };
    vec![
        mutant.name.replace('-', " "),
        caught.failed.to_string(),
        caught.seeds.to_string(),
        first,
        table::duration(caught.took),
        law,
    ]
}

/// Checks that every patch still applies. Cheap enough for every run.
///
/// # Errors
/// When a patch does not apply, or there are too few.
pub(crate) fn check(root: &Path) -> Result<usize> {
    let mutants = all(root)?;
    for mutant in &mutants {
        let git = Command::new("git")
            .args(["apply", "--check"])
            .arg(&mutant.patch)
            .current_dir(root)
            .output()
            .context("run `git apply`")?;
        ensure!(
            git.status.success(),
            "{}/{}.patch does not fit the code any more: {}",
            FOLDER,
            mutant.name,
            String::from_utf8_lossy(&git.stderr).trim()
        );
    }
    Ok(mutants.len())
}

fn all(root: &Path) -> Result<Vec<Mutant>> {
    let mut mutants = Vec::new();
    for entry in fs::read_dir(root.join(FOLDER)).with_context(|| FOLDER.to_owned())? {
        let patch = entry?.path();
        let Some(name) = patch.file_stem().and_then(|name| name.to_str()) else { continue };
        let text = fs::read_to_string(&patch).with_context(|| patch.display().to_string())?;
        let krate = text.lines().find_map(|line| line.strip_prefix("+++ b/crates/"));
        let Some(krate) = krate.and_then(|path| path.split('/').next()) else {
            bail!("{} touches no crate", patch.display());
        };
        let (name, krate) = (name.to_owned(), krate.to_owned());
        let world = text.lines().find_map(|line| line.strip_prefix("World: "));
        let world = world.map(str::to_owned);
        mutants.push(Mutant { name, krate, world, patch });
    }
    mutants.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(mutants)
}

/// A copy of the tree with its own target folder.
struct TreeCopy {
    tree: PathBuf,
    target: PathBuf,
}

impl TreeCopy {
    /// Copies the files that git tracks; built dependencies are linked, not copied.
    fn make(root: &Path) -> Result<Self> {
        let own = Metadata::load(root)?.target_directory;
        let (tree, target) = (own.join("mutants/tree"), own.join("mutants/target"));
        for file in repo::tracked_files(root)? {
            let bytes = fs::read(root.join(&file)).with_context(|| format!("read `{file}`"))?;
            repo::write_changed(&tree.join(&file), &bytes)?;
        }
        if !target.exists() {
            for folder in ["deps", "build", ".fingerprint"] {
                link_all(&own.join("debug").join(folder), &target.join("debug").join(folder))?;
            }
        }
        // The copy is a repository of its own, so that patches apply here and not in the surrounding one.
        if !tree.join(".git").exists() {
            process::run(Command::new("git").args(["init", "--quiet"]).current_dir(&tree), None)?;
        }
        Ok(Self { tree, target })
    }

    fn try_one(&self, mutant: &Mutant, from: u64) -> Result<MutantResult> {
        let apply = |more: &[&str]| {
            let mut git = Command::new("git");
            git.arg("apply").args(more).arg(&mutant.patch).current_dir(&self.tree);
            process::run(&mut git, None)
        };
        apply(&[]).with_context(|| format!("{} does not fit the code", mutant.name))?;
        let began = Instant::now();
        let caught = self.build(mutant).and_then(|()| self.find(mutant, from));
        apply(&["--reverse"])?;
        Ok(MutantResult { took: began.elapsed(), ..caught? })
    }

    fn build(&self, mutant: &Mutant) -> Result<()> {
        let mut cargo = process::cargo(&self.tree);
        cargo.args(["build", "--quiet", "--package", "budao-sim"]);
        // Bugs outside the gateways are found without building them.
        if ["engine", "services"].contains(&world(mutant)) {
            cargo.arg("--no-default-features");
        }
        cargo.env("CARGO_TARGET_DIR", &self.target);
        process::run(&mut cargo, None).with_context(|| format!("{} cannot be built", mutant.name))
    }

    fn find(&self, mutant: &Mutant, from: u64) -> Result<MutantResult> {
        let caught = self.play(mutant, from, (SEEDS, SECONDS, usize::MAX))?;
        if caught.failed > 0 {
            return Ok(caught);
        }
        let more = self.play(mutant, from + caught.seeds, (SEEDS_MOST, SECONDS_MOST, 1))?;
        Ok(MutantResult { seeds: caught.seeds + more.seeds, ..more })
    }

    /// Plays seeds; `most` bounds the seeds, the seconds and the failures.
    fn play(&self, mutant: &Mutant, from: u64, most: (u64, u64, usize)) -> Result<MutantResult> {
        let (seeds, seconds, failures) = most;
        let mut sim = Command::new(self.target.join("debug/budao-sim"));
        sim.args(["--brief", "--failures", &failures.to_string(), "--world", world(mutant)]);
        sim.args(["--seeds", &seeds.to_string(), "--from", &from.to_string()]);
        sim.args(["--within", &seconds.to_string()]).current_dir(&self.tree);
        let output = sim.output().context("cannot run the simulator")?;
        let said = String::from_utf8_lossy(&output.stdout);
        read(&said).with_context(|| format!("understand what the simulator said:\n{said}"))
    }
}

/// The world that the patch names, or that exercises the crate of this bug.
fn world(mutant: &Mutant) -> &str {
    if let Some(world) = &mutant.world {
        return world;
    }
    match mutant.krate.as_str() {
        "serve" => "served",
        "acp" | "claude" => "editor",
        "smcp" => "smcp",
        "remote" => "workers",
        _ => "engine",
    }
}

/// Parses lines `law⇥times⇥first seed⇥promise` and a last line that begins with the number of seeds.
fn read(said: &str) -> Option<MutantResult> {
    let seeds = said.lines().last()?.split(' ').next()?.parse().ok()?;
    let mut caught = MutantResult { seeds, failed: 0, law: None, took: Duration::ZERO };
    for line in said.lines() {
        let mut cells = line.split('\t');
        if cells.next() != Some("law") {
            continue;
        }
        let (times, first): (u64, u64) = (cells.next()?.parse().ok()?, cells.next()?.parse().ok()?);
        caught.failed += times;
        caught.law.get_or_insert((cells.next()?.to_owned(), first));
    }
    Some(caught)
}

/// Links everything below a folder, except artefacts of our own crates, which are rebuilt.
fn link_all(from: &Path, to: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(from) else { return Ok(()) };
    fs::create_dir_all(to)?;
    for entry in entries {
        let entry = entry?;
        let (name, path) = (entry.file_name(), entry.path());
        if name.to_string_lossy().contains("budao") {
            continue;
        }
        if path.is_dir() {
            link_all(&path, &to.join(&name))?;
        } else {
            fs::hard_link(&path, to.join(&name)).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_the_simulator_is_counted() {
        let said =
            "law\t12\t3\tevery turn ends\nlaw\t2\t40\ta turn ends once\n100 seeds, 14 failed\n";
        let caught = read(said).unwrap();
        assert_eq!((caught.seeds, caught.failed), (100, 14));
        assert_eq!(caught.law, Some(("every turn ends".to_owned(), 3)));
        assert_eq!(read("100 seeds, 0 failed").unwrap().failed, 0);
        assert!(read("nonsense").is_none());
    }

    #[test]
    fn every_planted_bug_still_fits_the_code() {
        let count = check(&repo::root()).unwrap();
        assert!(count >= 10, "{count}");
    }
}
