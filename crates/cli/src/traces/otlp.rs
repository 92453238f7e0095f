//! Converts spans to OpenTelemetry, by the GenAI conventions (`open-telemetry/semantic-conventions-genai`, October 2026).
//!
//! Tokens are on the spans of model requests only, because viewers add them up. Cache reads have both names that are in
//! use. Messages, arguments and results are there only if `--traces-content` says so. What failed is a span event too,
//! with its code and who acts on it.

use std::{
    borrow::Cow,
    time::{Duration, SystemTime},
};

use budao_core::{
    Kind, Timestamp,
    message::{ModelStop, ResponseInfo, Usage},
    span::{Span, SpanContent, SpanOperation},
};
use budao_models::{Spec, Vendor};
use opentelemetry::{
    Array, InstrumentationScope, KeyValue, Value,
    trace::{
        Event as TraceEvent, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
    },
};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use strum::VariantArray as _;

/// The name of the agent in its spans.
const AGENT: &str = "budao";
const INPUT_MESSAGES: &str = "gen_ai.input.messages";
const OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
const MAX_TOKENS: &str = "gen_ai.request.max_tokens";

/// Converts one span for the exporter.
pub(super) fn data(span: Span) -> SpanData {
    let (name, span_kind, mut attributes) = described(&span.about, span.began);
    let events = fault_event(&span);
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
        events,
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

/// The failure of a span as an event: its code, its kind and who acts on it.
fn fault_event(span: &Span) -> SpanEvents {
    let mut events = SpanEvents::default();
    let Some(code) = &span.failed else { return events };
    let mut attributes = vec![KeyValue::new("budao.fault.code", code.clone().into_owned())];
    if let Some(kind) = Kind::VARIANTS.iter().find(|kind| kind.row().code == &**code) {
        let row = kind.row();
        attributes.push(KeyValue::new("budao.fault.kind", row.name));
        attributes.push(KeyValue::new("budao.fault.remedy", <&str>::from(row.remedy)));
        attributes.push(KeyValue::new("budao.fault.category", <&str>::from(row.category)));
    }
    events.events.push(TraceEvent::new("budao.fault", time(span.ended), attributes, 0));
    events
}

/// The provider by the conventions' names, the model's own name, and the address of a server that the specification names.
fn service_attributes(model: &str) -> Vec<KeyValue> {
    let spec = model.parse::<Spec>().ok();
    let (provider, name, url) = match spec {
        Some(Spec::Hosted { vendor, name, url }) => (provider_name(vendor), name, url),
        Some(_) => ("budao", model.to_owned(), None),
        None => ("unknown", model.to_owned(), None),
    };
    let mut attributes = vec![
        KeyValue::new("gen_ai.provider.name", provider),
        KeyValue::new("gen_ai.request.model", name),
    ];
    let url = url.and_then(|url| reqwest::Url::parse(&url).ok());
    if let Some(host) = url.as_ref().and_then(reqwest::Url::host_str) {
        attributes.push(KeyValue::new("server.address", host.to_owned()));
    }
    if let Some(port) = url.as_ref().and_then(reqwest::Url::port_or_known_default) {
        attributes.push(KeyValue::new("server.port", i64::from(port)));
    }
    attributes
}

fn provider_name(vendor: Vendor) -> &'static str {
    match vendor {
        Vendor::Anthropic => "anthropic",
        Vendor::OpenAi | Vendor::OpenAiChat => "openai",
        Vendor::Gemini => "gcp.gemini",
        Vendor::Azure => "azure.ai.openai",
        Vendor::Bedrock => "aws.bedrock",
    }
}

/// The reason in the words of the conventions.
fn finish_reason(stop: ModelStop) -> &'static str {
    match stop {
        ModelStop::EndTurn | ModelStop::Other => "stop",
        ModelStop::ToolUse => "tool_call",
        ModelStop::MaxTokens => "length",
        ModelStop::Refusal => "content_filter",
    }
}

fn content_attributes(
    content: Option<&SpanContent>,
    input: &'static str,
    output: &'static str,
) -> Vec<KeyValue> {
    let Some(SpanContent { input: read, output: written }) = content else { return Vec::new() };
    vec![KeyValue::new(input, read.clone()), KeyValue::new(output, written.clone())]
}

