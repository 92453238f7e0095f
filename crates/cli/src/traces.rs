//! Exports traces to an OpenTelemetry collector over HTTP, if an endpoint is configured.
//!
//! Work never waits for the export. Finished spans go into a bounded queue, and one task sends them in batches, each
//! once. Spans the collector does not accept are counted and dropped.

mod otlp;

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use budao_core::{
    Fault, Kind,
    fault::{Fact, Operation},
    span::Span,
    world::{SpanExporter as BudaoSpanExporter, World},
};
use budao_runtime::world;
use budao_scrub::Scrubber;
use metrics::counter;
use opentelemetry_otlp::{
    Protocol, RetryPolicy, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::{Resource, trace::SpanExporter as _};
use tokio::{
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};

/// Capacity of the queue; further spans are dropped and counted.
const WAITING: usize = 4_096;
/// Maximum spans per batch.
const TOGETHER: usize = 512;
/// Time the first span of a batch waits for others.
const GATHER: Duration = Duration::from_millis(500);
/// Time limit of one export.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time the program's end waits for the last batch.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// Minimum time between two warnings about a collector that fails.
const COMPLAINTS: Duration = Duration::from_secs(60);

/// OpenTelemetry's variable for the traces endpoint; used as it is, without a path added.
const ONLY_TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

static AIM: OnceLock<TraceTarget> = OnceLock::new();
static EXPORT: OnceLock<Arc<ExportHandle>> = OnceLock::new();

/// The system's world, with the span exporter if one was started.
pub(crate) fn world() -> World {
    match EXPORT.get() {
        Some(export) => {
            World { spans: Arc::clone(export) as Arc<dyn BudaoSpanExporter>, ..world::system() }
        }
        None => world::system(),
    }
}

/// Where traces go, and whether they have content.
#[derive(Debug)]
struct TraceTarget {
    url: Option<String>,
    has_content: bool,
}

/// Sets the endpoint; the first call counts. [`ONLY_TRACES`] takes precedence over `endpoint`.
pub(crate) fn aim(endpoint: Option<String>, has_content: bool) {
    let only_traces = std::env::var(ONLY_TRACES).ok();
    let only_traces = only_traces.filter(|value| !value.is_empty());
    let endpoint = endpoint.filter(|value| !value.is_empty());
    // `main` calls this once, before anything runs.
    let url = only_traces.or_else(|| endpoint.as_deref().map(whole));
    let _ = AIM.set(TraceTarget { url, has_content });
}

/// Starts the export if an endpoint is set. Must be called inside a tokio runtime.
///
/// # Errors
/// `configuration_wrong` if the endpoint is not an http or https URL.
pub(crate) fn start() -> Result<(), Fault> {
    let Some(TraceTarget { url: Some(url), has_content }) = AIM.get() else { return Ok(()) };
    let exporter = exporter(url)?;
    let (sender, inbox) = mpsc::channel(WAITING);
    if EXPORT.set(Arc::new(ExportHandle { sender, has_content: *has_content })).is_ok() {
        tokio::spawn(send(exporter, inbox));
    }
    Ok(())
}

/// Sends the remaining spans; waits at most [`SHUTDOWN_GRACE`].
pub(crate) async fn finish() {
    let Some(export) = EXPORT.get() else { return };
    let (reply, sent) = oneshot::channel();
    let farewell = async {
        if export.sender.send(ExportItem::Flush(reply)).await.is_ok() {
            let _ = sent.await;
        }
    };
    let _ = timeout(SHUTDOWN_GRACE, farewell).await;
}

/// The endpoint with the protocol's path `/v1/traces`, which is added if it is missing.
fn whole(endpoint: &str) -> String {
    let bare = endpoint.trim_end_matches('/');
    let has_path = bare.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
    if has_path && bare.ends_with("/v1/traces") {
        bare.to_owned()
    } else {
        format!("{bare}/v1/traces")
    }
}

fn exporter(url: &str) -> Result<SpanExporter, Fault> {
    let wrong = || {
        Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
            .with(Fact::ConfigKey, "traces.endpoint")
            .with(Fact::Expected, "http://HOST:PORT or https://HOST:PORT")
            .with(Fact::Received, url.chars().take(80).collect::<String>())
    };
    let parsed = reqwest::Url::parse(url).map_err(|error| wrong().caused_by(&error))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(wrong());
    }
    let client =
        reqwest::Client::builder().connect_timeout(EXPORT_TIMEOUT).timeout(EXPORT_TIMEOUT).build();
    let client = client.map_err(|error| wrong().caused_by(&error))?;
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(url)
        .with_timeout(EXPORT_TIMEOUT)
        // No retries: failed spans are counted and dropped.
        .with_retry_policy(RetryPolicy::disabled())
        .build()
        .map_err(|error| wrong().caused_by(&error))?;
    let mut resource = Resource::builder();
    if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name("budao");
    }
    let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    exporter.set_resource(&resource.with_attribute(version).build());
    Ok(exporter)
}

