//! Everything that can happen to a session, in our own words.
//!
//! Events are facts in the past tense: small, written before anyone is told, never changed. An event at
//! its position is a [`Record`]. Gateways *project* records onto their protocols; a record becomes at
//! most one frame per gateway, so where a protocol wants two frames, two facts are recorded.
//!
//! `docs/events.md` is the page that settles what each one means.

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    fault::{Fault, Kind, Operation},
    lang::Lang,
    message::{Block, CallId, ModelStop, Usage},
    scrub::Scrubber,
    time::Timestamp,
    tool::{Failure, Outcome, Permissions, Repair, Todo},
    trace::Trace,
};

/// Names a session: a UUIDv7.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(pub Uuid);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for SessionId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// Names the incarnation of a history. It changes only when history was replaced (an import, a restored
/// backup) and has nothing to do with who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u32);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// A position in a session's history: 1, 2, 3 … without gaps. 0 is before the first.
pub type Seq = u64;

/// Counts the turns of a session from 1. 0 is "no turn".
pub type TurnNumber = u64;

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

/// What a session was set to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The language people are spoken to in.
    pub language: Lang,
    /// The model, as the engine's configuration names it.
    pub model: String,
    /// Standing instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<Arc<str>>,
    /// The directory tools work in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Who may call what.
    pub permissions: Permissions,
    /// A short name for lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// For searching.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Model requests in one turn; the system's limit if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    /// Tokens one turn may use; the system's limit if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turn_tokens: Option<u64>,
    /// The most tokens of one answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_answer_tokens: Option<u32>,
    /// How deeply the model thinks before it answers; not at all if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// Tools on offer, by name or `prefix*`; all if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// How a gateway's extras ride along.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Value>,
}

/// How deeply a model thinks before it answers.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Thinking {
    /// A little.
    Low,
    /// As much as most tasks need.
    Medium,
    /// As much as it can.
    High,
}

impl Thinking {
    /// The tokens a model may think with, where it is told a number.
    #[must_use]
    pub fn tokens(self) -> u32 {
        match self {
            Self::Low => 2_048,
            Self::Medium => 8_192,
            Self::High => 24_576,
        }
    }
}

/// Where a session comes from, if not from a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A call of a parent session runs it.
    Call {
        /// The parent.
        parent: SessionId,
        /// The call.
        call: CallId,
        /// How deep below a person's session: 1, 2 …
        depth: u32,
    },
    /// It works on a stage of a parent's plan.
    Stage {
        /// The parent.
        parent: SessionId,
        /// Which stage.
        stage: Stage,
        /// Which task, when solving.
        task: Option<TaskId>,
        /// How deep below a person's session.
        depth: u32,
    },
    /// It is a copy of another up to a position.
    Fork {
        /// The original.
        parent: SessionId,
        /// Copied up to and including.
        at: Seq,
    },
}

/// A stage of plan → solve → aggregate.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Stage {
    /// Tasks are being found.
    Planning,
    /// Tasks are being worked on.
    Solving,
    /// Results are being combined.
    Aggregation,
}

/// Names a task of a plan.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub Arc<str>);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A task of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Unique in its plan.
    pub id: TaskId,
    /// What it is about, in a line.
    pub title: String,
    /// What the solver is told.
    pub prompt: String,
    /// Whatever else the planner wrote.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Value>,
}

/// Names a command, chosen by whoever sends it; the same id gives the same answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CommandId(pub Arc<str>);

impl CommandId {
    /// An id made here for a caller who sent none. Nobody can repeat it, so it need not be remembered.
    #[must_use]
    pub fn own(unique: Uuid) -> Self {
        Self(format!("own-{}", unique.simple()).into())
    }

    /// Was it made here? Gateways refuse such ids from outside.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.0.starts_with("own-")
    }
}

impl fmt::Display for CommandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for CommandId {
    fn from(id: String) -> Self {
        Self(id.into())
    }
}

impl From<&str> for CommandId {
    fn from(id: &str) -> Self {
        Self(id.into())
    }
}

/// Names a question, unique in its session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QuestionId(pub Arc<str>);

impl fmt::Display for QuestionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a person said to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Go on.
    Allow,
    /// Do not.
    Deny,
}

/// Why a turn ended.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum StopReason {
    /// The model was done.
    EndTurn,
    /// The model ran into its output limit.
    MaxTokens,
    /// The turn used all its model requests.
    MaxTurnRequests,
    /// The model declined.
    Refusal,
    /// Somebody stopped it.
    Cancelled,
    /// It failed; the fault says how.
    Failed,
}

/// How a session ended. A later message re-opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SessionEnd {
    /// Somebody closed it.
    Closed,
    /// Nothing can go on.
    Error,
}

