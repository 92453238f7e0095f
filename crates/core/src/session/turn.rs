//! The turn that is running, as its records tell.

use serde::{Deserialize, Serialize};

use super::call::{Call, CallState};
use crate::{
    brake::{Brake, call_key},
    event::{CommandId, Decision, Event, Scope, Seq, TurnNumber},
    fault::{Kind, Operation},
    lang::Lang,
    message::{Block, CallId, Usage},
    time::Timestamp,
    tool::Outcome,
    trace::Trace,
};

/// A turn that is running.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Which.
    pub number: TurnNumber,
    /// Its trace.
    pub trace: Trace,
    /// The message it answers.
    pub message: CommandId,
    /// When it began.
    pub started_at: Timestamp,
    /// The position of the record that began it.
    #[serde(default)]
    pub began: Seq,
    /// Where in `history` it began.
    pub first_message: usize,
    /// Model requests so far.
    pub step: u32,
    /// What is being done.
    pub phase: Phase,
    /// Words of the current try have been shown.
    pub partial: bool,
    /// Calls of the current step, in the model's order.
    pub calls: Vec<Call>,
    /// What failed first in the step, while we try again.
    pub failing: Option<OngoingFailure>,
    /// What stops a model that repeats itself.
    pub brake: Brake,
    /// Somebody asked to stop.
    pub cancelling: bool,
    /// The provider said the history is too long.
    pub too_long: bool,
    /// The step for which history was compacted last.
    pub compacted_in_step: u32,
    /// What it used.
    pub usage: Usage,
}

/// What a turn is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Asking the model.
    AwaitingModel {
        /// Which try.
        attempt: u32,
    },
    /// Waiting to ask it again.
    Waiting {
        /// The try that comes.
        attempt: u32,
        /// When.
        until: Timestamp,
    },
    /// Calling tools.
    Calling,
    /// Planning, solving, aggregating: the session's pipeline says how far.
    Pipeline,
    /// A plan waits for a person to confirm it.
    Confirming,
}

/// A failure we are recovering from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OngoingFailure {
    /// What.
    pub kind: Kind,
    /// Since when.
    pub since: Timestamp,
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
            }
            Event::TextDelta { .. } | Event::ThinkingDelta { .. } => self.partial = true,
            Event::AnswerAbandoned { .. } => self.partial = false,
            // What fails beside the work is not what the work recovers from.
            Event::FaultRaised { fault, .. } if fault.operation() == Operation::RunHook => {}
            Event::FaultRaised { fault, scope: Scope { call: None, step: Some(_), .. } } => {
                self.too_long |= fault.kind() == Kind::ContextTooLong;
                self.failing.get_or_insert(OngoingFailure { kind: fault.kind(), since: at });
            }
            Event::FaultRaised { fault, scope: Scope { call: Some(id), .. } } => {
                self.with_call(id, |call| call.failed_once(fault.kind(), at));
            }
            Event::RetryScheduled { next_attempt, due_at, scope, .. } => match &scope.call {
                Some(id) => self.with_call(id, |call| call.wait(*next_attempt, *due_at)),
                None => self.phase = Phase::Waiting { attempt: *next_attempt, until: *due_at },
            },
            Event::QuestionAsked {
                question,
                call,
                arguments,
                repairs,
                digest,
                idempotent,
                expires_at,
                ..
            } => {
                let asked = CallState::AwaitingDecision {
                    question: question.clone(),
                    arguments: arguments.clone(),
                    repairs: repairs.clone(),
                    digest: digest.clone(),
                    idempotent: *idempotent,
                    expires_at: *expires_at,
                };
                self.with_call(call, |call| call.state = asked);
            }
            Event::QuestionAnswered {
                call, decision: Decision::Allow, arguments, note, ..
            } => {
                self.with_call(call, |call| call.approve(arguments.clone(), note.clone()));
            }
            Event::ToolCallStarted { call, arguments, attempt, idempotent, .. } => {
                self.with_call(call, |call| call.start(*attempt, arguments, *idempotent, at));
            }
            _ => {}
        }
    }

    /// The step is over: tells the brake.
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

    /// A call of the current step.
    #[must_use]
    pub fn call(&self, id: &CallId) -> Option<&Call> {
        self.calls.iter().find(|call| call.id == *id)
    }

    /// Everything that is open waits for a person.
    #[must_use]
    pub fn is_waiting_for_person(&self) -> bool {
        let mut open = self.calls.iter().filter(|call| call.is_open()).peekable();
        let asks = self.phase == Phase::Calling
            && open.peek().is_some()
            && open.all(|call| matches!(call.state, CallState::AwaitingDecision { .. }));
        asks || self.phase == Phase::Confirming
    }

    /// The results of the step, in the model's order.
    pub(super) fn results(&self, lang: Lang) -> Vec<Block> {
        self.calls
            .iter()
            .filter_map(|call| {
                let CallState::Ended { outcome, .. } = &call.state else { return None };
                let (content, is_error) = outcome.render_for_model(lang);
                Some(Block::ToolResult { call: call.id.clone(), is_error, content })
            })
            .collect()
    }
}
