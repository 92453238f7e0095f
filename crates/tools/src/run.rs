//! The second half of a call's path: runs a validated call to its outcome, within a bounded time.
//!
//! On a stop request, a call first gets its grace; then its future is dropped; and if it blocks its thread so that it
//! cannot be dropped, it is abandoned. The caller never waits longer than deadline, grace and `DROP_WAIT`.

use std::time::Duration;

use budao_core::{
    fault::{Detail, Fact, Fault, Kind, Operation, text},
    tool::{Failure, Outcome, Output, Repair, RepairKind},
};
use tokio_util::sync::CancellationToken;

use crate::{
    advice,
    call::CheckedCall,
    contract::CallContext,
    outcome::{self, CallAnswer, StopCause},
    output::{self, Excess},
    pool::{self, ExhaustedResource, PoolOutcome, PoolTask},
};

/// Time for a dropped call to end before it counts as abandoned.
const DROP_WAIT: Duration = Duration::from_millis(500);

/// Maximum repairs described to the model individually.
const REPAIRS_TOLD: usize = 8;

impl CheckedCall {
    /// Runs the call to its one outcome. Never panics, and never takes longer than the tool's deadline and the grace
    /// after it.
    pub async fn run(mut self, context: CallContext) -> Outcome {
        let CallAnswer { result, excess } = match self.check_capacity(&context) {
            Ok(()) => self.finished(&context).await,
            Err(fault) => fault.into(),
        };
        match result {
            Ok(output) => Outcome::Done(self.render_for_model(output, excess, &context).await),
            Err(failure) => Outcome::Failed(self.explained(failure, excess, &context).await),
        }
    }

    /// Checks the limit of abandoned calls.
    fn check_capacity(&self, context: &CallContext) -> Result<(), Fault> {
        let limit = context.limits.abandoned_calls;
        let abandoned = self.shared.pool.counts().abandoned;
        if abandoned < limit {
            return Ok(());
        }
        Err(Fault::new(Kind::LimitReached, Operation::StartTool)
            .with(Fact::ToolName, self.spec().name.to_string())
            .with(Fact::LimitName, "abandoned_calls")
            .with(Fact::Limit, limit)
            .with(Fact::Actual, abandoned)
            .with(Fact::Unit, "calls"))
    }

    async fn finished(&mut self, context: &CallContext) -> CallAnswer {
        let stop = context.cancel.child_token();
        let mut work = self.start(context, stop.clone());
        let spec = self.spec();
        let limit = spec.deadline.unwrap_or(context.limits.tool_deadline);
        let stop_cause = tokio::select! {
            biased;
            ended = work.ended() => {
                // The call saw the cancellation first and has already ended.
                let stop_cause = context.cancel.is_cancelled().then_some(StopCause::Cancel);
                return self.of_end(ended, stop_cause);
            }
            () = context.cancel.cancelled() => StopCause::Cancel,
            () = context.deadline(limit) => StopCause::Deadline(limit),
        };
        if work.stop_unless_begun() {
            return self.not_begun(stop_cause).into();
        }
        stop.cancel();
        tokio::select! {
            biased;
            ended = work.ended() => return self.of_end(ended, Some(stop_cause)),
            () = context.world.clock.sleep(context.limits.kill_grace) => {}
        }
        work.stop();
        tokio::select! {
            biased;
            ended = work.ended() => self.of_end(ended, Some(stop_cause)),
            () = context.world.clock.sleep(DROP_WAIT) => {
                tracing::warn!(tool = %spec.name, call = %context.call, "call abandoned");
                stop_cause.abandoned(spec).into()
            }
        }
    }

    /// The fault of a call that waited for a thread until it was stopped.
    fn not_begun(&self, stop_cause: StopCause) -> Fault {
        let spec = self.spec();
        if stop_cause == StopCause::Cancel {
            return stop_cause.fault(spec).not_started();
        }
        let counts = self.shared.pool.counts();
        let occupied = counts.running + counts.abandoned;
        if occupied > pool::THREADS_MAX {
            return outcome::fault(Kind::LimitReached, spec)
                .with(Fact::LimitName, "tool_threads")
                .with(Fact::Limit, pool::THREADS_MAX)
                .with(Fact::Actual, occupied)
                .not_started();
        }
        let cause = "no thread started before the deadline".to_owned();
        let exhausted = ExhaustedResource { resource: "threads", cause };
        exhausted.into_fault(outcome::fault(Kind::SystemExhausted, spec))
    }

