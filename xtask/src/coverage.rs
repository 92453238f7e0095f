//! `cargo xtask coverage`: lists the lines of the recovery code that no test reaches.
//!
//! Only our crates are built with the compiler's counters, so that all dependencies are reused from the usual builds:
//! cargo calls this program instead of the compiler for every workspace crate ([`wrapped`]), which adds one flag.
//! `llvm-profdata` and `llvm-cov` come with `rustup component add llvm-tools`.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use crate::metadata::Metadata;
use crate::process::{self, Stream};
use crate::recovery::{self, AREAS};
use crate::table::{self, Align};
use crate::{peers, repo};

/// Environment variable that makes this program act as the compiler.
const WRAPPER: &str = "BUDAO_XTASK_COUNTS_LINES";
/// Time limit for the tests of one package.
const LIMIT: Duration = Duration::from_secs(30 * 60);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only files of this package; may be given several times
    #[arg(long, value_name = "NAME")]
    package: Vec<String>,
    /// Only tests whose name holds this text
    #[arg(long, value_name = "TEXT")]
    test: Option<String>,
}

/// Lines of a file, each with its execution count.
type Lines = BTreeMap<u32, u64>;

/// Runs `xtask rustc ARGUMENTS` as the compiler, with the coverage flag added. Returns `None` if [`WRAPPER`] is not
/// set, and an error if the compiler cannot be started.
pub(crate) fn wrapped() -> Option<std::io::Error> {
    env::var_os(WRAPPER)?;
    let mut words = env::args_os().skip(1);
    let mut rustc = Command::new(words.next()?);
    rustc.args(words).args(["-C", "instrument-coverage"]);
    // `exec` returns only if the compiler cannot be started.
    Some(rustc.exec())
}

pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    let root = repo::root();
    let tools = Tools::find(&root)?;
    let packages = recovery::packages(&args.package);
    ensure!(!packages.is_empty(), "no package of that name has code that brings sessions back");
    let folder = Metadata::load(&root)?.target_directory.join("coverage");
    let mut covered: BTreeMap<String, Lines> = BTreeMap::new();
    for package in packages {
        println!("{package}: building its tests with counters, and running them");
        for (file, lines) in measure(&root, &tools, &folder, package, args.test.as_deref())? {
            let all = covered.entry(file).or_default();
            for (line, count) in lines {
                *all.entry(line).or_default() += count;
            }
        }
    }
    print!("\n{}", report(&root, &covered));
    Ok(ExitCode::SUCCESS)
}

/// Runs the tests of one package; returns the line counts of our files.
fn measure(
    root: &Path,
    tools: &Tools,
    folder: &Path,
    package: &str,
    test: Option<&str>,
) -> Result<BTreeMap<String, Lines>> {
    let folder = folder.join(package);
    if folder.exists() {
        fs::remove_dir_all(&folder).context("remove the counts of an earlier run")?;
    }
    fs::create_dir_all(&folder).context("make a folder for the counts")?;
    let programs = build(root, package)?;
    let mut run = counting(root)?;
    run.args(["nextest", "run", "--locked", "--no-fail-fast", "--package", package]);
    run.args(["--status-level", "fail", "--final-status-level", "fail"]).args(test);
    // Processes share a few files, instead of one file each.
    run.env("LLVM_PROFILE_FILE", folder.join("%4m.profraw"));
    run.env("BUDAO_PEERS", peers::dir()?);
    process::run(&mut run, Some(Instant::now() + LIMIT))?;
    let merged = folder.join("all.profdata");
    let mut merge = process::command(&tools.profdata.to_string_lossy(), root);
    merge.args(["merge", "-sparse", "-o"]).arg(&merged);
    for entry in fs::read_dir(&folder).context("read the folder of the counts")? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "profraw") {
            merge.arg(path);
        }
    }
    process::output_of(&mut merge, LIMIT)?;
    let mut export = process::command(&tools.cov.to_string_lossy(), root);
    export.args(["export", "-format=lcov", "-instr-profile"]).arg(&merged);
    for (index, program) in programs.iter().enumerate() {
        if index > 0 {
            export.arg("-object");
        }
        export.arg(program);
    }
    let files = AREAS.iter().filter(|area| area.package == package).flat_map(|area| area.files);
    export.arg("-sources").args(files.map(|file| root.join("crates").join(file)));
    let said = process::output_of(&mut export, LIMIT)?;
    Ok(lcov(&said, root))
}

/// A cargo command that uses this program as the compiler wrapper.
fn counting(root: &Path) -> Result<Command> {
    let mut cargo = process::cargo(root);
    cargo.env("RUSTC_WORKSPACE_WRAPPER", env::current_exe().context("find this program")?);
    cargo.env(WRAPPER, "1");
    Ok(cargo)
}

