//! Traces over OTLP, from real processes to a real collector's endpoint.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use budao_testkit::{
    collector::{CollectedSpan, Collector},
    port::Refusing,
    program::{Process, command_in, fake_mcp, run},
    provider::{Provider, Reply},
    sse::{self, ModelOutput},
};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_budao");
const TOKEN: &str = "a-secret-of-mine";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT_SPAN: &str = "00f067aa0ba902b7";

fn budao(directory: &Path, collector: &str, args: &[&str]) -> Command {
    let mut command = command_in(PROGRAM, directory, args);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector).stderr(Stdio::null());
    command
}

fn serve(directory: &Path, collector: &str, args: &[&str]) -> (Process, String) {
    let base = ["serve", "--listen", "127.0.0.1:0", "--token", TOKEN, "--permission", "auto"];
    let mut process = Process::start(budao(directory, collector, &[&base, args].concat()));
    let line = process.first_line();
    (process, line.trim_end_matches('/').to_owned())
}

fn ask(url: &str, head: &str, body: &str) -> String {
    let host = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let head = format!(
        "{head} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {TOKEN}\r\n\
         traceparent: 00-{TRACE}-{CLIENT_SPAN}-01\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Opens a session and sends it a message.
fn go(url: &str) -> String {
    let made = ask(url, "POST /v1/sessions", "{}");
    let body: Value = serde_json::from_str(made.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let session = body["session_id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let path = format!("POST /v1/sessions/{session}/messages");
    let sent = ask(url, &path, r#"{"content":"go"}"#);
    assert!(sent.starts_with("HTTP/1.1 20"), "{sent}");
    session
}

fn named<'a>(spans: &'a [CollectedSpan], name: &str) -> Option<&'a CollectedSpan> {
    spans.iter().find(|span| span.name == name)
}

fn has_turn(spans: &[CollectedSpan]) -> bool {
    named(spans, "invoke_agent budao").is_some()
}

fn find<'a>(spans: &'a [CollectedSpan], name: &str) -> &'a CollectedSpan {
    named(spans, name).unwrap_or_else(|| panic!("no {name} in {spans:#?}"))
}

fn script(directory: &Path, calls: &str) {
    std::fs::write(directory.join("script.toml"), format!("{calls}[[step]]\ntext = \"done\"\n"))
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_received_by_a_collector_holds_request_model_and_tools() {
    let (collector, directory) = (Collector::start().await, tempfile::tempdir().unwrap());
    let here = directory.path();
    let call = |tool, path| {
        format!("[[step]]\n[[step.call]]\ntool = \"{tool}\"\narguments = {{ path = \"{path}\" }}\n")
    };
    script(here, &[call("fs_read", "script.toml"), call("fs_read", "not-there")].concat());
    let (_server, url) = serve(here, &collector.url(), &["--model", "script:script.toml"]);
    let session = go(&url);
    let spans = collector.until(has_turn).await;

    let request = find(&spans, "request message");
    assert_eq!(request.parent, CLIENT_SPAN, "below what the client does");
    let turn = find(&spans, "invoke_agent budao");
    assert_eq!(turn.parent, request.id);
    let below: Vec<&CollectedSpan> = spans.iter().filter(|span| span.parent == turn.id).collect();
    let count = |prefix: &str| below.iter().filter(|span| span.name.starts_with(prefix)).count();
    assert_eq!(count("chat "), 3, "{spans:#?}");
    let tools: Vec<_> = below.iter().filter(|span| span.name == "execute_tool fs_read").collect();
    assert_eq!(tools.iter().map(|span| span.failed).collect::<Vec<_>>(), [false, true]);
    assert!(spans.iter().all(|span| span.trace == TRACE), "{spans:#?}");
    // The same id is in what the session tells.
    let history = ask(&url, &format!("GET /v1/sessions/{session}/export"), "");
    assert!(history.contains(TRACE));
    let metrics = ask(&url, "GET /metrics", "");
    assert!(metrics.contains("budao_spans_total{result=\"sent\"}"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_costs_a_turn_nothing_and_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    script(here, "");
    let nobody = Refusing::take();
    let nowhere = format!("http://{}", nobody.address());
    let (_server, url) = serve(here, &nowhere, &["--model", "script:script.toml"]);
    let session = go(&url);
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let history = ask(&url, &format!("GET /v1/sessions/{session}/export"), "");
        let metrics = ask(&url, "GET /metrics", "");
        if history.contains("turn_ended")
            && metrics.contains("budao_spans_total{result=\"failed\"}")
        {
            return;
        }
        assert!(Instant::now() < until, "{history}\n{metrics}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_outlives_its_process_is_one_span() {
    let (collector, directory) = (Collector::start().await, tempfile::tempdir().unwrap());
    let here = directory.path();
    let pause = "[[step]]\n[[step.call]]\ntool = \"bash_run\"\n\
                 arguments = { cmd = \"touch begun; sleep 600\" }\n";
    script(here, pause);
    let (server, url) = serve(here, &collector.url(), &["--model", "script:script.toml"]);
    go(&url);
    let until = Instant::now() + Duration::from_secs(30);
    while !here.join("begun").exists() {
        assert!(Instant::now() < until, "the call never began");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(server);
    assert!(!has_turn(&collector.spans()));
    script(here, "");
    let (_server, _) = serve(here, &collector.url(), &["--model", "script:script.toml"]);
    let spans = collector.until(has_turn).await;
    let turn = find(&spans, "invoke_agent budao");
    let sealed = find(&spans, "execute_tool bash_run");
    assert!(sealed.failed && sealed.parent == turn.id, "{spans:#?}");
    assert!(turn.nanos >= sealed.nanos && turn.trace == TRACE, "{spans:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_crosses_a_hub_and_a_computer() {
    let Some(program) = fake_mcp(PROGRAM) else { return };
    let (collector, directory) = (Collector::start().await, tempfile::tempdir().unwrap());
    let here = directory.path();
    std::fs::write(here.join("budao.toml"), "[[smcp]]\nroom = \"office\"\n").unwrap();
    script(
        here,
        "order = \"history\"\n[[step]]\n[[step.call]]\ntool = \"pc__tools__echo\"\n\
         arguments = { text = \"far\" }\n",
    );
    let args = ["--smcp", "--config", "budao.toml", "--model", "script:script.toml"];
    let (_server, url) = serve(here, &collector.url(), &args);
    let config = json!({ "servers": [{
        "name": "tools", "type": "stdio", "default_tool_meta": { "auto_apply": true },
        "server_parameters": { "command": program },
    }] });
    std::fs::write(here.join("computer.json"), config.to_string()).unwrap();
    let args = ["smcp", "computer", "--url", &url, "--token", TOKEN, "--name", "pc", "--config"];
    let mut computer = budao(here, &collector.url(), &args);
    let computer = computer.args(["computer.json", "office"]).stdout(Stdio::null());
    let _computer = Process(computer.spawn().unwrap());
    let until = Instant::now() + Duration::from_secs(60);
    // Until the computer has said what it can do, the tool is unknown.
    loop {
        let turns = |spans: &[CollectedSpan]| {
            spans.iter().filter(|span| span.name == "invoke_agent budao").count()
        };
        let before = turns(&collector.spans());
        go(&url);
        let spans = collector.until(|spans| turns(spans) > before).await;
        if named(&spans, "smcp call tools__echo").is_some() {
            break;
        }
        assert!(Instant::now() < until, "the tool never came: {spans:#?}");
    }
    let ours = |spans: &[CollectedSpan], name: &str| {
        spans.iter().any(|span| span.name == name && span.trace == TRACE)
    };
    let names = [
        "invoke_agent budao",
        "smcp call tools__echo",
        "smcp relay client:tool_call",
        "smcp serve tools__echo",
    ];
    let spans = collector.until(|spans| names.iter().all(|name| ours(spans, name))).await;
    let call_span = find(&spans, "smcp call tools__echo");
    let call = spans.iter().find(|span| span.id == call_span.parent).unwrap();
    assert_eq!(call.name, "execute_tool pc__tools__echo");
    for hop in ["smcp relay client:tool_call", "smcp serve tools__echo"] {
        let hop = spans.iter().find(|span| span.name == hop && span.trace == TRACE).unwrap();
        assert_eq!(hop.parent, call_span.id, "{spans:#?}");
        assert!(!hop.failed);
    }
}

/// The key of the model service, which the model and a tool repeat.
const KEY: &str = "sk-ant-a-key-that-no-viewer-may-see-0123456789";

/// Goal: a viewer finds what the GenAI conventions promise, under their newest names, and no configured secret.
/// Method: a request that fails, one that calls a tool, and the answer; the file that is read, the prompt and the answer
/// have the key of the service.
#[tokio::test(flavor = "multi_thread")]
async fn spans_have_the_names_of_the_conventions_and_no_secret() {
    let call = ModelOutput::call("toolu_1", "fs_read", &json!({"path": "notes.txt"}));
    let provider = Provider::start([
        Reply::status(500),
        Reply::events(sse::anthropic(&[call])),
        Reply::events(sse::anthropic(&[ModelOutput::text(&format!("It says {KEY}."))])),
    ]);
    let (provider, collector) = (provider.await, Collector::start().await);
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("notes.txt"), format!("hello {KEY}")).unwrap();
    let model = format!("anthropic:m@{}", provider.url());
    let prompt = format!("read it with {KEY}");
    let args =
        ["run", "--traces-content", "--permission", "auto", "--model", &model, prompt.as_str()];
    let mut command = command_in(PROGRAM, directory.path(), &args);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()).env("ANTHROPIC_API_KEY", KEY);
    let (code, _, errors) = run(command).await;
    assert_eq!(code, Some(0), "{errors}");
    let spans = collector.until(has_turn).await;
    assert!(!format!("{spans:?}").contains(KEY), "{spans:#?}");
    let chats: Vec<_> = spans.iter().filter(|span| span.name == "chat m").collect();
    let [failed, called, answered] = chats[..] else { panic!("three requests in {spans:#?}") };
    has_request_attributes(&provider, &chats);
    has_answer_attributes(called, "tool_call");
    has_answer_attributes(answered, "stop");
    let first = answered.attributes.get("gen_ai.response.time_to_first_chunk");
    assert!(first.is_some_and(Value::is_number), "{answered:#?}");
    has_fault_event(failed, called);
    let agent = find(&spans, "invoke_agent budao");
    let tool = find(&spans, "execute_tool fs_read");
    has_only_its_own_attributes(agent, tool);
    let content = |span: &CollectedSpan, name: &str| span.attributes[name].to_string();
    assert!(content(answered, "gen_ai.input.messages").contains("read it with"), "{answered:#?}");
    assert!(content(answered, "gen_ai.output.messages").contains("It says"), "{answered:#?}");
    assert!(content(tool, "gen_ai.tool.call.arguments").contains("notes.txt"), "{tool:#?}");
    assert!(content(tool, "gen_ai.tool.call.result").contains("hello"), "{tool:#?}");
}

fn has_request_attributes(provider: &Provider, chats: &[&CollectedSpan]) {
    for span in chats {
        let expected = json!({
            "gen_ai.operation.name": "chat", "gen_ai.provider.name": "anthropic",
            "gen_ai.request.model": "m", "gen_ai.request.stream": true,
            "server.address": "127.0.0.1", "server.port": provider.address().port(),
        });
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(span.attributes.get(name), Some(value), "{name}: {span:#?}");
        }
        assert!(span.attributes["gen_ai.conversation.id"].is_string(), "{span:#?}");
        for old in ["gen_ai.system", "gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens"]
        {
            assert_eq!(
                span.attributes.get(old),
                None,
                "{old} is no name of the conventions any more"
            );
        }
    }
}

fn has_answer_attributes(span: &CollectedSpan, finish: &str) {
    let expected = json!({
        "gen_ai.response.finish_reasons": [finish], "gen_ai.response.id": "msg_1",
        "gen_ai.usage.input_tokens": 135, "gen_ai.usage.output_tokens": 15,
        "gen_ai.usage.cache_read.input_tokens": 100, "gen_ai.usage.cache_read_input_tokens": 100,
        "gen_ai.usage.cache_write.input_tokens": 10, "gen_ai.usage.cache_creation.input_tokens": 10,
        "gen_ai.usage.reasoning.output_tokens": 0,
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(span.attributes.get(name), Some(value), "{name}: {span:#?}");
    }
}

fn has_fault_event(failed: &CollectedSpan, recovered: &CollectedSpan) {
    let [(name, fault)] = &failed.events[..] else { panic!("one event of {failed:#?}") };
    assert_eq!(name, "budao.fault");
    let code = &failed.attributes["error.type"];
    assert_eq!(&fault["budao.fault.code"], code);
    assert_eq!(fault["budao.fault.kind"], "model_server_error");
    assert_eq!(fault["budao.fault.remedy"], "runtime");
    assert!(failed.failed && failed.attributes.keys().all(|name| !name.contains("usage")));
    assert_eq!(&recovered.attributes["budao.recovered_from"], code);
}

fn has_only_its_own_attributes(agent: &CollectedSpan, tool: &CollectedSpan) {
    assert_eq!(agent.attributes["gen_ai.operation.name"], "invoke_agent");
    assert_eq!(agent.attributes["gen_ai.agent.name"], "budao");
    assert_eq!(tool.attributes["gen_ai.operation.name"], "execute_tool");
    assert_eq!(tool.attributes["gen_ai.tool.name"], "fs_read");
    assert_eq!(tool.attributes["gen_ai.tool.type"], "function");
    assert!(tool.attributes["gen_ai.tool.call.id"].is_string(), "{tool:#?}");
    for span in [agent, tool] {
        let is_of_requests =
            |name: &String| name.contains("usage") || name == "gen_ai.provider.name";
        assert!(!span.attributes.keys().any(is_of_requests), "viewers add up tokens: {span:#?}");
    }
}
