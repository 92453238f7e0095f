//! Each test is a promise.

use std::{sync::Arc, time::Duration};

use budao_core::{
    Kind,
    event::{Answer, CommandBody, Event, Scope, StopReason},
    fault::Operation,
    message::{Block, Message, ModelStop, Usage},
    session::SessionState,
    turn::{Input, Work},
};

use crate::turn::play::{Play, ask, done, failed, refuse, run};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_message_is_answered() {
    let mut play = Play::new();
    assert_eq!(play.say("hello"), ["message_accepted", "turn_started", "step_started"]);
    assert_eq!(play.delta("hi"), ["text_delta"]);
    assert_eq!(play.answer_text("hi"), ["model_answered", "turn_ended"]);
    assert_eq!(play.session.last.as_ref().unwrap().stop, StopReason::EndTurn);
    assert_eq!(play.session.state(), SessionState::Idle);
    play.replayed();
}

#[test]
fn messages_that_arrive_during_a_turn_are_answered_in_order() {
    let mut play = Play::new();
    play.say("one");
    assert_eq!(play.say("two"), ["message_accepted"]);
    assert_eq!(play.say("three"), ["message_accepted"]);
    assert_eq!(play.answer_text("1").last(), Some(&"step_started"));
    play.answer_text("2");
    play.answer_text("3");
    let said: Vec<_> = play
        .session
        .history
        .iter()
        .map(|message| budao_core::message::text_of(&message.content))
        .collect();
    assert_eq!(said, ["one", "1", "two", "2", "three", "3"]);
    play.replayed();
}

#[test]
fn a_call_is_recorded_before_it_runs_and_its_outcome_before_the_next_model_request() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("t", "{}"), ("u", "{}")]);
    assert_eq!(play.run_all(&calls, false), ["tool_call_started", "tool_call_started"]);
    assert!(matches!(play.due().as_slice(), [Work::Call { .. }, Work::Call { .. }]));
    assert_eq!(play.end_call(&calls[1], 1, done()), ["tool_call_ended"]);
    assert_eq!(play.end_call(&calls[0], 1, done()), ["tool_call_ended", "step_started"]);
    let results: Vec<_> =
        play.session.history.last().unwrap().content.iter().map(call_of).collect();
    assert_eq!(results, [&calls[0], &calls[1]], "results keep the model's order");
    play.replayed();
}

fn call_of(block: &Block) -> &budao_core::message::CallId {
    match block {
        Block::ToolResult { call, .. } => call,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_bad_call_never_costs_its_siblings_theirs() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("bad", "{"), ("good", "{}")]);
    let verdicts =
        vec![(calls[0].clone(), refuse(Kind::MalformedArguments)), (calls[1].clone(), run(false))];
    assert_eq!(play.check_calls(verdicts), ["tool_call_ended", "tool_call_started"]);
    assert_eq!(play.end_call(&calls[1], 1, done()), ["tool_call_ended", "step_started"]);
    assert!(play.outcomes()[&calls[1]].is_done());
}

#[test]
fn two_calls_with_the_same_id_are_two_calls() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("t", "{}"), ("t", "{}")]);
    assert_ne!(calls[0], calls[1]);
    play.run_all(&calls, false);
    play.end_call(&calls[0], 1, done());
    play.end_call(&calls[1], 1, failed(Kind::ToolFailed));
    assert!(play.outcomes()[&calls[0]].is_done());
    assert!(!play.outcomes()[&calls[1]].is_done());
}

#[test]
fn cancelling_an_idle_session_does_nothing_and_swallows_nothing() {
    let mut play = Play::new();
    assert_eq!(play.cancel(), [""; 0]);
    assert_eq!(play.say("still there?"), ["message_accepted", "turn_started", "step_started"]);
}

#[test]
fn cancel_during_the_model_ends_the_turn_and_marks_partial_text() {
    let mut play = Play::new();
    play.say("go");
    play.delta("half a sen");
    assert_eq!(play.cancel(), ["cancel_requested", "answer_abandoned", "turn_ended"]);
    assert_eq!(play.session.last.as_ref().unwrap().stop, StopReason::Cancelled);
    assert_eq!(play.session.history.len(), 1, "void text is not history");
    play.replayed();
}

