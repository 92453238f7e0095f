//! HTTP requests to servers, with limits on bodies and events.
//!
//! The client follows a redirect only within the same origin, because the configured headers are secrets.

use std::{collections::HashMap, io, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream::BoxStream};
use http::{HeaderName, HeaderValue, StatusCode, header};
use reqwest::{Client, RequestBuilder, Response, Url, redirect};
use rmcp::{
    model::{
        ClientJsonRpcMessage, ClientRequest, ErrorData, GetMeta, JsonRpcMessage, RequestId,
        ServerJsonRpcMessage,
    },
    transport::streamable_http_client::{
        AuthRequiredError, HttpStatusError, InsufficientScopeError, StreamableHttpClient,
        StreamableHttpError, StreamableHttpPostResponse,
    },
};
use sse_stream::{Error as SseError, Sse, SseStream};

use crate::{
    auth::{LoginError, LoginNeed, TokenSource},
    connection::KEY_FIELD,
    line,
    router::CallRouter,
};

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// How much of an error's body is read, in bytes.
const ERROR_BYTES: usize = 4 * 1024;

/// The longest chain of redirects.
const REDIRECTS: usize = 5;

pub(crate) type HttpError = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

/// Builds the client for one server. `connect` is the connection timeout.
pub(crate) fn client(url: &Url, connect: Duration) -> Result<Client, reqwest::Error> {
    // The first installed provider stays; building a client without one panics.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .user_agent(concat!("budao/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::custom(follow))
        .retry(reqwest::retry::never())
        .referer(false)
        .connect_timeout(connect);
    // Requests to this machine bypass the proxy.
    if is_loopback(url) { builder.no_proxy() } else { builder }.build()
}

fn follow(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let same =
        attempt.previous().last().is_some_and(|from| from.origin() == attempt.url().origin());
    // Other redirect codes change a POST into a GET.
    let keeps =
        matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    if same && keeps && attempt.previous().len() <= REDIRECTS {
        return attempt.follow();
    }
    attempt.stop()
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let ip = host.parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.is_loopback())
}

/// The events of a response. An event above `bytes_max` ends the stream with an error.
pub(crate) fn events(
    response: Response,
    bytes_max: usize,
) -> BoxStream<'static, Result<Sse, SseError>> {
    SseStream::from_bytes_stream(bounded(response.bytes_stream(), bytes_max).boxed()).boxed()
}

/// Passes the bytes through until one event exceeds `bytes_max`.
fn bounded<E>(
    bytes: impl Stream<Item = Result<Bytes, E>>,
    bytes_max: usize,
) -> impl Stream<Item = io::Result<Bytes>>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let mut event = 0;
    let mut line = 0;
    bytes.map(move |chunk| {
        let chunk = chunk.map_err(io::Error::other)?;
        for &byte in &chunk {
            match byte {
                b'\n' if line == 0 => event = 0,
                b'\n' => line = 0,
                b'\r' => {}
                _ => {
                    line += 1;
                    event += 1;
                }
            }
            if event > bytes_max {
                return Err(io::Error::other(format!("an event is larger than {bytes_max} bytes")));
            }
        }
        Ok(chunk)
    })
}

