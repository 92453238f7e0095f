//! Rules for the calls of a step: start, ask, retry, settle and end.

use super::{
    CallId, CallState, CallVerdict, Event, Fact, Fault, Kind, Operation, Outcome, QuestionId,
    Stepper, TurnNumber, Work, millis,
};
use serde_json::Value;

use crate::{
    brake::call_key,
    event::{CallStart, QuestionPurpose, Scope},
    fault::{Advice, Progress},
    retry,
    session::{Call, OngoingFailure, Turn, is_invalid},
    time::Timestamp,
    tool::Failure,
};

/// The work that is due while calls are open.
pub(super) fn due(turn: &Turn) -> Vec<Work> {
    let number = turn.number;
    let mut work = Vec::new();
    let mut unchecked = Vec::new();
    let mut wake = None;
    for call in &turn.calls {
        let earliest = |wake: Option<Timestamp>, at: Timestamp| wake.map_or(at, |it| it.min(at));
        if let Some(open) = call.open_question() {
            wake = Some(earliest(wake, open.expires_at));
        }
        match &call.state {
            CallState::Requested { .. } => unchecked.push(call.id.clone()),
            CallState::Started { attempt, .. } => {
                let (call, attempt) = (call.id.clone(), *attempt);
                work.push(Work::Call { turn: number, call, attempt });
            }
            CallState::Waiting { until: at, .. }
            | CallState::Reconciling { until: Some(at), .. } => {
                wake = Some(earliest(wake, *at));
            }
            CallState::Reconciling { attempt, until: None, .. } => {
                let (call, attempt) = (call.id.clone(), *attempt);
                work.push(Work::Reconcile { turn: number, call, attempt });
            }
            // A person decides, or the turn starts it as soon as a slot is free.
            CallState::AwaitingDecision { .. }
            | CallState::Queued { .. }
            | CallState::Ended { .. } => {}
        }
    }
    if !unchecked.is_empty() {
        work.push(Work::Check { turn: number, calls: unchecked });
    }
    work.extend(wake.map(|at| Work::Wake { turn: number, at }));
    work
}

impl CallStart {
    /// The next attempt at a call that an earlier one left open.
    pub(super) fn again(
        call: &Call,
        arguments: Value,
        attempt: u32,
        (idempotent, reconcile): (bool, bool),
    ) -> Self {
        let (call, tool) = (call.id.clone(), call.tool.clone());
        Self { call, tool, arguments, repairs: Vec::new(), attempt, idempotent, reconcile }
    }
}

/// The calls that a crash interrupted, grouped by the next action.
#[derive(Default)]
pub(super) struct InterruptedCalls {
    /// Attempts of calls that run again.
    pub(super) again: Vec<CallStart>,
    /// Calls whose tools are asked, with the attempt to find out.
    pub(super) asked: Vec<(CallId, String, u32)>,
    /// Calls whose outcome is unknown.
    pub(super) lost: Vec<(CallId, String)>,
}

/// Sorts interrupted calls after a crash.
///
/// A call interrupted on its last attempt may have crashed the process, so it does not run again.
pub(super) fn interrupted(turn: &Turn, tries: u32) -> InterruptedCalls {
    let mut sorted = InterruptedCalls::default();
    for call in &turn.calls {
        let (id, tool) = (call.id.clone(), call.tool.clone());
        match &call.state {
            // Its worker may still run it, or none has begun: the call stays open.
            CallState::Started { .. } if call.remote.is_some() => {}
            CallState::Started { attempt, arguments, idempotent: true, reconcile, .. }
                if !turn.cancelling && *attempt < tries =>
            {
                let (arguments, flags) = (arguments.clone(), (true, *reconcile));
                let attempt = attempt.saturating_add(1);
                sorted.again.push(CallStart::again(call, arguments, attempt, flags));
            }
            CallState::Started { reconcile: true, .. } if !turn.cancelling => {
                sorted.asked.push((id, tool, 1));
            }
            CallState::Reconciling { attempt, until: None, .. } if *attempt < tries => {
                sorted.asked.push((id, tool, attempt.saturating_add(1)));
            }
            CallState::Started { .. } | CallState::Reconciling { until: None, .. } => {
                sorted.lost.push((id, tool));
            }
            CallState::Requested { .. }
            | CallState::AwaitingDecision { .. }
            | CallState::Queued { .. }
            | CallState::Reconciling { .. }
            | CallState::Waiting { .. }
            | CallState::Ended { .. } => {}
        }
    }
    sorted
}

