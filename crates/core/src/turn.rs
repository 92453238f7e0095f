//! The turn's decision logic, without clock, I/O or waiting.
//!
//! [`step`] takes one [`Input`], applies the events that follow from it to the session and returns them. The caller
//! makes them durable before it acts on them, or discards the session. [`due`] lists the work that a state requires.
//! The caller starts due work that is not running and drops running work that is no longer due. A restart therefore
//! needs no code of its own: the same work is due again, and [`Input::Resumed`] only settles calls whose outcome is
//! unknown.
//!
//! All work carries its turn number. A result for another turn is dropped; it never affects the current turn.
//!
//! A turn that a coordinator runs (a pipeline over child sessions) is only started here: the coordinator decides with a
//! [`Stepper`] of its own what follows, and ends the turn.

mod calls;
mod command;
mod doubts;
mod elicitation;
mod fallback;
mod model;
mod remote;
mod settings;
mod spending;
mod timers;
mod types;
mod wait;

use std::time::Duration;

use crate::{
    brake::BrakeTrip,
    event::{
        Answer, Command, CommandBody, CommandId, Entry, Event, QuestionId, Scope, SessionEnd,
        StopReason, TurnNumber,
    },
    fault::{Fact, Fault, Kind, Operation, Severity},
    limits::Limits,
    message::{Block, CallId, ModelStop, Usage},
    session::{CallState, Phase, Session, Turn, unpaired},
    tool::Outcome,
    trace::Trace,
};

pub use self::{
    command::{check_digest, question_expired},
    types::{CallVerdict, Env, Input, Transition, Work},
};

/// Turns `input` into events and applies them to the session.
pub fn step(session: &mut Session, input: Input, env: &Env<'_>) -> Transition {
    let mut stepper = Stepper::new(session, env);
    stepper.handle(input);
    stepper.finish()
}

/// The work that this state requires.
#[must_use]
pub fn due(session: &Session, limits: &Limits) -> Vec<Work> {
    let Some(turn) = &session.turn else { return Vec::new() };
    let number = turn.number;
    match turn.phase {
        Phase::AwaitingModel { .. } | Phase::Waiting { .. } if turn.cancelling => Vec::new(),
        Phase::AwaitingModel { attempt } => {
            let patience = turn.wait.ends_at().filter(|_| turn.wait.is_held);
            let wake = patience.map(|at| Work::Wake { turn: number, at });
            let request = match needs_compaction(session, turn, limits) {
                true => Work::Compact { turn: number, step: turn.step },
                false => Work::Model { turn: number, step: turn.step, attempt },
            };
            std::iter::once(request).chain(wake).collect()
        }
        Phase::Waiting { until, .. } => vec![Work::Wake { turn: number, at: until }],
        Phase::Calling => calls::due(turn),
        Phase::Pipeline | Phase::Confirming => Vec::new(),
    }
}

fn needs_compaction(session: &Session, turn: &Turn, limits: &Limits) -> bool {
    let too_long = turn.too_long || session.tokens > limits.context_tokens;
    // Compaction runs once per step. If the history is still too long, the provider's fault decides.
    too_long && turn.compacted_in_step < turn.step && session.history.len() > 2
}

/// Collects the events of one decision and applies each at once, so that later rules see it.
///
/// A coordinator changes a session through its public methods only.
#[derive(Debug)]
pub struct Stepper<'a> {
    session: &'a mut Session,
    env: &'a Env<'a>,
    decided: Transition,
}

impl<'a> Stepper<'a> {
    /// Begins a decision about `session`.
    pub fn new(session: &'a mut Session, env: &'a Env<'a>) -> Self {
        Self { session, env, decided: Transition::default() }
    }

    /// The session with all events of this decision applied.
    #[must_use]
    pub fn session(&self) -> &Session {
        self.session
    }

    /// The inputs of the decision besides the session.
    #[must_use]
    pub fn env(&self) -> &'a Env<'a> {
        self.env
    }

