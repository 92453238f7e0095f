//! Tells a stuck model from one that makes progress, by the records alone.
//!
//! It is written from the promise of the brake and shares no code with it. Progress is a step with a successful call,
//! or a kind of failure not seen since the last progress. Repeated invalid calls and failures in general each have a
//! budget.

use std::collections::{BTreeMap, BTreeSet};

use budao_core::{
    event::{CallStart, Event},
    fault::{ErrorType, Kind},
    limits::Limits,
    message::{Block, CallId},
    tool::Outcome,
};

/// Results of the steps of one turn.
#[derive(Default)]
pub(super) struct ProgressTracker {
    /// Calls of the current step that have not ended, with the model's text for each.
    open: BTreeMap<CallId, String>,
    /// Calls of the current step that were executed.
    ran: BTreeSet<CallId>,
    worked: bool,
    failed: Vec<(Kind, Option<String>)>,
    kinds: BTreeSet<Kind>,
    invalid: BTreeMap<String, u32>,
    in_a_row: u32,
}

impl ProgressTracker {
    /// Returns whether a budget is used up.
    pub(super) fn is_stuck(&self, limits: &Limits) -> bool {
        let same = self.invalid.values().max().copied().unwrap_or(0);
        same >= limits.identical_invalid_calls || self.in_a_row >= limits.failures_in_a_row
    }

    pub(super) fn hear(&mut self, event: &Event) {
        match event {
            Event::ModelAnswered { content, .. } => {
                let calls = content.iter().filter_map(|block| match block {
                    Block::ToolUse(call) => Some(call),
                    _ => None,
                });
                self.open = calls
                    .map(|call| (call.id.clone(), format!("{} {}", call.name, call.arguments)))
                    .collect();
                (self.worked, self.failed) = (false, Vec::new());
                self.ran.clear();
            }
            Event::ToolCallStarted(CallStart { call, .. })
            | Event::QuestionAnswered { call, .. } => {
                self.ran.insert(call.clone());
            }
            Event::ToolCallEnded { call, outcome, .. } => {
                let Some(written) = self.open.remove(call) else { return };
                match outcome {
                    Outcome::Done(_) => self.worked = true,
                    Outcome::Failed(failure) => {
                        let kind = failure.fault.kind();
                        let misfit = kind.row().error_type == ErrorType::Validation
                            || matches!(kind, Kind::UnknownTool | Kind::RepeatedCallStopped);
                        let invalid = misfit && !self.ran.contains(call);
                        self.failed.push((kind, invalid.then_some(written)));
                    }
                }
                if self.open.is_empty() {
                    self.step_over();
                }
            }
            _ => {}
        }
    }

    fn step_over(&mut self) {
        if self.worked {
            *self = Self::default();
            return;
        }
        let failed = std::mem::take(&mut self.failed);
        let mut again = BTreeSet::new();
        let mut progress = false;
        for (kind, invalid) in failed {
            progress |= kind != Kind::RepeatedCallStopped && self.kinds.insert(kind);
            again.extend(invalid);
        }
        if progress {
            self.invalid.clear();
            self.in_a_row = 0;
        }
        self.in_a_row += 1;
        for written in again {
            *self.invalid.entry(written).or_default() += 1;
        }
    }
}
