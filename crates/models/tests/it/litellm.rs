//! Against a server nobody here wrote: LiteLLM's proxy in its mock mode.
//!
//! `cargo xtask peers litellm` fetches it. Where it is missing the test says so, loudly, and passes; in CI
//! it fails.

use std::{path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use crate::support::{Signal, fault, pieces, request, shared, tool, world};
use budao_core::{
    fault::Kind,
    limits::Limits,
    message::{Message, ModelRequest, ModelStop, Piece, Role},
};
use budao_models::{Anthropic, Model, OpenAi, OpenAiResponses};
use budao_testkit::{
    port,
    provider::{Provider, Reply},
    sse::{self, ModelOutput},
};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

const KEY: &str = "sk-budao-test-4f1e9c77d2a04b6b8c3d5e7f9a1b2c3d";
const WORDS: &str = "Hello from a server nobody here wrote. 不倒";
const CONFIG: &str = r#"
model_list:
  - model_name: says-hello
    litellm_params:
      model: openai/gpt-4o-mini
      api_key: none
      mock_response: "Hello from a server nobody here wrote. 不倒"
  - model_name: rate-limited
    litellm_params:
      model: openai/gpt-4o-mini
      api_key: none
      mock_response: "litellm.RateLimitError"
  - model_name: broken
    litellm_params:
      model: openai/gpt-4o-mini
      api_key: none
      mock_response: "litellm.InternalServerError"
  - model_name: too-long
    litellm_params:
      model: openai/gpt-4o-mini
      api_key: none
      mock_response: "litellm.ContextWindowExceededError"
  - model_name: bridged
    litellm_params:
      model: deepseek/says-hello
      api_key: none
      api_base: UPSTREAM
litellm_settings:
  num_retries: 0
"#;

/// How long a Python server may take to start on a busy machine.
const START: Duration = Duration::from_secs(120);

/// The proxy's program, if it is here.
fn program() -> Option<PathBuf> {
    let peers = std::env::var_os("BUDAO_PEERS")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/budao/peers")))?;
    Some(peers.join("litellm/bin/litellm")).filter(|program| program.exists())
}

/// A running proxy; it is killed when dropped.
struct Proxy {
    url: String,
    _child: Child,
    _dir: tempfile::TempDir,
}

impl Proxy {
    /// Starts a proxy whose model `bridged` is the chat completions at `upstream`.
    async fn start(program: PathBuf, upstream: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config.yaml");
        std::fs::write(&config, CONFIG.replace("UPSTREAM", upstream)).unwrap();
        let port = port::free();
        let mut child = Command::new(program)
            .arg("--config")
            .arg(&config)
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .env("LITELLM_MASTER_KEY", KEY)
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        // Its web server says so when it listens; what it says later is read and dropped.
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = Vec::new();
        let listening = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.contains("Uvicorn running on") {
                    return true;
                }
                said.push(line);
            }
            false
        };
        let listens = tokio::time::timeout(START, listening).await;
        assert_eq!(listens, Ok(true), "the proxy did not start:\n{}", said.join("\n"));
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { url: format!("http://127.0.0.1:{port}"), _child: child, _dir: dir }
    }

    fn openai(&self, name: &str) -> OpenAi {
        let world = world(Arc::new(Signal::default()));
        let limits = Arc::new(Limits::default());
        OpenAi::new(name, Some(&self.url), Some(KEY.into()), &world, limits).unwrap()
    }

    fn responses(&self, name: &str) -> OpenAiResponses {
        let world = world(Arc::new(Signal::default()));
        let limits = Arc::new(Limits::default());
        OpenAiResponses::new(name, Some(&self.url), Some(KEY.into()), &world, limits).unwrap()
    }

    fn anthropic(&self, name: &str) -> Anthropic {
        let world = world(Arc::new(Signal::default()));
        let limits = Arc::new(Limits::default());
        Anthropic::new(name, Some(&self.url), Some(KEY.into()), &world, limits).unwrap()
    }
}

/// A request with history, tools and a picture, so that the server checks all of it.
fn full_request() -> ModelRequest {
    let said = Message {
        role: Role::Assistant,
        content: vec![budao_core::message::Block::Text("Yes?".into())],
    };
    ModelRequest {
        system: Some("Be brief.".into()),
        messages: shared([Message::user("Hello"), said, Message::user("Go on")]),
        tools: Arc::new([tool("fs_read", &json!({"path": {"type": "string"}}))]),
        ..request("")
    }
}

fn check_words(pieces: &[Piece]) {
    let text: String = pieces
        .iter()
        .filter_map(|piece| match piece {
            Piece::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(text, WORDS);
    assert!(
        matches!(pieces.last(), Some(Piece::End { stop: ModelStop::EndTurn, .. })),
        "{pieces:?}"
    );
}

#[tokio::test]
async fn a_foreign_compatible_server_is_understood() {
    let Some(program) = program() else {
        let skipped = "SKIPPED: LiteLLM is not here, so no foreign server was asked. \
             Fetch it with `cargo xtask peers litellm`.";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{skipped}");
        println!("{skipped}");
        return;
    };
    let chat =
        Provider::answering(|_| Reply::events(sse::openai(&[ModelOutput::text(WORDS)]))).await;
    let proxy = Proxy::start(program, &chat.url()).await;

    let hello = proxy.openai("says-hello");
    check_words(&pieces(&hello, request("hi")).await.unwrap());
    check_words(&pieces(&hello, full_request()).await.unwrap());
    let hello = proxy.anthropic("says-hello");
    check_words(&pieces(&hello, full_request()).await.unwrap());
    // Its mock mode does not stream this API, so it translates from a chat completion.
    let hello = proxy.responses("bridged");
    check_words(&pieces(&hello, full_request()).await.unwrap());

    for (name, kind) in [
        ("rate-limited", Kind::ModelRateLimited),
        ("broken", Kind::ModelServerError),
        ("too-long", Kind::ContextTooLong),
        ("no-such-model", Kind::UnknownModel),
    ] {
        let openai = proxy.openai(name);
        let anthropic = proxy.anthropic(name);
        for model in [&openai as &dyn Model, &anthropic] {
            let fault = fault(model, request("hi")).await;
            assert_eq!(fault.kind(), kind, "{} {name}: {fault:?}", model.provider());
        }
    }
    let fault = fault(&proxy.responses("no-such-model"), request("hi")).await;
    assert_eq!(fault.kind(), Kind::UnknownModel, "{fault:?}");
}
