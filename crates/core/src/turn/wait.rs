//! Rules for waiting: rounds of attempts, requests that a gate holds, and the patience of a turn.
//!
//! `limits.retry.tries` attempts make one round. A round that ends on a transient fault is followed by another one
//! while the turn has patience. Patience counts the time that the turn waits for its service, over all its steps.

use std::time::Duration;

use super::{Event, Fault, Kind, Operation, Stepper, millis};
use crate::{
    fault::Fact,
    gate::{HoldReason, HoldReport},
    retry::RetryDecision,
    time::Timestamp,
};

impl Stepper<'_> {
    /// The number of an attempt of the step within its round, and that of the next attempt.
    pub(super) fn attempts_in_round(&self, attempt: u32) -> (u32, u32) {
        let tries = self.env.limits.retry.tries.max(1);
        let before = self.session.turn.as_ref().map_or(0, |turn| turn.models.attempts_before);
        let in_round = attempt.saturating_sub(before).saturating_sub(1) % tries + 1;
        (in_round, in_round % tries + 1)
    }

    /// Decides on another attempt after attempt `attempt` of a round failed.
    pub(super) fn after_failure(&self, fault: Fault, attempt: u32) -> RetryDecision {
        let (env, policy) = (self.env, &self.env.limits.retry);
        let patience = self.patience();
        // Only the service is waited for: tools and hooks that fail have their tries.
        let is_of_service = fault.operation() == Operation::ModelRequest;
        if patience.is_zero() || !is_of_service || !fault.may_auto_retry() {
            return env.limits.retry_policy().after(fault, attempt, env.jitter);
        }
        let hint = fault.retry_hint().unwrap_or_default();
        let wait = match attempt < policy.tries {
            true => policy.delay(attempt, env.jitter),
            false => self.wait_between_rounds(),
        };
        let left = self.patience_left();
        // The tries of a round are the request's own; patience bounds hints, and the waits between rounds.
        let bounded = if attempt < policy.tries { hint } else { hint.max(wait) };
        if bounded > left {
            return RetryDecision::GiveUp(fault.attempt(attempt, policy.tries));
        }
        RetryDecision::Retry(wait.max(hint.min(env.limits.gate.hint_ceiling)))
    }

    /// The wait before another round: a share of the time since the step began to fail, like the waits between probes.
    /// A service that fails now and then is asked again soon; one that fails this request for ever, less and less often.
    fn wait_between_rounds(&self) -> Duration {
        let (env, limits) = (self.env, self.env.limits);
        let (gate, shortest) = (&limits.gate, limits.retry.delay(1, env.jitter));
        let since = self.turn().failing.as_ref().map_or(env.now, |failing| failing.since);
        let share = env.now.since(since).mul_f64(gate.probe_share);
        share.min(gate.probe_max).max(shortest)
    }

    /// Records that the gate holds the request, or ends the turn if the wait would be longer than its patience.
    pub(super) fn record_hold(&mut self, step: u32, attempt: u32, hold: HoldReport) {
        let now = self.env.now;
        let (patience, left) = (self.patience(), self.patience_left());
        let asked = hold.hint_until.map_or(Duration::ZERO, |until| until.since(now));
        let change = match asked > left {
            true => self.model_beyond_patience(),
            false => self.model_while_held(expected_wait(&hold, now).max(asked)),
        };
        if let (Some(change), false) = (change, left.is_zero()) {
            return self.ask_other_model(step, attempt, change, hold.fault);
        }
        if left.is_zero() || asked > left {
            return self.give_up_waiting(hold.fault);
        }
        let HoldReport { reason, until, before, fault, .. } = hold;
        let wait = until.map(|until| until.since(now));
        let known = self.turn().wait.fault.as_ref().map(Fault::kind);
        // Each kind is recorded once; the last one recorded is the fault of a turn whose patience ends.
        let fault = fault.filter(|fault| Some(fault.kind()) != known);
        let fault =
            fault.map(|fault| with_wait_times(fault, wait, asked).with_trace(self.session.trace()));
        self.emit(Event::RequestHeld {
            step,
            reason,
            fault,
            until: until.filter(|_| reason != HoldReason::Capacity),
            before: before as u64,
            patience_ms: millis(patience),
        });
    }

    /// Records that a held request is made now.
    pub(super) fn record_release(&mut self, step: u32) {
        if self.turn().wait.is_held {
            let waited_ms = self.turn().wait.waited_ms(self.env.now);
            self.emit(Event::RequestReleased { step, waited_ms });
        }
    }

    /// Ends a waiting turn whose patience is over. Returns false if it did.
    pub(super) fn review_patience(&mut self) -> bool {
        let Some(turn) = &self.session.turn else { return true };
        if !turn.wait.is_held || turn.cancelling {
            return true;
        }
        let patience = self.patience();
        if self.time_waited() >= patience {
            self.give_up_waiting(None);
            return false;
        }
        if millis(patience) != self.turn().wait.patience_ms {
            self.emit(Event::PatienceChanged { patience_ms: millis(patience) });
        }
        true
    }

    /// Ends the turn with the fault of its service.
    fn give_up_waiting(&mut self, held_by: Option<Fault>) {
        let known = self.turn().wait.fault.clone();
        let waited = self.time_waited().as_secs();
        let first = self.fault_of_first_model(held_by);
        let fault = first.or(known).unwrap_or_else(|| self.no_capacity_fault());
        self.fail_at_step(fault.with_cause(format!("the turn waited {waited} s for the service")));
    }

    /// The fault of a service that failed nothing and has no room for the request.
    fn no_capacity_fault(&self) -> Fault {
        Fault::new(Kind::ModelOverloaded, Operation::ModelRequest)
            .with(Fact::Service, self.service())
            .with(Fact::Model, self.session.model().to_owned())
    }

    /// The name of the service that answers the session's requests, as its model's specification begins.
    pub(super) fn service(&self) -> String {
        let model = self.session.model();
        model.split(':').next().unwrap_or_default().to_owned()
    }

    pub(super) fn patience_left(&self) -> Duration {
        self.patience().saturating_sub(self.time_waited())
    }

    fn time_waited(&self) -> Duration {
        Duration::from_millis(self.turn().wait.waited_ms(self.env.now))
    }

    /// How long the turn waits for its service in all. Once it is the background value it stays so.
    fn patience(&self) -> Duration {
        let gate = &self.env.limits.gate;
        if let Some(patience) = self.session.settings.patience_ms {
            return Duration::from_millis(patience);
        }
        let recorded = self.session.turn.as_ref().map_or(0, |turn| turn.wait.patience_ms);
        let is_background = recorded > 0
            && recorded != millis(gate.patience_watched)
            && recorded >= millis(gate.patience_background);
        match self.env.is_observed && !is_background {
            true => gate.patience_watched,
            false => gate.patience_background,
        }
    }
}

/// The known remaining time of a shut gate. A gate without room for the request is not shut.
fn expected_wait(hold: &HoldReport, now: Timestamp) -> Duration {
    let until = hold.until.filter(|_| hold.reason != HoldReason::Capacity);
    until.map_or(Duration::ZERO, |until| until.since(now))
}

/// The service's fault as a waiting session records it: with the time until the next request, and with the time that
/// is left of what the service asked for.
fn with_wait_times(fault: Fault, wait: Option<Duration>, asked: Duration) -> Fault {
    let fault = match fault.detail().get(Fact::WaitMs).is_some() {
        true => fault.with(Fact::WaitMs, asked),
        false => fault,
    };
    match wait {
        Some(wait) => fault.retry_after(wait),
        None => fault,
    }
}
