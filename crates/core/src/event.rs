//! Everything that can happen to a session, in our own words.
//!
//! Events are facts in the past tense: small, written before anyone is told, never changed. An event at
//! its position is a [`Record`]. Gateways *project* records onto their protocols; a record becomes at
//! most one frame per gateway, so where a protocol wants two frames, two facts are recorded.
//!
//! `docs/events.md` is the page that settles what each one means.

mod command;
mod ids;
mod parts;
mod settings;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    fault::{Fault, Kind, Operation},
    message::{Block, CallId, ModelStop, Usage},
    scrub::Scrubber,
    time::Timestamp,
    tool::{Failure, Outcome, Repair, Todo},
    trace::Trace,
};

pub use command::{Answer, Command, CommandBody, Decision};
pub use ids::{CommandId, Epoch, QuestionId, Seq, SessionId, TaskId, TurnNumber};
pub use parts::{Scope, SessionEnd, Stage, StopReason, Task, TaskEnd};
pub use settings::{Origin, Settings, Thinking, engine_of};

/// An event at its position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Whose.
    pub session: SessionId,
    /// Of which incarnation.
    pub epoch: Epoch,
    /// Where.
    pub seq: Seq,
    /// When, UTC.
    pub at: Timestamp,
    /// The trace it belongs to.
    pub trace: Trace,
    /// The turn it belongs to, 0 for none.
    pub turn: TurnNumber,
    /// What happened.
    pub event: Event,
}

impl Record {
    /// Never changes, on replay neither: `{session}.{epoch}.{seq}`.
    #[must_use]
    pub fn event_id(&self) -> String {
        format!("{}.{}.{}", self.session, self.epoch, self.seq)
    }
}

/// An event on its way into the journal, which gives it its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// When, UTC.
    pub at: Timestamp,
    /// The trace it belongs to.
    pub trace: Trace,
    /// The turn it belongs to, 0 for none.
    pub turn: TurnNumber,
    /// What happened.
    pub event: Event,
}

