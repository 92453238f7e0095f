//! What is in `deploy/`, read by the programs it is for. Each is asked if it is here.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::{Done, Run};
use crate::{peers, process};

const LIMIT: Duration = Duration::from_secs(30);

pub(super) fn run(run: &Run) -> Result<Done> {
    let mut said = Vec::new();
    match promtool() {
        Some(promtool) => {
            let mut check = process::command(&promtool.to_string_lossy(), &run.root);
            check.args(["check", "rules", "deploy/prometheus-rules.yml"]);
            process::output_of(&mut check, LIMIT)?;
            said.push("alert rules by promtool");
        }
        None => said.push("no promtool (`cargo xtask peers promtool`)"),
    }
    match which::which("systemd-analyze") {
        Ok(program) => {
            unit(run, &program.to_string_lossy())?;
            said.push("unit by systemd-analyze");
        }
        Err(_) => said.push("no systemd-analyze"),
    }
    Ok(Done::Passed(said.join("; ")))
}

fn promtool() -> Option<PathBuf> {
    let peer = || peers::find("promtool").map(|home| home.join("usr/bin/promtool"));
    which::which("promtool").ok().or_else(peer)
}

/// The unit names programs that are not installed here; in the copy that is checked, another takes their place.
fn unit(run: &Run, program: &str) -> Result<()> {
    let text =
        fs::read_to_string(run.root.join("deploy/budao.service")).context("read the unit")?;
    let place = std::env::temp_dir().join(format!("budao-unit-{}", std::process::id()));
    fs::create_dir_all(&place).context("make a folder for the unit")?;
    let copy = place.join("budao.service");
    fs::write(&copy, text.replace("/usr/local/bin/budao", "/bin/true"))
        .context("write the unit")?;
    let mut verify = process::command(program, &run.root);
    verify.args(["verify", "--man=no"]).arg(&copy);
    let said = process::capture(&mut verify, LIMIT);
    fs::remove_dir_all(&place).context("remove the copy of the unit")?;
    let said = said?;
    // It warns of what it does not know and ends well all the same.
    if !said.status.success() || said.stderr.contains("budao.service") {
        bail!("systemd-analyze verify: {}{}", said.stdout, said.stderr);
    }
    Ok(())
}
