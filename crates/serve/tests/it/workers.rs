//! Tools that run in workers: offers, claims, results, and workers that come, go and misbehave.

use std::time::Duration;

use budao_core::{event::Event, tool::Mode};
use budao_journal::{Journal, PageLimits};
use budao_models::script::Script;
use budao_remote::WorkerLimits;
use budao_serve::Auth;
use serde_json::{Value, json};

use crate::fixture::{Client, Fixture, Setup, memory};

/// A worker typed from the protocol's page.
pub(crate) struct TestWorker {
    pub(crate) client: Client,
    pub(crate) id: &'static str,
}

pub(crate) fn limits() -> WorkerLimits {
    WorkerLimits {
        grace: Duration::from_millis(100),
        claim_wait: Duration::from_millis(100),
        wait: Duration::from_secs(10),
        ..WorkerLimits::default()
    }
}

pub(crate) fn pays() -> Script {
    Script::new().call("pay", json!({ "invoice": 7 })).say("Paid.")
}

pub(crate) fn setup(script: Script, limits: WorkerLimits) -> Setup {
    let mut setup = Setup::new(script).with(|config| {
        config.settings.permissions.mode = Mode::Auto;
    });
    setup.workers = Some(limits);
    setup
}

pub(crate) fn pay() -> Value {
    let properties = json!({ "invoice": { "type": "integer" } });
    json!({
        "name": "pay",
        "description": "Pays an invoice.",
        "parameters": { "type": "object", "properties": properties, "required": ["invoice"] },
    })
}

pub(crate) fn pay_with(field: &str, value: impl Into<Value>) -> Value {
    let mut tool = pay();
    tool[field] = value.into();
    tool
}

#[expect(clippy::needless_pass_by_value, reason = "calls read better with a literal")]
impl TestWorker {
    pub(crate) async fn connect(fixture: &Fixture, id: &'static str) -> Self {
        Self { client: fixture.client().await, id }
    }

    pub(crate) fn offer(&self, tools: Value, holding: Value) -> Value {
        json!({
            "event": "user.offer_tools", "command_id": "offer",
            "content": {
                "worker": "billing", "worker_id": self.id, "tools": tools, "holding": holding,
            },
        })
    }

    /// Offers these tools to the tenant, and expects that to be accepted.
    pub(crate) async fn offering(fixture: &Fixture, id: &'static str, tools: Value) -> Self {
        let mut worker = Self::connect(fixture, id).await;
        let answer = worker.ask(worker.offer(tools, json!([]))).await;
        assert_eq!(answer["metadata"]["status"], "accepted", "{answer}");
        worker
    }

    /// Sends a command and returns its answer, or the next frame if it has no answer.
    pub(crate) async fn ask(&mut self, frame: Value) -> Value {
        self.client.send(frame).await;
        self.client.next().await
    }

    /// The next call on offer.
    pub(crate) async fn call(&mut self) -> Value {
        self.client.until("tool.call").await.pop().unwrap()
    }

    pub(crate) fn frame(&self, event: &str, call: &Value, content: Value) -> Value {
        let mut frame = json!({
            "event": event, "command_id": format!("{event}-{}", self.id),
            "session_id": call["session_id"], "step_id": call["step_id"], "content": content,
        });
        frame["content"]["attempt"] = call["metadata"]["attempt"].clone();
        frame["content"]["worker_id"] = self.id.into();
        frame
    }

    pub(crate) async fn claim(&mut self, call: &Value) -> Value {
        self.ask(self.frame("user.tool_claim", call, json!({}))).await
    }

    pub(crate) async fn end(&mut self, call: &Value, content: Value) -> Value {
        self.ask(self.frame("user.tool_result", call, content)).await
    }
}

pub(crate) fn is_accepted(answer: &Value) -> bool {
    answer["metadata"]["status"] == "accepted"
}

/// Opens a session and asks for the payment.
pub(crate) async fn ask(fixture: &Fixture) -> (Client, String) {
    let mut person = fixture.client().await;
    let session = person.create(json!({})).await;
    person.ask(&session, "Pay invoice 7.").await;
    (person, session)
}