/// Open calls that are not running, each with the fault it ends with on a cancel.
pub(super) fn not_running(turn: &Turn) -> Vec<(CallId, Fault)> {
    let open = turn.calls.iter().filter(|call| call.is_open());
    open.filter(|call| !matches!(call.state, CallState::Started { .. }))
        .map(|call| (call.id.clone(), cancelled(call)))
        .collect()
}

pub(super) fn outcome_unknown(tool: &str) -> Fault {
    Fault::new(Kind::OutcomeUnknown, Operation::ToolCall).with(Fact::ToolName, tool.to_owned())
}

/// The fault of a cancelled call that is not running. A call that waits for a retry has run before.
pub(super) fn cancelled(call: &Call) -> Fault {
    if let CallState::Reconciling { .. } = call.state {
        return outcome_unknown(&call.tool);
    }
    let fault =
        Fault::new(Kind::Cancelled, Operation::ToolCall).with(Fact::ToolName, call.tool.clone());
    match call.state {
        CallState::Requested { .. }
        | CallState::AwaitingDecision { .. }
        | CallState::Queued { attempt: 1, .. } => fault.not_started(),
        CallState::Started { .. } if call.is_unclaimed() => fault.not_started(),
        _ => fault,
    }
}

pub(super) fn denied_by_person(tool: &str, note: Option<String>) -> Fault {
    let fault =
        Fault::new(Kind::DeniedByPerson, Operation::ToolCall).with(Fact::ToolName, tool.to_owned());
    match note {
        Some(note) => fault.with(Fact::Note, note.clone()).advise_model([Advice::Custom(note)]),
        None => fault,
    }
}

/// Adds a person's note, or the fact that the arguments changed, to the outcome for the model.
pub(super) fn with_remark(mut outcome: Outcome, remark: Option<String>) -> Outcome {
    let note = match &mut outcome {
        Outcome::Done(output) => &mut output.note,
        Outcome::Failed(failure) => &mut failure.note,
    };
    if let Some(remark) = remark {
        *note = Some(note.take().map_or(remark.clone(), |note| format!("{note} {remark}")));
    }
    outcome
}