/// Name, kind and attributes of a span.
fn described(
    about: &SpanOperation,
    began: Timestamp,
) -> (Cow<'static, str>, SpanKind, Vec<KeyValue>) {
    let text = |key: &'static str, value: &str| KeyValue::new(key, value.to_owned());
    let number = |key: &'static str, value: u64| {
        KeyValue::new(key, i64::try_from(value).unwrap_or(i64::MAX))
    };
    match about {
        SpanOperation::Request { name } => {
            (format!("request {name}").into(), SpanKind::Server, vec![text("budao.request", name)])
        }
        SpanOperation::Turn { turn, steps, stop, content, .. } => {
            let mut attributes = vec![
                text("gen_ai.operation.name", "invoke_agent"),
                text("gen_ai.agent.name", AGENT),
                number("budao.turn", *turn),
                number("budao.steps", (*steps).into()),
                text("budao.stop", stop.into()),
            ];
            let content = content.as_deref();
            attributes.extend(content_attributes(content, INPUT_MESSAGES, OUTPUT_MESSAGES));
            (format!("invoke_agent {AGENT}").into(), SpanKind::Internal, attributes)
        }
        SpanOperation::Model {
            model,
            step,
            attempt,
            answer,
            response,
            max_tokens,
            has_shape,
            first_text_at,
            recovered_from,
            content,
        } => {
            let mut attributes = service_attributes(model);
            attributes.extend([
                text("gen_ai.operation.name", "chat"),
                KeyValue::new("gen_ai.request.stream", true),
                number("budao.step", (*step).into()),
                number("budao.attempt", (*attempt).into()),
            ]);
            attributes.extend(max_tokens.map(|most| number(MAX_TOKENS, most.into())));
            attributes.extend(has_shape.then(|| text("gen_ai.output.type", "json")));
            attributes.extend(answer.iter().flat_map(answer_attributes));
            attributes.extend(response.as_deref().into_iter().flat_map(response_attributes));
            if let Some(at) = first_text_at {
                let seconds = at.since(began).as_secs_f64();
                attributes.push(KeyValue::new("gen_ai.response.time_to_first_chunk", seconds));
            }
            attributes
                .extend(recovered_from.as_deref().map(|code| text("budao.recovered_from", code)));
            let content = content.as_deref();
            attributes.extend(content_attributes(content, INPUT_MESSAGES, OUTPUT_MESSAGES));
            let name = attributes[1].value.to_string();
            (format!("chat {name}").into(), SpanKind::Client, attributes)
        }
        SpanOperation::Compaction { by_model: None } => {
            ("compact history".into(), SpanKind::Internal, Vec::new())
        }
        SpanOperation::Compaction { by_model: Some((model, usage)) } => summary(model, usage),
        SpanOperation::Call { tool, call, attempt, content } => {
            let mut attributes = vec![
                text("gen_ai.operation.name", "execute_tool"),
                text("gen_ai.tool.name", tool),
                text("gen_ai.tool.call.id", &call.0),
                text("gen_ai.tool.type", "function"),
                number("budao.attempt", (*attempt).into()),
            ];
            let (input, output) = ("gen_ai.tool.call.arguments", "gen_ai.tool.call.result");
            attributes.extend(content_attributes(content.as_deref(), input, output));
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
            attributes.extend((!tool.is_empty()).then(|| text("gen_ai.tool.name", tool)));
            (format!("smcp relay {event}").into(), SpanKind::Server, attributes)
        }
        SpanOperation::ServedCall { tool } => {
            let attributes =
                vec![text("gen_ai.operation.name", "execute_tool"), text("gen_ai.tool.name", tool)];
            (format!("smcp serve {tool}").into(), SpanKind::Server, attributes)
        }
    }
}

/// The request for a summary of old history.
fn summary(model: &str, usage: &Usage) -> (Cow<'static, str>, SpanKind, Vec<KeyValue>) {
    let mut attributes = service_attributes(model);
    let name = attributes[1].value.to_string();
    attributes.push(KeyValue::new("gen_ai.operation.name", "chat"));
    attributes.push(KeyValue::new("budao.purpose", "compact_history"));
    attributes.extend(used(usage));
    attributes.extend(estimated(usage));
    (format!("chat {name}").into(), SpanKind::Client, attributes)
}

