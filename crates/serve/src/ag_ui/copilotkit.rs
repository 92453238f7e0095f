//! The runtime protocol of CopilotKit: other addresses for what `/ag-ui` has.
//!
//! A page that names only a `runtimeUrl` asks `info` for the agents, and then runs, joins and stops the one that it finds.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, Request, State},
    response::{IntoResponse as _, Response},
};
use budao_core::Fault;
use http::{StatusCode, header};
use serde_json::{Value, json};

use super::{
    handler::{begin, join_thread},
    input::RunInput,
};
use crate::{
    front_end::{Thread, cancel_thread, constraint_fault, json_body},
    http_api::{Caller, fault_response},
    problem::Problem,
    server::Server,
};

/// The only agent. It is also the one that CopilotKit takes if a page names none.
const AGENT: &str = "default";
/// From `/api/copilotkit/agent/{agent}/run` to the root of the server.
const ROOT: &str = "../../../../";

/// Describes the server to CopilotKit: one agent, `default`.
#[utoipa::path(
    get,
    path = "/api/copilotkit/info",
    responses((status = 200, description = "The agents", body = serde_json::Value))
)]
pub(crate) async fn info() -> Json<Value> {
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "mode": "sse",
        "agents": { AGENT: { "name": AGENT, "className": "HttpAgent", "description": "" } },
        "audioFileTranscriptionEnabled": false,
    }))
}

/// Runs the agent for CopilotKit, as `POST /ag-ui` does.
#[utoipa::path(
    post,
    path = "/api/copilotkit/agent/{agent}/run",
    params(("agent" = String, Path, description = "`default`")),
    request_body(content = serde_json::Value, description = "`RunAgentInput`", content_type = "application/json"),
    responses(
        (status = 200, description = "AG-UI events as server-sent events", content_type = "text/event-stream"),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn runtime_run(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(agent): Path<String>,
    request: Request,
) -> Response {
    let running = async {
        check(&agent)?;
        begin(&server, &caller, request, ROOT).await
    };
    running.await.unwrap_or_else(|fault| fault_response(&server, fault, &caller))
}

/// Joins a thread for CopilotKit: the conversation so far, then the running answer. A thread that has no message yet has an
/// empty stream, and is not created.
#[utoipa::path(
    post,
    path = "/api/copilotkit/agent/{agent}/connect",
    params(("agent" = String, Path, description = "`default`")),
    request_body(content = serde_json::Value, description = "`RunAgentInput`", content_type = "application/json"),
    responses(
        (status = 200, description = "AG-UI events as server-sent events", content_type = "text/event-stream"),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn runtime_connect(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(agent): Path<String>,
    request: Request,
) -> Response {
    let joined = async {
        check(&agent)?;
        let permit = server.admission.admit(&caller.identity.tenant)?;
        let limit = server.config.shared_limits.frame_bytes_hard;
        let input = RunInput::read(json_body(&server, request, limit).await?)?;
        let id = &input.thread_id;
        match Thread::find(&server, &caller, &permit, id).await? {
            Some(thread) => join_thread(&server, &caller, permit, (id, ROOT), thread).await,
            None => Ok(([(header::CONTENT_TYPE, "text/event-stream")], "").into_response()),
        }
    };
    joined.await.unwrap_or_else(|fault| fault_response(&server, fault, &caller))
}

/// Cancels the running turn of a thread for CopilotKit; without one it has no effect.
#[utoipa::path(
    post,
    path = "/api/copilotkit/agent/{agent}/stop/{thread}",
    params(
        ("agent" = String, Path, description = "`default`"),
        ("thread" = String, Path, description = "The `threadId`"),
    ),
    responses(
        (status = 202, description = "The turn is being cancelled; its stream ends with `RUN_FINISHED`"),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn runtime_stop(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path((agent, thread)): Path<(String, String)>,
) -> Response {
    let stopped = async {
        check(&agent)?;
        cancel_thread(&server, &caller, &thread).await
    };
    match stopped.await {
        Ok(()) => StatusCode::ACCEPTED.into_response(),
        Err(fault) => fault_response(&server, fault, &caller),
    }
}

fn check(agent: &str) -> Result<(), Fault> {
    match agent == AGENT {
        true => Ok(()),
        false => Err(constraint_fault("agent", AGENT, agent)),
    }
}
