//! The real `budao serve` in a process of its own, with one WebSocket and one turn for each session.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use budao_client::{Client, Events, Session, SessionRequest};
use budao_core::retry::RetryPolicy;
use budao_testkit::storm::Storm;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::Instant,
};

use crate::{Endpoints, Outcome, time_limit};

/// Sessions that are opened at the same time.
const OPENED_AT_ONCE: usize = 32;

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// Host and port.
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn process_id(&self) -> Result<u32> {
        self.child.id().context("the server has ended")
    }
}

/// What a server is started with, the same after it was killed.
#[derive(Debug)]
pub(crate) struct ServerSetup {
    program: PathBuf,
    models: String,
    folder: PathBuf,
}

impl ServerSetup {
    /// Prepares a server with its journal and its workspace in this folder.
    pub(crate) fn new(program: &Path, urls: &[String], folder: &Path) -> Result<Self> {
        std::fs::create_dir(folder.join("work")).context("make the workspace")?;
        let models: Vec<String> = urls.iter().map(|url| format!("openai:storm@{url}")).collect();
        let (program, folder) = (program.to_path_buf(), folder.to_path_buf());
        Ok(Self { program, models: models.join(","), folder })
    }

    /// Starts the server and waits until it listens.
    pub(crate) async fn start(&self, address: &str) -> Result<Server> {
        let mut command = Command::new(&self.program);
        command
            .args(["serve", "--no-auth", "--permission", "auto", "--listen", address])
            .args(["--model", &self.models, "--workspace", "."])
            .arg("--journal")
            .arg(self.folder.join("journal.db"))
            .current_dir(self.folder.join("work"))
            .env_clear()
            .envs(std::env::var("PATH").map(|path| ("PATH", path)))
            .env("HOME", &self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut child = command.spawn().context("start `budao serve`")?;
        let out = child.stdout.take().context("its output is piped")?;
        let line = BufReader::new(out).lines().next_line().await.context("read its address")?;
        let Some(line) = line else { bail!("`budao serve` ended before it listened") };
        let address = line.trim().trim_start_matches("http://").trim_end_matches('/').to_owned();
        Ok(Server { child, address })
    }
}

/// Runs all turns of a storm.
pub(crate) async fn run(storm: &Storm, program: &Path, endpoints: &Endpoints) -> Result<Outcome> {
    let folder = tempfile::tempdir().context("make a folder")?;
    let setup = ServerSetup::new(program, &endpoints.urls(), folder.path())?;
    let server = setup.start("127.0.0.1:0").await?;
    let sessions = open(storm, &server).await?;
    let deadline = Instant::now() + time_limit(storm);
    let turns = sessions.into_iter().enumerate().map(|(number, (session, events))| {
        tokio::spawn(async move { turn(number, &session, events, deadline).await })
    });
    let turns: Vec<_> = turns.collect();
    let _server = kill_midway(storm, &setup, server, endpoints).await?;
    let mut outcome = Outcome::default();
    for turn in turns {
        match turn.await.context("a turn panicked")? {
            Ok(()) => outcome.finished += 1,
            Err(cause) => *outcome.causes.entry(cause).or_default() += 1,
        }
    }
    outcome.twice = calls_done_twice(&folder.path().join("work/ledger"));
    Ok(outcome)
}

/// Opens the sessions of all turns, each with a connection of its own.
async fn open(storm: &Storm, server: &Server) -> Result<Vec<(Session, Events)>> {
    let client = Client::new(format!("ws://{}/ws", server.address)).retry(RetryPolicy {
        tries: 1000,
        max: Duration::from_secs(1),
        ..RetryPolicy::default()
    });
    let sessions = stream::iter(0..storm.turns)
        .map(|_| client.create(SessionRequest::default()))
        .buffered(OPENED_AT_ONCE);
    sessions.try_collect().await.context("open sessions")
}

/// Kills the server in a storm that wants it, and starts it again at the same address.
async fn kill_midway(
    storm: &Storm,
    setup: &ServerSetup,
    mut server: Server,
    endpoints: &Endpoints,
) -> Result<Server> {
    let Some(kill_at) = storm.kill_at else { return Ok(server) };
    while endpoints.first.started().is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(kill_at).await;
    server.child.kill().await.context("kill the server")?;
    setup.start(&server.address).await
}

/// One turn, to the end that the server reports; the error is its cause.
async fn turn(
    number: usize,
    session: &Session,
    mut events: Events,
    deadline: Instant,
) -> Result<(), String> {
    session.send(&format!("turn-{number}")).await.map_err(|error| error.to_string())?;
    let expected = format!("turn-{number} is done");
    loop {
        let next = tokio::time::timeout_at(deadline, events.next()).await;
        let event = match next.map_err(|_| "not ended in time")? {
            Some(Ok(event)) => event,
            Some(Err(fault)) => return Err(fault.kind().to_string()),
            None => return Err("the events ended".to_owned()),
        };
        match event.event.as_str() {
            "agent.final_answer" if event.text().contains(&expected) => return Ok(()),
            "agent.final_answer" => return Err("a wrong answer".to_owned()),
            "agent.interrupted" => return Err("interrupted".to_owned()),
            "agent.error" => return Err(cause(event.meta("kind"))),
            _ => {}
        }
    }
}

fn cause(kind: &serde_json::Value) -> String {
    kind.as_str().unwrap_or("an error without a kind").to_owned()
}

/// Counts the lines of the ledger beyond the first of each turn.
fn calls_done_twice(ledger: &Path) -> usize {
    let text = std::fs::read_to_string(ledger).unwrap_or_default();
    let mut calls: HashMap<&str, usize> = HashMap::new();
    text.lines().for_each(|turn| *calls.entry(turn).or_default() += 1);
    calls.values().map(|count| count - 1).sum()
}
