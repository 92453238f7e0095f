//! The last value on this side of a bound, and the first on the other.

use std::{sync::Arc, time::Duration};

use budao_core::{
    Kind,
    event::{CallStart, Command, CommandBody, Decision, Event},
    message::{Block, CallId, Message, Role, ToolUse, Usage},
    session::{CallState, Session, SessionState, estimate_tokens, question, unpaired},
    trace::Trace,
    turn::{self, Input, Work},
};

use crate::turn::play::{Play, ask, done, failed, name, refuse, run};

fn tool_use(name: &str, arguments: &str) -> Block {
    Block::ToolUse(ToolUse {
        id: CallId::from("x"),
        name: name.into(),
        arguments: arguments.into(),
    })
}

fn result(content: &str) -> Block {
    Block::ToolResult { call: "x".into(), is_error: false, content: content.into() }
}

fn message(role: Role, block: Block) -> Message {
    Message { role, content: vec![block] }
}

#[test]
fn calls_and_results_count_with_their_names_and_what_surrounds_them() {
    let call = message(Role::Assistant, tool_use("abcd", "{\"a\":1}"));
    assert_eq!(estimate_tokens(&call), (4_u64 + 7 + 16).div_ceil(4) + 4);
    let answer = message(Role::User, result(&"r".repeat(20)));
    assert_eq!(estimate_tokens(&answer), (20_u64 + 16) / 4 + 4);
}

#[test]
fn a_result_belongs_to_the_call_right_before_it_wherever_reading_begins() {
    let pair = [message(Role::Assistant, tool_use("t", "{}")), message(Role::User, result("1"))];
    assert_eq!(unpaired(&pair, 1), None, "its call is right before the place");
    assert_eq!(unpaired(&pair[1..], 0), Some(0), "before the first message there is none");
}

#[test]
fn only_words_of_a_person_are_a_question() {
    let asked = Arc::new(Message::user("why?"));
    let results = Arc::new(message(Role::User, result("1")));
    let history = [Arc::clone(&asked), results, Arc::new(Message::user("a summary"))];
    assert_eq!(question(&history, 0, 1), Some(&asked));
    assert_eq!(question(&history, 0, 0), None, "it is not cut away");
    assert_eq!(question(&history, 1, 2), None, "results of tools");
    let answer = [Arc::new(message(Role::Assistant, Block::Text("so".into())))];
    assert_eq!(question(&answer, 0, 1), None, "an answer");
}

#[test]
fn a_message_that_came_after_the_close_may_be_taken_back_and_the_close_stays_where_it_was() {
    let mut play = Play::new();
    play.say("one");
    play.say("two");
    let calls = play.answer_calls(&[("runs", "{}")]);
    play.run_all(&calls, false);
    play.command(CommandBody::Close);
    play.say("after it was closed");
    let message = "c4".into();
    assert_eq!(play.command(CommandBody::Withdraw { message }).0, ["message_withdrawn"]);
    let names = play.end_call(&calls[0], 1, done());
    assert_eq!(
        names,
        ["tool_call_ended", "turn_ended", "turn_started", "turn_ended", "session_ended"],
        "what came before the close is ended before the session is"
    );
    play.replayed();
}

#[test]
fn counted_tokens_of_a_provider_are_used_and_missing_counts_are_estimated() {
    let mut play = Play::new();
    play.say("a question of some length");
    let before = play.session.tokens;
    play.answer_text("an answer");
    assert_eq!(play.session.tokens, 15, "ten in, five out");
    play.say("go");
    let Some(Work::Model { turn, step, attempt }) = play.due().first().cloned() else { panic!() };
    let (content, usage) = (vec![Block::Text("done".into())], Usage::default());
    let stop = budao_core::message::ModelStop::EndTurn;
    play.input(Input::ModelAnswered { turn, step, attempt, content, stop, usage, response: None });
    assert!(play.session.tokens > 15 && before > 0, "estimated: {}", play.session.tokens);
}

