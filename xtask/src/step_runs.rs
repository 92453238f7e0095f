//! Remembers when each step ran last, on which commit, how long it took and how it ended: `cargo xtask test --list` shows it,
//! so that nobody has to guess when the heavy steps were run.
//!
//! The file is in the target folder: `cargo clean` forgets it, and every clone has its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::{metadata::Metadata, process, repo, table};

#[derive(Debug)]
pub(crate) struct StepRuns {
    file: PathBuf,
    commit: String,
    runs: BTreeMap<String, StepRun>,
}

/// The last run of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StepRun {
    /// When it ended, as `2026-11-19 13:05`, UTC.
    at: String,
    commit: String,
    seconds: f64,
    has_passed: bool,
}

impl StepRuns {
    /// Reads what is known; a file that is missing or of another version is empty.
    ///
    /// # Errors
    /// When cargo does not name the target folder.
    pub(crate) fn open() -> Result<Self> {
        let root = repo::root();
        let file = Metadata::load(&root)?.target_directory.join("step-runs.json");
        let text = fs::read_to_string(&file).unwrap_or_default();
        let runs = serde_json::from_str(&text).unwrap_or_default();
        let mut git = process::command("git", &root);
        git.args(["describe", "--always", "--dirty"]);
        let commit = process::output_of(&mut git, Duration::from_secs(30))
            .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned());
        Ok(Self { file, commit, runs })
    }

    /// Records a step that ran, at once: a run that is interrupted keeps what it did.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn record(&mut self, step: &str, took: Duration, has_passed: bool) -> Result<()> {
        let at = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M").to_string();
        let seconds = (took.as_secs_f64() * 10.0).round() / 10.0;
        let run = StepRun { at, commit: self.commit.clone(), seconds, has_passed };
        self.runs.insert(step.to_owned(), run);
        let text = serde_json::to_string_pretty(&self.runs).context("write the runs of steps")?;
        repo::write_changed(&self.file, (text + "\n").as_bytes())
    }

    /// The last run of a step in a few words.
    pub(crate) fn describe(&self, step: &str) -> String {
        let Some(StepRun { at, commit, seconds, has_passed }) = self.runs.get(step) else {
            return "no record here".to_owned();
        };
        let result = if *has_passed { "passed" } else { "FAILED" };
        format!("{at}: {result}, {}, {commit}", table::duration(Duration::from_secs_f64(*seconds)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_run_of_a_step_is_kept_and_described() {
        let folder = std::env::temp_dir().join(format!("budao-step-runs-{}", std::process::id()));
        let file = folder.join("step-runs.json");
        let commit = "abc-dirty".to_owned();
        let mut runs = StepRuns { file: file.clone(), commit, runs: BTreeMap::new() };
        assert_eq!(runs.describe("sim"), "no record here");
        runs.record("sim", Duration::from_secs(90), false).unwrap();
        runs.record("sim", Duration::from_millis(12_340), true).unwrap();
        let kept: BTreeMap<String, StepRun> =
            serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(kept, runs.runs);
        let text = runs.describe("sim");
        assert!(text.ends_with(": passed, 12 s, abc-dirty"), "{text}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
