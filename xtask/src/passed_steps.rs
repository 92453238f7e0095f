//! Remembers outside CI which steps passed with which files, so that a step whose files did not change is not repeated.
//!
//! A step's fingerprint covers its name, the compiler, and the path and content of every file under its inputs, tracked by
//! git or not, at the start of the run. Fingerprints are files in the target folder; `cargo clean` forgets them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

use crate::steps::Step;
use crate::{metadata::Metadata, process, repo};

const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct PassedSteps {
    folder: PathBuf,
    compiler: String,
    /// Path and digest of every file, sorted by path.
    files: Vec<(String, Vec<u8>)>,
}

impl PassedSteps {
    /// Reads every file of the repository.
    ///
    /// # Errors
    /// Without git or rustc, or when a file cannot be read.
    pub(crate) fn open() -> Result<Self> {
        let root = repo::root();
        let folder = Metadata::load(&root)?.target_directory.join("passed-steps");
        let compiler = process::output_of(Command::new("rustc").arg("-vV"), LIMIT)?;
        let mut git = process::command("git", &root);
        git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let listed = process::output_of(&mut git, LIMIT)?;
        let mut names: Vec<&str> = listed.trim_end().split('\0').collect();
        names.sort_unstable();
        names.dedup();
        let files = names.into_iter().filter(|name| !name.is_empty() && root.join(name).is_file());
        let files = files.map(|name| Ok((name.to_owned(), digest(&root.join(name))?)));
        Ok(Self { folder, compiler, files: files.collect::<Result<_>>()? })
    }

    pub(crate) fn has_passed(&self, step: &Step) -> bool {
        let Some(fingerprint) = self.fingerprint(step) else { return false };
        fs::read_to_string(self.folder.join(step.name)).is_ok_and(|known| known == fingerprint)
    }

    /// A fingerprint that cannot be written costs a repetition, nothing else.
    pub(crate) fn record(&self, step: &Step) {
        if let Some(fingerprint) = self.fingerprint(step) {
            repo::write_changed(&self.folder.join(step.name), fingerprint.as_bytes()).ok();
        }
    }

    /// Absent for a step without inputs, which always runs.
    fn fingerprint(&self, step: &Step) -> Option<String> {
        if step.inputs.is_empty() {
            return None;
        }
        let mut hash = Sha256::new_with_prefix(format!("{}\n{}\n", step.name, self.compiler));
        let is_input = |path: &str| step.inputs.iter().any(|input| path.starts_with(input));
        for (path, digest) in self.files.iter().filter(|(path, _)| is_input(path)) {
            hash.update(format!("{path}\n"));
            hash.update(digest);
        }
        Some(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

fn digest(file: &Path) -> Result<Vec<u8>> {
    let bytes = fs::read(file).with_context(|| format!("read `{}`", file.display()))?;
    Ok(Sha256::digest(bytes).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::{StepResult, StepScope};

    fn step(inputs: &'static [&'static str]) -> Step {
        Step {
            name: "imagined",
            about: "",
            budget: Duration::ZERO,
            when: StepScope::Always,
            needs: &[],
            inputs,
            run: |_| Ok(StepResult::Passed(String::new())),
        }
    }

    fn memory(folder: &Path, files: &[(&str, u8)]) -> PassedSteps {
        let files = files.iter().map(|(path, content)| ((*path).to_owned(), vec![*content]));
        PassedSteps {
            folder: folder.to_owned(),
            compiler: "rustc 1".to_owned(),
            files: files.collect(),
        }
    }

    #[test]
    fn a_step_is_repeated_when_one_of_its_files_or_the_compiler_changed() {
        let folder = std::env::temp_dir().join(format!("budao-passed-{}", std::process::id()));
        let before = memory(&folder, &[("crates/a.rs", 1), ("docs/a.md", 1)]);
        let (some, always) = (step(&["crates/"]), step(&[]));
        assert!(!before.has_passed(&some));
        before.record(&some);
        before.record(&always);
        assert!(before.has_passed(&some) && !before.has_passed(&always));
        assert!(memory(&folder, &[("crates/a.rs", 1), ("docs/a.md", 2)]).has_passed(&some));
        assert!(!memory(&folder, &[("crates/a.rs", 2)]).has_passed(&some));
        assert!(!memory(&folder, &[("crates/a.rs", 1), ("crates/b.rs", 1)]).has_passed(&some));
        let newer = PassedSteps { compiler: "rustc 2".to_owned(), ..before };
        assert!(!newer.has_passed(&some));
        fs::remove_dir_all(&folder).unwrap();
    }
}
