//! Calls that the agent makes: their start and their outcome.

use budao_core::{
    event::{CallStart, Event},
    fault::{Fact, Fault, Kind, Operation},
    message::CallId,
    session::CallState,
    tool::{Failure, Outcome, Output, Truncation},
};
use serde_json::Value;

use super::RelayStepper;

/// The remark of a call whose result the agent never reported.
const NO_RESULT: &str = "The agent reported no result of this call.";

impl RelayStepper<'_> {
    /// Records the start of a call, unless it runs or has ended.
    pub(super) fn start_call(&mut self, id: &CallId, arguments: &Value) {
        let call = self.m.session.turn.as_ref().and_then(|turn| turn.call(id));
        let Some(call) = call.filter(|call| call.is_open()) else { return };
        if matches!(call.state, CallState::Started { .. }) {
            return;
        }
        let tool = call.tool.clone();
        self.emit(Event::ToolCallStarted(CallStart {
            call: id.clone(),
            tool,
            arguments: arguments.clone(),
            repairs: Vec::new(),
            attempt: 1,
            idempotent: false,
            reconcile: false,
        }));
    }

    /// Counts every requested call as running: the agent does not report when it starts one.
    pub(super) fn start_requested_calls(&mut self) {
        let Some(turn) = &self.m.session.turn else { return };
        let requested: Vec<(CallId, String)> = turn
            .calls
            .iter()
            .filter(|call| matches!(call.state, CallState::Requested { approved: None }))
            .map(|call| (call.id.clone(), call.written.clone()))
            .collect();
        for (id, written) in requested {
            self.start_call(&id, &serde_json::from_str(&written).unwrap_or_default());
        }
    }

    /// Records the result of a call as the agent reported it.
    pub(super) fn call_result(&mut self, theirs: &str, content: Value) {
        let now = self.env.steady;
        if let Some(drafted) = self.run().draft.call(theirs) {
            drafted.is_complete = true;
            self.finish_answer(false);
        }
        let Some(id) = self.run().calls.get(theirs).cloned() else { return };
        let Some(call) = self.turn().call(&id).filter(|call| call.is_open()) else { return };
        let written = call.written.clone();
        self.start_call(&id, &serde_json::from_str(&written).unwrap_or_default());
        let (data, cut) = shorten(content, self.env.limits.output_bytes);
        self.end_call(&id, Outcome::Done(Output { data, note: None, cut }));
        self.run().settled_at = Some(now);
    }

    /// Records the outcome of a call; ignored if the call has one.
    pub(super) fn end_call(&mut self, id: &CallId, outcome: Outcome) {
        let call = self.m.session.turn.as_ref().and_then(|turn| turn.call(id));
        let Some(call) = call.filter(|call| call.is_open()) else { return };
        let tool = call.tool.clone();
        let duration_ms = match &call.state {
            CallState::Started { at, .. } => {
                u64::try_from(self.env.now.since(*at).as_millis()).unwrap_or(u64::MAX)
            }
            _ => 0,
        };
        let trace = self.m.session.trace();
        let outcome = match outcome {
            Outcome::Failed(Failure { fault, data, note }) => {
                Outcome::Failed(Failure { fault: fault.with_trace(trace), data, note })
            }
            done @ Outcome::Done(_) => done,
        };
        self.emit(Event::ToolCallEnded { call: id.clone(), tool, outcome, duration_ms });
    }

    fn open_calls(&self) -> Vec<(CallId, String)> {
        let calls = self.m.session.turn.iter().flat_map(|turn| &turn.calls);
        let open = calls.filter(|call| call.is_open());
        open.map(|call| (call.id.clone(), call.tool.clone())).collect()
    }

    /// Ends the open calls of a run that went on or finished without their results, except those that `waits` selects.
    pub(super) fn end_calls_without_result(&mut self, waits: impl Fn(&CallId) -> bool) {
        for (id, _) in self.open_calls() {
            if waits(&id) {
                continue;
            }
            self.start_requested_call(&id);
            let note = Some(NO_RESULT.to_owned());
            self.end_call(&id, Outcome::Done(Output { data: Value::Null, note, cut: None }));
        }
    }

    fn start_requested_call(&mut self, id: &CallId) {
        let written = self.turn().call(id).map_or(String::new(), |call| call.written.clone());
        self.start_call(id, &serde_json::from_str(&written).unwrap_or_default());
    }

    /// Refuses calls that the agent expects its client to make.
    pub(super) fn refuse_client_calls(&mut self, pending: &[String]) -> Fault {
        let reason = "the agent asked its front end to run a tool, and the relay offers none";
        let fault =
            Fault::new(Kind::UnsupportedOperation, Operation::ToolCall).with(Fact::Reason, reason);
        for theirs in pending {
            let Some(id) = self.run().calls.get(theirs).cloned() else { continue };
            self.end_call(&id, fault.clone().not_started().into());
        }
        fault
    }

    /// Ends every open call of a run that is lost: as cancelled, as not begun, or with an unknown outcome.
    pub(super) fn seal_calls(&mut self, is_unsent: bool) {
        let is_cancelled = self.is_cancelling() || self.m.session.closing.is_some();
        for (id, tool) in self.open_calls() {
            let cancelled = || {
                Fault::new(Kind::Cancelled, Operation::ToolCall).with(Fact::ToolName, tool.clone())
            };
            let fault = match (is_unsent, is_cancelled) {
                (true, _) => cancelled().not_started(),
                (false, true) => cancelled().unconfirmed(),
                (false, false) => Fault::new(Kind::OutcomeUnknown, Operation::ToolCall)
                    .with(Fact::ToolName, tool.clone()),
            };
            if !is_unsent {
                self.start_requested_call(&id);
            }
            self.end_call(&id, fault.into());
        }
    }
}

/// Shortens a long result to head and tail.
fn shorten(data: Value, most: usize) -> (Value, Option<Truncation>) {
    let text = match data {
        Value::String(text) => text,
        other if other.to_string().len() <= most => return (other, None),
        other => other.to_string(),
    };
    if text.len() <= most {
        return (Value::String(text), None);
    }
    let half = most / 2;
    let head = text.floor_char_boundary(half);
    let tail = text.ceil_char_boundary(text.len() - half);
    let cut = Truncation { total_bytes: text.len() as u64, kept: None };
    (Value::String(format!("{}\n…\n{}", &text[..head], &text[tail..])), Some(cut))
}
