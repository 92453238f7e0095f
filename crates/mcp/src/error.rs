//! Errors between the client and a server, and their conversion to faults.
//!
//! [`ServerError::fault`] lists which error becomes which kind. A server never confirms a cancellation, so a call that
//! was cancelled or whose answer is unreadable also carries the fact `outcome_unknown`.

use std::{borrow::Cow, error::Error, io, time::Duration};

use budao_core::fault::{Advice, Fact, Fault, Kind, Mismatch, Operation};
use rmcp::{
    model::{ErrorCode, ErrorData},
    service::{ClientInitializeError, ServiceError},
    transport::streamable_http_client::{
        AuthRequiredError, InsufficientScopeError, StreamableHttpError,
    },
};
use serde_json::Value;

use crate::{auth::LoginError, line};

/// The longest quotation of a server's message in a fault, in characters.
const WORDS_MAX: usize = 500;

/// `URLElicitationRequired`: a person must do something in a browser before the call can run.
const URL_NEEDED: ErrorCode = ErrorCode(-32042);

/// An error of a connection or a request, before server and tool are attached.
#[derive(Debug)]
pub(crate) enum ServerError {
    /// The server is not connected.
    Down,
    /// The connection ended before the answer arrived.
    Lost,
    /// No answer arrived within this time.
    TimedOut(Duration),
    /// The server has the configured number of running calls, which is given here.
    Busy(usize),
    /// The server answered with a JSON-RPC error.
    Refused(ErrorData),
    /// The answer does not match the request.
    Unclear(Cow<'static, str>),
    /// The server requests a feature that this client lacks.
    Unsupported(&'static str),
    /// Sending the request or reading the answer failed.
    Wire(Box<dyn Error + Send + Sync>),
}

/// The server, tool and operation that a fault is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FaultContext<'a> {
    pub(crate) operation: Operation,
    pub(crate) server: &'a str,
    /// The tool's name for the model; `None` if the fault concerns no tool.
    pub(crate) tool: Option<&'a str>,
    /// The server's own name for the tool.
    pub(crate) server_tool_name: &'a str,
    /// Whether the call may be repeated without harm.
    pub(crate) idempotent: bool,
    pub(crate) limit: usize,
}

impl<'a> FaultContext<'a> {
    /// A context for a fault that concerns a server but none of its tools.
    pub(crate) fn bare(server: &'a str, operation: Operation) -> Self {
        Self { operation, server, tool: None, server_tool_name: "", idempotent: true, limit: 0 }
    }
}

impl FaultContext<'_> {
    /// A fault of this kind, with the server and the tool as facts.
    pub(crate) fn fault(&self, kind: Kind) -> Fault {
        let fault = Fault::new(kind, self.operation).with(Fact::McpServer, self.server.to_owned());
        match self.tool {
            Some(tool) => fault.with(Fact::ToolName, tool.to_owned()),
            None => fault,
        }
    }

    fn failed(&self, reason: impl Into<String>) -> Fault {
        self.fault(Kind::McpServerFailed).with(Fact::Reason, bounded(&reason.into()))
    }

    /// The connection ended after the request was sent. A call that must not be repeated becomes `outcome_unknown`.
    fn unknown(&self, reason: &'static str) -> Fault {
        if self.tool.is_none() || self.idempotent {
            return self.doubted(self.failed(reason));
        }
        self.fault(Kind::OutcomeUnknown)
            .with_cause(reason)
            .advise_model([Advice::known("mcp-server")])
    }

    /// The server received the call, but its answer does not reveal the outcome.
    fn unclear(&self, reason: impl Into<String>) -> Fault {
        self.doubted(self.failed(reason))
    }

    /// A fault of this kind about a call with an unknown outcome. The protocol has no answer to a cancelled request, so
    /// the server never confirms that it stopped.
    pub(crate) fn unconfirmed(&self, kind: Kind) -> Fault {
        self.doubted(self.fault(kind))
    }

    fn doubted(&self, fault: Fault) -> Fault {
        match self.tool {
            None => fault,
            Some(_) if self.idempotent => fault.unconfirmed_but_safe(),
            Some(_) => fault.unconfirmed(),
        }
    }
}

