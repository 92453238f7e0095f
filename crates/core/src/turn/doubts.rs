//! Rules for calls whose outcome is unknown: reconciliation by the tool.

use super::{
    CallId, CallState, Event, Fact, Fault, Kind, Operation, Outcome, Stepper, TurnNumber, calls,
    millis,
};
use crate::{
    event::{CallStart, ReconcileVerdict},
    fault::{Detail, text},
    retry,
    session::{Call, OngoingFailure},
    tool::{Output, ReconcileResult},
};

impl Stepper<'_> {
    /// Applies a tool's finding about an interrupted call. The outcome stays unknown only if the tool cannot tell.
    pub(super) fn apply_reconciliation(
        &mut self,
        turn: TurnNumber,
        id: CallId,
        attempt: u32,
        answer: ReconcileResult,
    ) {
        let Some(call) = self.reconciling_call(turn, &id, attempt) else {
            return self.drop_late_report(Operation::ReconcileCall, turn, Some(id));
        };
        match answer {
            ReconcileResult::Failed(fault) => self.reconcile_failed(&call, attempt, fault),
            ReconcileResult::CannotTell => self.leave_in_doubt(&call),
            ReconcileResult::DidNotHappen => {
                self.record_reconciliation(&call, attempt, ReconcileVerdict::DidNotHappen);
                self.run_again(&call);
            }
            ReconcileResult::StillRuns => {
                self.record_reconciliation(&call, attempt, ReconcileVerdict::StillRuns);
                self.wait_on(&call);
            }
            ReconcileResult::Happened(output) => {
                self.record_reconciliation(&call, attempt, ReconcileVerdict::Happened);
                self.end_reconciled(&call, output);
            }
        }
        self.after_calls();
    }

    /// The call whose tool is being asked, if this is the current attempt to find out.
    fn reconciling_call(&self, turn: TurnNumber, id: &CallId, attempt: u32) -> Option<Call> {
        let current = self.session.turn.as_ref().filter(|current| current.number == turn)?;
        let call = current.call(id)?;
        let is_asked = matches!(
            call.state,
            CallState::Reconciling { attempt: now, until: None, .. } if now == attempt
        );
        is_asked.then(|| call.clone())
    }

    /// Records the tool's finding, and a recovery if earlier attempts failed.
    fn record_reconciliation(&mut self, call: &Call, attempt: u32, verdict: ReconcileVerdict) {
        let trouble = match &call.state {
            CallState::Reconciling { trouble, .. } => trouble.clone(),
            _ => None,
        };
        if let Some(OngoingFailure { kind, since }) = trouble {
            self.emit(Event::Recovered {
                operation: Operation::ReconcileCall,
                kind,
                attempts: attempt,
                elapsed_ms: millis(self.env.now.since(since)),
                scope: self.call_scope(&call.id),
            });
        }
        let (call, tool) = (call.id.clone(), call.tool.clone());
        self.emit(Event::ReconcileEnded { call, tool, verdict });
    }

    /// Runs a call that did not happen, unless it was interrupted on its last attempt: it may crash the process.
    fn run_again(&mut self, call: &Call) {
        let CallState::Reconciling { of_attempt, arguments, .. } = &call.state else { return };
        if *of_attempt < self.env.limits.retry.tries {
            let attempt = of_attempt.saturating_add(1);
            return self.begin(CallStart::again(call, arguments.clone(), attempt, (false, true)));
        }
        let fault = Fault::new(Kind::ToolFailed, Operation::ToolCall)
            .with(Fact::ToolName, call.tool.clone())
            .with(Fact::Reason, "the program was interrupted whenever it ran")
            .not_started()
            .with_trace(self.session.trace());
        self.end_call(call.id.clone(), fault.into());
    }

    /// Waits for the end of a call that still runs. Waiting starts nothing, so it is not limited to some attempts.
    fn wait_on(&mut self, call: &Call) {
        let CallState::Reconciling { of_attempt, arguments, .. } = &call.state else { return };
        let attempt = of_attempt.saturating_add(1);
        self.begin(CallStart::again(call, arguments.clone(), attempt, (false, true)));
    }

    fn end_reconciled(&mut self, call: &Call, mut output: Output) {
        let CallState::Reconciling { of_attempt, failing, remark, .. } = &call.state else {
            return;
        };
        let told = text::line("advice-reconciled", &Detail::new(), self.session.settings.language);
        output.note = Some(output.note.map_or(told.clone(), |note| format!("{told} {note}")));
        if let Some(failing) = failing {
            self.record_call_recovery(&call.id, *of_attempt, failing);
        }
        self.end_call(call.id.clone(), calls::with_remark(Outcome::Done(output), remark.clone()));
    }

    /// Schedules another attempt to find out, or leaves the outcome unknown.
    fn reconcile_failed(&mut self, call: &Call, attempt: u32, fault: Fault) {
        let (env, policy) = (self.env, self.env.limits.retry_policy());
        let fault = fault.with_trace(self.session.trace());
        let (scope, kind) = (self.call_scope(&call.id), fault.kind());
        let retry::RetryDecision::Retry(wait) = policy.after(fault.clone(), attempt, env.jitter)
        else {
            self.emit(Event::FaultRaised { fault, scope });
            return self.leave_in_doubt(call);
        };
        let told = fault.attempt(attempt, policy.tries).retry_after(wait);
        self.emit(Event::FaultRaised { fault: told, scope: scope.clone() });
        self.emit(Event::RetryScheduled {
            operation: Operation::ReconcileCall,
            kind,
            attempt,
            next_attempt: attempt.saturating_add(1),
            max_attempts: policy.tries,
            wait_ms: millis(wait),
            due_at: env.now.after(wait),
            scope,
        });
    }

    fn leave_in_doubt(&mut self, call: &Call) {
        let (id, tool) = (call.id.clone(), call.tool.clone());
        let verdict = ReconcileVerdict::CannotTell;
        self.emit(Event::ReconcileEnded { call: id.clone(), tool, verdict });
        let fault = calls::outcome_unknown(&call.tool).with_trace(self.session.trace());
        self.end_call(id, fault.into());
    }
}
