//! What a session is set to, and where it comes from.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Seq, SessionId, Stage, TaskId};
use crate::{lang::Lang, message::CallId, tool::Permissions};

/// What a session was set to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The language people are spoken to in.
    pub language: Lang,
    /// The model, as the engine's configuration names it.
    pub model: String,
    /// Standing instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<Arc<str>>,
    /// The directory tools work in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Who may call what.
    pub permissions: Permissions,
    /// A short name for lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// For searching.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Model requests in one turn; the system's limit if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    /// Tokens one turn may use; the system's limit if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turn_tokens: Option<u64>,
    /// The most tokens of one answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_answer_tokens: Option<u32>,
    /// How deeply the model thinks before it answers; not at all if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// Tools on offer, by name or `prefix*`; all if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// How a gateway's extras ride along.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Value>,
}

/// How deeply a model thinks before it answers.
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
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Thinking {
    /// A little.
    Low,
    /// As much as most tasks need.
    Medium,
    /// As much as it can.
    High,
}

impl Thinking {
    /// The tokens a model may think with, where it is told a number.
    #[must_use]
    pub fn tokens(self) -> u32 {
        match self {
            Self::Low => 2_048,
            Self::Medium => 8_192,
            Self::High => 24_576,
        }
    }
}

impl Settings {
    /// The label that names the engine a session belongs to. Without it, it is the native loop's.
    pub const ENGINE: &'static str = "engine";

    /// The name of the native loop, whose sessions carry no label.
    pub const NATIVE: &'static str = "native";

    /// The name of the engine the session belongs to.
    #[must_use]
    pub fn engine(&self) -> &str {
        engine_of(&self.labels)
    }

    /// Does the session belong to another engine than the native loop? Then only that one runs it.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.labels.contains_key(Self::ENGINE)
    }
}

/// The name of the engine that a session with these labels belongs to.
#[must_use]
pub fn engine_of(labels: &BTreeMap<String, String>) -> &str {
    labels.get(Settings::ENGINE).map_or(Settings::NATIVE, String::as_str)
}

/// Where a session comes from, if not from a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A call of a parent session runs it.
    Call {
        /// The parent.
        parent: SessionId,
        /// The call.
        call: CallId,
        /// How deep below a person's session: 1, 2 …
        depth: u32,
    },
    /// It works on a stage of a parent's plan.
    Stage {
        /// The parent.
        parent: SessionId,
        /// Which stage.
        stage: Stage,
        /// Which task, when solving.
        task: Option<TaskId>,
        /// How deep below a person's session.
        depth: u32,
    },
    /// It is a copy of another up to a position.
    Fork {
        /// The original.
        parent: SessionId,
        /// Copied up to and including.
        at: Seq,
    },
}
