//! `/api/stats` on records that are known to the letter.

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use budao_core::{
    Event, Fault, Kind, Timestamp,
    engine::WrittenRange,
    event::{CallStart, Origin, Scope, SessionId, Settings, Stage as PlanStage, StopReason},
    fault::{Fact, Operation},
    message::{CallId, Usage},
    tool::{Failure, Outcome, Output},
    trace::Trace,
    world::{Clock, World},
};
use budao_journal::{Append, Entry, IfMissing, Journal, LeaseRequest, RateQuery};
use budao_models::Script;
use budao_runtime::world;
use budao_serve::Auth;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::{
    fixture::{Fixture, Setup, memory, sqlite},
    http::{client, get},
};

/// 2026-11-15T08:00:00Z, which is when these tests happen.
pub(crate) const NOW: Timestamp = Timestamp::from_micros(1_794_729_600_000_000);

/// The same time until it is moved; waits are real.
#[derive(Debug)]
struct ManualClock {
    real: Arc<dyn Clock>,
    now: Mutex<Timestamp>,
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.now.lock().unwrap()
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        self.real.sleep(wait)
    }
}

fn stopped_at(now: Timestamp) -> (World, Arc<ManualClock>) {
    let real = world::system();
    let clock = Arc::new(ManualClock { real: Arc::clone(&real.clock), now: Mutex::new(now) });
    (World { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..real }, clock)
}

fn stopped() -> World {
    stopped_at(NOW).0
}

/// Writes a session's records, a second apart.
pub(crate) struct RecordWriter {
    session: SessionId,
    at: Timestamp,
    entries: Vec<Entry>,
}

impl RecordWriter {
    fn new(number: u128, ago: Duration, origin: Option<Origin>) -> Self {
        Self::at(number, before(ago), origin)
    }

    pub(crate) fn at(number: u128, at: Timestamp, origin: Option<Origin>) -> Self {
        let id = 0x0190_0000_0000_7000_8000_0000_0000_0000 + number;
        let mut writer =
            Self { session: SessionId(uuid::Uuid::from_u128(id)), at, entries: vec![] };
        writer.put(Event::SessionOpened { settings: Settings::default(), origin });
        writer.put(Event::TurnStarted { message: "m".into() });
        writer.put(Event::StepStarted { step: 1, attempt: 1, model: "demo".to_owned() });
        writer
    }

    pub(crate) fn put(&mut self, event: Event) {
        let (at, trace) = (self.at, Trace::from_random(7));
        self.entries.push(Entry { at, trace, turn: 1, event: Arc::new(event) });
        self.at = at.after(Duration::from_secs(1));
    }

    fn model_fails(&mut self, kind: Kind, attempt: u32) {
        let fault = Fault::new(kind, Operation::ModelRequest)
            .with(Fact::Service, "demo")
            .with(Fact::Model, "demo");
        self.put(Event::FaultRaised { fault, scope: in_step() });
        self.put(Event::RetryScheduled {
            operation: Operation::ModelRequest,
            kind,
            attempt,
            next_attempt: attempt + 1,
            max_attempts: 4,
            wait_ms: 900,
            due_at: self.at,
            scope: in_step(),
        });
    }

    /// A call that does not fit is refused, and does not run.
    fn refused(&mut self, id: &str, tool: &str) {
        let fault = Fault::new(Kind::InvalidArguments, Operation::ToolCall);
        let (call, tool, outcome) = (CallId::from(id), tool.to_owned(), failed(fault));
        self.put(Event::ToolCallEnded { call, tool, outcome, duration_ms: 0 });
    }

    fn call(&mut self, id: &str, tool: &str, outcome: Outcome) {
        let (call, tool) = (CallId::from(id), tool.to_owned());
        self.put(Event::ToolCallStarted(CallStart {
            call: call.clone(),
            tool: tool.clone(),
            arguments: json!({}),
            repairs: vec![],
            attempt: 1,
            idempotent: true,
            reconcile: false,
        }));
        self.put(Event::ToolCallEnded { call, tool, outcome, duration_ms: 10 });
    }

    fn end(&mut self, stop: StopReason, fault: Option<Fault>) {
        self.put(Event::TurnEnded { stop, fault, steps: 1, usage: Usage::default() });
    }

    pub(crate) async fn write(self, journal: &Arc<dyn Journal>) {
        let request = LeaseRequest {
            session: self.session,
            holder: "test".to_owned(),
            ttl: Duration::from_secs(5),
            if_missing: IfMissing::Create,
            dead_holder: None,
        };
        let lease = journal.take_lease(request).await.unwrap();
        let (session, after) = (self.session, lease.head);
        let head = after + self.entries.len() as u64;
        journal.append(Append::new(&lease, after, self.entries)).await.unwrap();
        crate::written::report(journal, WrittenRange { session, after, head });
        journal.release(&lease).await.unwrap();
    }
}

