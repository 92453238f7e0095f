//! Retries of a failed turn: which turn may be continued, and the history it continues with.

use std::sync::Arc;

use super::Session;
use crate::{
    event::{Origin, TurnNumber},
    fault::{Fact, FactValue, Fault, Kind, Operation},
    message::{Block, Role},
};

impl Session {
    /// The turn that a retry continues: the last one, if it ended with a fault. `wanted` names it; absent, it is the last.
    ///
    /// # Errors
    /// Names the rule that the turn breaks, and the turn: no turn, another turn, running, not failed, a pipeline or a
    /// child's turn.
    pub fn retryable_turn(&self, wanted: Option<TurnNumber>) -> Result<TurnNumber, Fault> {
        let (last, named) = (self.turns, wanted.unwrap_or(self.turns));
        let refuse = |rule: String| Err(not_retryable(rule, named));
        if last == 0 {
            return refuse("only a failed turn can be retried; the session has no turn".to_owned());
        }
        if named == 0 || named > last {
            return refuse(format!("turn {named} does not exist; the session has {last}"));
        }
        if named < last {
            return refuse(format!("only the last turn can be retried; that is turn {last}"));
        }
        if self.turn.is_some() || !self.queue.is_empty() {
            return refuse(format!(
                "only a turn that ended can be retried; turn {named} is running"
            ));
        }
        if let Some(Origin::Call { parent, .. } | Origin::Stage { parent, .. }) = self.origin {
            return refuse(format!("the turn of a child is not retried; its parent is {parent}"));
        }
        match self.last.as_ref().filter(|last| last.number == named) {
            Some(last) if last.fault.is_none() => {
                let stop: &'static str = last.stop.into();
                refuse(format!("only a failed turn can be retried; turn {named} ended as {stop}"))
            }
            Some(last) if last.was_pipeline => {
                refuse(format!("a plan is not retried but made anew; turn {named} was a plan"))
            }
            Some(_) => Ok(named),
            None => refuse(format!("the end of turn {named} is not known")),
        }
    }

    /// The message of the last turn, if the history has no answer to it: no call of the turn ran.
    #[must_use]
    pub fn unanswered_prompt(&self) -> Option<&[Block]> {
        let prompt = self.history.get(self.last.as_ref()?.first_message)?;
        let is_last = self.history.len() == self.last.as_ref()?.first_message.saturating_add(1);
        (is_last && prompt.role == Role::User).then_some(prompt.content.as_slice())
    }

    /// Prepares the history for a turn that continues `of_turn`, and returns the index of the turn's first message.
    /// A refused answer leaves the history, so that the request that was refused is made again.
    pub(super) fn reopen_history(&mut self, of_turn: TurnNumber) -> usize {
        let calls = |block: &Block| matches!(block, Block::ToolUse(_));
        let is_answer = self
            .history
            .last()
            .is_some_and(|last| last.role == Role::Assistant && !last.content.iter().any(calls));
        if is_answer {
            Arc::make_mut(&mut self.history).pop();
        }
        let last = self.last.as_ref().filter(|last| last.number == of_turn);
        let length = self.history.len();
        last.map_or(length, |last| last.first_message.min(length))
    }
}

fn not_retryable(rule: String, turn: TurnNumber) -> Fault {
    Fault::new(Kind::ConstraintViolated, Operation::SubmitCommand)
        .with(Fact::Field, "turn")
        .with(Fact::Constraint, rule)
        .with(Fact::ProvidedValue, FactValue::Json(turn.into()))
}
