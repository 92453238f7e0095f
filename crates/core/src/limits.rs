//! Every bound in one place, with its default. Whoever hits one is told its name and value.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::retry::RetryPolicy;

/// The bounds of a running system. All configurable, all enforced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// A frame or body above this is answered with a fault.
    pub frame_bytes: usize,
    /// A frame or body above this ends the connection with a reason.
    pub frame_bytes_hard: usize,
    /// Levels of nesting in any JSON from outside.
    pub json_depth: usize,
    /// What a model sees of one tool output, head and tail.
    pub output_bytes: usize,
    /// What is kept of one tool output.
    pub output_bytes_kept: usize,
    /// A tool's deadline unless it has its own.
    #[serde(with = "millis")]
    pub tool_deadline: Duration,
    /// From TERM to KILL.
    #[serde(with = "millis")]
    pub kill_grace: Duration,
    /// To connect to a model.
    #[serde(with = "millis")]
    pub model_connect: Duration,
    /// To the first token.
    #[serde(with = "millis")]
    pub model_first_token: Duration,
    /// Between tokens.
    #[serde(with = "millis")]
    pub model_between_tokens: Duration,
    /// Bytes of one model answer.
    pub model_answer_bytes: usize,
    /// Tries, waits and the ceiling for hints.
    pub retry: RetryPolicy,
    /// Model requests in one turn.
    pub steps: u32,
    /// Failed calls in a row in one turn.
    pub failures_in_a_row: u32,
    /// Identical invalid calls in one turn: this many are answered, the last ends the turn.
    pub identical_invalid_calls: u32,
    /// Calls of one step that run at once.
    pub parallel_calls: usize,
    /// Calls in one step; the rest are refused.
    pub calls_per_step: usize,
    /// A hook, guard or listener.
    #[serde(with = "millis")]
    pub hook: Duration,
    /// A permission question, then it is denied.
    #[serde(with = "millis")]
    pub question: Duration,
    /// Messages waiting in one session.
    pub queued_messages: usize,
    /// Joining of deltas before they are recorded.
    #[serde(with = "millis")]
    pub delta_window: Duration,
    /// Tokens of context before history is compacted.
    pub context_tokens: u64,
    /// Tokens in and out that one turn may use; 0 is no bound.
    pub turn_tokens: u64,
    /// Sub-agents below sub-agents.
    pub depth: u32,
    /// Sessions running at once.
    pub sessions: usize,
    /// A lease, unless renewed. Processes that share a journal want the same one, a minute at most: whoever sees a much
    /// longer one takes it for one from before the clock was set back.
    #[serde(with = "millis")]
    pub lease: Duration,
    /// Time between renewals.
    #[serde(with = "millis")]
    pub lease_renewal: Duration,
    /// Records between snapshots.
    pub snapshot_records: u64,
    /// Records in one page of a replay.
    pub page_records: usize,
    /// Abandoned tool calls that may still be alive before further calls are refused.
    pub abandoned_calls: usize,
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
            steps: 64,
            failures_in_a_row: 8,
            identical_invalid_calls: 3,
            parallel_calls: 8,
            calls_per_step: 64,
            hook: Duration::from_secs(5),
            question: Duration::from_secs(24 * 3600),
            queued_messages: 256,
            delta_window: Duration::from_millis(25),
            context_tokens: 150_000,
            turn_tokens: 0,
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

/// Durations in configuration are whole milliseconds.
pub mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes milliseconds.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(value.as_millis()).unwrap_or(u64::MAX))
    }

    /// Reads milliseconds.
    ///
    /// # Errors
    /// The deserializer's.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}
