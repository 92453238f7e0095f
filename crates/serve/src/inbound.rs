//! Parses the frames that clients send.
//!
//! A frame becomes one [`Inbound`] or one [`FrameRefusal`]; none is dropped silently. Unknown fields are ignored, known
//! fields must have the right type. Where documents and clients of the protocol disagree on a field's place or name,
//! the parser accepts all variants.

mod fields;
mod read;
mod timers;
mod worker;

use budao_core::{
    Fault, Kind, Lang,
    event::{
        CommandId, Decision, Epoch, QuestionId, Seq, SessionId, Settlement, TaskId, TurnNumber,
    },
    fault::{Fact, Operation},
    message::{Block, CallId},
    remote::WorkerReport,
    timer::{TimerId, TimerRequest},
    tool::Mode,
    trace::{SpanId, Trace, parent_of},
};
use budao_remote::{Reconciliation, WorkerOffer};
use serde_json::{Map, Value};

use fields::Fields;
pub use fields::shorten_value;
pub(crate) use read::event_id as read_event_id;

/// Limits for received frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLimits {
    /// A larger frame is answered with a fault.
    pub frame_bytes: usize,
    /// Maximum nesting of JSON.
    pub json_depth: usize,
    /// Maximum length of a command id in bytes.
    pub id_bytes: usize,
}

impl Default for FrameLimits {
    fn default() -> Self {
        Self { frame_bytes: 1024 * 1024, json_depth: 64, id_bytes: 128 }
    }
}

/// A valid frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Inbound {
    /// The session that the frame names.
    pub session: Option<SessionId>,
    /// The id set by the client. A repeated id gets the same answer.
    pub command: Option<CommandId>,
    /// The client's trace (`metadata.traceparent`); empty without one.
    pub trace: Trace,
    /// The client's span in that trace, the parent of the server's spans.
    pub parent: SpanId,
    /// The client's language (`content.preferences.language`); `None` if it is absent or unsupported.
    pub language: Option<Lang>,
    /// The parsed event.
    pub request: Request,
}

