//! Sessions over HTTP: create, send, answer, cancel, list, get, delete, export.

use std::sync::Arc;

use axum::{
    Extension, Json,
    body::{Body, Bytes},
    extract::{Path, Query, Request, State},
    response::{IntoResponse as _, Response},
};
use budao_core::{
    Fault, Kind, Timestamp,
    event::{Seq, SessionId},
    fault::{Fact, Operation},
    trace::Trace,
};
use budao_journal::{Filter, PageLimits, StoredRecord, fold};
use futures::stream;
use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    middleware::{Caller, fault_response},
    openapi::{NewAnswer, NewCancel, NewCommand, NewMessage, NewSession},
    stats::require_operator,
    views::{CommandResponse, CreateSessionResponse, SessionItem, SessionList, SessionView},
};
use crate::{
    commands::command_body,
    front_end::json_body,
    inbound::{self, Inbound, Request as ClientRequest},
    problem::Problem,
    server::{CommandRequest, Server},
    session_meta,
    stats::FaultSelector,
};

/// The header with a command's id.
pub(super) const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Upper bound of sessions per page of a list.
const LIST_MAX: usize = 100;
/// Upper bound of sessions looked up for a page of those that a fault hit; further ones are on the next page.
const HITS_LOOKED_UP: usize = 1_000;
/// Records read per chunk of an export.
const PAGE: PageLimits = PageLimits { records: 1024, bytes: 512 * 1024 };

type ServerState = State<Arc<Server>>;

/// Parses the body as the `user.*` event that the route stands for.
fn parse_event(
    server: &Server,
    event: Option<&str>,
    session: Option<SessionId>,
    headers: &HeaderMap,
    mut frame: Map<String, Value>,
) -> Result<Inbound, Fault> {
    if let Some(event) = event {
        frame.insert("event".to_owned(), event.into());
    }
    if let Some(session) = session {
        frame.insert("session_id".to_owned(), session.to_string().into());
    }
    let key = headers.get(IDEMPOTENCY_KEY).and_then(|key| key.to_str().ok());
    if let Some(key) = key {
        frame.entry("command_id").or_insert_with(|| key.into());
    }
    let text = Value::Object(frame).to_string();
    inbound::parse(&text, &server.inbound_limits()).map_err(|refusal| refusal.fault)
}

fn respond_or_fault<T>(
    server: &Server,
    caller: &Caller,
    result: Result<T, Fault>,
    respond: impl FnOnce(T) -> Response,
) -> Response {
    match result {
        Ok(value) => respond(value),
        Err(fault) => fault_response(server, fault, caller),
    }
}

pub(super) fn session_id(text: &str) -> Result<SessionId, Fault> {
    text.parse().map_err(|_| {
        Fault::new(Kind::UnknownSession, Operation::ServeRequest)
            .with(Fact::Session, text.chars().take(80).collect::<String>())
    })
}