/// An item of the export queue.
#[derive(Debug)]
enum ExportItem {
    Span(Box<Span>),
    Flush(oneshot::Sender<()>),
}

/// The sending end of the export queue.
#[derive(Debug)]
struct ExportHandle {
    sender: mpsc::Sender<ExportItem>,
    has_content: bool,
}

impl BudaoSpanExporter for ExportHandle {
    fn is_enabled(&self) -> bool {
        true
    }

    fn wants_content(&self) -> bool {
        self.has_content
    }

    fn export(&self, span: Span) {
        if self.sender.try_send(ExportItem::Span(Box::new(span))).is_err() {
            count("dropped", 1);
        }
    }
}

fn count(result: &'static str, spans: usize) {
    counter!("budao_spans_total", "result" => result).increment(spans as u64);
}

/// Sends batches until the queue is closed.
async fn send(exporter: SpanExporter, mut inbox: mpsc::Receiver<ExportItem>) {
    let mut complained: Option<Instant> = None;
    while let Some(first) = inbox.recv().await {
        let mut batch = SpanBatch::default();
        batch.add(first);
        let gathering = sleep(GATHER);
        tokio::pin!(gathering);
        while batch.has_room() {
            tokio::select! {
                biased;
                Some(item) = inbox.recv() => batch.add(item),
                () = &mut gathering => break,
            }
        }
        let spans = batch.spans.len();
        if spans > 0 {
            let data = batch.spans.into_iter().map(otlp::data).collect();
            match timeout(EXPORT_TIMEOUT, exporter.export(data)).await {
                Ok(Ok(())) => count("sent", spans),
                Ok(Err(error)) => failed(spans, &error.to_string(), &mut complained),
                Err(_) => failed(spans, "timed out", &mut complained),
            }
        }
        for waiting in batch.waiting {
            let _ = waiting.send(());
        }
    }
}

fn failed(spans: usize, error: &str, complained: &mut Option<Instant>) {
    count("failed", spans);
    if complained.is_none_or(|at| at.elapsed() >= COMPLAINTS) {
        *complained = Some(Instant::now());
        let error = Scrubber::new().scrub(error).into_owned();
        tracing::warn!(spans, error, "exporting traces failed");
    }
}

#[derive(Default)]
struct SpanBatch {
    spans: Vec<Span>,
    /// Flush requests, answered after the batch was sent.
    waiting: Vec<oneshot::Sender<()>>,
}

impl SpanBatch {
    fn add(&mut self, item: ExportItem) {
        match item {
            ExportItem::Span(span) => self.spans.push(*span),
            ExportItem::Flush(reply) => self.waiting.push(reply),
        }
    }

    fn has_room(&self) -> bool {
        self.spans.len() < TOGETHER && self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_named_by_its_host_or_whole() {
        for (named, meant) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
            ("https://h/otlp", "https://h/otlp/v1/traces"),
            ("https://h/v1/traces", "https://h/v1/traces"),
        ] {
            assert_eq!(whole(named), meant);
        }
    }

    #[test]
    fn an_invalid_address_is_refused_with_its_key() {
        for bad in ["collector:4318", "ftp://h"] {
            let fault = exporter(&whole(bad)).unwrap_err();
            assert_eq!(fault.kind(), Kind::ConfigurationWrong, "{bad}");
            assert_eq!(fault.detail().text(Fact::ConfigKey), Some("traces.endpoint"));
        }
    }

    #[test]
    fn a_full_queue_drops_spans_and_delays_no_caller() {
        let (sender, mut inbox) = mpsc::channel(1);
        let export = ExportHandle { sender, has_content: false };
        for _ in 0..3 {
            export.export(otlp::tests::span());
        }
        assert!(inbox.try_recv().is_ok());
        assert!(inbox.try_recv().is_err());
    }
}
