//! The fault statistics over HTTP.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Query, State, rejection::QueryRejection},
    response::{IntoResponse as _, Response},
};
use budao_core::{
    Fault, Kind,
    fault::{Fact, Operation},
};
use serde::Deserialize;

use super::{
    middleware::{Caller, fault_response},
    sessions::bad_query_fault,
};
use crate::{
    config::CounterSource,
    problem::Problem,
    server::Server,
    stats::{Report, Window, gate_reports},
};

/// Period of the report.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub(super) struct StatsQuery {
    /// `5m`, `1h`, `24h` or `7d`, counted back from now; `1h` if absent.
    window: Option<String>,
}

/// Fault statistics over a window: counts, retries and recoveries of all sessions. For operators only.
#[utoipa::path(
    get,
    path = "/api/stats",
    params(StatsQuery),
    responses(
        (status = 200, description = "The counts of the window", body = Report),
        (status = "default", description = "A fault as problem details (RFC 9457)", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn stats(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    query: Result<Query<StatsQuery>, QueryRejection>,
) -> Response {
    let report = async {
        require_operator(&caller, "/api/stats")?;
        let Query(query) = query.map_err(|error| bad_query_fault(&error.body_text()))?;
        let window = query.window.as_deref().map(Window::read).transpose()?.unwrap_or_default();
        let mut stats = server.stats.lock().await;
        let mut report = stats.report(&*server.journal, window, server.now()).await?;
        report.gates = gate_reports(&*server.engine);
        report.smcp = server.config.smcp_counters.as_ref().map(CounterSource::now);
        report.mcp = server.config.mcp_servers.as_ref().map(CounterSource::now);
        Ok::<_, Fault>(report)
    };
    match report.await {
        Ok(report) => Json(report).into_response(),
        Err(fault) => fault_response(&server, fault, &caller),
    }
}

/// Restricts an endpoint to operators, because it covers all tenants' sessions.
pub(super) fn require_operator(caller: &Caller, endpoint: &'static str) -> Result<(), Fault> {
    if caller.identity.is_operator {
        return Ok(());
    }
    Err(Fault::new(Kind::NotAllowed, Operation::ServeRequest)
        .with(Fact::EventName, endpoint)
        .with(Fact::Reason, "operators only"))
}