#[test]
fn cancel_waits_for_running_calls_and_only_for_them() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("runs", "{}"), ("asks", "{}")]);
    play.check_calls(vec![(calls[0].clone(), run(false)), (calls[1].clone(), ask())]);
    assert_eq!(play.cancel(), ["cancel_requested", "tool_call_ended"]);
    assert_eq!(play.cancel(), [""; 0], "cancel is idempotent");
    let names = play.end_call(&calls[0], 1, failed(Kind::Cancelled));
    assert_eq!(names, ["tool_call_ended", "turn_ended"]);
    assert_eq!(play.outcomes().len(), 2);
    play.replayed();
}

#[test]
fn a_call_cancelled_before_its_start_reports_that_nothing_was_done() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("asks", "{}")]);
    play.check_calls(vec![(calls[0].clone(), ask())]);
    play.cancel();
    let (told, _) = play.outcomes()[&calls[0]].render_for_model(budao_core::Lang::En);
    assert!(told.contains("before it started. Nothing of it was done."), "{told}");
}

#[test]
fn cancel_goes_on_with_the_queue() {
    let mut play = Play::new();
    play.say("one");
    play.say("two");
    assert_eq!(play.cancel(), ["cancel_requested", "turn_ended", "turn_started", "step_started"]);
    assert_eq!(play.answer_text("2").last(), Some(&"turn_ended"));
}

#[test]
fn late_reports_never_affect_another_turn() {
    let mut play = Play::new();
    play.say("one");
    let calls = play.answer_calls(&[("t", "{}")]);
    play.run_all(&calls, false);
    play.cancel();
    play.end_call(&calls[0], 1, failed(Kind::Cancelled));
    play.say("two");
    let before = play.session.clone();
    let late =
        Input::ToolCallEnded { turn: 1, call: calls[0].clone(), attempt: 1, outcome: done() };
    assert_eq!(play.input(late), ["late_arrival_dropped"]);
    let late = Input::ModelAnswered {
        turn: 1,
        step: 1,
        attempt: 1,
        content: vec![Block::Text("stale".into())],
        stop: ModelStop::EndTurn,
        usage: Default::default(),
        response: None,
    };
    assert_eq!(play.input(late), ["late_arrival_dropped"]);
    let text = "stale".to_owned();
    let late = Input::Delta { turn: 1, step: 1, attempt: 1, text, thought: String::new() };
    assert_eq!(play.input(late), [""; 0]);
    assert_eq!(play.session.turn, before.turn);
    assert_eq!(play.session.history, before.history);
}

#[test]
fn a_failing_model_is_retried_and_the_recovery_is_recorded() {
    let mut play = Play::new();
    play.say("go");
    play.delta("half");
    let names = play.model_fails(Kind::ModelOverloaded);
    assert_eq!(names, ["answer_abandoned", "fault_raised", "retry_scheduled"]);
    assert_eq!(play.input(Input::TimerFired { turn: 1 }), [""; 0], "too early");
    assert_eq!(play.wait(SECOND), ["step_started"]);
    assert_eq!(play.answer_text("ok"), ["recovered", "model_answered", "turn_ended"]);
    let recovered = play.entries.iter().find_map(|entry| match *entry.event {
        Event::Recovered { attempts, elapsed_ms, .. } => Some((attempts, elapsed_ms)),
        _ => None,
    });
    assert_eq!(recovered, Some((2, 1000)));
    play.replayed();
}

#[test]
fn a_turn_that_failed_never_looks_like_one_that_finished() {
    let mut play = Play::without_patience();
    play.say("go");
    for wait in [1, 2] {
        play.model_fails(Kind::ModelServerError);
        play.wait(Duration::from_secs(wait));
    }
    let names = play.model_fails(Kind::ModelServerError);
    assert_eq!(names, ["fault_raised", "recovery_failed", "turn_ended"]);
    let last = play.session.last.clone().unwrap();
    assert_eq!(last.stop, StopReason::Failed);
    let attempts = last.fault.unwrap().attempts().unwrap();
    assert_eq!((attempts.attempt, attempts.max), (3, 3));
    play.replayed();
}

#[test]
fn a_wrong_key_ends_the_session_in_order_and_a_message_reopens_it() {
    let mut play = Play::new();
    play.say("go");
    let names = play.model_fails(Kind::ModelAuthentication);
    assert_eq!(names, ["fault_raised", "recovery_failed", "turn_ended", "session_ended"]);
    assert_eq!(play.session.state(), SessionState::Failed);
    play.say("again");
    assert_eq!(play.session.state(), SessionState::Running);
    play.replayed();
}