fn in_step() -> Scope {
    Scope { step: Some(1), ..Scope::default() }
}

fn failed(fault: Fault) -> Outcome {
    Outcome::Failed(Failure { fault, data: None, note: None })
}

fn before(ago: Duration) -> Timestamp {
    Timestamp::from_micros(NOW.as_micros() - i64::try_from(ago.as_micros()).unwrap())
}

fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

/// A rate limit that passes after two more tries.
fn limited_then_fine(number: u128) -> RecordWriter {
    let mut writer = RecordWriter::new(number, minutes(10), None);
    writer.model_fails(Kind::ModelRateLimited, 1);
    writer.model_fails(Kind::ModelRateLimited, 2);
    writer.put(Event::Recovered {
        operation: Operation::ModelRequest,
        kind: Kind::ModelRateLimited,
        attempts: 3,
        elapsed_ms: 4_200,
        scope: in_step(),
    });
    writer.end(StopReason::EndTurn, None);
    writer
}

/// A call that does not fit, which the model corrects; then another tool that says no, and a way around it.
fn corrected() -> RecordWriter {
    let mut writer = RecordWriter::new(3, minutes(4), None);
    writer.refused("call_1", "fs_read");
    writer.call("call_2", "fs_read", Outcome::Done(Output::default()));
    let no = Fault::new(Kind::ToolSaidNo, Operation::ToolCall);
    writer.call("call_3", "book_table", failed(no));
    writer.end(StopReason::EndTurn, None);
    writer
}

/// A planner whose key is wrong.
fn refused_planner() -> RecordWriter {
    let parent = SessionId(uuid::Uuid::nil());
    let origin = Origin::Stage { parent, stage: PlanStage::Planning, task: None, depth: 1 };
    let mut writer = RecordWriter::new(4, minutes(3), Some(origin));
    let fault =
        Fault::new(Kind::ModelAuthentication, Operation::ModelRequest).with(Fact::Service, "demo");
    writer.put(Event::FaultRaised { fault: fault.clone(), scope: in_step() });
    writer.put(Event::RecoveryFailed { fault: fault.clone(), scope: in_step() });
    writer.end(StopReason::Failed, Some(fault));
    writer
}

/// A computer that is gone; the turn is not over.
fn computer_gone() -> RecordWriter {
    let mut writer = RecordWriter::new(5, minutes(2), None);
    let fault = Fault::new(Kind::ComputerGone, Operation::ToolCall)
        .with(Fact::Computer, "workbench")
        .via("computer", "workbench");
    writer.call("call_1", "bash_run", failed(fault));
    writer
}

/// Steps used up, two hours ago: told at the end alone.
fn exhausted() -> RecordWriter {
    let mut writer = RecordWriter::new(6, minutes(120), None);
    let fault = Fault::new(Kind::StepsExhausted, Operation::RunTurn).with(Fact::Limit, 8);
    writer.put(Event::RecoveryFailed { fault: fault.clone(), scope: in_step() });
    writer.end(StopReason::Failed, Some(fault));
    writer
}

async fn known(journal: &Arc<dyn Journal>) {
    for writer in [
        limited_then_fine(1),
        limited_then_fine(2),
        corrected(),
        refused_planner(),
        computer_gone(),
        exhausted(),
    ] {
        writer.write(journal).await;
    }
}

pub(crate) async fn stage_on(journal: &Arc<dyn Journal>) -> Fixture {
    let mut setup = Setup::new(Script::new().say("fine").forever()).on(journal);
    setup.world = stopped();
    setup.config.auth = Auth::open();
    // What was written by hand is to be counted, not to be run.
    setup.open_without_recovery().await
}

pub(crate) async fn stats(stage: &Fixture, window: &str) -> Value {
    let (status, body) = get(stage, &format!("/api/stats?window={window}")).await;
    assert_eq!(status, 200, "{body}");
    body
}

#[tokio::test]
async fn statistics_count_faults_and_their_outcomes() {
    let journal = memory();
    known(&journal).await;
    let stage = stage_on(&journal).await;
    let mut hour = stats(&stage, "1h").await;
    let buckets = hour["buckets"].as_array_mut().unwrap();
    assert_eq!(buckets.len(), 61, "a minute each, and the one that has begun");
    buckets.retain(|bucket| bucket["by_kind"] != json!({}));
    insta::assert_json_snapshot!(hour);
}

