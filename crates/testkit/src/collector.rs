//! A collector of traces: takes what an OpenTelemetry exporter sends over HTTP, and keeps it.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Bytes, extract::State, http::StatusCode, routing::post};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    trace::v1::{Span, status::StatusCode as SpanStatus},
};
use prost::Message as _;
use tokio::{net::TcpListener, sync::watch};

/// A span as it came over the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectedSpan {
    /// The trace: 32 hex digits.
    pub trace: String,
    /// Which: 16 hex digits.
    pub id: String,
    /// What it is below; empty for a root.
    pub parent: String,
    /// What it was.
    pub name: String,
    /// Did it fail?
    pub failed: bool,
    /// How long it took.
    pub nanos: u64,
}

/// Takes spans until it is dropped.
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
    /// Listens at a free port of this machine.
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

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Everything that came so far.
    #[must_use]
    pub fn spans(&self) -> Vec<CollectedSpan> {
        self.spans.spans.lock().expect("no code panics while holding this").clone()
    }

    /// Waits until what came is enough, and returns it.
    ///
    /// # Panics
    /// If that takes too long; with everything that came.
    pub async fn until(&self, enough: impl Fn(&[CollectedSpan]) -> bool) -> Vec<CollectedSpan> {
        let mut came = self.spans.came.subscribe();
        let wait = async {
            while !enough(&self.spans()) {
                came.changed().await.expect("the shelf is here");
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(30), wait).await;
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
    }
}
