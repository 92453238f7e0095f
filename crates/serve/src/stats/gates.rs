//! The state of the gates to model services, as `/api/stats` and `/metrics` report it.

use budao_core::{
    engine::Engine,
    gate::{GateKey, GateStatus},
};
use serde::Serialize;

/// A gate: admission control for one endpoint, model and credential.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct GateReport {
    /// The address of the service, or the name of its provider.
    pub(crate) endpoint: String,
    /// The model, as the service names it.
    pub(crate) model: String,
    /// A short hash that tells credentials apart; empty without one.
    pub(crate) credential: String,
    /// `open` or `held`.
    pub(crate) state: &'static str,
    /// Why it is held: `rate_limit` or `outage`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// Since when it is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    /// When it opens or is probed next, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    /// Requests that wait.
    pub(crate) waiting: usize,
    /// Waiting requests of sessions that nobody observes.
    waiting_background: usize,
    /// Requests under way.
    pub(crate) in_flight: usize,
    /// The most requests that may be under way.
    pub(crate) limit: u32,
    /// The most requests in a second; absent while no limit is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<f64>,
    /// The code of the last failure of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<&'static str>,
    /// When the service failed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error_at: Option<String>,
}

/// The state of every gate of an engine.
pub(crate) fn gate_reports(engine: &dyn Engine) -> Vec<GateReport> {
    engine.gates().iter().map(|(key, status)| GateReport::of(key, status)).collect()
}

impl GateReport {
    fn of(key: &GateKey, status: &GateStatus) -> Self {
        Self {
            endpoint: key.endpoint.to_string(),
            model: key.model.to_string(),
            credential: key.credential.to_string(),
            state: if status.held.is_some() { "held" } else { "open" },
            reason: status.held.map(Into::into),
            since: status.since.map(|at| at.to_string()),
            until: status.until.map(|at| at.to_string()),
            waiting: status.waiting,
            waiting_background: status.waiting_background,
            in_flight: status.in_flight,
            limit: status.limit,
            rate: status.rate,
            last_error: status.last_error.as_ref().map(|(fault, _)| fault.row().code),
            last_error_at: status.last_error.as_ref().map(|(_, at)| at.to_string()),
        }
    }
}
