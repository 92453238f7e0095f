//! Trace ids: W3C trace context, as far as we need it.
//!
//! A trace is made when a turn starts and no caller brought one; it goes with every fault, event, log
//! line and hop. Core cannot draw random numbers, so making one takes the bits from the caller.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// 32 hex digits. Zero means "none yet" and is never sent.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Trace(u128);

impl Trace {
    /// No trace yet.
    pub const NONE: Self = Self(0);

    /// A trace from random bits; the invalid all-zero id becomes one.
    #[must_use]
    pub const fn from_random(bits: u128) -> Self {
        Self(if bits == 0 { 1 } else { bits })
    }

    /// The id as a number.
    #[must_use]
    pub const fn as_u128(self) -> u128 {
        self.0
    }

    /// Is there one?
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.0 != 0
    }

    /// This trace, or `other` if there is none.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        if self.is_some() { self } else { other }
    }

    /// Reads a `traceparent` header. A malformed one is no trace: the standard says to start anew.
    #[must_use]
    pub fn from_traceparent(header: &str) -> Option<Self> {
        let mut parts = header.trim().split('-');
        let (version, trace, parent, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let hex = |text: &str, digits: usize| {
            text.len() == digits
                && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        };
        let well_formed = hex(version, 2) && version != "ff" && hex(parent, 16) && hex(flags, 2);
        let nothing_more = version != "00" || parts.next().is_none();
        let parent_is_valid = parent.bytes().any(|byte| byte != b'0');
        (well_formed && nothing_more && parent_is_valid && hex(trace, 32))
            .then(|| trace.parse().ok())
            .flatten()
            .filter(|trace: &Self| trace.is_some())
    }

    /// Writes a `traceparent` header for a call made as `span`.
    #[must_use]
    pub fn to_traceparent(self, span: u64) -> String {
        format!("00-{self}-{:016x}-01", span.max(1))
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
        assert_eq!(trace.to_traceparent(0x00f0_67aa_0ba9_02b7), header);
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
