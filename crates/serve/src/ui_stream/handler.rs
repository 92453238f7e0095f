//! The routes of the UI message stream.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, Query, Request, State, rejection::QueryRejection},
    response::{IntoResponse as _, Response},
};
use budao_core::{
    Event, Fault, Kind,
    event::{CommandId, Seq, SessionId},
    fault::{Fact, Operation},
};
use http::{HeaderMap, HeaderName, StatusCode};
use serde::Deserialize;

use super::{
    input::ChatInput,
    projector::{UiProjector, UiVersion},
};
use crate::{
    admission::AdmissionPermit,
    front_end::{
        EventSink, PagedReader, Prelude, Projection as _, RESUME, RunAction, RunAnnotation,
        StreamCursor, StreamPlan, Thread, cancel_thread, constraint_fault, json_body,
        message_command, offer_tools, query_of, respond, submit_run,
    },
    http_api::{Caller, fault_response},
    problem::Problem,
    server::Server,
};

/// Marks the stream for clients of the AI SDK.
const STREAM_VERSION: HeaderName = HeaderName::from_static("x-vercel-ai-ui-message-stream");
/// The run whose stream `GET /api/chat/{run}/stream` continues.
const RUN_ID: HeaderName = HeaderName::from_static("x-workflow-run-id");
/// The index of the last chunk, for a negative `startIndex`.
const TAIL_INDEX: HeaderName = HeaderName::from_static("x-workflow-stream-tail-index");

/// The version of the stream.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub(crate) struct SendQuery {
    /// `6` for version 6 of the AI SDK; version 7 if absent.
    ui: Option<u8>,
}

/// Where a stream continues.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct StreamQuery {
    /// `6` for version 6 of the AI SDK; version 7 if absent.
    ui: Option<u8>,
    /// The number of chunks that the client has; negative counts from the end.
    start_index: Option<i64>,
}

fn version(ui: Option<u8>) -> Result<UiVersion, Fault> {
    match ui {
        None | Some(7) => Ok(UiVersion::V7),
        Some(6) => Ok(UiVersion::V6),
        Some(other) => Err(constraint_fault("ui", "6 or 7", &other.to_string())),
    }
}

