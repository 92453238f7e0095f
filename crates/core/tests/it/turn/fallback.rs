//! Lists of models: when the next one is asked, and when the first one is asked again.

use std::time::Duration;

use budao_core::{
    Fault, Kind,
    event::{CommandBody, Event, Settings},
    fallback::{ModelChangeReason, ModelOutlook},
    fault::Operation,
    gate::{HoldReason, HoldReport},
    message::{Block, Message, ModelStop, Role},
    turn::{Input, Work},
};

use crate::turn::play::{Play, done};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn fault(kind: Kind) -> Fault {
    Fault::new(kind, Operation::ModelRequest)
}

impl Play {
    /// Sets how long the gates of the models are expected to stay shut, in seconds.
    fn gates(&mut self, waits: &[u64]) {
        let of = |wait: &u64| ModelOutlook {
            expected_wait: Duration::from_secs(*wait),
            fault: (*wait > 0).then(|| fault(Kind::ModelOverloaded)),
        };
        self.outlooks = waits.iter().map(of).collect();
    }

    fn fails(&mut self, fault: Fault) -> Vec<&'static str> {
        let (turn, step, attempt) = self.asking();
        self.input(Input::ModelFailed { turn, step, attempt, fault })
    }

    fn is_held(&mut self, wait: Duration) -> Vec<&'static str> {
        let (turn, step, attempt) = self.asking();
        let until = Some(self.now.after(wait));
        let fault = Some(fault(Kind::ModelRateLimited).retry_after(wait));
        let reason = HoldReason::RateLimit;
        let hold = Box::new(HoldReport { reason, until, hint_until: until, before: 0, fault });
        self.input(Input::RequestHeld { turn, step, attempt, hold })
    }

    fn is_reviewed(&mut self) -> Vec<&'static str> {
        let (turn, step, attempt) = self.asking();
        self.input(Input::HoldReviewed { turn, step, attempt })
    }

    /// Every change of the model, from the records.
    fn changes(&self) -> Vec<(String, ModelChangeReason)> {
        let changes = self.entries.iter().filter_map(|entry| match &*entry.event {
            Event::ModelChanged { from, to, reason, .. } => Some((format!("{from}>{to}"), *reason)),
            _ => None,
        });
        changes.collect()
    }

    fn change(&self) -> (String, ModelChangeReason) {
        self.changes().last().cloned().expect("the model changed")
    }

    /// The model of the latest attempt, from the records.
    fn asked(&self) -> String {
        let model = self.entries.iter().rev().find_map(|entry| match &*entry.event {
            Event::StepStarted { model, .. } => Some(model.clone()),
            _ => None,
        });
        model.expect("a model was asked")
    }

    fn end(&self) -> Fault {
        self.session.last.clone().unwrap().fault.unwrap()
    }

    /// Fails and waits for the next attempt, until the round is over.
    fn fails_a_round(&mut self, kind: Kind) {
        for _ in 0..2 {
            assert_eq!(self.model_fails(kind), ["fault_raised", "retry_scheduled"]);
            let [Work::Wake { at, .. }] = self.due()[..] else { panic!("{:?}", self.due()) };
            assert_eq!(self.wait(at.since(self.now)), ["step_started"]);
        }
        self.model_fails(kind);
    }
}

fn changed(to: &str, reason: ModelChangeReason) -> (String, ModelChangeReason) {
    (to.to_owned(), reason)
}

#[test]
fn a_hint_beyond_the_bound_asks_the_next_model_at_once() {
    let mut play = Play::with_models("m,n");
    play.say("go");
    let events = play.fails(fault(Kind::ModelRateLimited).retry_after(10 * MINUTE));
    assert_eq!(events, ["fault_raised", "model_changed", "step_started"]);
    assert_eq!(play.change(), changed("m>n", ModelChangeReason::GateShut));
    assert_eq!((play.asked().as_str(), play.asking()), ("n", (1, 1, 2)));
    let events = play.answer_text("here");
    assert_eq!(events, ["recovered", "model_answered", "turn_ended"]);
    play.replayed();
}

