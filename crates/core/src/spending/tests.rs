//! Tests of prices and caps.

use super::*;
use crate::event::SessionId;

fn config(text: Value) -> SpendingConfig {
    serde_json::from_value(text).unwrap()
}

fn usage(input_tokens: u64, output_tokens: u64, cached_tokens: u64) -> Usage {
    Usage { input_tokens, output_tokens, cached_tokens, ..Usage::default() }
}

#[test]
fn cached_and_written_tokens_have_prices_of_their_own() {
    let price = Price { input: 2.0, cached_input: Some(0.5), output: 10.0, ..Price::FREE };
    assert_eq!(price.cost(usage(1_000, 100, 400)), 600 * 2 + 200 + 1_000);
    assert_eq!(
        price.cost(usage(1, 0, 9)),
        1,
        "more cached than read is nonsense, and costs are rounded up"
    );
    let same = Price { cached_input: None, ..price.clone() };
    assert_eq!(same.cost(usage(1_000, 0, 1_000)), 2_000);
    assert_eq!(same.cost(usage(u64::MAX, u64::MAX, 0)), u64::MAX);
    let apart = Usage { cache_write_tokens: 300, reasoning_tokens: 60, ..usage(1_000, 100, 400) };
    assert_eq!(price.cost(apart), price.cost(usage(1_000, 100, 400)), "without own prices");
    let price = Price { cache_write: Some(3.0), reasoning: Some(20.0), ..price };
    assert_eq!(price.cost(apart), 300 * 2 + 200 + 300 * 3 + 40 * 10 + 60 * 20);
    assert_eq!(price.cost_max(usage(1_000, 100, 0)), 1_000 * 3 + 100 * 20);
}

#[test]
fn caps_that_make_no_sense_are_refused_with_their_key() {
    for (wrong, key) in [
        (json!({"turn": 0}), "models.spending.turn"),
        (json!({"turn": -1.5}), "models.spending.turn"),
        (json!({"session": "5 EUR"}), "models.spending.session"),
        (json!({"session": "much"}), "models.spending.session"),
        (json!({"session": 1e300}), "models.spending.session"),
        (json!({"session_tokens": 0}), "models.spending.session_tokens"),
        (json!({"turn_tokens": 0}), "models.spending.turn_tokens"),
        (json!({"day": 0}), "models.spending.day"),
        (json!({"day": "-1 USD"}), "models.spending.day"),
        (json!({"tenant_day": -2}), "models.spending.tenant_day"),
        (json!({"tenant_day": "2 EUR"}), "models.spending.tenant_day"),
        (json!({"key_day": "0 USD"}), "models.spending.key_day"),
        (json!({"key_day": "USD"}), "models.spending.key_day"),
        (json!({"day_tokens": 0}), "models.spending.day_tokens"),
        (json!({"tenant_day_tokens": 0}), "models.spending.tenant_day_tokens"),
        (json!({"key_day_tokens": 0}), "models.spending.key_day_tokens"),
        (json!({"prices": {"m": {"input": -1.0, "output": 1.0}}}), "models.spending.prices.\"m\""),
    ] {
        let fault = config(wrong.clone()).check().unwrap_err();
        assert_eq!(fault.kind(), Kind::ConfigurationWrong, "{wrong}");
        assert_eq!(fault.detail().text(Fact::ConfigKey), Some(key), "{wrong}");
    }
    for right in [json!({}), json!({"turn": 0.5}), json!({"currency": "EUR", "session": "5 EUR"})] {
        config(right).check().unwrap();
    }
}

/// Checks the caps before a request, in a session that used this many tokens.
fn check(
    caps: &SpendingConfig,
    model: &str,
    (spent, used): (&Spending, u64),
    estimate: Usage,
) -> Result<(), Fault> {
    let used = TokenCount { session: used, turn: used, turn_budget: None, shares_caps: false };
    match caps.reached_cap(model, spent, estimate, used)? {
        Some(reached) => Err(caps.cap_fault(reached)),
        None => Ok(()),
    }
}

#[test]
fn a_cap_in_money_needs_a_price() {
    let caps = config(json!({"turn": 1}));
    let admit = |model| check(&caps, model, (&Spending::default(), 0), usage(10, 10, 0));
    let fault = admit("openai:gpt-x").unwrap_err();
    assert_eq!(fault.kind(), Kind::PriceUnknown);
    assert_eq!(fault.detail().text(Fact::Model), Some("openai:gpt-x"));
    admit("demo:fast").unwrap();
}

#[test]
fn a_fault_names_the_cap_and_what_was_spent() {
    let caps = config(json!({"session": 0.01, "prices": {"m": {"input": 1.0, "output": 1.0}}}));
    let spent = Spending { session: 9_000, ..Spending::default() };
    let admit = |tokens| check(&caps, "m", (&spent, 0), usage(tokens, 0, 0));
    admit(1_000).unwrap();
    let fault = admit(1_001).unwrap_err();
    let text = |fact| fault.detail().text(fact).unwrap().to_owned();
    assert_eq!(text(Fact::ConfigKey), "models.spending.session");
    assert_eq!(text(Fact::Cap), "0.01 USD");
    assert_eq!(text(Fact::Spent), "0.009 USD");
    assert_eq!(text(Fact::Estimate), "0.001001 USD");
}

#[test]
fn tokens_are_capped_without_prices_and_lost_ones_count() {
    for cap in ["session_tokens", "turn_tokens"] {
        let caps = config(json!({cap: 100}));
        let spent = Spending { lost_tokens: 30, turn_lost_tokens: 30, ..Spending::default() };
        let admit = |used| check(&caps, "m", (&spent, used), usage(10, 10, 0));
        admit(50).unwrap();
        let fault = admit(51).unwrap_err();
        assert_eq!(fault.kind(), Kind::SpendingCapReached);
        assert_eq!(
            fault.detail().text(Fact::ConfigKey),
            Some(format!("models.spending.{cap}").as_str())
        );
        assert_eq!(fault.detail().text(Fact::Spent), Some("81 tokens"));
    }
}

#[test]
fn a_child_that_reports_its_end_again_costs_once() {
    let child = SessionId(uuid::Uuid::from_u128(7));
    let mut spent = Spending::default();
    for _ in 0..2 {
        spent.apply(&child_cost(child, Some((5, "USD")), (usage(3, 4, 0), 20)));
    }
    assert_eq!((spent.session, spent.turn, spent.lost_tokens), (5, 5, 20));
    assert_eq!(spent.children, LedgerAmount { cost: 5, tokens: 27 });
    assert_eq!(spent.turn_children, spent.children);
    assert_eq!(spent.priced, usage(3, 4, 0));
}
