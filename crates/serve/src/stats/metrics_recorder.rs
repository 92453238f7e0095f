//! Reports counts to Prometheus. Only records since the server's start count, so the metrics start at zero.

use std::{collections::HashSet, time::Duration};

use budao_core::{
    Kind, Timestamp,
    event::{Stage, StopReason},
    fallback::ModelChangeReason,
};
use metrics::{counter, histogram};

use super::ledger::{FaultEntry, Name, OTHER};
use crate::metrics::Metrics;

/// Upper bound of series by code, tool and stage; beyond it, the tool is reported as `other`.
const FAULT_SERIES: usize = 1_000;

/// Updates the Prometheus metrics from counted records.
#[derive(Debug)]
pub(super) struct MetricsRecorder {
    metrics: Metrics,
    /// Records before this time are not reported.
    since: Timestamp,
    known_series: HashSet<(Kind, Option<Name>, Option<Stage>)>,
}

impl MetricsRecorder {
    pub(super) fn new(metrics: Metrics, since: Timestamp) -> Self {
        Self { metrics, since, known_series: HashSet::new() }
    }

    fn at(&self, at: Timestamp, record: impl FnOnce()) {
        if at >= self.since {
            self.metrics.within(record);
        }
    }

    pub(super) fn fault(&mut self, seen: &FaultEntry) {
        let mut tool = seen.tool.clone();
        let series = (seen.kind, tool.clone(), seen.stage);
        if !self.known_series.contains(&series) {
            if self.known_series.len() < FAULT_SERIES {
                self.known_series.insert(series);
            } else {
                tool = tool.map(|_| OTHER.into());
            }
        }
        let row = seen.kind.row();
        let labels = [
            ("code", row.code.to_owned()),
            ("kind", row.name.to_owned()),
            ("error_type", row.error_type.to_string()),
            ("category", row.category.to_string()),
            ("severity", row.severity.to_string()),
            ("recoverable", row.recoverable.to_string()),
            ("tool", tool.as_deref().unwrap_or_default().to_owned()),
            ("stage", seen.stage.map(Into::<&str>::into).unwrap_or_default().to_owned()),
        ];
        self.at(seen.at, || {
            counter!("budao_faults_total", &labels[..]).increment(1);
            if let Some(tenant) = &seen.tenant {
                let labels = [("tenant", tenant.to_string()), ("code", row.code.to_owned())];
                counter!("budao_tenant_faults_total", &labels[..]).increment(1);
            }
            if seen.kind == Kind::ToolAbandoned {
                counter!("budao_calls_abandoned_total").increment(1);
            }
        });
    }

    pub(super) fn retry(&self, at: Timestamp) {
        self.at(at, || counter!("budao_retries_total").increment(1));
    }

    pub(super) fn retried(&self, at: Timestamp, succeeded: bool) {
        let result = if succeeded { "succeeded" } else { "failed" };
        self.at(at, || counter!("budao_retried_total", "result" => result).increment(1));
    }

    pub(super) fn recovery(&self, at: Timestamp, took: Duration) {
        self.at(at, || histogram!("budao_recovery_seconds").record(took));
    }

    pub(super) fn turn(&self, at: Timestamp, stop: StopReason, took: Duration) {
        let stop: &'static str = stop.into();
        self.at(at, || {
            counter!("budao_turns_total", "stop" => stop).increment(1);
            histogram!("budao_turn_seconds").record(took);
        });
    }

    pub(super) fn step(&self, at: Timestamp, model: &Name) {
        let model = model.to_string();
        self.at(at, || counter!("budao_steps_total", "model" => model).increment(1));
    }

    pub(super) fn answer(&self, at: Timestamp, took: Duration) {
        self.at(at, || histogram!("budao_step_seconds").record(took));
    }

    pub(super) fn call(&self, at: Timestamp, tool: &Name, succeeded: bool, took: Duration) {
        let (tool, result) = (tool.to_string(), if succeeded { "done" } else { "failed" });
        self.at(at, || {
            counter!("budao_calls_total", "tool" => tool.clone(), "result" => result).increment(1);
            histogram!("budao_call_seconds", "tool" => tool).record(took);
        });
    }

    pub(super) fn model_changed(
        &self,
        at: Timestamp,
        from: &Name,
        to: &Name,
        reason: ModelChangeReason,
    ) {
        let labels =
            [("from", from.to_string()), ("to", to.to_string()), ("reason", reason.to_string())];
        self.at(at, || counter!("budao_model_fallbacks_total", &labels[..]).increment(1));
    }

    pub(super) fn late(&self, at: Timestamp) {
        self.at(at, || counter!("budao_late_results_dropped_total").increment(1));
    }

    pub(super) fn lost(&self, at: Timestamp) {
        self.at(at, || counter!("budao_observers_lost_total").increment(1));
    }
}
