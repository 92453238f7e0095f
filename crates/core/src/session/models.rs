//! The model that a session asks, out of its list.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Phase, Session, Turn};
use crate::{
    event::Settings, fallback::ModelChangeReason, fault::Fault, message::Block, time::Timestamp,
};

/// What a running turn knows about the models of its session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnModels {
    /// Changes of the model since the step or its latest round of attempts began.
    pub changes: u32,
    /// Attempts of the step that were made before the current model was asked.
    pub attempts_before: u32,
    /// When the current model was asked first in this step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The last failure of the current model's service in this turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// Positions of the models that another attempt in this turn would not help.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ruled_out: Vec<u32>,
    /// The last failure of the first model's service, while another model is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_fault: Option<Fault>,
}

impl Session {
    /// The name of the model that is asked now or was asked last.
    #[must_use]
    pub fn model(&self) -> &str {
        let position = usize::try_from(self.model_position).unwrap_or(usize::MAX);
        self.settings.models().nth(position).unwrap_or(&self.settings.model)
    }

    /// Replaces the settings. Another list of models starts with its first.
    pub(super) fn change_settings(&mut self, settings: &Settings) {
        if !settings.models().eq(self.settings.models()) {
            self.model_position = 0;
            if let Some(turn) = &mut self.turn {
                turn.models.ruled_out.clear();
            }
        }
        self.settings = settings.clone();
    }

    /// Changes the model. Reasoning and opaque blocks are their service's own, so no other service receives them.
    pub(super) fn change_model(
        &mut self,
        position: u32,
        reason: ModelChangeReason,
        fault: Option<&Fault>,
        at: Timestamp,
    ) {
        let left = std::mem::replace(&mut self.model_position, position);
        if let Some(turn) = &mut self.turn {
            turn.leave_model(left, reason, fault, at);
        }
        let is_foreign = |block: &Block| matches!(block, Block::Thinking { .. } | Block::Opaque(_));
        if self.history.iter().any(|message| message.content.iter().any(is_foreign)) {
            for message in Arc::make_mut(&mut self.history) {
                if message.content.iter().any(is_foreign) {
                    Arc::make_mut(message).content.retain(|block| !is_foreign(block));
                }
            }
        }
    }
}

impl TurnModels {
    /// Counts an attempt of a step.
    pub(super) fn begin_attempt(&mut self, attempt: u32, at: Timestamp) {
        if attempt == 1 {
            (self.changes, self.attempts_before) = (0, 0);
        }
        if attempt == self.attempts_before.saturating_add(1) {
            self.since = Some(at);
        }
    }
}

impl Turn {
    fn leave_model(
        &mut self,
        left: u32,
        reason: ModelChangeReason,
        fault: Option<&Fault>,
        at: Timestamp,
    ) {
        if let Some(fault) = fault {
            self.note_failure(fault, at);
        }
        if let (0, Some(fault)) = (left, self.models.fault.take()) {
            self.models.first_fault = Some(fault);
        }
        if reason.rules_out() && !self.models.ruled_out.contains(&left) {
            self.models.ruled_out.push(left);
        }
        let changes = self.models.changes.saturating_add(1);
        (self.models.changes, self.models.attempts_before) = match self.phase {
            Phase::AwaitingModel { attempt } => (changes, attempt),
            // The first model of a round or a step.
            Phase::Waiting { attempt, .. } => (0, attempt.saturating_sub(1)),
            Phase::Calling | Phase::Pipeline | Phase::Confirming => (0, 0),
        };
        self.too_long = false;
    }
}