    /// Decides what follows from one input, except in a turn that a coordinator runs.
    pub fn handle(&mut self, input: Input) {
        // Most decisions produce one or two events; a larger reservation would waste memory on each.
        self.decided.entries.reserve_exact(if let Input::Delta { .. } = input { 1 } else { 2 });
        match input {
            Input::Command(command) => self.command(command),
            Input::Resumed => self.resume_turn(),
            Input::Delta { turn, step, attempt, text, thought } => {
                if self.awaits_model(turn, step, attempt) {
                    self.delta(step, text, thought);
                }
            }
            Input::ModelAnswered { turn, step, attempt, content, stop, usage, response } => {
                if self.awaits_model(turn, step, attempt) {
                    self.handle_answer((step, attempt), content, stop, usage, response);
                } else {
                    self.drop_late_report(Operation::ModelRequest, turn, None);
                }
            }
            Input::AnswerRejected { turn, step, attempt, content, usage, fault } => {
                if self.awaits_model(turn, step, attempt) {
                    self.handle_rejected_answer((step, attempt), content, usage, &fault);
                } else {
                    self.drop_late_report(Operation::ModelRequest, turn, None);
                }
            }
            Input::ModelFailed { turn, step, attempt, fault } => {
                if self.awaits_model(turn, step, attempt) {
                    self.handle_model_failure(step, attempt, fault);
                } else {
                    self.drop_late_report(Operation::ModelRequest, turn, None);
                }
            }
            Input::RequestHeld { turn, step, attempt, hold } => {
                if self.awaits_model(turn, step, attempt) {
                    self.record_hold(step, attempt, *hold);
                }
            }
            Input::HoldReviewed { turn, step, attempt } => {
                if self.awaits_model(turn, step, attempt) {
                    self.review_hold(step, attempt);
                }
            }
            Input::RequestReleased { turn, step, attempt } => {
                if self.awaits_model(turn, step, attempt) {
                    self.record_release(step);
                }
            }
            Input::HistoryCompacted { turn, messages, summary, by_model, tokens_after, usage } => {
                if self.is_current(turn) {
                    self.handle_compaction(messages, summary, by_model, tokens_after, usage);
                }
            }
            Input::CompactionFailed { turn, fault } => {
                if self.is_current(turn) {
                    self.abort_turn(fault);
                }
            }
            Input::CallsChecked { turn, verdicts } => {
                if self.is_current(turn) {
                    self.apply_verdicts(verdicts);
                }
            }
            Input::RecordOnly { turn, event } => {
                if turn == 0 || self.is_current(turn) {
                    self.emit(event);
                }
            }
            Input::InputNeeded { turn, call, attempt, elicitation, digest } => {
                if self.is_current(turn) {
                    self.input_needed(call, attempt, &elicitation, digest);
                }
            }
            Input::ToolCallEnded { turn, call, attempt, outcome } => {
                self.handle_call_end(turn, call, attempt, outcome);
            }
            Input::CallReconciled { turn, call, attempt, answer } => {
                self.apply_reconciliation(turn, call, attempt, answer);
            }
            Input::Aborted { fault } => self.abort_turn(fault),
            Input::TimersDue => self.fire_timers(),
            Input::TimerFired { turn } => {
                if self.is_current(turn) {
                    self.handle_timers();
                }
            }
        }
    }

    /// Ends the decision; queued calls start if there are slots.
    #[must_use]
    pub fn finish(mut self) -> Transition {
        self.start_queued();
        self.decided
    }
}

