//! Every frame, in both languages, from one history; and what holds for all of them.

use std::time::Duration;

use budao_core::{
    Fault, Kind, Lang, Record, Timestamp,
    event::{Event, Scope},
    fallback::ModelChangeReason,
    fault::{Fact, Operation},
    gate::HoldReason,
    session::Session,
    trace::Trace,
};
use budao_serve::{frame::Frame, project::Projector};
use serde_json::Value;

use crate::frames_history::{EPOCH, SESSION, START, child, history};

pub(crate) fn project(records: &[Record]) -> Vec<Frame> {
    let mut projector = Projector::new(&Session::default(), 0);
    records.iter().filter_map(|record| projector.project(record)).collect()
}

/// The frame as a client reads it.
pub(crate) fn read(frame: &Frame) -> Value {
    serde_json::from_str(&frame.encode()).unwrap()
}

fn lines(frames: &[Frame]) -> String {
    frames.iter().map(|frame| frame.encode() + "\n").collect()
}

#[test]
fn every_frame_in_english() {
    insta::assert_snapshot!("frames_en", lines(&project(&history(Lang::En))));
}

#[test]
fn every_frame_in_chinese() {
    insta::assert_snapshot!("frames_zh", lines(&project(&history(Lang::Zh))));
}

#[test]
fn a_childs_frames_name_its_stage_and_its_task() {
    for frame in project(&child(Lang::En)) {
        let frame = read(&frame);
        assert_eq!(frame["metadata"]["stage"], "solving", "{frame}");
        assert_eq!(frame["metadata"]["task_id"], "1", "{frame}");
    }
}

#[test]
fn every_frame_has_its_place_and_the_chain_is_unbroken() {
    let mut last = 0;
    for frame in project(&history(Lang::En)) {
        let position = frame.position().unwrap();
        assert_eq!(position.prev, last, "{}", frame.name());
        assert!(position.seq > position.prev);
        let parsed = read(&frame);
        let id = format!("{}.{}.{}", frame.session().unwrap(), position.epoch, position.seq);
        assert_eq!(parsed["event_id"], id.as_str());
        assert!(parsed["timestamp"].as_str().unwrap().ends_with('Z'));
        last = position.seq;
    }
}

#[test]
fn projecting_from_any_cursor_gives_the_same_frames() {
    // Method: fold up to every position, project the rest, and compare with what the whole gave.
    let records = history(Lang::Zh);
    let whole = project(&records);
    let mut state = Session::default();
    for cursor in 0..=records.len() {
        let mut projector = Projector::new(&state, cursor as u64);
        let rest: Vec<Frame> =
            records[cursor..].iter().filter_map(|record| projector.project(record)).collect();
        let expected = &whole[whole.len() - rest.len()..];
        assert!(expected.iter().all(|frame| frame.position().unwrap().seq > cursor as u64));
        for (index, (frame, expected)) in rest.iter().zip(expected).enumerate() {
            let (mut frame, mut expected) = (read(frame), read(expected));
            if index == 0 {
                assert_eq!(frame["prev"], cursor as u64);
                (frame["prev"], expected["prev"]) = (Value::Null, Value::Null);
            }
            assert_eq!(frame, expected, "from {cursor}");
        }
        if let Some(record) = records.get(cursor) {
            state.apply_record(record);
        }
    }
}

#[test]
fn an_unrecovered_fault_becomes_three_frames_in_order() {
    let frames = project(&history(Lang::En));
    let names: Vec<&str> = frames.iter().map(Frame::name).collect();
    let three = ["error.recovery_failed", "agent.error", "agent.session_end"];
    let at = names.windows(3).position(|names| names == three).unwrap();
    let fatal = read(&frames[at]);
    assert_eq!(fatal["metadata"]["severity"], "critical");
    assert_eq!(fatal["metadata"]["recovery_strategy"], "terminate");
    assert_eq!(fatal["metadata"]["error_code"], "ERR_AUTH_001");
    assert_eq!(read(&frames[at + 2])["metadata"]["reason"], "error");
}

#[test]
fn every_start_has_one_terminal() {
    // Method: count what is open. A terminal closes one; at the end of every turn nothing is.
    let mut open: Vec<&str> = Vec::new();
    for frame in project(&history(Lang::En)) {
        match frame.name() {
            name @ ("plan.start" | "solver.start" | "aggregate.start") => open.push(name),
            "plan.completed" | "plan.failed" | "plan.cancelled" | "plan.coercion_error" => {
                assert_eq!(open.pop(), Some("plan.start"));
            }
            "solver.completed" | "solver.failed" | "solver.cancelled" => {
                assert_eq!(open.pop(), Some("solver.start"));
            }
            "aggregate.completed" | "aggregate.failed" | "aggregate.cancelled" => {
                assert_eq!(open.pop(), Some("aggregate.start"));
            }
            "agent.final_answer" | "agent.error" | "agent.interrupted" => {
                assert_eq!(open, Vec::<&str>::new());
            }
            _ => {}
        }
    }
    assert_eq!(open, Vec::<&str>::new());
}