#[test]
fn a_call_is_invalid_only_if_it_never_ran_and_does_not_fit() {
    let is_invalid = |play: &Play, call: &CallId| {
        let turn = play.session.turn.as_ref().unwrap();
        match turn.call(call).unwrap().state {
            CallState::Ended { invalid, .. } => invalid,
            ref other => panic!("it has not ended: {other:?}"),
        }
    };
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("t", "{}"), ("u", "{}"), ("v", "{}"), ("w", "{}")]);
    play.check_calls(vec![
        (calls[0].clone(), run(false)),
        (calls[1].clone(), refuse(Kind::DeniedByHook)),
        (calls[2].clone(), refuse(Kind::InvalidArguments)),
        (calls[3].clone(), run(false)),
    ]);
    play.end_call(&calls[0], 1, failed(Kind::InvalidArguments));
    assert!(!is_invalid(&play, &calls[0]), "it ran; the tool itself said so");
    assert!(!is_invalid(&play, &calls[1]), "it was forbidden");
    assert!(is_invalid(&play, &calls[2]));
}

#[test]
fn a_message_that_waits_makes_a_session_busy() {
    let mut session = Session::default();
    let content = vec![Block::Text("go".into())];
    let accepted = Event::MessageAccepted { command: "c1".into(), content };
    session.apply(&accepted, budao_core::Timestamp::from_micros(1), Trace::NONE);
    assert_eq!(session.state(), SessionState::Running);
}

/// A cancel is on record and its process died before the end of the turn was.
#[test]
fn no_model_is_asked_for_a_turn_that_is_being_cancelled() {
    let mut play = Play::new();
    play.say("go");
    let cancel = Event::CancelRequested { by: "ada".into(), reason: None };
    play.session.apply(&cancel, play.now, Trace::NONE);
    assert_eq!(play.due(), []);
}

#[test]
fn history_is_compacted_when_it_is_longer_than_may_be_and_not_when_it_is_as_long() {
    let mut play = Play::new();
    play.say("one");
    play.answer_text("1");
    play.say("two");
    let is_compacting = |play: &Play| matches!(play.due().as_slice(), [Work::Compact { .. }]);
    play.limits.context_tokens = play.session.tokens;
    assert!(!is_compacting(&play));
    play.limits.context_tokens = play.session.tokens - 1;
    assert!(is_compacting(&play));
    let history = play.session.history.clone();
    play.session.history = history[1..].to_vec().into();
    assert!(!is_compacting(&play), "of two messages nothing can be left out");
    play.session.history = history;
    let (summary, usage) = ("much".into(), Usage::default());
    play.input(Input::HistoryCompacted {
        turn: 2,
        messages: 1,
        summary,
        by_model: false,
        tokens_after: 1_000_000,
        usage,
    });
    assert!(!is_compacting(&play), "it did not help: once a step is enough");
}

#[test]
fn a_turn_carries_the_trace_that_its_own_message_brought() {
    let mut play = Play::new();
    let traces = [Trace::from_random(21), Trace::from_random(22)];
    for (index, trace) in traces.into_iter().enumerate() {
        let body = CommandBody::Message { content: vec![Block::Text("go".into())] };
        let id = format!("m{index}").as_str().into();
        play.input(Input::Command(Command { id, by: "ada".into(), trace, body }));
    }
    play.answer_text("1");
    let started: Vec<Trace> = play
        .entries
        .iter()
        .filter(|entry| name(&entry.event) == "turn_started")
        .map(|entry| entry.trace)
        .collect();
    assert_eq!(started, traces);
}

#[test]
fn a_failure_names_the_step_the_call_and_the_tool_it_belongs_to() {
    let mut play = Play::new();
    play.limits.steps = 1;
    play.say("go");
    let calls = play.answer_calls(&[("t", "{}")]);
    play.run_all(&calls, true);
    play.end_call(&calls[0], 1, failed(Kind::NetworkUnavailable));
    let scopes = |play: &Play, wanted: &str| {
        let of = |event: &Event| match event {
            Event::FaultRaised { scope, .. }
            | Event::RetryScheduled { scope, .. }
            | Event::RecoveryFailed { scope, .. } => Some(scope.clone()),
            _ => None,
        };
        let entries = play.entries.iter().filter(|entry| name(&entry.event) == wanted);
        entries.filter_map(|entry| of(&entry.event)).collect::<Vec<_>>()
    };
    let [retry] = &scopes(&play, "retry_scheduled")[..] else { panic!("{:?}", play.entries) };
    assert_eq!((retry.step, retry.tool.as_deref()), (Some(1), Some("t")));
    assert_eq!(retry.call.as_ref(), Some(&calls[0]));
    play.wait(Duration::from_secs(60));
    play.end_call(&calls[0], 2, done());
    let [end] = &scopes(&play, "recovery_failed")[..] else { panic!("{:?}", play.entries) };
    assert_eq!(end.step, Some(1), "its steps are used up");
}