impl Stepper<'_> {
    /// Records an event of the running turn, or of no turn if none runs.
    pub fn emit(&mut self, event: Event) {
        let (turn, trace) = self.session.attribute(&event, self.env.trace);
        self.record(turn, trace, event);
    }

    fn record(&mut self, turn: TurnNumber, trace: Trace, mut event: Event) {
        event.set_stage(self.session.origin.as_ref());
        event.set_server(self.env.server);
        self.session.apply(&event, self.env.now, trace);
        self.decided.entries.push(Entry { at: self.env.now, trace, turn, event: event.into() });
    }

    /// Whether this turn is the running one.
    #[must_use]
    pub fn is_current(&self, turn: TurnNumber) -> bool {
        self.session.turn.as_ref().is_some_and(|current| current.number == turn)
    }

    fn awaits_model(&self, turn: TurnNumber, step: u32, attempt: u32) -> bool {
        self.session.turn.as_ref().is_some_and(|current| {
            current.number == turn
                && current.step == step
                && current.phase == Phase::AwaitingModel { attempt }
                && !current.cancelling
        })
    }

    /// Records that a report came after its turn, step or job had ended.
    pub fn drop_late_report(
        &mut self,
        operation: Operation,
        of_turn: TurnNumber,
        call: Option<CallId>,
    ) {
        self.emit(Event::LateArrivalDropped { operation, of_turn, call });
    }

    fn turn(&self) -> &Turn {
        self.session.turn.as_ref().expect("only called while a turn is running")
    }

    /// Starts a turn for the next message, if one waits and no turn runs.
    fn start_next(&mut self) {
        if self.session.turn.is_some() {
            return;
        }
        self.finish_closing();
        let (None, Some(next)) = (&self.session.turn, self.session.queue.front()) else { return };
        let message = next.command.clone();
        self.emit(Event::TurnStarted { message });
        if !self.turn().phase.is_coordinated() {
            self.next_step();
        }
    }

    /// Completes a close when no turn runs: each message from before the close gets an empty turn, then the session
    /// ends. A message accepted since then re-opens it. A coordinator ends its empty turns itself.
    fn finish_closing(&mut self) {
        while let Some(before) = self.session.closing {
            match self.session.queue.front() {
                Some(next) if before > 0 => {
                    let message = next.command.clone();
                    self.emit(Event::TurnStarted { message });
                    if self.turn().phase.is_coordinated() {
                        return;
                    }
                    self.close_turn(StopReason::Cancelled, None);
                }
                _ => self.emit(Event::SessionEnded { end: SessionEnd::Closed, fault: None }),
            }
        }
    }

    /// Starts the next model request of the turn, or ends the turn if a budget is spent.
    fn next_step(&mut self) {
        let turn = self.turn();
        let limits = self.env.limits;
        let settings = &self.session.settings;
        let steps_max = settings.max_steps.unwrap_or(limits.steps).min(limits.steps);
        if turn.step >= steps_max {
            let fault = Fault::new(Kind::StepsExhausted, Operation::RunTurn)
                .with(Fact::Limit, steps_max)
                .with(Fact::LimitName, "steps");
            return self.end_turn(StopReason::MaxTurnRequests, Some(fault));
        }
        self.settle_costs();
        let turn = self.turn();
        if let Some(index) = unpaired(&self.session.history, turn.first_message) {
            let fault = Fault::new(Kind::Bug, Operation::RunTurn)
                .with_cause(format!("history is not well paired at message {index}"));
            return self.fail_at_step(fault);
        }
        let step = turn.step.saturating_add(1);
        self.choose_model(step);
        if self.start_attempt(step, 1) {
            self.record_compaction();
        }
    }

    /// Records that the history is being shortened, if that must precede the model request.
    fn record_compaction(&mut self) -> bool {
        let needed = needs_compaction(self.session, self.turn(), self.env.limits);
        if needed {
            let (step, tokens) = (self.turn().step, self.session.tokens);
            self.emit(Event::CompactionStarted { step, tokens });
        }
        needed
    }

    /// Ends the turn as failed and, if the fault prevents any further turn, ends the session too.
    fn fail_at_step(&mut self, fault: Fault) {
        let scope = Scope { step: Some(self.turn().step), ..Scope::default() };
        self.fail_turn(scope, fault);
    }

    /// Ends the turn as failed with a fault of this scope. A fault that prevents any further turn ends the session too.
    pub fn fail_turn(&mut self, scope: Scope, fault: Fault) {
        let trace = self.session.trace();
        let fault = fault.with_trace(trace);
        self.emit(Event::RecoveryFailed { fault: fault.clone(), scope });
        let fatal = fault.row().severity == Severity::Critical && !fault.row().recoverable;
        self.close_turn(StopReason::Failed, Some(fault.clone()));
        if fatal && self.session.closing.is_none() {
            let number = self.session.turns;
            let end = Event::SessionEnded { end: SessionEnd::Error, fault: Some(fault) };
            self.record(number, trace, end);
        }
        self.start_next();
    }

    /// Ends the turn and starts the next queued message. A fault that ends it is recorded by itself first.
    pub fn end_turn(&mut self, stop: StopReason, fault: Option<Fault>) {
        let trace = self.session.trace();
        let fault = fault.map(|fault| fault.with_trace(trace));
        if let Some(fault) = fault.clone() {
            let scope = Scope { step: Some(self.turn().step), ..Scope::default() };
            self.emit(Event::RecoveryFailed { fault, scope });
        }
        self.close_turn(stop, fault);
        self.start_next();
    }

    fn close_turn(&mut self, stop: StopReason, fault: Option<Fault>) {
        let (steps, usage) = (self.turn().step, self.turn().usage);
        self.settle_costs();
        self.abandon_partial();
        self.emit(Event::TurnEnded { stop, fault, steps, usage });
    }

    /// Records that text shown to observers is void.
    fn abandon_partial(&mut self) {
        let turn = self.turn();
        if let (true, Phase::AwaitingModel { attempt }) = (turn.partial, turn.phase) {
            let step = turn.step;
            self.emit(Event::AnswerAbandoned { step, attempt });
        }
    }

    /// Settles the calls that the previous writer left open.
    fn resume_turn(&mut self) {
        if self.session.turn.is_none() {
            return self.start_next();
        }
        self.abandon_partial();
        let calls::InterruptedCalls { again, asked, lost } =
            calls::interrupted(self.turn(), self.env.limits.retry.tries);
        let sealed = lost.iter().map(|(call, _)| call.clone()).collect();
        self.emit(Event::SessionResumed { sealed });
        for next in again {
            self.begin(next);
        }
        for (call, tool, attempt) in asked {
            self.emit(Event::ReconcileStarted { call, tool, attempt });
        }
        for (call, tool) in lost {
            let fault = calls::outcome_unknown(&tool).with_trace(self.session.trace());
            self.end_call(call, fault.into());
        }
        if let Some(reached) = self.settle_interrupted() {
            return self.stop_at_cap(reached);
        }
        self.after_calls();
    }

    /// Ends the turn at once: started calls end as unknown, the others as cancelled. Emits only closing events, so that
    /// they fit on a full disk.
    fn abort_turn(&mut self, fault: Fault) {
        let Some(turn) = &self.session.turn else { return };
        let trace = turn.trace;
        let open = turn.calls.iter().filter(|call| call.is_open());
        let open: Vec<_> = open
            .map(|call| {
                let fault = match call.state {
                    CallState::Started { .. } if !call.is_unclaimed() => {
                        calls::outcome_unknown(&call.tool)
                    }
                    _ => calls::cancelled(call),
                };
                (call.id.clone(), fault.with_trace(trace))
            })
            .collect();
        for (call, fault) in open {
            self.end_call(call, fault.into());
        }
        self.fail_at_step(fault);
    }

    /// Starts retries that are due and expires unanswered questions.
    fn handle_timers(&mut self) {
        if let Phase::Waiting { attempt, until } = self.turn().phase
            && until <= self.env.now
        {
            let step = self.turn().step;
            if self.attempts_in_round(attempt).0 == 1 {
                self.choose_model(step);
            }
            if !self.start_attempt(step, attempt) {
                return;
            }
        }
        if self.turn().wait.is_held && !self.review_patience() {
            return;
        }
        self.wake_calls();
        self.after_calls();
    }

    /// Continues after all calls of the step ended: the next model request, or the turn's end.
    fn after_calls(&mut self) {
        let Some(turn) = &self.session.turn else { return };
        if turn.phase != Phase::Calling || turn.calls.iter().any(crate::session::Call::is_open) {
            return;
        }
        if turn.cancelling {
            return self.end_turn(StopReason::Cancelled, None);
        }
        match turn.brake.trip(self.env.limits) {
            Some(tripped) => {
                let tool = turn.calls.last().map_or_else(String::new, |call| call.tool.to_string());
                self.fail_at_step(stuck_fault(tripped, tool));
            }
            None => self.next_step(),
        }
    }
}

/// `tool`: the tool that was called last.
fn stuck_fault(tripped: BrakeTrip, tool: String) -> Fault {
    match tripped {
        BrakeTrip::SameInvalidCall(times) => {
            Fault::new(Kind::RepeatedCallStopped, Operation::RunTurn)
                .with(Fact::ToolName, tool)
                .with(Fact::Times, times)
                .with(Fact::LimitName, "identical_invalid_calls")
        }
        BrakeTrip::FailuresInARow(times) => Fault::new(Kind::FailuresExhausted, Operation::RunTurn)
            .with(Fact::Times, times)
            .with(Fact::Limit, times)
            .with(Fact::LimitName, "failures_in_a_row"),
    }
}

pub(crate) fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}
