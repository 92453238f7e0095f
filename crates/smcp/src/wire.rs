//! The protocol: its events and versions, how requests are parsed and how faults are rendered.
//!
//! There is one internal model. The current protocol and the first draft differ in how an error is rendered and
//! whether the handshake checks a version; [`Dialect`] selects between them.

pub mod error;
pub mod event;
pub mod identity;
pub mod passthrough;
#[cfg(feature = "probe")]
#[doc(hidden)]
pub mod probe;
pub mod request;
pub mod version;

use budao_core::trace::{SpanId, Trace, parent_of};
use sha2::{Digest as _, Sha256};

pub use version::{PROTOCOL, Version};

/// The protocol's only Socket.IO namespace.
pub const NAMESPACE: &str = "/smcp";

/// The version of the wire protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Version 0.4.0: flat errors, `a2c_` marks, a version in the handshake.
    #[default]
    V04,
    /// The first draft (0.2): errors under `error`, marks without a prefix, no version.
    V02,
}

impl std::str::FromStr for Dialect {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "0.4" | "0.4.0" => Ok(Self::V04),
            "0.2" | "0.2.0" => Ok(Self::V02),
            other => Err(format!("`{other}` is no dialect; there are 0.4 and 0.2")),
        }
    }
}

/// The role of a member in its room.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, strum::IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Role {
    /// Sends requests. A room has at most one.
    Agent,
    /// Offers tools and answers requests. Names are unique in a room.
    Computer,
}

/// The trace of a request. Only `req_id` survives every hop, so the trace is derived from it: 32 hex digits are used
/// as they are, a `traceparent` gives its trace, and any other id is hashed.
#[must_use]
pub fn trace_of(req_id: &str) -> Trace {
    if let Some((trace, _)) = parent_of(req_id) {
        return trace;
    }
    let digits: String = req_id.chars().filter(|c| *c != '-').collect();
    let is_hex = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let plain = is_hex.then(|| u128::from_str_radix(&digits, 16).ok()).flatten();
    let digest = || {
        let digest = Sha256::digest(req_id.as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        u128::from_be_bytes(bytes)
    };
    Trace::from_random(plain.unwrap_or_else(digest))
}

/// The span that sent the request, if `req_id` is a `traceparent`; else [`SpanId::NONE`].
#[must_use]
pub fn asked_by(req_id: &str) -> SpanId {
    parent_of(req_id).map_or(SpanId::NONE, |(_, span)| span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_as_request_id_gives_the_trace_and_the_parent_span() {
        let id = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";
        assert_eq!(trace_of(id).to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(asked_by(id).to_string(), "00f067aa0ba902b7");
        assert_eq!(asked_by("r1"), SpanId::NONE);
    }

    #[test]
    fn a_trace_is_the_request_id_when_that_can_be_one() {
        let hex = "0af7651916cd43dd8448eb211c80319c";
        assert_eq!(trace_of(hex).to_string(), hex);
        assert_eq!(trace_of("0af76519-16cd-43dd-8448-eb211c80319c").to_string(), hex);
        assert_eq!(trace_of("r1"), trace_of("r1"));
        assert_ne!(trace_of("r1"), trace_of("r2"));
        assert!(trace_of("00000000000000000000000000000000").is_some());
    }
}