#[test]
fn a_hint_within_the_bound_is_waited_for() {
    let mut play = Play::with_models("m,n");
    play.say("go");
    let events = play.fails(fault(Kind::ModelRateLimited).retry_after(10 * SECOND));
    assert_eq!(events, ["fault_raised", "retry_scheduled"]);
}

#[test]
fn without_a_list_nothing_changes() {
    let mut play = Play::new();
    play.gates(&[900]);
    play.say("go");
    play.fails(fault(Kind::ModelRateLimited).retry_after(10 * MINUTE));
    play.wait(10 * MINUTE);
    play.is_held(MINUTE);
    assert_eq!(play.is_reviewed(), [] as [&str; 0]);
    assert_eq!(play.changes(), []);
}

#[test]
fn a_round_used_to_the_end_asks_the_next_model_with_a_full_round_of_its_own() {
    let mut play = Play::with_models("m,n");
    play.say("go");
    play.fails_a_round(Kind::ModelServerError);
    assert_eq!(play.change(), changed("m>n", ModelChangeReason::TriesUsed));
    play.fails_a_round(Kind::ModelServerError);
    assert_eq!(play.asked(), "n", "every model had its round: the turn waits");
    let [Work::Wake { at, .. }] = play.due()[..] else { panic!("{:?}", play.due()) };
    assert_eq!(play.wait(at.since(play.now)), ["model_changed", "step_started"]);
    assert_eq!(play.change(), changed("n>m", ModelChangeReason::Returned));
    play.fails_a_round(Kind::ModelServerError);
    assert_eq!(play.change(), changed("m>n", ModelChangeReason::TriesUsed));
    let tries = play.entries.iter().filter_map(|entry| match &*entry.event {
        Event::RetryScheduled { attempt, max_attempts, .. } => Some((*attempt, *max_attempts)),
        _ => None,
    });
    let round = [(1, 3), (2, 3)];
    let rounds = [&round[..], &round[..], &[(3, 3)], &round[..]].concat();
    assert_eq!(tries.collect::<Vec<_>>(), rounds);
    play.replayed();
}

#[test]
fn permanent_faults_that_another_model_cures_rule_a_model_out_for_the_turn() {
    for (kind, reason) in [
        (Kind::UnknownModel, ModelChangeReason::UnknownModel),
        (Kind::ModelQuota, ModelChangeReason::QuotaSpent),
        (Kind::ContextTooLong, ModelChangeReason::ContextTooLong),
    ] {
        let mut play = Play::with_models("m,n");
        play.say("go");
        assert_eq!(play.model_fails(kind), ["fault_raised", "model_changed", "step_started"]);
        assert_eq!(play.change(), changed("m>n", reason));
        let calls = play.answer_calls(&[("t", "{}")]);
        play.run_all(&calls, true);
        play.end_call(&calls[0], 1, done());
        assert_eq!(play.asked(), "n", "{kind} does not pass within a turn");
        play.answer_text("here");
        play.say("again");
        assert_eq!(play.asked(), "m", "the next turn tries again after {kind}");
        play.replayed();
    }
}

#[test]
fn other_permanent_faults_of_the_first_model_end_the_turn() {
    for kind in [Kind::ModelAuthentication, Kind::ModelBadRequest, Kind::ModelRefused] {
        let mut play = Play::with_models("m,n");
        play.say("go");
        play.model_fails(kind);
        assert_eq!((play.changes(), play.end().kind()), (vec![], kind));
    }
}

#[test]
fn a_content_filter_asks_the_next_model_only_if_that_is_allowed() {
    let mut play = Play::with_models("m,n");
    play.limits.fallback.on_content_filter = true;
    play.say("go");
    play.model_fails(Kind::ModelRefused);
    assert_eq!(play.change(), changed("m>n", ModelChangeReason::ContentFiltered));
}

#[test]
fn a_broken_fallback_ends_no_turn_that_can_wait_for_the_first_model() {
    let mut play = Play::with_models("m,n");
    play.gates(&[60, 0]);
    play.say("go");
    assert_eq!(play.change(), changed("m>n", ModelChangeReason::GateShut));
    play.model_fails(Kind::ModelAuthentication);
    assert_eq!(play.change(), changed("n>m", ModelChangeReason::Unusable));
    assert_eq!(play.is_held(MINUTE), ["request_held"], "it waits for the only model left");
    assert_eq!(play.is_reviewed(), [] as [&str; 0]);
    play.gates(&[0, 0]);
    play.answer_text("here");
    play.replayed();
}

