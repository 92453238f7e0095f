//! One `budao serve` process, and requests to it.

use std::{path::Path, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use budao_testkit::{
    postgres::PostgresServer,
    provider::{Provider, Reply},
    sse::{self, ModelOutput},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

/// No request takes this long unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Node {
    child: Child,
    url: String,
    client: reqwest::Client,
}

/// The answer of the model service in all turns.
pub(crate) fn answer() -> Reply {
    Reply::events(sse::openai(&[ModelOutput::text("done")]))
}

impl Node {
    pub(crate) async fn start(
        program: &Path,
        database: &PostgresServer,
        model: &Provider,
        home: &Path,
    ) -> Result<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut child = Command::new(program)
            .args(["serve", "--no-auth", "--listen", "127.0.0.1:0"])
            .args(["--journal", &database.url("budao")])
            .args(["--model", &format!("openai:m@{}/v1", model.url())])
            .current_dir(home)
            .env_clear()
            .env("HOME", home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("start `budao serve`")?;
        let out = child.stdout.take().context("its output is piped")?;
        let line = BufReader::new(out).lines().next_line().await.context("read its address")?;
        let Some(line) = line else { bail!("`budao serve` ended before it listened") };
        let url = line.trim().split('#').next().unwrap_or_default().trim_end_matches('/');
        let client = reqwest::Client::builder().no_proxy().build().context("a client")?;
        Ok(Self { child, url: url.to_owned(), client })
    }

    fn pid(&self) -> Result<Pid> {
        let id = self.child.id().context("the server has ended")?;
        Pid::from_raw(i32::try_from(id)?).context("a process id")
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(self.pid()?, signal).context("send a signal")
    }

    /// CPU time that the process has used.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()?.as_raw_nonzero()))?;
        let rest = stat.rsplit_once(')').context("its name")?.1;
        let ticks = rest.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        Ok(Duration::from_millis(10 * ticks.sum::<Result<u64, _>>()?))
    }

    async fn post(&self, path: &str, body: Value) -> Result<Value> {
        let request = self.client.post(format!("{}{path}", self.url)).json(&body);
        let response = request.timeout(PATIENCE).send().await?;
        let status = response.status();
        let text = response.text().await?;
        ensure!(status.is_success(), "{path}: {status}: {text}");
        serde_json::from_str(&text).with_context(|| format!("understand `{text}`"))
    }

    pub(crate) async fn open(&self) -> Result<String> {
        let opened = self.post("/v1/sessions", json!({})).await?;
        opened["session_id"].as_str().map(str::to_owned).context("a session has an id")
    }

    pub(crate) async fn say(&self, session: &str) -> Result<()> {
        let body = json!({ "content": "go" });
        self.post(&format!("/v1/sessions/{session}/messages"), body).await.map(drop)
    }

    /// The events of a session from its beginning.
    pub(crate) async fn events(&self, session: &str) -> Result<reqwest::Response> {
        let url = format!("{}/v1/sessions/{session}/events?after=0", self.url);
        let response = self.client.get(url).send().await?;
        ensure!(response.status().is_success(), "observing a session: {}", response.status());
        Ok(response)
    }
}
