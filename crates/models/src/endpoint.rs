//! The HTTP client for one provider endpoint, and the classification of its transport errors.
//!
//! The client never retries, follows no redirect and has no total timeout. The runtime owns retries, a redirect could
//! send the key to another host, and a stream may last as long as it makes progress.

mod connect;

use std::{error::Error, io, net::IpAddr, sync::Arc, time::Duration};

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    gate::GateKey,
    limits::Limits,
    trace::{SpanId, Trace},
    world::{Clock, World},
};
use futures::{StreamExt, TryStreamExt};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use reqwest::{Client, Response, Url};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

use crate::{
    answer::AnswerDeadlines,
    failure::{ErrorResponse, Service},
    request_body::RequestBody,
    response_hints::ResponseHints,
    sse::{self, ByteStream, SseEvents},
};

/// Maximum bytes read from the body of an error response.
const ERROR_BYTES: usize = 64 * 1024;
/// Maximum idle connections kept for reuse, and how long each is kept.
const IDLE_CONNECTIONS: usize = 16;
const IDLE: Duration = Duration::from_secs(90);

/// A provider's address, HTTP client and limits.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    client: Client,
    url: Url,
    pub(crate) service: Service,
    /// Identifies the gate that admits requests to this endpoint.
    pub(crate) gate_key: GateKey,
    pub(crate) limits: Arc<Limits>,
    key_header: KeyHeader,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn budao_core::world::Entropy>,
}

/// The settings that differ between providers.
#[derive(Debug)]
pub(crate) struct EndpointConfig<'a> {
    pub(crate) provider: &'static str,
    pub(crate) model: &'a str,
    pub(crate) base: &'a str,
    /// Path segments appended to the base; segments that the base already ends with are not repeated.
    pub(crate) path: &'a [&'a str],
    /// The query of every request, without `?`.
    pub(crate) query: Option<&'static str>,
    pub(crate) key: Option<SecretString>,
    pub(crate) key_header: KeyHeader,
    pub(crate) required_config: &'static str,
}

/// The header that carries the API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyHeader {
    /// `Authorization: Bearer KEY`.
    Bearer,
    /// A header that holds the key alone.
    Named(&'static str),
}

/// A request that got no answer.
#[derive(Debug)]
pub(crate) struct RequestError {
    pub(crate) fault: Fault,
    /// The service's error response; absent if none arrived.
    pub(crate) response: Option<ErrorResponse>,
}

impl From<Fault> for RequestError {
    fn from(fault: Fault) -> Self {
        Self { fault, response: None }
    }
}

impl From<RequestError> for Fault {
    fn from(error: RequestError) -> Self {
        error.fault
    }
}

impl Endpoint {
    /// Validates the address and builds the HTTP client.
    pub(crate) fn new(
        setup: EndpointConfig<'_>,
        world: &World,
        limits: Arc<Limits>,
    ) -> Result<Self, Fault> {
        let mut url = address(setup.base, setup.path)?;
        url.set_query(setup.query);
        let host = url.host_str().unwrap_or_default().to_owned();
        let shown = if is_private(&url) { String::new() } else { host.clone() };
        let service = Service {
            provider: setup.provider,
            model: setup.model.into(),
            endpoint: format!("{shown}{}", url.path()).into(),
            host: url.port().map_or_else(|| host.clone(), |port| format!("{host}:{port}")).into(),
            required_config: setup.required_config,
            key: setup.key,
        };
        let gate_key = gate_key(&url, &service);
        // Loopback addresses bypass the proxy.
        let proxy = if is_loopback(&url) { ProxyUse::Never } else { ProxyUse::Environment };
        let client = client(proxy, &world.clock, &limits, IDLE_CONNECTIONS).map_err(|error| {
            service.fault(Kind::ModelBadRequest).caused_by(&error.without_url())
        })?;
        let (clock, entropy) = (world.clock.clone(), world.entropy.clone());
        let key_header = setup.key_header;
        Ok(Self { client, url, service, gate_key, limits, key_header, clock, entropy })
    }

    /// True if requests go to this host.
    pub(crate) fn is_at(&self, host: &str) -> bool {
        self.url.host_str() == Some(host)
    }

    /// Adds the key, if there is one, to the headers.
    fn authorize(&self, headers: &mut HeaderMap) -> Result<(), Fault> {
        let Some(key) = &self.service.key else { return Ok(()) };
        let (name, value) = match self.key_header {
            KeyHeader::Bearer => {
                (header::AUTHORIZATION, secret_header(&format!("Bearer {}", key.expose_secret())))
            }
            KeyHeader::Named(name) => {
                (HeaderName::from_static(name), secret_header(key.expose_secret()))
            }
        };
        let value = value.ok_or_else(|| {
            let cause = "the key has characters no header may have";
            self.service.fault(Kind::ModelAuthentication).with_cause(cause)
        })?;
        headers.insert(name, value);
        Ok(())
    }

