//! The inputs and outputs of a decision of a turn: input, environment, work, transition.

use std::{fmt, sync::Arc};

use serde_json::Value;

use crate::{
    elicitation::Elicitation,
    event::{Answer, Command, CommandId, Entry, Event, TurnNumber},
    fallback::ModelOutlook,
    fault::{Fault, NodeIdentity},
    gate::HoldReport,
    limits::Limits,
    message::{Block, CallId, ModelStop, ResponseInfo, Usage},
    remote::ToolRoute,
    time::Timestamp,
    tool::{Outcome, ReconcileResult, Repair},
    trace::Trace,
};

/// Everything that can wake a session. The list is closed: no other path changes a session.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "an input is moved once; a box would cost each event an allocation"
)]
pub enum Input {
    /// A sender gave a command.
    Command(Command),
    /// A new writer loaded the session.
    Resumed,
    /// Parts of an answer arrived, already joined.
    Delta {
        /// The turn that made the request.
        turn: TurnNumber,
        /// The step that made the request.
        step: u32,
        /// The attempt that made the request; a stale one is dropped.
        attempt: u32,
        /// Answer text since the last delta.
        text: String,
        /// Thinking text since the last delta.
        thought: String,
    },
    /// The model's answer is complete.
    ModelAnswered {
        /// The turn that made the request.
        turn: TurnNumber,
        /// The step that made the request.
        step: u32,
        /// The attempt that made the request; a stale one is dropped.
        attempt: u32,
        /// The complete answer, tool calls included.
        content: Vec<Block>,
        /// The model's stop reason.
        stop: ModelStop,
        /// Tokens of this request.
        usage: Usage,
        /// How the service names the answer; absent if it does not say.
        response: Option<Box<ResponseInfo>>,
    },
    /// A model request failed.
    ModelFailed {
        /// The turn that made the request.
        turn: TurnNumber,
        /// The step that made the request.
        step: u32,
        /// The attempt that made the request; a stale one is dropped.
        attempt: u32,
        /// Decides whether the request is repeated.
        fault: Fault,
    },
    /// The gate of the model's service holds a request.
    RequestHeld {
        /// The turn that makes the request.
        turn: TurnNumber,
        /// The step that makes the request.
        step: u32,
        /// The attempt that waits; a stale one is dropped.
        attempt: u32,
        /// The reason for the hold, and its expected end.
        hold: Box<HoldReport>,
    },
    /// The gate has held a request for so long that another model of the session's list may be asked.
    HoldReviewed {
        /// The turn that makes the request.
        turn: TurnNumber,
        /// The step that makes the request.
        step: u32,
        /// The attempt that waits; a stale one is dropped.
        attempt: u32,
    },
    /// The gate let a request through that was held.
    RequestReleased {
        /// The turn that makes the request.
        turn: TurnNumber,
        /// The step that makes the request.
        step: u32,
        /// The attempt that is made now; a stale one is dropped.
        attempt: u32,
    },
    /// A model summarised old history or, when that failed, a rule cut it.
    HistoryCompacted {
        /// The turn that asked for the compaction.
        turn: TurnNumber,
        /// How many of the oldest messages the summary replaces.
        messages: u64,
        /// The text that replaces those messages.
        summary: String,
        /// False if the history was cut by rule.
        by_model: bool,
        /// Estimated tokens of the shortened history.
        tokens_after: u64,
        /// Tokens the summary itself cost.
        usage: Usage,
    },
    /// The compaction failed and cut nothing. The turn ends here.
    CompactionFailed {
        /// The turn that asked for the compaction; a stale one is dropped.
        turn: TurnNumber,
        /// Recorded as the reason of the turn's end.
        fault: Fault,
    },
    /// A complete answer does not fit the schema of the final answer. It counts as an invalid call of that tool.
    AnswerRejected {
        /// The turn that made the request.
        turn: TurnNumber,
        /// The step that made the request.
        step: u32,
        /// The attempt that was answered; a stale one is dropped.
        attempt: u32,
        /// The answer; its only call is the one that is refused.
        content: Vec<Block>,
        /// Tokens of the request.
        usage: Usage,
        /// The fault with the violations of the schema.
        fault: Fault,
    },
    /// The calls of a step were checked.
    CallsChecked {
        /// The turn that asked for the check.
        turn: TurnNumber,
        /// The verdict on each checked call.
        verdicts: Vec<(CallId, CallVerdict)>,
    },
    /// An event that is only recorded and does not advance the turn.
    RecordOnly {
        /// The turn the event belongs to; 0 for none.
        turn: TurnNumber,
        /// Recorded as it is.
        event: Event,
    },
    /// A running call asks a person for input.
    InputNeeded {
        /// The turn that made the call.
        turn: TurnNumber,
        /// The call that asks.
        call: CallId,
        /// The attempt that asks; a stale one is dropped.
        attempt: u32,
        /// The form or address for the person.
        elicitation: Box<Elicitation>,
        /// Hash over the tool, the question and its place among the questions of the attempt.
        digest: String,
    },
    /// An attempt at a call ended.
    ToolCallEnded {
        /// The turn that made the call.
        turn: TurnNumber,
        /// The call that ended.
        call: CallId,
        /// The attempt that ended; a stale one is dropped.
        attempt: u32,
        /// A failure may lead to another attempt.
        outcome: Outcome,
    },
    /// A tool was asked whether an interrupted call was done.
    CallReconciled {
        /// The turn that made the call.
        turn: TurnNumber,
        /// The interrupted call.
        call: CallId,
        /// The attempt to find out; a stale one is dropped.
        attempt: u32,
        /// The finding of the tool's reconcile function.
        answer: ReconcileResult,
    },
    /// The host cannot continue the session although its state is valid. The turn ends here.
    Aborted {
        /// Recorded as the reason of the turn's end.
        fault: Fault,
    },
    /// The time of a timer may have come ([`crate::timer::Timers::wake_at`]).
    TimersDue,
    /// A time from [`Work::Wake`] was reached.
    TimerFired {
        /// The turn that set the timer.
        turn: TurnNumber,
    },
}

