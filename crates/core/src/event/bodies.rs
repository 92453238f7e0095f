//! Bodies of events that several places share: the start of a call, a child session, a summary, a timer, a lost
//! observer.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Seq, SessionId, Stage, TaskId};
use crate::{
    message::{CallId, Usage},
    time::Timestamp,
    timer::{Schedule, TimerId},
    tool::Repair,
};

/// A call that may run: with its slot, or waiting for one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallStart {
    /// The model's id of the call.
    pub call: CallId,
    /// The name of the tool, as the model called it.
    pub tool: String,
    /// The arguments the tool receives, after repairs and decisions.
    pub arguments: Value,
    /// Repairs that turned the model's arguments into these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repairs: Vec<Repair>,
    /// Counts the tries of this call, from 1. A queued call waits with its next one.
    pub attempt: u32,
    /// Whether the call may run again after a crash.
    pub idempotent: bool,
    /// Whether the tool can find out if an interrupted call was done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reconcile: bool,
}

/// A child session and what it works on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildLink {
    /// The child session.
    pub child: SessionId,
    /// The call that runs the child; absent for a stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// The stage the child works on; absent for a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// The task the child solves; absent outside the solving stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
}

/// A summary that replaces old history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compaction {
    /// How many of the oldest messages the summary replaces. The question of the running turn follows it unchanged.
    pub messages: u64,
    /// The text that replaces those messages.
    pub summary: String,
    /// True if a model wrote the summary; false if the history was cut by rule because the model failed.
    pub by_model: bool,
    /// Estimated tokens of the history before.
    pub tokens_before: u64,
    /// Estimated tokens of the history after.
    pub tokens_after: u64,
    /// Tokens the summary itself cost.
    #[serde(default)]
    pub usage: Usage,
}

/// The connection of an observer that was lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LostObserver {
    /// The close code of the transport, for example 1006.
    pub close_code: u16,
    /// The close reason of the transport.
    pub close_reason: String,
    /// The last record the observer received.
    pub last_seq: Seq,
    /// How long the observer was connected, in milliseconds.
    pub uptime_ms: u64,
}

/// A timer that was set, and its first time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewTimer {
    /// Unique in the session.
    pub timer: TimerId,
    /// When the timer fires.
    pub schedule: Schedule,
    /// What the session is told when the timer fires.
    pub message: String,
    /// The first time at which it fires.
    pub next: Timestamp,
    /// The sender that set it.
    pub by: String,
}
