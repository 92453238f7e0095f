//! Caps on money: reserved before each request, never exceeded, whatever is killed.

use budao_core::{
    Kind,
    event::{CommandBody, Decision, Event, QuestionId, SessionId, StopReason},
    fault::{Fact, Fault, Operation},
    message::{Block, ModelStop, ToolUse, Usage},
    session::CallState,
    spending::{Amount, OnCap, Price, SpendingConfig, TOPIC},
    turn::{Input, Work},
};
use proptest::prelude::*;
use serde_json::Value;

use crate::turn::play::{Play, done};

/// One millionth of the currency for each token that is read, ten for each that is written.
const PRICE: Price = Price { input: 1.0, output: 10.0, ..Price::FREE };

fn play(turn: Option<f64>, session: Option<f64>) -> Play {
    let mut play = Play::new();
    let amount = |amount: Option<f64>| amount.map(Amount::Number);
    play.limits.spending = SpendingConfig {
        turn: amount(turn),
        session: amount(session),
        prices: [("m".to_owned(), PRICE)].into(),
        ..SpendingConfig::default()
    };
    play
}

fn tokens(input_tokens: u64, output_tokens: u64) -> Usage {
    Usage { input_tokens, output_tokens, ..Usage::default() }
}

impl Play {
    fn answer_with(&mut self, usage: Usage) -> Vec<&'static str> {
        let (turn, step, attempt) = self.asking();
        let (content, stop) = (vec![Block::Text("so".into())], ModelStop::EndTurn);
        self.input(Input::ModelAnswered {
            turn,
            step,
            attempt,
            content,
            stop,
            usage,
            response: None,
        })
    }

    /// The annotations about money, oldest first.
    fn money(&self) -> Vec<Value> {
        let data = self.entries.iter().filter_map(|entry| match &*entry.event {
            Event::Annotated { topic, data } if topic == TOPIC => Some(data.clone()),
            _ => None,
        });
        data.collect()
    }

    fn ending_fault(&self) -> Fault {
        self.session.last.as_ref().unwrap().fault.clone().unwrap()
    }

    /// Ends the process and starts another: the records are all that is left.
    fn kill(&mut self) {
        self.session = self.replayed();
        self.input(Input::Resumed);
    }
}

#[test]
fn without_prices_nothing_is_recorded() {
    let mut play = Play::new();
    play.say("hi");
    play.answer_text("so");
    assert_eq!(play.money(), [] as [Value; 0]);
}

#[test]
fn a_request_is_reserved_before_it_is_made_and_costs_what_was_used() {
    let mut play = play(None, Some(1.0));
    let names = play.say("hi");
    let at = |wanted| names.iter().position(|name| *name == wanted).unwrap();
    assert!(at("annotated") < at("step_started"), "{names:?}");
    assert!(play.session.spending.reserved > 8_192 * 10);
    play.answer_with(tokens(100, 7));
    assert_eq!(play.session.spending.session, 170);
    assert_eq!(play.session.spending.reserved, 0);
    let last = play.money().pop().unwrap();
    assert_eq!(
        (&last["cost"], &last["currency"], &last["model"]),
        (&170.into(), &"USD".into(), &"m".into())
    );
    play.say("more");
    play.answer_with(tokens(10, 0));
    assert_eq!((play.session.spending.turn, play.session.spending.session), (10, 180));
    play.replayed();
}

#[test]
fn a_turn_ends_before_the_request_that_could_exceed_its_cap() {
    let mut play = play(Some(0.1), None);
    play.say("hi");
    let (turn, step, attempt) = play.asking();
    let call = budao_core::message::ToolUse {
        id: budao_core::message::CallId::from("a"),
        name: "t".into(),
        arguments: "{}".into(),
    };
    let content = vec![Block::ToolUse(call)];
    let usage = tokens(0, 5_000);
    play.input(Input::ModelAnswered {
        turn,
        step,
        attempt,
        content,
        stop: ModelStop::ToolUse,
        usage,
        response: None,
    });
    let [Work::Check { calls, .. }] = &play.due()[..] else { panic!("a check is due") };
    let calls = calls.clone();
    play.run_all(&calls, true);
    play.end_call(&calls[0], 1, done());
    let last = play.session.last.clone().unwrap();
    assert_eq!(last.stop, StopReason::Failed);
    let fault = play.ending_fault();
    assert_eq!(fault.kind(), Kind::SpendingCapReached);
    assert_eq!(fault.detail().text(Fact::ConfigKey), Some("models.spending.turn"));
    assert_eq!(fault.detail().text(Fact::Spent), Some("0.05 USD"));
    play.say("the next turn has its own cap");
    play.asking();
}

