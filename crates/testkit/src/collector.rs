//! A trace collector: accepts OpenTelemetry spans over HTTP on loopback and keeps them for tests to inspect.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Bytes, extract::State, http::StatusCode, routing::post};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    common::v1::{AnyValue, KeyValue, any_value},
    trace::v1::{Span, status::StatusCode as SpanStatus},
};
use prost::Message as _;
use serde_json::Value;
use tokio::{net::TcpListener, sync::watch};

/// A span as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectedSpan {
    /// Trace id: 32 hex digits.
    pub trace: String,
    /// Span id: 16 hex digits.
    pub id: String,
    /// Span id of the parent; empty for a root.
    pub parent: String,
    /// Span name as the exporter sent it.
    pub name: String,
    /// True if the span's status is an error.
    pub failed: bool,
    /// Duration in nanoseconds.
    pub nanos: u64,
    /// The attributes by name.
    pub attributes: BTreeMap<String, Value>,
    /// The events: their names and attributes.
    pub events: Vec<(String, BTreeMap<String, Value>)>,
}

/// A running collector. Dropping it stops the server task.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    spans: Arc<SpanStore>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct SpanStore {
    spans: Mutex<Vec<CollectedSpan>>,
    came: watch::Sender<usize>,
}

impl Collector {
    /// Starts a collector on a free loopback port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let spans = Arc::new(SpanStore { spans: Mutex::default(), came: watch::channel(0).0 });
        let router = Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&spans));
        let task = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Self { address, spans, task }
    }

    /// The base URL for an exporter.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All spans received so far.
    #[must_use]
    pub fn spans(&self) -> Vec<CollectedSpan> {
        self.spans.spans.lock().expect("no code panics while holding this").clone()
    }

    /// Waits until `enough` accepts the received spans, and returns them.
    ///
    /// # Panics
    /// On timeout; the message lists all received spans.
    pub async fn until(&self, enough: impl Fn(&[CollectedSpan]) -> bool) -> Vec<CollectedSpan> {
        let mut came = self.spans.came.subscribe();
        let wait = async {
            while !enough(&self.spans()) {
                came.changed().await.expect("the shelf is here");
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(120), wait).await;
        assert!(in_time.is_ok(), "the spans did not come; these did: {:#?}", self.spans());
        self.spans()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn take(State(shelf): State<Arc<SpanStore>>, body: Bytes) -> Result<Vec<u8>, StatusCode> {
    let sent = ExportTraceServiceRequest::decode(body).map_err(|_| StatusCode::BAD_REQUEST)?;
    let scopes = sent.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
    let spans: Vec<CollectedSpan> = scopes.flat_map(|scope| scope.spans).map(collected).collect();
    let count = spans.len();
    shelf.spans.lock().expect("no code panics while holding this").extend(spans);
    shelf.came.send_modify(|came| *came += count);
    Ok(ExportTraceServiceResponse::default().encode_to_vec())
}

fn collected(span: Span) -> CollectedSpan {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    CollectedSpan {
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        name: span.name,
        failed: span.status.is_some_and(|status| status.code == SpanStatus::Error as i32),
        nanos: span.end_time_unix_nano.saturating_sub(span.start_time_unix_nano),
        attributes: attributes(span.attributes),
        events: span.events.into_iter().map(|it| (it.name, attributes(it.attributes))).collect(),
    }
}

fn attributes(pairs: Vec<KeyValue>) -> BTreeMap<String, Value> {
    pairs.into_iter().map(|pair| (pair.key, pair.value.map_or(Value::Null, value))).collect()
}

fn value(of: AnyValue) -> Value {
    match of.value {
        Some(any_value::Value::StringValue(text)) => text.into(),
        Some(any_value::Value::BoolValue(is)) => is.into(),
        Some(any_value::Value::IntValue(number)) => number.into(),
        Some(any_value::Value::DoubleValue(number)) => number.into(),
        Some(any_value::Value::ArrayValue(list)) => list.values.into_iter().map(value).collect(),
        _ => Value::Null,
    }
}
