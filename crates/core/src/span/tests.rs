use super::*;
use crate::{
    event::{CallStart, Scope},
    fault::Operation,
    message::{Block, ModelStop, ToolUse},
    tool::{Outcome, Output},
};

const SESSION: SessionId = SessionId(uuid::Uuid::from_u128(7));

fn at(millis: i64) -> Timestamp {
    Timestamp::from_micros(millis * 1_000)
}

fn trace() -> Trace {
    Trace::from_random(5)
}

fn step(attempt: u32) -> Event {
    Event::StepStarted { step: 1, attempt, model: "m".to_owned() }
}

fn retry(call: Option<&CallId>) -> Event {
    Event::RetryScheduled {
        operation: Operation::ModelRequest,
        kind: Kind::ModelOverloaded,
        attempt: 1,
        next_attempt: 2,
        max_attempts: 3,
        wait_ms: 10,
        due_at: at(0),
        scope: Scope { call: call.cloned(), step: Some(1), ..Scope::default() },
    }
}

fn started(call: &CallId, attempt: u32) -> Event {
    Event::ToolCallStarted(CallStart {
        call: call.clone(),
        tool: "look".to_owned(),
        arguments: serde_json::json!({}),
        repairs: Vec::new(),
        attempt,
        idempotent: true,
        reconcile: false,
    })
}

fn call_ended(call: &CallId, outcome: Outcome) -> Event {
    Event::ToolCallEnded { call: call.clone(), tool: "look".to_owned(), outcome, duration_ms: 4 }
}

fn answered() -> Event {
    let usage = Usage { input_tokens: 3, output_tokens: 4, ..Usage::default() };
    Event::ModelAnswered {
        step: 1,
        content: Vec::new(),
        stop: ModelStop::EndTurn,
        usage,
        response: None,
    }
}

fn ended(fault: Option<Fault>) -> Event {
    let usage = Usage::default();
    Event::TurnEnded { stop: StopReason::EndTurn, fault, steps: 1, usage }
}

fn woven(events: &[(i64, Event)]) -> Vec<Span> {
    let mut weaver = SpanBuilder::new(SESSION, &Session::default());
    events.iter().flat_map(|(when, event)| weaver.take(at(*when), trace(), 1, event)).collect()
}

#[test]
fn every_try_is_a_span_below_its_turn_and_the_turn_below_its_request() {
    let call = CallId::from("c");
    let spans = woven(&[
        (0, Event::TurnStarted { message: "m1".into() }),
        (1, step(1)),
        (5, retry(None)),
        (9, step(2)),
        (12, answered()),
        (13, started(&call, 1)),
        (20, retry(Some(&call))),
        (30, started(&call, 2)),
        (
            34,
            call_ended(
                &call,
                Outcome::Done(Output { data: serde_json::json!(1), note: None, cut: None }),
            ),
        ),
        (40, ended(None)),
    ]);
    let turn = SpanId::of_turn(SESSION, 1);
    let told: Vec<_> = spans
        .iter()
        .map(|span| {
            let took = span.ended.since(span.began).as_millis();
            (span.id, span.parent, took, span.failed.as_deref())
        })
        .collect();
    let overloaded = Some(Kind::ModelOverloaded.row().code);
    let request = SpanId::of_request(SESSION, &"m1".into());
    assert_eq!(
        told,
        [
            (SpanId::of_step(SESSION, 1, 1, 1), turn, 4, overloaded),
            (SpanId::of_step(SESSION, 1, 1, 2), turn, 3, None),
            (SpanId::of_call(SESSION, 1, &call, 1), turn, 7, overloaded),
            (SpanId::of_call(SESSION, 1, &call, 2), turn, 4, None),
            (turn, request, 40, None),
        ]
    );
    assert!(spans.iter().all(|span| span.trace == trace()));
}

/// Goal: viewers that add up tokens find those of a summary of old history.
/// Method: a model writes one summary, and another one is cut by rule.
#[test]
fn a_summary_that_a_model_wrote_has_its_tokens() {
    let usage = Usage { input_tokens: 30, output_tokens: 4, ..Usage::default() };
    let compacted = |by_model| {
        Event::HistoryCompacted(Compaction {
            messages: 2,
            summary: "much".into(),
            by_model,
            tokens_before: 100,
            tokens_after: 10,
            usage,
        })
    };
    let asked = |by_model| {
        let begun = Event::CompactionStarted { step: 1, tokens: 100 };
        let spans = woven(&[
            (0, Event::TurnStarted { message: "m1".into() }),
            (1, step(1)),
            (2, begun),
            (5, compacted(by_model)),
        ]);
        (spans[0].ended.since(spans[0].began).as_millis(), spans[0].about.clone())
    };
    let written = SpanOperation::Compaction { by_model: Some(("m".to_owned(), usage)) };
    assert_eq!(asked(true), (3, written));
    assert_eq!(asked(false), (3, SpanOperation::Compaction { by_model: None }));
}