#[test]
fn a_service_that_counts_nothing_costs_its_estimate() {
    let mut play = play(None, Some(1.0));
    play.say("hi");
    let reserved = play.session.spending.reserved;
    play.answer_with(Usage::default());
    assert_eq!(play.session.spending.session, reserved);
    assert_eq!(play.money().pop().unwrap()["is_estimate"], true);
}

#[test]
fn an_estimate_is_marked_reported_once_in_a_session_and_counts_toward_caps() {
    let mut play = play(None, Some(1.0));
    play.say("hi");
    let own = play.session.tokens;
    let estimate = play.session.estimate_request();
    let usage = Usage::default().or_estimate(estimate, 400);
    assert_eq!(usage.estimated_tokens, estimate.input_tokens + 500);
    for _ in 0..2 {
        let (turn, step, attempt) = play.asking();
        let stop = ModelStop::ToolUse;
        let call = ToolUse { id: "a".into(), name: "t".into(), arguments: "{}".into() };
        let content = vec![Block::ToolUse(call)];
        let response = None;
        play.input(Input::ModelAnswered { turn, step, attempt, content, stop, usage, response });
        assert_eq!(play.money().pop().unwrap()["is_estimate"], true);
        let [Work::Check { calls, .. }] = &play.due()[..] else { panic!("a check is due") };
        let calls = calls.clone();
        play.run_all(&calls, true);
        play.end_call(&calls[0], 1, done());
    }
    let faults = play.entries.iter().filter_map(|entry| entry.event.fault());
    let faults: Vec<Kind> = faults.map(Fault::kind).collect();
    assert_eq!(faults, [Kind::UsageUnknown]);
    assert!(play.session.tokens < own + 100, "the history is not as long as the estimate");
    play.limits.spending.session_tokens = Some(3 * usage.total_tokens());
    play.answer_with(usage);
    play.say("the next turn");
    assert_eq!(play.ending_fault().kind(), Kind::SpendingCapReached);
    assert_eq!(play.replayed(), play.session);
}

#[test]
fn only_counts_that_cannot_be_true_are_estimated() {
    let estimate = tokens(2_000, 8_000);
    let counted = |usage: Usage| {
        let usage = usage.or_estimate(estimate, 100);
        (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.estimated_tokens)
    };
    let cached = |cached_tokens, usage| Usage { cached_tokens, ..usage };
    assert_eq!(counted(cached(60, tokens(90, 7))), (90, 7, 60, 0));
    assert_eq!(counted(cached(91, tokens(90, 7))), (2_000, 7, 0, 2_000));
    assert_eq!(counted(tokens(90, 0)), (90, 125, 0, 125));
    assert_eq!(counted(tokens(0, 7)), (2_000, 7, 0, 2_000));
    assert_eq!(
        tokens(90, 0).or_estimate(estimate, 10_000).output_tokens,
        8_000,
        "at most the longest answer"
    );
    assert_eq!(tokens(90, 0).or_estimate(estimate, 0), tokens(90, 0));
}

#[test]
fn a_refused_request_costs_nothing_and_one_that_broke_off_stays_spent() {
    let mut play = play(None, Some(1.0));
    play.say("hi");
    let reserved = play.session.spending.reserved;
    play.model_fails(Kind::ModelAuthentication);
    assert_eq!((play.session.spending.session, play.session.spending.reserved), (0, 0));
    play.say("again");
    play.delta("hal");
    play.model_fails(Kind::ModelAuthentication);
    assert!(play.session.spending.session >= reserved);
    play.say("and again");
    let before = play.session.spending.session;
    play.cancel();
    assert!(play.session.spending.session > before, "a cancelled request may have been answered");
}

#[test]
fn what_child_sessions_use_counts() {
    let mut play = play(None, Some(1.0));
    play.say("hi");
    let ended = Event::ChildEnded {
        child: SessionId(uuid::Uuid::from_u128(7)),
        call: None,
        stage: None,
        task: None,
        usage: tokens(0, 1_000),
    };
    play.input(Input::RecordOnly { turn: play.turn(), event: ended });
    play.answer_with(tokens(5, 0));
    assert_eq!(play.session.spending.session, 10_005);
}

