//! Rules for model lists: which model an attempt asks, and when another one is asked.
//!
//! A step or a round of attempts begins with the first model of the list whose gate is expected to be open in time.
//! Trouble moves the step on to the next one, at most once around the list in a round.

use std::time::Duration;

use super::{Event, Fault, Operation, Stepper};
use crate::{fallback::ModelChangeReason, retry::RetryDecision};

/// The next model to ask, and the reason for the change.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelChange {
    position: u32,
    reason: ModelChangeReason,
}

impl Stepper<'_> {
    /// Starts an attempt of the current model, unless it could exceed a cap; returns whether it began.
    pub(super) fn start_attempt(&mut self, step: u32, attempt: u32) -> bool {
        if let Some(reached) = self.cap_reached() {
            self.stop_at_cap(reached);
            return false;
        }
        let model = self.session.model().to_owned();
        self.reserve_cost();
        self.emit(Event::StepStarted { step, attempt, model });
        true
    }

    /// Chooses the model of a new step or round: the first one that can be asked in time, or else the one whose gate
    /// is expected to open first.
    pub(super) fn choose_model(&mut self, step: u32) {
        let current = self.session.model_position;
        let first = self.positions().find(|position| self.opens_in_time(*position));
        let Some(position) = first.or_else(|| self.opens_first()).filter(|at| *at != current)
        else {
            return;
        };
        let reason = match position < current && self.opens_in_time(position) {
            true => ModelChangeReason::Returned,
            false => ModelChangeReason::GateShut,
        };
        self.change_model(step, ModelChange { position, reason }, None);
    }

    /// The model to ask after a failed attempt; none to go on with the same model, or to end the turn.
    pub(super) fn model_after_failure(
        &self,
        fault: &Fault,
        verdict: &RetryDecision,
        is_round_over: bool,
    ) -> Option<ModelChange> {
        if !self.has_fallbacks() || fault.operation() != Operation::ModelRequest {
            return None;
        }
        // Whether the kind is permanent, not whether a try is left.
        if !fault.clone().continues().may_auto_retry() {
            return self.model_after_permanent(fault);
        }
        let hint = fault.retry_hint().unwrap_or_default();
        let current = self.session.model_position;
        let is_shut = hint.max(self.expected_wait(current)) > self.env.limits.fallback.after;
        match verdict {
            RetryDecision::GiveUp(_) => {
                let reason = match is_round_over {
                    true => ModelChangeReason::TriesUsed,
                    false => ModelChangeReason::PatienceExceeded,
                };
                self.next_open(reason).or_else(|| self.waitable(reason))
            }
            RetryDecision::Retry(_) if is_shut => self.next_open(ModelChangeReason::GateShut),
            RetryDecision::Retry(_) if is_round_over => {
                self.next_open(ModelChangeReason::TriesUsed)
            }
            RetryDecision::Retry(_) => None,
        }
    }

    /// A fallback that fails for good is left in any case: it must not end a turn that could wait for the first model.
    fn model_after_permanent(&self, fault: &Fault) -> Option<ModelChange> {
        let config = &self.env.limits.fallback;
        let cured = ModelChangeReason::of_permanent(fault.kind(), config);
        let is_fallback = self.session.model_position > 0;
        let reason = cured.or(is_fallback.then_some(ModelChangeReason::Unusable))?;
        let soonest = || {
            let others = self.others().filter(|position| self.is_usable(*position));
            let position = others.min_by_key(|position| self.expected_wait(*position))?;
            Some(ModelChange { position, reason })
        };
        let open = self.others().find(|position| self.opens_in_time(*position));
        open.map(|position| ModelChange { position, reason }).or_else(soonest)
    }

    /// The model to ask because the gate of the current one holds a request; none to wait.
    pub(super) fn model_while_held(&self, expected: Duration) -> Option<ModelChange> {
        let expected = expected.max(self.expected_wait(self.session.model_position));
        let is_shut = self.has_fallbacks() && expected > self.env.limits.fallback.after;
        if is_shut { self.next_open(ModelChangeReason::GateShut) } else { None }
    }

    /// The model to ask because a hint goes beyond the turn's patience; none to end the turn.
    pub(super) fn model_beyond_patience(&self) -> Option<ModelChange> {
        let reason = ModelChangeReason::PatienceExceeded;
        self.next_open(reason).or_else(|| self.waitable(reason))
    }

    /// Asks the first model that can be asked, after the history became shorter.
    pub(super) fn ask_first_fitting_model(&mut self, attempt: u32) {
        let (step, current) = (self.turn().step, self.session.model_position);
        self.choose_model(step);
        if self.session.model_position != current {
            self.start_attempt(step, attempt.saturating_add(1));
        }
    }

    /// Asks another model if the request has waited long enough for that and a gate is open.
    pub(super) fn review_hold(&mut self, step: u32, attempt: u32) {
        let open = self.others().find(|position| self.opens_in_time(*position));
        if let (true, Some(position)) = (self.turn().wait.is_held, open) {
            let change = ModelChange { position, reason: ModelChangeReason::GateShut };
            self.ask_other_model(step, attempt, change, None);
        }
    }

    /// Changes the model and starts the next attempt of the step with it.
    pub(super) fn ask_other_model(
        &mut self,
        step: u32,
        attempt: u32,
        change: ModelChange,
        fault: Option<Fault>,
    ) {
        self.change_model(step, change, fault);
        self.start_attempt(step, attempt.saturating_add(1));
    }

    fn change_model(&mut self, step: u32, change: ModelChange, fault: Option<Fault>) {
        let ModelChange { position, reason } = change;
        let from = self.session.model().to_owned();
        let to = self.name_of(position);
        let known = match reason {
            ModelChangeReason::GateShut => self.outlook_fault(self.session.model_position),
            _ => None,
        };
        let trace = self.session.trace();
        let fault = fault.or(known).map(|fault| fault.with_trace(trace));
        self.emit(Event::ModelChanged { step, from, to, position, reason, fault });
    }

    /// The fault with which a turn fails: always the one of the first model's service.
    pub(super) fn fault_of_first_model(&self, own: Option<Fault>) -> Option<Fault> {
        let is_first = self.session.model_position == 0;
        let is_of_service = |fault: &Fault| fault.operation() == Operation::ModelRequest;
        let is_known = own.as_ref().is_some_and(|own| is_first || !is_of_service(own));
        if is_known || !self.has_fallbacks() {
            return own;
        }
        let models = &self.turn().models;
        let recorded = models.fault.as_ref().filter(|_| is_first).or(models.first_fault.as_ref());
        let known = recorded.cloned().or_else(|| self.outlook_fault(0));
        known.map(|fault| fault.attempt(1, 1)).or(own)
    }

    /// Whether the session has another model to ask.
    pub(super) fn has_fallbacks(&self) -> bool {
        self.positions().nth(1).is_some()
    }

    /// The next model around the list that can be asked in time. A round leaves each model once.
    fn next_open(&self, reason: ModelChangeReason) -> Option<ModelChange> {
        if self.turn().models.changes.saturating_add(1) >= self.count() {
            return None;
        }
        let position = self.others().find(|position| self.opens_in_time(*position))?;
        Some(ModelChange { position, reason })
    }

    /// The model whose gate is expected to open first, if that is within the turn's patience.
    fn waitable(&self, reason: ModelChangeReason) -> Option<ModelChange> {
        if self.turn().models.changes >= self.count().saturating_mul(2) {
            return None;
        }
        let left = self.patience_left();
        let others = self.others().filter(|position| self.is_usable(*position));
        let position = others.min_by_key(|position| self.expected_wait(*position))?;
        let is_shut = !self.expected_wait(position).is_zero();
        (is_shut && self.expected_wait(position) < left).then_some(ModelChange { position, reason })
    }

    fn opens_first(&self) -> Option<u32> {
        let usable = self.positions().filter(|position| self.is_usable(*position));
        usable.min_by_key(|position| self.expected_wait(*position))
    }

    fn opens_in_time(&self, position: u32) -> bool {
        self.is_usable(position) && self.expected_wait(position) <= self.env.limits.fallback.after
    }

    fn is_usable(&self, position: u32) -> bool {
        !self.turn().models.ruled_out.contains(&position)
    }

    fn expected_wait(&self, position: u32) -> Duration {
        self.outlook(position).map_or(Duration::ZERO, |outlook| outlook.expected_wait)
    }

    fn outlook_fault(&self, position: u32) -> Option<Fault> {
        self.outlook(position).and_then(|outlook| outlook.fault.clone())
    }

    fn outlook(&self, position: u32) -> Option<&crate::fallback::ModelOutlook> {
        self.env.outlooks.get(usize::try_from(position).unwrap_or(usize::MAX))
    }

    fn name_of(&self, position: u32) -> String {
        let index = usize::try_from(position).unwrap_or(usize::MAX);
        self.session.settings.models().nth(index).unwrap_or_default().to_owned()
    }

    fn count(&self) -> u32 {
        u32::try_from(self.session.settings.models().count()).unwrap_or(u32::MAX)
    }

    fn positions(&self) -> std::ops::Range<u32> {
        0..self.count()
    }

    /// The other models, from the one after the current model around the list.
    fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let (count, current) = (self.count(), self.session.model_position);
        (1..count).map(move |offset| current.saturating_add(offset) % count)
    }
}