#[test]
fn a_stuck_model_costs_three_requests() {
    let mut play = Play::new();
    play.say("go");
    let mut requests = 0;
    while play.session.turn.is_some() {
        requests += 1;
        let calls = play.answer_calls(&[("t", r#"{"wrong":true}"#)]);
        play.check_calls(vec![(calls[0].clone(), refuse(Kind::InvalidArguments))]);
    }
    assert_eq!(requests, 3);
    let last = play.session.last.clone().unwrap();
    assert_eq!(last.stop, StopReason::Failed);
    assert_eq!(last.fault.unwrap().kind(), Kind::RepeatedCallStopped);
    assert_eq!(play.count("recovery_failed"), 1);
    let second = &play.session.history[4].content[0];
    let Block::ToolResult { content, .. } = second else { panic!("{second:?}") };
    assert!(content.contains("ERR_"), "{content}");
    play.replayed();
}

#[test]
fn many_failures_in_one_step_reach_the_model_before_the_turn_can_end() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("t", "{}"); 20]);
    let verdicts = calls.iter().map(|id| (id.clone(), refuse(Kind::InvalidArguments))).collect();
    assert_eq!(play.check_calls(verdicts).last(), Some(&"step_started"));
}

#[test]
fn a_first_message_that_is_too_long_fails_and_does_not_hang() {
    let mut play = Play::new();
    play.say("very long");
    let names = play.model_fails(Kind::ContextTooLong);
    assert_eq!(names.last(), Some(&"turn_ended"));
}

#[test]
fn a_call_that_ends_the_process_every_time_is_not_run_for_ever() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("t", "{}")]);
    play.run_all(&calls, true);
    for _ in 0..5 {
        play.session = play.replayed();
        play.input(Input::Resumed);
    }
    assert_eq!(play.count("tool_call_started"), 3);
    assert_eq!(play.outcomes()[&calls[0]].fault().unwrap().kind(), Kind::OutcomeUnknown);
}

