//! The bounds on workers, tools and calls.

use std::time::Duration;

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    limits::millis,
    remote::OfferBounds,
};
use serde::{Deserialize, Serialize};

/// The bounds for the workers of one tenant. The fault of each names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerLimits {
    /// Processes that offer tools.
    pub workers: usize,
    /// Tools that all workers offer together.
    pub tools: usize,
    /// Tools that one process offers.
    pub worker_tools: usize,
    /// Calls that are open at the same time.
    pub open_calls: usize,
    /// The schema and the description of one tool, in bytes of JSON.
    pub tool_bytes: usize,
    /// All schemas and descriptions of a tenant, in bytes of JSON.
    pub tenant_bytes: usize,
    /// Calls that one process holds at the same time.
    pub capacity: usize,
    /// Progress output that is recorded of one call, in bytes.
    pub output_bytes: usize,
    /// How long claims survive without a connection of their process.
    #[serde(with = "millis")]
    pub grace: Duration,
    /// How long an offered call waits for its claim before another process is offered it too.
    #[serde(with = "millis")]
    pub claim_wait: Duration,
    /// How long a call waits for a claim, unless its tool says otherwise.
    #[serde(with = "millis")]
    pub wait: Duration,
    /// The longest time from the claim to the result, unless the tool says otherwise.
    #[serde(with = "millis")]
    pub deadline: Duration,
    /// The longest wait and the longest deadline that a tool may ask for.
    #[serde(with = "millis")]
    pub wait_max: Duration,
    /// A tool that no connected process offers is forgotten after this time.
    #[serde(with = "millis")]
    pub forgotten: Duration,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        Self {
            workers: 64,
            tools: 256,
            worker_tools: 128,
            open_calls: 4096,
            tool_bytes: 64 * 1024,
            tenant_bytes: 1024 * 1024,
            capacity: 1024,
            output_bytes: 64 * 1024,
            grace: Duration::from_secs(30),
            claim_wait: Duration::from_secs(5),
            wait: Duration::from_secs(30),
            deadline: Duration::from_secs(60),
            wait_max: Duration::from_secs(24 * 3600),
            forgotten: Duration::from_secs(24 * 3600),
        }
    }
}

impl WorkerLimits {
    /// The bounds on what all workers together offer to one session: those of a tenant.
    #[must_use]
    pub fn session_bounds(&self) -> OfferBounds {
        OfferBounds { tools: self.tools, bytes: self.tenant_bytes }
    }
}

/// The fault for a bound that is reached.
pub(crate) fn limit_reached(name: &'static str, limit: usize) -> Fault {
    Fault::new(Kind::LimitReached, Operation::RegisterTool)
        .with(Fact::Limit, limit)
        .with(Fact::LimitName, name)
}