#[test]
fn the_last_frame_of_a_pipeline_has_its_result() {
    let frames = project(&history(Lang::En));
    let ended = frames.iter().filter(|frame| frame.name() == "pipeline.completed").map(read);
    let status = |frame: Value| frame["metadata"]["status"].as_str().unwrap().to_owned();
    let expected =
        ["partial_success", "failed", "cancelled", "failed", "failed", "cancelled", "success"];
    assert_eq!(ended.map(status).collect::<Vec<_>>(), expected);
}

#[test]
fn text_deltas_reassemble_to_the_answer_and_withdrawn_text_is_named() {
    let mut texts = String::new();
    for frame in project(&history(Lang::En)) {
        let parsed = read(&frame);
        match frame.name() {
            "agent.partial_answer" if parsed["metadata"]["abandoned"] == true => texts.clear(),
            "agent.partial_answer" => texts += parsed["content"].as_str().unwrap(),
            "agent.llm_message" => texts.clear(),
            "agent.final_answer" => {
                assert_eq!(parsed["content"], texts.as_str());
                texts.clear();
            }
            _ => {}
        }
    }
}

#[test]
fn no_frame_shows_json_and_every_event_shows_something() {
    for lang in [Lang::En, Lang::Zh] {
        for frame in project(&history(lang)) {
            let parsed = read(&frame);
            let shown = parsed["show_content"].as_str().unwrap_or_default();
            assert!(!shown.is_empty(), "{} shows nothing", frame.name());
            assert!(!shown.contains('⟨') && !shown.contains("{\""), "{}: {shown}", frame.name());
        }
    }
}

#[test]
fn every_error_frame_has_all_required_fields() {
    let errors = ["error.", "agent.error", "plan.validation", "solver.failed", "aggregate.failed"];
    let mut seen = Vec::new();
    for frame in project(&history(Lang::En)) {
        if !errors.iter().any(|prefix| frame.name().starts_with(prefix)) {
            continue;
        }
        let parsed = read(&frame);
        let must = [
            "error_code",
            "error_type",
            "timestamp",
            "recoverable",
            "recovery_strategy",
            "operation",
            "severity",
            "auto_retry",
            "context",
        ];
        for name in must {
            assert!(!parsed["metadata"][name].is_null(), "{} has no {name}", frame.name());
        }
        seen.push(frame.name());
    }
    for name in ["timeout", "rate_limited", "connection_lost", "retry_attempt", "execution"] {
        assert!(seen.contains(&format!("error.{name}").as_str()), "{name}");
    }
    for name in ["recovery_started", "recovery_success", "recovery_failed"] {
        assert!(seen.contains(&format!("error.{name}").as_str()), "{name}");
    }
}

#[test]
fn a_question_can_be_sent_again_while_it_is_open() {
    let records = history(Lang::En);
    let mut projector = Projector::new(&Session::default(), 0);
    let mut parsed = 0;
    for record in &records {
        let frame = projector.project(record);
        let again = projector.open_questions(record.session, record.at);
        if let Event::QuestionAnswered { .. } = record.event {
            continue; // What follows from the answer is written together with it.
        }
        let Event::QuestionAsked { .. } = record.event else {
            assert!(again.is_empty(), "nothing is open after {:?}", record.event);
            continue;
        };
        let [again] = again.as_slice() else { panic!("one question is open") };
        let (first, again) = (read(&frame.unwrap()), read(again));
        assert_eq!(again["seq"], Value::Null);
        for name in ["digest", "expires_at", "options", "tool_args", "tasks", "scope"] {
            assert_eq!(again["metadata"][name], first["metadata"][name], "{name}");
        }
        assert_eq!(again["step_id"], first["step_id"]);
        parsed += 1;
    }
    assert_eq!(parsed, 2);
}