/// The requests of a client, one variant per `user.*` event.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// `user.create_session`: opens a session and observes it.
    CreateSession(Box<SessionRequest>),
    /// `user.message`: starts a turn, or queues the message behind the running one.
    Message {
        /// The message's text and other blocks.
        content: Vec<Block>,
        /// Set if the message is a question for plan → solve → aggregate.
        plan: Option<PlanPreference>,
        /// The settings that the message changes first.
        config: MessageConfig,
    },
    /// `user.solve_tasks`: runs given tasks without a planner.
    SolveTasks {
        /// The question that the tasks belong to.
        question: String,
        /// The tasks as received, not validated.
        tasks: Value,
    },
    /// `user.response`: answers an open question.
    Response {
        /// The `step_id` of the question.
        question: QuestionId,
        /// Whether the call or plan may run.
        decision: Decision,
        /// A comment for the model.
        note: Option<String>,
        /// Replacement arguments of a call, or replacement tasks of a plan.
        arguments: Option<Value>,
        /// The digest of the question that the client answers; the engine compares it if present.
        digest: Option<String>,
        /// Whether the permission holds for the rest of the session.
        remember: bool,
    },
    /// `user.revoke_permission`: forgets a remembered permission.
    RevokePermission {
        /// The tool, by its name.
        tool: String,
    },
    /// `user.cancel`: cancels the running turn.
    Cancel {
        /// A free text that is recorded with the cancellation.
        reason: Option<String>,
    },
    /// `user.withdraw`: removes a queued message.
    Withdraw {
        /// The command id of the queued message to withdraw.
        message: CommandId,
    },
    /// `user.settle_doubt`: settles a call whose outcome is unknown.
    SettleDoubt {
        /// The call in doubt.
        call: CallId,
        /// The call was done, was not done, or is left to the model.
        settlement: Settlement,
        /// A comment for the model.
        note: Option<String>,
    },
    /// `user.set_timer`: wakes the session at a time or on a schedule.
    SetTimer {
        /// The id of the timer; `None` means the command's id.
        timer: Option<TimerId>,
        /// When the timer fires.
        when: TimerRequest,
        /// The message that the session receives when the timer fires.
        message: String,
    },
    /// `user.cancel_timer`: cancels a timer.
    CancelTimer {
        /// The timer to cancel.
        timer: TimerId,
    },
    /// `user.retry`: continues the last turn, which failed.
    Retry {
        /// The number of the turn to continue; `None` means the last one.
        turn: Option<TurnNumber>,
    },
    /// `user.cancel_task`: cancels one task of the plan.
    CancelTask {
        /// The task of the current plan to cancel.
        task: TaskId,
    },
    /// `user.restart_task` or its alias `user.retry_task`.
    RestartTask {
        /// The task of the current plan to restart.
        task: TaskId,
    },
    /// `user.cancel_plan`: cancels the current plan.
    CancelPlan,
    /// `user.replan`: requests another plan.
    Replan {
        /// A new question; `None` keeps the current one.
        question: Option<String>,
    },
    /// `user.offer_tools`: offers tools to the named session, or to all sessions of the tenant.
    OfferTools(Box<WorkerOffer>),
    /// `user.tool_claim`: claims a call that was offered.
    ToolClaim(ClaimRef),
    /// `user.tool_output`: shows progress of a claimed call.
    ToolOutput {
        /// The claimed call.
        claim: ClaimRef,
        /// The new output only.
        delta: String,
    },
    /// `user.tool_result`: ends a claimed call.
    ToolResult {
        /// The claimed call.
        claim: ClaimRef,
        /// The end of the call, or the reconciliation of an interrupted one.
        result: Box<WorkerResult>,
    },
    /// `user.drain_worker`: the process takes no new calls.
    DrainWorker {
        /// The id of the process.
        worker_id: String,
    },
    /// `user.close_session`: ends the session; a later message opens it again.
    CloseSession,
    /// `user.ack`, in any of its five forms.
    Ack(Cursor),
    /// `user.request_state`: requests a signed state.
    RequestState,
    /// `user.reconnect_with_state`: resumes with a signed state.
    ReconnectWithState {
        /// The signed state; `None` if the session's owner only names the session.
        signed_state: Option<String>,
        /// The last event that the client has. `None` means the state's position, or the beginning without a state.
        cursor: Option<Cursor>,
    },
    /// `user.reconnect`: resumes with a cursor.
    Reconnect {
        /// The last event that the client has; `None` means the beginning.
        cursor: Option<Cursor>,
    },
}

/// Names a call and the process that claims it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRef {
    /// The call, by its `step_id`.
    pub call: CallId,
    /// The attempt that was offered.
    pub attempt: u32,
    /// The id of the process.
    pub worker_id: String,
}

/// The end of a call, as a worker sends it.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkerResult {
    /// The function returned or failed.
    Report(WorkerReport),
    /// The answer of the tool's reconcile function about an interrupted call.
    Reconciliation(Reconciliation),
}

/// A position in a session's history, as sent by a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The session, if the client sent an event id, which contains it.
    pub session: Option<SessionId>,
    /// The incarnation of the history, if the client sent it.
    pub epoch: Option<Epoch>,
    /// The last position that the client has; 0 means none.
    pub seq: Seq,
}

/// Options of plan → solve → aggregate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanPreference {
    /// True if a person must confirm the plan before it runs.
    pub confirm: bool,
}

/// The settings that a message changes before it is answered: `content.config`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MessageConfig {
    /// `model`: the models from now on; each must be one of the server's models.
    pub models: Option<Vec<String>>,
    /// `answer_schema`: the JSON Schema of the final answers from now on; null for any text.
    pub answer_schema: Option<Value>,
}

