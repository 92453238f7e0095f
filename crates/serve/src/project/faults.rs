//! Frames for faults, retries and recoveries: the nine `error.*` events.

use std::time::Duration;

use budao_core::{
    Fault, Kind, Lang, Record, Timestamp,
    activity::Activity,
    event::{Scope, Seq, Stage},
    fault::{Announcement, Fact, Operation, text},
    gate::HoldReason,
    session::Phase,
};
use serde_json::{Value, json};

use super::Projector;
use crate::{
    frame::{FaultContext, Frame, common_fields},
    texts::{seconds, translate_with},
};

impl Projector {
    pub(super) fn render_fault_activity(
        &self,
        record: &Record,
        activity: Activity<'_>,
    ) -> Option<Frame> {
        let frame = match activity {
            Activity::Fault { fault, scope, is_final: false } => self
                .begin(record, event_name(fault, scope))
                .with_fault(fault, &self.fault_context(record, scope)),
            Activity::Fault { fault, scope, is_final: true } => {
                let context =
                    FaultContext { not_recovered: true, ..self.fault_context(record, scope) };
                let attempts = fault.attempts().map_or(1, |tries| tries.attempt);
                self.begin(record, "error.recovery_failed")
                    .with_fault(fault, &context)
                    .with("attempts", attempts)
                    .with("original_error", fault.row().type_name)
                    .with("recovery_error", fault.row().code)
            }
            Activity::RequestHeld { step, reason, fault, until, before } => {
                self.render_hold(record, fault, &RecordedHold { step, reason, until, before })
            }
            Activity::RetryScheduled {
                operation,
                kind,
                attempt,
                next_attempt,
                max_attempts,
                wait_ms,
                due_at,
                scope,
            } => {
                let wait = Duration::from_millis(wait_ms);
                let fault =
                    Fault::new(kind, operation).attempt(attempt, max_attempts).retry_after(wait);
                self.render_retry(record, &fault, next_attempt, wait, scope)
                    .with("due_at", due_at.to_string())
            }
            Activity::Recovered { operation, kind, attempts, elapsed_ms, scope } => self
                .render_recovery(record, &Fault::new(kind, operation), scope)
                .with("attempts", attempts)
                .with("recovery_time_ms", elapsed_ms),
            Activity::ObserverLost { close_code, close_reason, last_seq, uptime_ms } => {
                self.render_observer_loss(record, close_code, close_reason, last_seq, uptime_ms)
            }
            _ => return None,
        };
        Some(frame)
    }

    /// The first record of a wait reports the service's fault, later ones are notices of its progress.
    fn render_hold(&self, record: &Record, fault: Option<&Fault>, hold: &RecordedHold) -> Frame {
        let (english, shown) =
            (hold.text(record.at, Lang::En), hold.text(record.at, self.language()));
        let frame = match fault {
            Some(fault) => {
                let scope = Scope { step: Some(hold.step), ..Scope::default() };
                let user =
                    |lang, hold_text| format!("{} {hold_text}", text::user_text(fault, lang));
                self.begin(record, event_name(fault, &scope))
                    .with_fault(fault, &self.fault_context(record, &scope))
                    .text(user(Lang::En, &english))
                    .show(user(self.language(), &shown))
            }
            None => self.notice(record, "request_held").text(english).show(shown),
        };
        let frame = frame
            .with("step", hold.step)
            .with("hold_reason", <&str>::from(hold.reason))
            .with("waiting_before", hold.before);
        match hold.until {
            Some(until) => frame.with("due_at", until.to_string()),
            None => frame,
        }
    }

    fn render_retry(
        &self,
        record: &Record,
        fault: &Fault,
        next_attempt: u32,
        wait: Duration,
        scope: &Scope,
    ) -> Frame {
        let max = fault.attempts().map_or(0, |tries| tries.max);
        let args = [("next", next_attempt.into()), ("max", max.into()), ("wait", seconds(wait))];
        self.begin(record, "error.retry_attempt")
            .text(translate_with("retry", &args, Lang::En))
            .show(translate_with("retry", &args, self.language()))
            .with_all(common_fields(fault, &self.fault_context(record, scope)))
            .with("context", self.retry_context(scope))
            .with("next_attempt", next_attempt)
            .with("error_message", text::of_kind(fault.kind(), "title", Lang::En))
    }

