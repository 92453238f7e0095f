//! Traces in a real viewer: Phoenix, asked by its own API.
//!
//! `cargo xtask test --only phoenix` fetches it (850 MB) and runs this, as `--full` does. Where it is missing in
//! another run the test says so and passes.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use budao_testkit::{
    port,
    program::{Process, command_in, run, until},
    provider::{Provider, Reply},
    sse::{self, ModelOutput},
};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_budao");

/// The viewer's program, if it is here.
fn viewer() -> Option<PathBuf> {
    let peers = std::env::var_os("BUDAO_PEERS")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/budao/peers")))?;
    Some(peers.join("phoenix/bin/phoenix")).filter(|program| program.exists())
}

fn start(program: &Path, folder: &Path) -> (Process, String) {
    let port = port::free().to_string();
    let mut command = Command::new(program);
    command.arg("serve").env("PHOENIX_WORKING_DIR", folder).env("PHOENIX_HOST", "127.0.0.1");
    command.env("PHOENIX_PORT", &port).env("PHOENIX_GRPC_PORT", port::free().to_string());
    command.env("PHOENIX_TELEMETRY_ENABLED", "false").stderr(Stdio::null()).stdout(Stdio::null());
    (Process(command.spawn().unwrap()), format!("127.0.0.1:{port}"))
}

/// The body of an answer; `None` while the viewer does not answer.
fn get(address: &str, path: &str) -> Option<Value> {
    let mut stream = TcpStream::connect(address).ok()?;
    let head = format!("GET {path} HTTP/1.0\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

fn spans(address: &str) -> Vec<Value> {
    let found = get(address, "/v1/projects/default/spans?limit=100");
    found.and_then(|found| found["data"].as_array().cloned()).unwrap_or_default()
}

/// A request that fails, one that calls a tool, and the answer.
async fn provider() -> Provider {
    let call = ModelOutput::call("toolu_1", "fs_read", &json!({"path": "notes.txt"}));
    let replies = [
        Reply::status(500),
        Reply::events(sse::anthropic(&[call])),
        Reply::events(sse::anthropic(&[ModelOutput::text("It says hello.")])),
    ];
    Provider::start(replies).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_viewer_shows_one_agent_its_tokens_its_calls_and_the_attempt_that_failed() {
    let Some(program) = viewer() else {
        let skipped = "Phoenix is not here. Fetch it with `cargo xtask peers phoenix`.";
        assert!(std::env::var_os("BUDAO_FULL").is_none(), "{skipped}");
        eprintln!("{skipped}");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (_process, address) = start(&program, folder.path());
    until("the viewer answers", || get(&address, "/v1/projects").is_some()).await;
    let (provider, directory) = (provider().await, tempfile::tempdir().unwrap());
    std::fs::write(directory.path().join("notes.txt"), "hello").unwrap();
    let model = format!("anthropic:m@{}", provider.url());
    let args = ["run", "--traces-content", "--permission", "auto", "--model", &model, "list"];
    let mut budao = command_in(PROGRAM, directory.path(), &args);
    budao.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}"));
    let (code, _, errors) = run(budao).await;
    assert_eq!(code, Some(0), "{errors}");
    until("the viewer has the turn", || {
        spans(&address).iter().any(|span| span["span_kind"] == "AGENT")
    })
    .await;
    let spans = spans(&address);
    let of = |kind: &str| spans.iter().filter(|span| span["span_kind"] == kind).collect::<Vec<_>>();
    let [agent] = of("AGENT")[..] else { panic!("one agent in {spans:#?}") };
    assert_eq!(agent["attributes"]["llm.token_count.total"], Value::Null, "counted on requests");
    let requests = of("LLM");
    let sum = |name: &str| {
        let count = |span: &&Value| span["attributes"][name].as_u64().unwrap_or_default();
        requests.iter().map(count).sum::<u64>()
    };
    assert_eq!(sum("llm.token_count.prompt"), 2 * 135, "{requests:#?}");
    assert_eq!(sum("llm.token_count.completion"), 2 * 15);
    assert_eq!(sum("llm.token_count.prompt_details.cache_read"), 2 * 100);
    assert_eq!(sum("llm.token_count.prompt_details.cache_write"), 2 * 10);
    let [call] = of("TOOL")[..] else { panic!("one call in {spans:#?}") };
    assert_eq!(call["attributes"]["tool.name"], "fs_read");
    assert_eq!(call["attributes"]["tool.parameters.path"], "notes.txt", "{call:#?}");
    let failed = requests.iter().filter(|span| span["status_code"] == "ERROR").collect::<Vec<_>>();
    let [failed] = failed[..] else { panic!("one failed attempt in {requests:#?}") };
    assert_eq!(failed["events"][0]["name"], "budao.fault");
    let code = &failed["attributes"]["error.type"];
    let recovered =
        requests.iter().find(|span| span["attributes"]["budao.recovered_from"] == *code);
    let recovered = recovered.unwrap_or_else(|| panic!("no recovery from {code}: {requests:#?}"));
    assert_eq!(recovered["attributes"]["gen_ai.response.id"], "msg_1");
    for span in requests.iter().chain([&call]) {
        assert_eq!(span["parent_id"], agent["context"]["span_id"], "{span:#?}");
    }
}