    /// Sends a request and waits for the response headers.
    pub(crate) async fn post(
        &self,
        mut headers: HeaderMap,
        body: RequestBody,
        (trace, span): (Trace, SpanId),
    ) -> Result<(SseEvents, AnswerDeadlines), RequestError> {
        let service = &self.service;
        self.authorize(&mut headers)?;
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        if trace.is_some()
            && let span = span.or(SpanId::from_random(self.entropy.bits()))
            && let Ok(parent) = trace.to_traceparent(span).parse()
        {
            headers.insert("traceparent", parent);
        }
        let mut patience = AnswerDeadlines::new(self.clock.clone(), &self.limits);
        let request = self.client.post(self.url.clone()).headers(headers).body(body.into_http());
        let response = match patience.wait(request.send()).await {
            Some(Ok(response)) => response,
            Some(Err(error)) => return Err(self.unsent(service, error).into()),
            None => return Err(patience.fault(service).into()),
        };
        if !response.status().is_success() {
            return Err(self.refused(service, response, patience).await);
        }
        Ok((self.events(service, response)?, patience))
    }

    /// The event stream of a response, unless its media type rules one out.
    fn events(&self, service: &Service, response: Response) -> Result<SseEvents, Fault> {
        let media = response.headers().get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok());
        let media = media.unwrap_or_default().to_ascii_lowercase();
        // JSON escapes can double the size of an answer.
        let bytes_max =
            self.limits.model_answer_bytes.saturating_mul(2).saturating_add(ERROR_BYTES);
        if media.starts_with("text/html") {
            let reason = "a web page came instead of an event stream: is the address right?";
            return Err(service
                .fault(Kind::ModelMalformedStream)
                .with(Fact::Position, 0)
                .with_cause(reason));
        }
        if media.starts_with("application/json") {
            return Ok(SseEvents::of_body(bytes(response), bytes_max));
        }
        Ok(SseEvents::new(bytes(response), bytes_max))
    }

    /// The error for a response with an error status.
    async fn refused(
        &self,
        service: &Service,
        response: Response,
        mut wait: AnswerDeadlines,
    ) -> RequestError {
        let status = response.status().as_u16();
        let hints = ResponseHints::read(response.headers(), self.clock.now());
        let body = wait.wait(sse::read_head(bytes(response), ERROR_BYTES)).await;
        let response = ErrorResponse::new(status, &body.unwrap_or_default()).hints(hints);
        RequestError { fault: response.fault(service), response: Some(response) }
    }

    /// The fault for a request that failed before any response arrived.
    fn unsent(&self, service: &Service, error: reqwest::Error) -> Fault {
        let error = error.without_url();
        let kind = classify(&error);
        let mut fault = service.fault(kind);
        if kind == Kind::ModelConnectTimeout {
            fault = fault.with(Fact::TimeoutMs, self.limits.model_connect);
        }
        fault.with(Fact::Host, service.host.to_string()).caused_by(&error)
    }
}

/// The kind of a transport error, by the error types in its source chain.
pub(crate) fn classify(error: &reqwest::Error) -> Kind {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(kind) = classify_one(error) {
            return kind;
        }
        // `source` of an `io::Error` skips the error it wraps.
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    match () {
        () if error.is_builder() => Kind::ModelBadRequest,
        () if error.is_connect() => Kind::NetworkUnavailable,
        () if error.is_decode() => Kind::ModelMalformedStream,
        () => Kind::ModelStreamCut,
    }
}

fn classify_one(error: &(dyn Error + 'static)) -> Option<Kind> {
    if error.is::<connect::ConnectTimeout>() {
        return Some(Kind::ModelConnectTimeout);
    }
    if error.is::<connect::NameNotFound>() {
        return Some(Kind::NameNotResolved);
    }
    if error.is::<rustls::Error>() {
        return Some(Kind::TlsFailed);
    }
    match error.downcast_ref::<io::Error>()?.kind() {
        io::ErrorKind::ConnectionRefused => Some(Kind::ConnectionRefused),
        io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkDown
        | io::ErrorKind::AddrNotAvailable => Some(Kind::NetworkUnavailable),
        _ => None,
    }
}

pub(crate) fn bytes(response: Response) -> ByteStream {
    let bytes = response.bytes_stream();
    bytes.map_err(|error| io::Error::other(chain(&error.without_url()))).boxed()
}

/// The gate of an endpoint. Of the credential it has 64 bits of a SHA-256 that is salted with the address: they tell two
/// keys apart, reveal none, and do not show that two services have the same.
fn gate_key(url: &Url, service: &Service) -> GateKey {
    let credential = service.key.as_ref().map_or_else(String::new, |key| {
        let salted = Sha256::new().chain_update("budao gate\n").chain_update(url.as_str());
        let hash = salted.chain_update("\n").chain_update(key.expose_secret()).finalize();
        hash.iter().take(8).fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    });
    GateKey {
        endpoint: url.as_str().into(),
        model: Arc::clone(&service.model),
        credential: credential.into(),
    }
}

/// Joins an error and its sources into one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text = format!("{text}: {error}");
        next = error.source();
    }
    text
}