/// What happens to a turn when the last observer of its session leaves.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum OnDisconnect {
    /// The turn continues, at most for `config::Limits::unobserved_timeout`.
    #[default]
    Continue,
    /// The turn is cancelled.
    Cancel,
}

/// The options of `user.create_session`. The server may refuse or adjust them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionRequest {
    /// `preferences.language`; `None` if it is absent or unsupported.
    pub language: Option<Lang>,
    /// `session_name`, or `project_name`.
    pub title: Option<String>,
    /// `config.model`: one model, `a,b` or a list. Each must be one of the server's models.
    pub models: Option<Vec<String>>,
    /// `config.system`: replaces the server's system prompt.
    pub system: Option<String>,
    /// `config.permission_mode`; applies only if it is stricter than the server's.
    pub mode: Option<Mode>,
    /// `config.tools`: the permitted tools, by name or `prefix*`; `None` means the server's default.
    pub tools: Option<Vec<String>>,
    /// `config.max_steps`: the maximum steps per turn, at least 1.
    pub max_steps: Option<u32>,
    /// `config.patience_ms`: how long a turn waits for its model service; 0 for not at all.
    pub patience_ms: Option<u64>,
    /// `config.answer_schema`: the JSON Schema of the final answers.
    pub answer_schema: Option<Value>,
    /// `config.on_disconnect`; `None` means the server's default.
    pub on_disconnect: Option<OnDisconnect>,
    /// `config.mode`: messages are questions for plan → solve → aggregate.
    pub plan: Option<PlanPreference>,
    /// Short texts set by the client: `client_id`, `client_version`, `app_version`, `source`.
    pub labels: Vec<(&'static str, String)>,
}

impl Request {
    /// Whether the request is one of a worker: an offer, a claim, progress, a result or a drain.
    #[must_use]
    pub fn is_of_worker(&self) -> bool {
        matches!(
            self,
            Self::OfferTools(_)
                | Self::ToolClaim(_)
                | Self::ToolOutput { .. }
                | Self::ToolResult { .. }
                | Self::DrainWorker { .. }
        )
    }

    /// The settings that the request changes; none unless it is a message.
    pub(crate) fn config(&self) -> MessageConfig {
        match self {
            Self::Message { config, .. } => config.clone(),
            _ => MessageConfig::default(),
        }
    }

    /// The event's name without `user.`, as used in answers.
    #[must_use]
    pub fn action(&self) -> &'static str {
        match self {
            Self::CreateSession(_) => "create_session",
            Self::Message { .. } => "message",
            Self::SolveTasks { .. } => "solve_tasks",
            Self::Response { .. } => "response",
            Self::RevokePermission { .. } => "revoke_permission",
            Self::Cancel { .. } => "cancel",
            Self::Withdraw { .. } => "withdraw",
            Self::SettleDoubt { .. } => "settle_doubt",
            Self::SetTimer { .. } => "set_timer",
            Self::CancelTimer { .. } => "cancel_timer",
            Self::Retry { .. } => "retry",
            Self::CancelTask { .. } => "cancel_task",
            Self::RestartTask { .. } => "restart_task",
            Self::CancelPlan => "cancel_plan",
            Self::Replan { .. } => "replan",
            Self::OfferTools(_) => "offer_tools",
            Self::ToolClaim(_) => "tool_claim",
            Self::ToolOutput { .. } => "tool_output",
            Self::ToolResult { .. } => "tool_result",
            Self::DrainWorker { .. } => "drain_worker",
            Self::CloseSession => "close_session",
            Self::Ack(_) => "ack",
            Self::RequestState => "request_state",
            Self::ReconnectWithState { .. } => "reconnect_with_state",
            Self::Reconnect { .. } => "reconnect",
        }
    }
}