#[test]
fn a_turn_that_no_model_can_answer_fails_with_the_fault_of_the_first() {
    let mut play = Play::with_models("m,n,o");
    play.say("go");
    play.model_fails(Kind::UnknownModel);
    play.model_fails(Kind::ModelQuota);
    assert_eq!(play.asked(), "o");
    play.model_fails(Kind::ModelAuthentication);
    assert_eq!(play.end().kind(), Kind::UnknownModel);
    play.replayed();
}

#[test]
fn a_held_request_moves_on_if_the_gate_stays_shut_beyond_the_bound() {
    let mut play = Play::with_models("m,n");
    play.say("go");
    assert_eq!(play.is_held(10 * SECOND), ["request_held"]);
    assert_eq!(play.is_held(11 * SECOND), ["model_changed", "step_started"]);
    assert_eq!(play.change(), changed("m>n", ModelChangeReason::GateShut));
    assert_eq!(play.answer_text("here"), ["recovered", "model_answered", "turn_ended"]);
    play.replayed();
}

#[test]
fn a_review_of_a_long_hold_asks_a_model_whose_gate_is_open() {
    let mut play = Play::with_models("m,n,o");
    play.gates(&[9, 60, 0]);
    play.say("go");
    play.is_held(9 * SECOND);
    assert_eq!(play.is_reviewed(), ["model_changed", "step_started"]);
    assert_eq!(play.asked(), "o", "the gate of the second model is shut");
    assert_eq!(play.is_reviewed(), [] as [&str; 0], "the new request is not held");
}

#[test]
fn a_step_starts_with_the_first_model_whose_gate_opens_in_time() {
    let mut play = Play::with_models("m,n");
    play.gates(&[60, 0]);
    assert!(play.say("go").ends_with(&["turn_started", "model_changed", "step_started"]));
    let calls = play.answer_calls(&[("t", "{}")]);
    play.run_all(&calls, true);
    assert_eq!(play.end_call(&calls[0], 1, done()), ["tool_call_ended", "step_started"]);
    assert_eq!(play.asked(), "n", "the gate of the first model is still shut");
    let calls = play.answer_calls(&[("t", "{}")]);
    play.gates(&[0, 0]);
    assert_eq!(play.asked(), "n", "open calls are finished with the model that made them");
    play.run_all(&calls, true);
    let events = play.end_call(&calls[0], 1, done());
    assert_eq!(events, ["tool_call_ended", "model_changed", "step_started"]);
    assert_eq!(play.change(), changed("n>m", ModelChangeReason::Returned));
    play.replayed();
}

#[test]
fn the_choice_survives_a_restart() {
    let mut play = Play::with_models("m,n");
    play.say("go");
    play.model_fails(Kind::ModelQuota);
    play.session = play.replayed();
    play.input(Input::Resumed);
    assert_eq!((play.session.model(), play.asking()), ("n", (1, 1, 2)));
}

#[test]
fn if_all_gates_are_shut_the_turn_waits_at_the_one_that_opens_first() {
    let mut play = Play::with_models("m,n,o");
    play.gates(&[300, 60, 90]);
    play.say("go");
    assert_eq!(play.asked(), "n");
    assert_eq!(play.is_held(MINUTE), ["request_held"]);
    assert_eq!(play.is_reviewed(), [] as [&str; 0]);
    let mut equal = Play::with_models("m,n");
    equal.gates(&[60, 60]);
    equal.say("go");
    assert_eq!(equal.asked(), "m");
}

#[test]
fn when_the_patience_is_over_the_fault_is_that_of_the_first_service() {
    let mut play = Play::with_models("m,n");
    play.say("go");
    play.fails(fault(Kind::ModelRateLimited).retry_after(10 * MINUTE));
    play.gates(&[600, 60]);
    play.is_held(MINUTE);
    play.wait(20 * MINUTE);
    assert_eq!(play.end().kind(), Kind::ModelRateLimited);
    assert_eq!(play.session.turn, None);
}

