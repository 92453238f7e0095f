//! Liveness, readiness and metrics endpoints.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::State,
    response::{IntoResponse as _, Response},
};
use budao_core::{
    Fault, Kind, Lang,
    fault::{Fact, Operation},
    trace::Trace,
};
use budao_journal::Filter;
use budao_remote::WorkerCounts;
use futures::future::{self, Either};
use http::header;
use metrics::{counter, gauge};

use super::{
    middleware::{Caller, fault_response, refuse},
    stats::require_operator,
};
use crate::stats::render_gates;
use crate::{nodes::NodeView, server::Server};

/// Time limit for the journal probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a probe's result is cached.
const PROBE_CACHE_TIME: Duration = Duration::from_millis(500);
/// Upper bound of sessions examined for queued commands.
const UNFINISHED_MAX: usize = 1_000;

/// Liveness: always `ok` while the process responds.
pub(super) async fn report_liveness() -> &'static str {
    "ok\n"
}

/// Readiness: the journal reads and writes, and the server is not shutting down.
pub(super) async fn report_readiness(
    State(server): State<Arc<Server>>,
    Extension((lang, trace)): Extension<(Lang, Trace)>,
) -> Response {
    match check_readiness(&server).await {
        Ok(()) => "ready\n".into_response(),
        Err(fault) => {
            let mut response = refuse(&server, fault, lang, trace);
            *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
            response
        }
    }
}

async fn check_readiness(server: &Server) -> Result<(), Fault> {
    if server.stopping.is_cancelled() {
        return Err(Fault::new(Kind::ShuttingDown, Operation::ServeRequest));
    }
    let mut last = server.last_probe.lock().await;
    if let Some((at, result)) = &*last
        && server.now().since(*at) < PROBE_CACHE_TIME
    {
        return result.clone();
    }
    // Listing first updates the journal's views, so the probe covers the writer and a reader.
    let probe = server.journal.sessions(Filter { limit: 1, ..Filter::default() });
    let result = match future::select(probe, server.world.clock.sleep(PROBE_TIMEOUT)).await {
        Either::Left((found, _)) => found.map(drop),
        Either::Right(_) => Err(Fault::new(Kind::JournalBusy, Operation::ReadRecords)
            .with(Fact::TimeoutMs, u64::try_from(PROBE_TIMEOUT.as_millis()).unwrap_or(u64::MAX))),
    };
    *last = Some((server.now(), result.clone()));
    result
}

/// All metrics in the Prometheus text format. For operators only.
pub(super) async fn metrics(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
) -> Response {
    match render_metrics(&server, &caller).await {
        Ok(text) => {
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(fault) => fault_response(&server, fault, &caller),
    }
}

async fn render_metrics(server: &Server, caller: &Caller) -> Result<String, Fault> {
    require_operator(caller, "/metrics")?;
    let journal = &*server.journal;
    let written = server.engine.take_written();
    let is_complete =
        server.node_metrics.lock().await.count(journal, written, server.now()).await?;
    // Open doubts are those of the journal, whichever server left them.
    let mut stats = server.stats.lock().await;
    stats.catch_up(journal, server.now()).await?;
    let doubts = stats.open_doubts(journal).await?.len();
    drop(stats);
    let unfinished = journal.unfinished(None, UNFINISHED_MAX).await?;
    let waiting: usize = unfinished.iter().map(|session| session.pending).sum();
    let load = journal.load();
    let metrics = &server.config.metrics;
    metrics.run_with_recorder(|| {
        gauge!("budao_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1);
        gauge!("budao_uptime_seconds").set(server.uptime().as_secs_f64());
        gauge!("budao_connections").set(gauge_value(server.admission.connections()));
        let (observed, observers, lag) = server.hubs.counts();
        gauge!("budao_sessions_observed").set(gauge_value(observed));
        gauge!("budao_observers").set(gauge_value(observers));
        gauge!("budao_observers_waiting_bytes").set(gauge_value(server.budget.used_bytes()));
        gauge!("budao_observer_lag_bytes").set(gauge_value(lag));
        counter!("budao_observers_detached_total").absolute(server.budget.slow_observers() as u64);
        gauge!("budao_sessions_unfinished").set(gauge_value(unfinished.len()));
        gauge!("budao_commands_waiting").set(gauge_value(waiting));
        gauge!("budao_sessions_loaded").set(gauge_value(server.engine.loaded()));
        let nodes = server.config.node.as_ref().map(|node| node.nodes()).unwrap_or_default();
        let states: Vec<String> = nodes.iter().map(|node| NodeView::from(node).state).collect();
        for state in ["alive", "draining", "gone"] {
            let found = states.iter().filter(|found| *found == state).count();
            gauge!("budao_nodes", "state" => state).set(gauge_value(found));
        }
        gauge!("budao_doubts_open").set(gauge_value(doubts));
        if let Some(workers) = &server.config.workers {
            let WorkerCounts { connected, open, opened } = workers.counts();
            gauge!("budao_workers").set(gauge_value(connected));
            gauge!("budao_worker_calls_open").set(gauge_value(open));
            counter!("budao_worker_calls_total").absolute(opened);
        }
        gauge!("budao_stats_complete").set(f64::from(u8::from(is_complete)));
        gauge!("budao_journal_queue").set(gauge_value(load.queued_requests));
        gauge!("budao_journal_bytes")
            .set(gauge_value(usize::try_from(load.bytes).unwrap_or(usize::MAX)));
    });
    Ok(metrics.render() + &render_gates(&server.engine.gates()))
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn gauge_value(number: usize) -> f64 {
    number as f64
}
