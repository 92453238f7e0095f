//! What a session does that is worth showing: the one place that reads events for people.
//!
//! [`Activity::of`] makes one of a small closed set of facts of an event. Events that mean the same to a reader become
//! the same fact: messages, pipelines and retries are accepted messages, and every stage of a pipeline starts and ends
//! alike. A fact borrows from its record; nothing is copied. [`ActivityFold`] adds the context that a renderer needs and
//! one record does not have: when the turn began, whether the answer's text was shown as it arrived, which fault was
//! shown last. Renderers match facts and keep only the state of their own protocol.
//!
//! Faults are counted by [`tally`](crate::tally), traces are built by [`span`](crate::span), and the state of a session
//! is [`Session`](crate::session::Session): they are no renderers and read events themselves.

mod fold;
mod read;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub use fold::{ActivityFold, TurnContext};

use crate::{
    event::{
        CommandId, Decision, Origin, QuestionId, QuestionPurpose, ReconcileVerdict, Scope, Seq,
        SessionEnd, SessionId, Settings, Settlement, Stage, StopReason, Task, TaskEnd, TaskId,
        TurnNumber,
    },
    fallback::ModelChangeReason,
    fault::{Fault, Kind, Operation},
    gate::HoldReason,
    message::{Block, CallId, ModelStop, Usage},
    time::Timestamp,
    timer::{Schedule, TimerId},
    tool::{Outcome, Repair, Todo},
};

