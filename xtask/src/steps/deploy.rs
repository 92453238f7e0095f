//! Checks the files in `deploy/` with the programs they are for, or with their linters. If one of the programs cannot be
//! had, the step counts as skipped and names the files that nothing has read: there is no source of it everywhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::{StepContext, StepResult};
use crate::{peers, process};

const LIMIT: Duration = Duration::from_secs(120);

/// A program that checks a file of `deploy/`.
struct Reader {
    name: &'static str,
    reads: &'static str,
    /// Finds the program, and fetches it if necessary.
    find: fn() -> Result<PathBuf>,
    read: fn(&Path, &Path) -> Result<()>,
}

const READERS: [Reader; 6] = [
    Reader {
        name: "promtool",
        reads: "alert rules",
        find: || on_path_or_peer("promtool", "usr/bin/promtool"),
        read: rules,
    },
    Reader {
        name: "Grafana's types",
        reads: "dashboard",
        find: || peers::ensure("grafana"),
        read: dashboard,
    },
    Reader {
        name: "hadolint",
        reads: "Dockerfile",
        find: || on_path_or_peer("hadolint", "bin/hadolint"),
        read: dockerfile,
    },
    Reader {
        name: "systemd-analyze",
        reads: "unit",
        find: || which::which("systemd-analyze").context("not on the path"),
        read: unit,
    },
    Reader {
        name: "kubernetes-validate",
        reads: "Kubernetes manifests",
        find: || Ok(peers::ensure("kubernetes-validate")?.join("bin/kubernetes-validate")),
        read: manifests,
    },
    Reader {
        name: "check-jsonschema",
        reads: "compose file",
        find: || Ok(peers::ensure("check-jsonschema")?.join("bin/check-jsonschema")),
        read: compose,
    },
];

pub(super) fn run(run: &StepContext) -> Result<StepResult> {
    let (mut read_by, mut unread) = (Vec::new(), Vec::new());
    for Reader { name, reads, find, read } in READERS {
        match find() {
            Ok(program) => {
                read(&run.root, &program).with_context(|| format!("{reads}, by {name}"))?;
                read_by.push(format!("{reads} by {name}"));
            }
            Err(error) => unread.push(format!("{reads}: {name} cannot be had: {error:#}")),
        }
    }
    Ok(result(&read_by, &unread))
}

/// A file that no program has read is not checked, whatever the others say.
fn result(read: &[String], unread: &[String]) -> StepResult {
    let read = read.join("; ");
    match unread {
        [] => StepResult::Passed(read),
        unread => StepResult::Skipped(format!("{}\nchecked: {read}", unread.join("\n"))),
    }
}

fn on_path_or_peer(name: &str, inside: &str) -> Result<PathBuf> {
    which::which(name).or_else(|_| Ok(peers::ensure(name)?.join(inside)))
}

fn rules(root: &Path, promtool: &Path) -> Result<()> {
    let mut check = process::command(&promtool.to_string_lossy(), root);
    check.args(["check", "rules", "deploy/prometheus-rules.yml"]);
    approves(&mut check)
}

fn dockerfile(root: &Path, hadolint: &Path) -> Result<()> {
    let mut lint = process::command(&hadolint.to_string_lossy(), root);
    lint.args(["--no-color", "deploy/Dockerfile"]);
    approves(&mut lint)
}

fn manifests(root: &Path, validate: &Path) -> Result<()> {
    let mut check = process::command(&validate.to_string_lossy(), root);
    check.args(["--strict", "deploy/kubernetes.yml"]);
    approves(&mut check)
}

fn compose(root: &Path, program: &Path) -> Result<()> {
    let mut check = process::command(&program.to_string_lossy(), root);
    check.args(["--builtin-schema", "vendor.compose-spec", "deploy/compose.yml"]);
    approves(&mut check)
}

/// Checks that the dashboard has Grafana's type for dashboards, with the TypeScript compiler.
fn dashboard(root: &Path, peer: &Path) -> Result<()> {
    let text = fs::read_to_string(root.join("deploy/grafana-dashboard.json"))
        .context("read the dashboard")?;
    let typed = format!(
        "import type {{ Dashboard }} from '@grafana/schema';\nexport const ours: Dashboard = {};\n",
        text.trim_end()
    );
    // The file must be beside the types, where the compiler looks for them.
    let peer = fs::canonicalize(peer).context("find the peer")?;
    let copy = peer.join(format!("dashboard-{}.ts", std::process::id()));
    fs::write(&copy, typed).context("write the dashboard")?;
    let tsc = peer.join("node_modules/.bin/tsc");
    let mut check = process::command(&tsc.to_string_lossy(), &peer);
    check.args(["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext"]).arg(&copy);
    let verdict = approves(&mut check);
    fs::remove_file(&copy).context("remove the copy of the dashboard")?;
    verdict
}

/// Runs a linter. The error contains its standard output, where linters write their findings.
fn approves(command: &mut Command) -> Result<()> {
    let said = process::capture(command, LIMIT)?;
    if !said.status.success() {
        bail!("`{}` says:\n{}{}", process::shown(command), said.stdout, said.stderr);
    }
    Ok(())
}

/// Checks the unit in a copy whose programs, which are not installed here, are replaced by an existing one.
fn unit(root: &Path, program: &Path) -> Result<()> {
    let text = fs::read_to_string(root.join("deploy/budao.service")).context("read the unit")?;
    let place = std::env::temp_dir().join(format!("budao-unit-{}", std::process::id()));
    fs::create_dir_all(&place).context("make a folder for the unit")?;
    let copy = place.join("budao.service");
    fs::write(&copy, text.replace("/usr/local/bin/budao", "/bin/true"))
        .context("write the unit")?;
    let mut verify = process::command(&program.to_string_lossy(), root);
    verify.args(["verify", "--man=no"]).arg(&copy);
    let said = process::capture(&mut verify, LIMIT);
    fs::remove_dir_all(&place).context("remove the copy of the unit")?;
    let said = said?;
    // The tool only warns about unknown settings and still exits with success.
    if !said.status.success() || said.stderr.contains("budao.service") {
        bail!("systemd-analyze verify: {}{}", said.stdout, said.stderr);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_nothing_has_read_is_named_and_the_step_has_not_passed() {
        let read = ["unit by systemd-analyze".to_owned()];
        let unread = ["Dockerfile: hadolint cannot be had: offline".to_owned()];
        assert!(matches!(result(&read, &[]), StepResult::Passed(note) if note == read[0]));
        let expected = format!("{}\nchecked: {}", unread[0], read[0]);
        assert!(matches!(result(&read, &unread), StepResult::Skipped(why) if why == expected));
    }
}
