//! The turn: decides what happens next. No clock, no I/O, no waiting.
//!
//! Two functions are the whole of it. [`step`] takes one [`Input`] and answers with the events that
//! follow from it; they are applied to the session at once, and the caller makes them durable before it
//! acts on them or throws the session away. [`due`] says which work must be under way in a given state.
//! The caller starts what is due and not running, and drops what is running and no longer due. So a
//! restart needs no code of its own: what was due is due again, and [`Input::Resumed`] only settles the
//! calls nobody can vouch for.
//!
//! Everything in flight carries its turn number. What comes for another turn is dropped and counted; it
//! never ends, feeds or colours this one.

mod calls;
mod command;
mod model;
mod pipeline;
mod staging;

use std::{fmt, time::Duration};

use serde_json::Value;

use crate::{
    brake::BrakeTrip,
    event::{
        Answer, Command, CommandBody, CommandId, Entry, Event, Origin, QuestionId, Scope,
        SessionEnd, SessionId, StopReason, TaskEnd, TurnNumber,
    },
    fault::{Fact, Fault, Kind, Operation, Severity},
    limits::Limits,
    message::{Block, CallId, ModelStop, Usage},
    pipeline::StageJob,
    session::{CallState, Phase, Session, Turn, unpaired},
    time::Timestamp,
    tool::{Outcome, Repair},
    trace::Trace,
};

/// Everything that can wake a session. Closed on purpose: this list is the whole story.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Somebody asked for something.
    Command(Command),
    /// The session was loaded by a new writer.
    Resumed,
    /// Pieces of an answer came, already joined.
    Delta {
        /// For which turn.
        turn: TurnNumber,
        /// For which step.
        step: u32,
        /// For which try.
        attempt: u32,
        /// Words.
        text: String,
        /// Thought.
        thought: String,
    },
    /// The model's answer is complete.
    ModelAnswered {
        /// For which turn.
        turn: TurnNumber,
        /// For which step.
        step: u32,
        /// For which try.
        attempt: u32,
        /// The whole of it.
        content: Vec<Block>,
        /// Why it stopped.
        stop: ModelStop,
        /// What it cost.
        usage: Usage,
    },
    /// The model could not answer.
    ModelFailed {
        /// For which turn.
        turn: TurnNumber,
        /// For which step.
        step: u32,
        /// For which try.
        attempt: u32,
        /// Why.
        fault: Fault,
    },
    /// History was compacted, or that failed and it was cut by rule.
    HistoryCompacted {
        /// For which turn.
        turn: TurnNumber,
        /// The oldest messages the summary stands for.
        messages: u64,
        /// The summary.
        summary: String,
        /// Written by a model?
        by_model: bool,
        /// About how many tokens are left.
        tokens_after: u64,
        /// What that cost.
        usage: Usage,
    },
    /// The calls of a step were checked.
    CallsChecked {
        /// For which turn.
        turn: TurnNumber,
        /// What is to be done with each.
        verdicts: Vec<(CallId, CallVerdict)>,
    },
    /// Something happened beside the turn that is only to be recorded.
    RecordOnly {
        /// For which turn; 0 for none.
        turn: TurnNumber,
        /// What.
        event: Event,
    },
    /// A call ended.
    ToolCallEnded {
        /// For which turn.
        turn: TurnNumber,
        /// Which.
        call: CallId,
        /// Which try.
        attempt: u32,
        /// How.
        outcome: Outcome,
    },
    /// A child was opened for a stage of the pipeline.
    StageOpened {
        /// For which turn.
        turn: TurnNumber,
        /// For which piece of work.
        job: StageJob,
        /// The child.
        child: SessionId,
    },
    /// A stage's child came to rest: it answered, failed, or was stopped.
    StageEnded {
        /// For which turn.
        turn: TurnNumber,
        /// Which piece of work.
        job: StageJob,
        /// How.
        end: TaskEnd,
        /// What it used.
        usage: Usage,
    },
    /// The session cannot go on as it is, though nothing in it is wrong: the turn ends here.
    Aborted {
        /// Why.
        fault: Fault,
    },
    /// A time came that somebody was waiting for.
    TimerFired {
        /// For which turn.
        turn: TurnNumber,
    },
}