/// Opens a session. The caller becomes its owner.
#[utoipa::path(
    post,
    path = "/v1/sessions",
    request_body = NewSession,
    responses(
        (status = 201, description = "The session was opened", body = CreateSessionResponse),
        (status = 200, description = "The same command id has already opened the session", body = CreateSessionResponse),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn create(
    State(server): ServerState,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let opened = async {
        let mut content =
            json_body(&server, request, server.config.shared_limits.frame_bytes).await?;
        let command = content.remove("command_id");
        let mut frame = Map::new();
        frame.insert("content".to_owned(), Value::Object(content));
        frame.extend(command.map(|command| ("command_id".to_owned(), command)));
        let inbound = parse_event(&server, Some("user.create_session"), None, &headers, frame)?;
        let ClientRequest::CreateSession(creation) = inbound.request else {
            return Err(Fault::new(Kind::Bug, Operation::ServeRequest));
        };
        server.open(&caller.identity, *creation, inbound.command.as_ref()).await
    };
    respond_or_fault(&server, &caller, opened.await, |opened| {
        let session_id = opened.session;
        let events = format!("/v1/sessions/{session_id}/events");
        let location = [(header::LOCATION, format!("/v1/sessions/{session_id}"))];
        let status = if opened.is_new { StatusCode::CREATED } else { StatusCode::OK };
        let body = CreateSessionResponse { session_id, existed: !opened.is_new, events };
        (status, location, Json(body)).into_response()
    })
}

/// Sends a message. Its effects follow as events of the session.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/messages",
    params(("session" = String, Path, description = "The session's id, a UUID")),
    request_body = NewMessage,
    responses(
        (status = 202, description = "The command is durable; its effects follow as events", body = CommandResponse),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn message(
    State(server): ServerState,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let sent = async {
        let frame = json_body(&server, request, server.config.shared_limits.frame_bytes).await?;
        submit(&server, &caller, &session, Some("user.message"), &headers, frame).await
    };
    respond_or_fault(&server, &caller, sent.await, accepted_response)
}

/// Answers an open question. A question accepts one answer.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/answers",
    params(("session" = String, Path, description = "The session's id, a UUID")),
    request_body = NewAnswer,
    responses(
        (status = 202, description = "The command is durable; its effects follow as events", body = CommandResponse),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn answer(
    State(server): ServerState,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let sent = async {
        let body = json_body(&server, request, server.config.shared_limits.frame_bytes).await?;
        let mut frame = body.clone();
        frame.insert("content".to_owned(), Value::Object(body));
        submit(&server, &caller, &session, Some("user.response"), &headers, frame).await
    };
    respond_or_fault(&server, &caller, sent.await, accepted_response)
}

/// Cancels the running turn; without one it has no effect.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/cancel",
    params(("session" = String, Path, description = "The session's id, a UUID")),
    request_body = NewCancel,
    responses(
        (status = 202, description = "The command is durable; its effects follow as events", body = CommandResponse),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn cancel(
    State(server): ServerState,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let sent = async {
        let body = json_body(&server, request, server.config.shared_limits.frame_bytes).await?;
        let mut frame = body.clone();
        frame.insert("content".to_owned(), Value::Object(body));
        submit(&server, &caller, &session, Some("user.cancel"), &headers, frame).await
    };
    respond_or_fault(&server, &caller, sent.await, accepted_response)
}

/// Sends any other command to the session, as the frame that a WebSocket client sends.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session}/commands",
    params(("session" = String, Path, description = "The session's id, a UUID")),
    request_body = NewCommand,
    responses(
        (status = 202, description = "The command is durable; its effects follow as events", body = CommandResponse),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn command(
    State(server): ServerState,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let sent = async {
        let frame = json_body(&server, request, server.config.shared_limits.frame_bytes).await?;
        submit(&server, &caller, &session, None, &headers, frame).await
    };
    respond_or_fault(&server, &caller, sent.await, accepted_response)
}

fn accepted_response(accepted: CommandResponse) -> Response {
    (StatusCode::ACCEPTED, Json(accepted)).into_response()
}

async fn submit(
    server: &Server,
    caller: &Caller,
    session: &str,
    event: Option<&str>,
    headers: &HeaderMap,
    frame: Map<String, Value>,
) -> Result<CommandResponse, Fault> {
    let session_id = session_id(session)?;
    let meta = server.session_meta.check(&*server.journal, session_id, &caller.identity).await?;
    let inbound = parse_event(server, event, Some(session_id), headers, frame)?;
    let action = inbound.request.action();
    server.configure(session_id, inbound.request.config(), &caller.identity.name()).await?;
    let remembered = server.tool_to_remember(session_id, &inbound.request).await?;
    let body = command_body(inbound.request, &meta).ok_or_else(|| {
        Fault::new(Kind::UnsupportedOperation, Operation::ServeRequest)
            .with(Fact::EventName, format!("user.{action}"))
    })?;
    let command_id = inbound.command.as_ref().map(ToString::to_string);
    let trace = inbound.trace.or(caller.trace);
    let parent = inbound.parent.or(caller.parent);
    let request = CommandRequest {
        by: caller.identity.name(),
        command: inbound.command,
        trace,
        parent,
        body,
    };
    let after = server.submit(session_id, request).await?;
    if let Some(tool) = remembered {
        server.remember(session_id, tool, &caller.identity.name()).await?;
    }
    server.command_submitted(session_id);
    Ok(CommandResponse { status: "accepted", action, session_id, command_id, after })
}

/// The current state of a session.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}",
    params(("session" = String, Path, description = "The session's id, a UUID")),
    responses(
        (status = 200, description = "The session at its last record", body = SessionView),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn get(
    State(server): ServerState,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
) -> Response {
    let view = async {
        let session = session_id(&session)?;
        server.session_meta.check(&*server.journal, session, &caller.identity).await?;
        let info = server
            .journal
            .info(session)
            .await?
            .ok_or_else(|| session_meta::unknown_session(session))?;
        let (state, _) = fold(&*server.journal, session).await?;
        Ok(SessionView::new(session, info.epoch, &state))
    };
    respond_or_fault(&server, &caller, view.await, |view| Json(view).into_response())
}

/// Deletes a session with all its records.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{session}",
    params(("session" = String, Path, description = "The session's id, a UUID")),
    responses(
        (status = 204, description = "The session is deleted"),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn delete(
    State(server): ServerState,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
) -> Response {
    let deleted = async {
        let session = session_id(&session)?;
        let meta = server.session_meta.check(&*server.journal, session, &caller.identity).await?;
        if !server.engine.delete(session).await? {
            return Err(session_meta::unknown_session(session));
        }
        server.session_meta.forget(session);
        server.session_deleted(session);
        if let Some(tenant) = meta.tenant() {
            server.uncount_session(tenant);
        }
        Ok(())
    };
    respond_or_fault(&server, &caller, deleted.await, |()| StatusCode::NO_CONTENT.into_response())
}

/// Filters and paging of the session list.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub(super) struct SessionListQuery {
    /// Only sessions in this state: `idle`, `running`, `waiting_for_decision`, `closed` or `failed`.
    state: Option<String>,
    /// Only sessions that had a fault with this code, such as `ERR_TIMEOUT_001`.
    code: Option<String>,
    /// Only sessions with events of this trace: 32 hex digits.
    trace: Option<String>,
    /// Only sessions that called this tool, by its full name.
    tool: Option<String>,
    /// Only sessions that a fault hit, by a row of `/api/stats`: `code`, `tool`, `model`, `stage`, `computer`, `endpoint`,
    /// `node`, `version`, `tenant` or `user`, a colon, and its name; or `any`. `since` and `until` then mean the times of
    /// the faults, of the last seven days; the session that was hit last comes first. For operators only.
    hit: Option<String>,
    /// With `hit`: only faults that were `recovered` or `not_recovered`.
    outcome: Option<String>,
    /// Only sessions whose last event is at or after this time, RFC 3339.
    since: Option<String>,
    /// Only sessions whose last event is before this time, RFC 3339.
    until: Option<String>,
    /// Sessions per page, 1 to 100; 100 if absent.
    limit: Option<usize>,
    /// The `next` of the previous page; absent for the first page.
    after: Option<String>,
}

/// The caller's sessions, the most recently changed first. An operator gets all sessions.
#[utoipa::path(
    get,
    path = "/v1/sessions",
    params(SessionListQuery),
    responses(
        (status = 200, description = "One page of the list", body = SessionList),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(
    State(server): ServerState,
    Extension(caller): Extension<Caller>,
    listing: Result<Query<SessionListQuery>, axum::extract::rejection::QueryRejection>,
) -> Response {
    let listed = async {
        let Query(listing) = listing.map_err(|error| bad_query_fault(&error.body_text()))?;
        let limit = listing.limit.unwrap_or(LIST_MAX).clamp(1, LIST_MAX);
        let filter = Filter {
            state: listing.state.as_deref().map(str::parse).transpose()?,
            label: (!caller.identity.is_operator)
                .then(|| (session_meta::OWNER.to_owned(), Some(caller.identity.name()))),
            trace: listing.trace.as_deref().map(parse_trace).transpose()?,
            code: listing.code,
            tool: listing.tool,
            since: listing.since.as_deref().map(parse_time).transpose()?,
            until: listing.until.as_deref().map(parse_time).transpose()?,
            after: listing.after.as_deref().map(parse_cursor).transpose()?,
            limit,
            ..Filter::default()
        };
        if let Some(hit) = &listing.hit {
            let selector: FaultSelector = hit.parse()?;
            let selector = match &listing.outcome {
                Some(outcome) => selector.with_outcome(outcome)?,
                None => selector,
            };
            return hit_sessions(&server, &caller, &selector, filter).await;
        }
        let found = server.journal.sessions(filter).await?;
        let last = found.last().filter(|_| found.len() == limit);
        let next = last.map(|last| encode_cursor(last.updated_at, last.session));
        let sessions = found.into_iter().map(SessionItem::from).collect();
        Ok(SessionList { sessions, next })
    };
    respond_or_fault(&server, &caller, listed.await, |list| Json(list).into_response())
}

/// One page of the sessions that the selected faults hit.
async fn hit_sessions(
    server: &Server,
    caller: &Caller,
    selector: &FaultSelector,
    filter: Filter,
) -> Result<SessionList, Fault> {
    require_operator(caller, "/v1/sessions?hit=")?;
    let (journal, times) = (&*server.journal, (filter.since, filter.until));
    let hits = {
        let mut stats = server.stats.lock().await;
        stats.sessions_with_fault(journal, selector, times, server.now()).await?
    };
    let following = hits.into_iter().filter(|hit| filter.after.is_none_or(|after| *hit < after));
    let (mut sessions, mut last) = (Vec::new(), None);
    for (looked, (at, session)) in following.enumerate() {
        if sessions.len() == filter.limit || looked == HITS_LOOKED_UP {
            let next = last.map(|(at, session)| encode_cursor(at, session));
            return Ok(SessionList { sessions, next });
        }
        let ids = Some((session, session));
        let one = Filter { ids, since: None, until: None, after: None, limit: 1, ..filter.clone() };
        // A session that was deleted meanwhile is left out.
        sessions.extend(journal.sessions(one).await?.into_iter().map(SessionItem::from));
        last = Some((at, session));
    }
    Ok(SessionList { sessions, next: None })
}

fn encode_cursor(at: Timestamp, session: SessionId) -> String {
    format!("{}.{session}", at.as_micros())
}

fn parse_cursor(after: &str) -> Result<(Timestamp, SessionId), Fault> {
    let parts = after.split_once('.');
    let cursor = parts.and_then(|(micros, session)| {
        Some((Timestamp::from_micros(micros.parse().ok()?), session.parse().ok()?))
    });
    cursor.ok_or_else(|| bad_query_fault("after is no `next` of a list"))
}

fn parse_time(text: &str) -> Result<Timestamp, Fault> {
    text.parse().map_err(|_| bad_query_fault("since and until are times in RFC 3339"))
}

pub(super) fn parse_trace(text: &str) -> Result<Trace, Fault> {
    text.parse().map_err(|_| bad_query_fault("trace is not 32 hex digits"))
}

pub(super) fn bad_query_fault(received: &str) -> Fault {
    Fault::new(Kind::BadRequest, Operation::ServeRequest)
        .with(Fact::Field, "query")
        .with(Fact::Received, received.chars().take(200).collect::<String>())
}

/// All records of a session, one JSON object per line, in the format of `budao journal export`.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/export",
    params(("session" = String, Path, description = "The session's id, a UUID")),
    responses(
        (status = 200, description = "One JSON object per line: two header lines, the records, two closing lines", content_type = "application/x-ndjson"),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn export(
    State(server): ServerState,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
) -> Response {
    let begun = async {
        let session = session_id(&session)?;
        server.session_meta.check(&*server.journal, session, &caller.identity).await?;
        let info = server
            .journal
            .info(session)
            .await?
            .ok_or_else(|| session_meta::unknown_session(session))?;
        Ok((session, info))
    };
    let begun = begun.await;
    let (shared, tenant) = (Arc::clone(&server), caller.identity.tenant.clone());
    let is_operator = caller.identity.is_operator;
    respond_or_fault(&server, &caller, begun, move |(session, info)| {
        let removed = info.first_available.saturating_sub(1);
        let head = json!({"session": session, "epoch": info.epoch, "removed_to": removed});
        let first = format!("{}\n{head}\n", json!({"journal": 1}));
        let export = Export {
            server: shared,
            tenant,
            session,
            at: removed,
            until: info.head,
            first: Some(first),
            count: 0,
            is_operator,
        };
        let body = Body::from_stream(stream::try_unfold(export, Export::next));
        ([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response()
    })
}

struct Export {
    server: Arc<Server>,
    tenant: String,
    session: SessionId,
    at: Seq,
    until: Seq,
    first: Option<String>,
    count: u64,
    is_operator: bool,
}

impl Export {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, Fault> {
        if let Some(first) = self.first.take() {
            return Ok(Some((first.into(), self)));
        }
        if self.at > self.until {
            return Ok(None);
        }
        if self.at == self.until {
            self.at += 1;
            let end = json!({"end": self.session, "records": self.count});
            return Ok(Some((format!("{end}\n{}\n", json!({"done": 1})).into(), self)));
        }
        let server = Arc::clone(&self.server);
        let _slot = server
            .replays
            .acquire(server.admission.charge_replay(&self.tenant, self.until - self.at))
            .await;
        let page = server.journal.read(self.session, self.at, PAGE).await?;
        let mut lines = String::new();
        for stored in page.records.iter().filter(|stored| stored.seq <= self.until) {
            self.at = stored.seq;
            self.count += 1;
            lines.push_str(&export_line(stored, self.is_operator));
        }
        if page.records.is_empty() {
            self.at = self.until;
        }
        Ok(Some((lines.into(), self)))
    }
}

/// A record as a line. Users get a fault without what only operators may see.
fn export_line(stored: &StoredRecord, is_operator: bool) -> String {
    let head = json!({
        "seq": stored.seq,
        "at": stored.at,
        "trace": stored.trace,
        "turn": stored.turn,
    });
    let head = head.to_string();
    let hidden = (!is_operator).then(|| event_for_user(stored)).flatten();
    let event = hidden.map_or_else(|| String::from_utf8_lossy(&stored.body), Into::into);
    format!("{},\"event\":{event}}}\n", &head[..head.len() - 1])
}

/// The event without what only operators see of its fault; `None` if it has nothing of that.
fn event_for_user(stored: &StoredRecord) -> Option<String> {
    let mut event = stored.event().ok()?;
    event.fault_mut()?.hide_from_user().then(|| serde_json::to_string(&event).ok())?
}
