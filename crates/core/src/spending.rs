//! Prices of models, what sessions spend, and caps on it.
//!
//! Money is counted in millionths of the configured currency. A request reserves its estimate in the journal before it
//! is made; its answer replaces the reservation by the cost. A request whose answer was lost stays spent, because
//! nobody knows better. The turn decides (`turn::spending`); this module has prices, caps and the state.

mod ledger;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    fault::{Fact, Fault, Kind, Operation},
    message::Usage,
};

pub use ledger::{Ledger, LedgerAmount, LedgerScope, day_of};

/// The topic of the annotations that record reservations and costs.
pub const TOPIC: &str = "core.spending";

/// Millionths of a unit of money.
const MICROS: f64 = 1_000_000.0;
/// The largest amount or price, in units of the currency. It keeps all sums within 64 bits.
const AMOUNT_MAX: f64 = 1_000_000_000.0;

/// An amount of money as it is configured: a number, or a text with its currency (`"5 USD"`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Amount {
    /// In the configured currency.
    Number(f64),
    /// A number and a currency.
    Text(String),
}

/// The prices of a model, per million tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Tokens that the model reads.
    pub input: f64,
    /// Tokens that the model reads from the service's cache; as `input` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input: Option<f64>,
    /// Tokens that the model writes, reasoning included.
    pub output: f64,
}

impl Price {
    /// What these tokens cost, in millionths, rounded up.
    #[must_use]
    pub fn cost(&self, usage: Usage) -> u64 {
        let cached = usage.cached_tokens.min(usage.input_tokens);
        let fresh = usage.input_tokens - cached;
        // A price per million tokens is the same number in millionths per token.
        let of = |tokens: u64, price: f64| tokens as f64 * price;
        let cost = of(fresh, self.input)
            + of(cached, self.cached_input.unwrap_or(self.input))
            + of(usage.output_tokens, self.output);
        // A cast from a float saturates.
        cost.ceil() as u64
    }
}

/// Prices and caps. Without prices and caps, nothing is counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpendingConfig {
    /// The currency of all prices and caps.
    pub currency: String,
    /// The most that one turn may cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<Amount>,
    /// The most that all turns of a session may cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Amount>,
    /// The most tokens of all turns of a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_tokens: Option<u64>,
    /// The most that all sessions of the journal may cost in a day, in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day: Option<Amount>,
    /// The most that the sessions of one tenant may cost in a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_day: Option<Amount>,
    /// The most that requests with one API key may cost in a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_day: Option<Amount>,
    /// The most tokens of all sessions in a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day_tokens: Option<u64>,
    /// The most tokens of one tenant in a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_day_tokens: Option<u64>,
    /// The most tokens of one API key in a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_day_tokens: Option<u64>,
    /// Prices by the model's specification, as sessions name it.
    pub prices: BTreeMap<String, Price>,
}

impl Default for SpendingConfig {
    fn default() -> Self {
        Self {
            currency: "USD".to_owned(),
            turn: None,
            session: None,
            session_tokens: None,
            day: None,
            tenant_day: None,
            key_day: None,
            day_tokens: None,
            tenant_day_tokens: None,
            key_day_tokens: None,
            prices: BTreeMap::new(),
        }
    }
}

impl SpendingConfig {
    /// Checks prices and caps.
    ///
    /// # Errors
    /// `configuration_wrong` for a cap of 0, a negative or infinite number, and another currency.
    pub fn check(&self) -> Result<(), Fault> {
        let caps = [("turn", &self.turn), ("session", &self.session)];
        for (key, amount) in caps.into_iter().chain(self.day_amounts()) {
            if let Some(amount) = amount {
                self.micros(key, amount)?;
            }
        }
        let counts = [("session_tokens", self.session_tokens)];
        for (key, count) in counts.into_iter().chain(self.day_counts()) {
            if count == Some(0) {
                return Err(wrong(key, "at least 1; leave it out for no cap", "0"));
            }
        }
        for (model, price) in &self.prices {
            let prices = [Some(price.input), price.cached_input, Some(price.output)];
            if let Some(bad) =
                prices.into_iter().flatten().find(|it| !(0.0..=AMOUNT_MAX).contains(it))
            {
                let key = format!("prices.\"{model}\"");
                return Err(wrong(&key, "numbers that are not negative", &bad.to_string()));
            }
        }
        Ok(())
    }

