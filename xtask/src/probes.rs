//! `cargo xtask probes`: three failures, caused in other frameworks and in ours, side by side.
//!
//! A: a process is killed in a batch of three calls and another resumes from its disk; the probe counts effects that
//! happened twice or never. B: a model repeats one invalid call forever; the probe counts the requests. C: a tool fails
//! with a text that contains a key and a private address; the probe records what the model and others read. Each
//! framework runs with its defaults, in its own processes (`xtask/peers/*/probe.py`; ours is
//! `crates/runtime/examples/failure-probe.rs`). This file judges all of them by the same rules.

mod judge;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::metadata::Metadata;
use crate::{page, peers, process, repo, test_programs};

/// Time limit for one probe.
const LIMIT: Duration = Duration::from_secs(180);
/// Calls in the batch of probe A, each with one effect.
const CALLS: usize = 3;
/// The failure text of the tool in probe C; only its first words are useful to a model.
const TEXT: &str = "payment 17 refused by the bank, key sk-live-51H8xQ2eZvKYlo2C0aDPR4711 is not valid at 10.20.30.40:5432";
const SECRETS: [&str; 2] = ["sk-live-51H8xQ2eZvKYlo2C0aDPR4711", "10.20.30.40"];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only frameworks whose name holds this text
    filter: Option<String>,
    /// Kills at each of the three points of probe A
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    times: u32,
    /// Write the tables of `docs/benchmarks.md`
    #[arg(long, conflicts_with = "filter")]
    write: bool,
}

/// A framework that is probed.
struct Subject {
    name: String,
    program: PathBuf,
    /// Arguments before the name of the probe.
    args: Vec<String>,
    /// Variants of probe A, each with additional arguments.
    batch: Vec<(&'static str, &'static [&'static str])>,
    /// Variants of the tool's failure in probe C.
    fails: Vec<(&'static str, &'static [&'static str])>,
}

/// Results of probe A, summed over all kills.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct BatchProbe {
    name: String,
    kills: usize,
    /// Effects that had happened when the process was killed.
    before: usize,
    again: usize,
    never: usize,
    /// Calls that the model was told have an unknown outcome.
    in_doubt: usize,
    /// Calls that a person had to look at.
    #[serde(default)]
    person: usize,
}

/// Results of probe B.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct EndlessProbe {
    name: String,
    model_calls: u64,
    ended: String,
}

/// Results of probe C.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SecretProbe {
    name: String,
    model_saw: String,
    escaped: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct ProbeResults {
    batches: Vec<BatchProbe>,
    endless: Vec<EndlessProbe>,
    secrets: Vec<SecretProbe>,
}

pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    let wanted = |name: &str| args.filter.as_ref().is_none_or(|filter| name.contains(filter));
    let mut seen = ProbeResults::default();
    let mut failed = 0;
    for subject in subjects(&wanted)? {
        if let Err(error) = probe(&subject, args.times, &mut seen) {
            eprintln!("{}: FAILED: {error:#}", subject.name);
            failed += 1;
        }
    }
    let root = repo::root();
    let file = Metadata::load(&root)?.target_directory.join("probes.json");
    let text = serde_json::to_string_pretty(&seen).context("write what was seen")?;
    fs::write(&file, text + "\n").with_context(|| format!("write `{}`", file.display()))?;
    let tables = judge::tables(&seen);
    print!("\n{tables}");
    if args.write && failed == 0 {
        page::replace(&root.join("docs/benchmarks.md"), "probes", &tables)?;
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The peers, fetched if necessary, and Budao.
fn subjects(wanted: &impl Fn(&str) -> bool) -> Result<Vec<Subject>> {
    type Variants = &'static [(&'static str, &'static [&'static str])];
    let on_disk: &[(&str, Variants)] = &[
        ("langgraph", &[("langgraph, SQLite saver, `sync`", &[])]),
        ("openai-agents", &[("openai-agents, SQLite session", &[])]),
        ("agno", &[("agno, SQLite database", &[])]),
        (
            "pydantic-ai",
            &[
                ("pydantic-ai with DBOS, SQLite", &[]),
                ("pydantic-ai with DBOS, the tool as a step", &["step"]),
            ],
        ),
        ("rig", &[("rig, which stores nothing: its user asks again", &[])]),
    ];
    let mut subjects = Vec::new();
    for (name, batch) in on_disk.iter().filter(|(name, _)| wanted(name)) {
        let dir = peers::ensure(name)?;
        let python = dir.join("bin/python");
        let (program, args) = if python.is_file() {
            let script = repo::root().join("xtask/peers").join(name).join("probe.py");
            (python, vec!["-B".to_owned(), script.to_string_lossy().into_owned()])
        } else {
            (dir.join("target/release").join(name), vec!["probe".to_owned()])
        };
        let batch = batch.to_vec();
        let fails = vec![(*name, [].as_slice())];
        subjects.push(Subject { name: (*name).to_owned(), program, args, batch, fails });
    }
    if wanted("budao") {
        subjects.push(Subject {
            name: "budao".to_owned(),
            program: test_programs::only_example("failure-probe")?,
            args: Vec::new(),
            batch: vec![
                ("**budao**, one slot for calls", &["one"]),
                ("**budao**, three slots", &[]),
                (
                    "**budao**, one slot, a tool that passes on the key of its call",
                    &["one", "keyed"],
                ),
                ("**budao**, three slots, key", &["keyed"]),
                (
                    "**budao**, one slot, a tool that finds out (`reconcile`)",
                    &["one", "reconciled"],
                ),
                ("**budao**, three slots, `reconcile`", &["reconciled"]),
                ("**budao**, one slot, a person settles what is in doubt", &["one", "resolved"]),
                ("**budao**, three slots, a person", &["resolved"]),
            ],
            fails: vec![
                ("**budao**", &[]),
                ("**budao**, the tool panics", &["panic"]),
                ("**budao**, the tool addresses the text to the model", &["said"]),
            ],
        });
    }
    Ok(subjects)
}