#[test]
fn a_child_session_costs_what_its_own_model_costs() {
    let mut play = play(None, Some(1.0));
    play.say("hi");
    let child = SessionId(uuid::Uuid::from_u128(7));
    let usage = tokens(0, 1_000);
    let data = budao_core::spending::child_cost(child, 3, usage, "USD");
    let cost = Event::Annotated { topic: TOPIC.to_owned(), data };
    play.input(Input::RecordOnly { turn: play.turn(), event: cost });
    let ended = Event::ChildEnded { child, call: None, stage: None, task: None, usage };
    play.input(Input::RecordOnly { turn: play.turn(), event: ended });
    play.answer_with(tokens(5, 0));
    assert_eq!(play.session.spending.session, 8);
    assert_eq!(play.session.spending.children.tokens, 1_000);
}

/// Asks twice with a cap that has room for one request; returns the open question.
fn asked_at_the_cap() -> (Play, QuestionId) {
    let mut play = play(None, Some(0.1));
    play.limits.spending.on_cap = OnCap::Ask;
    play.say("hi");
    play.answer_with(tokens(0, 5_000));
    let names = play.say("more");
    assert_eq!(names.last(), Some(&"question_asked"), "{names:?}");
    let turn = play.session.turn.clone().unwrap();
    assert!(turn.is_waiting_for_person());
    let [call] = &turn.calls[..] else { panic!("one question: {:?}", turn.calls) };
    let CallState::AwaitingDecision { question, arguments, .. } = &call.state else {
        panic!("{call:?}")
    };
    assert_eq!(arguments["setting"], "models.spending.session");
    assert_eq!(arguments["spent"], "0.05 USD");
    let question = question.clone();
    (play, question)
}

fn decide(question: &QuestionId, decision: Decision, arguments: Option<Value>) -> CommandBody {
    CommandBody::Decide {
        question: question.clone(),
        decision,
        note: None,
        arguments,
        digest: None,
    }
}

#[test]
fn a_person_raises_the_cap_and_the_turn_goes_on() {
    let (mut play, question) = asked_at_the_cap();
    play.kill();
    let few = serde_json::json!({"setting": "models.spending.session", "more": "0"});
    play.command(decide(&question, Decision::Allow, Some(few)));
    assert!(play.session.turn.as_ref().unwrap().is_waiting_for_person(), "0 is refused");
    play.command(decide(&question, Decision::Allow, None));
    play.asking();
    assert_eq!(play.session.spending.raised.cost, 100_000);
    let raised = play.money().into_iter().find(|data| data.get("raised").is_some()).unwrap();
    assert_eq!(raised["setting"], "session");
    play.answer_with(tokens(0, 100));
    assert_eq!(play.session.last.as_ref().unwrap().stop, StopReason::EndTurn);
    assert_eq!(play.replayed(), play.session);
}

#[test]
fn a_turn_ends_at_the_cap_if_people_decline_cancel_or_stay_away() {
    let (mut play, question) = asked_at_the_cap();
    play.command(decide(&question, Decision::Deny, None));
    assert_eq!(play.ending_fault().kind(), Kind::SpendingCapReached);
    let (mut play, _) = asked_at_the_cap();
    play.cancel();
    assert_eq!(play.session.last.as_ref().unwrap().stop, StopReason::Cancelled);
    let (mut play, _) = asked_at_the_cap();
    play.now = play.now.after(play.limits.question);
    play.input(Input::TimerFired { turn: play.turn() });
    assert_eq!(play.ending_fault().kind(), Kind::SpendingCapReached);
    let history = play.session.history.len();
    assert_eq!(history, 3, "a question to people is no call of the model");
}

/// A request that fails at the cap of a day; returns the open question.
fn asked_at_the_cap_of_a_day() -> (Play, QuestionId) {
    let mut play = play(None, None);
    play.limits.spending.on_day_cap = OnCap::Ask;
    play.say("hi");
    let (turn, step, attempt) = play.asking();
    let fault = at_the_cap_of_a_day();
    let names = play.input(Input::ModelFailed { turn, step, attempt, fault });
    assert_eq!(names.last(), Some(&"question_asked"), "{names:?}");
    let turn = play.session.turn.clone().unwrap();
    let [call] = &turn.calls[..] else { panic!("one question: {:?}", turn.calls) };
    let CallState::AwaitingDecision { question, arguments, .. } = &call.state else {
        panic!("{call:?}")
    };
    assert_eq!(arguments["scope"], "tenant/acme");
    assert_eq!(arguments["more"], "0.29 USD");
    let question = question.clone();
    (play, question)
}

