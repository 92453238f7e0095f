//! Rounds of attempts, requests that a gate holds, and the patience of a turn.

use std::time::Duration;

use budao_core::{
    Fault, Kind, Timestamp,
    event::{CommandBody, Event, Settings, StopReason},
    fault::Operation,
    gate::{HoldReason, HoldReport},
    turn::{Input, Work},
};

use crate::turn::play::Play;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn limited() -> Fault {
    Fault::new(Kind::ModelRateLimited, Operation::ModelRequest)
}

fn hold(play: &Play, wait: Duration) -> HoldReport {
    HoldReport {
        reason: HoldReason::RateLimit,
        until: Some(play.now.after(wait)),
        hint_until: Some(play.now.after(wait)),
        before: 7,
        fault: Some(limited().retry_after(wait)),
    }
}

impl Play {
    fn held(&mut self, hold: HoldReport) -> Vec<&'static str> {
        let (turn, step, attempt) = self.asking();
        self.input(Input::RequestHeld { turn, step, attempt, hold: Box::new(hold) })
    }

    fn released(&mut self) -> Vec<&'static str> {
        let (turn, step, attempt) = self.asking();
        self.input(Input::RequestReleased { turn, step, attempt })
    }

    fn fails_with(&mut self, fault: Fault) -> Vec<&'static str> {
        let (turn, step, attempt) = self.asking();
        self.input(Input::ModelFailed { turn, step, attempt, fault })
    }

    /// Fails and waits until the next attempt; returns the wait.
    fn fails_and_waits(&mut self, kind: Kind) -> Duration {
        self.model_fails(kind);
        let [Work::Wake { at, .. }] = self.due()[..] else { panic!("{:?}", self.due()) };
        let wait = at.since(self.now);
        assert_eq!(self.wait(wait), ["step_started"]);
        wait
    }

    fn last_fault(&self) -> Fault {
        self.session.last.clone().unwrap().fault.unwrap()
    }

    fn patience_ends(&self) -> Timestamp {
        let wake = self.due().into_iter().find_map(|work| match work {
            Work::Wake { at, .. } => Some(at),
            _ => None,
        });
        wake.expect("a held request has an end")
    }
}

#[test]
fn three_tries_make_a_round_and_another_round_follows() {
    let mut play = Play::new();
    play.say("go");
    let waits: Vec<_> = (0..7).map(|_| play.fails_and_waits(Kind::ModelServerError)).collect();
    let seconds: Vec<_> = waits.iter().map(Duration::as_secs).collect();
    assert_eq!(seconds, [1, 2, 1, 1, 2, 1, 1], "between rounds a quarter of the time so far");
    assert_eq!(waits[5], Duration::from_millis(1_750));
    let tries = play.entries.iter().filter_map(|entry| match &*entry.event {
        Event::RetryScheduled { attempt, next_attempt, max_attempts, .. } => {
            Some((*attempt, *next_attempt, *max_attempts))
        }
        _ => None,
    });
    let tries: Vec<_> = tries.collect();
    assert_eq!(tries[..4], [(1, 2, 3), (2, 3, 3), (3, 1, 3), (1, 2, 3)]);
    assert_eq!(play.count("recovery_failed"), 0, "sent only when the turn fails");
    assert_eq!(play.answer_text("ok"), ["recovered", "model_answered", "turn_ended"]);
    let attempts = play.entries.iter().find_map(|entry| match *entry.event {
        Event::Recovered { attempts, .. } => Some(attempts),
        _ => None,
    });
    assert_eq!(attempts, Some(8), "all tries of the step are counted");
    play.replayed();
}

#[test]
fn a_turn_fails_with_the_fault_of_its_service_when_its_patience_is_over() {
    let mut play = Play::new();
    play.say("go");
    let mut tries = 0;
    while play.session.turn.is_some() {
        tries += 1;
        let names = play.model_fails(Kind::ModelServerError);
        match play.due()[..] {
            [Work::Wake { at, .. }] => drop(play.wait(at.since(play.now))),
            _ => assert_eq!(names, ["fault_raised", "recovery_failed", "turn_ended"]),
        }
    }
    assert_eq!(play.last_fault().kind(), Kind::ModelServerError);
    assert!((60..=120).contains(&tries), "{tries} tries in 15 minutes");
    assert!(play.now <= Timestamp::from_micros(1_000_000).after(MINUTE * 15), "{}", play.now);
    play.replayed();
}