    fn render_recovery(&self, record: &Record, fault: &Fault, scope: &Scope) -> Frame {
        let action = match fault.kind() {
            _ if self.session.model_position > 0 => "change_model",
            Kind::ContextTooLong => "compact_history",
            _ => "retry",
        };
        let frame = self
            .begin(record, "error.recovery_success")
            .with_all(common_fields(fault, &self.fault_context(record, scope)))
            .with("context", self.retry_context(scope))
            .with("severity", "info")
            .with("recovery_action", action)
            .with("original_error", fault.row().type_name);
        self.with_text(frame, "recovery-success")
    }

    fn render_observer_loss(
        &self,
        record: &Record,
        close_code: u16,
        close_reason: &str,
        last_seq: Seq,
        uptime_ms: u64,
    ) -> Frame {
        let state = match self.stage() {
            Some(stage) => format!("{stage}_stage"),
            None => self.session.state().as_str().to_owned(),
        };
        let mut fault = Fault::new(Kind::ConnectionLost, Operation::SendFrame)
            .with(Fact::CloseCode, close_code)
            .with(Fact::CloseReason, close_reason.to_owned())
            .with(Fact::LastEventSeq, last_seq)
            .with(Fact::UptimeMs, uptime_ms)
            .with(Fact::State, state);
        if let Some(operation) = self.operation() {
            let name: &'static str = operation.into();
            fault = fault.with(Fact::LastOperation, name);
        }
        let scope = Scope { stage: self.stage(), ..Scope::default() };
        let frame = self.begin(record, "error.connection_lost");
        // The catalog's text addresses the client that lost its connection; these observers are still connected.
        self.with_text(
            frame.with_fault(&fault, &self.fault_context(record, &scope)),
            "observer-lost",
        )
    }

    /// The context of a retry: the tool, or the model without one.
    pub(super) fn retry_context(&self, scope: &Scope) -> Value {
        let model = self.session.model();
        match &scope.tool {
            Some(tool) => json!({ "tool_name": tool }),
            None if model.is_empty() => json!({}),
            None => json!({ "model": model }),
        }
    }

    /// The running pipeline's stage.
    fn stage(&self) -> Option<Stage> {
        self.session.turn.as_ref()?;
        self.session.pipeline.as_ref()?.stage
    }

    /// The operation of the running turn.
    fn operation(&self) -> Option<Operation> {
        let turn = self.session.turn.as_ref()?;
        Some(match (turn.phase, self.stage()) {
            (Phase::AwaitingModel { .. } | Phase::Waiting { .. }, _) => Operation::ModelRequest,
            (Phase::Calling, _) => Operation::ToolCall,
            (Phase::Confirming, _) => Operation::AskPermission,
            (Phase::Pipeline, Some(Stage::Planning)) => Operation::GeneratePlan,
            (Phase::Pipeline, Some(Stage::Aggregation)) => Operation::Aggregate,
            (Phase::Pipeline, Some(Stage::Solving) | None) => Operation::SolveTask,
        })
    }
}

/// A wait at a gate, as its record has it.
struct RecordedHold {
    step: u32,
    reason: HoldReason,
    until: Option<Timestamp>,
    before: u64,
}

impl RecordedHold {
    /// The reason of the wait, the time of the next request, and the number of requests before it.
    fn text(&self, now: Timestamp, lang: Lang) -> String {
        let wait = match self.until {
            Some(until) => seconds(until.since(now)),
            None => "none".into(),
        };
        let reason = <&str>::from(self.reason).into();
        let args = [("reason", reason), ("wait", wait), ("before", self.before.into())];
        translate_with("request-held", &args, lang)
    }
}

/// The event that reports a fault. A failed recovery has a record of its own, so its fault is reported as an execution
/// error. A draft that is not a plan is reported as `plan.validation_error`.
fn event_name(fault: &Fault, scope: &Scope) -> &'static str {
    let plan = fault.kind() == Kind::PlanCoercionFailed && scope.stage == Some(Stage::Planning);
    match fault.row().event {
        _ if plan => "plan.validation_error",
        Announcement::RecoveryFailed => Announcement::Execution.into(),
        event => event.into(),
    }
}
