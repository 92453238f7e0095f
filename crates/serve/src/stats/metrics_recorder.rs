//! Reports counts to Prometheus.

use std::{collections::HashSet, time::Duration};

use budao_core::{
    Kind,
    event::{Stage, StopReason},
    fallback::ModelChangeReason,
    message::Usage,
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
    known_series: HashSet<(Kind, Option<Name>, Option<Stage>)>,
}

impl MetricsRecorder {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { metrics, known_series: HashSet::new() }
    }

    pub(super) fn record_fault(&mut self, seen: &FaultEntry) {
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
        self.metrics.run_with_recorder(|| {
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

    pub(super) fn record_retry(&self) {
        self.metrics.run_with_recorder(|| counter!("budao_retries_total").increment(1));
    }

    pub(super) fn record_retried(&self, succeeded: bool) {
        let result = if succeeded { "succeeded" } else { "failed" };
        self.metrics
            .run_with_recorder(|| counter!("budao_retried_total", "result" => result).increment(1));
    }

    pub(super) fn record_recovery(&self, took: Duration) {
        self.metrics.run_with_recorder(|| histogram!("budao_recovery_seconds").record(took));
    }

    pub(super) fn record_turn(&self, stop: StopReason, took: Duration) {
        let stop: &'static str = stop.into();
        self.metrics.run_with_recorder(|| {
            counter!("budao_turns_total", "stop" => stop).increment(1);
            histogram!("budao_turn_seconds").record(took);
        });
    }

    pub(super) fn record_step(&self, model: &Name) {
        let model = model.to_string();
        self.metrics
            .run_with_recorder(|| counter!("budao_steps_total", "model" => model).increment(1));
    }

    pub(super) fn record_usage(&self, model: &Name, usage: Usage) {
        let cached = usage.cached_tokens.min(usage.input_tokens);
        let counts = [
            ("input", usage.input_tokens - cached),
            ("cached_input", cached),
            ("output", usage.output_tokens),
        ];
        self.metrics.run_with_recorder(|| {
            for (kind, tokens) in counts {
                let labels = [("model", model.to_string()), ("kind", kind.to_owned())];
                counter!("budao_model_tokens_total", &labels[..]).increment(tokens);
            }
        });
    }

    pub(super) fn record_cost(
        &self,
        model: &Name,
        tenant: Option<&Name>,
        key: Option<&Name>,
        micros: u64,
    ) {
        let [tenant, key] =
            [tenant, key].map(|name| name.map(ToString::to_string).unwrap_or_default());
        let labels = [("model", model.to_string()), ("tenant", tenant), ("key", key)];
        self.metrics.run_with_recorder(|| {
            counter!("budao_cost_micros_total", &labels[..]).increment(micros);
        });
    }

    pub(super) fn record_answer(&self, took: Duration) {
        self.metrics.run_with_recorder(|| histogram!("budao_step_seconds").record(took));
    }

    pub(super) fn record_call(&self, tool: &Name, succeeded: bool, took: Duration) {
        let (tool, result) = (tool.to_string(), if succeeded { "done" } else { "failed" });
        self.metrics.run_with_recorder(|| {
            counter!("budao_calls_total", "tool" => tool.clone(), "result" => result).increment(1);
            histogram!("budao_call_seconds", "tool" => tool).record(took);
        });
    }

    pub(super) fn record_model_change(&self, from: &Name, to: &Name, reason: ModelChangeReason) {
        let labels =
            [("from", from.to_string()), ("to", to.to_string()), ("reason", reason.to_string())];
        self.metrics.run_with_recorder(|| {
            counter!("budao_model_fallbacks_total", &labels[..]).increment(1);
        });
    }

    pub(super) fn record_late_result(&self) {
        self.metrics
            .run_with_recorder(|| counter!("budao_late_results_dropped_total").increment(1));
    }

    pub(super) fn record_lost_observer(&self) {
        self.metrics.run_with_recorder(|| counter!("budao_observers_lost_total").increment(1));
    }
}
