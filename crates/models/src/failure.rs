//! Classifies a service's error response: status, body and headers become one kind of the catalog.
//!
//! Vendors agree on little, so the body (`type`, `code`, message) takes precedence over the status:
//! `insufficient_quota` and a rate limit are both 429, and a full context is 400, 413 or 500. The service's own words
//! only become causes, which only the operator sees.

use std::{fmt, sync::Arc, time::Duration};

use budao_core::fault::{Fact, Fault, Kind, Operation};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::response_hints::ResponseHints;

/// Maximum bytes of a service's text kept for the operator.
const EXCERPT_BYTES: usize = 2_048;

/// The service and model of a request. Every fault of the request names them.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) provider: &'static str,
    pub(crate) model: Arc<str>,
    pub(crate) host: Arc<str>,
    pub(crate) endpoint: Arc<str>,
    /// The setting that holds the API key.
    pub(crate) required_config: &'static str,
    pub(crate) key: Option<SecretString>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} at {}", self.provider, self.model, self.endpoint)
    }
}

impl Service {
    /// The service that a scripted model reports.
    pub(crate) fn scripted() -> Self {
        Self {
            provider: "script",
            model: "script".into(),
            host: "".into(),
            endpoint: "".into(),
            required_config: "model",
            key: None,
        }
    }

    /// Creates a fault of this kind that names the service and the model.
    pub(crate) fn fault(&self, kind: Kind) -> Fault {
        let fault = Fault::new(kind, Operation::ModelRequest)
            .with(Fact::Service, self.provider)
            .with(Fact::Model, self.model.to_string());
        if self.endpoint.is_empty() {
            return fault;
        }
        fault
            .with(Fact::Endpoint, self.endpoint.to_string())
            .with(Fact::Host, self.host.to_string())
    }

    /// Shortens a service's text and removes the API key in case the server echoes it.
    pub(crate) fn excerpt(&self, text: &str) -> String {
        let text = match &self.key {
            Some(key) if !key.expose_secret().is_empty() => {
                text.replace(key.expose_secret(), "[key]")
            }
            _ => text.to_owned(),
        };
        let mut end = text.len().min(EXCERPT_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text[..end].trim().to_owned()
    }
}

/// A service's error response, or an error event in a stream.
#[derive(Debug)]
pub(crate) struct ErrorResponse {
    status: u16,
    said: ErrorBody,
    hints: ResponseHints,
    raw: String,
}

/// The fields of an error body. Each vendor fills a different subset.
#[derive(Debug, Default, PartialEq, Eq)]
struct ErrorBody {
    kind: String,
    code: String,
    message: String,
    /// The field of the request that the service complains of.
    param: String,
    request_id: Option<String>,
    /// Tokens in the request and the maximum, if the body has both as numbers.
    context: Option<(u64, u64)>,
    /// The wait that Google's APIs name in `details`.
    retry_delay: Option<Duration>,
}

impl ErrorResponse {
    /// Parses a response with an error status.
    pub(crate) fn new(status: u16, body: &[u8]) -> Self {
        let raw = String::from_utf8_lossy(body).into_owned();
        let said = serde_json::from_str(&raw)
            .map_or_else(|_| ErrorBody::default(), |v| ErrorBody::read(&v));
        Self { status, said, hints: ResponseHints::default(), raw }
    }

    /// Parses an error event in a stream. Its status was 200, so only the body is classified.
    pub(crate) fn in_stream(error: &Value) -> Self {
        let said = ErrorBody::read(error);
        // Some gateways put the upstream status into `code`.
        let status = said.code.parse().ok().filter(|code| (400..600).contains(code));
        Self {
            status: status.unwrap_or(200),
            said,
            hints: ResponseHints::default(),
            raw: error.to_string(),
        }
    }

    /// True for a 400 whose code or field is `name`, or whose message has all of `phrases`, in lower case.
    pub(crate) fn is_complaint(&self, name: &str, phrases: &[&str]) -> bool {
        let said = &self.said;
        let named = !name.is_empty() && (said.code == name || said.param == name);
        let message = said.message.to_ascii_lowercase();
        let mentioned = !phrases.is_empty() && phrases.iter().all(|it| message.contains(it));
        self.status == 400 && (named || mentioned)
    }

    /// Adds the hints from the response headers.
    pub(crate) fn hints(mut self, hints: ResponseHints) -> Self {
        self.hints = hints;
        self
    }

