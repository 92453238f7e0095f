//! A call begins when it has a slot. What has not begun is never in doubt.

use std::time::Duration;

use budao_core::{
    Kind,
    event::{Decision, Event},
    fault::repeat::Progress,
    message::CallId,
    turn::{Input, Work},
};

use crate::turn::play::{Play, ask, done, failed, run};

const THREE: [(&str, &str); 3] = [("a", "{}"), ("b", "{}"), ("c", "{}")];

/// A turn with three calls that may run, and one slot.
fn three_calls_and_one_slot() -> (Play, Vec<CallId>) {
    let mut play = Play::new();
    play.limits.parallel_calls = 1;
    play.say("do three things");
    let calls = play.answer_calls(&THREE);
    (play, calls)
}

fn running(play: &Play) -> Vec<CallId> {
    let due = play.due().into_iter();
    due.filter_map(|work| match work {
        Work::Call { call, .. } => Some(call),
        _ => None,
    })
    .collect()
}

fn unknown(play: &Play) -> Vec<CallId> {
    let ended = play.entries.iter().filter_map(|entry| match &*entry.event {
        Event::ToolCallEnded { call, outcome, .. }
            if outcome.fault().is_some_and(|fault| fault.kind() == Kind::OutcomeUnknown) =>
        {
            Some(call.clone())
        }
        _ => None,
    });
    ended.collect()
}

#[test]
fn with_one_slot_calls_start_one_by_one_in_the_order_of_the_model() {
    let (mut play, calls) = three_calls_and_one_slot();
    let names = play.run_all(&calls, false);
    assert_eq!(names, ["tool_call_started", "tool_call_queued", "tool_call_queued"]);
    assert_eq!(running(&play), [calls[0].clone()]);
    assert_eq!(play.end_call(&calls[0], 1, done()), ["tool_call_ended", "tool_call_started"]);
    assert_eq!(running(&play), [calls[1].clone()]);
    play.end_call(&calls[1], 1, done());
    assert_eq!(running(&play), [calls[2].clone()]);
    play.end_call(&calls[2], 1, done());
    play.answer_text("done");
    play.replayed();
}

#[test]
fn with_slots_for_all_calls_their_starts_share_one_batch() {
    let mut play = Play::new();
    play.say("do three things");
    let calls = play.answer_calls(&THREE);
    let names = play.run_all(&calls, false);
    assert_eq!(names, ["tool_call_started"; 3]);
}

#[test]
fn after_a_crash_only_the_call_that_had_begun_is_in_doubt() {
    for ended in 0..3 {
        let (mut play, calls) = three_calls_and_one_slot();
        play.run_all(&calls, false);
        for call in &calls[..ended] {
            play.end_call(call, 1, done());
        }
        play.replayed();
        play.input(Input::Resumed);
        assert_eq!(unknown(&play), [calls[ended].clone()]);
        let rest: Vec<CallId> = calls[ended + 1..].to_vec();
        if !rest.is_empty() {
            let check = Work::Check { turn: play.turn(), calls: rest.clone() };
            assert_eq!(play.due(), [check], "what had not begun is checked again");
            play.run_all(&rest, false);
            rest.iter().for_each(|call| drop(play.end_call(call, 1, done())));
        }
        play.answer_text("done");
        assert_eq!(play.outcomes().len(), 3, "every call has one outcome");
        play.replayed();
    }
}

#[test]
fn an_approval_survives_a_crash_while_the_call_waits_for_its_slot() {
    let (mut play, calls) = three_calls_and_one_slot();
    let verdicts = vec![(calls[0].clone(), run(false)), (calls[1].clone(), ask())];
    play.check_calls(verdicts);
    play.decide(&format!("ask_{}", calls[1]), Decision::Allow, None);
    play.run_all(&calls[1..2], false);
    assert_eq!(running(&play), [calls[0].clone()]);
    play.input(Input::Resumed);
    let asked = play.count("question_asked");
    play.run_all(&calls[1..], false);
    assert_eq!(play.count("question_asked"), asked, "a person is not asked again");
    assert_eq!(running(&play), [calls[1].clone()]);
    play.end_call(&calls[1], 1, done());
    let (content, _) = play.outcomes()[&calls[1]].render_for_model(budao_core::Lang::En);
    let text = serde_json::to_string(&content).unwrap();
    assert!(text.contains("because"), "the person's note reaches the model: {text}");
}

#[test]
fn a_call_that_waits_for_its_slot_is_cancelled_as_never_begun() {
    let (mut play, calls) = three_calls_and_one_slot();
    play.run_all(&calls, false);
    play.cancel();
    for call in &calls[1..] {
        let outcomes = play.outcomes();
        let fault = outcomes[call].fault().unwrap();
        assert_eq!(fault.kind(), Kind::Cancelled);
        assert_eq!(fault.progress(), Progress::NotBegun, "{fault:?}");
    }
    assert_eq!(play.end_call(&calls[0], 1, done()), ["tool_call_ended", "turn_ended"]);
}

#[test]
fn a_retry_waits_for_a_slot_like_a_first_attempt() {
    let (mut play, calls) = three_calls_and_one_slot();
    play.run_all(&calls, true);
    let names = play.end_call(&calls[0], 1, failed(Kind::NetworkUnavailable));
    assert_eq!(names, ["fault_raised", "retry_scheduled", "tool_call_started"]);
    assert_eq!(running(&play), [calls[1].clone()], "the free slot is used while the retry waits");
    assert_eq!(play.wait(Duration::from_secs(60)), ["tool_call_queued"]);
    assert_eq!(play.wait(Duration::from_secs(60)), [""; 0], "a retry waits without being woken");
    play.end_call(&calls[1], 1, done());
    assert_eq!(running(&play), [calls[0].clone()], "the earlier call goes first");
    play.replayed();
}

#[test]
fn a_slot_of_an_older_call_is_not_given_away_twice() {
    let (mut play, calls) = three_calls_and_one_slot();
    play.limits.parallel_calls = 2;
    play.busy_slots = 1;
    play.run_all(&calls, false);
    assert_eq!(running(&play), [calls[0].clone()]);
    play.busy_slots = 0;
    play.wait(Duration::ZERO);
    assert_eq!(running(&play), calls[..2]);
}
