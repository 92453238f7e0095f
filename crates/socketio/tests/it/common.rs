//! What the tests share: the three servers, and a time limit.

use std::{path::PathBuf, process::Stdio, time::Duration};

use budao_core::{retry::RetryPolicy, world::World};
use budao_socketio::{Client, Config, Error, Event, Events, Transports};
use budao_testkit::world;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::hub::Hub;

/// Nothing here takes this long unless it hangs.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) const SHORT: Duration = Duration::from_secs(20);

pub(crate) const ALL: [Transports; 3] =
    [Transports::PollingThenWebSocket, Transports::WebSocket, Transports::Polling];

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, future).await.expect("hangs")
}

pub(crate) fn world() -> World {
    world::seeded(7)
}

/// A server that runs until it is dropped.
pub(crate) enum Server {
    Ours(Hub),
    Child { name: &'static str, port: u16, _child: Child },
}

impl Server {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Ours(_) => "ours",
            Self::Child { name, .. } => name,
        }
    }

    pub(crate) fn url(&self) -> String {
        let port = match self {
            Self::Ours(hub) => hub.port(),
            Self::Child { port, .. } => *port,
        };
        format!("http://127.0.0.1:{port}")
    }

    pub(crate) fn config(&self) -> Config {
        config(&self.url())
    }
}

/// Tries again soon.
pub(crate) fn config(url: &str) -> Config {
    let base = Duration::from_millis(5);
    let policy = RetryPolicy { tries: u32::MAX, base, max: base * 8, ..RetryPolicy::default() };
    Config::new(url).unwrap().reconnect(policy)
}

/// Our server, and those of others where they were fetched.
pub(crate) async fn servers() -> Vec<Server> {
    let mut servers = vec![Server::Ours(Hub::start(0).await)];
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/peers");
    if let Some(peer) = fetched("socketio-js") {
        let mut command = Command::new("node");
        command.arg(here.join("server.js")).arg(peer);
        servers.push(start("js", command).await);
    }
    if let Some(peer) = fetched("a2c-smcp") {
        let mut command = Command::new(peer.join("bin/python"));
        command.arg(here.join("server.py"));
        servers.push(start("python", command).await);
    }
    servers
}

/// The peer's folder, or nothing and a loud word.
fn fetched(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("BUDAO_PEERS")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/budao/peers")));
    let found = folder.map(|folder| folder.join(name)).filter(|path| path.exists());
    if found.is_none() {
        let advice = format!("NOT TESTED: a server is missing; `cargo xtask peers {name}`");
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{advice}");
        eprintln!("\n*** {advice} ***\n");
    }
    found
}

async fn start(name: &'static str, mut command: Command) -> Server {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = within(lines.next_line()).await.unwrap().expect("it says where it listens");
    let port = line.strip_prefix("listening ").unwrap().trim().parse().unwrap();
    Server::Child { name, port, _child: child }
}

pub(crate) async fn connect(config: Config) -> (Client, Events) {
    within(Client::connect(config, world())).await.unwrap()
}

pub(crate) async fn refused(config: Config) -> Error {
    within(Client::connect(config, world())).await.unwrap_err()
}

/// Waits for the next connection.
pub(crate) async fn connected(events: &mut Events) {
    within(async {
        loop {
            if let Event::Connected { .. } = events.next().await.expect("the session goes on") {
                return;
            }
        }
    })
    .await;
}

/// Waits for the next loss.
pub(crate) async fn disconnected(events: &mut Events) -> (Error, bool) {
    within(async {
        loop {
            if let Event::Disconnected { error, retry_in } = events.next().await.unwrap() {
                return (error, retry_in.is_some());
            }
        }
    })
    .await
}