/// Builds the test programs and examples of a package with counters.
fn build(root: &Path, package: &str) -> Result<Vec<PathBuf>> {
    #[derive(Deserialize)]
    struct Artifact {
        executable: Option<PathBuf>,
    }
    let mut cargo = counting(root)?;
    cargo.args(["test", "--locked", "--no-run", "--package", package]);
    cargo.args(["--lib", "--tests", "--examples"]);
    cargo.args(["--message-format", "json-render-diagnostics"]);
    let mut programs = Vec::new();
    let deadline = Some(Instant::now() + LIMIT);
    let status = process::follow(&mut cargo, deadline, |stream, line| match stream {
        Stream::Err => eprintln!("{line}"),
        Stream::Out => {
            if let Ok(Artifact { executable: Some(program) }) = serde_json::from_str(line) {
                programs.push(program);
            }
        }
    })?;
    process::ended_well(&cargo, status)?;
    if programs.is_empty() {
        bail!("`{package}` has no tests");
    }
    Ok(programs)
}

struct Tools {
    profdata: PathBuf,
    cov: PathBuf,
}

impl Tools {
    fn find(root: &Path) -> Result<Self> {
        let limit = Duration::from_secs(30);
        let mut asked = process::command("rustc", root);
        let sysroot = process::output_of(asked.args(["--print", "sysroot"]), limit)?;
        let mut asked = process::command("rustc", root);
        let host = process::output_of(asked.args(["--print", "host-tuple"]), limit)?;
        let bin = Path::new(sysroot.trim()).join("lib/rustlib").join(host.trim()).join("bin");
        let tools = Self { profdata: bin.join("llvm-profdata"), cov: bin.join("llvm-cov") };
        ensure!(
            tools.profdata.is_file() && tools.cov.is_file(),
            "the compiler's coverage tools are missing: `rustup component add llvm-tools`"
        );
        Ok(tools)
    }
}

/// The lines of each file under `crates/` in a report of `llvm-cov`.
fn lcov(text: &str, root: &Path) -> BTreeMap<String, Lines> {
    let crates = root.join("crates");
    let mut files: BTreeMap<String, Lines> = BTreeMap::new();
    let mut file = None;
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            let inside = Path::new(path).strip_prefix(&crates).ok();
            file = inside.map(|path| path.to_string_lossy().into_owned());
        } else if let (Some(file), Some(data)) = (&file, line.strip_prefix("DA:")) {
            let mut numbers = data.split(',');
            let (at, count) = (numbers.next(), numbers.next());
            let at = at.and_then(|at| at.parse().ok());
            let count = count.and_then(|count| count.parse::<u64>().ok());
            if let (Some(at), Some(count)) = (at, count) {
                *files.entry(file.clone()).or_default().entry(at).or_default() += count;
            }
        }
    }
    files
}

fn report(root: &Path, covered: &BTreeMap<String, Lines>) -> String {
    let (mut rows, mut missed) = (Vec::new(), String::new());
    let (mut all, mut reached) = (0, 0);
    for area in AREAS {
        for file in area.files {
            let Some(lines) = covered.get(*file) else { continue };
            let text = fs::read_to_string(root.join("crates").join(file)).unwrap_or_default();
            // Unit tests in the same file are not recovery code.
            let end = text.lines().position(|line| line == "mod tests {").unwrap_or(usize::MAX);
            let lines: Vec<_> = lines.iter().filter(|(at, _)| (**at as usize) <= end).collect();
            let ran = lines.iter().filter(|(_, count)| **count > 0).count();
            all += lines.len();
            reached += ran;
            rows.push(row(area.name, file, ran, lines.len()));
            for (at, _) in lines.iter().filter(|(_, count)| **count == 0) {
                let line = text.lines().nth(**at as usize - 1).unwrap_or_default();
                missed += &format!("crates/{file}:{at}: {}\n", line.trim());
            }
        }
    }
    rows.push(row("", "all", reached, all));
    let head = [
        ("area", Align::Left),
        ("file", Align::Left),
        ("lines", Align::Right),
        ("reached", Align::Right),
        ("%", Align::Right),
    ];
    let missed = if missed.is_empty() { "every line is reached\n".to_owned() } else { missed };
    format!("{}\nnot reached by any test:\n{missed}", table::render(&head, &rows))
}

fn row(area: &str, file: &str, reached: usize, lines: usize) -> Vec<String> {
    let part = 100.0 * reached as f64 / lines.max(1) as f64;
    [area, file, &lines.to_string(), &reached.to_string(), &format!("{part:.1}")]
        .map(str::to_owned)
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_several_programs_add_up_and_foreign_files_are_left_out() {
        let text = "SF:/r/crates/core/src/turn/calls.rs\nFN:1,x\nDA:1,0\nDA:2,5\nend_of_record\n\
                    SF:/elsewhere/lib.rs\nDA:9,0\nend_of_record\n\
                    SF:/r/crates/core/src/turn/calls.rs\nDA:1,3\nDA:7,0\nend_of_record\n";
        let files = lcov(text, Path::new("/r"));
        assert_eq!(files.len(), 1);
        let lines = &files["core/src/turn/calls.rs"];
        assert_eq!(
            lines.iter().map(|(at, n)| (*at, *n)).collect::<Vec<_>>(),
            [(1, 3), (2, 5), (7, 0)]
        );
        let text = report(Path::new("/r"), &files);
        assert!(text.contains("core/src/turn/calls.rs      3        2  66.7"), "{text}");
        assert!(text.contains("crates/core/src/turn/calls.rs:7:"), "{text}");
    }
}
