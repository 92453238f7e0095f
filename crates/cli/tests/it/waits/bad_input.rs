//! Services, configurations and commands that make no sense: each has a defined answer that names the thing, no wait is
//! without an end, and nothing is asked in a busy loop.

use std::{
    path::Path,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use budao_core::Timestamp;
use budao_testkit::{
    program::{self, ServerProcess},
    provider::{Provider, Reply},
    sse::{self, ModelOutput},
};
use serde_json::{Value, json};

use super::{SHORT_WAITS, answer};

/// A turn that fails must do so within this time.
const SOON: Duration = Duration::from_secs(60);

/// The end of a run as its observer saw it.
#[derive(Debug, Default)]
struct RunEnd {
    answer: Option<String>,
    /// The frame that ended a failed run.
    error: Value,
    /// The texts of all frames.
    texts: Vec<String>,
}

fn start(directory: &Path, provider: &Provider, more: &[(&str, &str)]) -> ServerProcess {
    let model = format!("openai:m@{}/v1", provider.url());
    let environment: Vec<_> = SHORT_WAITS.iter().chain(more).copied().collect();
    let (program, args) = (env!("CARGO_BIN_EXE_budao"), ["--model", &model]);
    ServerProcess::start_with(program, directory, &args, &environment)
}

async fn end_of(server: &ServerProcess, session: &str) -> RunEnd {
    let mut end = RunEnd::default();
    let reading = server.read_frames(session, |frame| {
        end.texts.extend(frame["content"].as_str().map(str::to_owned));
        let name = frame["event"].as_str().unwrap_or_default();
        if name == "agent.final_answer" {
            end.answer = frame["content"].as_str().map(str::to_owned);
        }
        if name == "agent.error" {
            end.error = frame.clone();
        }
        ["agent.final_answer", "agent.error", "agent.interrupted"].contains(&name)
    });
    let is_read = tokio::time::timeout(SOON, reading).await.expect("the run ends");
    assert!(is_read, "the stream ended before the run");
    let gaps = end.texts.iter().filter(|text| text.contains("(unknown)"));
    assert_eq!(gaps.count(), 0, "{:?}", end.texts);
    end
}

/// A service that refuses its first request with these headers and then answers.
async fn refuses_once(headers: Vec<(&'static str, String)>) -> (Provider, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let provider = Provider::answering(move |_| match counted.fetch_add(1, Ordering::SeqCst) {
        0 => headers
            .iter()
            .fold(Reply::status(429), |reply, (name, value)| reply.header(name, value)),
        _ => answer(),
    });
    (provider.await, requests)
}

