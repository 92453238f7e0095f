//! A worker's tool as the call path sees it: it opens a call, waits for its claim and its report, and passes on a stop.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    fault::{Advice, Fact, Fault, Kind, Operation},
    remote::{OfferedTool, ToolRoute, WorkerError, WorkerReport},
    tool::{Effect, Failure, ToolOrigin, ToolSpec},
};
use budao_tools::{CallContext, Reconciliation, Tool, ToolError, Toolbox, contract::ToolResult};
use serde_json::Value;

use crate::{
    calls::{CallKey, CallOffer, CallPurpose, CallStatus, CancelReason},
    workers::{CallHandle, Workers},
};

/// The share of the grace after a cancel that a worker has for its result, in percent. The rest is for the report.
const CANCEL_PERCENT: u32 = 75;

/// The most processes that are asked, one after the loss of the other, what became of a call.
const QUESTIONS: u32 = 3;

/// Slack of the runner's own deadline, which is only a safety net.
const SLACK: Duration = Duration::from_secs(30);

/// A tool that processes of a worker run.
#[derive(Debug)]
pub(crate) struct RemoteTool {
    tenant: Arc<str>,
    spec: Arc<ToolSpec>,
    route: ToolRoute,
    is_repeatable: bool,
    can_reconcile: bool,
    deadline: Duration,
    wait: Duration,
    workers: Workers,
}

/// Why a wait for a call ended.
enum WaitEnd {
    Reported(WorkerReport),
    Reconciled(Reconciliation),
    Lost,
    /// No process claimed this attempt in time.
    Unclaimed(u32),
    /// The deadline passed.
    Overdue(Duration),
    /// The call was to stop; `true` if a process had claimed it.
    Stopped(bool),
}

impl RemoteTool {
    pub(crate) fn new(
        workers: &Workers,
        tenant: Arc<str>,
        worker: &str,
        version: &str,
        offered: &OfferedTool,
    ) -> Self {
        let route = ToolRoute { worker: worker.to_owned(), version: version.to_owned() };
        let limits = workers.limits();
        let wait = offered.wait_ms.map_or(limits.wait, Duration::from_millis);
        let deadline = offered.deadline_ms.map_or(limits.deadline, Duration::from_millis);
        Self {
            tenant,
            spec: Arc::new(spec_of(offered, route.clone(), wait.saturating_add(deadline))),
            route,
            is_repeatable: offered.is_repeatable(),
            can_reconcile: offered.reconcile,
            deadline,
            wait,
            workers: workers.clone(),
        }
    }

    /// Opens the call and waits for its end.
    async fn perform(
        &self,
        arguments: Value,
        context: &CallContext,
        purpose: CallPurpose,
    ) -> Result<WaitEnd, Failure> {
        let deadline = self.deadline;
        let offer = CallOffer {
            key: CallKey { session: context.session, call: context.call.clone() },
            tool: Arc::clone(&self.spec.name),
            route: self.route.clone(),
            attempt: context.attempt,
            purpose,
            arguments: Arc::new(arguments),
            idempotency_key: Arc::clone(&context.idempotency_key),
            trace: context.trace,
            span: context.span(),
            deadline,
            opened: context.world.clock.now(),
        };
        let mut call = self
            .workers
            .open_call(Arc::clone(&self.tenant), offer)
            .map_err(|fault| self.failure(fault.not_started()))?;
        let end = self.wait_for(&mut call, context, deadline).await;
        call.set_reason(match end {
            WaitEnd::Overdue(_) => CancelReason::Deadline,
            _ => CancelReason::Over,
        });
        Ok(end)
    }

