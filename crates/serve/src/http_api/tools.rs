//! `GET /v1/tools`: the tools that workers offer to the caller's tenant, and the processes that run them.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use budao_core::fault::Fault;
use serde::Serialize;

use super::{Caller, fault_response};
use crate::{problem::Problem, server::Server};

/// A tool that a worker offers.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct OfferedToolView {
    name: String,
    description: String,
    /// The worker that offers it.
    worker: String,
    /// Another description or schema is another version.
    version: String,
    read_only: bool,
    idempotent: bool,
    confirm: bool,
    reconcile: bool,
    /// Connected processes that run this version.
    connected: usize,
}

/// One process of a worker.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct WorkerProcess {
    worker: String,
    worker_id: String,
    /// The user who offers, as `tenant/user`.
    owner: String,
    /// The session that the offer is for; absent for all sessions of the tenant.
    session_id: Option<String>,
    is_connected: bool,
    is_draining: bool,
    /// Calls that the process holds.
    held: usize,
    /// The most calls that it holds at the same time.
    capacity: usize,
    tools: Vec<String>,
}

/// The tools of workers, and the processes that offer them.
#[derive(Clone, Debug, Default, Serialize, utoipa::ToSchema)]
pub(crate) struct ToolList {
    /// The tools for all sessions of the tenant, by name.
    tools: Vec<OfferedToolView>,
    /// The processes on this server, by worker.
    workers: Vec<WorkerProcess>,
}

/// Lists the tools that workers offer to the caller's tenant, and the processes that run them.
#[utoipa::path(
    get,
    path = "/v1/tools",
    responses(
        (status = 200, description = "Tools and workers", body = ToolList),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn tools(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
) -> Response {
    match list_tools(&server, &caller.identity.tenant).await {
        Ok(tools) => Json(tools).into_response(),
        Err(fault) => fault_response(&server, fault, &caller),
    }
}

async fn list_tools(server: &Server, tenant: &str) -> Result<ToolList, Fault> {
    let Some(workers) = &server.config.workers else { return Ok(ToolList::default()) };
    let processes = workers.list(Some(tenant));
    let tools = workers.tools(tenant).await?.into_iter().map(|(worker, version, tool)| {
        let runs = |it: &&budao_remote::WorkerView| {
            it.is_connected
                && it.tools.iter().any(|(name, its)| *name == tool.name && *its == version)
        };
        OfferedToolView {
            name: tool.name.clone(),
            description: tool.description.clone(),
            read_only: tool.read_only,
            idempotent: tool.idempotent,
            confirm: tool.confirm,
            reconcile: tool.reconcile,
            connected: processes.iter().filter(runs).count(),
            worker,
            version,
        }
    });
    let tools = tools.collect();
    let workers = processes.into_iter().map(|it| WorkerProcess {
        worker: it.worker,
        worker_id: it.worker_id,
        owner: it.owner,
        session_id: it.session.map(|session| session.to_string()),
        is_connected: it.is_connected,
        is_draining: it.is_draining,
        held: it.held,
        capacity: it.capacity,
        tools: it.tools.into_iter().map(|(name, _)| name).collect(),
    });
    Ok(ToolList { tools, workers: workers.collect() })
}
