//! Projects records onto three channels for embedders: progress, control and monitor.
//!
//! Names and payloads match those of the agent SDK that this crate replaces. The projection is a fold: the
//! same records give the same events, live, on replay and after a restart. A bookmark is a journal position.
//! All events of one record share one bookmark and are delivered together.

mod project;

use budao_core::{
    Lang,
    event::{Seq, Stage, TaskId},
    fault::{Fault, Operation, Severity, text},
    message::CallId,
    tool::Todo,
};
use serde::Serialize;
use serde_json::{Value, json};

pub use project::Projector;

use crate::Question;

/// Length of `CallSnapshot::input_preview`, in characters.
const PREVIEW: usize = 200;

/// The audience of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    /// For the user: text, thinking, calls and the end of the turn.
    Progress,
    /// For the person who decides about calls: questions and their decisions.
    Control,
    /// For the operator: states, faults, token usage and timings.
    Monitor,
}

/// A position to resume from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bookmark {
    /// Position of the record in its session.
    pub seq: Seq,
    /// Time of the record, in milliseconds since 1970.
    pub timestamp: i64,
}

/// A channel event with its position and channel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Envelope {
    /// Position to resume from after this event.
    pub bookmark: Bookmark,
    /// The channel that carries the event.
    pub channel: Channel,
    /// The event itself; its `type` field names the variant.
    pub event: ChannelEvent,
}