    async fn wait_for(
        &self,
        call: &mut CallHandle,
        context: &CallContext,
        deadline: Duration,
    ) -> WaitEnd {
        let clock = &context.world.clock;
        let mut unclaimed = clock.sleep(self.wait);
        loop {
            let status = call.status();
            if let Some(end) = end_of(&status) {
                return end;
            }
            if status.claim.is_some() {
                break;
            }
            tokio::select! {
                biased;
                () = call.wait_for_change() => {}
                () = context.cancel.cancelled() => return WaitEnd::Stopped(false),
                () = &mut unclaimed => return WaitEnd::Unclaimed(context.attempt),
                () = clock.sleep(self.workers.limits().claim_wait) => call.offer_again(),
            }
        }
        self.wait_for_report(call, context, deadline).await
    }

    /// Waits for the report of a claimed call, and shows its progress.
    async fn wait_for_report(
        &self,
        call: &mut CallHandle,
        context: &CallContext,
        deadline: Duration,
    ) -> WaitEnd {
        let clock = &context.world.clock;
        let mut overdue = clock.sleep(deadline);
        loop {
            if let Some(end) = end_of(&call.status()) {
                return end;
            }
            tokio::select! {
                biased;
                () = context.cancel.cancelled() => break,
                change = call.changed_or_output() => {
                    change.into_iter().for_each(|text| context.notes.show(text));
                }
                () = &mut overdue => return WaitEnd::Overdue(deadline),
            }
        }
        call.cancel(CancelReason::Cancelled);
        let mut grace = clock.sleep(context.limits.kill_grace * CANCEL_PERCENT / 100);
        loop {
            if let Some(end) = end_of(&call.status()) {
                return end;
            }
            tokio::select! {
                biased;
                () = call.wait_for_change() => {}
                () = &mut grace => return WaitEnd::Stopped(true),
            }
        }
    }

    fn fault(&self, kind: Kind) -> Fault {
        Fault::new(kind, Operation::ToolCall).with(Fact::ToolName, self.spec.name.to_string())
    }

    fn failure(&self, fault: Fault) -> Failure {
        ToolError::from(fault).into_failure(&self.spec.name)
    }

    /// States that a claimed call may have been done.
    fn mark_unconfirmed(&self, fault: Fault) -> Fault {
        match self.is_repeatable {
            true => fault.unconfirmed_but_safe(),
            false => fault.unconfirmed(),
        }
    }

    /// The failure of a call that ended without a report.
    fn failure_of(&self, end: &WaitEnd) -> Failure {
        let of_worker = |kind| self.fault(kind).with(Fact::Worker, self.route.worker.clone());
        let fault = match *end {
            // An earlier attempt of a tool that may be repeated was claimed, and may have been done.
            WaitEnd::Unclaimed(2..) if self.is_repeatable => {
                self.mark_unconfirmed(of_worker(Kind::WorkerLost))
            }
            WaitEnd::Unclaimed(_) => {
                of_worker(Kind::WorkerMissing).with(Fact::TimeoutMs, self.wait).not_started()
            }
            WaitEnd::Overdue(deadline) => self
                .mark_unconfirmed(self.fault(Kind::DeadlinePassed).with(Fact::TimeoutMs, deadline)),
            WaitEnd::Stopped(false) => self.fault(Kind::Cancelled).not_started(),
            WaitEnd::Stopped(true) => self.mark_unconfirmed(self.fault(Kind::Cancelled)),
            WaitEnd::Lost | WaitEnd::Reported(_) | WaitEnd::Reconciled(_) => {
                self.mark_unconfirmed(of_worker(Kind::WorkerLost))
            }
        };
        self.failure(fault)
    }

    /// What a process found out about an interrupted call.
    fn verdict_of(&self, end: WaitEnd) -> Result<Reconciliation, Failure> {
        match end {
            WaitEnd::Reconciled(found) => Ok(found),
            // A process that comes back late ran the call after all: its claim was under way when it was asked.
            WaitEnd::Reported(WorkerReport::Done { result }) => {
                Ok(Reconciliation::Happened(result))
            }
            WaitEnd::Reported(WorkerReport::Failed(error)) => Err(self.worker_failure(error)),
            WaitEnd::Reported(WorkerReport::Lost) => Ok(Reconciliation::CannotTell),
            end => Err(self.failure_of(&end)),
        }
    }

