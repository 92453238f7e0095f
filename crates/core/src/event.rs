//! Session events and the records that hold them.
//!
//! An event is a small fact in the past tense. The writer makes it durable before any observer sees it and never
//! changes it. An event at its position is a [`Record`]. A gateway projects a record onto at most one frame of its
//! protocol. `docs/events.md` defines the meaning of each event and the order readers may rely on.

mod access;
mod bodies;
mod command;
mod ids;
mod parts;
mod record;
mod settings;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    fallback::ModelChangeReason,
    fault::{Fault, Kind, Operation},
    gate::HoldReason,
    message::{Block, CallId, ModelStop, ResponseInfo, Usage},
    remote::{ToolRoute, WorkerReport},
    time::Timestamp,
    timer::TimerId,
    tool::{Outcome, Repair, Todo},
};

pub use bodies::{CallStart, ChildLink, Compaction, LostObserver, NewTimer};
pub use command::{Answer, Command, CommandBody, Decision};
pub use ids::{CommandId, Epoch, QuestionId, Seq, SessionId, TaskId, TurnNumber};
pub use parts::{
    QuestionPurpose, ReconcileVerdict, Scope, SessionEnd, Settlement, Stage, StopReason, Task,
    TaskEnd,
};
pub use record::{Entry, Record};
pub use settings::{Origin, Settings, Thinking, engine_of};

