//! Promises about questions to people, and about what follows a crash.

use std::time::Duration;

use budao_core::{
    Kind,
    event::{Answer, CallStart, CommandBody, Decision, Event},
    message::{Block, Role},
    session::{CallState, SessionState},
    turn::{CallVerdict, Input, Work},
};
use serde_json::json;

use crate::turn::play::{Play, ask, done, run};

#[test]
fn a_question_is_answered_once_and_its_note_reaches_the_model() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("w", "{}")]);
    assert_eq!(play.check_calls(vec![(calls[0].clone(), ask())]), ["question_asked"]);
    assert_eq!(play.session.state(), SessionState::WaitingForDecision);
    let question = format!("ask_{}", calls[0]);
    assert!(matches!(play.decide(&question, Decision::Deny, None), Answer::Accepted { .. }));
    assert!(matches!(play.decide(&question, Decision::Allow, None), Answer::Rejected { .. }));
    let result = play.session.history.last().unwrap();
    assert_eq!(result.role, Role::User);
    let Block::ToolResult { content, is_error: true, .. } = &result.content[0] else { panic!() };
    assert!(content.contains("because"), "{content}");
    play.replayed();
}

#[test]
fn an_allowed_call_is_checked_once_more_and_runs_with_exactly_what_was_shown() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("w", "{}")]);
    play.check_calls(vec![(calls[0].clone(), ask())]);
    play.decide(&format!("ask_{}", calls[0]), Decision::Allow, None);
    assert_eq!(play.count("tool_call_started"), 0, "what was asked then may be denied now");
    let [Work::Check { calls: checked, .. }] = &play.due()[..] else { panic!("{:?}", play.due()) };
    assert_eq!(checked, &calls);
    let arguments = match &play.session.turn.as_ref().unwrap().calls[0].state {
        CallState::Requested { approved: Some(approved) } => approved.arguments.clone(),
        other => panic!("{other:?}"),
    };
    let (repairs, idempotent) = (Vec::new(), false);
    let run = CallVerdict::Run { arguments, repairs, idempotent, reconcile: false, route: None };
    play.check_calls(vec![(calls[0].clone(), run)]);
    let started = play.entries.iter().find_map(|entry| match &*entry.event {
        Event::ToolCallStarted(CallStart { arguments, .. }) => Some(arguments.clone()),
        _ => None,
    });
    assert_eq!(started, Some(json!({"path": "a"})));
    play.replayed();
}

#[test]
fn edited_arguments_are_checked_again_before_anything_runs() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("w", "{}")]);
    play.check_calls(vec![(calls[0].clone(), ask())]);
    play.decide(&format!("ask_{}", calls[0]), Decision::Allow, Some(json!({"path": "b"})));
    assert_eq!(play.count("tool_call_started"), 0);
    assert!(matches!(play.due().as_slice(), [Work::Check { .. }]));
    play.replayed();
}

#[test]
fn an_answer_for_other_arguments_is_refused() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("w", "{}")]);
    play.check_calls(vec![(calls[0].clone(), ask())]);
    let (_, answer) = play.command(CommandBody::Decide {
        question: budao_core::event::QuestionId(format!("ask_{}", calls[0]).into()),
        decision: Decision::Allow,
        note: None,
        arguments: None,
        digest: Some("of something else".into()),
    });
    assert!(matches!(answer, Answer::Rejected { .. }));
    assert_eq!(play.count("tool_call_started"), 0);
}

#[test]
fn an_unanswered_question_is_denied_when_it_expires() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("w", "{}")]);
    play.check_calls(vec![(calls[0].clone(), ask())]);
    assert!(matches!(play.due().as_slice(), [Work::Wake { .. }]));
    let names = play.wait(Duration::from_secs(24 * 3600));
    assert_eq!(names, ["question_expired", "tool_call_ended", "step_started"]);
    assert_eq!(play.outcomes()[&calls[0]].fault().unwrap().kind(), Kind::QuestionExpired);
}

#[test]
fn after_a_crash_idempotent_calls_run_again_and_the_others_have_an_unknown_outcome() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("safe", "{}"), ("unsafe", "{}"), ("asks", "{}")]);
    play.check_calls(vec![
        (calls[0].clone(), run(true)),
        (calls[1].clone(), run(false)),
        (calls[2].clone(), ask()),
    ]);
    play.session = play.replayed();
    assert_eq!(
        play.input(Input::Resumed),
        ["session_resumed", "tool_call_started", "tool_call_ended"]
    );
    let outcomes = play.outcomes();
    assert_eq!(outcomes[&calls[1]].fault().unwrap().kind(), Kind::OutcomeUnknown);
    assert_eq!(outcomes.len(), 1, "the question is still open: {outcomes:?}");
    let late = play.end_call(&calls[0], 1, done());
    assert_eq!(late, ["late_arrival_dropped"], "the first try's answer is not the second's");
    play.end_call(&calls[0], 2, done());
    play.decide(&format!("ask_{}", calls[2]), Decision::Deny, None);
    assert!(matches!(play.due().as_slice(), [Work::Model { .. }]));
    play.replayed();
}

#[test]
fn after_a_crash_the_model_is_asked_again_and_shown_text_is_marked_void() {
    let mut play = Play::new();
    play.say("go");
    play.delta("half");
    play.session = play.replayed();
    assert_eq!(play.input(Input::Resumed), ["answer_abandoned", "session_resumed"]);
    assert_eq!(play.answer_text("whole").last(), Some(&"turn_ended"));
    play.replayed();
}

#[test]
fn after_a_crash_the_queue_goes_on() {
    let mut play = Play::new();
    play.say("one");
    play.say("two");
    play.session = play.replayed();
    play.input(Input::Resumed);
    play.answer_text("1");
    play.answer_text("2");
    assert_eq!(play.count("turn_ended"), 2);
}
