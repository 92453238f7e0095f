//! The OpenAPI document, generated from the handlers.

use serde_json::Value;
use utoipa::{
    Modify, OpenApi, ToSchema,
    openapi::security::{Http, HttpAuthScheme, SecurityScheme},
};

use super::{
    fault_renderings::{self, FaultRenderings, OperatorRendering},
    fork, frames, nodes, sessions, stats, tools, traces,
    views::{
        CommandResponse, CreateSessionResponse, QuestionView, SessionItem, SessionList, SessionView,
    },
};
use crate::{ag_ui, mcp, problem::Problem, sse, stats::Report, ui_stream};

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
        description = "Sessions over HTTP and server-sent events. Clients reach the same sessions over WebSocket \
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
        fork::fork,
        frames::frames,
        sessions::export,
        fault_renderings::fault_renderings,
        sse::events,
        stats::stats,
        nodes::nodes,
        traces::trace,
        tools::tools,
        ag_ui::run,
        ag_ui::join,
        ag_ui::cancel,
        ag_ui::info,
        ag_ui::runtime_run,
        ag_ui::runtime_connect,
        ag_ui::runtime_stop,
        mcp::message,
        ui_stream::send,
        ui_stream::resume,
        ui_stream::cancel,
    ),
    components(schemas(
        CommandResponse, QuestionView, SessionItem, SessionList, CreateSessionResponse, SessionView, Problem,
        FaultRenderings, OperatorRendering, Report, NewSession, NewMessage, NewAnswer, NewCancel, NewCommand, NewFork,
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

/// The options of a new session: the content of `user.create_session`. All are optional.
#[derive(ToSchema)]
#[expect(dead_code, reason = "bodies are read as events; this describes them")]
pub(super) struct NewSession {
    /// 1 to 128 bytes, not beginning with `own-`. A repeated id returns the same session. The header `Idempotency-Key`
    /// sets it if it is absent here.
    command_id: Option<String>,
    /// A name for lists, truncated at 120 characters.
    session_name: Option<String>,
    /// `language`: a tag such as `en` or `zh-CN`. An unsupported tag means the server's default language.
    #[schema(value_type = Option<Object>)]
    preferences: Option<Value>,
    /// `model`, `system`, `permission_mode`, `tools`, `max_steps`, `patience_ms`, `answer_schema`, `on_disconnect`, `mode`,
    /// `confirm`; absent ones have the server's defaults.
    #[schema(value_type = Option<Object>)]
    config: Option<Value>,
}

/// A message that starts a turn, or waits behind the running one.
#[derive(ToSchema)]
#[expect(dead_code, reason = "bodies are read as events; this describes them")]
pub(super) struct NewMessage {
    /// The message: a text that is not blank, or an object with `text` and optionally `images`, `mode`, `confirm`
    /// and `config`: `model` and `answer_schema` (the JSON Schema of the answer, null for any text) from this message on.
    #[schema(value_type = Object)]
    content: Value,
    /// 1 to 128 bytes, not beginning with `own-`. A repeated id gets the same answer and has no second effect. The
    /// header `Idempotency-Key` sets it if it is absent here.
    command_id: Option<String>,
}

/// The answer to an open question about a call or a plan. A question accepts one answer.
#[derive(ToSchema)]
#[expect(dead_code, reason = "bodies are read as events; this describes them")]
pub(super) struct NewAnswer {
    /// The `step_id` of the question.
    step_id: String,
    /// True lets the call or the plan run; false denies it.
    confirmed: bool,
    /// The question's `digest`. If it is present, the answer applies only to the arguments that were shown.
    digest: Option<String>,
    /// A comment that the model receives.
    feedback: Option<String>,
    /// `session` allows the tool for the rest of the session, if the question offers it.
    remember: Option<String>,
    /// Arguments that replace those of the call; the server validates them again.
    #[schema(value_type = Option<Object>)]
    arguments: Option<Value>,
    /// 1 to 128 bytes, not beginning with `own-`. A repeated id gets the same answer and has no second effect.
    command_id: Option<String>,
}

/// Cancels the running turn; without one it has no effect.
#[derive(ToSchema)]
#[expect(dead_code, reason = "bodies are read as events; this describes them")]
pub(super) struct NewCancel {
    /// A free text that is recorded with the cancellation.
    reason: Option<String>,
    /// 1 to 128 bytes, not beginning with `own-`. A repeated id gets the same answer and has no second effect.
    command_id: Option<String>,
}

/// Where a fork begins to differ from its session.
#[derive(ToSchema)]
#[expect(dead_code, reason = "the body is read field by field; this describes it")]
pub(super) struct NewFork {
    /// The `seq` of a `user.message` that a turn has begun to answer: the fork has what came before it. Absent, the
    /// fork has all turns that ended.
    before: Option<u64>,
    /// 1 to 128 bytes. A repeated id returns the same fork. The header `Idempotency-Key` sets it if it is absent here.
    command_id: Option<String>,
}

/// A command for the session, as the frame that a WebSocket client sends.
#[derive(ToSchema)]
#[expect(dead_code, reason = "bodies are read as events; this describes them")]
pub(super) struct NewCommand {
    /// `user.solve_tasks`, `user.cancel_task` … Acks, reconnects and `user.request_state` are refused: they need a
    /// connection.
    event: String,
    /// The content of that event; absent if the event has none.
    #[schema(value_type = Option<Object>)]
    content: Option<Value>,
    /// 1 to 128 bytes, not beginning with `own-`. A repeated id gets the same answer and has no second effect.
    command_id: Option<String>,
}