/// The events of all channels. The `type` tag is the variant in snake case, or the name given at the variant.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum ChannelEvent {
    /// A block of thinking begins.
    ThinkChunkStart {
        /// Number of the model request within its turn.
        step: u32,
    },
    /// The next piece of a block of thinking.
    ThinkChunk {
        /// Number of the model request within its turn.
        step: u32,
        /// The added text only.
        delta: String,
    },
    /// A block of thinking ends.
    ThinkChunkEnd {
        /// Number of the model request within its turn.
        step: u32,
    },
    /// The text of an answer begins.
    TextChunkStart {
        /// Number of the model request within its turn.
        step: u32,
    },
    /// The next piece of an answer's text.
    TextChunk {
        /// Number of the model request within its turn.
        step: u32,
        /// The added text only.
        delta: String,
    },
    /// The text of an answer ends.
    TextChunkEnd {
        /// Number of the model request within its turn.
        step: u32,
        /// The complete text; empty if the answer was abandoned and its pieces are void.
        text: String,
    },
    /// A call starts to run.
    #[serde(rename = "tool:start")]
    ToolStart {
        /// The call in state `EXECUTING`.
        call: CallSnapshot,
    },
    /// A call ended, successfully or not.
    #[serde(rename = "tool:end")]
    ToolEnd {
        /// The call in its final state.
        call: CallSnapshot,
    },
    /// A call failed. The `tool:end` of the same call follows.
    #[serde(rename = "tool:error")]
    ToolError {
        /// The call in its final state.
        call: CallSnapshot,
        /// The fault, as rendered for the model.
        error: String,
    },
    /// The turn ended.
    Done {
        /// Number of the turn's last model request.
        step: u32,
        /// `completed`, `interrupted` or `failed`.
        reason: &'static str,
    },
    /// A call or a plan waits for a person's decision.
    PermissionRequired {
        /// The question to answer, with the exact tool and arguments.
        #[serde(flatten)]
        question: Question,
        /// The call in state `APPROVAL_REQUIRED`.
        call: CallSnapshot,
    },
    /// A person answered a question, or it expired.
    PermissionDecided {
        /// Id of the call that the question was about.
        call_id: CallId,
        /// `allow` or `deny`.
        decision: &'static str,
        /// Name of the person or client that answered; `nobody` if the question expired.
        decided_by: String,
        /// The person's message to the model; `expired` if the question expired.
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// The session changed its state.
    StateChanged {
        /// `READY`, `WORKING` or `PAUSED`.
        state: &'static str,
    },
    /// A model request was answered.
    StepComplete {
        /// Number of the model request within its turn.
        step: u32,
        /// Milliseconds from the start of the step to its answer.
        duration_ms: u64,
    },
    /// A fault was recorded.
    Error {
        /// `info`, `warn` or `error`.
        severity: &'static str,
        /// `model`, `tool`, `system` or `lifecycle`.
        phase: &'static str,
        /// The fault, as rendered for the model.
        message: String,
        /// `errorType`, `retryable`, `recommendations` (for people), `modelAdvice`, `code`, `kind`, `facts`,
        /// `attempts`, `traceId`, `causes`; in a pipeline also `stage` and `taskId`.
        detail: Value,
    },
    /// Tokens used by a model request, a compaction or a child session.
    TokenUsage {
        /// Tokens sent to the model.
        input_tokens: u64,
        /// Tokens written by the model.
        output_tokens: u64,
        /// Input and output tokens together.
        total_tokens: u64,
    },
    /// A call ended, successfully or not; the monitor's counterpart of `tool:end`.
    ToolExecuted {
        /// The call in its final state.
        call: CallSnapshot,
    },
    /// A new writer resumed the session after its previous writer was lost.
    AgentResumed {
        /// Always `crash`: the previous writer was lost.
        strategy: &'static str,
        /// Calls that were sealed because their outcome is unknown.
        sealed: Vec<CallId>,
    },
    /// The turn reached another breakpoint, such as `PRE_MODEL` or `TOOL_EXECUTING`.
    BreakpointChanged {
        /// The breakpoint that the turn left.
        previous: &'static str,
        /// The breakpoint that the turn reached.
        current: &'static str,
        /// Time of the record, in milliseconds since 1970.
        timestamp: i64,
    },
    /// The to-do list changed.
    TodoChanged {
        /// The complete list after the change.
        current: Vec<Todo>,
        /// The complete list before the change.
        previous: Vec<Todo>,
    },
    /// A tool read or changed a file.
    FileChanged {
        /// Path of the file, as the tool recorded it.
        path: String,
        /// Time of the record in milliseconds since 1970, not the file's own modification time.
        mtime: i64,
    },
    /// A compaction of the history starts or ends.
    ContextCompression {
        /// `start` or `end`.
        phase: &'static str,
        /// The summary that replaces the old messages; present when `phase` is `end`.
        #[serde(skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
        /// Estimated tokens after the compaction divided by those before; present when `phase` is `end`.
        #[serde(skip_serializing_if = "Option::is_none")]
        ratio: Option<f64>,
    },
    /// A pipeline stage, or one task of its plan, starts.
    StageStart {
        /// `planning`, `solving` or `aggregation`.
        stage: Stage,
        /// The task; present when `stage` is `solving`.
        #[serde(skip_serializing_if = "Option::is_none")]
        task_id: Option<TaskId>,
        /// The question when planning, the task's title when solving, otherwise absent.
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<String>,
    },
    /// A pipeline stage, or one task of its plan, ended. Every `StageStart` has exactly one `StageEnd`.
    StageEnd {
        /// `planning`, `solving` or `aggregation`.
        stage: Stage,
        /// The task; present when `stage` is `solving`.
        #[serde(skip_serializing_if = "Option::is_none")]
        task_id: Option<TaskId>,
        /// `COMPLETED`, `FAILED` or `CANCELLED`.
        state: &'static str,
        /// The output if completed; otherwise the reason for the user.
        #[serde(skip_serializing_if = "String::is_empty")]
        text: String,
    },
    /// A tool published an event of its own.
    ToolCustomEvent {
        /// Name of the tool that published it.
        tool_name: String,
        /// The topic that the tool chose.
        event_type: String,
        /// The payload, verbatim.
        data: Value,
        /// Time of the record, in milliseconds since 1970.
        timestamp: i64,
    },
}

