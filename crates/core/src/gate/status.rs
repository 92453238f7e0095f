//! The state of a gate, for operators and for the sessions that wait.

use serde::{Deserialize, Serialize};

use crate::{fault::Fault, time::Timestamp};

/// Why a gate holds requests back.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::Display,
    strum::EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum HoldReason {
    /// The service refused a request and is left alone for a time.
    RateLimit,
    /// The service is down; one request at a time probes it.
    Outage,
    /// As many requests are under way as the service can take.
    Capacity,
}

/// A waiting request, as its session learns of it.
#[derive(Clone, Debug, PartialEq)]
pub struct HoldReport {
    /// Why the request waits.
    pub reason: HoldReason,
    /// When the next request is made, as far as the gate knows.
    pub until: Option<Timestamp>,
    /// When the service wants requests again by its own hint, however far away that is.
    pub hint_until: Option<Timestamp>,
    /// Requests that are served before this one.
    pub before: usize,
    /// The fault of the last request that the service failed; absent if none failed.
    pub fault: Option<Fault>,
}

/// The state of a gate, for operators.
#[derive(Clone, Debug, PartialEq)]
pub struct GateStatus {
    /// Why the gate is shut; absent while it is open. A gate that only limits its requests is open.
    pub held: Option<HoldReason>,
    /// When the gate shut.
    pub since: Option<Timestamp>,
    /// When the gate opens or probes, if it is shut and the time is known.
    pub until: Option<Timestamp>,
    /// Requests that wait.
    pub waiting: usize,
    /// Waiting requests of sessions without an observer.
    pub waiting_background: usize,
    /// Requests under way.
    pub in_flight: usize,
    /// The most requests that may be under way.
    pub limit: u32,
    /// The most requests in a second; absent while no limit is known.
    pub rate: Option<f64>,
    /// The last failure of the service, and when it was.
    pub last_error: Option<(Fault, Timestamp)>,
}
