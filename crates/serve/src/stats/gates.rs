//! The state of the gates to model services, as `/api/stats` and `/metrics` report it. Metrics are written here and not
//! kept by the recorder, which would report a gate for ever.

use std::fmt::Write;

use budao_core::{
    Timestamp,
    engine::Engine,
    gate::{GateKey, GateStatus},
};
use serde::Serialize;

/// A gate: admission control for one endpoint, model and credential.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct GateReport {
    /// The address of the service, or the name of its provider.
    endpoint: String,
    /// The model, as the service names it.
    model: String,
    /// A short hash that tells credentials apart; empty without one.
    credential: String,
    /// `open` or `held`.
    state: &'static str,
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
    waiting: usize,
    /// Waiting requests of sessions without observers.
    waiting_background: usize,
    /// Requests under way.
    in_flight: usize,
    /// The most requests that may be under way.
    limit: u32,
    /// The most requests in a second; absent while no limit is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<f64>,
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

/// The value of a metric for one gate; absent if the gate has none.
type MetricValue = fn(&GateStatus) -> Option<f64>;

const METRICS: [(&str, &str, MetricValue); 9] = [
    ("open", "1 while the gate to a model service is open, 0 while it is held.", |gate| {
        Some(f64::from(u8::from(gate.held.is_none())))
    }),
    ("waiting", "Requests waiting at a gate.", |gate| Some(count(gate.waiting))),
    ("waiting_background", "Waiting requests of sessions that nobody observes.", |gate| {
        Some(count(gate.waiting_background))
    }),
    ("in_flight", "Requests to a model service in flight.", |gate| Some(count(gate.in_flight))),
    ("limit", "Largest number of requests that a gate lets through at a time.", |gate| {
        Some(f64::from(gate.limit))
    }),
    ("rate", "Largest number of requests in a second, while a limit is known.", |gate| gate.rate),
    ("held_since_seconds", "Unix time since which a gate is held.", |gate| {
        gate.since.map(unix_seconds)
    }),
    ("held_until_seconds", "Unix time at which a held gate opens or probes, if known.", |gate| {
        gate.until.map(unix_seconds)
    }),
    ("last_error_seconds", "Unix time of the last failure of a model service.", |gate| {
        gate.last_error.as_ref().map(|(_, at)| unix_seconds(*at))
    }),
];

/// The gates as metrics in the Prometheus text format.
pub(crate) fn render_gates(gates: &[(GateKey, GateStatus)]) -> String {
    let mut text = String::new();
    for (name, meaning, value) in METRICS {
        let values = gates.iter().filter_map(|(key, gate)| value(gate).map(|value| (key, value)));
        let values: Vec<_> = values.collect();
        if values.is_empty() {
            continue;
        }
        let _ =
            writeln!(text, "# HELP budao_gate_{name} {meaning}\n# TYPE budao_gate_{name} gauge");
        for (key, value) in values {
            let [endpoint, model, credential] =
                [&key.endpoint, &key.model, &key.credential].map(|label| escape_label(label));
            let _ = writeln!(
                text,
                "budao_gate_{name}{{endpoint=\"{endpoint}\",model=\"{model}\",\
                 credential=\"{credential}\"}} {value}"
            );
        }
    }
    text
}

fn escape_label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn count(number: usize) -> f64 {
    number as f64
}

#[expect(clippy::cast_precision_loss, reason = "seconds with milliseconds need fewer bits")]
fn unix_seconds(at: Timestamp) -> f64 {
    at.as_millis() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use budao_core::{Fault, Kind, fault::Operation, gate::HoldReason};

    use super::*;

    #[test]
    fn gates_are_written_with_escaped_labels_and_vanish_with_their_gates() {
        let key = GateKey {
            endpoint: "http://a".into(),
            model: "m\"\\\n".into(),
            credential: "c".into(),
        };
        let at = Timestamp::from_micros(1_794_729_600_500_000);
        let fault = Fault::new(Kind::ModelRateLimited, Operation::ModelRequest);
        let status = GateStatus {
            held: Some(HoldReason::RateLimit),
            since: Some(at),
            until: None,
            waiting: 3,
            waiting_background: 1,
            in_flight: 0,
            limit: 4,
            rate: None,
            last_error: Some((fault, at)),
        };
        let text = render_gates(&[(key, status)]);
        let labels = r#"{endpoint="http://a",model="m\"\\\n",credential="c"}"#;
        assert!(text.contains(&format!("budao_gate_open{labels} 0\n")), "{text}");
        assert!(text.contains(&format!("budao_gate_waiting{labels} 3\n")), "{text}");
        let since = format!("budao_gate_held_since_seconds{labels} 1794729600.5\n");
        assert!(text.contains(&since), "{text}");
        assert!(!text.contains("rate") && !text.contains("until"), "{text}");
        assert_eq!(render_gates(&[]), "");
    }
}
