//! Inbound: what a client sent, read strictly where it matters and tolerantly where clients differ.
//!
//! A frame becomes one [`Inbound`] or one [`Refusal`]; nothing is dropped in silence. Fields this version
//! does not know are tolerated, fields it knows must have their type. Where the documents and the clients
//! of the protocol disagree on a place or a name, every one of them is read.

mod fields;
mod read;

use budao_core::{
    Fault, Kind, Lang,
    event::{CommandId, Decision, Epoch, QuestionId, Seq, SessionId, TaskId},
    fault::{Fact, Operation},
    message::Block,
    tool::Mode,
    trace::{SpanId, Trace, parent_of},
};
use serde_json::{Map, Value};

use fields::Fields;
pub use fields::provided;
pub(crate) use read::event_id as read_event_id;

/// Bounds on what a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A larger frame is answered with a fault.
    pub frame_bytes: usize,
    /// A larger frame ends the connection.
    pub frame_bytes_closed: usize,
    /// Levels of JSON.
    pub json_depth: usize,
    /// Bytes of a command's id.
    pub id_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes: 1024 * 1024,
            frame_bytes_closed: 16 * 1024 * 1024,
            json_depth: 64,
            id_bytes: 128,
        }
    }
}

/// A frame that was understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Inbound {
    /// The session it names.
    pub session: Option<SessionId>,
    /// The id the client gave it; the same id gives the same answer.
    pub command: Option<CommandId>,
    /// The trace the client brought (`metadata.traceparent`).
    pub trace: Trace,
    /// The piece of work of that trace that asks.
    pub parent: SpanId,
    /// The language its sender wants to read (`content.preferences.language`), when it is one we speak.
    pub language: Option<Lang>,
    /// What it asks for.
    pub request: Request,
}

/// What a client can ask for.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// `user.create_session`.
    CreateSession(Box<SessionRequest>),
    /// `user.message`.
    Message {
        /// What it says.
        content: Vec<Block>,
        /// Set when it is a question for plan → solve → aggregate.
        plan: Option<PlanPreference>,
    },
    /// `user.solve_tasks`.
    SolveTasks {
        /// The question behind them.
        question: String,
        /// The tasks, as sent.
        tasks: Value,
    },
    /// `user.response`.
    Response {
        /// The `step_id` of the question.
        question: QuestionId,
        /// The answer.
        decision: Decision,
        /// A word for the model.
        note: Option<String>,
        /// Other arguments, or other tasks, to go on with.
        arguments: Option<Value>,
        /// What the answer is bound to, if the client checks it.
        digest: Option<String>,
    },
    /// `user.cancel`.
    Cancel {
        /// Why.
        reason: Option<String>,
    },
    /// `user.withdraw`.
    Withdraw {
        /// The command id of the message that is taken back.
        message: CommandId,
    },
    /// `user.cancel_task`.
    CancelTask {
        /// Which.
        task: TaskId,
    },
    /// `user.restart_task`, also as `user.retry_task`.
    RestartTask {
        /// Which.
        task: TaskId,
    },
    /// `user.cancel_plan`.
    CancelPlan,
    /// `user.replan`.
    Replan {
        /// For another question.
        question: Option<String>,
    },
    /// `user.close_session`.
    CloseSession,
    /// `user.ack`, in any of its five shapes.
    Ack(Cursor),
    /// `user.request_state`.
    RequestState,
    /// `user.reconnect_with_state`.
    ReconnectWithState {
        /// The state, unless the owner only names the session.
        signed_state: Option<String>,
        /// The last event the client has; none is the state's own position, or the beginning.
        cursor: Option<Cursor>,
    },
    /// `user.reconnect`.
    Reconnect {
        /// The last event the client has; none is the beginning.
        cursor: Option<Cursor>,
    },
}

/// A place in a session's history, as a client names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Which session, if the client said it with the event's id.
    pub session: Option<SessionId>,
    /// Which history, if the client said.
    pub epoch: Option<Epoch>,
    /// The last event it has; 0 is none.
    pub seq: Seq,
}

/// How a plan is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanPreference {
    /// Must a person confirm the plan?
    pub confirm: bool,
}

/// What happens to a run that nobody watches any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum OnDisconnect {
    /// It goes on.
    #[default]
    Continue,
    /// It is cancelled.
    Cancel,
}

/// What a new session is wanted to be. All of it is a wish: the server decides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionRequest {
    /// `preferences.language`, when it is one we speak.
    pub language: Option<Lang>,
    /// `session_name`, or `project_name`.
    pub title: Option<String>,
    /// `config.model`.
    pub model: Option<String>,
    /// `config.system`.
    pub system: Option<String>,
    /// `config.permission_mode`.
    pub mode: Option<Mode>,
    /// `config.tools`.
    pub tools: Option<Vec<String>>,
    /// `config.max_steps`.
    pub max_steps: Option<u32>,
    /// `config.on_disconnect`.
    pub on_disconnect: Option<OnDisconnect>,
    /// `config.mode`: messages are questions for plan → solve → aggregate.
    pub plan: Option<PlanPreference>,
    /// Short texts of the client's own: `client_id`, `client_version`, `app_version`, `source`.
    pub labels: Vec<(&'static str, String)>,
}

