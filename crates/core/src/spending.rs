//! Prices of models, what sessions spend, and caps on it.
//!
//! Money is counted in millionths of the configured currency. A request reserves its estimate in the journal before it
//! is made; its answer replaces the reservation by the cost. A request whose answer was lost stays spent, because
//! nobody knows better. The turn decides (`turn::spending`); this module has prices, caps and the state.

mod ledger;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    event::Settings,
    fault::{Fact, FactValue, Fault, Kind, Operation},
    message::Usage,
};

pub(crate) use state::{cost, day_raise, raise, reservation};
pub use {
    ledger::{DayRaise, Ledger, LedgerAmount, LedgerScope, day_of},
    state::{RequestMeasure, Spending, child_cost},
};

/// The topic of the annotations that record reservations and costs.
pub const TOPIC: &str = "core.spending";

/// An estimate of tokens with a margin: the estimate of a text may be a quarter too low.
#[must_use]
pub fn with_margin(tokens: u64) -> u64 {
    tokens.saturating_add(tokens / 4)
}

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
    /// Tokens that the service writes to its cache; as `input` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
    /// Tokens that the model writes.
    pub output: f64,
    /// Tokens of reasoning; as `output` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<f64>,
}

impl Price {
    /// A model that costs nothing.
    pub const FREE: Self =
        Self { input: 0.0, cached_input: None, cache_write: None, output: 0.0, reasoning: None };

    /// All prices that are set.
    fn all(&self) -> impl Iterator<Item = f64> {
        let optional = [self.cached_input, self.cache_write, self.reasoning];
        [self.input, self.output].into_iter().chain(optional.into_iter().flatten())
    }

    /// The most that these tokens can cost, in millionths: none are cached, and all have the higher price of their sort.
    #[must_use]
    pub fn cost_max(&self, usage: Usage) -> u64 {
        let input = self.cache_write.unwrap_or(self.input).max(self.input);
        let output = self.reasoning.unwrap_or(self.output).max(self.output);
        Self { input, output, ..Self::FREE }.cost(usage)
    }

    /// What these tokens cost, in millionths, rounded up.
    #[must_use]
    pub fn cost(&self, usage: Usage) -> u64 {
        let cached = usage.cached_tokens.min(usage.input_tokens);
        let written = usage.cache_write_tokens.min(usage.input_tokens - cached);
        let fresh = usage.input_tokens - cached - written;
        let reasoning = usage.reasoning_tokens.min(usage.output_tokens);
        // A price per million tokens is the same number in millionths per token.
        let of = |tokens: u64, price: f64| tokens as f64 * price;
        let cost = of(fresh, self.input)
            + of(cached, self.cached_input.unwrap_or(self.input))
            + of(written, self.cache_write.unwrap_or(self.input))
            + of(usage.output_tokens - reasoning, self.output)
            + of(reasoning, self.reasoning.unwrap_or(self.output));
        // A cast from a float saturates.
        cost.ceil() as u64
    }
}

/// What follows when a turn or a session reaches its cap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnCap {
    /// The turn ends with `spending_cap_reached`.
    #[default]
    Fail,
    /// Those who answer the questions of the session are asked to allow more.
    Ask,
}

/// The name under which people are asked to raise a cap, in place of a tool.
pub const RAISE_CAP: &str = "raise_spending_cap";

/// The cap of a turn that a session's settings have, in tokens.
const TURN_BUDGET: &str = "max_turn_tokens";

/// A cap that the next request could exceed, with amounts in millionths or tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CapReached {
    /// The setting: `turn`, `turn_tokens`, `session`, `session_tokens`, or [`TURN_BUDGET`].
    setting: &'static str,
    cap: u64,
    used: u64,
    estimate: u64,
}