    fn micros(&self, key: &str, amount: &Amount) -> Result<u64, Fault> {
        let (number, currency) = match amount {
            Amount::Number(number) => (Some(*number), None),
            Amount::Text(text) => {
                let (number, currency) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
                (number.parse().ok(), Some(currency.trim()))
            }
        };
        if let Some(currency) = currency.filter(|it| !it.is_empty() && *it != self.currency) {
            let expected = format!("an amount in {}, the currency of the prices", self.currency);
            return Err(wrong(key, &expected, currency));
        }
        match number.filter(|number| *number > 0.0 && *number <= AMOUNT_MAX) {
            Some(number) => Ok((number * MICROS) as u64),
            None => {
                let received = match amount {
                    Amount::Number(number) => number.to_string(),
                    Amount::Text(text) => text.clone(),
                };
                Err(wrong(key, "an amount above 0; leave it out for no cap", &received))
            }
        }
    }

    fn day_amounts(&self) -> [(&'static str, &Option<Amount>); 3] {
        [("day", &self.day), ("tenant_day", &self.tenant_day), ("key_day", &self.key_day)]
    }

    fn day_counts(&self) -> [(&'static str, Option<u64>); 3] {
        let (tenant, key) = (self.tenant_day_tokens, self.key_day_tokens);
        [("day_tokens", self.day_tokens), ("tenant_day_tokens", tenant), ("key_day_tokens", key)]
    }

    /// The cap of a day in money, in millionths.
    fn day_cap(&self, name: &str) -> Option<u64> {
        let (key, cap) = self.day_amounts().into_iter().find(|(key, _)| *key == name)?;
        self.micros(key, cap.as_ref()?).ok()
    }

    fn day_tokens_cap(&self, name: &str) -> Option<u64> {
        self.day_counts().into_iter().find(|(key, _)| *key == name)?.1
    }

    /// Whether a cap of a day is set, in money or tokens.
    #[must_use]
    pub fn has_day_caps(&self) -> bool {
        self.day_amounts().iter().any(|(_, cap)| cap.is_some())
            || self.day_counts().iter().any(|(_, cap)| cap.is_some())
    }

    /// Whether requests are counted in ledgers: for a cap of a day, or because there are prices.
    #[must_use]
    pub fn has_ledgers(&self) -> bool {
        self.has_day_caps() || !self.prices.is_empty()
    }

    /// The caps in money that are set: their names and amounts in millionths.
    fn money_caps(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let caps = [("turn", &self.turn), ("session", &self.session)];
        caps.into_iter().filter_map(|(key, cap)| Some((key, self.micros(key, cap.as_ref()?).ok()?)))
    }

    /// The price of a model. The built-in models without a service cost nothing.
    #[must_use]
    pub fn price(&self, model: &str) -> Option<Price> {
        let is_free = model == "demo" || model.starts_with("demo:") || model.starts_with("script:");
        let free = is_free.then_some(Price { input: 0.0, cached_input: None, output: 0.0 });
        self.prices.get(model).cloned().or(free)
    }

    /// Whether costs are recorded.
    #[must_use]
    pub fn is_active(&self) -> bool {
        let has_day_cap = self.day_amounts().iter().any(|(_, cap)| cap.is_some());
        !self.prices.is_empty() || self.turn.is_some() || self.session.is_some() || has_day_cap
    }

    /// Checks the caps before a request with this estimate, in tokens.
    ///
    /// # Errors
    /// `price_unknown` if a cap in money is set and the model has no price; `spending_cap_reached` if the request could
    /// exceed a cap.
    pub fn admit(
        &self,
        model: &str,
        spent: &Spending,
        estimate: Usage,
        session: Usage,
    ) -> Result<(), Fault> {
        let tokens = |usage: Usage| usage.input_tokens.saturating_add(usage.output_tokens);
        if let Some(cap) = self.session_tokens {
            let used = tokens(session);
            if used.saturating_add(tokens(estimate)) > cap {
                let told = |count: u64| format!("{count} tokens");
                return Err(reached("session_tokens", [cap, used, tokens(estimate)].map(told)));
            }
        }
        let mut caps = self.money_caps().peekable();
        let has_day_cap = self.day_amounts().iter().any(|(_, cap)| cap.is_some());
        if caps.peek().is_none() && !has_day_cap {
            return Ok(());
        }
        let price = self.price(model).ok_or_else(|| {
            Fault::new(Kind::PriceUnknown, Operation::RunTurn)
                .with(Fact::Model, model.to_owned())
                .with(Fact::ConfigKey, format!("models.spending.prices.\"{model}\""))
        })?;
        let next = price.cost(estimate);
        for (key, cap) in caps {
            let used = if key == "turn" { spent.turn } else { spent.session };
            let used = used.saturating_add(spent.reserved);
            if used.saturating_add(next) > cap {
                return Err(reached(key, [cap, used, next].map(|micros| self.shown(micros))));
            }
        }
        Ok(())
    }

    /// Reads an amount of money as it is written, in millionths.
    ///
    /// # Errors
    /// `configuration_wrong` for an amount that is not above 0 or in another currency.
    pub fn read_amount(&self, text: &str) -> Result<u64, Fault> {
        self.micros("amount", &Amount::Text(text.to_owned()))
    }

    fn shown(&self, micros: u64) -> String {
        shown_amount(micros, &self.currency)
    }
}

/// An amount for people: `0.0125 USD`.
#[must_use]
pub fn shown_amount(micros: u64, currency: &str) -> String {
    let number = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    let number = number.trim_end_matches('0').trim_end_matches('.');
    format!("{number} {currency}")
}

fn wrong(key: &str, expected: &str, received: &str) -> Fault {
    Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
        .with(Fact::ConfigKey, format!("models.spending.{key}"))
        .with(Fact::Expected, expected.to_owned())
        .with(Fact::Received, received.to_owned())
}

fn reached(key: &str, [cap, spent, estimate]: [String; 3]) -> Fault {
    Fault::new(Kind::SpendingCapReached, Operation::RunTurn)
        .with(Fact::ConfigKey, format!("models.spending.{key}"))
        .with(Fact::Cap, cap)
        .with(Fact::Spent, spent)
        .with(Fact::Estimate, estimate)
}

/// What a session has spent, in millionths of the currency.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spending {
    /// All turns together.
    pub session: u64,
    /// The running turn, or the last one.
    pub turn: u64,
    /// The estimate of the request under way; 0 if there is none.
    pub reserved: u64,
    /// The tokens of the running turn whose cost is in `turn`.
    pub priced: Usage,
    /// The currency of the amounts; empty before the first one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub currency: String,
}

impl Spending {
    /// True before anything was counted.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Starts a turn.
    pub(crate) fn begin_turn(&mut self) {
        let currency = std::mem::take(&mut self.currency);
        *self = Self { session: self.session, currency, ..Self::default() };
    }