    /// The failure of the worker's function, as its author intends it. The foreign error is for the operator alone.
    fn worker_failure(&self, error: WorkerError) -> Failure {
        let WorkerError { message, advice, data, progress, detail } = error;
        let fault = match message {
            Some(message) => self.fault(Kind::ToolSaidNo).with(Fact::Reason, message),
            None => self.fault(Kind::ToolFailed),
        };
        let fault = fault.advise_model(advice.into_iter().map(Advice::Custom));
        let fault = match progress {
            Some(progress) => fault.with_progress(progress.into()),
            None => fault,
        };
        let fault = match detail {
            Some(detail) => fault.with_cause(detail),
            None => fault,
        };
        Failure { fault, data, note: None }
    }
}

fn end_of(status: &CallStatus) -> Option<WaitEnd> {
    let report = status.report.clone().map(WaitEnd::Reported);
    report
        .or_else(|| status.reconciliation.clone().map(WaitEnd::Reconciled))
        .or_else(|| status.is_lost.then_some(WaitEnd::Lost))
}

#[async_trait]
impl Tool for RemoteTool {
    fn spec(&self) -> Arc<ToolSpec> {
        Arc::clone(&self.spec)
    }

    /// Only waits: the work is done elsewhere.
    fn quick(&self) -> bool {
        true
    }

    async fn call(&self, arguments: Value, context: &CallContext) -> ToolResult {
        match self.perform(arguments, context, CallPurpose::Run).await? {
            WaitEnd::Reported(WorkerReport::Done { result }) => Ok(result),
            WaitEnd::Reported(WorkerReport::Failed(error)) => Err(self.worker_failure(error)),
            end => Err(self.failure_of(&end)),
        }
    }

    fn can_reconcile(&self) -> bool {
        self.can_reconcile
    }

    async fn reconcile(
        &self,
        arguments: Value,
        context: &CallContext,
    ) -> Result<Reconciliation, Failure> {
        for _ in 1..QUESTIONS {
            match self.perform(arguments.clone(), context, CallPurpose::Reconcile).await? {
                // A question changes nothing, so another process may be asked.
                WaitEnd::Lost => {}
                end => return self.verdict_of(end),
            }
        }
        let last = self.perform(arguments, context, CallPurpose::Reconcile).await?;
        self.verdict_of(last)
    }
}

fn spec_of(offered: &OfferedTool, route: ToolRoute, longest: Duration) -> ToolSpec {
    ToolSpec {
        name: offered.name.as_str().into(),
        description: offered.description.as_str().into(),
        schema: Arc::new(offered.parameters.clone()),
        effect: if offered.read_only { Effect::Reads } else { Effect::Writes },
        idempotent: offered.is_repeatable(),
        confirm: offered.confirm,
        repair: offered.read_only,
        // The tool itself keeps the time: the wait for a claim and the deadline after it.
        deadline: Some(longest.saturating_add(SLACK)),
        output_bytes: None,
        source: ToolOrigin::Worker(route),
    }
}

/// A tool that is only checked, never called.
#[derive(Debug)]
struct Candidate(Arc<ToolSpec>);

#[async_trait]
impl Tool for Candidate {
    fn spec(&self) -> Arc<ToolSpec> {
        Arc::clone(&self.0)
    }

    async fn call(&self, _arguments: Value, _context: &CallContext) -> ToolResult {
        Ok(Value::Null)
    }
}

/// Checks a tool as the toolbox will when a session uses it.
pub(crate) fn check(offered: &OfferedTool) -> Result<(), Fault> {
    let route = ToolRoute { worker: String::new(), version: String::new() };
    let spec = spec_of(offered, route, Duration::ZERO);
    Toolbox::builder().add(Candidate(Arc::new(spec))).map(drop)
}
