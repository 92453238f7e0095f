//! Every configurable bound, with its default. A fault for an exceeded bound carries its name and value.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    fallback::FallbackConfig, gate::GateConfig, retry::RetryPolicy, spending::SpendingConfig,
};

/// The bounds of a running system. Durations are configured in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The largest frame or body; a larger one is answered with a fault.
    pub frame_bytes: usize,
    /// The frame or body size at which the connection is closed with a reason.
    pub frame_bytes_hard: usize,
    /// The most levels of nesting in JSON from outside.
    pub json_depth: usize,
    /// The most bytes of one tool output that the model sees, head and tail.
    pub output_bytes: usize,
    /// The most bytes of one tool output that are stored.
    pub output_bytes_kept: usize,
    /// The deadline of a tool that has none of its own.
    #[serde(with = "millis")]
    pub tool_deadline: Duration,
    /// The time between TERM and KILL.
    #[serde(with = "millis")]
    pub kill_grace: Duration,
    /// The time to connect to a model service.
    #[serde(with = "millis")]
    pub model_connect: Duration,
    /// The time from a model request to the first token.
    #[serde(with = "millis")]
    pub model_first_token: Duration,
    /// The longest pause between two tokens.
    #[serde(with = "millis")]
    pub model_between_tokens: Duration,
    /// The largest model answer, in bytes.
    pub model_answer_bytes: usize,
    /// Attempts, delays and the ceiling for hints.
    pub retry: RetryPolicy,
    /// Admission to model services, and how long a turn waits for it. Configured in a table of its own.
    #[serde(skip)]
    pub gate: GateConfig,
    /// When a session asks the next model of its list. Configured in a table of its own.
    #[serde(skip)]
    pub fallback: FallbackConfig,
    /// Prices of models and caps on what they cost. Configured in a table of its own.
    #[serde(skip)]
    pub spending: SpendingConfig,
    /// The most model requests in one turn.
    pub steps: u32,
    /// The most failed steps in a row in one turn.
    pub failures_in_a_row: u32,
    /// The most identical invalid calls in one turn; the last of them ends the turn.
    pub identical_invalid_calls: u32,
    /// The most calls of one step that run at the same time.
    pub parallel_calls: usize,
    /// The most calls in one step; further calls are refused.
    pub calls_per_step: usize,
    /// The deadline of a hook, guard or listener.
    #[serde(with = "millis")]
    pub hook: Duration,
    /// The time to answer a permission question; after it the call is denied.
    #[serde(with = "millis")]
    pub question: Duration,
    /// The most messages that wait in one session.
    pub queued_messages: usize,
    /// The most timers that may be set in one session.
    pub session_timers: usize,
    /// The most timers that may be set in all sessions of a tenant.
    pub tenant_timers: usize,
    /// The shortest time between two firings of a schedule, for the firings that are checked when it is set.
    #[serde(with = "millis")]
    pub timer_period: Duration,
    /// How far ahead a timer may be set, and how far ahead the next time of a schedule is looked for.
    #[serde(with = "millis")]
    pub timer_horizon: Duration,
    /// How long deltas are joined before they are recorded.
    #[serde(with = "millis")]
    pub delta_window: Duration,
    /// The context size in tokens above which the history is compacted.
    pub context_tokens: u64,
    /// The deepest level of sub-agents below a person's session.
    pub depth: u32,
    /// The most sessions that run at the same time.
    pub sessions: usize,
    /// How long a lease lasts unless renewed. Processes that share a journal need the same value, at most a minute: a
    /// much longer lease is treated as one from before the clock was set back.
    #[serde(with = "millis")]
    pub lease: Duration,
    /// The time between two renewals of a lease.
    #[serde(with = "millis")]
    pub lease_renewal: Duration,
    /// The number of records between two snapshots.
    pub snapshot_records: u64,
    /// The number of records in one page of a replay.
    pub page_records: usize,
    /// The most abandoned tool calls that may still be alive; above it further calls are refused.
    pub abandoned_calls: usize,
}

impl Limits {
    /// How work of a turn is retried. The longest hint that it follows is that of the gates.
    #[must_use]
    pub fn retry_policy(&self) -> RetryPolicy {
        RetryPolicy { hint_ceiling: self.gate.hint_ceiling, ..self.retry }
    }
}

impl Default for Limits {
    fn default() -> Self {
        const KIB: usize = 1024;
        const MIB: usize = 1024 * KIB;
        Self {
            frame_bytes: MIB,
            frame_bytes_hard: 16 * MIB,
            json_depth: 64,
            output_bytes: 64 * KIB,
            output_bytes_kept: 16 * MIB,
            tool_deadline: Duration::from_secs(60),
            kill_grace: Duration::from_secs(2),
            model_connect: Duration::from_secs(10),
            model_first_token: Duration::from_secs(120),
            model_between_tokens: Duration::from_secs(60),
            model_answer_bytes: 4 * MIB,
            retry: RetryPolicy::default(),
            gate: GateConfig::default(),
            fallback: FallbackConfig::default(),
            spending: SpendingConfig::default(),
            steps: 64,
            failures_in_a_row: 8,
            identical_invalid_calls: 3,
            parallel_calls: 8,
            calls_per_step: 64,
            hook: Duration::from_secs(5),
            question: Duration::from_secs(24 * 3600),
            queued_messages: 256,
            session_timers: 32,
            tenant_timers: 1_000,
            timer_period: Duration::from_secs(60),
            timer_horizon: Duration::from_secs(366 * 24 * 3600),
            delta_window: Duration::from_millis(25),
            context_tokens: 150_000,
            depth: 3,
            sessions: 10_000,
            lease: Duration::from_secs(15),
            lease_renewal: Duration::from_secs(5),
            snapshot_records: 1_000,
            page_records: 10_000,
            abandoned_calls: 64,
        }
    }
}

/// Serde functions for durations as whole milliseconds.
pub mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes a duration as whole milliseconds, saturating.
    ///
    /// # Errors
    /// When the serializer fails.
    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(value.as_millis()).unwrap_or(u64::MAX))
    }

    /// Reads whole milliseconds.
    ///
    /// # Errors
    /// When the value is not an unsigned integer.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}
