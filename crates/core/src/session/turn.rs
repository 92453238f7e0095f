//! The running turn, folded from its records.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    call::{Call, CallState},
    models::TurnModels,
    questions::{CallQuestion, answer_of},
};
use crate::{
    brake::{Brake, call_key},
    elicitation::ElicitationAnswer,
    event::{CommandId, Decision, Event, QuestionPurpose, Scope, Seq, TurnNumber},
    fault::{Fault, Kind, Operation},
    lang::Lang,
    message::{Block, CallId, Usage},
    remote::{RemoteCall, WorkerClaim},
    spending::RAISE_CAP,
    time::Timestamp,
    tool::Outcome,
    trace::Trace,
};

/// The state of a running turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Counts the turns of the session, from 1.
    pub number: TurnNumber,
    /// Shared by all records of the turn.
    pub trace: Trace,
    /// The command that carried the message this turn answers.
    pub message: CommandId,
    /// UTC time of its `TurnStarted` record.
    pub started_at: Timestamp,
    /// The position of its `TurnStarted` record.
    #[serde(default)]
    pub began: Seq,
    /// The index in `history` of the turn's first message.
    pub first_message: usize,
    /// Model requests so far; the number of the current step.
    pub step: u32,
    /// What the turn waits for.
    pub phase: Phase,
    /// Whether observers have seen text of the current attempt.
    pub partial: bool,
    /// Calls of the current step, in the model's order.
    pub calls: Vec<Call>,
    /// The first failure of the step, while it is being retried.
    pub failing: Option<OngoingFailure>,
    /// Stops a model that repeats itself.
    pub brake: Brake,
    /// Set when a sender asked to cancel the turn.
    pub cancelling: bool,
    /// Set when the provider rejected the history as too long.
    pub too_long: bool,
    /// The step before which the history was last compacted; 0 if never.
    pub compacted_in_step: u32,
    /// How long the turn waited for its service, and whether it waits now.
    #[serde(default)]
    pub wait: TurnWait,
    /// What the turn knows about the models of its session.
    #[serde(default)]
    pub models: TurnModels,
    /// Tokens used so far, those of children included.
    pub usage: Usage,
    /// How often people were asked to raise a cap, and whether they declined.
    #[serde(default)]
    pub raises: CapRaises,
}

/// The requests of a turn to raise a cap on spending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapRaises {
    /// Questions so far.
    pub asked: u32,
    /// Set once more was not allowed; the turn then ends at the cap.
    pub is_declined: bool,
}

/// What a running turn waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The answer to a model request.
    AwaitingModel {
        /// The current attempt, from 1.
        attempt: u32,
    },
    /// The time of the next attempt at the model request.
    Waiting {
        /// The attempt that follows.
        attempt: u32,
        /// When the next attempt starts.
        until: Timestamp,
    },
    /// The calls of the step.
    Calling,
    /// The pipeline; `Session::pipeline` holds its progress.
    Pipeline,
    /// A person's confirmation of the plan.
    Confirming,
}

impl Phase {
    /// Whether a coordinator beside the turn does the work: the turn itself asks no model and runs no call.
    #[must_use]
    pub fn is_coordinated(self) -> bool {
        matches!(self, Self::Pipeline | Self::Confirming)
    }
}

/// A failure that is being retried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OngoingFailure {
    /// The kind of the first fault.
    pub kind: Kind,
    /// When the first fault occurred.
    pub since: Timestamp,
}

/// The time that a turn waited for its service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnWait {
    /// When the wait for the current request began; absent while there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// When the current request was made; a request that is answered waited until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<Timestamp>,
    /// Milliseconds of waits that ended with an answer.
    pub ended_ms: u64,
    /// How long the turn waits in all, as last recorded, in milliseconds.
    pub patience_ms: u64,
    /// Whether the gate holds the current request.
    pub is_held: bool,
    /// When the gate opens or probes the service, as last recorded; a gate of a later process is held until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The last failure of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

impl TurnWait {
    /// Milliseconds waited so far.
    #[must_use]
    pub fn waited_ms(&self, now: Timestamp) -> u64 {
        let open = self.since.map_or(0, |since| in_ms(now.since(since)));
        self.ended_ms.saturating_add(open)
    }

    /// When the recorded patience is over, for a request that waits since `since`.
    #[must_use]
    pub fn ends_at(&self) -> Option<Timestamp> {
        let left = Duration::from_millis(self.patience_ms.saturating_sub(self.ended_ms));
        self.since.map(|since| since.after(left))
    }

