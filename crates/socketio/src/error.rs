//! The errors of a connection, a call or a handshake, each with the facts a program can act on.

use std::time::Duration;

use budao_core::fault::{Fact, Fault, Kind, Operation};
use serde_json::Value;

/// The error of a session, a call or a connection attempt.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The configured URL is invalid; the text says why.
    #[error("the address cannot be used: {0}")]
    Address(String),
    /// The server refused the handshake with an HTTP status other than success.
    #[error("the handshake was refused with HTTP status {}", .0.status)]
    Http(Box<HttpRefusal>),
    /// The server refused the connection to a namespace.
    #[error("namespace {namespace} was refused: {message}")]
    Refused {
        /// The refused namespace.
        namespace: String,
        /// The server's `message`, verbatim.
        message: String,
        /// The server's `data`, if it sent any.
        data: Option<Value>,
    },
    /// The server disconnected the namespace.
    #[error("the server ended namespace {namespace}")]
    Kicked {
        /// The disconnected namespace.
        namespace: String,
    },
    /// No connection could be made; the text says why.
    #[error("no connection: {0}")]
    Unreachable(String),
    /// The connection was lost. Packets that were under way may or may not have arrived.
    #[error("the connection was lost: {0}")]
    Lost(Loss),
    /// No answer arrived within the call's timeout.
    #[error("no answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// A limit of [`Limits`](crate::Limits) was reached. The packet was not queued.
    #[error("{name} is at its limit of {limit}")]
    Full {
        /// The name of the field in [`Limits`](crate::Limits).
        name: &'static str,
        /// The configured value of that field.
        limit: usize,
    },
    /// The packet is larger than the server's advertised `maxPayload`. It was not sent.
    #[error("the packet has {actual} bytes, at most {limit} are taken")]
    TooLarge {
        /// The largest size the server accepts, in bytes.
        limit: usize,
        /// The size of the packet, in bytes.
        actual: usize,
    },
    /// The server sent data that is not valid Socket.IO or Engine.IO.
    #[error("the server does not speak the protocol: {0}")]
    Protocol(String),
    /// The program closed the session.
    #[error("the session is closed")]
    Closed,
}

/// The server's HTTP response to a handshake it refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRefusal {
    /// The HTTP status code.
    pub status: u16,
    /// The headers, with names in lower case. Values that are not text are left out.
    pub headers: Vec<(String, String)>,
    /// The body, cut at 64 KiB.
    pub body: String,
}

impl HttpRefusal {
    /// The first value of a header. `name` must be in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// The way a connection was lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// The server closed the connection.
    #[error("closed by the server{}", .code.map_or(String::new(), |code| format!(" with code {code}")))]
    Closed {
        /// The WebSocket close code; `None` if the server gave none or on polling.
        code: Option<u16>,
        /// The close frame's reason; empty if there is none.
        reason: String,
    },
    /// The server sent nothing for its ping interval plus its ping timeout.
    #[error("nothing was heard for {} ms", .0.as_millis())]
    Silent(Duration),
    /// The transport failed; the text is the transport's error.
    #[error("{0}")]
    Broken(String),
    /// The server accepted no data for this long. Its pings stay unanswered, because pongs wait in the same queue.
    #[error("nothing was taken for {} ms", .0.as_millis())]
    SendTimedOut(Duration),
    /// The program took no event from a full [`Events`](crate::Events) queue for this long.
    #[error("events were not taken for {} ms", .0.as_millis())]
    EventsNotConsumed(Duration),
}