/// A date as HTTP headers have it.
fn http_date(at: SystemTime) -> String {
    let seconds = at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]
        [usize::try_from(seconds / 86_400 % 7).unwrap()];
    // 2026-11-15T08:00:00Z
    let text = Timestamp::from_micros(i64::try_from(seconds).unwrap() * 1_000_000).to_string();
    let months =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months[text[5..7].parse::<usize>().unwrap() - 1];
    format!("{weekday}, {} {month} {} {} GMT", &text[8..10], &text[..4], &text[11..19])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hint_that_makes_no_sense_neither_holds_for_ever_nor_ends_the_turn() {
    let tomorrow = SystemTime::now() + Duration::from_secs(86_400);
    let yesterday = SystemTime::now() - Duration::from_secs(86_400);
    let second = Duration::from_secs(1);
    let cases: Vec<Vec<(&str, String)>> = vec![
        vec![("retry-after", "-1".to_owned())],
        vec![("retry-after", "NaN".to_owned())],
        vec![("retry-after", "in a minute".to_owned())],
        vec![("retry-after", "Thu, 01 Jan 1970 00:00:00 GMT".to_owned())],
        vec![("retry-after", "600".to_owned()), ("retry-after-ms", "100".to_owned())],
        vec![("retry-after", "1".to_owned()), ("x-ratelimit-reset-requests", "6h".to_owned())],
        // The clock of the service is a day off, and its dates with it.
        vec![("date", http_date(tomorrow)), ("retry-after", http_date(tomorrow + second))],
        vec![("date", http_date(yesterday)), ("retry-after", http_date(yesterday + second))],
    ];
    for headers in cases {
        let told = format!("{headers:?}");
        let (provider, requests) = refuses_once(headers).await;
        let directory = tempfile::tempdir().unwrap();
        let server = start(directory.path(), &provider, &[]);
        let session = server.ask("go").await;
        let end = end_of(&server, &session).await;
        assert_eq!(end.answer.as_deref(), Some("done"), "{told}: {end:?}");
        assert_eq!(requests.load(Ordering::SeqCst), 2, "{told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_hint_of_thirty_years_fails_at_once_and_is_shown_as_sent() {
    for hint in ["1e9", "1000000000"] {
        let (provider, requests) = refuses_once(vec![("retry-after", hint.to_owned())]).await;
        let directory = tempfile::tempdir().unwrap();
        let server = start(directory.path(), &provider, &[]);
        let began = Instant::now();
        let session = server.ask("go").await;
        let end = end_of(&server, &session).await;
        assert_eq!(end.answer, None, "{end:?}");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        assert_eq!(end.error["metadata"]["kind"], "model_rate_limited", "{}", end.error);
        assert_eq!(requests.load(Ordering::SeqCst), 1);
        let told = end.error.to_string();
        assert!(told.contains("1000000000") || told.contains("1,000,000,000"), "{told}");
    }
}

/// Runs one turn against a service that always does the same; returns its end, its requests and how long it took.
async fn run_for_ever(reply: Reply, more: &[(&str, &str)]) -> (RunEnd, usize, Duration) {
    let requests = Arc::new(AtomicUsize::new(0));
    let works = Arc::new(AtomicBool::new(false));
    let (counted, is_working) = (Arc::clone(&requests), Arc::clone(&works));
    let provider = Provider::answering(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        if is_working.load(Ordering::SeqCst) { answer() } else { reply.clone() }
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let patience = [
        ("BUDAO__MODELS__GATE__PATIENCE_WATCHED", "3000"),
        ("BUDAO__MODELS__GATE__PATIENCE_BACKGROUND", "3000"),
    ];
    let environment: Vec<_> = patience.iter().chain(more).copied().collect();
    let server = start(directory.path(), &provider, &environment);
    let began = Instant::now();
    let session = server.ask("go").await;
    let end = end_of(&server, &session).await;
    let (count, time) = (requests.load(Ordering::SeqCst), began.elapsed());
    works.store(true, Ordering::SeqCst);
    // What the gate learnt of the service does not keep the next turn from its answer.
    let next = server.ask("again").await;
    assert_eq!(end_of(&server, &next).await.answer.as_deref(), Some("done"));
    (end, count, time)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_refuses_for_ever_ends_the_turn_with_its_patience() {
    for reply in [Reply::status(429), Reply::status(429).header("retry-after", "0")] {
        let (end, requests, time) = run_for_ever(reply, &[]).await;
        assert_eq!(end.error["metadata"]["kind"], "model_rate_limited", "{end:?}");
        assert!(time >= Duration::from_secs(2), "it waited {time:?}");
        assert!(requests <= 60, "{requests} requests in {time:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_accepts_and_hangs_ends_the_turn_with_its_patience() {
    let first = ("BUDAO__LIMITS__MODEL_FIRST_TOKEN", "300");
    let between = ("BUDAO__LIMITS__MODEL_BETWEEN_TOKENS", "300");
    let half = Reply::events(&sse::openai(&[ModelOutput::text("half an answer")])[..2]).stall();
    for (reply, kinds) in [
        (Reply::silence(), ["model_first_token_timeout", "request_timed_out"]),
        (half, ["model_stalled", "model_stream_cut"]),
    ] {
        let (end, requests, time) = run_for_ever(reply, &[first, between]).await;
        let kind = end.error["metadata"]["kind"].as_str().unwrap_or_default();
        assert!(kinds.contains(&kind), "{kind}: {end:?}");
        assert!(requests <= 30, "{requests} requests in {time:?}");
    }
}

#[tokio::test]
async fn a_gate_that_could_never_open_is_refused_by_its_key() {
    let directory = tempfile::tempdir().unwrap();
    for (variable, value, key) in [
        ("BUDAO__MODELS__GATE__IN_FLIGHT_START", "0", "models.gate.in_flight_start"),
        ("BUDAO__MODELS__GATE__WAITING", "0", "models.gate.waiting"),
        ("BUDAO__MODELS__GATE__RATE_GROWTH", "0", "models.gate.rate_growth"),
        ("BUDAO__MODELS__GATE__PROBE_MIN", "999999", "models.gate.probe_min"),
        ("BUDAO__MODELS__GATE__HINT_CEILING", "0", "models.gate.hint_ceiling"),
    ] {
        for args in [&["serve", "--listen", "127.0.0.1:0"][..], &["run", "hello"]] {
            let mut command =
                program::command_in(env!("CARGO_BIN_EXE_budao"), directory.path(), args);
            command.env(variable, value).stdin(Stdio::null());
            let (code, _, errors) = program::run(command).await;
            assert!(code.is_some_and(|code| code != 0), "{args:?} {variable}: {errors}");
            assert!(errors.contains(key), "{args:?} {variable}: {errors}");
        }
    }
}

/// Asks as another user; returns the status and the answer.
async fn retry_as(server: &ServerProcess, token: &str, session: &str) -> (u16, Value) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("{}/v1/sessions/{session}/commands", server.url);
    let request = client.post(url).bearer_auth(token).json(&json!({ "event": "user.retry" }));
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_of_what_did_not_fail_names_the_turn_and_one_of_another_user_finds_nothing() {
    let provider = Provider::start([answer(), Reply::silence()]).await;
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    std::fs::write(&tokens, "token-of-bob acme bob\n").unwrap();
    let model = format!("openai:m@{}/v1", provider.url());
    let args = ["--model", &model, "--token-file", tokens.to_str().unwrap()];
    let server = ServerProcess::start(env!("CARGO_BIN_EXE_budao"), directory.path(), &args);
    let session = server.ask("go").await;
    assert_eq!(end_of(&server, &session).await.answer.as_deref(), Some("done"));
    let retry = json!({ "event": "user.retry" });
    let path = format!("/v1/sessions/{session}/commands");
    let (status, problem) = server.try_post(&path, &retry).await;
    assert_eq!(status, 422, "{problem}");
    assert!(problem.to_string().contains("turn 1 ended as end_turn"), "{problem}");
    server.post(&format!("/v1/sessions/{session}/messages"), &json!({ "content": "more" })).await;
    provider.reached(2).await;
    let (status, problem) = server.try_post(&path, &retry).await;
    assert_eq!(status, 422, "{problem}");
    assert!(problem.to_string().contains("turn 2"), "{problem}");
    let (status, problem) = retry_as(&server, "token-of-bob", &session).await;
    assert_eq!(status, 404, "{problem}");
    assert!(problem.to_string().contains(&session), "{problem}");
}
