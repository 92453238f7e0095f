//! A cap on money, with `budao serve` as a real process that is killed in the middle of every request.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails where it should")]

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use budao_testkit::provider::{Provider, Reply};
use serde_json::{Value, json};

const TOKEN: &str = "a-token-for-the-test";
/// What one request may cost at most, in millionths: 8 192 tokens of an answer at 10 for a million.
const REQUEST: usize = 81_920;
/// The cap of a session, in millionths.
const CAP: usize = 250_000;

/// A running server. Dropping it kills it, as `kill -9` does.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(directory: &Path, model: &str) -> Self {
        let config = directory.join("budao.toml");
        let prices = format!("[models.spending.prices.{model:?}]\ninput = 0\noutput = 10\n");
        std::fs::write(&config, format!("[models.spending]\nsession = 0.25\n{prices}")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_budao"))
            .args(["serve", "--listen", "127.0.0.1:0", "--token", TOKEN, "--model", model])
            .current_dir(directory)
            .env_clear()
            .env("BUDAO_JOURNAL", directory.join("journal.db"))
            .env("BUDAO_CONFIG", &config)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().split('#').next().unwrap().trim_end_matches('/').to_owned();
        Self { child, url }
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let sent = client().post(format!("{}{path}", self.url)).bearer_auth(TOKEN).json(&body);
        let response = sent.send().await.unwrap();
        assert!(response.status().is_success(), "{path}: {}", response.status());
        response.json().await.unwrap()
    }

    /// Opens a session and sends it one message.
    async fn ask(&self) -> String {
        let opened = self.post("/v1/sessions", json!({})).await;
        let session = opened["session_id"].as_str().unwrap().to_owned();
        let path = format!("/v1/sessions/{session}/messages");
        self.post(&path, json!({ "content": "go" })).await;
        session
    }

    /// Reads a session's events until its run has failed; returns them as text.
    async fn failure(&self, session: &str) -> String {
        let url = format!("{}/v1/sessions/{session}/events?after=0", self.url);
        let mut response = client().get(url).bearer_auth(TOKEN).send().await.unwrap();
        let mut text = String::new();
        while let Some(bytes) = response.chunk().await.unwrap() {
            text.push_str(&String::from_utf8_lossy(&bytes));
            if text.contains("agent.error") {
                return text;
            }
        }
        panic!("the stream ended before the run failed: {text}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// Goal: a cap holds although no process lives long enough to learn what its request cost.
/// Method: the service takes every request and answers none; the server is killed as soon as it has asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cap_holds_although_every_request_ends_with_a_kill() {
    let provider = Provider::start([(); 10].map(|()| Reply::silence())).await;
    let directory = tempfile::tempdir().unwrap();
    let model = format!("openai:m@{}/v1", provider.url());
    let mut session = None;
    let mut lives = 0;
    let events = loop {
        lives += 1;
        assert!(lives < 10, "the cap was never reached");
        let server = Server::start(directory.path(), &model);
        let session = match &session {
            Some(session) => session,
            None => session.insert(server.ask().await),
        };
        tokio::select! {
            () = provider.reached(lives) => {}
            events = server.failure(session) => break events,
        }
    };
    assert!(events.contains("ERR_TURN_007"), "{events}");
    assert!(events.contains("models.spending.session"), "{events}");
    let asked = provider.asked().len();
    assert_eq!(asked, CAP / REQUEST, "requests that the cap has room for");
}