#[test]
fn a_held_request_is_no_try_and_its_wait_is_a_record() {
    let mut play = Play::new();
    play.say("go");
    let report = hold(&play, SECOND * 12);
    assert_eq!(play.held(report), ["request_held"]);
    let Event::RequestHeld { fault, before, until, patience_ms, .. } =
        Event::clone(&play.entries.last().unwrap().event)
    else {
        panic!("the wait is a record")
    };
    assert_eq!(fault.unwrap().kind(), Kind::ModelRateLimited);
    assert_eq!((before, until), (7, Some(play.now.after(SECOND * 12))));
    assert_eq!(patience_ms, 900_000);
    assert_eq!(play.patience_ends(), play.now.after(MINUTE * 15));
    play.now = play.now.after(SECOND * 12);
    assert_eq!(play.released(), ["request_released"]);
    assert_eq!(play.due().len(), 1, "a request that is made is not stopped by patience");
    assert_eq!(play.answer_text("ok"), ["recovered", "model_answered", "turn_ended"]);
    assert_eq!(play.count("fault_raised"), 0, "and no failure");
    play.replayed();
}

#[test]
fn repeated_hold_reports_carry_the_fault_once_and_then_only_progress() {
    let mut play = Play::new();
    play.say("go");
    play.model_fails(Kind::ModelServerError);
    play.wait(SECOND);
    for _ in 0..3 {
        let report = hold(&play, SECOND * 5);
        play.held(report);
        play.now = play.now.after(SECOND * 5);
    }
    let told = play
        .entries
        .iter()
        .filter(|entry| matches!(&*entry.event, Event::RequestHeld { fault: Some(_), .. }));
    assert_eq!(told.count(), 1, "the failed try was told, and then the new kind");
    play.replayed();
}

#[test]
fn a_turn_whose_patience_ends_fails_with_the_last_fault_of_its_service() {
    let mut play = Play::new();
    play.say("go");
    let fault = None;
    let capacity = HoldReport { reason: HoldReason::Capacity, fault, ..hold(&play, SECOND) };
    play.held(capacity);
    let broken = Some(Fault::new(Kind::ModelServerError, Operation::ModelRequest));
    for fault in [broken.clone(), Some(limited()), broken] {
        let report = HoldReport { fault, hint_until: None, ..hold(&play, SECOND) };
        play.held(report);
    }
    assert_eq!(play.wait(MINUTE * 15), ["recovery_failed", "turn_ended"]);
    assert_eq!(play.last_fault().kind(), Kind::ModelServerError, "and not with an invented one");
    play.replayed();
}

#[test]
fn a_patience_in_front_of_observers_may_be_the_longer_one() {
    let mut play = Play::new();
    play.limits.gate.patience_watched = MINUTE * 60;
    play.limits.gate.patience_background = MINUTE * 30;
    play.say("go");
    for _ in 0..2 {
        let report = hold(&play, SECOND);
        play.held(report);
        assert_eq!(play.patience_ends(), Timestamp::from_micros(1_000_000).after(MINUTE * 60));
    }
    play.is_observed = false;
    assert_eq!(play.wait(MINUTE), ["patience_changed"]);
    play.is_observed = true;
    assert_eq!(play.wait(MINUTE * 29), ["recovery_failed", "turn_ended"]);
}

#[test]
fn a_recorded_wait_has_its_end_so_that_a_later_process_restores_the_gate() {
    let mut play = Play::new();
    play.say("go");
    let report = hold(&play, MINUTE);
    play.held(report);
    let until = Some(play.now.after(MINUTE));
    assert_eq!(play.replayed().turn.unwrap().wait.until, until);
    play.now = play.now.after(MINUTE);
    play.released();
    play.answer_calls(&[("read", "{}")]);
    assert_eq!(play.replayed().turn.unwrap().wait.until, None);
}

#[test]
fn a_clock_that_is_set_back_lengthens_a_wait_by_no_more_than_the_patience() {
    let mut play = Play::new();
    play.now = play.now.after(MINUTE * 60 * 24);
    play.say("go");
    let report = hold(&play, SECOND);
    play.held(report);
    play.now = Timestamp::from_micros(1_000_000);
    let report = hold(&play, SECOND);
    play.held(report);
    assert_eq!(play.patience_ends(), play.now.after(MINUTE * 15));
    play.replayed();
}

#[test]
fn a_wait_ends_when_the_patience_is_over() {
    let mut play = Play::new();
    play.say("go");
    let report = hold(&play, MINUTE);
    play.held(report);
    assert_eq!(play.wait(MINUTE * 14), [""; 0]);
    assert_eq!(play.wait(MINUTE), ["recovery_failed", "turn_ended"]);
    assert_eq!(play.last_fault().kind(), Kind::ModelRateLimited);
    assert!(play.last_fault().to_string().contains("waited 900 s"), "{}", play.last_fault());
    play.replayed();
}

