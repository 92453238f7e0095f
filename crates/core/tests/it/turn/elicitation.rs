//! Input that a running call asks a person for: asked once, answered once, checked, and kept over a restart.

use std::time::Duration;

use budao_core::{
    Kind,
    elicitation::{Elicitation, ElicitationAnswer},
    event::{Answer, Decision, Event},
    message::CallId,
    session::{Call, CallState, SessionState},
    turn::{CallVerdict, Input, Work},
};
use serde_json::{Value, json};

use crate::turn::{
    play::{Play, done},
    replay::agrees,
};

fn form() -> Elicitation {
    let schema = json!({ "type": "object", "required": ["size"], "properties": {
        "size": { "type": "string", "enum": ["s", "l"] },
        "count": { "type": "integer", "minimum": 1, "default": 1 },
    }});
    Elicitation::form("shop", "Which size?", &schema).unwrap()
}

/// A turn with one running call.
fn running(idempotent: bool) -> (Play, CallId) {
    let mut play = Play::new();
    play.say("buy");
    let calls = play.answer_calls(&[("buy", "{}")]);
    let (arguments, repairs) = (json!({}), Vec::new());
    let verdict = CallVerdict::Run { arguments, repairs, idempotent, reconcile: true, route: None };
    play.check_calls(vec![(calls[0].clone(), verdict)]);
    (play, calls[0].clone())
}

fn need(play: &mut Play, call: &CallId, attempt: u32, digest: &str) -> Vec<&'static str> {
    let (turn, call, digest) = (play.turn(), call.clone(), digest.to_owned());
    let elicitation = Box::new(form());
    play.input(Input::InputNeeded { turn, call, attempt, elicitation, digest })
}

fn question(play: &Play) -> String {
    let turn = play.session.turn.as_ref().unwrap();
    let open = turn.calls.iter().find_map(Call::open_question);
    open.unwrap().question.to_string()
}

fn answer(play: &Play, call: &CallId) -> Option<ElicitationAnswer> {
    let turn = play.session.turn.as_ref()?;
    turn.call(call)?.questions.last()?.answer.clone()
}

fn decide(play: &mut Play, decision: Decision, values: Option<Value>) -> Answer {
    let question = question(play);
    play.decide(&question, decision, values)
}

#[test]
fn a_question_is_asked_while_the_call_runs_and_its_first_answer_counts() {
    let (mut play, call) = running(false);
    assert_eq!(need(&mut play, &call, 1, "d"), ["question_asked"]);
    assert_eq!(play.session.state(), SessionState::WaitingForDecision);
    let runs = Work::Call { turn: 1, call: call.clone(), attempt: 1 };
    assert!(play.due().contains(&runs), "the call goes on");
    assert!(need(&mut play, &call, 1, "d").is_empty(), "it is the same question");
    let id = question(&play);
    let accepted = decide(&mut play, Decision::Allow, Some(json!({ "size": "s" })));
    assert!(matches!(accepted, Answer::Accepted { .. }), "{accepted:?}");
    let values = json!({ "size": "s", "count": 1 });
    assert_eq!(answer(&play, &call), Some(ElicitationAnswer::Accepted(values)));
    let again = play.decide(&id, Decision::Deny, None);
    assert!(matches!(again, Answer::Rejected { .. }), "the first answer is final");
    assert_eq!(play.session.state(), SessionState::Running);
    play.end_call(&call, 1, done());
    assert_eq!(play.count("question_expired"), 0);
    play.replayed();
    agrees(&play);
}

#[test]
fn an_answer_that_does_not_fit_is_refused_with_every_mismatch_and_the_question_stays_open() {
    let (mut play, call) = running(false);
    need(&mut play, &call, 1, "d");
    let refused = decide(&mut play, Decision::Allow, Some(json!({ "size": "xl", "count": 0 })));
    let Answer::Rejected { fault } = refused else { panic!("{refused:?}") };
    assert_eq!(fault.kind(), Kind::AnswerDoesNotFit);
    let places: Vec<&str> = fault.mismatches().iter().map(|it| it.pointer.as_str()).collect();
    assert_eq!(places, ["/size", "/count"]);
    assert_eq!(answer(&play, &call), None);
    let declined = decide(&mut play, Decision::Deny, None);
    assert!(matches!(declined, Answer::Accepted { .. }));
    assert_eq!(answer(&play, &call), Some(ElicitationAnswer::Declined));
    let state = &play.session.turn.as_ref().unwrap().call(&call).unwrap().state;
    assert!(matches!(state, CallState::Started { .. }), "the call itself goes on");
    agrees(&play);
}