/// Sends a message, an answer or a result to a chat, as `useChat` of the AI SDK does it.
#[utoipa::path(
    post,
    path = "/api/chat",
    params(SendQuery),
    request_body(content = serde_json::Value, description = "`{id, messages, trigger, messageId?}`", content_type = "application/json"),
    responses(
        (status = 200, description = "A UI message stream", content_type = "text/event-stream"),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn send(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    query: Result<Query<SendQuery>, QueryRejection>,
    request: Request,
) -> Response {
    let sent = async {
        let ui = version(query_of(query)?.ui)?;
        begin(&server, &caller, ui, request).await
    };
    sent.await.unwrap_or_else(|fault| fault_response(&server, fault, &caller))
}

/// Resumes a stream: the whole running message of a chat, or the rest of a run.
#[utoipa::path(
    get,
    path = "/api/chat/{id}/stream",
    params(
        ("id" = String, Path, description = "The chat's id, or a run's id of `x-workflow-run-id`"),
        ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that the client has"),
        StreamQuery,
    ),
    responses(
        (status = 200, description = "A UI message stream", content_type = "text/event-stream"),
        (status = 204, description = "No turn of the chat runs"),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn resume(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    query: Result<Query<StreamQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Response {
    let resumed = async {
        let query = query_of(query)?;
        let permit = server.admission.admit(&caller.identity.tenant)?;
        let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
        let last = last.filter(|id| !id.is_empty());
        match StreamCursor::parse(&id) {
            Some(run) => resume_run(&server, &caller, permit, run, last, &query).await,
            None => resume_chat(&server, &caller, permit, &id, &query).await,
        }
    };
    resumed.await.unwrap_or_else(|fault| fault_response(&server, fault, &caller))
}

/// Cancels the running turn of a chat; without one it has no effect.
#[utoipa::path(
    post,
    path = "/api/chat/{id}/cancel",
    params(("id" = String, Path, description = "The chat's id")),
    responses(
        (status = 202, description = "The turn is being cancelled; its stream ends with `abort` and `finish`"),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn cancel(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Response {
    match cancel_thread(&server, &caller, &id).await {
        Ok(()) => StatusCode::ACCEPTED.into_response(),
        Err(fault) => fault_response(&server, fault, &caller),
    }
}

async fn begin(
    server: &Arc<Server>,
    caller: &Caller,
    ui: UiVersion,
    request: Request,
) -> Result<Response, Fault> {
    let permit = server.admission.admit(&caller.identity.tenant)?;
    let body = json_body(server, request, server.config.shared_limits.frame_bytes_hard).await?;
    let input = ChatInput::read(body)?;
    let found = Thread::find(server, caller, &permit, &input.id).await?;
    input.check_history(found.as_ref().map_or(0, |thread| thread.state.turns))?;
    let thread = match found {
        Some(thread) => thread,
        None => Thread::open(server, caller, &permit, &input.id, input.system()).await?,
    };
    let submission = input.submission(&thread)?;
    if let Some(tools) = &input.tools {
        offer_tools(server, caller, &thread, tools).await?;
    }
    let has_turn = |action: &RunAction| matches!(action, RunAction::Message(_) | RunAction::Retry);
    let own = submission.actions.iter().any(has_turn);
    let own = own.then(|| message_command(&submission.annotation.run));
    let at = submit_run(server, caller, &thread, submission).await?;
    let run = Run { ui, at, own };
    stream(server, caller, permit, &thread, run, None, None).await
}

/// A run of a chat: the chunks after a position.
struct Run {
    ui: UiVersion,
    at: Seq,
    /// The message of the run; absent if it continues a turn.
    own: Option<CommandId>,
}

async fn resume_run(
    server: &Arc<Server>,
    caller: &Caller,
    permit: AdmissionPermit,
    run: StreamCursor,
    last: Option<&str>,
    query: &StreamQuery,
) -> Result<Response, Fault> {
    let thread = Thread::load(server, caller, &permit, run.session).await?;
    let run =
        StreamCursor::of(&thread, "id", &format!("{}.{}.{}", run.session, run.epoch, run.seq))?;
    let last = last.map(|last| StreamCursor::of(&thread, "Last-Event-ID", last)).transpose()?;
    let reader = PagedReader { server, permit: &permit };
    let own = own_message(&reader, run.session, run.seq).await?;
    let run = Run { ui: version(query.ui)?, at: run.seq, own };
    stream(server, caller, permit, &thread, run, last, query.start_index).await
}

/// Replays the whole message of the running turn. With `startIndex`, also that of the last turn.
async fn resume_chat(
    server: &Arc<Server>,
    caller: &Caller,
    permit: AdmissionPermit,
    id: &str,
    query: &StreamQuery,
) -> Result<Response, Fault> {
    let thread = Thread::get(server, caller, &permit, id).await?;
    let at = match (&thread.state.turn, thread.is_idle()) {
        (Some(turn), _) => Some(turn.began.saturating_sub(1)),
        (None, false) => Some(thread.state.head),
        (None, true) if query.start_index.is_some() => {
            PagedReader { server, permit: &permit }.last_turn(&thread).await?
        }
        (None, true) => None,
    };
    let Some(at) = at else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let run = Run { ui: version(query.ui)?, at, own: None };
    stream(server, caller, permit, &thread, run, None, query.start_index).await
}

/// The message of the run that begins after this position.
pub(crate) async fn own_message(
    reader: &PagedReader<'_>,
    session: SessionId,
    at: Seq,
) -> Result<Option<CommandId>, Fault> {
    let page = reader.page(session, at, 1).await?;
    let Some(stored) = page.records.first().filter(|_| page.gap.is_none()) else { return Ok(None) };
    Ok(match stored.event()? {
        Event::Annotated { topic, data } => RunAnnotation::read(&topic, &data)
            .filter(|it| it.message.is_some() || it.run.starts_with("retry-"))
            .map(|annotation| message_command(&annotation.run)),
        // The annotation follows its message, if another process writes the session and took them in this order.
        Event::MessageAccepted { command, .. } | Event::RetryAccepted { command, .. } => {
            Some(command)
        }
        _ => None,
    })
}

async fn stream(
    server: &Arc<Server>,
    caller: &Caller,
    permit: AdmissionPermit,
    thread: &Thread,
    run: Run,
    last: Option<StreamCursor>,
    start_index: Option<i64>,
) -> Result<Response, Fault> {
    let start = (run.at, usize::MAX);
    let reader = PagedReader { server, permit: &permit };
    let (mut plan, state) = StreamPlan::new(&reader, thread, start, Prelude::Nothing).await?;
    let lang = caller.accepted_lang.unwrap_or(thread.meta.language);
    let projector = UiProjector::new(run.ui, &state, plan.from, lang).showing_only(run.own);
    let name = format!("{}.{}.{}", thread.session, thread.epoch, run.at);
    let mut headers = vec![
        (STREAM_VERSION, "v1".to_owned()),
        (RESUME, format!("chat/{name}/stream")),
        (RUN_ID, name),
    ];
    if let Some(last) = last {
        plan.after = plan.after.max((last.seq, last.index));
    }
    if let Some(index) = start_index.filter(|index| *index != 0) {
        let counted = count(&reader, thread, projector.clone(), plan).await?;
        plan.skip = counted.skip(index)?;
        let tail = i64::try_from(counted.chunks).unwrap_or(i64::MAX) - 1;
        headers.push((TAIL_INDEX, tail.to_string()));
    }
    respond(server, caller, permit, thread, plan, Box::new(projector), headers)
}

/// The chunks of a run so far.
struct ChunkCount {
    chunks: usize,
    is_over: bool,
}

impl ChunkCount {
    /// The number of chunks to leave out.
    fn skip(&self, index: i64) -> Result<usize, Fault> {
        let wanted = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
        let skip = match index < 0 {
            true => self.chunks.saturating_sub(wanted),
            false => wanted,
        };
        match skip > self.chunks {
            true => Err(Fault::new(Kind::EpochMismatch, Operation::ReplayEvents)
                .with(Fact::Field, "startIndex")
                .with(Fact::HeadSeq, self.chunks)),
            false => Ok(skip),
        }
    }
}

async fn count(
    reader: &PagedReader<'_>,
    thread: &Thread,
    mut projector: UiProjector,
    plan: StreamPlan,
) -> Result<ChunkCount, Fault> {
    let mut count = ChunkCount { chunks: 0, is_over: false };
    let range = (plan.from, thread.state.head);
    reader
        .visit(thread.session, range, |stored| {
            let mut sink = EventSink::default();
            projector.project(&stored.record()?, &mut sink);
            if stored.seq > plan.after.0 {
                let (chunks, is_over) = sink.count();
                count.chunks += chunks;
                count.is_over = is_over;
            }
            Ok(!count.is_over)
        })
        .await?;
    Ok(count)
}