/// The most addresses that a person is asked to open before one call.
const ADDRESSES_MAX: usize = 4;

impl ServerError {
    /// The addresses that a person must open before the server makes the call, as questions of the server.
    pub(crate) fn addresses(&self) -> Vec<Value> {
        let Self::Refused(ErrorData { code: URL_NEEDED, data: Some(data), .. }) = self else {
            return Vec::new();
        };
        let listed = data.get("elicitations").and_then(Value::as_array);
        listed.into_iter().flatten().take(ADDRESSES_MAX).cloned().collect()
    }

    /// Whether the connection is unusable. An answer of any kind proves that it works.
    pub(crate) fn is_fatal(&self) -> bool {
        match self {
            Self::Down | Self::Lost => true,
            Self::Wire(error) => {
                let error: &(dyn Error + 'static) = &**error;
                let is_answer = |it: &(dyn Error + 'static)| {
                    matches!(
                        it.downcast_ref::<StreamableHttpError<reqwest::Error>>(),
                        Some(
                            StreamableHttpError::HttpStatus(_)
                                | StreamableHttpError::AuthRequired(_)
                                | StreamableHttpError::InsufficientScope(_)
                                | StreamableHttpError::UnexpectedContentType(_)
                                | StreamableHttpError::UnexpectedServerResponse(_)
                                | StreamableHttpError::Deserialize(_)
                                | StreamableHttpError::Io(_)
                        )
                    )
                };
                !chain(error).any(is_answer)
            }
            Self::TimedOut(_)
            | Self::Busy(_)
            | Self::Refused(_)
            | Self::Unclear(_)
            | Self::Unsupported(_) => false,
        }
    }

    /// Converts the error to a fault.
    ///
    /// | error | kind |
    /// | --- | --- |
    /// | an error result (converted in `answer`) | `tool_said_no` |
    /// | code −32602 | `invalid_arguments`, or `unknown_tool` if the message says so |
    /// | code −32601 | `unknown_tool` |
    /// | code −32042, status 401 in spite of a configured `authorization` header | `upstream_sign_in_needed` |
    /// | status 401 from a server that takes logins, 403 with `insufficient_scope` | `mcp_login_needed` |
    /// | any other status 403 | `upstream_sign_in_refused` |
    /// | status 429 | `service_rate_limited` |
    /// | an answer above the size limit | `output_too_large` |
    /// | any other error, an unreadable answer, no connection | `mcp_server_failed` |
    /// | the server was lost during a call that must not be repeated | `outcome_unknown` |
    pub(crate) fn fault(self, fault_context: &FaultContext<'_>) -> Fault {
        let fault = match self {
            Self::Down => fault_context.failed("it is not connected at the moment"),
            Self::Lost => {
                fault_context.unknown("it ended, or its connection was lost, during the call")
            }
            Self::TimedOut(limit) => slow(fault_context, limit),
            Self::Busy(limit) => fault_context
                .fault(Kind::LimitReached)
                .with(Fact::LimitName, "mcp.calls")
                .with(Fact::Limit, limit)
                .with(Fact::Actual, limit)
                .with(Fact::Unit, "calls"),
            Self::Refused(error) => refused(&error, fault_context),
            Self::Unclear(what) => fault_context
                .unclear("it answered something that cannot be understood")
                .with_cause(what),
            Self::Unsupported(what) => {
                fault_context.fault(Kind::UnsupportedOperation).with(Fact::Reason, what)
            }
            Self::Wire(error) => wire(&*error, fault_context),
        };
        fault.via("mcp_server", fault_context.server)
    }
}

fn slow(fault_context: &FaultContext<'_>, limit: Duration) -> Fault {
    match fault_context.tool {
        Some(_) => fault_context.unconfirmed(Kind::DeadlinePassed).with(Fact::TimeoutMs, limit),
        None => fault_context
            .failed(format!("it did not answer within {} ms", limit.as_millis()))
            .with(Fact::TimeoutMs, limit),
    }
}

impl From<ServiceError> for ServerError {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::McpError(error) => Self::Refused(error),
            ServiceError::TransportClosed | ServiceError::Cancelled { .. } => Self::Lost,
            ServiceError::TransportSend(error) => Self::Wire(error.error),
            ServiceError::Timeout { timeout } => Self::TimedOut(timeout),
            other => Self::Unclear(other.to_string().into()),
        }
    }
}

