//! Calls in doubt: what the author knows, what the tool finds out, and what a person says.

use std::time::Duration;

use budao_core::{
    Fault, Kind, Lang,
    event::{Answer, CommandBody, Event, ReconcileVerdict, Settlement},
    fault::{Operation, Progress},
    message::{Block, CallId},
    tool::{Output, ReconcileResult},
    turn::{CallVerdict, Input, Work},
};
use serde_json::json;

use crate::turn::play::{Play, done, failed};

fn reconcilable() -> CallVerdict {
    let (arguments, repairs) = (json!({"claim": 7}), Vec::new());
    CallVerdict::Run { arguments, repairs, idempotent: false, reconcile: true, route: None }
}

/// A turn that a crash interrupted during one call whose tool can find out whether it was done.
fn interrupted() -> (Play, CallId) {
    let mut play = Play::new();
    play.say("pay");
    let calls = play.answer_calls(&[("pay", r#"{"claim":7}"#)]);
    play.check_calls(vec![(calls[0].clone(), reconcilable())]);
    play.session = play.replayed();
    assert_eq!(play.input(Input::Resumed), ["session_resumed", "reconcile_started"]);
    (play, calls[0].clone())
}

fn reconciled(
    play: &mut Play,
    call: &CallId,
    attempt: u32,
    answer: ReconcileResult,
) -> Vec<&'static str> {
    let turn = play.turn();
    play.input(Input::CallReconciled { turn, call: call.clone(), attempt, answer })
}

fn settle(play: &mut Play, call: &CallId, settlement: Settlement) -> Answer {
    let note = Some("I looked".to_owned());
    play.command(CommandBody::SettleDoubt { call: call.clone(), settlement, note }).1
}

/// A turn whose call was lost in a crash, and which goes on.
fn in_doubt() -> (Play, CallId) {
    let mut play = Play::new();
    play.say("pay");
    let calls = play.answer_calls(&[("pay", "{}")]);
    play.run_all(&calls, false);
    play.input(Input::Resumed);
    (play, calls[0].clone())
}

fn texts(play: &Play) -> String {
    let blocks = play.session.history.iter().flat_map(|message| &message.content);
    let texts = blocks.filter_map(|block| match block {
        Block::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_call_that_was_done_before_the_crash_ends_with_the_result_its_tool_found() {
    let (mut play, call) = interrupted();
    let output = Output { data: json!({"paid": 7}), ..Output::default() };
    let names = reconciled(&mut play, &call, 1, ReconcileResult::Happened(output));
    assert_eq!(names, ["reconcile_ended", "tool_call_ended", "step_started"]);
    let (told, is_error) = play.outcomes()[&call].render_for_model(Lang::En);
    assert!(told.contains("paid") && told.contains("found out") && !is_error, "{told}");
    assert_eq!(play.count("tool_call_started"), 1, "it did not run again");
    assert!(play.session.doubts.all_open().is_empty());
    play.replayed();
}

#[test]
fn a_call_that_did_not_happen_runs_again_until_its_attempts_are_used() {
    let (mut play, call) = interrupted();
    let names = reconciled(&mut play, &call, 1, ReconcileResult::DidNotHappen);
    assert_eq!(names, ["reconcile_ended", "tool_call_started"]);
    for _ in 0..2 {
        play.input(Input::Resumed);
        reconciled(&mut play, &call, 1, ReconcileResult::DidNotHappen);
    }
    assert_eq!(play.count("tool_call_started"), 3);
    let outcomes = play.outcomes();
    let fault = outcomes[&call].fault().unwrap();
    assert_eq!(fault.progress(), Progress::NotBegun, "it certainly did not happen");
    assert!(play.session.doubts.all_open().is_empty());
    play.replayed();
}

#[test]
fn a_call_stays_in_doubt_only_if_its_tool_cannot_reconcile_it() {
    let (mut play, call) = interrupted();
    let names = reconciled(&mut play, &call, 1, ReconcileResult::CannotTell);
    assert_eq!(names, ["reconcile_ended", "tool_call_ended", "step_started"]);
    assert_eq!(play.outcomes()[&call].fault().unwrap().kind(), Kind::OutcomeUnknown);
    let doubts = play.session.doubts.all_open();
    assert_eq!((doubts.len(), &doubts[0].arguments), (1, &json!({"claim": 7})));
}

#[test]
fn a_failed_reconciliation_is_retried_up_to_its_limit() {
    let (mut play, call) = interrupted();
    let down =
        || ReconcileResult::Failed(Fault::new(Kind::NetworkUnavailable, Operation::ReconcileCall));
    for attempt in 1..3 {
        let names = reconciled(&mut play, &call, attempt, down());
        assert_eq!(names, ["fault_raised", "retry_scheduled"]);
        assert!(matches!(play.due().as_slice(), [Work::Wake { .. }]));
        assert_eq!(play.wait(Duration::from_secs(60)), ["reconcile_started"]);
    }
    let names = reconciled(&mut play, &call, 3, down());
    assert_eq!(names, ["fault_raised", "reconcile_ended", "tool_call_ended", "step_started"]);
    play.replayed();
}

#[test]
fn a_tool_that_finds_out_at_the_second_attempt_recovered() {
    let (mut play, call) = interrupted();
    let down = Fault::new(Kind::NetworkUnavailable, Operation::ReconcileCall);
    reconciled(&mut play, &call, 1, ReconcileResult::Failed(down));
    play.wait(Duration::from_secs(60));
    let late = reconciled(&mut play, &call, 1, ReconcileResult::CannotTell);
    assert_eq!(late, ["late_arrival_dropped"], "an answer to the first attempt is stale");
    let names = reconciled(&mut play, &call, 2, ReconcileResult::DidNotHappen);
    assert_eq!(names, ["recovered", "reconcile_ended", "tool_call_started"]);
}

#[test]
fn a_crash_while_finding_out_counts_as_an_attempt() {
    let (mut play, call) = interrupted();
    play.input(Input::Resumed);
    assert!(matches!(play.due().as_slice(), [Work::Reconcile { attempt: 2, .. }]));
    play.input(Input::Resumed);
    play.input(Input::Resumed);
    assert_eq!(play.outcomes()[&call].fault().unwrap().kind(), Kind::OutcomeUnknown);
    play.replayed();
}

#[test]
fn a_cancel_while_finding_out_leaves_the_call_in_doubt() {
    let (mut play, call) = interrupted();
    play.cancel();
    assert_eq!(play.outcomes()[&call].fault().unwrap().kind(), Kind::OutcomeUnknown);
    assert_eq!(play.session.doubts.all_open().len(), 1);
    assert!(play.due().is_empty(), "the turn is over");
}

#[test]
fn an_answer_about_another_call_is_dropped() {
    let (mut play, _) = interrupted();
    let other = CallId::from("other");
    let names = reconciled(&mut play, &other, 1, ReconcileResult::DidNotHappen);
    assert_eq!(names, ["late_arrival_dropped"]);
}

#[test]
fn a_call_that_certainly_did_not_happen_is_tried_again_though_it_is_not_idempotent() {
    let mut play = Play::new();
    play.say("pay");
    let calls = play.answer_calls(&[("pay", "{}"), ("pay", r#"{"n":1}"#)]);
    play.run_all(&calls, false);
    let refused = Fault::new(Kind::ConnectionRefused, Operation::ToolCall);
    let sure = refused.clone().with_progress(Progress::NotBegun);
    let names = play.end_call(&calls[0], 1, sure.into());
    assert_eq!(names, ["fault_raised", "retry_scheduled"]);
    assert_eq!(play.end_call(&calls[1], 1, refused.into()), ["tool_call_ended"]);
    play.wait(Duration::from_secs(60));
    play.input(Input::Resumed);
    let kind = play.outcomes()[&calls[0]].fault().unwrap().kind();
    assert_eq!(kind, Kind::OutcomeUnknown, "a retry does not make it idempotent");
}

#[test]
fn the_authors_statement_of_progress_decides_the_advice_to_the_model() {
    let lost = |progress| {
        let fault = Fault::new(Kind::ToolFailed, Operation::ToolCall).with_progress(progress);
        budao_core::tool::Outcome::from(fault).render_for_model(Lang::En).0
    };
    assert!(lost(Progress::NotBegun).contains("Nothing of it was done."));
    let unsure = lost(Progress::Unconfirmed);
    assert!(unsure.contains("may be done") && unsure.contains(r#""next":"stop""#), "{unsure}");
    let was_done = lost(Progress::Done);
    assert!(was_done.contains("only its answer was lost"), "{was_done}");
    assert!(
        was_done.contains(r#""next":"stop""#) && was_done.contains("Do not make this call again")
    );
}

#[test]
fn a_person_settles_a_doubt_and_the_model_reads_it_once_at_its_next_step() {
    let (mut play, call) = in_doubt();
    let settlement = Settlement::Happened { result: json!({"receipt": 41}) };
    assert!(matches!(settle(&mut play, &call, settlement), Answer::Accepted { .. }));
    assert!(!texts(&play).contains("41"), "the request under way is not changed");
    play.answer_text("done");
    play.say("and now?");
    let told = texts(&play);
    assert!(told.contains(r#"{"receipt":41}"#) && told.contains("I looked"), "{told}");
    play.answer_text("fine");
    play.say("more");
    assert_eq!(texts(&play).matches("receipt").count(), 1, "it is told once");
    play.replayed();
}

#[test]
fn of_two_people_who_settle_a_doubt_the_first_wins_and_the_second_is_refused() {
    let (mut play, call) = in_doubt();
    settle(&mut play, &call, Settlement::DidNotHappen);
    let Answer::Rejected { fault } = settle(&mut play, &call, Settlement::LeftToModel) else {
        panic!("a doubt is settled once")
    };
    assert_eq!(fault.kind(), Kind::ConstraintViolated);
    let told = budao_core::fault::text::user_text(&fault, Lang::En);
    assert!(told.contains("ada settled it before"), "{told}");
    assert_eq!(play.count("doubt_settled"), 1);
    let unknown = settle(&mut play, &CallId::from("none"), Settlement::DidNotHappen);
    assert!(matches!(unknown, Answer::Rejected { .. }));
}

#[test]
fn a_settlement_that_is_too_long_is_refused_and_the_doubt_stays() {
    let (mut play, call) = in_doubt();
    let result = json!("x".repeat(20_000));
    let Answer::Rejected { fault } = settle(&mut play, &call, Settlement::Happened { result })
    else {
        panic!("it is too long")
    };
    assert_eq!(fault.kind(), Kind::LimitReached);
    assert_eq!(play.session.doubts.all_open().len(), 1);
}

#[test]
fn failures_that_are_certain_leave_no_doubt() {
    let mut play = Play::new();
    play.say("go");
    let calls = play.answer_calls(&[("a", "{}"), ("b", "{}")]);
    play.run_all(&calls, false);
    play.end_call(&calls[0], 1, failed(Kind::ToolSaidNo));
    play.end_call(&calls[1], 1, done());
    assert!(play.session.doubts.all_open().is_empty());
}

/// A turn whose call is lost; its arguments are long.
fn lose_a_call(play: &mut Play) {
    play.say("pay");
    let calls = play.answer_calls(&[("pay", "{}")]);
    let arguments = json!({"text": "长".repeat(5_000)});
    let (repairs, route) = (Vec::new(), None);
    let run = CallVerdict::Run { arguments, repairs, idempotent: false, reconcile: false, route };
    play.check_calls(vec![(calls[0].clone(), run)]);
    play.input(Input::Resumed);
    play.answer_text("hm");
}

#[test]
fn each_of_seventy_doubts_is_listed_and_can_be_settled() {
    let mut play = Play::new();
    (0..70).for_each(|_| lose_a_call(&mut play));
    let doubts = play.session.doubts.all_open().to_vec();
    assert_eq!(doubts.len(), 70);
    assert_eq!(doubts.iter().map(|doubt| doubt.turn).collect::<Vec<_>>(), Vec::from_iter(1..=70));
    let size = |doubt: &budao_core::session::Doubt| doubt.arguments.to_string().len();
    assert!(doubts[..64].iter().all(|doubt| (4_000..5_000).contains(&size(doubt))));
    assert!(doubts[64..].iter().all(|doubt| (300..500).contains(&size(doubt))), "{doubts:?}");
    for doubt in &doubts {
        let answer = settle(&mut play, &doubt.call, Settlement::DidNotHappen);
        assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
    }
    assert!(play.session.doubts.all_open().is_empty());
    play.say("and now?");
    assert_eq!(texts(&play).matches("it did not happen").count(), 70);
    play.replayed();
}

#[test]
fn a_session_with_a_thousand_doubts_takes_the_next_message_when_one_is_settled() {
    let mut play = Play::new();
    (0..1_000).for_each(|_| lose_a_call(&mut play));
    let message = || CommandBody::Message { content: vec![Block::Text("more".to_owned())] };
    let Answer::Rejected { fault } = play.command(message()).1 else {
        panic!("a thousand calls are in doubt")
    };
    assert_eq!(fault.kind(), Kind::LimitReached);
    let told = budao_core::fault::text::user_text(&fault, Lang::En);
    assert!(told.contains("open_doubts (1000)"), "{told}");
    assert_eq!(play.session.doubts.all_open().len(), 1_000);
    let first = play.session.doubts.all_open()[0].call.clone();
    settle(&mut play, &first, Settlement::LeftToModel);
    assert!(matches!(play.command(message()).1, Answer::Accepted { .. }));
}

#[test]
fn a_tool_that_lies_about_an_interrupted_call_is_recorded_and_decides_alone() {
    for lie in [
        ReconcileResult::Happened(Output { data: json!({"paid": 7}), ..Output::default() }),
        ReconcileResult::DidNotHappen,
    ] {
        let (mut play, call) = interrupted();
        let is_done = matches!(lie, ReconcileResult::Happened(_));
        reconciled(&mut play, &call, 1, lie);
        if !is_done {
            play.end_call(&call, 2, done());
        }
        let late = reconciled(&mut play, &call, 1, ReconcileResult::DidNotHappen);
        assert_eq!(late, ["late_arrival_dropped"], "what it says later changes nothing");
        let verdicts = play.entries.iter().filter_map(|entry| match &*entry.event {
            Event::ReconcileEnded { verdict, .. } => Some(*verdict),
            _ => None,
        });
        let verdicts: Vec<ReconcileVerdict> = verdicts.collect();
        let verdict = match is_done {
            true => ReconcileVerdict::Happened,
            false => ReconcileVerdict::DidNotHappen,
        };
        assert_eq!(verdicts, [verdict], "the records show what it said");
        // If it was done, the lie costs one more effect; if it was not, it stays undone. Neither happens again.
        assert_eq!(play.count("tool_call_started"), if is_done { 1 } else { 2 });
        assert_eq!(play.count("tool_call_ended"), 1);
        assert!(play.outcomes()[&call].is_done());
        assert!(play.session.doubts.all_open().is_empty());
        play.answer_text("done");
        play.session = play.replayed();
        play.input(Input::Resumed);
        assert_eq!(play.count("tool_call_started"), if is_done { 1 } else { 2 });
    }
}