/// What is to be done with a checked call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallVerdict {
    /// Run it.
    Run {
        /// What with.
        arguments: Value,
        /// Repairs made to get them.
        repairs: Vec<Repair>,
        /// May it run again after a crash?
        idempotent: bool,
    },
    /// Ask a person first.
    Ask {
        /// What it would run with.
        arguments: Value,
        /// Repairs made to get them.
        repairs: Vec<Repair>,
        /// May it run again after a crash?
        idempotent: bool,
        /// What the answer is bound to.
        digest: String,
        /// Why it is asked.
        reason: String,
    },
    /// It has its outcome already: refused, denied, or supplied by a hook.
    Settled(Outcome),
}

/// Work that must be under way. Equal work is the same work.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Make the history shorter.
    Compact {
        /// For which turn.
        turn: TurnNumber,
        /// For which step.
        step: u32,
    },
    /// Ask the model.
    Model {
        /// For which turn.
        turn: TurnNumber,
        /// For which step.
        step: u32,
        /// For which try.
        attempt: u32,
    },
    /// Check the calls that have not been.
    Check {
        /// For which turn.
        turn: TurnNumber,
        /// Which.
        calls: Vec<CallId>,
    },
    /// Run a call.
    Call {
        /// For which turn.
        turn: TurnNumber,
        /// Which.
        call: CallId,
        /// Which try.
        attempt: u32,
    },
    /// Have a child session at work on a stage of the pipeline, and report its end.
    Stage {
        /// For which turn.
        turn: TurnNumber,
        /// Which piece of work.
        job: StageJob,
    },
    /// Stop a stage's child, if there is one, and report that it has stopped.
    Stop {
        /// For which turn.
        turn: TurnNumber,
        /// Which piece of work.
        job: StageJob,
    },
    /// Wake the session at a time.
    Wake {
        /// For which turn.
        turn: TurnNumber,
        /// When.
        at: Timestamp,
    },
}

/// What a decision may use besides the session: all of it handed in.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// The time.
    pub now: Timestamp,
    /// In −1..=1, for delays.
    pub jitter: f64,
    /// Takes a retry from the provider's budget, or says that it is spent. Asked only when a failed model
    /// request would be repeated.
    pub may_retry: &'a dyn Fn() -> bool,
    /// A trace for a turn that nobody brought one for.
    pub trace: Trace,
    /// The bounds.
    pub limits: &'a Limits,
}

impl fmt::Debug for Env<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env")
            .field("now", &self.now)
            .field("jitter", &self.jitter)
            .finish_non_exhaustive()
    }
}

/// What follows from an input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transition {
    /// To be made durable before anything else. Already applied to the session.
    pub entries: Vec<Entry>,
    /// To the command, if the input was one.
    pub answer: Option<(CommandId, Answer)>,
}