impl From<ClientInitializeError> for ServerError {
    fn from(error: ClientInitializeError) -> Self {
        match error {
            ClientInitializeError::JsonRpcError(error) => Self::Refused(error),
            ClientInitializeError::TransportError { error, .. } => Self::Wire(error.error),
            ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::Cancelled => {
                Self::Lost
            }
            ClientInitializeError::LegacyFallbackFailed { fallback, .. } => Self::from(*fallback),
            other => Self::Unclear(bounded(&other.to_string()).into()),
        }
    }
}

/// Converts a JSON-RPC error to a fault.
fn refused(error: &ErrorData, fault_context: &FaultContext<'_>) -> Fault {
    let server_message = bounded(&error.message);
    let code = i64::from(error.code.0);
    let fault = match error.code {
        ErrorCode::METHOD_NOT_FOUND if fault_context.tool.is_some() => {
            fault_context.fault(Kind::UnknownTool)
        }
        ErrorCode::INVALID_PARAMS if fault_context.tool.is_some() => {
            if names_no_tool(&error.message, fault_context.server_tool_name) {
                fault_context.fault(Kind::UnknownTool)
            } else {
                let rule = Cow::Borrowed("server");
                let mismatch =
                    Mismatch { rule, expected: server_message.clone(), ..Mismatch::default() };
                fault_context.fault(Kind::InvalidArguments).mismatch(mismatch)
            }
        }
        URL_NEEDED => sign_in(fault_context, error.data.as_ref()),
        line::TOO_LONG => {
            let bytes = error.message.parse::<u64>().unwrap_or_default();
            // The tool ran, but its result was not read.
            return fault_context.doubted(too_large(fault_context)).with(Fact::Actual, bytes);
        }
        line::UNREADABLE => {
            let fault = fault_context.unclear("it answered something that cannot be understood");
            return fault.with_cause(server_message);
        }
        _ => fault_context.failed(server_message.clone()),
    };
    fault.with(Fact::PeerCode, code).with_cause(format!("error {code}: {server_message}"))
}

/// Whether a parameter error says that the tool does not exist, as in the protocol's own example.
fn names_no_tool(message: &str, server_tool_name: &str) -> bool {
    let names_it = message
        .split(|letter: char| letter.is_whitespace() || "\"'`:,;()".contains(letter))
        .any(|word| word.trim_end_matches('.') == server_tool_name);
    let message = message.to_lowercase();
    let says_so = ["unknown tool", "no such tool", "not found", "does not exist"];
    names_it && message.contains("tool") && says_so.iter().any(|words| message.contains(words))
}

fn too_large(fault_context: &FaultContext<'_>) -> Fault {
    fault_context
        .fault(Kind::OutputTooLarge)
        .with(Fact::Limit, fault_context.limit)
        .with(Fact::LimitName, "frame_bytes_hard")
}

fn sign_in(fault_context: &FaultContext<'_>, data: Option<&Value>) -> Fault {
    let fault = fault_context
        .fault(Kind::UpstreamSignInNeeded)
        .with(Fact::AuthAction, "user_authorization_required");
    let url = data.and_then(|data| data.pointer("/elicitations/0/url")).and_then(Value::as_str);
    match url {
        Some(url) => fault.with(Fact::Uri, bounded(url)),
        None => fault,
    }
}

/// The fault of a request that has no usable token: a person logs in, or the token is renewed later.
fn login(fault_context: &FaultContext<'_>, error: &LoginError) -> Fault {
    match error {
        LoginError::Needed(need) => fault_context
            .fault(Kind::McpLoginNeeded)
            .with(Fact::AuthAction, need.action())
            .with(Fact::Command, format!("budao mcp login {}", fault_context.server)),
        LoginError::Unavailable(error) => {
            let fault = fault_context.failed("its login could not be renewed");
            fault.with_cause(bounded(&error.to_string()))
        }
    }
}

