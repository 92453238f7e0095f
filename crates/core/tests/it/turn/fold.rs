//! What the fold does with records as they should be, and with such as should never be.

use budao_core::{
    Fault, Kind, Timestamp,
    event::{Decision, Event, QuestionId, Record, SessionId, Settings, StopReason},
    fault::{Fact, FactValue, Mismatch, Operation},
    message::{Block, CallId, Message, ModelStop, Role, ToolUse, Usage},
    session::{Session, estimate_tokens, unpaired},
    tool::{Outcome, Output, Todo, TodoStatus},
    trace::Trace,
    turn::{CallVerdict, Work},
};
use serde_json::json;

use crate::turn::play::{Play, ask, done};

fn fold(events: impl IntoIterator<Item = Event>) -> Session {
    let record = |(index, event)| Record {
        session: SessionId(uuid::Uuid::nil()),
        epoch: budao_core::event::Epoch(1),
        seq: index as u64 + 1,
        at: Timestamp::from_micros(1_000_000),
        trace: Trace::NONE,
        turn: 0,
        event,
    };
    let records: Vec<Record> = events.into_iter().enumerate().map(record).collect();
    let mut session = Session::default();
    session.apply_all(&records);
    session
}

/// A turn in which the model asked for one call.
fn asked_for_a_call() -> Vec<Event> {
    let id = CallId::from("x");
    let call = ToolUse { id, name: "pay".into(), arguments: "{}".into() };
    vec![
        Event::MessageAccepted { command: "c1".into(), content: vec![Block::Text("go".into())] },
        Event::TurnStarted { message: "c1".into() },
        Event::ModelAnswered {
            step: 1,
            content: vec![Block::ToolUse(call)],
            stop: ModelStop::ToolUse,
            usage: Usage::default(),
            response: None,
        },
    ]
}

fn ended() -> Event {
    Event::TurnEnded { stop: StopReason::EndTurn, fault: None, steps: 1, usage: Usage::default() }
}

#[test]
fn a_turn_that_ends_with_an_open_call_gives_it_an_unknown_outcome() {
    let session = fold(asked_for_a_call().into_iter().chain([ended()]));
    assert!(session.turn.is_none());
    assert_eq!(unpaired(&session.history, 0), None);
    let [Block::ToolResult { call, is_error: true, content }] = &session.history[2].content[..]
    else {
        panic!("no result: {:?}", session.history);
    };
    assert_eq!(*call, CallId::from("x"));
    assert!(content.contains(Kind::OutcomeUnknown.row().code), "{content}");
}

#[test]
fn records_about_what_is_not_there_change_nothing() {
    let before = fold(asked_for_a_call());
    let nobody = CallId::from("nobody");
    let stray = [
        Event::MessageWithdrawn { command: "never sent".into(), by: "ada".into() },
        Event::ToolCallEnded { call: nobody, tool: "pay".into(), outcome: done(), duration_ms: 1 },
        // An answer to a question that nobody asked.
        Event::QuestionAnswered {
            question: QuestionId("ask_x".into()),
            call: CallId::from("x"),
            decision: Decision::Allow,
            by: "ada".into(),
            note: None,
            arguments: None,
        },
    ];
    let after = fold(asked_for_a_call().into_iter().chain(stray));
    assert_eq!(Session { head: before.head, ..after }, before);
}

#[test]
fn the_last_recorded_settings_and_to_dos_count() {
    let todo = |title: &str| Todo {
        id: "1".into(),
        title: title.into(),
        status: TodoStatus::Pending,
        assignee: None,
        notes: None,
    };
    let settings = |model: &str| Settings { model: model.into(), ..Settings::default() };
    let session = fold([
        Event::SessionOpened { settings: settings("a"), origin: None },
        Event::SettingsChanged { settings: settings("b") },
        Event::TodosChanged { todos: vec![todo("one"), todo("two")] },
        Event::TodosChanged { todos: vec![todo("three")] },
        Event::FileSeen { path: "a.txt".into(), digest: Some("1".into()) },
        Event::FileSeen { path: "a.txt".into(), digest: None },
    ]);
    assert_eq!(session.settings.model, "b");
    assert_eq!(session.todos, [todo("three")]);
    assert_eq!(session.files.seen_digest("a.txt"), Some(None));
    assert_eq!(session.head, 6);
}