impl Request {
    /// The event without `user.`, as answers name it.
    #[must_use]
    pub fn action(&self) -> &'static str {
        match self {
            Self::CreateSession(_) => "create_session",
            Self::Message { .. } => "message",
            Self::SolveTasks { .. } => "solve_tasks",
            Self::Response { .. } => "response",
            Self::Cancel { .. } => "cancel",
            Self::Withdraw { .. } => "withdraw",
            Self::CancelTask { .. } => "cancel_task",
            Self::RestartTask { .. } => "restart_task",
            Self::CancelPlan => "cancel_plan",
            Self::Replan { .. } => "replan",
            Self::CloseSession => "close_session",
            Self::Ack(_) => "ack",
            Self::RequestState => "request_state",
            Self::ReconnectWithState { .. } => "reconnect_with_state",
            Self::Reconnect { .. } => "reconnect",
        }
    }
}

/// Why a frame was refused, with as much of it as could be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// What is wrong: the field, the rule, what was provided, the limit.
    pub fault: Fault,
    /// The event it names, without `user.`, if it is one we know.
    pub action: Option<&'static str>,
    /// The session it names.
    pub session: Option<SessionId>,
    /// The id the client gave it.
    pub command: Option<CommandId>,
    /// The language its sender wants to read.
    pub language: Option<Lang>,
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self { fault, action: None, session: None, command: None, language: None }
    }
}

/// The events a client may send.
pub const EVENTS: [&str; 16] = [
    "user.create_session",
    "user.message",
    "user.solve_tasks",
    "user.response",
    "user.cancel",
    "user.withdraw",
    "user.cancel_task",
    "user.restart_task",
    "user.retry_task",
    "user.cancel_plan",
    "user.replan",
    "user.close_session",
    "user.ack",
    "user.request_state",
    "user.reconnect_with_state",
    "user.reconnect",
];

/// Reads a frame.
///
/// # Errors
/// One refusal that names the field and the rule.
pub fn parse(text: &str, limits: &Limits) -> Result<Inbound, Refusal> {
    let frame = object(text, limits)?;
    let fields = Fields::top(&frame);
    // Whatever can be read of these goes into the answer, also when something else is wrong.
    let command = command_id(&fields, limits);
    let session = session_id(&fields);
    let language = language(&fields);
    let mut refusal = Refusal {
        fault: Fault::new(Kind::BadRequest, Operation::AcceptFrame),
        action: None,
        session: session.clone().ok().flatten(),
        command: command.clone().ok().flatten(),
        language,
    };
    let read = || -> Result<Inbound, Fault> {
        let event = known_event(&fields)?;
        refusal.action = event.strip_prefix("user.");
        let (command, session) = (command?, session?);
        let trace = fields.object("metadata")?.and_then(|metadata| trace(&metadata));
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
        Refusal { fault, ..refusal }
    })
}

/// The frame as an object, within its bounds.
pub(crate) fn object(text: &str, limits: &Limits) -> Result<Map<String, Value>, Fault> {
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
        Ok(other) => Err(fields::wrong_type("frame", "an object", &other)),
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

/// The fault of a frame beyond the limit. Beyond the second limit the connection ends too.
#[must_use]
pub fn too_large(actual: usize, limit: usize) -> Fault {
    Fault::new(Kind::FrameTooLarge, Operation::AcceptFrame)
        .with(Fact::Field, "frame")
        .with(Fact::Constraint, format!("at most {limit} bytes"))
        .with(Fact::Limit, limit)
        .with(Fact::Actual, actual)
        .with(Fact::LimitName, "frame_bytes")
}

fn known_event(fields: &Fields<'_>) -> Result<&'static str, Fault> {
    let name = fields.required_text("event", "the name of the event")?;
    EVENTS.into_iter().find(|known| *known == name).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Fault {
    let shown = crate::texts::brief(name);
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

/// The session at the top, or in the content where some clients put it.
fn session_id(fields: &Fields<'_>) -> Result<Option<SessionId>, Fault> {
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
            .with(Fact::Session, crate::texts::brief(id))
            .with(Fact::Field, field)
            .with(Fact::Constraint, "the id of a session is a UUID")
            .with(Fact::ProvidedValue, Value::from(crate::texts::brief(id)))
    })
}

fn command_id(fields: &Fields<'_>, limits: &Limits) -> Result<Option<CommandId>, Fault> {
    let Some(id) = fields.text("command_id")? else { return Ok(None) };
    let id = CommandId::from(id);
    let rule = if id.0.is_empty() {
        "command_id is not empty"
    } else if id.0.len() > limits.id_bytes {
        let fault = fields::violated("command_id", "length in bytes ≤ 128", &id.0);
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
    Err(fields::violated("command_id", rule, &id.0))
}

fn language(fields: &Fields<'_>) -> Option<Lang> {
    let preferences = fields.get("content")?.get("preferences")?;
    Lang::from_tag(preferences.get("language")?.as_str()?)
}

fn trace(metadata: &Fields<'_>) -> Option<(Trace, SpanId)> {
    let header = metadata.get("traceparent").and_then(Value::as_str)?;
    parent_of(header)
}
