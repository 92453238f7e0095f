//! A cap on money, with `budao serve` as a real process that is killed in the middle of every request.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use budao_testkit::{
    program::{ServerProcess, command_in, run},
    provider::{Provider, Reply},
    sse::{self, ModelOutput},
};
use futures::{StreamExt as _, stream::FuturesUnordered};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_budao");
/// What one request may cost at most, in millionths: 8 192 tokens of an answer at 10 for a million.
const REQUEST: usize = 81_920;
/// The cap of a session, in millionths.
const CAP: usize = 250_000;
/// The longest answer, in tokens. A request has about 3 200 more, most of them for the built-in tools.
const ANSWER_TOKENS: usize = 8_192;
/// A cap in tokens.
const TOKENS: usize = 36_000;

fn start(directory: &Path, model: &str, cap: &str) -> ServerProcess {
    let prices = format!("[models.spending.prices.{model:?}]\ninput = 0\noutput = 10\n");
    start_with(directory, model, &format!("{cap} = 0.25\n{prices}"))
}

/// Starts a server with these lines in `[models.spending]`.
fn start_with(directory: &Path, model: &str, spending: &str) -> ServerProcess {
    let config = directory.join("budao.toml");
    std::fs::write(&config, format!("[models.spending]\n{spending}")).unwrap();
    let environment = [("BUDAO_CONFIG", config.to_str().unwrap())];
    ServerProcess::start_with(PROGRAM, directory, &["--model", model], &environment)
}

/// Reads a session's events until its run has failed; returns them as text.
async fn failure(server: &ServerProcess, session: &str) -> String {
    let mut text = String::new();
    let read = server.read_frames(session, |frame| {
        text.push_str(&frame.to_string());
        frame["event"] == "agent.error"
    });
    assert!(read.await, "the stream ended before the run failed: {text}");
    text
}