/// A refused frame: the fault, and all fields that could be parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct FrameRefusal {
    /// The violated rule, with field, provided value and limit.
    pub fault: Fault,
    /// The event's name without `user.`, if it is a known event.
    pub action: Option<&'static str>,
    /// The session that the frame names, if it is valid.
    pub session: Option<SessionId>,
    /// The id set by the client, if it is valid.
    pub command: Option<CommandId>,
    /// The client's language, if it is supported.
    pub language: Option<Lang>,
}

impl From<Fault> for FrameRefusal {
    fn from(fault: Fault) -> Self {
        Self { fault, action: None, session: None, command: None, language: None }
    }
}

/// All events that a client may send.
pub const EVENTS: [&str; 26] = [
    "user.create_session",
    "user.message",
    "user.solve_tasks",
    "user.response",
    "user.revoke_permission",
    "user.cancel",
    "user.withdraw",
    "user.settle_doubt",
    "user.set_timer",
    "user.cancel_timer",
    "user.retry",
    "user.cancel_task",
    "user.restart_task",
    "user.retry_task",
    "user.cancel_plan",
    "user.replan",
    "user.offer_tools",
    "user.tool_claim",
    "user.tool_output",
    "user.tool_result",
    "user.drain_worker",
    "user.close_session",
    "user.ack",
    "user.request_state",
    "user.reconnect_with_state",
    "user.reconnect",
];

/// Parses a frame.
///
/// # Errors
/// A refusal that names the field and the rule.
pub fn parse(text: &str, limits: &FrameLimits) -> Result<Inbound, FrameRefusal> {
    let frame = parse_object(text, limits)?;
    let fields = Fields::root(&frame);
    // The answer contains these fields even if another field is invalid.
    let command = read_command_id(&fields, limits);
    let session = read_session_id(&fields);
    let language = read_language(&fields);
    let mut refusal = FrameRefusal {
        fault: Fault::new(Kind::BadRequest, Operation::AcceptFrame),
        action: None,
        session: session.clone().ok().flatten(),
        command: command.clone().ok().flatten(),
        language,
    };
    let read = || -> Result<Inbound, Fault> {
        let event = read_event_name(&fields)?;
        refusal.action = event.strip_prefix("user.");
        let (command, session) = (command?, session?);
        let trace = fields.object("metadata")?.and_then(|metadata| read_trace(&metadata));
        let (session, request) = read::request(event, &fields, session)?;
        let (trace, parent) = trace.unwrap_or_default();
        Ok(Inbound { session, command, trace, parent, language, request })
    };
    read().map_err(|fault| {
        let named = refusal.action.map(|action| format!("user.{action}"));
        let fault = match named {
            Some(event) => fault.with(Fact::EventName, event),
            None => fault,
        };
        FrameRefusal { fault, ..refusal }
    })
}

/// Parses the frame as a JSON object within the size and depth limits.
pub(crate) fn parse_object(text: &str, limits: &FrameLimits) -> Result<Map<String, Value>, Fault> {
    if text.len() > limits.frame_bytes {
        return Err(too_large(text.len(), limits.frame_bytes));
    }
    if fields::is_deeper(text.as_bytes(), limits.json_depth) {
        return Err(Fault::new(Kind::JsonTooDeep, Operation::AcceptFrame)
            .with(Fact::Field, "frame")
            .with(Fact::Constraint, format!("nested at most {} levels deep", limits.json_depth))
            .with(Fact::Limit, limits.json_depth)
            .with(Fact::LimitName, "json_depth"));
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(frame)) => Ok(frame),
        Ok(other) => Err(fields::wrong_type_fault("frame", "an object", &other)),
        Err(error) => {
            let position = fields::position(text, error.line(), error.column());
            Err(Fault::new(Kind::MalformedJson, Operation::AcceptFrame)
                .with(Fact::Position, position)
                .with(Fact::Excerpt, fields::excerpt(text, position))
                .with(Fact::Field, "frame")
                .with(Fact::Constraint, "the frame is one JSON object")
                .caused_by(&error))
        }
    }
}