/// Reads a whole body; fails above `bytes_max`.
pub(crate) async fn body(response: Response, bytes_max: usize) -> Result<Vec<u8>, HttpError> {
    let mut bytes = response.bytes_stream();
    let mut whole = Vec::new();
    while let Some(chunk) = bytes.next().await {
        let chunk = chunk.map_err(|error| HttpError::Client(error.without_url()))?;
        if whole.len() + chunk.len() > bytes_max {
            return Err(HttpError::Io(io::ErrorKind::FileTooLarge.into()));
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole)
}

/// The error for a status other than success; `None` for success.
pub(crate) fn refusal(response: &Response) -> Option<HttpError> {
    let header_text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    let challenge = || challenge_of(response);
    match response.status() {
        status if status.is_success() => None,
        StatusCode::UNAUTHORIZED => {
            Some(HttpError::AuthRequired(AuthRequiredError::new(challenge())))
        }
        StatusCode::FORBIDDEN => {
            Some(HttpError::InsufficientScope(InsufficientScopeError::new(challenge(), None)))
        }
        status => {
            let hint = header_text(header::RETRY_AFTER).map(str::to_owned);
            Some(HttpStatusError::new(status.as_u16(), hint).into())
        }
    }
}

fn challenge_of(response: &Response) -> String {
    let header = response.headers().get(header::WWW_AUTHENTICATE);
    header.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// The HTTP client for rmcp's streamable HTTP transport. rmcp reads the event streams. This client reads the answers to
/// POST requests, because rmcp reads them without a limit.
///
/// A request that the server refuses for want of a token (status 401) did not run. It is sent once more with a renewed
/// token.
#[derive(Clone, Debug)]
pub(crate) struct BoundedHttpClient {
    pub(crate) client: Client,
    pub(crate) bytes_max: usize,
    /// The login to the server; `None` if a header of the configuration stands for it.
    pub(crate) login: Option<TokenSource>,
    /// Learns in the answer to which call a request of the server arrived.
    pub(crate) router: Arc<CallRouter>,
}

impl BoundedHttpClient {
    /// Sends a request with the token of the login. Once more with another token if the server refuses the first.
    pub(crate) async fn send(
        &self,
        build: impl Fn() -> RequestBuilder,
    ) -> Result<Response, HttpError> {
        let failed = |error: reqwest::Error| HttpError::Client(error.without_url());
        let Some(login) = &self.login else { return build().send().await.map_err(failed) };
        let token = login.token().await;
        let response = with_token(build(), token.as_deref()).send().await.map_err(failed)?;
        let challenge = challenge_of(&response);
        match response.status() {
            StatusCode::UNAUTHORIZED => {}
            StatusCode::FORBIDDEN => {
                return login
                    .need_rights(&challenge)
                    .map_or(Ok(response), |error| Err(login_error(error)));
            }
            _ => return Ok(response),
        }
        let token = login.renew(token.as_deref()).await.map_err(login_error)?;
        let response = with_token(build(), Some(&token)).send().await.map_err(failed)?;
        if response.status() == StatusCode::UNAUTHORIZED {
            return Err(login_error(LoginError::Needed(LoginNeed::Expired)));
        }
        Ok(response)
    }

    /// Removes the tokens of the login from what the server sent.
    fn redact(&self, bytes: &mut Vec<u8>) {
        if let Some(login) = &self.login {
            login.redact(bytes);
        }
    }

    /// The events of a response, without the tokens of the login.
    pub(crate) fn events(&self, response: Response) -> BoxStream<'static, Result<Sse, SseError>> {
        let login = self.login.clone();
        let redacted = move |event: Result<Sse, SseError>| {
            let mut event = event?;
            if let Some(login) = &login {
                event.data = event.data.map(|data| login.redact_text(data));
            }
            Ok(event)
        };
        events(response, self.bytes_max).map(redacted).boxed()
    }

    async fn answer(
        &self,
        message: &ClientJsonRpcMessage,
        had_session: bool,
        response: Response,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let status = response.status();
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && had_session {
            return Err(HttpError::SessionExpired);
        }
        let header_text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let session = header_text(SESSION).map(str::to_owned);
        let media = header_text(header::CONTENT_TYPE).unwrap_or_default().to_ascii_lowercase();
        if let Some(refusal) = refusal(&response) {
            let is_final = matches!(
                status,
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS
            );
            let probe = probe_id(message).filter(|_| status.is_client_error());
            if is_final || (probe.is_none() && !media.starts_with(JSON)) {
                return Err(refusal);
            }
            // Some servers put a more precise error into the body.
            let mut body = body(response, ERROR_BYTES).await.unwrap_or_default();
            self.redact(&mut body);
            let error = match line::message(&body) {
                Ok(JsonRpcMessage::Error(error)) => Some(error),
                _ => None,
            };
            return match (error, probe) {
                // The server does not know `server/discover`. It may not be able to read the id, so ours stands for it.
                (error, Some(id)) => {
                    let unknown =
                        || ErrorData::invalid_request(format!("status {}", status.as_u16()), None);
                    let error = error.map_or_else(unknown, |error| error.error);
                    let message = ServerJsonRpcMessage::error(error, Some(id));
                    Ok(StreamableHttpPostResponse::Json(message, None))
                }
                (Some(error), None) => {
                    Ok(StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), session))
                }
                (None, None) => Err(refusal),
            };
        }
        if media.starts_with(EVENTS) {
            let events = self.events(response);
            let events = match call_key(message) {
                Some(key) => noted(events, self.router.clone(), key).boxed(),
                None => events,
            };
            return Ok(StreamableHttpPostResponse::Sse(events, session));
        }
        let is_request = matches!(message, ClientJsonRpcMessage::Request(_));
        if !is_request {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if !media.starts_with(JSON) {
            return Err(HttpError::UnexpectedContentType(Some(media)));
        }
        let mut body = body(response, self.bytes_max).await?;
        self.redact(&mut body);
        let message = line::message(&body)?;
        Ok(StreamableHttpPostResponse::Json(message, session))
    }
}

