//! The first minute: installs the packages offline into clean roots and runs what the readme shows, literally.
//!
//! A root has an empty home and no Rust on its path. Python gets a fresh environment, npm an empty project. The packages are
//! made by `dist` from the program of this build. What others publish (`websockets`, `ws`) lies beside them as files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::{StepContext, StepResult};
use crate::{dist, peers, process};

const LIMIT: Duration = Duration::from_secs(300);

/// The promised time. A longer one is reported as too slow and fails nothing: the machine may be busy.
const PROMISED: Duration = Duration::from_secs(60);

/// What a corrected mistake looks like in the demo.
pub(super) const CORRECTED: &str = "should be";

/// The files and folders of this step.
struct CleanRoot {
    packages: PathBuf,
    /// What others publish.
    beside: PathBuf,
    home: PathBuf,
    /// Links to the programs that may be used.
    programs: PathBuf,
}

pub(super) fn run(run: &StepContext) -> Result<StepResult> {
    let root = CleanRoot::prepare(&run.root)?;
    let readme = fs::read_to_string(run.root.join("README.md")).context("read the readme")?;
    let python = root.python(&readme)?;
    let npm = root.npm(&readme)?;
    let times = format!("pip {}, npm {}", compared(python, PROMISED), compared(npm, PROMISED));
    Ok(StepResult::Passed(format!("from nothing to a corrected mistake: {times}")))
}

impl CleanRoot {
    fn prepare(repository: &Path) -> Result<Self> {
        let folder = repository.join("target/first-minute");
        if folder.exists() {
            fs::remove_dir_all(&folder).context("empty the folder of the first minute")?;
        }
        let place = |name: &str| -> Result<PathBuf> {
            let path = folder.join(name);
            fs::create_dir_all(&path).with_context(|| format!("make `{}`", path.display()))?;
            Ok(path)
        };
        let root = Self {
            packages: folder.join("dist"),
            beside: place("beside")?,
            home: place("home")?,
            programs: place("bin")?,
        };
        dist::make("dev", &root.packages)?;
        root.fetch_others()?;
        for program in ["node", "npm", "npx", "python3"] {
            let path = which::which(program).with_context(|| format!("find `{program}`"))?;
            std::os::unix::fs::symlink(fs::canonicalize(path)?, root.programs.join(program))?;
        }
        Ok(root)
    }

    /// The only part that needs the network: the two libraries of others.
    fn fetch_others(&self) -> Result<()> {
        let python = peers::ensure("python-package")?.join("bin/python");
        let mut pip = process::command(&python.to_string_lossy(), &self.beside);
        pip.args(["-m", "pip", "download", "--no-deps", "--no-input", "--quiet"]);
        process::output_of(pip.arg("websockets==17.4"), LIMIT)?;
        let ws = peers::ensure("web")?.join("node_modules/ws");
        let mut npm = process::command("npm", &ws);
        npm.args(["pack", "--silent", "--pack-destination"]).arg(&self.beside);
        process::output_of(&mut npm, LIMIT).map(drop)
    }

    /// A shell line in `folder`, with `first` before the few programs on the path, and nothing else of this machine.
    fn shell(&self, folder: &Path, first: &Path, line: &str) -> Command {
        let mut shell = process::command("sh", folder);
        let path = format!("{}:{}:/usr/bin:/bin", first.display(), self.programs.display());
        shell.args(["-c", line]).env_clear().env("PATH", path).env("HOME", &self.home);
        shell.env("LANG", "C.UTF-8").env("PIP_NO_INDEX", "1").env("NPM_CONFIG_OFFLINE", "true");
        shell.env(
            "PIP_FIND_LINKS",
            format!("{} {}", self.packages.display(), self.beside.display()),
        );
        shell.env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        shell
    }

    /// Installs the wheel, plays the demo and runs the readme's program; returns the time to the first correction.
    fn python(&self, readme: &str) -> Result<Duration> {
        let folder = self.home.join("python");
        fs::create_dir_all(&folder)?;
        let bin = folder.join("venv/bin");
        let started = Instant::now();
        process::output_of(&mut self.shell(&folder, &bin, "python3 -m venv venv"), LIMIT)?;
        let line = shown(readme, "pip install")?;
        let time = until_corrected(&mut self.shell(&folder, &bin, &line), started)?;
        fs::write(folder.join("first.py"), block(readme, "python")?)?;
        corrects(&mut self.shell(&folder, &bin, "python first.py"))?;
        Ok(time)
    }

    /// The same with npm: an empty project, the packages as files, `npx` and the readme's program.
    fn npm(&self, readme: &str) -> Result<Duration> {
        let folder = self.home.join("npm");
        fs::create_dir_all(&folder)?;
        let started = Instant::now();
        let install = format!(
            "npm init -y && npm install --no-audit --no-fund {}/*.tgz {}/*.tgz",
            self.packages.display(),
            self.beside.display()
        );
        process::output_of(&mut self.shell(&folder, &self.programs, &install), LIMIT)?;
        let line = shown(readme, "npx budao")?;
        let time = until_corrected(&mut self.shell(&folder, &self.programs, &line), started)?;
        fs::write(folder.join("first.mjs"), block(readme, "js")?)?;
        corrects(&mut self.shell(&folder, &self.programs, "node first.mjs"))?;
        Ok(time)
    }
}

/// A time, and whether it is longer than was promised.
pub(super) fn compared(took: Duration, promised: Duration) -> String {
    let (seconds, most) = (took.as_secs_f64(), promised.as_secs());
    match took <= promised {
        true => format!("{seconds:.0} s of {most} s"),
        false => format!("{seconds:.0} s, TOO SLOW: {most} s are promised"),
    }
}

/// Runs a command to its end, and returns when the first correction was shown.
fn until_corrected(command: &mut Command, started: Instant) -> Result<Duration> {
    println!("$ {}", process::shown(command));
    let mut corrected = None;
    let status = process::follow(command, Some(Instant::now() + LIMIT), |_, line| {
        println!("  {line}");
        if corrected.is_none() && line.contains(CORRECTED) {
            corrected = Some(started.elapsed());
        }
    })?;
    process::ended_well(command, status)?;
    corrected.context("no mistake was corrected")
}

/// Runs the readme's program, which must show a mistake and then the answer of the function.
fn corrects(command: &mut Command) -> Result<()> {
    let said = process::output_of(command, LIMIT)?;
    println!("{said}");
    for text in ["ERR_VAL_002", "pieces"] {
        ensure!(said.contains(text), "the readme's program did not show `{text}`:\n{said}");
    }
    Ok(())
}

/// The command line of the readme that begins with a text, without its remark.
fn shown(readme: &str, start: &str) -> Result<String> {
    let line = readme.lines().find(|line| line.starts_with(start));
    let line = line.with_context(|| format!("the readme shows no `{start}`"))?;
    Ok(line.split(" # ").next().unwrap_or(line).trim().to_owned())
}

/// The first code block of the readme in a language.
fn block(readme: &str, language: &str) -> Result<String> {
    let opening = format!("```{language}\n");
    let Some((_, rest)) = readme.split_once(&opening) else {
        bail!("the readme has no {language}")
    };
    let (code, _) = rest.split_once("```").context("the block has an end")?;
    Ok(code.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_minute_that_takes_longer_is_called_too_slow() {
        assert_eq!(compared(Duration::from_secs(12), PROMISED), "12 s of 60 s");
        let late = compared(Duration::from_secs(61), PROMISED);
        assert_eq!(late, "61 s, TOO SLOW: 60 s are promised");
    }
}