#[test]
fn a_hint_beyond_the_patience_tries_the_next_model_and_else_fails_at_once() {
    let mut play = Play::with_models("m,n");
    play.limits.fallback.after = 60 * MINUTE;
    play.say("go");
    play.fails(fault(Kind::ModelRateLimited).retry_after(20 * MINUTE));
    assert_eq!(play.change(), changed("m>n", ModelChangeReason::PatienceExceeded));
    play.gates(&[20 * 60, 30 * 60]);
    play.fails(fault(Kind::ModelOverloaded).retry_after(30 * MINUTE));
    assert_eq!(play.end().kind(), Kind::ModelRateLimited, "the fault of the first service");
}

#[test]
fn gates_that_contradict_their_hints_cause_no_endless_change() {
    let mut play = Play::with_models("m,n");
    play.gates(&[60, 60]);
    play.say("go");
    for _ in 0..20 {
        if play.session.turn.is_some() {
            play.is_held(20 * MINUTE);
        }
    }
    assert!(play.changes().len() < 6, "{:?}", play.changes());
    assert_eq!(play.session.turn, None, "it fails, because no service wants it in time");
}

#[test]
fn a_turn_without_patience_asks_each_model_once_and_fails() {
    let mut play = Play::without_patience();
    let settings = Settings::default().with_models(vec!["m".to_owned(), "n".to_owned()]);
    play.command(CommandBody::Settings { settings: Box::new(settings), before: None });
    play.say("go");
    play.fails(fault(Kind::ModelOverloaded).attempt(1, 1).retry_after(MINUTE));
    assert_eq!(play.asked(), "n");
    play.gates(&[60, 60]);
    play.fails(fault(Kind::ModelServerError).attempt(1, 1).retry_after(MINUTE));
    assert_eq!(play.end().kind(), Kind::ModelOverloaded);
}

#[test]
fn reasoning_of_one_model_is_not_sent_to_another() {
    let mut play = Play::with_models("m,n");
    play.say("go");
    let signature = Some("signed".to_owned());
    let thinking = Block::Thinking { text: "hm".into(), signature };
    play.answer(
        vec![thinking.clone(), Block::Opaque("{}".into()), Block::Text("one".into())],
        ModelStop::EndTurn,
    );
    assert_eq!(play.session.history[1].content.len(), 3);
    play.say("more");
    play.model_fails(Kind::ModelQuota);
    let kept = Message { role: Role::Assistant, content: vec![Block::Text("one".into())] };
    assert_eq!(*play.session.history[1], kept);
    play.answer(vec![thinking, Block::Text("two".into())], ModelStop::EndTurn);
    assert_eq!(play.session.history[3].content.len(), 2, "its own reasoning stays");
    play.replayed();
}

#[test]
fn other_settings_begin_with_the_first_model_of_their_list() {
    let mut play = Play::with_models("m,n");
    play.say("go");
    play.model_fails(Kind::ModelQuota);
    play.answer_text("here");
    let settings = Settings { title: Some("t".into()), ..play.session.settings.clone() };
    play.command(CommandBody::Settings { settings: Box::new(settings), before: None });
    assert_eq!(play.session.model(), "n", "the list is the same");
    let settings = Settings::default().with_models(vec!["o".to_owned(), "n".to_owned()]);
    play.command(CommandBody::Settings { settings: Box::new(settings), before: None });
    assert_eq!(play.session.model(), "o");
}

#[test]
fn after_a_summary_the_first_model_is_asked_again() {
    let mut play = Play::with_models("m,n");
    for text in ["one", "two"] {
        play.say(text);
        play.answer_text("yes");
    }
    play.say("three");
    play.model_fails(Kind::ContextTooLong);
    assert_eq!(play.change(), changed("m>n", ModelChangeReason::ContextTooLong));
    let events = play.model_fails(Kind::ContextTooLong);
    assert_eq!(events, ["fault_raised", "compaction_started"], "no model is large enough");
    let events = play.input(Input::HistoryCompacted {
        turn: play.turn(),
        messages: 3,
        summary: "short".into(),
        by_model: false,
        tokens_after: 10,
        usage: Default::default(),
    });
    assert_eq!(events, ["history_compacted", "model_changed", "step_started"]);
    assert_eq!(play.asked(), "m");
    play.replayed();
}
