//! Rules for deltas, answers and failures of the model.

use super::{Block, Event, Fault, Kind, ModelStop, Operation, Stepper, StopReason, Usage, millis};
use crate::{
    event::{Compaction, Scope},
    fault::Fact,
    message::{CallId, ResponseInfo, ToolUse},
    retry,
    session::Phase,
};

impl Stepper<'_> {
    pub(super) fn delta(&mut self, step: u32, text: String, thought: String) {
        if !thought.is_empty() {
            self.emit(Event::ThinkingDelta { step, text: thought });
        }
        if !text.is_empty() {
            self.emit(Event::TextDelta { step, text });
        }
    }

    /// Handles a complete answer: starts its calls or ends the turn.
    pub(super) fn handle_answer(
        &mut self,
        (step, attempt): (u32, u32),
        mut content: Vec<Block>,
        stop: ModelStop,
        usage: Usage,
        response: Option<Box<ResponseInfo>>,
    ) {
        content.retain(|block| !matches!(block, Block::Text(text) if text.is_empty()));
        if content.is_empty() && !self.may_be_silent(stop) {
            let fault = Fault::new(Kind::EmptyAnswer, Operation::ModelRequest)
                .with(Fact::Service, self.service())
                .with(Fact::Model, self.session.model().to_owned());
            self.settle_dropped(usage);
            return self.handle_model_failure(step, attempt, fault);
        }
        self.name_calls(step, &mut content);
        self.record_recovery(attempt);
        let is_first = !self.has_estimates();
        self.emit(Event::ModelAnswered { step, content, stop, usage, response });
        self.report_estimate(usage, is_first);
        self.settle_answer(usage);
        if !self.turn().calls.is_empty() {
            return self.refuse_surplus_calls();
        }
        match stop {
            ModelStop::EndTurn | ModelStop::ToolUse | ModelStop::Other => {
                self.end_turn(StopReason::EndTurn, None);
            }
            ModelStop::MaxTokens => self.end_turn(StopReason::MaxTokens, None),
            ModelStop::Refusal => {
                let fault = Fault::new(Kind::ModelRefused, Operation::ModelRequest)
                    .with(Fact::Service, self.service())
                    .with(Fact::Model, self.session.model().to_owned());
                self.end_turn(StopReason::Refusal, Some(fault));
            }
        }
    }

    /// Handles an answer that does not fit the schema of the final answer: its call fails, and the model reads why. The
    /// brake ends the turn of a model that never learns.
    pub(super) fn handle_rejected_answer(
        &mut self,
        (step, attempt): (u32, u32),
        mut content: Vec<Block>,
        usage: Usage,
        fault: &Fault,
    ) {
        self.abandon_partial(); // The streamed text is not an answer.
        self.name_calls(step, &mut content);
        self.record_recovery(attempt);
        let stop = ModelStop::ToolUse;
        let is_first = !self.has_estimates();
        self.emit(Event::ModelAnswered { step, content, stop, usage, response: None });
        self.report_estimate(usage, is_first);
        self.settle_answer(usage);
        let calls: Vec<CallId> = self.turn().calls.iter().map(|call| call.id.clone()).collect();
        for call in calls {
            let fault = fault.clone().with_trace(self.session.trace());
            self.settle(call, fault.into());
        }
        self.after_calls();
    }

    fn has_estimates(&self) -> bool {
        self.session.usage.estimated_tokens > 0 || self.turn().usage.estimated_tokens > 0
    }

    /// Reports once per session that the service reports no usage. The turn continues.
    fn report_estimate(&mut self, usage: Usage, is_first: bool) {
        if usage.estimated_tokens == 0 || !is_first {
            return;
        }
        let fault = Fault::new(Kind::UsageUnknown, Operation::ModelRequest)
            .with(Fact::Service, self.service())
            .with(Fact::Model, self.session.model().to_owned())
            .with_trace(self.session.trace());
        self.emit(Event::FaultRaised { fault, scope: Scope::default() });
    }

    /// Whether an empty answer is valid: only after tool results, or as a refusal. With a schema, none is.
    fn may_be_silent(&self, stop: ModelStop) -> bool {
        let results = |block: &Block| matches!(block, Block::ToolResult { .. });
        let after_results =
            self.session.history.last().is_some_and(|last| last.content.iter().any(results));
        let is_free = self.session.settings.answer_schema.is_none();
        stop == ModelStop::Refusal || (stop == ModelStop::EndTurn && after_results && is_free)
    }

    /// Gives every call an id that is unique in the session, whatever id the provider chose.
    fn name_calls(&self, step: u32, content: &mut [Block]) {
        let turn = self.turn().number;
        let calls = content.iter_mut().filter_map(|block| match block {
            Block::ToolUse(ToolUse { id, .. }) => Some(id),
            _ => None,
        });
        for (index, id) in calls.enumerate() {
            *id = CallId::from(format!("call_{turn}_{step}_{}", index + 1).as_str());
        }
    }

    /// Settles calls beyond the limit of a step with a fault instead of running them.
    fn refuse_surplus_calls(&mut self) {
        let limit = self.env.limits.calls_per_step;
        let surplus: Vec<CallId> =
            self.turn().calls.iter().skip(limit).map(|call| call.id.clone()).collect();
        for call in surplus {
            let fault = Fault::new(Kind::LimitReached, Operation::ToolCall)
                .with(Fact::Limit, limit)
                .with(Fact::LimitName, "calls_per_step")
                .with_trace(self.session.trace());
            self.end_call(call, fault.into());
        }
        self.after_calls();
    }

    /// Records a failed request, then schedules a retry or ends the turn.
    pub(super) fn handle_model_failure(&mut self, step: u32, of_step: u32, fault: Fault) {
        let env = self.env;
        let fault = fault.with_trace(self.session.trace());
        let scope = Scope { step: Some(step), ..Scope::default() };
        // A request that failed in the middle of its answer stays spent.
        match self.turn().partial || is_broken_off(fault.kind()) {
            true => self.settle_costs(),
            false => self.release_reservation(),
        }
        self.abandon_partial();
        if let Some(arguments) = self.day_cap_question(&fault) {
            self.emit(Event::FaultRaised { fault, scope });
            return self.ask_to_raise(arguments);
        }
        let policy = &env.limits.retry;
        let kind = fault.kind();
        let (attempt, next_attempt) = self.attempts_in_round(of_step);
        let told = fault.clone().attempt(attempt, policy.tries);
        let verdict = self.after_failure(fault, attempt);
        let change = self.model_after_failure(&told, &verdict, next_attempt == 1);
        let told = match (&verdict, change) {
            (_, Some(_)) => told.continues(),
            (retry::RetryDecision::Retry(wait), None) => told.retry_after(*wait).continues(),
            // No attempt follows even if attempts are left: the service's hint exceeds the patience.
            (retry::RetryDecision::GiveUp(_), None) if told.may_auto_retry() => {
                told.attempt(attempt, attempt)
            }
            (retry::RetryDecision::GiveUp(_), None) => told,
        };
        self.emit(Event::FaultRaised { fault: told, scope: scope.clone() });
        if let Some(change) = change {
            return self.ask_other_model(step, of_step, change, None);
        }
        if self.record_compaction() {
            return; // A shorter history is due now; the same try is made with it.
        }
        match verdict {
            retry::RetryDecision::GiveUp(fault) => {
                let first = self.fault_of_first_model(Some(fault.clone()));
                self.fail_at_step(first.unwrap_or(fault));
            }
            retry::RetryDecision::Retry(wait) => self.emit(Event::RetryScheduled {
                operation: Operation::ModelRequest,
                kind,
                attempt,
                next_attempt,
                max_attempts: policy.tries,
                wait_ms: millis(wait),
                due_at: env.now.after(wait),
                scope,
            }),
        }
    }

    /// Records that a retried request succeeded.
    fn record_recovery(&mut self, attempt: u32) {
        let turn = self.turn();
        let Some(failing) = turn.failing.clone() else { return };
        let scope = Scope { step: Some(turn.step), ..Scope::default() };
        self.emit(Event::Recovered {
            operation: Operation::ModelRequest,
            kind: failing.kind,
            attempts: attempt,
            elapsed_ms: millis(self.env.now.since(failing.since)),
            scope,
        });
    }

    pub(super) fn handle_compaction(
        &mut self,
        messages: u64,
        summary: String,
        by_model: bool,
        tokens_after: u64,
        usage: Usage,
    ) {
        if let Phase::AwaitingModel { attempt } = self.turn().phase {
            let tokens_before = self.session.tokens;
            let is_first = !self.has_estimates();
            self.emit(Event::HistoryCompacted(Compaction {
                messages,
                summary,
                by_model,
                tokens_before,
                tokens_after,
                usage,
            }));
            self.report_estimate(usage, is_first);
            self.ask_first_fitting_model(attempt);
        }
    }
}

/// Whether a request fails like this after the service began its answer, of which the turn may have seen nothing yet.
fn is_broken_off(kind: Kind) -> bool {
    matches!(kind, Kind::ModelStreamCut | Kind::ModelStalled | Kind::ModelMalformedStream)
}