/// The part of the tokens that is an estimate, if there is one.
fn estimated(usage: &Usage) -> Option<KeyValue> {
    let count = i64::try_from(usage.estimated_tokens).unwrap_or(i64::MAX);
    (count > 0).then(|| KeyValue::new("budao.estimated_tokens", count))
}

/// Why the model stopped, and its tokens.
fn answer_attributes((stop, usage): &(ModelStop, Usage)) -> Vec<KeyValue> {
    let reasons = Array::String(vec![finish_reason(*stop).into()]);
    let stopped = KeyValue::new("gen_ai.response.finish_reasons", Value::Array(reasons));
    std::iter::once(stopped).chain(used(usage)).chain(estimated(usage)).collect()
}

/// The service's own names of an answer, as far as it says them.
fn response_attributes(response: &ResponseInfo) -> impl Iterator<Item = KeyValue> {
    let names = [("gen_ai.response.id", &response.id), ("gen_ai.response.model", &response.model)];
    let said = names.into_iter().filter(|(_, name)| !name.is_empty());
    said.map(|(key, name)| KeyValue::new(key, name.clone()))
}

/// Tokens of a request. The cached ones have the name of the conventions and the one that older viewers know.
fn used(usage: &Usage) -> [KeyValue; 7] {
    let tokens = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    [
        KeyValue::new("gen_ai.usage.input_tokens", tokens(usage.input_tokens)),
        KeyValue::new("gen_ai.usage.output_tokens", tokens(usage.output_tokens)),
        KeyValue::new("gen_ai.usage.cache_read.input_tokens", tokens(usage.cached_tokens)),
        KeyValue::new("gen_ai.usage.cache_read_input_tokens", tokens(usage.cached_tokens)),
        KeyValue::new("gen_ai.usage.cache_write.input_tokens", tokens(usage.cache_write_tokens)),
        KeyValue::new("gen_ai.usage.cache_creation.input_tokens", tokens(usage.cache_write_tokens)),
        KeyValue::new("gen_ai.usage.reasoning.output_tokens", tokens(usage.reasoning_tokens)),
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
            about: SpanOperation::Call {
                tool: "look".into(),
                call: "c".into(),
                attempt: 2,
                content: None,
            },
        }
    }

    fn attributes_of(about: SpanOperation) -> (String, Vec<(String, String)>) {
        let data = data(Span { about, ..span() });
        let pair = |it: &KeyValue| (it.key.to_string(), it.value.to_string());
        (data.name.into_owned(), data.attributes.iter().map(pair).collect())
    }

    #[test]
    fn a_summary_that_a_model_wrote_is_a_chat_with_its_tokens() {
        let usage = Usage { input_tokens: 30, output_tokens: 4, ..Usage::default() };
        let by_model = Some(("openai:gpt-x".to_owned(), usage));
        let (name, attributes) = attributes_of(SpanOperation::Compaction { by_model });
        assert_eq!(name, "chat gpt-x");
        for (key, value) in [
            ("gen_ai.operation.name", "chat"),
            ("gen_ai.provider.name", "openai"),
            ("budao.purpose", "compact_history"),
            ("gen_ai.usage.input_tokens", "30"),
            ("gen_ai.usage.output_tokens", "4"),
        ] {
            assert!(attributes.contains(&(key.into(), value.into())), "{key}: {attributes:?}");
        }
        let (name, attributes) = attributes_of(SpanOperation::Compaction { by_model: None });
        assert_eq!(name, "compact history");
        assert!(!attributes.iter().any(|(key, _)| key.contains("gen_ai")), "{attributes:?}");
    }

    #[test]
    fn a_request_has_the_bound_and_the_format_of_its_answer() {
        let asked = |has_shape| {
            attributes_of(SpanOperation::Model {
                model: "openai:gpt-x".into(),
                step: 1,
                attempt: 1,
                answer: None,
                response: None,
                max_tokens: Some(100),
                has_shape,
                first_text_at: None,
                recovered_from: None,
                content: None,
            })
            .1
        };
        let has = |attributes: &[(String, String)], key: &str, value: &str| {
            attributes.contains(&(key.into(), value.into()))
        };
        assert!(has(&asked(true), "gen_ai.request.max_tokens", "100"));
        assert!(has(&asked(true), "gen_ai.output.type", "json"));
        assert!(!has(&asked(false), "gen_ai.output.type", "json"));
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