/// The decision on a checked call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallVerdict {
    /// The call may run.
    Run {
        /// The arguments to run with, after repairs.
        arguments: Value,
        /// Repairs that turned the model's arguments into these.
        repairs: Vec<Repair>,
        /// Whether the call may run again after a crash.
        idempotent: bool,
        /// Whether the tool can find out if an interrupted call was done.
        reconcile: bool,
        /// The worker that runs the call; absent if this process runs it.
        route: Option<ToolRoute>,
    },
    /// A person must decide first.
    Ask {
        /// The arguments the call would run with.
        arguments: Value,
        /// Repairs that turned the model's arguments into these.
        repairs: Vec<Repair>,
        /// Whether the call may run again after a crash.
        idempotent: bool,
        /// Hash over tool and arguments; the decision is bound to it.
        digest: String,
        /// The reason for the question, as the person reads it.
        reason: String,
    },
    /// The call has its outcome without running: refused, denied, or supplied by a hook.
    Settled(Outcome),
}

/// Work that a state requires. Two equal values are the same work, so the host starts it once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Shorten the history.
    Compact {
        /// The turn that needs it.
        turn: TurnNumber,
        /// The step that waits for it.
        step: u32,
    },
    /// Send a request to the model.
    Model {
        /// The turn that makes the request.
        turn: TurnNumber,
        /// The step, from 1.
        step: u32,
        /// The attempt, from 1.
        attempt: u32,
    },
    /// Check calls: arguments, permissions, hooks.
    Check {
        /// The turn that made the calls.
        turn: TurnNumber,
        /// The calls not checked yet, in the model's order.
        calls: Vec<CallId>,
    },
    /// Run a call.
    Call {
        /// The turn that made the call.
        turn: TurnNumber,
        /// The call to run.
        call: CallId,
        /// The attempt, from 1.
        attempt: u32,
    },
    /// Ask a tool whether an interrupted call was done.
    Reconcile {
        /// The turn that made the call.
        turn: TurnNumber,
        /// The interrupted call.
        call: CallId,
        /// The attempt to find out, from 1.
        attempt: u32,
    },
    /// Send [`Input::TimerFired`] at a time.
    Wake {
        /// The turn that waits.
        turn: TurnNumber,
        /// UTC time of the wake-up.
        at: Timestamp,
    },
}

/// Inputs of a decision besides the session. The caller supplies all of them, so decisions are reproducible.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// The current time, UTC.
    pub now: Timestamp,
    /// Random spread of retry delays, in −1..=1.
    pub jitter: f64,
    /// Whether the session has an observer; decides the patience of its turns.
    pub is_observed: bool,
    /// Slots that are taken by calls which the running turn does not wait for; all of them while the host starts
    /// nothing new.
    pub busy_slots: usize,
    /// The trace of a turn whose message carries none.
    pub trace: Trace,
    /// The states of the gates of the session's models, in the order of its list. Models without an entry can be asked.
    pub outlooks: &'a [ModelOutlook],
    /// The bounds in force.
    pub limits: &'a Limits,
    /// The server that recorded faults name; `None` for a program without a name.
    pub server: Option<&'a Arc<NodeIdentity>>,
}

impl fmt::Debug for Env<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env")
            .field("now", &self.now)
            .field("jitter", &self.jitter)
            .finish_non_exhaustive()
    }
}

/// The result of one input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transition {
    /// Events to append before anything else. Already applied to the session.
    pub entries: Vec<Entry>,
    /// The answer to the command, if the input was one; durable in the same append.
    pub answer: Option<(CommandId, Answer)>,
}