#[test]
fn a_wait_is_reported_with_the_services_fault_and_then_as_progress() {
    let at = |seconds: i64| Timestamp::from_micros(START + seconds * 1_000_000);
    let held_request = |seq: u64, fault: Option<Fault>, before| Record {
        session: SESSION,
        epoch: EPOCH,
        seq,
        at: at(0),
        trace: Trace::NONE,
        turn: 1,
        event: Event::RequestHeld {
            step: 1,
            reason: HoldReason::RateLimit,
            fault,
            until: Some(at(12)),
            before,
            patience_ms: 900_000,
        },
    };
    let limited = Fault::new(Kind::ModelRateLimited, Operation::ModelRequest)
        .with(Fact::Service, "demo")
        .retry_after(Duration::from_secs(12));
    let frames = project(&[
        held_request(1, Some(limited), 7),
        held_request(2, None, 1),
        held_request(3, None, 0),
    ]);
    let [first, second, third] = [0, 1, 2].map(|index| read(&frames[index]));
    assert_eq!(first["event"], "error.rate_limited");
    assert_eq!(first["metadata"]["auto_retry"], true);
    assert_eq!(first["metadata"]["retry_after_ms"], 12_000);
    assert_eq!(first["metadata"]["waiting_before"], 7);
    let text = "The model service is receiving too many requests. \
                The service is busy; next try in 12 s. 7 requests are waiting before yours.";
    assert_eq!(first["content"], text);
    assert_eq!(second["event"], "system.notice");
    assert_eq!(second["metadata"]["action"], "request_held");
    let text = "The service is busy; next try in 12 s. 1 request is waiting before yours.";
    assert_eq!(second["content"], text);
    assert_eq!(third["content"], "The service is busy; next try in 12 s.");
}

fn model_change(seq: u64, reason: ModelChangeReason, fault: Option<Fault>) -> Record {
    let (from, to) = ("openai:one".to_owned(), "openai:two".to_owned());
    Record {
        session: SESSION,
        epoch: EPOCH,
        seq,
        at: Timestamp::from_micros(START),
        trace: Trace::NONE,
        turn: 1,
        event: Event::ModelChanged { step: 1, from, to, position: 1, reason, fault },
    }
}

#[test]
fn another_model_is_a_recovery_after_a_failure_and_a_notice_without_one() {
    let overloaded = Fault::new(Kind::ModelOverloaded, Operation::ModelRequest);
    let frames = project(&[
        model_change(1, ModelChangeReason::GateShut, Some(overloaded)),
        model_change(2, ModelChangeReason::Returned, None),
        model_change(3, ModelChangeReason::GateShut, None),
    ]);
    let frames: Vec<Value> = frames.iter().map(read).collect();
    let [first, second, third] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!(first["event"], "error.recovery_started");
    assert_eq!(first["metadata"]["recovery_action"], "change_model");
    assert_eq!(first["metadata"]["kind"], "model_overloaded");
    assert_eq!(first["metadata"]["from_model"], "openai:one");
    assert_eq!(first["metadata"]["to_model"], "openai:two");
    assert_eq!(first["metadata"]["change_reason"], "gate_shut");
    assert_eq!(first["content"], "openai:one is busy or down. openai:two is asked instead.");
    assert_eq!(second["event"], "system.notice");
    assert_eq!(second["metadata"]["action"], "model_changed");
    assert_eq!(second["metadata"]["change_reason"], "returned");
    assert_eq!(third["event"], "system.notice", "nothing failed: the gate was only full");
}

#[test]
fn an_answer_of_another_model_is_a_recovery_by_that_model() {
    let mut records = history(Lang::En);
    let started = records
        .iter()
        .position(|record| matches!(record.event, Event::StepStarted { step: 1, attempt: 1, .. }));
    records.truncate(started.unwrap() + 1);
    let seq = records.len() as u64;
    let refused = Fault::new(Kind::ModelQuota, Operation::ModelRequest);
    let record =
        |seq, event| Record { event, ..model_change(seq, ModelChangeReason::Returned, None) };
    let scope = Scope { step: Some(1), ..Scope::default() };
    let fault = refused.clone();
    records.push(record(seq + 1, Event::FaultRaised { fault, scope: scope.clone() }));
    records.push(model_change(seq + 2, ModelChangeReason::QuotaSpent, None));
    let (operation, kind) = (refused.operation(), refused.kind());
    let (attempts, elapsed_ms) = (2, 5);
    records
        .push(record(seq + 3, Event::Recovered { operation, kind, attempts, elapsed_ms, scope }));
    let frames = project(&records);
    let names: Vec<_> = frames[frames.len() - 3..].iter().map(Frame::name).collect();
    assert_eq!(names, ["error.execution", "error.recovery_started", "error.recovery_success"]);
    let last = read(frames.last().unwrap());
    assert_eq!(last["metadata"]["recovery_action"], "change_model");
}
