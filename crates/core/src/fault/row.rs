//! The columns of a catalog row.
//!
//! The rows are generated from `catalog/faults.toml` into `kind.rs`; this file defines the types of their columns.

use serde::{Deserialize, Serialize};

/// The party that has the next move.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
    strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Remedy {
    /// The runtime retries. No other party acts unless the attempts run out.
    Runtime,
    /// The model can change the call and continue.
    Model,
    /// A person must decide, correct something or sign in.
    User,
    /// An operator must inspect the machine or report a defect.
    Operator,
}

/// The class that the model reads.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
    strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ErrorType {
    /// The arguments do not fit.
    Validation,
    /// A dependency of the call failed.
    Runtime,
    /// The tool ran and reported a negative result.
    Logical,
    /// The call was stopped: deadline, cancel, denial, crash.
    Aborted,
    /// An unforeseen failure.
    Exception,
}

/// The class that users and operators read.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
    strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Category {
    /// The input does not fit; its sender corrects it.
    Validation,
    /// The condition passes by itself: timeout, rate limit, outage.
    Transient,
    /// A resource is exhausted: memory, disk, quota.
    Resource,
    /// The condition stays until a person changes something.
    Permanent,
    /// A connection was lost.
    Connection,
}

/// What the model should do with the call it made.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
    strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Next {
    /// The same call may succeed.
    RetrySame,
    /// A changed call may succeed.
    RetryChanged,
    /// The model must not repeat the call; it takes another way or reports the problem.
    Stop,
}

/// How urgent the fault is for an operator.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
    strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Severity {
    /// Part of normal operation.
    Info,
    /// Worth attention if it repeats.
    Warn,
    /// An operation failed.
    Error,
    /// Work stops until an operator acts.
    Critical,
}

/// The value of `recovery_strategy`.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
    strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Strategy {
    /// Repeat the operation.
    Retry,
    /// Use an alternative.
    Fallback,
    /// Pass the fault to the responsible party.
    Escalate,
    /// End the turn.
    Terminate,
    /// Ask the user.
    EscalateToUser,
    /// Repeat with increasing delays, as a rate limit demands.
    ExponentialBackoff,
    /// Reconnect and resume from the last event.
    ReconnectWithState,
    /// Repeat with increasing delays.
    RetryWithExponentialBackoff,
    /// Create a new session; the old one is gone.
    CreateNewSession,
}

/// The `error.*` event that announces the fault.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
    strum::Display,
)]
pub enum Announcement {
    /// The input was refused.
    #[strum(serialize = "error.validation")]
    Validation,
    /// A deadline passed.
    #[strum(serialize = "error.timeout")]
    Timeout,
    /// A limit of a service was reached.
    #[strum(serialize = "error.rate_limited")]
    RateLimited,
    /// A connection was lost.
    #[strum(serialize = "error.connection_lost")]
    ConnectionLost,
    /// An operation failed.
    #[strum(serialize = "error.execution")]
    Execution,
    /// Recovery is impossible or failed.
    #[strum(serialize = "error.recovery_failed")]
    RecoveryFailed,
}

/// How an editor shows the fault.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
    strum::Display,
)]
#[strum(serialize_all = "snake_case")]
pub enum EditorOutcome {
    /// The tool call is shown as failed; the turn goes on.
    ToolCallFailed,
    /// The turn goes on; nothing ends.
    TurnGoesOn,
    /// The turn ends as cancelled.
    Cancelled,
    /// The turn ends as refused.
    Refusal,
    /// The turn ends at the token limit.
    MaxTokens,
    /// The turn ends at the request limit.
    MaxTurnRequests,
    /// The turn ends with a JSON-RPC error.
    Error,
}

/// One row of the catalog. Every kind has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogRow {
    /// Snake case, as in records: `invalid_arguments`.
    pub name: &'static str,
    /// The Fluent message id: `invalid-arguments`.
    pub message: &'static str,
    /// The permanent code: `ERR_VAL_002`.
    pub code: &'static str,
    /// The class that the model reads.
    pub error_type: ErrorType,
    /// The value of `error_type` in an `error.*` event: `ConstraintViolation`.
    pub type_name: &'static str,
    /// The class that users and operators read.
    pub category: Category,
    /// The party that has the next move.
    pub remedy: Remedy,
    /// What the model should do with the call.
    pub next: Next,
    /// For the model: whether repeating the same call makes sense.
    pub retryable: bool,
    /// For users: whether the fault can be fixed at all.
    pub recoverable: bool,
    /// Whether the runtime repeats the operation by itself.
    pub auto_retry: bool,
    /// How urgent the fault is for an operator.
    pub severity: Severity,
    /// The value of `recovery_strategy`.
    pub strategy: Strategy,
    /// The `error.*` event that announces the fault.
    pub event: Announcement,
    /// How an editor shows the fault.
    pub editor: EditorOutcome,
    /// Facts for `metadata.context` of an `error.*` event, when present.
    pub context: &'static [super::Fact],
    /// Facts that every fault of this kind carries, so its texts use them without a fallback.
    pub always: &'static [super::Fact],
    /// Facts that its texts may use, those of `always` included.
    pub facts: &'static [super::Fact],
    /// The number of recommendations for people in the catalog.
    pub recommendations: usize,
    /// The number of lines of advice for the model; 0 for kinds that never reach a model.
    pub model_advice: usize,
    /// Whether people and the model share a line of advice on purpose.
    pub same_advice: bool,
}