/// Goal: a cap holds although no process lives long enough to learn what its request cost.
/// Method: the service takes every request and answers none; the server is killed as soon as it has asked. Caps in tokens
/// need no prices.
async fn holds_although_every_request_ends_with_a_kill(cap: &str, room: usize) {
    let provider = Provider::start([(); 10].map(|()| Reply::silence())).await;
    let directory = tempfile::tempdir().unwrap();
    let model = format!("openai:m@{}/v1", provider.url());
    let mut session = None;
    let mut lives = 0;
    let events = loop {
        lives += 1;
        assert!(lives < 10, "the cap was never reached");
        let server = match cap {
            "session" => start(directory.path(), &model, cap),
            _ => start_with(directory.path(), &model, &format!("{cap} = {TOKENS}\n")),
        };
        let session = match &session {
            Some(session) => session,
            None => session.insert(server.ask("go").await),
        };
        tokio::select! {
            () = provider.reached(lives) => {}
            events = failure(&server, session) => break events,
        }
    };
    assert!(events.contains("ERR_TURN_007"), "{events}");
    assert!(events.contains(&format!("models.spending.{cap}")), "{events}");
    let asked = provider.asked().len();
    assert_eq!(asked, room, "requests that the cap has room for");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cap_holds_although_every_request_ends_with_a_kill() {
    holds_although_every_request_ends_with_a_kill("session", CAP / REQUEST).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cap_in_tokens_holds_although_every_request_ends_with_a_kill() {
    let room = TOKENS / (ANSWER_TOKENS + 3_200);
    holds_although_every_request_ends_with_a_kill("session_tokens", room).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cap_of_a_turn_in_tokens_holds_although_every_request_ends_with_a_kill() {
    let room = TOKENS / (ANSWER_TOKENS + 3_200);
    holds_although_every_request_ends_with_a_kill("turn_tokens", room).await;
}

/// What `budao spending` says of a ledger.
async fn ledger(directory: &Path, scope: &str) -> Value {
    let (_, text, _) = run(command_in(PROGRAM, directory, &["spending", "--json"])).await;
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut found = lines.filter(|line| line["scope"] == scope);
    found.next().unwrap_or_else(|| panic!("no {scope} in {text}"))["ledger"].take()
}

/// Goal: a cap of a day holds for all sessions together, although no process lives long enough to learn what its
/// requests cost; an operator raises it, and the turn goes on.
/// Method: each life of the server opens a session of its own, and is killed as soon as the service has its request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cap_of_a_day_holds_over_all_sessions_and_kills_until_an_operator_raises_it() {
    let provider = Provider::start([(); 20].map(|()| Reply::silence())).await;
    let directory = tempfile::tempdir().unwrap();
    let model = format!("openai:m@{}/v1", provider.url());
    let room = CAP / REQUEST;
    for life in 1..=room {
        let server = start(directory.path(), &model, "tenant_day");
        let session = server.ask("go").await;
        // Sessions of earlier lives ask again, too: a restart reserves anew, and a killed server may not have asked yet.
        tokio::select! {
            biased;
            _ = provider.reached(life) => {}
            _ = failure(&server, &session) => break,
        }
    }
    let server = start(directory.path(), &model, "tenant_day");
    let session = server.ask("go").await;
    let events = failure(&server, &session).await;
    assert!(
        events.contains("ERR_TURN_007") && events.contains("models.spending.tenant_day"),
        "{events}"
    );
    let asked = provider.asked().len();
    assert!(asked <= room, "{asked} requests, and the cap has room for {room}");
    let scope = events
        .split("tenant/")
        .nth(1)
        .unwrap()
        .split(['"', ' ', '`', '\\'])
        .next()
        .unwrap()
        .to_owned();
    let scope = format!("tenant/{scope}");
    let found = ledger(directory.path(), &scope).await;
    let used =
        found["spent"]["cost"].as_u64().unwrap() + found["reserved"]["cost"].as_u64().unwrap();
    assert!(used <= CAP as u64, "{found}");
    let args = ["spending", "raise", &scope, "1 USD"];
    let (code, _, errors) = run(command_in(PROGRAM, directory.path(), &args)).await;
    assert_eq!(code, Some(0), "{errors}");
    let before = provider.asked().len();
    let retry = format!("/v1/sessions/{session}/commands");
    server.post(&retry, &json!({ "event": "user.retry" })).await;
    provider.reached(before + 1).await;
}

/// Goal: people raise the cap of a day for all sessions, once, although the process is killed before and after.
/// Method: requests are never answered, so each stays spent; the question is answered after a kill, and the server is
/// killed again when the request that was allowed is under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_raises_the_cap_of_a_day_once_whatever_is_killed() {
    let provider = Provider::start([(); 30].map(|()| Reply::silence())).await;
    let directory = tempfile::tempdir().unwrap();
    let model = format!("openai:m@{}/v1", provider.url());
    let cap = "on_day_cap = \"ask\"\nday";
    let mut lives = 0;
    let mut session = None;
    let asked = loop {
        lives += 1;
        assert!(lives < 12, "the cap was never reached");
        let before = provider.asked().len();
        let server = start(directory.path(), &model, cap);
        let session = match &session {
            Some(session) => session,
            None => session.insert(server.ask("go").await),
        };
        tokio::select! {
            () = provider.reached(before + 1) => {}
            asked = question(&server, session) => break asked,
        }
    };
    let meta = &asked["metadata"];
    assert_eq!(meta["tool_args"]["scope"], "all", "{asked}");
    let session = session.unwrap();
    let requests = provider.asked().len();
    let mut server = start(directory.path(), &model, cap);
    let content = json!({ "confirmed": true, "digest": meta["digest"] });
    let answer =
        json!({ "event": "user.response", "step_id": asked["step_id"], "content": content });
    server.post(&format!("/v1/sessions/{session}/commands"), &answer).await;
    for more in 1..=2 {
        provider.reached(requests + more).await;
        drop(server);
        server = start(directory.path(), &model, cap);
    }
    let found = ledger(directory.path(), "all").await;
    assert_eq!(found["raised"]["cost"], CAP, "raised once: {found}");
}

/// Waits for the question of a session.
async fn question(server: &ServerProcess, session: &str) -> Value {
    let mut found = Value::Null;
    let read = server.read_frames(session, |frame| {
        let is_it = frame["event"] == "agent.user_confirm";
        if is_it {
            found = frame.clone();
        }
        is_it
    });
    assert!(read.await, "the stream ended before the question");
    found
}

/// Goal: a service that does not say what it used is reported once in a session, counts as its estimate, and does not get
/// around a cap in tokens.
/// Method: requests answered without usage or with one that cannot be true, under a cap with room for three.
#[tokio::test]
async fn a_service_that_reports_no_usage_counts_as_its_estimate() {
    let events = |sayings: &[ModelOutput], usage: Option<&str>| {
        let events = sse::openai(sayings).into_iter().filter_map(|event| {
            let is_usage = event.contains("prompt_tokens");
            if is_usage { usage.map(|usage| format!("data: {usage}\n\n")) } else { Some(event) }
        });
        Reply::events(events.collect::<Vec<_>>())
    };
    let call = ModelOutput::call("c", "fs_glob", &json!({"pattern": "*"}));
    let negative = r#"{"choices":[],"usage":{"prompt_tokens":-4,"completion_tokens":9e99}}"#;
    let replies = [
        events(&[call], None),
        events(&[ModelOutput::text("Done.")], Some(negative)),
        events(&[ModelOutput::text("Again.")], None),
    ];
    let provider = Provider::start(replies).await;
    let directory = tempfile::tempdir().unwrap();
    let config = "[models.spending]\nday_tokens = 19500\n";
    std::fs::write(directory.path().join("budao.toml"), config).unwrap();
    let model = format!("openai-chat:m@{}/v1", provider.url());
    let budao = async |args: &[&str]| {
        let args = [args, &["--config", "budao.toml"]].concat();
        run(command_in(PROGRAM, directory.path(), &args)).await
    };
    let (code, _, errors) = budao(&["run", "--model", &model, "go"]).await;
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(errors.matches("ERR_MODEL_016").count(), 1, "{errors}");
    let (code, _, errors) = budao(&["run", "--model", &model, "again"]).await;
    assert_eq!(code, Some(0), "{errors}");
    let (code, _, errors) = budao(&["run", "--model", &model, "once more"]).await;
    assert_ne!(code, Some(0), "{errors}");
    assert!(errors.contains("models.spending.day_tokens"), "{errors}");
    assert_eq!(provider.asked().len(), 3);
    let (_, spent, _) = budao(&["spending"]).await;
    assert!(spent.contains("is an estimate"), "{spent}");
}

/// What is spent and reserved in a ledger, in millionths.
async fn used(directory: &Path, scope: &str) -> u64 {
    let ledger = ledger(directory, scope).await;
    let of = |part: &str| ledger[part]["cost"].as_u64().unwrap();
    of("spent") + of("reserved")
}

/// Goal: a cap of a day holds for two servers at once, also after one was killed.
/// Method: both servers share a journal and open sessions at the same time; the service answers nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cap_of_a_day_holds_for_two_servers_of_one_journal() {
    const SESSIONS: usize = 8;
    let provider = Provider::start([(); 20].map(|()| Reply::silence())).await;
    let directory = tempfile::tempdir().unwrap();
    let model = format!("openai:m@{}/v1", provider.url());
    let room = CAP / REQUEST;
    let mut servers = [0, 1].map(|_| start(directory.path(), &model, "day"));
    let asking = (0..SESSIONS).map(|index| servers[index % 2].ask("go"));
    let sessions = futures::future::join_all(asking).await;
    let ends: FuturesUnordered<_> = sessions.iter().map(|it| failure(&servers[0], it)).collect();
    let refused: Vec<String> = ends.take(SESSIONS - room).collect().await;
    for events in refused {
        assert!(events.contains("models.spending.day"), "{events}");
    }
    provider.reached(room).await;
    assert!(used(directory.path(), "all").await <= CAP as u64);
    servers[1] = start(directory.path(), &model, "day");
    // The sessions of the killed server ask again, if there is room.
    let last = servers[1].ask("go").await;
    let events = failure(&servers[1], &last).await;
    assert!(events.contains("models.spending.day"), "{events}");
    let spent = used(directory.path(), "all").await;
    assert!(spent <= CAP as u64, "{spent}");
    assert_eq!(provider.asked().len(), room, "requests that the cap has room for");
}

