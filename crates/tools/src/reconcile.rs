//! Asks a tool what became of an interrupted call. A tool that panics, hangs or answers too much harms nothing.

use std::time::Duration;

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    nesting,
    tool::{Output, ReconcileResult},
};

use crate::{
    call::CheckedCall,
    contract::{CallContext, Reconciliation},
    outcome, output,
    pool::{ExhaustedResource, NoAnswer},
};

/// Time for one attempt to find out.
const RECONCILE_DEADLINE: Duration = Duration::from_secs(30);

impl CheckedCall {
    /// Whether the tool can find out what became of an interrupted call.
    #[must_use]
    pub fn can_reconcile(&self) -> bool {
        self.asks_tool() || self.is_once()
    }

    /// Whether the tool itself is asked; without it, only the key of work that is done once can tell.
    #[must_use]
    pub fn asks_tool(&self) -> bool {
        self.entry.tool.can_reconcile()
    }

    /// Asks the tool whether the call was done. Never panics, and never takes longer than its own deadline.
    pub async fn reconcile(self, context: CallContext) -> ReconcileResult {
        let (tool, arguments, asked) =
            (self.entry.tool.clone(), self.arguments.clone(), context.clone());
        let work = async move { tool.reconcile(arguments, &asked).await };
        let limit = RECONCILE_DEADLINE.min(context.limits.tool_deadline);
        let (pool, world) = (&self.shared.pool, &context.world);
        let answer = match self.entry.quick {
            true => pool.within_quick(world, limit, work).await,
            false => pool.within(world, limit, work).await,
        };
        match answer {
            Ok(Ok(Reconciliation::DidNotHappen)) => ReconcileResult::DidNotHappen,
            Ok(Ok(Reconciliation::StillRuns)) => ReconcileResult::StillRuns,
            Ok(Ok(Reconciliation::CannotTell)) => ReconcileResult::CannotTell,
            Ok(Ok(Reconciliation::Happened(mut data))) => {
                nesting::bound(&mut data);
                let limit = self.spec().output_bytes.unwrap_or(context.limits.output_bytes);
                let excess = output::bound(&mut data, limit, &context.limits);
                let output = Output { data, ..Output::default() };
                ReconcileResult::Happened(self.render_for_model(output, excess, &context).await)
            }
            Ok(Err(failure)) => self.not_reconciled(failure.fault, &context),
            Err(NoAnswer::NoRoom(exhausted)) => {
                self.not_reconciled(self.no_room(exhausted), &context)
            }
            Err(no_answer) => {
                let kind = match no_answer {
                    NoAnswer::TookTooLong => Kind::RequestTimedOut,
                    _ => Kind::ToolPanicked,
                };
                let fault = Fault::new(kind, Operation::ReconcileCall)
                    .with(Fact::ToolName, self.spec().name.to_string())
                    .with(Fact::ElapsedMs, limit);
                self.not_reconciled(no_answer.explain(fault, limit), &context)
            }
        }
    }

    fn no_room(&self, exhausted: ExhaustedResource) -> Fault {
        exhausted.into_fault(outcome::fault(Kind::SystemExhausted, self.spec()))
    }

    fn not_reconciled(&self, fault: Fault, context: &CallContext) -> ReconcileResult {
        let fault = match fault.detail().get(Fact::ToolName) {
            Some(_) => fault,
            None => fault.with(Fact::ToolName, self.spec().name.to_string()),
        };
        ReconcileResult::Failed(fault.scrub(&self.shared.scrubber).scrub(&context.scrubber))
    }
}