fn probe(subject: &Subject, times: u32, seen: &mut ProbeResults) -> Result<()> {
    for (name, more) in &subject.batch {
        println!("{}: probe A, {} kills", subject.name, times as usize * CALLS);
        let mut batch = BatchProbe { name: (*name).to_owned(), ..BatchProbe::default() };
        for after in (0..CALLS).cycle().take(times as usize * CALLS) {
            kill(subject, more, after, &mut batch)?;
        }
        seen.batches.push(batch);
    }
    println!("{}: probe B", subject.name);
    let said = ask(subject, &["b"])?;
    seen.endless.push(EndlessProbe {
        name: subject.fails[0].0.to_owned(),
        model_calls: said["model_calls"].as_u64().context("no count of model calls")?,
        ended: said["ended"].as_str().unwrap_or_default().to_owned(),
    });
    for (name, more) in &subject.fails {
        println!("{}: probe C", subject.name);
        let said = ask(subject, &[&["c", TEXT], *more].concat())?;
        let text = |field: &str| said[field].as_str().unwrap_or_default().to_owned();
        let (model_saw, escaped) = (text("model_saw"), text("escaped"));
        seen.secrets.push(SecretProbe { name: (*name).to_owned(), model_saw, escaped });
    }
    Ok(())
}

/// One process that is killed right after an effect, and one that resumes; then the ledger is read.
fn kill(subject: &Subject, more: &[&str], after: usize, batch: &mut BatchProbe) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("budao-probe-{}", std::process::id()));
    fs::create_dir_all(&folder).context("make a folder for the probe")?;
    let done = two_lives(subject, more, after, &folder, batch);
    fs::remove_dir_all(&folder).context("remove the probe's folder")?;
    done
}

fn two_lives(
    subject: &Subject,
    more: &[&str],
    after: usize,
    folder: &Path,
    batch: &mut BatchProbe,
) -> Result<()> {
    let place = folder.to_string_lossy();
    let point = after.to_string();
    let mut first = command(subject, &[&["a", &place, &point], more].concat(), folder);
    let died = process::capture(&mut first, LIMIT)?;
    ensure!(!died.status.success(), "the first process was to be killed and was not");
    let ledger = || -> Result<Vec<usize>> {
        let text = fs::read_to_string(folder.join("ledger")).context("read the ledger")?;
        Ok(judge::effects(&text))
    };
    let before = ledger().with_context(|| format!("it said: {}", died.stderr))?;
    ensure!(before.len() == after + 1, "killed after {} effects, not {}", before.len(), after + 1);
    let said = ask(subject, &[&["a", &place, "resume"], more].concat())?;
    batch.kills += 1;
    batch.before += before.len();
    let (again, never) = judge::compare(&before, &ledger()?, CALLS);
    batch.again += again;
    batch.never += never;
    batch.in_doubt += said["in_doubt"].as_u64().unwrap_or(0) as usize;
    batch.person += said["person"].as_u64().unwrap_or(0) as usize;
    Ok(())
}

/// Runs one probe to its end and parses its last line of output.
fn ask(subject: &Subject, args: &[&str]) -> Result<Value> {
    let mut command = command(subject, args, &repo::root());
    let said = process::output_of(&mut command, LIMIT)?;
    let line = said.lines().last().context("the probe said nothing")?;
    serde_json::from_str(line).with_context(|| format!("understand `{line}`"))
}

fn command(subject: &Subject, args: &[&str], dir: &Path) -> std::process::Command {
    let mut command = process::command(&subject.program.to_string_lossy(), dir);
    command.args(&subject.args).args(args);
    command
}
