//! Decides what follows a run whose end the agent did not send, because it was cut, refused, silent or lost with the
//! process; handles the timers.

use std::time::Duration;

use budao_core::{
    event::{Event, Scope, StopReason, TurnNumber},
    fault::{Fact, Fault, Kind, Operation},
    message::CallId,
    retry::RetryDecision,
    session::{CallState, Phase},
    trace::Trace,
};

use super::RelayStepper;
use crate::{SERVICE, partial::PartialTurn};

/// The fault for a run whose end is not known, and with it what the agent did.
pub(crate) fn upstream_cut(state: &'static str) -> Fault {
    Fault::new(Kind::UpstreamCut, Operation::ModelRequest)
        .with(Fact::Service, SERVICE)
        .with(Fact::State, state)
        .unconfirmed()
}

impl RelayStepper<'_> {
    pub(super) fn take_failure(&mut self, post_number: u32, fault: Fault, is_unsent: bool) {
        if self.m.run.as_ref().is_some_and(|run| run.post_number == post_number) {
            self.fail(fault, is_unsent);
        }
    }

    /// Ends the run with a fault. The turn is posted again only if the agent cannot have acted, or may be asked twice.
    pub(super) fn fail(&mut self, fault: Fault, is_unsent: bool) {
        self.flush();
        if let Some(wait) = self.repeat_wait(&fault, is_unsent) {
            return self.schedule(fault, wait);
        }
        self.keep_partial(is_unsent);
        self.end(StopReason::Failed, Some(fault));
    }

    /// How long to wait before the turn is posted again; `None` if it is not.
    fn repeat_wait(&self, fault: &Fault, is_unsent: bool) -> Option<Duration> {
        let policy = self.env.limits.retry_policy();
        match self.turn().phase {
            Phase::AwaitingModel { attempt } if is_unsent => {
                match policy.after(fault.clone(), attempt, self.env.jitter) {
                    RetryDecision::Retry(wait) => Some(wait),
                    RetryDecision::GiveUp(_) => None,
                }
            }
            _ if is_unsent || !self.env.resubmit || fault.kind() != Kind::UpstreamCut => None,
            _ if self.m.memory.resubmits + 1 >= policy.tries => None,
            _ => Some(policy.delay(self.m.memory.resubmits + 1, self.env.jitter)),
        }
    }

    /// Voids what had arrived of the answer and posts the turn again after a wait.
    fn schedule(&mut self, fault: Fault, wait: Duration) {
        let max_attempts = self.env.limits.retry_policy().tries;
        let attempt = match self.turn().phase {
            Phase::AwaitingModel { attempt } => attempt,
            _ => 1,
        };
        if fault.kind() == Kind::UpstreamCut {
            self.m.memory.resubmits += 1;
        }
        let (kind, step) = (fault.kind(), self.turn().step);
        let scope = Scope { step: Some(step), ..Scope::default() };
        let fault = fault
            .attempt(attempt, max_attempts)
            .retry_after(wait)
            .with_trace(self.m.session.trace());
        self.emit(Event::FaultRaised { fault, scope: scope.clone() });
        self.abandon_shown_text();
        self.seal_calls(false);
        self.leave();
        self.save_state();
        self.emit(Event::RetryScheduled {
            operation: Operation::ModelRequest,
            kind,
            attempt,
            next_attempt: attempt + 1,
            max_attempts: max_attempts.max(attempt + 1),
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            due_at: self.env.now.after(wait),
            scope,
        });
    }

    /// Queues the messages of the timers whose time has come.
    fn fire_timers(&mut self) {
        if self.m.is_parked {
            return;
        }
        let turn = self.m.session.turn.as_ref().map_or(0, |turn| turn.number);
        while let Some(event) = self.m.session.next_firing(self.env.now, self.env.limits) {
            self.flush();
            self.record(turn, Trace::NONE, event);
        }
        self.start_next();
    }

    /// Handles expired times: timers, questions, the next attempt, running calls, and limits of the run.
    pub(super) fn timer_fired(&mut self) {
        self.fire_timers();
        self.expire_questions();
        self.try_again_if_due();
        self.settle_calls();
        let now = self.env.steady;
        let Some(run) = &self.m.run else { return };
        let (at, name, limit) = run.deadline(self.env.run_limits);
        if at <= now {
            let state = if name == "run" { "overdue" } else { "silent" };
            let fault = upstream_cut(state)
                .with(Fact::TimeoutMs, limit)
                .with(Fact::LimitName, format!("engines.agui.limits.{name}"));
            self.fail(fault, false);
        }
    }

    fn try_again_if_due(&mut self) {
        let Some(turn) = &self.m.session.turn else { return };
        let Phase::Waiting { attempt, until } = turn.phase else { return };
        if until > self.env.now || self.m.is_parked {
            return;
        }
        // A step that was answered and whose calls have ended is over.
        let step = if turn.calls.is_empty() { turn.step } else { turn.step + 1 };
        self.begin_step(step, attempt);
        self.post();
    }

    /// Records an answer whose calls are complete, and counts its calls as running.
    fn settle_calls(&mut self) {
        let (now, has_open_calls) = (self.env.steady, self.m.has_open_calls());
        let Some(run) = &mut self.m.run else { return };
        if run.settled_at.is_none_or(|at| at.after(super::CALL_WAIT) > now) {
            return;
        }
        run.settled_at = None;
        if !has_open_calls && run.draft.has_calls() && run.open.is_empty() {
            self.finish_answer(false);
        }
        self.start_requested_calls();
    }

    /// Resumes the session under a new writer. A run of the previous writer is lost.
    pub(super) fn resume_turn(&mut self) {
        let Some(turn) = &self.m.session.turn else { return self.start_next() };
        let (number, after) = (turn.number, turn.began.saturating_sub(1));
        let waits = matches!(turn.phase, Phase::Waiting { .. });
        let asks = turn.calls.iter().any(|call| is_waiting(&call.state));
        if turn.step == 0 {
            self.begin_step(1, 1);
            return self.post();
        }
        if waits || asks {
            return self.emit(Event::SessionResumed { sealed: Vec::new() });
        }
        self.m.is_restoring = true;
        let before = self.m.memory.state.clone();
        self.out.actions.push(super::RelayAction::Restore { turn: number, after, before });
    }

    /// Ends the turn of a lost run as cut, with what its records have of the answer.
    pub(super) fn restore_turn(&mut self, turn: TurnNumber, partial: Option<Box<PartialTurn>>) {
        let is_current = self.m.session.turn.as_ref().is_some_and(|it| it.number == turn);
        if !std::mem::take(&mut self.m.is_restoring) || !is_current {
            return;
        }
        let started = self.turn().calls.iter();
        let started = started.filter(|call| matches!(call.state, CallState::Started { .. }));
        let sealed: Vec<CallId> = started.map(|call| call.id.clone()).collect();
        self.emit(Event::SessionResumed { sealed });
        if let Some(partial) = partial {
            let PartialTurn { mut draft, state, .. } = *partial;
            draft.is_open = self.is_awaiting_answer();
            if state.is_some() {
                self.m.memory.state = state;
            }
            self.set_interrupted_run(draft);
        }
        self.fail(upstream_cut("restarted"), false);
    }

    pub(super) fn abort(&mut self, fault: Fault) {
        if self.m.session.turn.is_some() {
            self.close_questions(SERVICE);
            self.keep_partial(false);
            self.end(StopReason::Failed, Some(fault));
        }
    }

    /// Parks the session for a shutdown. A turn that waits, or that may be posted again, is left for the next writer.
    /// A queued message is recorded as a started turn, because the next start looks for those.
    pub(super) fn park(&mut self) {
        self.m.is_parked = true;
        self.flush();
        if self.m.run.is_some() && self.env.resubmit {
            self.leave();
            return;
        }
        if self.m.run.is_some() {
            self.keep_partial(false);
            self.end(StopReason::Failed, Some(upstream_cut("restarted")));
        }
        if let (None, Some(next)) = (&self.m.session.turn, self.m.session.queue.front()) {
            let (message, is_retry) = (next.command.clone(), next.retry_of.is_some());
            self.emit(Event::TurnStarted { message: message.clone() });
            self.choose_input(&message, is_retry);
        }
    }
}

fn is_waiting(state: &CallState) -> bool {
    matches!(state, CallState::AwaitingDecision { .. })
}