/// The tokens that a session used, without those of requests whose answers were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TokenCount {
    pub(crate) session: u64,
    pub(crate) turn: u64,
    /// The cap of a turn in the session's settings.
    pub(crate) turn_budget: Option<u64>,
    /// The caps of a session and a turn are those of a parent session, whose ledgers keep them.
    pub(crate) shares_caps: bool,
}

/// How people raised a cap, in millionths or tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CapRaise {
    /// The setting, without `models.spending.`.
    pub(crate) setting: String,
    /// The ledger of a cap of a day; absent for a cap of a turn or a session.
    pub(crate) scope: Option<String>,
    pub(crate) more: u64,
}

/// Whether the cap of this name is in tokens.
fn is_of_tokens(setting: &str) -> bool {
    setting.ends_with("_tokens")
}

/// The whole name of a setting.
pub(crate) fn setting_key(setting: &str) -> String {
    match setting == TURN_BUDGET {
        true => setting.to_owned(),
        false => format!("models.spending.{setting}"),
    }
}

/// Prices and caps. Without prices and caps, nothing is counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpendingConfig {
    /// The currency of all prices and caps.
    pub currency: String,
    /// What follows when a turn or a session reaches its cap.
    pub on_cap: OnCap,
    /// What follows at a cap of a day, which all sessions share: those who answer the questions of one session raise it
    /// for all.
    pub on_day_cap: OnCap,
    /// The most that one turn may cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<Amount>,
    /// The most tokens of one turn, those of its child sessions included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_tokens: Option<u64>,
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
            on_cap: OnCap::Fail,
            on_day_cap: OnCap::Fail,
            turn: None,
            turn_tokens: None,
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
    /// `configuration_wrong` for a cap of 0, a negative or infinite number, another currency, and one without a name.
    pub fn check(&self) -> Result<(), Fault> {
        if self.currency.trim().is_empty() || self.currency.contains(char::is_whitespace) {
            return Err(wrong("currency", "one word, for example \"USD\"", &self.currency));
        }
        let caps = [("turn", &self.turn), ("session", &self.session)];
        for (key, amount) in caps.into_iter().chain(self.day_amounts()) {
            if let Some(amount) = amount {
                self.micros(key, amount)?;
            }
        }
        for (key, count) in self.token_counts().into_iter().chain(self.day_counts()) {
            if count == Some(0) {
                return Err(wrong(key, "at least 1; leave it out for no cap", "0"));
            }
        }
        for (model, price) in &self.prices {
            if let Some(bad) = price.all().find(|it| !(0.0..=AMOUNT_MAX).contains(it)) {
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

    fn token_counts(&self) -> [(&'static str, Option<u64>); 2] {
        [("turn_tokens", self.turn_tokens), ("session_tokens", self.session_tokens)]
    }

    fn day_amounts(&self) -> [(&'static str, &Option<Amount>); 3] {
        [("day", &self.day), ("tenant_day", &self.tenant_day), ("key_day", &self.key_day)]
    }

    fn day_counts(&self) -> [(&'static str, Option<u64>); 3] {
        let (tenant, key) = (self.tenant_day_tokens, self.key_day_tokens);
        [("day_tokens", self.day_tokens), ("tenant_day_tokens", tenant), ("key_day_tokens", key)]
    }

    /// A cap in money by the name of its setting, in millionths.
    fn money_cap(&self, name: &str) -> Option<u64> {
        let caps = [("turn", &self.turn), ("session", &self.session)];
        let mut caps = caps.into_iter().chain(self.day_amounts());
        let (key, cap) = caps.find(|(key, _)| *key == name)?;
        self.micros(key, cap.as_ref()?).ok()
    }

    /// A cap in tokens by the name of its setting.
    fn tokens_cap(&self, name: &str) -> Option<u64> {
        let mut caps = self.token_counts().into_iter().chain(self.day_counts());
        caps.find(|(key, _)| *key == name)?.1
    }

    /// Whether a cap of a turn or a session is set, which its child sessions share.
    #[must_use]
    pub fn has_session_caps(&self) -> bool {
        self.turn.is_some() || self.session.is_some() || self.has_token_caps()
    }

    /// Whether a cap of a turn or a session in tokens is set.
    pub(crate) fn has_token_caps(&self) -> bool {
        self.token_counts().iter().any(|(_, cap)| cap.is_some())
    }

    /// Whether a cap of a day is set, in money or tokens.
    #[must_use]
    pub fn has_day_caps(&self) -> bool {
        self.day_amounts().iter().any(|(_, cap)| cap.is_some())
            || self.day_counts().iter().any(|(_, cap)| cap.is_some())
    }

    /// The caps that are set, by the names of their settings.
    pub fn caps(&self) -> impl Iterator<Item = &'static str> {
        let money = [("turn", &self.turn), ("session", &self.session)];
        let money = money.into_iter().chain(self.day_amounts());
        let money = money.filter_map(|(key, cap)| cap.as_ref().map(|_| key));
        let tokens = self.token_counts().into_iter().chain(self.day_counts());
        money.chain(tokens.filter_map(|(key, cap)| cap.map(|_| key)))
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
        self.prices.get(model).cloned().or(is_free.then_some(Price::FREE))
    }

    /// Whether a session with these settings records what its requests use.
    #[must_use]
    pub fn counts_requests(&self, settings: &Settings) -> bool {
        self.is_active()
            || self.has_token_caps()
            || self.has_day_caps()
            || settings.max_turn_tokens.is_some_and(|most| most > 0)
    }

    /// Whether costs are recorded.
    #[must_use]
    pub fn is_active(&self) -> bool {
        let has_day_cap = self.day_amounts().iter().any(|(_, cap)| cap.is_some());
        !self.prices.is_empty() || self.turn.is_some() || self.session.is_some() || has_day_cap
    }

    /// The fault of a cap that the next request could exceed.
    pub(crate) fn cap_fault(&self, reached_cap: CapReached) -> Fault {
        let CapReached { setting, cap, used, estimate } = reached_cap;
        if setting == TURN_BUDGET {
            return Fault::new(Kind::TokensExhausted, Operation::RunTurn)
                .with(Fact::Limit, cap)
                .with(Fact::Actual, used)
                .with(Fact::LimitName, TURN_BUDGET);
        }
        reached(setting, [cap, used, estimate].map(|amount| self.shown_cap(setting, amount)))
    }

    /// What people read who are asked to raise a cap. They may change `more`.
    pub(crate) fn raise_arguments(&self, reached: CapReached) -> Value {
        let CapReached { setting, cap, used, estimate } = reached;
        let missing = used.saturating_add(estimate).saturating_sub(cap);
        let shown = |amount| self.shown_cap(setting, amount);
        json!({
            "setting": setting_key(setting), "cap": shown(cap), "spent": shown(used),
            "estimate": shown(estimate), "more": shown(cap.max(missing)),
        })
    }

    /// What people read who are asked to raise the cap of a day; `None` if the fault is about no such cap.
    pub(crate) fn day_raise_arguments(&self, fault: &Fault) -> Option<Value> {
        let text = |fact| fault.detail().text(fact);
        let scope = text(Fact::CapScope)?;
        let (setting, cap) = (text(Fact::ConfigKey)?, text(Fact::Cap)?);
        let (spent, estimate) = (text(Fact::Spent)?, text(Fact::Estimate)?);
        let name = setting.trim_start_matches("models.spending.");
        let [most, used, next] =
            [cap, spent, estimate].map(|it| self.read_shown(name, it).unwrap_or_default());
        let missing = used.saturating_add(next).saturating_sub(most);
        let more = self.shown_cap(name, most.max(missing));
        Some(json!({
            "setting": setting, "scope": scope, "cap": cap, "spent": spent, "estimate": estimate,
            "more": more,
        }))
    }

    /// Reads how much more is allowed. Of what people were asked, they may change only that.
    pub(crate) fn read_raise(&self, asked: &Value, answer: &Value) -> Result<CapRaise, Fault> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let setting = text(&asked["setting"]).trim_start_matches("models.spending.").to_owned();
        let more = self.read_shown(&setting, answer["more"].as_str().unwrap_or_default());
        let more = more.filter(|more| *more > 0).ok_or_else(|| {
            Fault::new(Kind::ConstraintViolated, Operation::AnswerQuestion)
                .with(Fact::Field, "more")
                .with(Fact::Constraint, "an amount above 0 in the currency of the cap")
                .with(Fact::ProvidedValue, FactValue::Json(answer["more"].clone()))
        })?;
        Ok(CapRaise { setting, scope: asked["scope"].as_str().map(str::to_owned), more })
    }

    /// Reads an amount as people read it, in millionths or tokens.
    fn read_shown(&self, setting: &str, text: &str) -> Option<u64> {
        match is_of_tokens(setting) {
            true => text.trim_end_matches("tokens").trim().parse().ok(),
            false => self.read_amount(text).ok(),
        }
    }

    pub(crate) fn shown_cap(&self, setting: &str, amount: u64) -> String {
        match is_of_tokens(setting) {
            true => format!("{amount} tokens"),
            false => self.shown(amount),
        }
    }

    /// The cap in tokens that a request with this estimate could exceed.
    pub(crate) fn reached_token_cap(
        &self,
        spent: &Spending,
        estimate: u64,
        used: TokenCount,
    ) -> Option<CapReached> {
        let session = used.session.saturating_add(spent.lost_tokens);
        let turn = used.turn.saturating_add(spent.turn_lost_tokens);
        let (in_session, in_turn) = (spent.raised.tokens, spent.turn_raised.tokens);
        let own = |cap: Option<u64>| cap.filter(|_| !used.shares_caps);
        let caps = [
            ("session_tokens", own(self.session_tokens), session, in_session),
            ("turn_tokens", own(self.turn_tokens), turn, in_turn),
            (TURN_BUDGET, used.turn_budget, turn, in_turn),
        ];
        caps.into_iter().find_map(|(setting, cap, used, raised)| {
            let cap = cap?.saturating_add(raised);
            let is_reached = used.saturating_add(estimate) > cap;
            is_reached.then_some(CapReached { setting, cap, used, estimate })
        })
    }

    /// The cap that a request with this estimate could exceed. What is reserved does not count: a session makes one
    /// request at a time, and the next one replaces the reservation.
    ///
    /// # Errors
    /// `price_unknown` if a cap in money is set and the model has no price.
    pub(crate) fn reached_cap(
        &self,
        model: &str,
        spent: &Spending,
        estimate: Usage,
        used: TokenCount,
    ) -> Result<Option<CapReached>, Fault> {
        let tokens = estimate.total_tokens();
        if let Some(reached) = self.reached_token_cap(spent, tokens, used) {
            return Ok(Some(reached));
        }
        let mut caps = self.money_caps().peekable();
        let has_day_cap = self.day_amounts().iter().any(|(_, cap)| cap.is_some());
        if caps.peek().is_none() && !has_day_cap {
            return Ok(None);
        }
        let price = self.price(model).ok_or_else(|| {
            Fault::new(Kind::PriceUnknown, Operation::RunTurn)
                .with(Fact::Model, model.to_owned())
                .with(Fact::ConfigKey, format!("models.spending.prices.\"{model}\""))
        })?;
        let next = price.cost_max(estimate);
        for (setting, cap) in caps.filter(|_| !used.shares_caps) {
            let (used, raised) = match setting {
                "turn" => (spent.turn, spent.turn_raised.cost),
                _ => (spent.session, spent.raised.cost),
            };
            let cap = cap.saturating_add(raised);
            if used.saturating_add(next) > cap {
                return Ok(Some(CapReached { setting, cap, used, estimate: next }));
            }
        }
        Ok(None)
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