/// Decides what follows from `input`, and applies it to the session.
pub fn step(session: &mut Session, input: Input, env: &Env<'_>) -> Transition {
    // Most decisions are one or two events; room for more would be a large piece of memory each time.
    let room = if let Input::Delta { .. } = input { 1 } else { 2 };
    let decided = Transition { entries: Vec::with_capacity(room), answer: None };
    let mut stepper = Stepper { session, env, decided };
    match input {
        Input::Command(command) => stepper.command(command),
        Input::Resumed => stepper.resumed(),
        Input::Delta { turn, step, attempt, text, thought } => {
            if stepper.awaits_model(turn, step, attempt) {
                stepper.delta(step, text, thought);
            }
        }
        Input::ModelAnswered { turn, step, attempt, content, stop, usage } => {
            if stepper.awaits_model(turn, step, attempt) {
                stepper.answered(step, attempt, content, stop, usage);
            } else {
                stepper.late(Operation::ModelRequest, turn, None);
            }
        }
        Input::ModelFailed { turn, step, attempt, fault } => {
            if stepper.awaits_model(turn, step, attempt) {
                stepper.model_failed(step, attempt, fault);
            } else {
                stepper.late(Operation::ModelRequest, turn, None);
            }
        }
        Input::HistoryCompacted { turn, messages, summary, by_model, tokens_after, usage } => {
            if stepper.is_current(turn) {
                stepper.compacted(messages, summary, by_model, tokens_after, usage);
            }
        }
        Input::CallsChecked { turn, verdicts } => {
            if stepper.is_current(turn) {
                stepper.checked(verdicts);
            }
        }
        Input::RecordOnly { turn, event } => {
            if turn == 0 || stepper.is_current(turn) {
                stepper.emit(event);
            }
        }
        Input::ToolCallEnded { turn, call, attempt, outcome } => {
            stepper.call_ended(turn, call, attempt, outcome);
        }
        Input::StageOpened { turn, job, child } => stepper.stage_opened(turn, &job, child),
        Input::StageEnded { turn, job, end, usage } => {
            stepper.stage_ended(turn, &job, end, usage);
        }
        Input::Aborted { fault } => stepper.halted(fault),
        Input::TimerFired { turn } => {
            if stepper.is_current(turn) {
                stepper.woke();
            }
        }
    }
    stepper.decided
}

/// The work that must be under way in this state.
#[must_use]
pub fn due(session: &Session, limits: &Limits) -> Vec<Work> {
    let Some(turn) = &session.turn else { return Vec::new() };
    let number = turn.number;
    match turn.phase {
        Phase::AwaitingModel { .. } | Phase::Waiting { .. } if turn.cancelling => Vec::new(),
        Phase::AwaitingModel { .. } if needs_compaction(session, turn, limits) => {
            vec![Work::Compact { turn: number, step: turn.step }]
        }
        Phase::AwaitingModel { attempt } => {
            vec![Work::Model { turn: number, step: turn.step, attempt }]
        }
        Phase::Waiting { until, .. } => vec![Work::Wake { turn: number, at: until }],
        Phase::Calling => calls::due(turn),
        Phase::Pipeline | Phase::Confirming => pipeline::due(turn, session.pipeline.as_ref()),
    }
}

fn needs_compaction(session: &Session, turn: &Turn, limits: &Limits) -> bool {
    let too_long = turn.too_long || session.tokens > limits.context_tokens;
    // Once a step: if it did not help, the provider's answer decides.
    too_long && turn.compacted_in_step < turn.step && session.history.len() > 2
}

/// The events of one decision, applied as they are made, so that the next one sees them.
struct Stepper<'a> {
    session: &'a mut Session,
    env: &'a Env<'a>,
    decided: Transition,
}

