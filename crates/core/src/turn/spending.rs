//! Reserves the estimate of each request before it is made, and records its cost afterwards.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{CallId, Event, Fault, Kind, Phase, QuestionId, Session, Stepper, Usage};
use crate::{
    event::{Origin, QuestionPurpose, Settings, Thinking},
    spending::{
        self, CapRaise, CapReached, LedgerAmount, LedgerScope, OnCap, Price, RAISE_CAP, TokenCount,
        day_of, setting_key, with_margin,
    },
    tool::{Outcome, Output},
};

impl Session {
    /// Tokens of instructions and tools, which the estimate of the history does not have, until the engine has measured
    /// them. It is also the least that they count.
    pub const OVERHEAD_TOKENS_MIN: u64 = 2_000;

    /// The most tokens that the next request is expected to use. The estimate of the history may be a quarter too low.
    #[must_use]
    pub fn estimate_request(&self) -> Usage {
        let settings = &self.settings;
        let answer = settings.answer_tokens();
        let thinking = settings.thinking.map_or(0, Thinking::tokens);
        let input_tokens = with_margin(self.tokens).saturating_add(self.overhead_tokens());
        Usage {
            input_tokens,
            output_tokens: u64::from(answer).saturating_add(u64::from(thinking)),
            ..Usage::default()
        }
    }

    /// The tokens of instructions and tools in the session's requests, as they are counted.
    #[must_use]
    pub fn overhead_tokens(&self) -> u64 {
        self.spending.overhead_tokens.max(Self::OVERHEAD_TOKENS_MIN)
    }
}