#[test]
fn a_plan_whose_beginning_was_not_recorded_is_still_a_plan() {
    let session = fold([Event::PlanStarted { question: "how?".into() }]);
    assert!(session.pipeline.is_some());
    let none = fold([ended()]);
    assert!(none.pipeline.is_none());
}

#[test]
fn a_result_whose_call_was_cut_off_before_it_is_found() {
    let result = Block::ToolResult { call: "x".into(), is_error: false, content: "1".into() };
    let history = [
        Message { role: Role::User, content: vec![Block::Text("a summary".into())] },
        Message { role: Role::User, content: vec![result] },
    ];
    assert_eq!(unpaired(&history, 1), Some(1), "an orphan at the place where reading begins");
    assert_eq!(unpaired(&history[..1], 0), None);
}

#[test]
fn thoughts_and_pictures_count_for_the_length_of_a_history() {
    let message = |block| Message { role: Role::Assistant, content: vec![block] };
    let thought = Block::Thinking { text: "a".repeat(400), signature: None };
    let picture = Block::Image { media_type: "image/png".into(), data: "A".repeat(9) };
    assert_eq!(estimate_tokens(&message(thought)), 104);
    assert_eq!(estimate_tokens(&message(picture)), 1_504);
}

#[test]
fn the_model_gets_a_persons_changes_and_their_note() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("t", "{}")]);
    play.check_calls(vec![(calls[0].clone(), ask())]);
    let allow = Decision::Allow;
    play.decide(&format!("ask_{}", calls[0]), allow, Some(json!({"path": "b"})));
    play.run_all(&calls, false);
    let noted = Outcome::Done(Output {
        data: json!(1),
        note: Some("cut at the end.".into()),
        ..Output::default()
    });
    play.end_call(&calls[0], 1, noted);
    let Some(Outcome::Done(output)) = play.outcomes().remove(&calls[0]) else { panic!("it ended") };
    let note = output.note.unwrap();
    for part in ["cut at the end.", "A person changed the arguments", "wrote: because"] {
        assert!(note.contains(part), "{note}");
    }
    play.replayed();
}

#[test]
fn a_verdict_that_comes_too_late_starts_nothing() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("t", "{}"), ("u", "{}")]);
    // A hook answered the first in the tool's place; the second runs.
    let settled = CallVerdict::Settled(done());
    let names = play.check_calls(vec![
        (calls[0].clone(), settled),
        (calls[1].clone(), crate::turn::play::run(false)),
    ]);
    assert_eq!(names, ["tool_call_ended", "tool_call_started"]);
    assert_eq!(play.run_all(&calls, false), [""; 0], "both were decided already");
    assert!(matches!(play.due().as_slice(), [Work::Call { .. }]));
    play.replayed();
}

#[test]
fn a_repeated_invalid_call_gets_the_mismatch_and_the_expected_form_again() {
    let mut play = Play::new();
    play.say("go");
    let mismatch = Mismatch {
        pointer: "/path".into(),
        rule: "required".into(),
        expected: "a text".into(),
        ..Mismatch::default()
    };
    let wrong = Fault::new(Kind::InvalidArguments, Operation::ToolCall)
        .with(Fact::Example, FactValue::Json(json!({"path": "a"})))
        .mismatch(mismatch.clone());
    for _ in 0..2 {
        let calls = play.answer_calls(&[("t", "{}")]);
        play.check_calls(vec![(calls[0].clone(), CallVerdict::Settled(wrong.clone().into()))]);
    }
    let last = play.entries.iter().rev().find_map(|entry| match &*entry.event {
        Event::ToolCallEnded { outcome, .. } => outcome.fault(),
        _ => None,
    });
    let last = last.unwrap();
    assert_eq!(last.kind(), Kind::RepeatedCallStopped);
    assert_eq!(last.mismatches(), [mismatch]);
    assert_eq!(last.detail().get(Fact::Example), wrong.detail().get(Fact::Example));
}
