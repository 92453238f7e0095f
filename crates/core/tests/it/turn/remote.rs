//! Calls that a worker's process runs: claims, reports, and a small world of processes that are killed at random.

use std::{collections::BTreeMap, time::Duration};

use budao_core::{
    Fault, Kind,
    event::{Answer, CommandBody, Event},
    fault::{Operation, Progress},
    message::CallId,
    remote::{ToolRoute, WorkerReport},
    session::CallState,
    tool::{Outcome, Output},
    turn::{CallVerdict, Input, Work},
};
use serde_json::json;

use crate::turn::play::{Play, done};

fn route() -> ToolRoute {
    ToolRoute { worker: "billing".to_owned(), version: "v1".to_owned() }
}

fn routed(idempotent: bool) -> CallVerdict {
    let (arguments, repairs) = (json!({}), Vec::new());
    CallVerdict::Run { arguments, repairs, idempotent, reconcile: false, route: Some(route()) }
}

/// A turn with one open call of a worker.
fn offered(idempotent: bool) -> (Play, CallId) {
    let mut play = Play::new();
    play.say("pay");
    let calls = play.answer_calls(&[("pay", "{}")]);
    let events = play.check_calls(vec![(calls[0].clone(), routed(idempotent))]);
    assert_eq!(events, ["tool_call_offered", "tool_call_started"]);
    (play, calls[0].clone())
}

fn claim(play: &mut Play, call: &CallId, attempt: u32, worker: &str) -> bool {
    let (call, worker) = (call.clone(), worker.to_owned());
    let answer = play.command(CommandBody::ClaimCall { call, attempt, worker }).1;
    matches!(answer, Answer::Accepted { .. })
}

fn report(play: &mut Play, call: &CallId, attempt: u32, worker: &str) -> bool {
    let report = Box::new(WorkerReport::Done { result: json!(1) });
    let (call, worker) = (call.clone(), worker.to_owned());
    let answer = play.command(CommandBody::ReportCall { call, attempt, worker, report }).1;
    matches!(answer, Answer::Accepted { .. })
}

fn lost(is_safe: bool) -> Outcome {
    let fault = Fault::new(Kind::WorkerLost, Operation::ToolCall);
    match is_safe {
        true => fault.unconfirmed_but_safe().into(),
        false => fault.unconfirmed().into(),
    }
}

fn missing() -> Outcome {
    Fault::new(Kind::WorkerMissing, Operation::ToolCall).not_started().into()
}

#[test]
fn one_process_has_a_call_and_its_first_report_counts() {
    let (mut play, call) = offered(false);
    assert!(!report(&mut play, &call, 1, "a"), "nothing was claimed");
    assert!(!claim(&mut play, &call, 2, "a"), "there is no second attempt");
    assert!(claim(&mut play, &call, 1, "a"));
    assert!(claim(&mut play, &call, 1, "a"), "the same process may repeat its claim");
    assert_eq!(play.count("tool_call_claimed"), 1);
    assert!(!claim(&mut play, &call, 1, "b"));
    assert!(!report(&mut play, &call, 1, "b"));
    assert!(report(&mut play, &call, 1, "a"));
    assert!(!report(&mut play, &call, 1, "a"));
    play.end_call(&call, 1, done());
    assert!(!claim(&mut play, &call, 1, "a"), "the call is over");
    play.replayed();
}

#[test]
fn an_open_call_stays_open_over_the_end_of_the_server() {
    for is_claimed in [false, true] {
        let (mut play, call) = offered(false);
        if is_claimed {
            assert!(claim(&mut play, &call, 1, "a"));
        }
        play.session = play.replayed();
        assert_eq!(play.input(Input::Resumed), ["session_resumed"], "nothing is sealed");
        let due = [Work::Call { turn: 1, call: call.clone(), attempt: 1 }];
        assert_eq!(play.due(), due, "the same attempt goes on");
        assert_eq!(claim(&mut play, &call, 1, "b"), !is_claimed, "unclaimed, it may be offered");
    }
}

#[test]
fn a_call_that_was_claimed_while_its_wait_ended_is_not_ended_as_missing() {
    let (mut play, call) = offered(false);
    assert!(claim(&mut play, &call, 1, "a"));
    assert!(play.end_call(&call, 1, missing()).is_empty(), "the claim came first");
    assert!(report(&mut play, &call, 1, "a"));
    play.end_call(&call, 1, done());
    assert!(play.outcomes()[&call].is_done());
}

#[test]
fn a_cancelled_call_cannot_be_claimed() {
    let (mut play, call) = offered(false);
    play.cancel();
    assert!(!claim(&mut play, &call, 1, "a"));
}

/// A small generator with a printed seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % sides
    }
}