/// Everything that can happen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    // ── the session ──
    /// It was opened.
    SessionOpened {
        /// What it was set to.
        settings: Settings,
        /// Where it comes from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        origin: Option<Origin>,
    },
    /// It was set to something else.
    SettingsChanged {
        /// All settings, not the difference.
        settings: Settings,
    },
    /// It was taken up again after its writer was gone.
    SessionResumed {
        /// Calls whose outcome is unknown and was sealed as such.
        sealed: Vec<CallId>,
    },
    /// It ended. A later message re-opens it.
    SessionEnded {
        /// How.
        end: SessionEnd,
        /// What went wrong.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<Fault>,
    },

    // ── messages and turns ──
    /// A message was accepted; it will be answered.
    MessageAccepted {
        /// The command that brought it.
        command: CommandId,
        /// What it says.
        content: Vec<Block>,
    },
    /// Plan → solve → aggregate was accepted; it will run, as a turn.
    PipelineAccepted {
        /// The command that brought it.
        command: CommandId,
        /// What is asked.
        question: String,
        /// Must a person confirm the plan?
        #[serde(default)]
        confirm: bool,
        /// Tasks that were given, so that no planner is asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tasks: Option<Vec<Task>>,
    },
    /// A message that waited was taken back; it will not be answered.
    MessageWithdrawn {
        /// The command that brought it.
        command: CommandId,
        /// Who took it back.
        by: String,
    },
    /// A turn began, to answer that message.
    TurnStarted {
        /// The message's command.
        message: CommandId,
    },
    /// Somebody asked to stop the turn.
    CancelRequested {
        /// Who.
        by: String,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Somebody asked to close the session while a turn was running. The turn is stopped first; what was
    /// accepted before is not begun any more; then the session ends.
    CloseRequested {
        /// Who.
        by: String,
    },
    /// The turn ended. Nothing of it follows.
    TurnEnded {
        /// Why.
        stop: StopReason,
        /// What went wrong, if it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<Fault>,
        /// Model requests made.
        steps: u32,
        /// What they cost.
        usage: Usage,
    },

    // ── the model ──
    /// The model is being asked.
    StepStarted {
        /// Counts the model requests of the turn from 1.
        step: u32,
        /// Which try.
        attempt: u32,
        /// Which model.
        model: String,
    },
    /// Words came.
    TextDelta {
        /// Of which step.
        step: u32,
        /// The words.
        text: String,
    },
    /// Thought came.
    ThinkingDelta {
        /// Of which step.
        step: u32,
        /// The thought.
        text: String,
    },
    /// What had come of an answer is void: the try failed or was cancelled.
    AnswerAbandoned {
        /// Of which step.
        step: u32,
        /// Of which try.
        attempt: u32,
    },
    /// The model's answer is complete.
    ModelAnswered {
        /// Of which step.
        step: u32,
        /// The whole answer.
        content: Vec<Block>,
        /// Why it stopped.
        stop: ModelStop,
        /// What it cost.
        usage: Usage,
    },
    /// Old history is too long for the model and is being summarised.
    CompactionStarted {
        /// Before which step.
        step: u32,
        /// Estimated tokens.
        tokens: u64,
    },
    /// Old history was replaced, for the model, by a summary. The records stay.
    HistoryCompacted {
        /// How many of the oldest messages the summary stands for. The question of the running turn stays
        /// behind it as it was asked.
        messages: u64,
        /// The summary.
        summary: String,
        /// Was it written by a model, or cut by rule because that failed?
        by_model: bool,
        /// Estimated tokens before.
        tokens_before: u64,
        /// Estimated tokens after.
        tokens_after: u64,
        /// What the summary cost.
        #[serde(default)]
        usage: Usage,
    },

    // ── calls ──
    /// A person must decide about a call.
    QuestionAsked {
        /// Names the question.
        question: QuestionId,
        /// The call.
        call: CallId,
        /// The tool.
        tool: String,
        /// The exact arguments that would run.
        arguments: Value,
        /// Repairs made to get them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        repairs: Vec<Repair>,
        /// Hash over tool and arguments; the answer is bound to it.
        digest: String,
        /// May it run again after a crash?
        idempotent: bool,
        /// Why it is asked.
        reason: String,
        /// Unanswered by then, it is denied.
        expires_at: Timestamp,
    },
    /// The question was answered, once and for all.
    QuestionAnswered {
        /// Which question.
        question: QuestionId,
        /// The call.
        call: CallId,
        /// The answer.
        decision: Decision,
        /// Who.
        by: String,
        /// A word for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
        /// Other arguments to run with; they are checked again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Value>,
    },
    /// Nobody answered in time.
    QuestionExpired {
        /// Which question.
        question: QuestionId,
        /// The call.
        call: CallId,
    },
    /// A call starts. This is on disk before the tool runs.
    ToolCallStarted {
        /// The call.
        call: CallId,
        /// The tool.
        tool: String,
        /// What it runs with.
        arguments: Value,
        /// Repairs made to get them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        repairs: Vec<Repair>,
        /// Which try.
        attempt: u32,
        /// May it run again after a crash?
        idempotent: bool,
    },
    /// Output of a running call.
    ToolOutputDelta {
        /// The call.
        call: CallId,
        /// The output.
        text: String,
    },
    /// A running call had something to say.
    ToolCallAnnotated {
        /// The call.
        call: CallId,
        /// The tool.
        tool: String,
        /// What about.
        topic: String,
        /// What.
        data: Value,
    },
    /// A call ended. Exactly one per call.
    ToolCallEnded {
        /// The call.
        call: CallId,
        /// The tool.
        tool: String,
        /// How.
        outcome: Outcome,
        /// How long it ran.
        duration_ms: u64,
    },
    /// A call, or a stage of a pipeline, runs a session of its own.
    ChildOpened {
        /// The child.
        child: SessionId,
        /// The call that runs it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
        /// The stage it works on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stage: Option<Stage>,
        /// The task it works on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<TaskId>,
    },
    /// A child did what it was opened for, or gave up. What it used is the turn's too.
    ChildEnded {
        /// The child.
        child: SessionId,
        /// The call that ran it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
        /// The stage it worked on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stage: Option<Stage>,
        /// The task it worked on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<TaskId>,
        /// What it used.
        usage: Usage,
    },
    /// The to-do list was replaced.
    TodosChanged {
        /// The whole list.
        todos: Vec<Todo>,
    },
    /// A tool has seen a file in this state; a later write is checked against it.
    FileSeen {
        /// Path inside the workspace.
        path: String,
        /// Hash of the content; none if it does not exist.
        digest: Option<String>,
    },

    // ── what went wrong ──
    /// Something failed.
    FaultRaised {
        /// What.
        fault: Fault,
        /// What it is about.
        #[serde(default)]
        scope: Scope,
    },
    /// It will be tried again.
    RetryScheduled {
        /// What is being tried.
        operation: Operation,
        /// What went wrong.
        kind: Kind,
        /// The try that failed.
        attempt: u32,
        /// The try that comes.
        next_attempt: u32,
        /// All tries.
        max_attempts: u32,
        /// How long we wait.
        wait_ms: u64,
        /// When it comes.
        due_at: Timestamp,
        /// What it is about.
        #[serde(default)]
        scope: Scope,
    },
    /// It worked in the end.
    Recovered {
        /// What was being tried.
        operation: Operation,
        /// What had gone wrong.
        kind: Kind,
        /// Tries it took.
        attempts: u32,
        /// From the first failure to now.
        elapsed_ms: u64,
        /// What it is about.
        #[serde(default)]
        scope: Scope,
    },
    /// We gave up.
    RecoveryFailed {
        /// On what.
        fault: Fault,
        /// What it is about.
        #[serde(default)]
        scope: Scope,
    },
    /// Something arrived for a turn that is over; it was dropped.
    LateArrivalDropped {
        /// What it was.
        operation: Operation,
        /// Of which turn.
        of_turn: TurnNumber,
        /// Of which call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
    },
    /// Somebody who was watching was lost.
    ObserverLost {
        /// Why, as the transport says.
        close_code: u16,
        /// Why, in words.
        close_reason: String,
        /// The last record they had.
        last_seq: Seq,
        /// How long they had been there.
        uptime_ms: u64,
    },

    // ── plan → solve → aggregate ──
    /// Tasks are being found for a question.
    PlanStarted {
        /// The question.
        question: String,
    },
    /// The plan is made.
    PlanMade {
        /// Its tasks.
        tasks: Vec<Task>,
        /// What it is, in words.
        summary: String,
    },
    /// What the planner wrote is no plan.
    PlanRefused {
        /// Why.
        fault: Fault,
    },
    /// The plan was given up before it was solved.
    PlanCancelled {
        /// Why.
        reason: String,
    },
    /// Somebody asked for another plan; what runs is stopped first.
    ReplanRequested {
        /// The question it is for.
        question: String,
        /// Who.
        by: String,
    },
    /// Work on a task began.
    TaskStarted {
        /// The task.
        task: Task,
        /// Which try.
        attempt: u32,
    },
    /// Somebody asked to stop work on a task. It ends when the work has stopped.
    TaskStopRequested {
        /// The task.
        task: TaskId,
        /// Who.
        by: String,
        /// Is it to be worked on again from the start?
        restart: bool,
    },
    /// Work on a task ended.
    TaskEnded {
        /// The task.
        task: TaskId,
        /// How.
        end: TaskEnd,
    },
    /// A task will be worked on again from the start.
    TaskRestarted {
        /// The task.
        task: TaskId,
        /// Which try comes.
        attempt: u32,
        /// Why.
        reason: String,
    },
    /// Results are being combined.
    AggregateStarted {
        /// How many tasks worked.
        completed: u32,
        /// How many did not.
        failed: u32,
    },
    /// Results are combined, or that failed.
    AggregateEnded {
        /// The whole.
        end: TaskEnd,
    },
    /// The pipeline is through.
    PipelineEnded {
        /// Did every task work?
        complete: bool,
    },

    // ── everything else ──
    /// A fact of a gateway's own, kept with the session.
    Annotated {
        /// Whose and what: `serve.nonce`.
        topic: String,
        /// The fact.
        data: Value,
    },
}

