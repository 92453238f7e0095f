//! Records projected onto three channels for embedders: progress, control, monitor.
//!
//! Names and payloads are those of the agent SDK this replaces, so that its readers feel at home. The
//! projection is a fold over records: the same records give the same events, live, on replay and after a
//! restart. A bookmark is a position in the journal, so it stays unambiguous for ever; the events of one
//! record share one bookmark and are delivered together.

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

/// Characters of arguments that are shown in a snapshot.
const PREVIEW: usize = 200;

/// Whom an event is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    /// What a user follows.
    Progress,
    /// What a person must decide.
    Control,
    /// What an operator follows.
    Monitor,
}

/// A place to go on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bookmark {
    /// The record's position.
    pub seq: Seq,
    /// When it was made, in milliseconds since 1970.
    pub timestamp: i64,
}

/// An event with where it stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Envelope {
    /// Where to go on from after this event.
    pub bookmark: Bookmark,
    /// Whom it is for.
    pub channel: Channel,
    /// What happened.
    pub event: ChannelEvent,
}

/// What happened, in the words of the channels.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum ChannelEvent {
    /// Thought begins.
    ThinkChunkStart {
        /// The step.
        step: u32,
    },
    /// More thought.
    ThinkChunk {
        /// The step.
        step: u32,
        /// The thought.
        delta: String,
    },
    /// Thought ends.
    ThinkChunkEnd {
        /// The step.
        step: u32,
    },
    /// Words begin.
    TextChunkStart {
        /// The step.
        step: u32,
    },
    /// More words.
    TextChunk {
        /// The step.
        step: u32,
        /// The words.
        delta: String,
    },
    /// Words end. `text` is all of them, or empty if they are void.
    TextChunkEnd {
        /// The step.
        step: u32,
        /// All words.
        text: String,
    },
    /// A call starts.
    #[serde(rename = "tool:start")]
    ToolStart {
        /// The call.
        call: CallSnapshot,
    },
    /// A call ended, well or not.
    #[serde(rename = "tool:end")]
    ToolEnd {
        /// The call.
        call: CallSnapshot,
    },
    /// A call failed.
    #[serde(rename = "tool:error")]
    ToolError {
        /// The call.
        call: CallSnapshot,
        /// What the model was told.
        error: String,
    },
    /// The turn is over.
    Done {
        /// The last step.
        step: u32,
        /// `completed`, `interrupted` or `failed`.
        reason: &'static str,
    },
    /// A person must decide.
    PermissionRequired {
        /// The question to answer, with exactly what would happen.
        #[serde(flatten)]
        question: Question,
        /// The call.
        call: CallSnapshot,
    },
    /// A person decided, or nobody did in time.
    PermissionDecided {
        /// The call.
        call_id: CallId,
        /// `allow` or `deny`.
        decision: &'static str,
        /// Who.
        decided_by: String,
        /// A word for the model.
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// The session does something else now.
    StateChanged {
        /// `READY`, `WORKING` or `PAUSED`.
        state: &'static str,
    },
    /// A model request is through.
    StepComplete {
        /// The step.
        step: u32,
        /// How long it took.
        duration_ms: u64,
    },
    /// Something failed.
    Error {
        /// `info`, `warn` or `error`.
        severity: &'static str,
        /// `model`, `tool`, `system` or `lifecycle`.
        phase: &'static str,
        /// What, in words.
        message: String,
        /// `errorType`, `retryable`, `recommendations`, `code` and more.
        detail: Value,
    },
    /// What a model request cost.
    TokenUsage {
        /// Read.
        input_tokens: u64,
        /// Written.
        output_tokens: u64,
        /// Both.
        total_tokens: u64,
    },
    /// A call is finished, failed ones too.
    ToolExecuted {
        /// The call.
        call: CallSnapshot,
    },
    /// The session was taken up again.
    AgentResumed {
        /// `crash`: somebody else had it.
        strategy: &'static str,
        /// Calls whose outcome is unknown.
        sealed: Vec<CallId>,
    },
    /// The turn is at another point.
    BreakpointChanged {
        /// Where it was.
        previous: &'static str,
        /// Where it is.
        current: &'static str,
        /// When.
        timestamp: i64,
    },
    /// The to-do list changed.
    TodoChanged {
        /// Now.
        current: Vec<Todo>,
        /// Before.
        previous: Vec<Todo>,
    },
    /// A tool saw a file change.
    FileChanged {
        /// Which.
        path: String,
        /// When it was seen.
        mtime: i64,
    },
    /// Old history is being summarised, or was.
    ContextCompression {
        /// `start` or `end`.
        phase: &'static str,
        /// The summary, at the end.
        #[serde(skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
        /// Tokens after over tokens before, at the end.
        #[serde(skip_serializing_if = "Option::is_none")]
        ratio: Option<f64>,
    },
    /// A stage of a pipeline, or a task of its plan, begins.
    StageStart {
        /// `planning`, `solving` or `aggregation`.
        stage: Stage,
        /// The task, when solving.
        #[serde(skip_serializing_if = "Option::is_none")]
        task_id: Option<TaskId>,
        /// What it is about.
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<String>,
    },
    /// A stage, or a task, ended. Every start has one end.
    StageEnd {
        /// `planning`, `solving` or `aggregation`.
        stage: Stage,
        /// The task, when solving.
        #[serde(skip_serializing_if = "Option::is_none")]
        task_id: Option<TaskId>,
        /// `COMPLETED`, `FAILED` or `CANCELLED`.
        state: &'static str,
        /// What came out, or why nothing did.
        #[serde(skip_serializing_if = "String::is_empty")]
        text: String,
    },
    /// A tool had something to say.
    ToolCustomEvent {
        /// The tool.
        tool_name: String,
        /// What about.
        event_type: String,
        /// What.
        data: Value,
        /// When.
        timestamp: i64,
    },
}

/// A call as it stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallSnapshot {
    /// Which.
    pub id: CallId,
    /// The tool.
    pub name: String,
    /// `PENDING`, `APPROVAL_REQUIRED`, `APPROVED`, `DENIED`, `EXECUTING`, `COMPLETED`, `FAILED`, `SEALED`.
    pub state: &'static str,
    /// What became of the question, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// The beginning of its arguments.
    pub input_preview: String,
    /// What it gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Did it fail?
    pub is_error: bool,
    /// When it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<i64>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<i64>,
    /// How long it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Its states in order.
    pub audit_trail: Vec<Audit>,
}

/// What became of a question.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// There was one.
    pub required: bool,
    /// `allow` or `deny`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<&'static str>,
    /// Who.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<i64>,
    /// A word for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// One state of a call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Audit {
    /// The state.
    pub state: &'static str,
    /// When it came to it.
    pub timestamp: i64,
    /// Why.
    pub note: &'static str,
}

impl ChannelEvent {
    /// A fault, as an operator follows it.
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