#[test]
fn an_unobserved_turn_has_the_patience_of_background_work() {
    let mut play = Play::new();
    play.say("go");
    let report = hold(&play, MINUTE);
    play.held(report);
    play.is_observed = false;
    assert_eq!(play.wait(MINUTE * 15), ["patience_changed"]);
    assert_eq!(play.patience_ends(), play.now.after(MINUTE * (24 * 60 - 15)));
    play.is_observed = true;
    assert_eq!(play.wait(MINUTE * 60), [""; 0], "an observer who returns does not end it");
    assert_eq!(play.wait(MINUTE * 23 * 60), ["recovery_failed", "turn_ended"]);
    play.replayed();
}

#[test]
fn patience_counts_the_waits_of_all_steps() {
    let mut play = Play::new();
    play.say("go");
    let report = hold(&play, MINUTE * 10);
    play.held(report);
    play.now = play.now.after(MINUTE * 10);
    play.released();
    let calls = play.answer_calls(&[("t", "{}")]);
    play.run_all(&calls, false);
    play.now = play.now.after(MINUTE * 60);
    play.end_call(&calls[0], 1, crate::turn::play::done());
    let report = hold(&play, MINUTE);
    play.held(report);
    assert_eq!(play.patience_ends(), play.now.after(MINUTE * 5), "work is no wait");
    play.replayed();
}

#[test]
fn a_hint_of_more_than_a_day_is_recorded_with_its_own_figure() {
    let mut play = Play::new();
    play.say("go");
    let hint = Duration::from_secs(99_999);
    play.fails_with(limited().retry_after(hint));
    for entry in play.entries.iter().filter(|entry| entry.event.fault().is_some()) {
        assert_eq!(entry.event.fault().unwrap().retry_hint(), Some(hint), "{:?}", entry.event);
    }
    assert_eq!(play.last_fault().retry_hint(), Some(hint));
}

#[test]
fn a_hint_beyond_the_patience_fails_the_turn_at_once() {
    let mut play = Play::new();
    play.say("go");
    let names = play.fails_with(limited().retry_after(MINUTE * 16));
    assert_eq!(names, ["fault_raised", "recovery_failed", "turn_ended"]);
    let told = play.entries.iter().rev().find_map(|entry| match &*entry.event {
        Event::FaultRaised { fault, .. } => Some(fault.clone()),
        _ => None,
    });
    assert!(!told.unwrap().may_auto_retry(), "no text promises a retry that will not come");
    assert_eq!(play.last_fault().kind(), Kind::ModelRateLimited);
    assert_eq!(play.last_fault().retry_hint(), Some(MINUTE * 16), "the service's own figure");
    play.say("again");
    let report = hold(&play, MINUTE * 16);
    assert_eq!(
        play.held(report),
        ["recovery_failed", "turn_ended"],
        "also if another session got it"
    );
}

#[test]
fn a_hint_above_the_ceiling_is_waited_for_as_long_as_the_ceiling() {
    let mut play = Play::new();
    play.is_observed = false;
    play.say("go");
    assert_eq!(
        play.fails_with(limited().retry_after(MINUTE * 60)),
        ["fault_raised", "retry_scheduled"]
    );
    let [Work::Wake { at, .. }] = play.due()[..] else { panic!("{:?}", play.due()) };
    assert_eq!(at.since(play.now), MINUTE * 10);
}

#[test]
fn a_cancel_ends_a_wait_at_once() {
    let mut play = Play::new();
    play.say("go");
    let report = hold(&play, MINUTE);
    play.held(report);
    assert_eq!(play.cancel(), ["cancel_requested", "turn_ended"]);
    assert_eq!(play.session.last.as_ref().unwrap().stop, StopReason::Cancelled);
}

#[test]
fn a_restart_goes_on_waiting_with_the_patience_that_is_left() {
    let mut play = Play::new();
    play.say("go");
    let report = hold(&play, MINUTE);
    play.held(report);
    let ends = play.patience_ends();
    play.session = play.replayed();
    play.now = play.now.after(MINUTE * 3);
    play.input(Input::Resumed);
    assert_eq!(play.patience_ends(), ends);
    assert_eq!(play.released(), ["request_released"], "the new gate is open");
    play.model_fails(Kind::ModelServerError);
    play.replayed();
}

