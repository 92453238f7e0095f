//! Ends that are seldom: of a turn that cannot go on, and of one that must not.

use budao_core::{
    Fault, Kind,
    event::{Event, StopReason},
    fault::Operation,
    limits::Limits,
    message::{Block, CallId, Message, Role, ToolUse},
    session::{Phase, Session},
    trace::Trace,
    turn::{self, Env, Input},
};

use crate::turn::play::{Play, ask, done, failed, run};

fn last(play: &Play) -> (StopReason, Option<Kind>) {
    let fault = play.entries.iter().rev().find_map(|entry| match &*entry.event {
        Event::TurnEnded { fault, .. } => Some(fault.as_ref().map(Fault::kind)),
        _ => None,
    });
    (play.session.last.as_ref().unwrap().stop, fault.unwrap())
}

#[test]
fn an_aborted_turn_gives_running_calls_an_unknown_outcome_and_the_others_one_of_not_run() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("t", "{}"), ("u", "{}"), ("v", "{}")]);
    let verdicts = [run(true), ask(), run(false)];
    play.check_calls(calls.iter().cloned().zip(verdicts).collect());
    play.end_call(&calls[2], 1, done());
    let fault = Fault::new(Kind::DiskFull, Operation::AppendRecords);
    let names = play.input(Input::Aborted { fault: fault.clone() });
    assert!(!names.contains(&"step_started"), "{names:?}");
    let kinds: Vec<_> =
        calls.iter().map(|call| play.outcomes()[call].fault().map(Fault::kind)).collect();
    assert_eq!(kinds, [Some(Kind::OutcomeUnknown), Some(Kind::Cancelled), None]);
    assert_eq!(last(&play), (StopReason::Failed, Some(Kind::DiskFull)));
    assert_eq!(play.due(), []);
    assert_eq!(play.input(Input::Aborted { fault }), [""; 0], "without a turn nothing ends");
    play.replayed();
}

#[test]
fn a_compaction_that_failed_ends_its_own_turn_and_no_later_one() {
    let mut play = Play::new();
    play.say("one");
    let fault = Fault::new(Kind::Bug, Operation::CompactHistory);
    let turn = play.session.turns;
    let failed = || Input::CompactionFailed { turn, fault: fault.clone() };
    assert!(play.input(failed()).contains(&"turn_ended"));
    assert_eq!(last(&play), (StopReason::Failed, Some(Kind::Bug)));
    play.say("two");
    assert_eq!(play.input(failed()), [""; 0], "a late report of the first turn");
    assert!(play.session.turn.is_some());
    play.replayed();
}

#[test]
fn a_turn_whose_tokens_are_spent_asks_no_model_again() {
    let mut play = Play::new();
    play.limits.spending.turn_tokens = Some(play.session.estimate_request().total_tokens() + 20);
    play.say("go");
    let calls = play.answer_calls(&[("t", "{}")]);
    play.run_all(&calls, false);
    play.end_call(&calls[0], 1, done());
    let (stop, fault) = last(&play);
    assert_eq!((stop, fault), (StopReason::Failed, Some(Kind::SpendingCapReached)));
    assert_eq!(play.count("step_started"), 1);
}

/// Goal: no model is ever asked with a call that has no result. Method: a history broken behind the turn's back.
#[test]
fn a_history_that_is_not_well_paired_is_shown_to_no_model() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("t", "{}")]);
    play.run_all(&calls, false);
    let mut history = Vec::clone(&play.session.history);
    let id = CallId::from("stray");
    let stray = Block::ToolUse(ToolUse { id, name: "t".into(), arguments: "{}".into() });
    history.insert(1, Message { role: Role::Assistant, content: vec![stray] }.into());
    play.session.history = history.into();
    play.end_call(&calls[0], 1, done());
    assert_eq!(last(&play), (StopReason::Failed, Some(Kind::Bug)));
    assert_eq!(play.count("step_started"), 1);
}

/// Records that a process left which did not come to write the end.
#[test]
fn a_turn_that_is_being_stopped_has_no_model_asked_or_waited_for() {
    let mut asking = Play::new();
    asking.say("go");
    let mut waiting = Play::new();
    waiting.say("go");
    waiting.model_fails(Kind::ModelOverloaded);
    for mut play in [asking, waiting] {
        assert_eq!(play.due().len(), 1);
        let cancel = Event::CancelRequested { by: "ada".into(), reason: None };
        play.session.apply(&cancel, play.now, Trace::NONE);
        assert!(!matches!(play.session.turn.as_ref().unwrap().phase, Phase::Calling));
        assert_eq!(play.due(), []);
    }
}

#[test]
fn an_open_call_is_no_failure_of_its_step() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("t", "{}"), ("u", "{}")]);
    play.run_all(&calls, false);
    play.end_call(&calls[0], 1, failed(Kind::ToolFailed));
    // The turn ends with the second one open, as records of another version may have it.
    let end = Event::TurnEnded {
        stop: StopReason::Failed,
        fault: None,
        steps: 1,
        usage: Default::default(),
    };
    let mut session: Session = play.session.clone();
    session.apply(&end, play.now, Trace::NONE);
    assert_eq!(session.turn, None);
    assert_eq!(budao_core::session::unpaired(&session.history, 0), None);
}

#[test]
fn the_debug_output_of_an_environment_has_its_inputs() {
    let limits = Limits::default();
    let env = Env {
        now: budao_core::Timestamp::from_micros(7),
        jitter: 0.5,
        busy_slots: 0,
        is_observed: true,
        trace: Trace::NONE,
        outlooks: &[],
        limits: &limits,
        server: None,
    };
    assert!(format!("{env:?}").contains("jitter: 0.5"));
    let mut session = Session::default();
    assert_eq!(turn::step(&mut session, Input::Resumed, &env), turn::Transition::default());
}
