//! What the end of a request says about its service.

use super::HoldReason;
use crate::fault::{Fact, Fault, Kind};

/// The meaning of a failed request for the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServiceSignal {
    /// The service refuses requests for a time.
    RateLimited,
    /// The service has too much to do.
    Overloaded,
    /// The service did not answer in time.
    TimedOut,
    /// The service is unreachable or fails by itself.
    Down,
    /// The service works; this request or its stream had trouble of its own.
    Alive,
    /// The fault says nothing about the service.
    Nothing,
}

impl ServiceSignal {
    /// `has_started`: the service had sent a part of its answer.
    pub(super) fn of(fault: &Fault, has_started: bool) -> Self {
        match fault.kind() {
            Kind::ModelRateLimited | Kind::ServiceRateLimited | Kind::RetryAfterTooLong => {
                Self::RateLimited
            }
            Kind::ModelOverloaded => Self::Overloaded,
            Kind::RequestTimedOut
            | Kind::ModelConnectTimeout
            | Kind::ModelFirstTokenTimeout
            | Kind::ModelStalled => Self::TimedOut,
            Kind::ModelServerError
            | Kind::ConnectionRefused
            | Kind::NetworkUnavailable
            | Kind::NameNotResolved => Self::Down,
            // A connection that is cut before the answer is the service's trouble, a cut answer is the request's.
            Kind::ModelStreamCut if has_started => Self::Nothing,
            Kind::ModelStreamCut if fault.detail().get(Fact::Position).is_some() => Self::Alive,
            Kind::ModelStreamCut => Self::Down,
            Kind::ModelMalformedStream
            | Kind::EmptyAnswer
            | Kind::ModelAuthentication
            | Kind::ModelPermission
            | Kind::ModelQuota
            | Kind::ModelBadRequest
            | Kind::ModelRefused
            | Kind::UnknownModel
            | Kind::ContextTooLong => Self::Alive,
            _ => Self::Nothing,
        }
    }

    /// Whether the failure is trouble of the service and not of one request.
    pub(super) fn is_of_service(self) -> bool {
        matches!(self, Self::RateLimited | Self::Overloaded | Self::TimedOut | Self::Down)
    }

    /// Why requests are held after such a failure.
    pub(super) fn hold_reason(self) -> HoldReason {
        match self {
            Self::RateLimited => HoldReason::RateLimit,
            _ => HoldReason::Outage,
        }
    }

    /// Whether the failure asks for fewer requests at a time.
    pub(super) fn is_overload(self) -> bool {
        matches!(self, Self::Overloaded | Self::TimedOut)
    }
}