impl Stepper<'_> {
    fn estimate(&self) -> Usage {
        self.session.estimate_request()
    }

    /// The fault that forbids the next request: it could exceed a cap, or its model has no price.
    pub(super) fn cap_reached(&self) -> Option<Result<CapReached, Fault>> {
        let (model, spent, used) = (self.session.model(), &self.session.spending, self.tokens());
        self.env.limits.spending.reached_cap(model, spent, self.estimate(), used).transpose()
    }

    /// The fault for a turn that has used all its tokens, if it has.
    #[must_use]
    pub fn tokens_spent(&self) -> Option<Fault> {
        let (spending, spent) = (&self.env.limits.spending, &self.session.spending);
        // No request needs less than one token.
        spending.reached_token_cap(spent, 1, self.tokens()).map(|cap| spending.cap_fault(cap))
    }

    fn tokens(&self) -> TokenCount {
        let mut all = self.session.usage;
        all += self.turn().usage;
        TokenCount {
            session: all.total_tokens(),
            turn: self.turn().usage.total_tokens(),
            turn_budget: self.turn_budget(),
            shares_caps: self.shares_caps(),
        }
    }

    /// The cap of a turn in the session's settings; 0 is none.
    fn turn_budget(&self) -> Option<u64> {
        self.session.settings.max_turn_tokens.filter(|most| *most > 0)
    }

    /// Asks people to raise the cap, or ends the turn. A child session does not ask: it shares the caps of its parent.
    pub(super) fn stop_at_cap(&mut self, reached: Result<CapReached, Fault>) {
        let spending = &self.env.limits.spending;
        let reached = match reached {
            Ok(reached) => reached,
            Err(fault) => return self.fail_at_step(fault),
        };
        if !self.may_ask_to_raise(spending.on_cap) {
            return self.fail_at_step(spending.cap_fault(reached));
        }
        self.ask_to_raise(spending.raise_arguments(reached));
    }

    /// The question to people after a request failed at a daily cap; `None` if the session may not ask.
    pub(super) fn day_cap_question(&self, fault: &Fault) -> Option<Value> {
        let spending = &self.env.limits.spending;
        let is_asked =
            fault.kind() == Kind::SpendingCapReached && self.may_ask_to_raise(spending.on_day_cap);
        is_asked.then(|| spending.day_raise_arguments(fault)).flatten()
    }

    fn may_ask_to_raise(&self, on_cap: OnCap) -> bool {
        on_cap == OnCap::Ask && !self.turn().raises.is_declined && !self.is_child()
    }

    fn is_child(&self) -> bool {
        matches!(self.session.origin, Some(Origin::Call { .. } | Origin::Stage { .. }))
    }

    /// Whether the ledgers of a parent session keep the caps, with what people allowed there.
    fn shares_caps(&self) -> bool {
        let root = self.session.settings.labels.get(Settings::SPENDING_ROOT);
        self.is_child() && root.is_some_and(|root| LedgerScope::of_root(root).is_some())
    }

    pub(super) fn ask_to_raise(&mut self, arguments: Value) {
        let (turn, raises) = (self.turn().number, self.turn().raises);
        let id = format!("{RAISE_CAP}_{turn}_{}", raises.asked.saturating_add(1));
        self.emit(Event::QuestionAsked {
            question: QuestionId(format!("ask_{id}").into()),
            call: CallId(id.into()),
            tool: RAISE_CAP.to_owned(),
            digest: digest(&arguments),
            arguments,
            repairs: Vec::new(),
            idempotent: true,
            reason: "the spending cap is reached".to_owned(),
            purpose: QuestionPurpose::Permission,
            expires_at: self.env.now.after(self.env.limits.question),
        });
    }

    /// Raises a cap as a person allowed it, and goes on with the turn.
    pub(super) fn raise_cap(&mut self, call: CallId, raise: &CapRaise, by: &str) {
        let now = self.env.now;
        // A fork has the same records, so the name of the question has nothing of the session.
        let question = format!("{}/{call}/{now}", self.session.trace());
        let of_day = spending::day_raise(raise, question, by, day_of(now));
        let data = of_day.unwrap_or_else(|| spending::raise(&raise.setting, raise.more, by));
        let setting = setting_key(&raise.setting);
        let more = self.env.limits.spending.shown_cap(&raise.setting, raise.more);
        self.emit(Event::Annotated { topic: spending::TOPIC.to_owned(), data });
        let data = json!({ "setting": setting, "more": more, "by": by });
        self.end_call(call, Outcome::Done(Output { data, note: None, cut: None }));
        self.after_calls();
    }

    /// The price of the model, if costs are recorded.
    fn price(&self) -> Option<Price> {
        let spending = &self.env.limits.spending;
        spending.price(self.session.model()).filter(|_| spending.is_active())
    }

    fn counts_tokens(&self) -> bool {
        self.env.limits.spending.has_token_caps() || self.turn_budget().is_some()
    }

    /// Records the estimate of the request that is about to be made, in money and in tokens.
    pub(super) fn reserve_cost(&mut self) {
        let (price, estimate) = (self.price(), self.estimate());
        if price.is_none() && !self.counts_tokens() {
            return;
        }
        let cost = price.as_ref().map_or(0, |price| price.cost_max(estimate));
        let reserved = LedgerAmount { cost, tokens: estimate.total_tokens() };
        let currency = price.map(|_| self.env.limits.spending.currency.as_str());
        let data = spending::reservation(self.session.model(), reserved, currency);
        self.emit(Event::Annotated { topic: spending::TOPIC.to_owned(), data });
    }

    /// Records the cost of all tokens that have none yet: compaction and child sessions. A request under way is lost.
    pub(super) fn settle_costs(&mut self) {
        self.record_cost(self.session.spending.reserved);
    }

    /// Records the cost of an answer. Without a count of tokens, the reservation is the cost.
    pub(super) fn settle_answer(&mut self, usage: Usage) {
        match usage == Usage::default() {
            true => self.settle_costs(),
            false => self.record_cost(LedgerAmount::default()),
        }
    }

    /// Records the cost of an answer that is dropped, so that no record has its usage.
    pub(super) fn settle_dropped(&mut self, usage: Usage) {
        if usage == Usage::default() {
            return self.settle_costs();
        }
        let cost = self.price().map_or(0, |price| price.cost_max(usage));
        self.record_cost(LedgerAmount { cost, tokens: usage.total_tokens() });
    }

    /// Records that the request under way failed before the service began its answer, so that it cost nothing.
    pub(super) fn release_reservation(&mut self) {
        if !self.session.spending.reserved.is_zero() {
            self.record_cost(LedgerAmount::default());
        }
    }

    /// Counts the request that a restart interrupted as spent, and reserves the one that follows. Returns the fault if
    /// that one could exceed a cap.
    pub(super) fn settle_interrupted(&mut self) -> Option<Result<CapReached, Fault>> {
        let is_asking = matches!(self.turn().phase, Phase::AwaitingModel { .. });
        if !is_asking || self.session.spending.reserved.is_zero() {
            return None;
        }
        self.settle_costs();
        let reached = self.cap_reached();
        if reached.is_none() {
            self.reserve_cost();
        }
        reached
    }

    /// Records the cost of all usage that has none, and of a request whose usage nobody knows.
    fn record_cost(&mut self, lost: LedgerAmount) {
        let spent = &self.session.spending;
        let (used, reserved) = (self.turn().usage.saturating_sub(spent.priced), spent.reserved);
        let price = self.price();
        let is_counted = price.is_some() || self.counts_tokens() || !reserved.is_zero();
        if !is_counted || (used == Usage::default() && reserved.is_zero() && lost.is_zero()) {
            return;
        }
        let is_estimate = used.estimated_tokens > 0 || !lost.is_zero();
        let cost = price.as_ref().map(|price| match used.estimated_tokens > 0 {
            true => price.cost_max(used),
            false => price.cost(used),
        });
        // A price that was removed since still counts what was reserved at it.
        let cost = cost.or_else(|| (lost.cost > 0).then_some(0));
        let currency = self.env.limits.spending.currency.as_str();
        let cost = cost.map(|cost| (cost.saturating_add(lost.cost), currency));
        let place = (self.session.model(), &*self.session.spending.key);
        let data = spending::cost(place, cost, (used, lost.tokens), is_estimate);
        self.emit(Event::Annotated { topic: spending::TOPIC.to_owned(), data });
    }
}

/// The digest that binds a decision to the amounts that people were shown.
fn digest(arguments: &Value) -> String {
    let digest = Sha256::digest(format!("{RAISE_CAP}{arguments}"));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
