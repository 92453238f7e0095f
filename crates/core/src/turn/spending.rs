//! Reserves the estimate of each request before it is made, and records what it cost.

use super::{Event, Fault, Phase, Session, Stepper, Usage};
use crate::{event::Thinking, spending};

/// Tokens of an answer whose limit is not set, as the engine asks for them.
const ANSWER_TOKENS: u32 = 8_192;
/// Tokens of instructions and tools, which the estimate of the history does not have.
const OVERHEAD_TOKENS: u64 = 2_000;

impl Session {
    /// The most tokens that the next request is expected to use. The estimate of the history may be a quarter too low.
    #[must_use]
    pub fn estimate_request(&self) -> Usage {
        let settings = &self.settings;
        let answer = settings.max_answer_tokens.unwrap_or(ANSWER_TOKENS);
        let thinking = settings.thinking.map_or(0, Thinking::tokens);
        let history = self.tokens;
        Usage {
            input_tokens: history.saturating_add(history / 4).saturating_add(OVERHEAD_TOKENS),
            output_tokens: u64::from(answer).saturating_add(u64::from(thinking)),
            cached_tokens: 0,
        }
    }
}

impl Stepper<'_> {
    fn estimate(&self) -> Usage {
        self.session.estimate_request()
    }

    /// The fault for a request that could exceed a cap.
    pub(super) fn cap_reached(&self) -> Option<Fault> {
        let mut used = self.session.usage;
        used += self.turn().usage;
        let (model, spent) = (self.session.model(), &self.session.spending);
        self.env.limits.spending.admit(model, spent, self.estimate(), used).err()
    }

    /// Records the estimate of the request that is about to be made.
    pub(super) fn reserve_cost(&mut self) {
        let spending = &self.env.limits.spending;
        let model = self.session.model();
        if let Some(price) = spending.price(model).filter(|_| spending.is_active()) {
            let reserved = price.cost(self.estimate());
            let data = spending::reservation(model, reserved, &spending.currency);
            self.emit(Event::Annotated { topic: spending::TOPIC.to_owned(), data });
        }
    }

    /// Records the cost of all tokens that have none yet: the answer, compaction, child sessions. Without a count of
    /// tokens, the reservation is the cost.
    pub(super) fn settle_costs(&mut self) {
        let used = self.turn().usage;
        let priced = self.session.spending.priced;
        let unpriced = Usage {
            input_tokens: used.input_tokens.saturating_sub(priced.input_tokens),
            output_tokens: used.output_tokens.saturating_sub(priced.output_tokens),
            cached_tokens: used.cached_tokens.saturating_sub(priced.cached_tokens),
        };
        self.record_cost(unpriced, unpriced == Usage::default());
    }

    /// Records that the request under way failed before the service began its answer, so that it cost nothing.
    pub(super) fn release_reservation(&mut self) {
        if self.session.spending.reserved > 0 {
            let spending = &self.env.limits.spending;
            let model = self.session.model();
            let data = spending::cost(model, 0, Usage::default(), &spending.currency, true);
            self.emit(Event::Annotated { topic: spending::TOPIC.to_owned(), data });
        }
    }

    /// Counts the request that a restart interrupted as spent, and reserves the one that follows. Returns the fault if
    /// that one could exceed a cap.
    pub(super) fn settle_interrupted(&mut self) -> Option<Fault> {
        let is_asking = matches!(self.turn().phase, Phase::AwaitingModel { .. });
        if !is_asking || self.session.spending.reserved == 0 {
            return None;
        }
        self.record_cost(Usage::default(), true);
        let fault = self.cap_reached();
        if fault.is_none() {
            self.reserve_cost();
        }
        fault
    }

    fn record_cost(&mut self, usage: Usage, is_estimate: bool) {
        let (spending, reserved) = (&self.env.limits.spending, self.session.spending.reserved);
        let model = self.session.model();
        let Some(price) = spending.price(model).filter(|_| spending.is_active()) else { return };
        if is_estimate && reserved == 0 {
            return;
        }
        let cost = if is_estimate { reserved } else { price.cost(usage) };
        let data = spending::cost(model, cost, usage, &spending.currency, is_estimate);
        self.emit(Event::Annotated { topic: spending::TOPIC.to_owned(), data });
    }
}
