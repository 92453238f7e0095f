//! Forks of a session over HTTP.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, Request, State},
    response::{IntoResponse as _, Response},
};
use budao_core::{
    Fault, Kind,
    engine::{ForkPoint, ForkRequest},
    event::{CommandId, SessionId},
    fault::{Fact, Operation},
};
use http::{HeaderMap, StatusCode, header};
use serde_json::{Map, Value, json};

use super::{
    middleware::{Caller, fault_response},
    sessions::{IDEMPOTENCY_KEY, session_id},
    views::CreateSessionResponse,
};
use crate::{
    front_end::json_body,
    problem::Problem,
    server::{OpenedSession, Server, session_of},
};

/// Opens a session with a copy of the conversation before a message. The copied session stays as it is.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/fork",
    params(("session" = String, Path, description = "The session's id, a UUID")),
    request_body = super::openapi::NewFork,
    responses(
        (status = 201, description = "The fork was opened", body = CreateSessionResponse),
        (status = 200, description = "The same command id has already opened the fork", body = CreateSessionResponse),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn fork(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let forked = async {
        let parent = session_id(&session)?;
        let body = json_body(&server, request, server.config.shared_limits.frame_bytes).await?;
        fork_session(&server, &caller, parent, &body, &headers).await
    };
    match forked.await {
        Ok(opened) => opened_response(opened),
        Err(fault) => fault_response(&server, fault, &caller),
    }
}

fn opened_response(OpenedSession { session, is_new }: OpenedSession) -> Response {
    let location = [(header::LOCATION, format!("/v1/sessions/{session}"))];
    let events = format!("/v1/sessions/{session}/events");
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let body = CreateSessionResponse { session_id: session, existed: !is_new, events };
    (status, location, Json(body)).into_response()
}

async fn fork_session(
    server: &Server,
    caller: &Caller,
    parent: SessionId,
    body: &Map<String, Value>,
    headers: &HeaderMap,
) -> Result<OpenedSession, Fault> {
    let meta = server.session_meta.check(&*server.journal, parent, &caller.identity).await?;
    let point = read_fork_point(body.get("before"))?;
    let command = read_command_id(body.get("command_id"), headers)?;
    // Another fork with the same id is another session, so the parent is part of what names it.
    let named = command.map(|command| CommandId(format!("fork {parent} {command}").into()));
    let session = named.map(|command| session_of(&caller.identity, &command));
    if let Some(session) = session
        && server.journal.info(session).await?.is_some_and(|info| info.head > 0)
    {
        return Ok(OpenedSession { session, is_new: false });
    }
    let request = ForkRequest { parent, session, point };
    let tenant = meta.tenant().unwrap_or_default();
    server.count_session(tenant).await?;
    let forked = server.engine.fork(request).await;
    if forked.is_err() {
        server.uncount_session(tenant);
    }
    match (forked, session) {
        (Ok(session), _) => {
            tracing::info!(%session, %parent, "session forked");
            Ok(OpenedSession { session, is_new: true })
        }
        (Err(fault), Some(session)) if fault.kind() == Kind::CommandRepeated => {
            Ok(OpenedSession { session, is_new: false })
        }
        (Err(fault), _) => Err(fault),
    }
}

fn read_fork_point(before: Option<&Value>) -> Result<ForkPoint, Fault> {
    match before {
        None | Some(Value::Null) => Ok(ForkPoint::End),
        Some(value) => match value.as_u64() {
            Some(seq) => Ok(ForkPoint::BeforeMessage(seq)),
            None => Err(field_fault("before", "the `seq` of a message, or nothing", value)),
        },
    }
}

fn read_command_id(named: Option<&Value>, headers: &HeaderMap) -> Result<Option<CommandId>, Fault> {
    let expected = "1 to 128 bytes without control characters";
    let header = headers.get(IDEMPOTENCY_KEY).and_then(|key| key.to_str().ok());
    let text = match (named, header) {
        (None | Some(Value::Null), None) => return Ok(None),
        (None | Some(Value::Null), Some(key)) => key,
        (Some(value), _) => {
            value.as_str().ok_or_else(|| field_fault("command_id", expected, value))?
        }
    };
    if text.is_empty() || text.len() > 128 || text.chars().any(char::is_control) {
        return Err(field_fault("command_id", expected, &json!(text)));
    }
    Ok(Some(CommandId::from(text)))
}

fn field_fault(field: &'static str, rule: &str, value: &Value) -> Fault {
    let shown: String = value.to_string().chars().take(120).collect();
    Fault::new(Kind::ConstraintViolated, Operation::ServeRequest)
        .with(Fact::Field, field)
        .with(Fact::Constraint, format!("{field} is {rule}"))
        .with(Fact::ProvidedValue, json!(shown))
}
