//! Facts about a trace besides the journal, over HTTP.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, State},
    response::{IntoResponse as _, Response},
};
use budao_core::{
    Fault, Kind,
    fault::{Fact, Operation},
};
use serde::Serialize;

use super::{
    middleware::{Caller, fault_response},
    sessions::parse_trace,
    stats::require_operator,
};
use crate::{problem::Problem, server::Server};

/// Further sources about a trace.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct TraceView {
    /// The trace's id, 32 hex digits.
    trace_id: String,
    /// The address of the trace in the configured trace viewer; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    viewer: Option<String>,
    /// The lines of this server's log file that name the trace, the oldest first, without secrets; absent if the server
    /// writes no log file.
    #[serde(skip_serializing_if = "Option::is_none")]
    lines: Option<Vec<String>>,
    /// True if older lines were left out: an answer has at most 200 lines of the last 64 MiB.
    cut: bool,
}

/// Finds the address of a trace in the trace viewer and the log lines that name it. For operators only.
#[utoipa::path(
    get,
    path = "/api/traces/{trace}",
    params(("trace" = String, Path, description = "The trace's id, 32 hex digits")),
    responses(
        (status = 200, description = "The address and the lines", body = TraceView),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn trace(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(trace): Path<String>,
) -> Response {
    match look_up(&server, &caller, &trace).await {
        Ok(view) => Json(view).into_response(),
        Err(fault) => fault_response(&server, fault, &caller),
    }
}

async fn look_up(server: &Server, caller: &Caller, trace: &str) -> Result<TraceView, Fault> {
    require_operator(caller, "/api/traces")?;
    let trace = parse_trace(trace)?;
    let config = &server.config;
    let viewer = config.trace_viewer.as_ref().map(|viewer| viewer.link(trace));
    let found = match &config.log_files {
        Some(files) => Some(files.find_lines(trace, &config.scrubber).await.map_err(|error| {
            Fault::new(Kind::FilePermission, Operation::ReadFile)
                .with(Fact::Path, "log.file")
                .caused_by(&error)
        })?),
        None => None,
    };
    let cut = found.as_ref().is_some_and(|found| found.is_cut);
    let lines = found.map(|found| found.lines);
    Ok(TraceView { trace_id: trace.to_string(), viewer, lines, cut })
}