impl Stepper<'_> {
    fn emit(&mut self, event: Event) {
        let (turn, trace) = match (&event, &self.session.turn) {
            (Event::TurnStarted { message }, _) => {
                let queued = self.session.queue.iter().find(|queued| queued.command == *message);
                let brought = queued.map_or(Trace::NONE, |queued| queued.trace);
                (self.session.turns.saturating_add(1), brought.or(self.env.trace))
            }
            (_, Some(turn)) => (turn.number, turn.trace),
            (_, None) => (0, Trace::NONE),
        };
        self.record(turn, trace, event);
    }

    fn record(&mut self, turn: TurnNumber, trace: Trace, event: Event) {
        let event = placed(event, self.session.origin.as_ref());
        self.session.apply(&event, self.env.now, trace);
        self.decided.entries.push(Entry { at: self.env.now, trace, turn, event });
    }

    fn is_current(&self, turn: TurnNumber) -> bool {
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

    fn late(&mut self, operation: Operation, of_turn: TurnNumber, call: Option<CallId>) {
        self.emit(Event::LateArrivalDropped { operation, of_turn, call });
    }

    fn turn(&self) -> &Turn {
        self.session.turn.as_ref().expect("only called while a turn is running")
    }

    /// Starts a turn for the next message, if there is one and nothing is running.
    fn start_next(&mut self) {
        if self.session.turn.is_some() {
            return;
        }
        self.finish_closing();
        if let Some(next) = self.session.queue.front() {
            let message = next.command.clone();
            self.emit(Event::TurnStarted { message });
            match self.turn().phase {
                Phase::Pipeline => self.start_pipeline(),
                _ => self.next_step(),
            }
        }
    }

    /// The session is being closed and nothing runs: messages from before are answered with a turn that
    /// does nothing, then it ends. A message that came since re-opens it.
    fn finish_closing(&mut self) {
        while let Some(before) = self.session.closing {
            match self.session.queue.front() {
                Some(next) if before > 0 => {
                    let message = next.command.clone();
                    self.emit(Event::TurnStarted { message });
                    if self.runs_pipeline() {
                        self.emit(Event::PipelineEnded { complete: false });
                    }
                    self.close_turn(StopReason::Cancelled, None);
                }
                _ => self.emit(Event::SessionEnded { end: SessionEnd::Closed, fault: None }),
            }
        }
    }

    /// The next model request of the turn, or its end if a budget is spent.
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
        if let Some(fault) = self.tokens_spent() {
            return self.give_up(fault);
        }
        if let Some(index) = unpaired(&self.session.history, turn.first_message) {
            let fault = Fault::new(Kind::Bug, Operation::RunTurn)
                .with_cause(format!("history is not well paired at message {index}"));
            return self.give_up(fault);
        }
        let (step, model) = (turn.step.saturating_add(1), settings.model.clone());
        self.emit(Event::StepStarted { step, attempt: 1, model });
        self.record_compaction();
    }

    /// Says that history is being made shorter, if that is what comes before the model is asked.
    fn record_compaction(&mut self) -> bool {
        let needed = needs_compaction(self.session, self.turn(), self.env.limits);
        if needed {
            let (step, tokens) = (self.turn().step, self.session.tokens);
            self.emit(Event::CompactionStarted { step, tokens });
        }
        needed
    }

    /// The fault of a turn that has used all its tokens.
    fn tokens_spent(&self) -> Option<Fault> {
        let usage = self.turn().usage;
        let most = self.session.settings.max_turn_tokens.unwrap_or(self.env.limits.turn_tokens);
        let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
        (most > 0 && tokens >= most).then(|| {
            Fault::new(Kind::TokensExhausted, Operation::RunTurn)
                .with(Fact::Limit, most)
                .with(Fact::Actual, tokens)
                .with(Fact::LimitName, "turn_tokens")
        })
    }

    /// Ends the turn as failed: recovery failed, then the end, then the session if nothing can go on.
    fn give_up(&mut self, fault: Fault) {
        let scope = Scope { step: Some(self.turn().step), ..Scope::default() };
        self.give_up_in(scope, fault);
    }

    fn give_up_in(&mut self, scope: Scope, fault: Fault) {
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

    /// Ends the turn and goes on with the queue.
    fn end_turn(&mut self, stop: StopReason, fault: Option<Fault>) {
        let trace = self.session.trace();
        self.close_turn(stop, fault.map(|fault| fault.with_trace(trace)));
        self.start_next();
    }

    fn close_turn(&mut self, stop: StopReason, fault: Option<Fault>) {
        let (steps, usage) = (self.turn().step, self.turn().usage);
        self.abandon_partial();
        self.emit(Event::TurnEnded { stop, fault, steps, usage });
    }

    /// Says that words which were shown are void.
    fn abandon_partial(&mut self) {
        let turn = self.turn();
        if let (true, Phase::AwaitingModel { attempt }) = (turn.partial, turn.phase) {
            let step = turn.step;
            self.emit(Event::AnswerAbandoned { step, attempt });
        }
    }

    /// A new process took the session up: settles what the old one left behind.
    fn resumed(&mut self) {
        if self.session.turn.is_none() {
            return self.start_next();
        }
        self.abandon_partial();
        let (again, lost) = calls::interrupted(self.turn(), self.env.limits.retry.tries);
        let sealed = lost.iter().map(|(call, _)| call.clone()).collect();
        self.emit(Event::SessionResumed { sealed });
        for event in again {
            self.emit(event);
        }
        for (call, tool) in lost {
            let fault = calls::outcome_unknown(&tool).with_trace(self.session.trace());
            self.end_call(call, fault.into());
        }
        self.after_calls();
    }

    /// Ends the turn with what is known: what ran is unknown, what did not run is cancelled. Only events
    /// that bring something to its end, so that they fit on a full disk.
    fn halted(&mut self, fault: Fault) {
        let Some(turn) = &self.session.turn else { return };
        if self.runs_pipeline() {
            return self.halt_pipeline(&fault);
        }
        let trace = turn.trace;
        let open = turn.calls.iter().filter(|call| call.is_open());
        let open: Vec<_> = open
            .map(|call| {
                let ran = matches!(call.state, CallState::Started { .. });
                let fault = match ran {
                    true => calls::outcome_unknown(&call.tool),
                    false => calls::cancelled(call),
                };
                (call.id.clone(), fault.with_trace(trace))
            })
            .collect();
        for (call, fault) in open {
            self.end_call(call, fault.into());
        }
        self.give_up(fault);
    }

    /// Time passed: retries whose time has come, questions nobody answered.
    fn woke(&mut self) {
        if self.runs_pipeline() {
            return self.wake_pipeline();
        }
        if let Phase::Waiting { attempt, until } = self.turn().phase
            && until <= self.env.now
        {
            let (step, model) = (self.turn().step, self.session.settings.model.clone());
            self.emit(Event::StepStarted { step, attempt, model });
        }
        self.wake_calls();
        self.after_calls();
    }

    /// All calls of the step have ended: on to the model, or to the end.
    fn after_calls(&mut self) {
        let Some(turn) = &self.session.turn else { return };
        if turn.phase != Phase::Calling || turn.calls.iter().any(crate::session::Call::is_open) {
            return;
        }
        if turn.cancelling {
            return self.end_turn(StopReason::Cancelled, None);
        }
        match turn.brake.trip(self.env.limits) {
            Some(tripped) => self.give_up(stuck(tripped)),
            None => self.next_step(),
        }
    }
}

/// What goes wrong in a child that works on a stage is about that stage, and says so.
fn placed(mut event: Event, origin: Option<&Origin>) -> Event {
    let Some(Origin::Stage { stage, task, .. }) = origin else { return event };
    if let Event::FaultRaised { scope, .. }
    | Event::RetryScheduled { scope, .. }
    | Event::Recovered { scope, .. }
    | Event::RecoveryFailed { scope, .. } = &mut event
        && scope.stage.is_none()
    {
        (scope.stage, scope.task) = (Some(*stage), task.clone());
    }
    event
}

fn stuck(tripped: BrakeTrip) -> Fault {
    match tripped {
        BrakeTrip::SameInvalidCall(times) => {
            Fault::new(Kind::RepeatedCallStopped, Operation::RunTurn)
                .with(Fact::Times, times)
                .with(Fact::LimitName, "identical_invalid_calls")
        }
        BrakeTrip::FailuresInARow(times) => Fault::new(Kind::FailuresExhausted, Operation::RunTurn)
            .with(Fact::Times, times)
            .with(Fact::Limit, times)
            .with(Fact::LimitName, "failures_in_a_row"),
    }
}

fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}