impl Stepper<'_> {
    /// Starts, asks about or settles each checked call.
    pub(super) fn apply_verdicts(&mut self, verdicts: Vec<(CallId, CallVerdict)>) {
        for (id, verdict) in verdicts {
            let Some(call) = self.turn().call(&id) else { continue };
            if !matches!(call.state, CallState::Requested { .. }) || self.turn().cancelling {
                continue;
            }
            let tool = call.tool.clone();
            match verdict {
                CallVerdict::Settled(outcome) => self.settle(id, outcome),
                CallVerdict::Run { arguments, repairs, idempotent, reconcile, route } => {
                    if let Some(route) = route {
                        let (call, tool) = (id.clone(), tool.clone());
                        self.emit(Event::ToolCallOffered { call, tool, route });
                    }
                    self.begin(CallStart {
                        call: id,
                        tool,
                        arguments,
                        repairs,
                        attempt: 1,
                        idempotent,
                        reconcile,
                    });
                }
                CallVerdict::Ask { arguments, repairs, idempotent, digest, reason } => {
                    let question = QuestionId(format!("ask_{id}").into());
                    let expires_at = self.env.now.after(self.env.limits.question);
                    self.emit(Event::QuestionAsked {
                        question,
                        call: id,
                        tool,
                        arguments,
                        repairs,
                        digest,
                        idempotent,
                        reason,
                        purpose: QuestionPurpose::Permission,
                        expires_at,
                    });
                }
            }
        }
        self.after_calls();
    }

    /// Starts an attempt if a slot is free and no call waits for one; else the call waits.
    pub(super) fn begin(&mut self, next: CallStart) {
        let waits = |call: &Call| matches!(call.state, CallState::Queued { .. });
        let is_free = self.free_slots(Some(&next.call)) > 0;
        let starts = is_free && !self.turn().calls.iter().any(waits);
        self.emit(match starts {
            true => Event::ToolCallStarted(next),
            false => Event::ToolCallQueued(next),
        });
    }

    /// Starts calls that wait for a slot, in the model's order, while slots are free.
    pub(super) fn start_queued(&mut self) {
        let Some(turn) = self.session.turn.as_ref().filter(|turn| !turn.cancelling) else { return };
        let queued = turn.calls.iter().filter_map(|call| match &call.state {
            CallState::Queued { attempt, arguments, repairs, idempotent, reconcile, .. } => {
                Some(Event::ToolCallStarted(CallStart {
                    call: call.id.clone(),
                    tool: call.tool.clone(),
                    arguments: arguments.clone(),
                    repairs: repairs.clone(),
                    attempt: *attempt,
                    idempotent: *idempotent,
                    reconcile: *reconcile,
                }))
            }
            _ => None,
        });
        let starts: Vec<Event> = queued.take(self.free_slots(None)).collect();
        starts.into_iter().for_each(|event| self.emit(event));
    }

    /// Slots for calls that no running call holds; an interrupted attempt of `next` holds none.
    fn free_slots(&self, next: Option<&CallId>) -> usize {
        let calls = self.session.turn.iter().flat_map(|turn| &turn.calls);
        let calls = calls.filter(|call| Some(&call.id) != next);
        let running = calls.filter(|call| matches!(call.state, CallState::Started { .. })).count();
        let taken = running.saturating_add(self.env.busy_slots);
        self.env.limits.parallel_calls.saturating_sub(taken)
    }

    /// Ends a call that never ran. An exact repetition of an invalid call gets a fault that says so.
    pub(super) fn settle(&mut self, id: CallId, outcome: Outcome) {
        let outcome = match outcome {
            Outcome::Failed(failure) => Outcome::Failed(self.brake(&id, failure)),
            done @ Outcome::Done(_) => done,
        };
        self.end_call(id, outcome);
    }

    fn brake(&self, id: &CallId, failure: Failure) -> Failure {
        let Some(call) = self.turn().call(id) else { return failure };
        let before = match is_invalid(failure.fault.kind()) {
            true => self.turn().brake.repeats(&call_key(&call.tool, &call.written)),
            false => 0,
        };
        if before == 0 {
            return failure;
        }
        let was = failure.fault;
        let mut fault = Fault::new(Kind::RepeatedCallStopped, Operation::ToolCall)
            .with(Fact::ToolName, call.tool.clone())
            .with(Fact::Times, before + 1)
            .with(Fact::LimitName, "identical_invalid_calls")
            .with(Fact::Limit, self.env.limits.identical_invalid_calls)
            .with(Fact::Cause, crate::fault::text::model_text(&was, self.session.settings.language))
            .advise_model(was.model_advice().iter().cloned())
            .advise_user(was.user_advice().iter().cloned())
            .with_trace(was.trace());
        if let Some(example) = was.detail().get(Fact::Example) {
            fault = fault.with(Fact::Example, example.clone());
        }
        for mismatch in was.mismatches() {
            fault = fault.mismatch(mismatch.clone());
        }
        Failure { fault, ..failure }
    }

    /// Records the one outcome of a call.
    pub(super) fn end_call(&mut self, id: CallId, outcome: Outcome) {
        self.close_input_questions(&id, |_| true);
        let Some(call) = self.turn().call(&id).filter(|call| call.is_open()) else { return };
        let tool = call.tool.clone();
        let duration_ms = match &call.state {
            CallState::Started { at, .. } => millis(self.env.now.since(*at)),
            _ => 0,
        };
        self.emit(Event::ToolCallEnded { call: id, tool, outcome, duration_ms });
    }

    /// Handles the end of an attempt: records the outcome or schedules a retry.
    pub(super) fn handle_call_end(
        &mut self,
        turn: TurnNumber,
        id: CallId,
        attempt: u32,
        outcome: Outcome,
    ) {
        let running = self
            .session
            .turn
            .as_ref()
            .filter(|current| current.number == turn)
            .and_then(|current| current.call(&id))
            .and_then(|call| match &call.state {
                CallState::Started { attempt: now, idempotent, failing, remark, .. }
                    if *now == attempt =>
                {
                    Some((*idempotent, failing.clone(), remark.clone()))
                }
                _ => None,
            });
        let Some((idempotent, failing, remark)) = running else {
            return self.drop_late_report(Operation::ToolCall, turn, Some(id));
        };
        if self.was_claimed_meanwhile(&id, &outcome) || self.asks_worker(&id, &outcome) {
            return;
        }
        if let Outcome::Failed(failure) = &outcome
            && (idempotent || failure.fault.progress() == Progress::NotBegun)
            && !self.turn().cancelling
            && self.try_call_again(&id, attempt, failure)
        {
            return;
        }
        if let (Some(failing), Outcome::Done(_)) = (failing, &outcome) {
            self.record_call_recovery(&id, attempt, &failing);
        }
        self.end_call(id, with_remark(outcome, remark));
        self.after_calls();
    }

    pub(super) fn call_scope(&self, id: &CallId) -> Scope {
        let tool = self.turn().call(id).map(|call| call.tool.clone());
        Scope { step: Some(self.turn().step), call: Some(id.clone()), tool, ..Scope::default() }
    }

    /// Schedules a retry of a call that may be repeated, if its fault and its attempts allow one.
    fn try_call_again(&mut self, id: &CallId, attempt: u32, failure: &Failure) -> bool {
        let (env, policy) = (self.env, self.env.limits.retry_policy());
        let fault = failure.fault.clone().with_trace(self.session.trace());
        let retry::RetryDecision::Retry(wait) = policy.after(fault.clone(), attempt, env.jitter)
        else {
            return false;
        };
        let (scope, kind) = (self.call_scope(id), fault.kind());
        let told = fault.attempt(attempt, policy.tries).retry_after(wait);
        self.emit(Event::FaultRaised { fault: told, scope: scope.clone() });
        self.emit(Event::RetryScheduled {
            operation: Operation::ToolCall,
            kind,
            attempt,
            next_attempt: attempt.saturating_add(1),
            max_attempts: policy.tries,
            wait_ms: millis(wait),
            due_at: env.now.after(wait),
            scope,
        });
        true
    }

    pub(super) fn record_call_recovery(
        &mut self,
        id: &CallId,
        attempt: u32,
        failing: &OngoingFailure,
    ) {
        let scope = self.call_scope(id);
        self.emit(Event::Recovered {
            operation: Operation::ToolCall,
            kind: failing.kind,
            attempts: attempt,
            elapsed_ms: millis(self.env.now.since(failing.since)),
            scope,
        });
    }

    /// Starts retries that are due and denies questions that expired.
    pub(super) fn wake_calls(&mut self) {
        let now = self.env.now;
        let calls: Vec<Call> = self.turn().calls.clone();
        for call in calls {
            self.close_input_questions(&call.id, |open| open.expires_at <= now);
            match call.state {
                CallState::Waiting {
                    attempt, ref arguments, until, idempotent, reconcile, ..
                } if until <= now => {
                    let (arguments, flags) = (arguments.clone(), (idempotent, reconcile));
                    self.begin(CallStart::again(&call, arguments, attempt, flags));
                }
                CallState::Reconciling { attempt, until: Some(until), .. } if until <= now => {
                    let (call, tool) = (call.id, call.tool);
                    self.emit(Event::ReconcileStarted { call, tool, attempt });
                }
                CallState::AwaitingDecision { question, expires_at, .. } if expires_at <= now => {
                    let fault = Fault::new(Kind::QuestionExpired, Operation::AskPermission)
                        .with(Fact::ToolName, call.tool)
                        .with(Fact::QuestionId, question.to_string())
                        .with_trace(self.session.trace());
                    self.emit(Event::QuestionExpired { question, call: call.id.clone() });
                    self.end_call(call.id, fault.into());
                }
                _ => {}
            }
        }
    }
}
