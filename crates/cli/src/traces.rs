//! Traces, for whoever collects them: OpenTelemetry over HTTP, when an endpoint is named.
//!
//! Work never waits for this. What is over is put into a queue with a bound; one task sends what has gathered, once,
//! and what the collector does not take is counted and forgotten.

mod otlp;

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use budao_core::{
    Fault, Kind,
    fault::{Fact, Operation},
    scrub::Scrubber,
    span::Span,
    world::{SpanExporter as BudaoSpanExporter, World},
};
use budao_runtime::world;
use metrics::counter;
use opentelemetry_otlp::{
    Protocol, RetryPolicy, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::{Resource, trace::SpanExporter as _};
use tokio::{
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};

/// Spans that may wait; more are dropped and counted.
const WAITING: usize = 4_096;
/// Spans that are sent together.
const TOGETHER: usize = 512;
/// What came first waits this long for company.
const GATHER: Duration = Duration::from_millis(500);
/// How long a collector may take.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the end of the program waits for the last ones.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// A collector that is away is complained of this often.
const COMPLAINTS: Duration = Duration::from_secs(60);

/// What the standard calls where traces go, and only traces.
const ONLY_TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

static AIM: OnceLock<Option<String>> = OnceLock::new();
static EXPORT: OnceLock<Arc<ExportHandle>> = OnceLock::new();

/// The real world, with traces if they are collected.
pub(crate) fn world() -> World {
    match EXPORT.get() {
        Some(export) => {
            World { spans: Arc::clone(export) as Arc<dyn BudaoSpanExporter>, ..world::system() }
        }
        None => world::system(),
    }
}

/// Says where spans go, if anywhere.
pub(crate) fn aim(endpoint: Option<String>) {
    let only_traces = std::env::var(ONLY_TRACES).ok();
    let only_traces = only_traces.filter(|value| !value.is_empty());
    let endpoint = endpoint.filter(|value| !value.is_empty());
    // It is said once, before anything runs.
    let _ = AIM.set(only_traces.or_else(|| endpoint.as_deref().map(whole)));
}

/// Sends spans there from now on. Must be called inside a tokio runtime.
///
/// # Errors
/// `configuration_wrong` when it is no address.
pub(crate) fn start() -> Result<(), Fault> {
    let Some(url) = AIM.get().cloned().flatten() else { return Ok(()) };
    let exporter = exporter(&url)?;
    let (sender, inbox) = mpsc::channel(WAITING);
    if EXPORT.set(Arc::new(ExportHandle { sender })).is_ok() {
        tokio::spawn(send(exporter, inbox));
    }
    Ok(())
}

/// Sends what is left, if that does not take long.
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

/// An endpoint is named by its host; the path is the protocol's, unless one is named.
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
        // Spans that are lost are counted; there is one loop that tries again, and it is not here.
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

/// What the task is handed.
#[derive(Debug)]
enum ExportItem {
    Span(Box<Span>),
    Flush(oneshot::Sender<()>),
}

/// The way to the task that sends.
#[derive(Debug)]
struct ExportHandle {
    sender: mpsc::Sender<ExportItem>,
}

impl BudaoSpanExporter for ExportHandle {
    fn is_enabled(&self) -> bool {
        true
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

/// Sends what has gathered, until nobody has anything to say.
async fn send(exporter: SpanExporter, mut inbox: mpsc::Receiver<ExportItem>) {
    let mut complained: Option<Instant> = None;
    while let Some(first) = inbox.recv().await {
        let mut batch = SpanBatch::default();
        batch.add(first);
        let company = sleep(GATHER);
        tokio::pin!(company);
        while batch.has_room() {
            tokio::select! {
                biased;
                Some(item) = inbox.recv() => batch.add(item),
                () = &mut company => break,
            }
        }
        let spans = batch.spans.len();
        if spans > 0 {
            let data = batch.spans.into_iter().map(otlp::data).collect();
            match timeout(EXPORT_TIMEOUT, exporter.export(data)).await {
                Ok(Ok(())) => count("sent", spans),
                Ok(Err(error)) => failed(spans, &error.to_string(), &mut complained),
                Err(_) => failed(spans, "it took too long", &mut complained),
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
        tracing::warn!(spans, error, "the collector did not take the traces");
    }
}

#[derive(Default)]
struct SpanBatch {
    spans: Vec<Span>,
    /// Who waits until it is sent.
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
    fn what_is_no_address_is_refused_by_its_key() {
        for bad in ["collector:4318", "ftp://h"] {
            let fault = exporter(&whole(bad)).unwrap_err();
            assert_eq!(fault.kind(), Kind::ConfigurationWrong, "{bad}");
            assert_eq!(fault.detail().text(Fact::ConfigKey), Some("traces.endpoint"));
        }
    }

    #[test]
    fn a_full_queue_drops_spans_and_nobody_waits() {
        let (sender, mut inbox) = mpsc::channel(1);
        let export = ExportHandle { sender };
        for _ in 0..3 {
            export.export(otlp::tests::span());
        }
        assert!(inbox.try_recv().is_ok());
        assert!(inbox.try_recv().is_err());
    }
}
