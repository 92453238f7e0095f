//! Laws of calls: permission, starts and ends, slots, doubts.

use budao_core::{
    event::{CallStart, Decision, Event, ReconcileVerdict},
    fault::{Fault, Kind, Operation, Progress},
};

use super::{OpenCall, OpenTurn, Reader};

impl Reader<'_> {
    /// A question is asked and answered once, and its call learns the decision.
    pub(super) fn questions(&self, turn: &mut OpenTurn, event: &Event) {
        match event {
            Event::QuestionAsked { question, call, purpose, .. } => {
                let fresh = turn.questions.insert(question.clone(), call.clone()).is_none();
                self.law(fresh, "a question is asked once");
                // A call that asks for input has been allowed.
                if let Some(call) = turn.calls.get_mut(call).filter(|_| purpose.is_permission()) {
                    call.asked = true;
                }
            }
            Event::QuestionAnswered { question, call, decision, .. } => {
                self.law(turn.questions.remove(question).is_some(), "a question is answered once");
                if let Some(call) = turn.calls.get_mut(call).filter(|call| call.asked) {
                    (call.asked, call.denied) = (false, *decision == Decision::Deny);
                }
            }
            Event::QuestionExpired { question, call } => {
                self.law(turn.questions.remove(question).is_some(), "a question is answered once");
                if let Some(call) = turn.calls.get_mut(call).filter(|call| call.asked) {
                    (call.asked, call.denied) = (false, true);
                }
            }
            _ => {}
        }
    }

    /// A call starts when it may, again only if it may repeat, and ends once.
    pub(super) fn calls(&self, turn: &mut OpenTurn, event: &Event) {
        match event {
            Event::ToolCallStarted(CallStart { call, attempt, idempotent, .. }) => {
                let Some(call) = turn.calls.get_mut(call) else {
                    return self.law(false, "a call starts in its own step");
                };
                let (again, ended) = (call.attempts > 0, call.ended);
                let allowed = !call.asked && !call.denied;
                (call.attempts, call.idempotent) = (*attempt, *idempotent);
                self.law(!ended, "a call that ended does not start");
                let undone = std::mem::replace(&mut call.undone, false);
                let may_repeat = !again || *idempotent || undone;
                self.law(may_repeat, "only what may be repeated is started again");
                self.law(allowed, "a call does not start before it is allowed");
            }
            Event::FaultRaised { fault, scope } if fault.progress() == Progress::NotBegun => {
                let call = scope.call.as_ref().and_then(|call| turn.calls.get_mut(call));
                call.into_iter().for_each(|call| call.undone = true);
            }
            Event::ReconcileEnded {
                call,
                verdict: ReconcileVerdict::DidNotHappen | ReconcileVerdict::StillRuns,
                ..
            } => {
                turn.calls.get_mut(call).into_iter().for_each(|call| call.undone = true);
            }
            Event::ToolCallEnded { call, .. } => {
                let ended =
                    turn.calls.get_mut(call).map(|call| std::mem::replace(&mut call.ended, true));
                self.law(ended == Some(false), "a call ends once, in its own step");
            }
            _ => {}
        }
    }

    /// Only a call in doubt is settled, once.
    pub(super) fn doubts(&mut self, event: &Event) {
        match event {
            Event::ToolCallEnded { call, outcome, .. } if outcome.is_in_doubt() => {
                self.doubts.insert(call.clone());
            }
            Event::DoubtSettled { call, .. } => {
                let was_open = self.doubts.remove(call);
                self.law(was_open, "only a call in doubt is settled, and once");
            }
            _ => {}
        }
    }

    /// A call begins when it has a slot, in the model's order. What had not begun is never in doubt.
    pub(super) fn slots(&self, turn: &mut OpenTurn, event: &Event) {
        match event {
            Event::ToolCallQueued(CallStart { call, .. }) => {
                if let Some(call) = turn.calls.get_mut(call) {
                    call.queued = true;
                }
            }
            Event::ToolCallStarted(CallStart { call, .. }) => {
                let Some(call) = turn.calls.get_mut(call) else { return };
                (call.queued, call.runs, call.asked_tool) = (false, true, false);
                let place = call.place;
                let passed = turn.calls.values().any(|other| other.queued && other.place < place);
                self.law(!passed, "calls that wait for a slot begin in the model's order");
                let holds = |call: &&OpenCall| call.runs && !call.asked_tool;
                let running = turn.calls.values().filter(holds).count();
                self.law(running <= self.limits.parallel_calls, "a call begins when it has a slot");
            }
            Event::ToolCallEnded { call, outcome, .. } => {
                let Some(call) = turn.calls.get_mut(call) else { return };
                let began = std::mem::replace(&mut call.runs, false);
                call.queued = false;
                let kind = outcome.fault().map(Fault::kind);
                self.law(kind != Some(Kind::OutcomeUnknown) || began, "a call in doubt had begun");
            }
            Event::RetryScheduled { operation: Operation::ToolCall, scope, .. } => {
                let call = scope.call.as_ref().and_then(|call| turn.calls.get_mut(call));
                call.into_iter().for_each(|call| call.runs = false);
            }
            // A call whose tool is asked holds no slot.
            Event::ReconcileStarted { call, .. } => {
                turn.calls.get_mut(call).into_iter().for_each(|call| call.asked_tool = true);
            }
            Event::SessionResumed { .. } => {
                turn.calls.values_mut().for_each(|call| call.queued = false);
            }
            _ => {}
        }
    }
}
