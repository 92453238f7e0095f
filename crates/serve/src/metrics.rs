//! Metrics for Prometheus.
//!
//! Metrics about sessions are derived from records when they are requested (`stats`), so they cost a turn nothing.
//! Metrics without a record (connections, queued bytes, sync times) are measured where they occur. Label values come
//! from the catalog, from enums, or from a bounded set of names, never from a session.

use std::sync::Arc;

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

/// Histogram buckets in seconds for appends and syncs: 0.1 ms to 2.5 s.
const SHORT_BUCKETS: [f64; 12] =
    [0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5];
/// Histogram buckets in seconds for turns, model requests, calls and recoveries: 5 ms to 10 min.
const LONG_BUCKETS: [f64; 14] =
    [0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 600.0];

/// A Prometheus recorder. Clones share its data.
#[derive(Clone)]
pub struct Metrics {
    recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Creates an empty recorder.
    #[must_use]
    pub fn new() -> Self {
        let journal = Matcher::Prefix("budao_journal_".to_owned());
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(journal, &SHORT_BUCKETS)
            .and_then(|builder| builder.set_buckets(&LONG_BUCKETS))
            .expect("there are bounds")
            .build_recorder();
        let handle = recorder.handle();
        let metrics = Self { recorder: Arc::new(recorder), handle };
        metrics.run_with_recorder(describe);
        metrics
    }

    /// Makes this the global recorder of the process, so that it also receives the journal's metrics. Works once per
    /// process; only programs should call it, not libraries.
    pub fn install(&self) {
        if metrics::set_global_recorder(Arc::clone(&self.recorder)).is_err() {
            tracing::warn!("another metrics recorder is installed");
        }
    }

    /// Runs `work` with this as its recorder.
    pub(crate) fn run_with_recorder<T>(&self, work: impl FnOnce() -> T) -> T {
        metrics::with_local_recorder(&*self.recorder, work)
    }

    /// Renders all metrics in the Prometheus text format.
    pub(crate) fn render(&self) -> String {
        self.handle.render()
    }

    /// Merges histogram samples, so that memory stays bounded if no scrape happens.
    pub(crate) fn upkeep(&self) {
        self.handle.run_upkeep();
    }
}

/// Registers the help text of each metric.
fn describe() {
    let counters = [
        ("budao_faults_total", "Faults, by code, class, category, tool and stage."),
        (
            "budao_tenant_faults_total",
            "Faults by tenant and code; `other` stands for tenants beyond the first 200.",
        ),
        ("budao_retries_total", "Retries made."),
        ("budao_retried_total", "Operations that were retried, by final result."),
        ("budao_turns_total", "Ended turns, by stop reason."),
        ("budao_steps_total", "Model requests, by model."),
        (
            "budao_model_fallbacks_total",
            "Changes of the model within a list, by models and reason.",
        ),
        ("budao_calls_total", "Ended tool calls, by tool and result."),
        (
            "budao_calls_abandoned_total",
            "Calls that did not stop when cancelled and were abandoned.",
        ),
        ("budao_late_results_dropped_total", "Results that arrived after their turn had ended."),
        ("budao_observers_lost_total", "Observers that lost their connection."),
        ("budao_observers_detached_total", "Observers disconnected because they read too slowly."),
        ("budao_journal_failures_total", "Failed transactions."),
        ("budao_sessions_taken_over_total", "Sessions taken over from servers that are gone."),
        ("budao_spans_total", "Spans for the trace collector, by result."),
        ("budao_worker_calls_total", "Calls of tools that workers offer."),
    ];
    for (name, meaning) in counters {
        describe_counter!(name, meaning);
    }
    let gauges = [
        ("budao_build_info", "Always 1; the label is the version."),
        ("budao_uptime_seconds", "Time since the server started."),
        ("budao_connections", "WebSocket connections."),
        ("budao_workers", "Connected processes that offer tools."),
        ("budao_worker_calls_open", "Open calls of tools that workers offer."),
        ("budao_sessions_observed", "Sessions with observers."),
        ("budao_observers", "Observers of sessions."),
        ("budao_observers_waiting_bytes", "Bytes waiting to be sent to observers."),
        ("budao_observer_lag_bytes", "Bytes waiting for the slowest observer."),
        (
            "budao_sessions_unfinished",
            "Sessions with an open turn or waiting commands, up to 1000.",
        ),
        ("budao_sessions_loaded", "Sessions that this server has loaded."),
        ("budao_nodes", "Servers of the journal, by state."),
        ("budao_commands_waiting", "Commands waiting in those sessions."),
        ("budao_journal_bytes", "Size of the journal files."),
        ("budao_journal_queue", "Requests waiting for the journal writer."),
        (
            "budao_journal_partitions_end_seconds",
            "Until when there are partitions for records, as Unix time; PostgreSQL only.",
        ),
        (
            "budao_doubts_open",
            "Calls whose outcome is unknown, in sessions that changed in the last seven days.",
        ),
        ("budao_stats_complete", "0 while records are still to be counted."),
    ];
    for (name, meaning) in gauges {
        describe_gauge!(name, meaning);
    }
    let histograms = [
        ("budao_recovery_seconds", "Time from the first failure to recovery."),
        ("budao_turn_seconds", "Duration of turns."),
        ("budao_step_seconds", "Duration of model answers, failed tries included."),
        ("budao_call_seconds", "Duration of tool calls, by tool."),
        ("budao_journal_append_seconds", "Time from request to durable, queueing included."),
        ("budao_journal_sync_seconds", "Duration of transactions, sync included."),
        ("budao_journal_checkpoint_seconds", "Duration of checkpoints of the write-ahead log."),
    ];
    for (name, meaning) in histograms {
        describe_histogram!(name, Unit::Seconds, meaning);
    }
}
