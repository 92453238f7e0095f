//! The end of a turn: exactly one, after everything the turn produced.

use budao_core::{
    event::{Event, Scope, SessionEnd, StopReason},
    fault::{Fact, Fault, Kind, Operation, Severity},
};

use super::{REMEMBERED_PROMPTS, Stepper};
use crate::{SERVICE, answer_draft, outcome, wire::TurnReport};

impl Stepper<'_> {
    /// Ends the turn with its own result.
    pub(super) fn settle(&mut self, result: &TurnReport) {
        let reported = self.current_turn().reported.take();
        let (stop, fault) = match self.is_cancelling() {
            true => (StopReason::Cancelled, None),
            false => {
                let last_stop = self.current_turn().last_stop.clone();
                outcome::of(result, reported.as_ref(), last_stop.as_deref())
            }
        };
        self.context_reported(result);
        self.close_answer(stop == StopReason::EndTurn);
        let text = result.result.as_deref().unwrap_or_default();
        if stop == StopReason::EndTurn && !self.current_turn().has_shown_text && !text.is_empty() {
            self.record_whole_answer(text);
        }
        let (stop, fault) = match self.is_cancelling() || !self.is_empty_answer(result) {
            true => (stop, fault),
            false => (StopReason::Failed, Some(self.empty_answer())),
        };
        if self.turn().step == 0 && stop != StopReason::EndTurn {
            // No answer was recorded, so the turn's end carries the usage.
            return self.end(stop, fault, Some(answer_draft::tokens(result.usage)));
        }
        self.end(stop, fault, None);
    }

    /// Did the model end its answer without any content? CLI 2.1.9 reports that as a turn that broke off without errors.
    fn is_empty_answer(&mut self, result: &TurnReport) -> bool {
        let current = self.current_turn();
        let is_silent = !current.has_content && current.last_stop.as_deref() == Some("end_turn");
        let is_old = result.subtype == "error_during_execution" && result.errors.is_empty();
        is_silent && !result.is_error && (result.subtype == "success" || is_old)
    }

    /// The fault of an empty answer, which is the same as that of the native engine.
    fn empty_answer(&self) -> Fault {
        let reported = self.m.process.as_ref().and_then(|process| process.model.clone());
        let model = reported.unwrap_or_else(|| self.m.session.settings.model.clone());
        Fault::new(Kind::EmptyAnswer, Operation::ModelRequest)
            .with(Fact::Service, SERVICE)
            .with(Fact::Model, model)
    }

    /// Ends the turn without a result: the CLI ended, was killed, or dropped the prompt.
    pub(super) fn end_without_result(&mut self, fault: Fault) {
        if self.m.session.turn.is_none() {
            self.close_questions("claude");
            return;
        }
        let stop = if self.is_cancelling() { StopReason::Cancelled } else { StopReason::Failed };
        if self.m.current_turn.is_some() {
            self.close_answer(false);
        } else {
            self.abandon_partial();
        }
        self.end(stop, (stop == StopReason::Failed).then_some(fault), None);
    }

    /// Closes an open answer: complete if the turn succeeded or a call has begun, otherwise void.
    fn close_answer(&mut self, is_complete: bool) {
        let current = self.current_turn();
        if is_complete
            || !current.deferred.is_empty()
            || current.draft.as_ref().is_some_and(|it| !it.streaming)
        {
            return self.finish_answer();
        }
        current.draft = None;
        self.abandon_partial();
    }

    fn end(
        &mut self,
        stop: StopReason,
        fault: Option<Fault>,
        used: Option<budao_core::message::Usage>,
    ) {
        self.seal_calls();
        self.close_questions("claude");
        self.m.background_text = None;
        if let Some(current) = self.m.current_turn.take().filter(|current| !current.is_own) {
            self.m.ended_prompts.push_back((current.prompt, current.number));
            if self.m.ended_prompts.len() > REMEMBERED_PROMPTS {
                self.m.ended_prompts.pop_front();
            }
        }
        let trace = self.m.session.trace();
        let fault = fault.map(|fault| fault.with_trace(trace));
        let (number, steps) = (self.turn().number, self.turn().step);
        let usage = used.unwrap_or(self.turn().usage);
        if let (true, Some(fault)) = (stop != StopReason::Cancelled, &fault) {
            let scope = Scope { step: Some(steps), ..Scope::default() };
            self.emit(Event::RecoveryFailed { fault: fault.clone(), scope });
        }
        let fatal =
            |fault: &Fault| fault.row().severity == Severity::Critical && !fault.row().recoverable;
        let ends_session = stop == StopReason::Failed && fault.as_ref().is_some_and(fatal);
        self.emit(Event::TurnEnded { stop, fault: fault.clone(), steps, usage });
        if ends_session {
            let end = Event::SessionEnded { end: SessionEnd::Error, fault };
            self.record(number, trace, end);
        }
        self.start_next();
    }
}
