//! Frames for workers. They have no position in a session's history and are never replayed.

use budao_core::Timestamp;
use budao_remote::{CallKey, CallOffer, CancelReason};
use serde_json::Value;

use super::{Frame, fault::millis};

/// `tool.call`: a call that the process may claim.
#[must_use]
pub fn call(at: Timestamp, worker_id: &str, offer: &CallOffer) -> Frame {
    Frame::new("tool.call", at)
        .about(offer.key.session)
        .with_step_id(offer.key.call.to_string())
        .object(Value::clone(&offer.arguments))
        .with("tool", &*offer.tool)
        .with("version", offer.route.version.as_str())
        .with("attempt", offer.attempt)
        .with("purpose", offer.purpose.name())
        .with("worker_id", worker_id)
        .with("idempotency_key", &*offer.idempotency_key)
        .with("traceparent", offer.trace.to_traceparent(offer.span))
        .with("deadline_ms", millis(offer.deadline))
}

/// `tool.cancel`: a claimed call that should stop.
#[must_use]
pub fn cancel(
    at: Timestamp,
    worker_id: &str,
    key: &CallKey,
    attempt: u32,
    reason: CancelReason,
) -> Frame {
    Frame::new("tool.cancel", at)
        .about(key.session)
        .with_step_id(key.call.to_string())
        .with("attempt", attempt)
        .with("worker_id", worker_id)
        .with("reason", reason.name())
}