impl Error {
    /// Whether a retry would get the same answer. The session then ends instead of reconnecting.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Http(refusal) => !passes(refusal.status),
            // A refusal without a known status counts as permanent.
            Self::Refused { message, data, .. } => {
                !status_of(message, data.as_ref()).is_some_and(passes)
            }
            Self::Address(_) | Self::Kicked { .. } | Self::Closed => true,
            _ => false,
        }
    }

    /// Converts the error to a fault of the catalog. The error's own text becomes the cause, for the operator.
    #[must_use]
    pub fn to_fault(&self) -> Fault {
        let new = |kind| Fault::new(kind, Operation::Connect);
        match self {
            Self::Address(_) => new(Kind::ConfigurationWrong).with(Fact::ConfigKey, "url"),
            Self::Http(refusal) if matches!(refusal.status, 401 | 403) => {
                new(Kind::NotAuthenticated)
            }
            Self::Http(refusal) => {
                new(Kind::PeerFailed).with(Fact::PeerCode, i64::from(refusal.status))
            }
            Self::Refused { message, data, .. } => match status_of(message, data.as_ref()) {
                Some(status) if passes(status) => {
                    new(Kind::PeerFailed).with(Fact::PeerCode, i64::from(status))
                }
                _ => new(Kind::NotAuthenticated),
            },
            Self::Unreachable(_) => new(Kind::ConnectionRefused),
            Self::Lost(Loss::Closed { code, reason }) => {
                let fault = new(Kind::ConnectionLost).with(Fact::CloseReason, reason.clone());
                match code {
                    Some(code) => fault.with(Fact::CloseCode, i64::from(*code)),
                    None => fault,
                }
            }
            Self::Lost(_) | Self::Kicked { .. } | Self::Closed => new(Kind::ConnectionLost),
            Self::TimedOut(limit) => new(Kind::RequestTimedOut).with(Fact::TimeoutMs, *limit),
            Self::Full { name, limit } => new(Kind::LimitReached)
                .with(Fact::LimitName, *name)
                .with(Fact::Limit, i64::try_from(*limit).unwrap_or(i64::MAX)),
            Self::TooLarge { limit, actual } => new(Kind::FrameTooLarge)
                .with(Fact::Limit, i64::try_from(*limit).unwrap_or(i64::MAX))
                .with(Fact::Actual, i64::try_from(*actual).unwrap_or(i64::MAX)),
            Self::Protocol(_) => new(Kind::PeerFailed),
        }
        .caused_by(self)
    }
}

/// Whether a refusal with this status is temporary, as from a server that is busy or restarting.
fn passes(status: u16) -> bool {
    matches!(status, 408 | 425 | 429) || !(400..500).contains(&status)
}

/// The status of a refused namespace, where the server names one: `data.code`, or the number its message begins with.
fn status_of(message: &str, data: Option<&Value>) -> Option<u16> {
    let named = data.and_then(|data| data.get("code")).and_then(Value::as_u64);
    let named = named.and_then(|code| u16::try_from(code).ok());
    let begun = || message.split(' ').next().and_then(|word| word.parse().ok());
    named.or_else(begun).filter(|status| (400..600).contains(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(status: u16) -> Error {
        Error::Http(Box::new(HttpRefusal { status, headers: Vec::new(), body: String::new() }))
    }

    #[test]
    fn a_refusal_is_final_and_a_busy_server_is_not() {
        let finals: Vec<u16> = [400, 401, 404, 408, 429, 500, 503]
            .into_iter()
            .filter(|s| http(*s).is_final())
            .collect();
        assert_eq!(finals, [400, 401, 404]);
        assert!(!Error::Unreachable("no route".into()).is_final());
        assert!(!Error::Lost(Loss::Silent(Duration::from_secs(45))).is_final());
        assert!(Error::Kicked { namespace: "/".into() }.is_final());
    }

    #[test]
    fn a_namespace_refused_by_a_server_that_stops_is_tried_again() {
        let refused = |message: &str, data| {
            let error = Error::Refused { namespace: "/smcp".into(), message: message.into(), data };
            (error.is_final(), error.to_fault().kind())
        };
        let code = |code: u64| Some(serde_json::json!({ "code": code }));
        let no = (true, Kind::NotAuthenticated);
        let later = (false, Kind::PeerFailed);
        assert_eq!(refused("500 The server is stopping.", None), later);
        assert_eq!(refused("no", code(503)), later);
        assert_eq!(refused("401 The token is not valid.", None), no);
        assert_eq!(refused("no", code(403)), no);
        for without_status in ["no", "", "4900", "12 monkeys"] {
            assert_eq!(refused(without_status, None), no, "{without_status}");
        }
    }

    #[test]
    fn a_limit_names_itself_in_its_fault() {
        let fault = Error::Full { name: "queue_max", limit: 8 }.to_fault();
        assert_eq!(fault.kind(), Kind::LimitReached);
        assert_eq!(fault.detail().text(Fact::LimitName), Some("queue_max"));
        assert_eq!(fault.detail().number(Fact::Limit), Some(8));
    }
}
