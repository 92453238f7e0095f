//! Tools that run in a worker, a program that connects to the server: what it offers, and how far a call of it got.
//!
//! A worker claims a call before it runs it. The claim is a record, so a call without one never began, and a call with
//! one may have been done. That is all that a restart needs to know.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::fault::Progress;

/// Hex digits of a tool's version.
const VERSION_DIGITS: usize = 32;

/// A tool as a worker describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OfferedTool {
    /// `[A-Za-z0-9_-]{1,64}`, unique among the tools of a session.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// JSON Schema of the arguments; an object schema.
    pub parameters: Value,
    /// Whether a call changes nothing.
    #[serde(default)]
    pub read_only: bool,
    /// Whether a call can be repeated without harm.
    #[serde(default)]
    pub idempotent: bool,
    /// Whether a person must confirm each call, whatever the mode.
    #[serde(default)]
    pub confirm: bool,
    /// Whether the worker can find out what became of an interrupted call.
    #[serde(default)]
    pub reconcile: bool,
    /// The longest time from the claim to the result, in milliseconds; the system's limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// The longest wait for a worker that claims a call, in milliseconds; the system's limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

impl OfferedTool {
    /// The size of the tool as JSON, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        serde_json::to_vec(self).map_or(usize::MAX, |text| text.len())
    }

    /// A digest over everything that the worker says of the tool. Another description or schema is another version.
    #[must_use]
    pub fn version(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        let digest = Sha256::digest(text);
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        hex[..VERSION_DIGITS].to_owned()
    }

    /// Whether a call may be offered again after a worker claimed it and went away.
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        self.idempotent || self.read_only
    }
}

/// The tools that a worker offers to one session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolOffer {
    /// The name that all processes of the worker share.
    pub worker: String,
    /// The user who offers, as `tenant/user`.
    pub by: String,
    /// The tools on offer.
    pub tools: Vec<OfferedTool>,
}

/// The worker and the version of the tool that a call was checked against.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRoute {
    /// The name that all processes of the worker share.
    pub worker: String,
    /// The version of the tool; a process that offers another one does not get the call.
    pub version: String,
}

/// The bounds on what all workers together offer to one session. The server takes them from its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferBounds {
    /// The most tools.
    pub tools: usize,
    /// Names, descriptions and schemas, in bytes of JSON.
    pub bytes: usize,
}

impl Default for OfferBounds {
    fn default() -> Self {
        Self { tools: 256, bytes: 1024 * 1024 }
    }
}

/// The process that claimed a call. Ids of processes are unique among those of one user only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerClaim {
    /// The id of the process.
    pub worker: String,
    /// The user whose process it is, as `tenant/user`.
    pub by: String,
}

/// How far a call got that a worker runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RemoteCall {
    /// The worker and the version of the tool.
    pub route: ToolRoute,
    /// The process that claimed the current attempt; absent if it never began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<WorkerClaim>,
    /// The result of the current attempt, as the worker reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<WorkerReport>,
}

/// What a worker says of a call that it claimed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerReport {
    /// The function returned this.
    Done {
        /// The result as JSON, not yet shortened.
        result: Value,
    },
    /// The function failed.
    Failed(WorkerError),
    /// The process that claimed the call is gone. The server reports this in its place.
    Lost,
}

/// The failure of a worker's function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerError {
    /// The sentence for the model; absent if the author wrote none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What the model should do, one line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<String>,
    /// Data for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// How far the call got; absent if the author did not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<WorkerProgress>,
    /// The foreign error, for the operator alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// How far a failed call got, in the words of the wire.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum WorkerProgress {
    /// The call did nothing.
    NotBegun,
    /// The call failed as the message says.
    Ended,
    /// The call may have been done.
    Unconfirmed,
    /// The call was done; only its answer is lost.
    Done,
}

impl From<WorkerProgress> for Progress {
    fn from(progress: WorkerProgress) -> Self {
        match progress {
            WorkerProgress::NotBegun => Self::NotBegun,
            WorkerProgress::Ended => Self::Ended,
            WorkerProgress::Unconfirmed => Self::Unconfirmed,
            WorkerProgress::Done => Self::Done,
        }
    }
}
