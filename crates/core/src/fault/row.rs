//! What the catalog says about a kind: one row, every column filled.
//!
//! The rows themselves are generated from `catalog/faults.toml` into `kind.rs`; this file is the
//! vocabulary they are written in.

use serde::{Deserialize, Serialize};

/// Who has the next move.
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
    /// The runtime tries again. Nobody else acts unless attempts run out.
    Runtime,
    /// The model can change the call and carry on.
    Model,
    /// A person has to decide, correct or sign in.
    User,
    /// Someone has to look at the machine, or at our code.
    Operator,
}

/// The class the model is told.
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
    /// Something the call depends on failed.
    Runtime,
    /// The tool ran and its answer is no.
    Logical,
    /// It was stopped: deadline, cancel, denial, crash.
    Aborted,
    /// Nobody foresaw it.
    Exception,
}

/// The class users and operators are told.
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
    /// Input does not fit; whoever sent it corrects it.
    Validation,
    /// It passes by itself: timeout, rate limit, outage.
    Transient,
    /// Memory, disk, quota.
    Resource,
    /// It stays until somebody changes something.
    Permanent,
    /// A line was lost.
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
    /// The very same call may work.
    RetrySame,
    /// A changed call may work.
    RetryChanged,
    /// Do not call this again; go on another way or say so.
    Stop,
}

/// How loud it is.
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
    /// Part of normal work.
    Info,
    /// Worth a look if it repeats.
    Warn,
    /// Something did not work.
    Error,
    /// Nothing goes on until somebody acts.
    Critical,
}

/// How it is recovered from, as told in `recovery_strategy`.
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
    /// Try again.
    Retry,
    /// Take another way.
    Fallback,
    /// Hand it to whoever is responsible.
    Escalate,
    /// End the run.
    Terminate,
    /// Ask the user.
    EscalateToUser,
    /// Try again, later each time, as a rate limit asks.
    ExponentialBackoff,
    /// Connect again and resume from the last event.
    ReconnectWithState,
    /// Try again, later each time.
    RetryWithExponentialBackoff,
    /// The old session is gone; make a new one.
    CreateNewSession,
}

/// The `error.*` event that announces it.
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
    /// Input was refused.
    #[strum(serialize = "error.validation")]
    Validation,
    /// A deadline passed.
    #[strum(serialize = "error.timeout")]
    Timeout,
    /// A limit of a service was hit.
    #[strum(serialize = "error.rate_limited")]
    RateLimited,
    /// A line was lost.
    #[strum(serialize = "error.connection_lost")]
    ConnectionLost,
    /// Work failed.
    #[strum(serialize = "error.execution")]
    Execution,
    /// It cannot be recovered from.
    #[strum(serialize = "error.recovery_failed")]
    RecoveryFailed,
}

/// How an editor learns of it.
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

/// One row of the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogRow {
    /// Snake case, the same as the kind's name in records: `invalid_arguments`.
    pub name: &'static str,
    /// The id of its message in the texts: `invalid-arguments`.
    pub message: &'static str,
    /// Permanent: `ERR_VAL_002`.
    pub code: &'static str,
    /// The class the model is told.
    pub error_type: ErrorType,
    /// The name in `error_type` of an `error.*` event: `ConstraintViolation`.
    pub type_name: &'static str,
    /// The class users are told.
    pub category: Category,
    /// Who has the next move.
    pub remedy: Remedy,
    /// What the model should do with the call.
    pub next: Next,
    /// Told to the model: would repeating the same call make sense?
    pub retryable: bool,
    /// Told to users: can anybody fix it?
    pub recoverable: bool,
    /// Does the runtime repeat it by itself?
    pub auto_retry: bool,
    /// How loud.
    pub severity: Severity,
    /// How it is recovered from.
    pub strategy: Strategy,
    /// The event that announces it.
    pub event: Announcement,
    /// A2C-SMCP code.
    pub smcp: u16,
    /// Is this the kind that explains that number? One per number is.
    pub smcp_home: bool,
    /// HTTP status.
    pub http: u16,
    /// JSON-RPC code.
    pub json_rpc: i32,
    /// What an editor sees.
    pub editor: EditorOutcome,
    /// Facts that go into `metadata.context` of an `error.*` event, when present.
    pub context: &'static [super::Fact],
    /// Facts that every fault of this kind carries; its texts use them bare.
    pub always: &'static [super::Fact],
    /// Facts its texts may use, those of `always` included.
    pub facts: &'static [super::Fact],
    /// How many general recommendations the catalog has for it.
    pub recommendations: usize,
}
