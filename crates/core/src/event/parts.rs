//! Parts of events: stages, tasks, the ways work ends, and the scope of a fault.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::TaskId;
use crate::{fault::Fault, message::CallId};

/// A stage of a plan → solve → aggregate pipeline, in running order.
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
    /// The planner splits the question into tasks.
    Planning,
    /// The solvers work on the tasks.
    Solving,
    /// The aggregator combines the results.
    Aggregation,
}

/// A task of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Unique in its plan; a number if the planner gave none.
    pub id: TaskId,
    /// One line, for lists.
    pub title: String,
    /// The full instruction for the solver.
    pub prompt: String,
    /// Further fields of the planner's JSON, verbatim.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Value>,
}

/// How work on a task ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskEnd {
    /// The work succeeded.
    Completed {
        /// The final text of the work.
        output: String,
    },
    /// The work failed.
    Failed {
        /// Why the work failed.
        fault: Fault,
    },
    /// A sender cancelled the work, its turn or its plan.
    Cancelled {
        /// Why the work was cancelled.
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
    /// The model finished its answer.
    EndTurn,
    /// The model reached its output token limit.
    MaxTokens,
    /// The turn reached its limit of model requests.
    MaxTurnRequests,
    /// The model refused to answer.
    Refusal,
    /// A sender cancelled the turn or closed the session.
    Cancelled,
    /// The turn failed; the fault of `TurnEnded` says why.
    Failed,
}

/// How a session ended. A later message re-opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SessionEnd {
    /// A sender closed the session.
    Closed,
    /// A fault made it impossible to continue.
    Error,
}

/// The part of a turn that a fault or a retry concerns; all fields are absent for the turn as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scope {
    /// The step of the turn, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// The call within the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// The name of the tool that was called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The stage of the pipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// The task of the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
}

/// What a tool found out about an interrupted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReconcileVerdict {
    /// The call did nothing; it runs again.
    DidNotHappen,
    /// The call was done; its end has the result.
    Happened,
    /// The call still runs outside of this process. The next attempt waits for its end and does not start it again.
    StillRuns,
    /// The tool cannot tell; the outcome stays unknown.
    CannotTell,
}

/// What a person says of a call whose outcome is unknown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settlement {
    /// The call was done.
    Happened {
        /// The result that the model reads.
        result: Value,
    },
    /// The call did nothing; the model may make it again.
    DidNotHappen,
    /// The model finds out by itself.
    LeftToModel,
}

/// What a question asks a person for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionPurpose {
    /// Whether the call may run. The call has not started.
    #[default]
    Permission,
    /// Values that the running call needs. A denial declines to give them; the call goes on.
    Elicitation,
}

impl QuestionPurpose {
    /// Whether the question decides if a call may run.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        *self == Self::Permission
    }
}
