//! Converts faults to the protocol's errors.

use agent_client_protocol::{Error, ErrorCode};
use budao_core::{
    Lang,
    fault::{Fact, Fault, render},
};
use serde_json::{Value, json};

use crate::codes::json_rpc_code;

/// Converts a fault to a JSON-RPC error; `data` carries kind, code, operation and advice.
pub(crate) fn to_error(fault: &Fault, lang: Lang) -> Error {
    let rendered = render::render_for_editor(fault, lang);
    let mut data = json!({
        "kind": rendered.kind,
        // Other agents use this name for the same value.
        "errorKind": rendered.kind,
        "code": fault.row().code,
        "operation": fault.operation().to_string(),
        "retryable": rendered.retryable,
        "advice": rendered.advice,
    });
    if let Some(status) = fault.detail().number(Fact::Status) {
        data["status"] = status.into();
    }
    if let Some(wait) = fault.retry_hint() {
        data["retryAfterMs"] = Value::from(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    }
    if let Some(tries) = fault.attempts() {
        data["attempts"] = tries.attempt.into();
    }
    if fault.trace().is_some() {
        data["trace"] = fault.trace().to_string().into();
    }
    Error::new(json_rpc_code(fault.kind()), rendered.message).data(data)
}

/// An `INVALID_PARAMS` error that names the field and its expected value.
pub(crate) fn invalid_params(field: &str, expected: &str) -> Error {
    Error::new(ErrorCode::INVALID_PARAMS, format!("`{field}` must be {expected}"))
        .data(json!({"field": field, "expected": expected}))
}

/// An `unknown_session` error; the id is cut to 80 characters.
pub(crate) fn unknown_session(session: &str, lang: Lang) -> Error {
    use budao_core::fault::{Kind, Operation};
    let shown: String = session.chars().take(80).collect();
    let fault = Fault::new(Kind::UnknownSession, Operation::TalkToEditor);
    to_error(&fault.with(Fact::Session, shown), lang)
}
