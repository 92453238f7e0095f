//! The end of a turn: exactly one, after everything the turn produced.

use budao_core::{
    event::{Event, Scope, StopReason},
    fault::{Fact, Fault, Kind, Operation},
};

use super::RelayStepper;
use crate::{SERVICE, wire::RunEnd};

impl RelayStepper<'_> {
    /// Ends the turn with the run, unless the run ended with questions.
    pub(super) fn run_finished(&mut self, end: RunEnd) {
        let run = self.run();
        run.usage = end.usage;
        let open: Vec<_> = std::mem::take(&mut run.open).into_keys().collect();
        for (item, id) in open {
            self.close_item(item, &id);
        }
        let mut interrupts = end.interrupts;
        interrupts.append(&mut self.run().legacy_interrupts);
        if !interrupts.is_empty() {
            return self.ask(interrupts);
        }
        self.finish_answer(false);
        if !end.pending_calls.is_empty() {
            let fault = self.refuse_client_calls(&end.pending_calls);
            return self.end(StopReason::Failed, Some(fault));
        }
        self.end_calls_without_result(|_| false);
        if end.is_cancelled {
            let fault = Fault::new(Kind::UpstreamFailed, Operation::ModelRequest)
                .with(Fact::Service, SERVICE)
                .with(Fact::Cause, "cancelled");
            return self.end(StopReason::Failed, Some(fault));
        }
        self.end(StopReason::EndTurn, None);
    }

    /// Ends the turn for a person. What had arrived of the answer is kept.
    pub(super) fn end_cancelled(&mut self) {
        self.keep_partial(false);
        self.end(StopReason::Cancelled, None);
    }

    /// Records what had arrived of the answer, and ends its calls.
    pub(super) fn keep_partial(&mut self, is_unsent: bool) {
        self.seal_calls(is_unsent);
        if self.m.run.is_some() {
            let has_content =
                |draft: &crate::draft::Draft| draft.has_text() || draft.has_complete_calls();
            if has_content(&self.run().draft) {
                self.finish_answer(true);
                self.seal_calls(is_unsent);
            }
        }
        self.abandon_shown_text();
    }

    /// Records that shown text of an unfinished answer is void: nothing of it could be kept.
    pub(super) fn abandon_shown_text(&mut self) {
        self.flush();
        let Some(turn) = &self.m.session.turn else { return };
        if let (true, budao_core::session::Phase::AwaitingModel { attempt }) =
            (turn.partial, turn.phase)
        {
            let step = turn.step;
            self.emit(Event::AnswerAbandoned { step, attempt });
        }
    }

    /// Ends the turn and starts the next one.
    pub(super) fn end(&mut self, stop: StopReason, fault: Option<Fault>) {
        let unused = self.leave().and_then(|run| run.usage);
        self.m.is_restoring = false;
        self.m.memory.interrupts.clear();
        self.m.memory.resubmits = 0;
        self.save_state();
        let trace = self.m.session.trace();
        let fault = fault.map(|fault| fault.with_trace(trace));
        let steps = self.turn().step;
        let mut usage = self.turn().usage;
        usage += unused.unwrap_or_default();
        if let Some(fault) = &fault {
            let scope = Scope { step: Some(steps), ..Scope::default() };
            self.emit(Event::RecoveryFailed { fault: fault.clone(), scope });
        }
        self.emit(Event::TurnEnded { stop, fault, steps, usage });
        self.start_next();
    }
}