/// Converts a transport error to a fault, from the first known error in its chain of sources.
fn wire(error: &(dyn Error + 'static), fault_context: &FaultContext<'_>) -> Fault {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(fault) = known_wire(error, fault_context) {
            return fault.caused_by(error);
        }
        next = below(error);
    }
    fault_context.unknown("its connection failed").caused_by(below(error).unwrap_or(error))
}

/// The source of an error. rmcp does not report it for errors of the HTTP client.
fn below<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref() {
        Some(StreamableHttpError::<reqwest::Error>::Client(error)) => Some(error),
        _ => error.source(),
    }
}

/// An error and its sources, from the outside in.
pub(crate) fn chain<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |it| below(*it))
}

/// Whether the server rejected the request as one that it does not know: not for want of a sign-in or for its rate.
pub(crate) fn is_rejection(error: &(dyn Error + 'static)) -> bool {
    chain(error).any(|it| match it.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::HttpStatus(status)) => {
            (400..500).contains(&status.status) && !matches!(status.status, 408 | 429)
        }
        Some(
            StreamableHttpError::UnexpectedContentType(_)
            | StreamableHttpError::Deserialize(_)
            | StreamableHttpError::UnexpectedServerResponse(_),
        ) => true,
        _ => false,
    })
}

fn known_wire(error: &(dyn Error + 'static), fault_context: &FaultContext<'_>) -> Option<Fault> {
    if error.is::<AuthRequiredError>() {
        return Some(sign_in(fault_context, None));
    }
    if error.is::<InsufficientScopeError>() {
        let fault = fault_context.fault(Kind::UpstreamSignInRefused);
        return Some(fault.with(Fact::AuthAction, "token_refresh_required"));
    }
    if let Some(error) = error.downcast_ref::<io::Error>() {
        if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<LoginError>()) {
            return Some(login(fault_context, error));
        }
        return Some(match error.kind() {
            io::ErrorKind::FileTooLarge => too_large(fault_context),
            // Writing to a process failed. An incomplete line is not a call.
            _ => fault_context.failed("it does not take calls any more"),
        });
    }
    if let Some(error) = error.downcast_ref::<reqwest::Error>() {
        return error.is_connect().then(|| fault_context.failed("it cannot be reached"));
    }
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>()? {
        StreamableHttpError::HttpStatus(status) if status.status == 429 => {
            let fault =
                fault_context.fault(Kind::ServiceRateLimited).with(Fact::Status, status.status);
            let fault = fault.with(Fact::Service, fault_context.server.to_owned());
            let wait = status.retry_after.as_deref().and_then(|hint| hint.trim().parse().ok());
            Some(match wait {
                Some(seconds) => fault.retry_after(Duration::from_secs(seconds)),
                None => fault,
            })
        }
        StreamableHttpError::HttpStatus(status) => {
            let reason = format!("it answered with status {}", status.status);
            // A 4xx status means that no tool ran; after any other status one may have.
            let is_refused = (400..500).contains(&status.status);
            let fault = if is_refused {
                fault_context.failed(reason)
            } else {
                fault_context.unclear(reason)
            };
            Some(fault.with(Fact::Status, status.status))
        }
        StreamableHttpError::UnexpectedContentType(_)
        | StreamableHttpError::Deserialize(_)
        | StreamableHttpError::UnexpectedServerResponse(_) => {
            Some(fault_context.unclear("it answered something that cannot be understood"))
        }
        StreamableHttpError::SessionExpired | StreamableHttpError::ReinitializationFailed(_) => {
            Some(fault_context.failed("it has forgotten our session"))
        }
        _ => None,
    }
}

