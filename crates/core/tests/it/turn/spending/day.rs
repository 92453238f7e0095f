//! The cap of a day: a person may raise it, and nothing else.

use super::*;

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
    assert_eq!((spent.raised.cost, spent.turn_raised.cost), (0, 0), "the session's own caps stay");
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
