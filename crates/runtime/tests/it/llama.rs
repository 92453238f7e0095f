//! Against a real llama.cpp: a tiny model of random weights, made on the spot, behind the server of
//! `llama-cpp-python`. Its words are random, so only the shapes of answers are looked at.
//!
//! `cargo xtask test --only llama` fetches it and runs this, as `--full` does. Where it is missing in another run the
//! test says so and passes.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use budao_core::{
    Fault, Kind, Record,
    engine::Engine,
    event::{Event, StopReason},
    limits::Limits,
    message::{Message, ModelRequest, ModelStop, Piece, Usage},
    trace::{SpanId, Trace},
};
use budao_models::{Model, OpenAi};
use budao_runtime::{Agent, AgentExt as _, Session, TurnResult, world};
use budao_testkit::{
    port,
    proxy::{ConnectionPlan, Ending, Lane, Proxy},
};
use futures::StreamExt;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

/// How long a Python server may take to start on a busy machine.
const START: Duration = Duration::from_secs(120);
const CONTEXT: u32 = 4096;

/// The Python that has llama.cpp, if it is here.
fn python() -> Option<PathBuf> {
    let peers = std::env::var_os("BUDAO_PEERS")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/budao/peers")))?;
    Some(peers.join("llama-cpp/bin/python")).filter(|python| python.exists())
}

/// A running server; it is killed when dropped.
struct Server {
    address: SocketAddr,
    child: Child,
    _folder: tempfile::TempDir,
}