/// The fault of a frame above `limit`. Above the second limit, the caller also ends the connection.
#[must_use]
pub fn too_large(actual: usize, limit: usize) -> Fault {
    Fault::new(Kind::FrameTooLarge, Operation::AcceptFrame)
        .with(Fact::Field, "frame")
        .with(Fact::Constraint, format!("at most {limit} bytes"))
        .with(Fact::Limit, limit)
        .with(Fact::Actual, actual)
        .with(Fact::LimitName, "frame_bytes")
}

fn read_event_name(fields: &Fields<'_>) -> Result<&'static str, Fault> {
    let name = fields.required_text("event", "the name of the event")?;
    EVENTS.into_iter().find(|known| *known == name).ok_or_else(|| unknown_event_fault(name))
}

fn unknown_event_fault(name: &str) -> Fault {
    let shown = crate::texts::shorten(name);
    let likeness = |known: &&str| strsim::jaro_winkler(known, &shown);
    let nearest = EVENTS
        .into_iter()
        .filter(|known| likeness(known) > 0.85)
        .max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    let fault = Fault::new(Kind::UnknownEvent, Operation::AcceptFrame)
        .with(Fact::Field, "event")
        .with(Fact::ProvidedValue, Value::from(shown.clone()))
        .with(Fact::EventName, shown)
        .with(Fact::Allowed, EVENTS.map(str::to_owned).to_vec());
    match nearest {
        Some(nearest) => fault.with(Fact::Nearest, vec![nearest.to_owned()]),
        None => fault,
    }
}

/// The `session_id` at the top level, or in `content`, where some clients put it.
fn read_session_id(fields: &Fields<'_>) -> Result<Option<SessionId>, Fault> {
    let named = match fields.text("session_id")? {
        Some(id) => Some(("session_id", id)),
        None => fields
            .get("content")
            .and_then(|content| content.get("session_id"))
            .and_then(Value::as_str)
            .map(|id| ("content.session_id", id)),
    };
    let Some((field, id)) = named else { return Ok(None) };
    id.parse().map(Some).map_err(|_| {
        Fault::new(Kind::UnknownSession, Operation::AcceptFrame)
            .with(Fact::Session, crate::texts::shorten(id))
            .with(Fact::Field, field)
            .with(Fact::Constraint, "the id of a session is a UUID")
            .with(Fact::ProvidedValue, Value::from(crate::texts::shorten(id)))
    })
}

fn read_command_id(fields: &Fields<'_>, limits: &FrameLimits) -> Result<Option<CommandId>, Fault> {
    let Some(id) = fields.text("command_id")? else { return Ok(None) };
    let id = CommandId::from(id);
    let rule = if id.0.is_empty() {
        "command_id is not empty"
    } else if id.0.len() > limits.id_bytes {
        let fault = fields::constraint_fault("command_id", "length in bytes ≤ 128", &id.0);
        let rule = format!("command_id has at most {} bytes", limits.id_bytes);
        return Err(fault
            .with(Fact::Constraint, rule)
            .with(Fact::Limit, limits.id_bytes)
            .with(Fact::LimitName, "id_bytes"));
    } else if id.is_own() {
        "command_id does not begin with `own-`, which is reserved"
    } else if id.0.chars().any(char::is_control) {
        "command_id has no control characters"
    } else {
        return Ok(Some(id));
    };
    Err(fields::constraint_fault("command_id", rule, &id.0))
}

fn read_language(fields: &Fields<'_>) -> Option<Lang> {
    let preferences = fields.get("content")?.get("preferences")?;
    Lang::from_tag(preferences.get("language")?.as_str()?)
}

fn read_trace(metadata: &Fields<'_>) -> Option<(Trace, SpanId)> {
    let header = metadata.get("traceparent").and_then(Value::as_str)?;
    parent_of(header)
}
