//! The route `/mcp`.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use budao_core::{
    Fault, Kind,
    event::{CommandBody, CommandId},
    fault::{Fact, Operation, render},
    message::Block,
};
use http::StatusCode;
use serde_json::{Value, json};

use super::{
    outcome::{self, FollowOptions, RunOutcome, RunState},
    progress::{self, ProgressReporter},
    tasks,
    tools::{self, AskArguments, ToolCall},
    wire::{Era, RpcError, RpcRequest, TASKS, VERSIONS, server_info},
};
use crate::{
    admission::AdmissionPermit,
    front_end::{
        PagedReader, RunAction, RunAnnotation, StreamCursor, Submission, Thread, constraint_fault,
        json_body, message_command, submit_run,
    },
    http_api::{Caller, fault_response},
    problem::Problem,
    server::{CommandRequest, Server},
    ui_stream::own_message,
};

/// How long clients may cache lists, in milliseconds. Lists change only with the version of the program.
const LIST_TTL_MS: u64 = 3_600_000;
/// Instructions for the client's model.
const INSTRUCTIONS: &str = "`ask` gives a task to a durable agent. If it returns the state `working`, call `status` \
    with the run until the state is another one. Repeat a call that failed on the way with the same `id`.";

/// Takes one message of an MCP client.
#[utoipa::path(
    post,
    path = "/mcp",
    request_body(content = serde_json::Value, description = "A JSON-RPC message of MCP, 2025-03-26 to 2026-07-28", content_type = "application/json"),
    responses(
        (status = 200, description = "The JSON-RPC response; an event stream with progress before it, for a call of `ask` with a progress token", content_type = "application/json"),
        (status = 202, description = "A notification was taken"),
        (status = "default", description = "A JSON-RPC error, or a fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn message(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    let headers = request.headers().clone();
    let max = server.config.shared_limits.frame_bytes_hard;
    let body = match json_body(&server, request, max).await {
        Ok(body) => body,
        Err(fault) if fault.kind() == Kind::MalformedJson => {
            let error = RpcError { code: -32_700, ..RpcError::invalid_request("this is not JSON") };
            return error.respond(&Value::Null);
        }
        Err(fault) => return fault_response(&server, fault, &caller),
    };
    let request = match RpcRequest::read(body, &headers) {
        Ok(Some(request)) => request,
        Ok(None) => return StatusCode::ACCEPTED.into_response(),
        Err((id, error)) => return error.respond(&id),
    };
    let Some(id) = request.id.clone() else { return StatusCode::ACCEPTED.into_response() };
    if let Some(token) = progress::read_progress_token(&request, &headers) {
        return progress::respond(server, caller, request, token);
    }
    match answer(&server, &caller, &request, None).await {
        Ok(result) => request.respond(result),
        Err(error) => error.respond(&id),
    }
}

/// Answers a request. `progress` reports the records of the run while the call waits for its answer.
pub(super) async fn answer(
    server: &Arc<Server>,
    caller: &Caller,
    request: &RpcRequest,
    progress: Option<ProgressReporter>,
) -> Result<Value, RpcError> {
    match (request.method.as_str(), request.era) {
        ("initialize", Era::Handshake) => Ok(initialize_result(request)),
        ("ping", Era::Handshake) => Ok(json!({})),
        ("server/discover", Era::Stateless) => Ok(discover_result()),
        ("tools/list", Era::Handshake) => Ok(json!({ "tools": tools::list() })),
        ("tools/list", Era::Stateless) => {
            Ok(json!({ "tools": tools::list(), "ttlMs": LIST_TTL_MS, "cacheScope": "public" }))
        }
        ("tools/call", _) => call_tool(server, caller, request, progress).await,
        ("tasks/get" | "tasks/update" | "tasks/cancel", Era::Stateless) => {
            handle_task_request(server, caller, request).await
        }
        _ => Err(request.unknown_method()),
    }
}

/// Agrees on a version of the handshake: the client's if it is known, else the newest.
fn initialize_result(request: &RpcRequest) -> Value {
    let wanted = request.params.get("protocolVersion").and_then(Value::as_str);
    let with_handshake = &VERSIONS[1..];
    let version = wanted.filter(|wanted| with_handshake.contains(wanted));
    json!({
        "protocolVersion": version.unwrap_or(with_handshake[0]),
        "capabilities": { "tools": {} },
        "serverInfo": server_info(),
        "instructions": INSTRUCTIONS,
    })
}

fn discover_result() -> Value {
    json!({
        "supportedVersions": VERSIONS,
        "capabilities": { "tools": {}, "extensions": { TASKS: {} } },
        "instructions": INSTRUCTIONS,
        "ttlMs": LIST_TTL_MS,
        "cacheScope": "public",
    })
}

async fn call_tool(
    server: &Arc<Server>,
    caller: &Caller,
    request: &RpcRequest,
    progress: Option<ProgressReporter>,
) -> Result<Value, RpcError> {
    let name = request.text("name")?;
    let Some(call) = ToolCall::read(name, request.params.get("arguments")) else {
        let status =
            if request.era == Era::Stateless { StatusCode::BAD_REQUEST } else { StatusCode::OK };
        let name: String = name.chars().take(80).collect();
        return Err(RpcError::invalid_params(status, format!("Unknown tool: {name}")));
    };
    let ended = async {
        match call? {
            ToolCall::Ask(ask) => self::ask(server, caller, request, &ask, progress).await,
            ToolCall::Status(arguments) => {
                let found = RunHandle::find(server, caller, &arguments.run).await?;
                found.result(server, caller, FollowOptions::default()).await
            }
            ToolCall::Cancel(arguments) => {
                let found = RunHandle::find(server, caller, &arguments.run).await?;
                found.cancel(server, caller).await?;
                let found = RunHandle::find(server, caller, &arguments.run).await?;
                found.result(server, caller, FollowOptions::default()).await
            }
        }
    };
    Ok(ended.await.unwrap_or_else(|fault| fault_result(server, caller, fault)))
}

/// A fault as the result of a tool, in the caller's language.
fn fault_result(server: &Server, caller: &Caller, fault: Fault) -> Value {
    let fault = server.scrub_for_client(fault, caller.trace);
    let rendered = render::render_for_peer(&fault, caller.lang);
    let data = json!({
        "code": rendered.code, "message": rendered.message, "retryable": rendered.retryable,
        "retry_after_ms": rendered.retry_after_ms,
    });
    let text = format!("{}: {}", rendered.code, rendered.message);
    json!({
        "content": [{ "type": "text", "text": text }], "structuredContent": { "fault": data }, "isError": true,
    })
}

/// Submits a question. The session and the commands have ids made of the id of the question, so a repetition has no second
/// effect.
async fn ask(
    server: &Arc<Server>,
    caller: &Caller,
    request: &RpcRequest,
    arguments: &AskArguments,
    progress: Option<ProgressReporter>,
) -> Result<Value, Fault> {
    let permit = server.admission.admit(&caller.identity.tenant)?;
    let client_id = arguments.id.as_deref().or_else(|| request.idempotency_key());
    let id = client_id.map_or_else(|| server.world.uuid().to_string(), str::to_owned);
    crate::front_end::check_id("id", &id)?;
    let thread = match &arguments.session {
        Some(session) => Thread::get(server, caller, &permit, session).await?,
        None => Thread::open(server, caller, &permit, &format!("mcp:{id}"), None).await?,
    };
    let message = RunAction::Message(vec![Block::Text(arguments.message.clone())]);
    let actions = thread.complete_actions(&id, vec![message])?;
    let annotation = RunAnnotation::new(&id, Some(id.clone()));
    let seq = submit_run(server, caller, &thread, Submission { annotation, actions }).await?;
    let run = format!("{}.{}.{seq}", thread.session, thread.epoch);
    if request.era == Era::Stateless && request.has_tasks() {
        return Ok(tasks::created_task(&run, server.now()));
    }
    // The head of the thread is from before the submission.
    let thread = Thread::load(server, caller, &permit, thread.session).await?;
    let cursor = StreamCursor::of(&thread, "run", &run)?;
    let found = RunHandle { id: run, thread, cursor, own: message_command(&id), permit };
    found.result(server, caller, FollowOptions { wait: arguments.wait(), progress }).await
}

/// A run of a session that the caller may use.
struct RunHandle {
    id: String,
    thread: Thread,
    cursor: StreamCursor,
    own: CommandId,
    permit: AdmissionPermit,
}

impl RunHandle {
    async fn find(server: &Arc<Server>, caller: &Caller, id: &str) -> Result<Self, Fault> {
        let permit = server.admission.admit(&caller.identity.tenant)?;
        let unknown = || {
            Fault::new(Kind::UnknownSession, Operation::OpenSession)
                .with(Fact::Session, id.chars().take(80).collect::<String>())
                .with(Fact::Field, "run")
                .with(Fact::Constraint, "a run that `ask` returned to you")
        };
        let cursor = StreamCursor::parse(id)
            .ok_or_else(|| constraint_fault("run", "a run that `ask` returned", id))?;
        let thread = Thread::load(server, caller, &permit, cursor.session).await?;
        let cursor = StreamCursor::of(&thread, "run", id)?;
        let reader = PagedReader { server, permit: &permit };
        let own = own_message(&reader, cursor.session, cursor.seq).await?;
        let own = own.ok_or_else(unknown)?;
        Ok(Self { id: id.to_owned(), thread, cursor, own, permit })
    }

    async fn outcome(
        self,
        server: &Arc<Server>,
        caller: &Caller,
        options: FollowOptions,
    ) -> Result<(RunOutcome, Thread), Fault> {
        let Self { thread, cursor, own, permit, .. } = self;
        let outcome =
            outcome::follow(server, caller, permit, &thread, cursor, own, options).await?;
        Ok((outcome, thread))
    }

    async fn result(
        self,
        server: &Arc<Server>,
        caller: &Caller,
        options: FollowOptions,
    ) -> Result<Value, Fault> {
        let id = self.id.clone();
        let (outcome, thread) = self.outcome(server, caller, options).await?;
        let lang = caller.accepted_lang.unwrap_or(thread.meta.language);
        Ok(outcome.to_result(server, &id, &thread, lang))
    }

    /// Cancels the run if it runs, withdraws it if it waits, and leaves it alone if it is over.
    async fn cancel(&self, server: &Arc<Server>, caller: &Caller) -> Result<(), Fault> {
        let state = &self.thread.state;
        let body = if state.turn.as_ref().is_some_and(|turn| turn.message == self.own) {
            CommandBody::Cancel { reason: None }
        } else if state.queue.iter().any(|queued| queued.command == self.own) {
            CommandBody::Withdraw { message: self.own.clone() }
        } else {
            return Ok(());
        };
        let (by, trace, parent) = (caller.identity.name(), caller.trace, caller.parent);
        let request = CommandRequest { by, command: None, trace, parent, body };
        server.submit(self.thread.session, request).await.map(drop)
    }
}

async fn handle_task_request(
    server: &Arc<Server>,
    caller: &Caller,
    request: &RpcRequest,
) -> Result<Value, RpcError> {
    let id = request.text("taskId")?;
    // A task that is not the caller's does not exist.
    let unknown = |fault: Fault| {
        let rendered =
            render::render_for_peer(&server.scrub_for_client(fault, caller.trace), caller.lang);
        RpcError::invalid_params(StatusCode::BAD_REQUEST, rendered.message)
    };
    let found = RunHandle::find(server, caller, id).await.map_err(unknown)?;
    let ended = match request.method.as_str() {
        "tasks/cancel" => found.cancel(server, caller).await.map(|()| json!({})),
        "tasks/update" => answer_task_questions(server, caller, request, found).await,
        _ => found.outcome(server, caller, FollowOptions::default()).await.map(
            |(outcome, thread)| {
                let lang = caller.accepted_lang.unwrap_or(thread.meta.language);
                tasks::task_state(server, &outcome, id, &thread, lang)
            },
        ),
    };
    ended.map_err(unknown)
}

/// Answers the questions of a task.
async fn answer_task_questions(
    server: &Arc<Server>,
    caller: &Caller,
    request: &RpcRequest,
    found: RunHandle,
) -> Result<Value, Fault> {
    let run = crate::front_end::run_of(&found.own).to_owned();
    let responses = request.params.get("inputResponses").and_then(Value::as_object);
    let responses = responses.ok_or_else(|| constraint_fault("inputResponses", "an object", ""))?;
    let (outcome, thread) = found.outcome(server, caller, FollowOptions::default()).await?;
    let actions = tasks::read_answers(&outcome, responses);
    if outcome.state() == RunState::InputRequired && !actions.is_empty() {
        let annotation = RunAnnotation::new(run, None);
        submit_answers(server, caller, &thread, annotation, actions).await?;
    }
    Ok(json!({}))
}

async fn submit_answers(
    server: &Arc<Server>,
    caller: &Caller,
    thread: &Thread,
    annotation: RunAnnotation,
    actions: Vec<RunAction>,
) -> Result<(), Fault> {
    // The id of an answer follows from its question, so that a repeated answer is the same one.
    for action in actions {
        let RunAction::Answer { question, .. } = &action else { continue };
        let annotation = RunAnnotation::new(format!("{}:{}", annotation.run, question.0), None);
        submit_run(server, caller, thread, Submission { annotation, actions: vec![action] })
            .await?;
    }
    Ok(())
}