impl Server {
    async fn start(python: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        make_models(python, folder.path()).await;
        let port = port::free();
        let model = |name: &str| {
            let file = folder.path().join(format!("{name}.gguf"));
            serde_json::json!({"model": file, "model_alias": name, "n_ctx": CONTEXT,
                               "n_threads": 1, "n_threads_batch": 1, "verbose": false})
        };
        let config = serde_json::json!({"host": "127.0.0.1", "port": port,
                                        "models": [model("short"), model("endless")]});
        let file = folder.path().join("server.json");
        std::fs::write(&file, config.to_string()).unwrap();
        let mut child = Command::new(python)
            .args(["-B", "-m", "llama_cpp.server", "--config_file"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
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
        assert_eq!(listens, Ok(true), "the server did not start:\n{}", said.join("\n"));
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { address: ([127, 0, 0, 1], port).into(), child, _folder: folder }
    }

    fn model(&self, name: &str) -> OpenAi {
        model(name, self.address)
    }
}

async fn make_models(python: &Path, folder: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/peers/llama-cpp/model.py");
    let made = Command::new(python).arg("-B").arg(script).arg(folder).output().await.unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn model(name: &str, at: SocketAddr) -> OpenAi {
    let url = format!("http://{at}");
    OpenAi::new(name, Some(&url), None, &world::system(), Arc::new(Limits::default())).unwrap()
}

fn request(text: &str, max_tokens: u32) -> ModelRequest {
    ModelRequest {
        model: String::new(),
        system: Some("Be brief.".into()),
        messages: Arc::new(vec![Arc::new(Message::user(text))]),
        tools: Arc::new([]),
        answer: None,
        max_tokens,
        thinking_tokens: None,
        cache_key: None,
        trace: Trace::NONE,
        span: SpanId::NONE,
    }
}

/// What a model answers: the words that came one by one, and how it ended.
async fn answer(
    model: &OpenAi,
    request: ModelRequest,
) -> Result<(Vec<String>, ModelStop, Usage), Fault> {
    let mut stream = budao_models::ask(model, request).await?;
    let (mut words, mut blocks, mut end) = (Vec::new(), 0, None);
    while let Some(piece) = stream.next().await {
        match piece? {
            Piece::Text(text) => words.push(text),
            Piece::Block(_) => blocks += 1,
            Piece::Response(_) => {}
            Piece::End { stop, usage } => end = Some((stop, usage)),
            other => panic!("{other:?}"),
        }
    }
    let (stop, usage) = end.expect("an answer that did not fail has an end");
    assert_eq!(blocks, 1, "the words, whole, once");
    Ok((words, stop, usage))
}

fn agent(model: impl Model + 'static) -> Agent {
    let mut limits = Limits::default();
    limits.retry.tries = 2;
    Agent::builder(model).limits(limits).build().unwrap()
}

async fn run(agent: &Agent) -> (TurnResult, Vec<Event>) {
    let session = agent.session().await.unwrap();
    let result = session.run("Say something.").await.unwrap();
    let events = events(&session, agent, result.last).await;
    (result, events)
}

async fn events(session: &Session, agent: &Agent, last: u64) -> Vec<Event> {
    let records = agent.runtime().follow(session.id(), 0).await.unwrap();
    let event = |record: Result<Record, Fault>| record.unwrap().event;
    records.take(usize::try_from(last).unwrap()).map(event).collect().await
}

/// The kinds of faults that were recorded while the turn went on.
fn raised(events: &[Event]) -> Vec<Kind> {
    let kind = |event: &Event| match event {
        Event::FaultRaised { fault, .. } => Some(fault.kind()),
        _ => None,
    };
    events.iter().filter_map(kind).collect()
}

#[tokio::test]
async fn a_real_llama_cpp_is_understood_and_its_failures_have_their_names() {
    let Some(python) = python() else {
        let skipped = "SKIPPED: llama.cpp is not here; `cargo xtask test --only llama` fetches it.";
        assert!(std::env::var_os("BUDAO_FULL").is_none(), "{skipped}");
        println!("{skipped}");
        return;
    };
    let mut server = Server::start(&python).await;
    answers_are_streamed_and_end(&server).await;
    a_stream_that_is_dropped_by_the_server_is_a_cut(&server).await;
    a_turn_ends(&server).await;
    a_cut_line_is_healed(&server).await;
    check_killed_server(&mut server).await;
}

async fn answers_are_streamed_and_end(server: &Server) {
    let (words, stop, usage) = answer(&server.model("short"), request("Hello", 512)).await.unwrap();
    assert!(!words.concat().trim().is_empty(), "{words:?}");
    assert_eq!(stop, ModelStop::EndTurn);
    // This server counts nothing in a stream, and nothing is made up.
    assert_eq!(usage, Usage::default());

    let endless = server.model("endless");
    let (words, stop, _) = answer(&endless, request("Hello", 40)).await.unwrap();
    assert_eq!(stop, ModelStop::MaxTokens);
    assert!(words.len() > 10, "word by word: {words:?}");
}

/// A prompt that is too long: this server says 200, then nothing, and hangs up. Nobody could know why.
async fn a_stream_that_is_dropped_by_the_server_is_a_cut(server: &Server) {
    let long = "tell me more ".repeat(1_000);
    let fault = answer(&server.model("short"), request(&long, 16)).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::ModelStreamCut, "{fault:?}");
}

async fn a_turn_ends(server: &Server) {
    let (result, events) = run(&agent(server.model("short"))).await;
    assert_eq!((result.stop, result.fault), (Some(StopReason::EndTurn), None));
    assert!(!result.text.is_empty());
    let came = events.into_iter().filter_map(|event| match event {
        Event::TextDelta { text, .. } => Some(text),
        _ => None,
    });
    let streamed: String = came.collect();
    assert_eq!(streamed, result.text, "what was streamed is what was said");
}

/// The first connection is cut in the middle of its answer; the turn asks again.
async fn a_cut_line_is_healed(server: &Server) {
    let proxy = Proxy::start(server.address, 7).await.unwrap();
    proxy.plan(|number| match number {
        0 => ConnectionPlan::down(Lane::default().cut(1_000, Ending::Reset)),
        _ => ConnectionPlan::clean(),
    });
    let model = model("endless", proxy.address());
    let fault = answer(&model, request("Hello", 400)).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::ModelStreamCut, "{fault:?}");

    let proxy = Proxy::start(server.address, 8).await.unwrap();
    proxy.plan(|number| match number {
        // Behind the headers, before an answer can be whole.
        0 => ConnectionPlan::down(Lane::default().cut(300, Ending::Close)),
        _ => ConnectionPlan::clean(),
    });
    let (result, events) = run(&agent(self::model("short", proxy.address()))).await;
    assert_eq!((result.stop, result.fault), (Some(StopReason::EndTurn), None));
    // This server reports no usage in a stream.
    assert_eq!(raised(&events), [Kind::ModelStreamCut, Kind::UsageUnknown]);
}

/// Killed while it speaks, then gone.
async fn check_killed_server(server: &mut Server) {
    let model = server.model("endless");
    let mut stream = budao_models::ask(&model, request("Hello", 3_500)).await.unwrap();
    assert!(matches!(stream.next().await, Some(Ok(Piece::Text(_)))));
    server.child.kill().await.unwrap();
    let fault = loop {
        match stream.next().await {
            Some(Ok(Piece::Text(_))) => {}
            Some(Err(fault)) => break fault,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(fault.kind(), Kind::ModelStreamCut, "{fault:?}");

    let (result, events) = run(&agent(model)).await;
    let kind = result.fault.map(|fault| fault.kind());
    assert_eq!((result.stop, kind), (Some(StopReason::Failed), Some(Kind::ConnectionRefused)));
    assert_eq!(raised(&events), [Kind::ConnectionRefused; 2]);
}