/// A server's text, trimmed and cut to [`WORDS_MAX`] characters.
pub(crate) fn bounded(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(WORDS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault_context(idempotent: bool) -> FaultContext<'static> {
        FaultContext {
            operation: Operation::ToolCall,
            server: "s",
            tool: Some("mcp__s__t"),
            server_tool_name: "t",
            idempotent,
            limit: 100,
        }
    }

    fn error(code: i32, message: &'static str) -> Fault {
        ServerError::Refused(ErrorData::new(ErrorCode(code), message, None))
            .fault(&fault_context(true))
    }

    #[test]
    fn an_error_of_the_protocol_is_classified_once() {
        let kinds = [
            (error(-32602, "x must be a number"), Kind::InvalidArguments),
            (error(-32602, "Unknown tool: t"), Kind::UnknownTool),
            (error(-32602, "Tool t not found"), Kind::UnknownTool),
            (error(-32602, "file not found in tool cache"), Kind::InvalidArguments),
            (error(-32601, "Method not found"), Kind::UnknownTool),
            (error(-32603, "boom"), Kind::McpServerFailed),
            (error(-32042, "sign in"), Kind::UpstreamSignInNeeded),
            (error(line::TOO_LONG.0, "900"), Kind::OutputTooLarge),
            (error(line::UNREADABLE.0, "bad"), Kind::McpServerFailed),
        ];
        for (fault, kind) in kinds {
            assert_eq!(fault.kind(), kind, "{fault}");
            assert_eq!(fault.hops()[0].name, "s");
        }
    }

    #[test]
    fn a_lost_call_that_must_not_be_repeated_is_not_called_repeatable() {
        let lost = |idempotent| ServerError::Lost.fault(&fault_context(idempotent));
        assert_eq!(lost(true).kind(), Kind::McpServerFailed);
        assert!(lost(true).may_auto_retry());
        assert_eq!(lost(false).kind(), Kind::OutcomeUnknown);
        assert!(!lost(false).may_auto_retry());
    }

    #[test]
    fn only_a_call_that_surely_did_not_begin_looks_repeatable() {
        let unreadable = || ServerError::Refused(ErrorData::new(line::UNREADABLE, "bad", None));
        let troubles = |idempotent| {
            [
                ServerError::TimedOut(Duration::from_secs(2)),
                ServerError::Lost,
                ServerError::Unclear("odd".into()),
                unreadable(),
            ]
            .map(|server_error| server_error.fault(&fault_context(idempotent)))
        };
        for fault in troubles(false) {
            assert!(fault.is_outcome_unknown() && !fault.repeat().retryable, "{fault}");
            assert!(!fault.may_auto_retry(), "{fault}");
        }
        for fault in troubles(true) {
            assert!(fault.is_outcome_unknown(), "{fault}");
            assert_eq!(fault.repeat().retryable, fault.row().retryable, "{fault}");
        }
        for fault in [
            ServerError::Down.fault(&fault_context(false)),
            ServerError::Busy(4).fault(&fault_context(false)),
        ] {
            assert!(!fault.is_outcome_unknown() && fault.repeat().retryable, "{fault}");
        }
        let slow = ServerError::TimedOut(Duration::from_secs(2)).fault(&fault_context(false));
        let model_text = budao_core::fault::text::model_text(&slow, budao_core::Lang::En);
        assert!(
            model_text.contains("may still be running") && !model_text.contains("was stopped"),
            "{model_text}"
        );
    }

    #[test]
    fn every_http_status_has_its_fault() {
        let status = |error: StreamableHttpError<reqwest::Error>| {
            ServerError::Wire(Box::new(error)).fault(&fault_context(false))
        };
        let limited = rmcp::transport::streamable_http_client::HttpStatusError::new;
        let fault = status(limited(429, Some("7".into())).into());
        assert_eq!(fault.kind(), Kind::ServiceRateLimited);
        assert_eq!(fault.retry_hint(), Some(Duration::from_secs(7)));
        let failed = status(limited(500, None).into());
        assert_eq!(failed.kind(), Kind::McpServerFailed);
        assert!(failed.is_outcome_unknown(), "it may have failed inside of the tool");
        assert!(!status(limited(404, None).into()).is_outcome_unknown());
        let refused = AuthRequiredError::new("Bearer".into());
        let fault = status(StreamableHttpError::AuthRequired(refused));
        assert_eq!(fault.kind(), Kind::UpstreamSignInNeeded);
        let refused = InsufficientScopeError::new("Bearer".into(), None);
        let fault = status(StreamableHttpError::InsufficientScope(refused));
        assert_eq!(fault.kind(), Kind::UpstreamSignInRefused);
    }
}
