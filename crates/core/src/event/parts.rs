//! What events are made of: stages, tasks, the ways things end, and what a fault is about.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::TaskId;
use crate::{fault::Fault, message::CallId};

/// A stage of plan → solve → aggregate.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Stage {
    /// Tasks are being found.
    Planning,
    /// Tasks are being worked on.
    Solving,
    /// Results are being combined.
    Aggregation,
}

/// A task of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Unique in its plan.
    pub id: TaskId,
    /// What it is about, in a line.
    pub title: String,
    /// What the solver is told.
    pub prompt: String,
    /// Whatever else the planner wrote.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Value>,
}

/// How work on a task ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskEnd {
    /// It worked.
    Completed {
        /// What came out.
        output: String,
    },
    /// It did not.
    Failed {
        /// What went wrong.
        fault: Fault,
    },
    /// Somebody stopped it.
    Cancelled {
        /// Why.
        reason: String,
    },
}

/// Why a turn ended.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum StopReason {
    /// The model was done.
    EndTurn,
    /// The model ran into its output limit.
    MaxTokens,
    /// The turn used all its model requests.
    MaxTurnRequests,
    /// The model declined.
    Refusal,
    /// Somebody stopped it.
    Cancelled,
    /// It failed; the fault says how.
    Failed,
}

/// How a session ended. A later message re-opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SessionEnd {
    /// Somebody closed it.
    Closed,
    /// Nothing can go on.
    Error,
}

/// What a fault or a retry is about, besides the turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scope {
    /// The step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// The call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// The tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// The task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
}