/// The key of the call that a message makes; `None` for every other message.
fn call_key(message: &ClientJsonRpcMessage) -> Option<String> {
    let JsonRpcMessage::Request(request) = message else { return None };
    let ClientRequest::CallToolRequest(_) = &request.request else { return None };
    let key = request.request.get_meta().get(KEY_FIELD).and_then(serde_json::Value::as_str);
    key.map(str::to_owned)
}

/// Passes the events of a call's answer through, and notes which requests of the server are among them.
fn noted(
    events: BoxStream<'static, Result<Sse, SseError>>,
    router: Arc<CallRouter>,
    key: String,
) -> impl Stream<Item = Result<Sse, SseError>> {
    #[derive(serde::Deserialize)]
    struct ServerRequest {
        id: RequestId,
        #[serde(rename = "method")]
        _method: String,
    }
    events.inspect(move |event| {
        let data = event.as_ref().ok().and_then(|event| event.data.as_deref());
        // Most events have no request: progress, log lines, the answer.
        let request = data.filter(|data| ASKED.iter().any(|method| data.contains(method)));
        let request = request.and_then(|data| serde_json::from_str::<ServerRequest>(data).ok());
        if let Some(request) = request {
            router.note_origin(request.id, &key);
        }
    })
}

/// The methods with which a server asks the client something about a call.
const ASKED: [&str; 2] = ["elicitation/create", "sampling/createMessage"];

/// The id of a request that asks for the era of a server; `None` for every other message.
fn probe_id(message: &ClientJsonRpcMessage) -> Option<RequestId> {
    match message {
        JsonRpcMessage::Request(request) => {
            matches!(request.request, ClientRequest::DiscoverRequest(_)).then(|| request.id.clone())
        }
        _ => None,
    }
}

impl StreamableHttpClient for BoundedHttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _auth: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let accept = format!("{EVENTS}, {JSON}");
        let build = || {
            let mut request = self.client.post(&*uri).header(header::ACCEPT, &accept);
            for (name, value) in &headers {
                request = request.header(name, value);
            }
            if let Some(session) = &session {
                request = request.header(SESSION, &**session);
            }
            request.json(&message)
        };
        let response = self.send(build).await?;
        self.answer(&message, session.is_some(), response).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _auth: Option<String>,
        headers: Headers,
    ) -> Result<(), HttpError> {
        let auth = match &self.login {
            Some(login) => login.token().await,
            None => None,
        };
        self.client.delete_session(uri, session, auth, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        _auth: Option<String>,
        headers: Headers,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpError> {
        let build = || {
            let mut request = self.client.get(&*uri).header(header::ACCEPT, EVENTS);
            for (name, value) in &headers {
                request = request.header(name, value);
            }
            if let Some(session) = &session {
                request = request.header(SESSION, &**session);
            }
            match &last {
                Some(last) => request.header("last-event-id", last),
                None => request,
            }
        };
        let response = self.send(build).await?;
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            return Err(HttpError::ServerDoesNotSupportSse);
        }
        if response.status() == StatusCode::NOT_FOUND && session.is_some() {
            return Err(HttpError::SessionExpired);
        }
        if let Some(refusal) = refusal(&response) {
            return Err(refusal);
        }
        let media = response.headers().get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok());
        if !media.is_some_and(|media| media.to_ascii_lowercase().starts_with(EVENTS)) {
            return Err(HttpError::UnexpectedContentType(media.map(str::to_owned)));
        }
        Ok(self.events(response))
    }
}

fn with_token(request: RequestBuilder, token: Option<&str>) -> RequestBuilder {
    match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    }
}

/// An error of the login, in the shape that rmcp passes on.
fn login_error(error: LoginError) -> HttpError {
    HttpError::Io(io::Error::other(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn passes(chunks: &[&str], bytes_max: usize) -> bool {
        let chunks = chunks.iter().map(|chunk| Ok::<_, io::Error>(Bytes::from(chunk.to_string())));
        let chunks: Vec<_> = chunks.collect();
        let read: Vec<_> = bounded(futures::stream::iter(chunks), bytes_max).collect().await;
        read.iter().all(Result::is_ok)
    }

    #[tokio::test]
    async fn an_event_is_bounded_however_it_is_cut() {
        assert!(passes(&["data: 12345\n", "\n", "data: 12345\r\n\r\n"], 11).await);
        assert!(!passes(&["data: 12345\nda", "ta: 1\n\n"], 11).await);
        assert!(!passes(&["data: 1234", "56\n\n"], 11).await);
    }

    #[test]
    fn a_client_can_be_made_without_any_preparation() {
        let url = Url::parse("https://example.com/mcp").unwrap();
        client(&url, Duration::from_secs(1)).unwrap();
        client(&url, Duration::from_secs(1)).unwrap();
    }
}