pub(crate) async fn result(person: &mut Client) -> Value {
    person.until("agent.tool_result").await.pop().unwrap()
}

pub(crate) async fn events(journal: &dyn Journal, session: &str) -> Vec<Event> {
    let session = session.parse().unwrap();
    let page = journal.read(session, 0, PageLimits::default()).await.unwrap();
    page.records.iter().map(|record| record.event().unwrap()).collect()
}

/// Everything that the model has read so far.
pub(crate) async fn history(fixture: &Fixture, session: &str) -> String {
    let state = fixture.runtime.state(session.parse().unwrap()).await.unwrap();
    serde_json::to_string(&*state.history).unwrap()
}

#[tokio::test]
async fn a_call_is_claimed_before_it_runs_and_its_result_reaches_the_model() {
    let fixture = setup(pays(), limits()).open().await;
    let mut worker = TestWorker::offering(&fixture, "w-1", json!([pay()])).await;
    let (mut person, session) = ask(&fixture).await;
    let call = worker.call().await;
    assert_eq!(call["content"], json!({ "invoice": 7 }));
    let facts = &call["metadata"];
    assert_eq!((&facts["tool"], &facts["attempt"]), (&json!("pay"), &json!(1)));
    let key = format!("{session}.{}", call["step_id"].as_str().unwrap());
    assert_eq!(facts["idempotency_key"], key);
    assert!(facts["traceparent"].as_str().unwrap().starts_with("00-"));
    assert!(is_accepted(&worker.claim(&call).await));
    let claimed = events(&*fixture.journal, &session).await;
    assert!(
        claimed
            .iter()
            .any(|it| matches!(it, Event::ToolCallClaimed { worker, .. } if worker == "w-1")),
        "the claim is durable when it is accepted"
    );
    let progress = worker.frame("user.tool_output", &call, json!({ "delta": "half of it" }));
    assert!(is_accepted(&worker.ask(progress).await));
    let answer = worker.end(&call, json!({ "result": { "receipt": 41 } })).await;
    assert!(is_accepted(&answer), "{answer}");
    let frames = person.until("agent.tool_result").await;
    assert!(
        frames.iter().any(|it| it["event"] == "agent.tool_output" && it["content"] == "half of it")
    );
    assert_eq!(frames.last().unwrap()["content"], r#"{"receipt":41}"#);
    let end = person.until("agent.final_answer").await.pop().unwrap();
    assert_eq!(end["content"], "Paid.");
}

#[tokio::test]
async fn every_mismatch_is_reported_before_a_call_is_sent_to_a_worker() {
    let script = Script::new()
        .call("pay", json!({ "invoce": "seven" }))
        .call("pay", json!({ "invoice": 7 }))
        .say("Paid.");
    let fixture = setup(script, limits()).open().await;
    let strict = json!({
        "type": "object", "properties": { "invoice": { "type": "integer" } },
        "required": ["invoice"], "additionalProperties": false,
    });
    let mut worker =
        TestWorker::offering(&fixture, "w-1", json!([pay_with("parameters", strict)])).await;
    let (mut person, _) = ask(&fixture).await;
    let refused = result(&mut person).await;
    let text = refused.to_string();
    assert_eq!(refused["metadata"]["status"], "failed");
    assert!(text.contains("invoice") && text.contains("invoce"), "{text}");
    let call = worker.call().await;
    assert_eq!(call["content"], json!({ "invoice": 7 }), "only the valid call is offered");
    worker.claim(&call).await;
    worker.end(&call, json!({ "result": 1 })).await;
    person.until("agent.final_answer").await;
}

#[tokio::test]
async fn without_a_worker_the_call_waits_and_then_names_the_missing_worker() {
    let fixture = setup(pays(), limits()).open().await;
    let tool = pay_with("wait_ms", 300);
    let worker = TestWorker::offering(&fixture, "w-1", json!([tool])).await;
    drop(worker);
    let (mut person, _) = ask(&fixture).await;
    let failed = result(&mut person).await;
    assert_eq!(failed["metadata"]["error_code"], "ERR_TOOL_021", "{failed}");
    assert!(failed["metadata"]["error"].to_string().contains("billing"), "{failed}");
}

#[tokio::test]
async fn a_waiting_call_goes_to_the_worker_that_connects() {
    let fixture = setup(pays(), limits()).open().await;
    drop(TestWorker::offering(&fixture, "w-1", json!([pay()])).await);
    let (mut person, _) = ask(&fixture).await;
    person.until("agent.tool_call").await;
    let mut worker = TestWorker::offering(&fixture, "w-2", json!([pay()])).await;
    let call = worker.call().await;
    assert!(is_accepted(&worker.claim(&call).await));
    assert!(is_accepted(&worker.end(&call, json!({ "result": 1 })).await));
    person.until("agent.final_answer").await;
}

#[tokio::test]
async fn two_workers_get_one_call_and_one_of_them_runs_it() {
    let fixture = setup(pays(), limits()).open().await;
    let mut one = TestWorker::offering(&fixture, "w-1", json!([pay()])).await;
    let mut other = TestWorker::offering(&fixture, "w-2", json!([pay()])).await;
    let (mut person, session) = ask(&fixture).await;
    // The first one to be asked does not claim in time, so the other one is asked too.
    let (first, second) = tokio::join!(one.call(), other.call());
    let answers = tokio::join!(one.claim(&first), other.claim(&second));
    let accepted = [is_accepted(&answers.0), is_accepted(&answers.1)];
    assert_eq!(accepted.iter().filter(|it| **it).count(), 1, "{answers:?}");
    let (winner, loser) = if accepted[0] { (&mut one, &mut other) } else { (&mut other, &mut one) };
    let stolen = loser.end(&first, json!({ "result": "stolen" })).await;
    assert_eq!(stolen["metadata"]["error_code"], "ERR_TOOL_023", "{stolen}");
    assert!(is_accepted(&winner.end(&first, json!({ "result": "earned" })).await));
    assert_eq!(result(&mut person).await["content"], "earned");
    let events = events(&*fixture.journal, &session).await;
    let claims = events.iter().filter(|it| matches!(it, Event::ToolCallClaimed { .. })).count();
    assert_eq!(claims, 1);
}

#[tokio::test]
async fn a_claimed_call_whose_worker_is_gone_is_in_doubt_and_never_offered_again() {
    let fixture = setup(pays(), limits()).open().await;
    let mut worker = TestWorker::offering(&fixture, "w-1", json!([pay()])).await;
    let (mut person, _) = ask(&fixture).await;
    let call = worker.call().await;
    assert!(is_accepted(&worker.claim(&call).await));
    drop(worker);
    let mut next = TestWorker::offering(&fixture, "w-2", json!([pay()])).await;
    let failed = result(&mut person).await;
    assert_eq!(failed["metadata"]["error_code"], "ERR_TOOL_022", "{failed}");
    assert!(failed["metadata"]["error"].to_string().contains("unknown"), "{failed}");
    person.until("agent.final_answer").await;
    let late = next.end(&call, json!({ "result": 1 })).await;
    assert_eq!(late["event"], "error.validation", "no call was offered to it before: {late}");
}

#[tokio::test]
async fn a_claimed_call_of_an_idempotent_tool_is_offered_again() {
    let fixture = setup(pays(), limits()).open().await;
    let tools = json!([pay_with("idempotent", true)]);
    let mut worker = TestWorker::offering(&fixture, "w-1", tools.clone()).await;
    let (mut person, _) = ask(&fixture).await;
    let first = worker.call().await;
    assert!(is_accepted(&worker.claim(&first).await));
    drop(worker);
    let mut next = TestWorker::offering(&fixture, "w-2", tools).await;
    let second = next.call().await;
    assert_eq!(second["metadata"]["attempt"], 2);
    assert_eq!(second["metadata"]["idempotency_key"], first["metadata"]["idempotency_key"]);
    assert!(is_accepted(&next.claim(&second).await));
    assert!(is_accepted(&next.end(&second, json!({ "result": "done" })).await));
    assert_eq!(result(&mut person).await["content"], "done");
}

#[tokio::test]
async fn a_worker_that_comes_back_ends_the_call_that_it_holds() {
    let fixture = setup(pays(), WorkerLimits { grace: Duration::from_secs(20), ..limits() });
    let fixture = fixture.open().await;
    let mut worker = TestWorker::offering(&fixture, "w-1", json!([pay()])).await;
    let (mut person, _) = ask(&fixture).await;
    let call = worker.call().await;
    assert!(is_accepted(&worker.claim(&call).await));
    drop(worker);
    let mut back = TestWorker::connect(&fixture, "w-1").await;
    let held =
        json!([{ "session_id": call["session_id"], "step_id": call["step_id"], "attempt": 1 }]);
    let answer = back.ask(back.offer(json!([pay()]), held)).await;
    assert!(is_accepted(&answer), "{answer}");
    let ended = back.end(&call, json!({ "result": "kept" })).await;
    assert!(is_accepted(&ended), "{ended}");
    assert_eq!(result(&mut person).await["content"], "kept");
    let again = back.end(&call, json!({ "result": "kept" })).await;
    assert!(is_accepted(&again), "a repeated command has the same answer: {again}");
}

#[tokio::test]
async fn an_open_call_survives_the_end_of_the_server() {
    let journal = memory();
    let lasting = || WorkerLimits { grace: Duration::from_secs(20), ..limits() };
    let fixture = setup(pays(), lasting()).on(&journal).open().await;
    let mut worker = TestWorker::offering(&fixture, "w-1", json!([pay()])).await;
    let (person, session) = ask(&fixture).await;
    let call = worker.call().await;
    assert!(is_accepted(&worker.claim(&call).await));
    drop(person);
    fixture.stop().await;
    let script = Script::new().say("Paid.");
    let fixture = setup(script, lasting()).on(&journal).open().await;
    let mut back = TestWorker::connect(&fixture, "w-1").await;
    let held = json!([{ "session_id": session, "step_id": call["step_id"], "attempt": 1 }]);
    assert!(is_accepted(&back.ask(back.offer(json!([pay()]), held)).await));
    let ended = back.end(&call, json!({ "result": "across" })).await;
    assert!(is_accepted(&ended), "{ended}");
    let mut person = fixture.client().await;
    person.reconnect(&session, 0).await;
    let frames = person.until("agent.final_answer").await;
    let result = frames.iter().find(|it| it["event"] == "agent.tool_result").unwrap();
    assert_eq!(result["content"], "across");
    let starts = frames.iter().filter(|it| it["event"] == "agent.tool_call").count();
    assert_eq!(starts, 1, "the call was never offered again");
}

#[tokio::test]
async fn a_worker_that_died_after_its_server_is_awaited_for_the_grace_only() {
    let journal = memory();
    let awaiting = |grace| WorkerLimits { grace: Duration::from_secs(grace), ..limits() };
    let fixture = setup(pays(), awaiting(20)).on(&journal).open().await;
    let mut worker = TestWorker::offering(&fixture, "w-1", json!([pay()])).await;
    let (person, session) = ask(&fixture).await;
    let call = worker.call().await;
    assert!(is_accepted(&worker.claim(&call).await));
    // The note of the first server says that the process is connected to it, and outlives both.
    fixture.exchange_workers("first", &["second"]).await;
    fixture.stop().await;
    drop((person, worker));
    let fixture = setup(Script::new().say("Paid."), awaiting(1)).on(&journal).open().await;
    fixture.has_open_call().await;
    fixture.exchange_workers("second", &["first"]).await;
    fixture.exchange_workers("second", &[]).await;
    let mut person = fixture.client().await;
    person.reconnect(&session, 0).await;
    let failed = result(&mut person).await;
    assert_eq!(failed["metadata"]["error_code"], "ERR_TOOL_022", "{failed}");
}

#[tokio::test]
async fn an_unclaimed_call_is_offered_by_the_next_server() {
    let journal = memory();
    let fixture = setup(pays(), limits()).on(&journal).open().await;
    let mut worker = TestWorker::offering(&fixture, "w-1", json!([pay()])).await;
    let (person, session) = ask(&fixture).await;
    worker.call().await;
    drop((person, worker));
    fixture.stop().await;
    let fixture = setup(Script::new().say("Paid."), limits()).on(&journal).open().await;
    let mut worker = TestWorker::offering(&fixture, "w-2", json!([pay()])).await;
    let call = worker.call().await;
    assert_eq!(call["metadata"]["attempt"], 1, "it never began");
    assert!(is_accepted(&worker.claim(&call).await));
    assert!(is_accepted(&worker.end(&call, json!({ "result": "later" })).await));
    let mut person = fixture.client().await;
    person.reconnect(&session, 0).await;
    person.until("agent.final_answer").await;
}

#[tokio::test]
async fn a_cancel_reaches_the_function() {
    let fixture = setup(pays(), limits()).open().await;
    let mut worker = TestWorker::offering(&fixture, "w-1", json!([pay()])).await;
    let (mut person, session) = ask(&fixture).await;
    let call = worker.call().await;
    assert!(is_accepted(&worker.claim(&call).await));
    person.send(json!({ "event": "user.cancel", "session_id": session })).await;
    let cancel = worker.client.until("tool.cancel").await.pop().unwrap();
    assert_eq!(cancel["metadata"]["reason"], "cancelled");
    let stopped = json!({ "error": { "message": "Stopped.", "progress": "not_begun" } });
    assert!(is_accepted(&worker.end(&call, stopped).await));
    person.until("agent.interrupted").await;
}

#[tokio::test]
async fn an_error_reaches_the_model_as_its_author_intends() {
    let script = Script::new()
        .call("pay", json!({ "invoice": 7 }))
        .call("pay", json!({ "invoice": 8 }))
        .say("It failed.");
    let fixture = setup(script, limits()).open().await;
    let mut worker = TestWorker::offering(&fixture, "w-1", json!([pay()])).await;
    let (mut person, session) = ask(&fixture).await;
    let call = worker.call().await;
    worker.claim(&call).await;
    let error = json!({ "message": "There is no invoice 7.", "advice": ["Invoices are: 8."] });
    worker.end(&call, json!({ "error": error })).await;
    result(&mut person).await;
    let call = worker.call().await;
    let told = history(&fixture, &session).await;
    assert!(told.contains("There is no invoice 7.") && told.contains("Invoices are: 8."), "{told}");
    let mut claim = worker.frame("user.tool_claim", &call, json!({}));
    claim["command_id"] = "claim-2".into();
    assert!(is_accepted(&worker.ask(claim).await));
    let detail = "Traceback: /srv/app/pay.py line 3, password=hunter2secret";
    let mut end = worker.frame("user.tool_result", &call, json!({ "error": { "detail": detail } }));
    end["command_id"] = "end-2".into();
    assert!(is_accepted(&worker.ask(end).await));
    let told = result(&mut person).await;
    assert_eq!(told["metadata"]["status"], "failed");
    person.until("agent.final_answer").await;
    let rendered = told.to_string() + &history(&fixture, &session).await;
    assert!(!rendered.contains("Traceback") && !rendered.contains("/srv/app"), "{rendered}");
}

#[tokio::test]
async fn a_changed_tool_needs_a_decision_again() {
    let script = Script::new()
        .call("pay", json!({ "invoice": 7 }))
        .say("Paid.")
        .call("pay", json!({ "invoice": 8 }))
        .say("Paid again.");
    let fixture = setup(script, limits()).open().await;
    let mut worker = TestWorker::offering(&fixture, "w-1", json!([pay()])).await;
    let (mut person, session) = ask(&fixture).await;
    let call = worker.call().await;
    worker.claim(&call).await;
    worker.end(&call, json!({ "result": 1 })).await;
    person.until("agent.final_answer").await;
    let other = pay_with("description", "Pays an invoice and deletes it.");
    let mut second = TestWorker::offering(&fixture, "w-2", json!([other])).await;
    person.ask(&session, "And invoice 8.").await;
    let question = person.until("agent.user_confirm").await.pop().unwrap();
    assert!(question.to_string().contains("changed the tool"), "{question}");
    let answer = json!({
        "event": "user.response", "session_id": session, "step_id": question["step_id"],
        "content": { "confirmed": true },
    });
    person.send(answer).await;
    let call = second.call().await;
    assert!(is_accepted(&second.claim(&call).await));
    assert!(is_accepted(&second.end(&call, json!({ "result": 1 })).await));
    person.until("agent.final_answer").await;
}

#[tokio::test]
async fn offers_that_shadow_bloat_or_lack_the_right_are_refused_with_the_field() {
    let tokens = "ann-token acme ann\nbot-token acme bot tools:offer=pay*\n\
                  rob-token acme rob tools:offer=*\n";
    let mut auth = Auth::default();
    auth.add_tokens(tokens).unwrap();
    let small = WorkerLimits { worker_tools: 2, tools: 2, ..limits() };
    let fixture = setup(pays(), small).with(|config| config.auth = auth).open().await;
    let connect = async |token: &str| {
        let bearer = format!("Bearer {token}");
        Client::connect(fixture.address, &[("authorization", bearer.as_str())]).await.unwrap()
    };
    let offer = |worker: &str, tools: Value| {
        json!({
            "event": "user.offer_tools",
            "content": { "worker": worker, "worker_id": worker, "tools": tools },
        })
    };
    let named = |name: &str| {
        let mut tool = pay();
        tool["name"] = name.into();
        tool
    };
    let (mut ann, mut bot, mut rob) =
        (connect("ann-token").await, connect("bot-token").await, connect("rob-token").await);
    ann.send(offer("a", json!([pay()]))).await;
    let no_right = ann.next().await;
    assert_eq!(no_right["metadata"]["status"], "rejected", "{no_right}");
    assert!(no_right.to_string().contains("tools:offer"), "{no_right}");
    bot.send(offer("b", json!([pay()]))).await;
    assert!(is_accepted(&bot.next().await));
    let bomb = json!({ "type": "object", "description": "x".repeat(70_000) });
    let deep: Value = (0..50).fold(json!({}), |inner, _| json!({ "anyOf": [inner] }));
    for (tools, field) in [
        (json!([named("other")]), "content.tools[0].name"),
        (json!([pay(), pay()]), "content.tools[1].name"),
        (json!([pay_with("deadline_ms", 1_u64 << 40)]), "content.tools[0].deadline_ms"),
        (
            json!([pay_with("parameters", json!({ "type": "string" }))]),
            "content.tools[0].parameters",
        ),
        (json!([pay_with("parameters", bomb)]), "content.tools[0].parameters"),
        (json!([pay_with("read_only", 1)]), "content.tools[0].read_only"),
        (json!([named("pay_1"), named("pay_2"), named("pay_3")]), ""),
    ] {
        bot.send(offer("b", tools)).await;
        let refused = bot.next().await;
        assert_eq!(refused["metadata"]["status"], "rejected", "{refused}");
        if !field.is_empty() {
            assert_eq!(refused["metadata"]["field"], field, "{refused}");
        }
    }
    bot.send(offer("b", json!([pay_with("parameters", deep)]))).await;
    bot.next().await;
    for name in ["pay", "echo"] {
        rob.send(offer("r", json!([named(name)]))).await;
        let refused = rob.next().await;
        assert_eq!(refused["metadata"]["field"], "content.tools[0].name", "{refused}");
    }
    // An ordinary token offers to its own session.
    let session = ann.create(json!({})).await;
    let mut own = offer("a", json!([named("mine")]));
    own["session_id"] = session.as_str().into();
    ann.send(own.clone()).await;
    let frames = ann.until("system.notice").await;
    assert!(frames.iter().any(|it| it["metadata"]["action"] == "offer_tools"
        || it["metadata"]["action"] == "settings_changed"));
    rob.send(own).await;
    let foreign = rob.next().await;
    assert_eq!(foreign["metadata"]["error_code"], "ERR_SESS_001", "{foreign}");
}

#[tokio::test]
async fn a_hostile_worker_is_bounded_and_gets_the_reason_of_each_refusal() {
    let fixture = setup(pays(), limits()).open().await;
    let mut worker = TestWorker::offering(&fixture, "w-1", json!([pay()])).await;
    let mut thief = TestWorker::offering(&fixture, "w-9", json!([])).await;
    let (mut person, session) = ask(&fixture).await;
    let call = worker.call().await;
    // It may not claim or end what was not offered to it, under its own name or another's.
    let refused = thief.claim(&call).await;
    assert_eq!(refused["metadata"]["error_code"], "ERR_TOOL_023", "{refused}");
    let mut forged = thief.frame("user.tool_claim", &call, json!({}));
    forged["content"]["worker_id"] = "w-1".into();
    let refused = thief.ask(forged).await;
    assert_eq!(refused["metadata"]["field"], "content.worker_id", "{refused}");
    let early = worker.end(&call, json!({ "result": 1 })).await;
    assert_eq!(early["metadata"]["error_code"], "ERR_TOOL_023", "it was not claimed: {early}");
    assert!(is_accepted(&worker.claim(&call).await));
    let refused = thief.end(&call, json!({ "result": "stolen" })).await;
    assert_eq!(refused["metadata"]["error_code"], "ERR_TOOL_023", "{refused}");
    // A flood of progress is bounded by the rate of commands; dropped frames harm no client.
    for number in 0..400 {
        let mut frame =
            worker.frame("user.tool_output", &call, json!({ "delta": "x".repeat(1024) }));
        frame["command_id"] = format!("flood-{number}").into();
        worker.client.send(frame).await;
    }
    let mut limited = 0;
    for _ in 0..400 {
        limited += usize::from(!is_accepted(&worker.client.next().await));
    }
    assert!(limited > 0, "the flood was told that it is too fast");
    let mut huge =
        worker.frame("user.tool_result", &call, json!({ "result": "x".repeat(2_000_000) }));
    huge["command_id"] = "huge".into();
    let refused = worker.ask(huge).await;
    assert_eq!(refused["metadata"]["limit_name"], "frame_bytes", "{refused}");
    let mut end = worker.frame("user.tool_result", &call, json!({ "result": "x".repeat(200_000) }));
    end["command_id"] = "end".into();
    assert!(is_accepted(&worker.ask(end.clone()).await));
    // The rate may still be exceeded; the refusal says when to come again.
    let mut twice = json!({});
    for number in 0..1_000 {
        end["command_id"] = format!("end-again-{number}").into();
        twice = worker.ask(end.clone()).await;
        if twice["metadata"]["error_code"] != "ERR_RES_004" {
            break;
        }
        assert!(twice["metadata"]["retry_after_ms"].as_u64().unwrap() > 0, "{twice}");
    }
    assert_eq!(twice["metadata"]["error_code"], "ERR_TOOL_023", "{twice}");
    let shown = result(&mut person).await;
    assert!(shown["content"].as_str().unwrap().len() < 100_000, "the output is bounded");
    person.until("agent.final_answer").await;
    let output: usize = events(&*fixture.journal, &session)
        .await
        .iter()
        .map(|it| if let Event::ToolOutputDelta { text, .. } = it { text.len() } else { 0 })
        .sum();
    assert!(output <= 64 * 1024, "{output} bytes of progress were recorded");
}

#[tokio::test]
async fn a_call_that_is_claimed_and_never_ended_ends_at_its_deadline_in_doubt() {
    let fixture = setup(pays(), limits()).open().await;
    let mut worker =
        TestWorker::offering(&fixture, "w-1", json!([pay_with("deadline_ms", 200)])).await;
    let (mut person, _) = ask(&fixture).await;
    let call = worker.call().await;
    assert!(is_accepted(&worker.claim(&call).await));
    let cancel = worker.client.until("tool.cancel").await.pop().unwrap();
    assert_eq!(cancel["metadata"]["reason"], "deadline");
    let failed = result(&mut person).await;
    assert_eq!(failed["metadata"]["error_code"], "ERR_TIMEOUT_002", "{failed}");
    let late = worker.end(&call, json!({ "result": 1 })).await;
    assert_eq!(late["metadata"]["error_code"], "ERR_TOOL_023", "{late}");
}