/// The ledgers of all scopes, those of child sessions included.
fn all_ledgers(directory: &Path) -> Vec<(String, Value)> {
    let journal = rusqlite::Connection::open(directory.join("journal.db")).unwrap();
    let query =
        "SELECT name, body FROM note WHERE name LIKE 'spending/%' AND name <> 'spending/index'";
    let mut statement = journal.prepare(query).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, Vec<u8>>(1)?))).unwrap();
    let ledger = |row: (String, Vec<u8>)| (row.0, serde_json::from_slice(&row.1).unwrap());
    rows.map(|row| ledger(row.unwrap())).collect()
}

/// A service that answers each request after up to 200 ms and says that it used up to all tokens of an answer. It
/// counts what it takes for all of them, in millionths.
async fn billing_service(seed: u64, billed: &Arc<AtomicU64>) -> Provider {
    let (billed, number) = (Arc::clone(billed), AtomicU64::new(seed));
    let next = move || {
        // SplitMix64 with another constant: any sequence that a seed repeats will do.
        let state = number.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        (state ^ (state >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 33
    };
    Provider::answering(move |_| {
        let (tokens, wait) = (500 + next() % (ANSWER_TOKENS as u64 - 500), next() % 200);
        billed.fetch_add(tokens * 10, Ordering::Relaxed);
        let usage = json!({"prompt_tokens": 5, "completion_tokens": tokens});
        let last = sse::data(&json!({"choices": [], "usage": usage}));
        let events = sse::openai(&[ModelOutput::text("Done.")]).into_iter();
        let events = events.map(|it| if it.contains("prompt_tokens") { last.clone() } else { it });
        Reply::events(events).after(Duration::from_millis(wait))
    })
    .await
}

/// Goal: no ledger goes beyond its cap by more than one request, and neither does what the service takes, wherever the
/// process is killed: before a request, in it, between its answer and its cost, and while child sessions work.
/// Method: caps of a day and of a session, pipelines and messages, a service that answers; each life of the server ends
/// at a random moment. `BUDAO_SEED` repeats a run, as far as two processes can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_ledger_exceeds_its_cap_by_more_than_a_request_wherever_the_process_is_killed() {
    const LIVES: u64 = 12;
    const DAY_CAP: u64 = 1_000_000;
    let seed = std::env::var("BUDAO_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("BUDAO_SEED={seed}");
    let billed = Arc::new(AtomicU64::new(0));
    let provider = billing_service(seed, &billed).await;
    let directory = tempfile::tempdir().unwrap();
    let model = format!("openai:m@{}/v1", provider.url());
    let caps = "day = 1.0\nsession";
    for life in 0..LIVES {
        let server = start(directory.path(), &model, caps);
        solve(&server).await;
        server.ask("go").await;
        let moment = Duration::from_millis((seed ^ (life * 0x9e37_79b9)).wrapping_mul(7_919) % 900);
        let _ = tokio::time::timeout(moment, std::future::pending::<()>()).await;
        drop(server);
        for (name, ledger) in all_ledgers(directory.path()) {
            let cap = if name.contains("/session/") { CAP as u64 } else { DAY_CAP };
            let of = |part: &str| ledger[part]["cost"].as_u64().unwrap_or_default();
            let used = of("own") + of("spent") + of("reserved");
            assert!(used <= cap + REQUEST as u64, "life {life}: {used} in {name}: {ledger}");
        }
        let billed = billed.load(Ordering::Relaxed);
        assert!(billed <= DAY_CAP + REQUEST as u64, "life {life}: the service took {billed}");
    }
    let requests = ledger(directory.path(), "all").await["requests"].clone();
    let ledgers = all_ledgers(directory.path());
    assert!(requests.as_u64() > Some(3) && ledgers.len() > 3, "{requests} requests: {ledgers:?}");
}

/// Goal: operators see what each API key costs, by the same name as in `budao spending`.
/// Method: one request at a price; its cost is a record, a count and a metric.
#[tokio::test]
async fn the_cost_of_an_api_key_is_in_records_statistics_and_metrics() {
    let provider =
        Provider::start([Reply::events(sse::openai(&[ModelOutput::text("Done.")]))]).await;
    let directory = tempfile::tempdir().unwrap();
    let model = format!("openai:m@{}/v1", provider.url());
    let server = start(directory.path(), &model, "day");
    let session = server.ask("go").await;
    assert!(server.read_frames(&session, |frame| frame["event"] == "agent.final_answer").await);
    let counted = async {
        loop {
            let stats = server.get("/api/stats?window=1h").await;
            let stats: Value = serde_json::from_str(&stats).unwrap();
            if stats["usage"]["cost"].as_f64().is_some_and(|cost| cost > 0.0) {
                return stats["usage"].clone();
            }
        }
    };
    let usage = tokio::time::timeout(Duration::from_secs(30), counted).await.unwrap();
    let keys = usage["cost_by_key"].as_object().unwrap();
    let (key, cost) = keys.iter().next().unwrap_or_else(|| panic!("{usage}"));
    assert_eq!((keys.len(), cost), (1, &usage["cost"]));
    let spent = ledger(directory.path(), &format!("key/{key}")).await;
    assert_eq!(spent["spent"]["cost"].as_f64().unwrap() / 1e6, cost.as_f64().unwrap(), "{spent}");
    let metrics = server.get("/metrics").await;
    let mut rows = metrics.lines().filter(|line| line.starts_with("budao_cost_micros_total"));
    assert!(rows.any(|row| row.contains(&format!("key=\"{key}\""))), "{metrics}");
    let records = server.get(&format!("/v1/sessions/{session}/export")).await;
    assert!(records.contains(&format!("\"key\":\"{key}\"")), "{records}");
}

/// Goal: child sessions that work at the same time stay below the cap of their session, whatever is killed.
/// Method: a pipeline of four tasks; the service answers none, and the server is killed as soon as one more request came.
async fn holds_for_child_sessions_although_every_request_ends_with_a_kill(cap: &str, room: usize) {
    let provider = Provider::start([(); 40].map(|()| Reply::silence())).await;
    let directory = tempfile::tempdir().unwrap();
    let model = format!("openai:m@{}/v1", provider.url());
    let mut session = None;
    let mut lives = 0;
    let events = loop {
        lives += 1;
        assert!(lives < 12, "the cap was never reached");
        let before = provider.asked().len();
        let server = match cap {
            "session" => start(directory.path(), &model, cap),
            _ => start_with(directory.path(), &model, &format!("{cap} = {TOKENS}\n")),
        };
        let session = match &session {
            Some(session) => session,
            None => session.insert(solve(&server).await),
        };
        tokio::select! {
            () = provider.reached(before + 1) => {}
            events = failure(&server, session) => break events,
        }
    };
    assert!(events.contains("ERR_TURN_007"), "{events}");
    assert!(events.contains(&format!("models.spending.{cap}")), "{events}");
    let asked = provider.asked().len();
    assert!((1..=room).contains(&asked), "{asked} requests, and the cap has room for {room}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cap_holds_for_child_sessions_although_every_request_ends_with_a_kill() {
    let room = CAP / REQUEST;
    holds_for_child_sessions_although_every_request_ends_with_a_kill("session", room).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cap_in_tokens_holds_for_child_sessions_although_every_request_ends_with_a_kill() {
    let room = TOKENS / (ANSWER_TOKENS + 3_200);
    holds_for_child_sessions_although_every_request_ends_with_a_kill("turn_tokens", room).await;
}

/// Opens a session that solves four tasks.
async fn solve(server: &ServerProcess) -> String {
    let opened = server.post("/v1/sessions", &json!({})).await;
    let session = opened["session_id"].as_str().unwrap().to_owned();
    let task = |id: &str| json!({"id": id, "title": id, "prompt": format!("Do {id}.")});
    let tasks = ["a", "b", "c", "d"].map(task);
    let content = json!({"question": "q", "tasks": tasks});
    let command = json!({"event": "user.solve_tasks", "content": content});
    server.post(&format!("/v1/sessions/{session}/commands"), &command).await;
    session
}

#[tokio::test]
async fn a_model_without_a_price_is_not_asked_under_a_cap_in_money() {
    let provider = Provider::start([]).await;
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("budao.toml");
    for cap in ["turn", "session", "day", "tenant_day", "key_day"] {
        std::fs::write(&config, format!("[models.spending]\n{cap} = 1\n")).unwrap();
        let model = format!("openai:m@{}/v1", provider.url());
        let args = ["run", "--config", "budao.toml", "--model", &model, "go"];
        let (code, _, errors) = run(command_in(PROGRAM, directory.path(), &args)).await;
        assert_ne!(code, Some(0), "{cap}: {errors}");
        assert!(errors.contains("ERR_CONF_004"), "{cap}: {errors}");
        assert!(errors.contains("models.spending.prices"), "{cap}: {errors}");
    }
    assert_eq!(provider.asked().len(), 0);
}

#[tokio::test]
async fn a_cap_or_a_raise_that_makes_no_sense_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("budao.toml");
    let budao = async |args: &[&str]| {
        let args = [args, &["--config", "budao.toml"]].concat();
        run(command_in(PROGRAM, directory.path(), &args)).await
    };
    for (cap, value) in [
        ("day", "0"),
        ("tenant_day", "-1.5"),
        ("key_day", "\"5 EUR\""),
        ("day_tokens", "0"),
        ("tenant_day_tokens", "-3"),
        ("key_day_tokens", "0"),
        ("turn_tokens", "0"),
    ] {
        std::fs::write(&config, format!("[models.spending]\n{cap} = {value}\n")).unwrap();
        let (code, _, errors) = budao(&["run", "--model", "demo:fast", "say hello"]).await;
        assert_ne!(code, Some(0), "{cap} = {value}: {errors}");
        assert!(errors.contains(cap) && errors.contains("ERR_CONF_001"), "{cap}: {errors}");
    }
    std::fs::write(&config, "[models.spending]\nday = 5\n").unwrap();
    let (code, _, errors) = budao(&["run", "--model", "demo:fast", "say hello"]).await;
    assert_eq!(code, Some(0), "{errors}");
    for more in [&["0"][..], &["0 USD"], &["--", "-1 USD"], &["1 EUR"], &["--tokens", "0"]] {
        let args = [&["spending", "--config", "budao.toml", "raise", "all"], more].concat();
        let (code, _, errors) = run(command_in(PROGRAM, directory.path(), &args)).await;
        assert_ne!(code, Some(0), "{more:?}: {errors}");
    }
    assert_eq!(ledger(directory.path(), "all").await["raised"]["cost"], 0, "nothing was raised");
}

#[tokio::test]
async fn an_engine_that_asks_its_models_itself_starts_under_no_cap() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("budao.toml");
    std::fs::write(&config, "[models.spending]\ntenant_day_tokens = 1000\n").unwrap();
    for engine in ["claude", "agui:http://127.0.0.1:9/agent"] {
        let args =
            ["serve", "--config", "budao.toml", "--listen", "127.0.0.1:0", "--engine", engine];
        let (code, _, errors) = run(command_in(PROGRAM, directory.path(), &args)).await;
        assert_ne!(code, Some(0), "{engine}: {errors}");
        assert!(errors.contains("models.spending.tenant_day_tokens"), "{engine}: {errors}");
        assert!(errors.contains("--engine native"), "{engine}: {errors}");
    }
}

/// Goal: operators see which share of the tokens read came from the service's cache.
/// Method: the service reports 4 of 12 tokens as cached.
#[tokio::test]
async fn the_hit_rate_of_the_cache_is_shown() {
    let provider =
        Provider::start([Reply::events(sse::openai(&[ModelOutput::text("Done.")]))]).await;
    let directory = tempfile::tempdir().unwrap();
    let model = format!("openai-chat:m@{}/v1", provider.url());
    let server = ServerProcess::start(PROGRAM, directory.path(), &["--model", &model]);
    let session = server.ask("go").await;
    assert!(server.read_frames(&session, |frame| frame["event"] == "agent.final_answer").await);
    let counted = async {
        loop {
            let stats: Value =
                serde_json::from_str(&server.get("/api/stats?window=1h").await).unwrap();
            if stats["usage"]["input_tokens"] == 12 {
                return stats["usage"].clone();
            }
        }
    };
    let usage = tokio::time::timeout(Duration::from_secs(30), counted).await.unwrap();
    let row = &usage["by_model"][&model];
    assert_eq!((&row["input_tokens"], &row["cached_tokens"]), (&json!(12), &json!(4)), "{usage}");
    for rate in [&usage["cache_hit_rate"], &row["cache_hit_rate"]] {
        assert!((rate.as_f64().unwrap() - 4.0 / 12.0).abs() < 0.001, "{usage}");
    }
    let metrics = server.get("/metrics").await;
    let mut counts = metrics.lines().filter(|line| line.contains("kind=\"cached_input\""));
    assert!(counts.next().is_some_and(|line| line.ends_with(" 4")), "{metrics}");
}
