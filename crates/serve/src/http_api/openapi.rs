//! The OpenAPI document, generated from the handlers.

use serde_json::Value;
use utoipa::{
    Modify, OpenApi, ToSchema,
    openapi::security::{Http, HttpAuthScheme, SecurityScheme},
};

use super::{
    fault_renderings::{self, FaultRenderings, OperatorRendering},
    frames, sessions, stats,
    views::{CommandAccepted, QuestionView, SessionItem, SessionList, SessionOpened, SessionView},
};
use crate::{problem::Problem, sse, stats::Report};

/// The OpenAPI document as served and as checked in.
#[must_use]
pub fn openapi() -> String {
    let mut text = Api::openapi().to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "budao serve",
        description = "Sessions over HTTP and server-sent events. The same sessions are reached over WebSocket \
                       at `/ws`; docs/protocol.md describes the events."
    ),
    paths(
        sessions::create,
        sessions::list,
        sessions::get,
        sessions::delete,
        sessions::message,
        sessions::answer,
        sessions::cancel,
        sessions::command,
        frames::frames,
        sessions::export,
        fault_renderings::tellings,
        sse::events,
        stats::stats,
    ),
    components(schemas(
        CommandAccepted, QuestionView, SessionItem, SessionList, SessionOpened, SessionView, Problem,
        FaultRenderings, OperatorRendering, Report, NewSession, NewMessage, NewAnswer, NewCancel, NewCommand,
    )),
    modifiers(&Bearer),
    security(("bearer" = [])),
)]
struct Api;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let components = openapi.components.get_or_insert_default();
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        components.add_security_scheme("bearer", scheme);
    }
}

/// What a new session may be given; the content of `user.create_session`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "bodies are read as events; this describes them")]
pub(super) struct NewSession {
    /// The same id gives the same session. `Idempotency-Key` says the same.
    command_id: Option<String>,
    /// A short name for lists.
    session_name: Option<String>,
    /// `language`: a tag such as `en` or `zh-CN`.
    #[schema(value_type = Option<Object>)]
    preferences: Option<Value>,
    /// `model`, `system`, `permission_mode`, `tools`, `max_steps`, `patience_ms`, `on_disconnect`, `mode`.
    #[schema(value_type = Option<Object>)]
    config: Option<Value>,
}

/// Something to answer.
#[derive(ToSchema)]
#[expect(dead_code, reason = "bodies are read as events; this describes them")]
pub(super) struct NewMessage {
    /// Words, or an object with `text`.
    #[schema(value_type = Object)]
    content: Value,
    /// The same id gives the same answer. `Idempotency-Key` says the same.
    command_id: Option<String>,
}

/// The answer to a question.
#[derive(ToSchema)]
#[expect(dead_code, reason = "bodies are read as events; this describes them")]
pub(super) struct NewAnswer {
    /// The question's.
    step_id: String,
    /// Go on?
    confirmed: bool,
    /// What was asked about, so that the answer is for exactly that.
    digest: Option<String>,
    /// A word for the model.
    feedback: Option<String>,
    /// Other arguments to run with.
    #[schema(value_type = Option<Object>)]
    arguments: Option<Value>,
    /// The same id gives the same answer.
    command_id: Option<String>,
}

/// Why the turn is stopped.
#[derive(ToSchema)]
#[expect(dead_code, reason = "bodies are read as events; this describes them")]
pub(super) struct NewCancel {
    /// Why.
    reason: Option<String>,
    /// The same id gives the same answer.
    command_id: Option<String>,
}

/// Any `user.*` event that asks something of a session.
#[derive(ToSchema)]
#[expect(dead_code, reason = "bodies are read as events; this describes them")]
pub(super) struct NewCommand {
    /// `user.solve_tasks`, `user.cancel_task` …
    event: String,
    /// As the event has it.
    #[schema(value_type = Option<Object>)]
    content: Option<Value>,
    /// The same id gives the same answer.
    command_id: Option<String>,
}
