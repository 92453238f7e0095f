//! Reads request bodies and queries, and writes parts of addresses.

use std::fmt::Write as _;

use axum::extract::{Query, Request, rejection::QueryRejection};
use budao_core::{
    Fault, Kind,
    fault::{Fact, Operation},
};
use futures::future::{self, Either};
use http::header;
use serde_json::{Map, Value};

use crate::{inbound, server::Server};

/// Reads the body as a JSON object of at most `max` bytes. An empty body is an empty object.
///
/// # Errors
/// `frame_too_large`, `json_too_deep`, `malformed_json`, `invalid_utf8`, or `bad_request` if the body takes too long.
pub(crate) async fn json_body(
    server: &Server,
    request: Request,
    max: usize,
) -> Result<Map<String, Value>, Fault> {
    let limits = inbound::FrameLimits { frame_bytes: max, ..server.inbound_limits() };
    let (parts, body) = request.into_parts();
    let announced = parts.headers.get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let too_large = |actual| inbound::too_large(actual, max);
    if let Some(actual) = announced.filter(|actual| *actual > max) {
        return Err(too_large(actual));
    }
    let timeout = server.config.limits.idle_timeout;
    let reading = Box::pin(axum::body::to_bytes(body, max));
    let bytes = match future::select(reading, server.world.clock.sleep(timeout)).await {
        Either::Left((bytes, _)) => bytes.map_err(|_| too_large(max + 1))?,
        Either::Right(_) => {
            return Err(Fault::new(Kind::BadRequest, Operation::ServeRequest)
                .with(Fact::Field, "body")
                .with(Fact::Constraint, format!("all of it within {} ms", timeout.as_millis())));
        }
    };
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        Fault::new(Kind::InvalidUtf8, Operation::ServeRequest)
            .with(Fact::Position, error.valid_up_to())
    })?;
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    inbound::parse_object(text, &limits)
}

/// The query of a request.
///
/// # Errors
/// `bad_request` if a parameter has another type.
pub(crate) fn query_of<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Fault> {
    query.map(|Query(query)| query).map_err(|rejection| {
        Fault::new(Kind::BadRequest, Operation::ServeRequest)
            .with(Fact::Field, "query")
            .with(Fact::Received, rejection.body_text())
    })
}

/// Percent-encodes a part of an address.
pub(crate) fn encode_uri(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            byte => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}