#[tokio::test]
async fn statistics_name_the_affected_tenants_and_users() {
    let journal = memory();
    for (number, tenant, user) in [(1, "acme", "acme/ann"), (2, "acme", "acme/bob")] {
        let mut writer = limited_then_fine(number);
        let labels = [(Settings::TENANT, tenant), (Settings::OWNER, user)];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let settings = Settings { labels, ..Settings::default() };
        writer.entries[0].event = Arc::new(Event::SessionOpened { settings, origin: None });
        writer.write(&journal).await;
    }
    let stage = stage_on(&journal).await;
    let hour = stats(&stage, "1h").await;
    assert_eq!(hour["by_tenant"][0]["tenant"], "acme", "{hour}");
    assert_eq!(hour["by_tenant"][0]["count"], 4);
    let users: Vec<_> =
        hour["by_user"].as_array().unwrap().iter().map(|row| &row["user"]).collect();
    assert_eq!(users, ["acme/ann", "acme/bob"]);
    let (_, listed) = get(&stage, "/v1/sessions?code=ERR_RATE_001").await;
    let owners = listed["sessions"].as_array().unwrap().iter().map(|row| &row["owner"]);
    assert_eq!(owners.filter(|user| user.as_str().is_some()).count(), 2, "{listed}");
}

/// The last digit of each listed session.
fn numbers(list: &Value) -> Vec<char> {
    let sessions = list["sessions"].as_array().unwrap().iter();
    sessions.map(|row| row["session_id"].as_str().unwrap().chars().last().unwrap()).collect()
}

#[tokio::test]
async fn every_bar_leads_to_the_sessions_that_its_faults_hit() {
    let journal = memory();
    known(&journal).await;
    let stage = stage_on(&journal).await;
    let hour = before(minutes(60));
    for (hit, expected) in [
        ("model:demo", vec!['5', '4', '3', '2', '1']),
        ("tool:book_table", vec!['3']),
        ("tool:bash_run", vec!['5']),
        ("stage:planning", vec!['4']),
        ("computer:workbench", vec!['5']),
        ("code:ERR_RATE_001", vec!['2', '1']),
        ("model:another", vec![]),
        ("any", vec!['5', '4', '3', '2', '1']),
    ] {
        let (_, list) = get(&stage, &format!("/v1/sessions?hit={hit}&since={hour}")).await;
        assert_eq!(numbers(&list), expected, "{hit}: {list}");
        assert!(list["next"].is_null());
    }
    let old = format!("/v1/sessions?hit=model:demo&until={hour}");
    assert_eq!(numbers(&get(&stage, &old).await.1), ['6']);
    let failed = format!("/v1/sessions?hit=model:demo&since={hour}&state=failed");
    assert_eq!(numbers(&get(&stage, &failed).await.1), ['4']);
}