/// What a fault or a retry is about, besides the turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scope {
    /// The step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// The call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// The tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// The task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
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
    TextCame {
        /// Of which step.
        step: u32,
        /// The words.
        text: String,
    },
    /// Thought came.
    ThoughtCame {
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
        /// How many of the oldest messages the summary stands for.
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
    CallStarted {
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
    OutputCame {
        /// The call.
        call: CallId,
        /// The output.
        text: String,
    },
    /// A running call had something to say.
    CallNoted {
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
    CallEnded {
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
    Noted {
        /// Whose and what: `serve.nonce`.
        topic: String,
        /// The fact.
        data: Value,
    },
}

/// How work on a task ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskEnd {
    /// It worked.
    Completed {
        /// What came out.
        output: String,
    },
    /// It did not.
    Failed {
        /// What went wrong.
        fault: Fault,
    },
    /// Somebody stopped it.
    Cancelled {
        /// Why.
        reason: String,
    },
}

impl Event {
    /// The bytes that are kept.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("events have string keys and finite numbers")
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
    pub fn scrubbed(mut self, scrubber: &Scrubber) -> Self {
        if self.fault().is_none() {
            return self;
        }
        let fault = match &mut self {
            Self::FaultRaised { fault, .. }
            | Self::RecoveryFailed { fault, .. }
            | Self::PlanRefused { fault }
            | Self::SessionEnded { fault: Some(fault), .. }
            | Self::TurnEnded { fault: Some(fault), .. }
            | Self::CallEnded { outcome: Outcome::Failed(Failure { fault, .. }), .. }
            | Self::TaskEnded { end: TaskEnd::Failed { fault }, .. }
            | Self::AggregateEnded { end: TaskEnd::Failed { fault } } => fault,
            _ => return self,
        };
        let whole = Fault::new(fault.kind(), fault.operation());
        *fault = std::mem::replace(fault, whole).scrubbed(scrubber);
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
            Self::CallEnded { outcome, .. } => outcome.fault(),
            Self::TaskEnded { end: TaskEnd::Failed { fault }, .. }
            | Self::AggregateEnded { end: TaskEnd::Failed { fault } } => Some(fault),
            _ => None,
        }
    }

    /// The tool it is about, if it is about one.
    #[must_use]
    pub fn tool(&self) -> Option<&str> {
        match self {
            Self::CallStarted { tool, .. }
            | Self::CallEnded { tool, .. }
            | Self::CallNoted { tool, .. }
            | Self::QuestionAsked { tool, .. } => Some(tool),
            _ => None,
        }
    }
}

/// What anyone allowed may ask of a session. Durable, with an id, taken up by whoever writes the session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// Chosen by the sender; the same id gives the same answer.
    pub id: CommandId,
    /// Who sends it.
    pub by: String,
    /// The trace it belongs to, if the sender brought one.
    #[serde(default)]
    pub trace: Trace,
    /// What is asked.
    pub ask: Ask,
}

/// The things that can be asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Answer this.
    Message {
        /// What it says.
        content: Vec<Block>,
    },
    /// Here is the answer to a question.
    Decide {
        /// Which question.
        question: QuestionId,
        /// The answer.
        decision: Decision,
        /// A word for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
        /// Other arguments to run with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Value>,
        /// What the answer is bound to, if the sender checks it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<String>,
    },
    /// Stop the turn.
    Cancel {
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Be set to this.
    Settings {
        /// All settings.
        settings: Box<Settings>,
    },
    /// End the session. A running turn is stopped first, as by a cancel.
    Close,
    /// Make a plan for this question, solve it, combine the results.
    Plan {
        /// The question.
        question: String,
        /// Must a person confirm the plan?
        #[serde(default)]
        confirm: bool,
    },
    /// Solve these tasks, without a planner.
    Solve {
        /// The question behind them.
        question: String,
        /// The tasks, as sent.
        tasks: Value,
    },
    /// Stop one task.
    CancelTask {
        /// Which.
        task: TaskId,
    },
    /// Work on one task again from the start.
    RestartTask {
        /// Which.
        task: TaskId,
    },
    /// Give up the plan.
    CancelPlan,
    /// Make another plan.
    Replan {
        /// For another question.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        question: Option<String>,
    },
    /// Keep a gateway's fact with the session.
    Note {
        /// Whose and what.
        topic: String,
        /// The fact.
        data: Value,
    },
    /// Record that somebody who was watching was lost.
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
}

/// The one answer to a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It was taken up; the position after which its effects are found.
    Accepted {
        /// The head before it.
        at: Seq,
    },
    /// It was not.
    Rejected {
        /// Why.
        fault: Fault,
    },
}
