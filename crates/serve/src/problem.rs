//! A fault as an HTTP response: `application/problem+json`, RFC 9457.

use crate::codes::http_status;
use axum::response::{IntoResponse, Response};
use budao_core::{
    Fault, Lang,
    fault::{render, text},
};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::Value;

/// A fault as problem details (RFC 9457).
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Problem {
    /// URN of the kind: `urn:budao:fault:ERR_SESS_001`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Short title of the kind, in the language of `Accept-Language`.
    pub title: String,
    /// HTTP status of the response, 400 to 599.
    pub status: u16,
    /// One sentence about this fault, in the language of `Accept-Language`.
    pub detail: String,
    /// Permanent code of the kind; `budao explain CODE` describes it.
    pub code: &'static str,
    /// True if repeating the same request makes sense.
    pub retryable: bool,
    /// Wait in milliseconds before the next request; absent if no service demands one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Trace of the request, 32 hex digits, to find it in the log; absent if the fault has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// What to do, the most specific first, in the language of `Accept-Language`.
    pub advice: Vec<String>,
    /// The facts of this fault: `field`, `limit`, `limit_name` …
    pub facts: Value,
}

impl Problem {
    /// Renders a fault for a peer. The caller must scrub the fault first.
    #[must_use]
    pub fn of(fault: &Fault, lang: Lang) -> Self {
        let rendered = render::render_for_peer(fault, lang);
        let advice = text::recommendations(fault, lang);
        Self {
            kind: format!("urn:budao:fault:{}", rendered.code),
            title: rendered.title,
            status: http_status(fault.kind()),
            detail: rendered.message,
            code: rendered.code,
            retryable: rendered.retryable,
            retry_after_ms: rendered.retry_after_ms,
            trace_id: rendered.trace.map(|trace| trace.to_string()),
            advice: advice.into_iter().map(std::borrow::Cow::into_owned).collect(),
            facts: serde_json::to_value(&rendered.details).unwrap_or_default(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, json);
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(wait) = self.retry_after_ms {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(wait.div_ceil(1000)));
        }
        response
    }
}

/// The header with the request's id.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
