//! The three channels for embedders: every failing path has its events, in one order, on replay as live.

use std::sync::Arc;

use budao_core::{
    Kind,
    event::Decision,
    limits::Limits,
    tool::{Mode, Permissions},
};
use budao_journal::Retention;
use budao_models::script::{Script, ScriptStep};
use budao_runtime::{
    Agent, AgentBuilderExt as _, Question, QuestionReply, Session,
    channel::{Channel, ChannelEvent, Envelope},
};
use budao_testkit::world;
use budao_tools::{RawTool, pool::Pool};
use futures::StreamExt;
use serde_json::{Value, json};

const ALL: [Channel; 3] = [Channel::Progress, Channel::Control, Channel::Monitor];

fn tools() -> Vec<RawTool> {
    let schema = json!({
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    });
    let object = json!({"type": "object"});
    vec![
        RawTool::new("echo", "Says it back.", schema, |arguments, _| async move {
            Ok(arguments["text"].clone())
        }),
        RawTool::new("no", "Says no.", object.clone(), |_, _| async move {
            Ok(json!({"ok": false, "error": "not today"}))
        }),
        RawTool::new("panics", "Panics.", object, |_, _| async move { panic!("a bug") }),
    ]
}

async fn session(script: Script, mode: Mode) -> Session {
    session_with(script, mode, Limits::default()).await
}

async fn session_with(script: Script, mode: Mode, limits: Limits) -> Session {
    let world = world::seeded(3);
    let model = script.into_model(Arc::clone(&world.clock));
    let permissions = Permissions { mode, deny: vec!["denied".into()], ..Permissions::default() };
    let mut agent = Agent::builder(model)
        .world(world)
        .limits(limits)
        .pool(Arc::new(Pool::tasks()))
        .permissions(permissions);
    for tool in tools() {
        agent = agent.tool(tool);
    }
    agent.build().unwrap().session().await.unwrap()
}

async fn events(session: &Session, since: u64) -> Vec<Envelope> {
    let mut stream = Box::pin(session.events(&ALL, since).await.unwrap());
    let mut all = Vec::new();
    while let Some(event) = stream.next().await {
        let event = event.unwrap();
        let done = matches!(event.event, ChannelEvent::StateChanged { state: "READY" });
        all.push(event);
        if done {
            return all;
        }
    }
    all
}

fn types(events: &[Envelope]) -> Vec<String> {
    let of = |event: &Envelope| serde_json::to_value(&event.event).unwrap()["type"].clone();
    events.iter().filter_map(|event| of(event).as_str().map(str::to_owned)).collect()
}

