//! One client in Python: `xtask/peers/NAME/storm.py`, which runs all turns at once and prints its outcome.

use std::{collections::BTreeMap, path::PathBuf, process::Stdio, str::FromStr};

use anyhow::{Context as _, Result, ensure};
use budao_testkit::storm::Storm;
use serde::Deserialize;

use crate::{Outcome, time_limit};

/// The interpreter and the script of a peer.
#[derive(Clone, Debug)]
pub(crate) struct PeerProgram {
    pub(crate) name: String,
    python: PathBuf,
    script: PathBuf,
}

/// The last line that a script prints.
#[derive(Debug, Deserialize)]
struct PeerReport {
    /// True if the peer has what the storm needs, such as a second endpoint.
    supported: bool,
    finished: usize,
    /// Tool calls by turn.
    effects: BTreeMap<String, usize>,
    causes: BTreeMap<String, usize>,
}

impl FromStr for PeerProgram {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('=').collect();
        let [name, python, script] = parts[..] else {
            return Err("expected NAME=PYTHON=SCRIPT".to_owned());
        };
        Ok(Self { name: name.to_owned(), python: python.into(), script: script.into() })
    }
}

impl PeerProgram {
    pub(crate) async fn run(&self, storm: &Storm, urls: &[String]) -> Result<Outcome> {
        if storm.kill_at.is_some() {
            let unsupported = Some("only budao is killed and started again".to_owned());
            return Ok(Outcome { unsupported, ..Outcome::default() });
        }
        let mut command = tokio::process::Command::new(&self.python);
        command
            .arg("-B")
            .arg(&self.script)
            .args([storm.turns.to_string(), storm.steps.to_string()]);
        command.arg(time_limit(storm).as_secs_f64().to_string()).args(urls);
        // No other variables: a proxy or a key of this machine's user has no place here.
        command.env_clear().envs(std::env::var("PATH").map(|path| ("PATH", path)));
        command.stdin(Stdio::null()).kill_on_drop(true);
        let ended = command.output().await.with_context(|| format!("start `{}`", self.name))?;
        let stderr = String::from_utf8_lossy(&ended.stderr);
        ensure!(ended.status.success(), "`{}` failed:\n{stderr}", self.name);
        let stdout = String::from_utf8_lossy(&ended.stdout);
        let line = stdout.lines().last().context("the peer printed nothing")?;
        let report: PeerReport =
            serde_json::from_str(line).with_context(|| format!("understand `{line}`"))?;
        Ok(report.outcome())
    }
}

impl PeerReport {
    fn outcome(self) -> Outcome {
        Outcome {
            finished: self.finished,
            twice: self.effects.values().map(|count| count.saturating_sub(1)).sum(),
            causes: self.causes,
            unsupported: (!self.supported).then(|| "it has no fallback of its own".to_owned()),
        }
    }
}