#[test]
fn different_failing_calls_end_after_a_budget() {
    let mut play = Play::new();
    play.say("go");
    let mut requests = 0;
    while play.session.turn.is_some() {
        requests += 1;
        let calls = play.answer_calls(&[("t", &format!(r#"{{"n":{requests}}}"#))]);
        play.run_all(&calls, false);
        play.end_call(&calls[0], 1, failed(Kind::ToolSaidNo));
    }
    assert_eq!(requests, 8);
    let fault = play.session.last.clone().unwrap().fault.unwrap();
    assert_eq!(fault.kind(), Kind::FailuresExhausted);
}

#[test]
fn a_slow_but_progressing_conversation_is_never_braked() {
    let mut play = Play::new();
    play.limits.steps = 10_000;
    play.say("go");
    for round in 0..1000 {
        let calls = play.answer_calls(&[("t", &format!(r#"{{"n":{round}}}"#))]);
        let fails = round % 7 != 0;
        play.run_all(&calls, false);
        play.end_call(&calls[0], 1, if fails { failed(Kind::ToolSaidNo) } else { done() });
        assert!(play.session.turn.is_some(), "stopped in round {round}");
    }
}

#[test]
fn a_model_that_only_calls_tools_is_stopped_by_the_step_limit() {
    let mut play = Play::new();
    play.say("go");
    while play.session.turn.is_some() {
        let calls = play.answer_calls(&[("t", "{}")]);
        play.run_all(&calls, false);
        play.end_call(&calls[0], 1, done());
    }
    let last = play.session.last.clone().unwrap();
    assert_eq!(last.stop, StopReason::MaxTurnRequests);
    assert_eq!(last.fault.unwrap().kind(), Kind::StepsExhausted);
    assert_eq!(play.count("model_answered"), 64);
    assert_eq!(play.count("recovery_failed"), 1, "observers get the fault before the end");
}

#[test]
fn a_refusal_is_recorded_before_the_end_of_its_turn() {
    let mut play = Play::new();
    play.say("go");
    let names = play.answer(vec![Block::Text("I will not.".into())], ModelStop::Refusal);
    assert_eq!(names, ["model_answered", "recovery_failed", "turn_ended"]);
}

#[test]
fn a_model_that_answers_nothing_is_a_failure_not_an_answer() {
    let mut play = Play::new();
    play.say("go");
    let names = play.answer(vec![Block::Text(String::new())], ModelStop::EndTurn);
    assert_eq!(names[0], "fault_raised");
    assert_eq!(play.session.history.len(), 1);
}

#[test]
fn an_empty_answer_after_results_ends_the_turn() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("t", "{}")]);
    play.run_all(&calls, false);
    play.end_call(&calls[0], 1, done());
    assert_eq!(play.answer(Vec::new(), ModelStop::EndTurn), ["model_answered", "turn_ended"]);
    assert_eq!(play.session.last.as_ref().unwrap().stop, StopReason::EndTurn);
    play.replayed();
}

#[test]
fn idempotent_calls_are_tried_again_and_others_never() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("safe", "{}"), ("unsafe", "{}")]);
    play.check_calls(vec![(calls[0].clone(), run(true)), (calls[1].clone(), run(false))]);
    let transient = || failed(Kind::NetworkUnavailable);
    assert_eq!(play.end_call(&calls[0], 1, transient()), ["fault_raised", "retry_scheduled"]);
    assert_eq!(play.end_call(&calls[1], 1, transient()), ["tool_call_ended"]);
    assert_eq!(play.wait(SECOND), ["tool_call_started"]);
    let names = play.end_call(&calls[0], 2, done());
    assert_eq!(names, ["recovered", "tool_call_ended", "step_started"]);
    play.replayed();
}

#[test]
fn history_that_is_too_long_is_compacted_once_a_step() {
    let mut play = Play::new();
    play.say("one");
    play.answer_text("1");
    play.say("two");
    assert_eq!(play.model_fails(Kind::ContextTooLong), ["fault_raised", "compaction_started"]);
    assert!(matches!(play.due().as_slice(), [Work::Compact { .. }]));
    let names = play.input(Input::HistoryCompacted {
        turn: 2,
        messages: 2,
        summary: "earlier: one, 1".into(),
        by_model: false,
        tokens_after: 10,
        usage: Usage { input_tokens: 7, output_tokens: 2, ..Usage::default() },
    });
    assert_eq!(names, ["history_compacted"]);
    let usage = play.session.turn.as_ref().unwrap().usage;
    assert_eq!((usage.input_tokens, usage.output_tokens), (7, 2), "a summary costs the turn");
    assert_eq!(play.session.history.len(), 2);
    play.model_fails(Kind::ContextTooLong);
    assert_eq!(play.session.last.as_ref().unwrap().stop, StopReason::Failed);
    play.replayed();
}

#[test]
fn the_question_being_answered_is_never_summarised_away() {
    let mut play = Play::new();
    play.say("one");
    play.answer_text("1");
    play.say("two");
    for summary in ["something else", "and again"] {
        let calls = play.answer_calls(&[("runs", "{}")]);
        play.check_calls(vec![(calls[0].clone(), run(false))]);
        play.end_call(&calls[0], 1, failed(Kind::ToolSaidNo));
        play.model_fails(Kind::ContextTooLong);
        let messages = play.session.history.len() as u64;
        play.input(Input::HistoryCompacted {
            turn: 2,
            messages,
            summary: summary.into(),
            by_model: true,
            tokens_after: 10,
            usage: Usage::default(),
        });
        let history = [Message::user(summary), Message::user("two")];
        assert_eq!(*play.session.history, history.map(Arc::new));
    }
    play.replayed();
}

#[test]
fn a_full_queue_is_refused_with_its_limit() {
    let mut play = Play::new();
    play.limits.queued_messages = 2;
    for text in ["runs", "waits", "waits"] {
        play.say(text);
    }
    let content = vec![Block::Text("too many".into())];
    let (names, answer) = play.command(CommandBody::Message { content });
    assert_eq!(names, [""; 0]);
    let Answer::Rejected { fault } = answer else { panic!() };
    assert_eq!(fault.kind(), Kind::LimitReached);
}

#[test]
fn of_three_messages_that_wait_the_middle_one_is_taken_back() {
    let mut play = Play::new();
    play.say("runs");
    for text in ["one", "two", "three"] {
        play.say(text);
    }
    let waiting: Vec<_> = play.session.queue.iter().map(|queued| queued.command.clone()).collect();
    let (names, answer) = play.command(CommandBody::Withdraw { message: waiting[1].clone() });
    assert_eq!(names, ["message_withdrawn"]);
    assert!(matches!(answer, Answer::Accepted { .. }));
    let left: Vec<_> = play.session.queue.iter().map(|queued| queued.command.clone()).collect();
    assert_eq!(left, [waiting[0].clone(), waiting[2].clone()]);
    let running = play.session.turn.as_ref().unwrap().message.clone();
    for message in [waiting[1].clone(), running, "nobody's".to_owned().into()] {
        let (names, answer) = play.command(CommandBody::Withdraw { message });
        assert_eq!(names, [""; 0], "only what waits can be taken back, and once");
        let Answer::Rejected { fault } = answer else { panic!() };
        assert_eq!(fault.kind(), Kind::ConstraintViolated);
    }
    for text in ["to runs", "to one", "to three"] {
        play.answer_text(text);
    }
    assert_eq!((play.session.turns, play.session.state()), (3, SessionState::Idle));
    play.replayed();
}

#[test]
fn a_message_taken_back_while_the_session_is_closed_leaves_the_later_ones_alone() {
    let mut play = Play::new();
    play.say("one");
    play.say("two");
    let calls = play.answer_calls(&[("runs", "{}")]);
    play.run_all(&calls, false);
    play.command(CommandBody::Close);
    let two = play.session.queue[0].command.clone();
    play.say("after it was closed");
    play.command(CommandBody::Withdraw { message: two });
    let names = play.end_call(&calls[0], 1, done());
    assert_eq!(names[2..], ["session_ended", "turn_started", "step_started"]);
    play.answer_text("welcome back");
    assert_eq!((play.session.turns, play.session.state()), (2, SessionState::Idle));
    play.replayed();
}

#[test]
fn closing_a_session_stops_its_turn_first_and_ends_after_it() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("runs", "{}"), ("asks", "{}")]);
    play.check_calls(vec![(calls[0].clone(), run(false)), (calls[1].clone(), ask())]);
    let names = play.command(CommandBody::Close).0;
    assert_eq!(names, ["close_requested", "cancel_requested", "tool_call_ended"]);
    assert_eq!(play.command(CommandBody::Close).0, [""; 0], "once is enough");
    assert_eq!(play.session.state(), SessionState::Running, "a call is still running");
    play.session = play.replayed();
    let ended = play.end_call(&calls[0], 1, failed(Kind::Cancelled));
    assert_eq!(ended, ["tool_call_ended", "turn_ended", "session_ended"]);
    assert_eq!(play.session.state(), SessionState::Closed);
    assert_eq!(play.command(CommandBody::Close).0, [""; 0], "it is closed");
    play.replayed();
}