/// The state of a call after one record.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallSnapshot {
    /// Id of the call; unique within its session.
    pub id: CallId,
    /// Name of the tool.
    pub name: String,
    /// `PENDING`, `APPROVAL_REQUIRED`, `APPROVED`, `DENIED`, `EXECUTING`, `COMPLETED`, `FAILED`, `SEALED`.
    pub state: &'static str,
    /// The question about this call and its decision; absent if no question was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// The first 200 characters of the arguments.
    pub input_preview: String,
    /// The output; for a failed call, the data that came with the failure, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// The fault, as rendered for the model; absent unless the call failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// True once the call failed.
    pub is_error: bool,
    /// Time of the first start, in milliseconds since 1970; absent before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<i64>,
    /// Time of the end, in milliseconds since 1970; absent before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<i64>,
    /// Run time in milliseconds; absent before the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Every state of the call so far, oldest first.
    pub audit_trail: Vec<Audit>,
}

/// The question about a call and its decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// True if a question was asked.
    pub required: bool,
    /// `allow` or `deny`; absent while the question is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<&'static str>,
    /// Name of the person or client that answered; `nobody` if the question expired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// Time of the decision, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<i64>,
    /// The person's message to the model; `expired` if the question expired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// One entry of a call's audit trail.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Audit {
    /// The state that the call entered; see [`CallSnapshot::state`].
    pub state: &'static str,
    /// Time of the record, in milliseconds since 1970.
    pub timestamp: i64,
    /// The reason for the change, such as `requested` or `approval granted`.
    pub note: &'static str,
}

impl ChannelEvent {
    /// Renders a fault as an `error` event of the monitor channel.
    #[must_use]
    pub fn of_fault(fault: &Fault, lang: Lang) -> Self {
        Self::error(fault, lang, phase(fault, false), None, None)
    }

    fn error(
        fault: &Fault,
        lang: Lang,
        phase: &'static str,
        stage: Option<Stage>,
        task: Option<&TaskId>,
    ) -> Self {
        let row = fault.row();
        let severity = match row.severity {
            Severity::Info => "info",
            Severity::Warn => "warn",
            Severity::Error | Severity::Critical => "error",
        };
        let error_type: &'static str = row.error_type.into();
        let mut detail = json!({
            "errorType": error_type,
            "retryable": fault.repeat().retryable,
            "recommendations": text::recommendations(fault, lang),
            "modelAdvice": text::model_advice(fault, lang),
            "code": row.code,
            "kind": row.name,
            "facts": fault.detail(),
            "attempts": fault.attempts(),
            "traceId": fault.trace().to_string(),
            "causes": fault.causes(),
        });
        if let Some(stage) = stage {
            detail["stage"] = json!(stage);
        }
        if let Some(task) = task {
            detail["taskId"] = json!(task);
        }
        Self::Error { severity, phase, message: text::model_text(fault, lang), detail }
    }
}

impl CallSnapshot {
    fn new(id: &CallId, name: &str, written: &str, timestamp: i64) -> Self {
        Self {
            id: id.clone(),
            name: name.to_owned(),
            state: "PENDING",
            approval: None,
            input_preview: written.chars().take(PREVIEW).collect(),
            result: None,
            error: None,
            is_error: false,
            started_at: None,
            completed_at: None,
            duration_ms: None,
            audit_trail: vec![Audit { state: "PENDING", timestamp, note: "requested" }],
        }
    }
}

fn phase(fault: &Fault, about_a_tool: bool) -> &'static str {
    match fault.operation() {
        Operation::ModelRequest | Operation::CompactHistory | Operation::CountTokens => "model",
        Operation::ToolCall | Operation::StartTool | Operation::RunHook => "tool",
        _ if about_a_tool => "tool",
        Operation::RunTurn | Operation::ResumeSession | Operation::OpenSession => "lifecycle",
        _ => "system",
    }
}
