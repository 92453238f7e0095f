//! The context of a fact that its own record does not have.

use super::{Activity, ControlRequest, StageEnd};
use crate::{
    event::{Event, Stage, TurnNumber},
    fault::Kind,
    session::SessionState,
    time::Timestamp,
};

/// Folds the records of one session. It may start at any record; a turn whose start it did not see has no context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActivityFold {
    turn: Option<TurnContext>,
}

/// The running turn, as the records so far show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnContext {
    /// The number of the turn, from 1.
    pub number: TurnNumber,
    /// When the turn started.
    pub started_at: Timestamp,
    /// The current step, from 1; 0 before the first.
    pub step: u32,
    /// The first attempt of the current step; absent once the model has answered.
    pub requested_at: Option<Timestamp>,
    /// Whether the text of the current step was shown as it arrived, and is not void.
    pub is_streamed: bool,
    /// Whether the turn has shown text, a call or a result.
    pub has_output: bool,
    /// Questions that wait for a person.
    pub open_questions: u32,
    /// The kind of the last fault of the turn.
    pub last_fault: Option<Kind>,
}

impl ActivityFold {
    /// The running turn before the next event.
    #[must_use]
    pub fn turn(&self) -> Option<TurnContext> {
        self.turn
    }

    /// Applies an event and returns its fact.
    pub fn apply<'a>(
        &mut self,
        event: &'a Event,
        at: Timestamp,
        turn: TurnNumber,
    ) -> Option<Activity<'a>> {
        let activity = Activity::of(event)?;
        match activity {
            Activity::TurnStarted { .. } => self.turn = Some(TurnContext::new(turn, at)),
            Activity::TurnEnded { .. } | Activity::SessionEnded { .. } => self.turn = None,
            _ => {
                if let Some(turn) = &mut self.turn {
                    turn.apply(&activity, at);
                }
            }
        }
        Some(activity)
    }
}

impl TurnContext {
    const fn new(number: TurnNumber, started_at: Timestamp) -> Self {
        Self {
            number,
            started_at,
            step: 0,
            requested_at: None,
            is_streamed: false,
            has_output: false,
            open_questions: 0,
            last_fault: None,
        }
    }

    fn apply(&mut self, activity: &Activity<'_>, at: Timestamp) {
        match *activity {
            Activity::StepStarted { step, attempt, .. } => {
                self.step = step;
                if attempt == 1 {
                    self.requested_at = Some(at);
                }
            }
            Activity::Text { step, .. } => {
                self.step = step;
                (self.is_streamed, self.has_output) = (true, true);
            }
            Activity::Thought { step, .. } => self.step = step,
            Activity::AnswerAbandoned { .. } => self.is_streamed = false,
            Activity::Answered { content, .. } => {
                self.has_output |= !content.is_empty();
                (self.is_streamed, self.requested_at) = (false, None);
            }
            Activity::CallStarted { .. }
            | Activity::StageEnded { stage: Stage::Aggregation, .. } => self.has_output = true,
            Activity::QuestionAsked(_) => self.open_questions += 1,
            Activity::QuestionClosed { .. } => {
                self.open_questions = self.open_questions.saturating_sub(1);
            }
            Activity::Fault { fault, .. }
            | Activity::StageEnded { end: StageEnd::Failed(fault), .. } => {
                self.last_fault = Some(fault.kind());
            }
            Activity::CallEnded { outcome, .. } => {
                if let Some(fault) = outcome.fault() {
                    self.last_fault = Some(fault.kind());
                }
            }
            _ => {}
        }
    }
}

impl SessionState {
    /// The state after a fact, if `has_turn` says whether a turn is open before it.
    #[must_use]
    pub fn after(self, activity: &Activity<'_>, has_turn: bool) -> Self {
        match *activity {
            // The turn follows in the same batch, or the message waits for its turn.
            Activity::MessageAccepted { .. } if !has_turn => Self::Running,
            Activity::ControlRequested { request: ControlRequest::Withdraw(_), .. }
                if !has_turn =>
            {
                Self::Idle
            }
            Activity::SessionEnded { end, .. } => end.into(),
            Activity::TurnStarted { .. } => Self::Running,
            Activity::QuestionAsked(_) => Self::WaitingForDecision,
            Activity::QuestionClosed { .. } if has_turn => Self::Running,
            Activity::TurnEnded { stop, .. } => Self::after_turn(stop),
            _ => self,
        }
    }
}