#[test]
fn closing_begins_nothing_more_and_a_later_message_reopens_the_session() {
    let mut play = Play::new();
    play.say("one");
    play.say("two");
    let calls = play.answer_calls(&[("runs", "{}")]);
    play.run_all(&calls, false);
    play.command(CommandBody::Close);
    play.say("after it was closed");
    let names = play.end_call(&calls[0], 1, done());
    let rest = ["turn_started", "turn_ended", "session_ended", "turn_started", "step_started"];
    assert_eq!(names[..2], ["tool_call_ended", "turn_ended"]);
    assert_eq!(names[2..], rest);
    play.answer_text("welcome back");
    assert_eq!((play.session.turns, play.session.state()), (3, SessionState::Idle));
    play.replayed();
}

#[test]
fn a_crash_while_closing_still_ends_the_session() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("runs", "{}")]);
    play.run_all(&calls, true);
    play.command(CommandBody::Close);
    play.session = play.replayed();
    let names = play.input(Input::Resumed);
    assert_eq!(names, ["session_resumed", "tool_call_ended", "turn_ended", "session_ended"]);
}

#[test]
fn a_hook_that_fails_beside_a_call_or_a_request_is_no_recovery() {
    let mut play = Play::new();
    play.say("go");
    let hook = || budao_core::Fault::new(Kind::HookFailed, Operation::RunHook);
    let scope = Scope { step: Some(1), ..Scope::default() };
    play.input(Input::RecordOnly { turn: 0, event: Event::FaultRaised { fault: hook(), scope } });
    let calls = play.answer_calls(&[("t", "{}")]);
    play.run_all(&calls, true);
    let scope = Scope { call: Some(calls[0].clone()), ..Scope::default() };
    play.input(Input::RecordOnly { turn: 1, event: Event::FaultRaised { fault: hook(), scope } });
    play.end_call(&calls[0], 1, done());
    play.answer_text("done");
    assert_eq!(play.count("recovered"), 0);
    play.replayed();
}
