//! Caps on money and tokens: reserved before each request, never exceeded, whatever is killed.

use std::time::Duration;

use budao_core::{
    Kind,
    event::{CommandBody, Decision, Event, Origin, QuestionId, SessionId, StopReason},
    fault::{Fact, Fault, Operation},
    message::{Block, ModelStop, ToolUse, Usage},
    session::CallState,
    spending::{Amount, LedgerAmount, OnCap, Price, RequestMeasure, SpendingConfig, TOPIC},
    turn::{Input, Work},
};
use serde_json::Value;

use crate::turn::play::{Play, done};

mod charged;
mod day;

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

    /// Answers with a call, and runs it.
    fn call_with(&mut self, usage: Usage) {
        let (turn, step, attempt) = self.asking();
        let call = ToolUse { id: "a".into(), name: "t".into(), arguments: "{}".into() };
        let (content, stop) = (vec![Block::ToolUse(call)], ModelStop::ToolUse);
        let response = None;
        self.input(Input::ModelAnswered { turn, step, attempt, content, stop, usage, response });
        let [Work::Check { calls, .. }] = &self.due()[..] else { panic!("a check is due") };
        let calls = calls.clone();
        self.run_all(&calls, true);
        self.end_call(&calls[0], 1, done());
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
    assert!(play.session.spending.reserved.cost > 8_192 * 10);
    play.answer_with(tokens(100, 7));
    assert_eq!(play.session.spending.session, 170);
    assert_eq!(play.session.spending.reserved, LedgerAmount::default());
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

/// Goal: what the engine measured of a request counts at once, after a kill, and for later requests.
/// Method: a measure that is higher than what was reserved is recorded while the request is under way.
#[test]
fn tools_that_are_larger_than_was_reserved_count_at_once_and_later() {
    let mut play = play(None, Some(1.0));
    play.say("hi");
    let before = play.session.spending.reserved;
    let more = LedgerAmount { cost: 5_000, tokens: 5_000 };
    let measure = RequestMeasure { overhead_tokens: 7_000, key: "0af7".into(), more };
    play.input(Input::RecordOnly { turn: play.turn(), event: measure.annotation() });
    let reserved = play.session.spending.reserved;
    assert_eq!((reserved.cost, reserved.tokens), (before.cost + 5_000, before.tokens + 5_000));
    play.kill();
    assert_eq!(play.session.spending.session, reserved.cost, "the lost request");
    assert_eq!(play.session.spending.reserved, reserved, "and the next one");
    play.answer_with(tokens(10, 1));
    let last = play.money().pop().unwrap();
    assert_eq!((&last["cost"], &last["key"]), (&20.into(), &"0af7".into()));
    play.say("more");
    assert!(play.session.spending.reserved.tokens >= reserved.tokens);
    assert_eq!(play.replayed(), play.session);
}

#[test]
fn a_service_that_counts_nothing_costs_its_estimate() {
    let mut play = play(None, Some(1.0));
    play.say("hi");
    let reserved = play.session.spending.reserved.cost;
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
    let reserved = play.session.spending.reserved.cost;
    play.model_fails(Kind::ModelAuthentication);
    assert_eq!((play.session.spending.session, play.session.spending.reserved.cost), (0, 0));
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
fn tokens_of_child_sessions_count() {
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
    let data = budao_core::spending::child_cost(child, Some((3, "USD")), (usage, 0));
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

#[test]
fn a_model_without_a_price_is_not_asked_under_a_cap() {
    let mut play = play(Some(1.0), None);
    play.limits.spending.prices.clear();
    play.say("hi");
    assert_eq!(play.ending_fault().kind(), Kind::PriceUnknown);
}

#[test]
fn a_killed_request_counts_its_tokens_without_prices() {
    let mut play = Cap::SessionTokens.play();
    play.say("hi");
    let estimate = play.session.estimate_request().total_tokens();
    assert_eq!(play.session.spending.reserved, LedgerAmount { cost: 0, tokens: estimate });
    play.kill();
    assert_eq!(play.session.spending.lost_tokens, estimate);
    play.answer_with(tokens(5, 5));
    let spent = &play.session.spending;
    assert_eq!((spent.lost_tokens, spent.session, spent.currency.as_str()), (estimate, 0, ""));
    assert_eq!(spent.reserved, LedgerAmount::default());
    assert!(play.money().iter().all(|data| data.get("cost").is_none()), "no price is known");
    for _ in 0..8 {
        if play.session.turn.is_none() {
            play.say("more");
        }
        if play.session.turn.is_some() {
            play.kill();
        }
    }
    assert_eq!(play.ending_fault().kind(), Kind::SpendingCapReached);
    let fault = play.ending_fault();
    assert_eq!(fault.detail().text(Fact::ConfigKey), Some("models.spending.session_tokens"));
    assert_eq!(fault.detail().text(Fact::Cap), Some("60000 tokens"));
    assert_eq!(play.replayed(), play.session);
}

#[test]
fn a_cap_of_a_turn_in_tokens_stops_before_the_request_and_people_raise_it() {
    let mut play = Cap::TurnTokens.play();
    play.limits.spending.on_cap = OnCap::Ask;
    play.say("hi");
    play.call_with(tokens(0, 55_000));
    let turn = play.session.turn.clone().unwrap();
    let [call] = &turn.calls[..] else { panic!("one question: {:?}", turn.calls) };
    let CallState::AwaitingDecision { question, arguments, .. } = &call.state else {
        panic!("{call:?}")
    };
    assert_eq!(arguments["setting"], "models.spending.turn_tokens");
    assert_eq!(
        (&arguments["cap"], &arguments["spent"]),
        (&"60000 tokens".into(), &"55000 tokens".into())
    );
    let question = question.clone();
    for wrong in ["0 tokens", "-5 tokens", "5 EUR", "5 USD", "", "1.5 tokens"] {
        let more = serde_json::json!({"setting": "models.spending.turn_tokens", "more": wrong});
        play.command(decide(&question, Decision::Allow, Some(more)));
        assert!(
            play.session.turn.as_ref().unwrap().is_waiting_for_person(),
            "{wrong:?} is refused"
        );
    }
    play.command(decide(&question, Decision::Allow, None));
    play.asking();
    assert_eq!(play.session.spending.turn_raised, LedgerAmount { cost: 0, tokens: Cap::TOKENS });
    play.answer_with(tokens(0, 100));
    play.say("the next turn has its own cap");
    assert_eq!(play.session.spending.turn_raised, LedgerAmount::default());
    assert_eq!(play.replayed(), play.session);
}

#[test]
fn a_raise_in_money_is_refused_unless_it_is_above_0_and_in_the_currency_of_the_cap() {
    let (mut play, question) = asked_at_the_cap();
    for wrong in ["0", "0 USD", "-1 USD", "1 EUR", "USD", "5 tokens", "nan", "1e300"] {
        let more = serde_json::json!({"setting": "models.spending.session", "more": wrong});
        play.command(decide(&question, Decision::Allow, Some(more)));
        assert!(
            play.session.turn.as_ref().unwrap().is_waiting_for_person(),
            "{wrong:?} is refused"
        );
    }
    assert_eq!(play.session.spending.raised, LedgerAmount::default());
}

#[test]
fn a_turn_ends_within_the_budget_of_its_session() {
    let mut play = Cap::Budget.play();
    play.say("hi");
    play.call_with(tokens(0, 55_000));
    let fault = play.ending_fault();
    assert_eq!(fault.kind(), Kind::TokensExhausted);
    assert_eq!(play.count("step_started"), 1);
}

#[test]
fn the_ledgers_of_its_parent_keep_the_caps_of_a_child_and_no_label_alone_does() {
    for is_child in [true, false] {
        let mut play = play(None, Some(0.01));
        let parent = SessionId(uuid::Uuid::from_u128(7));
        let root = budao_core::event::Settings::SPENDING_ROOT.to_owned();
        play.session.settings.labels.insert(root, format!("{parent}/1"));
        play.session.origin = is_child.then(|| Origin::Call { parent, call: "c".into(), depth: 1 });
        play.say("hi");
        assert_eq!(play.session.turn.is_some(), is_child);
    }
}

/// Goal: each try of a request is checked, not only the first.
/// Method: the cap has room for two requests; every try breaks off in its answer.
#[test]
fn a_request_that_breaks_off_again_and_again_stays_below_the_cap() {
    let mut play = play(None, Some(0.2));
    play.limits.retry.tries = 9;
    play.say("hi");
    for _ in 0..9 {
        if play.session.turn.is_none() {
            break;
        }
        play.model_fails(Kind::ModelStreamCut);
        if play.session.turn.is_some() {
            play.wait(Duration::from_secs(600));
        }
    }
    assert_eq!(play.ending_fault().kind(), Kind::SpendingCapReached);
    assert_eq!(play.count("step_started"), 2);
    assert!(play.session.spending.session <= 200_000, "{:?}", play.session.spending);
}

#[test]
fn a_model_that_takes_over_needs_a_price_and_room_below_the_cap() {
    let mut play = Play::with_models("m,n");
    play.limits.spending.session = Some(Amount::Number(0.5));
    play.limits.spending.prices = [("m".to_owned(), PRICE)].into();
    play.say("hi");
    play.model_fails(Kind::ModelQuota);
    assert_eq!(play.ending_fault().kind(), Kind::PriceUnknown);
    let dear = Price { output: 1_000.0, ..PRICE };
    play.limits.spending.prices.insert("n".to_owned(), dear);
    play.say("again");
    play.model_fails(Kind::ModelQuota);
    assert_eq!(play.ending_fault().kind(), Kind::SpendingCapReached);
    assert_eq!(play.count("step_started"), 2);
}

#[test]
fn an_empty_answer_costs_what_it_used() {
    let mut play = play(None, Some(1.0));
    play.say("hi");
    let (turn, step, attempt) = play.asking();
    let (content, stop, response) = (Vec::new(), ModelStop::EndTurn, None);
    let usage = tokens(100, 0);
    play.input(Input::ModelAnswered { turn, step, attempt, content, stop, usage, response });
    assert_eq!((play.session.spending.session, play.session.spending.lost_tokens), (100, 100));
}

/// A cap that a session is played under.
#[derive(Clone, Copy, Debug)]
enum Cap {
    Money,
    SessionTokens,
    TurnTokens,
    Budget,
}

impl Cap {
    const MONEY: u64 = 500_000;
    const TOKENS: u64 = 60_000;

    fn play(self) -> Play {
        match self {
            Self::Money => return play(None, Some(0.5)),
            Self::Budget => return with_budget(Self::TOKENS),
            Self::SessionTokens | Self::TurnTokens => {}
        }
        let mut play = Play::new();
        let spending = &mut play.limits.spending;
        let cap = match self {
            Self::TurnTokens => &mut spending.turn_tokens,
            _ => &mut spending.session_tokens,
        };
        *cap = Some(Self::TOKENS);
        play
    }

    /// What a session counts, in what the cap is in: used or lost, and reserved.
    fn counted(self, play: &Play) -> (u64, u64) {
        let (spent, turn) = (&play.session.spending, play.session.turn.as_ref());
        let tokens = turn.map(|turn| turn.usage).unwrap_or_default().total_tokens();
        match self {
            Self::Money => (spent.session, spent.reserved.cost),
            Self::SessionTokens => {
                let used = play.session.usage.total_tokens() + tokens;
                (used + spent.lost_tokens, spent.reserved.tokens)
            }
            Self::TurnTokens | Self::Budget => {
                (tokens + spent.turn_lost_tokens, spent.reserved.tokens)
            }
        }
    }
}

/// A session whose settings have a cap of a turn.
fn with_budget(most: u64) -> Play {
    let mut play = Play::new();
    play.session.settings.max_turn_tokens = Some(most);
    play
}
