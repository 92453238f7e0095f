//! Trace and span ids, as in W3C Trace Context.
//!
//! A turn creates a trace when its sender brought none. Every fault, record, log line and hop carries it. Core draws no
//! random numbers, so the caller supplies the bits.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::{
    event::{CommandId, SessionId, TurnNumber},
    message::CallId,
};

/// A trace id, written as 32 hex digits. Zero means "none" and is never sent.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Trace(u128);

impl Trace {
    /// The absent trace: all zeros.
    pub const NONE: Self = Self(0);

    /// Creates a trace from random bits; the invalid id 0 becomes 1.
    #[must_use]
    pub const fn from_random(bits: u128) -> Self {
        Self(if bits == 0 { 1 } else { bits })
    }

    /// The id as a number; 0 for none.
    #[must_use]
    pub const fn as_u128(self) -> u128 {
        self.0
    }

    /// Whether the id is not zero.
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.0 != 0
    }

    /// This trace, or `other` if this one is absent.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        if self.is_some() { self } else { other }
    }

    /// The trace of a `traceparent` header. A malformed header counts as none, as the standard demands.
    #[must_use]
    pub fn from_traceparent(header: &str) -> Option<Self> {
        parent_of(header).map(|(trace, _)| trace)
    }

    /// Formats a `traceparent` header for a call made by `span`.
    #[must_use]
    pub fn to_traceparent(self, span: SpanId) -> String {
        format!("00-{self}-{}-01", SpanId::from_random(span.0))
    }
}

/// Parses a `traceparent` header into its trace and the sender's span.
#[must_use]
pub fn parent_of(header: &str) -> Option<(Trace, SpanId)> {
    let mut parts = header.trim().split('-');
    let (version, trace, parent, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, digits: usize| {
        text.len() == digits
            && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let well_formed = hex(version, 2) && version != "ff" && hex(parent, 16) && hex(flags, 2);
    let nothing_more = version != "00" || parts.next().is_none();
    if !well_formed || !nothing_more || !hex(trace, 32) {
        return None;
    }
    let trace: Trace = trace.parse().ok()?;
    let parent = SpanId(u64::from_str_radix(parent, 16).ok()?);
    (trace.is_some() && parent.is_some()).then_some((trace, parent))
}

/// Identifies one operation in a trace, written as 16 hex digits. Zero means "none" and is never sent.
///
/// The id is derived from the record of the operation, not drawn at random. Every process that knows the record can
/// compute it, including one that resumes the session after a crash.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(u64);

impl SpanId {
    /// The absent span: all zeros.
    pub const NONE: Self = Self(0);

    /// Creates an id from random bits; the invalid id 0 becomes 1.
    #[must_use]
    pub const fn from_random(bits: u64) -> Self {
        Self(if bits == 0 { 1 } else { bits })
    }

    /// The span of a command.
    #[must_use]
    pub fn of_request(session: SessionId, command: &CommandId) -> Self {
        Self::in_session("request", session, [], &command.0)
    }

    /// The span of a turn.
    #[must_use]
    pub fn of_turn(session: SessionId, turn: TurnNumber) -> Self {
        Self::in_session("turn", session, [turn], "")
    }

    /// The span of one attempt at a model request.
    #[must_use]
    pub fn of_step(session: SessionId, turn: TurnNumber, step: u32, attempt: u32) -> Self {
        Self::in_session("step", session, [turn, step.into(), attempt.into()], "")
    }

    /// The span of one attempt at a call.
    #[must_use]
    pub fn of_call(session: SessionId, turn: TurnNumber, call: &CallId, attempt: u32) -> Self {
        Self::in_session("call", session, [turn, attempt.into()], &call.0)
    }

    /// The span of an operation of a session. Short enough for one block of the hash, because every model request has
    /// one. The count of numbers is fixed for each kind, so no two operations hash the same bytes.
    fn in_session<const N: usize>(
        kind: &str,
        session: SessionId,
        numbers: [u64; N],
        name: &str,
    ) -> Self {
        let mut hash = Sha256::new();
        hash.update(kind);
        hash.update([0]);
        hash.update(session.0.as_bytes());
        numbers.iter().for_each(|number| hash.update(number.to_be_bytes()));
        hash.update(name);
        Self::from_digest(hash)
    }

    /// The span of any other operation, derived from a hash over its identifying parts.
    #[must_use]
    pub fn of(parts: &[&str]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self::from_digest(hash)
    }

    fn from_digest(hash: Sha256) -> Self {
        let digest: [u8; 32] = hash.finalize().into();
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&digest[..8]);
        Self::from_random(u64::from_be_bytes(bytes))
    }

    /// The id as a number; 0 for none.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Whether the id is not zero.
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.0 != 0
    }

    /// This span, or `other` if this one is absent.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        if self.is_some() { self } else { other }
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Trace {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}

impl Serialize for Trace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Trace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_brought_by_the_caller_is_carried() {
        let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let trace = Trace::from_traceparent(header).unwrap();
        assert_eq!(trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        let span = SpanId::from_random(0x00f0_67aa_0ba9_02b7);
        assert_eq!(trace.to_traceparent(span), header);
        assert_eq!(parent_of(header), Some((trace, span)));
    }

    #[test]
    fn the_id_of_a_span_follows_from_what_is_recorded() {
        let session = SessionId(uuid::Uuid::from_u128(7));
        let call = CallId::from("c1");
        assert_eq!(SpanId::of_turn(session, 3), SpanId::of_turn(session, 3));
        let all = [
            SpanId::of_request(session, &"c1".into()),
            SpanId::of_turn(session, 1),
            SpanId::of_turn(session, 2),
            SpanId::of_step(session, 1, 1, 1),
            SpanId::of_step(session, 1, 1, 2),
            SpanId::of_call(session, 1, &call, 1),
            SpanId::of_call(session, 1, &call, 2),
            SpanId::of_call(session, 11, &call, 1),
        ];
        let different: std::collections::BTreeSet<SpanId> = all.into();
        assert_eq!(different.len(), all.len());
    }

    #[test]
    fn a_malformed_header_is_no_trace() {
        for header in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-zzz92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(Trace::from_traceparent(header), None, "{header}");
        }
        let future = "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more";
        assert!(Trace::from_traceparent(future).is_some(), "later versions may add fields");
    }
}
