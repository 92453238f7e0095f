//! Converts spans to OpenTelemetry, by its naming conventions. Attributes never contain messages, arguments or
//! results.

use std::{
    borrow::Cow,
    time::{Duration, SystemTime},
};

use budao_core::{
    Timestamp,
    message::Usage,
    span::{Span, SpanOperation},
};
use opentelemetry::{
    InstrumentationScope, KeyValue,
    trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState},
};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

/// Converts one span for the exporter.
pub(super) fn data(span: Span) -> SpanData {
    let (name, span_kind, mut attributes) = described(&span.about);
    if let Some(session) = span.session {
        attributes.push(KeyValue::new("gen_ai.conversation.id", session.to_string()));
    }
    let status = match span.failed {
        None => Status::Unset,
        Some(code) => {
            attributes.push(KeyValue::new("error.type", code.clone().into_owned()));
            Status::Error { description: code }
        }
    };
    SpanData {
        span_context: SpanContext::new(
            TraceId::from_bytes(span.trace.as_u128().to_be_bytes()),
            id(span.id),
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        ),
        parent_span_id: id(span.parent),
        parent_span_is_remote: matches!(
            span.about,
            SpanOperation::Request { .. } | SpanOperation::ServedCall { .. }
        ),
        span_kind,
        name,
        start_time: time(span.began),
        end_time: time(span.ended),
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status,
        instrumentation_scope: InstrumentationScope::builder("budao")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build(),
    }
}

fn id(id: budao_core::trace::SpanId) -> SpanId {
    SpanId::from_bytes(id.as_u64().to_be_bytes())
}

fn time(at: Timestamp) -> SystemTime {
    let micros = u64::try_from(at.as_micros()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}

fn described(about: &SpanOperation) -> (Cow<'static, str>, SpanKind, Vec<KeyValue>) {
    let text = |key: &'static str, value: &str| KeyValue::new(key, value.to_owned());
    let number = |key: &'static str, value: u64| {
        KeyValue::new(key, i64::try_from(value).unwrap_or(i64::MAX))
    };
    match about {
        SpanOperation::Request { what } => {
            (format!("request {what}").into(), SpanKind::Server, vec![text("budao.request", what)])
        }
        SpanOperation::Turn { turn, steps, stop, usage } => {
            let mut attributes = vec![
                text("gen_ai.operation.name", "invoke_agent"),
                number("budao.turn", *turn),
                number("budao.steps", (*steps).into()),
                text("budao.stop", stop.into()),
            ];
            attributes.extend(used(usage));
            ("turn".into(), SpanKind::Internal, attributes)
        }
        SpanOperation::Model { model, step, attempt, usage } => {
            let mut attributes = vec![
                text("gen_ai.operation.name", "chat"),
                text("gen_ai.request.model", model),
                number("budao.step", (*step).into()),
                number("budao.attempt", (*attempt).into()),
            ];
            attributes.extend(usage.iter().flat_map(used));
            (format!("chat {model}").into(), SpanKind::Client, attributes)
        }
        SpanOperation::Compaction => ("compact history".into(), SpanKind::Internal, Vec::new()),
        SpanOperation::Call { tool, call, attempt } => {
            let attributes = vec![
                text("gen_ai.operation.name", "execute_tool"),
                text("gen_ai.tool.name", tool),
                text("gen_ai.tool.call.id", &call.0),
                number("budao.attempt", (*attempt).into()),
            ];
            (format!("execute_tool {tool}").into(), SpanKind::Internal, attributes)
        }
        SpanOperation::RemoteCall { computer, tool } => {
            let attributes =
                vec![text("gen_ai.tool.name", tool), text("budao.smcp.computer", computer)];
            (format!("smcp call {tool}").into(), SpanKind::Client, attributes)
        }
        SpanOperation::Relay { event, computer, tool } => {
            let mut attributes =
                vec![text("budao.smcp.event", event), text("budao.smcp.computer", computer)];
            if !tool.is_empty() {
                attributes.push(text("gen_ai.tool.name", tool));
            }
            (format!("smcp relay {event}").into(), SpanKind::Server, attributes)
        }
        SpanOperation::ServedCall { tool } => {
            let attributes =
                vec![text("gen_ai.operation.name", "execute_tool"), text("gen_ai.tool.name", tool)];
            (format!("smcp serve {tool}").into(), SpanKind::Server, attributes)
        }
    }
}

fn used(usage: &Usage) -> [KeyValue; 2] {
    let tokens = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    [
        KeyValue::new("gen_ai.usage.input_tokens", tokens(usage.input_tokens)),
        KeyValue::new("gen_ai.usage.output_tokens", tokens(usage.output_tokens)),
    ]
}

#[cfg(test)]
pub(super) mod tests {
    use budao_core::trace::{SpanId, Trace};

    use super::*;

    /// A span of a failed call.
    pub(in crate::traces) fn span() -> Span {
        Span {
            trace: Trace::from_random(0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c),
            id: SpanId::from_random(2),
            parent: SpanId::from_random(1),
            session: None,
            began: Timestamp::from_micros(1_000),
            ended: Timestamp::from_micros(3_000),
            failed: Some("ERR_TOOL_001".into()),
            about: SpanOperation::Call { tool: "look".into(), call: "c".into(), attempt: 2 },
        }
    }

    #[test]
    fn our_trace_is_the_collectors_trace() {
        let data = data(span());
        let trace = data.span_context.trace_id().to_string();
        assert_eq!(trace, "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(data.parent_span_id.to_string(), "0000000000000001");
        assert_eq!(data.name, "execute_tool look");
        assert!(matches!(data.status, Status::Error { .. }));
        let took = data.end_time.duration_since(data.start_time).unwrap();
        assert_eq!(took, Duration::from_millis(2));
    }
}
