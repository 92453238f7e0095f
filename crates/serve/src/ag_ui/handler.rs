//! The routes of AG-UI.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, Query, Request, State, rejection::QueryRejection},
    response::{IntoResponse as _, Response},
};
use budao_core::{Fault, Lang};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use super::{input::RunInput, projector::AgUiProjector};
use crate::{
    admission::AdmissionPermit,
    front_end::{
        EventSink, PagedReader, Prelude, Projection as _, RESUME, RunAction, StreamCursor,
        StreamPlan, Submission, Thread, cancel_thread, encode_uri, json_body, message_command,
        offer_tools, query_of, respond, submit_input, submit_run,
    },
    http_api::{Caller, fault_response},
    problem::Problem,
    server::Server,
};

/// The position at which a stream continues.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub(crate) struct JoinQuery {
    /// The id of the last event that the client has. `Last-Event-ID` takes precedence. Without one, the stream begins
    /// with the conversation so far.
    after: Option<String>,
    /// The run that the stream ends with; the first one that ends if absent.
    run: Option<String>,
}

/// Runs an agent: AG-UI 1.0. The body is a `RunAgentInput`; `threadId` names the session.
///
/// Only what the thread does not have is taken from `messages`: user messages and tool results after the last answer. The same
/// `runId` with the same content joins the run. The header `x-budao-resume` names the address at which a cut stream continues.
#[utoipa::path(
    post,
    path = "/ag-ui",
    request_body(content = serde_json::Value, description = "`RunAgentInput`", content_type = "application/json"),
    responses(
        (status = 200, description = "AG-UI events as server-sent events", content_type = "text/event-stream"),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn run(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    let response = begin(&server, &caller, request, "").await;
    response.unwrap_or_else(|fault| fault_response(&server, fault, &caller))
}

/// Joins a thread: the conversation so far and the running answer, or the events after a cursor.
#[utoipa::path(
    get,
    path = "/ag-ui/{thread}",
    params(
        ("thread" = String, Path, description = "The `threadId`"),
        ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that the client has"),
        JoinQuery,
    ),
    responses(
        (status = 200, description = "AG-UI events as server-sent events", content_type = "text/event-stream"),
        (status = 204, description = "The run of the cursor is over, and no other one runs"),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn join(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(thread): Path<String>,
    query: Result<Query<JoinQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Response {
    let joined = async {
        let mut query = query_of(query)?;
        let header = headers.get("last-event-id").and_then(|id| id.to_str().ok());
        query.after = header.map(str::to_owned).or(query.after).filter(|id| !id.is_empty());
        let permit = server.admission.admit(&caller.identity.tenant)?;
        let known = Thread::get(&server, &caller, &permit, &thread).await?;
        match query.after.take() {
            None => join_thread(&server, &caller, permit, (&thread, ""), known).await,
            Some(after) => resume(&server, &caller, permit, (&thread, known), &after, query).await,
        }
    };
    joined.await.unwrap_or_else(|fault| fault_response(&server, fault, &caller))
}

/// Cancels the running turn of a thread; without one it has no effect.
#[utoipa::path(
    post,
    path = "/ag-ui/{thread}/cancel",
    params(("thread" = String, Path, description = "The `threadId`")),
    responses(
        (status = 202, description = "The turn is being cancelled; its stream ends with `RUN_FINISHED`"),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn cancel(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(thread): Path<String>,
) -> Response {
    match cancel_thread(&server, &caller, &thread).await {
        Ok(()) => StatusCode::ACCEPTED.into_response(),
        Err(fault) => fault_response(&server, fault, &caller),
    }
}

/// Begins or joins a run. `root` leads from the address of the request to the root of the server.
pub(super) async fn begin(
    server: &Arc<Server>,
    caller: &Caller,
    request: Request,
    root: &str,
) -> Result<Response, Fault> {
    let permit = server.admission.admit(&caller.identity.tenant)?;
    let input = RunInput::read(
        json_body(server, request, server.config.shared_limits.frame_bytes_hard).await?,
    )?;
    let id = &input.thread_id;
    let found = Thread::find(server, caller, &permit, id).await?;
    let seen = input.check_history(found.as_ref().map_or(0, |thread| thread.state.turns))?;
    let thread = match found {
        Some(thread) => thread,
        None => Thread::open(server, caller, &permit, id, input.system()).await?,
    };
    let (actions, annotation) = input.find_new_parts(&thread)?;
    offer_tools(server, caller, &thread, &input.tools).await?;
    if actions.is_empty() {
        return join_thread(server, caller, permit, (id, root), thread).await;
    }
    let has_message = actions.iter().any(|action| matches!(action, RunAction::Message(_)));
    let actions = thread.complete_actions(&input.run_id, actions)?;
    let head = thread.state.head;
    let own = has_message.then(|| message_command(&input.run_id));
    if let Some(input) = input.agent_input(own.clone()) {
        submit_input(server, caller, &thread, &annotation.run, input).await?;
    }
    let at = submit_run(server, caller, &thread, Submission { annotation, actions }).await?;
    // The client has seen less, or this run before.
    let is_behind = at < head || (has_message && seen < thread.state.turns);
    let after = (at, usize::MAX);
    let reader = PagedReader { server, permit: &permit };
    let (plan, state) = StreamPlan::new(&reader, &thread, after, Prelude::IfActive).await?;
    let projector =
        AgUiProjector::new(&input.thread_id, &state, plan.from, language(caller, &thread))
            .ending_with(own)
            .with_snapshot(is_behind);
    let run = has_message.then_some(input.run_id.as_str());
    let resume = resume_address(root, &input.thread_id, run);
    respond(server, caller, permit, &thread, plan, Box::new(projector), vec![(RESUME, resume)])
}

/// Sends the conversation so far, and the running answer if there is one.
pub(super) async fn join_thread(
    server: &Arc<Server>,
    caller: &Caller,
    permit: AdmissionPermit,
    (id, root): (&str, &str),
    thread: Thread,
) -> Result<Response, Fault> {
    let starts_soon = thread.state.turn.is_none() && !thread.is_idle();
    let prelude = if starts_soon { Prelude::IfActive } else { Prelude::Always };
    let reader = PagedReader { server, permit: &permit };
    let (plan, state) = match thread.is_idle() {
        // The last turn is projected too: a client that joins after it gets its own end.
        true => StreamPlan::after_last_turn(&reader, &thread).await?,
        false => {
            let after = (thread.state.head, usize::MAX);
            StreamPlan::new(&reader, &thread, after, prelude).await?
        }
    };
    let projector = AgUiProjector::new(id, &state, plan.from, language(caller, &thread))
        .with_snapshot(starts_soon);
    let resume = vec![(RESUME, resume_address(root, id, None))];
    respond(server, caller, permit, &thread, plan, Box::new(projector), resume)
}

/// Continues a stream after an event.
async fn resume(
    server: &Arc<Server>,
    caller: &Caller,
    permit: AdmissionPermit,
    (id, thread): (&str, Thread),
    after: &str,
    query: JoinQuery,
) -> Result<Response, Fault> {
    let cursor = StreamCursor::of(&thread, "Last-Event-ID", after)?;
    let after = (cursor.seq, cursor.index);
    let reader = PagedReader { server, permit: &permit };
    let (plan, state) = StreamPlan::new(&reader, &thread, after, Prelude::Nothing).await?;
    let own = query.run.as_deref().map(message_command);
    let projector =
        AgUiProjector::new(id, &state, plan.from, language(caller, &thread)).ending_with(own);
    if thread.may_be_over() && is_over(&reader, &thread, projector.clone(), plan).await? {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let resume = resume_address("", id, query.run.as_deref());
    respond(server, caller, permit, &thread, plan, Box::new(projector), vec![(RESUME, resume)])
}

/// Whether no run ends after the cursor of a plan, and none runs: the stream would never end.
async fn is_over(
    reader: &PagedReader<'_>,
    thread: &Thread,
    mut projector: AgUiProjector,
    plan: StreamPlan,
) -> Result<bool, Fault> {
    let mut has_end = false;
    let range = (plan.from, thread.state.head);
    reader
        .visit(thread.session, range, |stored| {
            let mut sink = EventSink::default();
            projector.project(&stored.record()?, &mut sink);
            let (events, is_end) = sink.count();
            has_end = is_end && (stored.seq, events.saturating_sub(1)) > plan.after;
            Ok(!has_end)
        })
        .await?;
    Ok(!has_end && (thread.is_idle() || projector.is_paused()))
}

/// The address at which a stream continues. A run without a message ends with the turn that it continues.
fn resume_address(root: &str, thread: &str, run: Option<&str>) -> String {
    let address = format!("{root}ag-ui/{}", encode_uri(thread));
    match run {
        Some(run) => format!("{address}?run={}", encode_uri(run)),
        None => address,
    }
}

fn language(caller: &Caller, thread: &Thread) -> Lang {
    caller.accepted_lang.unwrap_or(thread.meta.language)
}