#[test]
fn a_persons_note_about_a_call_survives_its_restart() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("t", "{}")]);
    play.check_calls(vec![(calls[0].clone(), ask())]);
    play.decide(&format!("ask_{}", calls[0]), Decision::Allow, None);
    play.run_all(&calls, true);
    let state = |play: &Play| play.session.turn.as_ref().unwrap().calls[0].state.clone();
    let CallState::Started { remark: Some(before), .. } = state(&play) else { panic!() };
    let Some(Event::ToolCallStarted(CallStart {
        call, tool, arguments, repairs, idempotent, ..
    })) = play.entries.iter().rev().map(|entry| Event::clone(&entry.event)).next()
    else {
        panic!("{:?}", play.entries.last())
    };
    let again = Event::ToolCallStarted(CallStart {
        call,
        tool,
        arguments,
        repairs,
        attempt: 2,
        idempotent,
        reconcile: false,
    });
    play.session.apply(&again, play.now, Trace::NONE);
    let CallState::Started { remark, attempt: 2, .. } = state(&play) else { panic!() };
    assert_eq!(remark, Some(before));
}

#[test]
fn an_abandoned_attempt_leaves_no_partial_text() {
    let mut play = Play::new();
    play.say("go");
    play.delta("par");
    let is_partial = |play: &Play| play.session.turn.as_ref().unwrap().partial;
    assert!(is_partial(&play));
    play.model_fails(Kind::NetworkUnavailable);
    assert!(!is_partial(&play));
    play.replayed();
}

#[test]
fn a_call_records_its_duration_and_a_refused_call_has_none() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("t", "{}"), ("u", "{}")]);
    play.check_calls(vec![
        (calls[0].clone(), run(false)),
        (calls[1].clone(), refuse(Kind::InvalidArguments)),
    ]);
    play.now = play.now.after(Duration::from_millis(250));
    play.end_call(&calls[0], 1, done());
    let took = |wanted: &CallId| {
        play.entries.iter().find_map(|entry| match &*entry.event {
            Event::ToolCallEnded { call, duration_ms, .. } if call == wanted => Some(*duration_ms),
            _ => None,
        })
    };
    assert_eq!((took(&calls[0]), took(&calls[1])), (Some(250), Some(0)));
}

#[test]
fn the_brake_counts_the_call_it_stops() {
    let mut play = Play::new();
    play.say("go");
    for _ in 0..2 {
        let calls = play.answer_calls(&[("t", "{}")]);
        play.check_calls(vec![(calls[0].clone(), refuse(Kind::InvalidArguments))]);
    }
    let stopped = play.outcomes().into_values().filter_map(|outcome| outcome.fault().cloned());
    let stopped: Vec<_> =
        stopped.filter(|fault| fault.kind() == Kind::RepeatedCallStopped).collect();
    let [fault] = &stopped[..] else { panic!("{stopped:?}") };
    let times = fault.detail().get(budao_core::fault::Fact::Times).map(ToString::to_string);
    assert_eq!(times.as_deref(), Some("2"));
}

#[test]
fn of_two_waiting_requests_only_the_due_one_is_woken() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("t", "{}"), ("u", "{}"), ("v", "{}")]);
    play.check_calls(vec![
        (calls[0].clone(), run(true)),
        (calls[1].clone(), ask()),
        (calls[2].clone(), run(true)),
    ]);
    play.end_call(&calls[0], 1, failed(Kind::NetworkUnavailable));
    let woken = play.wait(Duration::ZERO);
    assert_eq!(woken, [""; 0], "neither a retry nor the end of a question is due");
    let woken = play.wait(Duration::from_secs(60));
    assert_eq!(woken, ["tool_call_started"], "the question is open for longer than that");
    play.replayed();
}

#[test]
fn the_debug_output_of_an_environment_has_its_time() {
    let limits = budao_core::limits::Limits::default();
    let env = turn::Env {
        now: budao_core::Timestamp::from_micros(5),
        jitter: 0.25,
        busy_slots: 0,
        is_observed: true,
        trace: Trace::NONE,
        outlooks: &[],
        limits: &limits,
        server: None,
    };
    assert!(format!("{env:?}").contains("jitter: 0.25"));
}
