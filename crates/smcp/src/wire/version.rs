//! Protocol versions and their compatibility.

use crate::codes::smcp_code;
use std::{fmt, str::FromStr};

use budao_core::{
    Lang,
    fault::{Fact, Fault, Kind, Operation},
};
use serde_json::{Value, json};

/// A protocol version, `major.minor.patch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Must be equal on both sides.
    pub major: u32,
    /// Must be equal before 1.0; from then on the client's may be lower.
    pub minor: u32,
    /// Ignored when versions are compared for compatibility.
    pub patch: u32,
}

/// The version that this crate speaks.
pub const PROTOCOL: Version = Version { major: 0, minor: 4, patch: 0 };

/// The query parameter of a handshake that carries the client's version.
pub const QUERY: &str = "a2c_version";

/// What a version looks like, and what stands for none in a fault.
const SHAPE: &str = "MAJOR.MINOR.PATCH";
const NOTHING: &str = "nothing";

/// The response header that carries the trace of a refused request.
pub const TRACE_HEADER: &str = "x-a2c-trace-id";

/// The response header that carries the code of a refused handshake.
pub const HEADER: &str = "x-a2c-error-code";

impl Version {
    /// Whether a server of this version accepts a client of version `client`. Before 1.0, major and minor must be
    /// equal; from then on the client may be older.
    #[must_use]
    pub fn admits(self, client: Self) -> bool {
        self.major == client.major
            && if self.major == 0 { self.minor == client.minor } else { client.minor <= self.minor }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl FromStr for Version {
    type Err = ();

    /// Parses three numbers separated by dots; anything else is an error.
    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |part: &str| {
            let is_plain = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            is_plain.then(|| part.parse().ok()).flatten().ok_or(())
        };
        let mut parts = text.split('.');
        let mut next = || parts.next().ok_or(()).and_then(number);
        let (major, minor, patch) = (next()?, next()?, next()?);
        if parts.next().is_some() { Err(()) } else { Ok(Self { major, minor, patch }) }
    }
}

/// Checks the version that a client sent.
///
/// # Errors
/// Code 400 if the version is missing or cannot be parsed, a version mismatch otherwise.
pub fn judge(brought: Option<&str>) -> Result<Version, Fault> {
    let bad = |received: &str| {
        Fault::new(Kind::BadRequest, Operation::Connect)
            .with(Fact::Field, QUERY)
            .with(Fact::Expected, SHAPE)
            .with(Fact::Received, received.chars().take(40).collect::<String>())
    };
    let brought = brought.ok_or_else(|| bad(NOTHING))?;
    let client: Version = brought.parse().map_err(|()| bad(brought))?;
    if PROTOCOL.admits(client) {
        return Ok(client);
    }
    Err(Fault::new(Kind::VersionMismatch, Operation::Connect)
        .with(Fact::Version, client.to_string())
        .with(Fact::Supported, vec![PROTOCOL.to_string()]))
}

/// The body of the response to a refused handshake.
#[must_use]
pub fn refusal(fault: &Fault, lang: Lang) -> Value {
    if fault.kind() != Kind::VersionMismatch {
        // Exactly the fields and words of other hubs, because clients compare them.
        let message = match fault.detail().text(Fact::Received) {
            Some(received) if received != NOTHING => {
                format!("Invalid {QUERY}: {received}; expected {SHAPE}")
            }
            _ => format!("Missing {QUERY} query parameter"),
        };
        return json!({ "code": 400, "message": message });
    }
    let rendered = budao_core::fault::render::render_for_peer(fault, lang);
    let Version { major, minor, .. } = PROTOCOL;
    json!({
        "code": smcp_code(fault.kind()),
        "message": rendered.message,
        "server_version": PROTOCOL.to_string(),
        "client_version": fault.detail().text(Fact::Version).unwrap_or_default(),
        "min_supported": format!("{major}.{minor}.0"),
        "max_supported": format!("{major}.{minor}.999"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_three_numbers_are_a_version() {
        assert_eq!("0.4.2".parse(), Ok(Version { major: 0, minor: 4, patch: 2 }));
        for bad in
            ["", "0.4", "0.4.0.1", "0.4.x", "v0.4.0", "0.4.-1", "0.4.0-dev", " 0.4.0", "0.+4.0"]
        {
            assert_eq!(bad.parse::<Version>(), Err(()), "{bad}");
        }
    }

    #[test]
    fn before_one_the_minor_must_be_the_same_and_later_it_may_be_older() {
        let version = |text: &str| text.parse::<Version>().unwrap();
        let admits = |server: &str, client: &str| version(server).admits(version(client));
        assert!(admits("0.4.0", "0.4.9"));
        assert!(!admits("0.4.0", "0.3.0") && !admits("0.4.0", "0.5.0"));
        assert!(admits("1.4.0", "1.2.0") && !admits("1.4.0", "1.5.0") && !admits("1.4.0", "2.0.0"));
    }

    #[test]
    fn a_refused_handshake_names_the_supported_versions() {
        let fault = judge(Some("0.3.0")).unwrap_err();
        insta::assert_json_snapshot!(refusal(&fault, Lang::En));
        assert_eq!(refusal(&judge(None).unwrap_err(), Lang::En)["code"], 400);
        assert_eq!(refusal(&judge(Some("four")).unwrap_err(), Lang::En)["code"], 400);
    }
}