#[test]
fn an_unanswered_question_of_a_call_expires_and_the_call_gets_the_expiry() {
    let (mut play, call) = running(false);
    need(&mut play, &call, 1, "d");
    let until = play.limits.question + Duration::from_secs(1);
    assert_eq!(play.wait(until), ["question_expired"]);
    assert_eq!(answer(&play, &call), Some(ElicitationAnswer::Expired));
    play.end_call(&call, 1, done());
    play.replayed();
    agrees(&play);
}

#[test]
fn without_a_user_the_question_is_declined_at_once_and_recorded() {
    let (mut play, call) = running(false);
    play.is_observed = false;
    assert_eq!(need(&mut play, &call, 1, "d"), ["question_asked", "question_answered"]);
    assert_eq!(answer(&play, &call), Some(ElicitationAnswer::Declined));
    let said = play.entries.iter().find_map(|entry| match &*entry.event {
        Event::QuestionAnswered { note, .. } => note.clone(),
        _ => None,
    });
    assert_eq!(said.as_deref(), Some("no user is connected"));
    agrees(&play);
}

#[test]
fn an_open_question_outlives_the_process_and_the_next_attempt_gets_its_answer() {
    let (mut play, call) = running(true);
    need(&mut play, &call, 1, "d");
    play.session = play.replayed();
    assert_eq!(play.input(Input::Resumed), ["session_resumed", "tool_call_started"]);
    // The person answers before the new attempt asks.
    decide(&mut play, Decision::Allow, Some(json!({ "size": "l" })));
    assert!(need(&mut play, &call, 2, "d").is_empty(), "nobody is asked twice");
    let values = json!({ "size": "l", "count": 1 });
    assert_eq!(answer(&play, &call), Some(ElicitationAnswer::Accepted(values)));
    assert!(need(&mut play, &call, 1, "e").is_empty(), "an attempt that is over asks nothing");
    play.end_call(&call, 2, done());
    agrees(&play);
}

#[test]
fn a_question_that_the_next_attempt_does_not_ask_is_closed() {
    let (mut play, call) = running(true);
    need(&mut play, &call, 1, "d");
    play.session = play.replayed();
    play.input(Input::Resumed);
    assert_eq!(need(&mut play, &call, 2, "other"), ["question_expired", "question_asked"]);
    let events = play.end_call(&call, 2, done());
    assert_eq!(
        events[..2],
        ["question_expired", "tool_call_ended"],
        "no question outlives its call"
    );
    play.replayed();
    agrees(&play);
}

#[test]
fn a_cancelled_turn_takes_no_answer() {
    let (mut play, call) = running(false);
    need(&mut play, &call, 1, "d");
    let id = question(&play);
    play.cancel();
    let late = play.decide(&id, Decision::Allow, Some(json!({ "size": "s" })));
    assert!(matches!(late, Answer::Rejected { .. }));
    assert!(need(&mut play, &call, 1, "e").is_empty(), "a cancelled call asks nothing");
    let cancelled = budao_core::Fault::new(Kind::Cancelled, budao_core::fault::Operation::ToolCall);
    play.end_call(&call, 1, cancelled.into());
    assert!(play.session.turn.is_none());
    play.replayed();
}

#[test]
fn a_call_asks_only_so_many_questions() {
    let (mut play, call) = running(false);
    for number in 0..64 {
        need(&mut play, &call, 1, &format!("d{number}"));
        decide(&mut play, Decision::Deny, None);
    }
    assert_eq!(need(&mut play, &call, 1, "one more"), ["question_asked", "question_answered"]);
}