    /// Starts the tool. It gets the arguments, which nothing else needs any more.
    fn start(&mut self, context: &CallContext, stop: CancellationToken) -> PoolTask<CallAnswer> {
        let tool = self.entry.tool.clone();
        let (arguments, spec) = (std::mem::take(&mut self.arguments), self.spec().clone());
        let context = CallContext { cancel: stop, ..context.clone() };
        let world = context.world.clone();
        // Bounded here: the data may be large, and if the caller is gone, dropping deep JSON recurses.
        let work = async move {
            let answer = tool.call(arguments, &context).await;
            CallAnswer::of(answer, &spec, &context.limits)
        };
        let pool = &self.shared.pool;
        if self.entry.quick { pool.start_quick(&world, work) } else { pool.start(&world, work) }
    }

    fn of_end(&self, ended: PoolOutcome<CallAnswer>, stop_cause: Option<StopCause>) -> CallAnswer {
        let spec = self.spec();
        match ended {
            PoolOutcome::Returned(CallAnswer { result, excess }) => {
                // A call that completes despite a stop request counts as completed.
                let result = result.map_err(|failure| match stop_cause {
                    Some(stop_cause) => outcome::after_stop(failure, stop_cause, spec),
                    None => failure,
                });
                CallAnswer { result, excess }
            }
            PoolOutcome::Panicked(message) => {
                let fault = outcome::fault(Kind::ToolPanicked, spec);
                match message {
                    Some(message) => fault.with_cause(message),
                    None => fault,
                }
                .into()
            }
            PoolOutcome::Dropped => stop_cause.unwrap_or(StopCause::Cancel).cut_off(spec).into(),
            PoolOutcome::NoRoom(exhausted) => {
                exhausted.into_fault(outcome::fault(Kind::SystemExhausted, spec)).into()
            }
        }
    }

    /// A success as the model sees it: shortened, and with a note about repairs.
    pub(crate) async fn render_for_model(
        &self,
        mut output: Output,
        excess: Excess,
        context: &CallContext,
    ) -> Output {
        if let Some(remark) = repaired(&self.repairs, context) {
            output.note = output::joined(output.note, &remark);
        }
        let bytes_max = self.spec().output_bytes.unwrap_or(context.limits.output_bytes);
        output::finish(output, excess, bytes_max, context).await
    }

    /// A failure as the model sees it: with advice, shortened data, and scrubbed.
    async fn explained(&self, failure: Failure, excess: Excess, context: &CallContext) -> Failure {
        let Failure { fault, data, mut note } = failure;
        let fault = advice::attach(fault, &self.spec().name, &self.shared.rules);
        let fault = fault.scrub(&self.shared.scrubber).scrub(&context.scrubber);
        let fault = fault.with_trace(context.trace);
        if let Some(remark) = repaired(&self.repairs, context) {
            note = output::joined(note, &remark);
        }
        let Some(data) = data else { return Failure { fault, data: None, note } };
        let bytes_max = self.spec().output_bytes.unwrap_or(context.limits.output_bytes);
        let output = Output { data, note, cut: None };
        let Output { data, note, .. } = output::finish(output, excess, bytes_max, context).await;
        Failure { fault, data: Some(data), note }
    }
}

/// Describes the repairs. Filled-in defaults are not slips and are not mentioned.
fn repaired(repairs: &[Repair], context: &CallContext) -> Option<String> {
    let slips: Vec<&Repair> =
        repairs.iter().filter(|repair| repair.kind != RepairKind::DefaultFilled).collect();
    if slips.is_empty() {
        return None;
    }
    let places: Vec<String> = slips
        .iter()
        .take(REPAIRS_TOLD)
        .map(|repair| {
            let kind: &'static str = repair.kind.into();
            let pointer = if repair.pointer.is_empty() { "/" } else { &repair.pointer };
            format!("{pointer} ({kind})")
        })
        .collect();
    let with = Detail::new().with(Fact::Mismatches, places);
    Some(text::line("advice-arguments-repaired", &with, context.lang))
}

/// Converts a fault to a failure without data or note.
pub(crate) trait IntoFailure {
    fn into_failure(self) -> Failure;
}

impl IntoFailure for Fault {
    fn into_failure(self) -> Failure {
        Failure { fault: self, data: None, note: None }
    }
}

/// Runs the calls of one step concurrently, at most `at_once` at a time. The outcomes are in the order of the calls.
pub async fn run_all(
    calls: impl IntoIterator<Item = (CheckedCall, CallContext)>,
    at_once: usize,
) -> Vec<Outcome> {
    use futures::StreamExt;
    futures::stream::iter(calls.into_iter().map(|(ready, context)| ready.run(context)))
        .buffered(at_once.max(1))
        .collect()
        .await
}