    /// Applies an annotation of [`TOPIC`].
    pub(crate) fn apply(&mut self, data: &Value) {
        if let Some(reserved) = data["reserved"].as_u64() {
            self.reserved = reserved;
        }
        if let Some(currency) = data["currency"].as_str().filter(|it| *it != self.currency) {
            currency.clone_into(&mut self.currency);
        }
        if let Some(cost) = data["cost"].as_u64() {
            self.session = self.session.saturating_add(cost);
            self.turn = self.turn.saturating_add(cost);
            self.reserved = 0;
            if let Ok(usage) = Usage::deserialize(&data["usage"]) {
                self.priced += usage;
            }
        }
    }
}

/// The annotation of a reservation, in millionths.
pub(crate) fn reservation(model: &str, reserved: u64, currency: &str) -> Value {
    json!({"model": model, "reserved": reserved, "currency": currency})
}

/// The annotation of a cost, in millionths. `is_estimate`: the service has not said what was used.
pub(crate) fn cost(
    model: &str,
    cost: u64,
    usage: Usage,
    currency: &str,
    is_estimate: bool,
) -> Value {
    json!({"model": model, "cost": cost, "usage": usage, "currency": currency, "is_estimate": is_estimate})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: Value) -> SpendingConfig {
        serde_json::from_value(text).unwrap()
    }