#[tokio::test]
async fn the_sessions_of_a_bar_come_in_pages_and_wrong_bars_are_refused() {
    let journal = memory();
    known(&journal).await;
    let stage = stage_on(&journal).await;
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let (_, list) = get(&stage, &format!("/v1/sessions?hit=model:demo&limit=2{after}")).await;
        all.extend(numbers(&list));
        let Some(next) = list["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(all, ['5', '4', '3', '2', '1', '6']);
    let (status, body) = get(&stage, "/v1/sessions?hit=any&outcome=perhaps").await;
    assert_eq!((status, &body["facts"]["field"]), (400, &json!("outcome")), "{body}");
    for hit in ["model", "colour:red", ""] {
        let (status, body) = get(&stage, &format!("/v1/sessions?hit={hit}")).await;
        assert_eq!((status, &body["facts"]["field"]), (400, &json!("hit")), "{hit}: {body}");
    }
}

#[tokio::test]
async fn a_window_counts_what_is_in_it() {
    let journal = memory();
    known(&journal).await;
    let stage = stage_on(&journal).await;
    for (window, faults, buckets) in [("5m", 4, 21), ("1h", 8, 61), ("24h", 9, 49), ("7d", 9, 57)] {
        let stats = stats(&stage, window).await;
        assert_eq!(stats["window"], window);
        assert_eq!(stats["faults"], faults, "{window}: {stats}");
        let stats_buckets = stats["buckets"].as_array().unwrap();
        assert_eq!(stats_buckets.len(), buckets, "{window}");
        let counts =
            stats_buckets.iter().flat_map(|bucket| bucket["by_kind"].as_object().unwrap().values());
        assert_eq!(counts.map(|count| count.as_u64().unwrap()).sum::<u64>(), faults, "{window}");
    }
}

#[tokio::test]
async fn statistics_are_the_same_after_a_restart_and_agree_with_the_journals_own_counts() {
    let directory = tempfile::tempdir().unwrap();
    let before = {
        let journal = sqlite(&directory).await;
        known(&journal).await;
        let stage = stage_on(&journal).await;
        let first = stats(&stage, "24h").await;
        assert_eq!(first, stats(&stage, "24h").await, "asking changes nothing");
        stage.stop().await;
        first
    };
    let journal = sqlite(&directory).await;
    let stage = stage_on(&journal).await;
    assert_eq!(stats(&stage, "24h").await, before);
    let (since, until) = (Timestamp::default(), NOW.after(minutes(1)));
    let query = RateQuery { since, until, bucket: minutes(1), code: None };
    let rates = journal.rates(query).await.unwrap();
    for kind in before["kinds"].as_array().unwrap() {
        let counted = rates.iter().filter(|rate| kind["code"] == *rate.code);
        // A fault that only the end of the turn has was not raised before.
        let (raised, ended) =
            counted.fold((0, 0), |sum, rate| (sum.0 + rate.raised, sum.1 + rate.ended));
        assert_eq!(kind["count"], if raised > 0 { raised } else { ended }, "{kind}");
    }
}

#[tokio::test]
async fn later_records_are_counted_once() {
    let journal = memory();
    limited_then_fine(1).write(&journal).await;
    let stage = stage_on(&journal).await;
    assert_eq!(stats(&stage, "1h").await["faults"], 2);
    let mut more = corrected();
    let end = more.entries.split_off(4);
    let session = more.session;
    more.write(&journal).await;
    let open = stats(&stage, "1h").await;
    assert_eq!((&open["faults"], &open["kinds"][1]["recovered"]), (&json!(3), &json!(0)));
    RecordWriter { session, at: NOW, entries: end }.write(&journal).await;
    let closed = stats(&stage, "1h").await;
    assert_eq!((&closed["faults"], &closed["kinds"][1]["recovered"]), (&json!(4), &json!(1)));
    assert_eq!(closed["kinds"][1]["kind"], "invalid_arguments");
}

#[tokio::test]
async fn an_unknown_window_is_refused_and_only_operators_read_statistics() {
    let stage = Setup::new(Script::new())
        .with(|config| {
            let mut auth = Auth::default();
            auth.add_tokens("of-ann acme ann\nof-op ops op operator\n").unwrap();
            config.auth = auth;
        })
        .open()
        .await;
    let ask = async |path: &str, token: &str| {
        let response = client().get(stage.url(path)).bearer_auth(token).send().await.unwrap();
        let status = response.status().as_u16();
        let body: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        (status, body["code"].clone())
    };
    assert_eq!(ask("/api/stats", "of-ann").await, (403, json!("ERR_PERM_008")));
    assert_eq!(ask("/v1/sessions?hit=model:demo", "of-ann").await.0, 403);
    assert_eq!(ask("/api/stats", "of-op").await, (200, Value::Null));
    assert_eq!(ask("/api/stats?window=1y", "of-op").await.0, 400);
}

async fn text(stage: &Fixture, path: &str) -> (u16, String) {
    let response = client().get(stage.url(path)).send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

/// A series' value, found by its name and labels as they are written.
fn value(text: &str, series: &str) -> Option<f64> {
    let line =
        text.lines().find(|line| line.rsplit_once(' ').is_some_and(|(name, _)| name == series));
    line?.rsplit_once(' ')?.1.parse().ok()
}

#[tokio::test]
async fn metrics_count_from_the_start_of_the_server_by_code_class_tool_and_stage() {
    let directory = tempfile::tempdir().unwrap();
    let journal = sqlite(&directory).await;
    // From before: history, not a sudden leap of every counter.
    exhausted().write(&journal).await;
    let mut setup = Setup::new(Script::new()).on(&journal);
    setup.config.metrics.install();
    let (world, clock) = stopped_at(before(minutes(30)));
    setup.world = world;
    let stage = setup.open_without_recovery().await;
    // It has been started once it answers.
    text(&stage, "/healthz").await;
    *clock.now.lock().unwrap() = NOW;
    for writer in [limited_then_fine(1), corrected(), refused_planner(), computer_gone()] {
        writer.write(&journal).await;
    }
    let (status, metrics) = text(&stage, "/metrics").await;
    assert_eq!(status, 200);
    let names: std::collections::BTreeSet<&str> =
        metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    insta::assert_json_snapshot!(names);
    let faults = |labels: &[&str]| {
        let lines = metrics.lines().filter(|line| line.starts_with("budao_faults_total{"));
        let meant = lines.filter(|line| labels.iter().all(|label| line.contains(label)));
        meant.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum::<u64>()
    };
    for (labels, expected) in [
        (&[][..], 6),
        (&["code=\"ERR_RATE_001\"", "error_type=\"runtime\"", "category=\"transient\""], 2),
        (&["error_type=\"validation\"", "tool=\"fs_read\"", "recoverable=\"true\""], 1),
        (&["stage=\"planning\"", "kind=\"model_authentication\""], 1),
        (&["kind=\"computer_gone\"", "tool=\"bash_run\"", "severity="], 1),
    ] {
        assert_eq!(faults(labels), expected, "{labels:?}\n{metrics}");
    }
    assert!(!metrics.contains("steps_exhausted"), "{metrics}");
    for (series, expected) in [
        ("budao_retries_total", 2.0),
        ("budao_retried_total{result=\"succeeded\"}", 1.0),
        ("budao_recovery_seconds_count", 2.0),
        ("budao_turns_total{stop=\"end_turn\"}", 2.0),
        ("budao_turns_total{stop=\"failed\"}", 1.0),
        ("budao_calls_total{tool=\"fs_read\",result=\"done\"}", 1.0),
        ("budao_calls_total{tool=\"fs_read\",result=\"failed\"}", 1.0),
        ("budao_steps_total{model=\"demo\"}", 4.0),
        ("budao_sessions_unfinished", 1.0),
        ("budao_stats_complete", 1.0),
    ] {
        assert_eq!(value(&metrics, series), Some(expected), "{series}\n{metrics}");
    }
    assert!(value(&metrics, "budao_journal_bytes") > Some(4096.0));
    assert!(value(&metrics, "budao_journal_sync_seconds_count") >= Some(4.0));
    assert!(!metrics.contains("0190000"), "no session is a label");
}

/// A Python with Prometheus's own client library, if it was fetched.
fn prometheus() -> Option<PathBuf> {
    let folder = std::env::var_os("BUDAO_PEERS")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/budao/peers")));
    let found =
        folder.map(|folder| folder.join("prometheus/bin/python")).filter(|path| path.exists());
    if found.is_none() {
        let advice = "NOT TESTED: Prometheus's library is missing; `cargo xtask peers prometheus`";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{advice}");
        eprintln!("\n*** {advice} ***\n");
    }
    found
}

/// Prints every family with its type and the number of its samples.
const READER: &str = "
import json, sys
from prometheus_client.parser import text_string_to_metric_families
families = text_string_to_metric_families(sys.stdin.read())
print(json.dumps({f.name: [f.type, len(f.samples), f.documentation != ''] for f in families}))
";

#[tokio::test]
async fn metrics_are_read_by_prometheus_own_library() {
    let Some(python) = prometheus() else { return };
    let journal = memory();
    let mut setup = Setup::new(Script::new()).on(&journal);
    let (world, clock) = stopped_at(before(minutes(30)));
    setup.world = world;
    let stage = setup.open_without_recovery().await;
    // It has been started once it answers.
    text(&stage, "/healthz").await;
    *clock.now.lock().unwrap() = NOW;
    known(&journal).await;
    let (_, metrics) = text(&stage, "/metrics").await;
    let mut reader = Command::new(python)
        .args(["-c", READER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    reader.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let read = reader.wait_with_output().unwrap();
    assert!(read.status.success());
    let families: Value = serde_json::from_slice(&read.stdout).unwrap();
    assert_eq!(families["budao_faults"], json!(["counter", 6, true]));
    assert_eq!(families["budao_turn_seconds"][0], "histogram");
    assert_eq!(families["budao_uptime_seconds"], json!(["gauge", 1, true]));
    for (name, family) in families.as_object().unwrap() {
        assert_eq!(family[2], true, "{name} says what it means");
    }
}

#[tokio::test]
async fn the_readiness_probe_tests_the_journal_and_the_liveness_probe_only_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let journal = sqlite(&directory).await;
    let stage = Setup::new(Script::new()).on(&journal).open().await;
    assert_eq!(text(&stage, "/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(text(&stage, "/readyz").await, (200, "ready\n".to_owned()));
}

#[test]
fn rules_and_dashboard_name_only_numbers_that_exist() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let known = std::fs::read_to_string(root.join("crates/serve/src/metrics.rs")).unwrap();
    for file in ["deploy/prometheus-rules.yml", "deploy/grafana-dashboard.json"] {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let words = text.split(|letter: char| !is_word(letter));
        for name in words.filter(|word| word.starts_with("budao_")) {
            let name = name.trim_end_matches("_bucket");
            assert!(known.contains(&format!("\"{name}\"")), "{file}: {name}");
        }
    }
}