/// Every event a session can record. Variants and defaulted fields are added, never removed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    // ── the session ──
    /// The session was opened.
    SessionOpened {
        /// All settings the session starts with.
        settings: Settings,
        /// The parent session, for a session that a call, a stage or a fork opened; absent otherwise.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        origin: Option<Origin>,
    },
    /// The settings were replaced.
    SettingsChanged {
        /// All settings, not the difference.
        settings: Settings,
    },
    /// A new writer resumed the session after the previous writer was lost.
    SessionResumed {
        /// Calls without a known outcome, which the new writer sealed.
        sealed: Vec<CallId>,
    },
    /// The session ended. A later message re-opens it.
    SessionEnded {
        /// Closed on request, or ended by an error.
        end: SessionEnd,
        /// The fault that ended the session, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<Fault>,
    },

    // ── messages and turns ──
    /// A message was accepted. Exactly one turn answers it, unless it is withdrawn first.
    MessageAccepted {
        /// The command that carried the message.
        command: CommandId,
        /// The content, verbatim.
        content: Vec<Block>,
    },
    /// A plan → solve → aggregate pipeline was accepted; it runs as one turn.
    PipelineAccepted {
        /// The command that requested the pipeline.
        command: CommandId,
        /// The question to plan for or, with `tasks`, the question behind the tasks.
        question: String,
        /// Whether a person must confirm the plan before its tasks start.
        #[serde(default)]
        confirm: bool,
        /// Tasks from the command; when present, no planner runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tasks: Option<Vec<Task>>,
    },
    /// A retry of the last turn, which had failed, was accepted. The turn that starts for it continues from the history
    /// that the failed turn left: its answers and call results stay, and no message is added.
    RetryAccepted {
        /// The command that requested the retry.
        command: CommandId,
        /// The turn that failed.
        of_turn: TurnNumber,
    },
    /// A timer was set, or one with the same id was replaced.
    TimerSet(NewTimer),
    /// A timer fired: its message is accepted, and exactly one turn answers it, unless it is withdrawn first.
    TimerFired {
        /// The timer that fired.
        timer: TimerId,
        /// Names the message, as the command of a sender names one.
        command: CommandId,
        /// The content, verbatim.
        content: Vec<Block>,
        /// The time for which it fired.
        due: Timestamp,
        /// Later times that passed before it could fire, at most 1 000. They are not made up for.
        #[serde(default)]
        missed: u64,
        /// The next time at which it fires; absent if this was the last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<Timestamp>,
    },
    /// A timer was cancelled; it does not fire any more. The end of a closed session cancels its timers without this event.
    TimerCancelled {
        /// The timer that was set.
        timer: TimerId,
        /// The sender of the cancellation.
        by: String,
    },
    /// A queued message was withdrawn; no turn will answer it.
    MessageWithdrawn {
        /// The command that carried the withdrawn message.
        command: CommandId,
        /// The sender of the withdrawal.
        by: String,
    },
    /// A turn started for an accepted message, pipeline or retry.
    TurnStarted {
        /// The command that carried the message or requested the retry.
        message: CommandId,
    },
    /// A sender asked to cancel the running turn.
    CancelRequested {
        /// The sender of the cancel command.
        by: String,
        /// The sender's own words; absent when the command gave none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A sender asked to close the session while a turn was running. The turn stops first, messages accepted earlier
    /// get an empty turn that ends as cancelled, and then the session ends.
    CloseRequested {
        /// The sender of the close command.
        by: String,
    },
    /// The turn ended. No further event of it follows.
    TurnEnded {
        /// Why the turn ended; `Failed` comes with a fault.
        stop: StopReason,
        /// The fault that ended the turn; absent unless it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<Fault>,
        /// Model requests the turn made.
        steps: u32,
        /// Tokens of all model requests of the turn, those of its children included.
        usage: Usage,
    },

    // ── the model ──
    /// A request to the model started.
    StepStarted {
        /// Counts the model requests of the turn, from 1.
        step: u32,
        /// Counts the tries of this step, from 1.
        attempt: u32,
        /// The model's name, as the engine's configuration spells it.
        model: String,
    },
    /// The session asks another model of its list from now on. `StepStarted` follows.
    ModelChanged {
        /// The step for which the other model is asked first.
        step: u32,
        /// The model that was asked until now.
        from: String,
        /// The model that is asked now.
        to: String,
        /// The position of `to` in the session's list, from 0.
        position: u32,
        /// Why the model changed.
        reason: ModelChangeReason,
        /// The last failure of the service that is left; absent if the turn has recorded one, or if none failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<Fault>,
    },
    /// A model request waits until the gate of its service lets it through, or still waits. It is not a try.
    RequestHeld {
        /// The step whose request waits.
        step: u32,
        /// Why the gate holds the request.
        reason: HoldReason,
        /// The last failure of the service; absent if the turn has recorded one of this kind.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<Fault>,
        /// When the gate opens or probes the service; absent if that is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
        /// Requests that are served before this one.
        before: u64,
        /// How long the turn waits for its service in all, in milliseconds.
        patience_ms: u64,
    },
    /// The gate let a request through that was held.
    RequestReleased {
        /// The step whose request is made now.
        step: u32,
        /// Milliseconds from the turn's first wait for this request.
        waited_ms: u64,
    },
    /// The patience of a waiting turn changed: its settings changed, or nobody observes its session any more.
    PatienceChanged {
        /// How long the turn waits for its service in all, in milliseconds.
        patience_ms: u64,
    },
    /// Answer text arrived. Provisional until `ModelAnswered`; `AnswerAbandoned` voids it.
    TextDelta {
        /// The step that produced the text, from 1.
        step: u32,
        /// The new text only, not the text so far.
        text: String,
    },
    /// Thinking text arrived. Provisional until `ModelAnswered`; `AnswerAbandoned` voids it.
    ThinkingDelta {
        /// The step that produced the text, from 1.
        step: u32,
        /// The new text only, not the text so far.
        text: String,
    },
    /// The deltas of an answer are void because the attempt failed or was cancelled.
    AnswerAbandoned {
        /// The step whose deltas are void.
        step: u32,
        /// The attempt that failed, from 1.
        attempt: u32,
    },
    /// The model's answer is complete and replaces the deltas before it.
    ModelAnswered {
        /// The step that this answer completes.
        step: u32,
        /// The complete answer, tool calls included.
        content: Vec<Block>,
        /// Why the model stopped generating.
        stop: ModelStop,
        /// Tokens of this request.
        usage: Usage,
        /// How the service names the answer; absent if it does not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        response: Option<Box<ResponseInfo>>,
    },
    /// The history is too long for the model; its oldest part is being summarised.
    CompactionStarted {
        /// The step that waits for the summary.
        step: u32,
        /// Estimated tokens of the history.
        tokens: u64,
    },
    /// A summary replaced old history in later model requests. The records stay.
    HistoryCompacted(Compaction),

    // ── calls ──
    /// A call waits for a person: for a permission before it starts, or for input while it runs.
    QuestionAsked {
        /// Unique in its session; the decision refers to it.
        question: QuestionId,
        /// The call that waits.
        call: CallId,
        /// The name of the tool, as the model called it.
        tool: String,
        /// The exact arguments that would run.
        arguments: Value,
        /// Repairs that turned the model's arguments into these.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        repairs: Vec<Repair>,
        /// Hash over tool and arguments; a decision is bound to it.
        digest: String,
        /// Whether the call may run again after a crash.
        idempotent: bool,
        /// Why the call needs a decision: a rule, a hook or a policy.
        reason: String,
        /// Whether the call waits for a permission, or asks for input while it runs.
        #[serde(default, skip_serializing_if = "QuestionPurpose::is_permission")]
        purpose: QuestionPurpose,
        /// The time at which an unanswered question counts as denied.
        expires_at: Timestamp,
    },
    /// A question was answered. The first decision is final.
    QuestionAnswered {
        /// The question this decision answers.
        question: QuestionId,
        /// The call that waited.
        call: CallId,
        /// Whether the call may run.
        decision: Decision,
        /// The sender of the decision.
        by: String,
        /// The person's remark for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
        /// Replacement arguments from the person; they are checked again before the call runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Value>,
    },
    /// A question expired without an answer; its call is denied.
    QuestionExpired {
        /// The question that expired.
        question: QuestionId,
        /// The call that waited.
        call: CallId,
    },
    /// A call may run, but all slots are taken. It has not begun: a later start records that, or its end.
    ToolCallQueued(CallStart),
    /// A call has its slot and starts. The record is durable before the tool runs.
    ToolCallStarted(CallStart),
    /// A worker's process runs the call. The record precedes the first start of the call.
    ToolCallOffered {
        /// The model's id of the call.
        call: CallId,
        /// The name of the tool, as the model called it.
        tool: String,
        /// The worker, and the version of the tool that the call was checked against.
        route: ToolRoute,
    },
    /// A process of the worker claimed the call. The record is durable before the process runs the call.
    ToolCallClaimed {
        /// The claimed call.
        call: CallId,
        /// The attempt that the process runs.
        attempt: u32,
        /// The id of the process.
        worker: String,
        /// The user whose process it is.
        #[serde(default)]
        by: String,
    },
    /// The process that claimed the call reported its end. `ToolCallEnded` follows, with the result as the model sees it.
    ToolCallReported {
        /// The claimed call.
        call: CallId,
        /// The attempt that ended.
        attempt: u32,
        /// The id of the process.
        worker: String,
        /// The user whose process it is.
        #[serde(default)]
        by: String,
        /// What the process said.
        report: WorkerReport,
    },
    /// A crash interrupted a call, and its tool is asked whether the call was done.
    ReconcileStarted {
        /// The interrupted call.
        call: CallId,
        /// The name of the tool, as the model called it.
        tool: String,
        /// Counts the attempts to find out, from 1.
        attempt: u32,
    },
    /// The tool answered whether an interrupted call was done, or could not. The call runs again or ends.
    ReconcileEnded {
        /// The interrupted call.
        call: CallId,
        /// The name of the tool, as the model called it.
        tool: String,
        /// What the tool found out.
        verdict: ReconcileVerdict,
    },
    /// A person settled the unknown outcome of a call. The first settlement is final; the next step tells the model.
    DoubtSettled {
        /// The call whose outcome was unknown.
        call: CallId,
        /// The name of the tool, as the model called it.
        tool: String,
        /// What the person says of the call.
        settlement: Settlement,
        /// The sender of the settlement.
        by: String,
        /// The person's remark for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// A running call produced output.
    ToolOutputDelta {
        /// The running call.
        call: CallId,
        /// The new output only, not the output so far.
        text: String,
    },
    /// A running call reported structured data that belongs to no other event.
    ToolCallAnnotated {
        /// The running call.
        call: CallId,
        /// The name of the tool that reports.
        tool: String,
        /// Identifies the format of `data`.
        topic: String,
        /// Any JSON, defined by the topic.
        data: Value,
    },
    /// A call ended. Every call has exactly one such event, after a crash too.
    ToolCallEnded {
        /// The call that ended.
        call: CallId,
        /// The name of the tool, as the model called it.
        tool: String,
        /// Done or failed; a failure carries its fault.
        outcome: Outcome,
        /// Run time in milliseconds.
        duration_ms: u64,
    },
    /// A call or a pipeline stage opened a child session.
    ChildOpened(ChildLink),
    /// A child session completed or failed. Its usage also counts towards the turn.
    ChildEnded {
        /// The child session.
        child: SessionId,
        /// The call that ran the child; absent for a stage.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
        /// The stage the child worked on; absent for a call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stage: Option<Stage>,
        /// The task the child solved; absent outside the solving stage.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<TaskId>,
        /// Tokens the child used.
        usage: Usage,
    },
    /// The to-do list was replaced.
    TodosChanged {
        /// The complete new list, not the difference.
        todos: Vec<Todo>,
    },
    /// A tool found or left a file in this state. A later write is checked against it.
    FileSeen {
        /// Path inside the workspace.
        path: String,
        /// Hash of the content; none if the file does not exist.
        digest: Option<String>,
    },

    // ── what went wrong ──
    /// An operation failed.
    FaultRaised {
        /// Scrubbed before it is recorded.
        fault: Fault,
        /// The step, call or task that the fault concerns.
        #[serde(default)]
        scope: Scope,
    },
    /// A failed operation will be tried again.
    RetryScheduled {
        /// The operation to repeat.
        operation: Operation,
        /// The kind of fault that caused the retry.
        kind: Kind,
        /// The attempt that failed, from 1.
        attempt: u32,
        /// The attempt that follows.
        next_attempt: u32,
        /// The most attempts there can be, the first included.
        max_attempts: u32,
        /// Time to wait, in milliseconds.
        wait_ms: u64,
        /// UTC time at which the next attempt starts.
        due_at: Timestamp,
        /// The step, call or task that the retry concerns.
        #[serde(default)]
        scope: Scope,
    },
    /// A retried operation succeeded.
    Recovered {
        /// The operation that was retried.
        operation: Operation,
        /// The kind of fault that caused the retries.
        kind: Kind,
        /// Attempts made, the successful one included.
        attempts: u32,
        /// Milliseconds from the first failure to the success.
        elapsed_ms: u64,
        /// The step, call or task that was retried.
        #[serde(default)]
        scope: Scope,
    },
    /// A retried operation failed for good.
    RecoveryFailed {
        /// The fault of the last attempt.
        fault: Fault,
        /// The step, call or task that was retried.
        #[serde(default)]
        scope: Scope,
    },
    /// A result for a turn that has ended arrived and was dropped.
    LateArrivalDropped {
        /// The operation whose result was dropped.
        operation: Operation,
        /// The turn that had started the operation.
        of_turn: TurnNumber,
        /// The call it belongs to; absent when the operation was not a call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
    },
    /// An observer lost its connection.
    ObserverLost(LostObserver),

    // ── plan → solve → aggregate ──
    /// The planner started to split a question into tasks.
    PlanStarted {
        /// The question to plan for.
        question: String,
    },
    /// The plan is complete.
    PlanMade {
        /// The tasks, in the planner's order.
        tasks: Vec<Task>,
        /// The planner's description of the plan.
        summary: String,
    },
    /// The planner's answer is not a valid plan.
    PlanRefused {
        /// Why the answer was refused.
        fault: Fault,
    },
    /// The plan was cancelled before its tasks were solved.
    PlanCancelled {
        /// Why the plan was cancelled.
        reason: String,
    },
    /// A sender asked for a new plan. Running work stops first.
    ReplanRequested {
        /// The question of the new plan.
        question: String,
        /// The sender of the replan command.
        by: String,
    },
    /// Work on a task started.
    TaskStarted {
        /// The task, complete.
        task: Task,
        /// Counts the tries of this task, from 1.
        attempt: u32,
    },
    /// A sender asked to stop a task. `TaskEnded` follows when the work has stopped.
    TaskStopRequested {
        /// The task to stop.
        task: TaskId,
        /// The sender of the command.
        by: String,
        /// Whether the task starts again from the beginning after it stopped.
        restart: bool,
    },
    /// Work on a task ended.
    TaskEnded {
        /// The task that ended.
        task: TaskId,
        /// Completed, failed or cancelled.
        end: TaskEnd,
    },
    /// A task will start again from the beginning.
    TaskRestarted {
        /// The task to repeat.
        task: TaskId,
        /// The attempt that follows.
        attempt: u32,
        /// Why the task is repeated.
        reason: String,
    },
    /// The results of the tasks are being combined.
    AggregateStarted {
        /// Tasks that completed.
        completed: u32,
        /// Tasks that failed or were cancelled.
        failed: u32,
    },
    /// Combining the results completed, failed or was cancelled.
    AggregateEnded {
        /// The combined output, or the fault.
        end: TaskEnd,
    },
    /// The pipeline ended; `TurnEnded` follows.
    PipelineEnded {
        /// Whether every task completed.
        complete: bool,
    },

    // ── everything else ──
    /// A gateway stored a fact of its own with the session.
    Annotated {
        /// The owning gateway and the subject: `serve.nonce`.
        topic: String,
        /// Any JSON, defined by the topic.
        data: Value,
    },
}