fn at_the_cap_of_a_day() -> Fault {
    Fault::new(Kind::SpendingCapReached, Operation::RunTurn)
        .with(Fact::ConfigKey, "models.spending.tenant_day")
        .with(Fact::CapScope, "tenant/acme")
        .with(Fact::Cap, "0.1 USD")
        .with(Fact::Spent, "0.09 USD")
        .with(Fact::Estimate, "0.3 USD")
}

#[test]
fn a_person_raises_the_cap_of_a_day_and_can_change_nothing_but_the_amount() {
    let (mut play, question) = asked_at_the_cap_of_a_day();
    play.kill();
    let edited =
        serde_json::json!({"setting": "models.spending.day", "scope": "all", "more": "2 USD"});
    play.command(decide(&question, Decision::Allow, Some(edited)));
    play.asking();
    let spent = &play.session.spending;
    let [raise] = &spent.day_raises[..] else { panic!("{spent:?}") };
    assert_eq!((raise.scope.as_str(), raise.more.cost), ("tenant/acme", 2_000_000));
    assert_eq!((spent.raised.cost, spent.turn_raised), (0, 0), "the session's own caps stay");
    play.answer_with(tokens(5, 0));
    play.say("more");
    assert_eq!(play.session.spending.day_raises.len(), 1, "the next turn knows it, too");
    assert_eq!(play.replayed(), play.session);
}

#[test]
fn a_turn_ends_at_the_cap_of_a_day_if_people_decline() {
    let (mut play, question) = asked_at_the_cap_of_a_day();
    play.command(decide(&question, Decision::Deny, None));
    let (turn, step, attempt) = play.asking();
    let fault = at_the_cap_of_a_day();
    play.input(Input::ModelFailed { turn, step, attempt, fault });
    assert_eq!(play.ending_fault().kind(), Kind::SpendingCapReached);
    assert_eq!(play.session.spending.day_raises, []);
}

#[test]
fn a_model_without_a_price_is_not_asked_under_a_cap() {
    let mut play = play(Some(1.0), None);
    play.limits.spending.prices.clear();
    play.say("hi");
    assert_eq!(play.ending_fault().kind(), Kind::PriceUnknown);
}

/// What happens to a request that was made.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// Answered, with this share of the most that it can use, in percent.
    Answered(u64),
    /// Answered by a service that does not count.
    Uncounted(u64),
    Refused,
    /// The process is killed after the service has answered, and the answer is lost.
    Killed(u64),
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let share = || 0_u64..=100;
    let fate = prop_oneof![
        3 => share().prop_map(Fate::Answered),
        1 => share().prop_map(Fate::Uncounted),
        1 => Just(Fate::Refused),
        3 => share().prop_map(Fate::Killed),
    ];
    prop::collection::vec(fate, 1..60)
}

proptest! {
    /// Goal: what the service charges never exceeds the cap, whatever is killed.
    /// Method: the service charges every request it answers, up to its estimate; the process dies at any of them and
    /// knows only its records.
    #[test]
    fn what_is_charged_never_exceeds_the_cap(fates in fates()) {
        let mut play = play(None, Some(0.5));
        let (mut charged, cap) = (0, 500_000);
        for fate in fates {
            if play.session.turn.is_none() {
                play.say("hi");
            }
            if !matches!(play.due().first(), Some(Work::Model { .. })) {
                break; // The cap was reached.
            }
            let most = play.session.spending.reserved;
            prop_assert!(most > 0, "a request without a reservation");
            let output = |share: u64| tokens(0, most / 10 * share / 100);
            match fate {
                Fate::Answered(share) => {
                    charged += PRICE.cost(output(share));
                    play.answer_with(output(share));
                }
                Fate::Uncounted(share) => {
                    charged += PRICE.cost(output(share));
                    play.answer_with(Usage::default());
                }
                Fate::Refused => {
                    let fault = Fault::new(Kind::ModelAuthentication, Operation::ModelRequest);
                    let (turn, step, attempt) = play.asking();
                    play.input(Input::ModelFailed { turn, step, attempt, fault });
                }
                Fate::Killed(share) => {
                    charged += PRICE.cost(output(share));
                    play.kill();
                }
            }
            let spending = play.session.spending.clone();
            prop_assert!(charged <= spending.session, "{charged} of {spending:?} is not known");
            prop_assert!(spending.session + spending.reserved <= cap, "{spending:?}");
        }
        prop_assert!(charged <= cap);
    }
}