    /// Ends the wait with an answer. The time that the answer took is work, not waiting.
    pub(super) fn end(&mut self, at: Timestamp) {
        let until = self.asked_at.map_or(at, |asked| asked.min(at));
        let ended_ms = self.waited_ms(until);
        *self = Self { ended_ms, patience_ms: self.patience_ms, ..Self::default() };
    }

    fn begin(&mut self, at: Timestamp, is_held: bool, until: Option<Timestamp>) {
        // With a clock that was set back, the wait counts from the earlier time: patience is never longer than once more.
        self.since = Some(self.since.map_or(at, |since| since.min(at)));
        self.is_held = is_held;
        self.until = until;
    }
}

fn in_ms(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

impl Turn {
    pub(super) fn apply(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::CancelRequested { .. } => self.cancelling = true,
            Event::ChildEnded { usage, .. } => self.usage += *usage,
            Event::QuestionAsked { .. } if self.phase == Phase::Pipeline => {
                self.phase = Phase::Confirming;
            }
            Event::PlanMade { .. } | Event::PlanCancelled { .. }
                if self.phase == Phase::Confirming =>
            {
                self.phase = Phase::Pipeline;
            }
            Event::StepStarted { step, attempt, .. } => {
                self.step = *step;
                self.phase = Phase::AwaitingModel { attempt: *attempt };
                self.calls.clear();
                self.models.begin_attempt(*attempt, at);
                self.wait.is_held = false;
                self.wait.asked_at = Some(at);
            }
            Event::RequestHeld { fault, patience_ms, until, .. } => {
                self.wait.begin(at, true, *until);
                self.wait.patience_ms = *patience_ms;
                if let Some(fault) = fault {
                    self.note_failure(fault, at);
                }
            }
            Event::RequestReleased { .. } => {
                self.wait.is_held = false;
                self.wait.asked_at = Some(at);
            }
            Event::PatienceChanged { patience_ms } => self.wait.patience_ms = *patience_ms,
            Event::TextDelta { .. } | Event::ThinkingDelta { .. } => self.partial = true,
            Event::AnswerAbandoned { .. } => self.partial = false,
            // A failed hook does not fail the work, so no recovery is recorded for it.
            Event::FaultRaised { fault, .. } if fault.operation() == Operation::RunHook => {}
            Event::FaultRaised { fault, scope: Scope { call: None, step: Some(_), .. } } => {
                self.too_long |= fault.kind() == Kind::ContextTooLong;
                self.note_failure(fault, at);
            }
            Event::FaultRaised { fault, scope: Scope { call: Some(id), .. } } => {
                self.with_call(id, |call| call.failed_once(fault.kind(), at));
            }
            Event::RetryScheduled { next_attempt, due_at, scope, .. } => match &scope.call {
                Some(id) => self.with_call(id, |call| call.wait(*next_attempt, *due_at)),
                None => self.schedule(*next_attempt, *due_at, at),
            },
            _ => self.apply_to_calls(event, at),
        }
    }

    /// Applies an event of the calls: decisions, slots, starts, and what workers and reconciling tools say.
    fn apply_to_calls(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::QuestionAsked {
                question,
                call,
                tool,
                arguments,
                repairs,
                digest,
                idempotent,
                expires_at,
                purpose,
                ..
            } => {
                if *purpose == QuestionPurpose::Elicitation {
                    let asked = CallQuestion {
                        question: question.clone(),
                        arguments: arguments.clone(),
                        digest: digest.clone(),
                        expires_at: *expires_at,
                        answer: None,
                    };
                    return self.with_call(call, |call| call.questions.push(asked));
                }
                let asked = CallState::AwaitingDecision {
                    question: question.clone(),
                    arguments: arguments.clone(),
                    repairs: repairs.clone(),
                    digest: digest.clone(),
                    idempotent: *idempotent,
                    expires_at: *expires_at,
                };
                if tool == RAISE_CAP {
                    self.begin_raise(call, arguments);
                }
                self.with_call(call, |call| call.state = asked);
            }
            Event::QuestionAnswered { question, call, decision, arguments, note, .. } => {
                self.with_call(call, |call| {
                    let answer = || answer_of(*decision, arguments.as_ref());
                    if !call.close_question(question, answer) && *decision == Decision::Allow {
                        call.approve(arguments.clone(), note.clone());
                    }
                });
            }
            Event::QuestionExpired { question, call } => {
                self.with_call(call, |call| {
                    call.close_question(question, || ElicitationAnswer::Expired);
                });
            }
            Event::ToolCallQueued(start) => self.with_call(&start.call, |call| call.queue(start)),
            Event::ToolCallOffered { call, route, .. } => {
                let remote = RemoteCall { route: route.clone(), claim: None, report: None };
                self.with_call(call, |call| call.remote = Some(Box::new(remote)));
            }
            Event::ToolCallClaimed { call, worker, by, .. } => {
                let claim = WorkerClaim { worker: worker.clone(), by: by.clone() };
                self.with_remote(call, |remote| remote.claim = Some(claim));
            }
            Event::ToolCallReported { call, report, .. } => {
                self.with_remote(call, |remote| remote.report = Some(report.clone()));
            }
            Event::ReconcileStarted { call, attempt, .. } => {
                self.with_call(call, |call| call.reconcile(*attempt));
            }
            Event::SessionResumed { .. } => self.calls.iter_mut().for_each(Call::check_again),
            Event::ToolCallStarted(start) => {
                self.with_call(&start.call, |call| call.start(start, at));
            }
            _ => {}
        }
    }

    /// Puts the question about a cap in place of the calls of the last step, which have all ended.
    fn begin_raise(&mut self, call: &CallId, arguments: &serde_json::Value) {
        self.raises.asked = self.raises.asked.saturating_add(1);
        self.phase = Phase::Calling;
        self.calls = vec![Call {
            id: call.clone(),
            tool: RAISE_CAP.to_owned(),
            written: arguments.to_string(),
            state: CallState::Requested { approved: None },
            remote: None,
            questions: Vec::new(),
        }];
    }

    pub(super) fn note_failure(&mut self, fault: &Fault, at: Timestamp) {
        self.wait.fault = Some(fault.clone());
        self.models.fault = Some(fault.clone());
        self.failing.get_or_insert(OngoingFailure { kind: fault.kind(), since: at });
    }

    /// Waits for the next attempt. Records count attempts within a round of them, the turn counts all of a step.
    fn schedule(&mut self, next_attempt: u32, until: Timestamp, at: Timestamp) {
        let attempt = match self.phase {
            Phase::AwaitingModel { attempt } => attempt.saturating_add(1),
            _ => next_attempt,
        };
        if next_attempt == 1 {
            self.models.changes = 0; // A new round may ask every model again.
        }
        self.wait.begin(at, false, Some(until));
        self.phase = Phase::Waiting { attempt, until };
    }

    /// Feeds the outcomes of the finished step to the brake.
    pub(super) fn note_step(&mut self) {
        let mut failed = Vec::new();
        for call in &self.calls {
            let CallState::Ended { outcome, invalid } = &call.state else { continue };
            match outcome {
                Outcome::Done(_) => return self.brake.note_success(),
                Outcome::Failed(failure) => {
                    let key = invalid.then(|| call_key(&call.tool, &call.written));
                    failed.push((failure.fault.kind(), key));
                }
            }
        }
        self.brake.note_failures(failed);
    }

    fn with_call(&mut self, id: &CallId, change: impl FnOnce(&mut Call)) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.id == *id && call.is_open()) {
            change(call);
        }
    }

    fn with_remote(&mut self, id: &CallId, change: impl FnOnce(&mut RemoteCall)) {
        self.with_call(id, |call| {
            if let Some(remote) = &mut call.remote {
                change(remote);
            }
        });
    }

    /// A call of the current step, by id.
    #[must_use]
    pub fn call(&self, id: &CallId) -> Option<&Call> {
        self.calls.iter().find(|call| call.id == *id)
    }

    /// Whether every open call waits for a person.
    #[must_use]
    pub fn is_waiting_for_person(&self) -> bool {
        let mut open = self.calls.iter().filter(|call| call.is_open()).peekable();
        let asks = self.phase == Phase::Calling
            && open.peek().is_some()
            && open.all(|call| call.open_question().is_some());
        asks || self.phase == Phase::Confirming
    }

    /// The results of the step's calls, in the model's order.
    pub(super) fn results(&self, lang: Lang) -> Vec<Block> {
        self.calls
            .iter()
            .filter_map(|call| {
                let CallState::Ended { outcome, .. } = &call.state else { return None };
                let (content, is_error) = outcome.render_for_caller(&call.written, lang);
                Some(Block::ToolResult { call: call.id.clone(), is_error, content })
            })
            .collect()
    }
}