#[tokio::test(start_paused = true)]
async fn every_failing_call_is_sent_on_progress_and_monitor() {
    // Goal: whatever the path (unknown, invalid, malformed, said no, panicked), four events come.
    let step = ScriptStep::new()
        .call("nobody", &json!({}))
        .call("echo", &json!({"txt": 1}))
        .call_raw(None, "echo", r#"{"text": "#)
        .call("no", &json!({}))
        .call("panics", &json!({}));
    let session = session(Script::new().step(step).say("so be it"), Mode::Auto).await;
    session.run("go").await.unwrap();
    let events = events(&session, 0).await;
    let count = |wanted: &str| types(&events).iter().filter(|name| *name == wanted).count();
    assert_eq!(count("tool:error"), 5);
    assert_eq!(count("error"), 5);
    assert_eq!(count("tool:end"), 5);
    assert_eq!(count("tool_executed"), 5);
    for envelope in &events {
        if let ChannelEvent::Error { detail, .. } = &envelope.event {
            for field in
                ["errorType", "retryable", "recommendations", "modelAdvice", "code", "traceId"]
            {
                assert_ne!(detail[field], Value::Null, "{field} in {detail}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_goes_on_where_it_was_made() {
    let session = session(Script::new().say("one").say("two"), Mode::Auto).await;
    session.run("1").await.unwrap();
    let first = events(&session, 0).await;
    let bookmark = first.last().unwrap().bookmark;
    session.run("2").await.unwrap();
    let second = events(&session, bookmark.seq).await;
    assert!(second.iter().all(|event| event.bookmark.seq > bookmark.seq));
    let order: Vec<_> = first.iter().chain(&second).map(|event| event.bookmark.seq).collect();
    assert!(order.is_sorted(), "one order over all channels: {order:?}");
}

#[tokio::test(start_paused = true)]
async fn the_events_of_a_turn_on_each_channel() {
    let script = Script::new().call("echo", json!({"text": "hi"})).say("it said hi");
    let session = session(script, Mode::Approval).await;
    let paused = session.run("go").await.unwrap();
    session.decide(&paused.pending[0], QuestionReply::allow().note("fine")).await.unwrap();
    let mut done = Box::pin(
        session
            .select(0, |event| match event {
                ChannelEvent::Done { reason, .. } => Some(reason),
                _ => None,
            })
            .await
            .unwrap(),
    );
    assert_eq!(done.next().await.unwrap().unwrap(), "completed");
    let mut told = Vec::new();
    for envelope in events(&session, 0).await {
        let mut value = serde_json::to_value(&envelope).unwrap();
        value["bookmark"] = value["bookmark"]["seq"].take();
        told.push(value.to_string());
    }
    insta::assert_snapshot!(told.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn a_panicking_listener_changes_nothing() {
    let session = session(Script::new().say("one").say("two"), Mode::Auto).await;
    let heard =
        session.listen(&ALL, 0, |_| async move { panic!("a listener's bug") }).await.unwrap();
    assert!(session.run("1").await.unwrap().is_ok());
    assert!(session.run("2").await.unwrap().is_ok());
    drop(heard);
}

#[tokio::test(start_paused = true)]
async fn the_whole_history_and_every_call_can_be_read_back() {
    let script = Script::new().call("no", json!({})).say("understood").fail(Kind::ModelBadRequest);
    let session = session(script, Mode::Auto).await;
    session.run("go").await.unwrap();
    let messages = session.messages().await.unwrap();
    assert_eq!(messages.len(), 4, "{messages:?}");
    let calls = session.calls().await.unwrap();
    assert_eq!((calls[0].state, calls[0].is_error), ("FAILED", true));
    let states: Vec<_> = calls[0].audit_trail.iter().map(|audit| audit.state).collect();
    assert_eq!(states, ["PENDING", "EXECUTING", "FAILED"]);
    let fork = session.fork(None).await.unwrap();
    assert_eq!(fork.messages().await.unwrap(), messages);
}

/// A session of a few turns whose beginning retention has removed, and its last bookmark.
async fn worn() -> (Session, u64) {
    let mut script = Script::new();
    for _ in 0..5 {
        script = script.call("echo", json!({"text": "hi"})).say("it said hi");
    }
    let limits = Limits { snapshot_records: 5, ..Limits::default() };
    let session = session_with(script, Mode::Auto, limits).await;
    for _ in 0..4 {
        assert!(session.run("go").await.unwrap().is_ok());
    }
    let retention = Retention { records: Some(1), ..Retention::default() };
    let retained = session.journal().retain(retention).await.unwrap();
    assert!(retained.records > 5, "{retained:?}");
    let head = session.state().await.unwrap().head;
    (session, head)
}

#[tokio::test(start_paused = true)]
async fn a_reader_needs_nothing_from_before_its_bookmark() {
    let (session, head) = worn().await;
    let message = session.send("once more").await.unwrap();
    let result = session.wait(&message).await.unwrap();
    assert!(result.is_ok(), "{result:?}");
    let events = events(&session, head).await;
    let names = types(&events);
    for wanted in ["tool:start", "tool:end", "tool_executed", "done"] {
        assert_eq!(names.iter().filter(|name| *name == wanted).count(), 1, "{wanted} in {names:?}");
    }
    assert!(events.iter().all(|event| event.bookmark.seq > head));
    assert!(session.messages().await.unwrap().len() > 4, "what is left of the conversation");
    assert!(!session.calls().await.unwrap().is_empty());
    let fault = session.fork(None).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::HistoryGap, "half a history is not forked as a whole one");
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_in_the_middle_of_a_turn_shows_whole_calls() {
    let script = Script::new().call("echo", json!({"text": "hi"})).say("it said hi");
    let session = session(script, Mode::Auto).await;
    session.run("go").await.unwrap();
    let all = events(&session, 0).await;
    let start = all.iter().find(|event| matches!(event.event, ChannelEvent::ToolStart { .. }));
    let since = start.unwrap().bookmark.seq;
    let rest = events(&session, since).await;
    let same: Vec<_> = all.into_iter().filter(|event| event.bookmark.seq > since).collect();
    assert_eq!(rest, same, "the same events, with the same audit trails");
}

#[tokio::test(start_paused = true)]
async fn a_listener_behind_retention_gets_a_gap_and_then_the_rest() {
    let (session, _) = worn().await;
    let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let listening = session
        .listen(&[Channel::Progress], 1, move |envelope| {
            drop(sender.send(envelope.event));
            async {}
        })
        .await
        .unwrap();
    let first = heard.recv().await.unwrap();
    let ChannelEvent::Error { detail, .. } = first else { panic!("{first:?}") };
    assert_eq!(detail["kind"], "history_gap");
    loop {
        if let ChannelEvent::Done { reason, .. } = heard.recv().await.unwrap() {
            assert_eq!(reason, "completed");
            break;
        }
    }
    drop(listening);
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_for_exactly_what_was_shown() {
    let script = Script::new().call("echo", json!({"text": "hi"})).say("done");
    let session = session(script, Mode::Approval).await;
    let paused = session.run("go").await.unwrap();
    let shown = &paused.pending[0];
    assert_eq!((shown.tool.as_str(), &shown.arguments), ("echo", &json!({"text": "hi"})));
    assert_eq!(session.question(&shown.id).await.unwrap().as_ref(), Some(shown));
    let other = Question { digest: "of something else".into(), ..shown.clone() };
    let fault = session.decide(&other, Decision::Allow).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::QuestionNotOpen);
    let edited = QuestionReply::allow().arguments(json!({"text": "hello"}));
    session.decide(shown, edited).await.unwrap();
    events(&session, 0).await;
    let calls = session.calls().await.unwrap();
    assert_eq!(calls[0].result, Some(json!("hello")), "it ran with what the person wrote");
}

#[tokio::test(start_paused = true)]
async fn a_pipeline_is_reported_stage_by_stage() {
    let script = Script::new().say("the height is 8848 m").fail(Kind::ModelBadRequest).forever();
    let session = session(script, Mode::Auto).await;
    let result = session.solve("how high?", json!(["look it up"])).await.unwrap();
    assert!(!result.is_ok());
    let events = events(&session, 0).await;
    let stages: Vec<String> = events
        .iter()
        .filter_map(|event| match &event.event {
            ChannelEvent::StageStart { stage, .. } => Some(format!("{stage} starts")),
            ChannelEvent::StageEnd { stage, state, .. } => Some(format!("{stage} {state}")),
            _ => None,
        })
        .collect();
    let expected =
        ["solving starts", "solving COMPLETED", "aggregation starts", "aggregation FAILED"];
    assert_eq!(stages, expected);
    let placed = events.iter().any(|event| match &event.event {
        ChannelEvent::Error { detail, .. } => detail["stage"] == "aggregation",
        _ => false,
    });
    assert!(placed, "an error says in which stage it happened");
}

#[tokio::test(start_paused = true)]
async fn a_program_retries_a_failed_turn_on_its_session() {
    let script = Script::new().fail(Kind::ModelAuthentication).say("Done after all.");
    let session = session(script, Mode::Auto).await;
    assert!(session.run("go").await.unwrap().fault.is_some());
    assert_eq!(session.retry().await.unwrap().text, "Done after all.");
    assert_eq!(session.retry().await.unwrap_err().kind(), Kind::ConstraintViolated);
}