#[test]
fn the_patience_of_a_session_can_be_set_and_changed_during_a_wait() {
    let mut play = Play::new();
    play.say("go");
    let report = hold(&play, SECOND);
    play.held(report);
    play.now = play.now.after(MINUTE);
    let set = |patience_ms| {
        let settings = Settings { model: "m".into(), patience_ms, ..Settings::default() };
        CommandBody::Settings { settings: Box::new(settings), before: None }
    };
    let (names, _) = play.command(set(Some(120_000)));
    assert_eq!(names, ["settings_changed", "patience_changed"]);
    assert_eq!(play.patience_ends(), play.now.after(MINUTE));
    let (names, _) = play.command(set(Some(30_000)));
    assert_eq!(names, ["settings_changed", "recovery_failed", "turn_ended"]);
    play.replayed();
}

#[test]
fn without_patience_a_turn_has_its_three_tries_and_waits_for_no_gate() {
    let mut play = Play::without_patience();
    play.say("go");
    let report = hold(&play, SECOND);
    assert_eq!(play.held(report), ["recovery_failed", "turn_ended"]);
    play.say("again");
    assert_eq!(play.model_fails(Kind::ModelServerError), ["fault_raised", "retry_scheduled"]);
}

#[test]
fn a_late_report_of_the_gate_changes_nothing() {
    let mut play = Play::new();
    play.say("go");
    let report = hold(&play, SECOND);
    let late = Input::RequestHeld { turn: 1, step: 1, attempt: 9, hold: Box::new(report) };
    assert_eq!(play.input(late), [""; 0]);
    assert_eq!(play.released(), [""; 0], "it was not held");
}

#[test]
fn the_time_that_an_answer_takes_is_no_wait() {
    let mut play = Play::new();
    play.say("go");
    let report = hold(&play, SECOND * 2);
    play.held(report);
    play.wait(SECOND * 2);
    play.released();
    play.wait(MINUTE * 10);
    play.answer_calls(&[("read", "{}")]);
    let waited = play.session.turn.as_ref().unwrap().wait.waited_ms(play.now);
    assert_eq!(waited, 2000, "the answer took ten minutes, the wait two seconds");
    play.replayed();
}

#[test]
fn a_small_patience_leaves_a_request_its_three_tries() {
    let mut play = Play::new();
    let settings = Settings { patience_ms: Some(500), ..play.session.settings.clone() };
    play.command(CommandBody::Settings { settings: Box::new(settings), before: None });
    play.say("go");
    let waits: Vec<_> = (0..2).map(|_| play.fails_and_waits(Kind::ModelStreamCut)).collect();
    assert_eq!(waits.iter().map(Duration::as_secs).collect::<Vec<_>>(), [1, 2]);
    let names = play.model_fails(Kind::ModelStreamCut);
    assert_eq!(names.last(), Some(&"turn_ended"), "no patience is left for another round");
    play.replayed();
}

#[test]
fn a_hint_beyond_the_patience_ends_the_turn_with_the_fault_that_has_it() {
    let mut play = Play::new();
    play.say("go");
    play.fails_and_waits(Kind::ModelStreamCut);
    let report = hold(&play, MINUTE * 60);
    play.held(report);
    assert_eq!(play.last_fault().kind(), Kind::ModelRateLimited);
    play.replayed();
}

#[test]
fn a_compaction_that_waits_ends_with_the_patience_of_its_turn() {
    let mut play = Play::new();
    for text in ["one", "two"] {
        play.say(text);
        play.answer_text("ok");
    }
    play.say("go");
    play.model_fails(Kind::ContextTooLong);
    let report = HoldReport { reason: HoldReason::Capacity, fault: None, ..hold(&play, SECOND) };
    let held = Input::RequestHeld { turn: 3, step: 1, attempt: 1, hold: Box::new(report) };
    assert_eq!(play.input(held), ["request_held"]);
    assert!(
        matches!(play.due()[..], [Work::Compact { .. }, Work::Wake { .. }]),
        "{:?}",
        play.due()
    );
    assert_eq!(play.wait(MINUTE * 15), ["recovery_failed", "turn_ended"]);
    play.replayed();
}

#[test]
fn one_setting_bounds_how_long_a_retry_hint_is_followed() {
    let mut play = Play::without_patience();
    play.limits.gate.hint_ceiling = MINUTE;
    play.say("go");
    let names = play.fails_with(limited().retry_after(MINUTE * 2));
    assert_eq!(names, ["fault_raised", "recovery_failed", "turn_ended"]);
    assert_eq!(play.last_fault().kind(), Kind::RetryAfterTooLong);
    let unknown = serde_json::json!({"hint_ceiling": 1000});
    assert!(serde_json::from_value::<budao_core::retry::RetryPolicy>(unknown).is_err());
}