    fn usage(input_tokens: u64, output_tokens: u64, cached_tokens: u64) -> Usage {
        Usage { input_tokens, output_tokens, cached_tokens }
    }

    #[test]
    fn cached_and_written_tokens_have_prices_of_their_own() {
        let price = Price { input: 2.0, cached_input: Some(0.5), output: 10.0 };
        assert_eq!(price.cost(usage(1_000, 100, 400)), 600 * 2 + 200 + 1_000);
        assert_eq!(
            price.cost(usage(1, 0, 9)),
            1,
            "more cached than read is nonsense, and costs are rounded up"
        );
        let same = Price { cached_input: None, ..price };
        assert_eq!(same.cost(usage(1_000, 0, 1_000)), 2_000);
        assert_eq!(same.cost(usage(u64::MAX, u64::MAX, 0)), u64::MAX);
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
            (
                json!({"prices": {"m": {"input": -1.0, "output": 1.0}}}),
                "models.spending.prices.\"m\"",
            ),
        ] {
            let fault = config(wrong.clone()).check().unwrap_err();
            assert_eq!(fault.kind(), Kind::ConfigurationWrong, "{wrong}");
            assert_eq!(fault.detail().text(Fact::ConfigKey), Some(key), "{wrong}");
        }
        for right in
            [json!({}), json!({"turn": 0.5}), json!({"currency": "EUR", "session": "5 EUR"})]
        {
            config(right).check().unwrap();
        }
    }

    #[test]
    fn a_cap_in_money_needs_a_price() {
        let caps = config(json!({"turn": 1}));
        let admit =
            |model| caps.admit(model, &Spending::default(), usage(10, 10, 0), Usage::default());
        let fault = admit("openai:gpt-x").unwrap_err();
        assert_eq!(fault.kind(), Kind::PriceUnknown);
        assert_eq!(fault.detail().text(Fact::Model), Some("openai:gpt-x"));
        admit("demo:fast").unwrap();
    }

    #[test]
    fn a_fault_names_the_cap_and_what_was_spent() {
        let caps = config(json!({"session": 0.01, "prices": {"m": {"input": 1.0, "output": 1.0}}}));
        let spent = Spending { session: 9_000, ..Spending::default() };
        let admit = |tokens| caps.admit("m", &spent, usage(tokens, 0, 0), Usage::default());
        admit(1_000).unwrap();
        let fault = admit(1_001).unwrap_err();
        let text = |fact| fault.detail().text(fact).unwrap().to_owned();
        assert_eq!(text(Fact::ConfigKey), "models.spending.session");
        assert_eq!(text(Fact::Cap), "0.01 USD");
        assert_eq!(text(Fact::Spent), "0.009 USD");
        assert_eq!(text(Fact::Estimate), "0.001001 USD");
    }

    #[test]
    fn tokens_are_capped_without_prices() {
        let caps = config(json!({"session_tokens": 100}));
        let admit =
            |used| caps.admit("m", &Spending::default(), usage(10, 10, 0), usage(used, 0, 0));
        admit(80).unwrap();
        assert_eq!(admit(81).unwrap_err().kind(), Kind::SpendingCapReached);
    }
}