/// What processes did, as a bank would know it.
#[derive(Default)]
struct Ledger {
    /// Effects by call.
    effects: BTreeMap<CallId, u32>,
    /// Calls that a process has the right to run: it saw its claim accepted.
    running: BTreeMap<CallId, (u32, &'static str)>,
    /// Results that a process has and the server may not.
    results: BTreeMap<CallId, (u32, &'static str)>,
}

/// A fault of the rules that the world must notice.
#[derive(Clone, Copy, PartialEq)]
enum Planted {
    Nothing,
    /// A process runs a call although its claim was refused.
    RunsRefused,
    /// A lost call is offered again although its tool may not be repeated.
    RepeatsLost,
    /// A claimed call counts as not begun when its process is gone.
    ForgetsClaim,
}

/// Plays one turn with two calls until it ends, and checks the laws. Returns whether they held.
fn holds(seed: u64, planted: Planted) -> bool {
    let mut dice = Dice(seed);
    let mut play = Play::new();
    play.say("pay");
    let calls = play.answer_calls(&[("pay", "{}"), ("bill", "{}")]);
    let safe = [planted == Planted::RepeatsLost, true];
    let verdicts = calls.iter().zip(safe).map(|(call, safe)| (call.clone(), routed(safe)));
    play.check_calls(verdicts.collect());
    let mut ledger = Ledger::default();
    for _ in 0..60 {
        let index = usize::try_from(dice.roll(2)).unwrap();
        let call = &calls[index];
        act(&mut play, &mut ledger, &mut dice, call, index == 1 || safe[0], planted);
        if dice.roll(6) == 0 {
            // The server is killed.
            play.session = play.replayed();
            play.input(Input::Resumed);
        }
    }
    laws(&play, &ledger, &calls)
}

/// The attempt of a started call, and the process that claimed it.
fn started(play: &Play, call: &CallId) -> Option<(u32, Option<String>, bool)> {
    let call = play.session.turn.as_ref()?.call(call)?;
    let CallState::Started { attempt, .. } = &call.state else { return None };
    let remote = call.remote.as_ref()?;
    let claimed = remote.claim.as_ref().map(|claim| claim.worker.clone());
    Some((*attempt, claimed, remote.report.is_some()))
}

fn act(
    play: &mut Play,
    ledger: &mut Ledger,
    dice: &mut Dice,
    call: &CallId,
    is_safe: bool,
    planted: Planted,
) {
    let worker = ["a", "b"][usize::try_from(dice.roll(2)).unwrap()];
    let Some((attempt, claimed, is_reported)) = started(play, call) else {
        play.wait(Duration::from_secs(3600));
        return;
    };
    match dice.roll(6) {
        0 => {
            let accepted = claim(play, call, attempt, worker);
            // A repeated claim is accepted too; its process runs the call once.
            if (accepted && claimed.is_none()) || (!accepted && planted == Planted::RunsRefused) {
                ledger.running.insert(call.clone(), (attempt, worker));
            }
        }
        1 => {
            if let Some(run) = ledger.running.remove(call) {
                *ledger.effects.entry(call.clone()).or_default() += 1;
                ledger.results.insert(call.clone(), run);
            }
        }
        2 => {
            if let Some((attempt, worker)) = ledger.results.get(call).copied() {
                report(play, call, attempt, worker);
            }
        }
        3 if is_reported => {
            play.end_call(call, attempt, done());
        }
        4 if claimed.is_some() && !is_reported => {
            // The process that claimed the call is killed, with its result.
            ledger.running.remove(call);
            ledger.results.remove(call);
            let outcome = match planted {
                Planted::ForgetsClaim => {
                    Fault::new(Kind::WorkerMissing, Operation::ToolCall).into()
                }
                _ => lost(is_safe),
            };
            play.end_call(call, attempt, outcome);
        }
        5 => {
            // An earlier attempt of a call that may be repeated may have been done.
            let outcome = if attempt > 1 && is_safe { lost(true) } else { missing() };
            play.end_call(call, attempt, outcome);
        }
        _ => {}
    }
}

fn laws(play: &Play, ledger: &Ledger, calls: &[CallId]) -> bool {
    play.replayed();
    let outcomes = play.outcomes();
    calls.iter().enumerate().all(|(index, call)| {
        let effects = ledger.effects.get(call).copied().unwrap_or(0);
        let once = index == 1 || effects <= 1;
        let truthful = match outcomes.get(call) {
            None => true,
            Some(Outcome::Done(Output { .. })) => effects >= 1,
            Some(Outcome::Failed(failure)) => match failure.fault.progress() {
                Progress::NotBegun => effects == 0,
                Progress::Unconfirmed => true,
                Progress::Ended | Progress::Done => effects == 0,
            },
        };
        once && truthful
    })
}

#[test]
fn after_any_kill_no_work_is_done_twice_and_every_outcome_is_true() {
    for seed in 0..20_000 {
        assert!(holds(seed, Planted::Nothing), "seed {seed}");
    }
}

#[test]
fn the_world_of_workers_notices_planted_bugs() {
    for planted in [Planted::RunsRefused, Planted::RepeatsLost, Planted::ForgetsClaim] {
        let found = (0..20_000).find(|seed| !holds(*seed, planted));
        assert!(found.is_some(), "a planted bug was not noticed");
    }
}

#[test]
fn a_version_that_ran_is_remembered() {
    let (play, _) = offered(false);
    assert_eq!(play.session.tool_versions.get("pay").map(String::as_str), Some("v1"));
    let is_offer = |event: &Event| matches!(event, Event::ToolCallOffered { .. });
    assert!(play.entries.iter().any(|entry| is_offer(&entry.event)));
}