/// Goal: the span of a request says how long its answer may be and whether it is JSON, by the settings of its time.
/// Method: the settings change between two requests.
#[test]
fn a_request_has_the_bounds_of_the_settings_of_its_time() {
    let schema = std::sync::Arc::new(serde_json::json!({"type": "object"}));
    let settings = Settings {
        max_answer_tokens: Some(100),
        answer_schema: Some(schema),
        ..Settings::default()
    };
    let spans = woven(&[
        (0, Event::TurnStarted { message: "m1".into() }),
        (1, step(1)),
        (2, Event::SettingsChanged { settings }),
        (3, answered()),
        (4, step(1)),
        (5, answered()),
    ]);
    let bounds = spans.iter().map(|span| match span.about {
        SpanOperation::Model { max_tokens, has_shape, .. } => (max_tokens, has_shape),
        _ => panic!("{span:?}"),
    });
    assert_eq!(bounds.collect::<Vec<_>>(), [(Some(8_192), false), (Some(100), true)]);
}

#[test]
fn a_call_that_never_ran_has_a_span_too() {
    let call = CallId::from("c");
    let fault = Fault::new(Kind::UnknownTool, Operation::ToolCall);
    let spans = woven(&[
        (0, Event::TurnStarted { message: "m1".into() }),
        (9, call_ended(&call, fault.into())),
    ]);
    assert_eq!(spans[0].failed.as_deref(), Some(Kind::UnknownTool.row().code));
}

#[test]
fn a_refused_call_has_its_arguments_if_content_is_wanted() {
    let call = CallId::from("c");
    let content = vec![Block::ToolUse(ToolUse {
        id: call.clone(),
        name: "look".to_owned(),
        arguments: r#"{"at":"the moon"}"#.to_owned(),
    })];
    let answered = Event::ModelAnswered {
        step: 1,
        content,
        stop: ModelStop::ToolUse,
        usage: Usage::default(),
        response: None,
    };
    let fault = Fault::new(Kind::UnknownTool, Operation::ToolCall);
    let refused = |has_content| {
        let mut weaver = SpanBuilder::new(SESSION, &Session::default()).with_content(has_content);
        let events = [
            Event::TurnStarted { message: "m1".into() },
            step(1),
            answered.clone(),
            call_ended(&call, fault.clone().into()),
        ];
        let spans = events.iter().flat_map(|event| weaver.take(at(1), trace(), 1, event));
        spans.last().unwrap().about
    };
    let SpanOperation::Call { content: Some(content), .. } = refused(true) else {
        panic!("no content")
    };
    assert_eq!(content.input, r#"{"at":"the moon"}"#);
    assert_eq!(content.output, r#"{"error":"ERR_TOOL_001"}"#);
    assert!(matches!(refused(false), SpanOperation::Call { content: None, .. }));
}

#[test]
fn open_work_ends_with_its_turn() {
    let call = CallId::from("c");
    let fault = Fault::new(Kind::LimitReached, Operation::RunTurn);
    let spans = woven(&[
        (0, Event::TurnStarted { message: "m1".into() }),
        (1, step(1)),
        (2, started(&call, 1)),
        (9, ended(Some(fault))),
    ]);
    let code = Some(Kind::LimitReached.row().code);
    assert_eq!(spans.len(), 3);
    assert!(spans.iter().all(|span| span.failed.as_deref() == code), "{spans:?}");
}

#[test]
fn a_turn_that_another_process_finishes_is_one_span_from_its_start() {
    let mut session = Session::default();
    let mut before = SpanBuilder::new(SESSION, &session);
    let accepted = Event::MessageAccepted { command: "m1".into(), content: Vec::new() };
    session.apply(&accepted, at(0), trace());
    let begun = Event::TurnStarted { message: "m1".into() };
    session.apply(&begun, at(1), trace());
    assert!(before.take(at(1), trace(), 1, &begun).is_empty());
    drop(before);
    let mut after = SpanBuilder::new(SESSION, &session);
    let spans = after.take(at(900), trace(), 1, &ended(None));
    assert_eq!(spans.len(), 1);
    assert_eq!(spans[0].began, at(1));
    assert_eq!(spans[0].id, SpanId::of_turn(SESSION, 1));
}