    /// Converts the response into a fault with all its facts.
    pub(crate) fn fault(&self, service: &Service) -> Fault {
        let kind = self.kind();
        let mut fault = service.fault(kind);
        if self.status != 200 {
            fault = fault.with(Fact::Status, self.status);
        }
        if let Some(id) = self.hints.request_id.as_ref().or(self.said.request_id.as_ref()) {
            fault = fault.with(Fact::RequestId, service.excerpt(id));
        }
        if kind == Kind::ModelAuthentication {
            fault = fault
                .with(Fact::Cause, "invalid_credentials")
                .with(Fact::RequiredConfig, vec![service.required_config.to_owned()]);
        }
        if kind == Kind::ContextTooLong
            && let Some((actual, limit)) = self.said.context_size()
        {
            fault = fault.with(Fact::Actual, actual).with(Fact::Limit, limit);
        }
        let fault = self.hints.clone().or_retry_after(self.said.wait()).add_to_fault(fault);
        match self.words(service) {
            words if words.is_empty() => fault,
            words => fault.with_cause(words),
        }
    }

    /// The body in one line, for the operator.
    fn words(&self, service: &Service) -> String {
        let ErrorBody { kind, code, message, .. } = &self.said;
        let named: Vec<_> =
            [kind, code, message].into_iter().filter(|word| !word.is_empty()).cloned().collect();
        let text = if named.is_empty() { self.raw.clone() } else { named.join(": ") };
        service.excerpt(&text)
    }

    /// The kind of the catalog. What the service says of a repetition comes before what its status says. A rate limit is
    /// waited for in any case: its hint says how long.
    fn kind(&self) -> Kind {
        match (self.kind_of_refusal(), self.hints.should_retry) {
            (Kind::ModelBadRequest, Some(true)) => Kind::ModelServerError,
            (
                Kind::ModelServerError | Kind::ModelOverloaded | Kind::RequestTimedOut,
                Some(false),
            ) => Kind::ModelBadRequest,
            (kind, _) => kind,
        }
    }

    /// The kind by body and status. Specific checks come before general ones; the order matters.
    fn kind_of_refusal(&self) -> Kind {
        let said = &self.said;
        match self.status {
            _ if said.is_quota() || self.status == 402 => Kind::ModelQuota,
            429 => Kind::ModelRateLimited,
            _ if said.is_context_too_long() || self.status == 413 => Kind::ContextTooLong,
            _ if said.is_filtered() => Kind::ModelRefused,
            _ if said.is_of_other_region() => Kind::ModelPermission,
            _ if said.is_wrong_key() => Kind::ModelAuthentication,
            401 => Kind::ModelAuthentication,
            403 => Kind::ModelPermission,
            404 if said.is_missing_item() => Kind::ModelBadRequest,
            404 => Kind::UnknownModel,
            529 => Kind::ModelOverloaded,
            408 => Kind::RequestTimedOut,
            // The request met another one that changes the same thing: it is in order, and is sent again.
            409 => Kind::ModelServerError,
            _ if said.is_named(&["permission_error"]) => Kind::ModelPermission,
            _ if said.is_unknown_model() => Kind::UnknownModel,
            _ if said.is_named(&["rate_limit_error", "rate_limit_exceeded"]) => {
                Kind::ModelRateLimited
            }
            _ if said.is_overloaded() => Kind::ModelOverloaded,
            _ if said.is_named(&["timeout_error"]) => Kind::RequestTimedOut,
            500.. => Kind::ModelServerError,
            _ if said.is_named(&["invalid_request_error"]) => Kind::ModelBadRequest,
            // An unclassified error in a stream is treated as a server error.
            200 => Kind::ModelServerError,
            _ => Kind::ModelBadRequest,
        }
    }
}

/// The `retryDelay` in the details of an error, such as `12s`.
fn retry_delay(error: &Value) -> Option<Duration> {
    let details = error.get("details")?.as_array()?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    Duration::try_from(delay.parse::<jiff::SignedDuration>().ok()?).ok()
}

impl ErrorBody {
    /// Finds the error in a body: `{"error":{…}}`, `{"error":"…"}`, `{"detail":"…"}`, or top-level fields.
    fn read(body: &Value) -> Self {
        // One vendor wraps the error in a list of one element.
        let body = body.get(0).unwrap_or(body);
        let error = body.get("error").filter(|error| !error.is_null()).unwrap_or(body);
        let word = |value: Option<&Value>| match value {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        let number = |name: &str| error.get(name).and_then(Value::as_u64);
        let message = match error {
            Value::String(text) => text.clone(),
            _ => word(error.get("message").or_else(|| error.get("detail"))),
        };
        // In a body without `error`, `type` may be just "error".
        let kind = Some(word(error.get("type"))).filter(|kind| kind != "error").unwrap_or_default();
        // Google's APIs have the name of the error in `status`.
        let kind = if kind.is_empty() { word(error.get("status")) } else { kind };
        Self {
            kind,
            code: word(error.get("code")),
            message,
            param: word(error.get("param")),
            request_id: body.get("request_id").and_then(Value::as_str).map(str::to_owned),
            context: number("n_prompt_tokens").zip(number("n_ctx")),
            retry_delay: retry_delay(error),
        }
    }

    fn is_named(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.kind == *name || self.code == *name)
    }