/// A fact worth showing. The fields are those of the events in [`crate::event`].
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the event of the same meaning documents each field")]
pub enum Activity<'a> {
    /// The session was opened.
    SessionOpened { settings: &'a Settings, origin: Option<&'a Origin> },
    /// The settings were replaced.
    SettingsChanged { settings: &'a Settings },
    /// A new writer resumed the session and sealed these calls.
    SessionResumed { sealed: &'a [CallId] },
    /// The session ended.
    SessionEnded { end: SessionEnd, fault: Option<&'a Fault> },
    /// A message, a pipeline, a retry or the firing of a timer was accepted.
    MessageAccepted { command: &'a CommandId, content: MessageContent<'a> },
    /// A timer was set, or replaced.
    TimerSet {
        timer: &'a TimerId,
        schedule: &'a Schedule,
        message: &'a str,
        next: Timestamp,
        by: &'a str,
    },
    /// A timer was cancelled.
    TimerCancelled { timer: &'a TimerId, by: &'a str },
    /// A sender asked to stop or change work.
    ControlRequested { by: &'a str, request: ControlRequest<'a> },
    /// A turn started.
    TurnStarted { message: &'a CommandId },
    /// The turn ended.
    TurnEnded { stop: StopReason, fault: Option<&'a Fault>, steps: u32, usage: Usage },
    /// A request to the model started.
    StepStarted { step: u32, attempt: u32, model: &'a str },
    /// Answer text arrived.
    Text { step: u32, text: &'a str },
    /// Thinking text arrived.
    Thought { step: u32, text: &'a str },
    /// The text and the thoughts of an attempt are void.
    AnswerAbandoned { step: u32, attempt: u32 },
    /// The model's answer is complete.
    Answered { step: u32, content: &'a [Block], stop: ModelStop, usage: Usage },
    /// A call, or a plan, waits for a person's decision.
    QuestionAsked(QuestionDetails<'a>),
    /// A question was answered; without an answer, it expired.
    QuestionClosed {
        question: &'a QuestionId,
        call: &'a CallId,
        answer: Option<QuestionAnswer<'a>>,
    },
    /// A call started.
    CallStarted {
        call: &'a CallId,
        tool: &'a str,
        arguments: &'a Value,
        repairs: &'a [Repair],
        attempt: u32,
    },
    /// A process of this worker will run the call.
    CallOffered { call: &'a CallId, worker: &'a str },
    /// The tool of an interrupted call is asked what became of it.
    ReconcileStarted { call: &'a CallId, tool: &'a str, attempt: u32 },
    /// The tool answered whether the interrupted call was done.
    ReconcileEnded { call: &'a CallId, tool: &'a str, verdict: ReconcileVerdict },
    /// A person settled the unknown outcome of a call.
    DoubtSettled {
        call: &'a CallId,
        tool: &'a str,
        settlement: &'a Settlement,
        by: &'a str,
        note: Option<&'a str>,
    },
    /// A running call produced output.
    CallOutput { call: &'a CallId, text: &'a str },
    /// A running call reported data of its own format.
    CallAnnotated { call: &'a CallId, tool: &'a str, topic: &'a str, data: &'a Value },
    /// A call ended.
    CallEnded { call: &'a CallId, tool: &'a str, outcome: &'a Outcome, duration_ms: u64 },
    /// A child session opened or, with its usage, ended.
    Child {
        child: SessionId,
        call: Option<&'a CallId>,
        stage: Option<Stage>,
        task: Option<&'a TaskId>,
        usage: Option<Usage>,
    },
    /// The to-do list was replaced.
    TodosChanged { todos: &'a [Todo] },
    /// A tool found or left a file in a new state.
    FileSeen { path: &'a str },
    /// An operation failed; if final, it was retried before and no further attempt follows.
    Fault { fault: &'a Fault, scope: &'a Scope, is_final: bool },
    /// A failed operation will be tried again.
    RetryScheduled {
        operation: Operation,
        kind: Kind,
        attempt: u32,
        next_attempt: u32,
        max_attempts: u32,
        wait_ms: u64,
        due_at: Timestamp,
        scope: &'a Scope,
    },
    /// A model request waits for a busy service.
    RequestHeld {
        step: u32,
        reason: HoldReason,
        fault: Option<&'a Fault>,
        until: Option<Timestamp>,
        before: u64,
    },
    /// A retried operation succeeded.
    Recovered { operation: Operation, kind: Kind, attempts: u32, elapsed_ms: u64, scope: &'a Scope },
    /// Another model is asked from now on.
    ModelChanged {
        step: u32,
        from: &'a str,
        to: &'a str,
        reason: ModelChangeReason,
        fault: Option<&'a Fault>,
    },
    /// Old history is being summarised.
    CompactionStarted,
    /// A summary replaced old history.
    Compacted {
        messages: u64,
        summary: &'a str,
        by_model: bool,
        tokens_before: u64,
        tokens_after: u64,
        usage: Usage,
    },
    /// A stage of a pipeline, or a task of its plan, started.
    StageStarted(StageStart<'a>),
    /// The plan is complete.
    PlanMade { tasks: &'a [Task], summary: &'a str },
    /// A stage ended. A plan that was made ends its stage with [`Activity::PlanMade`] instead.
    StageEnded { stage: Stage, task: Option<&'a TaskId>, end: StageEnd<'a> },
    /// A task will start again from the beginning.
    TaskRestarted { task: &'a TaskId, attempt: u32, reason: &'a str },
    /// The pipeline ended.
    PipelineEnded { complete: bool },
    /// A result for a turn that has ended arrived and was dropped.
    LateResultDropped { of_turn: TurnNumber },
    /// An observer lost its connection.
    ObserverLost { close_code: u16, close_reason: &'a str, last_seq: Seq, uptime_ms: u64 },
    /// A gateway or an engine stored a fact of its own.
    Annotated { topic: &'a str, data: &'a Value },
}

/// The content of an accepted message.
#[derive(Clone, Copy, Debug)]
pub enum MessageContent<'a> {
    /// A message for the model.
    Blocks(&'a [Block]),
    /// The message of a timer that fired.
    Timer {
        /// The timer that fired.
        timer: &'a TimerId,
        /// What the model reads.
        content: &'a [Block],
        /// The time for which it fired.
        due: Timestamp,
        /// Later times that passed before it could fire.
        missed: u64,
        /// The next time at which it fires, if there is one.
        next: Option<Timestamp>,
    },
    /// A question for a pipeline.
    Pipeline {
        /// The question to plan for.
        question: &'a str,
        /// Whether a person confirms the plan.
        confirm: bool,
        /// Tasks from the command, in place of a planner's.
        tasks: Option<&'a [Task]>,
    },
    /// No content: the failed turn continues.
    Retry {
        /// The turn that failed.
        of_turn: TurnNumber,
    },
}

/// A sender's request to stop or change work.
#[derive(Clone, Copy, Debug)]
pub enum ControlRequest<'a> {
    /// Withdraw this queued message.
    Withdraw(&'a CommandId),
    /// Cancel the turn, for this reason.
    Cancel(Option<&'a str>),
    /// Close the session.
    Close,
    /// Make a new plan for this question.
    Replan(&'a str),
    /// Stop a task.
    StopTask {
        /// The task to stop.
        task: &'a TaskId,
        /// Whether it starts again.
        restart: bool,
    },
}

/// A question and the call that waits for its answer.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the event documents each field")]
pub struct QuestionDetails<'a> {
    pub question: &'a QuestionId,
    pub call: &'a CallId,
    pub tool: &'a str,
    pub arguments: &'a Value,
    pub digest: &'a str,
    pub reason: &'a str,
    pub purpose: QuestionPurpose,
    pub expires_at: Timestamp,
}

/// A person's answer to a question.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the event documents each field")]
pub struct QuestionAnswer<'a> {
    pub decision: Decision,
    pub by: &'a str,
    pub note: Option<&'a str>,
    /// Whether the person replaced the arguments.
    pub is_edited: bool,
}

/// The start of a stage.
#[derive(Clone, Copy, Debug)]
pub enum StageStart<'a> {
    /// The planner works on this question.
    Planning(&'a str),
    /// A solver works on a task.
    Task {
        /// The task, complete.
        task: &'a Task,
        /// Counts the tries of the task, from 1.
        attempt: u32,
    },
    /// The results are being combined.
    Aggregation {
        /// Tasks that completed.
        completed: u32,
        /// Tasks that failed or were cancelled.
        failed: u32,
    },
}

/// The end of a stage.
#[derive(Clone, Copy, Debug)]
pub enum StageEnd<'a> {
    /// The final text of the work.
    Completed(&'a str),
    /// Why the work failed.
    Failed(&'a Fault),
    /// Why the work was cancelled.
    Cancelled(&'a str),
}

impl<'a> From<&'a TaskEnd> for StageEnd<'a> {
    fn from(end: &'a TaskEnd) -> Self {
        match end {
            TaskEnd::Completed { output } => Self::Completed(output),
            TaskEnd::Failed { fault } => Self::Failed(fault),
            TaskEnd::Cancelled { reason } => Self::Cancelled(reason),
        }
    }
}
