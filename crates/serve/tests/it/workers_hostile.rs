//! Workers that lie, flood, steal and never end, on the real server: each is bounded, refused and told.

use std::time::Duration;

use budao_core::event::Event;
use budao_models::script::Script;
use budao_remote::WorkerLimits;
use budao_serve::Auth;
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::{
    fixture::{Client, Fixture, Setup, memory},
    workers::{TestWorker, ask, events, is_accepted, limits, pay, pay_with, pays, result, setup},
};

/// Tokens of two tenants; `ann` and `bob` of `acme` and `eve` of `evil` may offer every name, and `mal` of `acme` none.
fn tenants(setup: Setup) -> Setup {
    let tokens = "ann-token acme ann tools:offer=*\nbob-token acme bob tools:offer=*\n\
                  mal-token acme mal\neve-token evil eve tools:offer=*\n";
    let mut auth = Auth::default();
    auth.add_tokens(tokens).unwrap();
    setup.with(|config| config.auth = auth)
}

async fn connect(fixture: &Fixture, token: &str) -> Client {
    let bearer = format!("Bearer {token}");
    Client::connect(fixture.address, &[("authorization", bearer.as_str())]).await.unwrap()
}

/// A worker of this token that has offered these tools, and says that it holds these calls.
async fn worker_of(
    fixture: &Fixture,
    (token, id): (&str, &'static str),
    (tools, holding): (Value, Value),
) -> TestWorker {
    let mut worker = TestWorker { client: connect(fixture, token).await, id };
    let answer = worker.ask(worker.offer(tools, holding)).await;
    assert!(is_accepted(&answer), "{answer}");
    worker
}

fn holding(call: &Value) -> Value {
    json!([{ "session_id": call["session_id"], "step_id": call["step_id"], "attempt": 1 }])
}

fn named(name: &str) -> Value {
    pay_with("name", name)
}

/// A schema of some hundred bytes that takes 2^30 steps to check.
fn doubling_schema() -> Value {
    let mut parts = serde_json::Map::new();
    for level in 0..30 {
        let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
        parts.insert(format!("d{level}"), json!({ "allOf": [next, next] }));
    }
    parts.insert("d30".to_owned(), json!({ "type": "object" }));
    json!({ "type": "object", "allOf": [{ "$ref": "#/$defs/d0" }], "$defs": parts })
}

#[tokio::test]
async fn a_schema_bomb_is_refused_or_costs_no_more_than_its_call() {
    let fixture = setup(pays(), limits()).open().await;
    let mut worker = TestWorker::connect(&fixture, "w-1").await;
    let deep: Value = (0..70).fold(json!({}), |inner, _| json!({ "anyOf": [inner] }));
    let cycle = json!({ "type": "object", "allOf": [{ "$ref": "#" }] });
    let remote = json!({ "type": "object", "allOf": [{ "$ref": "http://192.0.2.1/x.json" }] });
    for schema in [deep, cycle, remote] {
        let refused =
            worker.ask(worker.offer(json!([pay_with("parameters", schema)]), json!([]))).await;
        assert_eq!(refused["metadata"]["status"], "rejected", "{refused}");
    }
    // This one is small and well formed. Whatever becomes of the offer, the server goes on and the turn ends.
    let bomb = pay_with("parameters", doubling_schema());
    let answer = worker.ask(worker.offer(json!([bomb]), json!([]))).await;
    if is_accepted(&answer) {
        let (mut person, _) = ask(&fixture).await;
        let failed = result(&mut person).await;
        assert_eq!(failed["metadata"]["status"], "failed", "{failed}");
        person.until("agent.final_answer").await;
    }
    let mut other = TestWorker::connect(&fixture, "w-2").await;
    let answer = other.ask(other.offer(json!([named("other")]), json!([]))).await;
    assert!(answer["metadata"]["status"].is_string(), "{answer}");
}

#[tokio::test]
async fn a_call_of_another_tenant_does_not_exist() {
    let fixture = tenants(setup(pays(), limits())).open().await;
    let mut worker = worker_of(&fixture, ("ann-token", "w-1"), (json!([pay()]), json!([]))).await;
    let mut person = connect(&fixture, "ann-token").await;
    let session = person.create(json!({})).await;
    person.ask(&session, "Pay invoice 7.").await;
    let call = worker.call().await;
    assert!(is_accepted(&worker.claim(&call).await));
    // The thief has the same tool, the same name and the same id, and says that it holds the call.
    let mut thief =
        worker_of(&fixture, ("eve-token", "w-1"), (json!([pay()]), holding(&call))).await;
    let refused = thief.claim(&call).await;
    assert_eq!(refused["metadata"]["error_code"], "ERR_SESS_001", "{refused}");
    let refused = thief.end(&call, json!({ "result": "stolen" })).await;
    assert!(!is_accepted(&refused), "{refused}");
    let output = thief.frame("user.tool_output", &call, json!({ "delta": "stolen" }));
    let refused = thief.ask(output).await;
    assert_eq!(refused["metadata"]["error_code"], "ERR_TOOL_023", "{refused}");
    assert!(is_accepted(&worker.end(&call, json!({ "result": "earned" })).await));
    let shown = result(&mut person).await;
    assert_eq!(shown["content"], "earned");
    let told: Vec<Event> = events(&*fixture.journal, &session).await;
    assert!(!format!("{told:?}").contains("stolen"));
}

#[tokio::test]
async fn a_process_that_declares_what_it_cannot_run_gets_nothing() {
    // The call stays with the process that was asked first.
    let patient = WorkerLimits { claim_wait: Duration::from_secs(60), ..limits() };
    let fixture = tenants(setup(pays(), patient)).open().await;
    let mut worker = worker_of(&fixture, ("ann-token", "w-1"), (json!([pay()]), json!([]))).await;
    let mut person = connect(&fixture, "ann-token").await;
    let session = person.create(json!({})).await;
    person.ask(&session, "Pay invoice 7.").await;
    let call = worker.call().await;
    // It offers another tool, and says that it holds the call.
    let mut liar =
        worker_of(&fixture, ("ann-token", "w-2"), (json!([named("bill")]), holding(&call))).await;
    let refused = liar.claim(&call).await;
    assert_eq!(refused["metadata"]["error_code"], "ERR_TOOL_023", "{refused}");
    let invented = json!([{ "session_id": session, "step_id": "call_9_9_9", "attempt": 1 }]);
    let mut dreamer =
        worker_of(&fixture, ("ann-token", "w-3"), (json!([pay()]), invented.clone())).await;
    let mut dream = call.clone();
    dream["step_id"] = "call_9_9_9".into();
    let refused = dreamer.claim(&dream).await;
    assert_eq!(refused["metadata"]["error_code"], "ERR_TOOL_023", "{refused}");
    assert!(is_accepted(&worker.claim(&call).await));
    assert!(is_accepted(&worker.end(&call, json!({ "result": 1 })).await));
    person.until("agent.final_answer").await;
}

#[tokio::test]
async fn a_result_of_50_megabytes_ends_the_connection_and_not_the_server() {
    let lasting = WorkerLimits { grace: Duration::from_secs(20), ..limits() };
    let fixture = setup(pays(), lasting).open().await;
    let mut worker = TestWorker::offering(&fixture, "w-1", json!([pay()])).await;
    let (mut person, _) = ask(&fixture).await;
    let call = worker.call().await;
    assert!(is_accepted(&worker.claim(&call).await));
    let huge = worker.frame("user.tool_result", &call, json!({ "result": "x".repeat(50_000_000) }));
    // The server may close while the frame is sent; the worker then comes back with what it holds.
    let _ = worker.client.socket.send(Message::text(huge.to_string())).await;
    let mut frames = Vec::new();
    while let Some(Ok(message)) = worker.client.socket.next().await {
        let Message::Text(text) = message else { continue };
        let frame: Value = serde_json::from_str(&text).unwrap();
        let is_refused = frame["metadata"]["limit_name"] == "frame_bytes";
        frames.push(frame);
        if is_refused {
            break;
        }
    }
    assert!(!frames.iter().any(is_accepted), "{frames:?}");
    drop(worker);
    let mut back = TestWorker::connect(&fixture, "w-1").await;
    assert!(is_accepted(&back.ask(back.offer(json!([pay()]), holding(&call))).await));
    assert!(is_accepted(&back.end(&call, json!({ "result": "small" })).await));
    assert_eq!(result(&mut person).await["content"], "small");
}

#[tokio::test]
async fn workers_open_calls_and_bytes_of_a_tenant_have_bounds_that_are_named() {
    let small = WorkerLimits { workers: 1, open_calls: 1, tenant_bytes: 600, ..limits() };
    let script = Script::new()
        .calls([("pay", json!({ "invoice": 7 })), ("pay", json!({ "invoice": 8 }))])
        .say("Paid.");
    let fixture = setup(script, small).open().await;
    let mut worker = TestWorker::offering(&fixture, "w-1", json!([pay()])).await;
    let mut second = TestWorker::connect(&fixture, "w-2").await;
    let refused = second.ask(second.offer(json!([pay()]), json!([]))).await;
    assert!(refused.to_string().contains("tenant_workers"), "{refused}");
    let wordy = pay_with("description", "x".repeat(600));
    let refused = worker.ask(worker.offer(json!([wordy]), json!([]))).await;
    assert!(refused.to_string().contains("tenant_tool_bytes"), "{refused}");
    let (mut person, _) = ask(&fixture).await;
    let failed = result(&mut person).await;
    assert!(failed.to_string().contains("tenant_open_calls"), "{failed}");
    let call = worker.call().await;
    assert!(is_accepted(&worker.claim(&call).await));
    assert!(is_accepted(&worker.end(&call, json!({ "result": 1 })).await));
    person.until("agent.final_answer").await;
}

/// Goal: offers of the same moment count for each other, and a refused offer gives its place back.
#[tokio::test]
async fn offers_of_the_same_moment_stay_within_the_bound_of_the_tenant() {
    let small = WorkerLimits { workers: 2, ..limits() };
    let fixture = setup(pays(), small).open().await;
    let mut workers = Vec::new();
    for id in ["w-1", "w-2", "w-3", "w-4", "w-5"] {
        workers.push(TestWorker::connect(&fixture, id).await);
    }
    let unnamed = json!([{ "name": "", "description": "x", "parameters": { "type": "object" } }]);
    let offer = workers[0].offer(unnamed, json!([]));
    let refused = workers[0].ask(offer).await;
    assert!(!is_accepted(&refused), "{refused}");
    let offering = workers.iter_mut().map(|worker| {
        let offer = worker.offer(json!([pay()]), json!([]));
        worker.ask(offer)
    });
    let answers = futures::future::join_all(offering).await;
    let accepted = answers.iter().filter(|answer| is_accepted(answer)).count();
    assert_eq!(accepted, 2, "{answers:?}");
}

/// Goal: a claim whose answer was lost with the server is answered by the next one, before the call is open there. Method:
/// the next server does not resume its sessions, so only the repeated claim finds the call.
#[tokio::test]
async fn a_claim_is_repeated_to_a_server_that_has_not_opened_the_call_yet() {
    let journal = memory();
    let lasting = || WorkerLimits { grace: Duration::from_secs(20), ..limits() };
    let fixture = setup(pays(), lasting()).on(&journal).open().await;
    let mut worker = TestWorker::offering(&fixture, "w-1", json!([pay()])).await;
    let (person, session) = ask(&fixture).await;
    let call = worker.call().await;
    assert!(is_accepted(&worker.claim(&call).await));
    drop((person, worker));
    fixture.stop().await;
    let script = Script::new().say("Paid.");
    let fixture = setup(script, lasting()).on(&journal).open_without_recovery().await;
    let mut back = TestWorker::connect(&fixture, "w-1").await;
    assert!(is_accepted(&back.ask(back.offer(json!([pay()]), holding(&call))).await));
    let again = back.claim(&call).await;
    assert!(is_accepted(&again), "the claim is durable: {again}");
    assert!(is_accepted(&back.end(&call, json!({ "result": "once" })).await));
    let mut person = fixture.client().await;
    person.reconnect(&session, 0).await;
    let frames = person.until("agent.final_answer").await;
    let results: Vec<&Value> =
        frames.iter().filter(|it| it["event"] == "agent.tool_result").collect();
    assert_eq!(results.len(), 1);
    assert_eq!(results[0]["content"], "once");
}

#[tokio::test]
async fn a_process_that_was_refused_a_claim_does_not_hold_the_call() {
    let lasting = WorkerLimits { grace: Duration::from_secs(20), ..limits() };
    let fixture = setup(pays(), lasting).open().await;
    let mut worker = TestWorker::offering(&fixture, "w-1", json!([pay()])).await;
    let (mut person, _) = ask(&fixture).await;
    let call = worker.call().await;
    assert!(is_accepted(&worker.claim(&call).await));
    drop(worker);
    // It comes back and does not know the call any more: there is nothing to wait for.
    let mut back = TestWorker::connect(&fixture, "w-1").await;
    assert!(is_accepted(&back.ask(back.offer(json!([pay()]), json!([]))).await));
    let failed = result(&mut person).await;
    assert_eq!(failed["metadata"]["error_code"], "ERR_TOOL_022", "{failed}");
}

#[tokio::test]
async fn a_late_offer_of_an_older_connection_takes_no_process_from_a_newer_one() {
    let lasting = WorkerLimits { grace: Duration::from_secs(20), ..limits() };
    let fixture = setup(pays(), lasting).open().await;
    let mut lost = TestWorker::connect(&fixture, "w-1").await;
    let mut worker = TestWorker::offering(&fixture, "w-1", json!([pay()])).await;
    let (mut person, _) = ask(&fixture).await;
    let call = worker.call().await;
    assert!(is_accepted(&worker.claim(&call).await));
    let late = lost.ask(lost.offer(json!([pay()]), json!([]))).await;
    assert!(late.to_string().contains("no newer connection has offered"), "{late}");
    drop(lost);
    let ended = worker.end(&call, json!({ "result": "kept" })).await;
    assert!(is_accepted(&ended), "{ended}");
    assert_eq!(result(&mut person).await["content"], "kept");
}

/// Sends a command and returns its own answer.
async fn answer_to(worker: &mut TestWorker, frame: Value) -> Value {
    let command = frame["command_id"].clone();
    worker.client.send(frame).await;
    loop {
        let answer = worker.client.next().await;
        if answer["metadata"]["command_id"] == command {
            return answer;
        }
    }
}

/// A process of `mal` that has the id of another user's process, and offers nothing to a session of its own.
async fn impostor(fixture: &Fixture, id: &'static str, holding: Value) -> TestWorker {
    let mut thief = TestWorker { client: connect(fixture, "mal-token").await, id };
    let own = thief.client.create(json!({})).await;
    let mut offer = thief.offer(json!([]), holding);
    offer["session_id"] = own.into();
    let answer = answer_to(&mut thief, offer).await;
    assert!(is_accepted(&answer), "an id is unique among those of its user: {answer}");
    thief
}

/// Expects that the process of `mal` can neither claim, show nor end the call, by commands with the ids that the worker
/// chooses.
async fn is_refused_everything(thief: &mut TestWorker, call: &Value) {
    for (event, content) in [
        ("user.tool_claim", json!({})),
        ("user.tool_output", json!({ "delta": "stolen" })),
        ("user.tool_result", json!({ "result": "stolen" })),
    ] {
        let frame = thief.frame(event, call, content);
        let refused = answer_to(thief, frame).await;
        assert_eq!(refused["metadata"]["error_code"], "ERR_TOOL_023", "{event}: {refused}");
    }
}

/// A call of a session of `ann` that a process of `bob` has claimed.
async fn claimed_by_bob(fixture: &Fixture) -> (TestWorker, Client, String, Value) {
    let mut worker = worker_of(fixture, ("bob-token", "w-bob"), (json!([pay()]), json!([]))).await;
    let mut person = connect(fixture, "ann-token").await;
    let session = person.create(json!({})).await;
    person.ask(&session, "Pay invoice 7.").await;
    let call = worker.call().await;
    assert!(is_accepted(&worker.claim(&call).await));
    (worker, person, session, call)
}

fn lasting() -> WorkerLimits {
    WorkerLimits { grace: Duration::from_secs(20), ..limits() }
}

#[tokio::test]
async fn a_call_that_a_process_of_another_user_claimed_is_not_ended_through_another_server() {
    let journal = memory();
    let home = tenants(setup(pays(), lasting())).on(&journal).open().await;
    let away = tenants(setup(Script::new(), lasting())).on(&journal);
    let away = away.open_without_recovery().await;
    let (mut worker, mut person, session, call) = claimed_by_bob(&home).await;
    let mut thief = impostor(&away, "w-bob", holding(&call)).await;
    is_refused_everything(&mut thief, &call).await;
    let ended = worker.end(&call, json!({ "result": "earned" })).await;
    assert!(is_accepted(&ended), "{ended}");
    assert_eq!(result(&mut person).await["content"], "earned");
    let told: Vec<Event> = events(&*home.journal, &session).await;
    assert!(!format!("{told:?}").contains("stolen"));
}

/// Goal: the owner of a claim is in the journal. Method: the next server sees the thief before it sees the process that
/// claimed the call, once with the call open and once before.
#[tokio::test]
async fn a_call_that_a_process_of_another_user_claimed_is_not_ended_after_a_restart() {
    for recovers in [true, false] {
        let journal = memory();
        let fixture = tenants(setup(pays(), lasting())).on(&journal).open().await;
        let (worker, person, session, call) = claimed_by_bob(&fixture).await;
        drop((worker, person));
        fixture.stop().await;
        let next = tenants(setup(Script::new().say("Paid."), lasting())).on(&journal);
        let next = match recovers {
            true => next.open().await,
            false => next.open_without_recovery().await,
        };
        let mut thief = impostor(&next, "w-bob", holding(&call)).await;
        is_refused_everything(&mut thief, &call).await;
        let back = (json!([pay()]), holding(&call));
        let mut back = worker_of(&next, ("bob-token", "w-bob"), back).await;
        assert!(is_accepted(&back.end(&call, json!({ "result": "earned" })).await));
        let mut person = connect(&next, "ann-token").await;
        person.reconnect(&session, 0).await;
        assert_eq!(result(&mut person).await["content"], "earned");
    }
}

/// Goal: progress of a call whose process is on another server is not forged on the session's own server.
#[tokio::test]
async fn progress_of_a_process_of_another_user_on_another_server_is_not_forged() {
    let journal = memory();
    let home = tenants(setup(pays(), lasting())).on(&journal).open().await;
    let away = tenants(setup(Script::new(), lasting())).on(&journal);
    let away = away.open_without_recovery().await;
    let offer = (json!([pay()]), json!([]));
    let mut worker = worker_of(&away, ("bob-token", "w-bob"), offer).await;
    let mut person = connect(&home, "ann-token").await;
    let session = person.create(json!({})).await;
    person.ask(&session, "Pay invoice 7.").await;
    home.has_open_call().await;
    home.exchange_workers("home", &["away"]).await;
    away.exchange_workers("away", &["home"]).await;
    let call = worker.call().await;
    assert!(is_accepted(&worker.claim(&call).await));
    let mut thief = impostor(&home, "w-bob", holding(&call)).await;
    is_refused_everything(&mut thief, &call).await;
    assert!(is_accepted(&worker.end(&call, json!({ "result": "earned" })).await));
    assert_eq!(result(&mut person).await["content"], "earned");
    let told: Vec<Event> = events(&*home.journal, &session).await;
    assert!(!format!("{told:?}").contains("stolen"));
}

#[tokio::test]
async fn the_answer_what_became_of_a_call_comes_from_the_process_that_was_asked() {
    let fixture = tenants(setup(pays(), limits())).open().await;
    let tools = json!([pay_with("reconcile", true)]);
    let offer = || (tools.clone(), json!([]));
    let mut worker = worker_of(&fixture, ("bob-token", "w-1"), offer()).await;
    let mut person = connect(&fixture, "ann-token").await;
    let session = person.create(json!({})).await;
    person.ask(&session, "Pay invoice 7.").await;
    let first = worker.call().await;
    assert!(is_accepted(&worker.claim(&first).await));
    drop(worker);
    let mut asked = worker_of(&fixture, ("bob-token", "w-2"), offer()).await;
    let question = asked.call().await;
    assert_eq!(question["metadata"]["purpose"], "reconcile");
    assert!(is_accepted(&asked.claim(&question).await));
    let mut thief = impostor(&fixture, "w-2", json!([])).await;
    let verdict = json!({ "reconciliation": "happened", "result": "stolen" });
    let refused = thief.frame("user.tool_result", &question, verdict);
    let refused = answer_to(&mut thief, refused).await;
    assert_eq!(refused["metadata"]["error_code"], "ERR_TOOL_023", "{refused}");
    let found = json!({ "reconciliation": "happened", "result": "earned" });
    assert!(is_accepted(&asked.end(&question, found).await));
    assert_eq!(result(&mut person).await["content"], "earned");
}