impl Event {
    /// The bytes that are kept.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128);
        self.encode_into(&mut bytes);
        bytes
    }

    /// The same, behind what is there.
    pub fn encode_into(&self, bytes: &mut Vec<u8>) {
        serde_json::to_writer(bytes, self).expect("events have string keys and finite numbers");
    }

    /// Reads what was kept.
    ///
    /// # Errors
    /// When the bytes are not an event of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// The same event with the texts of its faults scrubbed: what may be kept. Payloads stay verbatim.
    #[must_use]
    pub fn scrub(mut self, scrubber: &Scrubber) -> Self {
        if self.fault().is_none() {
            return self;
        }
        let fault = match &mut self {
            Self::FaultRaised { fault, .. }
            | Self::RecoveryFailed { fault, .. }
            | Self::PlanRefused { fault }
            | Self::SessionEnded { fault: Some(fault), .. }
            | Self::TurnEnded { fault: Some(fault), .. }
            | Self::ToolCallEnded { outcome: Outcome::Failed(Failure { fault, .. }), .. }
            | Self::TaskEnded { end: TaskEnd::Failed { fault }, .. }
            | Self::AggregateEnded { end: TaskEnd::Failed { fault } } => fault,
            _ => return self,
        };
        let whole = Fault::new(fault.kind(), fault.operation());
        *fault = std::mem::replace(fault, whole).scrub(scrubber);
        self
    }

    /// The fault it tells of, if it tells of one.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Self::FaultRaised { fault, .. }
            | Self::RecoveryFailed { fault, .. }
            | Self::PlanRefused { fault } => Some(fault),
            Self::SessionEnded { fault, .. } | Self::TurnEnded { fault, .. } => fault.as_ref(),
            Self::ToolCallEnded { outcome, .. } => outcome.fault(),
            Self::TaskEnded { end: TaskEnd::Failed { fault }, .. }
            | Self::AggregateEnded { end: TaskEnd::Failed { fault } } => Some(fault),
            _ => None,
        }
    }

    /// The tool it is about, if it is about one.
    #[must_use]
    pub fn tool(&self) -> Option<&str> {
        match self {
            Self::ToolCallStarted { tool, .. }
            | Self::ToolCallEnded { tool, .. }
            | Self::ToolCallAnnotated { tool, .. }
            | Self::QuestionAsked { tool, .. } => Some(tool),
            _ => None,
        }
    }
}