    fn mentions(&self, phrases: &[&str]) -> bool {
        let message = self.message.to_ascii_lowercase();
        phrases.iter().any(|phrase| message.contains(phrase))
    }

    fn is_wrong_key(&self) -> bool {
        self.is_named(&["authentication_error", "invalid_api_key", "UNAUTHENTICATED"])
            || self.mentions(&["api key not valid", "api key expired", "incorrect api key"])
    }

    fn is_of_other_region(&self) -> bool {
        self.is_named(&[
            "data_residency_mismatch",
            "incorrect_hostname",
            "unsupported_country_region_territory",
        ]) || self.mentions(&["user location is not supported", "incorrect regional hostname"])
    }

    fn is_quota(&self) -> bool {
        // Gemini says of a rate limit that the quota is exceeded, and names the wait.
        if self.kind == "RESOURCE_EXHAUSTED" && self.retry_delay.is_some() {
            return false;
        }
        self.is_named(&[
            "insufficient_quota",
            "billing_error",
            "billing_hard_limit_reached",
            "quota_exceeded",
            "insufficient_balance",
            "credit_balance_exhausted",
            "usage_not_included",
        ]) || self.mentions(&[
            "exceeded your current quota",
            "credit balance is too low",
            "insufficient credits",
            "doesn't have any credits",
        ])
    }

    fn is_context_too_long(&self) -> bool {
        self.is_named(&[
            "context_length_exceeded",
            "exceed_context_size_error",
            "request_too_large",
            "string_above_max_length",
        ]) || self.mentions(&[
            "prompt is too long",
            "context length",
            "context window",
            "context size",
            "maximum context",
            "input is too long",
            "exceed context limit",
        ])
    }

    fn is_unknown_model(&self) -> bool {
        self.is_named(&["not_found_error", "model_not_found"])
            || self.mentions(&["invalid model name", "unknown model"])
    }

    fn is_filtered(&self) -> bool {
        self.is_named(&[
            "content_filter",
            "content_policy_violation",
            "data_inspection_failed",
            "responsible_ai_policy_violation",
            "invalid_prompt",
            "bio_policy",
            "cyber_policy",
            "misalignment_policy_violation",
        ])
    }

    /// The service looked for an item of an earlier answer, not for a model.
    fn is_missing_item(&self) -> bool {
        self.mentions(&["item with id", "items are not persisted"])
    }

    /// The wait in a message such as `Please try again in 1.2s` or `… in 350ms`.
    fn wait(&self) -> Option<Duration> {
        if self.retry_delay.is_some() {
            return self.retry_delay;
        }
        let message = self.message.to_ascii_lowercase();
        let (_, rest) = message.split_once("try again in ")?;
        let wait = rest.split_whitespace().next()?.trim_end_matches(['.', ',']);
        Duration::try_from(wait.parse::<jiff::SignedDuration>().ok()?).ok()
    }

    fn is_overloaded(&self) -> bool {
        self.is_named(&[
            "overloaded_error",
            "unavailable_error",
            "slow_down",
            "engine_overloaded",
            "server_is_overloaded",
        ]) || self.mentions(&["overloaded", "loading model", "at capacity"])
    }

    /// Tokens in the request and the maximum: from fields, or from the two common phrasings `208310 tokens > 200000
    /// maximum` and `maximum context length is 8192 tokens … 9000 tokens`.
    fn context_size(&self) -> Option<(u64, u64)> {
        if self.context.is_some() {
            return self.context;
        }
        let words: Vec<&str> = self.message.split(|c: char| !c.is_ascii_alphanumeric()).collect();
        let numbers: Vec<u64> = words
            .windows(2)
            .filter(|pair| ["tokens", "maximum", ""].contains(&pair[1]))
            .filter_map(|pair| pair[0].parse().ok())
            .collect();
        match numbers[..] {
            [first, second, ..] => Some((first.max(second), first.min(second))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