/// Builds the request URL from base and path.
fn address(base: &str, path: &[&str]) -> Result<Url, Fault> {
    let wrong = |expected: &'static str| {
        Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
            .with(Fact::ConfigKey, "model")
            .with(Fact::Expected, expected)
    };
    let mut url = Url::parse(base).map_err(|error| {
        wrong("a URL such as http://localhost:8080/v1").with_cause(error.to_string())
    })?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(wrong("an http or https URL with a host"));
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err(wrong("a URL without user, password or query; keys have their own setting"));
    }
    url.set_fragment(None);
    let has: Vec<String> = url
        .path_segments()
        .into_iter()
        .flatten()
        .filter(|it| !it.is_empty())
        .map(Into::into)
        .collect();
    let known = (0..=path.len()).rev().find(|&n| ends_with(&has, &path[..n])).unwrap_or(0);
    url.set_path(
        &has.iter()
            .map(String::as_str)
            .chain(path[known..].iter().copied())
            .collect::<Vec<_>>()
            .join("/"),
    );
    Ok(url)
}

fn ends_with(has: &[String], tail: &[&str]) -> bool {
    has.len() >= tail.len() && has[has.len() - tail.len()..].iter().zip(tail).all(|(a, b)| a == b)
}

/// True for an address in a private network; faults do not show those.
fn is_private(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => ip.is_private() || ip.is_loopback() || ip.is_link_local(),
        Ok(IpAddr::V6(ip)) => {
            ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()
        }
        Err(_) => is_loopback(url) || !host.contains('.') || host.ends_with(".local"),
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.is_loopback())
}

/// Whether requests go through the proxy that the environment names (`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyUse {
    /// Through the proxy, if there is one.
    Environment,
    /// Straight to the address.
    Never,
}

/// Builds a client that keeps up to `idle` connections for reuse.
pub(crate) fn client(
    proxy: ProxyUse,
    clock: &Arc<dyn Clock>,
    limits: &Limits,
    idle: usize,
) -> Result<Client, reqwest::Error> {
    // Fails if a provider is installed already, which is fine. Without any, building a client panics.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .user_agent(concat!("budao/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .pool_max_idle_per_host(idle)
        .pool_idle_timeout(IDLE)
        .dns_resolver(Arc::new(connect::Resolver))
        .connector_layer(connect::DeadlineLayer::new(clock.clone(), limits.model_connect));
    if proxy == ProxyUse::Never { builder.no_proxy() } else { builder }.build()
}

/// A header value that debug output hides. `None` if the value is not a valid header.
fn secret_header(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_may_end_anywhere_in_the_path() {
        let path = ["v1", "chat", "completions"];
        for base in [
            "http://localhost:8080",
            "http://localhost:8080/",
            "http://localhost:8080/v1",
            "http://localhost:8080/v1/",
            "http://localhost:8080/v1/chat/completions",
        ] {
            let url = address(base, &path).unwrap();
            assert_eq!(url.as_str(), "http://localhost:8080/v1/chat/completions", "{base}");
        }
        let nested = address("https://gateway.example/openai", &path).unwrap();
        assert_eq!(nested.as_str(), "https://gateway.example/openai/v1/chat/completions");
    }

    #[test]
    fn an_address_with_secrets_in_it_is_refused() {
        for base in [
            "http://user:pass@host/v1",
            "https://host/v1?key=x",
            "ftp://host",
            "localhost",
            "http:",
        ] {
            let fault = address(base, &["v1"]).unwrap_err();
            assert_eq!(fault.kind(), Kind::ConfigurationWrong, "{base}");
            assert!(!format!("{fault:?}").contains("pass@"), "{base}");
        }
    }

    #[test]
    fn a_gate_belongs_to_an_endpoint_a_model_and_a_key_and_reveals_no_key() {
        let key = |base: &str, model: &str, key: Option<&str>| {
            let service = Service {
                model: model.into(),
                key: key.map(SecretString::from),
                ..Service::scripted()
            };
            gate_key(&Url::parse(base).unwrap(), &service)
        };
        let one = key("http://a/v1", "m", Some("sk-1234567890"));
        assert_eq!(one, key("http://a/v1", "m", Some("sk-1234567890")));
        assert_ne!(one, key("http://b/v1", "m", Some("sk-1234567890")));
        assert_ne!(one, key("http://a/v1", "n", Some("sk-1234567890")));
        assert_ne!(one, key("http://a/v1", "m", Some("sk-1234567891")));
        assert_ne!(one, key("http://a/v1", "m", None));
        assert!(!format!("{one} {one:?}").contains("1234567890"));
        assert_eq!(one.credential.len(), 16);
        let elsewhere = key("http://b/v1", "m", Some("sk-1234567890"));
        assert_ne!(one.credential, elsewhere.credential, "nobody sees that two keys are the same");
    }

    #[test]
    fn private_hosts_are_not_shown() {
        let private = |base: &str| is_private(&Url::parse(base).unwrap());
        for base in [
            "http://127.0.0.1:1",
            "http://[::1]:1",
            "http://10.1.2.3",
            "http://gpu-box",
            "http://x.local",
        ] {
            assert!(private(base), "{base}");
        }
        assert!(!private("https://api.example.com"));
    }
}
